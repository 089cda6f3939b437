package options

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-project/berth/internal/options/strict"
)

// Changes lists the fields, by path, in which two configurations differ once their defaults are filled in, sorted. A list
// that differs is one change.
func Changes(a, b *Options) []string {
	return changes("", tree(a), tree(b))
}

// tree is the configuration as decoded JSON.
func tree(o *Options) map[string]any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.document())
	if err != nil {
		panic(err) // the type is ours, and is written as YAML too
	}
	return out
}

func changes(path string, a, b any) []string {
	x, first := a.(map[string]any)
	y, second := b.(map[string]any)
	// What is absent on one side is compared field by field too.
	if !(first && second) && !(first && b == nil) && !(second && a == nil) {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return []string{path}
	}
	names := map[string]any{}
	maps.Copy(names, x)
	maps.Copy(names, y)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, changes(strict.JoinField(path, name), x[name], y[name])...)
	}
	return out
}
