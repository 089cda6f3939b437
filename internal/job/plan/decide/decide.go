// Package decide computes the next write for a job and its Workload.
//
//	namespace ─┐
//	owners ────┼─► job.Judge ─► Verdict ─┐
//	config ────┘                         ├─► Next ─► job.Action: at most one write
//	job, Workloads, flavors, classes ────┘
//
// Each step of spec 30 §4.3 is a function of the observation: find the Workload
// that describes the job (ensure.go, equivalence.go; slice.go for elastic jobs,
// together.go for jobs of several objects), end one of the two, start or stop the
// job. [Sets] does the same for serving objects, whose pods are queued in groups.
//
// One write at a time makes restarts safe: every write before a crash is
// observed afterwards, and the next write follows from it.
package decide

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// Next returns the one next write for a job. It follows the steps of spec 30 §4.3, in their order; each returns an action, or
// passes on.
func Next(cfg *job.Config, d *job.Descriptor, o *job.Observed) job.Action {
	s := &decider{cfg: cfg, d: d, o: o, job: o.Job, in: job.NewSetting(cfg, o)}
	if o.Job == nil || o.Job.GetDeletionTimestamp() != nil {
		return s.end()
	}
	s.suspended, s.elastic = d.IsSuspended(o.Job), isElastic(cfg, d, o.Job)
	s.message, s.success, s.finished = d.Finished(o.Job)
	if a := s.releaseEarlier(); a != nil {
		return *a
	}
	switch mode := o.Verdict.Mode; {
	case mode == job.Unmanaged && !d.Skips(o.Job):
		return s.leaveManagement()
	case mode == job.Ignored, d.Skips(o.Job):
		return orNothing(s.leaveQueue())
	case mode == job.Follows:
		if a := s.leaveQueue(); a != nil {
			return *a
		}
		return s.follow()
	case mode == job.Managed:
		return s.manageWithChildren()
	default:
		return s.undecided()
	}
}

// releaseEarlier releases the Workloads of an earlier job of the same name, which hold quota for nothing.
func (s *decider) releaseEarlier() *job.Action {
	for _, w := range s.o.Workloads {
		if s.isController(w) && s.isOfEarlierJob(w) {
			if a, ok := s.orphan(w); ok {
				return &a
			}
		}
	}
	return nil
}

// decider is one decision being made.
type decider struct {
	cfg *job.Config
	d   *job.Descriptor
	o   *job.Observed
	job job.Object
	in  *job.Setting

	suspended, finished, success bool
	elastic                      bool            // resized by slices
	head                         *kueue.Workload // of an elastic job: the slice with quota that a pending slice replaces
	message                      string
}

// finalize (step 2) releases the Workloads of a deleted job: no other controller finishes them.
func (s *decider) finalize() job.Action {
	for _, w := range s.o.Workloads {
		if s.runsAlone() && w.DeletionTimestamp == nil && lifecycle.IsLeaving(w) && !lifecycle.IsFinished(w) && !s.runsOnWorker(w) {
			return s.release(w) // the pod was deleted by the eviction, which is recorded first
		}
		if a, ok := s.orphan(w); ok {
			return a
		}
	}
	return s.finalizeJob()
}

// finalizeJob runs the finalize hook of the job.
func (s *decider) finalizeJob() job.Action {
	if c, ok := s.job.(job.Composite); ok {
		return orNothing(s.releaseMembers(c, c.Members()))
	}
	if s.d.Once == nil || s.job == nil {
		return job.Action{}
	}
	next := clone(s.job)
	if !s.d.Once.Finalize(next) {
		return job.Action{}
	}
	return job.Action{Verb: job.PatchJob, Job: next}
}

// orphan finishes a Workload without a job, then removes the finalizer.
func (s *decider) orphan(w *kueue.Workload) (job.Action, bool) {
	return s.orphaned(w, metav1.GetControllerOf(w) != nil)
}

// orphaned is orphan; alone reports that the job of the Workload does not exist.
func (s *decider) orphaned(w *kueue.Workload, alone bool) (job.Action, bool) {
	next := w.DeepCopy()
	switch finished, unfinalize := s.cfg.Lifecycle.ReleaseOrphan(next, s.cfg.FinishOrphans && alone, s.o.Now); {
	case finished:
		return job.Action{Verb: job.WriteStatus, Workload: next}, true
	case unfinalize:
		return job.Action{Verb: job.UpdateWorkload, Workload: withoutFinalizer(w)}, true
	}
	return job.Action{}, false
}

// undecided (step 3) reports why the owners could not be followed. Ends and evictions do not wait for that.
func (s *decider) undecided() job.Action {
	if a := s.leave(s.own()); a != nil {
		return *a
	}
	a := job.Action{Verb: job.Fail, Err: s.o.Verdict.Err}
	if s.o.Verdict.TooDeep {
		a.Verb, a.Events = job.Stall, warning(eventNestingTooDeep, s.o.Verdict.Err.Error())
	}
	return a
}

// leaveQueue gives back what a job holds that is not to have a Workload of its own any more: it removed its queue name, follows an owner or is
// skipped by now. As long as the job runs, its Workload keeps the quota, and follows its end and its evictions. Once the job is suspended, the
// Workload leaves the queue, once no pod is left. Nil: there is nothing to write, and nothing to wait for without an event.
func (s *decider) leaveQueue() *job.Action {
	own := s.own()
	if a := s.leave(own); a != nil {
		return a
	}
	var wait *job.Action
	for _, w := range own {
		switch {
		case !s.suspended || lifecycle.IsFinished(w):
		case lifecycle.IsReserved(w) && s.isActive() && !s.isDispatched():
			if a := s.untilInactive(); a.Verb != job.Nothing || a.After > 0 {
				wait = &a
			}
		case lifecycle.IsReserved(w):
			next := w.DeepCopy()
			s.cfg.Lifecycle.Pending(next, kueue.ReasonOnHold, "The job left its queue", s.o.Now) // not to be admitted again before it has left
			return &job.Action{Verb: job.WriteStatus, Workload: next}
		case lifecycle.IsPending(w) && w.Spec.QueueName != "":
			next := w.DeepCopy()
			next.Spec.QueueName = ""
			return &job.Action{Verb: job.UpdateWorkload, Workload: next}
		}
	}
	return wait
}

func newestUnfinished(workloads []*kueue.Workload) *kueue.Workload {
	var newest *kueue.Workload
	for _, w := range workloads {
		if !lifecycle.IsFinished(w) && (newest == nil || older(newest, w)) {
			newest = w
		}
	}
	return newest
}

// older orders Workloads by age, and by name within a second.
func older(a, b *kueue.Workload) bool { return compareAge(a, b) < 0 }

func compareAge(a, b *kueue.Workload) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// SortByAge sorts Workloads, the oldest first.
func SortByAge(workloads []*kueue.Workload) { slices.SortFunc(workloads, compareAge) }

// manage handles a job with a Workload of its own (steps 5 to 16).
func (s *decider) manage() job.Action {
	a := s.advance()
	if a.Verb == job.Fail || a.Verb == job.Stall {
		return s.despite(a)
	}
	return a
}

// advance is manage for a job that can be described.
func (s *decider) advance() job.Action {
	if s.d.Declared != nil {
		if err := s.d.Declared.Unreadable(s.job, s.in); err != nil {
			return job.Action{Verb: job.Stall, Err: err, Events: warning(eventUnreadable, err.Error())}
		}
	}
	ensure := s.ensure
	c, composite := s.job.(job.Composite)
	if composite {
		ensure = func() (*kueue.Workload, *job.Action) { return s.ensureTogether(c) }
	}
	w, a := ensure()
	if a != nil {
		return *a
	}
	if a = s.ending(w); a != nil {
		return *a
	}
	if w == nil {
		return s.create()
	}
	if a := s.keepUp(w); a != nil {
		return *a
	}
	switch {
	case s.followsEviction(w):
		return s.evicted(w)
	case composite:
		return s.runTogether(w)
	case s.suspended:
		return s.waiting(s.runs(w))
	case s.stopping() || (!lifecycle.IsAdmitted(s.runs(w)) && !s.isHeld()): // step 16
		a, _ := s.stop(job.NotAdmitted, w)
		return orNothing(a)
	default:
		return job.Action{}
	}
}

// despite is the decision about a job that cannot be described, or cannot be synchronized with its Workload, for the given reason. It starts
// nothing. But preemptors wait for evictions and for the end of jobs, and a job that nothing admits must not run.
func (s *decider) despite(failed job.Action) job.Action {
	own := s.own()
	if a := s.leave(own); a != nil {
		return *a
	}
	if len(own) == 0 {
		if a := s.ending(nil); a != nil {
			return *a
		}
	}
	if s.finished {
		return s.finalizeJob()
	}
	if !s.stopping() && (s.suspended || slices.ContainsFunc(own, runsBy)) {
		return failed
	}
	var restore *kueue.Workload
	if len(own) == 1 {
		restore = own[0]
	}
	return *cmp.Or(s.stopOrWait(restore), &failed)
}

// runsBy reports whether pods may run by a Workload.
func runsBy(w *kueue.Workload) bool { return lifecycle.IsAdmitted(w) && !lifecycle.IsFinished(w) }

// own are the Workloads of this job.
func (s *decider) own() (own []*kueue.Workload) {
	_, composite := s.job.(job.Composite)
	for _, w := range s.o.Workloads {
		if composite && !s.isOfOther(w) || !composite && s.isController(w) && !s.isOfEarlierJob(w) {
			own = append(own, w)
		}
	}
	return own
}

// leave returns the next write for Workloads of this job that end or are evicted, or what that waits for; nil for neither.
func (s *decider) leave(own []*kueue.Workload) *job.Action {
	live := chain.Live(own)
	for _, w := range own {
		var a *job.Action
		switch idle := !lifecycle.IsReserved(w) || (!s.finished && chain.IsReplacement(w, live)); { // the job does not run by it
		case idle && !lifecycle.IsFinished(w) && w.DeletionTimestamp != nil:
			if lifecycle.HasFinalizer(w) {
				a = &job.Action{Verb: job.UpdateWorkload, Workload: withoutFinalizer(w)}
			}
		case idle && lifecycle.IsLeaving(w):
			a = new(s.release(w))
		default:
			if a = s.ending(w); a == nil && lifecycle.IsLeaving(w) {
				a = new(s.evicted(w))
			}
		}
		if a != nil && (a.Verb != job.Nothing || a.After > 0) {
			return a
		}
	}
	return nil
}

// stopping reports whether a stop was begun and must be completed.
func (s *decider) stopping() bool { return s.d.IsStopping(s.job) }

// runsAlone reports whether an evicted job does not return to its queue.
func (s *decider) runsAlone() bool { return s.d.Once != nil && s.d.Once.Alone }

// ending handles a Workload or a job that ends, or that must not run (steps 7 to 10).
func (s *decider) ending(w *kueue.Workload) *job.Action {
	var a job.Action
	switch {
	case w != nil && lifecycle.IsFinished(w):
		a = s.workloadFinished(w)
	case w != nil && w.DeletionTimestamp != nil:
		a = s.workloadDeleted(w)
	case s.d.States != nil && s.d.States.OnHold(s.job):
		a = s.hold(w)
	case s.cfg.IsUserStopped(s.job) && !s.finished:
		a = s.userStop(w)
	case s.finished:
		a = s.jobFinished(w)
	default:
		return nil
	}
	return &a
}

func orNothing(a *job.Action) job.Action { return ptr.Deref(a, job.Action{}) }

// workloadFinished (step 7) releases a finished Workload.
func (s *decider) workloadFinished(w *kueue.Workload) job.Action {
	if !lifecycle.HasFinalizer(w) {
		a := s.finalizeJob()
		if a.Verb == job.Nothing && s.hasLeft(w) && !s.finished && !job.IsRemote(w) { // a user made it: see hasLeft
			a.Events = warning(eventCompose, fmt.Sprintf("Workload %s/%s, which the job names, ended when the job left management: create it anew, or remove %s",
				w.Namespace, w.Name, kueue.PrebuiltWorkloadLabel))
		}
		return a
	}
	a := job.Action{Verb: job.UpdateWorkload, Workload: withoutFinalizer(w)}
	if c := lifecycle.Condition(w, kueue.WorkloadFinished); c.Reason != kueue.ReasonSucceeded && c.Reason != kueue.ReasonFailed {
		a.Events = s.finishedEvent(w, c.Message) // jobFinished has recorded the event otherwise
	}
	return a
}

func (s *decider) finishedEvent(w *kueue.Workload, message string) []job.Event {
	return normal(eventFinishedWorkload, fmt.Sprintf("Workload %s/%s is finished: %s", w.Namespace, w.Name, message))
}

// workloadDeleted (step 8) stops the job before its Workload is gone, while its pod sets can still be restored.
func (s *decider) workloadDeleted(w *kueue.Workload) job.Action {
	if !s.finished {
		if a, over := s.stop(job.WorkloadDeleted, w); !over {
			return orNothing(a)
		}
	}
	if lifecycle.HasFinalizer(w) {
		return job.Action{Verb: job.UpdateWorkload, Workload: withoutFinalizer(w)}
	}
	return job.Action{}
}

// hold (step 9) releases the quota of a job whose state asks not to run.
func (s *decider) hold(w *kueue.Workload) job.Action {
	if w == nil || !lifecycle.IsReserved(w) {
		return job.Action{}
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Pending(next, kueue.ReasonOnHold, "The job asks not to run", s.o.Now)
	return job.Action{Verb: job.WriteStatus, Workload: next}
}

// jobFinished (step 10) finishes the Workload with the job.
func (s *decider) jobFinished(w *kueue.Workload) job.Action {
	if w == nil {
		return s.finalizeJob()
	}
	reason := kueue.ReasonFailed
	if s.success {
		reason = kueue.ReasonSucceeded
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Finish(next, reason, s.message, s.o.Now)
	return job.Action{Verb: job.WriteStatus, Workload: next, Events: s.finishedEvent(w, s.message)}
}

// create (step 11) creates the missing Workload, once no pod runs without one.
func (s *decider) create() job.Action {
	prebuilt := s.prebuiltName()
	if prebuilt != "" {
		if a, over := s.stop(job.NoMatchingWorkload, nil); !over {
			return orNothing(a)
		}
	}
	if s.isActive() && !s.isDispatched() && (!s.elastic || prebuilt != "") {
		return s.untilInactive()
	}
	if prebuilt != "" {
		return job.Action{Verb: job.Fail, Err: fmt.Errorf("workload %s/%s, which the job names, does not exist or belongs to another job: create it, or remove %s",
			s.job.GetNamespace(), prebuilt, kueue.PrebuiltWorkloadLabel)}
	}
	podSets, err := s.in.PodSets(s.d, s.job)
	if err != nil {
		return s.notComposed(err)
	}
	return s.createFor(podSets, nil)
}

// createFor creates a Workload of the given pod sets; replaces is the slice that it replaces, nil for none.
func (s *decider) createFor(podSets []kueue.PodSet, replaces *kueue.Workload) job.Action {
	priority, err := resolvePriority(s.d, s.job, podSets, s.o.Classes)
	if err != nil {
		return classMissing(err)
	}
	w, err := newWorkload(s.cfg, s.d, s.job, s.written(podSets), priority)
	if err != nil {
		return job.Action{Verb: job.Fail, Err: err, Events: warning(eventCompose, err.Error())}
	}
	if s.elastic {
		s.asSlice(w, replaces)
	}
	return job.Action{Verb: job.CreateWorkload, Workload: w, Events: normal(eventCreatedWorkload, "Created workload "+w.Namespace+"/"+w.Name)}
}

// classMissing reports a missing priority class, in an event only if the job's label names it.
func classMissing(err error) job.Action {
	a := job.Action{Verb: job.Fail, Err: err}
	if missing, ok := errors.AsType[*job.MissingClassError](err); ok && missing.Kind == kueue.WorkloadPriorityClassKind {
		a.Events = warning(eventClassNotFound, err.Error())
	}
	return a
}

// evicted (step 14) stops the job, releases the quota once no pod of it runs, and deletes a job that Berth deactivated after the
// configured retention.
func (s *decider) evicted(w *kueue.Workload) job.Action {
	if s.head != nil { // nothing runs by the slice that replaces it
		return s.release(w)
	}
	a, over := s.stop(job.WorkloadEvicted, w)
	if !over {
		return orNothing(a)
	}
	if lifecycle.IsReserved(w) {
		if s.isActive() || s.runsOnWorker(w) {
			return s.untilInactive()
		}
		return s.release(w)
	}
	c, composite := s.job.(job.Composite)
	switch rest, expires := s.expires(w); {
	case !expires, composite && w.Annotations[kueue.JobOwnerGVKAnnotation] != "": // what makes the pods is deleted
	case rest > 0:
		return job.Action{After: rest}
	case composite:
		return orNothing(s.removeMembers(c, c.Members(), normal(eventDeleted, noteExpired)))
	default:
		return s.deleteExpired()
	}
	if s.suspended {
		return orNothing(s.moveQueue(w))
	}
	return job.Action{}
}

// expires reports whether a job is deleted because Berth deactivated its Workload, and after which time.
func (s *decider) expires(w *kueue.Workload) (rest time.Duration, ok bool) {
	if s.cfg.DeleteDeactivatedAfter == nil || lifecycle.IsReserved(w) || lifecycle.IsActive(w) || !lifecycle.DeactivatedByBerth(w) {
		return 0, false
	}
	since := lifecycle.Condition(w, kueue.WorkloadEvicted).LastTransitionTime
	return max(0, *s.cfg.DeleteDeactivatedAfter-s.o.Now.Sub(since.Time)), true
}

const noteExpired = "Deleted some time after its workload was deactivated"

func (s *decider) deleteExpired() job.Action {
	return job.Action{Verb: job.DeleteJob, Job: s.job, Events: normal(eventDeleted, noteExpired)}
}

// followsEviction reports whether an eviction is to be followed. A replacing slice that was evicted and holds no quota only waits.
func (s *decider) followsEviction(w *kueue.Workload) bool {
	return lifecycle.IsEvicted(w) && (s.head == nil || lifecycle.IsReserved(w))
}

// release releases the quota of an evicted Workload.
func (s *decider) release(w *kueue.Workload) job.Action {
	next := w.DeepCopy()
	waits := s.job != nil && s.job.GetDeletionTimestamp() == nil && s.suspended && !s.finished // it has not started, and so is not deleted
	s.cfg.Lifecycle.Release(next, s.runsAlone() && !s.d.Once.Requeues && !waits && !s.isDelegated(w), s.o.Now)
	return job.Action{Verb: job.WriteStatus, Workload: next}
}

// waiting (step 15) starts a job whose Workload is admitted. Otherwise it reports pending checks, and follows a change of the queue
// name.
func (s *decider) waiting(w *kueue.Workload) job.Action {
	switch {
	case lifecycle.IsAdmitted(w) && s.isDelegated(w):
		return job.Action{} // its copies run on a worker cluster
	case lifecycle.IsAdmitted(w):
		return s.start(w)
	case lifecycle.IsReserved(w):
		var messages []string
		for _, c := range w.Status.AdmissionChecks {
			if c.State == kueue.CheckStatePending && c.Message != "" {
				messages = append(messages, string(c.Name)+": "+c.Message)
			}
		}
		if len(messages) == 0 {
			return job.Action{}
		}
		return job.Action{Events: normal(eventUpdatedCheck, strings.Join(messages, "; "))}
	case lifecycle.IsOnHold(w):
		if _, composite := s.job.(job.Composite); composite {
			return job.Action{} // its owner has no replicas, and resumes it with them
		}
		if a := s.moveQueue(w); a != nil {
			return *a // or the old queue could admit it
		}
		next := w.DeepCopy()
		s.cfg.Lifecycle.Pending(next, kueue.ReasonPendingEvaluation, "The job asks to run again", s.o.Now)
		return job.Action{Verb: job.WriteStatus, Workload: next}
	default:
		return orNothing(s.moveQueue(w))
	}
}

// moveQueue updates the queue name of a Workload without a quota reservation.
func (s *decider) moveQueue(w *kueue.Workload) *job.Action {
	queue := kueue.LocalQueueName(job.QueueName(s.job))
	if w.Spec.QueueName == queue || lifecycle.IsReserved(w) {
		return nil
	}
	if c, ok := s.job.(job.Composite); ok && !c.Agrees() {
		return nil
	}
	next := w.DeepCopy()
	next.Spec.QueueName = queue
	return &job.Action{Verb: job.UpdateWorkload, Workload: next}
}

// isDelegated reports whether the pods of a Workload run on another cluster: it has its cluster, or waits for one. Their local gates stay
// (spec: 30 §4.12).
func (s *decider) isDelegated(w *kueue.Workload) bool {
	_, composite := s.job.(job.Composite)
	gated := composite || (s.d.Remote != nil && s.d.Remote.Gated)
	return (gated && w.Status.ClusterName != "") || slices.ContainsFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return s.o.Delegated[c.Name] })
}

// runsOnWorker reports whether pods of a Workload may run on another cluster, which its gated local pods do not show. The
// dispatcher removes that state; a rejected or deleted check ends it, too.
func (s *decider) runsOnWorker(w *kueue.Workload) bool {
	return lifecycle.RunsRemotely(w) && slices.ContainsFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
		return s.o.Delegated[c.Name] && c.State != kueue.CheckStateRejected
	})
}

// isDispatched reports whether the pods of a job are on another cluster. Whatever its status says, they end once its Workload has no quota reservation: the
// dispatcher deletes the copy.
func (s *decider) isDispatched() bool {
	return s.d.ManagedBy != nil && s.d.ManagedBy(s.job) == kueue.MultiKueueControllerName
}

func clone(o job.Object) job.Object { return o.DeepCopyObject().(job.Object) }
