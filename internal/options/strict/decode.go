// Package strict reads YAML into Go values. An unknown, repeated or mistyped field is a problem with its line, its full path and the nearest
// known name. The position of every field is recorded for later checks.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxNodes bounds the values of one file, far above legitimate files: aliases of aliases grow exponentially.
const maxNodes = 100_000

// Problem is one mistake.
type Problem struct {
	// Source is the file, or the flag, that holds the mistake.
	Source string
	// Line in the file, from 1; 0 if unknown.
	Line int
	// Field is the full path of the field, such as integrations.frameworks[1]; empty for the whole file.
	Field string
	// Detail is what is wrong and what to do.
	Detail string
}

// String returns the problem on one line: file:line: field: detail.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Source)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	if p.Field != "" {
		fmt.Fprintf(&b, ": %s", p.Field)
	}
	fmt.Fprintf(&b, ": %s", p.Detail)
	return strings.Map(printable, b.String())
}

// printable replaces characters of the file that would break a line or a terminal.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

// Decoder decodes YAML nodes into Go values and records the positions of fields.
type Decoder struct {
	// Source is the name of the file.
	Source string
	// Hints are advice about fields of older files, by path.
	Hints    map[string]string
	Problems []Problem
	// Lines are the lines of all fields of the file, by path.
	Lines map[string]int
	// Order are the same paths in the order of the file.
	Order []string
	nodes int
}

var yamlErrorLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// Documents iterates over the documents of a file that are not empty. Invalid YAML is a problem and ends it.
func (d *Decoder) Documents(data []byte) iter.Seq[*yaml.Node] {
	return func(yield func(*yaml.Node) bool) {
		for reader := yaml.NewDecoder(bytes.NewReader(data)); ; {
			var doc yaml.Node
			err := reader.Decode(&doc)
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				d.syntax(err)
				return
			case len(doc.Content) == 0 || IsNull(doc.Content[0]):
			case !yield(doc.Content[0]):
				return
			}
		}
	}
}

func (d *Decoder) syntax(err error) {
	p := Problem{Source: d.Source, Detail: err.Error()}
	if m := yamlErrorLine.FindStringSubmatch(p.Detail); m != nil {
		p.Detail = p.Detail[len(m[0]):]
		p.Line, _ = strconv.Atoi(m[1]) // no line stays 0
	}
	p.Detail = "not valid YAML: " + p.Detail
	d.Problems = append(d.Problems, p)
}

// Decode decodes a document into the value that into points to.
func (d *Decoder) Decode(root *yaml.Node, into any) {
	if d.Lines == nil {
		d.Lines = map[string]int{}
	}
	d.decode(root, reflect.ValueOf(into).Elem(), "")
}

func (d *Decoder) decode(node *yaml.Node, into reflect.Value, path string) {
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.Fault(node, path, fmt.Sprintf("the file comes to more than %d values; make it smaller", maxNodes))
		}
		return
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		d.decode(node, into.Elem(), path)
		return
	}
	if u, ok := reflect.TypeAssert[json.Unmarshaler](into.Addr()); ok {
		d.unmarshal(node, u, path)
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		d.structure(node, into, path)
	case reflect.Map:
		d.dictionary(node, into, path)
	case reflect.Slice:
		d.list(node, into, path)
	default:
		d.scalar(node, into, path)
	}
}

func (d *Decoder) structure(node *yaml.Node, into reflect.Value, path string) {
	if node.Kind != yaml.MappingNode {
		d.wrongType(node, into.Type(), path)
		return
	}
	fields := Fields(into.Type())
	name := func(key string) string { return JoinField(path, key) }
	d.eachPair(node, path, name, func(key, value *yaml.Node) {
		at := name(key.Value)
		field, known := fields[key.Value]
		if !known {
			d.Fault(key, at, "unknown field; "+d.unknownField(at, key.Value, fields))
			return
		}
		if IsNull(value) {
			return // an empty field is the same as an omitted one
		}
		d.record(at, key.Line)
		d.decode(value, into.FieldByIndex(field.Index), at)
	})
}

func (d *Decoder) dictionary(node *yaml.Node, into reflect.Value, path string) {
	if node.Kind != yaml.MappingNode {
		d.wrongType(node, into.Type(), path)
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	name := func(key string) string { return path + "[" + key + "]" }
	d.eachPair(node, path, name, func(key, value *yaml.Node) {
		at := name(key.Value)
		d.record(at, key.Line)
		element := reflect.New(into.Type().Elem()).Elem()
		d.decode(value, element, at)
		into.SetMapIndex(reflect.ValueOf(key.Value).Convert(into.Type().Key()), element)
	})
}

// list decodes a sequence into a slice, which is not nil even if it is empty.
func (d *Decoder) list(node *yaml.Node, into reflect.Value, path string) {
	if node.Kind != yaml.SequenceNode {
		d.wrongType(node, into.Type(), path)
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), 0, 0))
	for i, item := range node.Content {
		at := path + "[" + strconv.Itoa(i) + "]"
		d.record(at, item.Line)
		element := reflect.New(into.Type().Elem()).Elem()
		d.decode(item, element, at)
		into.Set(reflect.Append(into, element))
		if d.nodes > maxNodes {
			return
		}
	}
}

// eachPair calls f for every key of a mapping, except repeated keys, keys that are no plain text and merge keys, which are problems. name
// returns the path of a key.
func (d *Decoder) eachPair(node *yaml.Node, path string, name func(key string) string, f func(key, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.Fault(key, path, "a key must be plain text")
			continue
		case key.Tag == "!!merge":
			d.Fault(key, path, "merge keys (<<) are not read; write the fields out")
			continue
		}
		if first, again := seen[key.Value]; again {
			d.Fault(key, name(key.Value), fmt.Sprintf("written twice, first on line %d; remove one", first))
			continue
		}
		seen[key.Value] = key.Line
		f(key, value)
		if d.nodes > maxNodes {
			return
		}
	}
}

func (d *Decoder) unmarshal(node *yaml.Node, into json.Unmarshaler, path string) {
	t := reflect.TypeOf(into).Elem()
	if node.Kind != yaml.ScalarNode || IsNull(node) {
		d.wrongType(node, t, path)
		return
	}
	text := []byte(node.Value)
	tag := node.ShortTag()
	if bare := (tag == "!!int" || tag == "!!float") && json.Valid(text); !bare {
		text, _ = json.Marshal(node.Value) // a string always marshals
	}
	if into.UnmarshalJSON(text) != nil {
		d.wrongType(node, t, path)
	}
}

func (d *Decoder) scalar(node *yaml.Node, into reflect.Value, path string) {
	if node.Kind != yaml.ScalarNode {
		d.wrongType(node, into.Type(), path)
		return
	}
	ok := false
	switch into.Kind() {
	case reflect.Bool:
		ok = setBool(node, into)
	case reflect.String:
		if tag := node.ShortTag(); tag == "!!str" || tag == "!!timestamp" {
			into.SetString(node.Value)
			ok = true
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		ok = setInt(node, into)
	case reflect.Float32, reflect.Float64:
		ok = setFloat(node, into)
	}
	if !ok {
		d.wrongType(node, into.Type(), path)
	}
}

// setBool reads true and false, and unquoted yes, no, on and off, which are bools in YAML 1.1.
func setBool(node *yaml.Node, into reflect.Value) bool {
	tag := node.ShortTag()
	if tag != "!!bool" && (tag != "!!str" || node.Style != 0) {
		return false
	}
	var v bool
	if node.Decode(&v) != nil {
		return false
	}
	into.SetBool(v)
	return true
}

func setInt(node *yaml.Node, into reflect.Value) bool {
	var v int64
	if node.ShortTag() != "!!int" || node.Decode(&v) != nil || into.OverflowInt(v) {
		return false
	}
	into.SetInt(v)
	return true
}

func setFloat(node *yaml.Node, into reflect.Value) bool {
	if tag := node.ShortTag(); tag != "!!int" && tag != "!!float" {
		return false
	}
	var v float64
	if node.Decode(&v) != nil || math.IsNaN(v) || math.IsInf(v, 0) || into.OverflowFloat(v) {
		return false
	}
	into.SetFloat(v)
	return true
}

func (d *Decoder) wrongType(node *yaml.Node, want reflect.Type, path string) {
	d.Fault(node, path, fmt.Sprintf("want %s, got %s", Wanted(want), Got(node, want)))
}

// Fault records a problem at a node.
func (d *Decoder) Fault(node *yaml.Node, path, detail string) {
	d.Problems = append(d.Problems, Problem{Source: d.Source, Line: node.Line, Field: path, Detail: detail})
}

func (d *Decoder) record(path string, line int) {
	d.Lines[path] = line
	d.Order = append(d.Order, path)
}

// Line returns the line of a path, or of the nearest outer field that the file sets; 0 if there is none.
func (d *Decoder) Line(path string) int {
	for path != "" {
		if n, ok := d.Lines[path]; ok {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}

// Wanted describes a type for messages.
func Wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return `a duration such as "30s" or "5m"`
	case reflect.TypeFor[resource.Quantity]():
		return `a quantity such as 2, "500m" or "4Gi"`
	}
	switch t.Kind() {
	case reflect.Struct:
		if t.NumField() > 0 && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
			return `a duration such as "2m", or a whole number of nanoseconds`
		}
		return "a mapping with fields of its own"
	case reflect.Map:
		return "a mapping of names to values"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Int32:
		return "a whole number of 32 bits"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// Got describes a node for messages.
func Got(node *yaml.Node, want reflect.Type) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if IsNull(node) {
		return "nothing"
	}
	value := node.Value
	if runes := []rune(value); len(runes) > 60 {
		value = string(runes[:60]) + "…"
	}
	if want.Kind() == reflect.String {
		return fmt.Sprintf("%s; put it in quotes", value)
	}
	return strconv.Quote(value)
}

func (d *Decoder) unknownField(path, key string, fields map[string]reflect.StructField) string {
	if hint, ok := d.Hints[path]; ok {
		return hint
	}
	return DidYouMean(key, slices.Sorted(maps.Keys(fields)))
}

// Fields returns the fields of a struct by their JSON names, including inlined structs.
func Fields(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || strings.Contains(option, "inline") || len(f.Index) > 1 && !inlined(t, f.Index) {
			continue
		}
		fields[name] = f
	}
	return fields
}

// inlined reports whether every struct around a promoted field is inlined.
func inlined(t reflect.Type, index []int) bool {
	for i := range len(index) - 1 {
		if !strings.Contains(t.FieldByIndex(index[:i+1]).Tag.Get("json"), "inline") {
			return false
		}
	}
	return true
}

// IsNull reports whether a value is empty.
func IsNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

// JoinField returns the path of a field of a struct.
func JoinField(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}
