package reconcile

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// TestEditedOr: an update of the named part passes, and one of the rest of the status does not.
func TestEditedOr(t *testing.T) {
	queue := func(pending int32, message string) *kueue.ClusterQueue {
		q := &kueue.ClusterQueue{}
		q.Status.PendingWorkloads = pending
		if message != "" {
			q.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Message: message}}
		}
		return q
	}
	p := EditedOr(func(q *kueue.ClusterQueue) *metav1.Condition {
		return apimeta.FindStatusCondition(q.Status.Conditions, kueue.ClusterQueueActive)
	})
	edited := queue(1, "a")
	edited.Generation++
	for name, c := range map[string]struct {
		next *kueue.ClusterQueue
		want bool
	}{
		"another condition": {queue(1, "b"), true}, "no condition": {queue(1, ""), true}, "edited": {edited, true}, "other figures": {queue(2, "a"), false},
	} {
		if got := p.Update(event.UpdateEvent{ObjectOld: queue(1, "a"), ObjectNew: c.next}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
