package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CohortSpec holds the place of a Cohort in the tree and the quota it adds.
type CohortSpec struct {
	// parentName is the cohort above this one. A Cohort object of that name need not exist. Empty: this is the root of
	// its tree. A cycle is accepted but disables every queue in it. May change at any time.
	//
	// +optional
	ParentName CohortReference `json:"parentName,omitempty"`

	// resourceGroups is quota that the whole subtree shares, in addition to the quota of its ClusterQueues; it is not a
	// cap. borrowingLimit and lendingLimit bound the flow between the subtree and the parent, and need parentName.
	// At most 16 groups. May change at any time.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	ResourceGroups []ResourceGroup `json:"resourceGroups,omitempty"`

	// fairSharing is the weight of this cohort among the members of its parent. Used only when fair sharing is
	// configured.
	//
	// +optional
	FairSharing *FairSharing `json:"fairSharing,omitempty"`
}

// CohortStatus is the observed state of a Cohort.
type CohortStatus struct {
	// fairSharing is the position of this cohort in fair sharing. Present only while fair sharing is configured.
	//
	// +optional
	FairSharing *FairSharingStatus `json:"fairSharing,omitempty"`
}

// Cohort joins ClusterQueues and other Cohorts, so that they can use each other's unused quota (spec: 10 §2.3).
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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
