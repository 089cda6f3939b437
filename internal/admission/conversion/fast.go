package conversion

import (
	"bytes"
	"slices"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// The API server asks for the conversion of every written object, once for watchers of v1beta1. Most objects have none of the fields that
// differ, so only the version in their text changes; detecting that is much cheaper than decoding and encoding. Any text that is not
// spelled as the API server spells it is decoded.

// relabelled appends the text of an object in the other version, if only its version changes.
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
	if k, differs := kinds[string(bytes.Trim(member(raw, "kind"), `"`))]; differs {
		fields := k.upFields
		if to == kueuev1beta1.GroupVersion.String() {
			fields = k.downFields
		}
		if mentions(raw, KeptAnnotation) || slices.ContainsFunc(fields, func(f string) bool { return mentions(raw, f) }) ||
			bytes.Contains(raw, []byte(`\u`)) { // a name may be spelled so
			return out, false
		}
	}
	return append(append(append(append(out, `{"apiVersion":"`...), to...), `",`...), rest...), true
}

// mentions reports whether a text may have a field of the name.
func mentions(raw []byte, name string) bool { return bytes.Contains(raw, []byte(`"`+name+`"`)) }

// fast appends the answer to a ConversionReview of which all objects can be relabelled.
func fast(out, body []byte) ([]byte, bool) {
	request := member(body, "request")
	uid, to := member(request, "uid"), member(request, "desiredAPIVersion")
	if len(uid) == 0 || len(to) == 0 {
		return nil, false
	}
	out = append(out, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":`...)
	out = append(append(out, uid...), `,"convertedObjects":[`...)
	version := string(bytes.Trim(to, `"`))
	n := 0
	if !each(member(request, "objects"), func(raw []byte) (ok bool) {
		if n++; n > 1 {
			out = append(out, ',')
		}
		out, ok = relabelled(out, raw, version)
		return ok
	}) {
		return nil, false
	}
	return append(out, `],"result":{"metadata":{},"status":"Success"}}}`...), true
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
