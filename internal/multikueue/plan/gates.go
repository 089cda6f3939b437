package plan

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// openGate (rule 7) opens the preemption gate of one cluster at a time: of the one blocked for longest, unless another gate was
// opened recently, or a cluster has room without preemption (spec: 40 §4.10). The opening is recorded first, in case its cluster is lost.
func (d *decider) openGate() bool {
	if !d.Orchestrated || d.check.State != kueue.CheckStatePending || lifecycle.IsEvicted(d.w) {
		return false
	}
	candidate, opened := d.asking()
	if candidate == nil {
		return false
	}
	if d.unanswered() {
		d.requeueAfter(deferred)
		return false
	}
	if left := d.PreemptionTimeout - d.o.Now.Sub(opened); !opened.IsZero() && left > 0 {
		d.requeueAfter(left)
		return false
	}
	next := candidate.Copy.DeepCopy()
	d.Lifecycle.OpenGate(next, kueue.MultiKueuePreemptionGate, d.o.Now)
	d.annotate(GateOpenedAnnotation, candidate.Name+" "+d.o.Now.UTC().Format(time.RFC3339))
	d.do(Step{Do: UpdateCopyStatus, Cluster: candidate.Name, Workload: next})
	d.requeueAfter(d.PreemptionTimeout)
	return false
}

// asking returns the nominated cluster that has been waiting for its gate for longest, nil if there is none or one has room, and when a gate
// was opened last.
func (d *decider) asking() (candidate *Cluster, opened time.Time) {
	for i := range d.clusters {
		c := &d.clusters[i]
		if c.Listed && !c.Connected {
			opened = later(opened, d.openedAt(c.Name))
		}
		if !c.Listed || !c.Connected || c.Copy == nil {
			continue
		}
		if lifecycle.IsReserved(c.Copy) {
			return nil, opened // it waits for its own checks only, or is about to be removed
		}
		if !d.isNominated(c.Name) {
			continue
		}
		gate, asked := gateOf(c.Copy), blockedSince(c.Copy)
		switch {
		case gate != nil && gate.Position == kueue.PreemptionGateOpen:
			opened = later(opened, gate.LastTransitionTime.Time)
		case asked != nil && isGated(c.Copy) && (candidate == nil || asked.Before(blockedSince(candidate.Copy))):
			candidate = c
		}
	}
	return candidate, opened
}

// isNominated reports whether a cluster may have a copy. An elastic slice may have one on the cluster of the slice that it replaces.
func (d *decider) isNominated(cluster string) bool {
	return cluster == d.w.Status.ClusterName || slices.Contains(d.w.Status.NominatedClusterNames, cluster)
}

// unanswered reports whether a nominated cluster is slow, or was not reached yet by a manager that has just started: its copy may have a
// reservation, or preempt.
func (d *decider) unanswered() bool {
	return slices.ContainsFunc(d.clusters, func(c Cluster) bool {
		return c.Listed && (c.answersSoon() || c.Untried) && slices.Contains(d.w.Status.NominatedClusterNames, c.Name)
	})
}

// openedAt returns when the gate of a lost cluster was opened, zero if it was not, or another one was since.
func (d *decider) openedAt(cluster string) time.Time {
	name, at, _ := strings.Cut(d.w.Annotations[GateOpenedAnnotation], " ")
	opened, err := time.Parse(time.RFC3339, at)
	if err != nil || name != cluster {
		return time.Time{}
	}
	return opened
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func isGated(w *kueue.Workload) bool {
	return slices.Contains(w.Spec.PreemptionGates, kueue.PreemptionGate{Name: kueue.MultiKueuePreemptionGate})
}

func gateOf(w *kueue.Workload) *kueue.PreemptionGateState {
	return lifecycle.GateOf(w, kueue.MultiKueuePreemptionGate)
}

func blockedSince(w *kueue.Workload) *metav1.Time {
	if c := lifecycle.Condition(w, kueue.WorkloadBlockedOnPreemptionGates); c != nil && c.Status == metav1.ConditionTrue {
		return &c.LastTransitionTime
	}
	return nil
}
