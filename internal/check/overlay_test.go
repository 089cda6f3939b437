package check

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/check/plan"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/reconcile/overlaytest"
)

// overlaid is a controller with overlays alone.
func overlaid(now func() time.Time, api *overlaytest.API) *Controller {
	return &Controller{
		Name: "example.com/check", Now: now, Events: reconcile.NewEvents(events.NewFakeRecorder(10), nil),
		client: api, live: api, status: reconcile.NewWorkloadStatus(api),
		written: reconcile.NewOverlay[*kueue.Workload](now), own: reconcile.NewOverlay[client.Object](now),
	}
}

func TestOverlayOfWorkloads(t *testing.T) {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "o"}}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "c", State: kueue.CheckStatePending}}
	overlaytest.Run(t, overlaytest.User[*kueue.Workload]{Object: wl, New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[*kueue.Workload] {
		c := overlaid(now, api)
		return overlaytest.Functions[*kueue.Workload]{
			Write: func(shown *kueue.Workload) error {
				next := shown.DeepCopy()
				next.Status.AdmissionChecks[0].State = kueue.CheckStateReady
				return c.writeEntries(t.Context(), shown, next)
			},
			ActsOn: func(shown *kueue.Workload) (*kueue.Workload, bool) {
				resolved, err := reconcile.Resolve(t.Context(), c.written, c.live, shown)
				return resolved, err == nil
			},
			Len: c.written.Len,
		}
	}})
}

func TestOverlayOfChecks(t *testing.T) {
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "o"}}
	overlaytest.Run(t, overlaytest.User[*kueue.AdmissionCheck]{Object: check, New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[*kueue.AdmissionCheck] {
		a := &Activity{client: api, written: reconcile.NewOverlay[*kueue.AdmissionCheck](now)}
		return overlaytest.Functions[*kueue.AdmissionCheck]{
			Write: func(shown *kueue.AdmissionCheck) error {
				return a.write(t.Context(), shown, metav1.Condition{Status: metav1.ConditionTrue})
			},
			ActsOn: func(shown *kueue.AdmissionCheck) (*kueue.AdmissionCheck, bool) {
				return shown, !a.written.IsBehind(shown)
			},
			Len: a.written.Len,
		}
	}})
}

func TestOverlayOfOwnObjects(t *testing.T) {
	own := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "o"}}
	overlaytest.Run(t, overlaytest.User[client.Object]{Object: own, New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[client.Object] {
		c := overlaid(now, api)
		return overlaytest.Functions[client.Object]{
			Write: func(shown client.Object) error {
				next := shown.DeepCopyObject().(client.Object)
				next.SetLabels(map[string]string{"changed": "yes"})
				return c.write(t.Context(), &plan.Write{Verb: plan.Patch, Object: next, Base: shown})
			},
			ActsOn: func(shown client.Object) (client.Object, bool) {
				list := c.own.List([]client.Object{shown}, func(client.Object) bool { return true })
				if len(list) == 0 {
					return nil, false
				}
				return list[0], true
			},
			Len: c.own.Len,
		}
	}})
}
