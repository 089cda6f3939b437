package state

import (
	"cmp"
	"iter"

	"github.com/berth-project/berth/internal/core/order"
)

// The pending workloads of a UsageBased ClusterQueue are in a line for each LocalQueue, and so are their classes: equivalent
// workloads of two LocalQueues are no longer in one class. A change of a standing changes the place of a line, and nothing in it.

// usageBased returns the UsageBased ClusterQueue to which a LocalQueue leads, or nil.
func (s *State) usageBased(l *localQueue) *queue {
	if q := s.queues[l.def.Queue]; l.exists && q != nil && q.def.UsageBased {
		return q
	}
	return nil
}

// lineNumber returns the number of the line of a LocalQueue, 0 if it has none of its own.
func (l *localQueue) lineNumber() int32 {
	if l.ranked == nil {
		return 0
	}
	return l.line
}

// rank sets the standing of the line of a LocalQueue, after a change of that, of its ClusterQueue or of where it leads.
func (s *State) rank(l *localQueue) {
	q := s.usageBased(l)
	if l.ranked != nil && l.ranked != q {
		s.world.SetStanding(l.ranked.q, l.line, 0)
	}
	if l.ranked = q; q == nil {
		return
	}
	if l.line == 0 {
		s.lastLine++
		l.line = s.lastLine
	}
	s.world.SetStanding(q.q, l.line, l.standing)
	s.showStanding(l, q)
}

// showStanding shows the standing of a LocalQueue line in the next Model.
func (s *State) showStanding(l *localQueue, q *queue) {
	if v := q.lines.of[l]; v != nil && v.standing != l.standing {
		q.lines.set(v, lineView{l, v.number, l.standing, v.waiting})
		s.read.see(&q.seen)
	}
}

// rankAll is rank for the LocalQueues that lead to a ClusterQueue that is UsageBased from now on, or no longer.
func (s *State) rankAll(queue string) {
	for _, l := range s.leadingTo(queue) {
		s.rank(l)
		s.read.define(l, s.recordsOf(l))
	}
}

// lineView is a LocalQueue line in a Model.
type lineView struct {
	lq       *localQueue // others read its name only
	number   int32
	standing order.Standing
	waiting  sorted[*entry] // never empty
}

func compareLines(a, b *lineView) int {
	return cmp.Or(cmp.Compare(a.standing, b.standing), cmp.Compare(a.number, b.number))
}

// lineViews are the LocalQueue lines of a ClusterQueue with pending workloads.
type lineViews struct {
	of      map[*localQueue]*lineView
	inOrder sorted[*lineView] // by standing
}

// set replaces the view of a line; nil is none, and an empty one is dropped.
func (v *lineViews) set(old *lineView, now lineView) {
	if old != nil {
		v.inOrder = v.inOrder.drop(old, compareLines)
	}
	if now.waiting.Len() == 0 {
		delete(v.of, now.lq)
		return
	}
	if v.of == nil {
		v.of = map[*localQueue]*lineView{}
	}
	v.of[now.lq] = &now
	v.inOrder = v.inOrder.put(&now, compareLines)
}

// addWaiting adds an entry to the pending workloads.
func (q *queue) addWaiting(e *entry) {
	if !e.has(lined) {
		q.line = q.line.put(e, compareEntries)
		return
	}
	now := lineView{lq: e.lq, number: e.lq.line, standing: e.lq.standing}
	old := q.lines.of[e.lq]
	if old != nil {
		now = *old
	}
	now.waiting = now.waiting.put(e, compareEntries)
	q.lines.set(old, now)
}

// dropWaiting removes an entry from the pending workloads.
func (q *queue) dropWaiting(e *entry) {
	if !e.has(lined) {
		q.line = q.line.drop(e, compareEntries)
		return
	}
	old := q.lines.of[e.lq]
	now := *old
	now.waiting = now.waiting.drop(e, compareEntries)
	q.lines.set(old, now)
}

// waiting returns the pending workloads, in no particular order.
func (q *queueView) waiting() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for e := range q.line.all() {
			if !yield(e) {
				return
			}
		}
		for l := range q.lines.all() {
			for e := range l.waiting.all() {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// tiers returns the lines, in groups of equal standing.
func (q *queueView) tiers() iter.Seq[[]*lineView] {
	return func(yield func([]*lineView) bool) {
		var tier []*lineView
		for l := range q.lines.all() {
			if len(tier) > 0 && tier[0].standing != l.standing {
				if !yield(tier) {
					return
				}
				tier = nil
			}
			tier = append(tier, l)
		}
		if len(tier) > 0 {
			yield(tier)
		}
	}
}

// lineInOrder yields the pending workloads of a UsageBased ClusterQueue: the lower standing, the prioritized workload, and then the order
// of one line. spec: 20 §4.4.
func (q *queueView) lineInOrder(yield func(*entry) bool) {
	first := q.prioritized()
	for tier := range q.tiers() {
		skip := first
		if first == nil || tier[0].standing != q.firstLine.standing {
			skip = nil
		}
		if skip != nil && !yield(skip) {
			return
		}
		if !merge(tier, func(e *entry) bool { return e == skip || yield(e) }) {
			return
		}
	}
}

// placeInLines returns the number of workloads before a pending one of a UsageBased ClusterQueue.
func (q *queueView) placeInLines(e *entry) (before int) {
	first := q.prioritized()
	for tier := range q.tiers() {
		all, higher, found := 0, 0, false
		for _, l := range tier {
			_, n, _ := l.waiting.find(func(o *entry) int { return compareEntries(o, e) })
			all, higher, found = all+l.waiting.Len(), higher+n, found || l.lq == e.lq
		}
		switch {
		case !found:
			before += all
			continue
		case first == e:
			return before
		case first != nil && tier[0].standing == q.firstLine.standing && compareEntries(first, e) > 0:
			higher++
		}
		return before + higher
	}
	return before
}

// cursor is a place in a line.
type cursor struct {
	*entry
	line sorted[*entry]
	at   int
}

// merge yields the workloads of lines in the order of one line, and reports whether yield was true for all.
func merge(lines []*lineView, yield func(*entry) bool) bool {
	if len(lines) == 1 {
		return lines[0].waiting.visit(yield)
	}
	next := make([]cursor, len(lines)) // a heap
	for i, l := range lines {
		next[i] = cursor{l.waiting.at(0), l.waiting, 0}
	}
	for i := len(next)/2 - 1; i >= 0; i-- {
		sink(next, i)
	}
	for len(next) > 0 {
		c := &next[0]
		if !yield(c.entry) {
			return false
		}
		if c.at++; c.at < c.line.Len() {
			c.entry = c.line.at(c.at)
		} else {
			last := len(next) - 1
			next[0], next = next[last], next[:last]
		}
		sink(next, 0)
	}
	return true
}

// sink moves a cursor of a heap towards the bottom.
func sink(all []cursor, i int) {
	for {
		least := i
		for kid := 2*i + 1; kid <= 2*i+2 && kid < len(all); kid++ {
			if compareEntries(all[kid].entry, all[least].entry) < 0 {
				least = kid
			}
		}
		if least == i {
			return
		}
		all[i], all[least] = all[least], all[i]
		i = least
	}
}
