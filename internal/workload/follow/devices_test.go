package follow

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/devices"
)

// TestClaiming: a change of a template requeues the Workloads of its namespace that name it, and are not or were not charged. Other changes requeue
// all of these.
func TestClaiming(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var all []client.Object
	for _, namespace := range []string{"m", "n"} {
		for _, name := range []string{"a", "b", "charged"} {
			template := name
			if name == "charged" {
				template = "a"
			}
			w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			w.Spec.PodSets = []kueue.PodSet{{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				ResourceClaims: []corev1.PodResourceClaim{{ResourceClaimTemplateName: &template}},
			}}}}
			all = append(all, w)
		}
	}
	looked := 0
	f := &Follower{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).Build(), Devices: func(w *kueue.Workload) *devices.Problem {
		if looked++; w.Name == "charged" {
			return nil
		}
		return &devices.Problem{Text: "no template"}
	}}
	for name, tc := range map[string]struct {
		of     client.Object
		want   []string
		looked int
	}{
		"a template": {&resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}, []string{"n/a"}, 2},
		"all":        {&kueue.Workload{}, []string{"m/a", "m/b", "n/a", "n/b"}, 6},
	} {
		looked = 0
		var got []string
		for _, r := range f.claiming(t.Context(), tc.of) {
			got = append(got, r.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) || looked != tc.looked {
			t.Errorf("%s: %v after a look at %d, want %v after %d", name, got, looked, tc.want, tc.looked)
		}
	}
}
