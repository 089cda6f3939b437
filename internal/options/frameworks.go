package options

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-project/berth/internal/options/feature"
)

// Framework is a job kind with a built-in integration (spec: 30 §2.2).
type Framework struct {
	// Name is its name in integrations.frameworks.
	Name string
	GVK  schema.GroupVersionKind
	// MultiKueue is true if the kind has a built-in adapter for worker clusters.
	MultiKueue bool
	// Gate is the feature gate that the framework needs; empty for none.
	Gate string
	// Workers is the default number of concurrent reconciles; 0 if the shipped file has none.
	Workers int
	// Serves is true if its objects only create pods, which are queued.
	Serves bool
}

func (f *Framework) allowed(gates feature.Gates) bool {
	return f.Gate == "" || gates.OnByName(f.Gate)
}

// frameworks is the catalogue, in the order of the spec.
var frameworks []Framework

// SetFrameworks sets the catalogue from the list of kinds (internal/job/kind/all), before a configuration is read. A configuration file
// without a list enables only the first one.
func SetFrameworks(list []Framework) { frameworks = list }

// Frameworks returns the catalogue of job kinds, in a fixed order. It panics in a program without the list of kinds, whose configurations
// could enable none.
func Frameworks() []Framework {
	if len(frameworks) == 0 {
		panic("there are no job kinds: import internal/job/kind/all")
	}
	return slices.Clone(frameworks)
}

// FindFramework returns a framework by its name in the configuration.
func FindFramework(name string) (Framework, bool) {
	for _, f := range Frameworks() {
		if f.Name == name {
			return f, true
		}
	}
	return Framework{}, false
}

func frameworkNames() []string {
	var names []string
	for _, f := range Frameworks() {
		names = append(names, f.Name)
	}
	return names
}

// otherConcurrency is the default number of concurrent reconciles of kinds that are no jobs, as in upstream's shipped file.
var otherConcurrency = map[string]int{
	"Workload.kueue.x-k8s.io":       10,
	"LocalQueue.kueue.x-k8s.io":     5,
	"ClusterQueue.kueue.x-k8s.io":   5,
	"Cohort.kueue.x-k8s.io":         1,
	"ResourceFlavor.kueue.x-k8s.io": 1,
}

// shippedConcurrency returns the default number of concurrent reconciles of all kinds that have one.
func shippedConcurrency() map[string]int {
	out := maps.Clone(otherConcurrency)
	for _, f := range Frameworks() {
		if f.Workers > 0 {
			out[f.GVK.GroupKind().String()] = f.Workers
		}
	}
	return out
}

// otherReconciledKinds are the kinds of controllers that belong to no framework and have no shipped worker count.
var otherReconciledKinds = []string{
	"AdmissionCheck.kueue.x-k8s.io", "MultiKueueCluster.kueue.x-k8s.io",
	"TrainingRuntime.trainer.kubeflow.org", "ClusterTrainingRuntime.trainer.kubeflow.org",
}

// reconciledKinds returns the keys that controller.groupKindConcurrency may have.
func reconciledKinds() []string {
	kinds := slices.AppendSeq(slices.Clone(otherReconciledKinds), maps.Keys(otherConcurrency))
	for _, f := range Frameworks() {
		kinds = append(kinds, f.GVK.GroupKind().String())
	}
	return kinds
}
