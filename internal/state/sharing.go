package state

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/workload"
)

// Every LocalQueue has an account of its past usage, with which the standing of its line is computed. An account is due for a sample
// once an interval, while the LocalQueue uses something or has used something that is not forgotten: the others cost nothing.
//
//	SetUsage ─► account ◄─ penalties: pushed by an admission, dropped, or settled when the workload is Admitted
//	                │ ▲
//	                │ └─── SampleUsage, for the accounts in accounts.due
//	                ▼
//	             standing

// accounts are the accounts that are sampled.
type accounts struct {
	due     []*localQueue    // in a line, by the time of their last sample
	woken   []*localQueue    // to be in line from the next sample on
	sampled workload.Instant // the time of the last sample
	clock   workload.Instant // the latest time that an event contained, unless the clock was set back
	usage   []sharing.Used   // scratch memory of sample
}

// account is the ledger of a LocalQueue, and its place in accounts.
type account struct {
	sharing.Account
	last   workload.Instant // the time from which its next sample is due, an interval later
	queued bool             // it is in accounts.due
	woken  bool             // it is in accounts.woken
	seeded workload.Instant // the time of the status that it begins with, 0 for none
	view   *sharing.Usage   // the published one, nil if it has changed
}

// standingOf returns a standing in the order of values, which are not negative.
func standingOf(value float64) order.Standing {
	return order.Standing(math.Float64bits(max(0, value)))
}

func (e SetUsage) apply(s *State) {
	l := s.localQueues[e.key()]
	if l == nil || !l.exists || l.account.At != 0 {
		return
	}
	consumed := slices.Clone(e.Consumed)
	slices.SortFunc(consumed, func(a, b sharing.Used) int { return strings.Compare(a.Resource, b.Resource) })
	l.account.seeded = e.At
	l.account.Consumed = consumed
	s.weigh(l)
}

func (e *SetUsage) key() Name { return Name{e.Namespace, e.Name} }

func (e SampleUsage) apply(s *State) {
	rates := s.options.Sharing
	if rates == nil {
		return
	}
	s.countTouched()
	if e.Now < s.accounts.clock-rates.Interval {
		s.turnBack(e.Now)
	}
	s.accounts.clock = max(s.accounts.clock, e.Now)
	s.wakeAccounts(s.accounts.sampled)
	s.accounts.sampled = s.accounts.clock
	taken := 0
	for taken < len(s.accounts.due) && taken < e.Max && s.accounts.due[taken].account.last+rates.Interval <= s.accounts.clock {
		taken++
	}
	again := s.accounts.due[:taken:taken]
	s.accounts.due = s.accounts.due[taken:]
	slices.SortFunc(again, func(a, b *localQueue) int { return a.name.compare(b.name) }) // which the read model needs; most often they are
	for _, l := range again {
		l.account.queued = false
		s.sample(l)
	}
}

// turnBack follows a clock that was set back by more than an interval: accounts go on from now, instead of waiting for the former time.
func (s *State) turnBack(now workload.Instant) {
	s.accounts.clock, s.accounts.sampled = now, min(s.accounts.sampled, now)
	for _, l := range slices.SortedFunc(maps.Values(s.localQueues), func(a, b *localQueue) int { return a.name.compare(b.name) }) {
		if l.account.last = min(l.account.last, now); l.account.At > now {
			l.account.At = now
			s.restand(l)
		}
	}
}

// wakeAccounts begins the accounts of new LocalQueues, and puts those in line that use something again: their usage has been zero until
// the last sample.
func (s *State) wakeAccounts(sampled workload.Instant) {
	woken := s.accounts.woken
	s.accounts.woken = nil
	slices.SortFunc(woken, func(a, b *localQueue) int { return a.name.compare(b.name) })
	for _, l := range woken {
		l.account.woken = false
		switch {
		case !l.exists || l.account.queued:
		case l.account.At == 0:
			s.begin(l)
		case l.figures.admitted > 0:
			l.account.At = max(l.account.At, sampled)
			s.line(l, l.account.At)
		}
	}
}

// begin starts the clock of an account. Of what the time before has left behind, only the status that it was seeded with counts, and
// penalties: a workload that is not Admitted yet owes it, and one that holds quota since after that status does not yet show there.
func (s *State) begin(l *localQueue) {
	now := s.accounts.clock
	l.account.At = now
	if s.usageBased(l) != nil {
		for r := range s.recordsOf(l) {
			if r.in == nil || !r.def.Reserved || r.def.Evicting || l.account.Owes(r.uid()) {
				continue
			}
			settled := l.account.seeded == 0 || r.def.ReservedAt <= l.account.seeded
			if r.def.Admitted && settled {
				continue
			}
			l.account.PushPenalty(s.options.Sharing, r.uid(), s.usageOf(r.wl))
			if r.def.Admitted {
				l.account.SettlePenalty(s.options.Sharing, now, nil, r.uid())
			}
		}
	}
	l.account.seeded = 0
	s.line(l, now-phase(l.name, s.options.Sharing.Interval)) // so that not all are due at once
	s.weigh(l)
}

// phase returns a part of an interval, which differs between LocalQueues.
func phase(n Name, interval workload.Instant) workload.Instant {
	h := uint64(14695981039346656037) // FNV-1a
	for _, c := range []byte(n.Namespace + "/" + n.Name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return workload.Instant(h % uint64(max(1, interval)))
}

// line puts an account in line for its next sample.
func (s *State) line(l *localQueue, last workload.Instant) {
	if !l.account.queued {
		l.account.queued, l.account.last = true, last
		s.accounts.due = append(s.accounts.due, l)
	}
}

// sample counts the usage of a LocalQueue. Without any, and with nothing left of that before, it leaves the line.
func (s *State) sample(l *localQueue) {
	if !l.exists {
		return
	}
	s.accounts.usage = l.figures.usage(s.accounts.usage[:0])
	l.account.Sample(s.options.Sharing, s.accounts.clock, s.accounts.usage)
	if len(l.account.Consumed) > 0 || l.figures.admitted > 0 {
		s.line(l, s.accounts.clock)
	}
	s.weigh(l)
}

// usage appends the usage of the admitted workloads to an empty list, by resource.
func (f *figures) usage(out []sharing.Used) []sharing.Used {
	if f.sums == nil || f.admitted == 0 {
		return out
	}
	for i := range f.sums.held {
		h := &f.sums.held[i]
		if h.admitted == 0 {
			continue
		}
		out = append(out, sharing.Used{Resource: h.Resource, Amount: sharing.In(h.Resource, h.used.amount())})
	}
	slices.SortStableFunc(out, func(a, b sharing.Used) int { return strings.Compare(a.Resource, b.Resource) })
	return slices.CompactFunc(sumAdjacent(out), func(a, b sharing.Used) bool { return a.Resource == b.Resource })
}

// sumAdjacent adds to the first of several entries of one resource the others.
func sumAdjacent(all []sharing.Used) []sharing.Used {
	first := 0
	for i := 1; i < len(all); i++ {
		if all[i].Resource == all[first].Resource {
			all[first].Amount += all[i].Amount
		} else {
			first = i
		}
	}
	return all
}

// wake makes the next sample look at an account.
func (s *State) wake(l *localQueue) {
	if s.options.Sharing != nil && !l.account.woken && !l.account.queued {
		l.account.woken = true
		s.accounts.woken = append(s.accounts.woken, l)
	}
}

// weigh computes the standing of a LocalQueue after a change of its account or of its weight.
func (s *State) weigh(l *localQueue) {
	s.restand(l)
	s.rank(l)
}

// restand is weigh without telling the world.
func (s *State) restand(l *localQueue) {
	l.account.view = nil
	s.see(&l.seen)
	s.read.see(&l.seen)
	l.standing = standingOf(l.account.Value(s.options.Sharing, l.def.UsageWeight()))
}

// UsageWeight returns the number by which usage is divided.
func (l *LocalQueue) UsageWeight() float64 {
	if l.Weight < 0 {
		return 0
	}
	return cmp.Or(l.Weight, 1)
}

// usageOf returns the usage of a workload, by resource.
func (s *State) usageOf(w *workload.Workload) []sharing.Request {
	byName := map[string]resource.Amount{}
	for _, e := range w.Usage.Quota {
		name := s.world.Table.Pair(e.FR).Resource
		byName[name] = byName[name].Add(e.Amount)
	}
	out := make([]sharing.Request, 0, len(byName))
	for name, amount := range byName { //berth:unordered sorted below
		out = append(out, sharing.Request{Resource: name, Amount: amount})
	}
	slices.SortFunc(out, func(a, b sharing.Request) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}

// assume is told by a cycle of an admission in a UsageBased queue, or that one is retracted. It returns the standing of the line from now on.
func (s *State) assume(w *workload.Workload, admitted bool) (order.Standing, bool) {
	r := s.byNumber.record(w.Record)
	l := r.lq
	if s.options.Sharing == nil || l.ranked == nil {
		return 0, false
	}
	if admitted {
		l.account.PushPenalty(s.options.Sharing, w.UID, s.usageOf(w))
	} else if !l.account.DropPenalty(w.UID) {
		return 0, false
	}
	s.restand(l)
	s.showStanding(l, l.ranked)
	return l.standing, true
}

// settleUsage updates the penalty of a record before its definition is replaced. An eviction alone does not end a penalty: the workload
// returns to its line. spec: 20 §4.4.
func (s *State) settleUsage(r *record, def *Workload) {
	if s.options.Sharing == nil || r.lq == nil || !r.lq.account.Owes(r.uid()) {
		return
	}
	switch {
	case def.LocalQueue != r.lq.name.Name, !def.Reserved && !def.Queueable:
		s.dropPenalty(r)
	case def.Admitted && !def.Evicting:
		s.countTouched() // the usage before it is admitted
		l := r.lq
		if !l.account.queued { // its usage has been zero until the last sample
			l.account.At = max(l.account.At, s.accounts.sampled)
		}
		l.account.SettlePenalty(s.options.Sharing, s.accounts.clock, l.figures.usage(nil), r.uid())
		s.line(l, s.accounts.sampled)
		s.weigh(l)
	}
}

// dropPenalty drops the penalty of a record, if it has one, before it leaves its LocalQueue, or because its admission is void.
func (s *State) dropPenalty(r *record) {
	if l := r.lq; l != nil && l.account.DropPenalty(r.uid()) {
		s.weigh(l)
	}
}

// usage returns the published usage of a LocalQueue, nil without a sample or without admission fair sharing.
func (l *localQueue) usage(rates *sharing.Rates) *sharing.Usage {
	if rates == nil {
		return nil
	}
	if a := &l.account; a.view == nil {
		a.view = &sharing.Usage{Consumed: a.Consumed, At: a.At, Value: a.Value(rates, l.def.UsageWeight()), Penalties: a.Penalties()}
	}
	return l.account.view
}

// Usage returns the past usage of a LocalQueue; nil if there is no such LocalQueue, or no admission fair sharing.
func (m *Model) Usage(namespace, name string) *sharing.Usage {
	if l := m.localQueue(Name{namespace, name}); l != nil {
		return l.usage
	}
	return nil
}

// forgetUsage drops the account of a LocalQueue.
func (s *State) forgetUsage(l *localQueue) {
	is := func(o *localQueue) bool { return o == l }
	if l.account.queued {
		s.accounts.due = slices.DeleteFunc(slices.Clone(s.accounts.due), is)
	}
	if l.account.woken {
		s.accounts.woken = slices.DeleteFunc(s.accounts.woken, is)
	}
	l.account, l.standing = account{}, 0
}

// heldStanding returns the standing of the LocalQueue of a workload with a reservation, by which a UsageBased queue chooses victims.
func (s *State) heldStanding(w *workload.Workload) order.Standing {
	if r := s.byNumber.record(w.Record); r != nil && r.lq != nil && r.lq.exists {
		return r.lq.standing
	}
	return 0
}

func (s *State) usageMemory() sharing.Memory {
	m := sharing.Memory{Sampled: s.accounts.sampled, Clock: s.accounts.clock}
	if s.options.Sharing == nil {
		m.Clock = 0 // it has no effect
	}
	rest := s.matchingLocalQueues(func(l *localQueue) bool {
		a := &l.account
		return l.exists && !a.queued && (a.At != 0 || len(a.Consumed) > 0 || a.Penalties() > 0)
	})
	if len(s.accounts.due)+len(rest) == 0 {
		return m
	}
	m.Accounts = make([]sharing.AccountMemory, 0, len(s.accounts.due)+len(rest))
	for _, some := range [][]*localQueue{s.accounts.due, rest} {
		for _, l := range some {
			m.Accounts = append(m.Accounts, l.account.memory(l.name))
		}
	}
	return m
}

func (a *account) memory(of Name) sharing.AccountMemory {
	out := sharing.AccountMemory{Namespace: of.Namespace, Name: of.Name, At: a.At, Last: a.last, Queued: a.queued, Seeded: a.seeded, Consumed: a.Consumed}
	if a.Penalties() == 0 {
		return out
	}
	for _, uid := range a.Debtors() {
		out.Penalties = append(out.Penalties, sharing.PenaltyMemory{UID: uid, Requests: a.Penalty(uid)})
	}
	return out
}

// usageInOrder returns the accounts of a checkpoint: those in line first, the others by name.
func (c *Checkpoint) usageInOrder() sharing.Memory {
	m := c.usage
	m.Accounts = slices.Clone(m.Accounts)
	rest := m.Accounts
	for len(rest) > 0 && rest[0].Queued {
		rest = rest[1:]
	}
	slices.SortFunc(rest, func(a, b sharing.AccountMemory) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return m
}

// restoreUsage restores the accounts, once the LocalQueues exist.
func (s *State) restoreUsage(m *sharing.Memory) {
	s.accounts.sampled, s.accounts.clock = m.Sampled, m.Clock
	for i := range m.Accounts {
		from := &m.Accounts[i]
		l := s.localQueueNamed(Name{from.Namespace, from.Name})
		l.account.At, l.account.Consumed, l.account.seeded = from.At, from.Consumed, from.Seeded
		for _, p := range from.Penalties {
			l.account.PushPenalty(s.options.Sharing, p.UID, p.Requests)
		}
		if from.Queued {
			s.line(l, from.Last)
		}
		s.weigh(l)
	}
}

// BehindByUsage returns the LocalQueues of a UsageBased ClusterQueue that have used less than the named one, so that their pending workloads
// come before its own, in their order. It costs a pass over them.
func (m *Model) BehindByUsage(queue, namespace, localQueue string) (before []Name) {
	q := m.queue(queue)
	if q == nil {
		return nil
	}
	var tied []Name // with the standing of the last one
	last := order.Standing(0)
	for l := range q.lines.all() {
		if l.standing != last {
			before, tied, last = append(before, tied...), nil, l.standing
		}
		if (l.lq.name == Name{namespace, localQueue}) {
			return before
		}
		tied = append(tied, l.lq.name)
	}
	return nil
}
