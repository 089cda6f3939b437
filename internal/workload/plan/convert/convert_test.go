package convert

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// spec: 10 §4.2, §4.3.1: cpu in milli, others in units, both rounded up, saturating.
func TestAmount(t *testing.T) {
	cases := map[string]struct {
		name     corev1.ResourceName
		quantity string
		want     resource.Amount
	}{
		"cores":                   {corev1.ResourceCPU, "2", 2000},
		"part of a millicore":     {corev1.ResourceCPU, "0.0001", 1},
		"bytes":                   {corev1.ResourceMemory, "1Gi", 1 << 30},
		"part of a unit":          {"nvidia.com/gpu", "500m", 1},
		"none":                    {"nvidia.com/gpu", "0", 0},
		"9E cores are unlimited":  {corev1.ResourceCPU, "9E", resource.Unlimited},
		"more bytes than int64":   {corev1.ResourceMemory, "10E", resource.Unlimited},
		"a billion digits":        {corev1.ResourceCPU, "1e999999999", resource.Unlimited},
		"a billion digits of 0":   {corev1.ResourceMemory, "0e999999999", 0},
		"a million digits":        {corev1.ResourceMemory, "1e999999", resource.Unlimited},
		"the most cores below it": {corev1.ResourceCPU, "9223372036854774", 9223372036854774000},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Amount(tc.name, apiresource.MustParse(tc.quantity)); got != tc.want {
				t.Errorf("Amount(%s, %s) = %d, want %d", tc.name, tc.quantity, got, tc.want)
			}
		})
	}
}

// Converting an amount of any resource to a quantity and back changes nothing.
func FuzzQuantityRoundTrip(f *testing.F) {
	f.Add(int64(1500), uint8(0))
	f.Add(int64(math.MaxInt64-1), uint8(1))
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "nvidia.com/gpu"}
	f.Fuzz(func(t *testing.T, n int64, which uint8) {
		name := names[int(which)%len(names)]
		if n < 0 || (name == corev1.ResourceCPU && n/1000 >= math.MaxInt64/1000) {
			t.Skip()
		}
		if got := Amount(name, Quantity(name, resource.Amount(n))); got != resource.Amount(n) {
			t.Errorf("%s: %d came back as %d", name, n, got)
		}
	})
}

func requests(list string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse(list)}}
}

var created = metav1.NewTime(time.Unix(1000, 0))

func workloadWith(conditions ...metav1.Condition) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "u", ResourceVersion: "7", CreationTimestamp: created},
		Spec: kueue.WorkloadSpec{QueueName: "lq", Priority: new(int32(5)), PodSets: []kueue.PodSet{{
			Name: "main", Count: 8, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: requests("1")}}}},
		}}},
		Status: kueue.WorkloadStatus{Conditions: conditions},
	}
}

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(time.Unix(2000, 0))}
}

// spec: 10 §4.4: which workloads may queue, and their queue timestamps.
func TestPlaceInLine(t *testing.T) {
	yes, no := metav1.ConditionTrue, metav1.ConditionFalse
	inLine, late := workload.Instant(1000e9), workload.Instant(2000e9)
	cases := map[string]struct {
		w         *kueue.Workload
		change    func(*kueue.Workload)
		queueable bool
		resting   bool
		since     workload.Instant
	}{
		"new":                         {w: workloadWith(), queueable: true, since: inLine},
		"finished":                    {w: workloadWith(condition(kueue.WorkloadFinished, yes, "Succeeded")), since: inLine},
		"deactivated":                 {w: workloadWith(), change: func(w *kueue.Workload) { w.Spec.Active = new(false) }, since: inLine},
		"being deleted":               {w: workloadWith(), change: func(w *kueue.Workload) { w.DeletionTimestamp = &created }, since: inLine},
		"gated":                       {w: workloadWith(), change: func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "a/b"} }, since: inLine},
		"gates removed":               {w: workloadWith(), change: func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: ""} }, queueable: true, since: inLine},
		"on hold":                     {w: workloadWith(condition(kueue.WorkloadQuotaReserved, no, kueue.ReasonOnHold)), since: inLine},
		"short of members":            {w: workloadWith(condition(kueue.WorkloadWaitingForReplacementPods, yes, "Preempted")), since: inLine},
		"held back after eviction":    {w: workloadWith(condition(kueue.WorkloadRequeued, no, kueue.ReasonClusterQueueStopped)), queueable: true, resting: true, since: inLine},
		"until a time":                {w: workloadWith(), change: func(w *kueue.Workload) { w.Status.RequeueState = &kueue.RequeueState{RequeueAt: &created} }, queueable: true, resting: true, since: inLine},
		"preempted keeps its place":   {w: workloadWith(condition(kueue.WorkloadEvicted, yes, kueue.ReasonPreempted), condition(kueue.WorkloadRequeued, yes, kueue.ReasonPreempted)), queueable: true, since: inLine},
		"never ready goes to the end": {w: workloadWith(condition(kueue.WorkloadEvicted, yes, kueue.ReasonPodsReadyTimeout)), queueable: true, since: late},
		"refused by a check as well":  {w: workloadWith(condition(kueue.WorkloadEvicted, yes, kueue.ReasonAdmissionCheck)), queueable: true, since: late},
		"but not once it ran again":   {w: workloadWith(condition(kueue.WorkloadEvicted, no, kueue.ReasonQuotaReserved)), queueable: true, since: inLine},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(tc.w)
			}
			got := Workload(tc.w, Requests{Gated: true})
			if got.Queueable != tc.queueable || got.Resting != tc.resting || got.Since != tc.since {
				t.Errorf("queueable %v resting %v since %d, want %v %v %d", got.Queueable, got.Resting, got.Since, tc.queueable, tc.resting, tc.since)
			}
			if got.Version != 7 || got.Key() != "ns/w" || got.Priority != 5 || got.LocalQueue != "lq" {
				t.Errorf("identity came out as %+v", got)
			}
		})
	}
}

// spec: 10 §4.2, §4.9: a reservation is the written usage, less the share of pods that will not run again.
func TestReservation(t *testing.T) {
	reserved := condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved)
	admission := func(count *int32, cpu string) *kueue.Admission {
		return &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot"},
			ResourceUsage: corev1.ResourceList{"cpu": apiresource.MustParse(cpu)},
		}}}
	}
	cases := map[string]struct {
		change func(*kueue.Workload)
		want   []state.Held
	}{
		"as recorded": {func(w *kueue.Workload) { w.Status.Admission = admission(new(int32(8)), "8") }, []state.Held{{PodSet: "main", Flavor: "spot", Resource: "cpu", Amount: 8000}}},
		"a missing count is the spec's": {func(w *kueue.Workload) {
			w.Status.Admission = admission(nil, "8")
			w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 3}}
		}, []state.Held{{PodSet: "main", Flavor: "spot", Resource: "cpu", Amount: 5000}}},
		"divided before multiplied": {func(w *kueue.Workload) {
			w.Status.Admission = admission(new(int32(8)), "10m")
			w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
		}, []state.Held{{PodSet: "main", Flavor: "spot", Resource: "cpu", Amount: 7}}},
		"a partly admitted set shrinks only below its own count": {func(w *kueue.Workload) {
			w.Status.Admission = admission(new(int32(4)), "4")
			w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 3}}
		}, []state.Held{{PodSet: "main", Flavor: "spot", Resource: "cpu", Amount: 4000}}},
		"finished holds nothing": {func(w *kueue.Workload) {
			w.Status.Admission = admission(new(int32(8)), "8")
			w.Status.Conditions = append(w.Status.Conditions, condition(kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded"))
		}, nil},
		"deactivated holds nothing": {func(w *kueue.Workload) {
			w.Status.Admission, w.Spec.Active = admission(new(int32(8)), "8"), new(false)
		}, nil},
		"a condition without admission holds nothing": {func(*kueue.Workload) {}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := workloadWith(reserved)
			tc.change(w)
			got := Workload(w, Requests{})
			if diff := cmp.Diff(tc.want, got.Held); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			if got.Reserved != (tc.want != nil) {
				t.Errorf("reserved = %v", got.Reserved)
			}
		})
	}
}

// Reading the admission of a grant yields the grant as held usage.
func TestAdmissionRoundTrip(t *testing.T) {
	grant := state.Grant{Queue: "cq", PodSets: []state.PodSetGrant{{Name: "main", Count: 8, Held: []state.Held{
		{PodSet: "main", Flavor: "spot", Resource: "cpu", Amount: 1500}, {PodSet: "main", Flavor: "a100", Resource: "nvidia.com/gpu", Amount: 8},
	}}}}
	w := workloadWith(condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved))
	w.Status.Admission = Admission(grant, Requests{})
	got := Workload(w, Requests{})
	if diff := cmp.Diff(grant.PodSets[0].Held, got.Held); diff != "" || got.Queue != "cq" {
		t.Errorf("queue %q, held (-want +got):\n%s", got.Queue, diff)
	}
}

// spec: 10 §2.2, §4.13.
func TestQueue(t *testing.T) {
	cq := &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: "cq"},
		Spec: kueue.ClusterQueueSpec{
			CohortName: "org", QueueingStrategy: kueue.StrictFIFO, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"b": "2", "a": "1"}},
			ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
				Name:      "spot",
				Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: apiresource.MustParse("4"), LendingLimit: new(apiresource.MustParse("1"))}},
			}}}},
			Preemption: &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: kueue.ReclaimAny, WithinClusterQueue: kueue.PreemptionLowerPriority,
				BorrowWithinCohort: &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortLowerPriority, MaxPriorityThreshold: new(int32(9))},
			},
		},
	}
	got, err := Queue(cq, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := state.Group{Resources: []string{"cpu"}, Flavors: []state.FlavorQuota{{Flavor: "spot", Resources: []state.Quota{
		{Resource: "cpu", Nominal: 4000, Borrow: quota.NoLimit, Lend: 1000},
	}}}}
	if diff := cmp.Diff([]state.Group{want}, got.Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if !got.Strict || got.Cohort != "org" || !got.Preemption.BorrowWithin || *got.Preemption.Threshold != 9 {
		t.Errorf("policies came out as %+v", got)
	}
	if got.Namespaces[0].Matches(map[string]string{"a": "1"}) || !got.Namespaces[0].Matches(map[string]string{"a": "1", "b": "2", "c": "3"}) {
		t.Error("the namespace selector matches others than it should")
	}
	if none, _ := selector(nil); none != nil {
		t.Error("no selector must select nothing")
	}
	if all, _ := selector(&metav1.LabelSelector{}); len(all) != 1 || !all[0].Matches(nil) {
		t.Error("the empty selector must select everything")
	}
}

// Weights are exact, up to the largest. spec: 20 §2.1, §4.1.
func TestWeight(t *testing.T) {
	for text, want := range map[string]quota.Weight{
		"0": 0, "1": quota.DefaultWeight, "2500m": 2.5e9, "100u": 100_000, "900u": 900_000, "2n": 2, "1.000000001": 1_000_000_001,
		"9223372035": 9_223_372_035_000_000_000, "9223372036": math.MaxInt64, "10G": math.MaxInt64, "1E": math.MaxInt64, "100E": math.MaxInt64, "1e999999999": math.MaxInt64,
	} {
		if got := *weight(&kueue.FairSharing{Weight: new(apiresource.MustParse(text))}); got != want {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
	if got := weight(&kueue.FairSharing{}); got != nil {
		t.Errorf("the default is %d", *got)
	}
}

// The topology that a flavor names has levels once it exists. spec: 20 §4.5.
func TestFlavor(t *testing.T) {
	rf := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "tas"}, Spec: kueue.ResourceFlavorSpec{TopologyName: "racks"}}
	racks := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}}}}
	if diff := cmp.Diff(flavor.Flavor{Name: "tas", Topology: "racks"}, Flavor(rf, nil)); diff != "" {
		t.Errorf("without it (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(flavor.Flavor{Name: "tas", Topology: "racks", Levels: []string{"rack"}}, Flavor(rf, racks)); diff != "" {
		t.Errorf("with it (-want +got):\n%s", diff)
	}
}

// TestQueueBackfill: a value that the webhook has not refused closes the queue, or ends the command that read it.
func TestQueueBackfill(t *testing.T) {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	for _, value := range []cycle.Backfill{cycle.Easy, cycle.Conservative} {
		cq.Annotations["berth.dev/backfill"] = string(value)
		if def, err := Queue(cq, nil); err != nil || def.Backfill != value {
			t.Errorf("%s: %q, %v", value, def.Backfill, err)
		}
	}
	cq.Annotations["berth.dev/backfill"] = "eager"
	const want = `metadata.annotations[berth.dev/backfill]: must be easy or conservative; leave the annotation out for none`
	if _, err := Queue(cq, nil); err == nil || err.Error() != want {
		t.Errorf("another value: %v, want %s", err, want)
	}
}

func TestProblems(t *testing.T) {
	flavors := []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{Name: "spot"}, {Name: "gone"}}}}
	known := Known{
		Variants: true,
		Flavor: func(name kueue.ResourceFlavorReference) *kueue.ResourceFlavor {
			flavor := &kueue.ResourceFlavor{}
			if topology, placed := strings.CutPrefix(string(name), "placed-by-"); placed {
				flavor.Spec.TopologyName = kueue.TopologyReference(topology)
			}
			if name == "gone" {
				return nil
			}
			return flavor
		},
		Topology: func(name kueue.TopologyReference) bool { return name != "nobody" },
		Parent:   func(cohort string) string { return map[string]string{"a": "b", "b": "c", "c": "b"}[cohort] },
		Check: func(name kueue.AdmissionCheckReference) *kueue.AdmissionCheck {
			kind, state, _ := strings.Cut(string(name), "/")
			check := &kueue.AdmissionCheck{Spec: kueue.AdmissionCheckSpec{ControllerName: "kueue.x-k8s.io/" + kind}}
			if state != "off" {
				check.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
			}
			if state == "gone" {
				return nil
			}
			return check
		},
	}
	checks := func(rules ...kueue.AdmissionCheckStrategyRule) kueue.ClusterQueue {
		return kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{AdmissionChecks: rules}}}
	}
	placed := func(topology string) kueue.ClusterQueue {
		groups := []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference("placed-by-" + topology)}}}}
		return kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{ResourceGroups: groups}}
	}
	type rule = kueue.AdmissionCheckStrategyRule
	variants := func(check kueue.AdmissionCheckReference) kueue.ClusterQueue {
		cq := checks(rule{Name: check})
		cq.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{}
		return cq
	}
	onFlavors := func(names ...kueue.ResourceFlavorReference) kueue.ClusterQueue {
		cq := checks(rule{Name: "multikueue", OnFlavors: names})
		cq.Spec.ResourceGroups = append(placed("here").Spec.ResourceGroups, placed("there").Spec.ResourceGroups...)
		return cq
	}
	cases := map[string]struct {
		cq   kueue.ClusterQueue
		want []string
	}{
		"none":                {cq: kueue.ClusterQueue{}},
		"a flavor":            {cq: kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{ResourceGroups: flavors}}, want: []string{kueue.ReasonFlavorNotFound}},
		"checks that pass":    {cq: checks(rule{Name: "any"}, rule{Name: "provisioning-request"}, rule{Name: "any"})},
		"a check is missing":  {cq: checks(rule{Name: "any/gone"}), want: []string{kueue.ReasonAdmissionCheckNotFound}},
		"a check is inactive": {cq: checks(rule{Name: "any/off"}), want: []string{kueue.ReasonAdmissionCheckInactive}},
		"two ways to workers": {cq: checks(rule{Name: "multikueue"}, rule{Name: "multikueue/2"}), want: []string{kueue.ReasonMultipleMultiKueueAdmissionChecks}},
		"workers for a flavor": {
			cq:   onFlavors("placed-by-here"),
			want: []string{kueue.ReasonMultiKueueAdmissionCheckAppliedPerFlavor},
		},
		"workers for each flavor": {cq: onFlavors("placed-by-there", "placed-by-here")},
		"workers beside nodes": {
			cq:   checks(rule{Name: "multikueue"}, rule{Name: "provisioning-request"}),
			want: []string{kueue.ReasonMultiKueueWithProvisioningRequest},
		},
		"a topology":             {cq: placed("nobody"), want: []string{kueue.ReasonTopologyNotFound}},
		"a topology that exists": {cq: placed("racks")},
		"a topology of the workers": {
			cq: kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{
				ResourceGroups: placed("nobody").Spec.ResourceGroups, AdmissionChecksStrategy: checks(rule{Name: "multikueue"}).Spec.AdmissionChecksStrategy,
			}},
		},
		"workers for variants": { // spec: 40 §6 #16
			cq: variants("multikueue"), want: []string{kueue.ReasonMultiKueueWithConcurrentAdmission},
		},
		"checks of variants":  {cq: variants("any")},
		"cohorts in a circle": {cq: kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{CohortName: "a"}}, want: []string{kueue.ReasonUnknown}},
		"one cohort above":    {cq: kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{CohortName: "d"}}},
		"deleted goes before stopped": {
			cq:   kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &created}, Spec: kueue.ClusterQueueSpec{StopPolicy: kueue.StopPolicyHold, ResourceGroups: flavors}},
			want: []string{kueue.ReasonTerminating, kueue.ReasonStopped, kueue.ReasonFlavorNotFound},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range Problems(&tc.cq, known) {
				got = append(got, p.Reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
		})
	}
}

// spec: 10 §4.4 (c): without priorities among the heads of a cohort, a workload that was preempted by a
// borrower is queued behind it.
func TestYieldToBorrowers(t *testing.T) {
	w := workloadWith(condition(kueue.WorkloadPreempted, metav1.ConditionTrue, kueue.ReasonInCohortReclaimWhileBorrowing))
	other := workloadWith(condition(kueue.WorkloadPreempted, metav1.ConditionTrue, kueue.ReasonInCohortReclamation))
	at := workload.Instant(w.Status.Conditions[0].LastTransitionTime.UnixNano())
	created := workload.Instant(w.CreationTimestamp.UnixNano())
	for name, tc := range map[string]struct {
		w     *kueue.Workload
		yield bool
		want  workload.Instant
	}{
		"behind it":           {w, true, at + workload.Instant(time.Millisecond)},
		"with priorities":     {w, false, created},
		"it did not borrow":   {other, true, created},
		"was never preempted": {workloadWith(), true, created},
	} {
		if got := Workload(tc.w, Requests{YieldToBorrowers: tc.yield}).Since; got != tc.want {
			t.Errorf("%s: in line since %d, want %d", name, got, tc.want)
		}
	}
}
