package compat

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// meta names a cluster-scoped object of the world.
func (w *world) meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: w.own(name)} }

// gatedBy closes preemption gates.
func gatedBy(names ...string) workloadSetting {
	return func(wl *kueue.Workload) {
		for _, n := range names {
			wl.Spec.PreemptionGates = append(wl.Spec.PreemptionGates, kueue.PreemptionGate{Name: n})
		}
	}
}

// gates are "name=Position".
func gates(wl *kueue.Workload) []string {
	out := []string{}
	for _, g := range wl.Status.PreemptionGates {
		out = append(out, fmt.Sprintf("%s=%s", g.Name, g.Position))
	}
	return out
}

func (w *world) open(wl *kueue.Workload, name string) {
	w.t.Helper()
	w.editStatus(wl, func(s *kueue.WorkloadStatus) {
		for i := range s.PreemptionGates {
			if g := &s.PreemptionGates[i]; g.Name == name {
				g.Position, g.LastTransitionTime = kueue.PreemptionGateOpen, metav1.Now()
			}
		}
	})
}

// TestPreemptionGates is 20 §4.14 and the rest of a Workload's life.
func TestPreemptionGates(t *testing.T) {
	running(t, "")
	const blocked = "BlockedOnPreemptionGates=True/PreemptionGated"
	scenes(t, map[string]func(*world){
		"20 §7.65 closed gates keep from preempting, and open ones do not": func(w *world) {
			w.queue("q", "2", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
			victim := w.workload("victim", "q", "2")
			w.admits(victim)
			p := w.workload("p", "q", "2", priority(9), gatedBy("x.io/a", "x.io/b"))
			got := w.until(p, blocked, "QuotaReserved=False/PendingEvaluation")
			if diff := cmp.Diff([]string{"x.io/a=Closed", "x.io/b=Closed"}, gates(got)); diff != "" {
				w.t.Errorf("gates -want +got:\n%s", diff)
			}
			w.open(p, "x.io/a")
			w.keeps(victim, time.Second, "-Evicted")
			w.open(p, "x.io/b")
			w.until(victim, "Evicted=True/Preempted")
			w.until(p, "-BlockedOnPreemptionGates=True", "QuotaReserved=False/WaitingForPreemptedWorkloads")
			w.release(victim)
			got = w.until(p, admitted, "-BlockedOnPreemptionGates=True")
			wait.Until(w.t, "the gates are closed again", func() error {
				if diff := cmp.Diff([]string{"x.io/a=Closed", "x.io/b=Closed"}, gates(read(w, p))); diff != "" {
					return fmt.Errorf("gates -want +got:\n%s", diff)
				}
				return nil
			})
			_ = got
		},
		"20 §4.14 a gate does not keep from free quota, and follows the spec": func(w *world) {
			w.queue("q", "2")
			wl := w.workload("a", "q", "1", gatedBy("x.io/a"))
			w.admits(wl)
			large := w.workload("large", "q", "9", gatedBy("x.io/a"))
			w.waits(kueue.ReasonExceedsMaxQuota, large)
			w.keeps(large, 200*time.Millisecond, "-BlockedOnPreemptionGates")
			edit(w, large, func(wl *kueue.Workload) { wl.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: "x.io/b"}} })
			wait.Until(w.t, "the status follows", func() error {
				if diff := cmp.Diff([]string{"x.io/b=Closed"}, gates(read(w, large))); diff != "" {
					return fmt.Errorf("gates -want +got:\n%s", diff)
				}
				return nil
			})
		},
		"20 §4.14 a gate that blocks right after admission gates are gone": func(w *world) {
			w.queue("q", "2", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
			victim := w.workload("victim", "q", "2")
			w.admits(victim)
			p := w.workload("p", "q", "2", priority(9), gatedBy("x.io/a"), func(wl *kueue.Workload) {
				wl.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "x.io/b"}
			})
			w.waits(kueue.ReasonAdmissionGated, p)
			edit(w, p, func(wl *kueue.Workload) { wl.Annotations = nil })
			w.until(p, blocked)
			w.open(p, "x.io/a")
			w.until(victim, "Evicted=True/Preempted")
		},
		"20 §4.14 eviction closes the gates": func(w *world) {
			w.queue("q", "2")
			wl := w.workload("a", "q", "1", gatedBy("x.io/a"))
			w.admits(wl)
			wait.Until(w.t, "the gate is listed", func() error { return equal(len(gates(read(w, wl))), 1) })
			w.open(wl, "x.io/a")
			w.activate(wl, false)
			w.until(wl, "Evicted=True/Deactivated")
			if diff := cmp.Diff([]string{"x.io/a=Closed"}, gates(read(w, wl))); diff != "" {
				w.t.Errorf("gates -want +got:\n%s", diff)
			}
		},
		"10 §7.56 reclaimable pods": func(w *world) {
			q := w.queue("q", "8")
			wl := w.workload("a", "q", "1", count(8))
			w.admits(wl)
			next := w.workload("next", "q", "3")
			w.waits(kueue.ReasonWaitingForQuota, next)
			reclaim := func(n int32) error {
				return w.tryEditStatus(wl, func(s *kueue.WorkloadStatus) {
					s.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: n}}
				})
			}
			w.must(reclaim(3))
			w.admits(next)
			w.usage(q, "8", "8")
			w.denied(reclaim(2), 403, "reclaimablePods")
			w.denied(w.tryEditStatus(wl, func(s *kueue.WorkloadStatus) { s.ReclaimablePods = nil }), 403, "reclaimablePods")
			w.denied(reclaim(9), 403, "reclaimablePods")
			w.activate(wl, false)
			w.until(wl, "Evicted=True/Deactivated")
			w.release(wl)
			w.must(reclaim(1))
			w.activate(wl, true)
			w.waits(kueue.ReasonWaitingForQuota, wl)
			if r := read(w, wl).Status.ResourceRequests; len(r) != 1 || !r[0].Resources["cpu"].Equal(cpus("7")) {
				w.t.Errorf("resourceRequests %+v", r)
			}
		},
		"10 §7.57 whose job is gone": func(w *world) {
			q := w.queue("q", "4")
			owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: "owner"}}
			w.create(owner)
			wl := w.workload("a", "q", "4", func(wl *kueue.Workload) {
				wl.Labels = map[string]string{kueue.JobUIDLabel: string(owner.UID)}
				wl.Finalizers = []string{kueue.ResourceInUseFinalizer}
				wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
			})
			w.admits(wl)
			edit(w, wl, func(wl *kueue.Workload) { wl.OwnerReferences = nil })
			w.until(wl, "Finished=True/OwnerNotFound")
			w.usage(q, "0")
			wait.Until(w.t, "its finalizer is gone", func() error { return equal(len(read(w, wl).Finalizers), 0) })
		},
		"10 §4.17 deleted without a job, whatever the state": func(w *world) {
			q := w.queue("q", "4")
			held := func(wl *kueue.Workload) { wl.Finalizers = []string{kueue.ResourceInUseFinalizer} }
			runs, waits := w.workload("runs", "q", "4", held), w.workload("waits", "q", "4", held)
			w.admits(runs)
			w.waits(kueue.ReasonWaitingForQuota, waits)
			next := w.workload("next", "q", "3")
			for _, wl := range []*kueue.Workload{waits, runs} {
				w.must(w.c.Delete(w.ctx(), wl))
				wait.Until(w.t, wl.Name+" is gone", func() error {
					return errStill(w.c.Get(w.ctx(), key(w.name, wl.Name), &kueue.Workload{}))
				})
			}
			w.admits(next)
			w.usage(q, "3")
		},
		"10 §7.60 and §7.64 what the status may not say": func(w *world) {
			w.queue("q", "4")
			wl, other := w.workload("a", "q", "1", count(2)), w.workload("other", "q", "9")
			w.admits(wl)
			w.waits(kueue.ReasonExceedsMaxQuota, other)
			w.denied(w.tryEditStatus(wl, func(s *kueue.WorkloadStatus) { s.Admission.PodSetAssignments[0].Flavors["cpu"] = "x" }), 403, "admission")
			reserve := func(a *kueue.Admission) error {
				return w.tryEditStatus(other, func(s *kueue.WorkloadStatus) {
					s.Admission = a
					for i := range s.Conditions {
						if c := &s.Conditions[i]; c.Type == kueue.WorkloadQuotaReserved {
							c.Status, c.Reason = "True", kueue.ReasonQuotaReserved
						}
					}
				})
			}
			w.denied(reserve(nil), 403, "admission")
			bad := read(w, wl).Status.Admission
			bad.PodSetAssignments[0].Name = "who"
			w.denied(reserve(bad), 403, "podSetAssignments")
			bad.PodSetAssignments[0].Name = "main"
			bad.PodSetAssignments[0].ResourceUsage = corev1.ResourceList{"cpu": cpus("5m")}
			bad.PodSetAssignments[0].Count = new(int32(2))
			w.denied(reserve(bad), 403, "resourceUsage")
			w.must(w.tryEditStatus(wl, func(s *kueue.WorkloadStatus) {
				s.Admission = nil
				for i := range s.Conditions {
					if c := &s.Conditions[i]; c.Type == kueue.WorkloadQuotaReserved {
						c.Status, c.Reason = "False", kueue.ReasonPendingEvaluation
					}
				}
			}))
			w.admits(wl) // again
		},
	})
}
