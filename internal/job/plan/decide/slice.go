package decide

import (
	"slices"
	"strconv"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// isElastic reports whether a job of a kind is resized by slices (spec: 30 §4.11).
func isElastic(c *job.Config, d *job.Descriptor, o job.Object) bool {
	return c.ElasticJobs && d.Elastic != nil && job.IsElastic(o) && (!d.ManagedChildren.CanGate() || d.ManagedChildren.Upgrades.GatesChildren(c))
}

// slice is ensure for an elastic job: it returns the slice that is to match the job, or the write that leads to it. Both nil: there
// is none yet. ok is false if slices do not suit the job in its current state: it is then handled like any other, by its live
// Workloads.
func (s *decider) slice(podSets []kueue.PodSet) (w *kueue.Workload, a *job.Action, ok bool) {
	if next := clone(s.job); !s.finished && s.d.AnnotatesSlices(next, s.in) {
		return nil, &job.Action{Verb: job.PatchJob, Job: next}, true
	}
	own := s.own()
	chain.Sort(own)
	live := chain.Live(own)
	kept := chain.Normalise(live)
	if w = s.toStop(&kept); w != nil {
		return w, nil, true
	}
	if w, a = s.pastSlices(own, len(live) > 0); w != nil || a != nil {
		return w, a, true
	}
	if len(live) == 0 {
		return nil, s.stopReturned(own), true
	}
	if w, a = s.deletedSlice(live); w != nil || a != nil {
		return w, a, true
	}
	if len(kept.Over) > 0 {
		return nil, s.endSlice(&kept.Over[0]), true
	}
	if a = s.endReplacement(kept.Head, live); a != nil {
		return nil, a, true
	}
	w = kept.Selected
	if kept.Head != w {
		s.head = kept.Head
	}
	if s.finished || lifecycle.IsLeaving(w) {
		return w, nil, true
	}
	a, ok = s.resize(w, podSets)
	return w, a, ok
}

// toStop returns the evicted slice by which the job runs, nil for none. The job is stopped before other slices are ended: as long as it runs,
// children are suspended, and resumed by their parents.
func (s *decider) toStop(kept *chain.Kept) *kueue.Workload {
	if w := kept.Selected; w != nil && w == kept.Head && lifecycle.IsEvicted(w) && s.mayRun() {
		return w
	}
	return nil
}

// mayRun reports whether no write has begun to stop the job yet.
func (s *decider) mayRun() bool { return !s.finished && !s.suspended && !s.stopping() }

// outgrown finishes a replacing slice that cannot be adapted to the job's new size: it holds quota and would have to grow, or only
// a user can reactivate it. Another slice replaces it.
func (s *decider) outgrown(w *kueue.Workload, podSets []kueue.PodSet) *job.Action {
	compare := chain.Compare
	if s.gatesChildren() {
		compare = chain.CompareShaped
	}
	change := compare(w, podSets)
	switch {
	case s.head == nil || change == chain.Same || change == chain.Incompatible:
		return nil
	case lifecycle.IsActive(w) && (change == chain.Shrinks || !lifecycle.IsReserved(w)):
		return nil
	}
	return s.endSlice(&chain.Ended{Workload: w, Reason: kueue.ReasonOutOfSync, Message: "The job changed its size again before this slice was admitted"})
}

// pastSlices releases finished slices. The last slice of a finished job, or of one that cannot be started, stays its Workload.
func (s *decider) pastSlices(own []*kueue.Workload, others bool) (*kueue.Workload, *job.Action) {
	var end *kueue.Workload
	if at := len(own) - 1; at >= 0 && !others && (s.finished || s.isItsEnd(own[at], own)) {
		end = own[at]
	}
	for _, w := range own {
		if w != end && lifecycle.IsFinished(w) && lifecycle.HasFinalizer(w) {
			note := lifecycle.Condition(w, kueue.WorkloadFinished).Message
			return nil, &job.Action{Verb: job.UpdateWorkload, Workload: withoutFinalizer(w), Events: s.finishedEvent(w, note)}
		}
	}
	return end, nil
}

// isItsEnd reports whether a finished slice ends the job in its current generation, and not only itself.
func (s *decider) isItsEnd(w *kueue.Workload, own []*kueue.Workload) bool {
	switch lifecycle.Condition(w, kueue.WorkloadFinished).Reason {
	case kueue.ReasonWorkloadSliceReplaced, kueue.ReasonOutOfSync:
		return false
	}
	for n := range own {
		if w.Name == s.sliceName(chain.Replaces(w), n) {
			return true
		}
	}
	return false
}

// deletedSlice handles a live slice that is being deleted. If the job runs by it, or it is the only one, the job is stopped first.
func (s *decider) deletedSlice(live []*kueue.Workload) (*kueue.Workload, *job.Action) {
	for _, w := range live {
		switch {
		case w.DeletionTimestamp == nil:
		case (lifecycle.IsReserved(w) && !chain.IsReplacement(w, live)) || len(live) == 1:
			return w, nil
		case lifecycle.HasFinalizer(w):
			return nil, &job.Action{Verb: job.UpdateWorkload, Workload: withoutFinalizer(w)}
		default:
			return nil, &job.Action{}
		}
	}
	return nil, nil
}

// isDangling reports whether a slice of a suspended job has a quota reservation only for its difference to a replaced slice that
// was deleted. It is created again, with quota for the whole job.
func (s *decider) isDangling(w *kueue.Workload) bool {
	replaced := chain.Replaces(w)
	return s.suspended && !s.gatesChildren() && replaced != "" && lifecycle.IsReserved(w) && !lifecycle.IsAdmitted(w) && !lifecycle.IsLeaving(w) &&
		!slices.ContainsFunc(s.o.Workloads, func(x *kueue.Workload) bool { return x.Name == replaced })
}

func (s *decider) endSlice(over *chain.Ended) *job.Action {
	next := over.Workload.DeepCopy()
	s.cfg.Lifecycle.Finish(next, over.Reason, over.Message, s.o.Now)
	a := &job.Action{Verb: job.WriteStatus, Workload: next}
	if over.Reason == kueue.ReasonWorkloadSliceReplaced {
		a.Events = []job.Event{{OnWorkload: true, Reason: over.Reason, Note: over.Message}}
	}
	return a
}

// resize adapts a slice to the size of the job. A slice without a quota reservation, and one that only shrinks, changes in place; a
// slice that must grow is replaced. A changed template is updated while the slice waits; ok is false if it changed on a slice with
// a quota reservation, in a way that affects quota or for a suspended job, or if the pod sets are different.
func (s *decider) resize(w *kueue.Workload, podSets []kueue.PodSet) (a *job.Action, ok bool) {
	if s.isDangling(w) {
		return s.discard(w), true
	}
	if a = s.outgrown(w, podSets); a != nil {
		return a, true
	}
	if s.gatesChildren() {
		return s.reshape(w, podSets), true
	}
	change := chain.Compare(w, podSets)
	if change == chain.Incompatible {
		return nil, false
	}
	reserved := lifecycle.IsReserved(w)
	resized := w.DeepCopy()
	chain.Resize(resized, podSets)
	if !reserved {
		podSets = s.written(podSets)
	}
	ordered := inOrder(podSets, w.Spec.PodSets)
	alike := equivalent(s.cfg, s.job, ordered, s.suspended, false, resized, s.o.Flavors)
	switch {
	case !alike && !reserved:
		return s.bringUpToDate(w, podSets), true
	case !alike && (s.suspended || !slices.EqualFunc(ordered, w.Spec.PodSets, chain.SameShape)):
		return nil, false
	case change == chain.Same:
		return nil, true
	case reserved && change == chain.Grows:
		a := s.createFor(podSets, w)
		return &a, true
	}
	return &job.Action{Verb: job.UpdateWorkload, Workload: resized, Events: s.updated(w, "the job changed its size")}, true
}

// written returns the pod sets of an elastic job as its user wrote them, without the values that its start merged into the
// templates, because a Workload that is made while the job runs describes the next start, here or on another cluster. Pod sets of
// other jobs are returned unchanged.
func (s *decider) written(podSets []kueue.PodSet) []kueue.PodSet {
	if !s.elastic || s.gatesChildren() {
		return podSets
	}
	return job.WithoutInjected(s.job, podSets)
}

// inOrder sorts pod sets like others of the same names.
func inOrder(podSets, like []kueue.PodSet) []kueue.PodSet {
	out := slices.Clone(podSets)
	at := func(name kueue.PodSetReference) int {
		return slices.IndexFunc(like, func(p kueue.PodSet) bool { return p.Name == name })
	}
	slices.SortStableFunc(out, func(a, b kueue.PodSet) int { return at(a.Name) - at(b.Name) })
	return out
}

// sliceName is the n-th name of a slice at the job's generation. n is above 0 only if a slice of this generation is finished; with
// gated children the replaced slice is a part of the name (spec: 30 §4.10.3 rule 6).
func (s *decider) sliceName(replaces string, n int) string {
	extra := strconv.FormatInt(s.job.GetGeneration(), 10)
	if s.d.Elastic != nil && s.d.Elastic.NameExtra != nil {
		extra += s.d.Elastic.NameExtra(s.job)
	}
	if s.gatesChildren() && replaces != "" {
		extra += "_" + replaces + "_" + strconv.Itoa(n)
	} else if n > 0 {
		extra += "_" + strconv.Itoa(n)
	}
	return s.cfg.WorkloadName(s.d.GVK, s.job.GetName(), s.job.GetUID(), extra)
}

// asSlice makes a new Workload a slice: the first of a chain, or the replacement of another.
func (s *decider) asSlice(w, replaces *kueue.Workload) {
	n, name := 0, ""
	if replaces != nil {
		name = replaces.Name
		for _, x := range s.o.Workloads {
			if s.gatesChildren() && lifecycle.IsFinished(x) && chain.Replaces(x) == name {
				n++
			}
		}
	}
	for ; ; n++ {
		w.Name = s.sliceName(name, n)
		if !slices.ContainsFunc(s.o.Workloads, func(x *kueue.Workload) bool { return x.Name == w.Name }) {
			break
		}
	}
	w.Annotations[kueue.ElasticJobAnnotation] = "true"
	w.Annotations[kueue.WorkloadSliceNameAnnotation] = w.Name
	if replaces != nil {
		w.Annotations[kueue.WorkloadSliceNameAnnotation] = chain.Chain(replaces)
		w.Annotations[kueue.WorkloadSliceReplacementForAnnotation] = chain.Claim(replaces)
	}
}

// runs is the Workload by which the job runs or waits: the replaced slice while it is admitted, or if the replacing one is evicted.
func (s *decider) runs(w *kueue.Workload) *kueue.Workload {
	if s.head != nil && (lifecycle.IsAdmitted(s.head) || lifecycle.IsEvicted(w)) {
		return s.head
	}
	return w
}

// isHeld reports whether gates keep the pods of a running job from being scheduled before their admission, while another slice of it is
// admitted. A job without any is stopped like every other: a user who resumed it could take the gates off, too.
func (s *decider) isHeld() bool {
	if !s.elastic || !slices.ContainsFunc(s.own(), runsBy) {
		return false
	}
	if !s.d.Elastic.GatesPods {
		return true
	}
	podSets, err := s.in.PodSets(s.d, s.job)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(podSets, func(p kueue.PodSet) bool { return !podset.HasGate(p.Template.Spec.SchedulingGates) })
}
