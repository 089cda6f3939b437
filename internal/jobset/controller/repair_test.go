package controller

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// TestEndedLeader: a Job keeps its ended leaders, and the first events of a manager report them all. The followers belong to the live one.
func TestEndedLeader(t *testing.T) {
	node := func(name, rack string) client.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": rack}}}
	}
	pod := func(name, index, node, rack string, phase corev1.PodPhase) client.Object {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "lab", Name: name, UID: types.UID(name),
				Labels:          map[string]string{jobsetv1alpha2.JobKeyKey: "key"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job", Controller: new(true)}},
				Annotations: map[string]string{
					jobsetv1alpha2.JobSetNameKey: "ring", jobsetv1alpha2.ExclusiveTopologyAnnotation: "rack", batchv1.JobCompletionIndexAnnotation: index,
				},
			},
			Spec:   corev1.PodSpec{NodeName: node, NodeSelector: map[string]string{"rack": rack}},
			Status: corev1.PodStatus{Phase: phase},
		}
	}
	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded, corev1.PodRunning} {
		c := fake.NewClientBuilder().WithScheme(schemeOfJobSets(t)).WithStatusSubresource(&corev1.Pod{}).
			WithIndex(&corev1.Pod{}, PodsByJob, func(o client.Object) []string { return []string{o.GetLabels()[jobsetv1alpha2.JobKeyKey]} }).
			WithObjects(node("n1", "r1"), node("n2", "r2"), pod("leader", "0", "n1", "", phase), pod("follower", "1", "n2", "r2", corev1.PodRunning)).Build()
		r := &repairer{client: c, pods: c, turns: newTurns(), now: time.Now}
		if _, err := r.Reconcile(t.Context(), request("lab", "leader")); err != nil {
			t.Fatal(err)
		}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "lab", Name: "follower"}, &corev1.Pod{})
		if client.IgnoreNotFound(err) != nil || (err != nil) != (phase == corev1.PodRunning) {
			t.Errorf("after a leader in another rack that is %s: %v", phase, err)
		}
	}
}
