package flavor

import (
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
)

// Oracle tells what preemption could do for all of a question together: NoCandidates,
// Preempt or Reclaim. With NoCandidates it tells whom it could have asked, else it sets
// the levels of the question.
//
// Upstream asks about each FR alone, and may find afterwards that the answers cannot all
// be had at once. spec: 10 §4.6.3, §6 #30.
type Oracle func(*Question) (Mode, trace.Reach)

// Question is what a workload would need preemption for, if it took a flavor in addition
// to those that were picked for it before. The one about the last flavor picked is about
// the whole assignment.
type Question struct {
	Requests resource.Vector // all that it would hold, without zeros
	Need     []resource.FR   // what of it is short, sorted
	// Short is what of that is of the flavor. The mode is about the victims that hold some
	// of it: those for the picks before make no flavor worse than another.
	Short []resource.FR
	// Levels is how far up the preemptor borrows of each in Short once the victims are gone.
	Levels []int
}

// preempt asks the oracle about the flavor that was just tried, and grades it.
func (s *Search) preempt(number int16, group int) grade {
	q, mode, nobody := &s.question, NoCandidates, s.Nobody
	if nobody == nil {
		var reach trace.Reach
		s.pose(group)
		mode, reach = s.Oracle(q)
		if mode == NoCandidates {
			nobody = s.share(&reach)
		}
	}
	all, next := grade{Fit, 0}, 0
	for i := range s.asks {
		a := &s.asks[i]
		switch {
		case a.group != group:
			continue
		case a.trial.mode != NoCandidates:
		case mode == NoCandidates:
			s.short(number, a, nobody)
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
	q.Requests = append(q.Requests[:0], s.into.Usage...)
	q.Need = append(q.Need[:0], s.needs...)
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
		q.Requests = add(q.Requests, has.fr, a.amount)
		if has.mode == Fit {
			continue
		}
		q.Need = insert(q.Need, has.fr)
		if a.group == group {
			q.Short, q.Levels = append(q.Short, has.fr), append(q.Levels, has.level)
		}
	}
}

// share returns a copy of reach for refusals to share with those before that say the same.
func (s *Search) share(reach *trace.Reach) *trace.Reach {
	if s.reach == nil || *s.reach != *reach {
		fresh := *reach
		s.reach = &fresh
	}
	return s.reach
}

// hope is the best that preemption can make of amount of fr: the policy bounds the mode,
// and what is past the queue's own quota is borrowed, whoever goes.
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
// the answer, the search neither stops there nor prefers it to the best so far and to what
// fits further on. Where nobody can be preempted there is nothing to ask, and the record
// says so.
func (s *Search) idle(number int16, group, i int, t trial, best grade, rest *outlook) bool {
	if s.Nobody != nil || s.Policy.stop(t.grade) {
		return false
	}
	if !rest.known {
		*rest = s.outlook(number, group, i+1)
	}
	return rest.stops || !s.Policy.preferred(t.grade, best) || s.Policy.preferred(rest.best, t.grade)
}

// outlook is what can be had without preemption from the flavors left.
type outlook struct {
	known bool
	stops bool  // the search is content with one of them
	best  grade // NoFit when there is none
}

// outlook looks at the flavors from index from on, as far as the search can come to. What
// fits there may leave no need to ask the oracle about the flavors before.
func (s *Search) outlook(number int16, group, from int) outlook {
	rest := outlook{known: true}
	offers := s.Groups[group].Offers
	for i := from; i < len(offers) && !rest.stops; i++ {
		if _, d := s.obstacle(number, group, &offers[i]); d.kind != matches {
			continue
		}
		if g, fits := s.unaided(group, &offers[i]); fits {
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
		got, _ := s.check(fr, s.into.Usage.Of(fr).Add(a.amount))
		if got.mode != Fit {
			return grade{}, false
		}
		g = s.Policy.worst(g, got)
	}
	return g, true
}
