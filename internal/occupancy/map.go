// Package occupancy answers what is free and what is used in the domains of topologies, by which workloads, and what a pending
// workload lacks there. It reads published models only: it follows each model by what changed since the last one, in a copy of
// the nodes of its own, so that no reader ever stops the engine. spec: 20 §4.5, design §4.
package occupancy

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// Map follows the models of an engine. Its readers may be in any goroutine; they take turns.
type Map struct {
	model func() *state.Model
	gates topology.Gates

	mu sync.Mutex
	r  *Reader
}

// New returns a Map of the models that model returns. gates are the engine's; nil is without topologies.
func New(model func() *state.Model, gates *topology.Gates) *Map {
	if gates == nil {
		return nil
	}
	return &Map{model: model, gates: *gates}
}

// Read calls f with the latest model. f may not keep the Reader. A nil Map has no topologies.
func (m *Map) Read(f func(*Reader)) {
	if m == nil {
		f(newReader(topology.DefaultGates()))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.r == nil {
		m.r = newReader(m.gates)
	}
	if now := m.model(); now != nil && now != m.r.Model {
		m.r.follow(now)
	}
	f(m.r)
}

// Reader is the nodes and workloads of one model.
type Reader struct {
	*state.Model // nil before the first
	// Changes counts the changes of nodes, flavors and places that were followed.
	Changes uint64

	table   *resource.Table
	ledger  *ledger.Ledger
	node    quota.Node // stands for all queues: usage of nodes is the same in each
	places  *topology.Placer
	flavors map[string]*flavor.Flavor
	holders map[string]*holder // by UID
	at      map[string][]use   // by leaf
}

// holder is a workload with places.
type holder struct {
	state.Workload
	usage  ledger.Usage
	leaves []string
}

// use is the pods of a pod set in one leaf.
type use struct {
	*holder
	podSet string
	pods   int32
}

func newReader(gates topology.Gates) *Reader {
	table := resource.NewTable()
	l := ledger.New(table)
	return &Reader{
		table: table, ledger: l, node: l.Quota.Add("", false), places: topology.NewPlacer(topology.New(table, gates), l),
		flavors: map[string]*flavor.Flavor{}, holders: map[string]*holder{}, at: map[string][]use{},
	}
}

// follow applies what differs in a later model.
func (r *Reader) follow(now *state.Model) {
	for _, name := range now.Resources()[r.table.IDs():] { // numbered as there
		r.table.ID(name)
	}
	now.PlacesSince(r.Model, func(e state.Event, uses ledger.Part) {
		r.Changes++
		switch e := e.(type) {
		case state.SetFlavor:
			f := flavor.Flavor(e)
			r.flavors[f.Name] = &f
			r.places.SetTree(f.Name, topology.Tree{Topology: f.Topology, Levels: f.Levels, NodeLabels: f.Labels})
		case state.DeleteFlavor:
			delete(r.flavors, string(e))
			r.places.RemoveTree(string(e))
		case state.SetNode:
			r.places.SetNode(topology.Node{
				Name: e.Name, Labels: e.Labels, Taints: e.Taints, Ready: e.Ready, Schedulable: e.Schedulable, Allocatable: r.requests(e.Allocatable),
			})
		case state.DeleteNode:
			r.places.RemoveNode(string(e))
		case state.SetForeign:
			r.places.SetForeign(e.Node, r.requests(e.Used))
		case state.SetWorkload:
			r.release(e.UID)
			r.charge(state.Workload(e), uses)
		case state.DeleteWorkload:
			r.release(string(e))
		}
	})
	r.Model = now
}

func (r *Reader) requests(defs []state.Request) (out []workload.Request) {
	for _, d := range defs {
		out = append(out, workload.Request{Resource: r.table.Requested(d.Resource), Amount: d.Amount})
	}
	return out
}

func (r *Reader) charge(w state.Workload, uses ledger.Part) {
	dimension := r.places.Dimension()
	h := &holder{Workload: w, usage: ledger.Usage{}.With(r.places.Key, dimension.Recall(dimension.Remember(uses)))}
	r.ledger.Charge(r.node, h.usage)
	r.holders[w.UID] = h
	for i := range w.Placed {
		p := &w.Placed[i]
		for _, d := range p.Domains {
			leaf := leafOf(p.Flavor, p.Levels, d.Values)
			h.leaves = append(h.leaves, leaf)
			r.at[leaf] = append(r.at[leaf], use{h, p.PodSet, d.Count})
		}
	}
}

func (r *Reader) release(uid string) {
	h := r.holders[uid]
	if h == nil {
		return
	}
	r.ledger.Release(r.node, h.usage)
	delete(r.holders, uid)
	for _, leaf := range h.leaves {
		if left := slices.DeleteFunc(r.at[leaf], func(u use) bool { return u.holder == h }); len(left) > 0 {
			r.at[leaf] = left
		} else {
			delete(r.at, leaf)
		}
	}
}

// Holds reports whether a workload has places. One whose admission is being written is pending as well.
func (r *Reader) Holds(uid string) bool { return r.holders[uid] != nil }

// leafOf names a leaf: a host for all flavors, another one for its own.
func leafOf(flavor string, levels, values []string) string {
	if levels[len(levels)-1] == topology.Hostname {
		return values[len(values)-1]
	}
	return flavor + "\x00" + strings.Join(values, "/")
}

// Flavor is a flavor with a topology. Resources are the ones that any ClusterQueue lists for it; without such a
// ClusterQueue, all resources of its nodes.
type Flavor struct {
	Name, Topology string
	Levels         []string
	Resources      []string
}

// Flavors returns the flavors of a topology, "" for all, by name.
func (r *Reader) Flavors(of string) (out []Flavor) {
	for _, name := range r.places.Flavors() {
		f := r.flavors[name]
		if of != "" && f.Topology != of {
			continue
		}
		resources := r.ResourcesOf(name)
		if len(resources) == 0 {
			resources = r.allocatable(name)
		}
		out = append(out, Flavor{name, f.Topology, f.Levels, resources})
	}
	return out
}

// allocatable returns the resources that the nodes of a flavor have, sorted.
func (r *Reader) allocatable(name string) (out []string) {
	ids := make([]resource.ID, r.table.IDs())
	for i := range ids {
		ids[i] = resource.ID(i)
	}
	r.places.Leaves(name, ids, func(l *topology.Leaf) {
		for i, a := range l.Capacity {
			if n := r.table.Name(ids[i]); a > 0 && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	})
	slices.Sort(out)
	return out
}

// Nodes counts nodes of a flavor: the ones that count as capacity, and the others by the first cause. Unlabeled ones lack a
// level of the topology, and are in no domain.
type Nodes struct{ Counted, NotReady, Cordoned, Unlabeled int }

// Excluded is the number of nodes that do not count.
func (n Nodes) Excluded() int { return n.NotReady + n.Cordoned + n.Unlabeled }

// Amount is an amount of a resource in a domain, in the units of the engine. Free is what is left of the capacity, of no node
// less than 0.
type Amount struct {
	Resource             string
	Capacity, Used, Free resource.Amount
}

// Domain is a domain of one level.
type Domain struct {
	Values  []string // of all levels down to its own
	Nodes   Nodes
	Leaves  int // domains of the lowest level in it
	Pods    int // that are placed in it
	Amounts []Amount
}

// Domains returns the domains of a level, by index, in the order of their values: all, or those within a domain of a broader one.
// Level −1 is all of the flavor as one domain.
func (r *Reader) Domains(f *Flavor, level int, within []string) (out []Domain) {
	ids := make([]resource.ID, len(f.Resources))
	for i, name := range f.Resources {
		ids[i] = r.table.ID(name)
	}
	r.places.Leaves(f.Name, ids, func(l *topology.Leaf) {
		if len(within) > len(l.Path) || !slices.Equal(l.Path[:len(within)], within) {
			return
		}
		values := l.Path[:level+1]
		if n := len(out); n == 0 || !slices.Equal(out[n-1].Values, values) {
			d := Domain{Values: slices.Clone(values), Amounts: make([]Amount, len(ids))}
			for i, name := range f.Resources {
				d.Amounts[i].Resource = name
			}
			out = append(out, d)
		}
		d := &out[len(out)-1]
		d.Leaves++
		d.Nodes.Counted, d.Nodes.NotReady, d.Nodes.Cordoned = d.Nodes.Counted+l.Nodes, d.Nodes.NotReady+l.NotReady, d.Nodes.Cordoned+l.Cordoned
		for i := range d.Amounts {
			a := &d.Amounts[i]
			a.Capacity, a.Used = a.Capacity.Add(max(0, l.Capacity[i])), a.Used.Add(l.Used[i])
			a.Free = a.Free.Add(max(0, l.Capacity[i].Sub(l.Used[i])))
		}
		for _, u := range r.at[leafOf(f.Name, f.Levels, l.Path)] {
			d.Pods += int(u.pods)
		}
	})
	return out
}

// Fill is a resource in the domains of one level.
type Fill struct {
	Amount                                       // of all domains
	LargestFree, LargestCapacity resource.Amount // of the domain that has most
}

// Fragmentation is how far the largest free amount in one domain is below the amount with all free capacity packed
// together: from 0, where one domain has all that it could, to 1.
func (f *Fill) Fragmentation() float64 {
	if best := min(f.Free, f.LargestCapacity); best > 0 {
		return 1 - float64(f.LargestFree)/float64(best)
	}
	return 0
}

// FillOf sums up the domains of one level, by resource.
func FillOf(f *Flavor, domains []Domain) []Fill {
	out := make([]Fill, len(f.Resources))
	for i := range out {
		out[i].Resource = f.Resources[i]
		for _, d := range domains {
			a, o := &d.Amounts[i], &out[i]
			o.Capacity, o.Used, o.Free = o.Capacity.Add(a.Capacity), o.Used.Add(a.Used), o.Free.Add(a.Free)
			o.LargestFree, o.LargestCapacity = max(o.LargestFree, a.Free), max(o.LargestCapacity, a.Capacity)
		}
	}
	return out
}

// NodesOf counts the nodes of a flavor.
func (r *Reader) NodesOf(f *Flavor) (n Nodes) {
	for _, d := range r.Domains(f, -1, nil) {
		n = d.Nodes
	}
	n.Unlabeled = r.places.Unlabeled(f.Name)
	return n
}

// Occupant is the pods of a pod set of a workload in one domain.
type Occupant struct {
	UID, Namespace, Name, Queue, PodSet string
	Pods                                int
}

// Occupants returns whose pods are in a domain of the lowest level, by namespace, name and pod set.
func (r *Reader) Occupants(f *Flavor, values []string) (out []Occupant) {
	for _, u := range r.at[leafOf(f.Name, f.Levels, values)] {
		out = append(out, Occupant{u.UID, u.Namespace, u.Name, u.Queue, u.podSet, int(u.pods)})
	}
	slices.SortFunc(out, func(a, b Occupant) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.PodSet, b.PodSet), strings.Compare(a.UID, b.UID))
	})
	return out
}
