package patch

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// overlay merges a structure field by field into another: nested structures and maps are merged, everything else, also a
// list, is replaced. Either may be nil. The patch may become part of the result.
func overlay[T any](base, patch *T) *T {
	switch {
	case patch == nil:
		return base
	case base == nil:
		return patch
	}
	merged := overlayValue(*base, *patch)
	return &merged
}

// overlayValue is overlay of values. It goes through the JSON form, in which absent fields can be told.
func overlayValue[T any](base, patch T) T {
	b, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&base)
	if err != nil {
		return patch
	}
	p, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&patch)
	if err != nil {
		return patch
	}
	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(overlayMap(b, p), &out); err != nil {
		return patch
	}
	return out
}

// overlayMap merges p into b, in place.
func overlayMap(b, p map[string]any) map[string]any {
	for key, value := range p { //berth:unordered each key is written once
		old, ok := b[key].(map[string]any)
		if patch, isMap := value.(map[string]any); isMap && ok {
			b[key] = overlayMap(old, patch)
		} else {
			b[key] = value
		}
	}
	return b
}

// jsonValue is a value as JSON decoded without types, or nil if it has none.
func jsonValue(v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out any
	if json.Unmarshal(data, &out) != nil {
		return nil
	}
	return out
}
