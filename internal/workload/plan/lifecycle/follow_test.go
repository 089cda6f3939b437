package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// follows is the world of a test: the input of Follow, and its time.
type follows struct {
	w     *kueue.Workload
	world World
	rules Rules
	now   time.Duration // since zero
}

var zero = time.Unix(10_000, 0)

func at(d time.Duration) metav1.Time { return metav1.NewTime(zero.Add(d)) }

// scene returns a Workload that was created at zero, in running queues.
func scene(change ...func(*follows)) *follows {
	f := &follows{
		w: &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{
				Name: "w", Namespace: "ns", UID: "u", Finalizers: []string{kueue.ResourceInUseFinalizer},
				OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "j"}},
			},
			Spec: kueue.WorkloadSpec{QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 1}}},
		},
		world: World{
			LocalQueue:   &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}},
			ClusterQueue: &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}},
		},
		rules: Rules{
			Machine: Machine{WaitForPodsReady: true}, Orphans: true, Gated: true,
			Ready: &ReadyRules{Timeout: 5 * time.Minute, Recovery: time.Minute, Base: time.Minute, Max: 3 * time.Minute, Limit: 2},
		},
		now: 10 * time.Second,
	}
	for _, c := range change {
		c(f)
	}
	return f
}

func reservedWith(checks ...kueue.CheckState) func(*follows) {
	return func(f *follows) {
		var rules []kueue.AdmissionCheckStrategyRule
		for i, state := range checks {
			name := kueue.AdmissionCheckReference(rune('a' + i))
			rules = append(rules, kueue.AdmissionCheckStrategyRule{Name: name})
			f.w.Status.AdmissionChecks = append(f.w.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: name, State: state, LastTransitionTime: at(0)})
		}
		if rules != nil {
			f.world.ClusterQueue.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: rules}
		}
		f.rules.Reserve(f.w, &kueue.Admission{ClusterQueue: "cq"}, nil, at(0))
	}
}

var runs = reservedWith()

// dispatches makes the first check one of MultiKueue.
func dispatches(f *follows) { f.world.Dispatchers = []kueue.AdmissionCheckReference{"a"} }

func onWorker(f *follows) { f.w.Status.ClusterName = "w1" }

// leaves removes all checks from the ClusterQueue.
func leaves(f *follows) { f.world.ClusterQueue.Spec.AdmissionChecksStrategy = nil }

func evictedBy(reason string) func(*follows) {
	return func(f *follows) { f.rules.Evict(f.w, reason, "", "why", at(0)) }
}

func isReleased(f *follows) { f.rules.Release(f.w, false, at(0)) }
func isInactive(f *follows) { f.w.Spec.Active = new(false) }
func after(d time.Duration) func(*follows) {
	return func(f *follows) { f.now = d }
}

// replaces makes the Workload a slice that replaces one which was admitted a minute before, with 100 seconds for both.
func replaces(change func(old *kueue.Workload)) func(*follows) {
	return func(f *follows) {
		old := &kueue.Workload{}
		set(old, kueue.WorkloadAdmitted, metav1.ConditionTrue, kueue.ReasonAdmitted, "", at(-time.Minute))
		change(old)
		f.rules.Ready, f.w.Spec.MaximumExecutionTimeSeconds, f.world.Replaced = nil, new(int32(100)), old
	}
}

// begins is when Workloads begin to be followed.
func begins(d time.Duration) func(*follows) {
	return func(f *follows) { f.world.Since = at(d).Time }
}

func stops(local, cluster kueue.StopPolicy) func(*follows) {
	return func(f *follows) {
		f.world.LocalQueue.Spec.StopPolicy, f.world.ClusterQueue.Spec.StopPolicy = local, cluster
	}
}

// summary lists the results of Follow, one a line.
func (f *follows) summary(out Followed) (lines []string) {
	add := func(is bool, what string) {
		if is {
			lines = append(lines, what)
		}
	}
	add(out.Deactivate, "deactivate")
	add(out.Unfinalize, "unfinalize")
	add(out.Delete, "delete")
	for _, e := range out.Events {
		lines = append(lines, "event "+e.Reason)
	}
	if !out.Wake.IsZero() {
		lines = append(lines, "wake at "+out.Wake.Sub(zero).String())
	}
	if !out.Status {
		return lines
	}
	for _, c := range f.w.Status.Conditions {
		if c.LastTransitionTime == at(f.now) || c.Type == kueue.WorkloadQuotaReserved {
			lines = append(lines, c.Type+"="+string(c.Status)+"/"+c.Reason)
		}
	}
	if s := f.w.Status.RequeueState; s != nil && s.RequeueAt != nil {
		lines = append(lines, "back at "+s.RequeueAt.Sub(zero).Truncate(time.Second).String())
	}
	if ran := f.w.Status.AccumulatedPastExecutionTimeSeconds; ran != nil && f.world.Replaced != nil {
		lines = append(lines, fmt.Sprintf("ran %ds", *ran))
	}
	return lines
}

// spec: 10 §4.10 to §4.12, 20 §4.14 to §4.17.
func TestFollow(t *testing.T) {
	hold, drain, none := kueue.StopPolicyHold, kueue.StopPolicyHoldAndDrain, kueue.StopPolicy("")
	retry := func(seconds int32) func(*follows) {
		return func(f *follows) { f.w.Status.AdmissionChecks[0].RequeueAfterSeconds = &seconds }
	}
	gated := func(f *follows) { f.w.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "x.io/a"} }
	gates := func(f *follows) { f.rules.Pending(f.w, kueue.ReasonAdmissionGated, "", at(0)) }
	suspends := func(f *follows) { f.rules.Pending(f.w, kueue.ReasonSuspended, "", at(0)) }
	inactive := func(f *follows) {
		f.world.ClusterQueue.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionFalse}}
	}
	unlimited := func(f *follows) { remove(f.w, kueue.WorkloadPodsReady) } // waitForPodsReady was off
	notReady := func(f *follows) { f.rules.PodsReady(f.w, false, at(0)) }
	lostPods := func(f *follows) {
		f.rules.PodsReady(f.w, true, at(0))
		f.rules.PodsReady(f.w, false, at(5*time.Second))
	}
	cases := map[string]struct {
		f    *follows
		want string
	}{
		"pending": {scene(), ""},
		"running": {scene(runs), "wake at 5m0s"},

		"an orphan":                 {scene(func(f *follows) { f.w.OwnerReferences, f.w.Labels = nil, map[string]string{kueue.JobUIDLabel: "j"} }), "Finished=True/OwnerNotFound"},
		"made by hand":              {scene(func(f *follows) { f.w.OwnerReferences = nil }), ""},
		"made by hand and deleted":  {scene(func(f *follows) { f.w.OwnerReferences, f.w.DeletionTimestamp = nil, new(at(0)) }), "unfinalize"},
		"finished and kept":         {scene(func(f *follows) { f.rules.Finish(f.w, "Succeeded", "", at(0)) }), ""},
		"finished and kept a while": {scene(func(f *follows) { f.rules.Finish(f.w, "Succeeded", "", at(0)); f.rules.KeepFinished = new(time.Minute) }), "wake at 1m0s"},
		"finished long ago":         {scene(func(f *follows) { f.rules.Finish(f.w, "Succeeded", "", at(0)); f.rules.KeepFinished = new(time.Second) }), "unfinalize"},
		"finished and let go": {scene(func(f *follows) {
			f.rules.Finish(f.w, "Succeeded", "", at(0))
			f.rules.KeepFinished, f.w.Finalizers = new(time.Second), nil
		}), "delete, event Deleted"},
		"finished, its job cannot start": {scene(func(f *follows) {
			f.rules.Finish(f.w, kueue.ReasonFailedToStart, "", at(0))
			f.rules.KeepFinished = new(time.Duration(0))
		}), ""},
		"finished, its job could not start and is gone": {scene(func(f *follows) {
			f.rules.Finish(f.w, kueue.ReasonFailedToStart, "", at(0))
			f.rules.KeepFinished, f.w.OwnerReferences, f.w.Finalizers = new(time.Duration(0)), nil, nil
			f.w.Labels = map[string]string{kueue.JobUIDLabel: "j"}
		}), "delete, event Deleted"},
		"a gate gets its position":                         {scene(func(f *follows) { f.w.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: "g"}} }), "gate g Closed"},
		"an admission gate":                                {scene(gated), "event AdmissionGated, QuotaReserved=False/AdmissionGated, Admitted=False/NoReservation"},
		"an admission gate, no LocalQueue":                 {scene(gated, func(f *follows) { f.world = World{} }), "QuotaReserved=False/Misconfigured, Admitted=False/NoReservation"},
		"an admission gate, no ClusterQueue":               {scene(gated, func(f *follows) { f.world.ClusterQueue = nil }), "QuotaReserved=False/Misconfigured, Admitted=False/NoReservation"},
		"an admission gate, a stopped LocalQueue":          {scene(gated, stops(hold, none), func(f *follows) { f.world.ClusterQueue = nil }), "QuotaReserved=False/Suspended, Admitted=False/NoReservation"},
		"an admission gate, a stopped ClusterQueue":        {scene(gated, stops(none, drain)), "QuotaReserved=False/Suspended, Admitted=False/NoReservation"},
		"an admission gate, an inactive ClusterQueue":      {scene(gated, inactive), "QuotaReserved=False/Suspended, Admitted=False/NoReservation"},
		"an admission gate in a queue that runs again":     {scene(gated, suspends), "event AdmissionGated, QuotaReserved=False/AdmissionGated"},
		"an admission gate, the queue is stopped later":    {scene(gated, gates, stops(hold, none)), "QuotaReserved=False/Suspended"},
		"an admission gate is shown":                       {scene(gated, gates), ""},
		"the admission gate of a stopped queue is gone":    {scene(suspends, stops(hold, none)), ""},
		"the admission gate is gone, the queue is stopped": {scene(gates, stops(hold, none)), "event AdmissionGateCleared, QuotaReserved=False/PendingEvaluation"},
		"the admission gate is gone":                       {scene(gates), "event AdmissionGateCleared, QuotaReserved=False/PendingEvaluation"},

		"deactivated while it runs":      {scene(runs, isInactive), "event EvictedDueToDeactivated, QuotaReserved=True/QuotaReserved, Evicted=True/Deactivated"},
		"deactivated while it waits":     {scene(isInactive), "Evicted=True/Deactivated, QuotaReserved=False/Deactivated, Admitted=False/NoReservation"},
		"deactivated and stopped":        {scene(runs, isInactive, evictedBy(kueue.ReasonDeactivated), isReleased), "QuotaReserved=False/Deactivated"},
		"activated again":                {scene(runs, evictedBy(kueue.ReasonDeactivated), isReleased), "QuotaReserved=False/PendingEvaluation, Requeued=True/Reactivated"},
		"activated after Berth stopped":  {scene(runs, evictedBy(kueue.ReasonDeactivatedDueToRequeuingLimitExceeded), isReleased), "QuotaReserved=False/PendingEvaluation, Requeued=True/Reactivated"},
		"a deactivation that was wished": {scene(runs, func(f *follows) { f.rules.RequestDeactivation(f.w, kueue.ReasonAdmissionCheck, "", at(0)) }), "deactivate"},
		"it keeps its cause": {scene(runs, isInactive, func(f *follows) {
			f.rules.RequestDeactivation(f.w, kueue.ReasonAdmissionCheck, "", at(0))
		}), "event EvictedDueToDeactivatedDueToAdmissionCheck, QuotaReserved=True/QuotaReserved, Evicted=True/DeactivatedDueToAdmissionCheck"},

		"Hold lets run what runs":                  {scene(runs, stops(none, hold)), "wake at 5m0s"},
		"Hold takes a reservation that only waits": {scene(reservedWith(kueue.CheckStatePending), stops(none, hold)), "QuotaReserved=False/Suspended"},
		"HoldAndDrain evicts":                      {scene(runs, stops(none, drain)), "event EvictedDueToClusterQueueStopped, QuotaReserved=True/QuotaReserved, Evicted=True/ClusterQueueStopped"},
		"also what came by a held LocalQueue":      {scene(runs, stops(hold, drain)), "event EvictedDueToClusterQueueStopped, QuotaReserved=True/QuotaReserved, Evicted=True/ClusterQueueStopped"},
		"also what came by one that is gone":       {scene(runs, stops(none, drain), func(f *follows) { f.world.LocalQueue = nil }), "event EvictedDueToClusterQueueStopped, QuotaReserved=True/QuotaReserved, Evicted=True/ClusterQueueStopped"},
		"of the LocalQueue as well":                {scene(runs, stops(drain, drain)), "event EvictedDueToLocalQueueStopped, QuotaReserved=True/QuotaReserved, Evicted=True/LocalQueueStopped"},
		"once":                                     {scene(runs, evictedBy(kueue.ReasonClusterQueueStopped), stops(none, drain)), ""},
		"out as long as the queue is stopped":      {scene(runs, evictedBy(kueue.ReasonClusterQueueStopped), isReleased, stops(none, drain)), ""},
		"in again when it runs":                    {scene(runs, evictedBy(kueue.ReasonClusterQueueStopped), isReleased), "QuotaReserved=False/PendingEvaluation, Requeued=True/ClusterQueueRestarted"},
		"also after the LocalQueue's stop":         {scene(runs, evictedBy(kueue.ReasonLocalQueueStopped), isReleased), "QuotaReserved=False/PendingEvaluation, Requeued=True/LocalQueueRestarted"},
		"a LocalQueue that is gone":                {scene(reservedWith(kueue.CheckStatePending), func(f *follows) { f.world = World{} }), "QuotaReserved=False/Misconfigured"},
		"what runs without queues runs on":         {scene(runs, func(f *follows) { f.world = World{} }), "wake at 5m0s"},
		"a reservation without queues is admitted": {scene(func(f *follows) {
			f.world = World{}
			f.w.Status.Admission = &kueue.Admission{ClusterQueue: "ghost"}
			set(f.w, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved, "", at(0))
		}), "event Admitted, wake at 5m10s, QuotaReserved=True/QuotaReserved, Admitted=True/Admitted"},

		"checks are ready": {scene(reservedWith(kueue.CheckStatePending), func(f *follows) {
			f.w.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		}), "event Admitted, wake at 5m10s, QuotaReserved=True/QuotaReserved, Admitted=True/Admitted"},
		"a check wants a retry":   {scene(reservedWith(kueue.CheckStateRetry, kueue.CheckStateReady)), "event EvictedDueToAdmissionCheck, QuotaReserved=True/QuotaReserved, Evicted=True/AdmissionCheck"},
		"later":                   {scene(reservedWith(kueue.CheckStateRetry), retry(30)), "event EvictedDueToAdmissionCheck, wake at 30s, QuotaReserved=True/QuotaReserved, Evicted=True/AdmissionCheck, back at 30s"},
		"a rejection goes before": {scene(reservedWith(kueue.CheckStateRetry, kueue.CheckStateRejected)), "event AdmissionCheckRejected, QuotaReserved=True/QuotaReserved, DeactivationTarget=True/AdmissionCheck"},
		"a failed check of one that waits": {scene(func(f *follows) {
			reservedWith(kueue.CheckStateRetry)(f)
			f.rules.Pending(f.w, kueue.ReasonWaitingForQuota, "", at(0))
		}), ""},
		"a check is added, and what runs runs on": {scene(runs, func(f *follows) {
			f.world.ClusterQueue.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "new"}}}
		}), "wake at 5m0s, QuotaReserved=True/QuotaReserved"},
		"a check leaves the queue":                    {scene(reservedWith(kueue.CheckStateReady), leaves), "wake at 5m0s, QuotaReserved=True/QuotaReserved"},
		"a check of a job that is on a worker leaves": {scene(reservedWith(kueue.CheckStateReady, kueue.CheckStateReady), onWorker, leaves), "wake at 5m0s, QuotaReserved=True/QuotaReserved"},
		"the dispatcher leaves":                       {scene(reservedWith(kueue.CheckStateReady), dispatches, onWorker, leaves), "wake at 5m0s"},
		"the dispatcher leaves during an eviction":    {scene(reservedWith(kueue.CheckStateReady), dispatches, onWorker, leaves, evictedBy(kueue.ReasonPreempted)), ""},
		"the dispatcher leaves before it dispatched":  {scene(reservedWith(kueue.CheckStatePending), dispatches, leaves), "event Admitted, wake at 5m10s, QuotaReserved=True/QuotaReserved, Admitted=True/Admitted"},
		"after the backoff": {scene(runs, evictedBy(kueue.ReasonPodsReadyTimeout), isReleased, func(f *follows) {
			f.w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1)), RequeueAt: new(at(5 * time.Second))}
		}), "QuotaReserved=False/PendingEvaluation, Requeued=True/BackoffFinished"},
		"not before": {scene(runs, evictedBy(kueue.ReasonPodsReadyTimeout), isReleased, func(f *follows) {
			f.w.Status.RequeueState = &kueue.RequeueState{RequeueAt: new(at(time.Minute))}
		}), "wake at 1m0s"},

		"ready in time":     {scene(runs, func(f *follows) { f.rules.PodsReady(f.w, true, at(0)) }, after(time.Hour)), ""},
		"not ready in time": {scene(runs, notReady, after(5*time.Minute)), "event EvictedDueToPodsReadyTimeout, QuotaReserved=True/QuotaReserved, Evicted=True/PodsReadyTimeout, back at 6m0s"},
		"another controller did not limit the time": {scene(runs, unlimited, after(time.Hour)), ""},
		"time begins with the limit":                {scene(runs, unlimited, func(f *follows) { f.rules.PodsReady(f.w, false, at(time.Minute)) }, after(5*time.Minute)), "wake at 6m0s"},
		"a Workload without a job has no other time": {
			scene(runs, unlimited, after(5*time.Minute), func(f *follows) { f.w.OwnerReferences = nil }),
			"event EvictedDueToPodsReadyTimeout, QuotaReserved=True/QuotaReserved, Evicted=True/PodsReadyTimeout, back at 6m0s",
		},
		"no reservation, in other words": {scene(func(f *follows) {
			set(f.w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, kueue.ReasonWaitingForQuota, "full", at(0))
			set(f.w, kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.ReasonNoReservation, "another controller says so", at(0))
		}), ""},
		"no Admitted of an old release": {scene(func(f *follows) {
			set(f.w, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, kueue.ReasonPending, "full", at(0))
		}), ""},
		"for the second time":                   {scene(runs, notReady, after(5*time.Minute), func(f *follows) { f.w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1))} }), "event EvictedDueToPodsReadyTimeout, QuotaReserved=True/QuotaReserved, Evicted=True/PodsReadyTimeout, back at 7m0s"},
		"too often":                             {scene(runs, notReady, after(5*time.Minute), func(f *follows) { f.w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(2))} }), "QuotaReserved=True/QuotaReserved, DeactivationTarget=True/RequeuingLimitExceeded"},
		"lost pods have a time":                 {scene(runs, lostPods), "wake at 1m5s"},
		"lost pods stay lost":                   {scene(runs, lostPods, after(time.Hour)), "event EvictedDueToPodsReadyTimeout, QuotaReserved=True/QuotaReserved, Evicted=True/PodsReadyTimeout, back at 1h1m0s"},
		"not ready in time, as far as is known": {scene(runs, notReady, after(8*time.Minute+time.Second), begins(8*time.Minute)), "wake at 9m0s"},
		"not ready in time, nor afterwards":     {scene(runs, notReady, after(10*time.Minute), begins(8*time.Minute)), "event EvictedDueToPodsReadyTimeout, QuotaReserved=True/QuotaReserved, Evicted=True/PodsReadyTimeout, back at 11m0s"},
		"nobody minds":                          {scene(runs, lostPods, after(time.Hour), func(f *follows) { f.rules.Ready.Recovery = 0 }), ""},

		"time left": {scene(runs, func(f *follows) {
			f.rules.Ready, f.w.Spec.MaximumExecutionTimeSeconds = nil, new(int32(100))
			f.w.Status.AccumulatedPastExecutionTimeSeconds = new(int32(60))
		}), "wake at 40s"},
		"time goes on in another slice": {scene(runs, replaces(func(*kueue.Workload) {})), "wake at 40s, QuotaReserved=True/QuotaReserved, ran 60s"},
		"time goes on in a third slice": {scene(runs, replaces(func(old *kueue.Workload) { old.Status.AccumulatedPastExecutionTimeSeconds = new(int32(15)) })), "wake at 25s, QuotaReserved=True/QuotaReserved, ran 75s"},
		"time goes on after the slice was finished": {scene(runs, replaces(func(old *kueue.Workload) {
			set(old, kueue.WorkloadFinished, metav1.ConditionTrue, kueue.ReasonWorkloadSliceReplaced, "", at(0))
		})), "wake at 40s, QuotaReserved=True/QuotaReserved, ran 60s"},
		"time of an evicted slice counts": {scene(runs, replaces(func(old *kueue.Workload) {
			set(old, kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.ReasonNoReservation, "", at(-20*time.Second))
			old.Status.AccumulatedPastExecutionTimeSeconds = new(int32(15))
		})), "wake at 1m25s, QuotaReserved=True/QuotaReserved, ran 15s"},
		"time is counted once": {scene(runs, replaces(func(*kueue.Workload) {}), func(f *follows) { f.w.Status.AccumulatedPastExecutionTimeSeconds = new(int32(1)) }), "wake at 1m39s"},
		"time of a slice that was evicted and finished counts": {scene(runs, replaces(func(old *kueue.Workload) {
			set(old, kueue.WorkloadAdmitted, metav1.ConditionFalse, kueue.ReasonNoReservation, "", at(-20*time.Second))
			set(old, kueue.WorkloadFinished, metav1.ConditionTrue, kueue.ReasonWorkloadSliceReplaced, "", at(-10*time.Second))
			old.Status.AccumulatedPastExecutionTimeSeconds = new(int32(15))
		})), "wake at 1m25s, QuotaReserved=True/QuotaReserved, ran 15s"},
		"time that was over begins anew": {scene(runs, replaces(func(*kueue.Workload) {}), func(f *follows) {
			f.w.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.EvictionCount{{
				Reason: kueue.ReasonDeactivated, UnderlyingCause: kueue.ReasonMaximumExecutionTimeExceeded, Count: 1,
			}}}
		}), "wake at 1m40s"},
		"time that is over a moment after the start": {scene(runs, after(50*time.Second), begins(45*time.Second), func(f *follows) {
			f.rules.Ready, f.w.Spec.MaximumExecutionTimeSeconds = nil, new(int32(46))
		}), "wake at 1m31s"},
		"time was over before it was known": {scene(runs, after(50*time.Second), begins(45*time.Second), func(f *follows) {
			f.rules.Ready, f.w.Spec.MaximumExecutionTimeSeconds = nil, new(int32(20))
		}), "wake at 1m5s"},
		"time is over": {scene(runs, after(40*time.Second), func(f *follows) {
			f.w.Spec.MaximumExecutionTimeSeconds, f.w.Status.AccumulatedPastExecutionTimeSeconds = new(int32(100)), new(int32(60))
		}), "event MaximumExecutionTimeExceeded, wake at 5m0s, QuotaReserved=True/QuotaReserved, DeactivationTarget=True/MaximumExecutionTimeExceeded"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out := tc.f.rules.Follow(tc.f.w, tc.f.world, at(tc.f.now))
			got := tc.f.summary(out)
			for _, g := range tc.f.w.Status.PreemptionGates {
				got = append(got, "gate "+g.Name+" "+string(g.Position))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			again := tc.f.rules.Follow(tc.f.w, tc.f.world, at(tc.f.now))
			if out.Status && again.Status {
				t.Errorf("a second look changes it again: %v", tc.f.summary(again))
			}
		})
	}
}

// spec: 10 §4.9.
func TestRequiredChecks(t *testing.T) {
	cq := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{
		ResourceGroups: []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{Name: "spot"}, {Name: "own"}}}},
		AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{
			{Name: "z-any"},
			{Name: "spot", OnFlavors: []kueue.ResourceFlavorReference{"spot"}},
			{Name: "both", OnFlavors: []kueue.ResourceFlavorReference{"spot", "own"}},
		}},
	}}
	on := func(flavor kueue.ResourceFlavorReference) *kueue.Admission {
		return &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": flavor}}}}
	}
	cases := map[string]struct {
		admission *kueue.Admission
		want      []kueue.AdmissionCheckReference
	}{
		"before a reservation": {nil, []kueue.AdmissionCheckReference{"both", "z-any"}},
		"on one flavor":        {on("spot"), []kueue.AdmissionCheckReference{"both", "spot", "z-any"}},
		"on the other":         {on("own"), []kueue.AdmissionCheckReference{"both", "z-any"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, RequiredChecks(cq, tc.admission)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The end of the backoff is cleared when it has passed, also before the job has given its quota
// back (spec: 10 §4.10 step 6).
func TestBackoffEndsWhileEvicting(t *testing.T) {
	f := scene(runs, evictedBy(kueue.ReasonPodsReadyTimeout), func(f *follows) {
		due := at(5 * time.Second)
		f.w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1)), RequeueAt: &due}
	})
	out := f.rules.Follow(f.w, f.world, at(f.now))
	if s := f.w.Status.RequeueState; !out.Status || s == nil || s.RequeueAt != nil || s.Count == nil || *s.Count != 1 {
		t.Errorf("status written: %t, requeueState %+v", out.Status, f.w.Status.RequeueState)
	}
	if !IsReserved(f.w) || !IsEvicted(f.w) {
		t.Error("the eviction is not finished by that")
	}
}

// TestExplicitStatus: with the feature gate UnadmittedWorkloadsExplicitStatus a new Workload gets both conditions with status False
// in one write (spec: 20 §4.22).
func TestExplicitStatus(t *testing.T) {
	for explicit, want := range map[bool][]string{true: {"QuotaReserved=False/PendingEvaluation", "Admitted=False/NoReservation"}, false: nil} {
		f := scene(func(f *follows) { f.rules.ExplicitStatus = explicit })
		out := f.rules.Follow(f.w, f.world, at(f.now))
		var got []string
		for _, c := range f.w.Status.Conditions {
			got = append(got, c.Type+"="+string(c.Status)+"/"+c.Reason)
		}
		if diff := cmp.Diff(want, got); diff != "" || out.Status != explicit {
			t.Errorf("explicit %t: written %t, -want +got:\n%s", explicit, out.Status, diff)
		}
		if again := f.rules.Follow(f.w, f.world, at(f.now)); again.Status {
			t.Errorf("explicit %t: written twice", explicit)
		}
	}
}
