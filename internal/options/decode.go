package options

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-project/berth/internal/options/spelling"
)

// maxNodes bounds the values of one file. It is far above any honest file; it
// stops aliases that refer to each other from growing without end.
const maxNodes = 100_000

// hints are the answers to fields that older files have.
var hints = map[string]string{
	"fairSharing.enable":      "remove it: fairSharing is on when it is present, off when it is absent",
	"waitForPodsReady.enable": "remove it: waitForPodsReady is on; featureGates.DisableWaitForPodsReady turns it off",
	"integrations.podOptions": "use managedJobsNamespaceSelector",
	"queueVisibility":         "remove it: the visibility API answers what is pending",
}

// decoder fills a Go value from YAML nodes and remembers where each field was.
type decoder struct {
	source   string
	problems []Problem
	// lines has the line of every field that the file sets, by path.
	lines map[string]int
	// order has the same paths in the order of the file.
	order []string
	nodes int
}

// decode fills into from node. path is where node stands in the file.
func (d *decoder) decode(node *yaml.Node, into reflect.Value, path string) {
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.problem(node, path, fmt.Sprintf("the file comes to more than %d values; make it smaller", maxNodes))
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

// structure fills a struct from a mapping, field by field.
func (d *decoder) structure(node *yaml.Node, into reflect.Value, path string) {
	if node.Kind != yaml.MappingNode {
		d.wrongType(node, into.Type(), path)
		return
	}
	fields := jsonFields(into.Type())
	name := func(key string) string { return joinField(path, key) }
	d.eachPair(node, path, name, func(key, value *yaml.Node) {
		at := name(key.Value)
		field, known := fields[key.Value]
		if !known {
			d.problem(key, at, "unknown field; "+unknownField(at, key.Value, fields))
			return
		}
		if isNull(value) {
			return // written, but left empty: the same as not written
		}
		d.record(at, key.Line)
		d.decode(value, into.FieldByIndex(field.Index), at)
	})
}

// dictionary fills a map with string keys.
func (d *decoder) dictionary(node *yaml.Node, into reflect.Value, path string) {
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

// list fills a slice. An empty list is not nil: it was written.
func (d *decoder) list(node *yaml.Node, into reflect.Value, path string) {
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

// eachPair calls f for every key of a mapping and refuses repeated keys, keys
// that are no plain text and merge keys. name gives the path of a key.
func (d *decoder) eachPair(node *yaml.Node, path string, name func(key string) string, f func(key, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.problem(key, path, "a key must be plain text")
			continue
		case key.Tag == "!!merge":
			d.problem(key, path, "merge keys (<<) are not read; write the fields out")
			continue
		}
		if first, again := seen[key.Value]; again {
			d.problem(key, name(key.Value), fmt.Sprintf("written twice, first on line %d; remove one", first))
			continue
		}
		seen[key.Value] = key.Line
		f(key, value)
		if d.nodes > maxNodes {
			return
		}
	}
}

// unmarshal fills a value that reads itself from a JSON scalar.
func (d *decoder) unmarshal(node *yaml.Node, into json.Unmarshaler, path string) {
	t := reflect.TypeOf(into).Elem()
	if node.Kind != yaml.ScalarNode || isNull(node) {
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

// scalar fills a bool, a number or a string.
func (d *decoder) scalar(node *yaml.Node, into reflect.Value, path string) {
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

// setBool reads true and false, and the words yes, no, on and off without
// quotes, which older YAML took for bools.
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

// setInt reads a whole number that fits.
func setInt(node *yaml.Node, into reflect.Value) bool {
	var v int64
	if node.ShortTag() != "!!int" || node.Decode(&v) != nil || into.OverflowInt(v) {
		return false
	}
	into.SetInt(v)
	return true
}

// setFloat reads a finite number that fits.
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

func (d *decoder) wrongType(node *yaml.Node, want reflect.Type, path string) {
	d.problem(node, path, fmt.Sprintf("want %s, got %s", wanted(want), got(node, want)))
}

func (d *decoder) problem(node *yaml.Node, path, detail string) {
	d.problems = append(d.problems, Problem{Source: d.source, Line: node.Line, Field: path, Detail: detail})
}

func (d *decoder) record(path string, line int) {
	d.lines[path] = line
	d.order = append(d.order, path)
}

// line gives the line of a path, or of the nearest field around it that the
// file sets; 0 when the file sets none of them.
func (d *decoder) line(path string) int {
	for path != "" {
		if n, ok := d.lines[path]; ok {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}

// wanted describes a type to the author of the file.
func wanted(t reflect.Type) string {
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

// got describes what the file has in its place.
func got(node *yaml.Node, want reflect.Type) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if isNull(node) {
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

// unknownField says what to write in place of a field nobody knows.
func unknownField(path, key string, fields map[string]reflect.StructField) string {
	if hint, ok := hints[path]; ok {
		return hint
	}
	known := make([]string, 0, len(fields))
	for name := range fields {
		known = append(known, name)
	}
	slices.Sort(known)
	return spelling.DidYouMean(key, known)
}

// jsonFields gives the fields of a struct by their JSON names, those of
// inlined structs among them.
func jsonFields(t reflect.Type) map[string]reflect.StructField {
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

// inlined reports whether every struct on the way to a promoted field is
// written into the mapping around it.
func inlined(t reflect.Type, index []int) bool {
	for i := range len(index) - 1 {
		if !strings.Contains(t.FieldByIndex(index[:i+1]).Tag.Get("json"), "inline") {
			return false
		}
	}
	return true
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

// joinField writes the path of a field of a struct.
func joinField(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}
