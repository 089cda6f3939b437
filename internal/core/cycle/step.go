package cycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Decision is what the shell has to carry out, or to write down, about a workload.
type Decision struct {
	Workload *workload.Workload
	Queue    string
	// Admitted is what it gets, when the verdict is trace.Admitted, and Replaced the slice
	// whose place it takes: that one holds what it holds until this one has passed its
	// checks, and is to be finished then.
	Admitted *flavor.Holding
	Replaced *workload.Workload
	// Evict are the victims to be told to go now; those told before are left out.
	Evict []preempt.Victim
	Look  *trace.Look
	// Recomputed is what came of a second look for victims, since others took the first ones.
	Recomputed Recomputed
	// Gated: it would have to preempt, and may not before its gates are open.
	Gated bool
	// PassedOver: it would preempt, and others of this cycle took the victims or the quota.
	PassedOver bool
}

// Recomputed is what came of a second look for victims in one cycle. spec: 10 §5.4.
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
	Cycles    int
	Admitting int              // cycles in which somebody was admitted
	More      bool             // the budget ended the step, not a lack of progress
	Next      workload.Instant // when to step again at the latest, without an event; 0 is never
}

// Step runs cycles until no head has anything new to try, at most budget of them.
// Admitted workloads are charged at once, as if their admission were written
// already; Release undoes that.
//
// Trees have nothing to do with each other, so each comes to its end before the next one
// begins, while the processor still has at hand what was looked at last. Decisions come
// by cycle all the same, those of one cycle by tree. Where nobody is admitted as long as
// somebody is not ready, trees do matter to each other, and take their turns together.
func (w *World) Step(now workload.Instant, budget int) Result {
	w.settle()
	w.checkClaims()
	var r Result
	w.expireClaims(now)
	r.Next = w.wakeEdited(now)
	w.round.now, w.turns = now, w.turns[:0]
	if w.BlockAdmission {
		r.Cycles, r.More = w.run(&w.touched, budget)
	} else {
		first := w.cycles
		slices.SortFunc(w.touched, func(a, b *tree) int { return strings.Compare(a.name, b.name) })
		for i := range w.touched {
			t := w.touched[i : i+1]
			w.cycles = first
			cycles, more := w.run(&t, budget)
			r.Cycles, r.More = max(r.Cycles, cycles), r.More || more
		}
		w.cycles = first + uint64(r.Cycles)
	}
	w.touched = slices.DeleteFunc(w.touched, func(t *tree) bool { return !t.touched })
	r.Next = earlier(r.Next, w.expireClaims(now))
	r.Decisions, r.Admitting = w.inOrder()
	return r
}

// run runs cycles of trees. It tells how many those were, and whether the budget ended
// them.
func (w *World) run(trees *[]*tree, budget int) (cycles int, more bool) {
	for {
		queues := w.ready(*trees)
		if len(queues) == 0 || cycles == budget {
			for _, t := range *trees {
				t.touched = len(queues) > 0
			}
			return cycles, len(queues) > 0
		}
		cycles++
		w.cycles++
		w.turns = append(w.turns, turn{w.cycles, w.round.run(queues)})
	}
}

// turn is one cycle of a tree, and the decisions that were made in it.
type turn struct {
	cycle     uint64
	decisions []Decision
}

// inOrder hands out the decisions by cycle, and in how many cycles somebody was admitted.
func (w *World) inOrder() (decisions []Decision, admitting int) {
	slices.SortStableFunc(w.turns, func(a, b turn) int { return cmp.Compare(a.cycle, b.cycle) })
	n, last := 0, uint64(0) // cycle that admitted
	for _, t := range w.turns {
		n += len(t.decisions)
		if t.cycle != last && slices.ContainsFunc(t.decisions, Decision.admits) {
			last = t.cycle
			admitting++
		}
	}
	decisions = make([]Decision, 0, n)
	for _, t := range w.turns {
		decisions = append(decisions, t.decisions...)
	}
	clear(w.turns)
	return decisions, admitting
}

// entry is one head in one cycle.
type entry struct {
	q       *Queue
	wl      *workload.Workload
	before  *workload.Workload // the slice whose place it takes, while that holds quota
	second  bool               // another slice of the job has quota to take a place
	got     flavor.Assignment
	targets []preempt.Victim
	barred  trace.Reason // why it is not looked at, with note
	note    string
	blocks  bool // though barred it stays the head, since its queue is strict

	standing  bool // looked at before, and here only to keep its quota
	postponed bool // it fits once the victims of others are gone

	recomputed Recomputed
	passedOver bool

	evictsMore bool                 // it needs victims that it was not promised before
	forecast   bool                 // it is a follower, about which nothing is decided in this cycle
	behind     []*workload.Workload // who comes after it

	// What its queue held before this cycle.
	hadClaim *claim
	hadStand *stand
}

// scratch is memory that is used again in every cycle.
type scratch struct {
	queues   []*Queue
	spare    []*entry
	round    round
	flavors  flavor.Search
	victims  preempt.Search
	fair     order.Tournament
	at       *entry // the one being nominated
	fallback flavor.Assignment
	first    flavor.Assignment
	wants    []workload.Want
	scaled   []workload.PodSet
	frs      []resource.FR
	answers  []answer // of the attempt at work
	turns    []turn   // of the step

	decided  slab[Decision]
	looks    slab[trace.Look]
	podSets  slab[trace.PodSet]
	choices  slab[trace.Choice]
	refusals slab[trace.Refusal]
	releases slab[resource.FR]
}

// entry takes an entry from the spare ones.
func (w *World) entry(q *Queue, wl *workload.Workload) *entry {
	var e *entry
	if n := len(w.spare); n > 0 {
		e, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		e = &entry{}
	}
	*e = entry{q: q, wl: wl, got: e.got}
	e.got.Mode, e.got.Level, e.got.Reason = flavor.NoFit, 0, ""
	e.got.PodSets, e.got.Usage, e.got.Refusals, e.got.Tried = e.got.PodSets[:0], e.got.Usage[:0], e.got.Refusals[:0], e.got.Tried[:0]
	return e
}

// round is the state of one cycle. While it runs, the victims of every claim in the
// trees at hand are out of the forest, and what is booked for the heirs is in.
type round struct {
	w         *World
	now       workload.Instant
	decisions []Decision // of this cycle, one for each queue
	entries   []*entry
	trees     []*tree // whose claims are booked
	victims   []leaver
	booked    []booking
	skipped   []loser
	passing   bool // something was kept from others in this cycle only
	ahead     lookahead
}

// run runs one cycle, and returns its decisions.
func (c *round) run(queues []*Queue) []Decision {
	c.decisions = c.w.decided.take(len(queues))[:0]
	c.entries, c.trees, c.skipped, c.passing = c.entries[:0], c.trees[:0], c.skipped[:0], false
	for _, q := range queues {
		q.round = c.w.cycles
		q.looked = q.Pending.Head()
		q.lookedVersion = q.tree.version
		e := c.w.entry(q, q.looked)
		e.hadClaim, e.hadStand = q.claim, q.stand
		c.w.keep(q, q.claim, nil)
		c.entries = append(c.entries, e)
	}
	for _, e := range c.entries {
		c.w.nominate(e)
	}
	c.bookClaims(queues)
	if c.w.Fair != nil {
		c.tournament()
	} else {
		slices.SortFunc(c.entries, c.w.compare)
		for _, e := range c.entries {
			c.turn(e)
		}
	}
	c.undo()
	for _, l := range c.skipped {
		if c.parkLoser(l) {
			continue
		}
		c.detail(l.look, l.entry)
		if c.passing {
			l.q.looked = nil
		}
	}
	for _, q := range queues {
		if q.looked != q.Pending.Head() {
			q.looked = nil
		}
		c.w.rouse(q) // the line may have a new head
	}
	c.w.spare = append(c.w.spare, c.entries...)
	return c.decisions
}

// turn gives one head its turn.
func (c *round) turn(e *entry) {
	if e.standing {
		c.keepOn(e)
		return
	}
	c.process(e)
	c.settle(e)
}

// compare is the order of the heads: who borrows less, then as in one queue.
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
func (e *entry) preempts() bool { return e.q.Pending.Sticky() == e.wl }

// tournament gives the heads their turns by fair share, which every turn changes.
// spec: 10 §4.8, 20 §4.2.
func (c *round) tournament() {
	t := &c.w.fair
	t.Reset(c.w.Quota, order.Rules{
		StickyFirst: c.w.PreemptorFirst, NonBorrowingFirst: c.w.NonBorrowingFirst, ByPriority: c.w.PriorityInCohort,
	})
	for i := range c.entries {
		c.contest(i)
	}
	c.beginForecasts()
	for next, ok := t.Next(); ok; next, ok = t.Next() {
		e := c.entries[next.Entry]
		if e.forecast {
			c.foresee(e)
			continue
		}
		c.turnAhead(e)
		c.followHead(e)
	}
	c.endForecasts()
}

// process decides about one head. spec: 10 §4.5 step 5.
func (c *round) process(e *entry) {
	e.bar()
	if e.barred != "" {
		if e.blocks || e.q.Heir() == e.wl { // an heir behind a head that blocks cannot start
			c.dropClaim(e.q)
		}
		if !e.blocks {
			e.q.Pending.SetAside(e.wl)
		}
		c.wait(e, e.barred, e.note)
		return
	}
	c.dropClaim(e.q)
	if c.w.RecomputeOverlap && slices.ContainsFunc(e.targets, gone) {
		c.w.renominate(e)
		e.recomputed = e.outcome()
	}
	switch {
	case e.got.Mode == flavor.NoFit:
		if c.goesOn(e) {
			c.wait(e, e.got.Reason, "")
			return
		}
		c.park(e, e.got.Reason, "")
	case e.got.Mode == flavor.Fit && e.postponed:
		c.postpone(e)
	case e.got.Mode == flavor.Fit:
		c.admit(e)
	case len(e.targets) == 0:
		c.without(e)
	case e.wl.Gated:
		e.wl.Scan = nil
		c.gate(e)
	default:
		c.preempt(e)
	}
}

// without deals with a head that would have to preempt, and finds nobody.
func (c *round) without(e *entry) {
	if c.goesOn(e) {
		if !e.q.Strict {
			c.reserve(e)
		}
		c.wait(e, trace.WaitingForQuota, e.note)
		return
	}
	c.reserve(e)
	c.park(e, trace.WaitingForQuota, e.note)
}

// goesOn reports whether a head that cannot be admitted has flavors left that it has not
// tried: then it stays active and is looked at again at once. What it stands for remains
// as it was until it has come to the end: else two heads that try their flavors in turn
// would have each other looked at for ever. spec: 10 §4.4, §4.6.5.
func (c *round) goesOn(e *entry) bool {
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
	e.q.looked = nil
	c.w.keep(e.q, e.q.claim, e.hadStand)
	return true
}

// offers is the number of flavors of the largest resource group: in as many looks every
// flavor of every group has been tried, though not in every combination.
func (q *Queue) offers() int32 {
	n := 0
	for _, g := range q.Groups {
		n = max(n, len(g.Offers))
	}
	return int32(n)
}

// outcome is what came of the second look for victims.
func (e *entry) outcome() Recomputed {
	switch {
	case e.postponed:
		return DeferredFit
	case len(e.targets) > 0:
		return NewTargets
	default:
		return Skipped
	}
}

func gone(v preempt.Victim) bool { return v.Workload.Gone }

// bar keeps a slice from taking the place of one that was told to go: by others in an
// earlier cycle, or in this one; and from being the second to take a place.
func (e *entry) bar() {
	switch {
	case e.before == nil:
	case e.before.Evicting:
		e.barred, e.note = trace.WaitingForQuota, "the slice of its job that it is to replace is being stopped"
	case e.second:
		e.barred, e.note = trace.WaitingForQuota, "another slice of its job has quota, and waits to be admitted"
	}
}

// gate sets aside a head that would have to preempt and may not. spec: 10 §4.5 step 5f.
func (c *round) gate(e *entry) {
	look := c.look(e)
	look.Verdict, look.Reason = trace.Waits, trace.PendingEvaluation
	look.Note = fmt.Sprintf("it would have to preempt %d of the workloads in its way, and one of its preemption gates is closed", len(e.targets))
	if !e.q.Strict {
		e.q.Pending.Park(e.wl, c.w.wanted(e))
	}
	c.decide(e, Decision{Gated: true, Look: look})
}

// park sets the head aside where others may pass it; in a strict queue it stays and
// blocks.
func (c *round) park(e *entry, reason trace.Reason, note string) {
	look := c.look(e)
	look.Verdict, look.Reason, look.Note = trace.Waits, reason, note
	wants := c.w.wanted(e)
	c.w.wakesOn(look, wants)
	if !e.q.Strict {
		e.q.Pending.Park(e.wl, wants)
	}
	c.decide(e, Decision{Look: look})
}

// remember keeps where the search for flavors is to go on. spec: 10 §4.6.5.
func (c *round) remember(e *entry) {
	if len(e.got.Tried) == 0 || c.w.FungibilityOff {
		e.wl.Scan = nil
		return
	}
	scan := &struct {
		workload.Scan
		tried [2]workload.Tried
	}{Scan: workload.Scan{Cycle: c.w.cycles, Generation: c.w.Quota.Generation(e.q.Node)}}
	scan.Tried = append(scan.tried[:0], e.got.Tried...)
	e.wl.Scan = &scan.Scan
}

func (c *round) wait(e *entry, reason trace.Reason, note string) {
	look := c.look(e)
	look.Verdict, look.Reason, look.Note = trace.Waits, reason, note
	c.decide(e, Decision{Look: look})
}

func (c *round) decide(e *entry, d Decision) {
	d.Workload, d.Queue, d.Recomputed, d.PassedOver = e.wl, e.q.Name, e.recomputed, e.passedOver
	c.decisions = append(c.decisions, d)
}

// skip leaves the head where it is, with its claim: others came first. It is looked
// at again as soon as what they took or keep is another amount.
func (c *round) skip(e *entry, note string) {
	c.keepClaim(e)
	if c.w.KeepScan {
		c.remember(e)
	} else {
		e.wl.Scan = nil
	}
	look := c.blank(e)
	look.Verdict, look.Reason, look.Note = trace.Waits, trace.WaitingForQuota, note
	c.skipped = append(c.skipped, loser{e, look})
	c.decide(e, Decision{Look: look})
}

// loser is a head that was skipped, with the record of it, which is not complete yet.
type loser struct {
	*entry
	look *trace.Look
}

// parkLoser sets a head that was skipped aside if all that others left is too little for
// it. To look again in another cycle would find that and nothing else, so the record is
// made what it would be then.
func (c *round) parkLoser(l loser) bool {
	if l.q.Strict || l.q.keeps() || l.preempts() {
		return false
	}
	wants := c.w.wanted(l.entry)
	if !order.Lacks(l.wl, wants, &l.q.now) {
		return false
	}
	c.w.wakesOn(l.look, wants)
	l.q.Pending.Park(l.wl, wants)
	l.wl.Scan = nil
	c.w.nominate(l.entry)
	l.look.Refusals, l.look.Note = c.w.refusals.clone(l.got.Refusals), l.note
	if l.got.Mode == flavor.NoFit {
		l.look.Reason = l.got.Reason
	}
	return true
}

// admit charges the head, if what is free now is free for it: neither claimed for
// somebody, nor still held by somebody who was told to go.
func (c *round) admit(e *entry) {
	if !c.fits(e.q, e.got.Usage, e.before) || !c.fitsForReal(e) {
		c.skip(e, "quota was given to another workload first")
		return
	}
	w := c.w
	if w.BlockAdmission && w.unready > 0 {
		c.book(e.q, e.got.Usage, e.before)
		c.wait(e, trace.WaitingForPodsReady, "no workload is admitted before all that hold quota are ready (waitForPodsReady.blockAdmission)")
		return
	}
	e.q.Pending.Remove(e.wl)
	e.wl.Scan = nil
	d := Decision{Admitted: e.got.Holding(), Look: c.blank(e)}
	d.Look.Verdict, d.Look.Refusals, d.Look.PodSets = trace.Admitted, w.refusals.clone(e.got.Refusals), d.Admitted.PodSets
	e.wl.Usage, e.wl.ReservedAt, e.wl.Evicting = d.Admitted.Usage, c.now, false
	if e.before != nil && e.before.Reserved {
		d.Replaced = e.before
		e.wl.Usage = e.wl.Usage.Beyond(e.before.Usage)
	}
	w.Reserve(e.wl)
	c.decide(e, d)
}

// fitsForReal reports whether the head fits while all victims are still there.
func (c *round) fitsForReal(e *entry) bool {
	if len(c.victims) == 0 {
		return true
	}
	f := c.w.Quota
	mark := f.Mark()
	defer f.Rollback(mark)
	for _, b := range c.booked {
		f.Release(b.q.Node, b.usage)
	}
	for _, v := range c.victims {
		f.Charge(v.Node, v.Workload.Usage)
	}
	return c.fits(e.q, e.got.Usage, e.before)
}
