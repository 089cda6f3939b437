package declare

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// set sets a value at a path, and creates missing maps; nil removes it.
func set(tree map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		next, ok := tree[name].(map[string]any)
		if !ok {
			if value == nil {
				return
			}
			next = map[string]any{}
			tree[name] = next
		}
		tree = next
	}
	if value == nil {
		delete(tree, path[len(path)-1])
	} else {
		tree[path[len(path)-1]] = value
	}
}

// at returns the map at a path such as spec.roles[0].template; nil if there is none.
func at(tree map[string]any, path string) map[string]any {
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "."), ".") {
		name, rest, indexed := strings.Cut(part, "[")
		next := tree[name]
		if indexed {
			list, _ := next.([]any)
			i, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
			if err != nil || i < 0 || i >= len(list) {
				return nil
			}
			next = list[i]
		}
		var ok bool
		if tree, ok = next.(map[string]any); !ok {
			return nil
		}
	}
	return tree
}

// merge applies a merge patch. Values that are empty in the patch are removed, and so are maps that become empty by it.
func merge(tree, patch map[string]any) {
	for _, key := range sortedKeys(patch) {
		value := patch[key]
		inner, isMap := value.(map[string]any)
		list, isList := value.([]any)
		switch {
		case value == nil, isMap && len(inner) == 0, isList && len(list) == 0:
			delete(tree, key)
		case isMap:
			old, ok := tree[key].(map[string]any)
			wasEmpty := ok && len(old) == 0
			if !ok {
				old = map[string]any{}
			}
			merge(old, inner)
			if tree[key] = old; len(old) == 0 && !wasEmpty {
				delete(tree, key)
			}
		default:
			tree[key] = value
		}
	}
}
