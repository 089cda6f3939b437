package compat

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestEviction: how admitted Workloads lose their quota, and are requeued.
func TestEviction(t *testing.T) {
	running(t, "")
	scenes(t, map[string]func(*world){
		"10 §7.25 preempted in two phases, the lowest and newest first": func(w *world) {
			q := w.queue("q", "10", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
			a, d := w.workload("a", "q", "2", priority(10)), w.workload("d", "q", "4", priority(5))
			w.admits(a, d)
			b := w.workload("b", "q", "3", priority(0))
			w.admits(b)
			wait.NextSecond(w.t)
			c := w.workload("c", "q", "1", priority(0))
			w.admits(c)
			p := w.workload("p", "q", "4", priority(20))
			for _, victim := range []*kueue.Workload{b, c} {
				got := w.until(victim, "Evicted=True/Preempted", "Preempted=True/InClusterQueue", reserved, admitted)
				w.tells(victim, "Normal Preempted", "Normal EvictedDueToPreempted")
				if diff := cmp.Diff([]string{"Preempted/ 1"}, evictions(got)); diff != "" {
					w.t.Errorf("%s: evictions -want +got:\n%s", victim.Name, diff)
				}
			}
			w.waits(kueue.ReasonWaitingForPreemptedWorkloads, p)
			w.usage(q, "10", "10") // the victims' pods run still
			w.release(b)
			w.until(b, "QuotaReserved=False/PendingEvaluation", "Admitted=False/NoReservation", "Requeued=True/Preempted", "Evicted=True/Preempted")
			w.keeps(p, time.Second, "QuotaReserved=False/WaitingForPreemptedWorkloads")
			w.release(c)
			w.admits(p)
			w.tells(p, "Normal PreemptedWorkload")
			for _, bystander := range []*kueue.Workload{a, d} {
				if got := evictions(read(w, bystander)); len(got) > 0 {
					w.t.Errorf("%s: %v", bystander.Name, got)
				}
			}
			w.finish(a)
			w.finish(d)
			w.until(b, admitted, "Evicted=False/QuotaReserved", "Preempted=False/QuotaReserved", "Requeued=True/Preempted")
			w.admits(c)
			if n := read(w, b).Status.AccumulatedPastExecutionTimeSeconds; n == nil {
				w.t.Error("the time that it was admitted before is forgotten")
			}
		},
		"10 §7.28 reclaimed in the cohort": func(w *world) {
			cohort := w.own("cohort")
			w.queue("a", "6", in(cohort), preempting(kueue.PreemptionNever, kueue.ReclaimAny))
			w.queue("b", "6", in(cohort))
			a1 := w.workload("a1", "a", "2", priority(0))
			b1, b2, b3 := w.workload("b1", "b", "4", priority(50)), w.workload("b2", "b", "4", priority(10)), w.workload("b3", "b", "2", priority(90))
			w.admits(a1, b1, b2, b3)
			p := w.workload("p", "a", "4", priority(5))
			w.until(b2, "Evicted=True/Preempted", "Preempted=True/InCohortReclamation")
			w.release(b2)
			w.admits(p)
			for _, bystander := range []*kueue.Workload{a1, b1, b3} {
				if err := lacks(read(w, bystander).Status.Conditions, "-Evicted"); err != nil {
					w.t.Errorf("%s: %v", bystander.Name, err)
				}
			}
		},
		"10 §7.37 a preemptor that goes before its victims": func(w *world) {
			w.queue("q", "2", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
			victim := w.workload("victim", "q", "2")
			w.admits(victim)
			p := w.workload("p", "q", "2", priority(9))
			w.until(victim, "Evicted=True/Preempted")
			w.must(w.c.Delete(w.ctx(), p))
			w.keeps(victim, time.Second, "Evicted=True/Preempted", reserved)
			w.release(victim)
			w.until(victim, admitted, "Evicted=False/QuotaReserved")
		},
		"10 §7.48 deactivated and active again": func(w *world) {
			q := w.queue("q", "4")
			wl := w.workload("a", "q", "3")
			w.admits(wl)
			w.activate(wl, false)
			w.until(wl, "Evicted=True/Deactivated", reserved, admitted)
			w.tells(wl, "Normal EvictedDueToDeactivated")
			w.usage(q, "0") // 10 §6 #29: at once
			other := w.workload("other", "q", "3")
			w.admits(other)
			w.release(wl)
			w.until(wl, "QuotaReserved=False/Deactivated", "Requeued=False/Deactivated", "Admitted=False/NoReservation")
			w.finish(other)
			w.keeps(wl, time.Second, "QuotaReserved=False/Deactivated")
			w.activate(wl, true)
			got := w.until(wl, admitted, "Requeued=True/Reactivated", "Evicted=False/QuotaReserved")
			if diff := cmp.Diff([]string{"Deactivated/ 1"}, evictions(got)); diff != "" {
				w.t.Errorf("evictions -want +got:\n%s", diff)
			}
		},
		"10 §4.10 deactivated before it ever had quota": func(w *world) {
			w.queue("q", "4")
			wl := w.workload("a", "q", "9")
			w.waits(kueue.ReasonExceedsMaxQuota, wl)
			w.activate(wl, false)
			got := w.until(wl, "Evicted=True/Deactivated", "QuotaReserved=False/Deactivated")
			if diff := cmp.Diff([]string{"Deactivated/ 1"}, evictions(got)); diff != "" {
				w.t.Errorf("evictions -want +got:\n%s", diff)
			}
			if slices.Contains(w.events(wl), "Normal EvictedDueToDeactivated") {
				w.t.Error("an event tells of the eviction of what had no quota")
			}
			w.activate(wl, true)
			w.waits(kueue.ReasonExceedsMaxQuota, wl)
			edit(w, wl, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec = podSpec("cpu", "1") })
			w.until(wl, admitted, "Evicted=False/QuotaReserved")
		},
		"10 §4.11 deactivated while it is being preempted, and active again": func(w *world) {
			w.queue("q", "2", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
			victim := w.workload("victim", "q", "2")
			w.admits(victim)
			p := w.workload("p", "q", "2", priority(9))
			w.until(victim, "Evicted=True/Preempted")
			w.activate(victim, false)
			w.admits(p)
			w.keeps(victim, time.Second, "Evicted=True/Preempted")
			w.release(victim)
			w.finish(p)
			w.waits(kueue.ReasonDeactivated, victim)
			w.activate(victim, true)
			w.admits(victim)
		},
		"10 §6 #1 deactivated by Berth with a wish that came while it was evicted": func(w *world) {
			w.queue("q", "2", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
			victim := w.workload("victim", "q", "2")
			w.admits(victim)
			p := w.workload("p", "q", "2", priority(9))
			w.until(victim, "Evicted=True/Preempted")
			w.editStatus(victim, func(s *kueue.WorkloadStatus) {
				s.Conditions = append(s.Conditions, condition("DeactivationTarget", "True", kueue.ReasonMaximumExecutionTimeExceeded))
			})
			wait.Until(w.t, "it is deactivated", func() error { return equal(*read(w, victim).Spec.Active, false) })
			w.release(victim)
			w.finish(p)
			w.until(victim, "-DeactivationTarget", "QuotaReserved=False/Deactivated")
			w.activate(victim, true)
			w.admits(victim)
		},
		"10 §7.50 maximum execution time over two admissions": func(w *world) {
			w.queue("q", "1", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
			wl := w.workload("a", "q", "1", func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = new(int32(20)) })
			w.admits(wl)
			w.denied(tryEdit(w, wl, func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = new(int32(29)) }), 422)
			time.Sleep(2500 * time.Millisecond)
			p := w.workload("p", "q", "1", priority(1))
			w.until(wl, "Evicted=True/Preempted")
			w.release(wl)
			w.admits(p)
			spent := read(w, wl).Status.AccumulatedPastExecutionTimeSeconds
			if spent == nil || *spent < 2 {
				w.t.Fatalf("it spent %v", spent)
			}
			w.finish(p)
			w.admits(wl)
			again := time.Now()
			got := w.until(wl, "Evicted=True/DeactivatedDueToMaximumExecutionTimeExceeded")
			if ran := time.Since(again); ran > 19*time.Second {
				w.t.Errorf("it ran for another %s", ran)
			}
			if *got.Spec.Active || got.Status.AccumulatedPastExecutionTimeSeconds != nil {
				w.t.Errorf("active %v, spent %v", *got.Spec.Active, got.Status.AccumulatedPastExecutionTimeSeconds)
			}
			w.tells(wl, "Warning MaximumExecutionTimeExceeded", "Normal EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded")
			w.release(wl)
			w.activate(wl, true)
			got = w.until(wl, admitted, "Requeued=True/Reactivated")
			if spent := got.Status.AccumulatedPastExecutionTimeSeconds; spent != nil {
				w.t.Errorf("it has not its whole time again: it spent %d", *spent)
			}
		},
		"10 §7.54 a ClusterQueue that is deleted": func(w *world) {
			c := w.check("c")
			q := w.queue("q", "4", checked(every(c)...))
			runs, holds, waits := w.workload("runs", "q", "1"), w.workload("holds", "q", "1"), w.workload("waits", "q", "9")
			w.answer(runs, c, kueue.CheckStateReady)
			w.admits(runs)
			w.until(holds, reserved)
			w.waits(kueue.ReasonExceedsMaxQuota, waits)
			w.must(w.c.Delete(w.ctx(), q))
			w.until(holds, "QuotaReserved=False/Misconfigured", "-Evicted")
			wait.Until(w.t, "the ClusterQueue says so", func() error {
				return lacks(read(w, q).Status.Conditions, "Active=False/Terminating")
			})
			w.usage(q, "1", "1")
			w.keeps(runs, time.Second, admitted, "-Evicted")
			w.finish(runs)
			wait.Until(w.t, "it is gone", func() error {
				return errStill(w.c.Get(w.ctx(), client.ObjectKeyFromObject(q), &kueue.ClusterQueue{}))
			})
			w.waits(kueue.ReasonMisconfigured, waits)
		},
		"10 §7.55 a flavor that is deleted": func(w *world) {
			q := w.queue("q", "4")
			f := w.flavor("other")
			f.Name = w.own("f")
			w.must(w.c.Delete(w.ctx(), f.DeepCopy()))
			wl := w.workload("a", "q", "1")
			w.admits(wl)
			if read(w, f).DeletionTimestamp == nil {
				w.t.Error("it is not terminating")
			}
			edit(w, q, func(q *kueue.ClusterQueue) {
				q.Spec.ResourceGroups = nil
				quota(w.own("other") + "=4")(q)
			})
			wait.Until(w.t, "it is gone", func() error {
				return errStill(w.c.Get(w.ctx(), client.ObjectKeyFromObject(f), &kueue.ResourceFlavor{}))
			})
		},
	})
}

// TestStoppedQueues: what becomes of the Workloads of queues that are stopped, or deleted.
func TestStoppedQueues(t *testing.T) {
	running(t, "")
	scenes(t, map[string]func(*world){
		"10 §7.52 Hold": func(w *world) {
			c := w.check("c")
			q := w.queue("q", "3", checked(every(c)...))
			runs, holds, waits := w.workload("runs", "q", "1"), w.workload("holds", "q", "1"), w.workload("waits", "q", "2")
			w.answer(runs, c, kueue.CheckStateReady)
			w.admits(runs)
			w.until(holds, reserved)
			w.waits(kueue.ReasonWaitingForQuota, waits)
			edit(w, q, stop(kueue.StopPolicyHold))
			w.until(holds, "QuotaReserved=False/Suspended", "Admitted=False/NoReservation", "-Evicted", "-Requeued")
			w.waits(kueue.ReasonSuspended, waits)
			w.finish(runs) // runs on until then
			w.keeps(waits, time.Second, "QuotaReserved=False/Suspended")
			edit(w, q, stop(kueue.StopPolicyNone))
			w.until(holds, reserved)
			w.until(waits, reserved)
		},
		"10 §7.53 HoldAndDrain": func(w *world) {
			q := w.queue("q", "4")
			wl := w.workload("a", "q", "1")
			w.admits(wl)
			edit(w, q, stop(kueue.StopPolicyHoldAndDrain))
			w.until(wl, "Evicted=True/ClusterQueueStopped", reserved, admitted)
			w.tells(wl, "Normal EvictedDueToClusterQueueStopped")
			w.release(wl)
			w.until(wl, "Requeued=False/ClusterQueueStopped")
			w.waits(kueue.ReasonSuspended, wl)
			edit(w, q, stop(kueue.StopPolicyHold))
			w.keeps(wl, time.Second, "Requeued=False/ClusterQueueStopped")
			edit(w, q, stop(kueue.StopPolicyNone))
			w.until(wl, admitted, "Requeued=True/ClusterQueueRestarted", "Evicted=False/QuotaReserved")
		},
		"10 §4.12 a LocalQueue that drains": func(w *world) {
			q := w.queue("q", "4")
			lq := w.localQueue("other", q.Name)
			w.create(lq)
			wl, stays, waits := w.workload("a", "other", "1"), w.workload("stays", "q", "1"), w.workload("waits", "other", "9")
			w.admits(wl, stays)
			w.waits(kueue.ReasonExceedsMaxQuota, waits)
			edit(w, lq, func(lq *kueue.LocalQueue) { lq.Spec.StopPolicy = kueue.StopPolicyHoldAndDrain })
			w.until(wl, "Evicted=True/LocalQueueStopped")
			w.waits(kueue.ReasonSuspended, waits)
			w.release(wl)
			w.until(wl, "Requeued=False/LocalQueueStopped")
			edit(w, lq, func(lq *kueue.LocalQueue) { lq.Spec.StopPolicy = kueue.StopPolicyNone })
			w.until(wl, admitted, "Requeued=True/LocalQueueRestarted")
			w.waits(kueue.ReasonExceedsMaxQuota, waits)
			w.keeps(stays, 100*time.Millisecond, "-Evicted")
		},
		"10 §4.10 a stopped queue is back before a backoff ends": func(w *world) {
			c := w.check("c")
			q := w.queue("q", "4", checked(every(c)...))
			wl := w.workload("a", "q", "1")
			w.until(wl, reserved)
			w.answer(wl, c, kueue.CheckStateRetry, func(s *kueue.AdmissionCheckState) { s.RequeueAfterSeconds = new(int32(600)) })
			w.until(wl, "Evicted=True/AdmissionCheck")
			w.release(wl)
			w.until(wl, "QuotaReserved=False/PendingEvaluation", "Requeued=False/AdmissionCheck")
			edit(w, q, stop(kueue.StopPolicyHold))
			w.waits(kueue.ReasonSuspended, wl)
			edit(w, q, stop(kueue.StopPolicyNone))
			w.until(wl, "QuotaReserved=False/PendingEvaluation", "Requeued=False/AdmissionCheck")
		},
		"10 §4.12 a LocalQueue that is being deleted": func(w *world) {
			c := w.check("c")
			q := w.queue("q", "4", checked(every(c)...))
			lq := w.localQueue("other", q.Name)
			lq.Finalizers = append(lq.Finalizers, "example.com/keep")
			w.create(lq)
			holds, waits := w.workload("holds", "other", "1"), w.workload("waits", "other", "9")
			w.until(holds, reserved)
			w.waits(kueue.ReasonExceedsMaxQuota, waits)
			w.must(w.c.Delete(w.ctx(), lq))
			w.waits(kueue.ReasonMisconfigured, holds, waits)
			w.keeps(holds, 2*time.Second, "QuotaReserved=False/Misconfigured")
			edit(w, lq, func(lq *kueue.LocalQueue) { lq.Finalizers = nil })
		},
		"10 §6 #15 reclaimed from a stopped queue": func(w *world) {
			cohort := w.own("cohort")
			w.queue("a", "4", in(cohort), preempting(kueue.PreemptionNever, kueue.ReclaimAny))
			b := w.queue("b", "0", in(cohort))
			borrower := w.workload("borrower", "b", "4")
			w.admits(borrower)
			w.change(b, stop(kueue.StopPolicyHold))
			p := w.workload("p", "a", "4")
			w.until(borrower, "Evicted=True/Preempted", "Preempted=True/InCohortReclamation")
			w.release(borrower)
			w.admits(p)
			w.waits(kueue.ReasonSuspended, borrower)
		},
		"10 §4.12 a ClusterQueue drains also what came by a LocalQueue that is held, or gone": func(w *world) {
			q := w.queue("q", "4")
			held, gone := w.localQueue("held", q.Name), w.localQueue("gone", q.Name)
			w.create(held, gone)
			a, b := w.workload("a", "held", "1"), w.workload("b", "gone", "1")
			w.admits(a, b)
			edit(w, held, func(lq *kueue.LocalQueue) { lq.Spec.StopPolicy = kueue.StopPolicyHold })
			w.must(w.c.Delete(w.ctx(), gone))
			w.keeps(a, time.Second, admitted, "-Evicted")
			w.keeps(b, 100*time.Millisecond, admitted, "-Evicted")
			edit(w, q, stop(kueue.StopPolicyHoldAndDrain))
			w.until(a, "Evicted=True/ClusterQueueStopped")
			w.until(b, "Evicted=True/ClusterQueueStopped")
		},
	})
}

// stop sets the policy of a ClusterQueue.
func stop(p kueue.StopPolicy) queueSetting {
	return func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = p }
}
