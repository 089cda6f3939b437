package review

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// maxExponent bounds the exponents of quantities. A number such as 1e-999999999 takes minutes and gigabytes to be parsed, and
// 1e999999999 to be compared; the API server parses neither in a custom resource.
const maxExponent = 30

// Quantities are the values of these fields, and the values in these maps. The same text elsewhere, as in an environment variable,
// is no quantity.
var (
	quantityFields = []string{
		"sizeLimit", "divisor", "nominalQuota", "borrowingLimit", "lendingLimit", "weight", "coreRequest", "coreLimit", "memory", "memoryLimit", "memoryOverhead",
	}
	quantityMaps = []string{"requests", "limits", "overhead", "capacity", "resources", "resourceUsage"}
)

var exponential = regexp.MustCompile(`^([+-]?[0-9.]+)[eE]([+-]?)([0-9]+)$`)

// boundExponents returns JSON in which no quantity has an exponent beyond maxExponent, and an error for each quantity that had one.
func boundExponents(raw []byte) ([]byte, field.ErrorList, error) {
	if !mayHaveExponent(raw) {
		return raw, nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, nil, err
	}
	var b bounding
	if tree = b.bound(tree, nil, "", ""); b.found == nil {
		return raw, nil, nil
	}
	text, err := json.Marshal(tree)
	return text, b.found, err
}

// mayHaveExponent reports whether a value of the text ends in an exponent of two digits or more, or escapes may hide one. Every request is
// searched, and most have digits beside the letter somewhere, as in the UID of an object.
func mayHaveExponent(raw []byte) bool {
	for i, c := range raw {
		if (c == '\\' && i+1 < len(raw) && raw[i+1] == 'u') || ((c == 'e' || c == 'E') && isExponent(raw, i)) {
			return true
		}
	}
	return false
}

// isExponent reports whether the letter at i is between a number and digits that end a value, two at least.
func isExponent(raw []byte, i int) bool {
	digit := func(i int) bool { return i >= 0 && i < len(raw) && raw[i] >= '0' && raw[i] <= '9' }
	if !digit(i-1) && (i == 0 || raw[i-1] != '.') {
		return false
	}
	if i+1 < len(raw) && (raw[i+1] == '+' || raw[i+1] == '-') {
		i++
	}
	end := i + 1
	for digit(end) {
		end++
	}
	return end > i+2 && end < len(raw) && strings.IndexByte("\",]} \t\r\n\\", raw[end]) >= 0
}

type bounding struct{ found field.ErrorList }

// bound returns a value with bounded quantities. key is its own key, and parent the key of the object that has it.
func (b *bounding) bound(value any, path *field.Path, parent, key string) any {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = b.bound(v[name], path.Child(name), key, name)
		}
	case []any:
		for i := range v {
			v[i] = b.bound(v[i], path.Index(i), "", "")
		}
	case string:
		return b.boundText(v, path, parent, key)
	case json.Number:
		if text := b.boundText(v.String(), path, parent, key); text != v.String() {
			return text
		}
	}
	return value
}

func (b *bounding) boundText(text string, path *field.Path, parent, key string) string {
	if !slices.Contains(quantityFields, key) && !slices.Contains(quantityMaps, parent) {
		return text
	}
	m := exponential.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return text
	}
	if n, err := strconv.Atoi(m[3]); err == nil && n <= maxExponent {
		return text
	}
	b.found = append(b.found, field.Invalid(path, text, fmt.Sprintf("must not have an exponent beyond %d", maxExponent)))
	return m[1] + "e" + m[2] + strconv.Itoa(maxExponent)
}

// checkExponents refuses a quantity with an exponent beyond maxExponent. An object that had one before may be changed, so that its
// finalizers can be removed.
func checkExponents(req *admission.Request) error {
	_, now, err := boundExponents(req.Object.Raw)
	if err != nil {
		return err
	}
	if now == nil || req.Operation != admissionv1.Update {
		return Refuse(now)
	}
	_, before, err := boundExponents(req.OldObject.Raw)
	if err != nil || before != nil {
		return err
	}
	return Refuse(now)
}
