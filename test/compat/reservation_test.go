package compat

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// scenes runs tests of one manager at the same time: they mostly wait.
func scenes(t *testing.T, tests map[string]func(*world)) {
	t.Helper()
	t.Run("scenes", func(t *testing.T) {
		for name, scene := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scene(newWorld(t))
			})
		}
	})
}

// TestReservation: how Workloads get a quota reservation, and their conditions until then.
func TestReservation(t *testing.T) {
	running(t, "")
	scenes(t, map[string]func(*world){
		"10 §7.47 without checks one write reserves and admits": func(w *world) {
			w.queue("q", "4")
			history := w.history("a")
			wl := w.workload("a", "q", "1")
			w.admits(wl)
			w.tells(wl, "Normal QuotaReserved", "Normal Admitted")
			want := [][]string{{}, {"Admitted=True/Admitted", "PodsReady=False/WaitForStart", "QuotaReserved=True/QuotaReserved"}}
			if diff := cmp.Diff(want, history()); diff != "" {
				w.t.Errorf("the states that a client sees -want +got:\n%s", diff)
			}
			got := read(w, wl)
			for _, c := range got.Status.Conditions {
				if c.ObservedGeneration != got.Generation {
					w.t.Errorf("%s observed generation %d of %d", c.Type, c.ObservedGeneration, got.Generation)
				}
			}
			a := got.Status.Admission.PodSetAssignments[0]
			if cpu := a.ResourceUsage["cpu"]; cpu.String() != "1" || string(a.Flavors["cpu"]) != w.own("f") || *a.Count != 1 {
				w.t.Errorf("assigned %+v", a)
			}
		},
		"10 §7.39 a head that is too large lets others pass": func(w *world) {
			q := w.queue("q", "4")
			first := w.workload("first", "q", "2")
			w.admits(first)
			head := w.workload("head", "q", "3", priority(10))
			w.waits(kueue.ReasonWaitingForQuota, head)
			small := w.workload("small", "q", "1")
			w.admits(small)
			w.tells(head, "Warning WaitingForQuota")
			late := w.workload("late", "q", "2")
			w.waits(kueue.ReasonWaitingForQuota, late)
			w.finish(first)
			w.admits(head)
			w.usage(q, "4", "4")
			if err := lacks(read(w, late).Status.Conditions, "QuotaReserved=False/WaitingForQuota"); err != nil {
				w.t.Error(err)
			}
		},
		"10 §7.40 a strict head blocks, and a higher priority overtakes": func(w *world) {
			w.queue("q", "4", strict)
			w.admits(w.workload("first", "q", "2"))
			head := w.workload("head", "q", "3", priority(1))
			w.waits(kueue.ReasonWaitingForQuota, head)
			small := w.workload("small", "q", "1")
			w.keeps(small, time.Second, "-QuotaReserved")
			w.admits(w.workload("urgent", "q", "1", priority(5)))
		},
		"10 §7.4 ExceedsMaxQuota, NoMatchingFlavor and what was asked for": func(w *world) {
			w.queue("q", "4")
			large := w.workload("large", "q", "9")
			w.waits(kueue.ReasonExceedsMaxQuota, large)
			got := w.until(large, "Admitted=False/NoReservation")
			if r := got.Status.ResourceRequests; len(r) != 1 || r[0].Name != "main" || !r[0].Resources["cpu"].Equal(cpus("9")) {
				w.t.Errorf("resourceRequests %+v", r)
			}
			odd := w.workload("odd", "q", "1", func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec = podSpec("cpu", "1", "example.com/lic", "1")
			})
			w.waits(kueue.ReasonNoMatchingFlavor, odd)
			w.tells(odd, "Warning NoMatchingFlavor")
			edit(w, odd, func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec = podSpec("cpu", "1", "example.com/lic", "0")
			})
			w.admits(odd)
			if r := read(w, odd).Status.ResourceRequests; len(r) > 0 {
				w.t.Errorf("it is admitted, and resourceRequests are %+v", r)
			}
		},
		"10 §7.42 a namespace that is not selected": func(w *world) {
			w.queue("q", "4", func(q *kueue.ClusterQueue) {
				q.Spec.QueueingStrategy = kueue.StrictFIFO
				q.Spec.NamespaceSelector.MatchLabels = map[string]string{"team": "red"}
			})
			wl := w.workload("a", "q", "1")
			w.waits(kueue.ReasonMisconfigured, wl)
			w.label("team", "red")
			w.admits(wl)
		},
		"10 §7.43 an edit while it waits": func(w *world) {
			w.queue("q", "4")
			wl := w.workload("a", "q", "2", count(3))
			w.waits(kueue.ReasonExceedsMaxQuota, wl)
			edit(w, wl, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 2 })
			w.admits(wl)
		},
		"10 §7.44 a LocalQueue that comes later": func(w *world) {
			q := w.queue("q", "4")
			wl := w.workload("a", "later", "1")
			w.waits(kueue.ReasonMisconfigured, wl)
			w.create(w.localQueue("later", w.own("none")))
			wait.Until(w.t, "it misses the ClusterQueue", func() error {
				return lacks(read(w, wl).Status.Conditions, "QuotaReserved=False/Misconfigured")
			})
			second := w.workload("b", "later2", "1")
			w.waits(kueue.ReasonMisconfigured, second)
			w.create(w.localQueue("later2", q.Name))
			w.admits(second)
			f := w.own("f")
			none := &kueue.ClusterQueue{}
			none.Name, none.Labels = w.own("none"), map[string]string{"world": w.name}
			none.Spec.NamespaceSelector = q.Spec.NamespaceSelector
			quota(f + "=1")(none)
			w.create(none)
			w.admits(wl)
		},
		"10 §7.45 another queue, as long as there is no reservation": func(w *world) {
			w.queue("small", "1")
			w.queue("large", "4")
			wl := w.workload("a", "small", "2")
			w.waits(kueue.ReasonExceedsMaxQuota, wl)
			edit(w, wl, func(wl *kueue.Workload) { wl.Spec.QueueName = "large" })
			w.admits(wl)
			w.denied(tryEdit(w, wl, func(wl *kueue.Workload) { wl.Spec.QueueName = "small" }), 422, "queueName")
			wait.Until(w.t, "the old queue is empty", func() error {
				var lq kueue.LocalQueue
				return firstError(w.c.Get(w.ctx(), key(w.name, "small"), &lq), equal(lq.Status.PendingWorkloads, 0))
			})
		},
		"10 §7.59 a priority that changes": func(w *world) {
			w.queue("q", "1", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
			first := w.workload("first", "q", "1", priority(500))
			w.admits(first)
			middle, mine := w.workload("middle", "q", "1", priority(50)), w.workload("mine", "q", "1", priority(10))
			w.waits(kueue.ReasonWaitingForQuota, middle)
			edit(w, mine, priority(100))
			w.finish(first)
			w.admits(mine)
			w.keeps(middle, time.Second, "QuotaReserved=False/WaitingForQuota")
			edit(w, mine, priority(7))
			w.until(mine, "Evicted=True/Preempted", "Preempted=True/InClusterQueue")
			w.release(mine)
			w.admits(middle)
			if got := evictions(read(w, mine)); !slices.Equal(got, []string{"Preempted/ 1"}) {
				w.t.Errorf("evictions %v", got)
			}
		},
		"10 §7.65 gates of admission": func(w *world) {
			q := w.queue("q", "4")
			gated := func(value string) workloadSetting {
				return func(wl *kueue.Workload) {
					wl.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: value}
				}
			}
			wl := w.workload("a", "q", "1", gated("x.io/a, x.io/b"))
			w.waits(kueue.ReasonAdmissionGated, wl)
			w.tells(wl, "Normal AdmissionGated")
			lost := w.workload("lost", "none", "1", gated("x.io/a"))
			w.waits(kueue.ReasonMisconfigured, lost)
			w.queue("broken", "", quota(w.own("later")+"=4"))
			broken := w.workload("broken", "broken", "1", gated("x.io/a"))
			w.waits(kueue.ReasonSuspended, broken)
			w.must(w.c.Create(w.ctx(), &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: w.own("later")}}))
			w.waits(kueue.ReasonAdmissionGated, broken)
			edit(w, q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
			w.waits(kueue.ReasonSuspended, wl)
			edit(w, q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
			w.waits(kueue.ReasonAdmissionGated, wl)
			set := func(value string) error { return tryEdit(w, wl, gated(value)) }
			w.denied(set("x.io/b,x.io/c"), 403, kueue.AdmissionGatedByAnnotation)
			w.must(set("x.io/b"))
			w.keeps(wl, time.Second, "QuotaReserved=False/AdmissionGated")
			w.must(set(""))
			w.admits(wl)
			w.tells(wl, "Normal AdmissionGateCleared")
			w.denied(set("x.io/c"), 403)
			for _, bad := range []string{"x.io/a,,x.io/b", "a"} {
				w.denied(w.c.Create(w.ctx(), workloadOf(w.name, "bad", "q", "1", gated(bad))), 403, kueue.AdmissionGatedByAnnotation)
			}
		},
	})
}
