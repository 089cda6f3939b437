package view

import (
	"encoding/json"
	"math"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-project/berth/internal/job"
)

// Get returns a value, or nil.
func Get(tree map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(tree, path...)
	return value
}

// String returns a string; "" for anything else.
func String(tree map[string]any, path ...string) string {
	s, _ := Get(tree, path...).(string)
	return s
}

// Bool returns a bool; false for anything else.
func Bool(tree map[string]any, path ...string) bool {
	b, _ := Get(tree, path...).(bool)
	return b
}

// Int returns a number, saturated at 32 bits, or otherwise if there is none.
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

// Map returns a map, not a copy, or nil.
func Map(tree map[string]any, path ...string) map[string]any {
	m, _ := Get(tree, path...).(map[string]any)
	return m
}

// Maps returns the maps in a list, not copies, and skips other entries.
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

// Set writes a value, and creates the maps on its path.
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

// put writes a value, or removes a nil one, and the map around it if that becomes empty.
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
