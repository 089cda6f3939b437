package hostile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// values replace a field: sizes at the limits of their types, texts that are long or mean something elsewhere, and other types.
func values(r *rand.Rand) any {
	switch r.IntN(12) {
	case 0:
		return []any{int64(0), int64(-1), int64(math.MaxInt32), int64(math.MaxInt32) + 1, int64(math.MaxInt64), int64(math.MinInt64), int64(100_000), int64(1_000_000)}[r.IntN(8)]
	case 1:
		return strings.Repeat("long-", 1+r.IntN(20_000))
	case 2:
		return []any{"", "../../../etc/passwd", "-1", "1e400", "9223372036854775807Ei", "1n", "\u202e\u0000", "{{.}}", "a/b/c", "$(X)$(X)"}[r.IntN(10)]
	case 3:
		deep := any("end")
		for range 1 + r.IntN(2_000) {
			if r.IntN(2) == 0 {
				deep = []any{deep}
			} else {
				deep = map[string]any{"d": deep}
			}
		}
		return deep
	case 4:
		wide := map[string]any{}
		for i := range 1 + r.IntN(5_000) {
			wide[fmt.Sprintf("k%d", i)] = "v"
		}
		return wide
	case 5:
		return slices.Repeat([]any{map[string]any{}}, 1+r.IntN(20_000))
	case 6:
		return nil
	case 7:
		return r.IntN(2) == 0
	case 8:
		return math.MaxFloat64
	default:
		return int64(math.MaxInt32) - int64(r.IntN(3))
	}
}

// mutate changes one field of a tree, wherever it is, or a list's length.
func mutate(r *rand.Rand, tree map[string]any) {
	var places []func()
	var walk func(at any)
	walk = func(at any) {
		switch at := at.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(at)) {
				if list, ok := at[key].([]any); ok && len(list) > 0 {
					places = append(places, func() { at[key] = slices.Repeat(list[:1], 1+r.IntN(3_000)) })
				}
				places = append(places, func() { at[key] = values(r) })
				walk(at[key])
			}
		case []any:
			for i := range at {
				places = append(places, func() { at[i] = values(r) })
				walk(at[i])
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if key != "apiVersion" && key != "kind" && key != "metadata" { // what else would be told apart by the API server itself
			walk(map[string]any{key: tree[key]})
			if part, ok := tree[key].(map[string]any); ok {
				walk(part)
			}
		}
	}
	if len(places) > 0 {
		places[r.IntN(len(places))]()
	}
}

// lengthen fills one list of a tree with so many elements that differ in their names as an API server takes in one object, and so with maps.
func lengthen(r *rand.Rand, tree map[string]any, bytes int) (where string) {
	type place struct {
		path string
		fill func()
	}
	var places []place
	var walk func(path string, at any)
	walk = func(path string, at any) {
		switch at := at.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(at)) {
				inside := path + "." + key
				switch inner := at[key].(type) {
				case []any:
					if element, ok := first(inner); ok {
						places = append(places, place{inside, func() { at[key] = distinct(element, bytes) }})
					}
				case map[string]any:
					if plain(inner) {
						places = append(places, place{inside, func() {
							for i := range bytes / 20 {
								inner[fmt.Sprintf("key-%07d", i)] = "1"
							}
						}})
					}
				}
				walk(inside, at[key])
			}
		case []any:
			for _, element := range at {
				walk(path+"[]", element)
			}
		}
	}
	walk("", map[string]any{"spec": tree["spec"]})
	if len(places) == 0 {
		return ""
	}
	chosen := places[r.IntN(len(places))]
	chosen.fill()
	return chosen.path
}

func first(list []any) (map[string]any, bool) {
	if len(list) == 0 {
		return nil, false
	}
	element, ok := list[0].(map[string]any)
	return element, ok
}

// plain reports whether a map has texts only, such as labels or requests.
func plain(m map[string]any) bool {
	for _, v := range m {
		if _, ok := v.(string); !ok {
			return false
		}
	}
	return len(m) > 0
}

// distinct are copies of an element with names of their own.
func distinct(element map[string]any, bytes int) []any {
	name := "name"
	if _, ok := element["groupName"]; ok {
		name = "groupName"
	}
	text, err := json.Marshal(element)
	if err != nil {
		panic(err)
	}
	var out []any
	for i := range bytes/(len(text)+8) + 1 {
		another := maps.Clone(element)
		another[name] = fmt.Sprintf("n%07d", i)
		out = append(out, another)
	}
	return out
}
