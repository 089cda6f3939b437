package state

import (
	"iter"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
)

// ground is the nodes and the flavors with a topology in a Model.
type ground struct {
	nodes   sorted[*SetNode]
	foreign sorted[*SetForeign]
	flavors sorted[*SetFlavor]
}

func compareNodes(a, b *SetNode) int           { return strings.Compare(a.Name, b.Name) }
func compareForeign(a, b *SetForeign) int      { return strings.Compare(a.Node, b.Node) }
func compareGroundFlavors(a, b *SetFlavor) int { return strings.Compare(a.Name, b.Name) }
func compareFlavorName(name string) func(*SetFlavor) int {
	return func(f *SetFlavor) int { return strings.Compare(f.Name, name) }
}

// beginGround notes all nodes and flavors.
func (s *State) beginGround() {
	if s.places == nil {
		return
	}
	m := rememberNodes(s.places.Nodes(), nil, nil, s.world.Table.Names())
	for i := range m.Nodes {
		s.read.ground.nodes = s.read.ground.nodes.put(&m.Nodes[i], compareNodes)
	}
	for i := range m.Foreign {
		s.read.ground.foreign = s.read.ground.foreign.put(&m.Foreign[i], compareForeign)
	}
	for _, f := range s.flavors { //berth:unordered a set
		s.read.setFlavor(f)
	}
}

func (p *publisher) setNode(e *SetNode) {
	if p != nil {
		p.ground.nodes = p.ground.nodes.put(e, compareNodes)
	}
}

func (p *publisher) dropNode(name string) {
	if p != nil {
		p.ground.nodes = p.ground.nodes.drop(&SetNode{Name: name}, compareNodes)
	}
}

func (p *publisher) setForeign(e *SetForeign) {
	switch {
	case p == nil:
	case len(e.Used) == 0:
		p.ground.foreign = p.ground.foreign.drop(e, compareForeign)
	default:
		p.ground.foreign = p.ground.foreign.put(e, compareForeign)
	}
}

// setFlavor notes a flavor, or that it has no topology any more.
func (p *publisher) setFlavor(f *flavor.Flavor) {
	if p == nil {
		return
	}
	now := new(SetFlavor(*f))
	if len(f.Levels) == 0 || f.Missing {
		p.ground.flavors = p.ground.flavors.drop(now, compareGroundFlavors)
		return
	}
	p.ground.flavors = p.ground.flavors.put(now, compareGroundFlavors)
}

// occupied is the places of a workload that holds quota, with its pod sets. It is immutable.
type occupied struct {
	of     *shape
	placed []PodSetPlacement
	uses   ledger.Part // less than its pods while it replaces a slice
}

func (o *occupied) same(p *occupied) bool {
	return o == p || o != nil && p != nil && o.of == p.of && samePlaced(o.placed, p.placed) && (o.uses == p.uses || o.uses.Equal(p.uses))
}

// occupiedBy returns the places of a record that holds quota, nil if it has none.
func (s *State) occupiedBy(r *record) *occupied {
	if s.places == nil {
		return nil
	}
	uses := r.wl.Usage.Part(s.places.Key)
	if uses == nil {
		return nil
	}
	placed := r.def.Placed
	if r.assumed() {
		placed = placementsOf(r.got)
	}
	return &occupied{r.def.shape, placed, uses}
}

// placementsOf returns the places of an admission.
func placementsOf(h *flavor.Holding) (placed []PodSetPlacement) {
	for _, ps := range h.PodSets {
		if ps.Placement != nil {
			placed = append(placed, PodSetPlacement{ps.Name, *ps.Placement})
		}
	}
	return placed
}

// PlacesSince calls change with events that turn the nodes, the flavors with a topology and the workloads with places of an
// earlier Model, or of none, into the ones of this Model: SetFlavor, DeleteFlavor, SetNode, DeleteNode, SetForeign, and SetWorkload
// and DeleteWorkload of workloads that hold quota and have places, with their names, queues, pod sets and places only. Beside a
// SetWorkload comes what the workload uses of nodes. It costs in proportion to the changes.
func (m *Model) PlacesSince(before *Model, change func(Event, ledger.Part)) {
	if before == nil {
		before = &Model{}
	}
	differences(before.flavors, m.flavors, compareGroundFlavors, func(old, now *SetFlavor) {
		if now == nil {
			change(DeleteFlavor(old.Name), nil)
		} else {
			change(*now, nil)
		}
	})
	differences(before.foreign, m.foreign, compareForeign, func(old, now *SetForeign) {
		if now == nil {
			change(SetForeign{Node: old.Node}, nil)
		} else {
			change(*now, nil)
		}
	})
	differences(before.nodes, m.nodes, compareNodes, func(old, now *SetNode) {
		if now == nil {
			change(DeleteNode(old.Name), nil)
		} else {
			change(*now, nil)
		}
	})
	m.occupantsSince(before, change)
}

// occupantsSince is PlacesSince for workloads. Deletions come first, as a workload may have changed its queue.
func (m *Model) occupantsSince(before *Model, change func(Event, ledger.Part)) {
	type occupant struct {
		*entry
		queue string
	}
	var occupants []occupant
	differences(before.queues, m.queues, compareQueues, func(was, is *queueView) {
		var from, to sorted[*entry]
		if was != nil {
			from = was.held
		}
		if is != nil {
			to = is.held
		}
		differences(from, to, compareEntries, func(old, e *entry) {
			switch {
			case e.places() != nil:
				occupants = append(occupants, occupant{e, is.Name})
			case old.places() != nil:
				change(DeleteWorkload(old.wl.UID), nil)
			}
		})
	})
	for _, o := range occupants {
		change(SetWorkload(m.occupant(o.entry, o.queue)), o.places().uses)
	}
}

// occupant returns a workload with places.
func (m *Model) occupant(e *entry, queue string) Workload {
	namespace, name := e.wl.Split()
	return Workload{
		UID: e.wl.UID, Namespace: namespace, Name: name, LocalQueue: e.lq.name.Name, Reserved: true, Queue: queue,
		PodSets: e.places().of.definition(*m.resources), Placed: e.places().placed,
	}
}

// PlacedFlavors returns the flavors with a topology that a ClusterQueue offers, in the order of its groups.
func (m *Model) PlacedFlavors(queue string) (names []string) {
	q := m.queue(queue)
	if q == nil {
		return nil
	}
	for _, g := range q.Groups {
		for _, f := range g.Flavors {
			if _, _, placed := m.flavors.find(compareFlavorName(f.Flavor)); placed && !slices.Contains(names, f.Flavor) {
				names = append(names, f.Flavor)
			}
		}
	}
	return names
}

// Resources returns the names of resources, by number. Not to be modified.
func (m *Model) Resources() []string { return *m.resources }

// ResourcesOf returns, sorted, the resources that any ClusterQueue lists for a flavor.
func (m *Model) ResourcesOf(name string) (resources []string) {
	for q := range m.queues.all() {
		for _, g := range q.Groups {
			if slices.ContainsFunc(g.Flavors, func(f FlavorQuota) bool { return f.Flavor == name }) {
				resources = append(resources, g.Resources...)
			}
		}
	}
	slices.Sort(resources)
	return slices.Compact(resources)
}

// Queues returns the names of the ClusterQueues, sorted.
func (m *Model) Queues() iter.Seq[string] {
	return func(yield func(string) bool) {
		for q := range m.queues.all() {
			if !yield(q.Name) {
				return
			}
		}
	}
}

// All returns the pending workloads, in no particular order.
func (l PendingList) All() iter.Seq[PendingWorkload] {
	return func(yield func(PendingWorkload) bool) {
		for e := range l.waiting() {
			if !yield(PendingWorkload{e}) {
				return
			}
		}
	}
}

// Class returns the number of its equivalence class, among the workloads of its ClusterQueue.
func (w PendingWorkload) Class() int32 { return w.wl.Class }

// PodSets returns its pod sets, with what each pod requests and the places that it asks for. m is the Model of the list.
func (w PendingWorkload) PodSets(m *Model) []PodSet {
	return (&shape{podSets: w.wl.PodSets, texts: make([]string, len(w.wl.PodSets))}).definition(*m.resources)
}
