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

// Statistics are the gauges of the world at one moment. spec: 70 §5.3.
type Statistics struct {
	Queues      []QueueStatistics      // by name
	LocalQueues []LocalQueueStatistics // the existing ones, by namespace and name
	Cohorts     []CohortStatistics     // the defined or named ones, by name
}

// PendingCounts are the active pending workloads of a queue, or the inadmissible ones.
type PendingCounts struct {
	Workloads int
	Classes   int      // number of equivalence classes, if Asked.Classes
	Keys      []string // namespace/name, in no order, if Asked.Keys
}

// QueueStatistics is one ClusterQueue.
type QueueStatistics struct {
	Name, Cohort string
	Root         string // the root of its cohort tree, "" without one and below a cycle
	Closed       bool   // no workload can be admitted: all pending ones count as inadmissible
	// Inadmissible includes workloads that wait for a time.
	Active, Inadmissible PendingCounts
	Reserved, Admitted   int
	AdmittedKeys         []string         // namespace/name, in no order, if they were asked for
	Pending              []ResourceAmount // of each covered resource what all pending ones ask for, in order of the groups
	Cells                []CellStatistics // in order of the groups
	Share                quota.Share
}

// ResourceAmount is an amount of one resource, whatever its flavor.
type ResourceAmount struct {
	Resource string
	Amount   resource.Amount
}

// CellStatistics is one flavor-resource of a ClusterQueue: the usage of all reservations, and
// of the admitted ones.
type CellStatistics struct {
	Flavor string
	Quota
	Reserved, Used resource.Amount
}

// LocalQueueStatistics is one LocalQueue: its share of the ClusterQueue that it points to.
type LocalQueueStatistics struct {
	Name
	Queue                string
	Known                bool // that ClusterQueue exists
	Active, Inadmissible int
	Reserved, Admitted   int
	AdmittedKeys         []string // as in QueueStatistics
	Cells                []CellStatistics
}

// CohortStatistics is one Cohort.
type CohortStatistics struct {
	Name   string
	Parent string // "" for none
	Root   string // the root of its tree, which may be itself; "" below a cycle
	// Subtree is the quota of its subtree, Reserved the usage of all reservations below it,
	// whether lent or not; without zeros, by flavor and resource.
	Subtree, Reserved []Held
	Share             quota.Share
}

// Asked selects the lists of Statistics beyond counts.
type Asked struct {
	Classes, Keys bool
	// BackedOff are the UIDs of workloads that would be in line but for a backoff: they count as
	// inadmissible.
	BackedOff []string
}

// Statistics counts all workloads, in time that grows with the workloads that are pending or hold
// quota.
func (s *State) Statistics(ask Asked) Statistics {
	s.world.ApplyEdits()
	t := collector{State: s, Asked: ask, localQueueStats: map[*localQueue]*LocalQueueStatistics{}, below: map[string]map[resource.FR]resource.Amount{}}
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

// collector collects Statistics.
type collector struct {
	*State
	Asked
	localQueueStats map[*localQueue]*LocalQueueStatistics
	below           map[string]map[resource.FR]resource.Amount // what is reserved below each cohort
}

// backedOff returns the backed-off workloads by queue, without those in line, which are
// counted there.
func (t *collector) backedOff() map[string][]*record {
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

func (t *collector) visitLocalQueues(c *Statistics) {
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

func (t *collector) queue(q *queue, waiting []*record) QueueStatistics {
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
func (t *collector) pending(q *queue, out *QueueStatistics, waiting []*record) {
	amounts := map[resource.ID]*resource.Amount{}
	for _, g := range q.def.Groups {
		for _, name := range g.Resources {
			out.Pending = append(out.Pending, ResourceAmount{Resource: name})
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
		ask(amounts, w)
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
func ask(sums map[resource.ID]*resource.Amount, w *workload.Workload) {
	for _, ps := range w.PodSets {
		for _, r := range ps.Requests {
			if sum := sums[r.Resource]; sum != nil {
				*sum = sum.Add(r.Amount)
			}
		}
	}
}

// holders counts the reservations of a queue, for the queue, its LocalQueues and its cohorts.
func (t *collector) holders(q *queue, out *QueueStatistics) {
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
		for _, e := range w.Usage {
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

func (c *CellStatistics) hold(a resource.Amount, admitted bool) {
	c.Reserved = c.Reserved.Add(a)
	if admitted {
		c.Used = c.Used.Add(a)
	}
}

// addToCohorts adds the usage of a queue to every cohort above it.
func (t *collector) addToCohorts(n quota.Node, all map[resource.FR]resource.Amount) {
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
func (t *collector) localQueueOf(r *record, q *queue) *LocalQueueStatistics {
	if lq := t.localQueueStats[r.lq]; lq != nil && lq.Queue == q.def.Name {
		return lq
	}
	return nil
}

func (t *collector) cohort(name string, n quota.Node) CohortStatistics {
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

func compareHeld(a, b Held) int {
	return cmp.Or(strings.Compare(a.Flavor, b.Flavor), strings.Compare(a.Resource, b.Resource))
}

// root names the root of a node's tree, "" below a cycle.
func (s *State) root(n quota.Node) string {
	if root := s.world.Quota.Root(n); root != quota.None {
		return s.world.Quota.Name(root)
	}
	return ""
}

// cellsOf are the flavor-resources that a queue lists.
func cellsOf(def *Queue) []CellStatistics {
	var cells []CellStatistics
	for _, g := range def.Groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				cells = append(cells, CellStatistics{Flavor: f.Flavor, Quota: r})
			}
		}
	}
	return cells
}
