package controller

import (
	"context"
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
	indexed := func() *fake.ClientBuilder {
		b := fake.NewClientBuilder().WithScheme(schemeOfJobSets(t)).WithStatusSubresource(&corev1.Pod{})
		for name, value := range indexes {
			b.WithIndex(&corev1.Pod{}, name, func(o client.Object) []string { return []string{value(o.(*corev1.Pod))} })
		}
		return b
	}
	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded, corev1.PodRunning} {
		for _, changed := range []string{"leader", "follower"} { // each alone
			c := indexed().WithObjects(node("n1", "r1"), node("n2", "r2"), pod("leader", "0", "n1", "", phase), pod("follower", "1", "n2", "r2", corev1.PodRunning),
				pod("other", "2", "n2", "r2", corev1.PodRunning)).Build()
			r := &repairer{client: c, pods: c, turns: newTurns(), now: time.Now}
			if _, err := r.Reconcile(t.Context(), request("lab", changed)); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]bool{"follower": phase == corev1.PodRunning, "other": phase == corev1.PodRunning && changed == "leader"} {
				err := c.Get(t.Context(), client.ObjectKey{Namespace: "lab", Name: name}, &corev1.Pod{})
				if client.IgnoreNotFound(err) != nil || (err != nil) != want {
					t.Errorf("%s, after a change of %s, with a leader in another rack that is %s: %v", name, changed, phase, err)
				}
			}
		}
	}
}

// noted is a reader that notes the options of a list.
type noted struct {
	client.Reader
	client.ListOptions
}

func (n *noted) List(_ context.Context, _ client.ObjectList, of ...client.ListOption) error {
	n.ApplyOptions(of)
	return nil
}

// TestCandidates: the leader of a follower is looked for among the live leaders of its Job, of which two are as good as thousands. Each review of
// a follower does so, and each change of one.
func TestCandidates(t *testing.T) {
	pod := func(index, by string, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		p.Labels = map[string]string{jobsetv1alpha2.JobKeyKey: "key"}
		p.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: index}
		p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(by), Controller: new(true)}}
		return p
	}
	follower := pod("1", "job", corev1.PodPending)
	reader := &noted{}
	if _, err := LeadersIn(reader)(t.Context(), "lab", follower); err != nil {
		t.Fatal(err)
	}
	if reader.Limit != 2 || reader.UnsafeDisableDeepCopy == nil || !*reader.UnsafeDisableDeepCopy || reader.Namespace != "lab" {
		t.Errorf("it lists by %+v", reader.ListOptions)
	}
	asked, _ := reader.FieldSelector.RequiresExactMatch(leadersByJob)
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"the leader":               {pod("0", "job", corev1.PodRunning), true},
		"a follower":               {follower, false},
		"a leader that has failed": {pod("0", "job", corev1.PodFailed), false},
		"of another Job":           {pod("0", "old", corev1.PodRunning), false},
	} {
		if got := indexes[leadersByJob](tc.pod); (got == asked) != tc.want {
			t.Errorf("%s has index %q, asked for is %q", name, got, asked)
		}
	}
}
