package external

import (
	"encoding/json"
	"slices"
	"strings"
)

// MirroredAnnotation on a local job has the labels and annotations of its copy at the last mirroring. Only those may be removed here
// when the copy no longer has them: other keys are the user's. The same request writes it with the keys, so a restart of the manager
// loses nothing.
const MirroredAnnotation = "multikueue.berth.dev/mirrored-keys"

// mirrored is the value of MirroredAnnotation. It is valid only for the copy with that UID.
type mirrored struct {
	Copy        string   `json:"copy"`
	Annotations []string `json:"annotations,omitempty"`
	Labels      []string `json:"labels,omitempty"`
}

// mirrorKeys mirrors the labels and annotations with the configured prefixes from a copy to its job, and returns the present ones. Keys
// that the copy has lost are removed (spec: 40 §4.13.1, statusSync.metadata).
func (f *Framework) mirrorKeys(object, from map[string]any) mirrored {
	uid, _ := get(from, []string{"metadata", "uid"})
	now := mirrored{}
	now.Copy, _ = uid.(string)
	before := noted(object)
	if before.Copy != now.Copy {
		before = mirrored{}
	}
	now.Annotations = f.mirrorMap("annotations", f.AnnotationPrefixes, before.Annotations, object, from)
	now.Labels = f.mirrorMap("labels", f.LabelPrefixes, before.Labels, object, from)
	return now
}

func (f *Framework) mirrorMap(name string, prefixes, had []string, object, from map[string]any) (has []string) {
	meta, ok := object["metadata"].(map[string]any)
	if !ok || len(prefixes) == 0 {
		return nil
	}
	mine := func(key string) bool {
		return !f.Reserved(key) && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
	}
	theirs, _ := get(from, []string{"metadata", name})
	source, _ := theirs.(map[string]any)
	target, ok := meta[name].(map[string]any)
	if !ok {
		target = map[string]any{}
	}
	for _, key := range had {
		if _, still := source[key]; !still && mine(key) {
			delete(target, key)
		}
	}
	for _, key := range sortedKeys(source) {
		if mine(key) {
			target[key] = source[key]
			has = append(has, key)
		}
	}
	if len(target) > 0 || ok {
		meta[name] = target
	}
	return has
}

func noted(object map[string]any) mirrored {
	value, _ := get(object, []string{"metadata", "annotations", MirroredAnnotation})
	text, _ := value.(string)
	var out mirrored
	if json.Unmarshal([]byte(text), &out) != nil {
		return mirrored{}
	}
	return out
}

// note writes MirroredAnnotation, and returns whether that changes the job.
func note(object map[string]any, has mirrored) bool {
	text := ""
	if len(has.Annotations)+len(has.Labels) > 0 {
		raw, err := json.Marshal(has)
		if err != nil {
			return false
		}
		text = string(raw)
	}
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return false
	}
	annotations, _ := meta["annotations"].(map[string]any)
	old, _ := annotations[MirroredAnnotation].(string)
	switch {
	case text == old:
		return false
	case text == "":
		delete(annotations, MirroredAnnotation)
	case annotations == nil:
		meta["annotations"] = map[string]any{MirroredAnnotation: text}
	default:
		annotations[MirroredAnnotation] = text
	}
	return true
}
