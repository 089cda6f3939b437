// Package v1beta1 holds the old version of the configuration file of the manager: group config.kueue.x-k8s.io, kind
// Configuration. What is the same as in v1beta2 is v1beta2's type here, so this package is the list of differences.
// internal/options reads such a file, and turns it into v1beta2 when the manager starts (spec: 70 §3.2).
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
package v1beta1
