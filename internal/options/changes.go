package options

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-project/berth/internal/options/strict"
)

// Changes returns the paths of the fields that differ between two configurations with defaults, sorted. Lists are compared as a whole.
func Changes(a, b *Options) []string {
	return changes("", tree(a), tree(b))
}

func tree(o *Options) map[string]any {
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.document())
	if err != nil {
		panic(err) // the type is ours, and can be converted
	}
	return out
}

func changes(path string, a, b any) []string {
	x, first := a.(map[string]any)
	y, second := b.(map[string]any)
	// A mapping that is absent on one side is compared field by field, too.
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
