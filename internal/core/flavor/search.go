package flavor

import (
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Mode says how well a request fits, from worst to best.
type Mode int8

// The modes. NoCandidates could fit by preemption, but nobody may be preempted;
// Preempt needs a victim in the own queue; Reclaim only victims elsewhere.
const (
	NoFit Mode = iota
	NoCandidates
	Preempt
	Reclaim
	Fit
)

// String is the mode's word in traces.
func (m Mode) String() string {
	return [...]string{"no fit", "no candidates", "preempt", "reclaim", "fit"}[m]
}

// Fungibility says when a search goes on past a flavor that would do.
type Fungibility struct {
	TryNextWhenBorrowing    bool // past a flavor that fits by borrowing
	StopWhenPreempting      bool // content with a flavor that needs preemption
	PreemptionOverBorrowing bool
	// Off: the first flavor that fits is taken, else the best by mode alone, and no
	// search goes on where another one stopped. The other fields mean nothing.
	Off bool
}

// grade is how well something fits and how far up the cohorts it borrows.
type grade struct {
	mode  Mode
	level int
}

// preferred tells whether a is strictly better than b. spec: 10 §4.6.4.
func (f Fungibility) preferred(a, b grade) bool {
	switch {
	case a.mode == NoFit:
		return false
	case b.mode == NoFit:
		return true
	case f.Off:
		return a.mode > b.mode
	case (a.mode == NoCandidates) != (b.mode == NoCandidates):
		return b.mode == NoCandidates
	case f.PreemptionOverBorrowing && a.level != b.level:
		return a.level < b.level
	case a.mode != b.mode:
		return a.mode > b.mode
	}
	return a.level < b.level
}

// stop tells whether the search is content with g.
func (f Fungibility) stop(g grade) bool {
	switch {
	case f.Off:
		return g.mode == Fit
	case g.mode <= NoCandidates:
		return false
	case g.mode < Fit && !f.StopWhenPreempting:
		return false
	case g.level > 0 && f.TryNextWhenBorrowing:
		return false
	}
	return true
}

// worst is the grade of two requests that both must fit: the one less preferred.
// spec: 10 §4.6.4.
func (f Fungibility) worst(a, b grade) grade {
	if f.preferred(a, b) {
		return b
	}
	return a
}

// search picks one flavor of the resource group for everything that the pod sets of
// a group ask of it, or gives the reason why there is none. spec: 10 §4.6.4.
func (s *Search) search(number int16, group int) trace.Reason {
	g := &s.Groups[group]
	best := picked{group: group}
	bestGrade := grade{NoFit, 0}
	reason := trace.Reason("")
	for i := s.start(number, group); i < len(g.Offers); i++ {
		o := &g.Offers[i]
		if !s.eligible(number, group, o) {
			reason = milder(reason, trace.NoMatchingFlavor)
			continue
		}
		grd, class := s.try(number, group, o)
		if grd.mode == NoFit {
			reason = milder(reason, class)
			continue
		}
		stop := s.Policy.stop(grd)
		if stop || s.Policy.preferred(grd, bestGrade) {
			best.flavor, bestGrade = o.Flavor, grd
			s.keep(group)
		}
		if stop {
			s.record(number, group, i+1)
			break
		}
	}
	if best.flavor != nil {
		s.picks = append(s.picks, best)
		return ""
	}
	if reason == "" {
		return trace.NoMatchingFlavor
	}
	return reason
}

// start is the index of the first flavor that is looked at: the one after the last that
// the search before looked at. A list that got shorter since starts over.
// spec: 10 §4.6.5, §6 #22.
func (s *Search) start(number int16, group int) int {
	if s.Policy.Off || s.Only != nil {
		return 0
	}
	for _, t := range s.Resume {
		if t.PodSets == number && int(t.Group) == group && t.Next > 0 && int(t.Next) < len(s.Groups[group].Offers) {
			s.into.Resumed = true
			return int(t.Next)
		}
	}
	return 0
}

// record notes that the search stopped before the flavor at index next, if there is one.
func (s *Search) record(number int16, group, next int) {
	if !s.Policy.Off && next < len(s.Groups[group].Offers) {
		s.into.Tried = append(s.into.Tried, workload.Tried{PodSets: number, Group: int16(group), Next: int32(next)})
	}
}

// try grades one flavor, the worst over the requests, and leaves the grade of each in
// its ask. A flavor that does not fit is of the class of its most severe resource.
func (s *Search) try(number int16, group int, o *Offer) (grade, trace.Reason) {
	all := grade{Fit, 0}
	class := trace.Reason("")
	for i := range s.asks {
		a := &s.asks[i]
		if a.group != group {
			continue
		}
		fr := o.FRs[a.at]
		total := s.into.Usage.Of(fr).Add(a.amount)
		grd, reason, reach := s.check(fr, total)
		if grd.mode <= NoCandidates {
			s.short(number, fr, total, grd.mode, reason, reach)
			if grd.mode == NoFit && reason.Severity() > class.Severity() {
				class = reason
			}
		}
		all = s.Policy.worst(all, grd)
		a.trial = quote{fr, grd}
	}
	return all, class
}

// keep makes the flavor that was just tried the one to take.
func (s *Search) keep(group int) {
	for i := range s.asks {
		if a := &s.asks[i]; a.group == group {
			a.got = a.trial
		}
	}
}

// check grades amount of one FR. spec: 10 §4.6.3.
func (s *Search) check(fr resource.FR, amount resource.Amount) (grade, trace.Reason, trace.Reach) {
	if amount > s.Quota.Potential(s.Node, fr) {
		return grade{NoFit, 0}, trace.ExceedsMaxQuota, trace.Reach{}
	}
	level, mayReclaim := s.Quota.Level(s.Node, fr, amount)
	if amount <= s.Quota.Available(s.Node, fr) {
		return grade{Fit, level}, "", trace.Reach{}
	}
	if s.Quota.Nominal(s.Node, fr) < amount && !mayReclaim && !s.PreemptsWhileBorrowing {
		return grade{NoFit, level}, trace.WaitingForQuota, trace.Reach{}
	}
	mode, after, reach := s.Oracle(fr, amount)
	if mode == NoCandidates {
		after = level
	}
	return grade{mode, after}, trace.WaitingForQuota, reach
}

// short notes that there is not enough of fr for the pod sets of a group.
func (s *Search) short(number int16, fr resource.FR, total resource.Amount, mode Mode, reason trace.Reason, reach trace.Reach) {
	p := s.Table.Pair(fr)
	r := trace.Refusal{
		PodSet: s.podSets[s.first(number)].Name, Resource: p.Resource, Flavor: p.Flavor, Reason: reason,
		Asked: total, Available: s.Quota.Available(s.Node, fr), Potential: s.Quota.Potential(s.Node, fr),
	}
	if reason == trace.WaitingForQuota {
		r.Node, r.Limited = s.where(fr)
	}
	if mode == NoCandidates {
		r.Preemptible = true
		if s.reach == nil || *s.reach != reach {
			fresh := reach
			s.reach = &fresh
		}
		r.Reach = s.reach
	}
	s.into.Refusals = append(s.into.Refusals, r)
}

// milder is the less severe of two reasons; "" is none yet.
func milder(a, b trace.Reason) trace.Reason {
	if a == "" || b.Severity() < a.Severity() {
		return b
	}
	return a
}
