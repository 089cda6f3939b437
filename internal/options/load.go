package options

import (
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
func Load(path string) (Options, error) { return LoadWithGates(path, "") }

// LoadWithGates is Load with the value of --feature-gates, such as A=true,B=false.
func LoadWithGates(path, featureGates string) (Options, error) {
	if path == "" {
		return Parse("", nil, featureGates)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Options{}, failOne(Problem{Source: path, Detail: unreadable(err)})
	}
	return Parse(path, data, featureGates)
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

// Parse is LoadWithGates for the content of a file. source names it in errors; an empty source is no file.
func Parse(source string, data []byte, featureGates string) (Options, error) {
	flagGates, problems := feature.ParseFlag(featureGates)
	f := readFile(source, data, flagGates)
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

	if source == "" {
		enableAll(c, resolved.Gates)
	}
	setDefaults(c, podNamespace(), resolved.Gates)
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
	o.LabelledOnly = source == ""
	o.inertGates = resolved.Inert
	o.Warnings = slices.Concat(warnings, resolved.Warnings, warningsOf(c, d), f.joined)
	f.training.resolve(&o)
	if f.moving != nil {
		o.Warnings = append(o.Warnings, oldVersionWarning(f.moving))
	}
	return o, nil
}

// file is a decoded configuration file, without defaults.
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

// readFile decodes the documents of a file; an empty source is no file.
func readFile(source string, data []byte, flagGates map[string]bool) *file {
	f := &file{c: &configv1beta2.Configuration{}, d: newDecoder(source)}
	if source == "" {
		return f
	}
	docs := f.d.documents(data)
	switch root := docs.manager; {
	case root == nil:
	case hasVersion(root, configv1beta1.GroupVersion):
		f.c, f.podsReadyOff, f.moving = f.d.decodeV1beta1(root)
	default:
		f.d.Decode(root, f.c)
	}
	f.problems = f.d.Problems
	if docs.jobSets != nil {
		f.jobSets = readJobSetFile(source, docs.jobSets)
		f.jobSets.join(f.c)
		f.problems = append(f.problems, f.jobSets.Problems...)
	}
	if docs.training != nil {
		f.training = decodeTrainer(source, docs.training, docs.manager == nil && docs.jobSets == nil)
		f.problems = append(f.problems, f.training.Problems...)
		f.c, f.joined = f.training.join(f.c, flagGates)
	}
	return f
}

// where returns the position of a field of the configuration in the file.
func (f *file) where(field string) Problem {
	if own, yes := f.jobSets.owns(field); yes {
		return Problem{Source: f.d.Source, Line: f.jobSets.Line(own), Field: own}
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

// documents are the documents of a file by their kind; absent ones are nil.
type documents struct{ manager, jobSets, training *yaml.Node }

// documents returns the documents of a file, at most one of each kind, and records problems.
func (d *decoder) documents(data []byte) (found documents) {
	for root := range d.Documents(data) {
		is := &found.manager
		switch {
		case hasVersion(root, jobsetconfig.GroupVersion):
			is = &found.jobSets
		case hasVersion(root, configtrainer.GroupVersion):
			is = &found.training
		}
		switch {
		case !d.rightKind(root):
			return documents{}
		case *is != nil:
			d.Fault(root, "", "the file has a second Configuration of this group; keep one")
			return documents{}
		}
		*is = root
	}
	if len(d.Problems) > 0 {
		return documents{}
	}
	if found == (documents{}) {
		d.Problems = append(d.Problems, Problem{Source: d.Source, Detail: fmt.Sprintf(
			"the file is empty; it must begin with apiVersion: %s and kind: %s", configv1beta2.GroupVersion, configv1beta2.Kind)})
	}
	return found
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
