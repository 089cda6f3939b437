package state

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// This file is the twin of the Model: the same figures, by passes over all workloads.

// slowQueue returns the view of a ClusterQueue, false if there is none of that name.
func (s *State) slowQueue(name string) (View, bool) {
	q := s.queues[name]
	if q == nil {
		return View{}, false
	}
	v := View{
		Counts: Counts{Active: q.q.Pending.Active(), Inadmissible: q.q.Pending.Inadmissible()}, Share: s.share(q.q.Node), Closed: q.q.Closed != "",
	}
	for _, l := range s.leadingTo(name) {
		if !l.def.Stopped {
			v.Inadmissible += l.resting
		}
	}
	if q.q.Closed != "" {
		v.Active, v.Inadmissible = 0, v.Active+v.Inadmissible
	}
	s.sumReserved(&v, q.q.Holders().All())
	if q.def.Cohort != "" {
		v.Borrowed = s.borrowed(q, v.Reservation)
		v.BorrowedUsage = s.borrowed(q, v.Usage)
	}
	return v, true
}

// borrowed returns the part of held past the queue's own quota.
func (s *State) borrowed(q *queue, held []Held) []Held {
	s.world.ApplyEdits()
	var out []Held
	for _, h := range held {
		fr := s.world.Table.FR(h.Flavor, h.Resource)
		if over := h.Amount.Sub(s.world.Quota.Nominal(q.q.Node, fr)); over > 0 {
			out = append(out, s.held(resource.Entry{FR: fr, Amount: over}))
		}
	}
	return out
}

// slowLocalQueue returns the view of a LocalQueue.
func (s *State) slowLocalQueue(namespace, name string) View {
	var v View
	lq := s.localQueues[Name{namespace, name}]
	if lq == nil || !lq.exists || s.queues[lq.def.Queue] == nil {
		return v
	}
	q := s.queues[lq.def.Queue].q
	var reserved []*workload.Workload
	for r := range s.recordsOf(lq) {
		switch {
		case r.in != q:
		case r.wl.Reserved:
			reserved = append(reserved, r.wl)
		default:
			v.Active++
		}
	}
	if !lq.def.Stopped {
		v.Inadmissible = lq.resting
	}
	s.sumReserved(&v, slices.Values(reserved))
	return v
}

func (s *State) sumReserved(v *View, reserved iter.Seq[*workload.Workload]) {
	var all, admitted resource.Vector
	for w := range reserved {
		v.Reserved++
		all = all.Sum(w.Usage.Quota)
		if r := s.records[w.UID]; r.def.Admitted {
			v.Admitted++
			admitted = admitted.Sum(w.Usage.Quota)
		}
	}
	for _, e := range all {
		v.Reservation = append(v.Reservation, s.held(e))
	}
	for _, e := range admitted {
		v.Usage = append(v.Usage, s.held(e))
	}
}

// share is the fair share of a node, nil without fair sharing. spec: 20 §2.1.
func (s *State) share(n quota.Node) *quota.Share {
	if s.options.Fair == nil {
		return nil
	}
	s.world.ApplyEdits()
	share := s.world.Quota.Share(n)
	return &share
}

// slowCohortShare returns the fair share of a cohort, nil without fair sharing; false if there
// is no Cohort of that name.
func (s *State) slowCohortShare(name string) (share *quota.Share, known bool) {
	c := s.cohorts[name]
	if c == nil || c.def == nil {
		return nil, false
	}
	return s.share(c.node), true
}

// slowStatistics counts all workloads, in time that grows with the workloads that are pending or hold
// quota.
func (s *State) slowStatistics(ask Asked) Statistics {
	s.world.ApplyEdits()
	t := slowCollector{State: s, Asked: ask, localQueueStats: map[*localQueue]*LocalQueueStatistics{}, below: map[string]map[resource.FR]resource.Amount{}}
	waiting := t.backedOff()
	var c Statistics
	t.visitLocalQueues(&c)
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		c.Queues = append(c.Queues, t.queue(s.queues[name], waiting[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(s.cohorts)) {
		c.Cohorts = append(c.Cohorts, t.cohort(name, s.cohorts[name].node))
	}
	return c
}

// slowCollector collects Statistics.
type slowCollector struct {
	*State
	Asked
	localQueueStats map[*localQueue]*LocalQueueStatistics
	below           map[string]map[resource.FR]resource.Amount // what is reserved below each cohort
}

// backedOff returns the backed-off workloads by queue, without those in line, which are
// counted there.
func (t *slowCollector) backedOff() map[string][]*record {
	out := map[string][]*record{}
	for _, r := range t.records {
		if !r.def.rests() || r.in != nil {
			continue
		}
		if q, _, _ := t.route(r); q != nil {
			out[q.def.Name] = append(out[q.def.Name], r)
		}
	}
	return out
}

func (t *slowCollector) visitLocalQueues(c *Statistics) {
	localQueues := t.State.matchingLocalQueues(func(l *localQueue) bool { return l.exists })
	slices.SortFunc(localQueues, func(a, b *localQueue) int { return a.name.compare(b.name) })
	c.LocalQueues = make([]LocalQueueStatistics, len(localQueues))
	for i, l := range localQueues {
		out := &c.LocalQueues[i]
		*out = LocalQueueStatistics{Name: l.name, Queue: l.def.Queue}
		if q := t.queues[l.def.Queue]; q != nil {
			out.Known, out.Cells = true, cellsOf(&q.def)
			for i := range out.Cells {
				out.Cells[i].Quota = Quota{Resource: out.Cells[i].Resource}
			}
		}
		t.localQueueStats[l] = out
	}
}

func (t *slowCollector) queue(q *queue, waiting []*record) QueueStatistics {
	out := QueueStatistics{
		Name: q.def.Name, Cohort: q.def.Cohort, Root: t.root(q.q.Node), Cells: cellsOf(&q.def), Share: t.world.Quota.Share(q.q.Node),
		Closed: q.q.Closed != "" || t.world.Quota.Root(q.q.Node) == quota.None,
	}
	if q.def.Cohort == "" {
		out.Root = ""
	}
	t.pending(q, &out, waiting)
	t.holders(q, &out)
	return out
}

// pending counts the pending workloads of a queue, for the queue and for its LocalQueues.
func (t *slowCollector) pending(q *queue, out *QueueStatistics, waiting []*record) {
	amounts := map[resource.ID]*resource.Amount{}
	for _, g := range q.def.Groups {
		for _, name := range g.Resources {
			out.Pending = append(out.Pending, Request{Resource: name})
		}
	}
	for i := range out.Pending {
		amounts[t.world.Table.ID(out.Pending[i].Resource)] = &out.Pending[i].Amount
	}
	active, inadmissible := map[int32]bool{}, map[int32]bool{} // classes
	count := func(w *workload.Workload, isActive bool) {
		counts, classes := &out.Inadmissible, inadmissible
		if isActive {
			counts, classes = &out.Active, active
		}
		counts.Workloads++
		if t.Classes {
			classes[w.Class] = true
		}
		if t.Keys {
			counts.Keys = append(counts.Keys, w.Key)
		}
		askSlowly(amounts, w, t.world.Table.ID(resource.Pods))
		if lq := t.localQueueOf(t.records[w.UID], q); lq != nil && isActive {
			lq.Active++
		} else if lq != nil {
			lq.Inadmissible++
		}
	}
	actives := q.q.Pending.Active()
	for i, w := range q.q.Pending.All() {
		count(w, i < actives && !out.Closed)
	}
	for _, r := range waiting {
		count(r.wl, false)
	}
	out.Active.Classes, out.Inadmissible.Classes = len(active), len(inadmissible)
}

// ask adds the requests of a workload to the sums of the covered resources.
func askSlowly(sums map[resource.ID]*resource.Amount, w *workload.Workload, pods resource.ID) {
	for _, ps := range w.PodSets {
		if sum := sums[pods]; sum != nil {
			*sum = sum.Add(resource.Amount(ps.Count))
		}
		for _, r := range ps.Requests {
			if sum := sums[r.Resource]; sum != nil && r.Resource != pods {
				*sum = sum.Add(r.Amount)
			}
		}
	}
}

// holders counts the reservations of a queue, for the queue, its LocalQueues and its cohorts.
func (t *slowCollector) holders(q *queue, out *QueueStatistics) {
	at := map[resource.FR]int{}
	for i, c := range out.Cells {
		at[t.world.Table.FR(c.Flavor, c.Resource)] = i
	}
	all := map[resource.FR]resource.Amount{}
	for w := range q.q.Holders().All() {
		r := t.records[w.UID]
		lq := t.localQueueOf(r, q)
		out.Reserved++
		if r.def.Admitted {
			out.Admitted++
			if t.Keys {
				out.AdmittedKeys = append(out.AdmittedKeys, w.Key)
			}
		}
		if lq != nil {
			lq.hold(w.Key, r.def.Admitted, t.Keys)
		}
		for _, e := range w.Usage.Quota {
			all[e.FR] = all[e.FR].Add(e.Amount)
			if i, listed := at[e.FR]; listed {
				out.Cells[i].hold(e.Amount, r.def.Admitted)
				if lq != nil {
					lq.Cells[i].hold(e.Amount, r.def.Admitted)
				}
			}
		}
	}
	t.addToCohorts(q.q.Node, all)
}

func (l *LocalQueueStatistics) hold(key string, admitted, list bool) {
	l.Reserved++
	if !admitted {
		return
	}
	l.Admitted++
	if list {
		l.AdmittedKeys = append(l.AdmittedKeys, key)
	}
}

func (c *cellStatistics) hold(a resource.Amount, admitted bool) {
	c.Reserved = c.Reserved.Add(a)
	if admitted {
		c.Used = c.Used.Add(a)
	}
}

// addToCohorts adds the usage of a queue to every cohort above it.
func (t *slowCollector) addToCohorts(n quota.Node, all map[resource.FR]resource.Amount) {
	f := t.world.Quota
	if f.Root(n) == quota.None {
		return
	}
	for p := f.Parent(n); p != quota.None; p = f.Parent(p) {
		sums := t.below[f.Name(p)]
		if sums == nil {
			sums = map[resource.FR]resource.Amount{}
			t.below[f.Name(p)] = sums
		}
		for fr, a := range all { //berth:unordered saturating sums of amounts ≥ 0 are the same in any order
			sums[fr] = sums[fr].Add(a)
		}
	}
}

// localQueueOf returns the LocalQueue of a workload, if it exists and points to the queue.
func (t *slowCollector) localQueueOf(r *record, q *queue) *LocalQueueStatistics {
	if lq := t.localQueueStats[r.lq]; lq != nil && lq.Queue == q.def.Name {
		return lq
	}
	return nil
}

func (t *slowCollector) cohort(name string, n quota.Node) CohortStatistics {
	f := t.world.Quota
	out := CohortStatistics{Name: name, Parent: t.cohorts[name].parent(), Root: t.root(n)}
	if out.Root == "" {
		return out
	}
	out.Share = f.Share(n)
	for i := range t.world.Table.Len() {
		fr := resource.FR(i)
		f.Reach(fr)
		if a := f.Subtree(n, fr); a != 0 {
			out.Subtree = append(out.Subtree, t.held(resource.Entry{FR: fr, Amount: a}))
		}
		if a := t.below[name][fr]; a != 0 {
			out.Reserved = append(out.Reserved, t.held(resource.Entry{FR: fr, Amount: a}))
		}
	}
	slices.SortFunc(out.Subtree, compareHeld)
	slices.SortFunc(out.Reserved, compareHeld)
	return out
}

// slowReason returns why a workload in line waits, "" for others; not sure if the workload that was evaluated in its place has another
// decision by now, or is gone.
func (s *State) slowReason(r *record) (why trace.Reason, sure bool) {
	if r.in == nil || r.wl.Reserved {
		return "", true
	}
	if _, reason, _ := s.route(r); reason != "" {
		return reason, true
	}
	by := r.in.Pending.Representative(r.wl)
	if r.said.waits() && r.said.reason != trace.Suspended && (by == nil || r.said.reason != trace.Misconfigured) {
		return r.said.reason, true
	}
	if by != nil {
		other := s.records[by.UID]
		if other == nil || other.wl != by || !other.said.waits() {
			return "", false
		}
		return other.said.reason, true
	}
	labels, exists := s.world.NamespaceLabels(r.wl)
	if reason, _, _ := cycle.Misfit(r.in.Name, r.in.Namespaces, r.wl, labels, exists); reason != "" {
		return reason, true
	}
	return trace.PendingEvaluation, true
}

// waiting lists the pending workloads of a queue in their order, by a pass and a sort.
func (s *State) waiting(q *queue) (out []*record) {
	s.eachWaiting(q, func(r *record) { out = append(out, r) })
	first := q.q.Pending.Prioritized()
	slices.SortFunc(out, func(a, b *record) int {
		switch {
		case q.def.UsageBased && a.lq.standing != b.lq.standing:
			return cmp.Compare(a.lq.standing, b.lq.standing)
		case a.wl == b.wl:
			return 0
		case a.wl == first:
			return -1
		case b.wl == first:
			return 1
		}
		return order.Compare(a.wl, b.wl)
	})
	return out
}

// eachWaiting visits the pending workloads of a ClusterQueue, in no particular order.
func (s *State) eachWaiting(q *queue, visit func(*record)) {
	for _, l := range s.leadingTo(q.def.Name) {
		for r := range s.recordsOf(l) {
			if (r.def.rests() && !l.def.Stopped) || r.in == q.q && (!r.wl.Reserved || (r.assumed() && !r.def.Reserved)) {
				visit(r)
			}
		}
	}
}

// PointsTo returns the name of the ClusterQueue that a LocalQueue points to, whether
// that exists or not; false if there is no such LocalQueue.
func (s *State) PointsTo(namespace, localQueue string) (queue string, ok bool) {
	l := s.localQueues[Name{namespace, localQueue}]
	if l == nil || !l.exists {
		return "", false
	}
	return l.def.Queue, true
}

// placeInLine counts the workloads before a pending one.
func (s *State) placeInLine(r *record) int {
	sticky, q, before := r.in.Pending.Prioritized(), s.queues[r.in.Name], 0
	s.eachWaiting(q, func(o *record) {
		switch {
		case q.def.UsageBased && o.lq.standing != r.lq.standing:
			if o.lq.standing < r.lq.standing {
				before++
			}
		case r.wl == sticky:
		case o.wl == sticky, order.Compare(o.wl, r.wl) < 0:
			before++
		}
	})
	return before
}
