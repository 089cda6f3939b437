// Package topologytest makes worlds to measure the placement of pods in.
package topologytest

import (
	"fmt"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
)

// The levels of a Yard above the host, and its flavor.
const (
	Block  = "block"
	Rack   = "rack"
	Flavor = "yard"
)

// GPUs is the capacity of a host.
const GPUs = 10

// Yard is blocks of racks of hosts in a ledger, of which a part is in use.
type Yard struct {
	*topology.Space
	Ledger *ledger.Ledger
	Key    ledger.Key
	Queue  quota.Node
	Nodes  []topology.Node

	pods, gpu resource.ID
}

// NewYard returns a world of blocks × racks × hosts. Of the 10 GPUs of a host, used are in use on average. gates change the defaults.
func NewYard(blocks, racks, hosts, used int, gates ...func(*topology.Gates)) *Yard {
	table, on := resource.NewTable(), topology.DefaultGates()
	for _, change := range gates {
		change(&on)
	}
	y := &Yard{
		Space: topology.New(table, on), Ledger: ledger.New(table),
		pods: table.ID("pods"), gpu: table.ID("example.com/gpu"),
	}
	y.Key = y.Ledger.Extend(y.Dimension())
	y.Queue = y.Ledger.Quota.Add("queue", false)
	y.Ledger.Quota.Recompute()
	y.SetTree(Flavor, tree())
	for i := range blocks * racks * hosts {
		block, rack, name := i/hosts/racks, i/hosts%racks, fmt.Sprintf("host-%06d", i)
		n := topology.Node{
			Name: name, Ready: true, Schedulable: true,
			Labels: map[string]string{
				Block: fmt.Sprintf("block-%02d", block), Rack: fmt.Sprintf("rack-%02d-%03d", block, rack), topology.Hostname: name, "pool": Flavor,
			},
			Allocatable: []workload.Request{{Resource: y.pods, Amount: 110}, {Resource: y.gpu, Amount: GPUs}},
		}
		y.Nodes = append(y.Nodes, n)
		y.SetNode(n)
	}
	for i, n := range y.Nodes {
		if count := min(GPUs, max(0, used+i*7919%5-2)); count > 0 { // used−2 to used+2
			y.Ledger.Charge(y.Queue, y.usage(&topology.Placement{
				Flavor: Flavor, Levels: []string{topology.Hostname}, Domains: []topology.Domain{{Values: []string{n.Name}, Count: 1}},
			}, resource.Amount(count)))
		}
	}
	return y
}

func tree() topology.Tree {
	return topology.Tree{Topology: "yard", Levels: []string{Block, Rack, topology.Hostname}, NodeLabels: map[string]string{"pool": Flavor}}
}

// Copy returns a new Space with the same nodes, none of them in use.
func (y *Yard) Copy() *topology.Space {
	s := topology.New(resource.NewTable(), topology.DefaultGates())
	s.Reserve(len(y.Nodes))
	for i := range y.Nodes {
		s.SetNode(y.Nodes[i])
	}
	s.SetTree(Flavor, tree())
	return s
}

func (y *Yard) usage(p *topology.Placement, gpus resource.Amount) ledger.Usage {
	return ledger.Usage{}.With(y.Key, y.Part([]topology.Charge{{Placement: p, Requests: y.pod(gpus)}}))
}

func (y *Yard) pod(gpus resource.Amount) []workload.Request {
	return []workload.Request{{Resource: y.pods, Amount: 1}, {Resource: y.gpu, Amount: gpus}}
}

// Usage returns what a placed gang holds.
func (y *Yard) Usage(p *topology.Placement) ledger.Usage { return y.usage(p, 1) }

// Flip makes a node ready, or not ready.
func (y *Yard) Flip(i int) {
	y.Nodes[i].Ready = !y.Nodes[i].Ready
	y.SetNode(y.Nodes[i])
}

// Gang is a gang of pods of one GPU that require a level, or prefer it.
func (y *Yard) Gang(count int32, required, preferred string) []topology.PodSet {
	return []topology.PodSet{{Name: "main", Flavor: Flavor, Count: count, Requests: y.pod(1), Required: required, Preferred: preferred}}
}

// Shape is a small gang; each number has another shape, and four in a row share a filter of nodes.
func (y *Yard) Shape(i int) []topology.PodSet {
	gang := y.Gang(4, Rack, "")
	gang[0].Layers = []topology.Layer{{Level: Rack, Size: int32(i%4 + 1)}}
	gang[0].Constraints = &workload.Constraints{
		Selector:    map[string]string{"pool": Flavor},
		Tolerations: []workload.Toleration{{Key: fmt.Sprint("key-", i/4), Operator: "Exists"}},
	}
	return gang
}
