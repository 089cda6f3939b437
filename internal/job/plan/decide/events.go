package decide

import (
	"errors"
	"fmt"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// notComposed reports pod sets that cannot be built. An object that the job refers to may be the reason, and its changes need not
// reconcile the job: then it is retried.
func (s *decider) notComposed(err error) job.Action {
	if errors.Is(err, podset.ErrNotYet) {
		return job.Action{Verb: job.Fail, Err: err}
	}
	a := job.Action{Verb: job.Stall, Err: err, Events: warning(eventCompose, err.Error())}
	if s.d.Refers != nil && len(s.d.Refers(s.job)) > 0 {
		a.Verb = job.Fail
	}
	return a
}

// NameTaken reports a Workload that does not belong to the job and has the name of the job's own. Its deletion need not reconcile the job, so that
// is retried.
func NameTaken(w *kueue.Workload) job.Action {
	err := fmt.Errorf("workload %s/%s has the name of the job's Workload and does not belong to the job: delete it", w.Namespace, w.Name)
	return job.Action{Verb: job.Fail, Err: err, Events: warning(eventNameConflict, err.Error())}
}

func normal(reason, note string) []job.Event { return []job.Event{{Reason: reason, Note: note}} }
func warning(reason, note string) []job.Event {
	return []job.Event{{Reason: reason, Note: note, Warning: true}}
}

// Reasons of events on jobs (spec: 30 §5.2).
const (
	eventStarted            = "Started"
	eventSuspended          = "Suspended"
	eventResumed            = "Resumed"
	eventStopped            = "Stopped"
	eventDeleted            = "Deleted"
	eventCreatedWorkload    = "CreatedWorkload"
	eventDeletedWorkload    = "DeletedWorkload"
	eventUpdatedWorkload    = "UpdatedWorkload"
	eventFinishedWorkload   = "FinishedWorkload"
	eventUpdatedCheck       = "UpdatedAdmissionCheck"
	eventCompose            = "ErrWorkloadCompose"
	eventUnreadable         = "ErrJobExpression" // of declared kinds
	eventNestingTooDeep     = "JobNestingTooDeep"
	eventClassNotFound      = "WorkloadPriorityClassNotFound"
	eventNamespaceUnmanaged = "NamespaceUnmanaged"
	eventNameConflict       = "WorkloadNameConflict"
	eventExcessPod          = "ExcessPodDeleted"
	eventOwnersAdded        = "OwnerReferencesAdded"
)

// evictedFor is the stop reason of an evicted job: the reason of the eviction is a part of it.
func evictedFor(reason string) job.StopReason {
	return job.WorkloadEvicted + "DueTo" + job.StopReason(reason)
}

// stopNotes are the sentences of stop reasons. An eviction has its own message.
var stopNotes = map[job.StopReason]string{
	job.WorkloadDeleted:    "Stopped because its workload is deleted",
	job.NoMatchingWorkload: "Stopped because no workload describes it",
	job.NotAdmitted:        "Stopped because its workload is not admitted",
	job.UserStopped:        "Stopped because its user asks for that",
}
