package compat

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// limited sets the limits of the first flavor; -1 is none.
func limited(borrow, lend int64) queueSetting {
	return func(q *kueue.ClusterQueue) {
		setLimits(&q.Spec.ResourceGroups[0].Flavors[0].Resources[0], borrow, lend)
	}
}

func setLimits(r *kueue.ResourceQuota, borrow, lend int64) {
	for _, l := range []struct {
		to **resource.Quantity
		n  int64
	}{{&r.BorrowingLimit, borrow}, {&r.LendingLimit, lend}} {
		if l.n >= 0 {
			*l.to = resource.NewQuantity(l.n, resource.DecimalSI)
		}
	}
}

// cohort makes a Cohort with cpus of its own.
func (w *world) cohort(name, parent string, cpus, borrow, lend int64) *kueue.Cohort {
	w.t.Helper()
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: w.own(name), Labels: map[string]string{"world": w.name}}}
	if parent != "" {
		c.Spec.ParentName = kueue.CohortReference(w.own(parent))
	}
	if cpus > 0 {
		r := kueue.ResourceQuota{Name: "cpu", NominalQuota: *resource.NewQuantity(cpus, resource.DecimalSI)}
		setLimits(&r, borrow, lend)
		c.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
			Name: kueue.ResourceFlavorReference(w.own("f")), Resources: []kueue.ResourceQuota{r},
		}}}}
	}
	w.create(c)
	return c
}

// fit demands that a Workload of so many cpus is admitted, waits or can never be admitted, and keeps it.
func (w *world) fits(queue string, cpus int64, verdict string) *kueue.Workload {
	w.t.Helper()
	w.made++
	wl := w.workload(fmt.Sprintf("fit-%d", w.made), queue, fmt.Sprint(cpus))
	if verdict == "fits" {
		w.admits(wl)
	} else {
		w.waits(verdict, wl)
		w.must(w.c.Delete(w.ctx(), wl))
	}
	return wl
}

const (
	fits    = "fits"
	waits   = kueue.ReasonWaitingForQuota
	exceeds = kueue.ReasonExceedsMaxQuota
)

// TestQuota: the use of quota in a cohort.
func TestQuota(t *testing.T) {
	running(t, "")
	scenes(t, map[string]func(*world){
		"10 §7.1 the tree of §4.3.4": func(w *world) {
			w.cohort("org", "", 10, -1, -1)
			w.cohort("ml", "org", 4, 6, 2)
			w.queue("ml-a", "8", in(w.own("ml")), limited(5, 3))
			w.queue("ml-b", "0", in(w.own("ml")))
			w.queue("web", "6", in(w.own("org")))
			w.fits("ml-a", 14, exceeds)
			w.fits("ml-b", 14, exceeds)
			w.fits("web", 19, exceeds)
			a := w.fits("ml-a", 9, fits)
			w.fits("ml-a", 5, waits)
			w.fits("ml-b", 10, waits)
			b := w.fits("ml-b", 4, fits)
			w.fits("ml-a", 5, waits)
			w.fits("ml-b", 6, waits)
			w.fits("web", 16, waits)
			w.finish(a)
			w.fits("ml-b", 10, waits)
			w.finish(w.fits("ml-b", 9, fits))
			w.finish(b)
			w.fits("ml-a", 13, fits)
		},
		"10 §7.2 to §7.4 borrowing and its limits": func(w *world) {
			a, c := w.queue("a", "6", in(w.own("c")), limited(3, -1)), w.own("c")
			w.queue("b", "4", in(c), limited(-1, 3))
			w.fits("a", 10, exceeds) // 6 and 3 borrowed; b lends 3 of 4
			b := w.fits("b", 4, fits)
			w.fits("a", 7, waits)
			w.finish(b)
			mine := w.fits("a", 9, fits)
			wait.Until(w.t, "3 of 9 are borrowed", func() error {
				now := read(w, a).Status.FlavorsReservation[0].Resources[0]
				return equal(now.Total.String()+" "+now.Borrowed.String(), "9 3")
			})
			w.fits("b", 2, waits)
			w.fits("b", 1, fits) // quota that it does not lend
			w.finish(mine)
		},
		"10 §7.5 a cut evicts nobody": func(w *world) {
			q := w.queue("q", "10")
			w.fits("q", 3, fits)
			four := w.fits("q", 4, fits)
			w.change(q, func(q *kueue.ClusterQueue) { q.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = cpus("4") })
			small := w.workload("small", "q", "1")
			w.waits(waits, small)
			w.keeps(four, 500*time.Millisecond, admitted, "-Evicted")
			if b := read(w, q).Status.FlavorsReservation[0].Resources[0].Borrowed; !b.IsZero() {
				w.t.Errorf("borrowed %s", &b)
			}
			w.finish(four)
			w.admits(small)
		},
		"10 §7.6 as good as unlimited": func(w *world) {
			w.queue("a", "9E", in(w.own("c")))
			b := w.queue("b", "9E", in(w.own("c")))
			w.fits("b", 1_000_000_000, fits)
			w.fits("a", 1, fits)
			w.usage(b, "1G", "1G")
		},
		"10 §7.7 a Cohort that is deleted": func(w *world) {
			c := w.cohort("c", "", 4, -1, -1)
			w.queue("a", "2", in(c.Name))
			w.queue("b", "2", in(c.Name))
			w.finish(w.fits("a", 8, fits))
			w.must(w.c.Delete(w.ctx(), c))
			wait.Until(w.t, "its quota is gone", func() error {
				w.made++
				wl := w.workload(fmt.Sprintf("try-%d", w.made), "a", "5")
				defer func() { w.must(w.c.Delete(w.ctx(), wl)) }()
				var got *kueue.Workload
				wait.Until(w.t, "there is an answer", func() error {
					got = read(w, wl)
					return equal(len(conditions(got.Status.Conditions)) > 0, true)
				})
				return lacks(got.Status.Conditions, "QuotaReserved=False/"+exceeds)
			})
			w.fits("a", 4, fits)
		},
		"10 §7.8 a circle of Cohorts": func(w *world) {
			x, y := w.cohort("x", "y", 1, -1, -1), w.cohort("y", "x", 1, -1, -1)
			q := w.queue("a", "1", in(x.Name))
			wl := w.workload("wl", "a", "1")
			w.keeps(wl, time.Second, "-QuotaReserved=True")
			edit(w, y, func(c *kueue.Cohort) { c.Spec.ParentName = "" })
			w.admits(wl)
			w.usage(q, "1", "1")
		},
		"10 §7.9 a quota of pods": func(w *world) {
			w.queue("q", "", func(q *kueue.ClusterQueue) {
				f := w.flavor("f")
				q.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu", "pods"}, Flavors: []kueue.FlavorQuotas{{
					Name:      kueue.ResourceFlavorReference(f.Name),
					Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: cpus("100")}, {Name: "pods", NominalQuota: cpus("5")}},
				}}}}
			})
			first := w.workload("first", "q", "1", count(3))
			w.admits(first)
			second := w.workload("second", "q", "1", count(3))
			w.waits(waits, second)
			w.finish(first)
			w.admits(second)
		},
		"10 §7.74 a flavor that is removed while in use": func(w *world) {
			c := w.own("c")
			a := w.queue("a", "4", in(c))
			four := w.fits("a", 4, fits)
			w.queue("b", "3", in(c))
			other := w.flavor("other")
			edit(w, a, func(q *kueue.ClusterQueue) {
				q.Spec.ResourceGroups = nil
				quota(other.Name + "=1")(q)
			})
			wait.Until(w.t, "it is listed no more", func() error {
				names := []string{}
				for _, f := range read(w, a).Status.FlavorsReservation {
					names = append(names, string(f.Name))
				}
				return equal(fmt.Sprint(names), fmt.Sprint([]string{other.Name}))
			})
			wl := w.workload("wl", "b", "1")
			w.waits(waits, wl)
			w.finish(four)
			w.admits(wl)
		},
		"10 §7.76 two heads, of which the second no longer fits": func(w *world) {
			c := w.own("c")
			hold := func(p kueue.StopPolicy) queueSetting {
				return func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = p }
			}
			a, b := w.queue("a", "2", in(c), hold(kueue.StopPolicyHold)), w.queue("b", "2", in(c))
			first := w.fits("b", 3, fits)
			one := w.workload("one", "a", "2")
			two := w.workload("two", "b", "2", priority(-1))
			w.waits(kueue.ReasonSuspended, one)
			w.waits(waits, two)
			edit(w, a, hold(kueue.StopPolicyNone))
			w.waits(waits, one)
			w.finish(first)
			w.admits(one, two)
			_ = b
		},
	})
}

// TestFlavors: the flavor of a Workload.
func TestFlavors(t *testing.T) {
	running(t, "")
	labelled := func(labels map[string]string) func(*kueue.ResourceFlavor) {
		return func(f *kueue.ResourceFlavor) { f.Spec.NodeLabels = labels }
	}
	taint := corev1.Taint{Key: "spot", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	tainted := func(f *kueue.ResourceFlavor) { f.Spec.NodeTaints = []corev1.Taint{taint} }
	pod := func(change func(*corev1.PodSpec)) workloadSetting {
		return func(wl *kueue.Workload) { change(&wl.Spec.PodSets[0].Template.Spec) }
	}
	gets := func(w *world, wl *kueue.Workload, flavor string) {
		w.t.Helper()
		w.admits(wl)
		if got := string(read(w, wl).Status.Admission.PodSetAssignments[0].Flavors["cpu"]); got != w.own(flavor) {
			w.t.Errorf("%s got %s, want %s", wl.Name, got, flavor)
		}
	}
	scenes(t, map[string]func(*world){
		"10 §7.15 and §7.24 taints, and a toleration that comes later": func(w *world) {
			flavor := w.flavor("spot", tainted)
			w.flavor("demand")
			w.queue("q", "", quota(w.own("spot")+"=4", w.own("demand")+"=1"))
			gets(w, w.workload("one", "q", "1"), "demand")
			two := w.workload("two", "q", "1")
			w.waits(waits, two)
			edit(w, flavor, func(f *kueue.ResourceFlavor) {
				f.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
			})
			gets(w, two, "spot")
		},
		"10 §7.16 and §7.17 selectors": func(w *world) {
			w.flavor("spot", labelled(map[string]string{"type": "spot"}))
			w.flavor("demand", labelled(map[string]string{"type": "demand"}))
			w.queue("q", "", quota(w.own("spot")+"=4", w.own("demand")+"=4"))
			gets(w, w.workload("zone", "q", "1", pod(func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"zone": "a"} })), "spot")
			gets(w, w.workload("demand", "q", "1", pod(func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"type": "demand"} })), "demand")
			term := func(key, value string) corev1.NodeSelectorTerm {
				return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}
			}
			either := func(p *corev1.PodSpec) {
				p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{term("type", "demand"), term("zone", "b")},
				}}}
			}
			gets(w, w.workload("either", "q", "1", pod(either)), "spot")
		},
		"10 §7.19 preempting on the first flavor although the second is free": func(w *world) {
			w.flavor("spot")
			w.flavor("demand")
			w.queue("q", "", quota(w.own("spot")+"=1", w.own("demand")+"=1"), preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever), func(q *kueue.ClusterQueue) {
				q.Spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: kueue.MayStopSearch, WhenCanPreempt: kueue.MayStopSearch}
			})
			low := w.workload("low", "q", "1")
			gets(w, low, "spot")
			high := w.workload("high", "q", "1", priority(1))
			w.until(low, "Evicted=True/Preempted")
			w.release(low)
			gets(w, high, "spot")
			gets(w, low, "demand")
		},
		"10 §7.21 podSets with flavors of their own": func(w *world) {
			w.flavor("spot")
			w.flavor("demand")
			w.queue("q", "", quota(w.own("spot")+"=8", w.own("demand")+"=8"))
			wl := w.workload("wl", "q", "1", func(wl *kueue.Workload) {
				workers := *wl.Spec.PodSets[0].DeepCopy()
				workers.Name, workers.Template.Spec = "workers", podSpec("cpu", "8")
				wl.Spec.PodSets = append(wl.Spec.PodSets, workers)
			})
			gets(w, wl, "spot")
			if got := string(read(w, wl).Status.Admission.PodSetAssignments[1].Flavors["cpu"]); got != w.own("demand") {
				w.t.Errorf("the workers got %s", got)
			}
		},
		"10 §7.23 partial admission": func(w *world) {
			w.queue("q", "6")
			wl := w.workload("wl", "q", "1", count(10), func(wl *kueue.Workload) { wl.Spec.PodSets[0].MinCount = new(int32(4)) })
			w.admits(wl)
			if a := read(w, wl).Status.Admission.PodSetAssignments[0]; *a.Count != 6 || !a.ResourceUsage["cpu"].Equal(cpus("6")) {
				w.t.Errorf("got %d pods with %v", *a.Count, a.ResourceUsage)
			}
		},
	})
}
