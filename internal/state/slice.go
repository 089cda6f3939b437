package state

import (
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/workload"
)

// A slice is a Workload that stands for a job at one size. To grow, the job gets a
// second slice; once that is admitted, it takes the place of the first. Between the two
// only the difference is charged. spec: 20 §4.11.

// nameAll begins to keep the records by name, which only slices need.
func (s *State) nameAll() {
	if s.names != nil {
		return
	}
	s.names = map[Name]*record{}
	for _, r := range s.records { //berth:unordered names are unique among those that exist
		s.names[Name{r.def.Namespace, r.def.Name}] = r
	}
}

// predecessor returns the slice whose place w is to take, with the flavors it is bound
// to; nil if there is none in the same queue, or one that does not belong to the same
// owner: the name alone must not finish somebody else's workload.
func (s *State) predecessor(w *workload.Workload) (*workload.Workload, []workload.Pin) {
	r := s.records[w.UID]
	before := s.names[Name{r.def.Namespace, r.def.Replaces}]
	if before == nil || before == r || before.in == nil || before.in != r.in || before.def.Owner != r.def.Owner {
		return nil, nil
	}
	var pins []workload.Pin
	if before.got != nil {
		for _, ps := range before.got.PodSets {
			for _, res := range ps.Resources {
				pins = append(pins, workload.Pin{PodSet: ps.Name, FR: res.FR})
			}
		}
		return before.wl, pins
	}
	for _, h := range before.def.Held {
		pins = append(pins, workload.Pin{PodSet: h.PodSet, FR: s.world.Table.FR(h.Flavor, h.Resource)})
	}
	return before.wl, pins
}

// replaced notes that a slice took the place of another, which holds nothing any more.
func (s *State) replaced(r *record, before *workload.Workload) {
	if before == nil {
		return
	}
	if old := s.records[before.UID]; old != nil {
		s.touch(old)
		old.in, old.yields = nil, r.def.UID
	}
}

// restore gives a slice its place back whose successor is gone, or lost the place before
// it was written down that it has it.
func (s *State) restore(r *record) {
	if r.def.Replaces == "" {
		return
	}
	old := s.names[Name{r.def.Namespace, r.def.Replaces}]
	if old != nil && old.yields == r.def.UID {
		old.yields = ""
		if q := s.queueOf(old.wl); old.assumed && q != nil { // neither is written yet
			old.in = q
			s.world.Reserve(old.wl)
			s.tellHeirs(old)
		} else {
			s.place(old)
		}
		s.touch(old)
	}
}

// queueOf returns the queue that a workload was last placed in, if it is there still.
func (s *State) queueOf(w *workload.Workload) *cycle.Queue {
	if w.Queue < 0 {
		return nil
	}
	return s.world.Queues[w.Queue]
}

// tellHeirs has the slices that wait to replace this one looked at again: what they ask
// for is another amount now. It tells whether there are any.
func (s *State) tellHeirs(r *record) (told bool) {
	for _, heir := range s.heirs[Name{r.def.Namespace, r.def.Name}] {
		if heir != r && heir.def.Owner == r.def.Owner && !heir.assumed && heir.wl != nil && !heir.wl.Reserved && heir.in != nil {
			s.world.Dequeue(heir.wl)
			s.intern(heir)
			heir.wl.Queue = heir.in.Index
			s.world.Enqueue(heir.wl)
			told = true
		}
	}
	return told
}
