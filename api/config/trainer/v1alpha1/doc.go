// Package v1alpha1 holds the configuration file of Kubeflow Trainer's manager: group config.trainer.kubeflow.org, kind
// Configuration (spec: 50 §4.11). Berth reads it, alone or as a second document beside its own, and turns it into that;
// what has the same fields there is of the same type. The API server never serves it.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
package v1alpha1
