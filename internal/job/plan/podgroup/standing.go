package podgroup

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Standing compares the group with the counts of its Workload, or with its own total if w is nil.
func (g *Group) Standing(w *kueue.Workload) job.Standing {
	var s job.Standing
	if w == nil {
		s.Releasable = job.Objects(g.dead())
		_, surplus, _ := sift(g.runnable(), nil, g.total())
		s.Surplus = job.Objects(surplus)
		return s
	}
	counted := !g.isPrebuilt() && (lifecycle.IsReserved(w) || int64(g.Total()) <= count(w)) // otherwise the Workload grows
	roles, places, members := map[string]bool{}, map[*corev1.Pod]bool{}, g.byRole()
	for i := range w.Spec.PodSets {
		set := &w.Spec.PodSets[i]
		roles[string(set.Name)] = true
		of := members[string(set.Name)]
		of.runnable = slices.DeleteFunc(of.runnable, func(p *corev1.Pod) bool {
			tooMuch := asksForMore(p, w, set)
			if tooMuch {
				s.Exceeding = append(s.Exceeding, p)
			}
			return tooMuch
		})
		kept, surplus, replaced := sift(of.runnable, of.inactive, set.Count)
		s.Releasable = append(s.Releasable, job.Objects(slices.DeleteFunc(replaced, isAbandoned))...)
		for _, p := range kept {
			places[p] = true
		}
		if counted {
			s.Surplus = append(s.Surplus, job.Objects(surplus)...)
			s.Absent += max(0, int(set.Count)-len(of.runnable))
		}
	}
	if g.isFast() {
		s.Absent = min(s.Absent, 1-min(1, len(g.runnable())))
	}
	for _, p := range g.Pods {
		switch {
		case isAbandoned(p):
			s.Releasable = append(s.Releasable, p)
		case places[p]:
			s.Kept = append(s.Kept, p)
		case !roles[role(p)] && isInactive(p) && isHeld(p): // a pod without a pod set needs no replacement
			s.Releasable = append(s.Releasable, p)
		}
	}
	return s
}

// isAbandoned reports whether a remote pod is being deleted and cannot run: its manager creates its replacement, so its place is
// not kept.
func isAbandoned(p *corev1.Pod) bool {
	return job.IsRemote(p) && p.DeletionTimestamp != nil && isInactive(p) && isHeld(p)
}

// ofRole are the members of a role.
type ofRole struct{ runnable, inactive []*corev1.Pod }

// byRole returns the members by their roles.
func (g *Group) byRole() map[string]ofRole {
	out := map[string]ofRole{}
	for _, p := range g.Pods {
		of := out[role(p)]
		if isInactive(p) {
			of.inactive = append(of.inactive, p)
		} else {
			of.runnable = append(of.runnable, p)
		}
		out[role(p)] = of
	}
	return out
}

func count(w *kueue.Workload) int64 {
	var n int64
	for i := range w.Spec.PodSets {
		n += int64(w.Spec.PodSets[i].Count)
	}
	return n
}

// dead are the held pods of a group without a Workload that no replacement waits for: the inactive ones, and all if all are being
// deleted.
func (g *Group) dead() []*corev1.Pod {
	all := !slices.ContainsFunc(g.Pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && !isInactive(p) })
	return slices.DeleteFunc(slices.Clone(g.Pods), func(p *corev1.Pod) bool { return !isHeld(p) || (!all && !isInactive(p)) })
}

// sift divides the pods of a role with n places: kept pods have a place, running or not; surplus pods have none; replaced pods are
// held pods whose place another pod has taken.
//
// A pod that is being deleted leaves its place as soon as there are enough others, though it may still end on its node: the
// replacement stays.
func sift(runnable, inactive []*corev1.Pod, n int32) (kept, surplus, replaced []*corev1.Pod) {
	places := int(n)
	var dying []*corev1.Pod
	for _, p := range runnable {
		if isDying(p) {
			dying = append(dying, p)
		} else {
			kept = append(kept, p)
		}
	}
	slices.SortStableFunc(kept, compareToKeep)
	if len(kept) > places {
		kept, surplus = kept[:places], slices.Clone(kept[places:])
	}
	slices.SortStableFunc(dying, compareForRelease)
	leave := min(len(dying), max(0, len(dying)+len(kept)-places))
	inactive = append(slices.Clone(inactive), dying[:leave]...)
	kept = append(kept, dying[leave:]...)
	slices.SortStableFunc(inactive, compareForRelease)
	leave = min(len(inactive), max(0, len(inactive)+len(kept)-places))
	for _, p := range inactive[:leave] {
		if isHeld(p) {
			replaced = append(replaced, p)
		}
	}
	return append(kept, inactive[leave:]...), surplus, replaced
}

// compareToKeep sorts the pods to keep first: held before released, ungated before gated, old before new. Pods of equal age keep
// the order of their names.
func compareToKeep(a, b *corev1.Pod) int {
	if c := compareBool(!isHeld(a), !isHeld(b)); c != 0 {
		return c
	}
	if c := compareBool(job.PodIsGated(a), job.PodIsGated(b)); c != 0 {
		return c
	}
	return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
}

// compareForRelease sorts the pods to release first: released before held, then by the time of their last activity, oldest first.
func compareForRelease(a, b *corev1.Pod) int {
	if c := compareBool(isHeld(a), isHeld(b)); c != 0 {
		return c
	}
	return lastActive(a).Compare(lastActive(b))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// isActive reports whether a pod of the group may still use resources: it runs, and its grace period after a deletion is not over.
func isActive(o job.Object) bool {
	g := o.(*Group)
	return slices.ContainsFunc(g.Pods, func(p *corev1.Pod) bool { return g.inactiveAt(p).After(g.now) })
}

// ActiveFor is how long the group stays active if nothing changes, or 0 for no limit.
func (g *Group) ActiveFor() time.Duration {
	var longest time.Duration
	for _, p := range g.Pods {
		at := g.inactiveAt(p)
		if at.Equal(never) {
			return 0
		}
		longest = max(longest, at.Sub(g.now))
	}
	return longest
}

// never is later than any time that matters.
var never = time.Unix(1<<40, 0)

// inactiveAt is when the pod stops using resources, as far as is known.
func (g *Group) inactiveAt(p *corev1.Pod) time.Time {
	switch {
	case p.Status.Phase != corev1.PodRunning:
		return time.Time{}
	case p.DeletionTimestamp == nil:
		return never
	case g.fast:
		return time.Time{}
	}
	at := p.DeletionTimestamp.Time
	if grace := p.DeletionGracePeriodSeconds; grace != nil {
		at = at.Add(time.Duration(job.Saturate(*grace)) * time.Second)
	}
	return at
}

// asksForMore reports whether a pod that waits asks for more than its pod set was charged for. A pod of a StatefulSet is compared with that
// when it is made, and would be made again.
func asksForMore(p *corev1.Pod, w *kueue.Workload, set *kueue.PodSet) bool {
	isMade := w.Annotations[kueue.JobOwnerGVKAnnotation] != "" && metav1.GetControllerOf(p) != nil
	return !isMade && job.PodIsGated(p) && exceeds(&p.Spec, &set.Template.Spec) != nil
}
