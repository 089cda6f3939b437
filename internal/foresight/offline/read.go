package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/crd"
	"github.com/berth-project/berth/internal/options/strict"
)

// ConfigGroup is the group of configuration documents, which Read leaves to package options.
const ConfigGroup = "config.kueue.x-k8s.io/"

// Read reads the objects of a file of YAML documents. Settings are the documents of the manager's configuration in it, nil for none, with
// the lines of the file. An error has a line for each mistake, with the line and the field.
func Read(source string, data []byte) (w *World, settings []byte, err error) {
	return ReadWith(source, data, metav1.NamespaceDefault, func(*unstructured.Unstructured, At) {})
}

// At makes an error about the field of a path of an object in a file, "" for the object itself: with the line, the object and the field.
type At func(path, detail string) error

// ReadWith is Read, with a namespace for objects without one, and calls other with the objects that are of no kind of a World.
func ReadWith(
	source string, data []byte, namespace string, other func(*unstructured.Unstructured, At),
) (w *World, settings []byte, err error) {
	r := &reader{source: source, namespace: namespace, w: &World{}, other: other}
	lines := bytes.SplitAfter(data, []byte("\n"))
	for first := 0; first < len(lines); {
		end := first
		for end < len(lines) && (end == first || !bytes.HasPrefix(lines[end], []byte("---"))) {
			end++
		}
		document := bytes.Join(lines[first:end], nil)
		if r.document(document, first) {
			settings = append(settings, bytes.Repeat([]byte("\n"), first-bytes.Count(settings, []byte("\n")))...)
			settings = append(settings, document...)
		}
		first = end
	}
	return r.w, settings, errors.Join(r.faults...)
}

// reader reads one file.
type reader struct {
	source, namespace string

	w      *World
	other  func(*unstructured.Unstructured, At)
	faults []error
}

// document reads one document, which begins after so many lines. It reports whether that is the manager's configuration.
func (r *reader) document(data []byte, before int) (settings bool) {
	var node yaml.Node
	if err := yaml.Unmarshal(data, &node); err != nil {
		r.faults = append(r.faults, fmt.Errorf("%s: the document that begins at line %d is no YAML: %s", r.source, before+1, strings.TrimPrefix(err.Error(), "yaml: ")))
		return false
	}
	if node.Kind == 0 {
		return false // it is empty
	}
	var tree map[string]any
	text, err := sigsyaml.YAMLToJSONStrict(data)
	if err == nil {
		err = utiljson.Unmarshal(text, &tree) // whole numbers stay whole, as rules in CEL require
	}
	if err != nil {
		r.faults = append(r.faults, fmt.Errorf("%s:%d: %s", r.source, before+node.Line, strings.ReplaceAll(err.Error(), "\n", " ")))
		return false
	}
	o := &unstructured.Unstructured{Object: tree}
	if strings.HasPrefix(o.GetAPIVersion(), ConfigGroup) {
		return true
	}
	at := &place{r: r, node: &node, before: before, what: o.GetKind() + " " + o.GetName()}
	if o.GetKind() == "List" || strings.HasSuffix(o.GetKind(), "List") && tree["items"] != nil {
		items, _ := tree["items"].([]any)
		for i, item := range items {
			if fields, is := item.(map[string]any); is {
				of := &unstructured.Unstructured{Object: fields}
				r.object(of, &place{r: r, node: &node, before: before, prefix: fmt.Sprintf("items[%d].", i), what: of.GetKind() + " " + of.GetName()})
			}
		}
		return false
	}
	r.object(o, at)
	return false
}

// place is where in a file an object is.
type place struct {
	r      *reader
	node   *yaml.Node
	before int // lines before the document
	prefix string
	what   string
}

func (p *place) fault(path, detail string) { p.r.faults = append(p.r.faults, p.at(path, detail)) }

func (p *place) at(path, detail string) error {
	line := p.before + lineOf(p.node, p.prefix+path)
	at := p.what
	if path != "" {
		at += ": " + path
	}
	return fmt.Errorf("%s:%d: %s: %s", p.r.source, line, at, detail)
}

// lineOf returns the line of the field of a path, or of the nearest outer one.
func lineOf(node *yaml.Node, path string) int {
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	line := max(1, node.Line)
	for _, step := range strings.FieldsFunc(path, func(c rune) bool { return c == '.' || c == '[' || c == ']' }) {
		next := (*yaml.Node)(nil)
		switch node.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == step {
					line, next = node.Content[i].Line, node.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if n, err := strconv.Atoi(step); err == nil && n >= 0 && n < len(node.Content) {
				next = node.Content[n]
				line = next.Line
			}
		}
		if next == nil {
			return line
		}
		node = next
	}
	return line
}

// object adds an object, as an API server would store it.
func (r *reader) object(o *unstructured.Unstructured, at *place) {
	if o.GetKind() == "" || o.GetAPIVersion() == "" {
		at.fault("", "an object needs apiVersion and kind")
		return
	}
	typed := newOf(o)
	if typed == nil {
		switch group := o.GroupVersionKind().Group; {
		case group == kueue.GroupVersion.Group && o.GetAPIVersion() != kueue.GroupVersion.String():
			at.fault("apiVersion", fmt.Sprintf("write %s, not %s", kueue.GroupVersion, o.GetAPIVersion()))
		case group == kueue.GroupVersion.Group:
			at.fault("kind", strict.DidYouMean(o.GetKind(), kindNames()))
		default:
			r.other(o, at.at)
		}
		return
	}
	if o.GetName() == "" {
		at.fault("metadata.name", "a name is missing")
		return
	}
	if s := crd.Find(o.GroupVersionKind()); s != nil {
		for _, path := range s.Prune(o.Object) {
			at.fault(path, "there is no such field")
		}
		s.Default(o.Object)
		for _, err := range s.Validate(context.Background(), o.Object) {
			at.fault(err.Field, crd.Detail(err))
		}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
		at.fault("", strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	if !namespaced(typed) {
		typed.SetNamespace("")
	} else if typed.GetNamespace() == "" {
		typed.SetNamespace(r.namespace)
	}
	ready(typed)
	r.w.Add(typed)
}

func namespaced(o client.Object) bool {
	switch o.(type) {
	case *kueue.LocalQueue, *kueue.Workload, *corev1.LimitRange:
		return true
	}
	return false
}

// newOf returns an empty object of a kind of a World, nil for other kinds.
func newOf(o *unstructured.Unstructured) client.Object {
	typed, err := Scheme.New(o.GroupVersionKind())
	if err != nil {
		return nil
	}
	for _, k := range kinds {
		if kindOf(k) == o.GetKind() {
			return typed.(client.Object)
		}
	}
	return nil
}

func kindNames() (names []string) {
	for _, k := range kinds {
		names = append(names, kindOf(k))
	}
	return names
}
