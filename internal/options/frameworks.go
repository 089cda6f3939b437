package options

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-project/berth/internal/options/feature"
)

// Framework is a job kind that has a built-in integration (spec: 30 §2.2).
type Framework struct {
	// Name is how integrations.frameworks refers to it.
	Name string
	// GVK is the kind.
	GVK schema.GroupVersionKind
	// MultiKueue is true when the kind has a built-in adapter for worker
	// clusters.
	MultiKueue bool
	// Gate names the feature gate that must be on for the framework to be listed; empty for none.
	Gate string
	// Workers is how many of its jobs are reconciled at once by default; 0 if that is not shipped.
	Workers int
	// Serves is true when its objects only make pods, which are queued.
	Serves bool
}

// allowed reports whether the gate of the framework is on.
func (f *Framework) allowed(gates feature.Gates) bool {
	return f.Gate == "" || gates.OnByName(f.Gate)
}

// frameworks is the catalogue, in the order of the spec.
var frameworks []Framework

// SetFrameworks makes the catalogue, which every program has from its list of kinds (internal/job/kind/all) before it reads a
// configuration. The first one is the only one that a configuration file without a list enables.
func SetFrameworks(list []Framework) { frameworks = list }

// Frameworks gives the catalogue of job kinds, in a fixed order. It panics in a program without the list of kinds, whose
// configurations could enable none.
func Frameworks() []Framework {
	if len(frameworks) == 0 {
		panic("there are no job kinds: import internal/job/kind/all")
	}
	return slices.Clone(frameworks)
}

// FindFramework looks a framework up by the name a configuration uses.
func FindFramework(name string) (Framework, bool) {
	for _, f := range Frameworks() {
		if f.Name == name {
			return f, true
		}
	}
	return Framework{}, false
}

// frameworkNames are the names of the catalogue, in its order.
func frameworkNames() []string {
	var names []string
	for _, f := range Frameworks() {
		names = append(names, f.Name)
	}
	return names
}

// otherConcurrency is how many objects of a kind that is no job are reconciled at once when the configuration does not say: what
// upstream's shipped file says.
var otherConcurrency = map[string]int{
	"Workload.kueue.x-k8s.io":       10,
	"LocalQueue.kueue.x-k8s.io":     5,
	"ClusterQueue.kueue.x-k8s.io":   5,
	"Cohort.kueue.x-k8s.io":         1,
	"ResourceFlavor.kueue.x-k8s.io": 1,
}

// shippedConcurrency is the same for all kinds that have such a number.
func shippedConcurrency() map[string]int {
	out := maps.Clone(otherConcurrency)
	for _, f := range Frameworks() {
		if f.Workers > 0 {
			out[f.GVK.GroupKind().String()] = f.Workers
		}
	}
	return out
}

// otherReconciledKinds are the kinds of controllers that belong to no
// framework and have no shipped worker count.
var otherReconciledKinds = []string{
	"AdmissionCheck.kueue.x-k8s.io", "MultiKueueCluster.kueue.x-k8s.io",
	"TrainingRuntime.trainer.kubeflow.org", "ClusterTrainingRuntime.trainer.kubeflow.org",
}

// reconciledKinds are the keys that controller.groupKindConcurrency may have.
func reconciledKinds() []string {
	kinds := append([]string(nil), otherReconciledKinds...)
	kinds = slices.AppendSeq(kinds, maps.Keys(otherConcurrency))
	for _, f := range Frameworks() {
		kinds = append(kinds, f.GVK.GroupKind().String())
	}
	return kinds
}
