package ungate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/reconcile/overlaytest"
)

func TestOverlay(t *testing.T) {
	gated := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "o"},
		Spec:       corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "gate"}}},
	}
	overlaytest.Run(t, overlaytest.User[*corev1.Pod]{Object: gated, New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[*corev1.Pod] {
		r := &reconciler{client: api, live: api, written: reconcile.NewOverlay[*corev1.Pod](now)}
		return overlaytest.Functions[*corev1.Pod]{
			Write: func(shown *corev1.Pod) error {
				next := shown.DeepCopy()
				next.Spec.SchedulingGates = nil
				return r.ungate(t.Context(), &kueue.Workload{}, []*corev1.Pod{shown}, []*corev1.Pod{next})
			},
			ActsOn: func(shown *corev1.Pod) (*corev1.Pod, bool) {
				pods := []*corev1.Pod{shown}
				if err := r.updateToWritten(t.Context(), pods); err != nil {
					t.Fatal(err)
				}
				return pods[0], true
			},
			Len: r.written.Len,
		}
	}})
}
