package view

import (
	"encoding/json"
	"math"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-project/berth/internal/job"
)

// Get finds a value, or nil.
func Get(tree map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(tree, path...)
	return value
}

// String finds a text; anything else is empty.
func String(tree map[string]any, path ...string) string {
	s, _ := Get(tree, path...).(string)
	return s
}

// Bool finds a truth value; anything else is false.
func Bool(tree map[string]any, path ...string) bool {
	b, _ := Get(tree, path...).(bool)
	return b
}

// Int finds a number, or otherwise if there is none. One that 32 bits cannot hold is the nearest that they can.
func Int(tree map[string]any, otherwise int32, path ...string) int32 {
	switch n := Get(tree, path...).(type) {
	case int64:
		return job.Saturate(n)
	case float64:
		return int32(min(max(n, math.MinInt32), math.MaxInt32))
	case json.Number:
		if i, err := n.Int64(); err == nil {
			return job.Saturate(i)
		}
	}
	return otherwise
}

// Map finds a map, or nil. It is not a copy.
func Map(tree map[string]any, path ...string) map[string]any {
	m, _ := Get(tree, path...).(map[string]any)
	return m
}

// Maps finds a list of maps and leaves other entries out. The maps are not copies.
func Maps(tree map[string]any, path ...string) []map[string]any {
	list, _ := Get(tree, path...).([]any)
	out := make([]map[string]any, 0, len(list))
	for _, entry := range list {
		if m, ok := entry.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// Set writes a value, and the maps that lead to it.
func Set(tree map[string]any, value any, path ...string) {
	for _, name := range path[:len(path)-1] {
		next, ok := tree[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			tree[name] = next
		}
		tree = next
	}
	tree[path[len(path)-1]] = value
}

// put writes a value, or removes it if it is nil, and the map around it if nothing is left there.
func put(tree map[string]any, value any, outer, name string) {
	if value != nil {
		Set(tree, value, outer, name)
		return
	}
	around := Map(tree, outer)
	delete(around, name)
	if len(around) == 0 {
		delete(tree, outer)
	}
}
