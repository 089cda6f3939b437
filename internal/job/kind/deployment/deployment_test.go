package deployment_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/kind/deployment"
)

func TestMark(t *testing.T) {
	labels := map[string]string{kueue.QueueNameLabel: "lq", kueue.PriorityClassLabel: "gold", "app": "x"}
	for _, managed := range []bool{true, false} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
		d.Spec.Template.Labels = map[string]string{"app": "y", kueue.QueueNameLabel: "other"}
		want := d.Spec.Template.DeepCopy()
		if managed {
			want.Labels = map[string]string{"app": "y", kueue.QueueNameLabel: "lq", kueue.PriorityClassLabel: "gold", kueue.ManagedLabel: "true"}
			want.Annotations = map[string]string{"kueue.x-k8s.io/pod-suspending-parent": "deployment"}
		}
		for range 2 {
			deployment.Descriptor().Default(d, managed, nil)
		}
		if diff := cmp.Diff(*want, d.Spec.Template); diff != "" {
			t.Errorf("managed %v -want +got:\n%s", managed, diff)
		}
	}
}
