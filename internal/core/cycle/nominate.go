package cycle

import (
	"slices"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

func (s *scratch) bind(w *World) {
	s.round.w = w
	s.flavors = flavor.Search{Table: w.Table, Ledger: w.Ledger, Oracle: w.oracle}
	s.victims = preempt.Search{Ledger: w.Ledger, Holders: w.preemptible, Gone: outOfReach, Fair: w.Fair}
}

// nominate finds flavors for a head, and victims where it needs them. It changes nothing.
// spec: 10 §4.5 step 3.
func (w *World) nominate(e *entry) {
	if reason, note, own := w.findMisfit(e.q, e.wl); reason != "" {
		e.barred, e.note, e.blocks = reason, note, own && e.q.Strict
		return
	}
	w.prepare(e)
	if w.bar(e); e.barred != "" {
		return
	}
	if w.mayResume(e) {
		w.flavors.Resume = e.wl.Scan.Tried
	}
	w.withoutReplaced(e, func() {
		w.assign(e)
		if e.got.Resumed && e.got.Mode != flavor.Fit && len(e.targets) == 0 { // no flavor from there on does
			w.flavors.Resume = nil
			w.assign(e)
		}
	})
}

// mayResume reports whether a search resumes where the last one stopped: that was in the cycle before, or nothing
// was released in the queue since. spec: 10 §4.6.5.
func (w *World) mayResume(e *entry) bool {
	s := e.wl.Scan
	return s != nil && (s.Cycle+1 >= w.cycle(e.q.tree) || s.Generation == w.Quota.Generation(e.q.Node))
}

func (w *World) findMisfit(q *Queue, wl *workload.Workload) (reason trace.Reason, note string, own bool) {
	labels, exists := w.NamespaceLabels(wl)
	return Misfit(q.Name, q.Namespaces, wl, labels, exists)
}

// Misfit returns why a ClusterQueue does not take a workload whatever quota is free, "" if it does: given the queue's name and selector,
// the labels of the workload's namespace and whether that exists. own reports that the reason is the workload itself, not its namespace.
func Misfit(queue string, selector []workload.Term, wl *workload.Workload, labels map[string]string, exists bool) (reason trace.Reason, note string, own bool) {
	switch {
	case wl.Problem != nil && trace.Reason(wl.Problem.Reason) != trace.Misconfigured:
	case !exists:
		return trace.Misconfigured, "its namespace does not exist", false
	case !selects(selector, labels):
		return trace.Misconfigured, "ClusterQueue " + queue + " does not take workloads of this namespace (namespaceSelector)", false
	}
	if wl.Problem == nil {
		return "", "", false
	}
	return trace.Reason(wl.Problem.Reason), wl.Problem.Note, true
}

// renominate repeats the nomination in the middle of a cycle, as if the victims of other
// preemptors had left: with the flavors found before, starting at the first.
// spec: 10 §4.5 step 5b.
func (w *World) renominate(e *entry) {
	w.prepare(e)
	w.flavors.Only = e.got.Holding()
	w.withoutReplaced(e, func() { w.assign(e) })
	w.flavors.Only = nil
	e.postponed = e.got.Mode == flavor.Fit && !w.round.fitsForReal(e, e.got.Usage)
	e.got.Tried = e.got.Tried[:0]
}

// noPreemption is the reach of a queue whose policy allows no preemption.
var noPreemption = new(preempt.Policy).Reach()

// prepare sets up the search for flavors for one head.
func (w *World) prepare(e *entry) {
	w.at = e
	w.aimSearch(e)
	e.replaces, e.targets, e.podSets = nil, nil, e.wl.PodSets
	if r := w.replaced(e.wl); r.Workload != nil {
		e.replaces, w.flavors.Pins, e.second = r.Workload, r.Pins, r.Waits
		e.podSets = Keeping(e.podSets, r.Placed)
	}
}

// replaced returns the slice with quota in its queue that a workload may replace, none for most.
func (w *World) replaced(wl *workload.Workload) (r Replaced) {
	if wl.MayReplace {
		r = w.ReplacedSlice(wl)
	}
	if r.Workload == nil || !r.Workload.Reserved || r.Workload.Queue != wl.Queue {
		return Replaced{}
	}
	return r
}

// Keeping returns pod sets with the places, by pod set, that the elastic ones keep. spec: 20 §4.11.
func Keeping(podSets []workload.PodSet, placed func(podSet string) *trace.Placement) []workload.PodSet {
	out := podSets
	for i := range podSets {
		if !podSets[i].Elastic {
			continue
		}
		if p := placed(podSets[i].Name); p != nil {
			if &out[0] == &podSets[0] {
				out = slices.Clone(podSets)
			}
			out[i].Earlier = p
		}
	}
	return out
}

// aimSearch sets the search for flavors to the queue of a head.
func (w *World) aimSearch(e *entry) {
	s, q := &w.flavors, e.q
	s.Node, s.Groups, s.Policy = q.Node, q.Groups, q.Policy
	s.Policy.Off = w.FungibilityOff
	s.IgnoreUndeclared = w.IgnoreUndeclared
	s.PreemptsWhileBorrowing = q.Preemption.WhileBorrowing(w.Fair)
	s.NoReclaim = !q.Preemption.Reclaims()
	s.NoPreemption = nil
	if !q.Preemption.Allows() {
		s.NoPreemption = &noPreemption
	}
	s.Resume, s.Only, s.Pins, s.Places = nil, nil, nil, nil
	if w.Places != nil && (q.Shares || slices.ContainsFunc(e.wl.PodSets, func(ps workload.PodSet) bool { return ps.Topology != nil })) {
		s.Places, s.Delayed = w.Places, q.Delayed
	}
}

// withoutReplaced runs search in a forest without the usage of the slice that the head replaces.
func (w *World) withoutReplaced(e *entry, search func()) {
	if e.replaces == nil || e.replaces.Gone {
		search()
		return
	}
	mark := w.Ledger.Mark()
	defer w.Ledger.Rollback(mark)
	w.Ledger.Release(e.q.Node, e.replaces.Usage)
	search()
}

// assign finds the flavors, and the victims that they need. The search asks about each
// flavor together with those picked before; if the picks after the last question leave no
// victims for the whole assignment, it takes flavors that fit without victims. If there are
// none, it tries fewer pods. spec: 10 §4.6.6, §6 #30.
func (w *World) assign(e *entry) {
	w.attempt(e, e.podSets)
	if e.got.Mode == flavor.Fit || len(e.targets) > 0 {
		return
	}
	if e.got.Mode == flavor.Preempt || e.got.Mode == flavor.Reclaim {
		e.note = "what is short could be had by preemption, but not together with the rest"
		w.flavors.NoPreemption = &noPreemption
		w.flavors.Assign(e.podSets, &w.fallback)
		w.flavors.NoPreemption = nil
		if w.fallback.Mode == flavor.Fit {
			e.got, w.fallback = w.fallback, e.got
			e.got.Refusals, e.note = e.got.Refusals[:0], "" // they belong to a search without preemption
			w.place(e, e.podSets)
			return
		}
	}
	w.shrink(e)
}

// attempt finds flavors and victims for the given pod sets.
func (w *World) attempt(e *entry, podSets []workload.PodSet) {
	e.targets, e.note = nil, ""
	w.answers, w.podSetsAt = w.answers[:0], podSets
	w.flavors.Assign(podSets, &e.got)
	switch e.got.Mode {
	case flavor.NoFit:
		return
	case flavor.Fit:
		w.place(e, podSets)
		return
	case flavor.NoCandidates, flavor.Preempt, flavor.Reclaim, trace.Held:
	}
	if e.targets = w.leavingWithPlaces(e); e.targets == nil && w.flavors.NoPreemption == nil {
		w.frs = e.got.Needs(w.frs)
		e.targets = w.spareEarly(e, w.preemption(e, e.got.Usage, w.frs, e.got.Placed))
		w.placeWithout(e, podSets)
	}
}

// shrink tries with fewer pods where the pod sets allow it: the most with which the
// workload fits, or has victims. It assumes that more pods never fit where fewer do not.
// spec: 10 §4.6.6, 20 §4.10.
func (w *World) shrink(e *entry) {
	steps := 0
	for i := range e.wl.PodSets {
		ps := &e.wl.PodSets[i]
		steps += int(ps.Count - ps.Least())
	}
	if steps == 0 || !w.PartialAdmission || e.wl.MayReplace {
		return
	}
	resume := w.flavors.Resume
	w.flavors.Resume = nil
	note := e.note
	e.got, w.first = w.first, e.got
	try := func(i int) bool {
		w.scaled = w.scaled[:0]
		for _, ps := range e.wl.PodSets {
			if less := ps.Count - ps.Least(); less > 0 {
				ps = ps.Scaled(ps.Count - int32(int64(less)*int64(i)/int64(steps)))
			}
			w.scaled = append(w.scaled, ps)
		}
		w.attempt(e, w.scaled)
		return e.got.Mode == flavor.Fit || len(e.targets) > 0
	}
	if !try(steps) {
		e.got, w.first = w.first, e.got
		e.targets, e.note = nil, note
		w.flavors.Resume = resume
		return
	}
	lowest, highest := 1, steps
	for lowest < highest {
		if middle := (lowest + highest) / 2; try(middle) {
			highest = middle
		} else {
			lowest = middle + 1
		}
	}
	try(lowest)
}

// selects reports whether a namespace selector, ORed terms, matches these labels; no terms
// match nothing.
func selects(terms []workload.Term, labels map[string]string) bool {
	return slices.ContainsFunc(terms, func(t workload.Term) bool { return t.Matches(labels) })
}

// answer is the result of a preemption search. It is valid for one attempt.
type answer struct {
	requests ledger.Usage
	need     []resource.FR
	victims  []preempt.Victim
	reach    trace.Reach
}

// preemption searches for victims, or returns the answer found before in the attempt: the
// question about the flavor picked last is about the whole assignment.
func (w *World) preemption(e *entry, requests ledger.Usage, need []resource.FR, placed []flavor.PlaceGroup) *answer {
	for i := range w.answers {
		if a := &w.answers[i]; a.requests.Equal(requests) && slices.Equal(a.need, need) {
			return a
		}
	}
	n := len(w.answers)
	w.answers = slices.Grow(w.answers, 1)[:n+1] // reuses its memory
	a := &w.answers[n]
	a.requests, a.need = requests.Copy(a.requests), append(a.need[:0], need...)
	w.aimVictims(e, a, placed)
	a.victims, a.reach = w.victims.Targets()
	return a
}

// aimVictims sets the search for victims to a question.
func (w *World) aimVictims(e *entry, a *answer, placed []flavor.PlaceGroup) {
	s := &w.victims
	s.Node, s.Policy, s.Preemptor, s.Replaces, s.Requests, s.Need = e.q.Node, e.q.Preemption, e.wl, e.replaces, a.requests, a.need
	if s.Standing = nil; e.q.UsageBased {
		s.Standing = w.StandingOf
	}
	s.Places = w.fitsWithPlaces(e.q, w.podSetsAt, placed)
}

// spareEarly returns the victims of the answer about a whole assignment, or others of which fewer have just started. The flavors are found without
// it: they must not depend on the time, since no wake condition does.
func (w *World) spareEarly(e *entry, a *answer) []preempt.Victim {
	if !slices.ContainsFunc(a.victims, func(v preempt.Victim) bool { return v.Workload.Early(w.round.now) }) {
		return a.victims
	}
	w.aimVictims(e, a, e.got.Placed)
	return w.victims.Spare(a.victims, w.round.now)
}

// oracle runs the whole preemption search for a flavor. spec: 10 §4.6.3, §6 #30.
func (w *World) oracle(q *flavor.Question) (flavor.Mode, trace.Reach) {
	e := w.at
	a := w.preemption(e, q.Requests, q.Need, q.Placed)
	if len(a.victims) == 0 {
		return flavor.NoCandidates, a.reach
	}
	mode := flavor.Reclaim
	mark := w.Ledger.Mark()
	defer w.Ledger.Rollback(mark)
	for _, v := range a.victims {
		if v.Node == e.q.Node && holds(v.Workload, q.Short) {
			mode = flavor.Preempt
		}
		w.Ledger.Release(v.Node, v.Workload.Usage)
	}
	for i, fr := range q.Short {
		q.Levels[i], _ = w.Quota.Level(e.q.Node, fr, q.Requests.Quota.Of(fr))
	}
	return mode, trace.Reach{}
}

// holds reports whether a workload holds any of frs.
func holds(wl *workload.Workload, frs []resource.FR) bool {
	return slices.ContainsFunc(frs, func(fr resource.FR) bool { return wl.Usage.Quota.Of(fr) > 0 })
}

// Explain evaluates a pending workload now, and decides nothing: it returns what is short, and
// what would activate it. spec: design §4.
func (w *World) Explain(wl *workload.Workload) *trace.Attempt {
	w.applyEdits()
	e := w.entry(w.Queues[wl.Queue], wl)
	w.nominate(e)
	l := w.round.record(e)
	l.Verdict, l.Reason, l.Note = trace.Waits, trace.WaitingForQuota, e.note
	switch {
	case e.barred != "":
		l.Reason = e.barred
	case e.got.Mode == flavor.NoFit:
		l.Reason = e.got.Reason
	}
	if e.barred == "" && len(l.Refusals) > 0 {
		w.wakesOn(l, w.wanted(e))
	}
	w.spare = append(w.spare, e)
	return l
}

// record starts the record of an evaluation.
func (c *round) record(e *entry) *trace.Attempt {
	l := c.blankRecord(e)
	c.detail(l, e)
	l.Start = e.q.startOf(e.wl)
	return l
}

// blankRecord is a record that only names the workload.
func (c *round) blankRecord(e *entry) *trace.Attempt {
	l := &c.w.looks.alloc(1)[0]
	l.Workload, l.UID, l.Queue, l.Priority, l.Table = e.wl.Key, e.wl.UID, e.q.Name, e.wl.Priority, c.w.Table.Frozen()
	return l
}

// detail adds the outcome of the search to a record.
func (c *round) detail(l *trace.Attempt, e *entry) {
	l.Refusals = c.w.refusals.clone(e.got.Refusals)
	if e.got.Mode == flavor.NoFit || e.barred != "" {
		return
	}
	l.PodSets = c.w.podSets.clone(e.got.PodSets)
	for i := range l.PodSets {
		l.PodSets[i].Resources = c.w.choices.clone(l.PodSets[i].Resources)
	}
}

// wanted returns what has to be available for a different outcome; nothing if there is no
// such amount. A slice that replaces another one is evaluated after every release.
func (w *World) wanted(e *entry) []workload.Want {
	w.aimSearch(e)
	w.wants = w.flavors.Wants(e.wl.PodSets, w.wants[:0])
	if e.replaces != nil {
		for i := range w.wants {
			w.wants[i].Least = 0
		}
	}
	return w.wants
}

// wakesOn adds the FRs of wants to a record, each once, sorted.
func (w *World) wakesOn(l *trace.Attempt, wants []workload.Want) {
	if len(wants) == 0 {
		return
	}
	w.frs = w.frs[:0]
	for i := range wants {
		w.frs = append(w.frs, wants[i].FR)
	}
	slices.Sort(w.frs)
	l.WakesOn = w.releases.clone(slices.Compact(w.frs))
	l.Table = w.Table.FrozenWith(l.WakesOn)
}
