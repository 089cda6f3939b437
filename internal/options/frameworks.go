package options

import (
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
	// gates must all be on for the framework to be listed.
	gates []feature.Gate
	// Built is true when this build has the integration. Without it the kind is
	// known, as the owner of others, and not managed.
	Built bool
}

// allowed tells whether all gates of the framework are on.
func (f *Framework) allowed(gates feature.Gates) bool {
	return !slices.ContainsFunc(f.gates, func(g feature.Gate) bool { return !gates.On(g) })
}

// frameworks is the catalogue, in the order of the spec.
var frameworks = []Framework{
	{Name: "batch/job", GVK: gvk("batch", "v1", "Job"), MultiKueue: true, Built: true},
	{Name: "pod", GVK: gvk("", "v1", "Pod"), MultiKueue: true, Built: true},
	{Name: "deployment", GVK: gvk("apps", "v1", "Deployment"), Built: true},
	{Name: "statefulset", GVK: gvk("apps", "v1", "StatefulSet"), MultiKueue: true, Built: true},
	{Name: "leaderworkerset.x-k8s.io/leaderworkerset", GVK: gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"), MultiKueue: true, Built: true},
	{Name: "jobset.x-k8s.io/jobset", GVK: gvk("jobset.x-k8s.io", "v1alpha2", "JobSet"), MultiKueue: true, Built: true},
	{Name: "kubeflow.org/pytorchjob", GVK: gvk("kubeflow.org", "v1", "PyTorchJob"), MultiKueue: true, Built: true},
	{Name: "kubeflow.org/tfjob", GVK: gvk("kubeflow.org", "v1", "TFJob"), MultiKueue: true, Built: true},
	{Name: "kubeflow.org/xgboostjob", GVK: gvk("kubeflow.org", "v1", "XGBoostJob"), MultiKueue: true, Built: true},
	{Name: "kubeflow.org/paddlejob", GVK: gvk("kubeflow.org", "v1", "PaddleJob"), MultiKueue: true, Built: true},
	{Name: "kubeflow.org/jaxjob", GVK: gvk("kubeflow.org", "v1", "JAXJob"), MultiKueue: true, Built: true},
	{Name: "kubeflow.org/mpijob", GVK: gvk("kubeflow.org", "v2beta1", "MPIJob"), MultiKueue: true, Built: true},
	{Name: "trainer.kubeflow.org/trainjob", GVK: gvk("trainer.kubeflow.org", "v1alpha1", "TrainJob"), MultiKueue: true, Built: true},
	{Name: "ray.io/rayjob", GVK: gvk("ray.io", "v1", "RayJob"), MultiKueue: true, Built: true},
	{Name: "ray.io/raycluster", GVK: gvk("ray.io", "v1", "RayCluster"), MultiKueue: true, Built: true},
	{Name: "ray.io/rayservice", GVK: gvk("ray.io", "v1", "RayService"), MultiKueue: true, Built: true},
	{Name: "workload.codeflare.dev/appwrapper", GVK: gvk("workload.codeflare.dev", "v1beta2", "AppWrapper"), MultiKueue: true, Built: true},
	{
		Name: "sparkoperator.k8s.io/sparkapplication", GVK: gvk("sparkoperator.k8s.io", "v1beta2", "SparkApplication"),
		gates: []feature.Gate{feature.SparkApplicationIntegration}, Built: true,
	},
}

// DefaultFramework is the only framework that a configuration file without a list
// enables.
const DefaultFramework = "batch/job"

// Frameworks gives the catalogue of job kinds, in a fixed order.
func Frameworks() []Framework { return append([]Framework(nil), frameworks...) }

// FindFramework looks a framework up by the name a configuration uses.
func FindFramework(name string) (Framework, bool) {
	for _, f := range frameworks {
		if f.Name == name {
			return f, true
		}
	}
	return Framework{}, false
}

func frameworkNames() []string {
	names := make([]string, len(frameworks))
	for i, f := range frameworks {
		names[i] = f.Name
	}
	return names
}

func gvk(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// shippedConcurrency is how many objects of a kind are reconciled at once when
// the configuration does not say: what upstream's shipped file says.
var shippedConcurrency = map[string]int{
	"Job.batch":                     5,
	"Pod":                           5,
	"Workload.kueue.x-k8s.io":       10,
	"LocalQueue.kueue.x-k8s.io":     5,
	"ClusterQueue.kueue.x-k8s.io":   5,
	"Cohort.kueue.x-k8s.io":         1,
	"ResourceFlavor.kueue.x-k8s.io": 1,
	"TrainJob.trainer.kubeflow.org": 5,
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
	for kind := range shippedConcurrency {
		kinds = append(kinds, kind)
	}
	for _, f := range frameworks {
		if gk := f.GVK.GroupKind().String(); shippedConcurrency[gk] == 0 {
			kinds = append(kinds, gk)
		}
	}
	return kinds
}
