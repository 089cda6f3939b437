package visibility

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
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

func conditionTrue(kind string) []metav1.Condition {
	return []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue}}
}
