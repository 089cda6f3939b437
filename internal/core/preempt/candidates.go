package preempt

import (
	"cmp"
	"slices"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/workload"
)

// Candidates have parts, in this order: workloads being evicted, the rest and, in a search that spares them, workloads that are Early.
const (
	leaving = iota
	staying
	early
	parts
)

// partsOf returns cursors before the parts of a queue.
func (s *Search) partsOf(h *Holders) [parts]cursor {
	at := [parts]cursor{leaving: {in: &h.leaving}, staying: {in: &h.staying}, early: {in: &s.none}}
	if s.sparing {
		at[staying].only, at[early] = notEarly, cursor{in: &h.staying, only: onlyEarly}
	}
	return at
}

// start returns cursors at the first candidates of a queue in each part, and reports whether
// there are any.
func (s *Search) start(h *Holders, of *Candidates) (at [parts]cursor, found bool) {
	at = s.partsOf(h)
	for part := range at {
		if s.seek(&at[part], of) != nil {
			found = true
		}
	}
	return at, found
}

// startOf is start for a queue. The candidates of the own queue are in the order of the standings of their LocalQueues, if these count.
func (s *Search) startOf(n quota.Node, h *Holders) (at [parts]cursor, found bool) {
	of := s.candidatesOf(n)
	if n != s.Node || s.Standing == nil {
		return s.start(h, of)
	}
	for part, c := range s.partsOf(h) {
		s.ranked[part] = s.rank(s.ranked[part][:0], c, of)
		own := &s.byUsage[part]
		if own.chunks = own.chunks[:0]; len(s.ranked[part]) > 0 {
			own.chunks, found = append(own.chunks, s.ranked[part]), true
		}
		at[part].in = own
	}
	return at, found
}

// ranked is a candidate with the standing of its LocalQueue.
type ranked struct {
	*workload.Workload
	standing order.Standing
}

// rank appends the candidates from a place on: the higher standing first, else in their order.
func (s *Search) rank(to []*workload.Workload, c cursor, of *Candidates) []*workload.Workload {
	s.ranks = s.ranks[:0]
	for ; s.seek(&c, of) != nil; c.step() {
		s.ranks = append(s.ranks, ranked{c.get(), s.Standing(c.get())})
	}
	slices.SortStableFunc(s.ranks, func(a, b ranked) int { return cmp.Compare(b.standing, a.standing) })
	for _, r := range s.ranks {
		to = append(to, r.Workload)
	}
	clear(s.ranks)
	return to
}

// seek moves c to the first candidate from its place, or past the end. Priorities ascend, so
// it stops at the first that is too high.
func (s *Search) seek(c *cursor, of *Candidates) *workload.Workload {
	for w := c.get(); w != nil; w = c.get() {
		s.Visited++
		if of.Ends(w) {
			c.chunk, c.i = len(c.in.chunks), 0
			break
		}
		if (c.only == all || w.Early(s.now) == (c.only == onlyEarly)) && s.candidate(w, of) {
			return w
		}
		c.step()
	}
	return nil
}

// candidate reports whether the policy allows w, and its eviction could help. spec: 10 §4.7.2.
func (s *Search) candidate(w *workload.Workload, of *Candidates) bool {
	return of.Has(w) && s.holdsNeeded(w) && w.UID != s.Preemptor.UID &&
		(s.Replaces == nil || w.UID != s.Replaces.UID) && (s.Gone == nil || !s.Gone(w))
}

// candidatesOf returns the candidates among the workloads of a queue.
func (s *Search) candidatesOf(n quota.Node) *Candidates {
	if n == s.Node {
		return &s.candidates[SameQueue]
	}
	return &s.candidates[Cohort]
}

func (s *Search) holdsNeeded(w *workload.Workload) bool {
	for _, fr := range s.Need {
		if w.Usage.Quota.Of(fr) > 0 {
			return true
		}
	}
	return false
}

// head is the first remaining candidate of a source.
type head struct {
	*workload.Workload
	at     cursor
	source int32 // index in sources
}

// merge is a binary heap of the heads of some queues.
type merge []head

func (m merge) heapify() {
	for i := len(m)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
}

func (m merge) down(i int) {
	for {
		least := i
		for kid := 2*i + 1; kid <= 2*i+2 && kid < len(m); kid++ {
			if compare(m[kid].Workload, m[least].Workload) < 0 {
				least = kid
			}
		}
		if least == i {
			return
		}
		m[i], m[least] = m[least], m[i]
		i = least
	}
}

// pop drops heads[0] and its queue.
func (m merge) pop() merge {
	last := len(m) - 1
	m[0] = m[last]
	m[last] = head{}
	m = m[:last]
	m.down(0)
	return m
}

// fits reports whether the preemptor fits now, borrowing or within its own quota.
func (s *Search) fits(borrow bool) bool {
	if !s.Ledger.Fits(s.Node, s.Requests) {
		return false
	}
	if !borrow {
		for _, e := range s.Requests.Quota {
			if s.Quota.Nominal(s.Node, e.FR) < s.Quota.Usage(s.Node, e.FR).Add(e.Amount) {
				return false
			}
		}
	}
	return s.Places == nil || s.Places()
}

// takeVictim releases the usage of w and adds it to taken.
func (s *Search) takeVictim(w *workload.Workload, n quota.Node, reason string) *taken {
	s.Visited++
	s.Ledger.Release(n, w.Usage)
	s.taken = append(s.taken, taken{Victim: Victim{Workload: w, Node: n, Reason: reason}})
	return &s.taken[len(s.taken)-1]
}

// fillBack spares, from the second-last, the victims that are not needed after all, and
// returns the rest. The forest is without the rest when it calls enough. spec: 10 §4.7.5.
func (s *Search) fillBack(enough func(back *taken) bool) []Victim {
	left := len(s.taken)
	for i := left - 2; i >= 0; i-- {
		t := &s.taken[i]
		s.Ledger.Charge(t.Node, t.Workload.Usage)
		if t.back = true; enough(t) {
			left--
			continue
		}
		t.back = false
		s.Ledger.Release(t.Node, t.Workload.Usage)
	}
	victims := make([]Victim, 0, left)
	for i := range s.taken {
		if !s.taken[i].back {
			victims = append(victims, s.taken[i].Victim)
		}
	}
	return victims
}

// tally counts the victims of a failed attempt.
func (s *Search) tally() {
	own := 0
	for i := range s.taken {
		if s.taken[i].Node == s.Node {
			own++
		}
	}
	s.reach.OwnAllowed = max(s.reach.OwnAllowed, own)
	s.reach.OthersAllowed = max(s.reach.OthersAllowed, len(s.taken)-own)
}

// holders returns the workloads of another queue that uses more than its own quota, and counts
// them.
func (s *Search) holders(n quota.Node) *Holders {
	h := s.Holders(n)
	if h != nil {
		s.reach.Queues++
		s.reach.Others += h.Len()
	}
	return h
}
