package compat

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestEveryoneSaysWhy: within 10 seconds every pending Workload has a reason, also if it was not the first of its kind. spec: 20 §4.22.
func TestEveryoneSaysWhy(t *testing.T) {
	running(t, "")
	scenes(t, map[string]func(*world){
		"equivalent ones, and those behind a strict head": func(w *world) {
			w.queue("q", "2")
			w.queue("s", "2", strict)
			w.admits(w.workload("runs", "q", "2"))
			var alike []*kueue.Workload
			for i := range 5 {
				alike = append(alike, w.workload(fmt.Sprintf("alike-%d", i), "q", "1"))
			}
			head := w.workload("head", "s", "3", priority(9)) // both may have been created in one second
			behind := w.workload("behind", "s", "1")
			wait.Until(w.t, "all say why", func() error {
				for _, wl := range alike {
					if err := lacks(read(w, wl).Status.Conditions, "QuotaReserved=False/WaitingForQuota"); err != nil {
						return err
					}
				}
				if err := lacks(read(w, head).Status.Conditions, "QuotaReserved=False/ExceedsMaxQuota"); err != nil {
					return err
				}
				return lacks(read(w, behind).Status.Conditions, "QuotaReserved=False/PendingEvaluation")
			})
		},
	})
}

// TestExplicitStatus is the feature gate UnadmittedWorkloadsExplicitStatus. spec: 20 §4.22.
func TestExplicitStatus(t *testing.T) {
	running(t, "featureGates: {UnadmittedWorkloadsExplicitStatus: true}")
	scenes(t, map[string]func(*world){
		"at once, then the reason of an equivalent one": func(w *world) {
			w.queue("q", "2")
			w.admits(w.workload("runs", "q", "2"))
			first := w.workload("first", "q", "1")
			w.until(first, "QuotaReserved=False/WaitingForQuota", "Admitted=False/NoReservation")
			second := w.workload("second", "q", "1")
			w.until(second, "Admitted=False/NoReservation")
			wait.Until(w.t, "it says why", func() error {
				return lacks(read(w, second).Status.Conditions, "QuotaReserved=False/WaitingForQuota", "Admitted=False/NoReservation")
			})
		},
	})
}

// TestLegacyReasons is the feature gate UnadmittedWorkloadsObservability, off. spec: 10 §4.10, 70 §5.1.
func TestLegacyReasons(t *testing.T) {
	running(t, "featureGates: {UnadmittedWorkloadsObservability: false}")
	scenes(t, map[string]func(*world){
		"queues that are missing or stopped, and failed attempts": func(w *world) {
			lost := w.workload("lost", "nowhere", "1")
			w.queue("stopped", "2", func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
			held := w.workload("held", "stopped", "1")
			w.queue("elsewhere", "2", func(q *kueue.ClusterQueue) {
				q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "other"}}
			})
			misfit := w.workload("misfit", "elsewhere", "1")
			alike := w.workload("misfit-2", "elsewhere", "1")
			w.until(lost, "QuotaReserved=False/Inadmissible")
			w.until(held, "QuotaReserved=False/Inadmissible")
			w.until(misfit, "QuotaReserved=False/Pending")
			w.until(alike, "QuotaReserved=False/Pending")
		},
	})
}

// TestPausedAdmission: --controllers=-scheduler pauses admission, and nothing else.
func TestPausedAdmission(t *testing.T) {
	running(t, "", only(t, "-scheduler"))
	scenes(t, map[string]func(*world){
		"statuses go on": func(w *world) {
			w.queue("q", "2")
			lost := w.workload("lost", "nowhere", "1")
			fits := w.workload("fits", "q", "1")
			w.queue("stopped", "2", func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
			held := w.workload("held", "stopped", "1")
			w.queue("elsewhere", "2", func(q *kueue.ClusterQueue) {
				q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "other"}}
			})
			misfit := w.workload("misfit", "elsewhere", "1")
			wait.Until(w.t, "all say why", func() error {
				for wl, want := range map[*kueue.Workload]string{lost: "Misconfigured", misfit: "Misconfigured", fits: "PendingEvaluation", held: "Suspended"} {
					if err := lacks(read(w, wl).Status.Conditions, "QuotaReserved=False/"+want, "PodsReady=False/WaitForStart"); err != nil {
						return err
					}
				}
				return nil
			})
			w.keeps(fits, time.Second, "QuotaReserved=False/PendingEvaluation")
		},
	})
}

// TestFairHeadsAtOnce: four queues of equal weight under two cohorts, one of which has everything; then heads of all four
// wait at once, and as many are preempted as the shares need. spec: 20 §4.3.
func TestFairHeadsAtOnce(t *testing.T) {
	running(t, "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}")
	scenes(t, map[string]func(*world){
		"20 §4.3 four queues": func(w *world) {
			w.cohort("root", "", 8, -1, -1)
			names := []string{"a1", "a2", "b1", "b2"}
			for i, c := range []string{"left", "right"} {
				w.cohort(c, "root", 0, -1, -1)
				for _, q := range names[2*i : 2*i+2] {
					w.queue(q, "0", in(w.own(c)), preempting(kueue.PreemptionLowerPriority, kueue.ReclaimAny))
				}
			}
			var all []*kueue.Workload
			for i := range 8 {
				all = append(all, w.workload(fmt.Sprintf("run-%d", i), "a1", "1"))
			}
			w.admits(all...)
			for i := range 3 {
				for _, q := range names {
					all = append(all, w.workload(fmt.Sprintf("%s-%d", q, i), q, "1"))
				}
			}
			victims := map[string]bool{}
			step := func() map[string]int {
				holds := map[string]int{}
				for _, wl := range all {
					now := read(w, wl)
					switch evicted := lacks(now.Status.Conditions, "Evicted=True/Preempted") == nil; {
					case lacks(now.Status.Conditions, reserved) != nil:
					case evicted:
						victims[wl.Name] = true
						_ = w.tryRelease(wl) // retried with the next round
					default:
						holds[string(wl.Spec.QueueName)]++
					}
				}
				return holds
			}
			const want = "map[a1:2 a2:2 b1:2 b2:2]"
			wait.Until(w.t, "equal shares", func() error { return equal(fmt.Sprint(step()), want) })
			wait.Stays(w.t, 2*time.Second, "equal shares", func() error { return equal(fmt.Sprint(step()), want) })
			if len(victims) != 6 {
				w.t.Errorf("%d victims, want 6: %v", len(victims), victims)
			}
		},
	})
}

// TestShrinkInPlace: counts of any Workload that holds quota may shrink, and usage follows. spec: 10 §3, 20 §4.11.
func TestShrinkInPlace(t *testing.T) {
	running(t, "")
	scenes(t, map[string]func(*world){
		"no elastic annotation": func(w *world) {
			q := w.queue("q", "4")
			wl := w.workload("w", "q", "1", count(4))
			w.admits(wl)
			w.usage(q, "4")
			edit(w, wl, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 1 })
			w.admits(w.workload("next", "q", "3"))
			w.denied(tryEdit(w, wl, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 3 }), 403, "podSets")
		},
	})
}
