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

	configtrainer "github.com/berth-project/berth/api/config/trainer/v1alpha1"
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	jobsetconfig "github.com/berth-project/berth/api/jobsetconfig/v1alpha1"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/strict"
)

// Default gives the options of a manager without a configuration file: all job
// kinds that this build has are enabled.
func Default() Options {
	c := &configv1beta2.Configuration{}
	gates := feature.Default()
	enableAll(c, gates)
	setDefaults(c, podNamespace(), gates)
	o := resolve(c, gates)
	o.LabelledOnly = true
	return o
}

// Load reads a configuration file. An empty path stands for Default. The error,
// of type *Error, has all that is wrong with the file.
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
	if f.podsReadyOff { // and it is acted upon
		d.Order = slices.DeleteFunc(d.Order, func(path string) bool { return covers("waitForPodsReady", path) })
	}
	o.notYet = notYet(d.Order)
	o.Warnings = slices.Concat(warnings, resolved.Warnings, warningsOf(c, d), f.joined)
	f.training.resolve(&o)
	if f.moving != nil {
		o.Warnings = append(o.Warnings, oldVersionWarning(f.moving))
	}
	return o, nil
}

// file is what a configuration file says, before its defaults.
type file struct {
	c        *configv1beta2.Configuration
	d        *decoder     // of the manager's document
	jobSets  *jobSetFile  // nil without such a document
	training *trainerFile // the same
	problems []Problem
	// podsReadyOff and moving are those of decodeV1beta1.
	podsReadyOff bool
	moving       []string
	joined       []string // what a document of the Trainer says in vain
}

// readFile decodes the documents of a file; an empty source stands for no file.
func readFile(source string, data []byte, flagGates map[string]bool) *file {
	f := &file{c: &configv1beta2.Configuration{}, d: newDecoder(source)}
	if source == "" {
		return f
	}
	docs := f.d.documents(data)
	switch root := docs.manager; {
	case root == nil:
	case isV1beta1(root):
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

// where is the place of a field of the configuration in the file.
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

// hints are the answers to fields that older files have.
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

// documents are those of a file, by what they are about. One that is absent is nil.
type documents struct{ manager, jobSets, training *yaml.Node }

// documents finds the documents of a file, one of each kind, and says what is wrong with the others.
func (d *decoder) documents(data []byte) (found documents) {
	for root := range d.Documents(data) {
		is := &found.manager
		switch {
		case isOfJobSets(root):
			is = &found.jobSets
		case isTrainer(root):
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

// isOfJobSets reports whether a document is JobSet's own configuration.
func isOfJobSets(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		return false
	}
	version := child(root, "apiVersion")
	return version != nil && version.Value == jobsetconfig.GroupVersion.String()
}

// syntax reports what the YAML library could not read.
// rightKind checks apiVersion and kind before anything else is read, so that a
// file of another kind is not reported field by field.
func (d *decoder) rightKind(root *yaml.Node) bool {
	if root.Kind != yaml.MappingNode {
		d.Fault(root, "", "want a mapping that begins with apiVersion and kind, got "+strict.Got(root, reflect.TypeFor[configv1beta2.Configuration]()))
		return false
	}
	apiVersion, kind := child(root, "apiVersion"), child(root, "kind")
	want := configv1beta2.GroupVersion.String()
	read := apiVersion != nil && apiVersion.Value == want || isV1beta1(root) || isOfJobSets(root) || isTrainer(root)
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

// refusedVersion says what to do about a file of another API version.
func refusedVersion(version, want string) string {
	if strings.HasPrefix(version, jobsetconfig.GroupVersion.Group+"/") {
		return fmt.Sprintf("%s is not read; write apiVersion: %s", version, jobsetconfig.GroupVersion)
	}
	if strings.HasPrefix(version, configtrainer.GroupVersion.Group+"/") {
		return fmt.Sprintf("%s is not read; write apiVersion: %s", version, configtrainer.GroupVersion)
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
		if mapping.Content[i].Value == name && !strict.IsNull(value) {
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
