package cycle

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestBackfillTwin: starts, and admissions before them, are as docs/adr/0012 has them, read literally in ledgers that are made anew for each time,
// and no workload starts after a start that it was given within the quota of its queue, nor later than it does without backfill if all run for
// as long as their bounds.
func TestBackfillTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBackfillTwin(t)
		t.Repeat(map[string]func(*rapid.T){
			"arrive": b.arrive, "arrive too": b.arrive, "arrive as well": b.arrive, "pass time": b.passTime, "cancel": b.cancel, "step": b.step, "finish": b.finish,
		})
		for range 20 { // to the end of all bounds
			b.passTime(t)
		}
	})
}

// backfillTwin is a world of queues that may reserve starts, played in whole time units.
type backfillTwin struct {
	w        *World
	plan     []plannedNode
	now      workload.Instant
	all      []*workload.Workload
	ends     map[*workload.Workload]workload.Instant // when it stops; not there for never
	runs     map[*workload.Workload]workload.Instant // how long it runs, up to its bound
	promised map[*workload.Workload]workload.Instant
	without  map[*workload.Workload]workload.Instant // when it starts without backfill; not there for never
	freed    bool                                    // quota was released, or a workload left, that no start had counted with
}

// plannedNode is a node of the forest: a cohort, or a queue with its offers.
type plannedNode struct {
	cohort       bool
	parent       quota.Node
	nominal      [2]resource.Amount // by flavor
	borrow, lend resource.Amount
	strict       bool
	backfill     Backfill
	flavors      []int
}

func newBackfillTwin(t *rapid.T) *backfillTwin {
	b := &backfillTwin{
		now: 1, ends: map[*workload.Workload]workload.Instant{}, runs: map[*workload.Workload]workload.Instant{},
		promised: map[*workload.Workload]workload.Instant{}, without: map[*workload.Workload]workload.Instant{},
	}
	parents := []quota.Node{quota.None}
	if rapid.IntRange(0, 2).Draw(t, "cohort") > 0 {
		b.plan = append(b.plan, plannedNode{cohort: true, parent: quota.None, borrow: quota.NoLimit, lend: quota.NoLimit})
		parents = []quota.Node{0}
	}
	queues := rapid.IntRange(1, 3).Draw(t, "queues")
	for range queues {
		limit := func(what string) resource.Amount {
			if rapid.IntRange(0, 2).Draw(t, what) > 0 {
				return quota.NoLimit
			}
			return resource.Amount(rapid.IntRange(0, 3).Draw(t, what))
		}
		n := plannedNode{
			parent: rapid.SampledFrom(parents).Draw(t, "parent"), strict: rapid.Bool().Draw(t, "strict"), backfill: rapid.SampledFrom([]Backfill{NoBackfill, Easy, Easy, Conservative, Conservative}).Draw(t, "backfill"),
			flavors: rapid.SampledFrom([][]int{{0}, {0, 1}, {1, 0}}).Draw(t, "flavors"), borrow: quota.NoLimit, lend: quota.NoLimit,
		}
		for i := range n.nominal {
			n.nominal[i] = resource.Amount(rapid.IntRange(0, 6).Draw(t, "nominal"))
		}
		if n.parent != quota.None {
			n.borrow, n.lend = limit("borrow"), limit("lend")
		}
		b.plan = append(b.plan, n)
	}
	b.w = b.build()
	return b
}

// build makes the world of the plan.
func (b *backfillTwin) build() *World {
	o := Defaults()
	o.EditWindow = 0
	w := NewWorld(o)
	gpu := w.Table.ID("gpu")
	frs := []resource.FR{w.Table.FR("f0", "gpu"), w.Table.FR("f1", "gpu")}
	for i, d := range b.plan {
		n := w.Quota.Add(fmt.Sprint("n", i), d.cohort)
		w.Quota.SetParent(n, d.parent)
		if d.cohort {
			w.Edited(n)
			continue
		}
		g := flavor.Group{Resources: []resource.ID{gpu}}
		var cells []quota.Cell
		for _, f := range d.flavors {
			g.Offers = append(g.Offers, flavor.Offer{Flavor: &flavor.Flavor{Name: fmt.Sprint("f", f)}, FRs: frs[f : f+1]})
			cells = append(cells, quota.Cell{FR: frs[f], Nominal: d.nominal[f], Borrow: d.borrow, Lend: min(d.lend, d.nominal[f])})
			if d.lend == quota.NoLimit {
				cells[len(cells)-1].Lend = quota.NoLimit
			}
		}
		w.Quota.SetQuota(n, cells)
		w.AddQueue(&Queue{Name: fmt.Sprint("n", i), Node: n, Namespaces: []workload.Term{{}}, Groups: []flavor.Group{g}, Strict: d.strict, Backfill: d.backfill})
		w.Edited(n)
	}
	w.applyEdits()
	return w
}

func (b *backfillTwin) arrive(t *rapid.T) {
	waiting := 0
	for _, wl := range b.all {
		if b.pending(wl) {
			waiting++
		}
	}
	if waiting == maxFollowers {
		t.Skip("more are not tried")
	}
	gpus := rapid.IntRange(1, 8).Draw(t, "gpus")
	bound := workload.Instant(rapid.IntRange(0, 8).Draw(t, "bound"))
	wl := b.submit(b.w, rapid.IntRange(0, len(b.w.Queues)-1).Draw(t, "queue"), gpus, bound)
	if bound > 0 {
		b.runs[wl] = workload.Instant(rapid.IntRange(1, int(bound)).Draw(t, "run"))
	}
}

// submit adds a workload to the line of a queue.
func (b *backfillTwin) submit(w *World, queue, gpus int, bound workload.Instant) *workload.Workload {
	wl := &workload.Workload{
		UID: fmt.Sprintf("w%02d", len(b.all)), Queue: int32(queue), Bound: bound, Since: workload.Instant(len(b.all) + 1), Class: int32(100*bound) + int32(gpus),
		PodSets: []workload.PodSet{{Name: "main", Count: 1, Requests: []workload.Request{{Resource: w.Table.ID("gpu"), Amount: resource.Amount(gpus)}}}},
	}
	wl.Key = "default/" + wl.UID
	b.all = append(b.all, wl)
	w.Enqueue(wl)
	return wl
}

func (b *backfillTwin) passTime(t *rapid.T) {
	b.now++
	for _, wl := range b.all {
		if wl.Reserved && b.ends[wl] == b.now {
			b.freed = b.freed || b.now < wl.End()
			b.w.Release(wl)
		}
	}
	b.step(t)
}

func (b *backfillTwin) pick(t *rapid.T, what string, which func(*workload.Workload) bool) *workload.Workload {
	var list []*workload.Workload
	for _, wl := range b.all {
		if which(wl) {
			list = append(list, wl)
		}
	}
	if len(list) == 0 {
		t.Skip("no workload ", what)
	}
	return rapid.SampledFrom(list).Draw(t, what)
}

func (b *backfillTwin) pending(wl *workload.Workload) bool {
	return !wl.Reserved && wl.ReservedAt == 0 && wl.Queue >= 0
}

func (b *backfillTwin) cancel(t *rapid.T) {
	wl := b.pick(t, "pending", b.pending)
	b.w.Dequeue(wl)
	b.freed = true
	wl.Queue = -1
	delete(b.promised, wl)
	delete(b.without, wl)
}

func (b *backfillTwin) finish(t *rapid.T) {
	b.freed = true
	b.w.Release(b.pick(t, "running", func(wl *workload.Workload) bool { return wl.Reserved }))
}

func (b *backfillTwin) step(t *rapid.T) {
	before := map[*Queue][]*start{}
	for _, q := range b.w.Queues {
		before[q] = q.further
	}
	starts := b.starts()
	r := b.w.Step(b.now, math.MaxInt)
	b.w.SettleAdmissions(b.now, r.More)
	if len(r.Endless) > 0 {
		t.Fatal("no end")
	}
	for _, d := range r.Decisions {
		if d.admits() && b.runs[d.Workload] > 0 {
			b.ends[d.Workload] = b.now + b.runs[d.Workload]
		}
	}
	if again := b.w.Step(b.now, math.MaxInt); len(again.Decisions) > 0 {
		t.Fatalf("a second step decides about %s", again.Decisions[0].Attempt)
	}
	for wl, by := range b.promised {
		if b.pending(wl) && b.now >= by {
			t.Fatalf("%s has not started by %d, it is %d", wl.UID, by, b.now)
		}
		if wl.Reserved && wl.ReservedAt > by {
			t.Fatalf("%s has started at %d, not by %d", wl.UID, wl.ReservedAt, by)
		}
	}
	for wl, by := range b.without {
		if started := wl.ReservedAt; started > by || (b.pending(wl) && b.now >= by) {
			t.Fatalf("%s starts later than without backfill, at %d (%d for not yet, now %d)", wl.UID, by, started, b.now)
		}
	}
	for _, q := range b.w.Queues {
		if elsewhere := func(d Decision) bool { return d.admits() && d.Queue != q.Name }; !b.freed && starts == b.starts() && !slices.ContainsFunc(r.Decisions, elsewhere) {
			b.checkKept(t, q, before[q])
		}
	}
	b.freed = false
	for _, q := range b.w.Queues {
		b.checkStart(t, q)
		b.checkFurther(t, q)
	}
	b.checkSettled(t)
}

// at returns the ledger of a time: of the workloads that run by then, and of the given starts.
func (b *backfillTwin) at(time workload.Instant, starts []*Queue) *ledger.Ledger {
	w := b.build()
	for _, wl := range b.all {
		if wl.Reserved && (wl.Bound == 0 || wl.ReservedAt+wl.Bound > time) {
			w.Ledger.Charge(b.w.Queues[wl.Queue].Node, wl.Usage)
		}
	}
	for _, q := range starts {
		w.Ledger.Charge(q.Node, q.start.usage)
	}
	return w.Ledger
}

// fits reports whether a workload of a queue fits in a ledger, and whether within the quota of the queue in the first flavor with room.
func (b *backfillTwin) fits(l *ledger.Ledger, q *Queue, wl *workload.Workload) (fits, within bool) {
	asked := wl.PodSets[0].Requests[0].Amount
	for _, o := range q.Groups[0].Offers {
		if fr := o.FRs[0]; l.Available(q.Node, fr) >= asked {
			return true, l.Quota.Nominal(q.Node, fr)-l.Quota.Usage(q.Node, fr) >= asked
		}
	}
	return false, false
}

func (b *backfillTwin) firmBut(but *Queue) (out []*Queue) {
	for _, q := range b.w.Queues {
		if q != but && q.start != nil && q.start.at != 0 && q.start.level == 0 {
			out = append(out, q)
		}
	}
	return out
}

// checkStart checks the reserved start of a queue: whose it is, and when.
func (b *backfillTwin) checkStart(t *rapid.T, q *Queue) {
	first := b.firstBlocked(q)
	switch {
	case q.start == nil && slices.ContainsFunc(b.w.Queues, func(q *Queue) bool { return q.headReservation != nil }):
		return // it may lose quota that is kept for the head of another queue
	case q.start == nil && first == nil:
		return
	case q.start == nil || q.start.wl != first:
		t.Fatalf("the start of %s is %+v, want one of %+v", q.Name, q.start, first)
	}
	others := slices.DeleteFunc(b.firmBut(q), func(o *Queue) bool { return o.tree != q.tree })
	literal, within := workload.Instant(0), false
	for time := b.now + 1; time <= b.now+20; time++ {
		if fits, own := b.fits(b.at(time, others), q, first); fits {
			literal, within = time, own
			break
		}
	}
	s := q.start
	kept, _ := b.fits(b.at(b.now, nil), q, first) // by now it only lacks what is kept for a head of another queue
	switch {
	case len(others) == 0 && !kept && s.at != literal && !(s.level == 0 && !within && literal < s.at):
		t.Fatalf("%s of %s starts by %d, want %d (now %d%s)", first.UID, q.Name, s.at, literal, b.now, b.starts())
	case s.at == 0 || s.level > 0:
		return
	case s.at <= b.now:
		t.Fatalf("%s of %s is to have started by %d", first.UID, q.Name, s.at)
	}
	by, had := b.promised[first]
	if had && s.at > by {
		t.Fatalf("%s of %s starts by %d, it was %d", first.UID, q.Name, s.at, by)
	}
	if !had && len(others) == 0 {
		if alone := b.withoutBackfill(first); alone != 0 {
			b.without[first] = alone
		}
	}
	b.promised[first] = s.at
}

// withoutBackfill plays a world of the same workloads without backfill from now on, all running for as long as their bounds, and returns when a
// pending one starts, 0 for never.
func (b *backfillTwin) withoutBackfill(of *workload.Workload) workload.Instant {
	plain := &backfillTwin{plan: slices.Clone(b.plan)}
	for i := range plain.plan {
		plain.plan[i].backfill = NoBackfill
	}
	w := plain.build()
	var all []*workload.Workload
	var first *workload.Workload
	for _, o := range b.all {
		wl := &workload.Workload{UID: o.UID, Key: o.Key, Queue: o.Queue, Bound: o.Bound, Since: o.Since, Class: o.Class, PodSets: o.PodSets}
		switch {
		case o.Reserved:
			wl.ReservedAt, wl.Usage = o.ReservedAt, o.Usage.Clone()
			w.Reserve(wl)
		case b.pending(o):
			w.Enqueue(wl)
		}
		if all = append(all, wl); o == of {
			first = wl
		}
	}
	for now := b.now; now <= b.now+20; now++ {
		for _, wl := range all {
			if wl.Reserved && wl.End() == now {
				w.Release(wl)
			}
		}
		w.SettleAdmissions(now, w.Step(now, math.MaxInt).More)
		if first.Reserved {
			return now
		}
	}
	return 0
}

// firstBlocked returns the first pending workload of a queue that time can help, if the queue reserves starts. In a strict queue it is the
// head.
func (b *backfillTwin) firstBlocked(q *Queue) *workload.Workload {
	if q.Backfill == NoBackfill {
		return nil
	}
	for _, wl := range q.Pending.All() {
		if q.Strict && wl != q.Pending.Head() {
			return nil
		}
		most := resource.Amount(0)
		for _, o := range q.Groups[0].Offers {
			most = max(most, b.w.Quota.Potential(q.Node, o.FRs[0]))
		}
		if earlier := q.start; wl.PodSets[0].Requests[0].Amount <= most && (earlier == nil || order.Compare(wl, earlier.wl) <= 0) {
			return wl
		}
	}
	return nil
}

// checkSettled: every workload whose turn has come and that fits now would move a start.
func (b *backfillTwin) checkSettled(t *rapid.T) {
	if slices.ContainsFunc(b.w.Queues, func(q *Queue) bool { return q.headReservation != nil }) {
		return // quota is kept from others for the cycle: see reserve
	}
	for _, q := range b.w.Queues {
		for _, wl := range q.Pending.All() {
			if head := q.Pending.Head(); q.Strict && wl != head && (q.start == nil || q.start.wl != head || q.start.at == 0) {
				continue
			}
			if len(q.Groups[0].Offers) > 1 {
				continue // it may be refused for its first flavor, and admissions since then have left room in others only
			}
			if fits, _ := b.fits(b.at(b.now, nil), q, wl); fits && !b.isHeld(q, wl) {
				t.Fatalf("%s of %s fits at %d, and moves no start%s", wl.UID, q.Name, b.now, b.starts())
			}
		}
	}
	for _, wl := range b.all { // the workloads admitted now
		if q := b.w.Queues[max(0, wl.Queue)]; wl.Reserved && wl.ReservedAt == b.now {
			for _, o := range b.w.Queues {
				if s := o.start; s != nil && s.at > b.now && b.binds(o, q, wl) && !b.at(s.at, nil).Fits(o.Node, s.usage) {
					t.Fatalf("%s of %s was admitted at %d, and %s does not fit at %d any more", wl.UID, q.Name, b.now, s.wl.UID, s.at)
				}
			}
		}
	}
}

func (b *backfillTwin) starts() (text string) {
	for _, q := range b.w.Queues {
		if s := q.start; s != nil {
			text += fmt.Sprintf("; in %s %s starts by %d, level %d", q.Name, s.wl.UID, s.at, s.level)
		}
	}
	return text
}

// binds is point 5 of the ADR, without preemption.
func (b *backfillTwin) binds(o, q *Queue, wl *workload.Workload) bool {
	if o == q {
		return o.start.wl.Since < wl.Since
	}
	return o.tree == q.tree && o.start.level == 0
}

// isHeld reports whether a workload that fits in the only flavor would move a start.
func (b *backfillTwin) isHeld(q *Queue, wl *workload.Workload) bool {
	usage := ledger.Usage{Quota: resource.Vector{{FR: q.Groups[0].Offers[0].FRs[0], Amount: wl.PodSets[0].Requests[0].Amount}}}
	var starts []*Queue
	for _, o := range b.w.Queues {
		if s := o.start; s != nil && s.at != 0 && s.wl != wl && b.binds(o, q, wl) {
			starts = append(starts, o)
		}
	}
	slices.SortFunc(starts, compareStarts)
	for i, o := range starts {
		if wl.Bound > 0 && b.now+wl.Bound <= o.start.at {
			continue
		}
		l := b.at(o.start.at, starts[:i])
		l.Charge(q.Node, usage)
		if !l.Fits(o.Node, o.start.usage) {
			return true
		}
	}
	return b.movesFurther(q, wl, usage)
}

// movesFurther reports whether a workload that fits would move a start behind the first one of its queue.
func (b *backfillTwin) movesFurther(q *Queue, wl *workload.Workload, usage ledger.Usage) bool {
	starts := q.furtherBefore(wl)
	if q.start != nil && q.start.at != 0 && q.start.wl.Since < wl.Since {
		starts = append([]*start{q.start}, starts...)
	}
	for _, s := range starts {
		if wl.Bound > 0 && b.now+wl.Bound <= s.at {
			continue
		}
		l := b.planned(q, s.at, starts, s)
		l.Charge(q.Node, usage)
		if !l.Fits(q.Node, s.usage) {
			return true
		}
	}
	return false
}

// planned returns the ledger of a time, with the firm starts of other queues and with the starts of a queue whose workloads run then, but for one.
func (b *backfillTwin) planned(q *Queue, time workload.Instant, starts []*start, but *start) *ledger.Ledger {
	l := b.at(time, slices.DeleteFunc(b.firmBut(q), func(o *Queue) bool { return o.tree != q.tree }))
	for _, s := range starts {
		if s != but && s.at <= time && (s.wl.Bound == 0 || time < s.at+s.wl.Bound) {
			l.Charge(q.Node, s.usage)
		}
	}
	return l
}

// checkFurther checks the starts behind the first one of a queue with one flavor: each is the first time from which on its workload fits beside
// those before it, for as long as it may run.
func (b *backfillTwin) checkFurther(t *rapid.T, q *Queue) {
	first := q.start
	if q.Backfill != Conservative || first == nil || (q.Strict && first.at == 0) {
		if len(q.further) > 0 {
			t.Fatalf("%s has starts behind none", q.Name)
		}
		return
	}
	if len(q.Groups[0].Offers) > 1 || slices.ContainsFunc(b.w.Queues, func(q *Queue) bool { return q.headReservation != nil }) {
		return // which flavor it takes depends on the time at which it is searched for; quota is kept for the cycle
	}
	var before []*start
	if first.at != 0 {
		before = append(before, first)
	}
	var want, got []string
	for _, wl := range b.all {
		if !b.pending(wl) || wl.Queue != q.Index || !first.before(wl) || len(want) == maxStarts-1 {
			continue
		}
		if s := b.literalStart(q, wl, before); s != nil {
			before = append(before, s)
			if s.at > b.now {
				want = append(want, fmt.Sprint(wl.UID, " ", s.at))
			}
		}
	}
	for _, s := range q.further {
		got = append(got, fmt.Sprint(s.wl.UID, " ", s.at))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the starts behind the first one of %s are %q, want %q (now %d%s)", q.Name, got, want, b.now, b.starts())
	}
}

// checkKept checks that only workloads of a queue that come before one with a start have moved it to a later time.
func (b *backfillTwin) checkKept(t *rapid.T, q *Queue, before []*start) {
	if len(q.Groups[0].Offers) > 1 || slices.ContainsFunc(b.w.Queues, func(q *Queue) bool { return q.headReservation != nil }) {
		return // see checkFurther
	}
	for _, s := range before {
		if i := q.furtherAt(s.wl); b.pending(s.wl) && (i < 0 || q.further[i].at > s.at) {
			t.Fatalf("the start of %s in %s was %d, and is not kept (now %d%s)", s.wl.UID, q.Name, s.at, b.now, b.starts())
		}
	}
}

// literalStart tries all times.
func (b *backfillTwin) literalStart(q *Queue, wl *workload.Workload, before []*start) *start {
	s := &start{q: q, wl: wl, usage: ledger.Usage{Quota: resource.Vector{{FR: q.Groups[0].Offers[0].FRs[0], Amount: wl.PodSets[0].Requests[0].Amount}}}}
	last := b.now + 20 // of all changes
	for _, o := range before {
		last = max(last, o.at+o.wl.Bound)
	}
	for s.at = b.now; s.at <= last; s.at++ {
		until := s.at + wl.Bound
		if wl.Bound == 0 {
			until = last + 1
		}
		lasts := true
		for time := s.at; time < until && lasts; time++ {
			lasts = b.planned(q, time, before, nil).Fits(q.Node, s.usage)
		}
		if lasts {
			return s
		}
	}
	return nil
}

// TestConservative: in a strict queue with Conservative backfill no workload starts later than without, if all run for as long as their limits.
func TestConservative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue := plannedNode{parent: quota.None, strict: true, flavors: []int{0}, borrow: quota.NoLimit, lend: quota.NoLimit, nominal: [2]resource.Amount{resource.Amount(rapid.IntRange(2, 8).Draw(t, "quota"))}}
		type job struct{ at, bound, gpus int }
		var jobs []job
		at := 1
		for range rapid.IntRange(1, maxStarts).Draw(t, "jobs") {
			at += rapid.IntRange(0, 3).Draw(t, "gap")
			jobs = append(jobs, job{at, rapid.IntRange(1, 9).Draw(t, "bound"), rapid.IntRange(1, int(queue.nominal[0])).Draw(t, "gpus")})
		}
		play := func(backfill Backfill) (starts []workload.Instant) {
			queue.backfill = backfill
			b := &backfillTwin{plan: []plannedNode{queue}}
			w := b.build()
			for now := workload.Instant(1); now <= workload.Instant(at+9*len(jobs)); now++ {
				for _, wl := range b.all {
					if wl.Reserved && wl.End() == now {
						w.Release(wl)
					}
				}
				for len(b.all) < len(jobs) && jobs[len(b.all)].at == int(now) {
					j := jobs[len(b.all)]
					b.submit(w, 0, j.gpus, workload.Instant(j.bound))
				}
				w.SettleAdmissions(now, w.Step(now, math.MaxInt).More)
			}
			for _, wl := range b.all {
				starts = append(starts, wl.ReservedAt)
			}
			return starts
		}
		plain, filled := play(NoBackfill), play(Conservative)
		for i := range jobs {
			if filled[i] == 0 || filled[i] > plain[i] {
				t.Fatalf("the jobs %v start at %d, without backfill at %d", jobs, filled, plain)
			}
		}
	})
}
