package preempt

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/workload"
)

// Holders are the workloads with a reservation in one queue, in the order of preemption: those
// being evicted, then the rest; of each, the lowest Priority first, then the latest ReservedAt
// (0 is now), then UID. spec: 10 §4.7.3.
//
// The zero value is empty. Priority, ReservedAt, UID and Evicting of a workload must not
// change while it is in, except by SetEvicting. Adding and removing cost O(log n) and the
// move of a chunk, and allocate nothing once the chunks exist.
type Holders struct {
	leaving, staying sorted
}

// Add adds w, which must not be in.
func (h *Holders) Add(w *workload.Workload) { h.part(w).add(w) }

// Remove removes w, and reports whether it was in.
func (h *Holders) Remove(w *workload.Workload) bool { return h.part(w).remove(w) }

// SetEvicting sets w.Evicting, and moves w to its new place if it is in.
func (h *Holders) SetEvicting(w *workload.Workload, evicting bool) {
	if w.Evicting == evicting {
		return
	}
	in := h.Remove(w)
	w.Evicting = evicting
	if in {
		h.Add(w)
	}
}

// Len returns the number of workloads.
func (h *Holders) Len() int { return h.leaving.len + h.staying.len }

// All yields the workloads in order. The set must not change meanwhile.
func (h *Holders) All() iter.Seq[*workload.Workload] {
	return func(yield func(*workload.Workload) bool) {
		for _, part := range []*sorted{&h.leaving, &h.staying} {
			for c := (cursor{in: part}); c.get() != nil; c.step() {
				if !yield(c.get()) {
					return
				}
			}
		}
	}
}

func (h *Holders) part(w *workload.Workload) *sorted {
	if w.Evicting {
		return &h.leaving
	}
	return &h.staying
}

// compare is the order of two workloads of which both or neither are being evicted.
func compare(a, b *workload.Workload) int {
	if a.Priority != b.Priority {
		return cmp.Compare(a.Priority, b.Priority)
	}
	if a.ReservedAt != b.ReservedAt {
		return cmp.Compare(reservedAt(b), reservedAt(a))
	}
	return strings.Compare(a.UID, b.UID)
}

// reservedAt is the time of w's reservation, now if it has none.
func reservedAt(w *workload.Workload) workload.Instant {
	if w.ReservedAt == 0 {
		return math.MaxInt64
	}
	return w.ReservedAt
}

const (
	chunkLen = 128 // workloads in a chunk at most
	spares   = 4   // emptied chunks that are kept at most
)

// sorted is a sequence of workloads in the order of compare, cut into chunks so that a
// change moves a chunk only.
type sorted struct {
	chunks [][]*workload.Workload // none of them empty
	spare  [][]*workload.Workload // emptied ones
	len    int
}

// find returns the place of w, or the place where it belongs.
func (s *sorted) find(w *workload.Workload) (chunk, i int, found bool) {
	chunk, found = slices.BinarySearchFunc(s.chunks, w, func(c []*workload.Workload, w *workload.Workload) int {
		return compare(c[0], w)
	})
	if found {
		return chunk, 0, true
	}
	if chunk == 0 {
		return 0, 0, false
	}
	chunk--
	i, found = slices.BinarySearchFunc(s.chunks[chunk], w, compare)
	return chunk, i, found
}

func (s *sorted) add(w *workload.Workload) {
	s.len++
	if len(s.chunks) == 0 {
		s.chunks = append(s.chunks, append(s.blank(1), w))
		return
	}
	chunk, i, _ := s.find(w)
	if c := s.chunks[chunk]; len(c) == chunkLen {
		const half = chunkLen / 2
		s.chunks = slices.Insert(s.chunks, chunk+1, append(s.blank(chunkLen), c[half:]...))
		clear(c[half:])
		s.chunks[chunk] = c[:half]
		if i > half {
			chunk, i = chunk+1, i-half
		}
	}
	s.chunks[chunk] = slices.Insert(s.chunks[chunk], i, w)
}

func (s *sorted) remove(w *workload.Workload) bool {
	chunk, i, found := s.find(w)
	if !found {
		return false
	}
	s.chunks[chunk] = slices.Delete(s.chunks[chunk], i, i+1)
	s.len--
	switch {
	case len(s.chunks[chunk]) == 0:
		s.drop(chunk)
	case chunk+1 < len(s.chunks) && s.small(chunk, chunk+1):
		s.join(chunk)
	case chunk > 0 && s.small(chunk-1, chunk):
		s.join(chunk - 1)
	}
	return true
}

// small reports whether two chunks are worth joining: not so full that the next addition
// splits them again.
func (s *sorted) small(a, b int) bool { return len(s.chunks[a])+len(s.chunks[b]) <= chunkLen/2 }

// join appends the chunk after a to a.
func (s *sorted) join(a int) {
	s.chunks[a] = append(s.chunks[a], s.chunks[a+1]...)
	s.drop(a + 1)
}

func (s *sorted) drop(chunk int) {
	c := s.chunks[chunk]
	s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
	if len(s.spare) < spares {
		clear(c)
		s.spare = append(s.spare, c[:0])
	}
}

func (s *sorted) blank(capacity int) []*workload.Workload {
	if n := len(s.spare); n > 0 {
		c := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return c
	}
	return make([]*workload.Workload, 0, capacity)
}

// filter is which workloads of a sequence a search visits.
type filter int8

const (
	all filter = iota
	notEarly
	onlyEarly
)

// cursor is a place in a sequence that does not change meanwhile.
type cursor struct {
	in       *sorted
	chunk, i int
	only     filter
}

// get returns the workload there, nil past the end.
func (c *cursor) get() *workload.Workload {
	if c.chunk == len(c.in.chunks) {
		return nil
	}
	return c.in.chunks[c.chunk][c.i]
}

func (c *cursor) step() {
	if c.i++; c.i == len(c.in.chunks[c.chunk]) {
		c.chunk, c.i = c.chunk+1, 0
	}
}
