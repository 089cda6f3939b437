package cycle

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// A queue with Conservative backfill reserves starts for the workloads behind the first blocked one too. They are found in the order of the line:
// each is the first time from which on the workload fits beside those before it, for as long as it may run. A start holds against all workloads
// behind it, and gives way to those before it. All are found again when the first blocked workload is evaluated, which is after every
// change of its tree. They bind their own queue only. See docs/adr/0012.

// maxStarts is how many starts a queue with Conservative backfill reserves, and scannedForStarts how many workloads of its line it
// considers for them.
const (
	maxStarts        = 16
	scannedForStarts = 64
)

// furtherAt returns the index of the start of a workload behind the first blocked one, −1 if it has none.
func (q *Queue) furtherAt(wl *workload.Workload) int {
	return slices.IndexFunc(q.further, func(s *start) bool { return s.wl == wl })
}

// furtherBefore returns the starts behind the first one that are of workloads before wl.
func (q *Queue) furtherBefore(wl *workload.Workload) []*start {
	n := slices.IndexFunc(q.further, func(s *start) bool { return !s.before(wl) })
	if n < 0 {
		return q.further
	}
	return q.further[:n]
}

// dropFurther drops the start of a workload behind the first blocked one, and reports whether it had one.
func (q *Queue) dropFurther(wl *workload.Workload) bool {
	i := q.furtherAt(wl)
	if i < 0 {
		return false
	}
	q.further = slices.Delete(slices.Clone(q.further), i, i+1)
	return true
}

// plansFor reports whether a workload that joins the line may get a start.
func (q *Queue) plansFor(wl *workload.Workload) bool {
	return q.Backfill == Conservative && (len(q.further) < maxStarts-1 || !q.further[len(q.further)-1].before(wl))
}

// planAgain evaluates the first blocked workload of a queue again, and with it all starts.
func (w *World) planAgain(q *Queue) {
	if q.Strict {
		q.evaluated = nil
		w.activate(q)
	} else if q.start != nil {
		w.wakeStart(q)
	}
}

// planFurther finds the starts behind the first one, in the queues whose first blocked workload was evaluated in this cycle.
func (c *round) planFurther() {
	for _, e := range slices.Clip(c.entries) {
		q, had := e.q, e.q.further
		switch {
		case q.Backfill != Conservative || e.reserving || e.forecast || e.wl.Reserved:
			continue
		case q.start == nil: // the first blocked workload gets no start
			q.further = nil
		case q.start.wl == e.wl:
			q.further = c.findFurther(q)
		}
		if slices.EqualFunc(had, q.further, sameStart) {
			continue
		}
		c.w.wakeHeldBack(q)
		for _, s := range q.further {
			if i := slices.IndexFunc(had, func(h *start) bool { return h.wl == s.wl }); i < 0 || had[i].at < s.at {
				c.moved = append(c.moved, s)
			}
		}
		for _, h := range had {
			if q.furtherAt(h.wl) < 0 {
				c.moved = append(c.moved, h)
			}
		}
	}
}

func sameStart(a, b *start) bool { return a.wl == b.wl && a.at == b.at && a.usage.Equal(b.usage) }

// announceStarts records the starts of workloads behind the first blocked one that have got one, or a later one, or lost it, unless this cycle has decided
// about them. An active workload of a queue that is not strict has its turn yet.
func (c *round) announceStarts() {
	for _, s := range c.moved {
		q, wl := s.q, s.wl
		decided := slices.ContainsFunc(c.decisions, func(d Decision) bool { return d.Workload == wl })
		if wl.Reserved || decided || (!q.Strict && q.Pending.Evaluated(wl.Class) == nil) {
			continue
		}
		e := c.w.entry(q, wl)
		switch c.w.nominate(e); {
		case e.barred != "" || len(e.got.Refusals) > 0:
			c.wait(e, cmp.Or(e.barred, e.shortage()), e.note)
		case q.furtherAt(wl) >= 0: // else it is evaluated again
			c.wait(e, trace.WaitingForQuota, "workloads before it in ClusterQueue "+q.Name+" have reserved what it would use")
		}
		c.w.spare = append(c.w.spare, e)
	}
	clear(c.moved)
	c.moved = c.moved[:0]
}

// findFurther returns the starts behind the first one.
func (c *round) findFurther(q *Queue) (found []*start) {
	first := q.start
	if first.at == 0 && q.Strict {
		return nil // nothing passes it
	}
	l := c.w.Ledger
	mark := l.Mark()
	defer l.Rollback(mark)
	c.releaseReservations()
	trees := c.w.together(q.tree)
	c.chargeFirm(trees, q)
	future := c.future(trees, nil)
	if first.at != 0 {
		future = include(future, first)
	}
	var never []int32 // classes
	for _, wl := range q.Pending.First(scannedForStarts) {
		if len(found) == maxStarts-1 {
			break
		}
		if !first.before(wl) || wl.MayReplace || wl.Variant || slices.Contains(never, wl.Class) {
			continue
		}
		c.followers++
		s, now := c.startBeside(future, q, wl)
		if s == nil {
			never = append(never, wl.Class)
			continue
		}
		future = include(future, s)
		if !now {
			found = append(found, s)
		}
	}
	c.w.future = future
	return found
}

// change is something that happens to a ledger at a time to come: a running workload ends, or a start begins or ends.
type change struct {
	at     workload.Instant
	ends   *workload.Workload
	start  *start
	begins bool
}

// compareChanges orders ends before beginnings.
func compareChanges(a, b change) int {
	if a.begins != b.begins && a.at == b.at {
		if b.begins {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.uid(), b.uid()))
}

func (x change) uid() string {
	if x.ends != nil {
		return x.ends.UID
	}
	return x.start.wl.UID
}

// future returns the changes that the ends of running workloads and some starts make, in order. It is valid until the next call.
func (c *round) future(trees []*tree, starts []*start) []change {
	all := c.w.future[:0]
	for _, x := range c.endings(trees) {
		all = append(all, change{at: x.at, ends: x.wl})
	}
	for _, s := range starts {
		all = include(all, s)
	}
	c.w.future = all
	return all
}

// include adds a start to changes.
func include(to []change, s *start) []change {
	add := func(x change) {
		i, _ := slices.BinarySearchFunc(to, x, compareChanges)
		to = slices.Insert(to, i, x)
	}
	add(change{at: s.at, start: s, begins: true})
	if s.wl.Bound > 0 {
		add(change{at: s.at + s.wl.Bound, start: s})
	}
	return to
}

// happen makes a change to the ledger, within a speculation.
func (w *World) happen(x change) {
	switch {
	case x.ends != nil:
		w.end(x.ends)
	case x.begins:
		w.Ledger.Charge(x.start.q.Node, x.start.usage)
	default:
		w.Ledger.Release(x.start.q.Node, x.start.usage)
	}
}

// startBeside finds the first time from which on a workload fits beside some changes for as long as it may run, nil for none. now reports
// that it fits as it is.
func (c *round) startBeside(future []change, q *Queue, wl *workload.Workload) (s *start, now bool) {
	w := c.w
	if reason, _, _ := w.findMisfit(q, wl); reason != "" {
		return nil, false
	}
	e := w.entry(q, wl)
	defer func() { w.spare = append(w.spare, e) }()
	podSets := w.aimLater(e)
	s = &start{q: q, wl: wl}
	fits := func() bool { return w.fitsLater(e, podSets, s) }
	mark := w.Ledger.Mark()
	defer w.Ledger.Rollback(mark)
	for from := 0; ; { // all before from has happened
		to := from // up to there quota is only released
		for to < len(future) && !future[to].begins {
			to++
		}
		n, found := w.firstFit(future, from, to, fits)
		for _, x := range future[from:to] {
			w.happen(x)
		}
		if found {
			if now = n == 0; now {
				s.at = c.now
			} else {
				s.at = future[n-1].at
			}
			s.ends = countEnds(future[:n])
			s.overdue = !now && s.at <= c.now
			if to = w.lasts(future, to, s); to < 0 {
				return s, now
			}
		}
		if to == len(future) {
			return nil, false
		}
		if !found {
			w.happen(future[to])
		}
		from = to + 1
	}
}

// firstFit returns the least number of changes after which a workload fits, from on and of those up to to, which only release quota. The
// ledger is as after the first from of them, and the last call of fits is the one for the result.
func (w *World) firstFit(future []change, from, to int, fits func() bool) (n int, found bool) {
	if fits() {
		return from, true
	}
	probe := func(from, to int, do func() bool) bool {
		mark := w.Ledger.Mark()
		defer w.Ledger.Rollback(mark)
		for _, x := range future[from:to] {
			w.happen(x)
		}
		return do()
	}
	if from == to || !probe(from, to, fits) {
		return 0, false
	}
	n = least(from, to, probe, fits)
	return n, probe(from, n, fits)
}

func countEnds(list []change) (n int) {
	for _, x := range list {
		if !x.begins {
			n++
		}
	}
	return n
}

// lasts makes the changes from on that happen while the workload of a start runs, and returns the index of the first beginning for which there is no
// room beside it, after that has happened too, −1 for none.
func (w *World) lasts(future []change, from int, s *start) int {
	for i, x := range future[from:] {
		if s.wl.Bound > 0 && x.at >= s.at+s.wl.Bound {
			break
		}
		w.happen(x)
		if x.begins && !w.Ledger.Fits(s.q.Node, s.usage) {
			return from + i
		}
	}
	return -1
}

// movesFurther returns the first of some starts behind the first one of its queue that a head before them would move, nil for none.
func (c *round) movesFurther(trees []*tree, further []*start, e *entry) *start {
	if len(further) == 0 {
		return nil
	}
	l := c.w.Ledger
	mark := l.Mark()
	defer l.Rollback(mark)
	c.releaseReservations()
	replaced := c.charge(e)
	c.chargeFirm(trees, e.q)
	if first := e.q.start; first != nil && first.at != 0 && first.before(e.wl) {
		further = append([]*start{first}, further...)
	}
	for _, x := range c.future(trees, further) {
		switch {
		case e.wl.Bound > 0 && x.at >= c.now+e.wl.Bound:
			return nil
		case x.ends != nil && x.ends == replaced:
			continue
		case x.begins && !l.Fits(x.start.q.Node, x.start.usage):
			return x.start
		}
		c.w.happen(x)
	}
	return nil
}
