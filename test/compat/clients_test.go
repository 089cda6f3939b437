package compat

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/test/examplecheck"
)

// reservation is the write of a client that reserves quota itself.
func reservation(queue, flavor, amount string) func(*kueue.WorkloadStatus) {
	return func(s *kueue.WorkloadStatus) {
		s.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: new(int32(1)), ResourceUsage: corev1.ResourceList{"cpu": cpus(amount)},
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": kueue.ResourceFlavorReference(flavor)},
		}}}
		s.Conditions = []metav1.Condition{condition(kueue.WorkloadQuotaReserved, "True", kueue.ReasonQuotaReserved)}
	}
}

// TestOtherClients: how Berth handles the writes of other clients.
func TestOtherClients(t *testing.T) {
	running(t, "")
	scenes(t, map[string]func(*world){
		"10 §7.70 released by an apply that leaves the admission out": func(w *world) {
			q := w.queue("q", "4")
			wl := w.workload("a", "q", "4")
			w.admits(wl)
			w.change(q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
			u := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": map[string]any{"name": wl.Name, "namespace": w.name},
				"status": map[string]any{"conditions": []any{map[string]any{
					"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "a client says so",
					"lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339),
				}}},
			}}
			w.must(w.c.Status().Apply(w.ctx(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kueue-admission"), client.ForceOwnership))
			if got := read(w, wl).Status.Admission; got != nil {
				w.t.Errorf("admission %+v", got)
			}
			w.usage(q, "0", "0")
			w.waits(kueue.ReasonSuspended, wl)
			edit(w, q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
			w.admits(wl)
		},
		"10 §7.71 reserved by a client": func(w *world) {
			q := w.queue("q", "4")
			ghost := w.workload("ghost", "nowhere", "1")
			w.editStatus(ghost, reservation("ghost", "no-flavor", "1"))
			w.until(ghost, admitted)
			w.tells(ghost, "Normal Admitted")
			w.change(q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
			large := w.workload("large", "q", "9")
			w.waits(kueue.ReasonSuspended, large)
			w.editStatus(large, reservation(q.Name, w.own("f"), "9"))
			w.until(large, admitted)
			edit(w, q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
			w.usage(q, "9", "9")
			wl := w.workload("wl", "q", "1")
			w.waits(waits, wl)
			w.keeps(ghost, 300*time.Millisecond, admitted, "-Evicted")
			w.finish(large)
			w.admits(wl)
		},
		"10 §4.9 a reservation that a client takes back by an Update": func(w *world) {
			q := w.queue("q", "4")
			wl := w.workload("a", "q", "4")
			w.admits(wl)
			w.change(q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
			w.editStatus(wl, func(s *kueue.WorkloadStatus) {
				s.Admission = nil
				for i := range s.Conditions {
					if c := &s.Conditions[i]; c.Type == kueue.WorkloadQuotaReserved {
						c.Status, c.Reason, c.LastTransitionTime = "False", "Pending", metav1.Now()
					}
				}
			})
			w.until(wl, "Admitted=False/NoReservation", "QuotaReserved=False/Suspended")
			w.usage(q, "0", "0")
		},
		"10 §4.9 finished decides alone": func(w *world) {
			q := w.queue("q", "4")
			wl := w.workload("a", "q", "4")
			w.admits(wl)
			w.editStatus(wl, func(s *kueue.WorkloadStatus) {
				s.Conditions = []metav1.Condition{condition(kueue.WorkloadFinished, "True", kueue.ReasonSucceeded)}
			})
			w.usage(q, "0", "0")
			w.admits(w.workload("next", "q", "4"))
			w.keeps(wl, 500*time.Millisecond, "Finished=True/Succeeded", "-QuotaReserved", "-Admitted")
		},
		"10 §7.63 v1beta1": func(w *world) {
			w.flavor("f")
			u := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
				"metadata": map[string]any{"name": w.own("old"), "labels": map[string]any{"world": w.name}},
				"spec": map[string]any{
					"cohort": w.own("team"), "admissionChecks": []any{"some"}, "flavorFungibility": map[string]any{"whenCanBorrow": "Borrow"},
				},
			}}
			w.create(u)
			got := read(w, &kueue.ClusterQueue{ObjectMeta: w.meta("old")})
			want := kueue.ClusterQueueSpec{
				CohortName: kueue.CohortReference(w.own("team")), FlavorFungibility: &kueue.FlavorFungibility{WhenCanBorrow: kueue.MayStopSearch, WhenCanPreempt: kueue.TryNextFlavor},
				AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{AdmissionChecks: every("some")},
			}
			spec := kueue.ClusterQueueSpec{CohortName: got.Spec.CohortName, FlavorFungibility: got.Spec.FlavorFungibility, AdmissionChecksStrategy: got.Spec.AdmissionChecksStrategy}
			if diff := cmp.Diff(want, spec); diff != "" {
				w.t.Errorf("-want +got:\n%s", diff)
			}
		},
		"10 §7.66 and §7.67 status codes": func(w *world) {
			refused := func(code int32, name string, settings ...queueSetting) {
				w.t.Helper()
				q := &kueue.ClusterQueue{ObjectMeta: w.meta(name)}
				quota(w.own("f") + "=4")(q)
				for _, set := range settings {
					set(q)
				}
				w.denied(w.c.Create(w.ctx(), q), code)
			}
			refused(422, "borrows", limited(1, -1))
			refused(403, "lends", in("c"), limited(-1, 5))
			two := func(q *kueue.ClusterQueue) {
				q.Spec.ResourceGroups[0].CoveredResources = []corev1.ResourceName{"cpu", "memory"}
			}
			refused(422, "counts", two)
			refused(403, "swaps", two, func(q *kueue.ClusterQueue) {
				f := &q.Spec.ResourceGroups[0].Flavors[0]
				f.Resources = append([]kueue.ResourceQuota{{Name: "memory", NominalQuota: cpus("1")}}, f.Resources...)
			})
			c := &kueue.Cohort{ObjectMeta: w.meta("c")}
			c.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
				Name: "f", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: cpus("1"), BorrowingLimit: new(cpus("1"))}},
			}}}}
			w.denied(w.c.Create(w.ctx(), c), 403)
			f := w.flavor("plain")
			named := func(f *kueue.ResourceFlavor) { f.Spec.TopologyName = "t" }
			w.denied(tryEdit(w, f, named), 422)
			edit(w, f, func(f *kueue.ResourceFlavor) { f.Spec.NodeLabels = map[string]string{"a": "b"}; named(f) })
			w.denied(tryEdit(w, f, func(f *kueue.ResourceFlavor) { f.Spec.TopologyName = "" }), 422)
			w.denied(tryEdit(w, f, func(f *kueue.ResourceFlavor) { f.Spec.TopologyName = "u" }), 422)
		},
		"10 §7.69 a held queue counts who waits": func(w *world) {
			q := w.queue("q", "2")
			w.admits(w.workload("runs", "q", "2"))
			pending := []*kueue.Workload{w.workload("a", "q", "1"), w.workload("b", "q", "1"), w.workload("c", "q", "9")}
			w.waits(exceeds, pending[2])
			w.change(q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHold })
			w.waits(kueue.ReasonSuspended, pending[2])
			wait.Until(w.t, "the counters", func() error {
				var lq kueue.LocalQueue
				err := w.c.Get(w.ctx(), key(w.name, "q"), &lq)
				now := read(w, q)
				return firstError(err, equal(now.Status.PendingWorkloads, 3), equal(lq.Status.PendingWorkloads, 3),
					equal(now.Status.ReservingWorkloads, 1), lacks(now.Status.Conditions, "Active=False/Stopped"))
			})
		},
		"10 §7.75 more flavors than a LocalQueue shows": func(w *world) {
			q := w.queue("q", "", func(q *kueue.ClusterQueue) {
				for _, resource := range []corev1.ResourceName{"cpu", "memory"} {
					group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{resource}}
					for i := range 33 {
						f := w.flavor(fmt.Sprintf("%s-%d", resource, i))
						group.Flavors = append(group.Flavors, kueue.FlavorQuotas{
							Name: kueue.ResourceFlavorReference(f.Name), Resources: []kueue.ResourceQuota{{Name: resource, NominalQuota: cpus("1")}},
						})
					}
					q.Spec.ResourceGroups = append(q.Spec.ResourceGroups, group)
				}
			})
			w.admits(w.workload("a", "q", "1"))
			w.usage(q, "1", "1")
			wait.Until(w.t, "the first 64", func() error {
				var lq kueue.LocalQueue
				err := w.c.Get(w.ctx(), key(w.name, "q"), &lq)
				return firstError(err, equal(len(lq.Status.FlavorsReservation), 64), equal(len(lq.Status.FlavorsUsage), 64), equal(len(read(w, q).Status.FlavorsUsage), 66))
			})
		},
	})
}

// TestRestart is 10 §7.61: a new manager continues from the state that the old one left.
func TestRestart(t *testing.T) {
	m := running(t, "")
	w := newWorld(t)
	q := w.queue("q", "6", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
	other := w.queue("other", "2")
	runs := []*kueue.Workload{w.workload("a", "q", "2", priority(5)), w.workload("b", "other", "1"), w.workload("c", "other", "1")}
	victims := []*kueue.Workload{w.workload("v1", "q", "2"), w.workload("v2", "q", "2")}
	w.admits(runs...)
	w.admits(victims...)
	high := w.workload("high", "q", "4", priority(9))
	for _, v := range victims {
		w.until(v, "Evicted=True/Preempted")
	}
	waiting := []*kueue.Workload{w.workload("w1", "q", "1"), w.workload("w2", "other", "2"), w.workload("w3", "other", "9")}
	w.waits(kueue.ReasonWaitingForPreemptedWorkloads, high)
	w.waits(exceeds, waiting[2])
	w.usage(q, "6", "6")
	if err := m.end(); err != nil {
		t.Fatal(err)
	}
	before := read(w, waiting[2])
	running(t, "")
	w.usage(q, "6", "6")
	w.release(victims[0])
	w.keeps(high, time.Second, "-QuotaReserved=True")
	w.release(victims[1])
	w.admits(high)
	w.finish(runs[1])
	w.finish(runs[2])
	w.admits(waiting[1])
	w.usage(other, "2", "2")
	for _, wl := range append(victims, runs[0]) {
		if n := len(evictions(read(w, wl))); n > 1 {
			t.Errorf("%s was evicted for %d reasons", wl.Name, n)
		}
	}
	if after := read(w, waiting[2]); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("a Workload about which there was no news was written again: %v, then %v", before.Status, after.Status)
	}
}

// TestExampleCheck runs the admission check that users copy, with a Job.
func TestExampleCheck(t *testing.T) {
	at := cluster(t)
	running(t, "")
	mgr, err := ctrl.NewManager(at.admin, ctrl.Options{
		Scheme: install.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := examplecheck.Setup(mgr); err != nil {
		t.Fatal(err)
	}
	go func() { _ = mgr.Start(t.Context()) }() // it ends with the test

	w := newWorld(t)
	check := &kueue.AdmissionCheck{ObjectMeta: w.meta("paid"), Spec: kueue.AdmissionCheckSpec{ControllerName: examplecheck.ControllerName}}
	w.create(check)
	wait.Until(w.t, "somebody makes the check", func() error { return lacks(read(w, check).Status.Conditions, "Active=True/Active") })
	w.queue("jobs", "2", checked(every(check.Name)...))
	center := func(pairs ...string) workloadSetting {
		return func(wl *kueue.Workload) {
			wl.Annotations = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				wl.Annotations["example.com/"+pairs[i]] = pairs[i+1]
			}
		}
	}
	wl := w.workload("wl", "jobs", "1")
	w.until(wl, reserved, "Admitted=False/UnsatisfiedAdmissionChecks")
	edit(w, wl, center("cost-center", "ask-later", "ask-after", "1"))
	w.until(wl, "Evicted=True/AdmissionCheck")
	edit(w, wl, center("cost-center", "none"))
	w.release(wl)
	w.until(wl, "Evicted=True/DeactivatedDueToAdmissionCheck")
	w.release(wl)
	edit(w, wl, center("cost-center", "4711"))
	w.activate(wl, true)
	w.admits(wl)
	if got := w.checks(read(w, wl)); !cmp.Equal(got, []string{"paid=Ready retry 1"}) {
		t.Errorf("checks %v", got)
	}
	w.finish(wl)

	job := w.submit("jobs")
	made := w.workloadOf(job)
	w.until(made, reserved)
	edit(w, made, center("cost-center", "4711"))
	wait.Until(w.t, "the job starts", func() error { return equal(*read(w, job).Spec.Suspend, false) })
	if got := read(w, job).Spec.Template.Labels["example.com/cost-center"]; got != "4711" {
		t.Errorf("its pods have label %q", got)
	}
	w.endJob(job)
}
