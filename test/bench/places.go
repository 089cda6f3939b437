package main

import (
	"fmt"
	"math"
	"runtime"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/topology/topologytest"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// The nodes of the figures of placement: 10,000 in 250 racks of 10 blocks, each with 10 GPUs.
const (
	blocks, racks, hosts = 10, 25, 40
	gangSize             = 64
)

// places: placement on 10,000 nodes that are 60 % full. place_us is a gang of 64 pods in one rack whose shape is known, charged and released
// again; place_cold_ms is the first of its shape; large_ms is 10,000 pods that prefer a rack; node_event_us is a node that is ready or not,
// with 50 shapes in use that are brought up to date; bytes_per_node is the memory of nodes and 20 shapes.
func (b *bench) places() error {
	before := heap()
	y := topologytest.NewYard(blocks, racks, hosts, 6)
	for i := range 20 {
		if _, f := y.Place(y.Shape(i), topology.Options{}); f != nil {
			return fmt.Errorf("a small gang: %s", f)
		}
	}
	perNode := (heap() - before) / float64(len(y.Nodes))
	if err := b.measuring(); err != nil {
		return err
	}
	gang := y.Gang(gangSize, topologytest.Rack, "")
	var warm, cold, large, events []float64
	for range 5000 {
		began := spent()
		placed, f := y.Place(gang, topology.Options{})
		warm = append(warm, micros(spent()-began, 1))
		if f != nil {
			return fmt.Errorf("a gang: %s", f)
		}
		u := y.Usage(placed[0])
		y.Ledger.Charge(y.Queue, u)
		y.Ledger.Release(y.Queue, u)
	}
	for i := range 200 {
		small := y.Shape(20 + i)
		began := spent()
		if _, f := y.Place(small, topology.Options{}); f != nil {
			return fmt.Errorf("a new shape: %s", f)
		}
		cold = append(cold, micros(spent()-began, 1000))
	}
	many := y.Gang(10_000, "", topologytest.Rack)
	for range 20 {
		began := spent()
		if _, f := y.Place(many, topology.Options{}); f != nil {
			return fmt.Errorf("many pods: %s", f)
		}
		large = append(large, micros(spent()-began, 1000))
	}
	for i := range 50 {
		if _, f := y.Place(y.Shape(i), topology.Options{}); f != nil {
			return fmt.Errorf("a shape in use: %s", f)
		}
	}
	for i := range 1000 {
		began := spent()
		y.Flip(i / 2 * 7 % len(y.Nodes))
		y.Refresh()
		events = append(events, micros(spent()-began, 1))
	}
	b.figure("tas.place_us", percentile(warm, 99))
	b.figure("tas.place_p50_us", percentile(warm, 50))
	b.figure("tas.place_cold_ms", median(cold))
	b.figure("tas.large_ms", median(large))
	b.figure("tas.node_event_us", median(events))
	b.figure("tas.bytes_per_node", perNode)
	runtime.KeepAlive(y)
	return b.placesPreempt()
}

// placesPreempt: 5,000 gangs of 20 pods fill all nodes of a queue that preempts lower priorities. One of 64 pods arrives that requires a
// rack; preempt_ms is from the arrival to the decision.
func (b *bench) placesPreempt() error {
	o := state.Options{Options: cycle.Defaults()}
	o.Topology = new(topology.DefaultGates())
	s := state.New(o)
	s.Record(recorded)
	s.Apply(state.SetNamespace{Name: namespaceName(0)})
	s.Apply(state.SetFlavor(flavor.Flavor{
		Name: "gpus", Labels: map[string]string{"pool": "gpus"}, Topology: "dc", Levels: []string{"block", "rack", topology.Hostname},
	}))
	for i := range blocks * racks * hosts {
		name := fmt.Sprintf("host-%05d", i)
		s.Apply(state.SetNode{
			Name: name, Ready: true, Schedulable: true, Allocatable: []state.Request{{Resource: "gpu", Amount: 10}, {Resource: "pods", Amount: 110}},
			Labels: map[string]string{
				"pool": "gpus", "block": fmt.Sprint("b", i/hosts/racks), "rack": fmt.Sprint("b", i/hosts/racks, "-r", i/hosts%racks), topology.Hostname: name,
			},
		})
	}
	s.Apply(state.SetQueue{
		Name: "q", Namespaces: []workload.Term{{}}, Preemption: preempt.Policy{Within: preempt.LowerPriority},
		Groups: []state.Group{{Resources: []string{"gpu"}, Flavors: []state.FlavorQuota{{Flavor: "gpus", Resources: []state.Quota{
			{Resource: "gpu", Nominal: 200_000, Borrow: quota.NoLimit, Lend: quota.NoLimit},
		}}}}},
	})
	s.Apply(state.SetLocalQueue{Namespace: namespaceName(0), Name: "q", Queue: "q"})
	gang := func(uid string, pods int32, priority int64, at workload.Instant) state.Workload {
		return state.Workload{
			UID: uid, Namespace: namespaceName(0), Name: uid, LocalQueue: "q", Priority: priority, Created: at, Since: at, Queueable: true, Version: 1,
			PodSets: []state.PodSet{{
				Name: "main", Count: pods, Requests: []state.Request{{Resource: "gpu", Amount: resource.Amount(pods)}},
				PerPod: []state.Request{{Resource: "gpu", Amount: 1}, {Resource: "pods", Amount: 1}}, Topology: &workload.Topology{Required: "rack"},
			}},
		}
	}
	now := start
	for i := range 5000 { // one after another, so that the gangs of a rack have different priorities
		now += millis
		def := gang(fmt.Sprint("g", i), 20, int64(i*7919%4999), now)
		s.Apply(state.SetWorkload(def))
		r := s.Step(now, math.MaxInt)
		if len(r.Decisions) != 1 || r.Decisions[0].Attempt.Verdict != trace.Admitted {
			return fmt.Errorf("%s is not admitted", def.Name)
		}
	}
	if err := b.measuring(); err != nil {
		return err
	}
	var took []float64
	victims := 0
	for i := range 100 {
		now += 1000 * millis
		def := gang(fmt.Sprint("urgent", i), gangSize, 10_000, now)
		began := spent()
		s.Apply(state.SetWorkload(def))
		r := s.Step(now, math.MaxInt)
		took = append(took, micros(spent()-began, 1000))
		if len(r.Decisions) == 0 || r.Decisions[0].Attempt.Verdict != trace.Preempts {
			return fmt.Errorf("the arrival preempts nothing: %d decisions", len(r.Decisions))
		}
		victims += len(r.Decisions[0].Evict)
		s.Apply(state.DeleteWorkload(def.UID))
		for _, v := range r.Decisions[0].Evict {
			s.Apply(state.EvictionFailed(v.Workload.UID))
		}
		s.Step(now, math.MaxInt)
	}
	b.figure("tas.preempt_ms", percentile(took, 99))
	b.figure("tas.preempt_p50_ms", percentile(took, 50))
	b.figure("tas.victims", float64(victims)/100)
	return nil
}
