package job

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/job/podset"
	"github.com/berth-project/berth/internal/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/plan/slices"
)

// Family is about a kind whose jobs make other objects, which have pods, and replace them while they run. An elastic job of
// such a kind is led: nothing is written into its templates, since that would make its controller replace what runs. Its
// objects, and then their pods, are let go one by one as far as the slice that is admitted has room for them, and the pods
// get what the admission says when they are. The names of its pod sets say what their pods ask for, so that sets come and
// go with slices (spec: 30 §4.10.3).
type Family struct {
	// Child is the kind of the objects that a job controls, and PodLabel a label that all their pods have.
	Child    schema.GroupVersionKind
	PodLabel string
	// Leads says whether jobs are led at all, as things are configured.
	Leads func(*Config) bool
	// Mend puts back what holds the objects and pods of a job, if somebody took it away. It reports whether there is
	// anything to change.
	Mend func(job Object, in *Setting) bool
	// Start lets the job run.
	Start func(job Object, in *Setting)
	// IsActive says whether an object of the job, or a pod of one, may still use resources.
	IsActive func(job Object, in *Setting) bool
	// Step finds the next write to what belongs to a job that is led, nil for none.
	Step func(o *Observed, in *Setting) *Action
	// MayRun says whether a pod of the job that has a gate may lose it now.
	MayRun func(job Object, pod *corev1.Pod, in *Setting) bool
	// Waits tells of a new slice for which of the objects wait. It may be empty.
	Waits func(job Object, in *Setting) []Event
	// Lingers says whether a job that is deleted still has something to do.
	Lingers func(job Object, in *Setting) bool
}

func (s *decider) led() bool { return s.elastic && s.d.Family != nil }

// isActive says whether a pod of the job may still use resources.
func (s *decider) isActive() bool {
	return s.d.IsActive(s.job) || (s.d.Family != nil && s.d.Family.IsActive(s.job, s.in))
}

// lead is manage, with what belongs to the job: what holds it is put back first, and the objects and pods have their turn
// when there is nothing to write about the job itself, also if something is wrong with that.
func (s *decider) lead() Action {
	if !s.led() {
		return s.manage()
	}
	if next := clone(s.job); s.d.Family.Mend(next, s.in) {
		return Action{Verb: PatchJob, Job: next}
	}
	a := s.manage()
	if a.Verb <= Stall {
		if step := s.d.Family.Step(s.o, s.in); step != nil && (step.Verb != Nothing || (a.Verb == Nothing && len(a.Events) == 0)) {
			return *step
		}
	}
	return a
}

// end is finalize, unless a job that is deleted still has something to do.
func (s *decider) end() Action {
	if s.job != nil && s.d.Family != nil && s.o.Verdict.Reach == Managed && s.d.Family.Lingers(s.job, s.in) {
		return Action{}
	}
	return s.finalize()
}

// endHeir finishes the slice that waits to take the place of one that was evicted: it is built for a job that stops.
func (s *decider) endHeir(head *kueue.Workload, live []*kueue.Workload) *Action {
	for _, w := range live {
		if s.led() && head != nil && lifecycle.IsEvicted(head) && w != head && !lifecycle.IsReserved(w) && chain.Replaces(w) == head.Name {
			return s.endSlice(&chain.Ended{Workload: w, Reason: kueue.ReasonOutOfSync, Message: "The workload slice that it was to replace is evicted"})
		}
	}
	return nil
}

// reshape brings a slice of a job that is led to what the job needs. While it has no quota it can become anything; with
// quota it shrinks in place, and gets a successor for anything else.
func (s *decider) reshape(w *kueue.Workload, podSets []kueue.PodSet) *Action {
	if s.head != nil && !lifecycle.IsReserved(w) && chain.CompareShaped(s.head, podSets) != chain.Grows {
		return s.endSlice(&chain.Ended{Workload: w, Reason: kueue.ReasonOutOfSync, Message: "The job does not need more than it has any more"})
	}
	if !lifecycle.IsReserved(w) {
		if podset.SameSets(podSets, w.Spec.PodSets, false, true) && same(maximumExecutionTime(s.job), w.Spec.MaximumExecutionTimeSeconds) {
			return nil
		}
		return s.bringUpToDate(w, podSets)
	}
	switch chain.CompareShaped(w, podSets) {
	case chain.Grows:
		a := s.createFor(podSets, w)
		if a.Verb == CreateWorkload {
			a.Events = append(a.Events, s.d.Family.Waits(s.job, s.in)...)
		}
		return &a
	case chain.Shrinks:
		next := w.DeepCopy()
		chain.ResizeShaped(next, podSets)
		return &Action{Verb: UpdateWorkload, Workload: next, Events: s.updated(w, "the job changed its size")}
	default:
		return nil
	}
}

// RayService is what the configuration says about RayServices.
type RayService struct {
	Gating       bool        // upgrades wait for quota: gate RayServiceUpgradeGating
	GatedPods    bool        // their pods do, and not their clusters: integrations.rayService.upgradeHold
	DeferCleanup bool        // gate DeferRayServiceFinalizationForRedisCleanup
	Legacy       func() bool // this KubeRay has no spec.suspend; nil: it has
}

// IsLegacy says whether a RayService has no switch that stops it as a whole.
func (c *Config) IsLegacy() bool { return c.RayService.Legacy != nil && c.RayService.Legacy() }
