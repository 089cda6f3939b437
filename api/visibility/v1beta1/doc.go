// Package v1beta1 holds the visibility API: group visibility.kueue.x-k8s.io,
// an aggregated read-only API that answers which Workloads are pending in a
// queue and at what position (spec: 70 §2.4). It has the shapes of v1beta2, which is
// preferred, and answers the same.
//
// The queues themselves appear only as parents of the subresource
// pendingworkloads; nothing here is stored.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
package v1beta1
