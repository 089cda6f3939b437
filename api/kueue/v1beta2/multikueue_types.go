package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LocationType says where a kubeconfig is.
//
// +kubebuilder:validation:Enum=Secret;Path
type LocationType string

const (
	// LocationTypeSecret means key kubeconfig of a Secret in the namespace of the manager.
	LocationTypeSecret LocationType = "Secret"
	// LocationTypePath means a file in the pod of the manager.
	LocationTypePath LocationType = "Path"
)

// KubeConfig says where the credentials of a worker cluster are.
type KubeConfig struct {
	// location is the name of a Secret or an absolute path, 1 to 256 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Location string `json:"location"`

	// locationType specifies what location is. Default Secret.
	//
	// +optional
	// +kubebuilder:default=Secret
	LocationType LocationType `json:"locationType,omitempty"`
}

// ClusterProfileReference names a ClusterProfile (multicluster.x-k8s.io) in the namespace of the manager.
type ClusterProfileReference struct {
	// name of the ClusterProfile, 1 to 256 characters.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`
}

// ClusterSource specifies how to reach a worker cluster; exactly one of its fields is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.kubeConfig) != has(self.clusterProfileRef)",message="exactly one of kubeConfig and clusterProfileRef must be set"
type ClusterSource struct {
	// kubeConfig says where a kubeconfig is.
	//
	// +optional
	KubeConfig *KubeConfig `json:"kubeConfig,omitempty"`

	// clusterProfileRef names a ClusterProfile that provides the credentials.
	//
	// +optional
	ClusterProfileRef *ClusterProfileReference `json:"clusterProfileRef,omitempty"`
}

// MultiKueueClusterSpec specifies how to reach a worker cluster.
type MultiKueueClusterSpec struct {
	// clusterSource holds the credentials. May change at any time: the connection is made anew.
	//
	// +required
	ClusterSource ClusterSource `json:"clusterSource"`
}

// MultiKueueClusterStatus is the observed state of a worker cluster.
type MultiKueueClusterStatus struct {
	// conditions holds at most 16 conditions; Active reports whether the cluster is connected.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MultiKueueCluster is a worker cluster that Workloads can be sent to (spec: 40 §2.1).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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

// QuotaManagement selects the writer of the quota of the ClusterQueues on the manager.
//
// +kubebuilder:validation:Enum=Manual;Automated
type QuotaManagement string

const (
	// QuotaManagementManual leaves the quota to people.
	QuotaManagementManual QuotaManagement = "Manual"
	// QuotaManagementAutomated sets it to the sum of the quota on the workers.
	QuotaManagementAutomated QuotaManagement = "Automated"
)

// MultiKueueConfigSpec names the worker clusters of an admission check.
type MultiKueueConfigSpec struct {
	// clusters are names of MultiKueueClusters, 1 to 20 of at most 256 characters, no duplicates. The order is the order
	// in which the incremental dispatcher tries them.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b == a))",message="clusters must not name a cluster twice"
	Clusters []string `json:"clusters"`

	// quotaManagement selects the writer of the quota of the ClusterQueues that use this configuration. Absent means Manual.
	// Automated needs the feature gate MultiKueueManagerQuotaAutomation (spec: 40 §4.11).
	//
	// +optional
	QuotaManagement *QuotaManagement `json:"quotaManagement,omitempty"`
}

// MultiKueueConfig holds the parameters of an AdmissionCheck that sends Workloads to worker clusters (spec: 40 §2.2).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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
