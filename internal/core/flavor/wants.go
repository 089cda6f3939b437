package flavor

import (
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Wants writes into the memory of into what has to be available for the workload to be
// admitted, at the minimum counts of its pod sets: a clause for each group of pod sets and
// each resource group that they request something of, in it an offer for each flavor that the
// pods can use and that can ever have enough, in that the amount of each FR. Until every
// clause has an offer with all its wants available, the workload is refused again. Nothing is
// returned when it can never be admitted, however much is released.
//
// The requests of several groups of pod sets for one FR are not added up. spec: 10 §6 #7.
func (s *Search) Wants(podSets []workload.PodSet, into []workload.Want) []workload.Want {
	into = into[:0]
	defer func() { s.podSets = nil }()
	clause := uint8(0)
	for number := range s.prepare(podSets) {
		s.asks = s.asks[:0]
		for i := range podSets {
			if s.numbers[i] == number {
				s.sum(&podSets[i], podSets[i].Least())
			}
		}
		for i := range s.asks {
			if a := &s.asks[i]; a.group < 0 && a.amount > 0 && !s.IgnoreUndeclared {
				return into[:0]
			}
		}
		for group := range s.Groups {
			if !s.asked(group) {
				continue
			}
			had := len(into)
			into = s.clause(number, group, clause, into)
			if len(into) == had {
				return into[:0]
			}
			clause++
		}
	}
	return into
}

// asked reports whether something is requested of a resource group.
func (s *Search) asked(group int) bool {
	for i := range s.asks {
		if s.asks[i].group == group {
			return true
		}
	}
	return false
}

// clause appends the wants of each flavor of a resource group.
func (s *Search) clause(number int16, group int, clause uint8, into []workload.Want) []workload.Want {
	for offer := range s.Groups[group].Offers {
		o := &s.Groups[group].Offers[offer]
		from := len(into)
		if !s.usable(number, group, o.Flavor) {
			continue
		}
		for i := range s.asks {
			a := &s.asks[i]
			if a.group != group {
				continue
			}
			fr := o.FRs[a.at]
			if a.amount > s.Quota.Potential(s.Node, fr) {
				into = into[:from]
				break
			}
			w := workload.Want{FR: fr, Least: a.amount, Clause: clause, Offer: uint16(offer)}
			w.Winnable = s.winnable(w)
			into = append(into, w)
		}
		if s.Places != nil && len(into) > from {
			var ok bool
			if into, ok = s.wantPlaces(number, o, clause, offer, into); !ok {
				into = into[:from]
			}
		}
	}
	return into
}

// usable reports whether all pod sets of a group can use a flavor of a resource group.
func (s *Search) usable(number int16, group int, f *Flavor) bool {
	for i := range s.podSets {
		if s.numbers[i] == number && (f.mismatch(s.podSets[i].Constraints).kind != matches || s.misplaced(&s.podSets[i], group, f).kind != matches) {
			return false
		}
	}
	return true
}

// winnable reports whether check could call the oracle for w or more, whatever is in use. A
// request past the queue's own quota may reclaim only on behalf of a cohort that has a parent.
func (s *Search) winnable(w workload.Want) bool {
	parent := s.Quota.Parent(s.Node)
	ofSubtree := parent != quota.None && s.Quota.Parent(parent) != quota.None
	return s.NoPreemption == nil && s.mayPreempt(w.FR, w.Least, ofSubtree)
}

// Foresee returns how far up the cohorts the assignment borrows that a search without preemption finds for wants, which are of one resource
// group, or false if they are not all available together, or preemption may win one of them. It reads Node and Policy.
func (s *Search) Foresee(wants []workload.Want) (level int, fits bool) {
	taken := s.taken[:0]
	for from := 0; from < len(wants); {
		best, pick, next := s.foreseeClause(wants, from, taken)
		if best < 0 {
			return 0, false
		}
		level = max(level, best)
		if next < len(wants) {
			for i := pick; i < next && wants[i].Offer == wants[pick].Offer; i++ {
				taken = add(taken, wants[i].FR, wants[i].Least)
			}
		}
		from = next
	}
	s.taken = taken[:0]
	return level, true
}

// foreseeClause returns the level of the offer that the search takes of the clause at an index, −1 for none, where that offer begins, and
// where the clause ends.
func (s *Search) foreseeClause(wants []workload.Want, from int, taken resource.Vector) (best, pick, next int) {
	best = -1
	stopped := false
	for next = from; next < len(wants) && wants[next].Clause == wants[from].Clause; {
		begin, level, fits := next, 0, !stopped
		for ; next < len(wants) && wants[next].Clause == wants[from].Clause && wants[next].Offer == wants[begin].Offer; next++ {
			w := &wants[next]
			if w.Winnable {
				return -1, 0, 0
			}
			if !fits {
				continue
			}
			amount := w.Least.Add(taken.Of(w.FR))
			if fits = amount <= s.Ledger.Available(s.Node, w.FR); fits {
				l, _ := s.Quota.Level(s.Node, w.FR, amount)
				level = max(level, l)
			}
		}
		if fits && (best < 0 || level < best) {
			best, pick = level, begin
			stopped = s.Policy.stop(grade{Fit, level})
		}
	}
	return best, pick, next
}
