package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// KubeConfig says where the credentials of a worker cluster are.
type KubeConfig struct {
	// location is the name of a Secret or an absolute path. Empty: there is no kubeconfig, clusterProfileRef is used.
	//
	// +required
	Location string `json:"location"`

	// locationType specifies what location is. Default Secret.
	//
	// +required
	// +kubebuilder:default=Secret
	LocationType kueue.LocationType `json:"locationType"`
}

// MultiKueueClusterSpec specifies how to reach a worker cluster: clusterSource in v1beta2.
//
// +kubebuilder:validation:XValidation:rule="(size(self.kubeConfig.location) > 0) != has(self.clusterProfileRef)",message="exactly one of kubeConfig.location and clusterProfileRef must be set"
type MultiKueueClusterSpec struct {
	// kubeConfig says where a kubeconfig is.
	//
	// +required
	KubeConfig KubeConfig `json:"kubeConfig"`

	// clusterProfileRef names a ClusterProfile that provides the credentials.
	//
	// +optional
	ClusterProfileRef *kueue.ClusterProfileReference `json:"clusterProfileRef,omitempty"`
}

// MultiKueueClusterStatus is the observed state of a worker cluster.
type MultiKueueClusterStatus struct {
	// conditions of the cluster; Active reports whether it is connected.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MultiKueueCluster is a worker cluster that Workloads can be sent to.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="kueue.x-k8s.io/v1beta1 MultiKueueCluster is deprecated: use kueue.x-k8s.io/v1beta2"
// +kubebuilder:resource:scope=Cluster,shortName={mkc}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Connected",type=string,JSONPath=`.status.conditions[?(@.type=='Active')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MultiKueueCluster struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec specifies how to reach the cluster.
	//
	// +optional
	Spec MultiKueueClusterSpec `json:"spec"`

	// status is the observed state, written by Berth.
	//
	// +optional
	Status MultiKueueClusterStatus `json:"status,omitzero"`
}

// MultiKueueClusterList is a list of MultiKueueClusters.
//
// +kubebuilder:object:root=true
type MultiKueueClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MultiKueueCluster `json:"items"`
}

// MultiKueueConfigSpec names the worker clusters of an admission check.
type MultiKueueConfigSpec struct {
	// clusters are names of MultiKueueClusters, 1 to 20, no duplicates. The order is the order in which the incremental
	// dispatcher tries them.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	Clusters []string `json:"clusters"`
}

// MultiKueueConfig holds the parameters of an AdmissionCheck that sends Workloads to worker clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName={mkconf}
type MultiKueueConfig struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec names the clusters.
	//
	// +optional
	Spec MultiKueueConfigSpec `json:"spec"`
}

// MultiKueueConfigList is a list of MultiKueueConfigs.
//
// +kubebuilder:object:root=true
type MultiKueueConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MultiKueueConfig `json:"items"`
}
