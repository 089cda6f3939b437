package plan

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// Phases of a JobSet that this controller runs (spec: 60 §5.1).
const (
	PhaseSuspended  = "Suspended"
	PhaseRunning    = "Running"
	PhaseRestarting = "Restarting"
	PhaseCompleted  = "Completed"
	PhaseFailed     = "Failed"
)

// Phase returns the phase of a JobSet by its status.
func Phase(js *jobsetv1alpha2.JobSet) string {
	is := func(t jobsetv1alpha2.ConditionType) bool {
		return apimeta.IsStatusConditionTrue(js.Status.Conditions, string(t))
	}
	switch {
	case is(jobsetv1alpha2.ConditionCompleted):
		return PhaseCompleted
	case is(jobsetv1alpha2.ConditionFailed):
		return PhaseFailed
	case is(jobsetv1alpha2.ConditionSuspended):
		return PhaseSuspended
	case is(jobsetv1alpha2.ConditionRestarting):
		return PhaseRestarting
	}
	return PhaseRunning
}

// readySince returns the start time of the Jobs if all of them have become ready now: the creation of the JobSet, its last resume
// or its last restart. Otherwise it is zero.
func (p *pass) readySince() (since time.Time) {
	if p.globalReplicas == 0 || allReady(&p.js.Status, p.globalReplicas) {
		return since
	}
	since = p.js.CreationTimestamp.Time
	for i := range p.js.Status.Conditions {
		c := &p.js.Status.Conditions[i]
		t := jobsetv1alpha2.ConditionType(c.Type)
		resumed := t == jobsetv1alpha2.ConditionSuspended && c.Status == metav1.ConditionFalse
		restarted := t == jobsetv1alpha2.ConditionRestarting && c.Status == metav1.ConditionTrue
		if (resumed || restarted) && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// allReady reports whether a status counts all Jobs as ready or succeeded.
func allReady(s *jobsetv1alpha2.JobSetStatus, replicas int) bool {
	ready := int64(0)
	for i := range s.ReplicatedJobsStatus {
		ready += int64(s.ReplicatedJobsStatus[i].Ready) + int64(s.ReplicatedJobsStatus[i].Succeeded)
	}
	return ready == int64(replicas)
}
