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

// TestAdmissionChecks is the second phase of admission: quota first, then the answers of check controllers.
func TestAdmissionChecks(t *testing.T) {
	running(t, "")
	after := func(seconds int32) func(*kueue.AdmissionCheckState) {
		return func(c *kueue.AdmissionCheckState) { c.RequeueAfterSeconds = &seconds }
	}
	retried := func(n int32) func(*kueue.AdmissionCheckState) {
		return func(c *kueue.AdmissionCheckState) { c.RetryCount = &n }
	}
	updates := func(c *kueue.AdmissionCheckState) {
		c.PodSetUpdates = []kueue.PodSetUpdate{{Name: "main", Labels: map[string]string{"x.io/a": "b"}}}
	}
	scenes(t, map[string]func(*world){
		"10 §7.47 quota first, admitted when the check is ready": func(w *world) {
			c := w.check("c")
			q := w.queue("q", "4", checked(every(c)...))
			wl := w.workload("a", "q", "1")
			got := w.until(wl, reserved, "Admitted=False/UnsatisfiedAdmissionChecks")
			if diff := cmp.Diff([]string{"c=Pending"}, w.checks(got)); diff != "" {
				w.t.Errorf("checks -want +got:\n%s", diff)
			}
			w.usage(q, "1", "0")
			w.answer(wl, c, kueue.CheckStateReady, updates)
			w.admits(wl)
			w.usage(q, "1", "1")
			w.tells(wl, "Normal QuotaReserved", "Normal Admitted")
			if got := w.checksOf(wl)[0].PodSetUpdates; len(got) != 1 || got[0].Labels["x.io/a"] != "b" {
				w.t.Errorf("podSetUpdates %+v", got)
			}
			w.denied(w.tryEditStatus(wl, func(s *kueue.WorkloadStatus) { s.AdmissionChecks[0].PodSetUpdates[0].Labels = nil }), 403, "podSetUpdates")
		},
		"20 §4.17 checks of single flavors": func(w *world) {
			all, onSpot := w.check("all"), w.check("spot")
			for _, f := range []string{"spot", "demand"} {
				w.flavor(f)
			}
			rules := append(every(all), kueue.AdmissionCheckStrategyRule{
				Name: kueue.AdmissionCheckReference(onSpot), OnFlavors: []kueue.ResourceFlavorReference{kueue.ResourceFlavorReference(w.own("spot"))},
			})
			w.queue("q", "", quota(w.own("spot")+"=1", w.own("demand")+"=4"), checked(rules...))
			one, two := w.workload("one", "q", "1", priority(1)), w.workload("two", "q", "2")
			w.until(one, reserved)
			w.until(two, reserved)
			w.listed(one, "all=Pending", "spot=Pending")
			w.listed(two, "all=Pending")
			w.answer(one, all, kueue.CheckStateReady)
			w.answer(two, all, kueue.CheckStateReady)
			w.admits(two)
			w.keeps(one, time.Second, "Admitted=False/UnsatisfiedAdmissionChecks")
			w.answer(one, onSpot, kueue.CheckStateReady)
			w.admits(one)
			waiting := w.workload("waiting", "q", "9")
			w.waits(kueue.ReasonExceedsMaxQuota, waiting)
			w.listed(waiting, "all=Pending")
		},
		"10 §7.51 retry after some seconds": func(w *world) {
			c := w.check("c")
			q := w.queue("q", "4", checked(every(c)...))
			wl := w.workload("a", "q", "1")
			w.until(wl, reserved)
			began := time.Now()
			w.answer(wl, c, kueue.CheckStateRetry, after(10), updates) // long enough to see its quota free, however slow the machine
			got := w.until(wl, "Evicted=True/AdmissionCheck", reserved)
			w.listed(wl, "c=Pending retry 1")
			wait.Until(w.t, "the answer is taken back", func() error { // a field that its writer owns takes a second write
				if u := w.checksOf(wl)[0]; u.PodSetUpdates != nil || *u.RequeueAfterSeconds != 10 {
					return fmt.Errorf("the check is %+v", u)
				}
				return nil
			})
			if s := got.Status.RequeueState; s == nil || s.RequeueAt == nil || s.Count != nil {
				w.t.Errorf("requeueState %+v", s)
			}
			w.tells(wl, "Normal EvictedDueToAdmissionCheck")
			w.release(wl)
			w.until(wl, "QuotaReserved=False/PendingEvaluation", "Requeued=False/AdmissionCheck", "Admitted=False/NoReservation")
			w.usage(q, "0")
			w.until(wl, reserved, "Requeued=True/BackoffFinished", "Evicted=False/QuotaReserved")
			if waited := time.Since(began); waited < 9*time.Second {
				w.t.Errorf("it was back after %s", waited)
			}
			if s := read(w, wl).Status.RequeueState; s != nil {
				w.t.Errorf("requeueState %+v stays", s)
			}
			w.answer(wl, c, kueue.CheckStateReady)
			w.admits(wl)
		},
		"20 §4.17 retry without a delay": func(w *world) {
			c := w.check("c")
			w.queue("q", "4", checked(every(c)...))
			wl := w.workload("a", "q", "1")
			w.until(wl, reserved)
			w.answer(wl, c, kueue.CheckStateRetry)
			w.until(wl, "Evicted=True/AdmissionCheck")
			if s := read(w, wl).Status.RequeueState; s != nil {
				w.t.Errorf("requeueState %+v", s)
			}
			w.release(wl)
			w.until(wl, reserved, "Requeued=True/BackoffFinished")
			w.listed(wl, "c=Pending retry 1")
		},
		"10 §7.51 rejected, even if another wants a retry; 10 §7.73": func(w *world) {
			a, b := w.check("a"), w.check("b")
			q := w.queue("q", "4", checked(every(a, b)...))
			wl := w.workload("a", "q", "1")
			w.until(wl, reserved)
			w.listed(wl, "a=Pending", "b=Pending")
			w.editStatus(wl, func(s *kueue.WorkloadStatus) {
				s.AdmissionChecks[0].State, s.AdmissionChecks[1].State = kueue.CheckStateRetry, kueue.CheckStateRejected
			})
			got := w.until(wl, "Evicted=True/DeactivatedDueToAdmissionCheck", "-DeactivationTarget")
			if *got.Spec.Active {
				w.t.Error("it is active")
			}
			if diff := cmp.Diff([]string{"Deactivated/AdmissionCheck 1"}, evictions(got)); diff != "" {
				w.t.Errorf("evictions -want +got:\n%s", diff)
			}
			w.tells(wl, "Warning AdmissionCheckRejected", "Normal EvictedDueToDeactivatedDueToAdmissionCheck")
			w.usage(q, "0") // deactivation frees it at once
			w.release(wl)
			w.until(wl, "QuotaReserved=False/Deactivated", "Requeued=False/DeactivatedDueToAdmissionCheck")
			w.activate(wl, true)
			w.until(wl, reserved, "Requeued=True/Reactivated", "Evicted=False/QuotaReserved")
			w.listed(wl, "a=Pending retry 1", "b=Pending")
		},
		"10 §7.72 retry, ready and pending together": func(w *world) {
			names := []string{w.check("a"), w.check("b"), w.check("c")}
			w.queue("q", "4", checked(every(names...)...))
			wl := w.workload("a", "q", "1")
			w.until(wl, reserved)
			w.answer(wl, names[2], kueue.CheckStatePending, retried(2))
			w.answer(wl, names[1], kueue.CheckStateReady)
			w.answer(wl, names[0], kueue.CheckStateRetry)
			w.until(wl, "Evicted=True/AdmissionCheck")
			w.listed(wl, "a=Pending retry 1", "b=Pending", "c=Pending retry 2")
			if m := w.checksOf(wl)[1].Message; m == "" || m == "said so" {
				w.t.Errorf("the message of a reset check is %q", m)
			}
		},
		"10 §4.10 failed checks without a reservation evict nobody, and nobody is admitted": func(w *world) {
			c := w.check("c")
			q := w.queue("q", "1", checked(every(c)...))
			first := w.workload("first", "q", "1")
			w.until(first, reserved)
			wl := w.workload("a", "q", "1")
			w.waits(kueue.ReasonWaitingForQuota, wl)
			w.answer(wl, c, kueue.CheckStateRejected)
			w.finish(first)
			w.usage(q, "0")
			w.keeps(wl, 2*time.Second, "-Evicted", "Admitted=False/NoReservation")
			w.waits(kueue.ReasonPendingEvaluation, wl)
			w.listed(wl, "c=Rejected")
			w.answer(wl, c, kueue.CheckStateReady)
			w.admits(wl)
		},
		"20 §4.17 checks that are added and removed under way": func(w *world) {
			a, b := w.check("a"), w.check("b")
			q := w.queue("q", "4", checked(every(a)...))
			wl, runs := w.workload("a", "q", "1"), w.workload("runs", "q", "1")
			w.until(wl, reserved)
			w.answer(runs, a, kueue.CheckStateReady)
			w.admits(runs)
			edit(w, q, checked(every(a, b)...))
			w.listed(wl, "a=Pending", "b=Pending")
			w.answer(wl, a, kueue.CheckStateReady)
			w.keeps(wl, time.Second, "Admitted=False/UnsatisfiedAdmissionChecks")
			// What runs is told of a new check, and runs on.
			w.listed(runs, "a=Ready", "b=Pending")
			w.keeps(runs, time.Second, admitted, "-Evicted")
			edit(w, q, checked(every(a)...))
			w.admits(wl)
			w.listed(wl, "a=Ready")
			next := w.workload("next", "q", "1")
			w.until(next, reserved)
			edit(w, q, func(q *kueue.ClusterQueue) { q.Spec.AdmissionChecksStrategy = nil })
			w.admits(next)
			w.listed(wl)
		},
		"20 §4.17 not ready any more after admission": func(w *world) {
			c := w.check("c")
			w.queue("q", "4", checked(every(c)...))
			wl := w.workload("a", "q", "1")
			w.answer(wl, c, kueue.CheckStateReady)
			w.admits(wl)
			w.answer(wl, c, kueue.CheckStateRetry)
			w.until(wl, "Evicted=True/AdmissionCheck", admitted, reserved)
			w.release(wl)
			w.until(wl, reserved, "Admitted=False/UnsatisfiedAdmissionChecks")
			w.listed(wl, "c=Pending retry 1")
		},
		"10 §4.11 who failed a check goes behind the others": func(w *world) {
			c := w.check("c")
			w.queue("q", "1", checked(every(c)...))
			first := w.workload("first", "q", "1")
			w.until(first, reserved)
			wait.NextSecond(w.t)
			second := w.workload("second", "q", "1")
			w.waits(kueue.ReasonWaitingForQuota, second)
			wait.NextSecond(w.t)
			w.answer(first, c, kueue.CheckStateRetry)
			w.until(first, "Evicted=True/AdmissionCheck")
			w.release(first)
			w.until(second, reserved)
			w.waits(kueue.ReasonWaitingForQuota, first)
		},
	})
}

// checksOf are the checks of a Workload as they are now.
func (w *world) checksOf(wl *kueue.Workload) []kueue.AdmissionCheckState {
	w.t.Helper()
	return read(w, wl).Status.AdmissionChecks
}

// listed waits until exactly these checks are listed.
func (w *world) listed(wl *kueue.Workload, want ...string) {
	w.t.Helper()
	wait.Until(w.t, "the checks of "+wl.Name, func() error {
		if got := w.checks(read(w, wl)); !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}
