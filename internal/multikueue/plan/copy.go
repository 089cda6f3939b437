package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// NewCopy is the Workload that is created on a worker. Clients compare its spec with that of the local one, so nothing is added there;
// it has no owner, no finalizer and no job-uid, which the worker's integration adds when its job adopts it (spec: 40 §2.6).
func (c *Config) NewCopy(w *kueue.Workload) *kueue.Workload {
	out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Namespace, Name: w.Name, Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	for key, value := range w.Labels { //berth:unordered copies a map
		if key != kueue.JobUIDLabel {
			out.Labels[key] = value
		}
	}
	for key, value := range w.Annotations { //berth:unordered copies a map
		if !strings.HasPrefix(key, annotationPrefix) {
			out.Annotations[key] = value
		}
	}
	out.Labels[kueue.MultiKueueOriginLabel] = c.Origin
	out.Annotations[SpecHashAnnotation] = specHash(w)
	out.Annotations[OriginUIDAnnotation] = string(w.UID)
	if c.ManagerUID != "" {
		out.Annotations[ManagerUIDAnnotation] = c.ManagerUID
	}
	w.Spec.DeepCopyInto(&out.Spec)
	if c.Orchestrated {
		out.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: kueue.MultiKueuePreemptionGate}}
	}
	return out
}

// IsOfAnother says whether a copy is that of an earlier Workload that had the name of w. One that does not say is not.
func IsOfAnother(copied, w *kueue.Workload) bool {
	uid := copied.Annotations[OriginUIDAnnotation]
	return uid != "" && uid != string(w.UID)
}

// Owns says whether an object on a worker was made by this manager: the label of our origin, or one that it had, and no stamp or ours.
func (c *Config) Owns(o metav1.Object) bool {
	origin := o.GetLabels()[kueue.MultiKueueOriginLabel]
	return (origin == c.Origin || slices.Contains(c.PreviousOrigins, origin)) && !c.Foreign(o)
}

// Made says whether this manager made an object on a worker itself. What a copy of ours makes there bears our label too if its kind hands
// labels down, as RayService does to its RayClusters; that goes with what controls it.
func (c *Config) Made(o metav1.Object) bool { return c.Owns(o) && metav1.GetControllerOf(o) == nil }

// Foreign says whether an object with our origin bears the stamp of another manager.
func (c *Config) Foreign(o metav1.Object) bool {
	stamp := o.GetAnnotations()[ManagerUIDAnnotation]
	return stamp != "" && c.ManagerUID != "" && stamp != c.ManagerUID
}

// shared is the part of a spec that the two sides have in common. Gates belong to each side, and the worker turns active off when
// it evicts a copy that its manager takes back.
func shared(spec *kueue.WorkloadSpec) *kueue.WorkloadSpec {
	out := spec.DeepCopy()
	out.PreemptionGates, out.Active = nil, nil
	return out
}

func specHash(w *kueue.Workload) string {
	text, err := json.Marshal(shared(&w.Spec))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// outdated (rule 5) brings copies up to date whose spec is not that of the local Workload, in place as far as that is possible, and
// removes them otherwise. What was removed is made anew by rule 9, or lost by rule 6a.
func (d *decider) outdated() bool {
	for i := range d.clusters {
		c := &d.clusters[i]
		if !c.Connected || c.Copy == nil {
			continue
		}
		next := c.Copy.DeepCopy()
		changed := syncBoost(d.w, next)
		switch {
		case d.spent(c):
			d.giveUp(c)
			continue
		case describes(d.w, next):
		case describes(withPriority(d.w, next), next) && mayFollow(d.w, next):
			w := withPriority(next, d.w)
			next.Spec.PriorityClassRef, next.Spec.Priority = w.Spec.PriorityClassRef, w.Spec.Priority
			changed = true
		case d.elastic() && shrinks(&next.Spec, &d.w.Spec):
			next.Spec = *d.specOf(d.w)
			next.Spec.PreemptionGates, next.Spec.Active = c.Copy.Spec.PreemptionGates, c.Copy.Spec.Active
			changed = true
		default:
			d.remove(c)
			continue
		}
		if changed {
			metav1.SetMetaDataAnnotation(&next.ObjectMeta, SpecHashAnnotation, specHash(d.w))
			d.do(Step{Do: UpdateCopy, Cluster: c.Name, Workload: next})
		}
	}
	return false
}

// spent says whether a copy was evicted for good, while the Workload has quota: it was deactivated, or nothing on the worker gives back its
// quota there, since nothing there knows its job.
func (d *decider) spent(c *Cluster) bool {
	switch {
	case !lifecycle.IsActive(d.w) || lifecycle.IsEvicted(d.w) || !lifecycle.IsEvicted(c.Copy):
		return false
	case d.o.Job.Alone:
		return !c.HasJob
	}
	return !lifecycle.IsActive(c.Copy) && !lifecycle.IsReserved(c.Copy)
}

// giveUp removes a copy that was evicted for good. If the worker did that by itself, the Workload stays away from it for a while: what took
// the copy back, such as a check of the worker's queue, may do so again.
func (d *decider) giveUp(c *Cluster) {
	evicted, byItself := lifecycle.Condition(c.Copy, kueue.WorkloadEvicted), !lifecycle.IsActive(c.Copy)
	d.remove(c)
	if byItself && evicted.Reason != kueue.ReasonDeactivatedDueToEvictedOnManagerCluster {
		d.leaveOut(c, cmp.Or(evicted.Message, evicted.Reason))
	}
}

// leaveOut keeps the Workload away for a while from the cluster whose copy was just removed.
func (d *decider) leaveOut(c *Cluster, why string) {
	c.Fault = &Fault{Code: Deactivated, Text: why, Skip: true}
	d.plan.Steps[len(d.plan.Steps)-1].Deactivated = why
}

// describes says whether a copy has the spec of the local Workload. The hash that it was made with decides, since the worker's API may
// show the spec in another form; without one, or with one of another form, the fields do.
func describes(w, remote *kueue.Workload) bool {
	return remote.Annotations[SpecHashAnnotation] == specHash(w) ||
		equality.Semantic.DeepEqual(shared(&remote.Spec), shared(&w.Spec))
}

// withPriority is a Workload with the priority of another one.
func withPriority(w, from *kueue.Workload) *kueue.Workload {
	out := w.DeepCopy()
	out.Spec.PriorityClassRef, out.Spec.Priority = from.Spec.PriorityClassRef.DeepCopy(), nil
	if from.Spec.Priority != nil {
		out.Spec.Priority = new(*from.Spec.Priority)
	}
	return out
}

// mayFollow says whether the priority of a copy can change in place: it has a WorkloadPriorityClass, and the local Workload none of
// pods.
func mayFollow(w, remote *kueue.Workload) bool {
	ours, theirs := w.Spec.PriorityClassRef, remote.Spec.PriorityClassRef
	return theirs != nil && theirs.Kind == kueue.WorkloadPriorityClassKind && (ours == nil || ours.Kind != kueue.PodPriorityClassKind)
}

// syncBoost gives a copy the boost of the local Workload, and tells whether that changed anything.
func syncBoost(w, remote *kueue.Workload) bool {
	boost, ok := w.Annotations[kueue.PriorityBoostAnnotation]
	if old, had := remote.Annotations[kueue.PriorityBoostAnnotation]; old == boost && had == ok {
		return false
	}
	if ok {
		metav1.SetMetaDataAnnotation(&remote.ObjectMeta, kueue.PriorityBoostAnnotation, boost)
	} else {
		delete(remote.Annotations, kueue.PriorityBoostAnnotation)
	}
	return true
}

// shrinks says whether only pod sets got smaller, at least one of them, from one spec to the other.
func shrinks(from, to *kueue.WorkloadSpec) bool {
	if len(from.PodSets) != len(to.PodSets) {
		return false
	}
	smaller := false
	for i := range from.PodSets {
		if from.PodSets[i].Name != to.PodSets[i].Name || to.PodSets[i].Count > from.PodSets[i].Count {
			return false
		}
		smaller = smaller || to.PodSets[i].Count < from.PodSets[i].Count
	}
	return smaller
}
