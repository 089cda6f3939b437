package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile/overlaytest"
)

func TestOverlay(t *testing.T) {
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "o"}}
	overlaytest.Run(t, overlaytest.User[*kueue.ClusterQueue]{
		Object: queue, New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[*kueue.ClusterQueue] {
			p := newPace(newTurns(), func() bool { return true })
			p.now = now
			return overlaytest.Functions[*kueue.ClusterQueue]{
				Write: func(shown *kueue.ClusterQueue) error {
					mine, err := p.acquire(t.Context(), client.ObjectKeyFromObject(shown))
					if err != nil {
						return err
					}
					defer mine.release()
					_, err = mine.write(t.Context(), api, shown.DeepCopy(), client.MergeFrom(shown), false)
					return err
				},
				ActsOn: func(shown *kueue.ClusterQueue) (*kueue.ClusterQueue, bool) { return shown, !p.isBehind(shown) },
				Len:    p.written.Len,
			}
		},
	})
}
