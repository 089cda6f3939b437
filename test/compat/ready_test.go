package compat

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestPodsReady: the fate of Workloads whose pods do not become ready, with times that a test can wait for.
func TestPodsReady(t *testing.T) {
	running(t, `
waitForPodsReady:
  timeout: 5s
  recoveryTimeout: 10s
  requeuingStrategy: {backoffBaseSeconds: 2, backoffMaxSeconds: 3, backoffLimitCount: 2}
objectRetentionPolicies: {workloads: {afterFinished: 2s}}
`)
	scenes(t, map[string]func(*world){
		"10 §7.49 comes back twice, then is deactivated, and begins anew": func(w *world) {
			q := w.queue("q", "1")
			history := w.history("a")
			wl := w.workload("a", "q", "1")
			for round, backoff := range []time.Duration{2 * time.Second, 3 * time.Second} {
				w.until(wl, admitted, "PodsReady=False/WaitForStart")
				got := w.until(wl, "Evicted=True/PodsReadyTimeout", reserved)
				s := got.Status.RequeueState
				if s == nil || s.Count == nil || int(*s.Count) != round+1 || s.RequeueAt == nil {
					w.t.Fatalf("round %d: requeueState %+v", round, s)
				}
				wait := s.RequeueAt.Sub(trueSince(got, kueue.WorkloadEvicted))
				if wait < backoff-time.Second || wait > backoff+time.Second {
					w.t.Errorf("round %d: comes back after %s, want %s", round, wait, backoff)
				}
				w.tells(wl, "Normal EvictedDueToPodsReadyTimeout")
				w.release(wl)
				got = w.until(wl, admitted, "Requeued=True/BackoffFinished")
				if lacks(got.Status.Conditions, "-Evicted=True") != nil {
					continue // a busy machine looked too late: its pods were not ready once more
				}
				if s := got.Status.RequeueState; s == nil || s.RequeueAt != nil || int(*s.Count) != round+1 {
					w.t.Errorf("round %d: requeueState %+v after it came back", round, s)
				}
			}
			got := w.until(wl, "Evicted=True/DeactivatedDueToRequeuingLimitExceeded", "-DeactivationTarget")
			if *got.Spec.Active || got.Status.RequeueState != nil {
				w.t.Errorf("active %v, requeueState %+v", *got.Spec.Active, got.Status.RequeueState)
			}
			w.tells(wl, "Normal EvictedDueToDeactivatedDueToRequeuingLimitExceeded")
			want := []string{"Deactivated/RequeuingLimitExceeded 1", "PodsReadyTimeout/WaitForStart 2"}
			if diff := cmp.Diff(want, evictions(got)); diff != "" {
				w.t.Errorf("evictions -want +got:\n%s", diff)
			}
			backingOff := func(have []string) bool {
				return slices.Contains(have, "Requeued=False/PodsReadyTimeout") && slices.Contains(have, "QuotaReserved=False/PendingEvaluation")
			}
			if seen := history(); !slices.ContainsFunc(seen, backingOff) {
				w.t.Errorf("it never waited to come back: %q", seen)
			}
			w.release(wl)
			w.usage(q, "0")
			w.activate(wl, true)
			w.until(wl, admitted, "Requeued=True/Reactivated")
			w.podsReady(wl, true)
			w.until(wl, "PodsReady=True/Started")
			w.keeps(wl, 6*time.Second, admitted, "-Evicted=True") // longer than the timeout
		},
		"20 §4.15 pods that are lost, and come back or not": func(w *world) {
			w.queue("q", "2")
			back, lost := w.workload("back", "q", "1"), w.workload("lost", "q", "1")
			for _, wl := range []*kueue.Workload{back, lost} { // back is first: its time to recover ends before that of lost
				w.admits(wl)
				w.podsReady(wl, true)
				w.podsReady(wl, false)
				w.until(wl, "PodsReady=False/WaitForRecovery")
				if wl == back {
					w.podsReady(wl, true)
					w.until(wl, "PodsReady=True/Recovered")
				}
			}
			got := w.until(lost, "Evicted=True/PodsReadyTimeout")
			if diff := cmp.Diff([]string{"PodsReadyTimeout/WaitForRecovery 1"}, evictions(got)); diff != "" {
				w.t.Errorf("evictions -want +got:\n%s", diff)
			}
			w.keeps(back, time.Second, admitted, "-Evicted")
			w.release(lost)
			w.until(lost, admitted, "PodsReady=False/WaitForStart")
		},
		"10 §4.4 after a timeout it is behind those who came later": func(w *world) {
			w.queue("q", "1")
			first := w.workload("first", "q", "1")
			w.admits(first)
			wait.NextSecond(w.t)
			second := w.workload("second", "q", "1")
			w.until(first, "Evicted=True/PodsReadyTimeout")
			w.release(first)
			w.admits(second)
			w.podsReady(second, true)
			w.waits(kueue.ReasonWaitingForQuota, first)
		},
		"10 §7.58 retention, even with the finalizer left behind": func(w *world) {
			w.queue("q", "2")
			wl := w.workload("a", "q", "1", func(wl *kueue.Workload) { wl.Finalizers = []string{kueue.ResourceInUseFinalizer} })
			stays := w.workload("stays", "q", "1")
			w.admits(wl, stays)
			w.podsReady(stays, true)
			w.finish(wl)
			finished := time.Now()
			wait.Until(w.t, "it is deleted", func() error {
				return errStill(w.c.Get(w.ctx(), key(w.name, "a"), &kueue.Workload{}))
			})
			if kept := time.Since(finished); kept < 900*time.Millisecond {
				w.t.Errorf("deleted %s after it finished", kept)
			}
			w.tells(wl, "Normal Deleted")
			w.keeps(stays, time.Second, admitted)
		},
	})
}

// TestCreationOrder is the requeuing strategy that keeps the position in the queue.
func TestCreationOrder(t *testing.T) {
	running(t, `
waitForPodsReady:
  timeout: 2s
  requeuingStrategy: {timestamp: Creation, backoffBaseSeconds: 1, backoffMaxSeconds: 1}
`)
	w := newWorld(t)
	w.queue("q", "1")
	first := w.workload("first", "q", "1")
	w.admits(first)
	wait.NextSecond(w.t)
	second := w.workload("second", "q", "1")
	w.until(first, "Evicted=True/PodsReadyTimeout")
	w.until(first, "QuotaReserved=True/QuotaReserved")
	wait.Until(t, "its backoff is over before its pods are gone", func() error {
		if s := read(w, first).Status.RequeueState; s != nil && s.RequeueAt != nil && time.Until(s.RequeueAt.Time) > 0 {
			return fmt.Errorf("it is requeued at %s", s.RequeueAt)
		}
		return nil // without a time it was over before
	})
	w.change(&kueue.ClusterQueue{ObjectMeta: w.meta("q")}, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
	w.release(first)
	w.until(first, "Requeued=True/BackoffFinished")
	edit(w, &kueue.ClusterQueue{ObjectMeta: w.meta("q")}, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
	w.admits(first)
	w.keeps(second, 500*time.Millisecond, "-Admitted=True")
}

// TestBlockAdmission is 10 §6 #16: while the pods of one Workload are not ready no other is admitted, and all other decisions and writes
// continue.
func TestBlockAdmission(t *testing.T) {
	running(t, `
waitForPodsReady:
  timeout: 10m
  blockAdmission: true
`)
	w := newWorld(t)
	c := w.check("c")
	w.queue("a", "4")
	b := w.queue("b", "4", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
	w.queue("checked", "4", checked(every(c)...))
	first := w.workload("first", "a", "1")
	w.admits(first)
	second := w.workload("second", "b", "1")
	w.waits(kueue.ReasonWaitingForPodsReady, second)
	// The queue of the blocked one still works: edits are observed, and other Workloads are evaluated.
	large := w.workload("large", "a", "9")
	w.waits(kueue.ReasonExceedsMaxQuota, large)
	edit(w, b, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
	w.waits(kueue.ReasonSuspended, second)
	edit(w, b, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
	w.waits(kueue.ReasonWaitingForPodsReady, second)
	w.podsReady(first, true)
	w.admits(second)
	// A Workload that waits for a check holds a reservation, and also blocks.
	w.podsReady(second, true)
	third := w.workload("third", "checked", "1")
	w.until(third, reserved)
	fourth := w.workload("fourth", "a", "1")
	w.waits(kueue.ReasonWaitingForPodsReady, fourth)
	w.answer(third, c, kueue.CheckStateReady)
	w.admits(third)
	w.keeps(fourth, time.Second, "QuotaReserved=False/WaitingForPodsReady")
	if got := evictions(read(w, first)); len(got) > 0 {
		t.Errorf("the first was evicted: %v", got)
	}
}

// TestBlockAdmissionEnds: when the blocking Workload times out, others are admitted although it never became ready.
func TestBlockAdmissionEnds(t *testing.T) {
	running(t, `
waitForPodsReady:
  timeout: 3s
  blockAdmission: true
  requeuingStrategy: {backoffBaseSeconds: 60}
`)
	w := newWorld(t)
	w.queue("a", "4")
	first := w.workload("first", "a", "1")
	w.admits(first)
	second := w.workload("second", "a", "1")
	got := w.until(first, "Evicted=True/PodsReadyTimeout")
	evicted := trueSince(got, kueue.WorkloadEvicted)
	w.release(first)
	w.admits(second)
	if at := trueSince(read(w, second), kueue.WorkloadAdmitted); at.Before(evicted) {
		t.Errorf("the second was admitted at %s, and the first blocks it until %s", at, evicted)
	}
}
