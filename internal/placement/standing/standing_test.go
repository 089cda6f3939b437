package standing

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// TestForget: a deleted Workload leaves nothing, and keeps what another slice of its chain asked for.
func TestForget(t *testing.T) {
	slice := func(name string) *kueue.Workload {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{kueue.WorkloadSliceNameAnnotation: "chain"}}}
		w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
		w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: new(int32(2)), TopologyAssignment: &kueue.TopologyAssignment{Levels: []string{"kubernetes.io/hostname"}},
		}}}
		return w
	}
	s := New(nil)
	first, second := slice("first"), slice("second")
	for _, w := range []*kueue.Workload{first, second} {
		if _, err := s.Places(w, &w.Status.Admission.PodSetAssignments[0]); err != nil {
			t.Fatal(err)
		}
	}
	if s.Forget(first); len(s.asked) != 1 {
		t.Errorf("%v are followed, want the chain of the second slice", s.asked)
	}
	if s.Forget(second); len(s.asked) != 0 {
		t.Errorf("%v are followed, and all of them are deleted", s.asked)
	}
}
