package cycle

// arena allocates many values at once: the results of a step are small and plentiful. Each
// value is handed out once; the memory lives as long as one of its values is in use.
type arena[T any] struct{ rest []T }

const arenaLen = 64

// alloc returns n zero values, nil for none.
func (s *arena[T]) alloc(n int) []T {
	if n == 0 {
		return nil
	}
	if n > len(s.rest) {
		s.rest = make([]T, max(n, arenaLen))
	}
	taken := s.rest[:n:n]
	s.rest = s.rest[n:]
	return taken
}

// clone returns a copy of values.
func (s *arena[T]) clone(values []T) []T {
	taken := s.alloc(len(values))
	copy(taken, values)
	return taken
}
