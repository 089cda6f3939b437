package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// A slice is a Workload of a job at one size. To grow, the job gets a second slice, which
// replaces the first once it is admitted. While the second has a quota reservation and is not
// admitted, its checks may fail: the first keeps its quota, and the second is charged only the
// difference. Once admitted it is charged in full, and the first is released. A slice that
// loses its quota while its replacement holds some is in no line. All of it is derived from the
// written state, independent of the order of events. spec: 20 §4.11.

// indexNames begins to index the records by name, which only slices need.
func (s *State) indexNames() {
	if s.names != nil {
		return
	}
	s.names = map[Name]*record{}
	for _, r := range s.records { //berth:unordered names are unique among those that exist
		s.names[r.name()] = r
	}
}

// removeReplacing removes a record from the slices that want to replace another one.
func (s *State) removeReplacing(r *record) {
	if before := (Name{r.name().Namespace, r.def.Replaces}); r.def.Replaces != "" {
		if s.replacing[before] = slices.DeleteFunc(s.replacing[before], func(o *record) bool { return o == r }); len(s.replacing[before]) == 0 {
			delete(s.replacing, before)
		}
	}
}

// replacedSlice returns the slice that r is to replace, nil if there is none, or if it has
// another owner: a name alone must not finish the workload of another user.
func (s *State) replacedSlice(r *record) *record {
	if r.def.Replaces != "" {
		if old := s.names[Name{r.name().Namespace, r.def.Replaces}]; old != nil && old != r && old.def.Owner == r.def.Owner {
			return old
		}
	}
	return nil
}

// quotaOf returns the queue of a record's reservation, written or not, or nil.
func (s *State) quotaOf(r *record) *cycle.Queue {
	switch {
	case r.in != nil && r.wl.Reserved: // possibly in the same step
		return r.in
	case r.assumed() && r.wl.Queue >= 0:
		return s.world.Queues[r.wl.Queue] // nil, if that was deleted
	}
	if q := s.queues[r.def.Queue]; q != nil && r.def.Reserved {
		return q.q
	}
	return nil
}

// granted is the full usage of a record's reservation.
func (s *State) granted(r *record) ledger.Usage {
	if r.assumed() {
		return r.got.Usage
	}
	return s.written(r)
}

// written is the usage of the reservation in a record's definition.
func (s *State) written(r *record) ledger.Usage {
	return s.placedUsage(r.def.shape, s.amounts(r.def.Held), r.def.Placed)
}

// replacedBy returns the slice with quota that is to replace r, or has replaced it: of several
// the one that is admitted.
func (s *State) replacedBy(r *record) (replacement *record) {
	q := s.quotaOf(r)
	for _, h := range s.replacing[r.name()] {
		comes := replacement == nil || (h.tookOver() && !replacement.tookOver()) || (h.tookOver() == replacement.tookOver() && h.uid() < replacement.uid())
		if q != nil && comes && s.replacedSlice(h) == r && s.quotaOf(h) == q {
			replacement = h
		}
	}
	return replacement
}

// tookOver reports whether a slice is admitted.
func (r *record) tookOver() bool { return r.def.Reserved && r.def.Admitted }

// superseded reports whether r would be pending, and a later slice holds quota. Then it is in no line: it could
// only preempt that slice.
func (s *State) superseded(r *record) bool {
	return r.def.Queueable && !r.def.Reserved && slices.ContainsFunc(s.replacing[r.name()], func(h *record) bool {
		return s.replacedSlice(h) == r && (h.assumed() || h.def.Reserved)
	})
}

// yieldLine removes r from its line if a later slice holds quota, or puts it back if not, and reports whether it
// did.
func (s *State) yieldLine(r *record) bool {
	switch yields := s.superseded(r); {
	case s.quotaOf(r) != nil || r.passed == yields:
		return false
	case yields:
		r.passed = true
		s.unplace(r)
	default:
		s.place(r, nil)
	}
	return true
}

// inFull reports whether a slice with quota is charged in full, whatever slices come after it.
func (s *State) inFull(r *record) bool {
	before := s.replacedSlice(r)
	return r.tookOver() || before == nil || s.quotaOf(before) != s.quotaOf(r)
}

// charge updates the charge of a record with quota, and reports whether it changed.
func (s *State) charge(r *record) bool {
	q, usage, holds := s.quotaOf(r), s.granted(r), true
	if q == nil {
		return false
	}
	if before := s.replacedSlice(r); before != nil && !r.tookOver() && s.replacedBy(before) == r && s.inFull(before) {
		usage = usage.Beyond(s.granted(before))
	}
	if replacement := s.replacedBy(r); replacement != nil {
		holds = !replacement.tookOver()
	}
	if r.in == q && r.wl.Reserved && holds && usage.Equal(r.wl.Usage) {
		return false
	}
	if r.in != nil && r.wl.Reserved {
		s.world.Release(r.wl)
	}
	if r.in = nil; holds {
		r.in, r.wl.Queue, r.wl.Usage = q, q.Index, usage
		s.world.Reserve(r.wl)
	}
	s.see(&s.byIndex[q.Index].seen)
	s.touch(r)
	return true
}

// replacedSliceOf returns the slice in the same queue that w is to replace. w waits if another slice is in between.
func (s *State) replacedSliceOf(w *workload.Workload) cycle.Replaced {
	r := s.records[w.UID]
	before := s.replacedSlice(r)
	if before == nil || before.in == nil || before.in != r.in {
		return cycle.Replaced{}
	}
	var pins []workload.Pin
	for _, h := range s.heldBy(before) {
		pins = append(pins, workload.Pin{PodSet: h.PodSet, FR: s.world.Table.FR(h.Flavor, h.Resource)})
	}
	return cycle.Replaced{
		Workload: before.wl, Pins: pins, Waits: s.replacedBy(before) != nil || !s.inFull(before), Placed: before.placed,
	}
}

// placed returns where a record's reservation places a pod set, nil for nowhere.
func (r *record) placed(podSet string) *trace.Placement {
	if r.assumed() {
		for i := range r.got.PodSets {
			if r.got.PodSets[i].Name == podSet {
				return r.got.PodSets[i].Placement
			}
		}
		return nil
	}
	for i := range r.def.Placed {
		if r.def.Placed[i].PodSet == podSet {
			return &r.def.Placed[i].Placement
		}
	}
	return nil
}

// updateRelated updates the charges of the slices before and after r, or requeues them. had is
// the queue of its reservation before.
func (s *State) updateRelated(r *record, had *cycle.Queue) {
	if before := s.replacedSlice(r); before != nil && !s.yieldLine(before) {
		if q := s.quotaOf(before); q != nil && (q == had || q == s.quotaOf(r)) {
			s.charge(before)
			s.updateReplacing(before)
		}
	}
	s.updateReplacing(r)
}

// updateReplacing requeues the pending slices that are to replace r, since their requests have
// changed, and updates the charges of the others. It reports whether there are any.
func (s *State) updateReplacing(r *record) (told bool) {
	for _, replacement := range s.replacing[r.name()] {
		switch {
		case replacement == r || replacement.def.Owner != r.def.Owner || replacement.wl == nil:
		case replacement.assumed() || replacement.def.Reserved:
			told = s.charge(replacement) || told
		case replacement.in != nil:
			s.read.touch(replacement)
			s.world.Dequeue(replacement.wl)
			s.intern(replacement)
			replacement.wl.Queue = replacement.in.Index
			s.world.Enqueue(replacement.wl)
			told = true
		}
	}
	return told
}
