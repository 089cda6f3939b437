package options

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
)

// Default gives the options of a manager without a configuration file.
func Default() Options {
	c := &configv1beta2.Configuration{}
	gates := DefaultGates()
	setDefaults(c, podNamespace(), gates)
	return resolve(c, gates)
}

// Load reads a configuration file. An empty path stands for the defaults. The
// error, of type *Error, has all that is wrong with the file.
func Load(path string) (Options, error) { return LoadWithGates(path, "") }

// LoadWithGates is Load with the value of --feature-gates, such as A=true,B=false.
func LoadWithGates(path, featureGates string) (Options, error) {
	if path == "" {
		return parse("", nil, featureGates)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Options{}, failOne(Problem{Source: path, Detail: unreadable(err)})
	}
	return parse(path, data, featureGates)
}

// Parse is LoadWithGates for the content of a file; source names it in errors.
func Parse(source string, data []byte, featureGates string) (Options, error) {
	return parse(source, data, featureGates)
}

// unreadable says in a few words why a file could not be read.
func unreadable(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "no such configuration file; give the path of one, or leave --config out for the defaults"
	}
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return fmt.Sprintf("cannot read the configuration file: %v; give the path of a readable file", err)
}

// parse does the work of Load on the content of a file; an empty source stands
// for no file.
func parse(source string, data []byte, featureGates string) (Options, error) {
	flagGates, problems := parseGatesFlag(featureGates)
	c := &configv1beta2.Configuration{}
	d := &decoder{source: source, lines: map[string]int{}}
	var podsReadyOff bool
	var moving []string
	if source != "" {
		switch root := d.document(data); {
		case root == nil:
		case isV1beta1(root):
			c, podsReadyOff, moving = d.decodeV1beta1(root)
		default:
			d.decode(root, reflect.ValueOf(c).Elem(), "")
		}
		problems = append(problems, d.problems...)
	}
	if len(problems) > 0 {
		return Options{}, fail(problems)
	}

	where := func(field string) Problem { return Problem{Source: source, Line: d.line(field), Field: field} }
	settings, warnings, problems := mergeGates(c.FeatureGates, func(name string) Problem {
		return where("featureGates[" + name + "]")
	}, flagGates)
	resolved := resolveGates(settings)
	problems = append(problems, resolved.problems...)
	if podsReadyOff {
		resolved.gates = resolved.gates.With(DisableWaitForPodsReady, true)
		c.FeatureGates = maps.Clone(c.FeatureGates)
		if c.FeatureGates == nil {
			c.FeatureGates = map[string]bool{}
		}
		c.FeatureGates[DisableWaitForPodsReady.String()] = true
	}

	setDefaults(c, podNamespace(), resolved.gates)
	for _, err := range validate(c, resolved.gates) {
		p := where(err.Field)
		p.Detail = err.ErrorBody()
		problems = append(problems, p)
	}
	if len(problems) > 0 {
		return Options{}, fail(problems)
	}

	o := resolve(c, resolved.gates)
	o.inertGates = resolved.inert
	if podsReadyOff { // and it is acted upon
		d.order = slices.DeleteFunc(d.order, func(path string) bool { return covers("waitForPodsReady", path) })
	}
	o.notYet = notYet(d.order, c)
	o.Warnings = slices.Concat(warnings, resolved.warnings, warningsOf(c, d))
	if moving != nil {
		o.Warnings = append(o.Warnings, oldVersionWarning(moving))
	}
	return o, nil
}

var yamlErrorLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document finds the one document of our kind in a file. It gives nil when
// there is none, and says why.
func (d *decoder) document(data []byte) *yaml.Node {
	var found *yaml.Node
	for reader := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := reader.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			d.syntax(err)
			return nil
		}
		if len(doc.Content) == 0 || isNull(doc.Content[0]) {
			continue
		}
		root := doc.Content[0]
		switch {
		case !d.rightKind(root):
			return nil
		case found != nil:
			d.problem(root, "", "the file has a second Configuration; keep one")
			return nil
		}
		found = root
	}
	if found == nil {
		d.problems = append(d.problems, Problem{Source: d.source, Detail: fmt.Sprintf(
			"the file is empty; it must begin with apiVersion: %s and kind: %s", configv1beta2.GroupVersion, configv1beta2.Kind)})
	}
	return found
}

// syntax reports what the YAML library could not read.
func (d *decoder) syntax(err error) {
	p := Problem{Source: d.source, Detail: err.Error()}
	if m := yamlErrorLine.FindStringSubmatch(p.Detail); m != nil {
		p.Detail = p.Detail[len(m[0]):]
		p.Line, _ = strconv.Atoi(m[1]) // no line stays 0
	}
	p.Detail = "not valid YAML: " + p.Detail
	d.problems = append(d.problems, p)
}

// rightKind checks apiVersion and kind before anything else is read, so that a
// file of another kind is not reported field by field.
func (d *decoder) rightKind(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		d.problem(root, "", "want a mapping that begins with apiVersion and kind, got "+got(root, reflect.TypeFor[configv1beta2.Configuration]()))
		return false
	}
	apiVersion, kind := child(root, "apiVersion"), child(root, "kind")
	want := configv1beta2.GroupVersion.String()
	read := apiVersion != nil && apiVersion.Value == want || isV1beta1(root)
	switch {
	case apiVersion == nil:
		d.problem(root, "apiVersion", "is missing; write apiVersion: "+want)
	case kind == nil:
		d.problem(root, "kind", "is missing; write kind: "+configv1beta2.Kind)
	case read && kind.Value == configv1beta2.Kind:
		return true
	case read:
		d.problem(kind, "kind", fmt.Sprintf("%s is not read; write kind: %s", strconv.Quote(kind.Value), configv1beta2.Kind))
	default:
		d.problem(apiVersion, "apiVersion", refusedVersion(apiVersion.Value, want))
	}
	return false
}

// refusedVersion says what to do about a file of another API version.
func refusedVersion(version, want string) string {
	if strings.HasPrefix(version, "config.jobset.x-k8s.io/") || strings.HasPrefix(version, "config.trainer.kubeflow.org/") {
		return fmt.Sprintf("%s is not read by this release; remove the document and keep the one of %s", version, want)
	}
	return fmt.Sprintf("%q is not read; write apiVersion: %s", version, want)
}

// child finds the value of a key of a mapping; nil when it is absent or null.
func child(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		value := mapping.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if mapping.Content[i].Value == name && !isNull(value) {
			return value
		}
	}
	return nil
}

// podNamespace is the namespace of the mounted service account, or empty
// outside a cluster.
func podNamespace() string {
	data, err := os.ReadFile(serviceAccountNamespace)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
