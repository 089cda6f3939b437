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
)

func (e SetFlavor) apply(s *State) {
	e.Missing = false
	s.setFlavor(flavor.Flavor(e))
}

func (e DeleteFlavor) apply(s *State) {
	s.setFlavor(flavor.Flavor{Name: string(e), Missing: true})
}

func (s *State) setFlavor(f flavor.Flavor) {
	have := s.flavor(f.Name)
	if reflect.DeepEqual(*have, f) {
		return
	}
	*have = f
	keepDefinition(&s.defined.flavors, &f, !f.Missing, compareFlavors)
	s.setTree(have)
	var nodes []quota.Node
	using := s.using(f.Name)
	for _, q := range using {
		s.setShares(q)
		nodes = append(nodes, q.q.Node)
	}
	turned := s.reclose(using)
	s.edited(nodes...)
	s.rerouteQueues(turned)
}

// reclose recomputes whether queues are closed, and returns the changed ones.
func (s *State) reclose(queues []*queue) (turned []*queue) {
	for _, q := range queues {
		was := q.q.Closed
		if q.q.Closed = s.closed(&q.def); q.q.Closed != was {
			s.see(&q.seen)
			s.read.see(&q.seen)
			turned = append(turned, q)
		}
	}
	return turned
}

// rerouteQueues reroutes the pending workloads of queues that were opened or closed.
func (s *State) rerouteQueues(turned []*queue) {
	for _, q := range turned {
		s.reroute(s.leadingTo(q.def.Name))
	}
}

// closed returns why no workload can be admitted in a queue, "" when it is open.
func (s *State) closed(def *Queue) string {
	var missing []string
	for _, g := range def.Groups {
		for _, f := range g.Flavors {
			if s.flavor(f.Flavor).Missing {
				missing = append(missing, f.Flavor)
			}
		}
	}
	switch {
	case def.Closed != "":
		return def.Closed
	case len(missing) > 0:
		slices.Sort(missing)
		return "ResourceFlavors not found: " + strings.Join(slices.Compact(missing), ", ")
	}
	if circle := quota.Circle(def.Cohort, s.parentOf); circle != nil {
		return quota.InCircle(circle)
	}
	return ""
}

// flavor returns the flavor of a name, a missing one if there is none.
func (s *State) flavor(name string) *flavor.Flavor {
	f := s.flavors[name]
	if f == nil {
		f = &flavor.Flavor{Name: name, Missing: true}
		s.flavors[name] = f
	}
	return f
}

// inCohorts returns the queues that have a cohort, by name.
func (s *State) inCohorts() []*queue {
	var out []*queue
	for _, key := range slices.Sorted(maps.Keys(s.queues)) {
		if q := s.queues[key]; q.def.Cohort != "" {
			out = append(out, q)
		}
	}
	return out
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

// edited causes an evaluation of all workloads in the nodes' trees.
func (s *State) edited(nodes ...quota.Node) {
	if len(nodes) > 0 {
		s.world.Edited(nodes...)
	}
}

func (e SetCohort) apply(s *State) {
	def := Cohort(e)
	c := s.cohort(def.Name)
	if c.def != nil && reflect.DeepEqual(*c.def, def) {
		return
	}
	was := c.parent()
	s.hang(c.node, was, def.Parent)
	c.def = &def
	keepDefinition(&s.defined.cohorts, &def, true, compareDefined)
	s.editCohort(c, &def, was)
}

func (e DeleteCohort) apply(s *State) {
	name := string(e)
	c := s.cohorts[name]
	if c == nil {
		return
	}
	was := c.parent()
	s.hang(c.node, was, "")
	c.def = nil
	keepDefinition(&s.defined.cohorts, &Cohort{Name: name}, false, compareDefined)
	s.editCohort(c, &Cohort{}, was)
	s.sweep(name)
}

// editCohort applies a definition to a cohort, given its parent before.
func (s *State) editCohort(c *cohort, def *Cohort, parent string) {
	s.reshare = true
	s.read.edit(s.world.Quota.Name(c.node))
	s.world.Quota.SetQuota(c.node, s.cells(def.Groups))
	s.world.Quota.SetWeight(c.node, weight(def.Weight))
	s.world.Edited(c.node)
	if def.Parent != parent {
		s.rerouteQueues(s.reclose(s.inCohorts()))
	}
}

// weight returns the weight of a fair share.
func weight(w *quota.Weight) quota.Weight {
	if w == nil {
		return quota.DefaultWeight
	}
	return *w
}

func (s *State) cohort(name string) *cohort {
	c := s.cohorts[name]
	if c == nil {
		c = &cohort{node: s.world.Quota.Add(name, true)}
		s.cohorts[name] = c
	}
	return c
}

// parent is the name of the cohort above, "" for none.
func (c *cohort) parent() string {
	if c.def == nil {
		return ""
	}
	return c.def.Parent
}

// hang moves a node from below one cohort to below another; "" is none. A cohort exists
// while it is defined or has children.
func (s *State) hang(n quota.Node, from, to string) {
	if from == to {
		return
	}
	s.read.edit(from)
	s.read.edit(to)
	parent := quota.None
	if to != "" {
		c := s.cohort(to)
		c.named++
		parent = c.node
	}
	s.world.Quota.SetParent(n, parent)
	if from != "" {
		s.cohorts[from].named--
		s.sweep(from)
	}
}

// sweep removes a cohort that is neither defined nor named any more.
func (s *State) sweep(name string) {
	if c := s.cohorts[name]; c.def == nil && c.named == 0 {
		s.world.Quota.Remove(c.node)
		s.world.Edited()
		delete(s.cohorts, name)
	}
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

func (e SetQueue) apply(s *State) {
	def := Queue(e)
	have := s.queues[def.Name]
	if have != nil && reflect.DeepEqual(have.def, def) {
		return
	}
	fresh := have == nil
	if fresh {
		have = &queue{seen: seen{name: Name{Name: def.Name}}, q: &cycle.Queue{Name: def.Name, Node: s.world.Quota.Add(def.Name, false)}}
		s.queues[def.Name] = have
		s.world.AddQueue(have.q)
		s.byIndex = append(s.byIndex, have)
		s.watch(have)
	}
	s.see(&have.seen)
	s.read.see(&have.seen)
	s.reshare = true
	q := have.q
	s.hang(q.Node, have.def.Cohort, def.Cohort)
	s.read.edit(def.Cohort)
	was, before := q.Closed, have.def
	have.def, have.published.def = def, new(def)
	keepDefinition(&s.defined.queues, &definedQueue{q.Index, have.published.def}, true, compareIndexes)
	q.Closed, q.Strict, q.Namespaces, q.UsageBased = s.closed(&def), def.Strict, def.Namespaces, def.UsageBased
	q.Backfill = s.backfills(&def)
	q.Policy, q.Preemption, q.Groups = def.Fungibility, def.Preemption, s.groups(def.Groups)
	q.DelayAll, q.DelayFlavors = def.DelayAll, def.DelayFlavors
	s.setShares(have)
	s.world.Quota.SetQuota(q.Node, s.cells(def.Groups))
	s.world.Quota.SetWeight(q.Node, weight(def.Weight))
	s.world.Edited(q.Node)
	if def.UsageBased != before.UsageBased {
		s.rankAll(def.Name)
	}
	if fresh {
		s.adoptOrphans(def.Name)
		s.seeLocalQueues(def.Name)
	}
	if !fresh && def.PlacedElsewhere != before.PlacedElsewhere {
		s.followSecondPasses(def.Name)
	}
	s.countBackfilling(!fresh && s.backfills(&before) != cycle.NoBackfill, q.Backfill != cycle.NoBackfill)
	if fresh || q.Closed != was || def.UsageBased != before.UsageBased || def.Checked != before.Checked || def.Variants != before.Variants || def.MigratesTo != before.MigratesTo {
		s.reroute(s.leadingTo(def.Name))
	}
}

// backfills returns how many starts a queue reserves. An order by usage changes with every admission, and checks and variants decide later than
// the engine what starts.
func (s *State) backfills(def *Queue) cycle.Backfill {
	if def.UsageBased || def.Checked || def.Variants {
		return cycle.NoBackfill
	}
	return cmp.Or(def.Backfill, s.options.Backfill)
}

// countBackfilling counts the queues that reserve starts, given whether one is one of them before and after a change. Bounds matter to the classes
// of workloads while there are any.
func (s *State) countBackfilling(before, after bool) {
	was := s.backfilling > 0
	if before {
		s.backfilling--
	}
	if after {
		s.backfilling++
	}
	if was == (s.backfilling > 0) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		s.reroute(s.leadingTo(name))
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

func (e DeleteQueue) apply(s *State) {
	name := string(e)
	have := s.queues[name]
	if have == nil {
		return
	}
	s.reshare = true
	s.read.see(&have.seen)
	s.read.dropAttempts(have)
	keepDefinition(&s.defined.queues, &definedQueue{index: have.q.Index}, false, compareIndexes)
	held := slices.Collect(have.q.Holders().All())
	line := s.world.RemoveQueue(have.q)
	s.hang(have.q.Node, have.def.Cohort, "")
	s.world.Quota.Remove(have.q.Node)
	s.world.Edited()
	for _, w := range slices.Concat(held, line) {
		r := s.records[w.UID]
		s.touch(r)
		r.in = nil
		s.addOrphans(r, name)
	}
	delete(s.queues, name)
	s.countBackfilling(have.q.Backfill != cycle.NoBackfill, false)
	for _, l := range s.leadingTo(name) {
		l.ranked = nil
	}
	s.seeLocalQueues(name)
	s.reroute(s.leadingTo(name))
}

// seeLocalQueues is see for the LocalQueues that lead to a ClusterQueue.
func (s *State) seeLocalQueues(queue string) {
	for _, l := range s.leadingTo(queue) {
		s.see(&l.seen)
	}
}
