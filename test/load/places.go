package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// rackLabel is the level above the hostname.
const rackLabel = "load/rack"

// topology are the Topology and the nodes of a shape.
func (s *shape) topology() []client.Object {
	all := []client.Object{&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: flavorName}, Spec: kueue.TopologySpec{
		Levels: []kueue.TopologyLevel{{NodeLabel: rackLabel}, {NodeLabel: corev1.LabelHostname}},
	}}}
	for rack := range s.racks {
		for n := range s.nodes {
			name := nodeName(rack, n)
			all = append(all, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"load": "yes", rackLabel: rackName(rack), corev1.LabelHostname: name}},
				Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
					Allocatable: corev1.ResourceList{
						corev1.ResourceCPU: *resource.NewQuantity(nodeCPU, resource.DecimalSI), corev1.ResourcePods: *resource.NewQuantity(110, resource.DecimalSI),
					},
				},
			})
		}
	}
	return all
}

func rackName(rack int) string { return fmt.Sprintf("rack-%d", rack) }

func nodeName(rack, n int) string { return fmt.Sprintf("node-%d-%02d", rack, n) }

// request is the topology request of a class.
func (c *class) request() *kueue.PodSetTopologyRequest {
	r := &kueue.PodSetTopologyRequest{}
	switch c.places {
	case required:
		r.Required = new(rackLabel)
	case balanced:
		r.PodSetSliceRequiredTopology, r.PodSetSliceSize = new(corev1.LabelHostname), new(int32(2))
		fallthrough
	case preferred:
		r.Preferred = new(rackLabel)
	}
	return r
}

// occupy records the nodes of a reservation, and checks that they have room, and are of one rack where that is required.
func (l *ledger) occupy(e *entry, w *kueue.Workload) {
	a := w.Status.Admission
	if l.onNode == nil || a == nil || len(a.PodSetAssignments) != 1 {
		return
	}
	c := &l.shape.classes[e.class]
	t := a.PodSetAssignments[0].TopologyAssignment
	if t == nil {
		l.problem("%s has no places", w.Name)
		return
	}
	domains, err := assignment.Decode(t)
	if err != nil {
		l.problem("%s: %v", w.Name, err)
		return
	}
	e.places = map[string]int32{}
	racks := map[string]bool{}
	for _, d := range domains {
		node := d.Values[0]
		e.places[node] += d.Count
		l.onNode[node] += d.Count
		racks[node[:len(node)-len("-00")]] = true
		if l.onNode[node] > nodeCPU {
			l.problem("%s: %d pods on node %s, which has room for %d", w.Name, l.onNode[node], node, nodeCPU)
		}
	}
	if n := assignment.Pods(domains); n != int(c.pods) || (c.places == required && len(racks) != 1) {
		l.problem("%s: %d of %d pods in %d racks", w.Name, n, c.pods, len(racks))
	}
}

// vacate records that a reservation is over.
func (l *ledger) vacate(e *entry) {
	for node, n := range e.places {
		l.onNode[node] -= n
	}
	e.places = nil
}
