package state

import (
	"iter"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// PodSetPlacement is where the pods of a pod set of a reservation are placed.
type PodSetPlacement struct {
	PodSet string
	trace.Placement
}

// The events of nodes. They matter to flavors with a topology only.
type (
	// DeleteNode deletes the node of a name. What workloads hold there counts again once it is back.
	DeleteNode string
)

// SetNode adds or changes a node of the cluster. spec: 20 §4.5.
type SetNode struct {
	Name        string
	Labels      map[string]string
	Taints      []workload.Taint
	Ready       bool
	Schedulable bool
	Allocatable []Request // with the resource pods
}

// SetForeign sets the usage of a node by pods without a topology request, one of the resource pods for each.
type SetForeign struct {
	Node string
	Used []Request
}

func (e SetNode) apply(s *State) {
	if s.places == nil {
		return
	}
	s.places.SetNode(topology.Node{
		Name: e.Name, Labels: e.Labels, Taints: e.Taints, Ready: e.Ready, Schedulable: e.Schedulable,
		Allocatable: interned(e.Allocatable, s.world.Table.ID),
	})
	s.read.setNode(&e)
	s.world.CapacityChanged(s.places.Key)
}

func (e DeleteNode) apply(s *State) {
	if s.places != nil {
		s.places.RemoveNode(string(e))
		s.read.dropNode(string(e))
		s.world.CapacityChanged(s.places.Key)
	}
}

func (e SetForeign) apply(s *State) {
	if s.places != nil {
		s.places.SetForeign(e.Node, interned(e.Used, s.world.Table.Requested))
		s.read.setForeign(&e)
		s.world.CapacityChanged(s.places.Key)
	}
}

// interned returns requests with the numbers of their resources.
func interned(defs []Request, number func(string) resource.ID) []workload.Request {
	if len(defs) == 0 {
		return nil
	}
	out := make([]workload.Request, len(defs))
	for i, r := range defs {
		out[i] = workload.Request{Resource: number(r.Resource), Amount: r.Amount}
	}
	return out
}

// setTree makes the tree of a flavor follow its definition.
func (s *State) setTree(f *flavor.Flavor) {
	if s.places == nil {
		return
	}
	s.read.setFlavor(f)
	switch {
	case len(f.Levels) == 0 || f.Missing:
		s.places.RemoveTree(f.Name)
	default:
		s.places.SetTree(f.Name, topology.Tree{Topology: f.Topology, Levels: f.Levels, NodeLabels: f.Labels})
	}
}

// setShares sets whether the workloads of a queue need places on nodes.
func (s *State) setShares(q *queue) {
	q.q.Shares = s.places != nil && slices.ContainsFunc(q.q.Groups, func(g flavor.Group) bool {
		return slices.ContainsFunc(g.Offers, func(o flavor.Offer) bool { return o.Flavor.HasTopology() })
	})
}

// Topologies returns the flavors that have a topology, sorted, with its levels, the broadest first.
func (s *State) Topologies() iter.Seq2[string, []string] {
	return func(yield func(flavor string, levels []string) bool) {
		if s.places == nil {
			return
		}
		for _, f := range s.places.Flavors() {
			if def, _ := s.places.Tree(f); !yield(f, def.Levels) {
				return
			}
		}
	}
}

// Leaves calls visit with the lowest domains of a flavor's topology in the order of their paths, with capacity and usage of a
// resource. visit may not keep its argument.
func (s *State) Leaves(flavor, of string, visit func(*topology.Leaf)) {
	s.places.Leaves(flavor, []resource.ID{s.world.Table.ID(of)}, visit)
}

// placedUsage adds the places of the pod sets of a record to a usage. They count in full, whatever is reclaimed. spec: 20 §4.5.
func (s *State) placedUsage(of *shape, u ledger.Usage, placed []PodSetPlacement) ledger.Usage {
	if s.places == nil || len(placed) == 0 {
		return u
	}
	var placements []*trace.Placement
	var perPod [][]workload.Request
	for i := range placed {
		at := slices.IndexFunc(of.podSets, func(ps workload.PodSet) bool { return ps.Name == placed[i].PodSet })
		if at >= 0 {
			placements, perPod = append(placements, &placed[i].Placement), append(perPod, of.podSets[at].PerPod)
		}
	}
	return s.places.Held(u, placements, perPod)
}

// recallPlaces returns an admission from a snapshot with its places.
func (s *State) recallPlaces(r *record, from *flavor.Holding) *flavor.Holding {
	h := *from
	h.Usage = s.placedUsage(r.def.shape, h.Usage, placementsOf(from))
	return &h
}

// reshape charges the places of an admission that is being written for what its pods request by now, as a restored
// State would.
func (s *State) reshape(r *record, before *shape) {
	if r.def.shape != before && r.assumed() {
		r.got = s.recallPlaces(r, r.got)
		s.charge(r)
	}
}

func samePlaced(a, b []PodSetPlacement) bool {
	return slices.EqualFunc(a, b, func(a, b PodSetPlacement) bool {
		return a.PodSet == b.PodSet && a.Flavor == b.Flavor && slices.Equal(a.Levels, b.Levels) &&
			slices.EqualFunc(a.Domains, b.Domains, func(a, b trace.Domain) bool { return a.Count == b.Count && slices.Equal(a.Values, b.Values) })
	})
}

// NodesMemory is the nodes, and what is known about places, in a Snapshot.
type NodesMemory struct {
	Nodes    []SetNode           `json:",omitempty"`
	Foreign  []SetForeign        `json:",omitempty"`
	Measured []topology.Measured `json:",omitempty"`
	Second   []secondPassMemory  `json:",omitempty"`
}

// rememberNodes returns nodes as data. resources are the names of resources by number.
func rememberNodes(n topology.Nodes, measured []topology.Measured, second []secondPassMemory, resources []string) (m NodesMemory) {
	m.Second = second
	defs := func(requests []workload.Request) (out []Request) {
		for _, r := range requests {
			out = append(out, Request{resources[r.Resource], r.Amount})
		}
		return out
	}
	for _, node := range n.All {
		m.Nodes = append(m.Nodes, SetNode{node.Name, node.Labels, node.Taints, node.Ready, node.Schedulable, defs(node.Allocatable)})
	}
	for name, used := range n.Foreign { //berth:unordered sorted below
		m.Foreign = append(m.Foreign, SetForeign{name, defs(used)})
	}
	slices.SortFunc(m.Nodes, func(a, b SetNode) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Foreign, func(a, b SetForeign) int { return strings.Compare(a.Node, b.Node) })
	if len(measured) > 0 {
		m.Measured = measured
	}
	return m
}
