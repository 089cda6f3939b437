package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// lastNotes are the last notes of events about the states of jobs. The zero value is empty.
type lastNotes struct {
	mu   sync.Mutex
	jobs map[types.NamespacedName]map[string]string // the note, by reason
}

// isNews records a note of a job, and reports whether it differs from the last one of that reason.
func (t *lastNotes) isNews(job types.NamespacedName, reason, note string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	notes := t.jobs[job]
	if last, ok := notes[reason]; ok && last == note {
		return false
	}
	if notes == nil {
		notes = map[string]string{}
		if t.jobs == nil {
			t.jobs = map[types.NamespacedName]map[string]string{}
		}
		t.jobs[job] = notes
	}
	notes[reason] = note
	return true
}

func (t *lastNotes) forget(job types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.jobs, job)
}
