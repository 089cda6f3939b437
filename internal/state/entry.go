package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// entry is what a workload adds to the figures of its queues. It is immutable; of wl only the fields that State.intern sets are read
// by others than the engine.
type entry struct {
	wl      *workload.Workload
	lq      *localQueue // others read its name only
	created workload.Instant
	held    *holding // its reservation, nil for none
	said    *said    // the last decision about it while it is in line, or nil
	waits   int32    // the queue of its place in line; noQueue for none
	flags
}

// holding is a reservation in an entry.
type holding struct {
	queue     int32
	usage     resource.Vector
	held      []Held // as it was written, nil until then
	*occupied        // its places, nil for none
}

const noQueue = -1

// holds returns the queue of its reservation, noQueue for none.
func (e *entry) holds() int32 {
	if e.held == nil {
		return noQueue
	}
	return e.held.queue
}

// places returns the places of its pods, nil for none.
func (e *entry) places() *occupied {
	if e == nil || e.held == nil {
		return nil
	}
	return e.held.occupied
}

type flags uint8

const (
	inLine    flags = 1 << iota // it is in the line of its queue
	alone                       // and inadmissible without its class
	resting                     // it would be in line but for its backoff
	backedOff                   // so, and it has no reservation that is being written
	admitted                    // it is admitted
	own                         // its LocalQueue leads to the queue of its reservation
	lined                       // it is pending in the line of its LocalQueue, see lineViews
	told                        // its status contains that it waits
)

func (f flags) has(o flags) bool { return f&o != 0 }

// figures are the counts of a queue or LocalQueue.
type figures struct {
	inLine, resting, reserved, admitted int32
	sums                                *sums // nil without any; of the views as well if it is shared
	shared                              bool
}

// sums are the amounts of a queue or LocalQueue. Shared ones are not changed.
type sums struct {
	held  []tally  // by FR
	asked []demand // of the workloads in line, by resource.ID; none is 0
	pods  total    // of the workloads in line
}

// demand is how much of a resource is requested.
type demand struct {
	resource resource.ID
	total
}

// tally is the usage of one FR.
type tally struct {
	*resource.Pair
	fr                resource.FR
	holders, admitted int32
	reserved, used    total
}

// total is a sum of amounts that are not negative. It is exact, so that an amount can be taken off again.
type total struct{ low, high uint64 }

func (t *total) add(a resource.Amount, sign int32) {
	before := t.low
	if sign > 0 {
		if t.low += uint64(a); t.low < before {
			t.high++
		}
		return
	}
	if t.low -= uint64(a); t.low > before {
		t.high--
	}
}

// amount returns the sum as saturating additions give it.
func (t total) amount() resource.Amount {
	if t.high > 0 || t.low > uint64(resource.Unlimited) {
		return resource.Unlimited
	}
	return resource.Amount(t.low)
}

func compareEntries(a, b *entry) int { return order.Compare(a.wl, b.wl) }

// entryOf returns the entry of a record.
func (s *State) entryOf(r *record) entry {
	e := entry{wl: r.wl, lq: r.lq, created: r.def.Created, waits: noQueue}
	var to *queue // where its LocalQueue leads to
	if r.lq.exists {
		to = s.queues[r.lq.def.Queue]
	}
	here := to != nil && r.in == to.q
	s.hold(&e, r, here)
	if to != nil && !r.lq.def.Stopped && r.def.rests() {
		e.waits, e.flags = to.q.Index, e.flags|resting
		if r.in == nil {
			e.flags |= backedOff
		}
	}
	if here && !r.wl.Reserved {
		e.queue(r, to)
	}
	if here && r.assumed() && !r.def.Reserved {
		e.waits = to.q.Index
	}
	if e.waits != noQueue && to.def.UsageBased {
		e.flags |= lined
	}
	return e
}

// queue makes it the entry of a workload in the line of a queue.
func (e *entry) queue(r *record, to *queue) {
	e.waits, e.flags, e.said = to.q.Index, e.flags|inLine, r.said
	if r.def.Told {
		e.flags |= told
	}
	if to.q.Pending.IsAlone(r.wl) {
		e.flags |= alone
	}
}

// hold sets what an entry adds to the figures of the queue of its reservation, if there is one. here: its LocalQueue leads to that queue.
func (s *State) hold(e *entry, r *record, here bool) {
	if r.in == nil || !r.wl.Reserved {
		return
	}
	e.held = &holding{queue: r.in.Index, usage: r.wl.Usage.Quota, occupied: s.occupiedBy(r)} // that of a workload is replaced
	if r.def.Reserved && !r.assumed() {
		e.held.held = r.def.Held
	}
	if r.def.Admitted {
		e.flags |= admitted
	}
	if here {
		e.flags |= own
	}
}

// same reports whether two entries add the same to the figures, given that the second is newer.
func (e *entry) same(o *entry) bool {
	plain := *o
	if e.held == nil || o.held == nil {
		return *e == plain
	}
	plain.held = e.held
	return *e == plain && e.held.queue == o.held.queue && slices.Equal(e.held.usage, o.held.usage) && slices.Equal(e.held.held, o.held.held) &&
		e.held.occupied.same(o.held.occupied)
}

// updateEntry replaces the entry of a record number, which may have no record or another one now.
func (s *State) updateEntry(number int32) {
	p := s.read
	at := p.entries.reach(number)
	old := *at
	var e *entry
	if r := s.byNumber.record(number); r != nil {
		r.noted = false
		if r.wl != nil && r.lq != nil {
			now := s.entryOf(r)
			if old != nil && old.same(&now) {
				return
			}
			if now.waits != noQueue || now.held != nil {
				e = new(now)
			}
		}
	}
	if old != nil {
		s.count(old, -1)
	}
	if e != nil {
		s.count(e, 1)
	}
	*at = e
	s.moveInLines(old, e)
}

// moveInLines replaces an entry in the sets of its queues; nil is none.
func (s *State) moveInLines(old, e *entry) {
	same := old != nil && e != nil && compareEntries(old, e) == 0 // then it takes the place of the old one
	if old != nil {
		if old.waits != noQueue && !(same && old.waitsIn(e)) {
			s.byIndex[old.waits].dropWaiting(old)
		}
		if old.held != nil && !(same && old.holds() == e.holds()) {
			from := s.byIndex[old.holds()]
			from.held = from.held.drop(old, compareEntries)
		}
	}
	if e == nil {
		return
	}
	if e.waits != noQueue {
		s.byIndex[e.waits].addWaiting(e)
	}
	if e.held != nil {
		to := s.byIndex[e.holds()]
		to.held = to.held.put(e, compareEntries)
	}
}

// waitsIn reports whether two pending entries are in the same set.
func (e *entry) waitsIn(o *entry) bool {
	return e.waits == o.waits && e.lq == o.lq && e.has(lined) == o.has(lined)
}

// count adds an entry to the figures of its queues, or takes it off.
func (s *State) count(e *entry, sign int32) {
	s.read.see(&e.lq.seen)
	if e.waits != noQueue {
		q := s.byIndex[e.waits]
		s.read.see(&q.seen)
		for _, f := range [...]*figures{&q.figures, &e.lq.figures} {
			if e.has(resting) {
				f.resting += sign
			}
			if e.has(inLine) {
				f.inLine += sign
			}
		}
		if e.has(inLine) {
			q.figures.ask(e.wl, sign)
		}
	}
	if e.held != nil {
		q := s.byIndex[e.holds()]
		s.read.see(&q.seen)
		q.figures.hold(s.world.Table, e, sign)
		if e.has(own) {
			e.lq.figures.hold(s.world.Table, e, sign)
			if sign > 0 && e.has(admitted) {
				s.wake(e.lq)
			}
		}
		for name := q.def.Cohort; name != ""; name = s.parentOf(name) {
			if _, noted := s.read.cohorts[name]; noted {
				break
			}
			s.read.cohorts[name] = false
		}
	}
}

// writable returns the sums, which no view shares.
func (f *figures) writable() *sums {
	switch {
	case f.sums == nil:
		f.sums = &sums{}
	case f.shared:
		f.sums = &sums{slices.Clone(f.sums.held), slices.Clone(f.sums.asked), f.sums.pods}
	}
	f.shared = false
	return f.sums
}

// publish returns the sums for a view.
func (f *figures) publish() *sums {
	f.shared = true
	return f.sums
}

func (f *figures) ask(w *workload.Workload, sign int32) {
	to := f.writable()
	for i := range w.PodSets {
		to.pods.add(resource.Amount(w.PodSets[i].Count), sign)
		for _, r := range w.PodSets[i].Requests {
			to.ask(r, sign)
		}
	}
}

func (s *sums) ask(r workload.Request, sign int32) {
	at, found := slices.BinarySearchFunc(s.asked, r.Resource, func(d demand, id resource.ID) int { return int(d.resource - id) })
	if !found {
		s.asked = slices.Insert(s.asked, at, demand{resource: r.Resource})
	}
	if s.asked[at].add(r.Amount, sign); s.asked[at].total == (total{}) {
		s.asked = slices.Delete(s.asked, at, at+1)
	}
}

func (f *figures) hold(names *resource.Table, e *entry, sign int32) {
	f.reserved += sign
	if e.has(admitted) {
		f.admitted += sign
	}
	if len(e.held.usage) == 0 {
		return
	}
	to := f.writable()
	for _, u := range e.held.usage {
		i, known := slices.BinarySearchFunc(to.held, u.FR, func(t tally, fr resource.FR) int { return int(t.fr) - int(fr) })
		if !known {
			to.held = slices.Insert(to.held, i, tally{Pair: names.Ref(u.FR), fr: u.FR})
		}
		t := &to.held[i]
		t.holders += sign
		t.reserved.add(u.Amount, sign)
		if e.has(admitted) {
			t.admitted += sign
			t.used.add(u.Amount, sign)
		}
		if t.holders == 0 {
			to.held = slices.Delete(to.held, i, i+1)
		}
	}
}
