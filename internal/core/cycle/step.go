package cycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Decision is a decision about a workload, for the shell to carry out or to write down.
type Decision struct {
	Workload *workload.Workload
	Queue    string
	// Admitted is the assignment, if the verdict is trace.Admitted, and Replaced the slice that
	// it replaces: that one keeps its quota until this one is admitted; then it is finished.
	Admitted *flavor.Holding
	Replaced *workload.Workload
	// Evict are the victims to evict now, without the victims of earlier decisions.
	Evict   []preempt.Victim
	Attempt *trace.Attempt
	// Recomputed is the outcome of a second search for victims, after other preemptors took the
	// first ones.
	Recomputed Recomputed
	// Gated: it would have to preempt, and a preemption gate is closed.
	Gated bool
	// SecondPass: the workload holds quota already, and this is about places for its pods. Placed is
	// its reservation with them, nil for none now; NodesFailed: then it is to be evicted. Failed are the nodes that
	// it loses. spec: 20 §4.7.4.
	SecondPass  bool
	Placed      *flavor.Holding
	NodesFailed bool
	Failed      []string
	// PassedOver: it would preempt, and other heads of this cycle took the victims or the quota.
	PassedOver bool
}

// Recomputed is the outcome of a second search for victims in one cycle. spec: 10 §5.4.
type Recomputed string

// The outcomes; "" is none.
const (
	NewTargets  Recomputed = "new_targets"
	DeferredFit Recomputed = "deferred_fit"
	Skipped     Recomputed = "skipped"
)

func (d Decision) admits() bool { return d.Admitted != nil }

// Result is the outcome of a step.
type Result struct {
	Decisions []Decision
	Heads     int              // heads of all cycles: one for each decision, and the lost ones, which were not evaluated
	Cycles    int              // cycles of independent trees that ran side by side count as one
	Admitting int              // cycles in which a workload was admitted
	Work      int              // units of work
	More      bool             // the budget ended the step, not a lack of progress
	Next      workload.Instant // when to step again at the latest, without an event; 0 is never
	Endless   []string         // cohort trees whose heads refuse each other without an end, by the first of their queues: a mistake; they rest for a second
	// Retracted are workloads that an earlier step admitted, and that are pending again: those
	// decisions are void.
	Retracted []*workload.Workload
}

// entry is one head in one cycle.
type entry struct {
	q        *Queue
	wl       *workload.Workload
	replaces *workload.Workload // the slice that it replaces, while that holds quota
	podSets  []workload.PodSet  // with the places that it keeps
	second   bool               // another slice of the job holds quota to replace one
	got      flavor.Assignment
	targets  []preempt.Victim
	barred   trace.Reason // why it is not evaluated, with note
	note     string
	blocks   bool // though barred it stays the head of its strict queue

	reserving bool // evaluated before: it only keeps its quota
	postponed bool // it fits once victims of other preemptors are gone

	recomputed Recomputed
	passedOver bool

	again      bool // a follower of it lost quota that is kept for another head in this cycle only
	keepsStart bool // it stays the workload for which its queue reserves a start
	late       bool // it is not nominated yet, see Queue.late
	lost       bool // it was late, and others took its quota: it stays inadmissible

	evictsMore bool                 // it needs more victims than its nomination has
	forecast   bool                 // a follower: no decision is made about it in this cycle
	behind     []*workload.Workload // the followers after it

	// The quota that its queue held before this cycle.
	hadNomination      *nomination
	hadHeadReservation *headReservation
}

// scratch is memory that is reused in every cycle.
type scratch struct {
	queues     []*Queue
	spare      []*entry
	round      round
	flavors    flavor.Search
	victims    preempt.Search
	fair       order.Tournament
	at         *entry // the one being nominated
	fallback   flavor.Assignment
	later      flavor.Assignment // at the start of a head
	first      flavor.Assignment
	future     []change // at work
	wants      []workload.Want
	scaled     []workload.PodSet
	podSetsAt  []workload.PodSet // of the attempt at work
	frs        []resource.FR
	answers    []answer    // of the attempt at work
	treeCycles []treeCycle // of the step

	decided  arena[Decision]
	looks    arena[trace.Attempt]
	podSets  arena[trace.PodSet]
	choices  arena[trace.Choice]
	refusals arena[trace.Refusal]
	releases arena[resource.FR]
}

// entry returns a blank entry.
func (w *World) entry(q *Queue, wl *workload.Workload) *entry {
	var e *entry
	if n := len(w.spare); n > 0 {
		e, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		e = &entry{}
	}
	*e = entry{q: q, wl: wl, got: e.got}
	e.got.Mode, e.got.Level, e.got.Reason = flavor.NoFit, 0, ""
	e.got.PodSets, e.got.Usage, e.got.Refusals, e.got.Tried = e.got.PodSets[:0], e.got.Usage.Blank(), e.got.Refusals[:0], e.got.Tried[:0]
	return e
}

// round is the state of one cycle. While it runs, the forest is without the victims of all
// nominations in its trees, and contains what is booked for the preemptors.
type round struct {
	w         *World
	now       workload.Instant
	decisions []Decision // of this cycle: one for each queue, and of followers
	entries   []*entry   // in the end, in the order of their turns
	turns     []*entry   // of a tournament, so far
	trees     []*tree    // whose nominations are booked
	victims   []removedVictim
	retracted []preempt.Victim // their admissions are retracted when the cycle ends
	booked    []booking
	skipped   []skippedHead
	passing   bool     // some quota was kept from others in this cycle only
	followers int      // how many followers of blocked heads were evaluated
	moved     []*start // behind the first ones: new, later or lost
	admitted  []*workload.Workload
	evaluated int      // how many heads were nominated
	batch     int      // how many late heads are nominated next
	next      []*entry // scratch memory of nominateNext
	ahead     lookahead
}

// run runs one cycle, and returns its decisions.
func (c *round) run(queues []*Queue) []Decision {
	c.decisions = c.w.decided.alloc(len(queues))[:0]
	c.entries, c.trees, c.skipped, c.passing, c.followers = c.entries[:0], c.trees[:0], c.skipped[:0], false, 0
	for _, q := range queues {
		q.round = c.w.cycle(q.tree)
		q.evaluated = cmp.Or(q.late, q.Pending.Head())
		q.evaluatedVersion = q.tree.version
		e := c.w.entry(q, q.evaluated)
		if q.late != nil {
			e.late, e.got.Level = true, q.lateLevel
		}
		e.hadNomination, e.hadHeadReservation = q.nomination, q.headReservation
		c.w.setHeld(q, q.nomination, nil)
		c.entries = append(c.entries, e)
	}
	c.nominateEarly()
	c.bookNominations(queues)
	if c.w.Fair != nil {
		c.tournament()
	} else {
		slices.SortFunc(c.entries, c.w.compare)
		c.handleInOrder()
	}
	c.planFurther()
	c.admitFollowers()
	c.announceStarts()
	c.undo()
	c.requeueRetracted()
	for _, l := range c.skipped {
		if c.setSkippedInadmissible(l) {
			continue
		}
		c.detail(l.record, l.entry)
		if c.passing {
			l.q.evaluated = nil
		}
	}
	for _, q := range queues {
		if q.evaluated != q.Pending.Head() {
			q.evaluated = nil
		}
		c.w.activate(q) // the line may have a new head
	}
	for _, e := range c.entries {
		if e.again {
			e.q.evaluated = nil
		}
	}
	c.w.spare = append(c.w.spare, c.entries...)
	return c.decisions
}

// handleHead is the turn of one head.
func (c *round) handleHead(e *entry) {
	if e.reserving {
		c.renewReservation(e)
		return
	}
	c.process(e)
	if s := e.q.start; s != nil && s.wl == e.wl && !e.keepsStart {
		c.w.setStart(e.q, nil)
	}
	c.announceChange(e)
}

// compare is the order of the heads: the lower borrowing level first, then as in one queue.
// spec: 10 §4.5 step 4.
func (w *World) compare(a, b *entry) int {
	if first := w.preemptorFirst(a, b); first != 0 {
		return first
	}
	switch {
	case a.got.Level != b.got.Level:
		return cmp.Compare(a.got.Level, b.got.Level)
	case w.PriorityInCohort && a.wl.Priority != b.wl.Priority:
		return cmp.Compare(b.wl.Priority, a.wl.Priority)
	case a.wl.Since != b.wl.Since:
		return cmp.Compare(a.wl.Since, b.wl.Since)
	}
	return cmp.Or(strings.Compare(a.q.Name, b.q.Name), strings.Compare(a.wl.UID, b.wl.UID))
}

func (w *World) preemptorFirst(a, b *entry) int {
	if !w.PreemptorFirst || a.preempts() == b.preempts() {
		return 0
	}
	if a.preempts() {
		return -1
	}
	return 1
}

// preempts reports whether the head waits for victims of its own.
func (e *entry) preempts() bool { return e.q.Pending.Prioritized() == e.wl }

// tournament handles the heads in the order of fair shares, which every turn changes.
// spec: 10 §4.8, 20 §4.2.
func (c *round) tournament() {
	t := &c.w.fair
	t.Reset(c.w.Ledger, order.Rules{
		PrioritizedFirst: c.w.PreemptorFirst, NonBorrowingFirst: c.w.NonBorrowingFirst, ByPriority: c.w.PriorityInCohort,
	})
	for i := range c.entries {
		c.contest(i)
	}
	c.beginForecasts()
	c.turns = c.turns[:0]
	for next, ok := t.Next(); ok; next, ok = t.Next() {
		e := c.entries[next.Entry]
		c.turns = append(c.turns, e)
		if e.forecast {
			c.foresee(e)
			continue
		}
		c.turnAhead(e)
		c.followHead(e)
	}
	c.endForecasts()
	c.entries, c.turns = c.turns, c.entries
}

// process decides about one head. spec: 10 §4.5 step 5.
func (c *round) process(e *entry) {
	c.w.bar(e)
	if e.barred != "" {
		if e.blocks || e.q.Preemptor() == e.wl { // a preemptor behind a blocking head cannot start
			c.dropNomination(e.q)
		}
		if !e.blocks {
			e.q.Pending.SetInadmissibleAlone(e.wl)
		}
		c.wait(e, e.barred, e.note)
		return
	}
	c.dropNomination(e.q)
	if c.w.RecomputeOverlap && slices.ContainsFunc(e.targets, gone) {
		c.w.renominate(e)
		e.recomputed = e.outcome()
	}
	switch {
	case e.got.Mode == flavor.NoFit:
		c.waitWithoutFlavors(e)
	case e.got.Mode == flavor.Fit && e.postponed:
		c.postpone(e)
	case e.got.Mode == flavor.Fit:
		c.admit(e)
	case len(e.targets) == 0:
		c.waitWithoutVictims(e)
	case e.wl.Gated && e.needsEvictions():
		e.wl.Scan = nil
		c.gate(e)
	default:
		c.preempt(e)
	}
}

// waitWithoutFlavors refuses a head that no flavors fit.
func (c *round) waitWithoutFlavors(e *entry) {
	if c.searchContinues(e) {
		c.wait(e, e.got.Reason, "")
		return
	}
	if e.got.Reason == trace.TopologyPlacementFailed || e.got.Reason == trace.WaitingForQuota {
		c.findStart(e)
	}
	c.setInadmissible(e, e.got.Reason, "")
}

// waitWithoutVictims refuses a head that would have to preempt and has no victims.
func (c *round) waitWithoutVictims(e *entry) {
	c.w.placeEmpty(e)
	if c.searchContinues(e) {
		if !e.q.Strict && e.q.nomination == nil {
			c.reserve(e)
		}
		c.wait(e, e.shortage(), e.note)
		return
	}
	if !c.findStart(e) {
		c.reserve(e)
	}
	c.setInadmissible(e, e.shortage(), e.note)
}

// shortage is the reason of a head that would have to preempt and has no victims: places, if it
// has enough quota.
func (e *entry) shortage() trace.Reason {
	reason := trace.Reason("")
	for i := range e.got.Refusals {
		if r := e.got.Refusals[i].Reason(); r.Severity() > reason.Severity() {
			reason = r
		}
	}
	if reason == trace.TopologyPlacementFailed {
		return reason
	}
	return trace.WaitingForQuota
}

// searchContinues reports whether a refused head has flavors left to try: then it stays
// active and is evaluated again at once. Its nomination and its head reservation stay as they
// were until it has tried all, and keep quota from later heads meanwhile: else two heads would
// cause evaluations of each other for ever. spec: 10 §4.4, §4.6.5.
func (c *round) searchContinues(e *entry) bool {
	rounds := int32(1)
	if c.w.mayResume(e) {
		rounds += e.wl.Scan.Rounds
	}
	c.remember(e)
	if e.wl.Scan == nil || rounds >= e.q.offers() {
		e.wl.Scan = nil
		return false
	}
	e.wl.Scan.Rounds = rounds
	e.q.evaluated, e.keepsStart = nil, true
	c.w.setHeld(e.q, nil, e.hadHeadReservation)
	c.restoreNomination(e)
	if had := e.hadHeadReservation; had != nil && had.wl == e.wl {
		c.keepQuota(e.q, had.level, had.usage, had.replaces)
	}
	return true
}

// offers is the number of flavors of the largest resource group: after as many evaluations
// every flavor of every group has been tried, though not in every combination.
func (q *Queue) offers() int32 {
	n := 0
	for _, g := range q.Groups {
		n = max(n, len(g.Offers))
	}
	return int32(n)
}

// outcome is the outcome of the second search for victims.
func (e *entry) outcome() Recomputed {
	switch {
	case e.postponed:
		return DeferredFit
	case e.got.Mode == flavor.Fit: // after a retraction
		return ""
	case len(e.targets) > 0:
		return NewTargets
	default:
		return Skipped
	}
}

func gone(v preempt.Victim) bool { return v.Workload.Gone }

// bar bars a slice from replacing one that is being evicted, and from being the second to
// replace one, and a variant while another one of its job is preferred.
func (w *World) bar(e *entry) {
	if e.wl.Variant {
		if note := w.Barred(e.wl); note != "" {
			e.barred, e.note = trace.PendingEvaluation, note
			return
		}
	}
	switch {
	case e.replaces == nil:
	case e.replaces.Evicting:
		e.barred, e.note = trace.WaitingForQuota, "the slice of its job that it is to replace is being stopped"
	case e.second:
		e.barred, e.note = trace.WaitingForQuota, "another slice of its job has quota, and waits to be admitted"
	}
}

// gate refuses a head that would have to preempt and may not. spec: 10 §4.5 step 5f.
func (c *round) gate(e *entry) {
	record := c.record(e)
	record.Verdict, record.Reason = trace.Waits, trace.PendingEvaluation
	record.Note = fmt.Sprintf("it would have to preempt %d of the workloads in its way, and one of its preemption gates is closed", len(e.targets))
	if !e.q.Strict {
		c.w.setInadmissible(e.q, e.wl, c.w.wanted(e))
	}
	c.decide(e, Decision{Gated: true, Attempt: record})
}

// setInadmissible refuses the head. It becomes inadmissible, unless its queue is strict: then
// it stays and blocks.
func (c *round) setInadmissible(e *entry, reason trace.Reason, note string) {
	record := c.record(e)
	record.Verdict, record.Reason, record.Note = trace.Waits, reason, note
	wants := c.w.wanted(e)
	c.w.wakesOn(record, wants)
	if !e.q.Strict {
		c.w.setInadmissible(e.q, e.wl, wants)
	}
	c.decide(e, Decision{Attempt: record})
}

// remember stores where the search for flavors resumes. spec: 10 §4.6.5.
func (c *round) remember(e *entry) {
	if len(e.got.Tried) == 0 || c.w.FungibilityOff {
		e.wl.Scan = nil
		return
	}
	scan := &struct {
		workload.Scan
		tried [2]workload.Tried
	}{Scan: workload.Scan{Cycle: c.w.cycle(e.q.tree), Generation: c.w.Quota.Generation(e.q.Node)}}
	scan.Tried = append(scan.tried[:0], e.got.Tried...)
	e.wl.Scan = &scan.Scan
}

func (c *round) wait(e *entry, reason trace.Reason, note string) {
	record := c.record(e)
	record.Verdict, record.Reason, record.Note = trace.Waits, reason, note
	c.decide(e, Decision{Attempt: record})
}

func (c *round) decide(e *entry, d Decision) {
	d.Workload, d.Queue, d.Recomputed, d.PassedOver = e.wl, e.q.Name, e.recomputed, e.passedOver
	c.decisions = append(c.decisions, d)
}

// skip leaves the head in place, with its nomination, since other heads took the quota. It is
// evaluated again when the quota that they hold changes.
func (c *round) skip(e *entry, why skipped) {
	c.restoreNomination(e)
	e.keepsStart = true
	if c.w.KeepScan {
		c.remember(e)
	} else {
		e.wl.Scan = nil
	}
	record := c.blankRecord(e)
	record.Verdict, record.Reason, record.Note = trace.Waits, why.reason, why.note
	c.skipped = append(c.skipped, skippedHead{e, record})
	c.decide(e, Decision{Attempt: record})
}

// skipped is why a head was skipped.
type skipped struct {
	reason trace.Reason
	note   string
}

// lost is that other heads took the quota of a nomination or, if that still fits without its places, these.
func lost(e *entry, fits func(ledger.Usage) bool) skipped {
	if e.got.Usage.Shares() && fits(ledger.Usage{Quota: e.got.Usage.Quota}) {
		return skipped{trace.TopologyPlacementFailed, "its places on nodes were given to another workload first"}
	}
	return skipped{trace.WaitingForQuota, "quota was given to another workload first"}
}

// skippedHead is a head that was skipped, with its incomplete record.
type skippedHead struct {
	*entry
	record *trace.Attempt
}

// setSkippedInadmissible makes a skipped head inadmissible if the quota left is too little for
// it. Another evaluation would find just that, so the record is completed accordingly.
func (c *round) setSkippedInadmissible(l skippedHead) bool {
	if l.q.Strict || l.q.Backfill != NoBackfill || l.q.holdsQuota() || l.preempts() {
		return false
	}
	wants := c.w.wanted(l.entry)
	if !order.Lacks(l.wl, wants, &l.q.now) {
		return false
	}
	c.w.wakesOn(l.record, wants)
	c.w.setInadmissible(l.q, l.wl, wants)
	l.wl.Scan = nil
	c.w.nominate(l.entry)
	l.record.Refusals, l.record.Note = c.w.refusals.clone(l.got.Refusals), l.note
	if l.got.Mode == flavor.NoFit {
		l.record.Reason = l.got.Reason
	}
	return true
}

// admit charges the head, if its quota is free: neither held for a preemptor, nor still in use
// by a victim.
func (c *round) admit(e *entry) {
	fits := func(u ledger.Usage) bool { return c.fits(e.q, u, e.replaces) && c.fitsForReal(e, u) }
	if !fits(e.got.Usage) && !c.fitsWhenDue(e) && !c.placeAgain(e) {
		c.skip(e, lost(e, fits))
		return
	}
	by, ahead := c.heldInAll(e)
	if by != nil {
		c.holdBack(e, by)
		return
	}
	w := c.w
	if w.BlockAdmission && w.unready > 0 {
		c.book(e.q, e.got.Usage, e.replaces)
		c.wait(e, trace.WaitingForPodsReady, "no workload is admitted before all that hold quota are ready (waitForPodsReady.blockAdmission)")
		return
	}
	if e.wl.Variant {
		if leaving := w.Migrating(e.wl); len(leaving) > 0 {
			c.migrate(e, leaving)
			return
		}
	}
	e.q.Pending.Remove(e.wl)
	e.q.dropFurther(e.wl)
	e.wl.Scan = nil
	d := Decision{Admitted: e.got.Holding(), Attempt: c.blankRecord(e)}
	d.Attempt.Verdict, d.Attempt.Refusals, d.Attempt.PodSets = trace.Admitted, w.refusals.clone(e.got.Refusals), d.Admitted.PodSets
	if ahead {
		d.Attempt.Note = c.backfilled(e.wl)
	}
	e.wl.Usage, e.wl.ReservedAt, e.wl.Evicting = d.Admitted.Usage, c.now, false
	if e.replaces != nil && e.replaces.Reserved && !c.isRetracted(e.replaces) {
		d.Replaced = e.replaces
		e.wl.Usage = e.wl.Usage.Beyond(e.replaces.Usage)
	}
	w.Reserve(e.wl)
	c.admitted, w.gained = append(c.admitted, e.wl), w.gained+1
	w.setTentative(e.wl)
	w.assumed(e.q, e.wl, true)
	c.decide(e, d)
}

// fitsForReal reports whether the head fits while all victims still hold their quota.
func (c *round) fitsForReal(e *entry, usage ledger.Usage) bool {
	if len(c.victims) == 0 {
		return true
	}
	mark := c.w.Ledger.Mark()
	defer c.w.Ledger.Rollback(mark)
	c.endBookings()
	return c.fits(e.q, usage, e.replaces)
}
