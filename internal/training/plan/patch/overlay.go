package patch

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// overlay merges a structure into another: nested structures and maps are merged, other fields and lists are replaced. Either may be nil.
// The result may share memory with the patch.
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

// overlayValue merges values by their JSON form, which omits absent fields.
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
