package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds in this package.
const GroupName = "kueue.x-k8s.io"

var (
	// GroupVersion is the group and version of all kinds in this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1beta2"}

	// SchemeBuilder collects what AddToScheme registers.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers every kind of this package, with its list kind.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource qualifies a plural resource name, such as "workloads", with this group.
func Resource(plural string) schema.GroupResource {
	return GroupVersion.WithResource(plural).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&AdmissionCheck{}, &AdmissionCheckList{},
		&ClusterQueue{}, &ClusterQueueList{},
		&Cohort{}, &CohortList{},
		&LocalQueue{}, &LocalQueueList{},
		&MultiKueueCluster{}, &MultiKueueClusterList{},
		&MultiKueueConfig{}, &MultiKueueConfigList{},
		&ProvisioningRequestConfig{}, &ProvisioningRequestConfigList{},
		&ResourceFlavor{}, &ResourceFlavorList{},
		&Topology{}, &TopologyList{},
		&Workload{}, &WorkloadList{},
		&WorkloadPriorityClass{}, &WorkloadPriorityClassList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
