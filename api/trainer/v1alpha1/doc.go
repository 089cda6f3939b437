// Package v1alpha1 holds the wire types of the trainer.kubeflow.org/v1alpha1 API: the TrainJob that a user submits, and
// the TrainingRuntime and ClusterTrainingRuntime, an administrator's blueprints that a TrainJob refers to (spec: 50 §2).
// JSON names, defaults and bounds are the contract with existing clients; behaviour lives elsewhere.
//
// +kubebuilder:object:generate=true
// +groupName=trainer.kubeflow.org
package v1alpha1
