package compat

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// The levels of the topologies of the tests above the hostname.
const (
	block = "cloud/block"
	rack  = "cloud/rack"
)

// topology makes a Topology of these levels, and the flavor "f" of the nodes of this world with it.
func (w *world) topology(levels ...string) {
	w.t.Helper()
	w.levels("t", levels...)
	w.flavor("f", w.on("t"))
}

// levels makes a Topology.
func (w *world) levels(name string, levels ...string) *kueue.Topology {
	w.t.Helper()
	t := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: w.own(name), Labels: map[string]string{"world": w.name}}}
	for _, l := range levels {
		t.Spec.Levels = append(t.Spec.Levels, kueue.TopologyLevel{NodeLabel: l})
	}
	w.create(t)
	return t
}

// on gives a flavor a topology, and the nodes of this world.
func (w *world) on(topology string) func(*kueue.ResourceFlavor) {
	return func(f *kueue.ResourceFlavor) {
		f.Spec.TopologyName = kueue.TopologyReference(w.own(topology))
		f.Spec.NodeLabels = map[string]string{"world": w.name}
	}
}

// nodes makes Ready nodes, given as "name block rack cpu".
func (w *world) nodes(list ...string) {
	w.t.Helper()
	for _, text := range list {
		w.node(text)
	}
}

// node makes a Ready node, given as "name block rack cpu", whose hostname is its name.
func (w *world) node(text string, taints ...corev1.Taint) *corev1.Node {
	w.t.Helper()
	part := strings.Fields(text)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.own(part[0]), Labels: map[string]string{
		"world": w.name, block: part[1], rack: part[2], corev1.LabelHostname: w.own(part[0]),
	}}}
	w.create(n)
	edit(w, n, func(n *corev1.Node) { n.Spec.Taints = taints }) // the API server taints new nodes
	w.setReady(n, true, part[3])
	return n
}

// setReady makes a node Ready with some cpu, or NotReady.
func (w *world) setReady(n *corev1.Node, ready bool, cpu string) {
	w.t.Helper()
	wait.Until(w.t, "the status of "+n.Name, func() error {
		now := read(w, n)
		now.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
		if ready {
			now.Status.Conditions[0].Status = corev1.ConditionTrue
		}
		if cpu != "" {
			now.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse("110")}
		}
		return w.c.Status().Update(w.ctx(), now)
	})
}

// manyNodes makes n nodes of one rack at once, named by a format. Their taints stay.
func (w *world) manyNodes(n int, format string) {
	w.t.Helper()
	var running sync.WaitGroup
	for part := range 16 {
		running.Go(func() {
			for i := part; i < n; i += 16 {
				name := fmt.Sprintf(format, i)
				node := &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"world": w.name, rack: "r", corev1.LabelHostname: name}},
					Status: corev1.NodeStatus{
						Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
						Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("110")},
					},
				}
				if err := w.c.Create(w.ctx(), node); err != nil {
					w.t.Error(err)
				}
			}
		})
	}
	running.Wait()
}

// asks changes the topology request of the first pod set.
func asks(change func(*kueue.PodSetTopologyRequest)) workloadSetting {
	return func(wl *kueue.Workload) {
		s := &wl.Spec.PodSets[0]
		if s.TopologyRequest == nil {
			s.TopologyRequest = &kueue.PodSetTopologyRequest{}
		}
		change(s.TopologyRequest)
	}
}

func requires(level string) workloadSetting {
	return asks(func(r *kueue.PodSetTopologyRequest) { r.Required = &level })
}

func prefers(level string) workloadSetting {
	return asks(func(r *kueue.PodSetTopologyRequest) { r.Preferred = &level })
}

func unconstrained() workloadSetting {
	return asks(func(r *kueue.PodSetTopologyRequest) { r.Unconstrained = new(true) })
}

func sliced(level string, size int32) workloadSetting {
	return asks(func(r *kueue.PodSetTopologyRequest) { r.PodSetSliceRequiredTopology, r.PodSetSliceSize = &level, &size })
}

// places are the domains of a Workload as "n1:2 n2:1", one pod set after the other, without the name of the world.
func (w *world) places(wl *kueue.Workload) string {
	w.t.Helper()
	if wl.Status.Admission == nil {
		return "no admission"
	}
	var sets []string
	for _, a := range wl.Status.Admission.PodSetAssignments {
		var domains []string
		if a.TopologyAssignment != nil {
			list, err := assignment.Decode(a.TopologyAssignment)
			w.must(err)
			for _, d := range list {
				domains = append(domains, fmt.Sprintf("%s:%d", strings.ReplaceAll(strings.Join(d.Values, "/"), w.name+"-", ""), d.Count))
			}
		}
		sets = append(sets, strings.Join(domains, " "))
	}
	return strings.Join(sets, " | ")
}

// isOn waits until a Workload is admitted to these places.
func (w *world) isOn(wl *kueue.Workload, places string) *kueue.Workload {
	w.t.Helper()
	var got *kueue.Workload
	wait.Until(w.t, wl.Name+" is on "+places, func() error {
		got = read(w, wl)
		return firstError(lacks(got.Status.Conditions, admitted), equal(w.places(got), places))
	})
	return got
}

// lacksPlaces waits until a Workload waits for places, with a message that has these words.
func (w *world) lacksPlaces(wl *kueue.Workload, words ...string) {
	w.t.Helper()
	wait.Until(w.t, wl.Name+" has no places", func() error {
		for _, c := range read(w, wl).Status.Conditions {
			if c.Type != kueue.WorkloadQuotaReserved || c.Reason != "TopologyPlacementFailed" {
				continue
			}
			for _, word := range words {
				if !strings.Contains(c.Message, word) {
					return fmt.Errorf("the message is %q, which does not say %q", c.Message, word)
				}
			}
			return nil
		}
		return fmt.Errorf("conditions %v", conditions(read(w, wl).Status.Conditions))
	})
}

// pod makes a pod of a Workload on a node, "" for none.
func (w *world) pod(name, node, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: name, Labels: map[string]string{}}, Spec: podSpec("cpu", cpu)}
	if node != "" {
		p.Spec.NodeName = w.own(node)
	}
	p.Spec.TerminationGracePeriodSeconds = new(int64(0))
	for _, set := range change {
		set(p)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: "default"}}
	w.must(client.IgnoreAlreadyExists(w.c.Create(w.ctx(), account)))
	w.create(p)
	return p
}

// started makes a pod one of a started Workload: with the gate, unless it is on a node already.
func started(wl *kueue.Workload) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[kueue.PodSetLabel] = "main"
		p.Annotations = map[string]string{kueue.WorkloadAnnotation: wl.Name, kueue.PodSetUnconstrainedTopologyAnnotation: "true"}
		if p.Spec.NodeName == "" {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
			return
		}
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: p.Spec.NodeName}
	}
}

// podsAre waits until the pods of the world are on hosts, as "pod>host", or ">" for a gated one.
func (w *world) podsAre(want ...string) {
	w.t.Helper()
	check := func() error {
		var list corev1.PodList
		w.must(w.c.List(w.ctx(), &list, client.InNamespace(w.name)))
		var got []string
		for i := range list.Items {
			p := &list.Items[i]
			host := strings.TrimPrefix(p.Spec.NodeSelector[corev1.LabelHostname], w.name+"-")
			if slices.Contains(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.TopologySchedulingGate}) {
				host = ""
			}
			got = append(got, p.Name+">"+host)
		}
		slices.Sort(got)
		return equal(strings.Join(got, " "), strings.Join(want, " "))
	}
	wait.Until(w.t, "the pods have their places", check)
}

// unhealthy waits until exactly these nodes of a Workload are recorded.
func (w *world) unhealthy(wl *kueue.Workload, want ...string) {
	w.t.Helper()
	wait.Until(w.t, fmt.Sprintf("%v are recorded", want), func() error {
		var got []string
		for _, n := range read(w, wl).Status.UnhealthyNodes {
			got = append(got, strings.TrimPrefix(n.Name, w.name+"-"))
		}
		return equal(fmt.Sprint(got), fmt.Sprint(want))
	})
}

// clearPlaces deletes the nodes, topologies and pods of the world.
func (w *world) clearPlaces() {
	mine := client.MatchingLabels{"world": w.name}
	_ = w.c.DeleteAllOf(w.ctx(), &corev1.Pod{}, client.InNamespace(w.name), client.GracePeriodSeconds(0))
	for _, o := range []client.Object{&kueue.ResourceFlavor{}, &kueue.Topology{}, &corev1.Node{}} {
		_ = w.c.DeleteAllOf(w.ctx(), o, mine)
	}
}
