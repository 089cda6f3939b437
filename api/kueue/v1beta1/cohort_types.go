package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// CohortSpec holds the place of a Cohort in the tree and the quota it adds.
type CohortSpec struct {
	// parentName is the cohort above this one. Empty: this is the root of its tree.
	//
	// +optional
	ParentName kueue.CohortReference `json:"parentName,omitempty"`

	// resourceGroups is quota that the whole subtree shares, in addition to the quota of its ClusterQueues. At most 16
	// groups.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ResourceGroups []ResourceGroup `json:"resourceGroups,omitempty"`

	// fairSharing is the weight of this cohort among the members of its parent.
	//
	// +optional
	FairSharing *kueue.FairSharing `json:"fairSharing,omitempty"`
}

// CohortStatus is the observed state of a Cohort.
type CohortStatus struct {
	// fairSharing is the position of this cohort in fair sharing. Present only while fair sharing is configured.
	//
	// +optional
	FairSharing *FairSharingStatus `json:"fairSharing,omitempty"`
}

// Cohort joins ClusterQueues and other Cohorts, so that they can use each other's unused quota.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="kueue.x-k8s.io/v1beta1 Cohort is deprecated: use kueue.x-k8s.io/v1beta2"
// +kubebuilder:resource:scope=Cluster,shortName={co}
// +kubebuilder:subresource:status
type Cohort struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	//
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec holds the place in the tree and the quota.
	//
	// +optional
	Spec CohortSpec `json:"spec"`

	// status is the observed state, written by Berth.
	//
	// +optional
	Status CohortStatus `json:"status,omitzero"`
}

// CohortList is a list of Cohorts.
//
// +kubebuilder:object:root=true
type CohortList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Cohort `json:"items"`
}
