package lifecycle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// at is a moment some seconds after the start of a test.
func at(seconds int) metav1.Time {
	return metav1.NewTime(time.Unix(1_800_000_000, 0).Add(time.Duration(seconds) * time.Second))
}

func admission() *kueue.Admission { return &kueue.Admission{ClusterQueue: "cq"} }

// summary shows every condition as Type=Status/Reason, sorted.
func summary(w *kueue.Workload) []string {
	var out []string
	for _, c := range w.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	slices.Sort(out)
	return out
}

func check(name string, state kueue.CheckState) kueue.AdmissionCheckState {
	return kueue.AdmissionCheckState{Name: kueue.AdmissionCheckReference(name), State: state, LastTransitionTime: at(0)}
}

func TestTransitions(t *testing.T) {
	m := lifecycle.Machine{}
	ready := lifecycle.Machine{WaitForPodsReady: true}
	legacy := lifecycle.Machine{LegacyReasons: true}
	reserve := func(w *kueue.Workload) { m.Reserve(w, admission(), nil, at(1)) }
	tests := map[string]struct {
		do   func(w *kueue.Workload)
		want []string
	}{
		"reserve without checks admits": {reserve, []string{"Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"}},
		"reserve lists required checks": {
			func(w *kueue.Workload) {
				m.Reserve(w, admission(), []kueue.AdmissionCheckReference{"check"}, at(1))
			},
			[]string{"Admitted=False/UnsatisfiedAdmissionChecks", "QuotaReserved=True/QuotaReserved"},
		},
		"reserve with a pending check": {
			func(w *kueue.Workload) {
				w.Status.AdmissionChecks = []kueue.AdmissionCheckState{check("check", kueue.CheckStatePending)}
				m.Reserve(w, admission(), []kueue.AdmissionCheckReference{"check"}, at(1))
			},
			[]string{"Admitted=False/UnsatisfiedAdmissionChecks", "QuotaReserved=True/QuotaReserved"},
		},
		"reserve with a delayed placement": {
			func(w *kueue.Workload) {
				a := admission()
				a.PodSetAssignments = []kueue.PodSetAssignment{{Name: "main", DelayedTopologyRequest: new(kueue.DelayedTopologyRequestPending)}}
				m.Reserve(w, a, nil, at(1))
			},
			[]string{"Admitted=False/PendingDelayedTopologyRequests", "QuotaReserved=True/QuotaReserved"},
		},
		"places after a delay": {
			func(w *kueue.Workload) {
				a := admission()
				a.PodSetAssignments = []kueue.PodSetAssignment{{Name: "main", DelayedTopologyRequest: new(kueue.DelayedTopologyRequestPending)}}
				m.Reserve(w, a, nil, at(1))
				places := admission()
				places.PodSetAssignments = []kueue.PodSetAssignment{{Name: "main", TopologyAssignment: &kueue.TopologyAssignment{Levels: []string{"rack"}}}}
				if !m.Placed(w, places, at(2)) || len(lifecycle.WaitsForPlacement(w)) > 0 {
					t.Error("it still waits for its places")
				}
			},
			[]string{"Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"},
		},
		"no wait for places without topologies": {
			func(w *kueue.Workload) {
				a := admission()
				a.PodSetAssignments = []kueue.PodSetAssignment{{Name: "main", DelayedTopologyRequest: new(kueue.DelayedTopologyRequestPending)}}
				m.Reserve(w, a, nil, at(1))
				if off := (lifecycle.Machine{IgnorePlaces: true}); !off.SyncAdmitted(w, at(2)) || off.SyncAdmitted(w, at(3)) {
					t.Error("not admitted in one write")
				}
				m.SyncAdmitted(w, at(4)) // with topologies again
			},
			[]string{"Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"},
		},
		"a check is waited for without topologies": {
			func(w *kueue.Workload) {
				a := admission()
				a.PodSetAssignments = []kueue.PodSetAssignment{{Name: "main", DelayedTopologyRequest: new(kueue.DelayedTopologyRequestPending)}}
				lifecycle.Machine{IgnorePlaces: true}.Reserve(w, a, []kueue.AdmissionCheckReference{"check"}, at(1))
				if len(lifecycle.WaitsForPlacement(w)) == 0 {
					t.Error("the delay is gone before the admission")
				}
			},
			[]string{"Admitted=False/UnsatisfiedAdmissionChecks", "QuotaReserved=True/QuotaReserved"},
		},
		"no places without pods": {
			func(w *kueue.Workload) {
				a, places := admission(), admission()
				for _, name := range []kueue.PodSetReference{"launcher", "workers", "none"} {
					a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
						Name: name, Count: new(int32(1)), DelayedTopologyRequest: new(kueue.DelayedTopologyRequestPending),
					})
				}
				m.Reserve(w, a, nil, at(1))
				places.PodSetAssignments = []kueue.PodSetAssignment{
					{Name: "launcher", Count: new(int32(1)), TopologyAssignment: &kueue.TopologyAssignment{Levels: []string{"rack"}}},
					{Name: "workers", Count: new(int32(0))},
					{Name: "none", Count: new(int32(1))},
				}
				if changed, waits := m.Placed(w, places, at(2)), lifecycle.WaitsForPlacement(w); !changed || !slices.Equal(waits, []string{"none"}) {
					t.Errorf("changed %v, and still waits for the places of %v", changed, waits)
				}
				places.PodSetAssignments = []kueue.PodSetAssignment{{Name: "none", Count: new(int32(0))}}
				if !m.Placed(w, places, at(3)) || m.Placed(w, places, at(3)) {
					t.Error("the pod set without pods is not written, or twice")
				}
			},
			[]string{"Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"},
		},
		"no places for what was evicted": {
			func(w *kueue.Workload) {
				reserve(w)
				m.Evict(w, kueue.ReasonNodeFailures, "", "failed", at(2))
				places := admission()
				places.PodSetAssignments = []kueue.PodSetAssignment{{Name: "main", TopologyAssignment: &kueue.TopologyAssignment{Levels: []string{"rack"}}}}
				if m.Placed(w, places, at(3)) {
					t.Error("it got places")
				}
			},
			[]string{"Admitted=True/Admitted", "Evicted=True/NodeFailures", "QuotaReserved=True/QuotaReserved"},
		},
		"reserve brings PodsReady along": {
			func(w *kueue.Workload) { ready.Reserve(w, admission(), nil, at(1)) },
			[]string{"Admitted=True/Admitted", "PodsReady=False/WaitForStart", "QuotaReserved=True/QuotaReserved"},
		},
		"an eviction keeps the quota": {
			func(w *kueue.Workload) {
				reserve(w)
				m.Evict(w, kueue.ReasonClusterQueueStopped, "", "stopped", at(2))
			},
			[]string{"Admitted=True/Admitted", "Evicted=True/ClusterQueueStopped", "QuotaReserved=True/QuotaReserved"},
		},
		"release after a preemption requeues": {
			func(w *kueue.Workload) {
				reserve(w)
				m.Preempt(w, kueue.ReasonInClusterQueue, "needed", at(2))
				m.Release(w, false, at(3))
			},
			[]string{
				"Admitted=False/NoReservation", "Evicted=True/Preempted", "Preempted=True/InClusterQueue",
				"QuotaReserved=False/PendingEvaluation", "Requeued=True/Preempted",
			},
		},
		"release of a pod's workload does not requeue": {
			func(w *kueue.Workload) {
				reserve(w)
				m.Preempt(w, kueue.ReasonInClusterQueue, "needed", at(2))
				m.Release(w, true, at(3))
			},
			[]string{
				"Admitted=False/NoReservation", "Evicted=True/Preempted", "Preempted=True/InClusterQueue",
				"QuotaReserved=False/PendingEvaluation", "Requeued=False/Preempted",
			},
		},
		"release after other evictions waits": {
			func(w *kueue.Workload) {
				ready.Reserve(w, admission(), nil, at(1))
				ready.PodsReady(w, true, at(2))
				ready.Evict(w, kueue.ReasonPodsReadyTimeout, kueue.ReasonWaitForStart, "late", at(3))
				ready.Release(w, false, at(4))
			},
			[]string{
				"Admitted=False/NoReservation", "Evicted=True/PodsReadyTimeout", "PodsReady=False/WaitForStart",
				"QuotaReserved=False/PendingEvaluation", "Requeued=False/PodsReadyTimeout",
			},
		},
		"release without an eviction changes nothing": {
			func(w *kueue.Workload) { reserve(w); m.Release(w, false, at(2)) },
			[]string{"Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"},
		},
		"reserve again turns the eviction off": {
			func(w *kueue.Workload) {
				reserve(w)
				m.Preempt(w, kueue.ReasonInClusterQueue, "needed", at(2))
				m.Release(w, false, at(3))
				reserve(w)
			},
			[]string{
				"Admitted=True/Admitted", "Evicted=False/QuotaReserved", "Preempted=False/QuotaReserved",
				"QuotaReserved=True/QuotaReserved", "Requeued=True/Preempted",
			},
		},
		"deactivated by a user": {
			func(w *kueue.Workload) { m.Deactivate(w, at(1)) },
			[]string{"Evicted=True/Deactivated"},
		},
		"deactivated for a cause": {
			func(w *kueue.Workload) {
				reserve(w)
				m.RequestDeactivation(w, kueue.ReasonAdmissionCheck, "rejected", at(2))
				m.Deactivate(w, at(3))
			},
			[]string{"Admitted=True/Admitted", "Evicted=True/DeactivatedDueToAdmissionCheck", "QuotaReserved=True/QuotaReserved"},
		},
		"evicted first, deactivated later": {
			func(w *kueue.Workload) {
				reserve(w)
				m.Preempt(w, kueue.ReasonInClusterQueue, "needed", at(2))
				m.Deactivate(w, at(3))
			},
			[]string{"Admitted=True/Admitted", "Evicted=True/Preempted", "Preempted=True/InClusterQueue", "QuotaReserved=True/QuotaReserved"},
		},
		"preempted while its deactivation is requested": {
			func(w *kueue.Workload) {
				reserve(w)
				m.RequestDeactivation(w, kueue.ReasonAdmissionCheck, "rejected", at(2))
				m.Preempt(w, kueue.ReasonInClusterQueue, "needed", at(3))
				m.Release(w, false, at(4))
				m.Deactivate(w, at(5))
			},
			[]string{
				"Admitted=False/NoReservation", "Evicted=True/DeactivatedDueToAdmissionCheck", "Preempted=True/InClusterQueue",
				"QuotaReserved=False/PendingEvaluation", "Requeued=False/DeactivatedDueToAdmissionCheck",
			},
		},
		"requeue needs to be blocked": {
			func(w *kueue.Workload) { m.Requeue(w, kueue.ReasonBackoffFinished, "", at(1)) },
			nil,
		},
		"requeue": {
			func(w *kueue.Workload) {
				reserve(w)
				m.Evict(w, kueue.ReasonLocalQueueStopped, "", "stopped", at(2))
				m.Release(w, false, at(3))
				m.Requeue(w, kueue.ReasonLocalQueueRestarted, "", at(4))
			},
			[]string{
				"Admitted=False/NoReservation", "Evicted=True/LocalQueueStopped", "QuotaReserved=False/PendingEvaluation",
				"Requeued=True/LocalQueueRestarted",
			},
		},
		"pending drops a reservation without an eviction": {
			func(w *kueue.Workload) { reserve(w); m.Pending(w, kueue.ReasonSuspended, "the queue stopped", at(2)) },
			[]string{"Admitted=False/NoReservation", "QuotaReserved=False/Suspended"},
		},
		"older reasons": {
			func(w *kueue.Workload) { legacy.Pending(w, kueue.ReasonSuspended, "", at(1)) },
			[]string{"QuotaReserved=False/Inadmissible"},
		},
		"older reasons while waiting for quota": {
			func(w *kueue.Workload) { legacy.Pending(w, kueue.ReasonWaitingForQuota, "", at(1)) },
			[]string{"QuotaReserved=False/Pending"},
		},
		"a job on hold keeps its reason": {
			func(w *kueue.Workload) { legacy.Pending(w, kueue.ReasonOnHold, "", at(1)) },
			[]string{"QuotaReserved=False/OnHold"},
		},
		"nothing happens after the end": {
			func(w *kueue.Workload) {
				m.Finish(w, kueue.ReasonSucceeded, "done", at(1))
				reserve(w)
				m.Evict(w, kueue.ReasonPreempted, "", "", at(2))
				m.Pending(w, kueue.ReasonSuspended, "", at(2))
				m.Deactivate(w, at(2))
				m.RequestDeactivation(w, "X", "", at(2))
				m.BlockOnPreemptionGates(w, "", at(2))
				m.Finish(w, kueue.ReasonFailed, "again", at(3))
			},
			[]string{"Finished=True/Succeeded"},
		},
		"an admitted workload that was never reserved says nothing": {
			func(w *kueue.Workload) { m.SyncAdmitted(w, at(1)) },
			nil,
		},
		"unless it is to be explicit": {
			func(w *kueue.Workload) { lifecycle.Machine{ExplicitStatus: true}.SyncAdmitted(w, at(1)) },
			[]string{"Admitted=False/NoReservation"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
			tc.do(w)
			if diff := cmp.Diff(tc.want, summary(w)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, c := range w.Status.Conditions {
				want := int64(7)
				if c.Type == kueue.WorkloadPreempted && c.Status == metav1.ConditionTrue {
					want = 0
				}
				if c.ObservedGeneration != want {
					t.Errorf("%s has observedGeneration %d, want %d", c.Type, c.ObservedGeneration, want)
				}
			}
			if lifecycle.IsReserved(w) != (w.Status.Admission != nil) && !lifecycle.IsFinished(w) {
				t.Errorf("reserved %v, admission %v", lifecycle.IsReserved(w), w.Status.Admission)
			}
		})
	}
}

func TestEvictResetsTheAdmission(t *testing.T) {
	m := lifecycle.Machine{}
	w := &kueue.Workload{}
	w.Status = kueue.WorkloadStatus{
		AdmissionChecks: []kueue.AdmissionCheckState{
			check("pending", kueue.CheckStatePending),
			{Name: "ready", State: kueue.CheckStateReady, Message: "fine", PodSetUpdates: []kueue.PodSetUpdate{{Name: "main"}}, RetryCount: new(int32(4))},
			{Name: "retry", State: kueue.CheckStateRetry, Message: "later", RequeueAfterSeconds: new(int32(9)), RetryCount: new(int32(1))},
		},
		ClusterName: "worker", NominatedClusterNames: []string{"a"}, UnhealthyNodes: []kueue.UnhealthyNode{{Name: "n"}},
		PreemptionGates: []kueue.PreemptionGateState{
			{Name: "open", Position: kueue.PreemptionGateOpen, LastTransitionTime: at(0)},
			{Name: "closed", Position: kueue.PreemptionGateClosed, LastTransitionTime: at(0)},
		},
	}
	m.BlockOnPreemptionGates(w, "gated", at(1))
	if !m.Evict(w, kueue.ReasonDeactivated, kueue.ReasonAdmissionCheck, "rejected", at(5)) {
		t.Fatal("nothing changed")
	}
	if m.Evict(w, kueue.ReasonPreempted, "", "", at(6)) {
		t.Error("evicted twice")
	}
	want := kueue.WorkloadStatus{
		AdmissionChecks: []kueue.AdmissionCheckState{
			check("pending", kueue.CheckStatePending),
			{
				Name: "ready", State: kueue.CheckStatePending, LastTransitionTime: at(5), RetryCount: new(int32(4)),
				Message: "Reset to Pending after eviction, previously Ready: fine",
			},
			{
				Name: "retry", State: kueue.CheckStatePending, LastTransitionTime: at(5), RequeueAfterSeconds: new(int32(9)), RetryCount: new(int32(2)),
				Message: "Reset to Pending after eviction, previously Retry: later",
			},
		},
		PreemptionGates: []kueue.PreemptionGateState{
			{Name: "open", Position: kueue.PreemptionGateClosed, LastTransitionTime: at(5)},
			{Name: "closed", Position: kueue.PreemptionGateClosed, LastTransitionTime: at(0)},
		},
		SchedulingStats: &kueue.SchedulingStats{Evictions: []kueue.EvictionCount{{Reason: "Deactivated", UnderlyingCause: "AdmissionCheck", Count: 1}}},
		Conditions: []metav1.Condition{
			{
				Type: kueue.WorkloadBlockedOnPreemptionGates, Status: metav1.ConditionFalse, Reason: "DeactivatedDueToAdmissionCheck",
				Message: "Previously: gated", LastTransitionTime: at(5),
			},
			{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "DeactivatedDueToAdmissionCheck", Message: "rejected", LastTransitionTime: at(5)},
		},
	}
	if diff := cmp.Diff(want, w.Status); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !lifecycle.DeactivatedByBerth(w) {
		t.Error("not seen as deactivated by Berth")
	}
}

func TestExecutionTimeAddsUp(t *testing.T) {
	m := lifecycle.Machine{}
	w := &kueue.Workload{}
	for _, start := range []int{0, 100} {
		m.Reserve(w, admission(), nil, at(start))
		m.Preempt(w, kueue.ReasonInClusterQueue, "", at(start+10))
		m.Release(w, false, at(start+30))
	}
	if got := w.Status.AccumulatedPastExecutionTimeSeconds; got == nil || *got != 60 {
		t.Errorf("got %v, want 60", got)
	}
	if got := w.Status.SchedulingStats.Evictions; len(got) != 1 || got[0].Count != 2 {
		t.Errorf("evictions %v", got)
	}
	for name, end := range map[string]func(w *kueue.Workload){
		"before its deactivation": func(*kueue.Workload) {},
		"after its release":       func(w *kueue.Workload) { m.Deactivate(w, at(211)); m.Release(w, false, at(220)) },
		"preempted meanwhile": func(w *kueue.Workload) {
			m.Preempt(w, kueue.ReasonInClusterQueue, "", at(211))
			m.Release(w, false, at(220))
		},
		"preempted meanwhile, released after its deactivation": func(w *kueue.Workload) {
			m.Preempt(w, kueue.ReasonInClusterQueue, "", at(211))
			m.Deactivate(w, at(212))
			m.Release(w, false, at(220))
		},
	} {
		again := w.DeepCopy()
		m.Reserve(again, admission(), nil, at(200))
		m.RequestDeactivation(again, kueue.ReasonMaximumExecutionTimeExceeded, "too long", at(210))
		end(again)
		if got := again.Status.AccumulatedPastExecutionTimeSeconds; got != nil {
			t.Errorf("%s: time is kept: %d", name, *got)
		}
	}
}

func TestWaitForReplacements(t *testing.T) {
	m := lifecycle.Machine{}
	w := &kueue.Workload{}
	check := func(what string, absent int, changes bool, want string) {
		t.Helper()
		changed := m.WaitForReplacements(w, absent, at(1))
		got := ""
		if c := lifecycle.Condition(w, kueue.WorkloadWaitingForReplacementPods); c != nil {
			got = string(c.Status) + "/" + c.Reason
		}
		if got != want || changed != changes {
			t.Errorf("%s: got %q, changed %v; want %q, %v", what, got, changed, want, changes)
		}
	}
	check("all are there", 0, false, "")
	m.Reserve(w, admission(), nil, at(0))
	check("one fails", 1, true, "True/PodsFailed")
	check("another fails", 2, false, "True/PodsFailed")
	m.Preempt(w, kueue.ReasonInClusterQueue, "made room", at(1))
	check("evicted", 2, true, "True/Preempted")
	m.Release(w, false, at(2))
	m.Reserve(w, admission(), nil, at(3))
	check("admitted again", 1, false, "True/Preempted")
	check("replaced", 0, true, "False/PodsReady")
	check("still there", 0, false, "False/PodsReady")
	m.Finish(w, kueue.ReasonSucceeded, "m", at(4))
	check("finished", 3, false, "False/PodsReady")
}

func TestPodsReady(t *testing.T) {
	tests := map[string]struct {
		before string // status/reason, or empty
		ready  bool
		want   string
	}{
		"first, not ready":         {"", false, "False/WaitForStart"},
		"first, ready":             {"", true, "True/Started"},
		"ready after the start":    {"False/WaitForStart", true, "True/Started"},
		"lost":                     {"True/Started", false, "False/WaitForRecovery"},
		"still lost":               {"False/WaitForRecovery", false, "False/WaitForRecovery"},
		"recovered":                {"False/WaitForRecovery", true, "True/Recovered"},
		"lost again":               {"True/Recovered", false, "False/WaitForRecovery"},
		"still recovered":          {"True/Recovered", true, "True/Recovered"},
		"reason of older versions": {"False/PodsReady", false, "False/WaitForStart"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := lifecycle.Machine{}
			w := &kueue.Workload{}
			m.Reserve(w, admission(), nil, at(0))
			if tc.before != "" {
				status, reason, _ := strings.Cut(tc.before, "/")
				w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
					Type: kueue.WorkloadPodsReady, Status: metav1.ConditionStatus(status), Reason: reason, Message: "as others put it",
				})
			}
			changed := m.PodsReady(w, tc.ready, at(1))
			c := lifecycle.Condition(w, kueue.WorkloadPodsReady)
			if got := string(c.Status) + "/" + c.Reason; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if changed != (tc.before != tc.want) {
				t.Errorf("changed is %v", changed)
			}
		})
	}
	w := &kueue.Workload{}
	lifecycle.Machine{}.PodsReady(w, true, at(0))
	if c := lifecycle.Condition(w, kueue.WorkloadPodsReady); c.Reason != kueue.ReasonWaitForStart {
		t.Errorf("without admission the reason is %s", c.Reason)
	}
}

func TestSameStatusIsNoChange(t *testing.T) {
	m := lifecycle.Machine{}
	w := &kueue.Workload{}
	if !m.Pending(w, kueue.ReasonWaitingForQuota, "no room", at(1)) {
		t.Fatal("nothing changed")
	}
	w.Generation = 5
	if m.Pending(w, kueue.ReasonWaitingForQuota, "no room", at(2)) {
		t.Error("the same again is a change")
	}
	if !m.Pending(w, kueue.ReasonWaitingForQuota, "less room", at(3)) {
		t.Error("another message is no change")
	}
	if c := lifecycle.Condition(w, kueue.WorkloadQuotaReserved); !c.LastTransitionTime.Equal(new(at(1))) {
		t.Errorf("the transition moved to %v", c.LastTransitionTime)
	}
}

func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		limit := rapid.IntRange(8, 40).Draw(t, "limit")
		got := lifecycle.Cut(text, limit)
		switch {
		case len(got) > limit:
			t.Fatalf("%d bytes, limit %d", len(got), limit)
		case len(text) <= limit && got != text:
			t.Fatalf("cut without need: %q", got)
		case len(text) > limit && !strings.HasSuffix(got, " ..."):
			t.Fatalf("not marked: %q", got)
		case utf8.ValidString(text) && !utf8.ValidString(got):
			t.Fatalf("cut inside a character: %q", got)
		}
	})
}

// TestAnyPath runs random transitions and checks what must hold in every state.
func TestAnyPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := lifecycle.Machine{
			LegacyReasons: rapid.Bool().Draw(t, "legacy"), ExplicitStatus: rapid.Bool().Draw(t, "explicit"), WaitForPodsReady: rapid.Bool().Draw(t, "ready"),
		}
		w := &kueue.Workload{}
		moves := map[string]func(metav1.Time) bool{
			"reserve":    func(now metav1.Time) bool { return m.Reserve(w, admission(), nil, now) },
			"pending":    func(now metav1.Time) bool { return m.Pending(w, kueue.ReasonSuspended, "stopped", now) },
			"evict":      func(now metav1.Time) bool { return m.Evict(w, kueue.ReasonClusterQueueStopped, "", "stopped", now) },
			"preempt":    func(now metav1.Time) bool { return m.Preempt(w, kueue.ReasonInClusterQueue, "needed", now) },
			"release":    func(now metav1.Time) bool { return m.Release(w, false, now) },
			"requeue":    func(now metav1.Time) bool { return m.Requeue(w, kueue.ReasonBackoffFinished, "", now) },
			"deactivate": func(now metav1.Time) bool { return m.Deactivate(w, now) },
			"ready":      func(now metav1.Time) bool { return m.PodsReady(w, true, now) },
			"finish":     func(now metav1.Time) bool { return m.Finish(w, kueue.ReasonSucceeded, "", now) },
		}
		names := []string{"reserve", "reserve", "pending", "evict", "preempt", "release", "requeue", "deactivate", "ready", "finish"}
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "move")
			before := w.DeepCopy()
			changed := moves[name](at(i))
			if !changed && cmp.Diff(before, w) != "" {
				t.Fatalf("%s changed the workload and denies it:\n%s", name, cmp.Diff(before, w))
			}
			if lifecycle.IsFinished(before) && name != "ready" && changed {
				t.Fatalf("%s changed a finished workload", name)
			}
			if lifecycle.IsReserved(w) != (w.Status.Admission != nil) {
				t.Fatalf("after %s: reserved %v, admission %v", name, lifecycle.IsReserved(w), w.Status.Admission)
			}
			if lifecycle.IsAdmitted(w) && !lifecycle.IsReserved(w) {
				t.Fatalf("after %s: admitted without quota", name)
			}
			if name == "evict" && lifecycle.IsReserved(before) != lifecycle.IsReserved(w) {
				t.Fatal("an eviction touched the quota")
			}
		}
	})
}
