// Package state is the engine's world and the only mutable scheduling cache: events
// in, decisions out. It knows names and versions, which package core does not, and
// nothing of Kubernetes. One goroutine owns a State. spec: 10 §4.1, §4.16.
package state

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// State is the world as the events so far describe it.
type State struct {
	world       *cycle.World
	flavors     map[string]*flavor.Flavor
	cohorts     map[string]*cohort
	queues      map[string]*queue
	localQueues map[string]LocalQueue
	namespaces  map[string]map[string]string
	records     map[string]*record // by UID
	classes     map[string]*class  // by key
	lastClass   int32
	looks       map[string]*trace.Look // the last look at each workload, by UID
	notices     []cycle.Decision       // what is known without a look
	touched     map[Name]bool          // queues whose view may be another one now
}

// Name names a LocalQueue, or a ClusterQueue when it has no namespace.
type Name struct {
	Namespace, Name string
}

type cohort struct {
	node quota.Node
	def  *Cohort // nil: only named by others
}

type queue struct {
	def Queue
	q   *cycle.Queue
}

// Options are the settings that decisions depend on.
type Options struct {
	// IgnoreUndeclared: resources that a queue does not cover need no quota there.
	IgnoreUndeclared bool
}

// New returns an empty state.
func New(o Options) *State {
	s := &State{
		world: cycle.NewWorld(), flavors: map[string]*flavor.Flavor{}, cohorts: map[string]*cohort{},
		queues: map[string]*queue{}, localQueues: map[string]LocalQueue{}, namespaces: map[string]map[string]string{},
		records: map[string]*record{}, classes: map[string]*class{}, looks: map[string]*trace.Look{},
		touched: map[Name]bool{},
	}
	s.world.IgnoreUndeclared = o.IgnoreUndeclared
	s.world.NamespaceLabels = func(w *workload.Workload) (map[string]string, bool) {
		namespace, _ := w.Split()
		labels, ok := s.namespaces[namespace]
		return labels, ok
	}
	return s
}

// Step makes progress until there is none to make, or for budget cycles. Workloads
// that it admits count as admitted from here on; the caller reports how writing that
// down went with SetWorkload or AdmissionFailed.
func (s *State) Step(now workload.Instant, budget int) cycle.Result {
	r := s.world.Step(now, budget)
	r.Decisions = append(s.drainNotices(), r.Decisions...)
	for _, d := range r.Decisions {
		s.looks[d.Workload.UID] = d.Look
		if rec := s.records[d.Workload.UID]; rec != nil && d.Look.Verdict == trace.Admitted {
			rec.assumed = true
		}
		s.touch(s.records[d.Workload.UID])
	}
	return r
}

// Touched returns, sorted, the queues whose view may have changed since the last call.
func (s *State) Touched() []Name {
	names := slices.SortedFunc(maps.Keys(s.touched), func(a, b Name) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	clear(s.touched)
	return names
}

// touch notes that the queues of a record show it otherwise from now on.
func (s *State) touch(r *record) {
	if r == nil {
		return
	}
	if r.in != nil {
		s.touched[Name{Name: r.in.Name}] = true
	}
	if r.def.LocalQueue != "" {
		s.touched[Name{r.def.Namespace, r.def.LocalQueue}] = true
	}
}

// Grant is an admission in names.
type Grant struct {
	Queue   string
	PodSets []PodSetGrant
}

// PodSetGrant is what one pod set got.
type PodSetGrant struct {
	Name  string
	Count int32
	Held  []Held
}

// Grant puts the admission of a decision into names.
func (s *State) Grant(d *cycle.Decision) Grant {
	g := Grant{Queue: d.Queue}
	for _, ps := range d.Admitted.PodSets {
		out := PodSetGrant{Name: ps.Name, Count: ps.Count}
		for _, r := range ps.Resources {
			out.Held = append(out.Held, s.held(resource.Entry{FR: r.FR, Amount: r.Amount}))
		}
		g.PodSets = append(g.PodSets, out)
	}
	return g
}

// drainNotices returns what became known without a look, for those it is still true of.
func (s *State) drainNotices() []cycle.Decision {
	slices.SortStableFunc(s.notices, func(a, b cycle.Decision) int {
		return strings.Compare(a.Workload.Key, b.Workload.Key)
	})
	var out []cycle.Decision
	for _, d := range s.notices {
		if rec := s.records[d.Workload.UID]; rec != nil && rec.wl == d.Workload && !rec.wl.Reserved {
			out = append(out, d)
		}
	}
	s.notices = nil
	return out
}

// Look returns the record of the last look at a workload, or nil.
func (s *State) Look(uid string) *trace.Look { return s.looks[uid] }

// SetFlavor adds or changes a flavor; its Missing is ignored.
func (s *State) SetFlavor(f flavor.Flavor) {
	f.Missing = false
	s.setFlavor(f)
}

// DeleteFlavor takes a flavor away. Queues that name it are closed until it is back.
func (s *State) DeleteFlavor(name string) {
	s.setFlavor(flavor.Flavor{Name: name, Missing: true})
}

func (s *State) setFlavor(f flavor.Flavor) {
	have := s.flavor(f.Name)
	if reflect.DeepEqual(*have, f) {
		return
	}
	*have = f
	var nodes []quota.Node
	var turned []*queue // opened or closed by this
	for _, q := range s.using(f.Name) {
		was := q.q.Closed
		if q.q.Closed = s.closed(&q.def); q.q.Closed != was {
			turned = append(turned, q)
		}
		nodes = append(nodes, q.q.Node)
	}
	s.edited(nodes...)
	for _, q := range turned {
		s.replace(func(r *record) bool { return r.heads(s, q.def.Name) })
	}
}

// closed says why nothing can be admitted in a queue, "" when something can.
func (s *State) closed(def *Queue) string {
	var missing []string
	for _, g := range def.Groups {
		for _, f := range g.Flavors {
			if s.flavor(f.Flavor).Missing {
				missing = append(missing, f.Flavor)
			}
		}
	}
	if def.Closed != "" || len(missing) == 0 {
		return def.Closed
	}
	slices.Sort(missing)
	return "ResourceFlavors not found: " + strings.Join(slices.Compact(missing), ", ")
}

// flavor returns the flavor of a name, a missing one at its first use.
func (s *State) flavor(name string) *flavor.Flavor {
	f := s.flavors[name]
	if f == nil {
		f = &flavor.Flavor{Name: name, Missing: true}
		s.flavors[name] = f
	}
	return f
}

// using returns the queues that list a flavor, by name.
func (s *State) using(name string) []*queue {
	var out []*queue
	for _, key := range slices.Sorted(maps.Keys(s.queues)) {
		q := s.queues[key]
		for _, g := range q.def.Groups {
			if slices.ContainsFunc(g.Flavors, func(f FlavorQuota) bool { return f.Flavor == name }) {
				out = append(out, q)
				break
			}
		}
	}
	return out
}

// edited recomputes the forest and has everyone in the nodes' trees looked at again.
func (s *State) edited(nodes ...quota.Node) {
	if len(nodes) > 0 {
		s.world.Edited(nodes...)
	}
}

// SetCohort adds or changes a cohort.
func (s *State) SetCohort(def Cohort) {
	c := s.cohort(def.Name)
	if c.def != nil && reflect.DeepEqual(*c.def, def) {
		return
	}
	c.def = &def
	s.editCohort(c, def.Parent, def.Groups)
}

// editCohort gives a cohort its place and quota, and has the tree that it leaves looked
// at again as well as the one that it joins.
func (s *State) editCohort(c *cohort, parent string, groups []Group) {
	left := s.world.Quota.Root(c.node)
	s.world.Quota.SetQuota(c.node, s.cells(groups))
	s.world.Quota.SetParent(c.node, s.parent(parent))
	s.world.Edited(c.node, left)
	s.sweepCohorts()
}

// DeleteCohort takes a cohort's own quota and parent away. As long as others name it,
// it lives on without them. spec: 10 §4.3.5.
func (s *State) DeleteCohort(name string) {
	c := s.cohorts[name]
	if c == nil {
		return
	}
	c.def = nil
	s.editCohort(c, "", nil)
}

func (s *State) cohort(name string) *cohort {
	c := s.cohorts[name]
	if c == nil {
		c = &cohort{node: s.world.Quota.Add(true)}
		s.cohorts[name] = c
	}
	return c
}

// parent returns the node of the cohort of a name, or none for no name.
func (s *State) parent(name string) quota.Node {
	if name == "" {
		return quota.None
	}
	return s.cohort(name).node
}

// sweepCohorts removes the cohorts that nobody names any more.
func (s *State) sweepCohorts() {
	named := map[string]bool{}
	for _, q := range s.queues { //berth:unordered fills a set
		named[q.def.Cohort] = true
	}
	for _, c := range s.cohorts { //berth:unordered fills a set
		if c.def != nil {
			named[c.def.Parent] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.cohorts)) {
		if c := s.cohorts[name]; c.def == nil && !named[name] {
			s.world.Quota.Remove(c.node)
			delete(s.cohorts, name)
		}
	}
	s.world.Quota.Settle()
}

func (s *State) cells(groups []Group) []quota.Cell {
	var cells []quota.Cell
	for _, g := range groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				cells = append(cells, quota.Cell{
					FR: s.world.Table.FR(f.Flavor, r.Resource), Nominal: r.Nominal, Borrow: r.Borrow, Lend: r.Lend,
				})
			}
		}
	}
	return cells
}

// SetQueue adds or changes a queue.
func (s *State) SetQueue(def Queue) {
	have := s.queues[def.Name]
	if have != nil && reflect.DeepEqual(have.def, def) {
		return
	}
	fresh := have == nil
	if fresh {
		have = &queue{q: &cycle.Queue{Name: def.Name, Node: s.world.Quota.Add(false)}}
		s.queues[def.Name] = have
		s.world.AddQueue(have.q)
	}
	s.touched[Name{Name: def.Name}] = true
	q := have.q
	have.def = def
	was := q.Closed
	q.Closed, q.Strict, q.Namespaces = s.closed(&def), def.Strict, def.Namespaces
	q.Policy, q.Preemption, q.Groups = def.Fungibility, def.Preemption, s.groups(def.Groups)
	s.world.Quota.SetQuota(q.Node, s.cells(def.Groups))
	s.world.Quota.SetParent(q.Node, s.parent(def.Cohort))
	s.world.Edited(q.Node)
	s.sweepCohorts()
	if fresh || q.Closed != was {
		s.replace(func(r *record) bool { return r.heads(s, def.Name) })
	}
}

func (s *State) groups(defs []Group) []flavor.Group {
	groups := make([]flavor.Group, 0, len(defs))
	for _, d := range defs {
		var g flavor.Group
		for _, name := range d.Resources {
			g.Resources = append(g.Resources, s.world.Table.ID(name))
		}
		for _, f := range d.Flavors {
			offer := flavor.Offer{Flavor: s.flavor(f.Flavor)}
			for _, name := range d.Resources {
				offer.FRs = append(offer.FRs, s.world.Table.FR(f.Flavor, name))
			}
			g.Offers = append(g.Offers, offer)
		}
		groups = append(groups, g)
	}
	return groups
}

// DeleteQueue takes a queue out. Its quota is gone; workloads with a reservation in
// it are no longer counted anywhere, those in its line wait for it to return.
func (s *State) DeleteQueue(name string) {
	have := s.queues[name]
	if have == nil {
		return
	}
	delete(s.queues, name)
	s.world.RemoveQueue(have.q)
	s.world.Quota.Remove(have.q.Node)
	s.world.Edited(have.q.Node)
	s.sweepCohorts()
	for _, r := range s.records { //berth:unordered each record is changed on its own
		if r.in == have.q {
			r.in = nil
		}
	}
	s.replace(func(r *record) bool { return r.heads(s, name) })
}

// SetLocalQueue adds or changes a LocalQueue.
func (s *State) SetLocalQueue(def LocalQueue) {
	if s.localQueues[def.key()] == def {
		return
	}
	s.localQueues[def.key()] = def
	s.touched[Name{def.Namespace, def.Name}] = true
	s.replace(func(r *record) bool { return r.def.Namespace == def.Namespace && r.def.LocalQueue == def.Name })
}

// DeleteLocalQueue takes a LocalQueue away; whoever waits in it waits for it to return.
func (s *State) DeleteLocalQueue(namespace, name string) {
	delete(s.localQueues, namespace+"/"+name)
	s.replace(func(r *record) bool { return r.def.Namespace == namespace && r.def.LocalQueue == name })
}

// SetNamespace says which labels a namespace has.
func (s *State) SetNamespace(name string, labels map[string]string) {
	have, known := s.namespaces[name]
	if known && reflect.DeepEqual(have, labels) {
		return
	}
	s.namespaces[name] = labels
	s.rouse(name)
}

// DeleteNamespace forgets a namespace.
func (s *State) DeleteNamespace(name string) {
	delete(s.namespaces, name)
	s.rouse(name)
}

// rouse has the workloads that wait in a namespace looked at again.
func (s *State) rouse(namespace string) {
	var nodes []quota.Node
	for _, r := range s.records { //berth:unordered the nodes are a set
		if r.def.Namespace == namespace && r.in != nil && !r.wl.Reserved {
			nodes = append(nodes, r.in.Node)
		}
	}
	s.edited(nodes...)
}

// amounts interns what a workload holds, without zeros.
func (s *State) amounts(held []Held) resource.Vector {
	var v resource.Vector
	for _, h := range held {
		if h.Amount <= 0 {
			continue
		}
		fr := s.world.Table.FR(h.Flavor, h.Resource)
		s.world.Quota.Reach(fr)
		v = v.Plus(fr, h.Amount)
	}
	return v
}
