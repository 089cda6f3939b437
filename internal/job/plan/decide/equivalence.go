package decide

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

// equivalent reports whether the Workload still describes the job, whose pod sets are given. While quota is reserved the job may
// have the values of the admission. The fields that matter only before a start are compared for a suspended job without a
// reservation, unless the Workload is prebuilt (spec: 30 §4.4.4).
func equivalent(c *job.Config, o job.Object, podSets []kueue.PodSet, suspended, prebuilt bool, w *kueue.Workload, flavors job.Flavors) bool {
	owner := metav1.GetControllerOf(w)
	if owner == nil || owner.Name != o.GetName() || (c.FinishOrphans && owner.UID != o.GetUID()) {
		return false
	}
	if !equality.Semantic.DeepEqual(maximumExecutionTime(o), w.Spec.MaximumExecutionTimeSeconds) {
		return false
	}
	reserved := lifecycle.IsReserved(w)
	if reserved {
		podSets = withMinCounts(c, podSets, w)
		if merged, err := withAdmission(c, w, flavors); err == nil {
			return podset.SameSets(podSets, merged, lifecycle.IsAdmitted(w), false) ||
				(suspended && podset.SameSets(podSets, w.Spec.PodSets, lifecycle.IsAdmitted(w), false))
		}
	}
	return podset.SameSets(podSets, w.Spec.PodSets, lifecycle.IsAdmitted(w), suspended && !reserved && !prebuilt)
}

// withMinCounts returns the pod sets of a job with the minimum counts of its Workload, which holds quota, where only a switch of the gate
// PartialAdmission can have made them differ: no gate stops a job.
func withMinCounts(c *job.Config, podSets []kueue.PodSet, w *kueue.Workload) []kueue.PodSet {
	out := slices.Clone(podSets)
	for i := range min(len(out), len(w.Spec.PodSets)) {
		if has := w.Spec.PodSets[i].MinCount; has == nil || !c.PartialAdmission {
			out[i].MinCount = has
		}
	}
	return out
}

// represents reports whether the Workload describes the job: as it is planned, or as it runs.
func (s *decider) represents(w *kueue.Workload, podSets []kueue.PodSet, prebuilt bool) bool {
	return equivalent(s.cfg, s.job, podSets, s.suspended, prebuilt, w, s.o.Flavors) || s.holdsQuotaOfRun(w)
}

// holdsQuotaOfRun reports whether the Workload holds quota for the pods with which the job runs, or ended a moment ago. Only their numbers and requests count: no
// other field of a running job is a reason to stop it. A job that runs on a worker cluster has no pods here: its copy there has the pod sets
// of the Workload. An evicted Workload describes its stopped job until its quota is released: then it is updated, and keeps its state.
func (s *decider) holdsQuotaOfRun(w *kueue.Workload) bool {
	switch {
	case s.d.Planned == nil || !lifecycle.IsReserved(w) || !same(maximumExecutionTime(s.job), w.Spec.MaximumExecutionTimeSeconds):
		return false
	case s.suspended:
		return lifecycle.IsEvicted(w)
	case s.isDispatched() && w.Status.ClusterName != "":
		return true
	}
	runs := s.d.Planned.Runs(s.job, s.in)
	return len(runs) > 0 && slices.EqualFunc(runs, w.Spec.PodSets, func(a, b kueue.PodSet) bool {
		return a.Name == b.Name && a.Count == b.Count && chain.SameShape(a, b)
	})
}

// withAdmission returns the pod sets of the Workload with the values of its admission.
func withAdmission(c *job.Config, w *kueue.Workload, flavors job.Flavors) ([]kueue.PodSet, error) {
	infos, err := job.InfosFromAdmission(c, w, flavors)
	if err != nil {
		return nil, err
	}
	out := make([]kueue.PodSet, len(w.Spec.PodSets))
	for i := range out {
		w.Spec.PodSets[i].DeepCopyInto(&out[i])
		at := slices.IndexFunc(infos, func(info job.PodSetInfo) bool { return info.Name == out[i].Name })
		if at < 0 {
			return nil, podset.Permanent("pod set %s is not in the admission", out[i].Name)
		}
		if err := infos[at].MergeInto(&out[i].Template); err != nil {
			return nil, err
		}
		if out[i].MinCount != nil {
			out[i].Count = infos[at].Count
		}
	}
	return out, nil
}

func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
