package external

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

const maxOps = 256

// maxNumber bounds whole numbers in a patch: JSON readers may round larger ones.
const maxNumber = 1 << 53

type operation struct {
	verb       string
	path, from []string
	value      any
	hasValue   bool
}

// errTest is a failed test of a patch: it changes nothing and is no mistake.
var errTest = errors.New("a test of the patch failed")

// applyJSON returns the object with a JSON patch (RFC 6902), applied as a whole or not at all.
func applyJSON(object map[string]any, list []any, limit int) (map[string]any, error) {
	if len(list) > maxOps {
		return nil, fmt.Errorf("the patch has %d operations, and %d is the limit", len(list), maxOps)
	}
	var root any = runtime.DeepCopyJSON(object)
	budget := int64(limit) * 4 // for copies
	for i, entry := range list {
		op, err := read(entry)
		if err == nil {
			root, err = op.apply(root, &budget)
		}
		if err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
	}
	out, ok := root.(map[string]any)
	if !ok {
		return nil, &Error{Code: Forbidden, Text: "the patch leaves no object"}
	}
	return out, nil
}

func read(entry any) (*operation, error) {
	m, ok := entry.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("is no JSONPatch{…}")
	}
	op := &operation{}
	op.verb, _ = m["op"].(string)
	for _, p := range []struct {
		key  string
		into *[]string
	}{{"path", &op.path}, {"from", &op.from}} {
		text, ok := m[p.key].(string)
		if !ok {
			if p.key == "path" || op.verb == "move" || op.verb == "copy" {
				return nil, fmt.Errorf("%s needs %s", op.verb, p.key)
			}
			continue
		}
		path, err := split(text)
		if err != nil {
			return nil, err
		}
		*p.into = path
	}
	if op.value, op.hasValue = m["value"]; !op.hasValue && (op.verb == "add" || op.verb == "replace" || op.verb == "test") {
		return nil, fmt.Errorf("%s needs value", op.verb)
	}
	return op, numbers(op.value)
}

// split splits a JSON pointer (RFC 6901).
func split(text string) ([]string, error) {
	if text == "" {
		return []string{}, nil
	}
	rest, ok := strings.CutPrefix(text, "/")
	if !ok {
		return nil, fmt.Errorf("%q is no JSON pointer: it must begin with a slash", text)
	}
	path := strings.Split(rest, "/")
	for i, segment := range path {
		for at := 0; at < len(segment); at++ {
			if segment[at] == '~' && (at+1 == len(segment) || (segment[at+1] != '0' && segment[at+1] != '1')) {
				return nil, fmt.Errorf("%q is no JSON pointer: ~ must be followed by 0 or 1", text)
			}
		}
		path[i] = strings.ReplaceAll(strings.ReplaceAll(segment, "~1", "/"), "~0", "~")
	}
	return path, nil
}

// numbers refuses whole numbers that are not safe in JSON.
func numbers(value any) error {
	switch v := value.(type) {
	case int64:
		if v > maxNumber || v < -maxNumber {
			return fmt.Errorf("the number %d is too large for JSON", v)
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%v is no number", v)
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if err := numbers(v[key]); err != nil {
				return err
			}
		}
	case []any:
		for _, entry := range v {
			if err := numbers(entry); err != nil {
				return err
			}
		}
	}
	return nil
}

func (op *operation) apply(root any, budget *int64) (any, error) {
	switch op.verb {
	case "add", "replace":
		return op.put(root, op.path, op.value, op.verb == "replace", budget)
	case "remove":
		return edit(root, op.path, remove)
	case "move":
		if len(op.from) < len(op.path) && slices.Equal(op.from, op.path[:len(op.from)]) {
			return nil, fmt.Errorf("%s cannot be moved into itself", join(op.from))
		}
		value, err := get(root, op.from)
		if err != nil {
			return nil, err
		}
		if root, err = edit(root, op.from, remove); err != nil {
			return nil, err
		}
		return op.put(root, op.path, value, false, budget)
	case "copy":
		value, err := get(root, op.from)
		if err != nil {
			return nil, err
		}
		return op.put(root, op.path, value, false, budget)
	case "test":
		value, err := get(root, op.path)
		if err != nil || !same(value, op.value) {
			return nil, errTest
		}
		return root, nil
	}
	return nil, fmt.Errorf("op %q: must be one of add, remove, replace, move, copy, test", op.verb)
}

// same compares as JSON does: 1 is 1.0.
func same(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

func (op *operation) put(root any, path []string, value any, replace bool, budget *int64) (any, error) {
	if *budget -= size(value); *budget < 0 {
		return nil, &Error{Code: TooLarge, Text: "the patch makes too much of the object"}
	}
	value = runtime.DeepCopyJSONValue(value)
	if len(path) == 0 {
		return value, nil
	}
	return edit(root, path, func(parent any, key string) (any, error) {
		switch p := parent.(type) {
		case map[string]any:
			if _, ok := p[key]; replace && !ok {
				return nil, fmt.Errorf("%s does not exist", join(path))
			}
			p[key] = value
			return p, nil
		case []any:
			at, err := position(p, key, !replace)
			switch {
			case err != nil:
				return nil, err
			case replace:
				p[at] = value
				return p, nil
			}
			return slices.Insert(p, at, value), nil
		}
		return nil, fmt.Errorf("%s: what is around it is neither a map nor a list", join(path))
	})
}

func remove(parent any, key string) (any, error) {
	switch p := parent.(type) {
	case map[string]any:
		if _, ok := p[key]; !ok {
			return nil, fmt.Errorf("there is no %q to remove", key)
		}
		delete(p, key)
		return p, nil
	case []any:
		at, err := position(p, key, false)
		if err != nil {
			return nil, err
		}
		return slices.Delete(p, at, at+1), nil
	}
	return nil, fmt.Errorf("there is no %q to remove", key)
}

func edit(root any, path []string, change func(parent any, key string) (any, error)) (any, error) {
	if len(path) == 0 {
		return nil, fmt.Errorf("the object as a whole cannot be removed")
	}
	if len(path) == 1 {
		return change(root, path[0])
	}
	inner, err := get(root, path[:1])
	if err != nil {
		return nil, err
	}
	if inner, err = edit(inner, path[1:], change); err != nil {
		return nil, err
	}
	switch p := root.(type) {
	case map[string]any:
		p[path[0]] = inner
	case []any:
		at, err := position(p, path[0], false)
		if err != nil {
			return nil, err
		}
		p[at] = inner
	}
	return root, nil
}

func get(root any, path []string) (any, error) {
	for i, key := range path {
		switch p := root.(type) {
		case map[string]any:
			value, ok := p[key]
			if !ok {
				return nil, fmt.Errorf("%s does not exist", join(path[:i+1]))
			}
			root = value
		case []any:
			at, err := position(p, key, false)
			if err != nil {
				return nil, err
			}
			root = p[at]
		default:
			return nil, fmt.Errorf("%s does not exist", join(path[:i+1]))
		}
	}
	return root, nil
}

func position(list []any, key string, end bool) (int, error) {
	if key == "-" && end {
		return len(list), nil
	}
	at, err := strconv.Atoi(key)
	if err != nil || strconv.Itoa(at) != key || at < 0 || at > len(list) || (at == len(list) && !end) {
		return 0, fmt.Errorf("%q is no place in a list of %d", key, len(list))
	}
	return at, nil
}

func join(path []string) string {
	var out strings.Builder
	for _, segment := range path {
		out.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(segment, "~", "~0"), "/", "~1"))
	}
	return out.String()
}

func size(value any) int64 {
	switch v := value.(type) {
	case string:
		return int64(len(v)) + 2
	case map[string]any:
		total := int64(2)
		for key, inner := range v { //berth:unordered adds up
			total += int64(len(key)) + 4 + size(inner)
		}
		return total
	case []any:
		total := int64(2)
		for _, inner := range v {
			total += 1 + size(inner)
		}
		return total
	}
	return 8
}

// merge returns the object with an apply configuration: maps are merged, other values set. Lists are refused, since their merge is not
// specified.
func merge(object, with map[string]any, path []string) (map[string]any, error) {
	out := object
	for _, key := range sortedKeys(with) {
		at := append(slices.Clone(path), key)
		switch value := with[key].(type) {
		case []any:
			return nil, &Error{Code: UnsupportedList, Text: join(at) + " is a list: use a JSONPatch"}
		case map[string]any:
			inner, ok := out[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
			}
			merged, err := merge(inner, value, at)
			if err != nil {
				return nil, err
			}
			out[key] = merged
		case nil:
			return nil, fmt.Errorf("%s is null: an apply configuration cannot delete", join(at))
		default:
			if err := numbers(value); err != nil {
				return nil, err
			}
			out[key] = value
		}
	}
	return out, nil
}

// changes returns the paths that differ between two objects. Maps are compared key by key, also with a missing one; lists as a whole.
func changes(from, to map[string]any) [][]string {
	return diff(nil, nil, from, to)
}

func diff(out [][]string, path []string, from, to any) [][]string {
	a, isMap := from.(map[string]any)
	b, bothMaps := to.(map[string]any)
	switch {
	case equality.Semantic.DeepEqual(from, to):
		return out
	case isMap && (bothMaps || to == nil) && len(a) > 0, bothMaps && from == nil && len(b) > 0:
	case isMap && bothMaps:
	default:
		return append(out, slices.Clone(path))
	}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(append(sortedKeys(a), sortedKeys(b)...)))) {
		x, was := a[key]
		y, is := b[key]
		at := append(slices.Clone(path), key)
		if was != is && x == nil && y == nil { // null where there was nothing
			out = append(out, at)
			continue
		}
		out = diff(out, at, x, y)
	}
	return out
}

// prune removes null from maps: a merge patch cannot write it.
func prune(value any) {
	m, ok := value.(map[string]any)
	if !ok {
		return
	}
	for key, inner := range m { //berth:unordered each by itself
		if inner == nil {
			delete(m, key)
		} else {
			prune(inner)
		}
	}
}

func depth(value any, limit int) int {
	deepest := 0
	if limit <= 0 {
		return 1
	}
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v { //berth:unordered the deepest
			deepest = max(deepest, depth(inner, limit-1))
		}
		return deepest + 1
	case []any:
		for _, inner := range v {
			deepest = max(deepest, depth(inner, limit-1))
		}
		return deepest + 1
	}
	return 0
}
