package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// A slice is a Workload that stands for a job at one size. To grow, the job gets a second
// slice, which takes the place of the first once it is admitted. While it has quota and is
// not, its checks may fail: the first holds what it holds, and the second is charged only
// what it needs beyond that. From then on it is charged all, and the first nothing. A slice
// that loses its quota while its successor has some waits in no line. All of it follows from
// what is written, and so does not depend on who saw what. spec: 20 §4.11.

// nameAll begins to keep the records by name, which only slices need.
func (s *State) nameAll() {
	if s.names != nil {
		return
	}
	s.names = map[Name]*record{}
	for _, r := range s.records { //berth:unordered names are unique among those that exist
		s.names[r.name()] = r
	}
}

// unfile takes a record out of the heirs of the slice that it wanted to replace.
func (s *State) unfile(r *record) {
	if before := (Name{r.name().Namespace, r.replaces}); r.replaces != "" {
		if s.heirs[before] = slices.DeleteFunc(s.heirs[before], func(o *record) bool { return o == r }); len(s.heirs[before]) == 0 {
			delete(s.heirs, before)
		}
	}
}

// before returns the slice whose place r is to take, nil if there is none, or one that does
// not belong to the same owner: the name alone must not finish somebody else's workload.
func (s *State) before(r *record) *record {
	if r.replaces != "" {
		if old := s.names[Name{r.name().Namespace, r.replaces}]; old != nil && old != r && old.def.Owner == r.def.Owner {
			return old
		}
	}
	return nil
}

// quotaOf returns the queue of whose quota a record has some, written or not, or nil.
func (s *State) quotaOf(r *record) *cycle.Queue {
	switch {
	case r.in != nil && r.wl.Reserved: // maybe since a moment ago, in the same step
		return r.in
	case r.assumed() && r.wl.Queue >= 0:
		return s.world.Queues[r.wl.Queue] // nil, if that is gone
	}
	if q := s.queues[r.def.Queue]; q != nil && r.def.Reserved {
		return q.q
	}
	return nil
}

// granted is all that a record has quota for.
func (s *State) granted(r *record) resource.Vector {
	if r.assumed() {
		return r.got.Usage
	}
	return s.amounts(r.def.Held)
}

// heir returns the slice with quota that is to take the place of r, or has it: of several
// the one that is admitted.
func (s *State) heir(r *record) (heir *record) {
	q := s.quotaOf(r)
	for _, h := range s.heirs[r.name()] {
		comes := heir == nil || (h.tookOver() && !heir.tookOver()) || (h.tookOver() == heir.tookOver() && h.uid() < heir.uid())
		if q != nil && comes && s.before(h) == r && s.quotaOf(h) == q {
			heir = h
		}
	}
	return heir
}

// tookOver reports whether a slice has passed all its checks.
func (r *record) tookOver() bool { return r.def.Reserved && r.def.Admitted }

// superseded reports whether r would wait, and a slice that comes after it has quota. Then it is in no line: whom
// would it preempt, if not that one?
func (s *State) superseded(r *record) bool {
	return r.def.Queueable && !r.def.Reserved && slices.ContainsFunc(s.heirs[r.name()], func(h *record) bool {
		return s.before(h) == r && (h.assumed() || h.def.Reserved)
	})
}

// yield has r leave its line to the slice that comes after it, or come back, and tells whether that is news.
func (s *State) yield(r *record) bool {
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

// inFull reports whether a slice with quota is charged all of it, whatever comes after it.
func (s *State) inFull(r *record) bool {
	before := s.before(r)
	return r.tookOver() || before == nil || s.quotaOf(before) != s.quotaOf(r)
}

// charge has a record with quota be charged what is due, and tells whether that is news.
func (s *State) charge(r *record) bool {
	q, usage, holds := s.quotaOf(r), s.granted(r), true
	if q == nil {
		return false
	}
	if before := s.before(r); before != nil && !r.tookOver() && s.heir(before) == r && s.inFull(before) {
		usage = usage.Beyond(s.granted(before))
	}
	if heir := s.heir(r); heir != nil {
		holds = !heir.tookOver()
	}
	if r.in == q && r.wl.Reserved && holds && slices.Equal(usage, r.wl.Usage) {
		return false
	}
	if r.in != nil && r.wl.Reserved {
		s.world.Release(r.wl)
	}
	if r.in = nil; holds {
		r.in, r.wl.Queue, r.wl.Usage = q, q.Index, usage
		s.world.Reserve(r.wl)
	}
	s.see(s.byIndex[q.Index])
	s.touch(r)
	return true
}

// predecessor returns the slice whose place w is to take, with the flavors it is bound
// to; nil if there is none in the same queue. It waits if another slice is in between.
func (s *State) predecessor(w *workload.Workload) (*workload.Workload, []workload.Pin, bool) {
	r := s.records[w.UID]
	before := s.before(r)
	if before == nil || before.in == nil || before.in != r.in {
		return nil, nil, false
	}
	var pins []workload.Pin
	for _, h := range s.heldBy(before) {
		pins = append(pins, workload.Pin{PodSet: h.PodSet, FR: s.world.Table.FR(h.Flavor, h.Resource)})
	}
	return before.wl, pins, s.heir(before) != nil || !s.inFull(before)
}

// tellKin has the slices that r has to do with charged what they are to be charged now, or
// looked at again. had is the queue of whose quota it had some before.
func (s *State) tellKin(r *record, had *cycle.Queue) {
	if before := s.before(r); before != nil && !s.yield(before) {
		if q := s.quotaOf(before); q != nil && (q == had || q == s.quotaOf(r)) {
			s.charge(before)
			s.tellHeirs(before)
		}
	}
	s.tellHeirs(r)
}

// tellHeirs has the slices that wait to replace this one looked at again: what they ask
// for is another amount now. It tells whether there are any.
func (s *State) tellHeirs(r *record) (told bool) {
	for _, heir := range s.heirs[r.name()] {
		switch {
		case heir == r || heir.def.Owner != r.def.Owner || heir.wl == nil:
		case heir.assumed() || heir.def.Reserved:
			told = s.charge(heir) || told
		case heir.in != nil:
			s.world.Dequeue(heir.wl)
			s.intern(heir)
			heir.wl.Queue = heir.in.Index
			s.world.Enqueue(heir.wl)
			told = true
		}
	}
	return told
}
