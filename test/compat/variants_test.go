package compat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/variants"
)

const concurrent = "featureGates: {ConcurrentAdmission: true}\n"

// trying sets the policy of a ClusterQueue; last is the last acceptable flavor, "" for none.
func trying(mode kueue.ConcurrentAdmissionMode, last string) queueSetting {
	return func(q *kueue.ClusterQueue) {
		p := &kueue.ConcurrentAdmissionPolicy{Migration: kueue.ConcurrentAdmissionMigration{Mode: mode}}
		if last != "" {
			p.Migration.Constraints = &kueue.ConcurrentAdmissionConstraints{LastAcceptableFlavorName: kueue.ResourceFlavorReference(last)}
		}
		q.Spec.ConcurrentAdmissionPolicy = p
	}
}

// choice makes a ClusterQueue with flavors, given as "name=cpu".
func (w *world) choice(mode kueue.ConcurrentAdmissionMode, last string, flavors []string, settings ...queueSetting) *kueue.ClusterQueue {
	w.t.Helper()
	var own []string
	for _, f := range flavors {
		name, amount, _ := strings.Cut(f, "=")
		w.flavor(name)
		own = append(own, w.own(name)+"="+amount)
	}
	if last != "" {
		last = w.own(last)
	}
	return w.queue("q", "", append(settings, quota(own...), trying(mode, last))...)
}

// variant waits for the variant of a flavor.
func (w *world) variant(parent *kueue.Workload, flavor string) *kueue.Workload {
	w.t.Helper()
	v := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.name, Name: variants.Name(parent, kueue.ResourceFlavorReference(w.own(flavor))),
	}}
	wait.Until(w.t, "there is the variant of "+flavor, func() error { return w.c.Get(w.ctx(), client.ObjectKeyFromObject(v), v) })
	return v
}

// active waits until spec.active of a variant is as wanted.
func (w *world) active(v *kueue.Workload, want bool) {
	w.t.Helper()
	wait.Until(w.t, fmt.Sprintf("active of %s", v.Name), func() error { return equal(lifecycle.IsActive(read(w, v)), want) })
}

// flavorIs waits until a Workload is admitted with a flavor.
func (w *world) flavorIs(wl *kueue.Workload, flavor string) {
	w.t.Helper()
	wait.Until(w.t, wl.Name+" has "+flavor, func() error {
		now := read(w, wl)
		if err := lacks(now.Status.Conditions, admitted, "-Evicted=True"); err != nil {
			return err
		}
		return equal(now.Status.Admission.PodSetAssignments[0].Flavors["cpu"], kueue.ResourceFlavorReference(w.own(flavor)))
	})
}

// refill sets the quota of a flavor.
func (w *world) refill(q *kueue.ClusterQueue, flavor, cpu string) {
	w.t.Helper()
	w.change(q, func(q *kueue.ClusterQueue) {
		for i := range q.Spec.ResourceGroups[0].Flavors {
			f := &q.Spec.ResourceGroups[0].Flavors[i]
			if string(f.Name) == w.own(flavor) {
				f.Resources[0].NominalQuota = resource.MustParse(cpu)
			}
		}
	})
}

// oneVariant finds variants that are admitted together, and parents that run on quota that no variant holds.
func oneVariant(_, wl *kueue.Workload, all map[types.UID]*kueue.Workload) (wrong []string) {
	var running []string
	family := wl
	if owner := metav1.GetControllerOf(wl); owner != nil && owner.Kind == "Workload" {
		family = all[owner.UID]
	}
	if family == nil || !lifecycle.IsParent(family) {
		return nil
	}
	var of []*kueue.Workload
	for _, o := range all {
		if lifecycle.VariantOf(o) != string(family.UID) {
			continue
		}
		of = append(of, o)
		if lifecycle.IsAdmitted(o) && !lifecycle.IsFinished(o) {
			running = append(running, o.Name)
		}
	}
	if slices.Sort(running); len(running) > 1 {
		wrong = append(wrong, fmt.Sprintf("at %s these are admitted together: %v", wl.ResourceVersion, running))
	}
	if !holds(family) || lifecycle.IsEvicted(family) {
		return wrong
	}
	if v := variants.RunsOn(family, of); wl == family && (v == nil || !lifecycle.IsReserved(v)) {
		wrong = append(wrong, fmt.Sprintf("at %s %s runs, and no variant holds the quota", wl.ResourceVersion, family.Name))
	}
	return wrong
}

// oneRuns watches a world for the rules of variants; the result gives the verdict.
func (w *world) oneRuns() (verdict func()) {
	return w.followPlaces(func(map[string]int64, string) error { return nil }, oneVariant).verdict
}

// TestConcurrentAdmission is 20 §4.13.
func TestConcurrentAdmission(t *testing.T) {
	running(t, concurrent)
	const prefer, retain = kueue.TryPreferredFlavors, kueue.RetainFirstAdmission
	scenes(t, map[string]func(*world){
		"20 §4.13 a Workload becomes a parent with a variant for each flavor, of which the first that fits is admitted": func(w *world) {
			defer w.oneRuns()()
			q := w.choice(prefer, "", []string{"a=1", "b=2", "c=9"})
			p := w.workload("p", "q", "2", func(wl *kueue.Workload) {
				wl.Labels, wl.Annotations = map[string]string{"team": "x"}, map[string]string{"note": "y"}
			})
			w.flavorIs(p, "b")
			a, b, c := w.variant(p, "a"), w.variant(p, "b"), w.variant(p, "c")
			w.admits(b)
			w.active(a, true)
			w.active(c, false)
			now := read(w, p)
			if !lifecycle.IsParent(now) || len(now.Status.AdmissionChecks) > 0 {
				w.t.Errorf("the parent has labels %v and checks %v", now.Labels, now.Status.AdmissionChecks)
			}
			if !metav1.IsControlledBy(b, p) || b.Annotations[kueue.AllowedResourceFlavorsAnnotation] != w.own("b") || b.Labels["team"] != "x" ||
				b.Annotations["note"] != "y" || lifecycle.IsParent(b) ||
				!slices.Contains(b.Spec.PreemptionGates, kueue.PreemptionGate{Name: kueue.ConcurrentAdmissionPreemptionGate}) {
				w.t.Errorf("the variant is %+v", b)
			}
			w.tells(p, "Normal CreatedVariant")
			w.tells(c, "Normal DeactivatedVariant")
			w.usage(q, "2", "2") // once, though two Workloads show it
			w.keeps(p, 200*time.Millisecond, admitted)
		},
		"20 §7.61 TryPreferredFlavors: the job moves to a better flavor": func(w *world) {
			defer w.oneRuns()()
			q := w.choice(prefer, "", []string{"spot=0", "ondemand=2"})
			p := w.workload("p", "q", "2")
			w.flavorIs(p, "ondemand")
			better, ondemand := w.variant(p, "spot"), w.variant(p, "ondemand")
			w.active(better, true)
			w.refill(q, "spot", "2")
			w.until(ondemand, "Evicted=True/FlavorMigration")
			w.until(p, "Evicted=True/VariantEvicted")
			w.until(better, "QuotaReserved=False/WaitingForPreemptedWorkloads")
			w.tells(ondemand, "Normal EvictedDueToFlavorMigration")
			w.keeps(ondemand, 200*time.Millisecond, admitted) // its pods run on
			w.usage(q, "2", "2")                              // once
			w.release(p)
			w.flavorIs(p, "spot")
			w.until(better, admitted)
			w.until(ondemand, "QuotaReserved=False") // and Requeued=False, unless the better one is admitted late
			w.active(ondemand, false)
			w.usage(q, "2", "2")
		},
		"20 §4.13 a better flavor that fits evicts before its checks": func(w *world) {
			defer w.oneRuns()()
			c := w.check("c")
			q := w.choice(prefer, "", []string{"spot=0", "ondemand=2"}, checked(every(c)...))
			p := w.workload("p", "q", "2")
			w.answer(w.variant(p, "ondemand"), c, kueue.CheckStateReady)
			w.flavorIs(p, "ondemand")
			better := w.variant(p, "spot")
			w.refill(q, "spot", "2")
			w.until(p, "Evicted=True/VariantEvicted")
			w.keeps(better, 200*time.Millisecond, "-QuotaReserved=True")
			w.release(p)
			w.until(better, reserved, "-Admitted=True")
			w.answer(better, c, kueue.CheckStateReady)
			w.flavorIs(p, "spot")
			w.usage(q, "2", "2")
		},
		"20 §4.13 a variant whose better one lost its quota is queued again": func(w *world) {
			defer w.oneRuns()()
			q := w.choice(prefer, "", []string{"spot=0", "ondemand=2"})
			p := w.workload("p", "q", "2")
			w.flavorIs(p, "ondemand")
			w.refill(q, "spot", "2")
			w.until(p, "Evicted=True/VariantEvicted")
			w.refill(q, "spot", "0")
			w.waits(kueue.ReasonExceedsMaxQuota, w.variant(p, "spot"))
			w.release(p)
			w.flavorIs(p, "ondemand")
		},
		"20 §4.13 what the checks of a variant add to pods reaches the job": func(w *world) {
			c := w.check("c")
			w.choice(prefer, "", []string{"a=2", "b=2"}, checked(every(c)...))
			job := w.submit("q")
			p := w.workloadOf(job)
			w.answer(w.variant(p, "b"), c, kueue.CheckStateReady, func(s *kueue.AdmissionCheckState) {
				s.PodSetUpdates = []kueue.PodSetUpdate{{
					Name: "main", NodeSelector: map[string]string{"pool": "new"}, Labels: map[string]string{"x.io/l": "1"},
					Annotations: map[string]string{"x.io/a": "2"}, Tolerations: []corev1.Toleration{{Key: "new", Operator: corev1.TolerationOpExists}},
				}}
			})
			w.flavorIs(p, "b")
			wait.Until(w.t, "the job starts", func() error { return equal(*read(w, job).Spec.Suspend, false) })
			got := read(w, job).Spec.Template
			if got.Spec.NodeSelector["pool"] != "new" || got.Labels["x.io/l"] != "1" || got.Annotations["x.io/a"] != "2" || len(got.Spec.Tolerations) != 1 {
				w.t.Errorf("the template is %+v, %+v", got.ObjectMeta, got.Spec)
			}
			if checks := read(w, p).Status.AdmissionChecks; len(checks) > 0 {
				w.t.Errorf("the parent has checks %v", checks)
			}
			w.activate(p, false)
			wait.Until(w.t, "the job stops, and is as it was", func() error {
				now := read(w, job)
				return firstError(equal(*now.Spec.Suspend, true), equal(len(now.Spec.Template.Spec.NodeSelector), 0), equal(len(now.Spec.Template.Spec.Tolerations), 0))
			})
		},
		"20 §4.13 RetainFirstAdmission: the first keeps its flavor": func(w *world) {
			defer w.oneRuns()()
			q := w.choice(retain, "", []string{"spot=0", "ondemand=2"})
			p := w.workload("p", "q", "2")
			w.flavorIs(p, "ondemand")
			better := w.variant(p, "spot")
			w.active(better, false)
			w.refill(q, "spot", "2")
			w.keeps(p, 500*time.Millisecond, admitted, "-Evicted=True")
			w.usage(q, "2", "2")
		},
		"20 §4.13 lastAcceptableFlavorName bounds what it moves to": func(w *world) {
			defer w.oneRuns()()
			q := w.choice(prefer, "a", []string{"a=0", "b=0", "c=2"})
			p := w.workload("p", "q", "2")
			w.flavorIs(p, "c")
			w.active(w.variant(p, "a"), true)
			w.active(w.variant(p, "b"), false)
			w.refill(q, "b", "2")
			w.keeps(p, 500*time.Millisecond, admitted, "-Evicted=True")
			w.refill(q, "a", "2")
			w.until(p, "Evicted=True/VariantEvicted")
			w.release(p)
			w.flavorIs(p, "a")
		},
		"20 §4.13 variants pass the checks, and the first that is ready is admitted": func(w *world) {
			defer w.oneRuns()()
			c := w.check("c")
			q := w.choice(prefer, "", []string{"a=2", "b=2"}, checked(every(c)...))
			p := w.workload("p", "q", "2")
			a, b := w.variant(p, "a"), w.variant(p, "b")
			w.until(a, reserved)
			w.until(b, reserved)
			w.keeps(p, 200*time.Millisecond, "-QuotaReserved=True")
			w.answer(b, c, kueue.CheckStateReady)
			w.flavorIs(p, "b")
			if checks := read(w, p).Status.AdmissionChecks; len(checks) > 0 {
				w.t.Errorf("the parent has checks %v", checks)
			}
			w.answer(a, c, kueue.CheckStateReady)
			w.until(b, "Evicted=True/FlavorMigration")
			w.until(a, "-Admitted=True")
			w.until(p, "Evicted=True/VariantEvicted")
			w.release(p)
			w.flavorIs(p, "a")
			w.usage(q, "2", "2")
		},
		"20 §4.13 a rejected check ends its variant, and the last one the parent": func(w *world) {
			c := w.check("c")
			w.choice(retain, "", []string{"a=2", "b=2"}, checked(every(c)...))
			p := w.workload("p", "q", "2")
			a, b := w.variant(p, "a"), w.variant(p, "b")
			w.answer(a, c, kueue.CheckStateRejected)
			w.until(a, "Evicted=True/DeactivatedDueToAdmissionCheck", "QuotaReserved=False")
			w.until(b, reserved)
			w.active(p, true)
			w.answer(b, c, kueue.CheckStateRejected)
			w.until(p, "Evicted=True/DeactivatedDueToAdmissionCheck")
			wait.Until(w.t, "the variants are deleted", func() error {
				return errors.Join(errStill(w.c.Get(w.ctx(), client.ObjectKeyFromObject(a), a)), errStill(w.c.Get(w.ctx(), client.ObjectKeyFromObject(b), b)))
			})
			w.activate(p, true)
			w.until(w.variant(p, "a"), reserved)
		},
		"20 §4.13 an inactive parent has inactive variants": func(w *world) {
			defer w.oneRuns()()
			q := w.choice(prefer, "", []string{"a=2", "b=2"})
			p := w.workload("p", "q", "2")
			w.flavorIs(p, "a")
			a, b := w.variant(p, "a"), w.variant(p, "b")
			w.activate(p, false)
			w.active(a, false)
			w.active(b, false)
			w.until(p, "Evicted=True/Deactivated")
			w.usage(q, "0", "0")
			w.release(p)
			w.until(a, "QuotaReserved=False")
			w.activate(p, true)
			w.flavorIs(p, "a")
		},
		"20 §4.13 a preempted variant takes its parent with it": func(w *world) {
			defer w.oneRuns()()
			w.choice(prefer, "", []string{"a=2"}, preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
			p := w.workload("p", "q", "2")
			w.flavorIs(p, "a")
			first := w.variant(p, "a")
			high := w.workload("high", "q", "2", priority(9))
			top := w.variant(high, "a")
			w.tells(top, "Normal PreemptionUngatedVariant")
			w.until(first, "Evicted=True/Preempted")
			w.until(p, "Evicted=True/VariantEvicted")
			w.keeps(high, 200*time.Millisecond, "-QuotaReserved=True")
			w.release(p)
			w.until(first, "Requeued=True/Preempted", "QuotaReserved=False")
			w.until(p, "Requeued=False/VariantEvicted")
			w.flavorIs(high, "a")
			w.finish(high)
			w.until(top, "Finished=True/Succeeded")
			w.flavorIs(p, "a")
		},
		"20 §4.13 a flavor that the ClusterQueue loses takes its variant, and its parent if it ran there": func(w *world) {
			defer w.oneRuns()()
			q := w.choice(prefer, "", []string{"a=2", "b=2", "c=2"})
			p := w.workload("p", "q", "2")
			w.flavorIs(p, "a")
			a, c := w.variant(p, "a"), w.variant(p, "c")
			drop := func(name string) {
				w.change(q, func(q *kueue.ClusterQueue) {
					g := &q.Spec.ResourceGroups[0]
					g.Flavors = slices.DeleteFunc(g.Flavors, func(f kueue.FlavorQuotas) bool { return string(f.Name) == w.own(name) })
				})
			}
			drop("c")
			wait.Until(w.t, "its variant is gone", func() error { return errStill(w.c.Get(w.ctx(), client.ObjectKeyFromObject(c), c)) })
			w.tells(p, "Normal DeletedVariant")
			w.keeps(p, 200*time.Millisecond, admitted)
			drop("a")
			w.until(p, "Evicted=True/ConcurrentAdmission")
			w.must(w.c.Get(w.ctx(), client.ObjectKeyFromObject(a), a)) // it holds the quota of the pods
			w.release(p)
			w.flavorIs(p, "b")
		},
		"20 §4.13 a variant that is deleted by hand": func(w *world) {
			w.choice(prefer, "", []string{"a=2"})
			p := w.workload("p", "q", "2")
			w.flavorIs(p, "a")
			w.must(w.c.Delete(w.ctx(), w.variant(p, "a")))
			w.until(p, "Evicted=True/ConcurrentAdmission")
			w.release(p)
			w.flavorIs(p, "a")
		},
		"20 §4.13 readiness and reclaimable pods reach the variant, and the end": func(w *world) {
			q := w.choice(prefer, "", []string{"a=4", "b=4"})
			p := w.workload("p", "q", "1", count(4))
			w.flavorIs(p, "a")
			w.podsReady(p, true)
			a, b := w.variant(p, "a"), w.variant(p, "b")
			w.until(a, "PodsReady=True/Started")
			w.editStatus(p, func(s *kueue.WorkloadStatus) { s.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 3}} })
			w.usage(q, "1", "1")
			w.finish(p)
			w.until(a, "Finished=True/Succeeded")
			w.until(b, "Finished=True/Succeeded")
			w.usage(q, "0", "0")
		},
		"20 §7.63 a parent that is deleted takes its variants, and the job gets another": func(w *world) {
			w.choice(prefer, "", []string{"a=2", "b=2"})
			job := w.submit("q")
			wait.Until(w.t, "the job starts", func() error { return equal(*read(w, job).Spec.Suspend, false) })
			old := w.workloadOf(job)
			v := w.variant(old, "a")
			w.must(w.c.Delete(w.ctx(), old))
			wait.Until(w.t, "the job has another one, and the variant is gone", func() error {
				now := w.workloadOf(job)
				if now.UID == old.UID {
					return errors.New("it is the same")
				}
				got := &kueue.Workload{}
				if err := w.c.Get(w.ctx(), client.ObjectKeyFromObject(v), got); !apierrors.IsNotFound(err) && got.UID == v.UID {
					return w.collect(got) // no garbage collector runs here
				}
				return lacks(now.Status.Conditions, admitted)
			})
		},
		"20 §4.13 a Workload that is changed while it waits gets other variants": func(w *world) {
			w.choice(prefer, "", []string{"a=2"})
			p := w.workload("p", "q", "9")
			a := w.variant(p, "a")
			w.waits(kueue.ReasonExceedsMaxQuota, a)
			edit(w, p, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template.Spec = podSpec("cpu", "2") })
			w.flavorIs(p, "a")
		},
		"20 §4.13 the label cannot hide a reservation": func(w *world) {
			w.queue("plain", "2")
			wl := w.workload("a", "plain", "2")
			w.admits(wl)
			err := tryEdit(w, wl, func(wl *kueue.Workload) { wl.Labels = map[string]string{kueue.ConcurrentAdmissionParentLabel: "true"} })
			w.denied(err, 403, kueue.ConcurrentAdmissionParentLabel)
			other := w.workload("b", "plain", "1", func(wl *kueue.Workload) { wl.Labels = map[string]string{kueue.ConcurrentAdmissionParentLabel: "true"} })
			w.waits(kueue.ReasonWaitingForQuota, other) // the label is gone: the ClusterQueue has no policy
		},
	})
}

// variantOfTwo runs a job with a variant, two pods on two nodes of a rack. Then the spare nodes come. It returns the job's Workload, its variant and
// the first node.
func variantOfTwo(w *world, spares ...string) (p, v *kueue.Workload, first *corev1.Node) {
	w.levels("t", rack, corev1.LabelHostname)
	first = w.node("n1 b r 2")
	w.nodes("n2 b r 2")
	w.flavor("a", w.on("t"))
	w.queue("q", "", quota(w.own("a")+"=100"), trying(kueue.TryPreferredFlavors, ""))
	p = w.isOn(w.workload("p", "q", "2", count(2), requires(rack)), "n1:1 n2:1")
	w.nodes(spares...)
	return p, w.variant(p, "a"), first
}

// TestVariantsOnFailedNodes: a failed node of a job with variants is replaced as that of any other. spec: 20 §4.9, §4.13.
func TestVariantsOnFailedNodes(t *testing.T) {
	running(t, concurrent)
	placedScenes(t, map[string]func(*world){
		"20 §7.34 a spare of the same rack": func(w *world) {
			p, v, first := variantOfTwo(w, "n8 b another 2", "n9 b r 2")
			w.must(w.c.Delete(w.ctx(), first))
			w.unhealthy(p, "n1")
			w.isOn(v, "n2:1 n9:1")
			w.isOn(p, "n2:1 n9:1")
			w.unhealthy(p)
			w.unhealthy(v)
			w.keeps(p, 500*time.Millisecond, admitted, "-Evicted")
		},
		"20 §7.35 no spare": func(w *world) {
			p, v, first := variantOfTwo(w, "n8 b another 2")
			w.must(w.c.Delete(w.ctx(), first))
			w.until(v, "Evicted=True/NodeFailures")
			w.until(p, "Evicted=True/VariantEvicted")
			w.release(p)
			w.until(v, "Requeued=True/NodeFailures", "QuotaReserved=False/TopologyPlacementFailed")
		},
		"20 §7.37 NotReady under running pods": func(w *world) {
			p, v, first := variantOfTwo(w, "n9 b r 2")
			pod := w.pod("pod", "n1", "1", started(p))
			w.setReady(first, false, "")
			wait.Stays(w.t, time.Second, "its places stay", func() error { return equal(w.places(read(w, v)), "n1:1 n2:1") })
			w.must(w.c.Delete(w.ctx(), pod, client.GracePeriodSeconds(0)))
			w.isOn(p, "n2:1 n9:1")
		},
	})
}

// TestVariantsOnNodesThatRecover: without failing fast, a job with variants that cannot be moved keeps its node until that is back.
// spec: 20 §4.9, §4.13.
func TestVariantsOnNodesThatRecover(t *testing.T) {
	running(t, "featureGates: {ConcurrentAdmission: true, TASFailedNodeReplacementFailFast: false}\n")
	placedScenes(t, map[string]func(*world){
		"20 §4.9 a node that recovers": func(w *world) {
			p, v, first := variantOfTwo(w)
			w.setReady(first, false, "")
			w.unhealthy(v, "n1")
			w.setReady(first, true, "")
			w.unhealthy(p)
			w.unhealthy(v)
			w.keeps(p, 1500*time.Millisecond, admitted, "-Evicted")
			w.isOn(p, "n1:1 n2:1")
		},
	})
}

// TestVariantsAfterTheirGate: a manager with the feature gate off stops what ran on variants, removes them, and queues the jobs itself.
func TestVariantsAfterTheirGate(t *testing.T) {
	m := running(t, concurrent)
	w := newWorld(t)
	q := w.choice(kueue.TryPreferredFlavors, "", []string{"a=2", "b=2"})
	job := w.submit("q")
	p := w.workloadOf(job)
	w.flavorIs(p, "a")
	wait.Until(t, "the job starts", func() error { return equal(*read(w, job).Spec.Suspend, false) })
	waiting := w.workload("waiting", "q", "9")
	w.waits(kueue.ReasonExceedsMaxQuota, w.variant(waiting, "a"), w.variant(waiting, "b"))
	if err := m.end(); err != nil {
		t.Fatal(err)
	}
	running(t, "")
	w.tells(p, "Normal EvictedDueToConcurrentAdmission")
	w.flavorIs(p, "a")
	wait.Until(t, "there are no variants, and no parents", func() error {
		var list kueue.WorkloadList
		w.must(w.c.List(w.ctx(), &list, client.InNamespace(w.name)))
		for i := range list.Items {
			if v := &list.Items[i]; lifecycle.IsParent(v) || lifecycle.VariantOf(v) != "" {
				return fmt.Errorf("%s has labels %v", v.Name, v.Labels)
			}
		}
		return equal(len(list.Items), 2)
	})
	wait.Until(t, "the job runs again", func() error { return equal(*read(w, job).Spec.Suspend, false) })
	w.waits(kueue.ReasonExceedsMaxQuota, waiting)
	w.usage(q, "2", "2")
}

// TestVariantsInterruptedAtAnyWrite moves Workloads from flavor to flavor, in many worlds at once, with another write interrupted in each.
func TestVariantsInterruptedAtAnyWrite(t *testing.T) {
	interruptAtAnyWrite(t, concurrent, 20, liveAsVariants)
}

// TestVariantsKilled does so while the manager is killed again and again. 20 §4.13: all of it follows from the objects.
func TestVariantsKilled(t *testing.T) { killAgainAndAgain(t, concurrent, liveAsVariants) }

// liveAsVariants is a whole life of a Workload with variants: it gets the worse flavor, moves to the better one, is deactivated, and comes
// back to finish.
func liveAsVariants(w *world) {
	w.t.Helper()
	verdict := w.oneRuns()
	q := w.choice(kueue.TryPreferredFlavors, "", []string{"spot=0", "ondemand=2"})
	p := w.workload("p", "q", "2")
	w.flavorIs(p, "ondemand")
	better, ondemand := w.variant(p, "spot"), w.variant(p, "ondemand")
	edit(w, q, func(q *kueue.ClusterQueue) {
		q.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("2")
	})
	w.until(p, "Evicted=True/VariantEvicted")
	w.until(ondemand, "Evicted=True/FlavorMigration", admitted)
	w.release(p)
	w.flavorIs(p, "spot")
	w.until(ondemand, "QuotaReserved=False")
	w.active(ondemand, false)
	w.usage(q, "2", "2")
	w.activate(p, false)
	w.until(p, "Evicted=True/Deactivated")
	w.release(p)
	w.until(better, "QuotaReserved=False")
	w.usage(q, "0", "0")
	w.activate(p, true)
	w.flavorIs(p, "spot")
	w.finish(p)
	w.until(better, "Finished=True/Succeeded")
	w.until(ondemand, "Finished=True/Succeeded")
	w.usage(q, "0", "0")
	verdict()
}

// collect does what the garbage collector does.
func (w *world) collect(wl *kueue.Workload) error {
	uid := wl.UID
	if err := w.c.Delete(w.ctx(), wl, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return err
	}
	return errors.New("its variant was there")
}
