package plan

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// Default sets the defaults of a new JobSet (spec: 60 §3.1), except defaults of the schema, such as replicas.
func Default(js *jobsetv1alpha2.JobSet) {
	s := &js.Spec
	if s.SuccessPolicy == nil {
		s.SuccessPolicy = &jobsetv1alpha2.SuccessPolicy{Operator: jobsetv1alpha2.OperatorAll}
	}
	if s.StartupPolicy == nil {
		s.StartupPolicy = &jobsetv1alpha2.StartupPolicy{StartupPolicyOrder: jobsetv1alpha2.StartupAnyOrder}
	}
	for i := range s.ReplicatedJobs {
		t := &s.ReplicatedJobs[i].Template.Spec
		if t.CompletionMode == nil {
			t.CompletionMode = new(batchv1.IndexedCompletion)
		}
		if t.Template.Spec.RestartPolicy == "" {
			t.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		}
	}
	if s.Network == nil {
		s.Network = &jobsetv1alpha2.Network{}
	}
	if s.Network.EnableDNSHostnames == nil {
		s.Network.EnableDNSHostnames = new(true)
	}
	if s.Network.PublishNotReadyAddresses == nil {
		s.Network.PublishNotReadyAddresses = new(true)
	}
	if f := s.FailurePolicy; f != nil {
		for i := range f.Rules {
			f.Rules[i].Name = ruleName(f, i)
		}
	}
	for i := range s.VolumeClaimPolicies {
		if p := &s.VolumeClaimPolicies[i]; p.RetentionPolicy == nil {
			p.RetentionPolicy = &jobsetv1alpha2.VolumeClaimRetentionPolicy{WhenDeleted: jobsetv1alpha2.RetentionDelete}
		}
	}
}
