package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/job/podset"
	"github.com/berth-project/berth/internal/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/plan/slices"
)

// Decide finds the one next write for a job. The steps are those of spec 30 §4.3, in their order; each either has
// something to do or passes on.
func Decide(cfg *Config, d *Descriptor, o *Observed) Action {
	s := &decider{cfg: cfg, d: d, o: o, job: o.Job, in: NewSetting(cfg, o)}
	if o.Job == nil || o.Job.GetDeletionTimestamp() != nil {
		return s.end()
	}
	if d.Skip != nil && d.Skip(o.Job) {
		return Action{}
	}
	s.suspended, s.elastic = d.IsSuspended(o.Job), cfg.isElastic(d, o.Job)
	s.message, s.success, s.finished = d.Finished(o.Job)
	switch o.Verdict.Reach {
	case Unmanaged:
		return s.letGo()
	case Ignored:
		return s.leaveQueue()
	case Follows:
		return s.follow()
	case Managed:
		return s.lead()
	default:
		return s.undecided()
	}
}

// decider is one decision being made.
type decider struct {
	cfg *Config
	d   *Descriptor
	o   *Observed
	job Object
	in  *Setting

	suspended, finished, success bool
	elastic                      bool            // it is resized by slices
	head                         *kueue.Workload // of an elastic job: the slice with quota whose place another waits to take
	message                      string
}

// finalize (step 2) lets the Workloads of a deleted job go: nobody will finish them any more.
func (s *decider) finalize() Action {
	for _, w := range s.o.Workloads {
		if a, ok := s.orphan(w); ok {
			return a
		}
	}
	return s.letJobGo()
}

// letJobGo is the finalize hook of the job.
func (s *decider) letJobGo() Action {
	if c, ok := s.job.(Composite); ok {
		return orNothing(s.free(c, c.Members()))
	}
	if s.d.Finalize == nil || s.job == nil {
		return Action{}
	}
	next := clone(s.job)
	if !s.d.Finalize(next) {
		return Action{}
	}
	return Action{Verb: PatchJob, Job: next}
}

// orphan finishes a Workload without a job, then takes the finalizer off.
func (s *decider) orphan(w *kueue.Workload) (Action, bool) {
	if w.DeletionTimestamp == nil && s.cfg.FinishOrphans && metav1.GetControllerOf(w) != nil {
		next := w.DeepCopy()
		if s.cfg.Lifecycle.Finish(next, kueue.ReasonOwnerNotFound, "The job of this workload no longer exists", s.o.Now) {
			return Action{Verb: WriteStatus, Workload: next}, true
		}
	}
	if hasFinalizer(w) {
		return Action{Verb: UpdateWorkload, Workload: withoutFinalizer(w)}, true
	}
	return Action{}, false
}

// undecided (step 3) reports why the owners could not be followed.
func (s *decider) undecided() Action {
	a := Action{Verb: Fail, Err: s.o.Verdict.Err}
	if s.o.Verdict.TooDeep {
		a.Verb, a.Events = Stall, warning(eventNestingTooDeep, s.o.Verdict.Err.Error())
	}
	return a
}

// letGo ends what was begun before the namespace became unmanaged. The job stays exactly as it is
// (spec: 30 §4.2.5 rule 2). A Workload without our finalizer is not one that we began.
func (s *decider) letGo() Action {
	const why = "The namespace is no longer managed"
	for _, w := range s.o.Workloads {
		if !hasFinalizer(w) {
			continue
		}
		next := w.DeepCopy()
		if s.cfg.Lifecycle.Finish(next, kueue.ReasonOutOfSync, why, s.o.Now) {
			return Action{Verb: WriteStatus, Workload: next, Events: normal(eventNamespaceUnmanaged, why+"; the job is left as it is")}
		}
		return Action{Verb: UpdateWorkload, Workload: withoutFinalizer(w)}
	}
	if c, ok := s.job.(Composite); ok {
		return orNothing(s.free(c, c.Ended()))
	}
	if s.finished {
		return s.letJobGo()
	}
	return Action{}
}

// leaveQueue takes the Workload of a job that gave up its queue name out of the queue, so that it holds no quota for a
// job that nobody starts.
func (s *decider) leaveQueue() Action {
	for _, w := range s.o.Workloads {
		if s.suspended && w.DeletionTimestamp == nil && !lifecycle.IsFinished(w) && !lifecycle.IsReserved(w) && w.Spec.QueueName != "" {
			next := w.DeepCopy()
			next.Spec.QueueName = ""
			return Action{Verb: UpdateWorkload, Workload: next}
		}
	}
	return Action{}
}

// follow (step 4) stops a child while the Workload of its ancestor is not admitted. Its parent starts it again
// (spec: 30 §4.5).
func (s *decider) follow() Action {
	if s.finished || s.suspended || s.stopping() || (s.d.LedBy != nil && s.d.LedBy(s.cfg, s.o.Verdict.Ancestor)) {
		return Action{}
	}
	newest := newestUnfinished(s.o.AncestorWorkloads)
	switch {
	case newest == nil:
	case IsElastic(s.job) || IsElastic(newest):
		if !lifecycle.IsEvicted(newest) {
			return Action{}
		}
	case lifecycle.IsAdmitted(newest):
		return Action{}
	}
	next := clone(s.job)
	s.d.Suspend(next)
	note := fmt.Sprintf("Suspended because the workload of %s %s is not admitted", s.o.Verdict.Ancestor.GVK.Kind, s.o.Verdict.Ancestor.Object.GetName())
	return Action{Verb: PatchJob, Job: next, Events: normal(eventSuspended, note)}
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

// manage is the life of a job with a Workload of its own (steps 5 to 16).
func (s *decider) manage() Action {
	if s.d.Unreadable != nil {
		if err := s.d.Unreadable(s.job, s.in); err != nil {
			return s.blind(err)
		}
	}
	ensure := s.ensure
	c, composite := s.job.(Composite)
	if composite {
		ensure = func() (*kueue.Workload, *Action) { return s.ensureTogether(c) }
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
	case lifecycle.IsEvicted(w):
		return s.evicted(w)
	case composite:
		return s.runTogether(w)
	case s.suspended:
		return s.waiting(s.runs(w))
	case s.stopping() || (!lifecycle.IsAdmitted(s.runs(w)) && !s.isHeld()): // step 16
		a, _ := s.stop(NotAdmitted, w)
		return orNothing(a)
	default:
		return Action{}
	}
}

// keepUp (steps 5, 12 and 13) keeps the Workload in step with the job, and the slice that holds the quota too.
func (s *decider) keepUp(w *kueue.Workload) *Action {
	if s.head != nil {
		if a := s.sync(s.head); a != nil {
			return a
		}
	}
	for _, step := range []func(*kueue.Workload) *Action{s.sync, s.reclaim, s.podsReady} {
		if a := step(w); a != nil {
			return a
		}
	}
	return nil
}

// blind is about a job that does not tell what it should. Nothing is begun with it, but what is at its end comes to its end,
// and what has to make room does so: others wait for that.
func (s *decider) blind(err error) Action {
	for _, w := range s.o.Workloads {
		if !s.isController(w) || s.isPredecessor(w) {
			continue
		}
		if a := s.ending(w); a != nil {
			return *a
		}
		if lifecycle.IsLeaving(w) {
			if a := s.evicted(w); a.Verb != Nothing {
				return a
			}
		}
	}
	return Action{Verb: Stall, Err: err, Events: warning(eventUnreadable, err.Error())}
}

// stopping says whether a stop was begun that has to come to its end.
func (s *decider) stopping() bool { return s.d.Stopping != nil && s.d.Stopping(s.job) }

// ending is what happens when the Workload or the job is at its end, or does not want to run (steps 7 to 10).
func (s *decider) ending(w *kueue.Workload) *Action {
	var a Action
	switch {
	case w != nil && lifecycle.IsFinished(w):
		a = s.workloadFinished(w)
	case w != nil && w.DeletionTimestamp != nil:
		a = s.workloadDeleted(w)
	case s.d.OnHold != nil && s.d.OnHold(s.job):
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

func orNothing(a *Action) Action {
	if a == nil {
		return Action{}
	}
	return *a
}

// workloadFinished (step 7) lets a finished Workload go.
func (s *decider) workloadFinished(w *kueue.Workload) Action {
	if !hasFinalizer(w) {
		return s.letJobGo()
	}
	a := Action{Verb: UpdateWorkload, Workload: withoutFinalizer(w)}
	if c := lifecycle.Condition(w, kueue.WorkloadFinished); c.Reason != kueue.ReasonSucceeded && c.Reason != kueue.ReasonFailed {
		a.Events = s.finishedEvent(w, c.Message) // it was not finished by jobFinished, which has told already
	}
	return a
}

func (s *decider) finishedEvent(w *kueue.Workload, message string) []Event {
	return normal(eventFinishedWorkload, fmt.Sprintf("Workload %s/%s is finished: %s", w.Namespace, w.Name, message))
}

// workloadDeleted (step 8) stops the job before its Workload goes, while there is something to restore from.
func (s *decider) workloadDeleted(w *kueue.Workload) Action {
	if !s.finished {
		if a, over := s.stop(WorkloadDeleted, w); !over {
			return orNothing(a)
		}
	}
	if hasFinalizer(w) {
		return Action{Verb: UpdateWorkload, Workload: withoutFinalizer(w)}
	}
	return Action{}
}

// hold (step 9) frees the quota of a job that asks not to run.
func (s *decider) hold(w *kueue.Workload) Action {
	if w == nil || !lifecycle.IsReserved(w) {
		return Action{}
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Pending(next, kueue.ReasonOnHold, "The job asks not to run", s.o.Now)
	return Action{Verb: WriteStatus, Workload: next}
}

// jobFinished (step 10) finishes the Workload with the job.
func (s *decider) jobFinished(w *kueue.Workload) Action {
	if w == nil {
		return s.letJobGo()
	}
	reason := kueue.ReasonFailed
	if s.success {
		reason = kueue.ReasonSucceeded
	}
	next := w.DeepCopy()
	s.cfg.Lifecycle.Finish(next, reason, s.message, s.o.Now)
	return Action{Verb: WriteStatus, Workload: next, Events: s.finishedEvent(w, s.message)}
}

// create (step 11) makes the missing Workload, once no pod runs without one.
func (s *decider) create() Action {
	prebuilt := s.prebuiltName()
	if prebuilt != "" {
		if a, over := s.stop(NoMatchingWorkload, nil); !over {
			return orNothing(a)
		}
	}
	if s.isActive() && (!s.elastic || prebuilt != "") {
		return Action{}
	}
	if prebuilt != "" {
		return Action{Verb: Fail, Err: fmt.Errorf("workload %s/%s, which the job names, does not exist or belongs to another job: create it, or remove %s",
			s.job.GetNamespace(), prebuilt, kueue.PrebuiltWorkloadLabel)}
	}
	podSets, err := s.in.PodSets(s.d, s.job)
	if err != nil {
		return notComposed(err)
	}
	return s.createFor(podSets, nil)
}

// createFor makes a Workload of the given pod sets; that of an elastic job may be to take the place of another.
func (s *decider) createFor(podSets []kueue.PodSet, before *kueue.Workload) Action {
	priority, err := resolvePriority(s.d, s.job, podSets, s.o.Classes)
	if err != nil {
		return classMissing(err)
	}
	w, err := s.cfg.newWorkload(s.d, s.job, podSets, priority)
	if err != nil {
		return Action{Verb: Fail, Err: err, Events: warning(eventCompose, err.Error())}
	}
	if s.elastic {
		s.asSlice(w, before)
	}
	return Action{Verb: CreateWorkload, Workload: w, Events: normal(eventCreatedWorkload, "Created workload "+w.Namespace+"/"+w.Name)}
}

// classMissing reports a priority class that does not exist, in an event only if the job's label named it.
func classMissing(err error) Action {
	a := Action{Verb: Fail, Err: err}
	if missing, ok := errors.AsType[*MissingClassError](err); ok && missing.Kind == kueue.WorkloadPriorityClassKind {
		a.Events = warning(eventClassNotFound, err.Error())
	}
	return a
}

// reclaim (step 12) tells which pods need no quota any more. Counts never shrink while quota is reserved.
func (s *decider) reclaim(w *kueue.Workload) *Action {
	if !s.cfg.ReclaimablePods || s.d.Reclaimable == nil {
		return nil
	}
	wanted := s.freed(w)
	if lifecycle.IsReserved(w) {
		for _, old := range w.Status.ReclaimablePods {
			if chain.ScaledDown(w, old.Name) { // what is left may be needed again
				continue
			}
			at := slices.IndexFunc(wanted, func(r kueue.ReclaimablePod) bool { return r.Name == old.Name })
			if at < 0 {
				wanted = append(wanted, old)
			} else {
				wanted[at].Count = max(wanted[at].Count, old.Count)
			}
		}
	}
	if same(wanted, w.Status.ReclaimablePods) {
		return nil
	}
	next := w.DeepCopy()
	next.Status.ReclaimablePods = wanted
	return &Action{Verb: WriteReclaimable, Workload: next}
}

// freed counts the pods that need no quota any more, of the sets that the Workload has.
func (s *decider) freed(w *kueue.Workload) []kueue.ReclaimablePod {
	wanted := s.d.Reclaimable(s.job, s.in)
	for i := range wanted {
		r := &wanted[i]
		at := slices.IndexFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == r.Name })
		if at < 0 {
			return w.Status.ReclaimablePods
		}
		r.Count = min(r.Count, w.Spec.PodSets[at].Count)
	}
	return wanted
}

// podsReady (step 13) keeps the PodsReady condition. Before the first reservation there is none: the reservation brings
// it along.
func (s *decider) podsReady(w *kueue.Workload) *Action {
	if !s.cfg.WaitForPodsReady || (!lifecycle.IsReserved(w) && lifecycle.Condition(w, kueue.WorkloadPodsReady) == nil) {
		return nil
	}
	next := w.DeepCopy()
	if !s.cfg.Lifecycle.PodsReady(next, s.d.PodsReady(s.job, s.in), s.o.Now) {
		return nil
	}
	return &Action{Verb: WritePodsReady, Workload: next}
}

// evicted (step 14) stops the job, gives the quota back once nothing of it runs, and at last deletes a job that Berth
// deactivated, if it is told to.
func (s *decider) evicted(w *kueue.Workload) Action {
	a, over := s.stop(WorkloadEvicted, w)
	if !over {
		return orNothing(a)
	}
	if lifecycle.IsReserved(w) {
		if s.isActive() {
			return s.untilInactive()
		}
		next := w.DeepCopy()
		s.cfg.Lifecycle.Release(next, s.d.OnePod && !s.cfg.ReassignPods, s.o.Now)
		return Action{Verb: WriteStatus, Workload: next}
	}
	if s.cfg.DeleteDeactivatedAfter != nil && !lifecycle.IsActive(w) && lifecycle.DeactivatedByBerth(w) {
		since := lifecycle.Condition(w, kueue.WorkloadEvicted).LastTransitionTime
		rest := *s.cfg.DeleteDeactivatedAfter - s.o.Now.Sub(since.Time)
		if rest > 0 {
			return Action{After: rest}
		}
		note := normal(eventDeleted, "Deleted some time after its workload was deactivated")
		if c, ok := s.job.(Composite); ok {
			return orNothing(s.remove(c, c.Members(), note))
		}
		return Action{Verb: DeleteJob, Job: s.job, Events: note}
	}
	if s.suspended {
		return orNothing(s.moveQueue(w))
	}
	return Action{}
}

// waiting (step 15) starts a job whose Workload is admitted. Otherwise it tells what the Workload waits for, and follows
// a change of the queue name.
func (s *decider) waiting(w *kueue.Workload) Action {
	switch {
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
			return Action{}
		}
		return Action{Events: normal(eventUpdatedCheck, strings.Join(messages, "; "))}
	case lifecycle.IsOnHold(w):
		if _, composite := s.job.(Composite); composite {
			return Action{} // it belongs to what has no replicas, and comes back with those
		}
		next := w.DeepCopy()
		s.cfg.Lifecycle.Pending(next, kueue.ReasonPendingEvaluation, "The job asks to run again", s.o.Now)
		return Action{Verb: WriteStatus, Workload: next}
	default:
		return orNothing(s.moveQueue(w))
	}
}

// moveQueue lets a Workload without quota follow the queue name of its job.
func (s *decider) moveQueue(w *kueue.Workload) *Action {
	queue := kueue.LocalQueueName(QueueName(s.job))
	if w.Spec.QueueName == queue || lifecycle.IsReserved(w) {
		return nil
	}
	if c, ok := s.job.(Composite); ok && !c.Agrees() {
		return nil
	}
	next := w.DeepCopy()
	next.Spec.QueueName = queue
	return &Action{Verb: UpdateWorkload, Workload: next}
}

// start gives the pods what the admission says and lets the job run, in one write (spec: 30 §4.7).
func (s *decider) start(w *kueue.Workload) Action {
	infos, err := InfosFromAdmission(s.cfg, w, s.o.Flavors)
	next := clone(s.job)
	if s.elastic && s.d.GatesPods {
		for i := range infos {
			infos[i].SchedulingGates = append(infos[i].SchedulingGates, podset.ElasticGate)
		}
	}
	switch {
	case err == nil && s.led():
		s.d.Family.Start(next, s.in)
	case err == nil:
		before := s.clean(next)
		err = s.d.Start(next, infos, s.in)
		s.noteInjected(next, before, infos)
		if err != nil && !errors.Is(err, podset.ErrPermanent) {
			err = podset.Permanent("%s", err)
		}
	}
	switch {
	case errors.Is(err, podset.ErrPermanent):
		return FailedToStart(s.cfg, w, err, s.o.Now)
	case err != nil:
		return Action{Verb: Fail, Err: err}
	}
	if c, ok := next.(Composite); ok && len(c.Members()) == 0 {
		return Action{} // those that are there run already
	}
	note := "Admitted by clusterQueue " + string(w.Status.Admission.ClusterQueue)
	return Action{Verb: PatchJob, Job: next, Starts: w, Events: normal(eventStarted, note)}
}

// FailedToStart finishes the Workload of a job that can never be started the way it was admitted: so its descriptor says, or
// the API server does, which refused it for good (spec: 30 §4.3, 50 §4.10).
func FailedToStart(cfg *Config, w *kueue.Workload, why error, now metav1.Time) Action {
	failed := w.DeepCopy()
	cfg.Lifecycle.Finish(failed, kueue.ReasonFailedToStart, why.Error(), now)
	return Action{Verb: WriteStatus, Workload: failed}
}

// stop finds the next write that stops the job and gives it back its own templates. over says that it is stopped; without
// a write and not over, the job itself has to move first. w is the Workload to restore from, or nil (spec: 30 §4.7).
func (s *decider) stop(why StopReason, w *kueue.Workload) (a *Action, over bool) {
	note := stopNotes[why]
	if w != nil {
		if c := lifecycle.Condition(w, kueue.WorkloadEvicted); why == WorkloadEvicted && c != nil {
			note, why = c.Message, evictedFor(c.Reason)
		}
	}
	step, next := s.nextStep(s.toRestore(w), why)
	switch step {
	case Stopped:
		return nil, true
	case Wait:
		return nil, false
	case Change:
		if a = (&Action{Verb: PatchJob, Job: next}); s.d.IsSuspended(next) {
			forgetInjected(next)
		}
	case ChangeStatus:
		a = &Action{Verb: PatchJobStatus, Job: next}
	case Delete:
		a = &Action{Verb: DeleteJob, Job: next}
	}
	if _, composite := s.job.(Composite); (!s.suspended && !s.stopping()) || (composite && step == ChangeStatus) {
		a.Events = normal(eventStopped, note)
	}
	return a, false
}
