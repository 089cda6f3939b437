package cycle

// slab hands out pieces of memory that is made for many of them at once: what a step
// returns is small and plentiful. Nobody gets the same piece twice, and the memory of a
// slab is kept as long as somebody keeps one of its pieces.
type slab[T any] struct{ rest []T }

const slabLen = 64

// take returns n blank values, nil for none.
func (s *slab[T]) take(n int) []T {
	if n == 0 {
		return nil
	}
	if n > len(s.rest) {
		s.rest = make([]T, max(n, slabLen))
	}
	taken := s.rest[:n:n]
	s.rest = s.rest[n:]
	return taken
}

// clone returns a copy of values.
func (s *slab[T]) clone(values []T) []T {
	taken := s.take(len(values))
	copy(taken, values)
	return taken
}
