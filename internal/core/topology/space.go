package topology

import (
	"maps"
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Hostname is the label whose value identifies a node where it is the lowest level of a topology.
const Hostname = "kubernetes.io/hostname"

// Gates are the feature gates and limits that placement obeys. spec: 20 §5.8.
type Gates struct {
	Mixed              bool // TASProfileMixed: pod sets without a level fill the fullest domains first
	Overlapping        bool // TASHandleOverlappingFlavors: flavors over the same nodes share their usage
	Affinity           bool // TASRespectNodeAffinityPreferred: preferred node affinity orders the domains
	Balanced           bool // TASBalancedPlacement: preferred pod sets are spread evenly
	ExcludeUntolerated bool // where the lowest level is no hostname, nodes with untolerated taints do not count. spec: 20 §6 #11
	Shapes             int  // how many shapes keep their counts, of each tree; at least 1
}

// DefaultGates returns the gates that are on unless configured otherwise.
func DefaultGates() Gates {
	return Gates{Mixed: true, Overlapping: true, ExcludeUntolerated: true, Shapes: 96}
}

// Node is a node of the cluster. Its maps and slices are kept, and must not be modified afterwards.
type Node struct {
	Name               string
	Labels             map[string]string
	Taints             []workload.Taint
	Ready, Schedulable bool
	Allocatable        []workload.Request // with `pods`
}

// Space is all nodes, the trees of the TAS flavors over them, and the usage of the placed pods. It is not safe for
// concurrent use.
type Space struct {
	gates Gates
	table *resource.Table

	columns  []resource.ID // the resources that are counted, by column
	columnOf []int32       // by resource.ID, -1 for none
	stride   int           // how many columns each row of the dense arrays has room for

	nodes   resource.Slots[node]
	nodeOf  map[string]int32
	net     []resource.Amount             // allocatable without the usage of foreign pods, by node and column
	foreign map[string][]workload.Request // by node, also of unknown ones
	former  map[string]string             // hostname labels of removed nodes whose name is another, while their usage remains

	accounts  resource.Slots[account]
	accountOf map[accountKey]int32
	used      []resource.Amount // by placed pods, by account and column
	assumed   []resource.Amount // of the request that is being placed, by account and column
	idle      []int32           // accounts to drop at the next edit, if they are still idle

	trees   map[string]*tree
	inOrder []*tree // sorted by flavor

	filters map[string]*filter
	version uint32 // of the last node whose labels or taints changed
	edits   uint64 // counts changes of leaves
	clock   uint64 // counts the uses of shapes

	measures measures

	scratch scratch
}

// node is a Node, and where it belongs. Its amounts are in Space.net.
type node struct {
	Node
	version uint32   // changes with its labels and taints
	members []member // the trees it belongs to
}

// member is the place of a node in a tree.
type member struct {
	tree *tree
	leaf int32
}

// active reports whether the node's capacity counts. spec: 20 §4.5.
func (n *node) active() bool { return n.Ready && n.Schedulable }

// New returns a Space without nodes and trees. Resources are numbered by t.
func New(t *resource.Table, gates Gates) *Space {
	gates.Shapes = max(1, gates.Shapes)
	return &Space{
		gates: gates, table: t, stride: 4,
		nodeOf: map[string]int32{}, foreign: map[string][]workload.Request{}, former: map[string]string{},
		accountOf: map[accountKey]int32{}, trees: map[string]*tree{}, filters: map[string]*filter{},
	}
}

// known returns the column of a resource; -1 for none. Nodes have nothing of a resource without a column, and placed pods hold nothing.
func (s *Space) known(id resource.ID) int32 {
	if int(id) >= len(s.columnOf) {
		return -1
	}
	return s.columnOf[id]
}

// column returns the column of a resource, a new one at its first use. A request alone makes no column: each row would grow by it.
func (s *Space) column(id resource.ID) int {
	for int(id) >= len(s.columnOf) {
		s.columnOf = append(s.columnOf, -1)
	}
	if s.columnOf[id] < 0 {
		s.columnOf[id] = int32(len(s.columns))
		s.columns = append(s.columns, id)
		for _, t := range s.inOrder {
			t.dropUnknown()
		}
		if len(s.columns) > s.stride {
			s.widen()
		}
	}
	return int(s.columnOf[id])
}

// widen makes room for more columns.
func (s *Space) widen() {
	was := s.stride
	s.stride += 4
	grown := func(rows []resource.Amount) []resource.Amount {
		out := make([]resource.Amount, len(rows)/was*s.stride)
		for i := range len(rows) / was {
			copy(out[i*s.stride:], rows[i*was:(i+1)*was])
		}
		return out
	}
	s.net, s.used, s.assumed = grown(s.net), grown(s.used), grown(s.assumed)
	for _, t := range s.inOrder {
		t.capacity = grown(t.capacity)
	}
}

// row returns the columns of a row.
func row(rows []resource.Amount, i int32, stride int) []resource.Amount {
	return rows[int(i)*stride : (int(i)+1)*stride]
}

// extended returns rows with a row for i.
func extended(rows []resource.Amount, i int32, stride int) []resource.Amount {
	for len(rows) < (int(i)+1)*stride {
		rows = append(rows, 0)
	}
	return rows
}

// Reserve makes room for nodes in a new Space.
func (s *Space) Reserve(nodes int) {
	s.nodeOf, s.nodes.All, s.net = make(map[string]int32, nodes), make([]node, 0, nodes), make([]resource.Amount, 0, nodes*s.stride)
}

// SetNode adds a node, or replaces what is known about it. An edit costs its path in each tree that has the node.
func (s *Space) SetNode(n Node) {
	slot, known := s.nodeOf[n.Name]
	if !known {
		slot = s.nodes.Put(node{Node: n, version: s.nextVersion()})
		s.nodeOf[n.Name] = slot
		s.net = extended(s.net, slot, s.stride)
		delete(s.former, n.Name)
	}
	was := s.nodes.All[slot].Node
	s.nodes.All[slot].Node = n
	relabeled := !known || !maps.Equal(was.Labels, n.Labels)
	if known && (relabeled || !slices.Equal(was.Taints, n.Taints)) {
		s.nodes.All[slot].version = s.nextVersion()
	}
	s.recomputeNet(slot)
	if relabeled {
		for _, t := range s.inOrder {
			t.fileNode(slot)
		}
	} else {
		s.recountNode(slot)
	}
	s.dropIdle()
}

func (s *Space) nextVersion() uint32 {
	s.version++
	return s.version
}

func (s *Space) nextEdit() uint64 {
	s.edits++
	return s.edits
}

// RemoveNode removes a node. The usage of pods placed on it is kept, and counts again once the node is back.
func (s *Space) RemoveNode(name string) {
	slot, known := s.nodeOf[name]
	if !known {
		return
	}
	n := &s.nodes.All[slot]
	if host, ok := n.Labels[Hostname]; ok && host != name {
		s.former[name] = host
	}
	for _, m := range slices.Clone(n.members) {
		m.tree.unfileNode(slot, m.leaf)
	}
	delete(s.nodeOf, name)
	s.nodes.Drop(slot)
	clear(row(s.net, slot, s.stride))
	s.dropIdle()
}

// SetForeign replaces the usage of the pods on a node that Berth did not place, `pods` included. It is kept, and not
// modified, whether the node is known or not. spec: 20 §4.5.
func (s *Space) SetForeign(name string, used []workload.Request) {
	if len(used) == 0 {
		delete(s.foreign, name)
	} else {
		s.foreign[name] = used
	}
	if slot, known := s.nodeOf[name]; known {
		s.recomputeNet(slot)
		s.recountNode(slot)
	}
}

func (s *Space) recomputeNet(slot int32) {
	n := &s.nodes.All[slot]
	foreign := s.foreign[n.Name]
	for _, r := range n.Allocatable {
		s.column(r.Resource)
	}
	net := row(s.net, slot, s.stride)
	clear(net)
	for _, r := range n.Allocatable {
		net[s.columnOf[r.Resource]] = net[s.columnOf[r.Resource]].Add(r.Amount)
	}
	for _, r := range foreign {
		if slices.ContainsFunc(n.Allocatable, func(a workload.Request) bool { return a.Resource == r.Resource }) {
			net[s.columnOf[r.Resource]] = net[s.columnOf[r.Resource]].Sub(r.Amount)
		}
	}
}

// recountNode notes a change of a node that stays where it is.
func (s *Space) recountNode(slot int32) {
	for _, m := range s.nodes.All[slot].members {
		m.tree.recountLeaf(m.leaf)
	}
}

// HostOf returns the hostname by which a node, known or removed, appears in placements. spec: 20 §6 #10.
func (s *Space) HostOf(name string) string {
	if slot, known := s.nodeOf[name]; known {
		if host, ok := s.nodes.All[slot].Labels[Hostname]; ok {
			return host
		}
		return name
	}
	if host, ok := s.former[name]; ok {
		return host
	}
	return name
}

// SetTree adds the tree of a flavor, or replaces it.
func (s *Space) SetTree(flavor string, def Tree) {
	if t, known := s.trees[flavor]; known {
		if t.def.equal(def) {
			return
		}
		s.RemoveTree(flavor)
	}
	t := newTree(s, flavor, def)
	s.trees[flavor] = t
	i, _ := slices.BinarySearchFunc(s.inOrder, flavor, func(t *tree, f string) int { return compare(t.flavor, f) })
	s.inOrder = slices.Insert(s.inOrder, i, t)
	t.fileAll()
	s.dropIdle()
}

// RemoveTree removes the tree of a flavor. The usage of the pods that it placed is kept.
func (s *Space) RemoveTree(flavor string) {
	t, known := s.trees[flavor]
	if !known {
		return
	}
	for i := range s.nodes.All {
		n := &s.nodes.All[i]
		n.members = slices.DeleteFunc(n.members, func(m member) bool { return m.tree == t })
	}
	for id := range t.leaves {
		if t.leaves[id].nodes != nil {
			s.unlink(t.leaves[id].account, t, int32(id))
		}
	}
	t.dropShapes()
	delete(s.trees, flavor)
	s.inOrder = slices.DeleteFunc(s.inOrder, func(o *tree) bool { return o == t })
	s.dropIdle()
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
