package reconcile

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// TestEditedLater: what is there at the start is reconciled anyway, and statuses do not matter.
func TestEditedLater(t *testing.T) {
	queue := func(generation int64) *kueue.ClusterQueue {
		q := &kueue.ClusterQueue{}
		q.Generation = generation
		return q
	}
	another := queue(1)
	another.UID = "another"
	p := EditedLater()
	for name, c := range map[string]struct{ got, want bool }{
		"at the start":  {p.Create(event.CreateEvent{Object: queue(1), IsInInitialList: true}), false},
		"created later": {p.Create(event.CreateEvent{Object: queue(1)}), true},
		"edited":        {p.Update(event.UpdateEvent{ObjectOld: queue(1), ObjectNew: queue(2)}), true},
		"its status":    {p.Update(event.UpdateEvent{ObjectOld: queue(1), ObjectNew: queue(1)}), false},
		"another one":   {p.Update(event.UpdateEvent{ObjectOld: queue(1), ObjectNew: another}), true},
		"deleted":       {p.Delete(event.DeleteEvent{Object: queue(1)}), true},
	} {
		if c.got != c.want {
			t.Errorf("%s: %t", name, c.got)
		}
	}
}
