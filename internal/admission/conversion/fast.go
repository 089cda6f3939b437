package conversion

import (
	"bytes"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// The API server asks for the conversion of every written object, once for watchers of v1beta1. Most objects have none of the fields that
// differ, so only the version in their text changes; detecting that is much cheaper than decoding and encoding. Of the others the parts
// that no conversion changes pass as text: see opaque. Of a Workload whose pods have places, nothing else is decoded: see placed. Any text that
// is not spelled as the API server spells it is decoded.

// relabelled appends the text of an object in the other version, if only its version changes, or its places besides.
func relabelled(out, raw []byte, to string) ([]byte, bool) {
	from := kueue.GroupVersion.String()
	if to == from {
		from = kueuev1beta1.GroupVersion.String()
	} else if to != kueuev1beta1.GroupVersion.String() {
		return out, false
	}
	rest, ok := bytes.CutPrefix(raw, []byte(`{"apiVersion":"`+from+`",`))
	if !ok {
		return out, false
	}
	places := false
	if k, differs := kinds[string(bytes.Trim(member(raw, "kind"), `"`))]; differs {
		fields, down := k.upFields, to == kueuev1beta1.GroupVersion.String()
		if down {
			fields = k.downFields
		}
		if mentions(raw, KeptAnnotation) || bytes.Contains(raw, []byte(`\u`)) { // a name may be spelled so
			return out, false
		}
		for _, f := range fields {
			switch {
			case !mentions(raw, f):
			case down && f == placesField:
				places = true
			default:
				return out, false
			}
		}
	}
	first := len(out)
	out = append(append(append(out, `{"apiVersion":"`...), to...), `",`...)
	if !places {
		return append(out, rest...), true
	}
	if out, ok = placed(out, rest, raw); !ok {
		return out[:first], false
	}
	return out, true
}

// placed appends the rest of the text of a Workload of v1beta2 in v1beta1: its topology assignments are spelled out. ok is false if that
// loses something that is to be kept.
func placed(out, rest, raw []byte) (_ []byte, ok bool) {
	left, from := newSpace(), cap(raw)-cap(rest)
	list := member(member(member(raw, "status"), "admission"), "podSetAssignments")
	ok = list == nil || each(list, func(item []byte) bool {
		text := member(item, placesField)
		if text == nil {
			return true
		}
		var in struct {
			Levels json.RawMessage                 `json:"levels"`
			Slices []kueue.TopologyAssignmentSlice `json:"slices"`
		}
		var plain bool
		if in.Levels, in.Slices, plain = plainAssignment(text); !plain {
			in.Levels, in.Slices = nil, nil
			if strict, err := kjson.UnmarshalStrict(text, &in, kjson.DisallowUnknownFields); err != nil || strict != nil || in.Slices == nil {
				return false
			}
		}
		domains, err := expand(in.Slices, left)
		if err != nil || !reflect.DeepEqual(assignment.Compress(domains), in.Slices) {
			return false
		}
		start := cap(raw) - cap(text)
		out = append(out, raw[from:start]...)
		from = start + len(text)
		out, err = appendDomains(out, in.Levels, domains, plain)
		return err == nil
	})
	return append(out, raw[from:]...), ok
}

// appendDomains appends the text of domains in v1beta1. plain: their values and the levels need no escapes.
func appendDomains(out []byte, levels json.RawMessage, domains []assignment.Domain, plain bool) ([]byte, error) {
	if plain {
		return appendPlain(out, levels, domains), nil
	}
	spelled := struct {
		Domains []domain        `json:"domains"`
		Levels  json.RawMessage `json:"levels,omitempty"`
	}{make([]domain, len(domains)), levels}
	for i, d := range domains {
		spelled.Domains[i] = domain{d.Count, d.Values}
	}
	next, err := json.Marshal(&spelled)
	return append(out, next...), err
}

// mentions reports whether a text may have a field of the name.
func mentions(raw []byte, name string) bool { return bytes.Contains(raw, []byte(`"`+name+`"`)) }

// fast appends the answer to a ConversionReview of which all objects can be converted.
func fast(out, body []byte) ([]byte, bool) {
	request := member(body, "request")
	uid, to := member(request, "uid"), member(request, "desiredAPIVersion")
	if len(uid) == 0 || len(to) == 0 {
		return nil, false
	}
	out = append(out, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":`...)
	out = append(append(out, uid...), `,"convertedObjects":[`...)
	version := string(bytes.Trim(to, `"`))
	parsed, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil, false
	}
	n := 0
	if !each(member(request, "objects"), func(raw []byte) (ok bool) {
		if n++; n > 1 {
			out = append(out, ',')
		}
		if out, ok = relabelled(out, raw, version); ok {
			return true
		}
		text, err := convertRaw(raw, parsed)
		out = append(out, text...)
		return err == nil
	}) {
		return nil, false
	}
	return append(out, `],"result":{"metadata":{},"status":"Success"}}}`...), true
}

// piece is a part of the text of an object that is not decoded: the managed fields, or the template of the pod set with an index.
type piece struct {
	podSet     int // -1 for the managed fields
	start, end int
}

// opaque returns the parts of the text of an object that no conversion changes, in their order. They are most of it.
func opaque(raw []byte) (out []piece) {
	add := func(podSet int, text []byte) {
		if text != nil {
			start := cap(raw) - cap(text)
			out = append(out, piece{podSet, start, start + len(text)})
		}
	}
	add(-1, member(member(raw, "metadata"), "managedFields"))
	i := 0
	each(member(member(raw, "spec"), "podSets"), func(item []byte) bool {
		add(i, member(item, "template"))
		i++
		return true
	})
	return out
}

// blank returns the text with null for each piece.
func blank(raw []byte, pieces []piece) []byte {
	out := make([]byte, 0, len(raw))
	from := 0
	for _, p := range pieces {
		if p.start < from { // metadata after spec
			return raw
		}
		out = append(append(out, raw[from:p.start]...), "null"...)
		from = p.end
	}
	return append(out, raw[from:]...)
}

// putBack replaces the nulls of blank.
func putBack(o object, raw []byte, pieces []piece) {
	sets := items(at(o, "spec"), "podSets")
	for _, p := range pieces {
		in, key := at(o, "metadata"), "managedFields"
		if p.podSet >= 0 {
			if p.podSet >= len(sets) {
				continue
			}
			in, key = sets[p.podSet], "template"
		}
		if value, ok := in[key]; ok && value == nil {
			in[key] = json.RawMessage(raw[p.start:p.end])
		}
	}
}

// member returns the value of a key in the text of an object without blanks between tokens; nil if there is none, or if the text is not
// an object.
func member(object []byte, key string) []byte {
	for i := 1; i < len(object); {
		end := skip(object, i)
		if object[0] != '{' || end < 0 || end >= len(object) || object[end] != ':' {
			return nil
		}
		name := object[i:end]
		i = end + 1
		if end = skip(object, i); end < 0 || end >= len(object) {
			return nil
		}
		if string(name) == `"`+key+`"` {
			return object[i:end]
		}
		if object[end] != ',' {
			return nil
		}
		i = end + 1
	}
	return nil
}

// each calls f for the items of the text of a list. It returns false for any other text, or if f returns false for an item.
func each(list []byte, f func(item []byte) bool) bool {
	for i := 1; i < len(list); {
		end := skip(list, i)
		if list[0] != '[' || end < 0 || end >= len(list) || !f(list[i:end]) {
			return false
		}
		if list[end] == ']' {
			return end == len(list)-1
		}
		if list[end] != ',' {
			return false
		}
		i = end + 1
	}
	return false
}

// skip returns the end of the value that begins at i, or -1. It counts brackets and respects strings, and assumes valid JSON between
// them.
func skip(text []byte, i int) int {
	depth := 0
	for ; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; ; i++ {
				n := bytes.IndexByte(text[min(i, len(text)):], '"')
				if n < 0 {
					return -1
				}
				i += n
				slashes := 0
				for text[i-1-slashes] == '\\' {
					slashes++
				}
				if slashes%2 == 0 {
					break
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
		case ',', ':':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return -1
}
