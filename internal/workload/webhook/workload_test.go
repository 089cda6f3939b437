package webhook

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/review/reviewtest"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

func testServer() *server {
	return &server{
		Options: Options{NonNegative: true, PodSetMetadata: true, PriorityBoost: true, SliceSize: true},
		jobs:    &job.Config{AdmissionGatedBy: true, AnnotationIdentifiers: true, PartialAdmission: true},
	}
}

// baseWorkload returns a Workload with two pod sets and no status.
func baseWorkload() *kueue.Workload {
	return &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "a", Count: 3}, {Name: "b", Count: 1}}}}
}

func reserve(w *kueue.Workload) {
	w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: metav1.Now()}}
	w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{
		{Name: "a", Count: new(int32(3)), ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("3Gi")}},
		{Name: "b", Count: new(int32(1))},
	}}
}

// TestLargePods: what the manager would not keep is refused, unless it was so before.
func TestLargePods(t *testing.T) {
	large := baseWorkload()
	large.Spec.PodSets[1].Template.Spec.Tolerations = make([]corev1.Toleration, 1<<15)
	if err := testServer().validateWorkload(t.Context(), nil, large, nil); err == nil || !strings.Contains(err.Error(), "podSets[1].template.spec") {
		t.Errorf("error %v", err)
	}
	if errs := validateSizes(large, large); len(errs) > 0 {
		t.Errorf("it cannot be changed any more: %v", errs)
	}
}

// TestManyResources: a Workload may name a bounded number of resources; one that had more before may still be changed.
func TestManyResources(t *testing.T) {
	of := func(n int) *kueue.Workload {
		w := baseWorkload()
		requests := corev1.ResourceList{}
		for i := range n {
			requests[corev1.ResourceName(fmt.Sprint("example.com/r", i))] = resource.MustParse("1")
		}
		w.Spec.PodSets[1].Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}}
		return w
	}
	for name, tc := range map[string]struct {
		now, old *kueue.Workload
		refused  bool
	}{
		"at the bound": {of(convert.MaxResources), nil, false}, "above it": {of(convert.MaxResources + 1), nil, true},
		"above it now": {of(convert.MaxResources + 1), of(1), true}, "above it before": {of(convert.MaxResources + 1), of(convert.MaxResources + 1), false},
	} {
		if errs := validateResourceNames(tc.now, tc.old); (len(errs) > 0) != tc.refused || (tc.refused && errs[0].Field != "spec.podSets") {
			t.Errorf("%s: %v", name, errs)
		}
	}
	if err := testServer().validateWorkload(t.Context(), nil, of(convert.MaxResources+1), nil); err == nil {
		t.Error("the webhook accepts too many resources")
	}
}

func TestWorkloadRules(t *testing.T) {
	tests := map[string]struct {
		change func(w *kueue.Workload)
		want   []string
	}{
		"plain":       {func(*kueue.Workload) {}, nil},
		"reserved":    {reserve, nil},
		"one minimum": {func(w *kueue.Workload) { w.Spec.PodSets[0].MinCount = new(int32(1)) }, nil},
		"two minima": {
			func(w *kueue.Workload) {
				w.Spec.PodSets[0].MinCount, w.Spec.PodSets[1].MinCount = new(int32(1)), new(int32(1))
			}, []string{"spec.podSets"},
		},
		"slices": {
			func(w *kueue.Workload) {
				w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: new(int32(3))}
			}, nil,
		},
		"slices of no size": {
			func(w *kueue.Workload) {
				w.Spec.PodSets[1].TopologyRequest = &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack")}
			}, []string{"spec.podSets[1].topologyRequest.podSetSliceSize"},
		},
		"a size of no slices": {
			func(w *kueue.Workload) {
				w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{PodSetSliceSize: new(int32(3))}
			}, []string{"spec.podSets[0].topologyRequest.podSetSliceSize"},
		},
		"empty slices": {
			func(w *kueue.Workload) {
				w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: new(int32(0))}
			}, []string{"spec.podSets[0].topologyRequest.podSetSliceSize"},
		},
		"elastic minimum": {
			func(w *kueue.Workload) {
				w.Spec.PodSets[0].MinCount = new(int32(1))
				w.Annotations = map[string]string{kueue.ElasticJobAnnotation: "true"}
			},
			[]string{"spec.podSets[0].minCount"},
		},
		"resources": {
			func(w *kueue.Workload) {
				w.Spec.PodSets[1].Template.Spec = corev1.PodSpec{
					InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"pods": resource.MustParse("1")}}}},
					Containers:     []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("-1")}}}},
					Resources:      &corev1.ResourceRequirements{Requests: corev1.ResourceList{"pods": resource.MustParse("1")}},
				}
			},
			[]string{
				"spec.podSets[1].template.spec.containers[0].resources.requests[cpu]", "spec.podSets[1].template.spec.initContainers[0].resources.limits[pods]",
				"spec.podSets[1].template.spec.resources.requests[pods]",
			},
		},
		"metadata": {
			func(w *kueue.Workload) {
				w.Spec.PodSets[0].Template.Labels = map[string]string{"a": "b c"}
				w.Spec.PodSets[0].Template.Annotations = map[string]string{"a b": "c"}
			},
			[]string{"spec.podSets[0].template.metadata.annotations", "spec.podSets[0].template.metadata.labels"},
		},
		"reserved without admission": {func(w *kueue.Workload) { reserve(w); w.Status.Admission = nil }, []string{"status.admission"}},
		"unknown assignment":         {func(w *kueue.Workload) { reserve(w); w.Status.Admission.PodSetAssignments[1].Name = "x" }, []string{"status.admission.podSetAssignments[1].name"}},
		"unknown assignment without quota": {
			func(w *kueue.Workload) {
				reserve(w)
				w.Status.Conditions, w.Status.Admission.PodSetAssignments[1].Name = nil, "x"
			},
			nil,
		},
		"usage does not divide": {
			func(w *kueue.Workload) {
				reserve(w)
				w.Status.Admission.PodSetAssignments[0].ResourceUsage = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1")}
			},
			[]string{"status.admission.podSetAssignments[0].resourceUsage[cpu]", "status.admission.podSetAssignments[0].resourceUsage[memory]"},
		},
		"condition without a reason": {
			func(w *kueue.Workload) {
				w.Status.Conditions = []metav1.Condition{{Type: "X", Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			},
			[]string{"status.conditions[0].reason"},
		},
		"reclaimable": {
			func(w *kueue.Workload) {
				w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "a", Count: 4}, {Name: "x", Count: 0}}
			},
			[]string{"status.reclaimablePods[1].name", "status.reclaimablePods[a].count"},
		},
		"updates of a check": {
			func(w *kueue.Workload) {
				w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "c", PodSetUpdates: []kueue.PodSetUpdate{
					{Name: "x", Labels: map[string]string{"a b": ""}, NodeSelector: map[string]string{"a": "b c"}, Tolerations: []corev1.Toleration{{Key: "a b"}}},
				}}}
			},
			[]string{
				"status.admissionChecks[0].podSetUpdates[0].labels", "status.admissionChecks[0].podSetUpdates[0].name",
				"status.admissionChecks[0].podSetUpdates[0].nodeSelector", "status.admissionChecks[0].podSetUpdates[0].tolerations[0].key",
			},
		},
		"gates":                  {func(w *kueue.Workload) { w.Annotations = gated(" a.io/x , b.io/y") }, nil},
		"no gates":               {func(w *kueue.Workload) { w.Annotations = gated("") }, nil},
		"gates without a domain": {func(w *kueue.Workload) { w.Annotations = gated("x") }, []string{gateField}},
		"gates with a hole":      {func(w *kueue.Workload) { w.Annotations = gated("a.io/x,,b.io/y") }, []string{gateField}},
		"a gate twice":           {func(w *kueue.Workload) { w.Annotations = gated("a.io/x, a.io/x") }, []string{gateField}},
		"a long gate":            {func(w *kueue.Workload) { w.Annotations = gated("a.io/" + strings.Repeat("x", 59)) }, []string{gateField}},
		"boost":                  {func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.PriorityBoostAnnotation: "-3"} }, nil},
		"boost too large": {
			func(w *kueue.Workload) {
				w.Annotations = map[string]string{kueue.PriorityBoostAnnotation: "3000000000"}
			},
			[]string{"metadata.annotations[kueue.x-k8s.io/priority-boost]"},
		},
		"boost empty": {
			func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.PriorityBoostAnnotation: ""} },
			[]string{"metadata.annotations[kueue.x-k8s.io/priority-boost]"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := baseWorkload()
			tc.change(w)
			if diff := cmp.Diff(tc.want, reviewtest.Run(t, testServer().validateWorkload, w, nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Without the gate TASValidateWorkloadSliceSize half a slice is accepted (spec: 20 §3).
func TestSliceSizeGate(t *testing.T) {
	w := baseWorkload()
	w.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{PodSetSliceSize: new(int32(3))}
	s := testServer()
	s.SliceSize = false
	if got := reviewtest.Run(t, s.validateWorkload, w, nil); len(got) > 0 {
		t.Errorf("refused: %v", got)
	}
}

const gateField = "metadata.annotations[kueue.x-k8s.io/admission-gated-by]"

func gated(value string) map[string]string {
	return map[string]string{kueue.AdmissionGatedByAnnotation: value}
}

func TestWorkloadChanges(t *testing.T) {
	reclaimed := func(w *kueue.Workload, n int32) {
		w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "a", Count: n}}
	}
	elastic := func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.ElasticJobAnnotation: "true"} }
	ready := func(w *kueue.Workload, label string) {
		w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{
			Name: "c", State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{{Name: "a", Labels: map[string]string{"l": label}}},
		}}
	}
	tests := map[string]struct {
		old, change func(w *kueue.Workload) // change starts from old
		want        []string
	}{
		"pod sets before quota":     {func(*kueue.Workload) {}, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 9 }, nil},
		"pod sets with quota":       {reserve, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 1 }, []string{"spec.podSets"}},
		"elastic shrinks":           {func(w *kueue.Workload) { reserve(w); elastic(w) }, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 1 }, nil},
		"elastic grows":             {func(w *kueue.Workload) { reserve(w); elastic(w) }, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 9 }, []string{"spec.podSets"}},
		"reclaimable grows":         {func(w *kueue.Workload) { reserve(w); reclaimed(w, 1) }, func(w *kueue.Workload) { reclaimed(w, 2) }, nil},
		"reclaimable shrinks":       {func(w *kueue.Workload) { reserve(w); reclaimed(w, 2) }, func(w *kueue.Workload) { reclaimed(w, 1) }, []string{"status.reclaimablePods[a].count"}},
		"reclaimable vanishes":      {func(w *kueue.Workload) { reserve(w); reclaimed(w, 2) }, func(w *kueue.Workload) { w.Status.ReclaimablePods = nil }, []string{"status.reclaimablePods[a]"}},
		"reclaimable without quota": {func(w *kueue.Workload) { reclaimed(w, 2) }, func(w *kueue.Workload) { w.Status.ReclaimablePods = nil }, nil},
		"elastic reclaimable shrinks": {
			func(w *kueue.Workload) { reserve(w); elastic(w); reclaimed(w, 2) },
			func(w *kueue.Workload) { reclaimed(w, 1) },
			[]string{"status.reclaimablePods[a].count"},
		},
		"elastic reclaimable shrinks after its pods": {
			func(w *kueue.Workload) { reserve(w); elastic(w); reclaimed(w, 2); w.Spec.PodSets[0].Count = 2 },
			func(w *kueue.Workload) { reclaimed(w, 1) },
			nil,
		},
		"cluster of the nominated": {func(w *kueue.Workload) { w.Status.NominatedClusterNames = []string{"x"} }, func(w *kueue.Workload) { w.Status.ClusterName = "x" }, nil},
		"cluster out of the blue":  {func(w *kueue.Workload) { w.Status.NominatedClusterNames = []string{"x"} }, func(w *kueue.Workload) { w.Status.ClusterName = "y" }, []string{"status.clusterName"}},
		"admission changes":        {reserve, func(w *kueue.Workload) { w.Status.Admission.ClusterQueue = "x" }, []string{"status.admission"}},
		"admission goes":           {reserve, func(w *kueue.Workload) { w.Status = kueue.WorkloadStatus{} }, nil},
		"placement changes": {
			reserve, func(w *kueue.Workload) {
				w.Status.Admission.PodSetAssignments[0].TopologyAssignment = &kueue.TopologyAssignment{}
			}, nil,
		},
		"broken stays broken":        {func(w *kueue.Workload) { reserve(w); w.Status.Admission = nil }, func(*kueue.Workload) {}, nil},
		"updates of a ready check":   {func(w *kueue.Workload) { ready(w, "1") }, func(w *kueue.Workload) { ready(w, "2") }, []string{"status.admissionChecks[0].podSetUpdates"}},
		"updates of a check made":    {func(*kueue.Workload) {}, func(w *kueue.Workload) { ready(w, "2") }, nil},
		"a gate is opened":           {func(w *kueue.Workload) { w.Annotations = gated("a.io/x,a.io/y") }, func(w *kueue.Workload) { w.Annotations = gated("a.io/y") }, nil},
		"gates in another order":     {func(w *kueue.Workload) { w.Annotations = gated("a.io/x,a.io/y") }, func(w *kueue.Workload) { w.Annotations = gated("a.io/y , a.io/x") }, nil},
		"all gates are opened":       {func(w *kueue.Workload) { w.Annotations = gated("a.io/x") }, func(w *kueue.Workload) { w.Annotations = nil }, nil},
		"a gate is added":            {func(w *kueue.Workload) { w.Annotations = gated("a.io/x") }, func(w *kueue.Workload) { w.Annotations = gated("a.io/x,a.io/y") }, []string{gateField}},
		"a gate is added to nothing": {func(*kueue.Workload) {}, func(w *kueue.Workload) { w.Annotations = gated("a.io/x") }, []string{gateField}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := baseWorkload()
			tc.old(old)
			w := old.DeepCopy()
			tc.change(w)
			if diff := cmp.Diff(tc.want, reviewtest.Run(t, testServer().validateWorkload, w, old)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The next slice of an elastic job needs no nomination, while there are such slices.
func TestClusterOfReplacement(t *testing.T) {
	for elastic, want := range map[bool][]string{true: nil, false: {"status.clusterName"}} {
		old := baseWorkload()
		old.Annotations = map[string]string{kueue.WorkloadSliceReplacementForAnnotation: "ns/a"}
		w := old.DeepCopy()
		w.Status.ClusterName = "w1"
		s := testServer()
		s.jobs.ElasticJobs = elastic
		if diff := cmp.Diff(want, reviewtest.Run(t, s.validateWorkload, w, old)); diff != "" {
			t.Errorf("elastic %v: -want +got:\n%s", elastic, diff)
		}
	}
}

func TestDefaultWorkload(t *testing.T) {
	for _, on := range []bool{true, false} {
		s := testServer()
		s.jobs.PartialAdmission = on
		w := baseWorkload()
		w.Spec.PodSets[0].MinCount = new(int32(1))
		if err := s.defaultWorkload(t.Context(), &admission.Request{}, w); err != nil {
			t.Fatal(err)
		}
		if kept := w.Spec.PodSets[0].MinCount != nil; kept != on {
			t.Errorf("partial admission %v: minimum kept %v", on, kept)
		}
		w.Spec.PodSets[0].MinCount = new(int32(1))
		setCondition(w, kueue.WorkloadQuotaReserved, metav1.ConditionTrue)
		if err := s.defaultWorkload(t.Context(), &admission.Request{}, w); err != nil || w.Spec.PodSets[0].MinCount == nil {
			t.Errorf("partial admission %v, with quota: %v, pod sets %v", on, err, w.Spec.PodSets)
		}
	}
}

// TestShrinks: with the feature gate of elastic jobs, counts of any Workload that holds quota may decrease, and nothing else
// may change (spec: 10 §3).
func TestShrinks(t *testing.T) {
	tests := map[string]struct {
		off    bool
		change func(w *kueue.Workload)
		want   []string
	}{
		"shrinks":       {false, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 1 }, nil},
		"grows":         {false, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 9 }, []string{"spec.podSets"}},
		"another name":  {false, func(w *kueue.Workload) { w.Spec.PodSets[0].Name = "z" }, []string{"spec.podSets", "status.admission.podSetAssignments[0].name", "status.reclaimablePods[0].name"}},
		"gate off":      {true, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 1 }, []string{"spec.podSets", "status.reclaimablePods[a].count"}},
		"pods all done": {false, func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 0 }, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testServer()
			s.jobs.ElasticJobs = !tc.off
			old := baseWorkload()
			reserve(old)
			old.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "a", Count: 2}} // more than what may be left
			w := old.DeepCopy()
			tc.change(w)
			if diff := cmp.Diff(tc.want, reviewtest.Run(t, s.validateWorkload, w, old)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
