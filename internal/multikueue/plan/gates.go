package plan

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// openGate (rule 7) lets one worker at a time preempt for the Workload: the one that has been asking for longest, unless another was let
// do so a short while ago, or has room without (spec: 40 §4.10). That it was is noted before, for the time in which the other one cannot be
// reached.
func (d *decider) openGate() bool {
	if !d.Orchestrated || d.check.State != kueue.CheckStatePending || lifecycle.IsEvicted(d.w) {
		return false
	}
	candidate, opened := d.asking()
	if candidate == nil {
		return false
	}
	if d.unsettled() {
		d.wake(deferred)
		return false
	}
	if left := d.PreemptionTimeout - d.o.Now.Sub(opened); !opened.IsZero() && left > 0 {
		d.wake(left)
		return false
	}
	next := candidate.Copy.DeepCopy()
	gate := gateOf(next)
	if gate == nil {
		next.Status.PreemptionGates = append(next.Status.PreemptionGates, kueue.PreemptionGateState{Name: kueue.MultiKueuePreemptionGate})
		gate = &next.Status.PreemptionGates[len(next.Status.PreemptionGates)-1]
	}
	gate.Position, gate.LastTransitionTime = kueue.PreemptionGateOpen, d.o.Now
	d.annotate(GateOpenedAnnotation, candidate.Name+" "+d.o.Now.UTC().Format(time.RFC3339))
	d.do(Step{Do: UpdateCopyStatus, Cluster: candidate.Name, Workload: next})
	d.wake(d.PreemptionTimeout)
	return false
}

// asking is the cluster that has been waiting for its gate for longest, nil if none is or one has room, and when a gate was opened last.
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
			return nil, opened // it waits for its own checks only
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

// unsettled says whether a nominated cluster does not answer for a moment: its copy may have got quota, or may preempt.
func (d *decider) unsettled() bool {
	return slices.ContainsFunc(d.clusters, func(c Cluster) bool {
		return c.Listed && c.answersSoon() && slices.Contains(d.w.Status.NominatedClusterNames, c.Name)
	})
}

// openedAt is when the gate on a cluster that cannot be reached was opened, zero if it was not, or another one was since.
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

// isGated says whether a copy was made with our gate.
func isGated(w *kueue.Workload) bool {
	return slices.Contains(w.Spec.PreemptionGates, kueue.PreemptionGate{Name: kueue.MultiKueuePreemptionGate})
}

// gateOf is the state of our gate on a copy, nil if it has none yet.
func gateOf(w *kueue.Workload) *kueue.PreemptionGateState {
	at := slices.IndexFunc(w.Status.PreemptionGates, func(g kueue.PreemptionGateState) bool { return g.Name == kueue.MultiKueuePreemptionGate })
	if at < 0 {
		return nil
	}
	return &w.Status.PreemptionGates[at]
}

// blockedSince is since when a copy has been waiting for a gate, nil if it is not.
func blockedSince(w *kueue.Workload) *metav1.Time {
	if c := lifecycle.Condition(w, kueue.WorkloadBlockedOnPreemptionGates); c != nil && c.Status == metav1.ConditionTrue {
		return &c.LastTransitionTime
	}
	return nil
}
