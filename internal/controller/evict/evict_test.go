package evict

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/lifecycle"
)

var (
	past = metav1.NewTime(time.Unix(1000, 0))
	now  = metav1.NewTime(time.Unix(2000, 0))
	m    = lifecycle.Machine{}
)

// in makes a workload by the transitions that lead to a state.
func in(transitions ...func(*kueue.Workload)) *kueue.Workload {
	w := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1}}}}
	for _, t := range transitions {
		t(w)
	}
	return w
}

func admitted(w *kueue.Workload) {
	m.Reserve(w, &kueue.Admission{ClusterQueue: "cq"}, nil, past)
}

func checking(w *kueue.Workload) {
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "c", State: kueue.CheckStatePending}}
	admitted(w)
}

func evictedFor(reason string) func(*kueue.Workload) {
	return func(w *kueue.Workload) { m.Evict(w, reason, "", "why", past) }
}

func released(w *kueue.Workload) { m.Release(w, false, past) }

func inactive(w *kueue.Workload) { w.Spec.Active = new(false) }

// spec: 10 §4.11, §4.12.
func TestDecide(t *testing.T) {
	type want struct {
		changed           bool
		condition, reason string
		status            metav1.ConditionStatus
		reserved          bool
	}
	nothing := func(reserved bool) want { return want{reserved: reserved} }
	yes, no := metav1.ConditionTrue, metav1.ConditionFalse
	hold, drain := kueue.StopPolicyHold, kueue.StopPolicyHoldAndDrain
	cases := map[string]struct {
		w            *kueue.Workload
		local, queue kueue.StopPolicy
		want         want
	}{
		"pending in a running queue":               {w: in(), want: nothing(false)},
		"running in a running queue":               {w: in(admitted), want: nothing(true)},
		"Hold lets run what runs":                  {w: in(admitted), queue: hold, want: nothing(true)},
		"Hold takes a reservation that only waits": {w: in(checking), queue: hold, want: want{true, kueue.WorkloadQuotaReserved, kueue.ReasonSuspended, no, false}},
		"HoldAndDrain evicts":                      {w: in(admitted), queue: drain, want: want{true, kueue.WorkloadEvicted, kueue.ReasonClusterQueueStopped, yes, true}},
		"of the LocalQueue as well":                {w: in(admitted), local: drain, want: want{true, kueue.WorkloadEvicted, kueue.ReasonLocalQueueStopped, yes, true}},
		"once":                                     {w: in(admitted, evictedFor(kueue.ReasonClusterQueueStopped)), queue: drain, want: nothing(true)},
		"deactivated while it runs":                {w: in(admitted, inactive), want: want{true, kueue.WorkloadEvicted, kueue.ReasonDeactivated, yes, true}},
		"deactivated while it waits":               {w: in(inactive), want: want{true, kueue.WorkloadEvicted, kueue.ReasonDeactivated, yes, false}},
		"out as long as the queue is stopped":      {w: in(admitted, evictedFor(kueue.ReasonClusterQueueStopped), released), queue: drain, want: nothing(false)},
		"in again when it runs":                    {w: in(admitted, evictedFor(kueue.ReasonClusterQueueStopped), released), want: want{true, kueue.WorkloadRequeued, kueue.ReasonClusterQueueRestarted, yes, false}},
		"also after the LocalQueue's stop":         {w: in(admitted, evictedFor(kueue.ReasonLocalQueueStopped), released), want: want{true, kueue.WorkloadRequeued, kueue.ReasonLocalQueueRestarted, yes, false}},
		"not before it is released":                {w: in(admitted, evictedFor(kueue.ReasonClusterQueueStopped)), want: nothing(true)},
		"activated again":                          {w: in(admitted, evictedFor(kueue.ReasonDeactivated), released), want: want{true, kueue.WorkloadRequeued, kueue.ReasonReactivated, yes, false}},
		"activated after Berth deactivated it":     {w: in(admitted, evictedFor(kueue.ReasonDeactivatedDueToRequeuingLimitExceeded), released), want: want{true, kueue.WorkloadRequeued, kueue.ReasonReactivated, yes, false}},
		"a backoff is not ours to end":             {w: in(admitted, evictedFor(kueue.ReasonPodsReadyTimeout), released), want: nothing(false)},
	}
	f := &Follower{Machine: m}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := f.decide(world{wl: tc.w, localStopped: tc.local, queueStopped: tc.queue}, now)
			if changed != tc.want.changed || lifecycle.IsReserved(tc.w) != tc.want.reserved {
				t.Fatalf("changed %v, reserved %v, want %+v", changed, lifecycle.IsReserved(tc.w), tc.want)
			}
			if tc.want.condition == "" {
				return
			}
			c := apimeta.FindStatusCondition(tc.w.Status.Conditions, tc.want.condition)
			if c == nil || c.Reason != tc.want.reason || c.Status != tc.want.status {
				t.Errorf("%s is %+v, want %s/%s", tc.want.condition, c, tc.want.status, tc.want.reason)
			}
			if again := f.decide(world{wl: tc.w, localStopped: tc.local, queueStopped: tc.queue}, now); again {
				t.Error("a second look changes it again")
			}
		})
	}
}
