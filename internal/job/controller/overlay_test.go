package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/reconcile/overlaytest"
)

func TestOverlay(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "o"}}
	overlaytest.Run(t, overlaytest.User[client.Object]{Object: pod, New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[client.Object] {
		r := &reconciler{client: api, live: api, childCache: &childCache{written: reconcile.NewOverlay[client.Object](now)}, now: now}
		return overlaytest.Functions[client.Object]{
			Write: func(shown client.Object) error {
				next := shown.DeepCopyObject().(client.Object)
				o := &job.Observed{Job: pod, Pods: []*corev1.Pod{shown.(*corev1.Pod)}}
				return r.writeChildren(t.Context(), o, job.Action{Verb: job.PatchChildren, Children: []job.Object{next}}, "manager")
			},
			ActsOn: func(shown client.Object) (client.Object, bool) {
				pods := []*corev1.Pod{shown.(*corev1.Pod)}
				if err := newest(t.Context(), r, pods); err != nil {
					t.Fatal(err)
				}
				return pods[0], true
			},
			Len: r.childCache.written.Len,
		}
	}})
}
