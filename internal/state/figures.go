package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/sharing"
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
	Pending              []Request        // of each covered resource what all pending ones ask for, in order of the groups
	Cells                []cellStatistics // in order of the groups
	Share                quota.Share
}

// cellStatistics is one flavor-resource of a ClusterQueue: the usage of all reservations, and
// of the admitted ones.
type cellStatistics struct {
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
	Cells                []cellStatistics
	Usage                *sharing.Usage // nil without admission fair sharing
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
}

// Statistics counts the workloads, in time that grows with the queues and the pending workloads; with lists also with the listed ones.
func (m *Model) Statistics(ask Asked) Statistics {
	t := collector{m, ask, map[Name]*LocalQueueStatistics{}, map[string]map[resource.Pair]resource.Amount{}}
	var c Statistics
	t.addLocalQueues(&c)
	for q := range m.queues.all() {
		c.Queues = append(c.Queues, t.queue(q))
	}
	for co := range m.cohorts.all() {
		c.Cohorts = append(c.Cohorts, t.cohort(co))
	}
	return c
}

// collector collects Statistics.
type collector struct {
	*Model
	Asked
	localQueueStats map[Name]*LocalQueueStatistics
	below           map[string]map[resource.Pair]resource.Amount // what is reserved below each cohort
}

func (t *collector) addLocalQueues(c *Statistics) {
	c.LocalQueues = make([]LocalQueueStatistics, 0, t.localQueues.Len())
	for l := range t.localQueues.all() {
		out := LocalQueueStatistics{Name: l.Name, Queue: l.queue, Usage: l.usage}
		if q := t.Model.queue(l.queue); q != nil {
			out.Known, out.Cells = true, cellsOf(q.Queue)
			for i := range out.Cells {
				out.Cells[i].Quota = Quota{Resource: out.Cells[i].Resource}
			}
			out.Reserved, out.Admitted = int(l.reserved), int(l.admitted)
			l.sums.fill(out.Cells)
		}
		c.LocalQueues = append(c.LocalQueues, out)
		t.localQueueStats[l.Name] = &c.LocalQueues[len(c.LocalQueues)-1]
	}
}

// fill sets the usage of cells.
func (s *sums) fill(cells []cellStatistics) {
	if s == nil {
		return
	}
	for i := range s.held {
		h := &s.held[i]
		at := slices.IndexFunc(cells, func(c cellStatistics) bool { return c.Flavor == h.Flavor && c.Resource == h.Resource })
		if at >= 0 {
			cells[at].Reserved, cells[at].Used = h.reserved.amount(), h.used.amount()
		}
	}
}

func (t *collector) queue(q *queueView) QueueStatistics {
	out := QueueStatistics{
		Name: q.Name, Cohort: q.Cohort, Root: q.root, Closed: q.closed, Share: q.share, Cells: cellsOf(q.Queue),
		Reserved: int(q.reserved), Admitted: int(q.admitted),
	}
	out.Active.Workloads, out.Inadmissible.Workloads = int(q.active), int(q.inadmissible)
	if q.closed {
		out.Active.Workloads, out.Inadmissible.Workloads = 0, int(q.active+q.inadmissible)
	}
	q.sums.fill(out.Cells)
	asked := q.asked(t.resources)
	t.pending(q, &out, asked)
	for _, g := range q.Groups {
		for _, name := range g.Resources {
			out.Pending = append(out.Pending, Request{name, asked[name].amount()})
		}
	}
	if t.Keys {
		t.admittedKeys(q, &out)
	}
	t.addToCohorts(q)
	return out
}

// asked returns the requests of the workloads in line by resource. Of pods, their number is what counts (spec: 10 §4.2).
func (q *queueView) asked(resources *[]string) map[string]total {
	out := map[string]total{}
	if q.sums != nil {
		for _, d := range q.sums.asked {
			out[(*resources)[d.resource]] = d.total
		}
		out[resource.Pods] = q.sums.pods
	}
	return out
}

// pending adds what is not counted before: lists, the counts of LocalQueues, and workloads in backoff.
func (t *collector) pending(q *queueView, out *QueueStatistics, asked map[string]total) {
	active, inadmissible := map[int32]bool{}, map[int32]bool{} // classes
	for e := range q.waiting() {
		isActive := q.isActive(e)
		if !e.has(inLine) {
			if !e.has(backedOff) {
				continue
			}
			out.Inadmissible.Workloads++
			addRequests(asked, e.wl, *t.resources)
		}
		counts, classes := &out.Inadmissible, inadmissible
		if isActive {
			counts, classes = &out.Active, active
		}
		if t.Classes {
			classes[e.wl.Class] = true
		}
		if t.Keys {
			counts.Keys = append(counts.Keys, e.wl.Key)
		}
		if lq := t.localQueueStats[e.lq.name]; lq != nil && isActive {
			lq.Active++
		} else if lq != nil {
			lq.Inadmissible++
		}
	}
	out.Active.Classes, out.Inadmissible.Classes = len(active), len(inadmissible)
}

// addRequests adds the requests of a workload.
func addRequests(to map[string]total, w *workload.Workload, resources []string) {
	add := func(name string, amount resource.Amount) {
		sum := to[name]
		sum.add(amount, 1)
		to[name] = sum
	}
	for i := range w.PodSets {
		add(resource.Pods, resource.Amount(w.PodSets[i].Count))
		for _, r := range w.PodSets[i].Requests {
			if int(r.Resource) < len(resources) && resources[r.Resource] != resource.Pods {
				add(resources[r.Resource], r.Amount)
			}
		}
	}
}

func (t *collector) admittedKeys(q *queueView, out *QueueStatistics) {
	for e := range q.held.all() {
		if !e.has(admitted) {
			continue
		}
		out.AdmittedKeys = append(out.AdmittedKeys, e.wl.Key)
		if lq := t.localQueueStats[e.lq.name]; lq != nil && e.has(own) {
			lq.AdmittedKeys = append(lq.AdmittedKeys, e.wl.Key)
		}
	}
}

// addToCohorts adds the usage of a queue to every cohort above it.
func (t *collector) addToCohorts(q *queueView) {
	if q.root == "" || q.sums == nil {
		return
	}
	for c := t.Model.cohort(q.Cohort); c != nil; c = t.Model.cohort(c.parent) {
		sums := t.below[c.name]
		if sums == nil {
			sums = map[resource.Pair]resource.Amount{}
			t.below[c.name] = sums
		}
		for i := range q.sums.held {
			h := &q.sums.held[i]
			sums[*h.Pair] = sums[*h.Pair].Add(h.reserved.amount())
		}
	}
}

func (t *collector) cohort(c *cohortView) CohortStatistics {
	out := CohortStatistics{Name: c.name, Parent: c.parent, Root: c.root, Share: c.share}
	if c.root == "" {
		return out
	}
	out.Subtree = *c.subtree
	for pair, a := range t.below[c.name] { //berth:unordered sorted below
		if a != 0 {
			out.Reserved = append(out.Reserved, Held{Flavor: pair.Flavor, Resource: pair.Resource, Amount: a})
		}
	}
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
func cellsOf(def *Queue) []cellStatistics {
	var cells []cellStatistics
	for _, g := range def.Groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				cells = append(cells, cellStatistics{Flavor: f.Flavor, Quota: r})
			}
		}
	}
	return cells
}
