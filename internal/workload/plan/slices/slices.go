// Package slices keeps the Workloads of an elastic job in order.
//
//	S (4 pods, admitted) ◄── replacement-for ── S′ (6 pods, waits)
//	        │                                     │ reserves quota for 2 more, S has its 4
//	        │                                     │ passes its admission checks: admitted
//	        └──── Finished: WorkloadSliceReplaced ◄┘
//
// Each Workload is a slice: the job at one size. To shrink, the slice that holds
// quota shrinks in place. To grow, a second slice waits to take its place, and
// needs only the difference. All slices of a job are a chain, named after the
// first one; the pods name the chain, so that they outlive a change of slices.
// A successor may fail before it is admitted, by its checks or by preemption. That
// is nothing to the slice before it, by which the job runs.
//
// Whatever was interrupted, [Normalise] says which slices stay: at most one by
// which the job runs, and at most one that is to replace it (spec: 20 §4.11, 30 §4.11).
package slices

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Chain is the name of the chain that a Workload belongs to: that of its first slice.
func Chain(w *kueue.Workload) string {
	return cmp.Or(w.Annotations[kueue.WorkloadSliceNameAnnotation], w.Name)
}

// Replaces is the name of the slice, in the same namespace, whose place a Workload takes, or empty.
func Replaces(w *kueue.Workload) string {
	namespace, name, found := strings.Cut(w.Annotations[kueue.WorkloadSliceReplacementForAnnotation], "/")
	if !found || namespace != w.Namespace {
		return ""
	}
	return name
}

// Claim is the value of the annotation by which a slice takes the place of another.
func Claim(w *kueue.Workload) string { return w.Namespace + "/" + w.Name }

// MayFinish reports whether a slice that is admitted ends the other, whose place it takes: it names that one, both hold
// quota of the same queue, and the same job controls both, or none does. The name alone must not end somebody else's
// Workload. One that only holds quota may still fail its checks, and ends nothing (spec: 20 §4.11).
func MayFinish(by, old *kueue.Workload) bool {
	return takesOver(by) && !lifecycle.IsFinished(by) && Replaces(by) == old.Name && by.Namespace == old.Namespace &&
		by.UID != old.UID && !lifecycle.IsFinished(old) && SameOwner(by, old) && queueOf(by) == queueOf(old) && lifecycle.IsReserved(old)
}

// takesOver reports whether a slice has the place that it was to take: it is admitted, though it may have been evicted since.
func takesOver(w *kueue.Workload) bool { return lifecycle.IsReserved(w) && lifecycle.IsAdmitted(w) }

// SameOwner reports whether the same job controls both Workloads, or none does. Those that the manager of another cluster made are of one job
// if they are of one chain: a slice that has just come has no job here yet.
func SameOwner(a, b *kueue.Workload) bool { return owner(a) == owner(b) }

func owner(w *kueue.Workload) string {
	if origin := w.Labels[kueue.MultiKueueOriginLabel]; origin != "" {
		return origin + "/" + Chain(w)
	}
	if ref := metav1.GetControllerOf(w); ref != nil {
		return string(ref.UID)
	}
	return ""
}

func queueOf(w *kueue.Workload) kueue.ClusterQueueReference {
	if w.Status.Admission == nil {
		return ""
	}
	return w.Status.Admission.ClusterQueue
}

// Sort orders slices, the oldest first.
func Sort(workloads []*kueue.Workload) { slices.SortFunc(workloads, byAge) }

func byAge(a, b *kueue.Workload) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(string(a.UID), string(b.UID)))
}

// Live are the slices that are not finished, the oldest first.
func Live(workloads []*kueue.Workload) []*kueue.Workload {
	var out []*kueue.Workload
	for _, w := range workloads {
		if !lifecycle.IsFinished(w) {
			out = append(out, w)
		}
	}
	Sort(out)
	return out
}

// Ended is a slice that is to be finished, and why.
type Ended struct {
	Workload        *kueue.Workload
	Reason, Message string
}

// Kept is what Normalise leaves.
type Kept struct {
	// Head holds the quota of the job. Nil if no slice does.
	Head *kueue.Workload
	// Selected is the slice that is to be as the job wants to be: the one that waits to replace the head, or the head
	// itself, or the only one. Nil if none is left.
	Selected *kueue.Workload
	// Over are the others.
	Over []Ended
}

// Normalise picks, of the live slices of one job, those that stay. A slice whose successor is admitted is over. Of the
// rest stay the newest that holds quota and is no successor of another that does, and its own successor, of several the
// first with quota, else the oldest; without a holder the newest that was not evicted.
//
// A successor that was evicted stays: its checks are tried again, or somebody deactivated it, and a new one in its place
// would only fail as well, and at once. Whoever calls ends it when the job wants something else. (spec: 30 §4.11 finishes all
// that are evicted, which would also end one whose check only asks to try again.)
//
// A slice that was evicted and still holds quota stays alone until that is given back, since only it can stop the job: to
// finish it at once, as a plain reading of the rules would, would free quota that pods still use. Once it is released, a
// successor that has only waited stands alone, unless somebody deactivated the job by the slice.
func Normalise(live []*kueue.Workload) Kept {
	var rest []*kueue.Workload
	var k Kept
	for _, w := range live {
		if heir := heirOf(w, live); heir != nil && takesOver(heir) {
			k.Over = append(k.Over, ended(w, live))
		} else {
			rest = append(rest, w)
		}
	}
	k.Head = last(rest, func(w *kueue.Workload) bool { return lifecycle.IsReserved(w) && !IsHeir(w, rest) })
	if k.Head == nil {
		k.Selected = headless(rest)
	} else {
		k.Selected, rest = successor(k.Head, rest)
	}
	for _, w := range rest {
		if w != k.Head && w != k.Selected {
			k.Over = append(k.Over, ended(w, live))
		}
	}
	return k
}

// successor is the slice that is to take the place of the head, or the head. Of the rest it leaves those that are not over yet
// out.
func successor(head *kueue.Workload, rest []*kueue.Workload) (selected *kueue.Workload, others []*kueue.Workload) {
	heir := heirOf(head, rest)
	switch {
	case heir == nil:
		return head, rest
	case !lifecycle.IsEvicted(head):
		return heir, rest
	case isInactive(head) || lifecycle.IsReserved(heir) || lifecycle.IsEvicted(heir):
		return head, rest
	default:
		return head, without(rest, heir) // it waits until the head is released
	}
}

// IsHeir reports whether a slice with quota is to take the place of another that holds quota, and has not got it yet.
func IsHeir(w *kueue.Workload, live []*kueue.Workload) bool {
	return !takesOver(w) && slices.ContainsFunc(live, func(x *kueue.Workload) bool {
		return x != w && x.Name == Replaces(w) && lifecycle.IsReserved(x) && Replaces(x) != w.Name
	})
}

// headless is the slice that stays if none holds quota.
func headless(rest []*kueue.Workload) *kueue.Workload {
	w := last(rest, func(w *kueue.Workload) bool { return isInactive(w) && lifecycle.IsEvicted(w) })
	if w == nil {
		w = last(rest, func(w *kueue.Workload) bool { return !lifecycle.IsEvicted(w) })
	}
	if w == nil && len(rest) == 1 {
		w = rest[0]
	}
	return w
}

func isInactive(w *kueue.Workload) bool { return !lifecycle.IsActive(w) }

func without(list []*kueue.Workload, w *kueue.Workload) []*kueue.Workload {
	return slices.DeleteFunc(slices.Clone(list), func(x *kueue.Workload) bool { return x == w })
}

// last is the newest that matches, or nil.
func last(list []*kueue.Workload, match func(*kueue.Workload) bool) *kueue.Workload {
	for _, w := range slices.Backward(list) {
		if match(w) {
			return w
		}
	}
	return nil
}

// heirOf is the slice that is to take the place of w: of several that claim it the one that got furthest, else the older.
func heirOf(w *kueue.Workload, live []*kueue.Workload) *kueue.Workload {
	var heir *kueue.Workload
	for _, x := range live {
		if x != w && Replaces(x) == w.Name && (heir == nil || stage(x) > stage(heir)) {
			heir = x
		}
	}
	return heir
}

// stage is how far a successor got: it waits, it has quota, it is admitted.
func stage(w *kueue.Workload) int {
	switch {
	case takesOver(w):
		return 2
	case lifecycle.IsReserved(w):
		return 1
	default:
		return 0
	}
}

// ended says why a slice is over.
func ended(w *kueue.Workload, live []*kueue.Workload) Ended {
	if heir := heirOf(w, live); heir != nil && (takesOver(heir) || !lifecycle.IsEvicted(heir)) {
		return Ended{w, kueue.ReasonWorkloadSliceReplaced, "Replaced by workload slice " + Claim(heir)}
	}
	return Ended{w, kueue.ReasonOutOfSync, "The workload slice is out of sync with its job"}
}

// Change is how the pod sets that a job wants differ from those of a slice.
type Change int

// The changes, by what they need.
const (
	Same         Change = iota
	Shrinks             // some sets have fewer pods, none has more
	Grows               // at least one set has more
	Incompatible        // other sets
)

// Compare finds the difference. Only names and counts matter, and the names in any order.
func Compare(w *kueue.Workload, wanted []kueue.PodSet) Change {
	if len(w.Spec.PodSets) != len(wanted) {
		return Incompatible
	}
	change := Same
	for i := range wanted {
		at := slices.IndexFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == wanted[i].Name })
		switch {
		case at < 0:
			return Incompatible
		case wanted[i].Count > w.Spec.PodSets[at].Count:
			change = Grows
		case wanted[i].Count < w.Spec.PodSets[at].Count:
			change = max(change, Shrinks)
		}
	}
	return change
}

// CompareShaped is Compare where the name of a pod set says what its pods ask for: another name is another set, of which
// there were none before, and one that is not wanted any more has none left (spec: 30 §4.10.3).
func CompareShaped(w *kueue.Workload, wanted []kueue.PodSet) Change {
	change := Same
	for i := range wanted {
		at := slices.IndexFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == wanted[i].Name })
		switch {
		case at < 0 && wanted[i].Count == 0:
		case at < 0 || wanted[i].Count > w.Spec.PodSets[at].Count:
			return Grows
		case wanted[i].Count < w.Spec.PodSets[at].Count:
			change = Shrinks
		}
	}
	for i := range w.Spec.PodSets {
		p := &w.Spec.PodSets[i]
		if p.Count > 0 && !slices.ContainsFunc(wanted, func(x kueue.PodSet) bool { return x.Name == p.Name }) {
			change = Shrinks
		}
	}
	return change
}

// ResizeShaped gives the pod sets of a slice the counts that are wanted, none to those that are not.
func ResizeShaped(w *kueue.Workload, wanted []kueue.PodSet) {
	for i := range w.Spec.PodSets {
		w.Spec.PodSets[i].Count = 0
	}
	Resize(w, wanted)
}

// Resize gives the pod sets of a slice the counts that are wanted, which Compare found compatible.
func Resize(w *kueue.Workload, wanted []kueue.PodSet) {
	for i := range w.Spec.PodSets {
		for j := range wanted {
			if wanted[j].Name == w.Spec.PodSets[i].Name {
				w.Spec.PodSets[i].Count = wanted[j].Count
			}
		}
	}
}

// Granting is, of the Workloads of one owner, the slice that lets pods run: the newest that is elastic, admitted and
// not on its way out. Nil if there is none.
func Granting(workloads []*kueue.Workload) *kueue.Workload {
	return last(Live(workloads), func(w *kueue.Workload) bool {
		return w.Annotations[kueue.ElasticJobAnnotation] == "true" && lifecycle.IsReserved(w) && lifecycle.IsAdmitted(w) &&
			!lifecycle.IsEvicted(w) && w.Status.Admission != nil
	})
}

// Granted is how many pods of a set may run: what was admitted, or what the slice has shrunk to since, less the pods
// whose quota was given back.
func Granted(w *kueue.Workload, name kueue.PodSetReference) int32 {
	at := slices.IndexFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == name })
	if at < 0 || w.Status.Admission == nil {
		return 0
	}
	count := w.Spec.PodSets[at].Count
	for _, a := range w.Status.Admission.PodSetAssignments {
		if a.Name != name {
			continue
		}
		if a.Count != nil {
			count = min(count, *a.Count)
		}
		for _, r := range w.Status.ReclaimablePods {
			if r.Name == name {
				count -= r.Count
			}
		}
		return max(count, 0)
	}
	return 0
}

// ScaledDown reports whether a Workload has quota for more pods of a pod set than it has now: its pod set shrank while the
// Workload held quota.
func ScaledDown(w *kueue.Workload, name kueue.PodSetReference) bool {
	if w.Status.Admission == nil {
		return false
	}
	at := slices.IndexFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == name })
	granted := slices.IndexFunc(w.Status.Admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool { return a.Name == name })
	if at < 0 || granted < 0 {
		return false
	}
	count := w.Status.Admission.PodSetAssignments[granted].Count
	return count != nil && w.Spec.PodSets[at].Count < *count
}

// SameShape reports whether the pods of two sets ask for the same: what runs in them, and where they may run, aside. Upstream
// does not look, so that pods which were changed to ask for more run without quota (spec: 30 §4.11).
func SameShape(a, b kueue.PodSet) bool {
	p, q := &a.Template.Spec, &b.Template.Spec
	same := equality.Semantic.DeepEqual
	asks := func(x, y corev1.Container) bool { return x.Name == y.Name && same(x.Resources, y.Resources) }
	return slices.EqualFunc(p.Containers, q.Containers, asks) && slices.EqualFunc(p.InitContainers, q.InitContainers, asks) &&
		same(p.Overhead, q.Overhead) && same(p.Resources, q.Resources) && same(p.ResourceClaims, q.ResourceClaims) &&
		same(p.RuntimeClassName, q.RuntimeClassName)
}
