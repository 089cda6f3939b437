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

// NewCopy returns the copy of a Workload. Clients compare its spec with the local one, so it adds nothing. It has no owner, finalizer or
// job-uid: the integration of the worker cluster adds those when its job adopts the copy (spec: 40 §2.6).
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

// IsOfAnother reports whether a copy is that of an earlier Workload with the name of w. It is false for copies without an origin UID.
func IsOfAnother(copied, w *kueue.Workload) bool {
	uid := copied.Annotations[OriginUIDAnnotation]
	return uid != "" && uid != string(w.UID)
}

// Owns reports whether this manager created an object on a worker cluster: it has our present or a previous origin, and our manager UID
// or none.
func (c *Config) Owns(o metav1.Object) bool {
	origin := o.GetLabels()[kueue.MultiKueueOriginLabel]
	return (origin == c.Origin || slices.Contains(c.PreviousOrigins, origin)) && !c.Foreign(o)
}

// Made reports whether this manager created an object itself. Some kinds hand down labels, as RayService does to its RayClusters: such
// children are deleted with their controller.
func (c *Config) Made(o metav1.Object) bool { return c.Owns(o) && metav1.GetControllerOf(o) == nil }

// Foreign reports whether an object with our origin has the UID of another manager.
func (c *Config) Foreign(o metav1.Object) bool {
	stamp := o.GetAnnotations()[ManagerUIDAnnotation]
	return stamp != "" && c.ManagerUID != "" && stamp != c.ManagerUID
}

// shared returns the part of a spec that both sides have in common. Gates belong to each side, and active of a copy is false after an
// eviction by the manager.
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

// outdated (rule 5) updates copies whose spec differs from the local Workload in place where possible, and removes others. Rule 9 creates
// those again, or rule 6a retries.
func (d *decider) outdated() bool {
	for i := range d.clusters {
		c := &d.clusters[i]
		if !c.Connected || c.Copy == nil {
			continue
		}
		next := c.Copy.DeepCopy()
		changed := syncBoost(d.w, next)
		switch {
		case d.evictedForGood(c):
			d.removeEvicted(c)
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

// evictedForGood reports whether a copy was evicted for good while the Workload has a reservation: it was deactivated, or no controller
// on the worker cluster integrates its job.
func (d *decider) evictedForGood(c *Cluster) bool {
	switch {
	case !lifecycle.IsActive(d.w) || lifecycle.IsEvicted(d.w) || !lifecycle.IsEvicted(c.Copy):
		return false
	case d.o.Job.Alone:
		return !c.HasJob
	}
	return !lifecycle.IsActive(c.Copy) && !lifecycle.IsReserved(c.Copy)
}

// removeEvicted removes a copy that was evicted for good. If the worker cluster did that by itself the Workload skips it for a while: the
// cause, such as a check of its queue, may persist.
func (d *decider) removeEvicted(c *Cluster) {
	evicted, byItself := lifecycle.Condition(c.Copy, kueue.WorkloadEvicted), !lifecycle.IsActive(c.Copy)
	d.remove(c)
	if byItself && evicted.Reason != kueue.ReasonDeactivatedDueToEvictedOnManagerCluster {
		d.skipCluster(c, cmp.Or(evicted.Message, evicted.Reason))
	}
}

func (d *decider) skipCluster(c *Cluster, why string) {
	c.Fault = &Fault{Code: Deactivated, Text: why, Skip: true}
	d.plan.Steps[len(d.plan.Steps)-1].Deactivated = why
}

// describes reports whether a copy has the spec of the local Workload. The hash in its annotation decides, since the worker's API may
// show the spec in another form; the fields decide if there is no hash of the present form.
func describes(w, remote *kueue.Workload) bool {
	return remote.Annotations[SpecHashAnnotation] == specHash(w) ||
		equality.Semantic.DeepEqual(shared(&remote.Spec), shared(&w.Spec))
}

func withPriority(w, from *kueue.Workload) *kueue.Workload {
	out := w.DeepCopy()
	out.Spec.PriorityClassRef, out.Spec.Priority = from.Spec.PriorityClassRef.DeepCopy(), nil
	if from.Spec.Priority != nil {
		out.Spec.Priority = new(*from.Spec.Priority)
	}
	return out
}

// mayFollow reports whether the priority of a copy can change in place: it has a WorkloadPriorityClass, and the local Workload no
// PriorityClass.
func mayFollow(w, remote *kueue.Workload) bool {
	ours, theirs := w.Spec.PriorityClassRef, remote.Spec.PriorityClassRef
	return theirs != nil && theirs.Kind == kueue.WorkloadPriorityClassKind && (ours == nil || ours.Kind != kueue.PodPriorityClassKind)
}

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
