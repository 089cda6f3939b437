package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TopologyUsage is what is free and used in the domains of a Topology, for each ResourceFlavor that uses it. The figures are
// computed at the time of the request.
//
// +kubebuilder:object:root=true
type TopologyUsage struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata is the name of the Topology.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Flavors are empty where no ResourceFlavor uses a Topology of that name.
	Flavors []FlavorUsage `json:"flavors"`
}

// TopologyUsageList is the use of several Topologies.
//
// +kubebuilder:object:root=true
type TopologyUsageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TopologyUsage `json:"items"`
}

// FlavorUsage is the nodes of one ResourceFlavor.
type FlavorUsage struct {
	Flavor string     `json:"flavor"`
	Nodes  NodeCounts `json:"nodes"`
	// Levels are the levels of the Topology, the broadest first.
	Levels []LevelUsage `json:"levels"`
	// Shapes are pods of equal requests and constraints, of Workloads that run or wait; the ones of most Workloads, at most 16.
	// +optional
	Shapes []ShapeUsage `json:"shapes,omitempty"`
}

// NodeCounts counts nodes: the ones that count as capacity, and the others by the first reason.
type NodeCounts struct {
	Counted  int32 `json:"counted"`
	NotReady int32 `json:"notReady"`
	Cordoned int32 `json:"cordoned"`
	// Unlabeled nodes have the labels of the flavor and lack one of a level.
	Unlabeled int32 `json:"unlabeled"`
}

// LevelUsage is the domains of one level.
type LevelUsage struct {
	Level string `json:"level"`
	// Count is the number of domains.
	Count     int32           `json:"count"`
	Resources []LevelResource `json:"resources"`
	// Domains are absent where each is a host, unless hosts=true asks for them.
	// +optional
	Domains []DomainUsage `json:"domains,omitempty"`
}

// LevelResource is one resource in all domains of a level.
type LevelResource struct {
	ResourceUsage `json:",inline"`
	// LargestFree is what is free in the one domain that has most.
	LargestFree resource.Quantity `json:"largestFree"`
	// FragmentationPercent is how far that is below the amount with all free capacity packed together: 0 to 100.
	FragmentationPercent int32 `json:"fragmentationPercent"`
}

// ResourceUsage is an amount of one resource.
type ResourceUsage struct {
	Resource string            `json:"resource"`
	Capacity resource.Quantity `json:"capacity"`
	Used     resource.Quantity `json:"used"`
	Free     resource.Quantity `json:"free"`
}

// DomainUsage is one domain.
type DomainUsage struct {
	// Values of all levels down to its own.
	Values    []string        `json:"values"`
	Nodes     int32           `json:"nodes"`
	Excluded  int32           `json:"excludedNodes"`
	Pods      int32           `json:"pods"`
	Resources []ResourceUsage `json:"resources"`
}

// ShapeUsage is pods of equal requests and constraints.
type ShapeUsage struct {
	// Requests of one pod.
	Requests map[string]resource.Quantity `json:"requests"`
	// Constrained pods have a node selector or affinity.
	Constrained bool `json:"constrained,omitempty"`
	// Running and Waiting are numbers of pod sets.
	Running int32 `json:"running"`
	Waiting int32 `json:"waiting"`
	// Largest is the biggest gang of further pods that fits into one domain, by level.
	Largest []LargestGang `json:"largest"`
}

// LargestGang is the most pods that fit into one domain of a level.
type LargestGang struct {
	Level  string   `json:"level"`
	Pods   int64    `json:"pods"`
	Domain []string `json:"domain,omitempty"`
}
