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
	def     Workload     // without PodSets where these are those of its class
	in      *cycle.Queue // in whose line it stands or whose quota it holds, nil nowhere
	class   *class
	got     *flavor.Holding
	said    *said
	assumed bool  // Step admitted it, and that is not written yet
	rests   bool  // it is counted in lane.resting
	number  int32 // in State.byNumber
	wl      *workload.Workload
	first   workload.Workload // the memory of its first wl: who looks at one needs the other
	// yields is the UID of the slice that took its place: what is written of its own
	// reservation counts no longer, unless the admission of that slice fails.
	yields string

	lane       *localQueue // the LocalQueue that it names
	prev, next *record     // in lane.records
}

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
		r = s.newRecord(def.UID)
	} else if def.Version < r.def.Version {
		return
	}
	s.touch(r)
	defer s.touch(r)
	var before Workload
	if r.wl != nil {
		before = r.def
	}
	s.define(r, def)
	if r.assumed && s.asAssumed(r) {
		return
	}
	if r.wl != nil && !r.assumed && s.samePlace(r, &before) {
		s.shed(r)
		s.world.SetReady(r.wl, def.Ready)
		if def.Evicting {
			s.world.SetEvicting(r.wl, true)
		}
		return
	}
	if r.wl != nil {
		// Being told to go outlives an update that does not know of it yet, but not
		// one that takes it back, nor a new reservation.
		sameOne := r.assumed || before.ReservedAt == def.ReservedAt
		s.world.SetEvicting(r.wl, r.wl.Evicting && sameOne && !before.Evicting)
	}
	s.place(r)
}

// define replaces what is known of a record, and files it under its names.
func (s *State) define(r *record, def *Workload) {
	uid, name := r.def.UID, r.def.Name
	lane, before := Name{r.def.Namespace, r.def.LocalQueue}, Name{r.def.Namespace, r.def.Replaces}
	r.def = *def
	defer s.countResting(r)
	if r.lane == nil || lane != (Name{def.Namespace, def.LocalQueue}) {
		s.leaveLane(r)
		r.lane = s.lane(Name{def.Namespace, def.LocalQueue})
		if r.next = r.lane.records; r.next != nil {
			r.next.prev = r
		}
		r.lane.records = r
	}
	// Equal texts that are kept anyway take the place of those that came with the definition.
	r.def.Namespace, r.def.LocalQueue = r.lane.name.Namespace, r.lane.name.Name
	if uid == def.UID && name == def.Name {
		r.def.UID, r.def.Name = uid, name
	}
	if uid == "" && s.names != nil {
		s.names[Name{def.Namespace, def.Name}] = r
	}
	if before.Name != def.Replaces {
		s.unfile(r, before)
		if def.Replaces != "" {
			s.nameAll()
			name := Name{def.Namespace, def.Replaces}
			s.heirs[name] = append(s.heirs[name], r)
		}
	}
}

// countResting counts a record in its LocalQueue while it rests.
func (s *State) countResting(r *record) {
	rests := r.def.Resting && r.def.Queueable && !r.def.Reserved
	switch {
	case rests && !r.rests:
		r.lane.resting++
	case r.rests && !rests:
		r.lane.resting--
	}
	r.rests = rests
}

func (s *State) leaveLane(r *record) {
	if r.lane == nil {
		return
	}
	if r.rests {
		r.rests = false
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

// unfile takes a record out of the heirs of the slice that it wanted to replace.
func (s *State) unfile(r *record, before Name) {
	if before.Name == "" {
		return
	}
	s.heirs[before] = slices.DeleteFunc(s.heirs[before], func(o *record) bool { return o == r })
	if len(s.heirs[before]) == 0 {
		delete(s.heirs, before)
	}
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
	case r.assumed:
		s.place(r)
		s.touch(r)
	}
}

// asAssumed tells whether an assumed workload can stay where it is: its definition knows
// nothing of the admission yet, or confirms it. Then nothing is released and nobody woken.
func (s *State) asAssumed(r *record) bool {
	def := &r.def
	if !def.Reserved {
		return def.Queueable
	}
	if r.in == nil || def.Queue != r.in.Name || def.Priority != r.wl.Priority || def.Since != r.wl.Since ||
		!slices.Equal(s.amounts(def.Held), r.wl.Usage) {
		return false
	}
	r.assumed, r.got = false, nil
	s.shed(r)
	s.world.Written(r.wl, def.ReservedAt)
	s.world.SetReady(r.wl, def.Ready)
	if def.Evicting {
		s.world.SetEvicting(r.wl, true)
	}
	return true
}

// samePlace tells whether nothing changed, since it was defined as before, that decisions
// depend on.
func (s *State) samePlace(r *record, before *Workload) bool {
	a, b := before, &r.def
	if a.Reserved && b.Reserved { // what it asked for does not matter while it holds something
		return a.Priority == b.Priority && a.Since == b.Since && a.Queue == b.Queue && a.ReservedAt == b.ReservedAt &&
			(!a.Evicting || b.Evicting) && slices.Equal(a.Held, b.Held)
	}
	type flat struct {
		localQueue, queue, replaces, owner  string
		priority                            int64
		since                               workload.Instant
		queueable, resting, reserved, gated bool
		problem                             workload.Problem
	}
	flatten := func(w *Workload) flat {
		f := flat{w.LocalQueue, w.Queue, w.Replaces, w.Owner, w.Priority, w.Since, w.Queueable, w.Resting, w.Reserved, w.Gated, workload.Problem{}}
		if w.Problem != nil {
			f.problem = *w.Problem
		}
		return f
	}
	if flatten(a) != flatten(b) || (a.Evicting && !b.Evicting) || !slices.Equal(a.Held, b.Held) {
		return false
	}
	return s.ofClass(r)
}

// DeleteWorkload forgets a workload and gives back what it held.
func (s *State) DeleteWorkload(uid string) {
	s.flight.note(Event{DeleteWorkload: uid})
	r := s.records[uid]
	if r == nil {
		return
	}
	s.touch(r)
	s.unplace(r)
	s.restore(r)
	s.leaveClass(r)
	s.leaveLane(r)
	s.unfile(r, Name{r.def.Namespace, r.def.Replaces})
	delete(s.strays[r.def.Queue], uid)
	delete(s.records, uid)
	s.byNumber.drop(r.number)
	if name := (Name{r.def.Namespace, r.def.Name}); s.names[name] == r {
		delete(s.names, name)
	}
	s.tellHeirs(r)
}

// AdmissionFailed takes back an admission that could not be written: the workload
// returns to its place in line, and the slice that it replaced to its own.
func (s *State) AdmissionFailed(uid string) {
	s.flight.note(Event{AdmissionFailed: uid})
	if r := s.records[uid]; r != nil && r.assumed {
		s.place(r)
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
			if !r.assumed && !r.wl.Reserved {
				waiting = append(waiting, r)
			}
		}
	}
	slices.SortFunc(waiting, func(a, b *record) int { return strings.Compare(a.def.UID, b.def.UID) })
	for _, r := range waiting {
		s.place(r)
	}
}

// stray notes that a workload holds quota of a queue that does not exist: once it does,
// the workload is counted there.
func (s *State) stray(r *record) {
	if s.strays[r.def.Queue] == nil {
		s.strays[r.def.Queue] = map[string]*record{}
	}
	s.strays[r.def.Queue][r.def.UID] = r
}

// gather counts in a new queue what workloads hold of it already.
func (s *State) gather(queue string) {
	strays := s.strays[queue]
	delete(s.strays, queue)
	for _, uid := range slices.Sorted(maps.Keys(strays)) {
		if r := strays[uid]; r.def.Reserved && r.def.Queue == queue && r.in == nil {
			s.place(r)
		}
	}
}

func (s *State) unplace(r *record) {
	if r.assumed {
		r.assumed, r.got = false, nil
		if !r.def.Reserved {
			defer s.restore(r)
		}
	}
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

// place moves a record where its definition says it belongs.
func (s *State) place(r *record) {
	s.unplace(r)
	evicting := r.def.Evicting || (r.wl != nil && r.wl.Evicting && r.def.Reserved)
	s.intern(r)
	defer s.tellHeirs(r)
	if r.def.Reserved {
		r.wl.Evicting = evicting
		switch q := s.queues[r.def.Queue]; {
		case q == nil:
			s.stray(r)
		case r.yields == "":
			r.in = q.q
			r.wl.Queue, r.wl.Usage = q.q.Index, s.amounts(r.def.Held)
			r.wl.ReservedAt, r.wl.Ready = r.def.ReservedAt, r.def.Ready
			s.world.Reserve(r.wl)
		}
		return
	}
	r.yields = ""
	if !r.def.Queueable {
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
	look.Workload, look.UID, look.Queue = r.def.Key(), r.def.UID, ""
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
		UID: def.UID, Queue: -1, Priority: def.Priority, Since: def.Since,
		PodSets: r.class.shape.podSets, Class: r.class.id, Record: r.number, Space: r.class.space, Gated: def.Gated, Successor: def.Replaces != "", Problem: def.Problem,
	}
	if old != nil {
		r.wl.Key = old.Key
		if was == r.class {
			r.wl.Scan = old.Scan
		}
	} else {
		r.wl.Key = def.Key()
		def.Name = r.wl.Key[len(def.Namespace)+1:] // one copy is enough
	}
}
