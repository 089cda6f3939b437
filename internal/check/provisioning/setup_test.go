package provisioning

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// TestCreated: a CRD whose deletion was missed counts as created, and one that changes does not.
func TestCreated(t *testing.T) {
	old := crd()
	for uid, want := range map[types.UID]bool{"": false, "another": true} {
		next := crd()
		next.UID, next.Generation = uid, 2
		if got := created.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: next}); got != want {
			t.Errorf("UID %q: passes %v", uid, got)
		}
	}
	if !created.Create(event.CreateEvent{Object: old}) || created.Delete(event.DeleteEvent{Object: old}) {
		t.Error("a creation does not pass, or a deletion does")
	}
}
