// Package v1beta2 holds the configuration file of the manager: group
// config.kueue.x-k8s.io, kind Configuration (spec: 70 §2.1).
//
// A Configuration is read once at start from the file named by --config. The
// API server never serves it and nothing writes it back, so it is not a custom
// resource. The types say what may be written and what a missing field means;
// internal/options reads the file, fills the defaults in and checks the rules
// that span fields.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
package v1beta2
