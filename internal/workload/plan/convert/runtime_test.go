package convert

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// TestMinRun: the time that a Workload asks to run before it is preempted, at most the one that is allowed.
func TestMinRun(t *testing.T) {
	const second = workload.Instant(time.Second)
	asks := func(seconds string) map[string]string {
		return map[string]string{berthv1alpha1.MinRunSecondsKey: seconds}
	}
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		most, want          workload.Instant
	}{
		"nothing":                    {most: 60 * second},
		"an annotation":              {annotations: asks("20"), most: 60 * second, want: 20 * second},
		"a label":                    {labels: asks("20"), most: 60 * second, want: 20 * second},
		"the annotation comes first": {labels: asks("20"), annotations: asks("30"), most: 60 * second, want: 30 * second},
		"more than is allowed":       {annotations: asks("61"), most: 60 * second, want: 60 * second},
		"nothing is allowed":         {annotations: asks("20")},
		"no number":                  {annotations: asks("1m"), most: 60 * second},
		"below 1":                    {annotations: asks("0"), most: 60 * second},
	} {
		w := workloadWith()
		w.Labels, w.Annotations = tc.labels, tc.annotations
		if got := Workload(w, Requests{MaxMinRun: tc.most}).MinRun; got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	bad := workloadWith()
	bad.Labels = asks("soon")
	const want = `metadata.labels[berth.dev/min-run-seconds]: "soon" must be a whole number of seconds above 0`
	if err := ValidateRunTimes(bad); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestBound: a run is bounded from its quota reservation on. While checks delay its admission there is no bound, and afterwards their time counts.
func TestBound(t *testing.T) {
	const second = workload.Instant(time.Second)
	at := func(kind string, seconds int64) metav1.Condition {
		c := condition(kind, metav1.ConditionTrue, kind)
		c.LastTransitionTime = metav1.Unix(seconds, 0)
		return c
	}
	reserved := at(kueue.WorkloadQuotaReserved, 100)
	for name, tc := range map[string]struct {
		limit, past *int32
		conditions  []metav1.Condition
		want        workload.Instant
	}{
		"no limit":          {conditions: []metav1.Condition{reserved, at(kueue.WorkloadAdmitted, 100)}},
		"pending":           {limit: new(int32(60)), want: 60 * second},
		"pending again":     {limit: new(int32(60)), past: new(int32(20)), want: 40 * second},
		"admitted at once":  {limit: new(int32(60)), conditions: []metav1.Condition{reserved, at(kueue.WorkloadAdmitted, 100)}, want: 60 * second},
		"admitted later":    {limit: new(int32(60)), conditions: []metav1.Condition{reserved, at(kueue.WorkloadAdmitted, 130)}, want: 90 * second},
		"waits for a check": {limit: new(int32(60)), conditions: []metav1.Condition{reserved}},
	} {
		w := workloadWith(tc.conditions...)
		w.Spec.MaximumExecutionTimeSeconds, w.Status.AccumulatedPastExecutionTimeSeconds = tc.limit, tc.past
		if len(tc.conditions) > 0 {
			w.Status.Admission = &kueue.Admission{ClusterQueue: "cq"}
		}
		if got := Workload(w, Requests{}).Bound; got != tc.want {
			t.Errorf("%s: %s, want %s", name, time.Duration(got), time.Duration(tc.want))
		}
	}
}

// TestMinRunAfterRestart: a state that is built from stored Workloads spares one that has just started, as the condition of its reservation
// says, and no longer once its minimum is over.
func TestMinRunAfterRestart(t *testing.T) {
	start := time.Unix(2000, 0)
	stored := func(name string, reservedAt time.Time, minimum string) *kueue.Workload {
		reserved := condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved)
		reserved.LastTransitionTime = metav1.NewTime(reservedAt)
		w := workloadWith(reserved)
		w.Name, w.UID = name, types.UID(name)
		if minimum != "" {
			w.Annotations = map[string]string{berthv1alpha1.MinRunSecondsKey: minimum}
		}
		w.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: new(int32(8)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f"},
			ResourceUsage: corev1.ResourceList{"cpu": apiresource.MustParse("8")},
		}}}
		return w
	}
	for after, want := range map[time.Duration]string{59 * time.Second: "old", 60 * time.Second: "fresh"} {
		s := state.New(state.Options{Options: cycle.Defaults()})
		s.Apply(state.SetNamespace{Name: "ns"})
		s.Apply(state.SetFlavor{Name: "f"})
		s.Apply(state.SetQueue{
			Name: "cq", Namespaces: []workload.Term{{}}, Preemption: preempt.Policy{Within: preempt.LowerPriority},
			Groups: []state.Group{{Resources: []string{"cpu"}, Flavors: []state.FlavorQuota{{
				Flavor: "f", Resources: []state.Quota{{Resource: "cpu", Nominal: 16000, Borrow: quota.NoLimit, Lend: quota.NoLimit}},
			}}}},
		})
		s.Apply(state.SetLocalQueue{Namespace: "ns", Name: "lq", Queue: "cq"})
		urgent := workloadWith()
		urgent.Name, urgent.UID, urgent.Spec.Priority = "urgent", "urgent", new(int32(9))
		for _, w := range []*kueue.Workload{stored("old", start.Add(-time.Hour), ""), stored("fresh", start, "60"), urgent} {
			s.Apply(state.SetWorkload(Workload(w, Requests{MaxMinRun: workload.Instant(time.Hour)})))
		}
		r := s.Step(workload.Instant(start.Add(after).UnixNano()), 1000)
		if len(r.Decisions) != 1 || len(r.Decisions[0].Evict) != 1 || r.Decisions[0].Evict[0].Workload.UID != want {
			t.Errorf("after %s: %v, want %s evicted", after, r.Decisions, want)
		}
	}
}
