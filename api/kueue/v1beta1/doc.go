// Package v1beta1 holds the wire types of version v1beta1 of the queueing API, group kueue.x-k8s.io. The API server serves
// it to old clients, with a warning, and stores v1beta2; internal/admission/conversion converts each field. What
// is the same in both versions is v1beta2's type here, so this package is the list of differences. Nothing else in Berth
// uses it. The rules that need only the object itself hold for both versions, except that the rules of Workloads on priority
// classes are looser here (spec: 10 §2.7, 70 §4.8).
//
// +kubebuilder:object:generate=true
// +groupName=kueue.x-k8s.io
package v1beta1
