// Package v1beta2 holds the visibility API: group visibility.kueue.x-k8s.io,
// an aggregated read-only API that answers which Workloads are pending in a
// queue and at what position (spec: 70 §2.4). Version v1beta1 has the same
// shapes and answers.
//
// The queues themselves appear only as parents of the subresource
// pendingworkloads; nothing here is stored.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
package v1beta2
