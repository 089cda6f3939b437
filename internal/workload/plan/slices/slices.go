// Package slices orders the Workloads of an elastic job.
//
//	S (4 pods, admitted) ◄── replacement-for ── S′ (6 pods, pending)
//	        │                                     │ reserves quota for 2 more, S has its 4
//	        │                                     │ passes its admission checks: admitted
//	        └──── Finished: WorkloadSliceReplaced ◄┘
//
// Each Workload is a slice: the job at one size. To shrink, the slice with the
// quota shrinks in place. To grow, a second slice waits to replace it, and
// needs only the difference. All slices of a job are a chain, named after the
// first one; the pods name the chain, so that a replacement does not affect them.
// A replacement may fail before it is admitted, by its checks or by preemption.
// That does not affect the slice that it replaces, which keeps running the job.
//
// After any interruption, [Normalise] selects the slices that stay: at most one that
// runs the job, and at most one that is to replace it (spec: 20 §4.11, 30 §4.11).
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

// Chain returns the name of the chain of a Workload: the name of its first slice.
func Chain(w *kueue.Workload) string {
	return cmp.Or(w.Annotations[kueue.WorkloadSliceNameAnnotation], w.Name)
}

// Replaces returns the name of the slice, in the same namespace, that a Workload replaces, or empty.
func Replaces(w *kueue.Workload) string {
	namespace, name, found := strings.Cut(w.Annotations[kueue.WorkloadSliceReplacementForAnnotation], "/")
	if !found || namespace != w.Namespace {
		return ""
	}
	return name
}

// Claim returns the value of the annotation of a slice that replaces w.
func Claim(w *kueue.Workload) string { return w.Namespace + "/" + w.Name }

// MayFinish reports whether an admitted slice finishes old: it replaces old, both hold quota of the same queue, and the
// same job controls both, or none does. The name alone must not finish the Workload of another job. A slice that only
// has a reservation may still fail its checks, and finishes nothing (spec: 20 §4.11).
func MayFinish(by, old *kueue.Workload) bool {
	return HasReplaced(by, old) && !lifecycle.IsFinished(old) && queueOf(by) == queueOf(old) && lifecycle.IsReserved(old)
}

// WillFinish reports whether an admitted slice may finish old once old gets quota, see MayFinish.
func WillFinish(by, old *kueue.Workload) bool {
	return HasReplaced(by, old) && lifecycle.IsPending(old)
}

// HasReplaced reports whether an admitted slice replaces old, of the same job.
func HasReplaced(by, old *kueue.Workload) bool {
	return takesOver(by) && !lifecycle.IsFinished(by) && Replaces(by) == old.Name && by.Namespace == old.Namespace && by.UID != old.UID && SameOwner(by, old)
}

// takesOver reports whether a replacement is effective: the slice is admitted, though it may have been evicted since.
func takesOver(w *kueue.Workload) bool { return lifecycle.IsReserved(w) && lifecycle.IsAdmitted(w) }

// SameOwner reports whether the same job controls both Workloads, or none does.
func SameOwner(a, b *kueue.Workload) bool { return Owner(a) == Owner(b) }

// Owner identifies the job of a Workload, "" for none. Workloads that the manager of another cluster created have the same owner
// if they have the same chain: a slice that has just been created has no job here yet.
func Owner(w *kueue.Workload) string {
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

// Live returns the slices that are not finished, the oldest first.
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

// Ended is a slice to finish, and the reason.
type Ended struct {
	Workload        *kueue.Workload
	Reason, Message string
}

// Kept is the result of Normalise.
type Kept struct {
	// Head holds the quota of the job. Nil if no slice does.
	Head *kueue.Workload
	// Selected is the slice that follows the size of the job: the pending replacement of the head, or the head
	// itself, or the only one. Nil if none is left.
	Selected *kueue.Workload
	// Over are the slices to finish.
	Over []Ended
}

// Normalise selects, from the live slices of one job, the slices that stay. A slice with an admitted replacement is over. Of the
// rest, the newest stays that holds quota and does not replace another holder, and its own replacement: of several the
// first with a reservation, else the oldest. Without a holder, the newest that was not evicted stays.
//
// An evicted replacement stays: its checks are retried, or a user deactivated it, and a new replacement
// would only fail as well, and at once. The caller ends it when the job wants another size. (spec: 30 §4.11 finishes all
// evicted slices, which would also end one whose check only requests a retry.)
//
// An evicted slice that still holds quota stays alone until its release, since only it can stop the job:
// finishing it at once, as a plain reading of the rules would, frees quota that pods still use. After the release, a
// pending replacement stays alone, unless a user deactivated the job by the evicted slice.
func Normalise(live []*kueue.Workload) Kept {
	var rest []*kueue.Workload
	var k Kept
	for _, w := range live {
		if replacement := replacementOf(w, live); replacement != nil && takesOver(replacement) {
			k.Over = append(k.Over, ended(w, live))
		} else {
			rest = append(rest, w)
		}
	}
	k.Head = last(rest, func(w *kueue.Workload) bool { return lifecycle.IsReserved(w) && !IsReplacement(w, rest) })
	if k.Head == nil {
		k.Selected = selectHeadless(rest)
	} else {
		k.Selected, rest = selectBy(k.Head, rest)
	}
	for _, w := range rest {
		if w != k.Head && w != k.Selected {
			k.Over = append(k.Over, ended(w, live))
		}
	}
	return k
}

// selectBy returns the replacement of the head, or the head. others are the rest without a slice that must wait.
func selectBy(head *kueue.Workload, rest []*kueue.Workload) (selected *kueue.Workload, others []*kueue.Workload) {
	next := replacementOf(head, rest)
	switch {
	case next == nil:
		return head, rest
	case !lifecycle.IsEvicted(head):
		return next, rest
	case isInactive(head) || lifecycle.IsReserved(next) || lifecycle.IsEvicted(next):
		return head, rest
	default:
		return head, without(rest, next) // it waits until the head is released
	}
}

// IsReplacement reports whether a slice is to replace another one that holds quota, and has not done so yet.
func IsReplacement(w *kueue.Workload, live []*kueue.Workload) bool {
	return !takesOver(w) && slices.ContainsFunc(live, func(x *kueue.Workload) bool {
		return x != w && x.Name == Replaces(w) && lifecycle.IsReserved(x) && Replaces(x) != w.Name
	})
}

// selectHeadless returns the slice that stays if none holds quota.
func selectHeadless(rest []*kueue.Workload) *kueue.Workload {
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

// last returns the newest that matches, or nil.
func last(list []*kueue.Workload, match func(*kueue.Workload) bool) *kueue.Workload {
	for _, w := range slices.Backward(list) {
		if match(w) {
			return w
		}
	}
	return nil
}

// replacementOf returns the slice that is to replace w: of several the one with the highest stage, else the oldest.
func replacementOf(w *kueue.Workload, live []*kueue.Workload) *kueue.Workload {
	var found *kueue.Workload
	for _, x := range live {
		if x != w && Replaces(x) == w.Name && (found == nil || stage(x) > stage(found)) {
			found = x
		}
	}
	return found
}

// stage is the progress of a replacement: pending, reserved, admitted.
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

func ended(w *kueue.Workload, live []*kueue.Workload) Ended {
	if next := replacementOf(w, live); next != nil && (takesOver(next) || !lifecycle.IsEvicted(next)) {
		return Ended{w, kueue.ReasonWorkloadSliceReplaced, "Replaced by workload slice " + Claim(next)}
	}
	return Ended{w, kueue.ReasonOutOfSync, "The workload slice is out of sync with its job"}
}

// Change is the difference between the wanted pod sets of a job and a slice.
type Change int

// The changes, in increasing order of effect.
const (
	Same         Change = iota
	Shrinks             // some sets have fewer pods, none has more
	Grows               // at least one set has more
	Incompatible        // other sets
)

// Compare returns the difference. Only names and counts matter, and the names in any order.
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

// CompareShaped is Compare for pod sets whose names identify the requests of their pods: a new name is a set that
// grows from no pods, and an unwanted one shrinks to none (spec: 30 §4.10.3).
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

// ResizeShaped sets the counts of the pod sets of a slice as wanted, 0 for unwanted ones.
func ResizeShaped(w *kueue.Workload, wanted []kueue.PodSet) {
	for i := range w.Spec.PodSets {
		w.Spec.PodSets[i].Count = 0
	}
	Resize(w, wanted)
}

// Resize sets the counts of the pod sets of a slice as wanted; Compare must have found them compatible.
func Resize(w *kueue.Workload, wanted []kueue.PodSet) {
	for i := range w.Spec.PodSets {
		for j := range wanted {
			if wanted[j].Name == w.Spec.PodSets[i].Name {
				w.Spec.PodSets[i].Count = wanted[j].Count
			}
		}
	}
}

// Granting returns, from the Workloads of one owner, the slice that lets pods run: the newest that is elastic, admitted and
// not evicted. Nil if there is none.
func Granting(workloads []*kueue.Workload) *kueue.Workload {
	return last(Live(workloads), func(w *kueue.Workload) bool {
		return IsElastic(w) && LetsPodsRun(w)
	})
}

// IsElastic reports whether a Workload is a slice of a job that opted in.
func IsElastic(w *kueue.Workload) bool { return w.Annotations[kueue.ElasticJobAnnotation] == "true" }

// LetsPodsRun reports whether the pods of a Workload may run: it is admitted, and neither evicted nor finished. A reservation alone is not
// enough: a check may still fail.
func LetsPodsRun(w *kueue.Workload) bool {
	return takesOver(w) && !lifecycle.IsEvicted(w) && !lifecycle.IsFinished(w) && w.Status.Admission != nil
}

// Granted returns how many pods of a set may run: the admitted count, or the count that the slice has shrunk to, less the pods
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

// ScaledDown reports whether a Workload holds quota for more pods of a pod set than its spec has: its pod set shrank while the
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

// AnyScaledDown reports whether ScaledDown is true of any pod set.
func AnyScaledDown(w *kueue.Workload) bool {
	return slices.ContainsFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return ScaledDown(w, p.Name) })
}

// SameShape reports whether the pods of two sets have the same requests, regardless of their images, commands and placement. Upstream
// does not check it, so that pods with increased requests run without quota (spec: 30 §4.11).
func SameShape(a, b kueue.PodSet) bool {
	p, q := &a.Template.Spec, &b.Template.Spec
	same := equality.Semantic.DeepEqual
	asks := func(x, y corev1.Container) bool { return x.Name == y.Name && same(x.Resources, y.Resources) }
	return slices.EqualFunc(p.Containers, q.Containers, asks) && slices.EqualFunc(p.InitContainers, q.InitContainers, asks) &&
		same(p.Overhead, q.Overhead) && same(p.Resources, q.Resources) && same(p.ResourceClaims, q.ResourceClaims) &&
		same(p.RuntimeClassName, q.RuntimeClassName)
}
