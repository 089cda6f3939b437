package compat

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// twoRacks are nodes with 3 and 3, and with 5 free cpus, in one block.
func (w *world) twoRacks() {
	w.t.Helper()
	w.topology(block, rack, corev1.LabelHostname)
	w.nodes("n1 b r1 3", "n2 b r1 3", "n3 b r2 5")
	w.queue("q", "100")
}

// placedScenes run with the objects of placement cleared afterwards.
func placedScenes(t *testing.T, tests map[string]func(*world)) {
	t.Helper()
	for name, run := range tests {
		tests[name] = func(w *world) {
			w.t.Cleanup(w.clearPlaces)
			run(w)
		}
	}
	scenes(t, tests)
}

// TestPlacement: where pods are placed. spec: 20 §4.6.
func TestPlacement(t *testing.T) {
	running(t, "")
	row := func(w *world, cpus ...string) {
		w.topology(rack, corev1.LabelHostname)
		for i, cpu := range cpus {
			w.node(fmt.Sprintf("n%d b r %s", i+1, cpu))
		}
		w.queue("q", "100")
	}
	slim := func(w *world, first, second string) {
		w.topology(block, rack, corev1.LabelHostname)
		w.nodes("n1 b r1 "+first, "n2 b r2 "+second)
		w.queue("q", "100")
	}
	together := func(w *world, first, second string) *kueue.Workload {
		slim(w, first, second)
		return w.workload("a", "q", "2", requires(rack), func(wl *kueue.Workload) {
			workers := wl.Spec.PodSets[0].DeepCopy()
			workers.Name, workers.Count, workers.Template.Spec = "workers", 3, podSpec("cpu", "4")
			wl.Spec.PodSets = append(wl.Spec.PodSets, *workers)
			for i := range wl.Spec.PodSets {
				wl.Spec.PodSets[i].TopologyRequest.PodSetGroupName = new("g")
			}
		})
	}
	placedScenes(t, map[string]func(*world){
		"20 §7.19 the smallest rack that suffices": func(w *world) {
			w.twoRacks()
			w.isOn(w.workload("a", "q", "1", count(5), requires(rack)), "n3:5")
		},
		"20 §7.20 no rack holds all": func(w *world) {
			w.twoRacks()
			q := &kueue.ClusterQueue{ObjectMeta: w.meta("q")}
			w.lacksPlaces(w.workload("a", "q", "1", count(7), requires(rack)), "allows to fit only 6 out of 7")
			w.usage(q, "0", "0")
		},
		"20 §7.21 several racks of one block": func(w *world) {
			w.twoRacks()
			w.isOn(w.workload("a", "q", "1", count(7), prefers(rack)), "n1:2 n3:5")
		},
		"20 §7.22 unconstrained, the fullest node": func(w *world) {
			row(w, "1", "2", "9")
			w.isOn(w.workload("a", "q", "1", count(2), unconstrained()), "n2:2")
		},
		"20 §7.23 unconstrained, ascending": func(w *world) {
			row(w, "1", "2", "3")
			w.isOn(w.workload("a", "q", "1", count(4), unconstrained()), "n1:1 n2:2 n3:1")
		},
		"20 §7.24 slices of 4 in racks of 7 and 9": func(w *world) {
			slim(w, "7", "9")
			w.isOn(w.workload("a", "q", "1", count(12), sliced(rack, 4)), "n1:4 n2:8")
		},
		"20 §7.25 a count that slices do not divide": func(w *world) {
			slim(w, "7", "9")
			wl := w.isOn(w.workload("a", "q", "1", count(7), sliced(rack, 3)), "n1:6")
			if n := wl.Status.Admission.PodSetAssignments[0].Count; n == nil || *n != 7 {
				w.t.Errorf("count %v, want 7", n)
			}
			var want []string
			for i := range 7 {
				w.pod(fmt.Sprintf("p%d", i), "", "1", started(wl))
				want = append(want, fmt.Sprintf("p%d>n1", i))
			}
			want[6] = "p6>"
			w.podsAre(want...)
		},
		"20 §7.26 layers of slices": func(w *world) {
			slim(w, "7", "7")
			w.isOn(w.workload("a", "q", "1", count(8), asks(func(r *kueue.PodSetTopologyRequest) {
				r.PodSetSliceRequiredTopologyConstraints = []kueue.PodSetSliceTopologyConstraint{{Topology: block, Size: 8}, {Topology: rack, Size: 4}}
			})), "n1:4 n2:4")
		},
		"20 §7.27 leader and workers do not fit": func(w *world) { w.lacksPlaces(together(w, "13", "13")) },
		"20 §7.27 leader and workers in one rack": func(w *world) {
			w.isOn(together(w, "13", "14"), "n2:1 | n2:3")
		},
		"20 §7.32 900 nodes are a small status": func(w *world) {
			w.topology(rack, corev1.LabelHostname)
			w.queue("q", "1000")
			w.manyNodes(900, w.own("pool-a-%04d"))
			wl := w.workload("a", "q", "1", count(900), requires(rack), func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			})
			got := w.until(wl, admitted)
			a := got.Status.Admission.PodSetAssignments[0].TopologyAssignment
			if len(a.Slices) != 1 || a.Slices[0].PodCounts.Universal == nil || *a.Slices[0].PodCounts.Universal != 1 {
				w.t.Errorf("%d slices, pod counts %+v", len(a.Slices), a.Slices[0].PodCounts)
			}
			if places := strings.Fields(w.places(got)); len(places) != 900 || places[899] != "pool-a-0899:1" {
				w.t.Errorf("%d places, the last one %s", len(places), places[len(places)-1])
			}
		},
		"20 §4.6 all levels where the last one is not the hostname": func(w *world) {
			w.topology(block, rack)
			w.nodes("n1 b r1 3", "n2 b r1 3", "n3 b r2 5")
			w.queue("q", "100")
			w.isOn(w.workload("a", "q", "1", count(6), requires(rack)), "b/r1:6")
		},
	})
}

// TestCapacity: topologies, flavors, and what nodes offer. spec: 20 §4.5.
func TestCapacity(t *testing.T) {
	running(t, "")
	taint := corev1.Taint{Key: "spot", Effect: corev1.TaintEffectNoSchedule}
	inactive := func(w *world, q *kueue.ClusterQueue, want string) {
		wait.Until(w.t, "the queue is "+want, func() error { return lacks(read(w, q).Status.Conditions, want) })
	}
	placedScenes(t, map[string]func(*world){
		"20 §7.28 pods without places take theirs away": func(w *world) {
			w.topology(rack, corev1.LabelHostname)
			w.node("n1 b r 8")
			w.queue("q", "100")
			other := w.pod("other", "n1", "6", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/holds"} })
			wl := w.workload("a", "q", "3", requires(rack))
			w.lacksPlaces(wl)
			w.isOn(w.workload("small", "q", "2", requires(rack)), "n1:1")
			w.must(w.c.Delete(w.ctx(), other))
			w.keeps(wl, time.Second, "QuotaReserved=False/TopologyPlacementFailed")
			edit(w, other, func(p *corev1.Pod) { p.Finalizers = nil })
			w.isOn(wl, "n1:1")
		},
		"20 §7.29 a queue with topologies only places every pod": func(w *world) {
			w.topology(rack, corev1.LabelHostname)
			w.nodes("n1 b r 1", "n2 b r 2")
			w.queue("q", "100")
			w.isOn(w.workload("a", "q", "1", count(2)), "n2:2")
		},
		"20 §7.29 beside another flavor only pods that ask are placed": func(w *world) {
			w.topology(rack, corev1.LabelHostname)
			w.node("n1 b r 9")
			w.flavor("plain")
			w.queue("q", "", quota(w.own("f")+"=9", w.own("plain")+"=9"))
			w.isOn(w.workload("a", "q", "1"), "")
			w.isOn(w.workload("asks", "q", "1", requires(rack)), "n1:1")
		},
		"20 §7.30 a topology that is missing": func(w *world) {
			w.flavor("f", w.on("t"))
			w.node("n1 b r 3")
			q := w.queue("q", "9")
			wl := w.workload("a", "q", "1", requires(rack))
			inactive(w, q, "Active=False/TopologyNotFound")
			w.levels("t", rack, corev1.LabelHostname)
			inactive(w, q, "Active=True")
			w.isOn(wl, "n1:1")
		},
		"20 §7.31 a topology in use stays": func(w *world) {
			top := w.levels("t", rack, corev1.LabelHostname)
			f := w.flavor("f", w.on("t"))
			for _, o := range []client.Object{top, f} {
				wait.Until(w.t, "it has its finalizer", func() error { return equal(len(finalizers(w, o)), 1) })
			}
			w.must(w.c.Delete(w.ctx(), top))
			wait.Stays(w.t, time.Second, "it is there", func() error {
				return w.c.Get(w.ctx(), client.ObjectKeyFromObject(top), top)
			})
			w.must(w.c.Delete(w.ctx(), f))
			wait.Until(w.t, "it is gone", func() error { return errStill(w.c.Get(w.ctx(), client.ObjectKeyFromObject(top), top)) })
		},
		"20 §4.5 usage counts from the reservation on, over all queues and flavors of a node": func(w *world) {
			w.topology(rack, corev1.LabelHostname)
			w.node("n1 b r 4")
			w.flavor("g", w.on("t"))
			c := w.check("c")
			w.queue("q", "100", checked(every(c)...))
			w.queue("other", "", quota(w.own("g")+"=100"))
			wl := w.workload("a", "q", "3", requires(rack))
			w.until(wl, reserved)
			second := w.workload("b", "other", "2", requires(rack))
			w.lacksPlaces(second)
			w.finish(wl)
			w.isOn(second, "n1:1")
		},
		"20 §4.5 cordoned, tainted and NotReady nodes, and the labels of the flavor": func(w *world) {
			w.topology(rack, corev1.LabelHostname)
			n1 := w.node("n1 b r 4")
			tainted := w.node("n2 b r 4", taint)
			w.queue("q", "100")
			edit(w, n1, func(n *corev1.Node) { n.Spec.Unschedulable = true })
			wl := w.workload("a", "q", "4", requires(rack))
			w.lacksPlaces(wl, "spot")
			tolerant := w.workload("tolerant", "q", "4", requires(rack), func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
			})
			w.isOn(tolerant, "n2:1")
			w.setReady(n1, false, "")
			edit(w, n1, func(n *corev1.Node) { n.Spec.Unschedulable = false })
			w.keeps(wl, 500*time.Millisecond, "QuotaReserved=False/TopologyPlacementFailed")
			edit(w, n1, func(n *corev1.Node) { n.Labels["world"] = "another" })
			w.setReady(n1, true, "")
			w.keeps(wl, 500*time.Millisecond, "QuotaReserved=False/TopologyPlacementFailed")
			w.finish(tolerant)
			edit(w, tainted, func(n *corev1.Node) { n.Spec.Taints = nil })
			w.isOn(wl, "n2:1")
			edit(w, n1, func(n *corev1.Node) { n.Labels["world"] = w.name }) // cleared with the others
		},
		"20 §4.5 tolerations of the flavor, and node selectors of pods": func(w *world) {
			w.levels("t", rack, corev1.LabelHostname)
			w.flavor("f", w.on("t"), func(f *kueue.ResourceFlavor) {
				f.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
			})
			w.nodes("n0 b r0 9")
			w.node("n1 b r1 4", taint)
			w.queue("q", "100")
			w.isOn(w.workload("a", "q", "1", requires(rack), func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{rack: "r1"}
			}), "n1:1")
		},
		"20 §4.5 a topology that is made again, and its levels change": func(w *world) {
			w.topology(rack, corev1.LabelHostname)
			n1 := w.node("n1 b r 4")
			w.queue("q", "100")
			wl := w.workload("a", "q", "3", requires(rack))
			w.isOn(wl, "n1:1")
			top := &kueue.Topology{ObjectMeta: w.meta("t")}
			edit(w, top, func(t *kueue.Topology) {
				t.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: block}, {NodeLabel: rack}, {NodeLabel: corev1.LabelHostname}}
			})
			w.keeps(wl, 500*time.Millisecond, admitted, "-Evicted")
			second := w.workload("b", "q", "2", requires(block))
			w.lacksPlaces(second, "fit any of")
			edit(w, n1, func(n *corev1.Node) { delete(n.Labels, block) }) // it leaves the capacity
			w.finish(wl)
			w.keeps(second, time.Second, "QuotaReserved=False")
			edit(w, n1, func(n *corev1.Node) { n.Labels[block] = "b" })
			w.isOn(second, "n1:1")
		},
	})
}

// finalizers are the finalizers of an object as it is now.
func finalizers(w *world, o client.Object) []string {
	w.t.Helper()
	w.must(w.c.Get(w.ctx(), client.ObjectKeyFromObject(o), o))
	return o.GetFinalizers()
}

// TestPlacementAndQuota: flavors, preemption, and placement after checks. spec: 20 §4.7.
func TestPlacementAndQuota(t *testing.T) {
	m := running(t, "", only(t, "-checks")) // the test answers for the provisioner
	lower := preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever)
	t.Run("with preemption", func(t *testing.T) {
		placedScenes(t, map[string]func(*world){
			"20 §4.7 another flavor before a preemption": func(w *world) {
				w.levels("t", rack, corev1.LabelHostname)
				for _, name := range []string{"f", "g"} {
					w.flavor(name, w.on("t"), func(f *kueue.ResourceFlavor) { f.Spec.NodeLabels["flavor"] = name })
				}
				for _, name := range []string{"f", "g"} {
					n := w.node(name + "1 b " + name + " 4")
					edit(w, n, func(n *corev1.Node) { n.Labels["flavor"] = name })
				}
				w.queue("q", "", quota(w.own("f")+"=100", w.own("g")+"=100"), lower)
				first := w.workload("first", "q", "4", requires(rack))
				w.isOn(first, "f1:1")
				w.isOn(w.workload("second", "q", "4", requires(rack), priority(9)), "g1:1")
				w.keeps(first, time.Second, admitted, "-Evicted")
			},
			"20 §4.7 victims for places, and no more than needed": func(w *world) {
				w.topology(rack, corev1.LabelHostname)
				w.nodes("n1 b r1 4", "n2 b r2 4")
				w.queue("q", "100", lower)
				low := []*kueue.Workload{w.workload("a", "q", "4", requires(rack)), w.workload("b", "q", "4", requires(rack), priority(1))}
				w.admits(low...)
				place := w.places(read(w, low[0]))
				p := w.workload("p", "q", "4", requires(rack), priority(9))
				w.victims(low, map[string]string{"a": kueue.ReasonInClusterQueue})
				w.waits(kueue.ReasonWaitingForPreemptedWorkloads, p)
				w.release(low[0])
				w.isOn(p, place)
			},
			"20 §4.7 no preemption where an empty cluster would not do": func(w *world) {
				w.twoRacks()
				low := w.workload("low", "q", "1", requires(rack))
				w.admits(low)
				w.change(&kueue.ClusterQueue{ObjectMeta: w.meta("q")}, lower)
				w.lacksPlaces(w.workload("p", "q", "1", count(7), requires(rack), priority(9)), "allows to fit only 6 out of 7")
				w.keeps(low, time.Second, admitted, "-Evicted")
			},
		})
	})
	w := newWorld(t)
	t.Cleanup(w.clearPlaces)
	w.topology(rack, corev1.LabelHostname)
	w.nodes("n1 b r1 4", "n2 b r2 4")
	check := w.checkOf("prov", kueue.ProvisioningRequestControllerName)
	w.queue("q", "100", checked(every(check)...))
	ready := func(wl *kueue.Workload, place string) {
		t.Helper()
		got := w.until(wl, reserved, "Admitted=False")
		if a := got.Status.Admission.PodSetAssignments[0]; a.TopologyAssignment != nil || a.DelayedTopologyRequest == nil || *a.DelayedTopologyRequest != kueue.DelayedTopologyRequestPending {
			t.Errorf("%s: assignment %+v", wl.Name, a)
		}
		w.answer(wl, check, kueue.CheckStateReady, func(c *kueue.AdmissionCheckState) {
			c.PodSetUpdates = []kueue.PodSetUpdate{{Name: "main", NodeSelector: map[string]string{rack: place}}}
		})
	}
	// 20 §7.38
	first := w.workload("first", "q", "3", requires(rack))
	ready(first, "r2")
	got := w.isOn(first, "n2:1")
	if s := got.Status.Admission.PodSetAssignments[0].DelayedTopologyRequest; s == nil || *s != kueue.DelayedTopologyRequestReady {
		t.Errorf("delayedTopologyRequest %v", s)
	}
	// 20 §7.39, and §4.7.4: failed rounds are events.
	second := w.workload("second", "q", "3", requires(rack))
	ready(second, "r2")
	w.until(second, "Admitted=False/PendingDelayedTopologyRequests")
	w.tells(second, "Warning SecondPassFailed")
	if err := m.end(); err != nil {
		t.Fatal(err)
	}
	running(t, "", only(t, "-checks"))
	w.until(second, "Admitted=False/PendingDelayedTopologyRequests", reserved)
	w.finish(first)
	w.isOn(second, "n2:1")
}
