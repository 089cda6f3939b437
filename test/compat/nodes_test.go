package compat

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestPodPlaces: how pods get the domains of their Workload. spec: 20 §4.8.
func TestPodPlaces(t *testing.T) {
	running(t, "")
	const index = "example.com/index"
	six := func(w *world) *kueue.Workload {
		w.topology(rack, corev1.LabelHostname)
		w.nodes("n1 b r 2", "n2 b r 4")
		w.queue("q", "100")
		wl := w.workload("a", "q", "1", count(6), requires(rack), asks(func(r *kueue.PodSetTopologyRequest) { r.PodIndexLabel = new(index) }))
		return w.isOn(wl, "n1:2 n2:4")
	}
	ranked := func(rank string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels[index] = rank }
	}
	placedScenes(t, map[string]func(*world){
		"20 §7.33 by rank": func(w *world) {
			wl := six(w)
			for i, rank := range []string{"5", "4", "3", "2", "1", "0"} {
				w.pod(fmt.Sprintf("p%d", i), "", "1", started(wl), ranked(rank))
			}
			w.podsAre("p0>n2", "p1>n2", "p2>n2", "p3>n2", "p4>n1", "p5>n1")
		},
		"20 §7.33 without ranks the first free domain": func(w *world) {
			wl := six(w)
			for i := range 7 {
				w.pod(fmt.Sprintf("p%d", i), "", "1", started(wl))
			}
			wait.Until(w.t, "each domain is full", func() error {
				var list corev1.PodList
				w.must(w.c.List(w.ctx(), &list, client.InNamespace(w.name)))
				on := map[string]int{}
				for i := range list.Items {
					on[strings.TrimPrefix(list.Items[i].Spec.NodeSelector[corev1.LabelHostname], w.name+"-")]++
				}
				return firstError(equal(on["n1"], 2), equal(on["n2"], 4), equal(on[""], 1))
			})
		},
		"20 §4.8 a reservation alone ungates nothing, and other gates stay": func(w *world) {
			w.topology(rack, corev1.LabelHostname)
			w.node("n1 b r 2")
			c := w.check("c")
			w.queue("q", "100", checked(every(c)...))
			wl := w.until(w.workload("a", "q", "1", requires(rack)), reserved)
			p := w.pod("p", "", "1", started(wl), func(p *corev1.Pod) {
				p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "example.com/other"})
			})
			wait.Stays(w.t, time.Second, "it stays gated", func() error { return equal(len(read(w, p).Spec.SchedulingGates), 2) })
			w.answer(wl, c, kueue.CheckStateReady)
			w.podsAre("p>n1")
			if gates := read(w, p).Spec.SchedulingGates; len(gates) != 1 || gates[0].Name != "example.com/other" {
				w.t.Errorf("gates %v", gates)
			}
		},
	})
}

// ofTwo makes a Workload on two nodes of a rack, and other nodes after it is placed.
func ofTwo(w *world, spares ...string) (*kueue.Workload, [2]*corev1.Node) {
	w.topology(rack, corev1.LabelHostname)
	two := [2]*corev1.Node{w.node("n1 b r 2"), w.node("n2 b r 2")}
	w.queue("q", "100")
	wl := w.isOn(w.workload("a", "q", "2", count(2), requires(rack)), "n1:1 n2:1")
	w.nodes(spares...)
	return wl, two
}

// TestNodeFailures: nodes of admitted Workloads fail. spec: 20 §4.9.
func TestNodeFailures(t *testing.T) {
	running(t, "")
	remove := func(w *world, nodes ...*corev1.Node) {
		for _, n := range nodes {
			w.must(w.c.Delete(w.ctx(), n))
		}
	}
	placedScenes(t, map[string]func(*world){
		"20 §7.34 a spare of the same rack": func(w *world) {
			wl, nodes := ofTwo(w, "n8 b another 2", "n9 b r 2")
			remove(w, nodes[0])
			got := w.isOn(wl, "n2:1 n9:1")
			if n := len(got.Status.UnhealthyNodes); n > 0 {
				w.t.Errorf("%d unhealthy nodes after the replacement", n)
			}
			w.keeps(wl, 500*time.Millisecond, admitted, "-Evicted")
		},
		"20 §7.35 no spare": func(w *world) {
			wl, nodes := ofTwo(w, "n8 b another 2")
			remove(w, nodes[0])
			got := w.until(wl, "Evicted=True/NodeFailures")
			if n := len(got.Status.UnhealthyNodes); n > 0 {
				w.t.Errorf("%d unhealthy nodes after the eviction", n)
			}
			w.release(wl)
			w.until(wl, "Requeued=True/NodeFailures", "QuotaReserved=False/TopologyPlacementFailed")
		},
		"20 §7.36 two nodes at once": func(w *world) {
			wl, nodes := ofTwo(w, "n8 b r 2", "n9 b r 2")
			remove(w, nodes[:]...)
			w.until(wl, "Evicted=True/NodeFailures")
		},
		"20 §7.37 NotReady under running pods": func(w *world) {
			wl, nodes := ofTwo(w, "n9 b r 2")
			p := w.pod("p", "n1", "1", started(wl))
			w.setReady(nodes[0], false, "")
			wait.Stays(w.t, time.Second, "its places stay", func() error {
				now := read(w, wl)
				return firstError(equal(w.places(now), "n1:1 n2:1"), equal(len(now.Status.UnhealthyNodes), 0))
			})
			w.must(w.c.Delete(w.ctx(), p, client.GracePeriodSeconds(0)))
			w.isOn(wl, "n2:1 n9:1")
		},
		"20 §7.37 NotReady without pods": func(w *world) {
			wl, nodes := ofTwo(w, "n9 b r 2")
			w.setReady(nodes[0], false, "")
			w.isOn(wl, "n2:1 n9:1")
		},
		"20 §4.9 a taint that its pods do not tolerate": func(w *world) {
			wl, nodes := ofTwo(w, "n9 b r 2")
			edit(w, nodes[0], func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "broken", Effect: corev1.TaintEffectNoExecute}}
			})
			w.isOn(wl, "n2:1 n9:1")
		},
	})
}

// TestNodeRecovers: without failing fast, a Workload that cannot be moved keeps its node until that is back. spec: 20 §4.9.
func TestNodeRecovers(t *testing.T) {
	running(t, "featureGates: {TASFailedNodeReplacementFailFast: false}\n")
	placedScenes(t, map[string]func(*world){
		"20 §4.9 a node that recovers": func(w *world) {
			wl, nodes := ofTwo(w)
			w.setReady(nodes[0], false, "")
			w.unhealthy(wl, "n1")
			w.setReady(nodes[0], true, "")
			w.unhealthy(wl)
			w.keeps(wl, 1500*time.Millisecond, admitted, "-Evicted")
			w.isOn(wl, "n1:1 n2:1")
		},
	})
}

// TestNodesAreWatchedWhenNeeded: a manager reads no nodes before there is a flavor with a topology, and places the first Workload that
// comes with it. spec: 20 §4.5.
func TestNodesAreWatchedWhenNeeded(t *testing.T) {
	var reads atomic.Int64
	w := newWorld(t)
	t.Cleanup(w.clearPlaces)
	w.removeTopologies()
	running(t, "", through(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			nodes := strings.HasSuffix(r.URL.Path, "/api/v1/nodes")
			if nodes || (strings.HasSuffix(r.URL.Path, "/api/v1/pods") && strings.Contains(r.URL.RawQuery, "fieldSelector")) {
				reads.Add(1)
			}
			return next.RoundTrip(r)
		})
	}))
	w.node("n1 b r 2")
	w.flavor("plain")
	w.queue("plain", "", quota(w.own("plain")+"=9"))
	w.admits(w.workload("unplaced", "plain", "1"))
	if n := reads.Load(); n > 0 {
		t.Fatalf("%d requests for nodes and the pods on them", n)
	}
	w.topology(rack, corev1.LabelHostname)
	w.queue("q", "9")
	w.isOn(w.workload("a", "q", "2", requires(rack)), "n1:1")
	if reads.Load() == 0 {
		t.Error("the requests for nodes were not seen")
	}
}

// removeTopologies removes the Topologies of earlier tests: their manager ended before their finalizers were removed.
func (w *world) removeTopologies() {
	w.t.Helper()
	var list kueue.TopologyList
	w.must(w.c.List(w.ctx(), &list))
	for i := range list.Items {
		o := &list.Items[i]
		w.must(client.IgnoreNotFound(w.c.Delete(w.ctx(), o)))
		w.must(client.IgnoreNotFound(w.c.Patch(w.ctx(), o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
	}
}
