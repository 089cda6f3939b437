// Package v1alpha2 holds the wire types of the jobset.x-k8s.io/v1alpha2 API: the JobSet, a group of Jobs built
// from several templates and driven as one unit (spec: 60 §2). JSON names, defaults and bounds are the contract
// with existing clients; behaviour lives elsewhere.
//
// +kubebuilder:object:generate=true
// +groupName=jobset.x-k8s.io
package v1alpha2
