package multicluster

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// rackLabel is the label of nodes that have a rack.
const rackLabel = "example.com/rack"

// placesPods: the hub places no pods, although its queue has a topology. It waits for a worker that has places. spec: 40 §4.8, §7.41.
func placesPods(t *testing.T, hub, w1, w2 *cluster) {
	for c, checks := range map[*cluster][]kueue.AdmissionCheckStrategyRule{hub: {{Name: "workers"}}, w1: nil, w2: nil} {
		c.racks(checks)
	}
	j := job("placed", "1", endless)
	j.Labels[kueue.QueueNameLabel] = "racks"
	j.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = rackLabel
	hub.create(j)
	delayed := func(want kueue.DelayedTopologyRequestState) error {
		w, err := hub.workload(j)
		if err != nil {
			return err
		}
		if !lifecycle.IsReserved(w) {
			return fmt.Errorf("not reserved: %+v", w.Status.Conditions)
		}
		a := w.Status.Admission.PodSetAssignments[0]
		if a.TopologyAssignment != nil {
			t.Fatalf("the hub placed pods: %+v", a.TopologyAssignment)
		}
		if a.DelayedTopologyRequest == nil || *a.DelayedTopologyRequest != want || lifecycle.IsAdmitted(w) != (want == kueue.DelayedTopologyRequestReady) {
			return fmt.Errorf("the request is %v, want %s: %+v", a.DelayedTopologyRequest, want, w.Status.Conditions)
		}
		return nil
	}
	for _, c := range []*cluster{w1, w2} {
		wait.Until(t, c.name+" has no rack", func() error {
			w, err := hub.copyOf(c, j)
			if err != nil {
				return err
			}
			if q := lifecycle.Condition(w, kueue.WorkloadQuotaReserved); q == nil || q.Status != metav1.ConditionFalse {
				return fmt.Errorf("conditions %+v", w.Status.Conditions)
			}
			return nil
		})
	}
	wait.Until(t, "the hub waits for places", func() error { return delayed(kueue.DelayedTopologyRequestPending) })

	var nodes corev1.NodeList
	if err := w2.List(t.Context(), &nodes); err != nil || len(nodes.Items) == 0 {
		t.Fatalf("%d nodes: %v", len(nodes.Items), err)
	}
	node := nodes.Items[0].DeepCopy()
	node.Labels[rackLabel] = "r1"
	if err := w2.Patch(t.Context(), node, client.MergeFrom(&nodes.Items[0])); err != nil {
		t.Fatal(err)
	}
	if at := hub.on(j); at != "w2" {
		t.Errorf("it runs on %s, which has no rack", at)
	}
	wait.Until(t, "the hub knows that it has places", func() error { return delayed(kueue.DelayedTopologyRequestReady) })
	there, err := hub.copyOf(w2, j)
	if err != nil {
		t.Fatal(err)
	}
	if a := there.Status.Admission.PodSetAssignments[0].TopologyAssignment; a == nil {
		t.Error("it has no places on w2")
	}
	if err := hub.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	w1.empty()
	w2.empty()
}

// racks makes a queue with a topology of racks.
func (c *cluster) racks(checks []kueue.AdmissionCheckStrategyRule) {
	c.t.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
			Flavors:          []kueue.FlavorQuotas{{Name: "racks", Resources: []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("8")}}}},
		}},
	}}
	if checks != nil {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: checks}
	}
	c.create(
		&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{
			Levels: []kueue.TopologyLevel{{NodeLabel: rackLabel}, {NodeLabel: corev1.LabelHostname}},
		}},
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.ResourceFlavorSpec{
			NodeLabels: map[string]string{corev1.LabelOSStable: "linux"}, TopologyName: "racks",
		}},
		cq, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "racks"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "racks"}})
}
