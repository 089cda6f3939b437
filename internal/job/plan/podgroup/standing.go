package podgroup

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Standing says where the group stands against the counts of its Workload, or against its own total if it has none.
func (g *Group) Standing(w *kueue.Workload) job.Standing {
	var s job.Standing
	if w == nil {
		s.Releasable = objects(g.dead())
		_, surplus, _ := sift(g.runnable(), nil, g.total())
		s.Surplus = objects(surplus)
		return s
	}
	counted := !g.isPrebuilt() && (lifecycle.IsReserved(w) || int64(g.Total()) <= count(w)) // else it grows
	roles, places := map[string]bool{}, map[*corev1.Pod]bool{}
	for i := range w.Spec.PodSets {
		set := &w.Spec.PodSets[i]
		roles[string(set.Name)] = true
		runnable, inactive := g.ofRole(string(set.Name))
		kept, surplus, replaced := sift(runnable, inactive, set.Count)
		s.Releasable = append(s.Releasable, objects(slices.DeleteFunc(replaced, isAbandoned))...)
		for _, p := range kept {
			places[p] = true
		}
		if counted {
			s.Surplus = append(s.Surplus, objects(surplus)...)
			s.Absent += max(0, int(set.Count)-len(runnable))
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
		case !roles[role(p)] && isInactive(p) && isHeld(p): // what no pod set is for is not waited for either
			s.Releasable = append(s.Releasable, p)
		}
	}
	return s
}

// isForsaken reports whether a pod is deleted, cannot run, and keeps its place for nobody: the manager that made it makes it again.
func isAbandoned(p *corev1.Pod) bool {
	return job.IsRemote(p) && p.DeletionTimestamp != nil && isInactive(p) && isHeld(p)
}

// ofRole are the members of a role, those that may hold a place and those that only keep it for another.
func (g *Group) ofRole(name string) (runnable, inactive []*corev1.Pod) {
	for _, p := range g.Pods {
		switch {
		case role(p) != name:
		case isInactive(p):
			inactive = append(inactive, p)
		default:
			runnable = append(runnable, p)
		}
	}
	return runnable, inactive
}

// count is how many pods a Workload is for.
func count(w *kueue.Workload) int64 {
	var n int64
	for i := range w.Spec.PodSets {
		n += int64(w.Spec.PodSets[i].Count)
	}
	return n
}

// dead are the held pods of a group without a Workload that nobody waits for: those that are inactive, and all if all are
// being deleted.
func (g *Group) dead() []*corev1.Pod {
	all := !slices.ContainsFunc(g.Pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && !isInactive(p) })
	var out []*corev1.Pod
	for _, p := range g.Pods {
		if isHeld(p) && (all || isInactive(p)) {
			out = append(out, p)
		}
	}
	return out
}

// sift divides the pods of a role that has n places. kept are those in a place, running or not; surplus those for whom
// there is none; and replaced those that hold a place that another pod has taken, as far as they are held.
//
// A pod that is being deleted leaves its place as soon as there are enough others, though it may still end on its node:
// the replacement is the one that stays.
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

// compareToKeep puts those first that are to stay: held ones, open ones, old ones. Pods of one age are in the order of
// their names already.
func compareToKeep(a, b *corev1.Pod) int {
	if c := compareBool(!isHeld(a), !isHeld(b)); c != 0 {
		return c
	}
	if c := compareBool(job.PodIsGated(a), job.PodIsGated(b)); c != 0 {
		return c
	}
	return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
}

// compareToLetGo puts those first that are to go: those that were let go already, then those that were active last long
// ago.
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

func objects(pods []*corev1.Pod) []job.Object {
	out := make([]job.Object, len(pods))
	for i, p := range pods {
		out[i] = p
	}
	return out
}

// isActive reports whether a pod of the group may still use resources: it runs, and is not deleted for longer than it was
// given to end.
func isActive(o job.Object) bool {
	g := o.(*Group)
	return slices.ContainsFunc(g.Pods, func(p *corev1.Pod) bool { return g.inactiveAt(p).After(g.now) })
}

// ActiveFor is how long the group stays active if nothing happens, or 0 for without end.
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

// inactiveAt is when the pod uses no resources any more, as far as is known.
func (g *Group) inactiveAt(p *corev1.Pod) time.Time {
	switch {
	case p.Status.Phase != corev1.PodRunning:
		return time.Time{}
	case p.DeletionTimestamp == nil:
		return never
	case g.cfg.FastQuotaRelease:
		return time.Time{}
	}
	at := p.DeletionTimestamp.Time
	if grace := p.DeletionGracePeriodSeconds; grace != nil {
		at = at.Add(time.Duration(*grace) * time.Second)
	}
	return at
}
