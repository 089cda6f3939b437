package visibility

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// forecasts has one forecast, or none.
type forecasts struct{ last *foresight.Forecast }

func (f forecasts) Forecast() *foresight.Forecast         { return f.last }
func (f forecasts) RunTime(string) (e foresight.Estimate) { return e }

// A start that is unknown has no times, and a reason.
func TestUnknownStart(t *testing.T) {
	empty := forecasts{foresight.Empty(1)}
	for name, tc := range map[string]struct {
		starts Starts
		reason trace.Reason
		want   string
	}{
		"before the first forecast":    {forecasts{}, trace.WaitingForQuota, "no forecast has been made yet"},
		"newer than the last forecast": {empty, trace.WaitingForQuota, "it was not in line"},
		"larger than the quota":        {empty, trace.ExceedsMaxQuota, "it cannot start"},
		"its queue is stopped":         {forecasts{}, trace.Suspended, "it cannot start"},
	} {
		t.Run(name, func(t *testing.T) {
			got := startOf(tc.starts, "u", "cq", string(tc.reason))
			if got == nil || !strings.HasPrefix(got.Unknown, tc.want) || got.P10 != nil || got.P50 != nil || got.P90 != nil {
				t.Errorf("%+v, not %q", got, tc.want)
			}
		})
	}
	if got := startOf(nil, "u", "cq", ""); got != nil {
		t.Errorf("without forecasts: %+v", got)
	}
}

// Only a Workload that is in the line of a queue has a start.
func TestStartOf(t *testing.T) {
	model := world(nil).Model()
	for name, tc := range map[string]struct {
		change func(*kueue.Workload)
		starts bool
	}{
		"in line":               {func(*kueue.Workload) {}, true},
		"stopped":               {func(w *kueue.Workload) { w.Spec.Active = new(false) }, false},
		"in no LocalQueue":      {func(w *kueue.Workload) { w.Spec.QueueName = "none" }, false},
		"with a reservation":    {func(w *kueue.Workload) { w.Status.Conditions = conditionTrue(kueue.WorkloadQuotaReserved) }, false},
		"finished":              {func(w *kueue.Workload) { w.Status.Conditions = conditionTrue(kueue.WorkloadFinished) }, false},
		"after an eviction":     {func(w *kueue.Workload) { w.Status.Conditions = conditionTrue(kueue.WorkloadEvicted) }, true},
		"gated, without a gate": {func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "x"} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "w", UID: "u"}, Spec: kueue.WorkloadSpec{QueueName: "q"}}
			tc.change(w)
			if got := StartOf(forecasts{}, model, w, convert.Requests{}); (got != nil) != tc.starts {
				t.Errorf("%+v", got)
			}
			if _, _, known := PositionOf(model, w, convert.Requests{}); known != tc.starts {
				t.Errorf("a position in line: %v", known)
			}
		})
	}
}

// Positions count the Workloads before one in the line of its ClusterQueue.
func TestPositionOf(t *testing.T) {
	st := state.New(state.Options{Options: cycle.Defaults()})
	st.Apply(state.SetNamespace{Name: "red"})
	st.Apply(state.SetQueue(state.Queue{Name: "cq", Namespaces: []workload.Term{{}}}))
	st.Apply(state.SetLocalQueue(state.LocalQueue{Namespace: "red", Name: "q", Queue: "cq"}))
	created := metav1.Unix(1, 0)
	for uid, priority := range map[string]int64{"last": 0, "first": 2, "second": 1} {
		at := workload.Instant(created.UnixNano())
		st.Apply(state.SetWorkload(state.Workload{UID: uid, Namespace: "red", Name: uid, Version: 1, LocalQueue: "q", Priority: priority, Created: at, Since: at, Queueable: true}))
	}
	model := st.Publish()
	for i, uid := range []string{"first", "second", "last"} {
		w := &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: uid, UID: types.UID(uid), CreationTimestamp: created},
			Spec:       kueue.WorkloadSpec{QueueName: "q", Priority: new(int32(2 - i))},
		}
		if queue, before, known := PositionOf(model, w, convert.Requests{}); queue != "cq" || before != i || !known {
			t.Errorf("%s is behind %d in %s, known: %v", uid, before, queue, known)
		}
	}
}

// running has one estimate for all Workloads.
type running struct{ foresight.Estimate }

func (running) Forecast() *foresight.Forecast           { return nil }
func (r running) RunTime(string) (e foresight.Estimate) { return r.Estimate }

// The expected end of a Workload is after its reservation, by its estimated run time, and never in the past.
func TestEndOf(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	minutes := func(n int) workload.Instant { return workload.Instant(time.Duration(n) * time.Minute) }
	known := running{foresight.Estimate{Source: foresight.Declared, P10: minutes(5), P50: minutes(10), P90: minutes(30)}}
	for name, tc := range map[string]struct {
		starts    Starts
		condition metav1.ConditionStatus
		after     time.Duration
		want      time.Time
	}{
		"has just started":         {known, metav1.ConditionTrue, time.Minute, start.Add(10 * time.Minute)},
		"runs longer than half":    {known, metav1.ConditionTrue, 11 * time.Minute, start.Add(30 * time.Minute)},
		"runs longer than most":    {known, metav1.ConditionTrue, time.Hour, start.Add(time.Hour)},
		"of an unknown run time":   {running{foresight.Estimate{Source: foresight.Unknown}}, metav1.ConditionTrue, time.Minute, time.Time{}},
		"without a reservation":    {known, metav1.ConditionFalse, time.Minute, time.Time{}},
		"without such a condition": {known, "", time.Minute, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &kueue.Workload{}
			if tc.condition != "" {
				w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: tc.condition, LastTransitionTime: metav1.NewTime(start)}}
			}
			if got := EndOf(tc.starts, w, start.Add(tc.after)); !got.Equal(tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// Explain answers from the read model: with figures while a trace is kept, else with the reason of the condition.
func TestExplainWithoutTheEngine(t *testing.T) {
	s := preempting(t, nil)
	s.Read = nil
	all := func(namespaces []string) []string { return namespaces }
	w := s.Workload("red", "high")
	e, traced := s.Explain(w, all)
	if !traced || e.Verdict != string(trace.Preempts) || len(e.Preempts) == 0 || e.Preempts[0].Name == "" || e.Name != "high" {
		t.Errorf("with a trace: %v %+v", traced, e)
	}
	hidden, _ := s.Explain(w, func([]string) []string { return nil })
	for _, v := range hidden.Preempts {
		if v.Namespace != "" && v.Namespace != "red" {
			t.Errorf("a victim of a namespace that the caller may not read is %s/%s", v.Namespace, v.Name)
		}
	}
	s = world(nil)
	s.Read = nil
	w = &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "w", UID: "u"}, Spec: kueue.WorkloadSpec{QueueName: "q"}}
	w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Because", Message: "of this"}}
	if e, traced = s.Explain(w, all); traced || e.Reason != "Because" || e.Message != "of this" || e.ClusterQueue != "cq" || e.PositionInClusterQueue == nil {
		t.Errorf("without a trace: %v %+v", traced, e)
	}
	w.Spec.QueueName = "none"
	if e, traced = s.Explain(w, all); traced || e.Message != "of this" || e.Verdict != "" {
		t.Errorf("in no queue: %v %+v", traced, e)
	}
}

// TestReservedStart: a Workload has the start that its ClusterQueue has reserved for it beside a likely one that is unknown.
func TestReservedStart(t *testing.T) {
	const hour = workload.Instant(3600e9)
	s := world(nil)
	s.Starts = forecasts{}
	s.Model() // from now on traces are kept
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "waits", UID: "waits"}, Spec: kueue.WorkloadSpec{QueueName: "q"}}
	if _, err := s.Read(t.Context(), func(st *state.State) any {
		st.Apply(state.SetFlavor(flavor.Flavor{Name: "f"}))
		st.Apply(state.SetQueue(state.Queue{
			Name: "cq", Namespaces: []workload.Term{{}}, Backfill: cycle.Easy, Groups: []state.Group{{Resources: []string{"cpu"}, Flavors: []state.FlavorQuota{{
				Flavor: "f", Resources: []state.Quota{{Resource: "cpu", Nominal: 3, Borrow: quota.NoLimit, Lend: quota.NoLimit}},
			}}}},
		}))
		for i, uid := range []string{"runs", "waits"} {
			st.Apply(state.SetWorkload(state.Workload{
				UID: uid, Namespace: "red", Name: uid, Version: 1, LocalQueue: "q", Queueable: true, Bound: hour, Since: workload.Instant(i),
				PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: []state.Request{{Resource: "cpu", Amount: 2}}}},
			}))
			st.Step(1e9, 100)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	e, _ := s.Explain(w, func(namespaces []string) []string { return namespaces })
	if e.Start == nil || e.Start.Unknown == "" || e.Start.By == nil || e.Start.By.Unix() != 3601 {
		t.Errorf("%+v", e.Start)
	}
}

func conditionTrue(kind string) []metav1.Condition {
	return []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue}}
}
