package state

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// record is a workload with its place in the world.
//
//	            SetWorkload                     Step admits
//	(nowhere) ───────────────► in line ─────────────────────────► assumed
//	    ▲                        ▲  ▲                            │       │
//	    │ not queueable,         │  └───── AdmissionFailed ──────┘       │ SetWorkload,
//	    │ deleted                └───────── SetWorkload, not reserved    ▼ reserved
//	    └───────────────────────────────────────────────────────────── held
type record struct {
	// What a Checkpoint reads comes first, in one line of the processor's cache with the beginning of first.
	def   *definition
	in    *cycle.Queue    // the queue of its line or reservation, nil for none
	got   *flavor.Holding // its admission, until that is written
	said  *said
	wl    *workload.Workload
	first workload.Workload // the memory of its first wl, adjacent for access

	class      *class      // of the definition by which it was placed
	passed     bool        // it would be pending, but a later slice holds quota: it is in no line
	noted      bool        // it is in publisher.touched
	unrecorded bool        // it is in recorder.touched
	lq         *localQueue // the LocalQueue that it names
	// prev and next are the numbers of its neighbors in lq.records plus one, 0 for none. With pointers a record would not fit in 256 bytes.
	prev, next int32
}

func (r *record) uid() string { return r.first.UID }

func (r *record) name() Name {
	namespace, name := r.first.Split()
	return Name{namespace, name}
}

// assumed reports whether Step admitted it, and that is not written yet.
func (r *record) assumed() bool { return r.got != nil }

// assume notes an admission, or new places, that the decision about the present definition gives.
func (r *record) assume(got *flavor.Holding) {
	r.got = got
	got.Version, got.Generation = r.def.Version, int64(r.def.Generation)
}

// said is the last decision about a workload, without figures, which are computed on demand.
type said struct {
	verdict trace.Verdict
	reason  trace.Reason
	note    string
	victims []trace.Victim
	start   *trace.Start
}

// plain reports whether two decisions are equal, without victims and start; nil equals none.
func (s *said) plain(o *said) bool {
	return s != nil && s.verdict == o.verdict && s.reason == o.reason && s.note == o.note && len(s.victims)+len(o.victims) == 0 && s.start == nil && o.start == nil
}

func (e SetWorkload) apply(s *State) {
	def := Workload(e)
	s.setWorkload(&def)
}

func (s *State) setWorkload(def *Workload) {
	r := s.records[def.UID]
	if r == nil {
		r = s.newRecord(def.UID, def.Key())
	} else if def.Version < r.def.Version {
		return
	}
	s.settleUsage(r, def)
	s.touch(r)
	defer s.touch(r)
	defer s.requeueBarred(r, r.barring())
	defer s.followSecondPass(r)
	before, followed, had := r.def, s.replacedSlice(r), s.quotaOf(r)
	s.define(r, def)
	s.reshape(r, before.shape)
	if followed != nil && followed != s.replacedSlice(r) {
		s.charge(followed)
	}
	if s.stays(r, def, before) {
		r.wl.MinRun = def.MinRun
		s.world.SetBound(r.wl, s.bound(r, r.in))
		if p := s.replacedSlice(r); def.Admitted != before.Admitted && p != nil && s.quotaOf(p) == s.quotaOf(r) { // it replaces p now
			s.charge(r)
			s.updateRelated(r, nil)
		}
		return
	}
	if r.wl != nil {
		// An eviction outlives an update that does not contain it yet, but not one that
		// takes it back, nor a new reservation.
		sameOne := r.assumed() || before.ReservedAt == r.def.ReservedAt
		s.world.SetEvicting(r.wl, r.wl.Evicting && sameOne && !before.Evicting)
	}
	s.place(r, had)
}

// stays reports whether a record keeps its place after a new definition.
func (s *State) stays(r *record, def *Workload, before *definition) bool {
	switch {
	case r.assumed() && !def.Reserved: // it does not contain the admission yet, if that is being written
		return !r.wl.Tentative || r.samePlace(before)
	case r.assumed() && keepsPlaces(r.def, before):
		return true // it does not contain the new places yet
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

// define replaces the definition of a record, and its entries in the indexes.
func (s *State) define(r *record, def *Workload) {
	if name := (Name{def.Namespace, def.LocalQueue}); r.lq == nil || name != r.lq.name {
		s.joinLocalQueue(r, s.localQueueNamed(name))
	} else if r.def.rests() {
		r.lq.resting--
	}
	s.setDefinition(r, s.definition(r, def, r.def.shape))
}

// joinLocalQueue moves a record to another LocalQueue.
func (s *State) joinLocalQueue(r *record, l *localQueue) {
	if r.lq == nil && s.names != nil {
		s.names[r.name()] = r
	}
	s.leaveLocalQueue(r)
	r.lq = l
	if first := l.records; first != nil {
		r.next, first.prev = first.first.Record+1, r.first.Record+1
	}
	l.records = r
}

// recordsOf returns the records that name a LocalQueue.
func (s *State) recordsOf(l *localQueue) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for r := l.records; r != nil && yield(r); r = s.neighbor(r.next) {
		}
	}
}

// neighbor returns a neighbor of a record in the list of its LocalQueue, nil for none.
func (s *State) neighbor(link int32) *record {
	if link == 0 {
		return nil
	}
	return s.byNumber.record(link - 1)
}

// setDefinition is define for a stored definition of a record that is in its LocalQueue.
func (s *State) setDefinition(r *record, def *definition) {
	before := r.def
	if before.Replaces != def.Replaces {
		s.removeReplacing(r)
	}
	moves := !sameVariant(before, def)
	if moves {
		s.leaveVariants(r)
	}
	r.def = def
	if moves {
		s.joinVariants(r)
	}
	s.applied = def
	s.leaveShape(before.shape)
	if def.rests() {
		r.lq.resting++
	}
	if def.Replaces != "" && before.Replaces != def.Replaces {
		s.indexNames()
		name := Name{r.lq.name.Namespace, def.Replaces}
		s.replacing[name] = append(s.replacing[name], r)
	}
}

func (s *State) leaveLocalQueue(r *record) {
	if r.lq == nil {
		return
	}
	if r.def.rests() {
		r.lq.resting--
	}
	prev, next := s.neighbor(r.prev), s.neighbor(r.next)
	if prev != nil {
		prev.next = r.next
	} else {
		r.lq.records = next
	}
	if next != nil {
		next.prev = r.prev
	}
	s.dropLocalQueue(r.lq)
	r.lq, r.prev, r.next = nil, 0, 0
}

func (e Written) apply(s *State) {
	if def := Workload(e); s.records[def.UID] != nil {
		s.setWorkload(&def)
	}
}

// apply ends the assumption in any case: the Workload as written may be deactivated, or finished, and hold nothing.
func (e AdmissionWritten) apply(s *State) {
	def := Workload(e)
	r := s.records[def.UID]
	if r == nil { // deleted meanwhile
		return
	}
	if def.Version >= r.def.Version {
		s.setWorkload(&def)
	}
	if r.assumed() && def.Version > r.got.Version {
		s.applied = nil // SetWorkload would not do this
		defer s.requeueBarred(r, r.barring())
		s.place(r, s.quotaOf(r))
	}
}

// confirms reports whether the written reservation of an assumed workload is its admission:
// then no quota is released and no workload activated.
func (s *State) confirms(r *record) bool {
	def, q := r.def, s.quotaOf(r)
	if q == nil || def.Queue != q.Name || def.Priority != r.wl.Priority || def.Since != r.wl.Since ||
		!s.written(r).Equal(r.got.Usage) {
		return false
	}
	r.got = nil
	s.world.Written(r.wl, def.ReservedAt)
	return true
}

func (e DeleteWorkload) apply(s *State) {
	uid := string(e)
	r := s.records[uid]
	if r == nil {
		return
	}
	s.touch(r)
	had, before := s.quotaOf(r), r.barring()
	s.dropPenalty(r)
	s.unplace(r)
	s.requeueBarred(r, before)
	s.leaveVariants(r)
	s.leaveLocalQueue(r) // before its definition changes, which is counted there
	unreserved := *r.def
	unreserved.Reserved = false
	r.def = &unreserved
	s.leaveClass(r)
	s.leaveShape(r.def.shape)
	s.removeReplacing(r)
	delete(s.orphans[r.def.Queue], uid)
	delete(s.records, uid)
	delete(s.second, uid)
	s.byNumber.drop(r.first.Record)
	if name := r.name(); s.names[name] == r {
		delete(s.names, name)
	}
	s.updateRelated(r, had)
}

func (e AdmissionFailed) apply(s *State) {
	if r := s.records[e.UID]; r != nil && r.assumed() && e.Version == r.got.Version {
		defer s.requeueBarred(r, r.barring())
		s.dropPenalty(r)
		s.place(r, s.quotaOf(r))
	}
}

func (e EvictionFailed) apply(s *State) {
	r := s.records[string(e)]
	if r == nil || r.def.Evicting {
		return
	}
	s.flight.touch(r)
	if !r.wl.Reserved {
		r.wl.Evicting = false
		return
	}
	s.world.EvictionFailed(r.wl)
	s.updateReplacing(r)
}

// reroute places the records without quota of some LocalQueues again.
func (s *State) reroute(localQueues []*localQueue) {
	var waiting []*record
	for _, l := range localQueues {
		for r := range s.recordsOf(l) {
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

// addOrphan notes a reservation in a queue that does not exist. It is counted once the queue
// does.
func (s *State) addOrphan(r *record) {
	if s.orphans[r.def.Queue] == nil {
		s.orphans[r.def.Queue] = map[string]*record{}
	}
	s.orphans[r.def.Queue][r.uid()] = r
}

// addOrphans notes the reservation of a record in a queue that is being deleted, and the reservations there of the slices that it has replaced,
// which are charged nowhere.
func (s *State) addOrphans(r *record, queue string) {
	for r != nil && r.def.Reserved && r.def.Queue == queue && s.orphans[queue][r.uid()] == nil {
		s.addOrphan(r)
		r = s.replacedSlice(r)
	}
}

// adoptOrphans counts the existing reservations of a new queue.
func (s *State) adoptOrphans(queue string) {
	orphans := s.orphans[queue]
	delete(s.orphans, queue)
	for _, uid := range slices.Sorted(maps.Keys(orphans)) {
		r := orphans[uid]
		if r.def.Reserved && r.def.Queue == queue && r.in == nil {
			s.place(r, s.quotaOf(r))
		}
		s.followSecondPass(r)
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

// place moves a record to the place of its definition. had is the queue of its reservation
// before.
func (s *State) place(r *record, had *cycle.Queue) {
	s.unplace(r)
	defer s.touch(r)
	evicting := r.def.Evicting || (r.wl != nil && r.wl.Evicting && r.def.Reserved)
	s.intern(r)
	r.passed = s.superseded(r)
	defer s.updateRelated(r, had)
	if r.def.Reserved {
		r.wl.Evicting, r.wl.ReservedAt, r.wl.Ready = evicting, r.def.ReservedAt, r.def.Ready
		if s.queues[r.def.Queue] == nil {
			s.addOrphan(r)
		}
		s.charge(r)
		return
	}
	if r.passed || !r.def.Queueable {
		return
	}
	q, reason, note := s.route(r)
	if r.isDivided(q) {
		return
	}
	if q != nil && !r.def.Resting {
		r.in = q.q
		r.wl.Queue, r.wl.Bound = q.q.Index, s.bound(r, q.q)
		s.world.Enqueue(r.wl)
	}
	switch {
	case reason != "":
		s.notice(r, q, trace.Attempt{Reason: reason, Note: note})
	case r.def.Told && !r.def.Resting:
		s.bypass(r, q)
	}
}

// bypass adds a notice for a workload that joins an inadmissible class, and whose status
// already contains that it waits: the reason of the class. spec: 10 §4.4.
func (s *State) bypass(r *record, q *queue) {
	by := r.in.Pending.Representative(r.wl)
	if by == nil {
		return
	}
	if first := s.records[by.UID]; first != nil && first.said != nil && first.said.verdict == trace.Waits {
		attempt := s.world.Explain(r.wl)
		attempt.Reason, attempt.Note = first.said.reason, first.said.note
		s.notice(r, q, *attempt)
	}
}

// route returns the queue of a pending workload, and why it cannot be admitted there whatever
// quota is free. spec: 10 §4.10.
func (s *State) route(r *record) (q *queue, reason trace.Reason, note string) {
	var def *LocalQueue
	if r.lq.exists {
		def = &r.lq.def
		q = s.queues[def.Queue]
	}
	if reason, note = unqueued(r.lq.name, def, q != nil); reason != "" {
		return nil, reason, note
	}
	if q.q.Closed != "" {
		return q, trace.Suspended, inactive(q.def.Name, q.q.Closed)
	}
	return q, "", ""
}

// belongs reports whether a pending record is in the line of its queue.
func (s *State) belongs(r *record) bool {
	q, _, _ := s.route(r)
	return q != nil && q.q == r.in && !r.isDivided(q)
}

// notice adds a decision that is known without an evaluation.
func (s *State) notice(r *record, q *queue, attempt trace.Attempt) {
	attempt.Workload, attempt.UID, attempt.Queue = r.first.Key, r.uid(), ""
	attempt.Priority, attempt.Verdict = r.def.Priority, trace.Waits
	if q != nil {
		attempt.Queue = q.def.Name
	}
	if len(s.notices) >= max(manyNotices, 2*len(s.records)) {
		s.compactNotices()
	}
	s.notices = append(s.notices, cycle.Decision{Workload: r.wl, Queue: attempt.Queue, Attempt: &attempt})
}

// bound returns the upper bound of the run of a record in a queue, nil for none. Before its reservation is written, no end is known of a
// workload that has to pass checks.
func (s *State) bound(r *record, q *cycle.Queue) workload.Instant {
	if q != nil && !r.def.Reserved && s.byIndex[q.Index].def.Checked {
		return 0
	}
	return r.def.Bound
}

// intern makes the core's value of a record's definition. The progress of its search for
// flavors is kept if its class is the same.
func (s *State) intern(r *record) {
	def, old, was := r.def, r.wl, r.class
	s.joinClass(r)
	r.wl = &r.first
	if old != nil {
		r.wl = &workload.Workload{} // readers may still have the old one, see PendingWorkload
	}
	*r.wl = workload.Workload{
		UID: r.first.UID, Key: r.first.Key, Record: r.first.Record, Queue: -1, Priority: def.Priority, Since: def.Since,
		PodSets: r.class.shape.podSets, Class: r.class.id, Line: r.class.line, Space: r.class.space, Gated: def.Gated, MayReplace: def.Replaces != "",
		Variant: def.VariantOf != "", Problem: def.Problem, MinRun: def.MinRun, Bound: def.Bound,
	}
	if old != nil && was == r.class {
		r.wl.Scan = old.Scan
	}
}
