package worker

import "fmt"

// Bounds of the answers of a worker cluster: its administrator decides how many objects it has.
const (
	// maxAnswer is the largest answer to one request, in MiB. client-go bounds an event of a watch at 16 MiB.
	maxAnswer = 64
	pageSize  = 250
	maxKept   = 250_000
)

func (s *Store) full() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.objects) >= maxKept
}

func (s *Store) tooMany() error {
	return fmt.Errorf("the worker has more than %d objects of kind %s with our origin: remove what does not belong there", maxKept, s.gvk.Kind)
}
