package flavor

import (
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Mode is how well a request fits.
type Mode = trace.Mode

// The modes of a search, from worst to best.
const (
	NoFit        = trace.NoFit
	NoCandidates = trace.NoCandidates
	Preempt      = trace.Preempt
	Reclaim      = trace.Reclaim
	Fit          = trace.Fit
)

// Fungibility is when a search continues past a flavor that would do.
type Fungibility struct {
	TryNextWhenBorrowing    bool // past a flavor that fits by borrowing
	StopWhenPreempting      bool // content with a flavor that needs preemption
	PreemptionOverBorrowing bool
	// Off: the first flavor that fits is taken, else the best by mode alone, and no search
	// resumes where another one stopped. The other fields are ignored.
	Off bool
}

// grade is how well something fits and how far up the cohorts it borrows.
type grade struct {
	mode  Mode
	level int
}

// preferred reports whether a is strictly better than b. spec: 10 §4.6.4.
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

// stop reports whether the search ends with g.
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

// search picks one flavor of the resource group for all requests of a group of pod sets, or
// returns the reason why there is none. spec: 10 §4.6.4.
func (s *Search) search(number int16, group int) trace.Reason {
	g := &s.Groups[group]
	best := picked{group: group}
	bestGrade := grade{NoFit, 0}
	reason := trace.Reason("")
	rest := outlook{}
	for i := s.start(number, group); i < len(g.Offers); i++ {
		o := &g.Offers[i]
		if podSet, d := s.obstacle(number, group, o); d.kind != matches {
			s.contradicted = s.contradicted || d.kind == contradicts || d.kind == otherPlaces
			s.refuse(podSet, d)
			reason = milder(reason, trace.NoMatchingFlavor)
			continue
		}
		t := s.try(group, o)
		if s.Places != nil {
			s.tryPlaces(number, group, o, &t)
		}
		if t.open && s.idle(number, group, i, t, bestGrade, &rest) {
			s.shortfalls(number, group)
			continue
		}
		if t.open {
			t.grade = s.preempt(number, group)
		}
		if t.mode == NoFit {
			s.shortfalls(number, group)
			reason = milder(reason, t.class)
			continue
		}
		stop := s.Policy.stop(t.grade)
		if stop || s.Policy.preferred(t.grade, bestGrade) {
			best.flavor, bestGrade = o.Flavor, t.grade
			s.keepTrial(group)
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

// start is the index of the first flavor to try: the one after the last that the search before
// tried. A list that got shorter since starts over. spec: 10 §4.6.5, §6 #22.
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

// trial is the evaluation of a flavor before preemption is considered.
type trial struct {
	// grade is the worst over the requests; where it is open, the best that it can be.
	grade
	open  bool         // there is not enough, and preemption may help
	class trace.Reason // of its most severe resource, when it does not fit
}

// try grades one flavor without preemption, and stores the grade of every ask: NoCandidates
// where preemption may help.
func (s *Search) try(group int, o *Offer) trial {
	t, never := trial{grade: grade{Fit, 0}}, false
	for i := range s.asks {
		a := &s.asks[i]
		if a.group != group {
			continue
		}
		fr := o.FRs[a.at]
		total := s.into.Usage.Quota.Of(fr).Add(a.amount)
		grd, class := s.check(fr, total)
		a.trial = quote{fr, grd}
		switch grd.mode {
		case NoFit:
			never = true
			if class.Severity() > t.class.Severity() {
				t.class = class
			}
		case NoCandidates:
			t.open = true
			grd = s.hope(fr, total)
		case Preempt, Reclaim, Fit, trace.Held:
		}
		t.grade = s.Policy.worst(t.grade, grd)
	}
	if never {
		t.grade, t.open = grade{NoFit, 0}, false
	}
	return t
}

// keepTrial makes the flavor that was just tried the best so far.
func (s *Search) keepTrial(group int) {
	for i := range s.asks {
		if a := &s.asks[i]; a.group == group {
			a.got = a.trial
		}
	}
}

// check grades amount of one FR without preemption: NoCandidates where the oracle may find a
// better grade. spec: 10 §4.6.3.
func (s *Search) check(fr resource.FR, amount resource.Amount) (grade, trace.Reason) {
	if amount > s.Quota.Potential(s.Node, fr) {
		return grade{NoFit, 0}, trace.ExceedsMaxQuota
	}
	level, mayReclaim := s.Quota.Level(s.Node, fr, amount)
	if amount <= s.Ledger.Available(s.Node, fr) {
		return grade{Fit, level}, ""
	}
	if !s.mayPreempt(fr, amount, mayReclaim) {
		return grade{NoFit, level}, trace.WaitingForQuota
	}
	return grade{NoCandidates, level}, trace.WaitingForQuota
}

// mayPreempt reports whether preemption is allowed for amount of fr, of which some is short: for the queue's own quota, on
// behalf of a subtree that owns as much, or where preemptors may borrow.
func (s *Search) mayPreempt(fr resource.FR, amount resource.Amount, ofSubtree bool) bool {
	return ofSubtree || s.PreemptsWhileBorrowing || amount <= s.Quota.Nominal(s.Node, fr)
}

// shortfalls adds refusals for the short resources of the flavor that was just tried, without
// a search for victims.
func (s *Search) shortfalls(number int16, group int) {
	if s.fullNodes {
		s.refusePlaces(s.trial[len(s.trial)-1], nil)
		return
	}
	for i := range s.asks {
		if a := &s.asks[i]; a.group == group && a.trial.mode <= NoCandidates {
			s.short(number, a, nil)
		}
	}
}

// short adds the refusal of an ask by the flavor that was just tried. The reach is that of a
// search for victims, nil without one.
func (s *Search) short(number int16, a *ask, reach *trace.Reach) {
	fr := a.trial.fr
	r := trace.Refusal{
		PodSet: s.podSets[s.first(number)].Name, Pair: s.Table.Ref(fr),
		Asked: s.into.Usage.Quota.Of(fr).Add(a.amount), Available: s.Ledger.Available(s.Node, fr), Potential: s.Quota.Potential(s.Node, fr),
		Reach: reach,
	}
	if r.Asked <= r.Potential {
		r.Node, r.Limited = s.where(fr)
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
