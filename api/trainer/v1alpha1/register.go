package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every type in this package. It is the only version served.
var GroupVersion = schema.GroupVersion{Group: "trainer.kubeflow.org", Version: "v1alpha1"}

// Kinds of this package.
const (
	KindTrainJob               = "TrainJob"
	KindTrainingRuntime        = "TrainingRuntime"
	KindClusterTrainingRuntime = "ClusterTrainingRuntime"
)

// Plural resource names of the kinds.
const (
	ResourceTrainJobs               = "trainjobs"
	ResourceTrainingRuntimes        = "trainingruntimes"
	ResourceClusterTrainingRuntimes = "clustertrainingruntimes"
)

var (
	// SchemeBuilder collects the functions that make this package's types known to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme makes this package's types known to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&TrainJob{}, &TrainJobList{},
		&TrainingRuntime{}, &TrainingRuntimeList{},
		&ClusterTrainingRuntime{}, &ClusterTrainingRuntimeList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
