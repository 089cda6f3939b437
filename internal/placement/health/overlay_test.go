package health

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/reconcile/overlaytest"
)

// podCache is a cache with one pod.
type podCache struct {
	cache.Cache
	pod *corev1.Pod
}

func (c *podCache) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*corev1.PodList).Items = []corev1.Pod{*c.pod}
	return nil
}

func TestOverlay(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "o"}}
	overlaytest.Run(t, overlaytest.User[*corev1.Pod]{Object: pod, New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[*corev1.Pod] {
		shows := &podCache{}
		r := &reconciler{client: api, written: reconcile.NewOverlay[*corev1.Pod](now), Options: Options{
			Pods: &reconcile.Pods{Cache: shows}, Events: reconcile.NewEvents(events.NewFakeRecorder(10), nil), Now: now,
		}}
		return overlaytest.Functions[*corev1.Pod]{
			Write: func(shown *corev1.Pod) error { return r.failPod(t.Context(), shown, "its node failed") },
			ActsOn: func(shown *corev1.Pod) (*corev1.Pod, bool) {
				shows.pod = shown
				pods, err := r.podsOf(t.Context(), types.NamespacedName{})
				if err != nil || len(pods) != 1 {
					t.Fatal(pods, err)
				}
				return pods[0], true
			},
			Len: r.written.Len,
		}
	}})
}
