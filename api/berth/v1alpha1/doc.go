// Package v1alpha1 holds Berth's own part of the visibility API: group
// visibility.berth.dev, an aggregated read-only API that answers why a Workload waits
// and which quota it holds (spec: design §4, "speculation is a feature").
//
// The Workloads themselves appear only as parents of the subresource explanation;
// nothing here is stored.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
package v1alpha1
