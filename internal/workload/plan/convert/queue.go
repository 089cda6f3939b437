package convert

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/variants"
)

// Flavor converts a ResourceFlavor, with the topology that it names; nil without one, or if that is missing.
func Flavor(rf *kueue.ResourceFlavor, topology *kueue.Topology) flavor.Flavor {
	f := flavor.Flavor{
		Name: rf.Name, Labels: rf.Spec.NodeLabels, Tolerations: tolerations(rf.Spec.Tolerations), Topology: string(rf.Spec.TopologyName),
	}
	for _, t := range rf.Spec.NodeTaints {
		f.Taints = append(f.Taints, workload.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	if topology != nil {
		for _, l := range topology.Spec.Levels {
			f.Levels = append(f.Levels, l.NodeLabel)
		}
	}
	return f
}

// Cohort converts a Cohort.
func Cohort(c *kueue.Cohort) state.Cohort {
	return state.Cohort{
		Name: c.Name, Parent: string(c.Spec.ParentName), Groups: groups(c.Spec.ResourceGroups), Weight: weight(c.Spec.FairSharing),
	}
}

// weight returns a fair share's weight, nil for the default. One that is too large is the largest.
func weight(f *kueue.FairSharing) *quota.Weight {
	if f == nil || f.Weight == nil {
		return nil
	}
	q := bounded(*f.Weight)
	if q.CmpInt64(math.MaxInt64/int64(quota.DefaultWeight)) >= 0 {
		return new(quota.Weight(math.MaxInt64))
	}
	return new(quota.Weight(q.ScaledValue(apiresource.Nano)))
}

// LocalQueue converts a LocalQueue.
func LocalQueue(lq *kueue.LocalQueue) state.LocalQueue {
	stopped, deleted := lifecycle.IsStopped(lq.Spec.StopPolicy), lq.DeletionTimestamp != nil
	return state.LocalQueue{
		Namespace: lq.Namespace, Name: lq.Name, Queue: string(lq.Spec.ClusterQueue),
		Stopped: stopped || deleted, Deleted: deleted && !stopped, Weight: usageWeight(lq.Spec.FairSharing),
	}
}

// usageWeight returns the weight of a LocalQueue as state.LocalQueue has it.
func usageWeight(f *kueue.FairSharing) float64 {
	if f == nil || f.Weight == nil {
		return 0
	}
	if f.Weight.Sign() <= 0 {
		return -1
	}
	return f.Weight.AsApproximateFloat64()
}

// PastUsage converts the past usage in the status of a LocalQueue; false if there is none.
func PastUsage(lq *kueue.LocalQueue) (state.SetUsage, bool) {
	if lq.Status.FairSharing == nil || lq.Status.FairSharing.AdmissionFairSharingStatus == nil {
		return state.SetUsage{}, false
	}
	from := lq.Status.FairSharing.AdmissionFairSharingStatus
	out := state.SetUsage{Namespace: lq.Namespace, Name: lq.Name}
	if !from.LastUpdate.IsZero() {
		out.At = workload.Instant(from.LastUpdate.UnixNano())
	}
	for name, q := range from.ConsumedResources { //berth:unordered sorted below
		if amount := q.AsApproximateFloat64(); amount > 0 {
			out.Consumed = append(out.Consumed, sharing.Used{Resource: string(name), Amount: amount})
		}
	}
	slices.SortFunc(out.Consumed, func(a, b sharing.Used) int { return strings.Compare(a.Resource, b.Resource) })
	return out, true
}

// PastUsageStatus is the inverse of PastUsage: each resource of the ClusterQueue is listed, also without usage.
func PastUsageStatus(groups []kueue.ResourceGroup, u *sharing.Usage) *kueue.AdmissionFairSharingStatus {
	out := &kueue.AdmissionFairSharingStatus{ConsumedResources: corev1.ResourceList{}, LastUpdate: metav1.Unix(0, int64(u.At)).Rfc3339Copy()}
	for _, g := range groups {
		for _, name := range g.CoveredResources {
			out.ConsumedResources[name] = apiresource.Quantity{Format: apiresource.DecimalSI}
		}
	}
	for _, c := range u.Consumed {
		out.ConsumedResources[corev1.ResourceName(c.Resource)] = fine(c.Amount)
	}
	return out
}

// StoppedBy names a policy that stops a queue, as in (stopPolicy Hold); "" for one that does not.
func StoppedBy(p kueue.StopPolicy) string {
	if !lifecycle.IsStopped(p) {
		return ""
	}
	return "(stopPolicy " + string(p) + ")"
}

// Backfill returns which starts a ClusterQueue reserves by its annotation. The error lists the values; the caller names the field.
func Backfill(cq *kueue.ClusterQueue) (cycle.Backfill, error) {
	value, has := cq.Annotations[berthv1alpha1.BackfillKey]
	if has && !slices.Contains(berthv1alpha1.Backfills, value) {
		return cycle.NoBackfill, fmt.Errorf("must be %s; leave the annotation out for none", strings.Join(berthv1alpha1.Backfills, " or "))
	}
	return cycle.Backfill(value), nil
}

// Queue converts a ClusterQueue. Problems close it. An error names the field.
func Queue(cq *kueue.ClusterQueue, problems []Problem) (state.Queue, error) {
	def := state.Queue{
		Name: cq.Name, Cohort: string(cq.Spec.CohortName), Groups: groups(cq.Spec.ResourceGroups),
		Strict: cq.Spec.QueueingStrategy == kueue.StrictFIFO, Closed: Sentence(problems),
		Weight:     weight(cq.Spec.FairSharing),
		UsageBased: cq.Spec.AdmissionScope != nil && cq.Spec.AdmissionScope.AdmissionMode == kueue.UsageBasedAdmissionFairSharing,
	}
	def.Checked = cq.Spec.AdmissionChecksStrategy != nil && len(cq.Spec.AdmissionChecksStrategy.AdmissionChecks) > 0
	var err error
	if def.Backfill, err = Backfill(cq); err != nil {
		return def, fmt.Errorf("metadata.annotations[%s]: %w", berthv1alpha1.BackfillKey, err)
	}
	if def.Namespaces, err = selector(cq.Spec.NamespaceSelector); err != nil {
		return def, fmt.Errorf("spec.namespaceSelector: %w", err)
	}
	if f := cq.Spec.FlavorFungibility; f != nil {
		def.Fungibility = flavor.Fungibility{
			TryNextWhenBorrowing:    f.WhenCanBorrow == kueue.TryNextFlavor,
			StopWhenPreempting:      f.WhenCanPreempt == kueue.MayStopSearch,
			PreemptionOverBorrowing: f.Preference != nil && *f.Preference == kueue.PreemptionOverBorrowing,
		}
	}
	if p := cq.Spec.Preemption; p != nil {
		def.Preemption = preempt.Policy{
			Within: preempt.RuleNamed(string(p.WithinClusterQueue)), Reclaim: preempt.RuleNamed(string(p.ReclaimWithinCohort)),
		}
		if b := p.BorrowWithinCohort; b != nil && b.Policy == kueue.BorrowWithinCohortLowerPriority {
			def.Preemption.BorrowWithin = true
			if b.MaxPriorityThreshold != nil {
				threshold := int64(*b.MaxPriorityThreshold)
				def.Preemption.Threshold = &threshold
			}
		}
	}
	return def, nil
}

func groups(in []kueue.ResourceGroup) []state.Group {
	out := make([]state.Group, 0, len(in))
	for _, g := range in {
		var group state.Group
		for _, name := range g.CoveredResources {
			group.Resources = append(group.Resources, string(name))
		}
		for _, f := range g.Flavors {
			fq := state.FlavorQuota{Flavor: string(f.Name)}
			for _, r := range f.Resources {
				fq.Resources = append(fq.Resources, state.Quota{
					Resource: string(r.Name), Nominal: Amount(r.Name, r.NominalQuota),
					Borrow: limit(r.Name, r.BorrowingLimit), Lend: limit(r.Name, r.LendingLimit),
				})
			}
			group.Flavors = append(group.Flavors, fq)
		}
		out = append(out, group)
	}
	return out
}

// selector converts a label selector to ORed terms: none for nil, which selects
// nothing, one empty term for the empty selector, which selects everything.
func selector(in *metav1.LabelSelector) ([]workload.Term, error) {
	if in == nil {
		return nil, nil
	}
	if _, err := metav1.LabelSelectorAsSelector(in); err != nil {
		return nil, err
	}
	term := workload.Term{}
	//berth:unordered sorted below
	for key, value := range in.MatchLabels {
		term = append(term, workload.Expr{Key: key, Op: workload.In, Values: []string{value}})
	}
	slices.SortFunc(term, func(a, b workload.Expr) int { return strings.Compare(a.Key, b.Key) })
	for _, e := range in.MatchExpressions {
		term = append(term, workload.Expr{Key: e.Key, Op: workload.Operator(e.Operator), Values: e.Values})
	}
	return []workload.Term{term}, nil
}

// Problem is a reason why a ClusterQueue is inactive.
type Problem struct {
	Reason  string // of the condition Active. spec: 10 §4.13
	Message string
}

// Divide sets what a ClusterQueue's policy of concurrent admission says; on is the feature gate. spec: 20 §4.13.
func Divide(def *state.Queue, cq *kueue.ClusterQueue, on bool) {
	if variants.PolicyOf(cq, on) != nil {
		def.Variants, def.MigratesTo = true, variants.MigratesTo(cq)
	}
}

// Known looks up the objects that a ClusterQueue refers to.
type Known struct {
	Variants bool                                                           // feature gate ConcurrentAdmission
	Flavor   func(name kueue.ResourceFlavorReference) *kueue.ResourceFlavor // nil if there is none
	Check    func(name kueue.AdmissionCheckReference) *kueue.AdmissionCheck // nil if there is none
	Topology func(name kueue.TopologyReference) bool
	Parent   func(cohort string) string // the parent of a cohort, "" for none
}

// Problems lists why a ClusterQueue is inactive, the first one giving the reason; none
// means that it is active. spec: 10 §4.13, §6 #14.
func Problems(cq *kueue.ClusterQueue, known Known) []Problem {
	var out []Problem
	if cq.DeletionTimestamp != nil {
		out = append(out, Problem{kueue.ReasonTerminating, "it is being deleted"})
	}
	if by := StoppedBy(cq.Spec.StopPolicy); by != "" {
		out = append(out, Problem{kueue.ReasonStopped, "it is stopped " + by})
	}
	var missing, unplaced []string
	for _, g := range cq.Spec.ResourceGroups {
		for _, f := range g.Flavors {
			switch flavor := known.Flavor(f.Name); {
			case flavor == nil:
				missing = append(missing, string(f.Name))
			case flavor.Spec.TopologyName != "" && !known.Topology(flavor.Spec.TopologyName):
				unplaced = append(unplaced, fmt.Sprintf("%s of flavor %s", flavor.Spec.TopologyName, f.Name))
			}
		}
	}
	out = unless(out, missing, kueue.ReasonFlavorNotFound, "ResourceFlavors not found: ")
	checks, remote := checkProblems(cq, known)
	if out = append(out, checks...); !remote { // the nodes of worker clusters have topologies of their own
		out = unless(out, unplaced, kueue.ReasonTopologyNotFound, "Topologies not found: ")
	}
	if circle := quota.Circle(string(cq.Spec.CohortName), known.Parent); circle != nil {
		out = append(out, Problem{kueue.ReasonUnknown, quota.InCircle(circle)})
	}
	return out
}

// checkProblems returns the problems with the admission checks, and whether workloads are
// sent to other clusters.
func checkProblems(cq *kueue.ClusterQueue, known Known) (out []Problem, sent bool) {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil, false
	}
	var missing, inactive, remote, perFlavor, provisioning []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		name, check := string(rule.Name), known.Check(rule.Name)
		if check == nil {
			missing = append(missing, name)
			continue
		}
		if !apimeta.IsStatusConditionTrue(check.Status.Conditions, kueue.AdmissionCheckActive) {
			inactive = append(inactive, name)
		}
		switch check.Spec.ControllerName {
		case kueue.MultiKueueControllerName:
			remote = append(remote, name)
			if len(rule.OnFlavors) > 0 && !lifecycle.HasAllFlavors(cq, rule.OnFlavors) {
				perFlavor = append(perFlavor, name)
			}
		case kueue.ProvisioningRequestControllerName:
			provisioning = append(provisioning, name)
		}
	}
	out = unless(out, missing, kueue.ReasonAdmissionCheckNotFound, "AdmissionChecks not found: ")
	out = unless(out, inactive, kueue.ReasonAdmissionCheckInactive, "AdmissionChecks that are not active (see their condition Active): ")
	if len(remote) > 1 {
		out = unless(out, remote, kueue.ReasonMultipleMultiKueueAdmissionChecks, "only one MultiKueue check is allowed, found: ")
	}
	if len(remote) > 0 && variants.PolicyOf(cq, known.Variants) != nil {
		out = append(out, Problem{
			kueue.ReasonMultiKueueWithConcurrentAdmission,
			"spec.concurrentAdmissionPolicy does not work with a MultiKueue check in spec.admissionChecksStrategy: " + strings.Join(remote, ", "),
		})
	}
	out = unless(out, perFlavor, kueue.ReasonMultiKueueAdmissionCheckAppliedPerFlavor, "a MultiKueue check must be for all flavors, so onFlavors has all of them or none: ")
	if len(remote) > 0 {
		out = unless(out, provisioning, kueue.ReasonMultiKueueWithProvisioningRequest, "beside a MultiKueue check there may be no provisioning check: ")
	}
	return out, len(remote) > 0
}

// NamesFlavor reports whether a ClusterQueue defines quota of a flavor.
func NamesFlavor(cq *kueue.ClusterQueue, name string) bool {
	return slices.ContainsFunc(cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool {
		return slices.ContainsFunc(g.Flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == name })
	})
}

// NamesCheck reports whether a ClusterQueue requires an admission check.
func NamesCheck(cq *kueue.ClusterQueue, name string) bool {
	return cq.Spec.AdmissionChecksStrategy != nil && slices.ContainsFunc(cq.Spec.AdmissionChecksStrategy.AdmissionChecks,
		func(r kueue.AdmissionCheckStrategyRule) bool { return string(r.Name) == name })
}

// unless adds a problem with the given names, unless there are none.
func unless(out []Problem, names []string, reason, message string) []Problem {
	if len(names) == 0 {
		return out
	}
	slices.Sort(names)
	return append(out, Problem{reason, message + strings.Join(slices.Compact(names), ", ")})
}

// Sentence joins problems, "" for none.
func Sentence(problems []Problem) string {
	parts := make([]string, 0, len(problems))
	for _, p := range problems {
		parts = append(parts, p.Message)
	}
	return strings.Join(parts, "; ")
}

func tolerations(in []corev1.Toleration) []workload.Toleration {
	var out []workload.Toleration
	for _, t := range in {
		out = append(out, workload.Toleration{Key: t.Key, Operator: string(t.Operator), Value: t.Value, Effect: string(t.Effect)})
	}
	return out
}
