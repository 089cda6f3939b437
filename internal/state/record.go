package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// record is a workload with the place it has in the world.
//
//	            SetWorkload                     Step admits
//	(nowhere) ───────────────► in line ─────────────────────────► assumed
//	    ▲                        ▲  ▲                            │       │
//	    │ not queueable,         │  └───── AdmissionFailed ──────┘       │ SetWorkload,
//	    │ deleted                └───────── SetWorkload, not reserved    ▼ reserved
//	    └───────────────────────────────────────────────────────────── held
type record struct {
	def      definition
	in       *cycle.Queue    // in whose line it stands or whose quota it holds, nil nowhere
	class    *class          // of the definition that it has its place by
	got      *flavor.Holding // what Step gave it, until that is written
	said     *said
	passed   bool   // it would wait, but a slice that comes after it has quota: it is in no line
	replaces string // the name of the slice whose place it is to take, see Workload.Replaces
	wl       *workload.Workload
	first    workload.Workload // the memory of its first wl: who looks at one needs the other

	lane       *localQueue // the LocalQueue that it names
	prev, next *record     // in lane.records
}

func (r *record) uid() string { return r.first.UID }

func (r *record) name() Name {
	namespace, name := r.first.Split()
	return Name{namespace, name}
}

// assumed reports whether Step admitted it, and that is not written yet.
func (r *record) assumed() bool { return r.got != nil }

// said is what was decided about a workload the last time: of the figures nothing is
// kept, since they can be had as they are now.
type said struct {
	verdict trace.Verdict
	reason  trace.Reason
	note    string
	victims []trace.Victim
}

// SetWorkload adds or changes a workload. Versions older than one already seen are
// ignored; while an admission is being written, so is everything that the writing
// does not contradict.
func (s *State) SetWorkload(def Workload) {
	s.flight.noteWorkload(&def, func(kept *Workload) Event { return Event{SetWorkload: kept} })
	s.setWorkload(&def)
}

func (s *State) setWorkload(def *Workload) {
	r := s.records[def.UID]
	if r == nil {
		r = s.newRecord(def.UID, def.Key())
	} else if def.Version < r.def.Version {
		return
	}
	s.touch(r)
	defer s.touch(r)
	before, followed, had := past{r.def, r.lane, r.replaces}, s.before(r), s.quotaOf(r)
	s.define(r, def)
	if followed != nil && followed != s.before(r) {
		s.charge(followed)
	}
	if s.stays(r, def, &before) {
		if p := s.before(r); def.Admitted != before.def.Admitted && p != nil && s.quotaOf(p) == s.quotaOf(r) { // it takes the place now
			s.charge(r)
			s.tellKin(r, nil)
		}
		return
	}
	if r.wl != nil {
		// Being told to go outlives an update that does not know of it yet, but not
		// one that takes it back, nor a new reservation.
		sameOne := r.assumed() || before.def.ReservedAt == r.def.ReservedAt
		s.world.SetEvicting(r.wl, r.wl.Evicting && sameOne && !before.def.Evicting)
	}
	s.place(r, had)
}

// stays reports whether a record keeps its place now that it is defined anew.
func (s *State) stays(r *record, def *Workload, before *past) bool {
	switch {
	case r.assumed() && !def.Reserved:
		return def.Queueable // it knows nothing of the admission yet
	case r.assumed():
		if !s.confirms(r) {
			return false
		}
	case r.wl == nil || !r.samePlace(before):
		return false
	}
	s.world.SetReady(r.wl, def.Ready)
	if def.Evicting {
		s.world.SetEvicting(r.wl, true)
	}
	return true
}

// define replaces what is known of a record, and files it under its names.
func (s *State) define(r *record, def *Workload) {
	fresh := r.lane == nil
	if fresh && s.names != nil {
		s.names[r.name()] = r
	}
	if name := (Name{def.Namespace, def.LocalQueue}); fresh || name != r.lane.name {
		s.leaveLane(r)
		r.lane = s.lane(name)
		if r.next = r.lane.records; r.next != nil {
			r.next.prev = r
		}
		r.lane.records = r
	} else if r.def.rests() {
		r.lane.resting--
	}
	before := r.def.shape
	r.def = s.definition(def, before)
	s.leaveShape(before)
	if r.def.rests() {
		r.lane.resting++
	}
	if r.replaces != def.Replaces {
		s.unfile(r)
		r.replaces = def.Replaces
		if def.Replaces != "" {
			s.nameAll()
			name := Name{def.Namespace, def.Replaces}
			s.heirs[name] = append(s.heirs[name], r)
		}
	}
}

func (s *State) leaveLane(r *record) {
	if r.lane == nil {
		return
	}
	if r.def.rests() {
		r.lane.resting--
	}
	switch {
	case r.prev != nil:
		r.prev.next = r.next
	default:
		r.lane.records = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	s.dropLane(r.lane)
	r.lane, r.prev, r.next = nil, nil, nil
}

// Written is SetWorkload for the outcome of a write of our own: it changes nothing for
// a workload that was deleted meanwhile.
func (s *State) Written(def Workload) {
	s.flight.noteWorkload(&def, func(kept *Workload) Event { return Event{Written: kept} })
	if s.records[def.UID] != nil {
		s.setWorkload(&def)
	}
}

// AdmissionWritten is the outcome of writing an admission. When what came after the
// write is known already, which happens when a watch starts over and leaves versions
// out, that is what counts: the assumption ends here or never.
func (s *State) AdmissionWritten(def Workload) {
	s.flight.noteWorkload(&def, func(kept *Workload) Event { return Event{AdmissionWritten: kept} })
	r := s.records[def.UID]
	switch {
	case r == nil: // deleted meanwhile
	case def.Version >= r.def.Version:
		s.setWorkload(&def)
	case r.assumed():
		s.place(r, s.quotaOf(r))
	}
}

// confirms reports whether what is written of an assumed workload is what it was given, which is
// nobody's news then: nothing is released and nobody woken.
func (s *State) confirms(r *record) bool {
	def, q := &r.def, s.quotaOf(r)
	if q == nil || def.Queue != q.Name || def.Priority != r.wl.Priority || def.Since != r.wl.Since ||
		!slices.Equal(s.amounts(def.Held), r.got.Usage) {
		return false
	}
	r.got = nil
	s.world.Written(r.wl, def.ReservedAt)
	return true
}

// DeleteWorkload forgets a workload and gives back what it held.
func (s *State) DeleteWorkload(uid string) {
	s.flight.note(Event{DeleteWorkload: uid})
	r := s.records[uid]
	if r == nil {
		return
	}
	s.touch(r)
	had := s.quotaOf(r)
	s.unplace(r)
	s.leaveLane(r) // as what it was counted there
	r.def.Reserved = false
	s.leaveClass(r)
	s.leaveShape(r.def.shape)
	s.unfile(r)
	delete(s.strays[r.def.Queue], uid)
	delete(s.records, uid)
	s.byNumber.Drop(r.first.Record)
	if name := r.name(); s.names[name] == r {
		delete(s.names, name)
	}
	s.tellKin(r, had)
}

// AdmissionFailed takes back an admission that could not be written: the workload
// returns to its place in line, and the slice that it replaced to its own.
func (s *State) AdmissionFailed(uid string) {
	s.flight.note(Event{AdmissionFailed: uid})
	if r := s.records[uid]; r != nil && r.assumed() {
		s.place(r, s.quotaOf(r))
	}
}

// EvictionFailed takes back that a workload was told to go.
func (s *State) EvictionFailed(uid string) {
	s.flight.note(Event{EvictionFailed: uid})
	r := s.records[uid]
	if r == nil || r.def.Evicting {
		return
	}
	if !r.wl.Reserved {
		r.wl.Evicting = false
		return
	}
	s.world.EvictionFailed(r.wl)
	s.tellHeirs(r)
}

// replace puts the records of some LocalQueues at their place again. Those that hold
// quota stay where they are.
func (s *State) replace(lanes []*localQueue) {
	var waiting []*record
	for _, l := range lanes {
		for r := l.records; r != nil; r = r.next {
			if !r.assumed() && !r.wl.Reserved {
				waiting = append(waiting, r)
			}
		}
	}
	slices.SortFunc(waiting, func(a, b *record) int { return strings.Compare(a.uid(), b.uid()) })
	for _, r := range waiting {
		s.place(r, s.quotaOf(r))
	}
}

// stray notes that a workload holds quota of a queue that does not exist: once it does,
// the workload is counted there.
func (s *State) stray(r *record) {
	if s.strays[r.def.Queue] == nil {
		s.strays[r.def.Queue] = map[string]*record{}
	}
	s.strays[r.def.Queue][r.uid()] = r
}

// gather counts in a new queue what workloads hold of it already.
func (s *State) gather(queue string) {
	strays := s.strays[queue]
	delete(s.strays, queue)
	for _, uid := range slices.Sorted(maps.Keys(strays)) {
		if r := strays[uid]; r.def.Reserved && r.def.Queue == queue && r.in == nil {
			s.place(r, s.quotaOf(r))
		}
	}
}

func (s *State) unplace(r *record) {
	s.touch(r)
	r.got = nil
	if r.in == nil {
		return
	}
	if r.wl.Reserved {
		s.world.Release(r.wl)
	} else {
		s.world.Dequeue(r.wl)
	}
	r.in = nil
}

// place moves a record where its definition says it belongs. had is the queue of whose
// quota it had some before.
func (s *State) place(r *record, had *cycle.Queue) {
	s.unplace(r)
	defer s.touch(r)
	evicting := r.def.Evicting || (r.wl != nil && r.wl.Evicting && r.def.Reserved)
	s.intern(r)
	r.passed = s.superseded(r)
	defer s.tellKin(r, had)
	if r.def.Reserved {
		r.wl.Evicting, r.wl.ReservedAt, r.wl.Ready = evicting, r.def.ReservedAt, r.def.Ready
		if s.queues[r.def.Queue] == nil {
			s.stray(r)
		}
		s.charge(r)
		return
	}
	if r.passed || !r.def.Queueable {
		return
	}
	q, reason, note := s.route(r)
	if q != nil && !r.def.Resting {
		r.in = q.q
		r.wl.Queue = q.q.Index
		s.world.Enqueue(r.wl)
	}
	switch {
	case reason != "":
		s.notice(r, q, trace.Look{Reason: reason, Note: note})
	case r.def.Told && !r.def.Resting:
		s.bypass(r, q)
	}
}

// bypass tells a workload that joins a parked class, and has said before that it
// waits, what the class waits for. spec: 10 §4.4.
func (s *State) bypass(r *record, q *queue) {
	by := r.in.Pending.ParkedBy(r.wl)
	if by == nil {
		return
	}
	if first := s.records[by.UID]; first != nil && first.said != nil && first.said.verdict == trace.Waits {
		look := s.world.Explain(r.wl)
		look.Reason, look.Note = first.said.reason, first.said.note
		s.notice(r, q, *look)
	}
}

// route finds the queue in which a workload waits, and why it cannot be admitted
// there whatever quota is free. spec: 10 §4.10.
func (s *State) route(r *record) (q *queue, reason trace.Reason, note string) {
	lq := r.lane
	name := lq.name.Name
	if name == "" {
		return nil, trace.Misconfigured, "it names no LocalQueue; set the label kueue.x-k8s.io/queue-name"
	}
	if !lq.exists {
		return nil, trace.Misconfigured, fmt.Sprintf("LocalQueue %s doesn't exist in namespace %s; create it or name another", name, lq.name.Namespace)
	}
	if lq.def.Stopped {
		return nil, trace.Suspended, fmt.Sprintf("LocalQueue %s is stopped (stopPolicy)", name)
	}
	q = s.queues[lq.def.Queue]
	if q == nil {
		return nil, trace.Misconfigured, fmt.Sprintf("ClusterQueue %s, which LocalQueue %s points to, doesn't exist", lq.def.Queue, name)
	}
	if q.q.Closed != "" {
		return q, trace.Suspended, fmt.Sprintf("ClusterQueue %s is inactive: %s", lq.def.Queue, q.q.Closed)
	}
	return q, "", ""
}

// notice makes what is known of a workload without a look a record of one.
func (s *State) notice(r *record, q *queue, look trace.Look) {
	look.Workload, look.UID, look.Queue = r.first.Key, r.uid(), ""
	look.Priority, look.Verdict = r.def.Priority, trace.Waits
	if q != nil {
		look.Queue = q.def.Name
	}
	s.notices = append(s.notices, cycle.Decision{Workload: r.wl, Queue: look.Queue, Look: &look})
}

// intern makes the core's value of a record's definition. Where its search for flavors
// got to is kept if its shape is the same.
func (s *State) intern(r *record) {
	def, old, was := &r.def, r.wl, r.class
	s.joinClass(r)
	r.wl = &r.first
	if old != nil {
		r.wl = &workload.Workload{} // what knows the old one may go on reading it, see Waiter
	}
	*r.wl = workload.Workload{
		UID: r.first.UID, Key: r.first.Key, Record: r.first.Record, Queue: -1, Priority: def.Priority, Since: def.Since,
		PodSets: r.class.shape.podSets, Class: r.class.id, Space: r.class.space, Gated: def.Gated, Successor: r.replaces != "", Problem: def.Problem,
	}
	if old != nil && was == r.class {
		r.wl.Scan = old.Scan
	}
}
