package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
)

func testServer() *server {
	return &server{o: &Options{
		Jobs:        &job.Config{AdmissionGatedBy: true, AnnotationIdentifiers: true, PartialAdmission: true},
		NonNegative: true, PodSetMetadata: true, PriorityBoost: true,
	}}
}

// fields are the paths of the fields that a refusal names, sorted.
func fields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	r, ok := errors.AsType[refused](err)
	if !ok {
		t.Fatalf("%v is no refusal", err)
	}
	var out []string
	all, _ := errors.AsType[utilerrors.Aggregate](r.error)
	for _, e := range all.Errors() {
		one, _ := errors.AsType[*field.Error](e)
		out = append(out, one.Field)
	}
	slices.Sort(out)
	return out
}

// run asks a validator about a JSON or Go object.
func run(t *testing.T, check validator, object, old client.Object) []string {
	t.Helper()
	return fields(t, check(context.Background(), &admission.Request{}, object, old))
}

// parse reads a ClusterQueue, Cohort or Workload from JSON.
func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	if text == "" {
		return nil
	}
	out := new(T)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// group is a resource group with one resource and one flavor.
func group(resources string) string {
	return `{"coveredResources":["cpu"],"flavors":[{"name":"f","resources":[` + resources + `]}]}`
}

func queue(rest string, groups ...string) string {
	return `{"spec":{"resourceGroups":[` + strings.Join(groups, ",") + `]` + rest + `}}`
}

func manyFlavors(n int) string {
	var flavors []string
	for i := range n {
		flavors = append(flavors, fmt.Sprintf(`{"name":"f%d","resources":[{"name":"cpu","nominalQuota":"1"}]}`, i))
	}
	return `{"coveredResources":["cpu"],"flavors":[` + strings.Join(flavors, ",") + `]}`
}

func manyResources(prefix string, resources, flavors int) string {
	var names, quotas, all []string
	for i := range resources {
		name := fmt.Sprintf("%s%d", prefix, i)
		names = append(names, `"`+name+`"`)
		quotas = append(quotas, fmt.Sprintf(`{"name":%q,"nominalQuota":"1"}`, name))
	}
	for i := range flavors {
		all = append(all, fmt.Sprintf(`{"name":"%s-f%d","resources":[%s]}`, prefix, i, strings.Join(quotas, ",")))
	}
	return `{"coveredResources":[` + strings.Join(names, ",") + `],"flavors":[` + strings.Join(all, ",") + `]}`
}

func TestClusterQueueRules(t *testing.T) {
	const cell = "spec.resourceGroups[0].flavors[0].resources[0]."
	one := group(`{"name":"cpu","nominalQuota":"1"}`)
	checks := func(flavor string) string {
		return `,"admissionChecksStrategy":{"admissionChecks":[{"name":"c","onFlavors":["` + flavor + `"]}]}`
	}
	concurrent := func(mode, last string) string {
		return `,"concurrentAdmissionPolicy":{"migration":{"mode":"` + mode + `","constraints":{"lastAcceptableFlavorName":"` + last + `"}}}`
	}
	tests := map[string]struct {
		queue, old string
		want       []string
	}{
		"plain":             {queue("", one), "", nil},
		"no groups":         {queue(""), "", nil},
		"bad resource name": {queue("", strings.ReplaceAll(one, "cpu", "c pu")), "", []string{"spec.resourceGroups[0].coveredResources[0]"}},
		"resource twice":    {queue("", one, strings.ReplaceAll(one, `"f"`, `"g"`)), "", []string{"spec.resourceGroups[1].coveredResources[0]"}},
		"flavor twice":      {queue("", one, strings.ReplaceAll(one, "cpu", "memory")), "", []string{"spec.resourceGroups[1].flavors[0].name"}},
		"wrong order":       {queue("", group(`{"name":"memory","nominalQuota":"1"}`)), "", []string{cell + "name"}},
		"negative":          {queue("", group(`{"name":"cpu","nominalQuota":"-1"}`)), "", []string{cell + "nominalQuota"}},
		"limits without a cohort": {
			queue("", group(`{"name":"cpu","nominalQuota":"1","borrowingLimit":"1","lendingLimit":"1"}`)), "",
			[]string{cell + "borrowingLimit", cell + "lendingLimit"},
		},
		"limits in a cohort": {queue(`,"cohortName":"c"`, group(`{"name":"cpu","nominalQuota":"1","borrowingLimit":"5","lendingLimit":"1"}`)), "", nil},
		"lends too much":     {queue(`,"cohortName":"c"`, group(`{"name":"cpu","nominalQuota":"1","lendingLimit":"2"}`)), "", []string{cell + "lendingLimit"}},
		"borrows without reclaim": {
			queue(`,"preemption":{"reclaimWithinCohort":"Never","borrowWithinCohort":{"policy":"LowerPriority"}}`, one), "",
			[]string{"spec.preemption.borrowWithinCohort.policy"},
		},
		"preference": {
			queue(`,"flavorFungibility":{"whenCanBorrow":"TryNextFlavor","whenCanPreempt":"MayStopSearch","preference":"BorrowingOverPreemption"}`, one), "",
			[]string{"spec.flavorFungibility.preference"},
		},
		"weight too small": {queue(`,"fairSharing":{"weight":"1n"}`, one), "", []string{"spec.fairSharing.weight"}},
		"weight":           {queue(`,"fairSharing":{"weight":"2n"}`, one), "", nil},
		"weight zero":      {queue(`,"fairSharing":{"weight":"0"}`, one), "", nil},
		"weight negative":  {queue(`,"fairSharing":{"weight":"-1"}`, one), "", []string{"spec.fairSharing.weight"}},
		"selector": {
			queue(`,"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}`, one), "",
			[]string{"spec.namespaceSelector.matchExpressions[0].operator"},
		},
		"256 flavors":         {queue("", manyFlavors(256)), "", nil},
		"257 flavors":         {queue("", manyFlavors(257)), "", []string{"spec.resourceGroups"}},
		"512 cells":           {queue("", manyResources("r", 8, 64)), "", nil},
		"513 cells":           {queue("", manyResources("r", 9, 57)), "", []string{"spec.resourceGroups[0]"}},
		"257 resources":       {queue("", manyResources("a", 128, 1), manyResources("b", 129, 1)), "", []string{"spec.resourceGroups"}},
		"check on a flavor":   {queue(checks("f"), one), "", nil},
		"check on no flavor":  {queue(checks("x"), one), "", []string{"spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]"}},
		"unchanged mistake":   {queue(checks("x"), one), queue(checks("x"), one), nil},
		"mistake, new flavor": {queue(checks("x"), one), queue(checks("x"), strings.ReplaceAll(one, `"f"`, `"g"`)), []string{"spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]"}},
		"another mistake":     {queue(checks("x"), one), queue(checks("y"), one), []string{"spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]"}},
		"concurrent":          {queue(concurrent("TryPreferredFlavors", "f"), one), "", nil},
		"concurrent, unknown flavor": {
			queue(concurrent("TryPreferredFlavors", "x"), one), "", []string{"spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName"},
		},
		"concurrent, constraints of another mode": {
			queue(concurrent("RetainFirstAdmission", "f"), one), "", []string{"spec.concurrentAdmissionPolicy.migration.constraints"},
		},
		"concurrent, strict": {queue(`,"queueingStrategy":"StrictFIFO"`+concurrent("TryPreferredFlavors", "f"), one), "", []string{"spec.queueingStrategy"}},
		"concurrent, two groups": {
			queue(concurrent("TryPreferredFlavors", "f"), one, manyResources("r", 1, 1)), "", []string{"spec.resourceGroups"},
		},
		"concurrent, 17 flavors": {queue(concurrent("TryPreferredFlavors", "f0"), manyFlavors(17)), "", []string{"spec.resourceGroups[0].flavors"}},
		"concurrent, later":      {queue(concurrent("TryPreferredFlavors", "f"), one), queue("", one), []string{"spec.concurrentAdmissionPolicy"}},
		"all at once": {
			queue(`,"fairSharing":{"weight":"-1"}`, group(`{"name":"cpu","nominalQuota":"-1","borrowingLimit":"1"}`)), "",
			[]string{"spec.fairSharing.weight", cell + "borrowingLimit", cell + "nominalQuota"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var old client.Object
			if tc.old != "" {
				old = parse[kueue.ClusterQueue](t, tc.old)
			}
			if diff := cmp.Diff(tc.want, run(t, testServer().validateClusterQueue(), parse[kueue.ClusterQueue](t, tc.queue), old)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	strict := testServer()
	strict.o.StrictOnFlavors = true
	q := parse[kueue.ClusterQueue](t, queue(checks("x"), one))
	if got := run(t, strict.validateClusterQueue(), q, q); len(got) != 1 {
		t.Errorf("the strict gate lets an unchanged mistake pass: %v", got)
	}
}

func TestCohortRules(t *testing.T) {
	const cell = "spec.resourceGroups[0].flavors[0].resources[0]."
	limits := group(`{"name":"cpu","nominalQuota":"1","borrowingLimit":"1","lendingLimit":"5"}`)
	tests := map[string]struct {
		cohort string
		want   []string
	}{
		"root":                  {queue("", group(`{"name":"cpu","nominalQuota":"1"}`)), nil},
		"root with limits":      {queue("", limits), []string{cell + "borrowingLimit", cell + "lendingLimit"}},
		"lends what is others'": {queue(`,"parentName":"p"`, limits), nil},
		"weight":                {queue(`,"fairSharing":{"weight":"-1"}`), []string{"spec.fairSharing.weight"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, run(t, testServer().validateCohort(), parse[kueue.Cohort](t, tc.cohort), nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestResourceFlavorRules(t *testing.T) {
	tests := map[string]struct {
		spec kueue.ResourceFlavorSpec
		want []string
	}{
		"plain":            {kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "a"}}, nil},
		"bad label":        {kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "a b"}}, []string{"spec.nodeLabels"}},
		"bad taint":        {kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{{Key: "a b", Value: "c d", Effect: "NoSchedule"}}}, []string{"spec.nodeTaints[0].key", "spec.nodeTaints[0].value"}},
		"taint twice":      {kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Value: "x", Effect: "NoSchedule"}}}, []string{"spec.nodeTaints[1]"}},
		"two effects":      {kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoExecute"}}}, nil},
		"bad toleration":   {kueue.ResourceFlavorSpec{Tolerations: []corev1.Toleration{{Key: "a b"}}}, []string{"spec.tolerations[0].key"}},
		"tolerates it all": {kueue.ResourceFlavorSpec{Tolerations: []corev1.Toleration{{Operator: "Exists"}}}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, run(t, testServer().validateResourceFlavor(), &kueue.ResourceFlavor{Spec: tc.spec}, nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// baseWorkload has two pod sets and no status.
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
			if diff := cmp.Diff(tc.want, run(t, testServer().validateWorkload(), w, nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
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
			if diff := cmp.Diff(tc.want, run(t, testServer().validateWorkload(), w, old)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestReplacementGoesToItsCluster is that the next slice of an elastic job needs no nomination, while there are such slices.
func TestReplacementGoesToItsCluster(t *testing.T) {
	for elastic, want := range map[bool][]string{true: nil, false: {"status.clusterName"}} {
		old := baseWorkload()
		old.Annotations = map[string]string{kueue.WorkloadSliceReplacementForAnnotation: "ns/a"}
		w := old.DeepCopy()
		w.Status.ClusterName = "w1"
		s := testServer()
		s.o.Jobs.ElasticJobs = elastic
		if diff := cmp.Diff(want, run(t, s.validateWorkload(), w, old)); diff != "" {
			t.Errorf("elastic %v: -want +got:\n%s", elastic, diff)
		}
	}
}

func TestJobRules(t *testing.T) {
	const label, annotation = "metadata.labels[kueue.x-k8s.io/", "metadata.annotations[kueue.x-k8s.io/"
	type change func(j *batchv1.Job)
	set := func(key, value string) change {
		return func(j *batchv1.Job) {
			if value == "" {
				delete(j.Labels, key)
			} else {
				j.Labels[key] = value
			}
		}
	}
	annotate := func(key, value string) change { return func(j *batchv1.Job) { j.Annotations[key] = value } }
	runs := func(j *batchv1.Job) { j.Spec.Suspend = new(false) }
	both := func(a, b change) change { return func(j *batchv1.Job) { a(j); b(j) } }
	tests := map[string]struct {
		old, change  change // without old it is a new job
		defaultQueue bool
		want         []string
	}{
		"plain":                          {change: func(*batchv1.Job) {}},
		"bad queue":                      {change: set(kueue.QueueNameLabel, "A_B"), want: []string{label + "queue-name]"}},
		"bad workload":                   {change: set(kueue.PrebuiltWorkloadLabel, "A_B"), want: []string{label + "prebuilt-workload-name]"}},
		"bad workload, annotation":       {change: annotate(kueue.PrebuiltWorkloadLabel, "A_B"), want: []string{annotation + "prebuilt-workload-name]"}},
		"only the one in effect":         {change: both(set(kueue.PrebuiltWorkloadLabel, "A_B"), annotate(kueue.PrebuiltWorkloadLabel, "ok"))},
		"time is no number":              {change: set(kueue.MaxExecTimeSecondsLabel, "x"), want: []string{label + "max-exec-time-seconds]"}},
		"gates":                          {change: annotate(kueue.AdmissionGatedByAnnotation, "x"), want: []string{annotation + "admission-gated-by]"}},
		"queue changes while suspended":  {old: func(*batchv1.Job) {}, change: set(kueue.QueueNameLabel, "b")},
		"queue changes while it runs":    {old: runs, change: set(kueue.QueueNameLabel, "b"), want: []string{label + "queue-name]"}},
		"queue and start at once":        {old: set(kueue.QueueNameLabel, ""), change: both(set(kueue.QueueNameLabel, "b"), runs), want: []string{label + "queue-name]"}},
		"queue is removed":               {old: func(*batchv1.Job) {}, change: set(kueue.QueueNameLabel, "")},
		"queue is removed, default":      {old: func(*batchv1.Job) {}, change: set(kueue.QueueNameLabel, ""), defaultQueue: true, want: []string{label + "queue-name]"}},
		"a stop under way is no suspend": {old: runs, change: both(func(j *batchv1.Job) { j.Spec.Suspend = new(true) }, both(annotate(kueue.JobStoppingAnnotation, "true"), set(kueue.QueueNameLabel, "b"))), want: []string{label + "queue-name]"}},
		"workload named while suspended": {old: func(*batchv1.Job) {}, change: set(kueue.PrebuiltWorkloadLabel, "w")},
		"workload named while it runs":   {old: runs, change: set(kueue.PrebuiltWorkloadLabel, "w"), want: []string{label + "prebuilt-workload-name]"}},
		"workload moves to annotation": {
			old:    both(runs, set(kueue.PrebuiltWorkloadLabel, "w")),
			change: both(set(kueue.PrebuiltWorkloadLabel, ""), annotate(kueue.PrebuiltWorkloadLabel, "w")),
		},
		"time while suspended":           {old: func(*batchv1.Job) {}, change: set(kueue.MaxExecTimeSecondsLabel, "5")},
		"time while it starts":           {old: func(*batchv1.Job) {}, change: both(runs, set(kueue.MaxExecTimeSecondsLabel, "5")), want: []string{label + "max-exec-time-seconds]"}},
		"class is added":                 {old: func(*batchv1.Job) {}, change: set(kueue.PriorityClassLabel, "p")},
		"class is added while it runs":   {old: runs, change: set(kueue.PriorityClassLabel, "p"), want: []string{label + "priority-class]"}},
		"class is changed while it runs": {old: both(runs, set(kueue.PriorityClassLabel, "p")), change: set(kueue.PriorityClassLabel, "q")},
		"class is removed":               {old: set(kueue.PriorityClassLabel, "p"), change: set(kueue.PriorityClassLabel, ""), want: []string{label + "priority-class]"}},
		"elastic later":                  {old: func(*batchv1.Job) {}, change: annotate(kueue.ElasticJobAnnotation, "true"), want: []string{annotation + "elastic-job]"}},
		"gates later":                    {old: func(*batchv1.Job) {}, change: annotate(kueue.AdmissionGatedByAnnotation, "a.io/x"), want: []string{annotation + "admission-gated-by]"}},
		"all at once": {
			old: runs, change: both(set(kueue.QueueNameLabel, "A_B"), set(kueue.MaxExecTimeSecondsLabel, "x")),
			want: []string{label + "max-exec-time-seconds]", label + "max-exec-time-seconds]", label + "queue-name]", label + "queue-name]"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			j := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kueue.QueueNameLabel: "a"}, Annotations: map[string]string{}},
				Spec:       batchv1.JobSpec{Suspend: new(true)},
			}
			rules := jobRules{cfg: testServer().o.Jobs, d: all.Descriptors()[0], job: j, hasDefaultQueue: tc.defaultQueue}
			check := rules.create
			if tc.old != nil {
				tc.old(j)
				rules.old, check = j.DeepCopy(), rules.update
			}
			tc.change(j)
			if diff := cmp.Diff(tc.want, fields(t, refuse(check()))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDefaultWorkload(t *testing.T) {
	for _, on := range []bool{true, false} {
		s := testServer()
		s.o.Jobs.PartialAdmission = on
		w := baseWorkload()
		w.Spec.PodSets[0].MinCount = new(int32(1))
		if err := s.defaultWorkload()(t.Context(), &admission.Request{}, w); err != nil {
			t.Fatal(err)
		}
		if kept := w.Spec.PodSets[0].MinCount != nil; kept != on {
			t.Errorf("partial admission %v: minimum kept %v", on, kept)
		}
	}
}

// TestUnknownFieldsSurvive sends a job with a field that this version does not know through a mutation.
func TestUnknownFieldsSurvive(t *testing.T) {
	s := testServer()
	s.scheme = newTestScheme(t)
	raw := `{"metadata":{"name":"x"},"spec":{"fieldOfTheFuture":1,"template":{}}}`
	req := admission.Request{}
	req.Object.Raw = []byte(raw)
	response := s.mutate(t.Context(), &req, batchv1.SchemeGroupVersion.WithKind("Job"), func(_ context.Context, _ *admission.Request, o client.Object) error {
		o.(*batchv1.Job).Spec.Suspend = new(true)
		return nil
	})
	if len(response.Patches) != 1 || response.Patches[0].Path != "/spec/suspend" || response.Patches[0].Operation != "add" {
		t.Errorf("patches %v", response.Patches)
	}
}

func TestConfigurations(t *testing.T) {
	o := Options{
		Jobs: &job.Config{Kinds: job.Kinds{batchv1.SchemeGroupVersion.WithKind("Job"): true}}, Descriptors: all.Descriptors(),
		Namespaces: metav1.LabelSelector{MatchLabels: map[string]string{"managed": "yes"}},
	}
	mutating, validating := Configurations(Target{Service: "hooks", Namespace: "sys", CABundle: []byte("ca")}, o)
	var got []string
	line := func(name string, c admissionregistration.WebhookClientConfig, r admissionregistration.RuleWithOperations, s *metav1.LabelSelector) {
		got = append(got, fmt.Sprintf("%s %s/%s%s %v %v restricted %v", name, c.Service.Namespace, c.Service.Name, *c.Service.Path, r.Resources, r.Operations, s != nil))
	}
	for _, w := range mutating.Webhooks {
		line(w.Name, w.ClientConfig, w.Rules[0], w.NamespaceSelector)
	}
	for _, w := range validating.Webhooks {
		line(w.Name, w.ClientConfig, w.Rules[0], w.NamespaceSelector)
	}
	const kueuePath = "kueue-x-k8s-io-v1beta2-"
	want := []string{
		"mjob.kb.io sys/hooks/mutate-batch-v1-job [jobs] [CREATE] restricted true",
		"default.mjob.kb.io sys/hooks/mutate-batch-v1-job [jobs] [CREATE] restricted true",
		"mclusterqueue.kb.io sys/hooks/mutate-" + kueuePath + "clusterqueue [clusterqueues] [CREATE] restricted false",
		"mresourceflavor.kb.io sys/hooks/mutate-" + kueuePath + "resourceflavor [resourceflavors] [CREATE] restricted false",
		"mworkload.kb.io sys/hooks/mutate-" + kueuePath + "workload [workloads] [CREATE] restricted false",
		"vjob.kb.io sys/hooks/validate-batch-v1-job [jobs] [CREATE UPDATE] restricted true",
		"vclusterqueue.kb.io sys/hooks/validate-" + kueuePath + "clusterqueue [clusterqueues] [CREATE UPDATE] restricted false",
		"vcohort.kb.io sys/hooks/validate-" + kueuePath + "cohort [cohorts] [CREATE UPDATE] restricted false",
		"vlocalqueue.kb.io sys/hooks/validate-" + kueuePath + "localqueue [localqueues] [CREATE UPDATE] restricted false",
		"vresourceflavor.kb.io sys/hooks/validate-" + kueuePath + "resourceflavor [resourceflavors] [CREATE UPDATE] restricted false",
		"vworkload.kb.io sys/hooks/validate-" + kueuePath + "workload [workloads workloads/status] [CREATE UPDATE] restricted false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, w := range validating.Webhooks {
		if ignored := *w.FailurePolicy == admissionregistration.Ignore; ignored != (w.Name == "vlocalqueue.kb.io") {
			t.Errorf("%s: failure policy %s", w.Name, *w.FailurePolicy)
		}
	}
	o.Jobs.Kinds = nil
	if mutating, _ = Configurations(Target{URL: "https://127.0.0.1:1/"}, o); *mutating.Webhooks[0].ClientConfig.URL != "https://127.0.0.1:1/mutate-kueue-x-k8s-io-v1beta2-clusterqueue" {
		t.Errorf("a kind that is not enabled has a webhook, or the URL is wrong: %s", *mutating.Webhooks[0].ClientConfig.URL)
	}
}

// TestServedAsConfigured: a webhook that is configured is served, whatever KubeRay turns out to be in the cluster: with one that nobody
// serves no pod of Ray's could be made.
func TestServedAsConfigured(t *testing.T) {
	cfg := &job.Config{Kinds: job.Kinds{{Group: "ray.io", Version: "v1", Kind: "RayService"}: true}, ElasticJobs: true, RayService: job.RayService{Gating: true}}
	paths := func() (out []string) {
		for _, h := range hooks(&Options{Jobs: cfg, Descriptors: all.Descriptors()}) {
			out = append(out, h.path)
		}
		return out
	}
	configured := paths()
	cfg.RayService.Legacy = func() bool { return true }
	if served := paths(); !slices.Contains(configured, "/mutate--v1-pod-of-rayservice") || !slices.Equal(served, configured) {
		t.Errorf("configured %v, served %v", configured, served)
	}
}

func newTestScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := batchv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
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
			s.o.Jobs.ElasticJobs = !tc.off
			old := baseWorkload()
			reserve(old)
			old.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "a", Count: 2}} // more than what may be left
			w := old.DeepCopy()
			tc.change(w)
			if diff := cmp.Diff(tc.want, run(t, s.validateWorkload(), w, old)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
