package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// A new reservation resets the conditions of earlier attempts. spec: 10 §4.9, 20 §4.14.
func TestReserveBeginsAnew(t *testing.T) {
	w := scene().w
	w.Status.PreemptionGates = []kueue.PreemptionGateState{{Name: "g", Position: kueue.PreemptionGateOpen, LastTransitionTime: at(0)}}
	w.Status.ResourceRequests = []kueue.PodSetRequest{{Name: "main"}}
	m := Machine{}
	m.BlockOnPreemptionGates(w, "a gate is closed", at(0))
	m.Reserve(w, &kueue.Admission{ClusterQueue: "cq"}, nil, at(time.Second))
	if c := Condition(w, kueue.WorkloadBlockedOnPreemptionGates); c.Status != metav1.ConditionFalse || c.Reason != kueue.ReasonQuotaReserved || c.Message != "Previously: a gate is closed" {
		t.Errorf("condition %+v", c)
	}
	if g := w.Status.PreemptionGates[0]; g.Position != kueue.PreemptionGateClosed || g.LastTransitionTime != at(time.Second) {
		t.Errorf("gate %+v", g)
	}
	if w.Status.ResourceRequests != nil {
		t.Errorf("resourceRequests %+v of one that is admitted", w.Status.ResourceRequests)
	}
	if m.SyncAdmitted(w, at(time.Minute)) || w.Status.AccumulatedPastExecutionTimeSeconds != nil {
		t.Error("a look at one that runs counts as an end")
	}
}

// The older names of the reasons. spec: 10 §5.1.
func TestLegacyReasons(t *testing.T) {
	for reason, want := range map[string]string{
		kueue.ReasonWaitingForPodsReady: kueue.ReasonWaiting, kueue.ReasonWaitingForQuota: kueue.ReasonPending,
		kueue.ReasonSuspended: kueue.ReasonInadmissible, kueue.ReasonOnHold: kueue.ReasonOnHold,
	} {
		w := scene().w
		Machine{LegacyReasons: true}.Pending(w, reason, "", at(0))
		if got := Condition(w, kueue.WorkloadQuotaReserved).Reason; got != want {
			t.Errorf("%s is shown as %s, want %s", reason, got, want)
		}
	}
}

// What another controller wrote about the same checks is no reason to write a Workload of a cluster that is taken over; what changed since is.
func TestWordsOfAnotherController(t *testing.T) {
	w := scene(reservedWith(kueue.CheckStatePending, kueue.CheckStatePending)).w
	m := Machine{}
	c := Condition(w, kueue.WorkloadAdmitted)
	ours := c.Message
	w.Status.AdmissionChecks[0].State = kueue.CheckStateReady
	if !m.SyncAdmitted(w, at(0)) || c.Message == ours {
		t.Errorf("message %q after a check became ready", c.Message)
	}
	c.Message = "The workload has failed admission checks"
	if m.SyncAdmitted(w, at(0)) {
		t.Errorf("the message is %q now", c.Message)
	}
	w.Status.AdmissionChecks[1].State = kueue.CheckStateReady
	if !m.SyncAdmitted(w, at(0)) || c.Reason != kueue.ReasonAdmitted {
		t.Errorf("condition %+v", c)
	}
}

// The fields that an eviction or a deactivation keeps and resets. spec: 10 §4.11.
func TestEnds(t *testing.T) {
	m := Machine{}
	spent := func(cause string) *int32 {
		w := scene(runs).w
		w.Status.AccumulatedPastExecutionTimeSeconds = new(int32(7))
		m.RequestDeactivation(w, cause, "", at(0))
		return w.Status.AccumulatedPastExecutionTimeSeconds
	}
	if spent(kueue.ReasonMaximumExecutionTimeExceeded) != nil || spent(kueue.ReasonAdmissionCheck) == nil {
		t.Error("the time spent is forgotten for one cause alone: that it was all of it")
	}
	w := scene().w
	w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1))}
	if m.Deactivate(w, at(0)); w.Status.RequeueState != nil {
		t.Errorf("requeueState %+v of one that is deactivated", w.Status.RequeueState)
	}
	if before := w.DeepCopy(); m.Release(w, false, at(1)) || !cmp.Equal(before, w) {
		t.Errorf("one without quota was released: %+v", w.Status.Conditions)
	}
	if DeactivatedByBerth(w) || !DeactivatedByBerth(scene(runs, evictedBy(kueue.ReasonDeactivatedDueToRequeuingLimitExceeded)).w) {
		t.Error("who deactivated it is not told")
	}
	for reason, want := range map[string]metav1.ConditionStatus{
		kueue.ReasonPreempted: metav1.ConditionTrue, kueue.ReasonNodeFailures: metav1.ConditionTrue, kueue.ReasonClusterQueueStopped: metav1.ConditionFalse,
	} {
		if c := Condition(scene(runs, evictedBy(reason), isReleased).w, kueue.WorkloadRequeued); c.Status != want || c.Reason != reason {
			t.Errorf("after %s: %+v", reason, c)
		}
	}
	w = scene(runs).w
	for _, cause := range []string{kueue.ReasonWaitForStart, kueue.ReasonWaitForRecovery, kueue.ReasonWaitForStart} {
		m.Evict(w, kueue.ReasonPodsReadyTimeout, cause, "", at(0))
		m.Reserve(w, &kueue.Admission{ClusterQueue: "cq"}, nil, at(0))
	}
	want := []kueue.EvictionCount{
		{Reason: kueue.ReasonPodsReadyTimeout, UnderlyingCause: kueue.ReasonWaitForStart, Count: 2},
		{Reason: kueue.ReasonPodsReadyTimeout, UnderlyingCause: kueue.ReasonWaitForRecovery, Count: 1},
	}
	if diff := cmp.Diff(want, w.Status.SchedulingStats.Evictions); diff != "" {
		t.Errorf("evictions -want +got:\n%s", diff)
	}
}

// A deactivation by Berth is over once its Workload is active again, although Evicted stays True. spec: 20 §4.20.
func TestDeactivatedByBerth(t *testing.T) {
	byBerth := func(f *follows) {
		f.rules.RequestDeactivation(f.w, kueue.ReasonAdmissionCheck, "", at(0))
		isInactive(f)
	}
	follow := func(f *follows) {
		for range 3 {
			f.rules.Follow(f.w, f.world, at(f.now))
		}
	}
	isActive := func(f *follows) { f.w.Spec.Active = nil }
	noDevices := func(f *follows) { f.world.Devices = "no such class" }
	devices := func(f *follows) {
		f.world.Devices = ""
		f.rules.Pending(f.w, kueue.ReasonWaitingForQuota, "", at(0))
	}
	again := []func(*follows){follow, isActive, follow}
	for name, tc := range map[string]struct {
		steps []func(*follows)
		want  bool
	}{
		"admitted":                             {[]func(*follows){runs, byBerth, follow}, true},
		"released":                             {[]func(*follows){runs, byBerth, follow, isReleased, follow}, true},
		"never reserved":                       {[]func(*follows){byBerth, follow}, true},
		"twice, never reserved":                {slices.Concat([]func(*follows){byBerth}, again, []func(*follows){byBerth, follow}), true},
		"preempted, then while it waits":       {[]func(*follows){runs, evictedBy(kueue.ReasonPreempted), isReleased, byBerth, follow}, true},
		"activated and paused":                 {slices.Concat([]func(*follows){runs, byBerth, follow, isReleased}, again, []func(*follows){isInactive}), false},
		"activated and paused, never reserved": {slices.Concat([]func(*follows){byBerth}, again, []func(*follows){isInactive}), false},
		"rejected, then paused":                {slices.Concat([]func(*follows){byBerth}, again, []func(*follows){noDevices, follow, isInactive}), false},
		"rejected, then paused and seen":       {slices.Concat([]func(*follows){byBerth}, again, []func(*follows){noDevices, follow, isInactive, follow}), false},
		"rejected for a while, then paused":    {slices.Concat([]func(*follows){byBerth}, again, []func(*follows){noDevices, follow, devices, isInactive}), false},
		"admitted again": {
			slices.Concat([]func(*follows){runs, byBerth, follow, isReleased}, again, []func(*follows){runs, byBerth, follow}), true,
		},
		"dropped again": {
			slices.Concat([]func(*follows){byBerth}, again, []func(*follows){runs, func(f *follows) {
				f.rules.Pending(f.w, kueue.ReasonOnHold, "", at(0))
			}, byBerth, follow}), true,
		},
	} {
		f := scene(tc.steps...)
		if got := DeactivatedByBerth(f.w); got != tc.want {
			t.Errorf("%s: %v; %+v", name, got, f.w.Status.Conditions)
		}
	}
}

// spec: 10 §3: blanks around entries are ignored.
func TestSplitGates(t *testing.T) {
	if got := SplitGates(" x.io/a ,x.io/b\t"); !slices.Equal(got, []string{"x.io/a", "x.io/b"}) {
		t.Errorf("gates %q", got)
	}
	if got := SplitGates("  "); got != nil {
		t.Errorf("gates %q of a blank text", got)
	}
}

// Cases that Follow leaves unchanged. spec: 10 §4.10 to §4.12, 20 §4.14, §4.15.
func TestFollowCorners(t *testing.T) {
	past, future := new(at(5*time.Second)), new(at(time.Hour))
	opened := func(f *follows) {
		f.w.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: "g"}}
		f.w.Status.PreemptionGates = []kueue.PreemptionGateState{{Name: "g", Position: kueue.PreemptionGateOpen, LastTransitionTime: at(0)}}
	}
	requeue := func(s kueue.RequeueState) func(*follows) {
		return func(f *follows) { f.w.Status.RequeueState = &s }
	}
	deleted := func(o metav1.Object) { o.SetDeletionTimestamp(new(at(0))) }
	for name, tc := range map[string]struct {
		f    *follows
		want string
	}{
		"finished and being deleted": {scene(func(f *follows) {
			f.rules.Finish(f.w, "Succeeded", "", at(0))
			f.rules.KeepFinished, f.w.DeletionTimestamp, f.w.Finalizers = new(time.Second), new(at(0)), nil
		}), ""},
		"an open gate stays open": {scene(opened), "open"},
		"also when another one comes": {scene(opened, func(f *follows) {
			f.w.Spec.PreemptionGates = append(f.w.Spec.PreemptionGates, kueue.PreemptionGate{Name: "h"})
		}), "status, open, closed"},
		"open gates block nobody": {scene(opened, func(f *follows) { f.rules.BlockOnPreemptionGates(f.w, "", at(0)) }), "status, open"},
		"a backoff does not shrink": {scene(reservedWith(kueue.CheckStateRetry), requeue(kueue.RequeueState{RequeueAt: future}), func(f *follows) {
			f.w.Status.AdmissionChecks[0].RequeueAfterSeconds = new(int32(30))
		}), "status, told EvictedDueToAdmissionCheck, Evicted=True/AdmissionCheck, back at 1h0m0s"},
		"a backoff that is over ends while there is quota": {scene(runs, requeue(kueue.RequeueState{RequeueAt: past})), "status"},
		"the count of returns outlives the backoff":        {scene(requeue(kueue.RequeueState{RequeueAt: past, Count: new(int32(2))})), "status, 2 times back"},
		"one with quota is in no queue": {scene(evictedBy(kueue.ReasonDeactivated), func(f *follows) {
			set(f.w, kueue.WorkloadRequeued, metav1.ConditionFalse, kueue.ReasonDeactivated, "", at(0))
			runs(f)
		}), "Requeued=False/Deactivated"},
		"an eviction is told once": {scene(runs, evictedBy(kueue.ReasonPreempted), isInactive, func(f *follows) {
			f.rules.RequestDeactivation(f.w, kueue.ReasonAdmissionCheck, "", at(0))
		}), "status, Evicted=True/Preempted"},
		"out while the LocalQueue is stopped": {
			scene(runs, evictedBy(kueue.ReasonLocalQueueStopped), isReleased, stops(kueue.StopPolicyHold, "")),
			"Evicted=True/LocalQueueStopped, Requeued=False/LocalQueueStopped",
		},
		"an admission gate that comes late": {scene(runs, func(f *follows) {
			f.w.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "x.io/a"}
		}), ""},
		"a LocalQueue that is going": {
			scene(reservedWith(kueue.CheckStatePending), func(f *follows) { deleted(f.world.LocalQueue) }), "status, QuotaReserved=False/Misconfigured",
		},
		"a ClusterQueue that is going": {
			scene(reservedWith(kueue.CheckStatePending), func(f *follows) { deleted(f.world.ClusterQueue) }), "status, QuotaReserved=False/Misconfigured",
		},
		"what goes keeps its quota until it is gone, whatever stops": {
			scene(reservedWith(kueue.CheckStatePending), evictedBy(kueue.ReasonPreempted), stops("", kueue.StopPolicyHold)), "Evicted=True/Preempted",
		},
		"or is gone": {
			scene(reservedWith(kueue.CheckStatePending), evictedBy(kueue.ReasonPreempted), func(f *follows) { f.world.LocalQueue = nil }), "Evicted=True/Preempted",
		},
		"back without end": {scene(runs, after(5*time.Minute), requeue(kueue.RequeueState{Count: new(int32(50))}), func(f *follows) {
			f.rules.Ready.Limit = -1
		}), "status, told EvictedDueToPodsReadyTimeout, Evicted=True/PodsReadyTimeout, back at 8m0s, 51 times back"},
		"the backoff has a limit": {scene(runs, after(5*time.Minute), requeue(kueue.RequeueState{Count: new(int32(2))}), func(f *follows) {
			f.rules.Ready.Limit = 9
		}), "status, told EvictedDueToPodsReadyTimeout, Evicted=True/PodsReadyTimeout, back at 8m0s, 3 times back"},
		"a backoff of nothing counts": {scene(runs, after(5*time.Minute), func(f *follows) {
			f.rules.Ready.Base, f.rules.Ready.Max = 0, 0
		}), "status, told EvictedDueToPodsReadyTimeout, Evicted=True/PodsReadyTimeout, 1 times back"},
	} {
		t.Run(name, func(t *testing.T) {
			out := tc.f.rules.Follow(tc.f.w, tc.f.world, at(tc.f.now))
			if got := strings.Join(tc.f.corner(out), ", "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// corner summarizes the state after Follow for these tests.
func (f *follows) corner(out Followed) (lines []string) {
	if out.Status {
		lines = append(lines, "status")
	}
	if out.Delete {
		lines = append(lines, "delete")
	}
	for _, e := range out.Events {
		lines = append(lines, "told "+e.Reason)
	}
	for _, c := range f.w.Status.Conditions {
		about := c.Type == kueue.WorkloadRequeued || c.Type == kueue.WorkloadEvicted && c.Status == metav1.ConditionTrue ||
			c.Type == kueue.WorkloadBlockedOnPreemptionGates || c.Type == kueue.WorkloadQuotaReserved && c.Status == metav1.ConditionFalse && !IsRequeueBlocked(f.w)
		if about {
			lines = append(lines, c.Type+"="+string(c.Status)+"/"+c.Reason)
		}
	}
	if s := f.w.Status.RequeueState; s != nil {
		if s.RequeueAt != nil {
			lines = append(lines, "back at "+s.RequeueAt.Sub(zero).Truncate(time.Second).String())
		}
		if s.Count != nil {
			lines = append(lines, fmt.Sprintf("%d times back", *s.Count))
		}
	}
	for _, g := range f.w.Status.PreemptionGates {
		lines = append(lines, strings.ToLower(string(g.Position)))
	}
	return lines
}

// TestPendingLeavesTheCluster: a Workload that is put on hold while it runs on a worker cluster is dispatched anew with its next reservation.
func TestPendingLeavesTheCluster(t *testing.T) {
	for _, cluster := range []string{"w1", ""} {
		var m Machine
		w := &kueue.Workload{Status: kueue.WorkloadStatus{ClusterName: cluster, AdmissionChecks: []kueue.AdmissionCheckState{{Name: "mk", State: kueue.CheckStateReady}}}}
		m.Reserve(w, &kueue.Admission{ClusterQueue: "cq"}, nil, at(0))
		m.Pending(w, kueue.ReasonOnHold, "", at(time.Second))
		if w.Status.ClusterName != "" || w.Status.SchedulingStats != nil || IsEvicted(w) {
			t.Errorf("from %q: on hold it has %+v", cluster, w.Status)
		}
		m.Reserve(w, &kueue.Admission{ClusterQueue: "cq"}, nil, at(time.Minute))
		if IsAdmitted(w) != (cluster == "") {
			t.Errorf("from %q: admitted at once %v", cluster, IsAdmitted(w))
		}
	}
}
