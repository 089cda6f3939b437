package capacity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-project/berth/internal/core/workload"
)

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", Labels: map[string]string{corev1.LabelHostname: "h1"}, Annotations: map[string]string{"a": "b"}, ResourceVersion: "7",
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "x", Value: "y", Effect: corev1.TaintEffectNoExecute}, {Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule},
		}},
		Status: corev1.NodeStatus{
			Allocatable: list("cpu=3900m memory=1500m nvidia.com/gpu=0 pods=110"), Capacity: list("cpu=4"),
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(time.Unix(1, 0)), Message: "fine"},
			},
			Images: []corev1.ContainerImage{{Names: []string{"i"}}},
		},
	}
}

func TestNodeOf(t *testing.T) {
	want := Node{
		Name: "n1", Labels: map[string]string{corev1.LabelHostname: "h1"}, Taints: []workload.Taint{{Key: "x", Value: "y", Effect: "NoExecute"}},
		Ready: true, Schedulable: true, Allocatable: Amounts{{Resource: "cpu", Amount: 3900}, {Resource: "memory", Amount: 1}, {Resource: "pods", Amount: 110}},
	}
	if diff := cmp.Diff(want, NodeOf(node())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, NodeOf(TrimNode(node()))); diff != "" {
		t.Errorf("of a trimmed node (-want +got):\n%s", diff)
	}
	n := node()
	n.Spec.Unschedulable, n.Status.Conditions[1].Status = true, corev1.ConditionUnknown
	if got := NodeOf(n); got.Ready || got.Schedulable {
		t.Errorf("%+v", got)
	}
	if got := NodeOf(&corev1.Node{}); got.Ready {
		t.Error("a node without conditions is ready")
	}
}

func TestIsChange(t *testing.T) {
	cases := map[string]struct {
		change func(n *corev1.Node)
		want   bool
	}{
		"nothing":                    {func(*corev1.Node) {}, false},
		"a heartbeat":                {func(n *corev1.Node) { n.Status.Conditions[1].LastHeartbeatTime = metav1.Now() }, false},
		"the message of a condition": {func(n *corev1.Node) { n.Status.Conditions[1].Message = "still fine" }, false},
		"an image":                   {func(n *corev1.Node) { n.Status.Images = nil }, false},
		"the capacity":               {func(n *corev1.Node) { n.Status.Capacity = nil }, false},
		"the version":                {func(n *corev1.Node) { n.ResourceVersion = "8" }, false},
		"a label":                    {func(n *corev1.Node) { n.Labels["rack"] = "r1" }, true},
		"an annotation":              {func(n *corev1.Node) { n.Annotations["a"] = "c" }, true},
		"a taint":                    {func(n *corev1.Node) { n.Spec.Taints = n.Spec.Taints[:1] }, true},
		"a cordon":                   {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"an allocatable resource":    {func(n *corev1.Node) { n.Status.Allocatable["cpu"] = apiresource.MustParse("3") }, true},
		"the same in another way":    {func(n *corev1.Node) { n.Status.Allocatable["cpu"] = apiresource.MustParse("3.9") }, false},
		"a new resource":             {func(n *corev1.Node) { n.Status.Allocatable["x.com/y"] = apiresource.MustParse("1") }, true},
		"the Ready condition":        {func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionFalse }, true},
		"the status of another":      {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }, true},
		"a new condition": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "New"})
		}, true},
		"the Ready condition goes away": {func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[:1] }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			after := node()
			tc.change(after)
			if got := IsChange(node(), after); got != tc.want {
				t.Errorf("got %v", got)
			}
			if got := IsChange(TrimNode(node()), TrimNode(after)); got != tc.want {
				t.Errorf("of trimmed nodes: got %v", got)
			}
		})
	}
}
