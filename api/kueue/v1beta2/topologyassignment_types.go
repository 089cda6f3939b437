package v1beta2

// TopologyAssignment specifies how many pods of a pod set go into which topology domain. The domains are written as slices of
// neighbours, so that thousands of nodes stay small (spec: 20 §2.4).
//
// +kubebuilder:validation:XValidation:rule="self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",message="valuesPerLevel of every slice must have one entry for each of levels",fieldPath=".slices"
type TopologyAssignment struct {
	// levels are the node labels of the levels that the values below are for, broadest first. If the narrowest level of
	// the Topology is kubernetes.io/hostname it is the only one. 1 to 16 entries of at most 317 characters.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	Levels []string `json:"levels"`

	// slices are runs of domains; their order is the order of the domains. May be empty, not null. At most 1000.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Slices []TopologyAssignmentSlice `json:"slices"`
}

// TopologyAssignmentSlice describes domainCount domains that follow each other.
//
// +kubebuilder:validation:XValidation:rule="self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",message="individual.roots of valuesPerLevel must have domainCount entries",fieldPath=".valuesPerLevel"
// +kubebuilder:validation:XValidation:rule="!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",message="podCounts.individual must have domainCount entries",fieldPath=".podCounts"
type TopologyAssignmentSlice struct {
	// domainCount is the number of domains in this slice, at least 1.
	//
	// +required
	// +kubebuilder:validation:Minimum=1
	DomainCount int32 `json:"domainCount"`

	// valuesPerLevel holds, for each of levels, the values of the node label in the domains. 1 to 16 entries, as many as
	// there are levels.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	ValuesPerLevel []TopologyAssignmentSliceLevelValues `json:"valuesPerLevel"`

	// podCounts is the number of pods in each domain.
	//
	// +required
	PodCounts TopologyAssignmentSlicePodCounts `json:"podCounts"`
}

// TopologyAssignmentSliceLevelValues holds the values of one level in the domains of a slice.
//
// +kubebuilder:validation:XValidation:rule="has(self.universal) != has(self.individual)",message="exactly one of universal and individual must be set"
type TopologyAssignmentSliceLevelValues struct {
	// universal is the value, if all domains have the same. At most 63 characters.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Universal *string `json:"universal,omitempty"`

	// individual holds a value for each domain.
	//
	// +optional
	Individual *TopologyAssignmentSliceLevelIndividualValues `json:"individual,omitempty"`
}

// TopologyAssignmentSliceLevelIndividualValues holds one value per domain; the value of domain i is prefix, roots[i] and
// suffix put together.
type TopologyAssignmentSliceLevelIndividualValues struct {
	// prefix is what all values begin with. At most 63 characters, default none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Prefix *string `json:"prefix,omitempty"`

	// suffix is what all values end with. At most 63 characters, default none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Suffix *string `json:"suffix,omitempty"`

	// roots are the middle parts, one for each domain. 1 to 100000 entries of at most 63 characters.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100000
	// +kubebuilder:validation:items:MaxLength=63
	Roots []string `json:"roots"`
}

// TopologyAssignmentSlicePodCounts holds the number of pods in the domains of a slice.
//
// +kubebuilder:validation:XValidation:rule="has(self.universal) != has(self.individual)",message="exactly one of universal and individual must be set"
type TopologyAssignmentSlicePodCounts struct {
	// universal is the number of pods in each domain, if all have the same. At least 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	Universal *int32 `json:"universal,omitempty"`

	// individual holds the number of pods of each domain. 1 to 100000 entries of at least 1.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100000
	// +kubebuilder:validation:items:Minimum=1
	Individual []int32 `json:"individual,omitempty"`
}
