package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Census is what the gauges show of the world: everyone counted at one moment.
// spec: 70 §5.3.
type Census struct {
	Queues      []QueueCensus      // by name
	LocalQueues []LocalQueueCensus // those that exist, by namespace and name
	Cohorts     []CohortCensus     // those that are defined or named, by name
}

// Crowd are the pending workloads of a queue that are active, or those that are not.
type Crowd struct {
	Workloads int
	Classes   int      // how many of them decisions can tell apart, if that was asked
	Keys      []string // namespace/name, in no order, if they were asked for
}

// QueueCensus is one ClusterQueue.
type QueueCensus struct {
	Name, Cohort string
	Root         string // the top of its cohort tree, "" without one and below a cycle
	Closed       bool   // nothing can be admitted: everyone pending is counted as parked
	// Parked are in line until an event can help; those that wait for a time count as well.
	Active, Parked     Crowd
	Reserved, Admitted int
	AdmittedKeys       []string         // namespace/name, in no order, if they were asked for
	Pending            []ResourceAmount // of each covered resource what all pending ones ask for, in order of the groups
	Cells              []CellCensus     // in order of the groups
	Share              quota.Share
}

// ResourceAmount is an amount of one resource, whatever its flavor.
type ResourceAmount struct {
	Resource string
	Amount   resource.Amount
}

// CellCensus is one flavor-resource that a ClusterQueue lists: what all reservations hold,
// and what those of them hold that are admitted.
type CellCensus struct {
	Flavor string
	Quota
	Reserved, Used resource.Amount
}

// LocalQueueCensus is one LocalQueue: its share of the ClusterQueue that it points to.
type LocalQueueCensus struct {
	Name
	Queue              string
	Known              bool // that ClusterQueue exists
	Active, Parked     int
	Reserved, Admitted int
	AdmittedKeys       []string // as in QueueCensus
	Cells              []CellCensus
}

// CohortCensus is one Cohort.
type CohortCensus struct {
	Name   string
	Parent string // "" for none
	Root   string // the top of its tree, which may be itself; "" below a cycle
	// Subtree is the quota of its subtree, Reserved what all reservations below it hold,
	// past what they lend or not; without zeros, by flavor and resource.
	Subtree, Reserved []Held
	Share             quota.Share
}

// Asked says what a census has to list beyond its counts.
type Asked struct {
	Classes, Keys bool
	// BackedOff are the UIDs of workloads that would be in line but for the time that they
	// have to wait: they are counted as parked.
	BackedOff []string
}

// Census counts everyone, in time that grows with the workloads that wait or hold quota.
func (s *State) Census(ask Asked) Census {
	s.world.Settle()
	t := taker{State: s, Asked: ask, lanes: map[*localQueue]*LocalQueueCensus{}, below: map[string]map[resource.FR]resource.Amount{}}
	waiting := t.backedOff()
	var c Census
	t.visitLanes(&c)
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		c.Queues = append(c.Queues, t.queue(s.queues[name], waiting[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(s.cohorts)) {
		c.Cohorts = append(c.Cohorts, t.cohort(name, s.cohorts[name].node))
	}
	return c
}

// taker takes a census.
type taker struct {
	*State
	Asked
	lanes map[*localQueue]*LocalQueueCensus
	below map[string]map[resource.FR]resource.Amount // what is reserved below each cohort
}

// backedOff finds the queues of those that wait for a time. Who is in line already is
// counted there.
func (t *taker) backedOff() map[string][]*record {
	out := map[string][]*record{}
	for _, uid := range t.BackedOff {
		r := t.records[uid]
		if r == nil || r.in != nil || r.def.Reserved {
			continue
		}
		if q, _, _ := t.route(r); q != nil {
			out[q.def.Name] = append(out[q.def.Name], r)
		}
	}
	return out
}

func (t *taker) visitLanes(c *Census) {
	lanes := t.State.lanes(func(l *localQueue) bool { return l.exists })
	slices.SortFunc(lanes, func(a, b *localQueue) int { return a.name.compare(b.name) })
	c.LocalQueues = make([]LocalQueueCensus, len(lanes))
	for i, l := range lanes {
		out := &c.LocalQueues[i]
		*out = LocalQueueCensus{Name: l.name, Queue: l.def.Queue}
		if q := t.queues[l.def.Queue]; q != nil {
			out.Known, out.Cells = true, cellsOf(&q.def)
			for i := range out.Cells {
				out.Cells[i].Quota = Quota{Resource: out.Cells[i].Resource}
			}
		}
		t.lanes[l] = out
	}
}

func (t *taker) queue(q *queue, waiting []*record) QueueCensus {
	out := QueueCensus{
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

// pending counts who waits in a queue, for the queue and for their LocalQueues.
func (t *taker) pending(q *queue, out *QueueCensus, waiting []*record) {
	amounts := map[resource.ID]*resource.Amount{}
	for _, g := range q.def.Groups {
		for _, name := range g.Resources {
			out.Pending = append(out.Pending, ResourceAmount{Resource: name})
		}
	}
	for i := range out.Pending {
		amounts[t.world.Table.ID(out.Pending[i].Resource)] = &out.Pending[i].Amount
	}
	active, parked := map[int32]bool{}, map[int32]bool{} // classes
	count := func(w *workload.Workload, isActive bool) {
		crowd, classes := &out.Parked, parked
		if isActive {
			crowd, classes = &out.Active, active
		}
		crowd.Workloads++
		if t.Classes {
			classes[w.Class] = true
		}
		if t.Keys {
			crowd.Keys = append(crowd.Keys, w.Key)
		}
		ask(amounts, w)
		if lane := t.laneOf(t.records[w.UID], q); lane != nil && isActive {
			lane.Active++
		} else if lane != nil {
			lane.Parked++
		}
	}
	actives := q.q.Pending.Active()
	for i, w := range q.q.Pending.All() {
		count(w, i < actives && !out.Closed)
	}
	for _, r := range waiting {
		count(r.wl, false)
	}
	out.Active.Classes, out.Parked.Classes = len(active), len(parked)
}

// ask adds what a workload asks for to the sums of the resources that are covered.
func ask(sums map[resource.ID]*resource.Amount, w *workload.Workload) {
	for _, ps := range w.PodSets {
		for _, r := range ps.Requests {
			if sum := sums[r.Resource]; sum != nil {
				*sum = sum.Add(r.Amount)
			}
		}
	}
}

// holders counts who holds quota of a queue, for the queue, for their LocalQueues and for
// the cohorts above.
func (t *taker) holders(q *queue, out *QueueCensus) {
	at := map[resource.FR]int{}
	for i, c := range out.Cells {
		at[t.world.Table.FR(c.Flavor, c.Resource)] = i
	}
	all := map[resource.FR]resource.Amount{}
	for w := range q.q.Holders().All() {
		r := t.records[w.UID]
		lane := t.laneOf(r, q)
		out.Reserved++
		if r.def.Admitted {
			out.Admitted++
			if t.Keys {
				out.AdmittedKeys = append(out.AdmittedKeys, w.Key)
			}
		}
		if lane != nil {
			lane.hold(w.Key, r.def.Admitted, t.Keys)
		}
		for _, e := range w.Usage {
			all[e.FR] = all[e.FR].Add(e.Amount)
			if i, listed := at[e.FR]; listed {
				out.Cells[i].hold(e.Amount, r.def.Admitted)
				if lane != nil {
					lane.Cells[i].hold(e.Amount, r.def.Admitted)
				}
			}
		}
	}
	t.bubble(q.q.Node, all)
}

func (l *LocalQueueCensus) hold(key string, admitted, list bool) {
	l.Reserved++
	if !admitted {
		return
	}
	l.Admitted++
	if list {
		l.AdmittedKeys = append(l.AdmittedKeys, key)
	}
}

func (c *CellCensus) hold(a resource.Amount, admitted bool) {
	c.Reserved = c.Reserved.Add(a)
	if admitted {
		c.Used = c.Used.Add(a)
	}
}

// bubble adds what is reserved in a queue to every cohort above it.
func (t *taker) bubble(n quota.Node, all map[resource.FR]resource.Amount) {
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

// laneOf returns the LocalQueue of a workload, if it exists and points to the queue.
func (t *taker) laneOf(r *record, q *queue) *LocalQueueCensus {
	if lane := t.lanes[r.lane]; lane != nil && lane.Queue == q.def.Name {
		return lane
	}
	return nil
}

func (t *taker) cohort(name string, n quota.Node) CohortCensus {
	f := t.world.Quota
	out := CohortCensus{Name: name, Parent: t.cohorts[name].parent(), Root: t.root(n)}
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

func compareHeld(a, b Held) int {
	return cmp.Or(strings.Compare(a.Flavor, b.Flavor), strings.Compare(a.Resource, b.Resource))
}

// root names the top of a node's tree, "" below a cycle.
func (s *State) root(n quota.Node) string {
	if root := s.world.Quota.Root(n); root != quota.None {
		return s.world.Quota.Name(root)
	}
	return ""
}

// cellsOf are the flavor-resources that a queue lists.
func cellsOf(def *Queue) []CellCensus {
	var cells []CellCensus
	for _, g := range def.Groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				cells = append(cells, CellCensus{Flavor: f.Flavor, Quota: r})
			}
		}
	}
	return cells
}
