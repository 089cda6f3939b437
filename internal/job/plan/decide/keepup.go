package decide

import (
	"slices"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// keepUp (steps 5, 12 and 13) synchronizes the Workload with the job, and the replaced slice that holds the quota too. What cannot be
// synchronized, such as a missing priority class, keeps back no other step: a job must not be evicted for pods that are ready.
func (s *decider) keepUp(w *kueue.Workload) (failed *job.Action) {
	steps := []func() *job.Action{
		func() *job.Action { return s.sync(w) }, func() *job.Action { return s.reclaim(w) }, func() *job.Action { return s.podsReady(w) },
	}
	if s.head != nil {
		steps = append([]func() *job.Action{
			func() *job.Action { return s.sync(s.head) }, func() *job.Action { return s.reclaimOf(s.head, w) }, s.headReady,
		}, steps...)
	}
	for _, step := range steps {
		switch a := step(); {
		case a == nil:
		case a.Verb != job.Fail && a.Verb != job.Stall:
			return a
		case failed == nil:
			failed = a
		}
	}
	return failed
}

// reclaim (step 12) records the pods that no longer need quota. Counts never shrink while quota is reserved.
func (s *decider) reclaim(w *kueue.Workload) *job.Action { return s.reclaimOf(w, w) }

// reclaimOf is reclaim for a slice whose size may differ from the job's: like is the slice of the job's size.
func (s *decider) reclaimOf(w, like *kueue.Workload) *job.Action {
	if !s.cfg.ReclaimablePods || s.d.Reclaimable == nil {
		return nil
	}
	wanted := s.freed(w, like)
	if lifecycle.IsReserved(w) {
		for _, old := range w.Status.ReclaimablePods {
			if chain.ScaledDown(w, old.Name) { // the remaining pods may be needed again
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
	return &job.Action{Verb: job.WriteReclaimable, Workload: next}
}

// freed counts the pods that no longer need quota, of the sets of the Workload. A smaller slice frees fewer: it needs as many pods
// as like has left.
func (s *decider) freed(w, like *kueue.Workload) []kueue.ReclaimablePod {
	var out []kueue.ReclaimablePod
	for _, r := range s.d.Reclaimable(s.job, s.in) {
		is := func(p kueue.PodSet) bool { return p.Name == r.Name }
		at, of := slices.IndexFunc(w.Spec.PodSets, is), slices.IndexFunc(like.Spec.PodSets, is)
		if at < 0 || of < 0 {
			return w.Status.ReclaimablePods
		}
		has := w.Spec.PodSets[at].Count
		if r.Count = min(r.Count+has-like.Spec.PodSets[of].Count, has); r.Count > 0 {
			out = append(out, r)
		}
	}
	return out
}

// podsReady (step 13) maintains the PodsReady condition. Before the first reservation there is none: the reservation adds it. While pods
// that the local job does not show may run on a worker cluster, the dispatcher maintains it.
func (s *decider) podsReady(w *kueue.Workload) *job.Action {
	return s.readyIs(w, s.d.PodsReady(s.job, s.in))
}

func (s *decider) readyIs(w *kueue.Workload, ready bool) *job.Action {
	followed := lifecycle.RunsRemotely(w) && w.Status.ClusterName != "" // by the dispatcher, also once its check is deleted
	if !s.cfg.WaitForPodsReady || followed || (!lifecycle.IsReserved(w) && lifecycle.Condition(w, kueue.WorkloadPodsReady) == nil) {
		return nil
	}
	next := w.DeepCopy()
	if !s.cfg.Lifecycle.PodsReady(next, ready, s.o.Now) {
		return nil
	}
	return &job.Action{Verb: job.WritePodsReady, Workload: next}
}

// headReady is podsReady for the slice by which the job runs while another one is to replace it, so that it is not evicted for pods
// that have long been ready. It only records true, once as many pods as the slice has are ready: other pods may be waiting for the
// replacement.
func (s *decider) headReady() *job.Action {
	at := clone(s.job)
	if s.d.Remote != nil && s.d.Remote.Resize != nil {
		s.d.Remote.Resize(at, s.job, s.head.Spec.PodSets)
	}
	if !s.d.PodsReady(at, s.in) {
		return nil
	}
	return s.readyIs(s.head, true)
}
