package decide

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// follow (step 4) stops a child while the Workload of its ancestor is not admitted. Its parent starts it again (spec: 30 §4.5).
func (s *decider) follow() job.Action {
	if !s.mayRun() || s.d.IsGatedBy(s.o.Verdict.Ancestor) {
		return job.Action{}
	}
	newest := newestUnfinished(s.o.AncestorWorkloads)
	switch {
	case newest == nil && s.o.AncestorRuns:
		// The ancestor is stopped first. While it runs, the controllers of the objects in between would resume the child at once, for ever.
		return job.Action{}
	case newest == nil:
	case job.IsElastic(s.job) || job.IsElastic(newest):
		kept := chain.Normalise(chain.Live(s.o.AncestorWorkloads))
		if w := cmp.Or(kept.Head, kept.Selected); w != nil && !lifecycle.IsEvicted(w) {
			return s.resumed()
		}
	case lifecycle.IsAdmitted(newest):
		return s.resumed()
	}
	next := clone(s.job)
	s.d.Suspend(next)
	job.MarkSuspended(next)
	note := fmt.Sprintf("Suspended because the workload of %s %s is not admitted", s.o.Verdict.Ancestor.GVK.Kind, s.o.Verdict.Ancestor.Object.GetName())
	return job.Action{Verb: job.PatchJob, Job: next, Events: normal(eventSuspended, note)}
}

// resumed removes the mark of a job that Berth suspended and another client resumed, so that Berth does not resume it later.
func (s *decider) resumed() job.Action {
	if next := clone(s.job); job.UnmarkSuspended(next) {
		return job.Action{Verb: job.PatchJob, Job: next}
	}
	return job.Action{}
}

// followed is the part of a Workload that affects the jobs below its owner, besides the pod sets.
type followed struct {
	uid, owner                                    types.UID
	finished, admitted, evicted, reserved, active bool
	elastic                                       bool
	replaces                                      string
	queue                                         kueue.LocalQueueName
}

func followedOf(w *kueue.Workload) followed {
	f := followed{
		uid:      w.UID,
		finished: lifecycle.IsFinished(w), admitted: lifecycle.IsAdmitted(w), evicted: lifecycle.IsEvicted(w),
		reserved: lifecycle.IsReserved(w), active: lifecycle.IsActive(w),
		elastic: job.IsElastic(w), replaces: chain.Replaces(w), queue: w.Spec.QueueName,
	}
	if ref := metav1.GetControllerOf(w); ref != nil {
		f.owner = ref.UID
	}
	return f
}

// AffectsBelow reports whether an update of a Workload may change the decision about a job below its owner: whether it may run, and whether the
// owner, which holds quota for the pod sets, can have made it.
func AffectsBelow(old, next *kueue.Workload) bool {
	resized := old.Generation != next.Generation && !equality.Semantic.DeepEqual(old.Spec.PodSets, next.Spec.PodSets)
	return resized || followedOf(old) != followedOf(next)
}
