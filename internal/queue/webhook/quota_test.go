package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/review/reviewtest"
)

// parse reads a ClusterQueue or Cohort from JSON.
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
			if diff := cmp.Diff(tc.want, reviewtest.Run(t, Options{}.validateClusterQueue, parse[kueue.ClusterQueue](t, tc.queue), old)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	q := parse[kueue.ClusterQueue](t, queue(checks("x"), one))
	if got := reviewtest.Run(t, Options{StrictOnFlavors: true}.validateClusterQueue, q, q); len(got) != 1 {
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
			if diff := cmp.Diff(tc.want, reviewtest.Run(t, validateCohort, parse[kueue.Cohort](t, tc.cohort), nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestQuotaFromNodes: the share must be a percentage, of a Cohort without a parent; lendingLimit may be above a quota that follows nodes.
func TestQuotaFromNodes(t *testing.T) {
	const name = `metadata.annotations[berth.dev/quota-from-nodes]`
	annotated := func(value, object string) string {
		return `{"metadata":{"annotations":{"berth.dev/quota-from-nodes":"` + value + `"}},` + object[1:]
	}
	lends := queue(`,"cohortName":"c"`, group(`{"name":"cpu","nominalQuota":"1","lendingLimit":"2"}`))
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"of a ClusterQueue":   {Options{}.validateClusterQueue(t.Context(), nil, parse[kueue.ClusterQueue](t, annotated("90%", lends)), nil), ""},
		"no percentage":       {Options{}.validateClusterQueue(t.Context(), nil, parse[kueue.ClusterQueue](t, annotated("0.9", lends)), nil), name},
		"of a root Cohort":    {validateCohort(t.Context(), nil, parse[kueue.Cohort](t, annotated("90%", queue(""))), nil), ""},
		"of another Cohort":   {validateCohort(t.Context(), nil, parse[kueue.Cohort](t, annotated("90%", queue(`,"parentName":"c"`))), nil), name},
		"nothing of a Cohort": {validateCohort(t.Context(), nil, parse[kueue.Cohort](t, annotated("0%", queue(""))), nil), name},
	} {
		t.Run(name, func(t *testing.T) {
			if (tc.err != nil) != (tc.want != "") || tc.err != nil && !strings.Contains(tc.err.Error(), tc.want) {
				t.Errorf("%v, want %q", tc.err, tc.want)
			}
		})
	}
}

// TestBackfill: the annotation has two values, and does not go with what makes ends or the order unknown.
func TestBackfill(t *testing.T) {
	annotated := func(value, more string) string {
		return `{"metadata":{"annotations":{"berth.dev/backfill":"` + value + `"}},` + queue(more, group(`{"name":"cpu","nominalQuota":"1"}`))[1:]
	}
	const name = "metadata.annotations[berth.dev/backfill]"
	for name, tc := range map[string]struct {
		queue string
		want  []string
	}{
		"easy":               {annotated("easy", ""), nil},
		"conservative":       {annotated("conservative", ""), nil},
		"of another kind":    {annotated("eager", ""), []string{name}},
		"empty":              {annotated("", ""), []string{name}},
		"with checks":        {annotated("easy", `,"admissionChecksStrategy":{"admissionChecks":[{"name":"c"}]}`), []string{name}},
		"ordered by usage":   {annotated("easy", `,"admissionScope":{"admissionMode":"UsageBasedAdmissionFairSharing"}`), []string{name}},
		"as several flavors": {annotated("easy", `,"concurrentAdmissionPolicy":{"migration":{"mode":"RetainFirstAdmission"}}`), []string{name}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, reviewtest.Run(t, Options{}.validateClusterQueue, parse[kueue.ClusterQueue](t, tc.queue), nil)); diff != "" {
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
			if diff := cmp.Diff(tc.want, reviewtest.Run(t, validateResourceFlavor, &kueue.ResourceFlavor{Spec: tc.spec}, nil)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
