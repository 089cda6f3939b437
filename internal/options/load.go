package options

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configtrainer "github.com/berth-project/berth/api/config/trainer/v1alpha1"
	configv1beta1 "github.com/berth-project/berth/api/config/v1beta1"
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	jobsetconfig "github.com/berth-project/berth/api/jobsetconfig/v1alpha1"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/strict"
)

// Default returns the options of a manager without a configuration file: all job kinds are enabled.
func Default() Options {
	c := &configv1beta2.Configuration{}
	gates := feature.Default()
	enableAll(c, gates)
	setDefaults(c, podNamespace(), gates)
	o := resolve(c, gates)
	o.LabelledOnly = true
	return o
}

// Load reads a configuration file. An empty path is Default. The error, of type *Error, has all problems of the file.
func Load(path string) (Options, error) { return LoadWithGates([]string{path}, "") }

// LoadWithGates is Load for several files with the value of --feature-gates, such as A=true,B=false.
func LoadWithGates(paths []string, featureGates string) (Options, error) {
	files, err := ReadFiles(paths)
	if err != nil {
		return Options{}, err
	}
	return ParseFiles(files, featureGates)
}

// File is a configuration file. Several have their documents together: at most one of each kind (spec: 70 §3.1).
type File struct {
	Name string // in errors
	Data []byte
}

// ReadFiles reads configuration files. An empty path is no file. The error, of type *Error, has all unreadable files.
func ReadFiles(paths []string) ([]File, error) {
	var files []File
	var problems []Problem
	for _, path := range paths {
		if path == "" {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			problems = append(problems, Problem{Source: path, Detail: unreadable(err)})
		}
		files = append(files, File{path, data})
	}
	return files, fail(problems)
}

func unreadable(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "no such configuration file; give the path of one, or leave --config out for the defaults"
	}
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return fmt.Sprintf("cannot read the configuration file: %v; give the path of a readable file", err)
}

// Parse is ParseFiles for one file. source names it in errors; an empty source is no file.
func Parse(source string, data []byte, featureGates string) (Options, error) {
	if source == "" {
		return ParseFiles(nil, featureGates)
	}
	return ParseFiles([]File{{source, data}}, featureGates)
}

// ParseFiles is LoadWithGates for the contents of files.
func ParseFiles(files []File, featureGates string) (Options, error) {
	flagGates, problems := feature.ParseFlag(featureGates)
	f := decodeFiles(files, flagGates)
	if problems = append(problems, f.problems...); len(problems) > 0 {
		return Options{}, fail(problems)
	}
	c, d, where := f.c, f.d, f.where
	settings, warnings, problems := feature.Merge(c.FeatureGates, func(name string) Problem {
		return where("featureGates[" + name + "]")
	}, flagGates)
	resolved := feature.Resolve(settings)
	problems = append(problems, resolved.Problems...)
	if f.podsReadyOff {
		resolved.Gates = resolved.Gates.With(feature.DisableWaitForPodsReady, true)
		c.FeatureGates = maps.Clone(c.FeatureGates)
		if c.FeatureGates == nil {
			c.FeatureGates = map[string]bool{}
		}
		c.FeatureGates[feature.DisableWaitForPodsReady.String()] = true
	}

	if len(files) == 0 {
		enableAll(c, resolved.Gates)
	}
	setDefaults(c, podNamespace(), resolved.Gates)
	warnings = append(warnings, takeOver(c)...)
	for _, err := range validate(c, resolved.Gates) {
		p := where(err.Field)
		p.Field = withoutIndex(p.Field)
		p.Detail = err.ErrorBody()
		problems = append(problems, p)
	}
	if f.jobSets != nil {
		warnings = append(warnings, f.jobSets.checkListeners(c)...)
		problems = append(problems, f.jobSets.Problems...)
	}
	if len(problems) > 0 {
		return Options{}, fail(problems)
	}

	o := resolve(c, resolved.Gates)
	o.LabelledOnly = len(files) == 0
	o.inertGates = resolved.Inert
	o.Warnings = slices.Concat(warnings, resolved.Warnings, warningsOf(c, d), f.joined)
	f.training.resolve(&o)
	if f.moving != nil {
		o.Warnings = append(o.Warnings, oldVersionWarning(f.moving))
	}
	return o, nil
}

// file are the decoded configuration files, without defaults.
type file struct {
	c        *configv1beta2.Configuration
	d        *decoder     // of the manager's document
	jobSets  *jobSetFile  // nil without such a document
	training *trainerFile // the same
	problems []Problem
	// podsReadyOff and moving are results of decodeV1beta1.
	podsReadyOff bool
	moving       []string
	joined       []string // warnings of the Trainer's document
}

// decodeFiles decodes the documents of all files.
func decodeFiles(files []File, flagGates map[string]bool) *file {
	f := &file{c: &configv1beta2.Configuration{}, d: newDecoder("")}
	if len(files) == 0 {
		return f
	}
	docs, problems := documentsOf(files)
	if f.problems = problems; len(problems) > 0 {
		return f
	}
	f.d.Source = cmp.Or(docs.manager.source, files[0].Name)
	switch root := docs.manager.root; {
	case root == nil:
	case hasVersion(root, configv1beta1.GroupVersion):
		f.c, f.podsReadyOff, f.moving = f.d.decodeV1beta1(root)
	default:
		f.d.Decode(root, f.c)
	}
	f.problems = f.d.Problems
	if own := docs.jobSets; own.root != nil {
		f.jobSets = readJobSetFile(own.source, own.root)
		f.jobSets.join(f.c)
		f.problems = append(f.problems, f.jobSets.Problems...)
	}
	if own := docs.training; own.root != nil {
		f.training = decodeTrainer(own.source, own.root, docs.manager.root == nil && docs.jobSets.root == nil)
		f.problems = append(f.problems, f.training.Problems...)
		f.c, f.joined = f.training.join(f.c, flagGates)
	}
	return f
}

// where returns the position of a field of the configuration in the files.
func (f *file) where(field string) Problem {
	if own, yes := f.jobSets.owns(field); yes {
		return Problem{Source: f.jobSets.Source, Line: f.jobSets.Line(own), Field: own}
	}
	p := Problem{Source: f.d.Source, Line: f.d.Line(field), Field: field}
	if there, ok := f.training.where(field); ok && p.Line == 0 {
		return there
	}
	return p
}

// decoder reads the manager's document of a configuration file.
type decoder struct{ strict.Decoder }

// hints are advice about fields of older files.
var hints = map[string]string{
	"fairSharing.enable":                 "remove it: fairSharing is on when it is present, off when it is absent",
	"waitForPodsReady.enable":            "remove it: waitForPodsReady is on; featureGates.DisableWaitForPodsReady turns it off",
	"integrations.podOptions":            "use managedJobsNamespaceSelector",
	"queueVisibility":                    "remove it: the visibility API answers what is pending",
	"trainer.legacyPodTemplateOverrides": "there is no spec.podTemplateOverrides in this version; spec.runtimePatches of a TrainJob say the same",
}

func newDecoder(source string) *decoder {
	return &decoder{strict.Decoder{Source: source, Lines: map[string]int{}, Hints: hints}}
}

// document is one of a file; its root is nil if there is none.
type document struct {
	source string
	root   *yaml.Node
}

// documents are the documents of all files by their kind.
type documents struct{ manager, jobSets, training document }

// documentsOf returns the documents of files, at most one of each kind, or their problems.
func documentsOf(files []File) (found documents, problems []Problem) {
	for _, file := range files {
		d := newDecoder(file.Name)
		if empty := !d.sort(file.Data, &found); empty && len(d.Problems) == 0 {
			d.Problems = append(d.Problems, Problem{Source: d.Source, Detail: fmt.Sprintf(
				"the file is empty; it must begin with apiVersion: %s and kind: %s", configv1beta2.GroupVersion, configv1beta2.Kind)})
		}
		problems = append(problems, d.Problems...)
	}
	return found, problems
}

// sort adds the documents of a file until one is wrong, and reports whether there is any.
func (d *decoder) sort(data []byte, found *documents) (is bool) {
	for root := range d.Documents(data) {
		is = true
		of := &found.manager
		switch {
		case hasVersion(root, jobsetconfig.GroupVersion):
			of = &found.jobSets
		case hasVersion(root, configtrainer.GroupVersion):
			of = &found.training
		}
		switch {
		case !d.rightKind(root):
			return true
		case of.root == nil:
		case of.source == d.Source:
			d.Fault(root, "", "the file has a second Configuration of this group; keep one")
			return true
		default:
			d.Fault(root, "", fmt.Sprintf("%s has a Configuration of this group, too; keep one", of.source))
			return true
		}
		*of = document{d.Source, root}
	}
	return is
}

func hasVersion(root *yaml.Node, want schema.GroupVersion) bool {
	if root.Kind != yaml.MappingNode {
		return false
	}
	version := child(root, "apiVersion")
	return version != nil && version.Value == want.String()
}

// rightKind checks apiVersion and kind before all other fields, so that a file of another kind is not reported field by field.
func (d *decoder) rightKind(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		d.Fault(root, "", "want a mapping that begins with apiVersion and kind, got "+strict.Got(root, reflect.TypeFor[configv1beta2.Configuration]()))
		return false
	}
	apiVersion, kind := child(root, "apiVersion"), child(root, "kind")
	want := configv1beta2.GroupVersion.String()
	read := slices.ContainsFunc([]schema.GroupVersion{
		configv1beta2.GroupVersion, configv1beta1.GroupVersion, jobsetconfig.GroupVersion, configtrainer.GroupVersion,
	}, func(v schema.GroupVersion) bool { return hasVersion(root, v) })
	switch {
	case apiVersion == nil:
		d.Fault(root, "apiVersion", "is missing; write apiVersion: "+want)
	case kind == nil:
		d.Fault(root, "kind", "is missing; write kind: "+configv1beta2.Kind)
	case read && kind.Value == configv1beta2.Kind:
		return true
	case read:
		d.Fault(kind, "kind", fmt.Sprintf("%s is not read; write kind: %s", strconv.Quote(kind.Value), configv1beta2.Kind))
	default:
		d.Fault(apiVersion, "apiVersion", refusedVersion(apiVersion.Value, want))
	}
	return false
}

// refusedVersion returns what to do about a file of another API version.
func refusedVersion(version, want string) string {
	for _, known := range []schema.GroupVersion{jobsetconfig.GroupVersion, configtrainer.GroupVersion} {
		if strings.HasPrefix(version, known.Group+"/") {
			return fmt.Sprintf("%s is not read; write apiVersion: %s", version, known)
		}
	}
	return fmt.Sprintf("%q is not read; write apiVersion: %s", version, want)
}

// child returns the value of a key of a mapping; nil if it is absent or null.
func child(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		value := mapping.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if mapping.Content[i].Value == name && !strict.IsNull(value) {
			return value
		}
	}
	return nil
}

// podNamespace returns the namespace of the mounted service account, empty outside a cluster.
func podNamespace() string {
	data, err := os.ReadFile(serviceAccountNamespace)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
