package podgroup

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/podset"
)

// isSuspended reports whether a pod of the group waits or has ended.
func isSuspended(o job.Object) bool {
	return slices.ContainsFunc(o.(*Group).Pods, func(p *corev1.Pod) bool { return job.PodIsGated(p) || job.PodIsOver(p) })
}

// start ungates all waiting pods with the admitted values of their roles, and leaves only these in the group.
func start(o job.Object, infos []job.PodSetInfo, _ *job.Setting) error {
	g := o.(*Group)
	room := map[string]int32{}
	for _, p := range g.runnable() {
		if !job.PodIsGated(p) {
			room[role(p)]--
		}
	}
	for i := range infos {
		room[string(infos[i].Name)] += infos[i].Count
	}
	var opened []*corev1.Pod
	for _, p := range g.Pods {
		if !job.PodIsGated(p) || p.DeletionTimestamp != nil || job.PodIsOver(p) {
			continue
		}
		at := slices.IndexFunc(infos, func(i job.PodSetInfo) bool { return string(i.Name) == role(p) })
		if at < 0 {
			return podset.Permanent("pod %s has the role %q, for which nothing is admitted", p.Name, role(p))
		}
		if room[role(p)]--; room[role(p)] < 0 {
			continue // more pods than were admitted: the owner was scaled meanwhile
		}
		next := p.DeepCopy()
		if err := Open(next, &infos[at]); err != nil {
			return podset.Permanent("pod %s: %s", p.Name, err)
		}
		opened = append(opened, next)
	}
	g.Pods = opened
	return nil
}

// resume ungates the waiting pods, and leaves only these in the group.
func resume(o job.Object) {
	g := o.(*Group)
	var opened []*corev1.Pod
	for _, p := range g.Pods {
		if !job.PodIsGated(p) || p.DeletionTimestamp != nil || job.PodIsOver(p) {
			continue
		}
		next := p.DeepCopy()
		job.OpenGates(next, false)
		job.UnmarkSuspended(next)
		if g.IsServing() {
			next.Annotations[job.UnqueuedAnnotation] = "true" // the map has the annotation of serving pods
		}
		opened = append(opened, next)
	}
	g.Pods = opened
}

// stop records the reason on running pods, then deletes them. Pods that never ran, or have ended, are deleted only with their
// Workload. A serving pod that was ungated without an admission, to be replaced in a roll-out, is left to its controller.
func stop(o job.Object, _ []kueue.PodSet, why job.StopReason) (job.Step, job.Object) {
	g := o.(*Group)
	unasked := why == job.NotAdmitted || why == job.NoMatchingWorkload
	var tell, remove []*corev1.Pod
	for _, p := range g.Pods {
		switch {
		case p.DeletionTimestamp != nil:
		case why != job.WorkloadDeleted && !lives(p):
		case unasked && g.IsServing() && p.Labels[kueue.PodSetLabel] == "" && p.Annotations[job.UnqueuedAnnotation] == "":
		case IsTarget(p):
			remove = append(remove, p)
		default:
			tell = append(tell, Target(p, why, metav1.NewTime(g.now)))
		}
	}
	switch {
	case len(remove) > 0:
		return job.Delete, g.only(remove)
	case len(tell) > 0:
		return job.ChangeStatus, g.only(tell)
	default:
		return job.Stopped, nil
	}
}

// stopping reports whether a running pod is marked for deletion.
func stopping(o job.Object) bool {
	return slices.ContainsFunc(o.(*Group).Pods, func(p *corev1.Pod) bool { return lives(p) && IsTarget(p) })
}

// finalize removes the finalizer of all pods, and leaves only the changed ones in the group.
func finalize(o job.Object) bool {
	g := o.(*Group)
	g.Pods = withoutFinalizers(g.Pods)
	return len(g.Pods) > 0
}

func withoutFinalizers(pods []*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range pods {
		if isHeld(p) {
			next := p.DeepCopy()
			RemoveFinalizer(next)
			out = append(out, next)
		}
	}
	return out
}

// Freed returns, without our finalizer, the given pods that have it.
func (g *Group) Freed(pods []job.Object) job.Composite {
	return g.only(withoutFinalizers(podsOf(pods)))
}

// Of returns the group of the given pods.
func (g *Group) Of(pods []job.Object) job.Composite { return g.only(podsOf(pods)) }

// Ended are the pods that have ended or are being deleted.
func (g *Group) Ended() []job.Object {
	var out []job.Object
	for _, p := range g.Pods {
		if job.PodIsOver(p) || p.DeletionTimestamp != nil {
			out = append(out, p)
		}
	}
	return out
}

// finished reports that all pods have succeeded, or that all have ended and one of them wants no replacement. A serving group never
// finishes.
func finished(o job.Object) (message string, success, done bool) {
	g := o.(*Group)
	if g.IsServing() {
		return "", false, false
	}
	var succeeded int32
	ended, final := true, false
	for _, p := range g.Pods {
		if p.Status.Phase == corev1.PodSucceeded {
			succeeded++
		}
		ended = ended && (job.PodIsOver(p) || isInactive(p))
		final = final || p.Annotations[kueue.RetriableInGroupAnnotation] == "false"
	}
	total := g.total()
	message = fmt.Sprintf("Pods succeeded: %d/%d.", succeeded, total)
	return message, succeeded >= total && total > 0, (succeeded >= total && total > 0) || (ended && final)
}

// podsReady reports whether all pods exist, and each is ready or has succeeded.
func podsReady(o job.Object, _ *job.Setting) bool {
	g := o.(*Group)
	var ready int32
	for _, p := range g.runnable() {
		if p.Status.Phase != corev1.PodSucceeded && !IsReady(p) {
			return false
		}
		ready++
	}
	return ready > 0 && ready >= g.total()
}

func reclaimable(o job.Object, _ *job.Setting) []kueue.ReclaimablePod {
	g := o.(*Group)
	if g.IsServing() {
		return nil
	}
	succeeded := map[string]int32{}
	for _, p := range g.Pods {
		if p.Status.Phase == corev1.PodSucceeded {
			succeeded[role(p)]++
		}
	}
	var out []kueue.ReclaimablePod
	for _, name := range slices.Sorted(maps.Keys(succeeded)) {
		out = append(out, kueue.ReclaimablePod{Name: kueue.PodSetReference(name), Count: succeeded[name]})
	}
	return out
}
