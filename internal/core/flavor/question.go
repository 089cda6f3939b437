package flavor

import (
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
)

// Oracle returns what preemption could do for all of a question together: NoCandidates,
// Preempt or Reclaim. With NoCandidates it returns the reach of its search, else it sets the
// levels of the question.
//
// Upstream asks about each FR alone, and may find afterwards that the victims do not suffice
// for all. spec: 10 §4.6.3, §6 #30.
type Oracle func(*Question) (Mode, trace.Reach)

// Question is the need for preemption of a workload, if it took a flavor in addition to the ones
// that were picked for it before. The one about the last flavor picked is about the whole
// assignment.
type Question struct {
	Requests ledger.Usage  // all its requests, without zeros
	Need     []resource.FR // the FRs of it that are short, sorted
	// Short is the part of Need that is of the flavor. The mode is about the victims that hold
	// some of it: victims for earlier picks make no flavor worse than another.
	Short []resource.FR
	// Placed is the groups of pod sets that need places, with the flavor.
	Placed []PlaceGroup
	// Levels is how far up the preemptor borrows of each in Short once the victims are gone.
	Levels []int
}

// preempt calls the oracle for the flavor that was just tried, and grades it.
func (s *Search) preempt(number int16, group int) grade {
	q, mode, shared := &s.question, NoCandidates, s.NoPreemption
	if shared == nil {
		var reach trace.Reach
		s.pose(group)
		mode, reach = s.Oracle(q)
		if mode == NoCandidates {
			shared = s.share(&reach)
		}
	}
	if mode == NoCandidates && s.fullNodes {
		s.refusePlaces(s.trial[len(s.trial)-1], shared)
	}
	all, next := grade{Fit, 0}, 0
	for i := range s.asks {
		a := &s.asks[i]
		switch {
		case a.group != group:
			continue
		case a.trial.mode != NoCandidates:
		case mode == NoCandidates && s.fullNodes:
		case mode == NoCandidates:
			s.short(number, a, shared)
		default:
			a.trial.grade = grade{mode, q.Levels[next]}
			next++
		}
		all = s.Policy.worst(all, a.trial.grade)
	}
	return all
}

// pose makes the question about the flavor that was just tried.
func (s *Search) pose(group int) {
	q := &s.question
	q.Requests = s.into.Usage.Copy(q.Requests)
	q.Need, q.Placed = append(q.Need[:0], s.needs...), s.trial
	q.Short, q.Levels = q.Short[:0], q.Levels[:0]
	for i := range s.asks {
		a := &s.asks[i]
		has := a.got // of a resource group before
		if a.group == group {
			has = a.trial
		}
		if has.mode == NoFit {
			continue
		}
		q.Requests.Quota = add(q.Requests.Quota, has.fr, a.amount)
		if has.mode == Fit {
			continue
		}
		q.Need = insert(q.Need, has.fr)
		if a.group == group {
			q.Short, q.Levels = append(q.Short, has.fr), append(q.Levels, has.level)
		}
	}
}

// share returns a shared copy of reach for refusals.
func (s *Search) share(reach *trace.Reach) *trace.Reach {
	if s.reach == nil || *s.reach != *reach {
		fresh := *reach
		s.reach = &fresh
	}
	return s.reach
}

// hope is the best grade that preemption can reach for amount of fr: the policy bounds the
// mode, and an amount past the queue's own quota is borrowed in any case.
func (s *Search) hope(fr resource.FR, amount resource.Amount) grade {
	g := grade{Reclaim, 0}
	if s.NoReclaim {
		g.mode = Preempt
	}
	if s.Quota.Parent(s.Node) != quota.None && amount > s.Quota.Nominal(s.Node, fr) {
		g.level = 1
	}
	return g
}

// idle reports whether a question about an open flavor, at index i, would be idle: whatever
// the answer, the search neither stops there nor prefers it to the best so far and to a later
// flavor that fits. Without preemption there is no question, and the refusal reports it.
func (s *Search) idle(number int16, group, i int, t trial, best grade, rest *outlook) bool {
	if s.NoPreemption != nil || s.Policy.stop(t.grade) {
		return false
	}
	if !rest.known {
		*rest = s.outlook(number, group, i+1)
	}
	return rest.stops || !s.Policy.preferred(t.grade, best) || s.Policy.preferred(rest.best, t.grade)
}

// outlook is the best of the remaining flavors without preemption.
type outlook struct {
	known bool
	stops bool  // the search is content with one of them
	best  grade // NoFit when there is none
}

// outlook grades the flavors from index from on, as far as the search can come. A flavor that
// fits may leave no need to call the oracle for the ones before.
func (s *Search) outlook(number int16, group, from int) outlook {
	rest := outlook{known: true}
	offers := s.Groups[group].Offers
	for i := from; i < len(offers) && !rest.stops; i++ {
		if _, d := s.obstacle(number, group, &offers[i]); d.kind != matches {
			continue
		}
		if g, fits := s.unaided(group, &offers[i]); fits && (s.Places == nil || s.fitsPlaces(number, offers[i].Flavor)) {
			rest.stops = s.Policy.stop(g)
			if s.Policy.preferred(g, rest.best) {
				rest.best = g
			}
		}
	}
	return rest
}

// unaided grades a flavor that has enough without preemption, and leaves no trace.
func (s *Search) unaided(group int, o *Offer) (g grade, fits bool) {
	g = grade{Fit, 0}
	for i := range s.asks {
		a := &s.asks[i]
		if a.group != group {
			continue
		}
		fr := o.FRs[a.at]
		got, _ := s.check(fr, s.into.Usage.Quota.Of(fr).Add(a.amount))
		if got.mode != Fit {
			return grade{}, false
		}
		g = s.Policy.worst(g, got)
	}
	return g, true
}
