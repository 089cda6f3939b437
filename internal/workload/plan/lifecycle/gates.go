package lifecycle

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// GateOf returns the state of a preemption gate, to be changed in place; nil if it has none, which means closed (spec: 20 §4.14).
func GateOf(w *kueue.Workload, name string) *kueue.PreemptionGateState {
	for i := range w.Status.PreemptionGates {
		if g := &w.Status.PreemptionGates[i]; g.Name == name {
			return g
		}
	}
	return nil
}

// ClosedGates returns the preemption gates of a Workload that are not open, by their names. With one, it preempts no other Workload
// (spec: 20 §4.14).
func ClosedGates(w *kueue.Workload) (names []string) {
	for _, g := range w.Spec.PreemptionGates {
		if s := GateOf(w, g.Name); s == nil || s.Position != kueue.PreemptionGateOpen {
			names = append(names, g.Name)
		}
	}
	return names
}

// IsBlocked reports whether only closed gates keep the Workload from preempting others.
func IsBlocked(w *kueue.Workload) bool { return isTrue(w, kueue.WorkloadBlockedOnPreemptionGates) }

// BlockOnPreemptionGates records that only a closed gate keeps the Workload from preempting others.
func (m Machine) BlockOnPreemptionGates(w *kueue.Workload, message string, now metav1.Time) bool {
	if IsFinished(w) {
		return false
	}
	return set(w, kueue.WorkloadBlockedOnPreemptionGates, metav1.ConditionTrue, kueue.ReasonPreemptionGated, message, now)
}

// UnblockFromPreemptionGates removes the condition when no gate is closed any more, and reports whether it did (spec: 20 §5.1).
func (m Machine) UnblockFromPreemptionGates(w *kueue.Workload) bool {
	return IsBlocked(w) && len(ClosedGates(w)) == 0 && remove(w, kueue.WorkloadBlockedOnPreemptionGates)
}

// OpenGate opens a preemption gate (spec: 20 §4.14).
func (m Machine) OpenGate(w *kueue.Workload, name string, now metav1.Time) bool {
	g := GateOf(w, name)
	if g != nil && g.Position == kueue.PreemptionGateOpen {
		return false
	}
	if g == nil {
		w.Status.PreemptionGates = append(w.Status.PreemptionGates, kueue.PreemptionGateState{Name: name})
		g = GateOf(w, name)
	}
	g.Position, g.LastTransitionTime = kueue.PreemptionGateOpen, now
	m.UnblockFromPreemptionGates(w)
	return true
}

// FollowGates opens the gates of a variant that are open at its parent, and closes the ones that were closed there since. A gate that its owner
// opened at the variant itself stays open (spec: 20 §4.13, §4.14).
func (m Machine) FollowGates(variant, parent *kueue.Workload, now metav1.Time) (changed bool) {
	for i := range parent.Status.PreemptionGates {
		theirs := &parent.Status.PreemptionGates[i]
		if theirs.Name == kueue.ConcurrentAdmissionPreemptionGate || !slices.Contains(variant.Spec.PreemptionGates, kueue.PreemptionGate{Name: theirs.Name}) {
			continue
		}
		if theirs.Position == kueue.PreemptionGateOpen {
			changed = m.OpenGate(variant, theirs.Name, now) || changed
			continue
		}
		ours := GateOf(variant, theirs.Name)
		if ours != nil && ours.Position == kueue.PreemptionGateOpen && !theirs.LastTransitionTime.Before(&ours.LastTransitionTime) {
			ours.Position, ours.LastTransitionTime, changed = kueue.PreemptionGateClosed, now, true
		}
	}
	return changed
}

func closeGates(w *kueue.Workload, now metav1.Time) {
	for i := range w.Status.PreemptionGates {
		if g := &w.Status.PreemptionGates[i]; g.Position != kueue.PreemptionGateClosed {
			g.Position, g.LastTransitionTime = kueue.PreemptionGateClosed, now
		}
	}
}
