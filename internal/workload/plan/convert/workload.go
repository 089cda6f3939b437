package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/devices"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
	"github.com/berth-project/berth/internal/workload/plan/variants"
)

// Requests are the settings for the requests of pods, the queue timestamp and the priority of a workload.
type Requests struct {
	Around
	ExcludePrefixes []string // resources with these name prefixes need no quota
	// Transformations turn requests into requests for other resources.
	Transformations []configv1beta2.ResourceTransformation
	// KeepReclaimable: finished pods keep their quota.
	KeepReclaimable bool
	// Boost: an annotation raises or lowers the priority.
	Boost bool
	// YieldToBorrowers: a workload that was preempted by a borrower is queued behind it. It
	// keeps the two from preempting each other where the heads of a cohort are not ordered by
	// priority.
	YieldToBorrowers bool
	// RequeueByCreation: a workload that was evicted because its pods did not get ready keeps its place
	// in line.
	RequeueByCreation bool
	// MaxMinRun bounds the minimum run time that workloads may ask for; 0 is no time.
	MaxMinRun workload.Instant
	// Gated: the annotation admission-gated-by keeps workloads out of their queue.
	Gated bool
	// Slices: workloads may replace others, and need only the difference. With KeepPlaces the pods of elastic jobs stay where they
	// are, and may request no level.
	Slices, KeepPlaces bool
	// Variants: ClusterQueues may try several flavors of a workload at the same time.
	Variants bool
	// Topology: pods are placed on nodes, and their preferred node affinity counts with Affinity.
	// ByPrefix compresses assignments by prefixes of hostnames.
	Topology, Affinity, ByPrefix bool
}

// Workload converts a Workload as of its resourceVersion.
func Workload(w *kueue.Workload, r Requests) state.Workload {
	priority, since := r.InLine(w)
	def := state.Workload{
		UID: string(w.UID), Namespace: w.Namespace, Name: w.Name, LocalQueue: string(w.Spec.QueueName),
		Version: version(w.ResourceVersion), Generation: w.Generation, Created: workload.Instant(w.CreationTimestamp.UnixNano()),
		Since: since, Queueable: lifecycle.MayQueue(w, r.Gated), Resting: resting(w), Problem: problem(w), Gated: len(lifecycle.ClosedGates(w)) > 0,
		MinRun: r.minRun(w), Priority: priority, Told: apimeta.IsStatusConditionFalse(w.Status.Conditions, kueue.WorkloadQuotaReserved),
	}
	if r.Slices {
		def.Replaces, def.Owner = chain.Replaces(w), chain.Owner(w) // spec: 20 §4.11
	}
	if parent := lifecycle.VariantOf(w); parent != "" { // spec: 20 §4.13
		def.VariantOf, def.Rank, def.Holds = parent, lifecycle.VariantRank(w), lifecycle.IsReserved(w) && !lifecycle.IsFinished(w)
		def.Since += workload.Instant(def.Rank) // variants are created together: the preferred flavor is tried first
	} else {
		def.Divisible = variants.MayDivide(w)
	}
	if err := TooLarge(w.Spec.PodSets); err != nil && !lifecycle.IsReserved(w) {
		return unkept(def, w, err.Error())
	}
	pods, bounds := r.pods(w)
	charges := r.devices(w, pods)
	def.Resting = def.Resting || charges.Problem != nil // it joins its queue once its devices can be charged
	for i := range w.Spec.PodSets {
		def.PodSets = append(def.PodSets, r.podSet(w, i, &pods[i], charges))
	}
	if def.Problem == nil {
		if why := bounds.misfit(w, pods); why != "" {
			def.Problem = &workload.Problem{Reason: kueue.ReasonMisconfigured, Note: why}
		}
	}
	r.reserve(&def, w)
	def.Bound = runBound(&def, w)
	limitResources(&def)
	return def
}

// unkept makes a workload one that cannot be admitted, without what its pods request.
func unkept(def state.Workload, w *kueue.Workload, why string) state.Workload {
	def.Problem = &workload.Problem{Reason: kueue.ReasonMisconfigured, Note: why}
	def.PodSets = make([]state.PodSet, len(w.Spec.PodSets))
	for i := range def.PodSets {
		def.PodSets[i] = state.PodSet{Name: string(w.Spec.PodSets[i].Name), Count: w.Spec.PodSets[i].Count, Constraints: &workload.Constraints{}}
	}
	return def
}

// MaxResources is how many different resources the pods of a Workload may request. The engine numbers their names for good.
const MaxResources = 256

// limitResources makes a pending workload with too many resources one that cannot be admitted, without its requests.
func limitResources(def *state.Workload) {
	names := map[string]bool{}
	for i := range def.PodSets {
		for _, r := range slices.Concat(def.PodSets[i].Requests, def.PodSets[i].PerPod) {
			names[r.Resource] = true
		}
	}
	if def.Reserved || len(names) <= MaxResources {
		return
	}
	def.Problem = &workload.Problem{
		Reason: kueue.ReasonMisconfigured, Note: fmt.Sprintf("spec.podSets: the pods request %d different resources, at most %d are possible", len(names), MaxResources),
	}
	for i := range def.PodSets {
		def.PodSets[i].Requests, def.PodSets[i].PerPod = nil, nil
	}
}

// Uncharged returns why a pending workload cannot join its queue: its devices cannot be charged. It returns nil if they can, or if it holds a
// reservation, which keeps its charges. spec: 20 §4.12.
func (r *Requests) Uncharged(w *kueue.Workload) *devices.Problem {
	if r.Around.Devices == nil || !lifecycle.IsPending(w) {
		return nil
	}
	pods, _ := r.pods(w)
	return r.devices(w, pods).Problem
}

func (r *Requests) devices(w *kueue.Workload, pods []corev1.PodSpec) devices.Charges {
	if r.Around.Devices == nil {
		return devices.Charges{}
	}
	out := r.Around.Devices(w, pods)
	if !lifecycle.IsPending(w) {
		out.Problem = nil
	}
	return out
}

// InLine returns what decides the place of a Workload in line: its effective priority and its queue timestamp.
func (r *Requests) InLine(w *kueue.Workload) (priority int64, queued workload.Instant) {
	base, boost := r.Priority(w)
	return base + boost, since(w, *r)
}

// Priority returns the priority of the spec, and the boost of the annotation. spec: 10 §4.14.
func (r *Requests) Priority(w *kueue.Workload) (base, boost int64) {
	base = int64(ptr.Deref(w.Spec.Priority, 0))
	if text, has := w.Annotations[kueue.PriorityBoostAnnotation]; has && r.Boost {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil { // the webhook refuses any other
			boost = n
		}
	}
	return base, boost
}

// version parses a resourceVersion, an increasing number.
func version(rv string) uint64 {
	v, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0 // an object that was never stored
	}
	return v
}

// since returns the queue timestamp: preemption does not cost the place in line; a failure
// to become ready or a failed check does. spec: 10 §4.4.
func since(w *kueue.Workload, r Requests) workload.Instant {
	evicted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted)
	if evicted != nil && evicted.Status == "True" &&
		((evicted.Reason == kueue.ReasonPodsReadyTimeout && !r.RequeueByCreation) || evicted.Reason == kueue.ReasonAdmissionCheck) {
		return workload.Instant(evicted.LastTransitionTime.UnixNano())
	}
	preempted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPreempted)
	if r.YieldToBorrowers && preempted != nil && preempted.Status == "True" && preempted.Reason == kueue.ReasonInCohortReclaimWhileBorrowing {
		return workload.Instant(preempted.LastTransitionTime.Add(time.Millisecond).UnixNano())
	}
	return workload.Instant(w.CreationTimestamp.UnixNano())
}

// resting reports whether the workload waits for a backoff, or for the restart of its queue, before it is in
// line again. The controller workload/follow clears both. A rejection for devices ends with its cause, without a write.
// spec: 10 §4.4, 20 §4.12.
func resting(w *kueue.Workload) bool {
	return (lifecycle.IsRequeueBlocked(w) && !lifecycle.IsRejected(w)) ||
		(w.Status.RequeueState != nil && w.Status.RequeueState.RequeueAt != nil)
}

// problem returns why the workload cannot be admitted regardless of quota: failed checks, until
// their controller resets them. spec: 10 §4.5 step 3.
func problem(w *kueue.Workload) *workload.Problem {
	for _, c := range w.Status.AdmissionChecks {
		if c.State == kueue.CheckStateRetry || c.State == kueue.CheckStateRejected {
			return &workload.Problem{Reason: kueue.ReasonPendingEvaluation, Note: fmt.Sprintf("admission check %s is %s", c.Name, c.State)}
		}
	}
	return nil
}

// reserve adds the quota that the workload holds. A written reservation counts, regardless of its
// writer, until the workload finishes or is deactivated. spec: 10 §4.9, §4.11.
func (r *Requests) reserve(def *state.Workload, w *kueue.Workload) {
	reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if reserved == nil || reserved.Status != "True" || w.Status.Admission == nil ||
		!lifecycle.IsActive(w) || lifecycle.IsFinished(w) || lifecycle.IsParent(w) {
		return
	}
	def.Reserved, def.Queue = true, string(w.Status.Admission.ClusterQueue)
	def.ReservedAt = workload.Instant(reserved.LastTransitionTime.UnixNano())
	def.Admitted = apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted)
	def.Ready = apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadPodsReady)
	def.Evicting = apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadEvicted)
	for _, a := range w.Status.Admission.PodSetAssignments {
		def.Held = append(def.Held, r.held(w, &a)...)
	}
	r.places(def, w)
}

// held returns the part of the recorded usage that one pod set still needs: the share
// of pods that will not run again is released. spec: 10 §4.2.
func (r *Requests) held(w *kueue.Workload, a *kueue.PodSetAssignment) []state.Held {
	count, want := int32(0), int32(0)
	for _, ps := range w.Spec.PodSets {
		if ps.Name == a.Name {
			count, want = ps.Count, ps.Count-min(r.reclaimable(w, ps.Name), ps.Count)
		}
	}
	count = ptr.Deref(a.Count, count)
	var out []state.Held
	//berth:unordered sorted below
	for name, q := range a.ResourceUsage {
		amount := Amount(name, q)
		if want < count {
			amount = amount.Scale(count, want)
		}
		out = append(out, state.Held{PodSet: string(a.Name), Flavor: string(a.Flavors[name]), Resource: string(name), Amount: amount})
	}
	slices.SortFunc(out, func(a, b state.Held) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}

// reclaimable returns how many pods of a pod set need no quota any more.
func (r *Requests) reclaimable(w *kueue.Workload, name kueue.PodSetReference) int32 {
	if r.KeepReclaimable {
		return 0
	}
	for _, done := range w.Status.ReclaimablePods {
		if done.Name == name {
			return done.Count
		}
	}
	return 0
}

// podSet converts the i-th pod set; pod has the resources of its pods, and charges those for its devices.
func (r *Requests) podSet(w *kueue.Workload, i int, pod *corev1.PodSpec, charges devices.Charges) state.PodSet {
	ps := &w.Spec.PodSets[i]
	count := ps.Count - min(r.reclaimable(w, ps.Name), ps.Count)
	var of devices.PodSet
	if charges.PodSets != nil {
		of = charges.PodSets[i]
	}
	requests := podRequests(pod)
	for _, name := range of.Replaced {
		delete(requests, name)
	}
	out := state.PodSet{
		Name: string(ps.Name), Count: count, Requests: r.charge(requests, of.Charged, count), Constraints: constraints(&ps.Template.Spec),
	}
	if lifecycle.VariantOf(w) != "" {
		out.Constraints.Flavors = lifecycle.SplitGates(w.Annotations[kueue.AllowedResourceFlavorsAnnotation])
	}
	if ps.MinCount != nil {
		out.MinCount = min(*ps.MinCount, count)
	}
	if t := ps.TopologyRequest; t != nil && t.PodSetGroupName != nil {
		out.Group = *t.PodSetGroupName
	}
	out.Shape = shape(out.Constraints)
	if r.Topology {
		out.PerPod, out.Topology = perPod(requests), r.topology(ps)
		out.Elastic = r.Slices && r.KeepPlaces && chain.IsElastic(w)
	}
	return out
}

func constraints(spec *corev1.PodSpec) *workload.Constraints {
	c := &workload.Constraints{Selector: spec.NodeSelector, Tolerations: tolerations(spec.Tolerations)}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil ||
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return c
	}
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		c.Affinity = append(c.Affinity, nodeTerm(&term))
	}
	return c
}

// nodeTerm converts a term of node affinity. Kubernetes knows one field of nodes, the name.
func nodeTerm(in *corev1.NodeSelectorTerm) workload.Term {
	t := workload.Term{}
	for _, e := range in.MatchExpressions {
		t = append(t, workload.Expr{Key: e.Key, Op: workload.Operator(e.Operator), Values: e.Values})
	}
	for _, e := range in.MatchFields {
		t = append(t, workload.Expr{Key: workload.NodeName, Op: workload.Operator(e.Operator), Values: e.Values})
	}
	return t
}

// shape returns a canonical text of the constraints: encoding/json sorts maps.
func shape(c *workload.Constraints) string {
	if len(c.Selector) == 0 && len(c.Affinity) == 0 && len(c.Tolerations) == 0 && len(c.Flavors) == 0 {
		return ""
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic("constraints are plain strings and always marshal: " + err.Error())
	}
	return string(text)
}
