package topology

import (
	"fmt"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Yard is a Space for measurements: blocks of racks of hosts, of which a part is in use.
type Yard struct {
	*Space
	Nodes     []Node
	pods, gpu resource.ID
}

// The levels of a Yard, and its flavor.
const (
	YardBlock, YardRack = "block", "rack"
	YardFlavor          = "yard"
)

// gpusOfHost is the capacity of a host of a Yard.
const gpusOfHost = 10

// NewYard returns a Space of blocks × racks × hosts, each host with 10 GPUs of which some are used: on average used of 10.
func NewYard(table *resource.Table, blocks, racks, hosts, used int) *Yard {
	y := &Yard{Space: New(table, DefaultGates()), pods: table.ID("pods"), gpu: table.ID("example.com/gpu")}
	for b := range blocks {
		for r := range racks {
			for h := range hosts {
				name := fmt.Sprintf("host-%02d-%03d-%03d", b, r, h)
				y.Nodes = append(y.Nodes, Node{
					Name: name, Ready: true, Schedulable: true,
					Labels: map[string]string{
						YardBlock: fmt.Sprintf("block-%02d", b), YardRack: fmt.Sprintf("rack-%02d-%03d", b, r), Hostname: name, "pool": YardFlavor,
					},
					Allocatable: []workload.Request{{Resource: y.pods, Amount: 110}, {Resource: y.gpu, Amount: gpusOfHost}},
				})
			}
		}
	}
	for _, n := range y.Nodes {
		y.SetNode(n)
	}
	y.SetTree(YardFlavor, Tree{Topology: "yard", Levels: []string{YardBlock, YardRack, Hostname}, NodeLabels: map[string]string{"pool": YardFlavor}})
	for i, n := range y.Nodes {
		count := min(gpusOfHost, max(0, used+i*7919%5-2)) // used−2 to used+2
		if count > 0 {
			y.apply(y.Part([]Charge{y.On(n.Name, 1, resource.Amount(count))}).(*part), 1, nil)
		}
	}
	return y
}

// On is a number of pods of some GPUs each on one host.
func (y *Yard) On(host string, count int32, gpus resource.Amount) Charge {
	return Charge{
		&Placement{Flavor: YardFlavor, Levels: []string{Hostname}, Domains: []Domain{{[]string{host}, count}}},
		y.Pod(gpus),
	}
}

// Pod is the requests of a pod of some GPUs.
func (y *Yard) Pod(gpus resource.Amount) []workload.Request {
	return []workload.Request{{Resource: y.pods, Amount: 1}, {Resource: y.gpu, Amount: gpus}}
}

// Flip makes a node ready, or not ready.
func (y *Yard) Flip(i int) {
	y.Nodes[i].Ready = !y.Nodes[i].Ready
	y.SetNode(y.Nodes[i])
}

// Forget drops the counts of all shapes, so that the next placement is cold.
func (y *Yard) Forget() {
	for _, t := range y.inOrder {
		t.dropShapes()
	}
}

// Gang is pod sets of one gang: a number of pods of one GPU that require a level, or prefer it.
func (y *Yard) Gang(count int32, required, preferred string) []PodSet {
	return []PodSet{{Name: "main", Flavor: YardFlavor, Count: count, Requests: y.Pod(1), Required: required, Preferred: preferred}}
}
