package reconcile

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// LastNotes are the last notes of events about the states of objects. The zero value is empty.
type LastNotes struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]map[string]string // the note, by reason
}

// IsNews records a note of an object, and reports whether it differs from the last one of that reason.
func (t *LastNotes) IsNews(object types.NamespacedName, reason, note string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	notes := t.objects[object]
	if last, ok := notes[reason]; ok && last == note {
		return false
	}
	if notes == nil {
		notes = map[string]string{}
		if t.objects == nil {
			t.objects = map[types.NamespacedName]map[string]string{}
		}
		t.objects[object] = notes
	}
	notes[reason] = note
	return true
}

// ForgetReason drops the note of an object of one reason.
func (t *LastNotes) ForgetReason(object types.NamespacedName, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.objects[object], reason); len(t.objects[object]) == 0 {
		delete(t.objects, object)
	}
}

// Forget drops the notes of an object.
func (t *LastNotes) Forget(object types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.objects, object)
}
