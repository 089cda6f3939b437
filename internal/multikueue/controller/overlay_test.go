package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/reconcile/overlaytest"
)

func TestOverlay(t *testing.T) {
	overlaytest.Run(t, overlaytest.User[*kueue.Workload]{
		Object: workloadOf("o", ""), New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[*kueue.Workload] {
			cache := &shows{}
			w := &workloads{shared: &shared{cache: cache, live: api}, written: reconcile.NewOverlay[*kueue.Workload](now)}
			return overlaytest.Functions[*kueue.Workload]{
				Write: func(shown *kueue.Workload) error {
					stored := shown.DeepCopy()
					if err := api.Patch(t.Context(), stored, client.MergeFrom(shown)); err != nil {
						return err
					}
					w.wrote(&observation{}, stored)
					return nil
				},
				ActsOn: func(shown *kueue.Workload) (*kueue.Workload, bool) {
					cache.workload = shown
					got, err := w.newest(t.Context(), client.ObjectKeyFromObject(shown))
					if err != nil {
						t.Fatal(err)
					}
					return got, true
				},
				Len: w.written.Len,
			}
		},
	})
}
