package sim

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// TestPerPod: the usage of one pod is its part of the requests, and one of the resource pods.
func TestPerPod(t *testing.T) {
	tests := map[string]struct {
		count    int32
		requests []state.Request
		want     []state.Request
	}{
		"nothing":             {1, nil, []state.Request{{Resource: "pods", Amount: 1}}},
		"one pod":             {1, []state.Request{{Resource: "cpu", Amount: 1500}}, []state.Request{{Resource: "cpu", Amount: 1500}, {Resource: "pods", Amount: 1}}},
		"three pods":          {3, []state.Request{{Resource: "cpu", Amount: 6000}}, []state.Request{{Resource: "cpu", Amount: 2000}, {Resource: "pods", Amount: 1}}},
		"a share rounds down": {3, []state.Request{{Resource: "cpu", Amount: 10}}, []state.Request{{Resource: "cpu", Amount: 3}, {Resource: "pods", Amount: 1}}},
		"sorted by name": {2, []state.Request{{Resource: "cpu", Amount: 2}, {Resource: "x.io/gpu", Amount: 4}}, []state.Request{
			{Resource: "cpu", Amount: 1}, {Resource: "pods", Amount: 1}, {Resource: "x.io/gpu", Amount: 2},
		}},
		"pods of their own do not count": {2, []state.Request{{Resource: "pods", Amount: 8}}, []state.Request{{Resource: "pods", Amount: 1}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := perPod(&state.PodSet{Count: tc.count, Requests: tc.requests})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("one pod (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTopologyWords: the request for places of a pod set.
func TestTopologyWords(t *testing.T) {
	tests := map[string]*workload.Topology{
		"main cpu=1":                                 nil,
		"main group=g min=1 cpu=1":                   nil,
		"main unconstrained cpu=1":                   {},
		"main required=rack cpu=1":                   {Required: "rack"},
		"main required=host":                         {Required: "kubernetes.io/hostname"},
		"main cpu=1 preferred=a.io_b":                {Preferred: "a.io_b"},
		"main slice=rack:4":                          {Slices: []workload.SliceLayer{{Level: "rack", Size: 4}}},
		"main slice=a.io/block:8 slice=host:2 gpu=1": {Slices: []workload.SliceLayer{{Level: "a.io/block", Size: 8}, {Level: topology.Hostname, Size: 2}}},
		"main required=block slice=rack:4":           {Required: "block", Slices: []workload.SliceLayer{{Level: "rack", Size: 4}}},
		"main unconstrained slice=rack:1":            {Slices: []workload.SliceLayer{{Level: "rack", Size: 1}}},
	}
	for line, want := range tests {
		t.Run(line, func(t *testing.T) {
			a := parse(line)
			got := a.podSet()
			if !a.done() {
				t.Fatal(a.err)
			}
			if diff := cmp.Diff(want, got.Topology); diff != "" {
				t.Errorf("topology (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLevels: the levels of a flavor, whose name is that of its topology.
func TestLevels(t *testing.T) {
	tests := map[string][]string{
		"":                               nil,
		"topology=host":                  {"kubernetes.io/hostname"},
		"topology=cloud.io/block,x,host": {"cloud.io/block", "x", "kubernetes.io/hostname"},
	}
	for line, want := range tests {
		t.Run(line, func(t *testing.T) {
			a := parse(line)
			got := a.levels()
			if !a.done() {
				t.Fatal(a.err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("levels (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodes: the nodes after some commands. What the state has is what the player has.
func TestNodes(t *testing.T) {
	const host = topology.Hostname
	node := func(change func(*state.SetNode)) []state.SetNode {
		n := state.SetNode{
			Name: "n", Labels: map[string]string{host: "n"}, Ready: true, Schedulable: true,
			Allocatable: []state.Request{{Resource: "cpu", Amount: 4000}, {Resource: "pods", Amount: 110}},
		}
		change(&n)
		return []state.SetNode{n}
	}
	foreign := []state.SetForeign{{Node: "n", Used: []state.Request{{Resource: "cpu", Amount: 500}, {Resource: "pods", Amount: 2}}}}
	tests := map[string]struct {
		src     string
		nodes   []state.SetNode
		foreign []state.SetForeign
	}{
		"plain":     {"node n cpu=4", node(func(*state.SetNode) {}), nil},
		"no words":  {"node n", node(func(n *state.SetNode) { n.Allocatable = n.Allocatable[1:] }), nil},
		"some pods": {"node n pods=3 cpu=4", node(func(n *state.SetNode) { n.Allocatable[1].Amount = 3 }), nil},
		"sizes": {"node n memory=2Ki cpu=4", node(func(n *state.SetNode) {
			n.Allocatable = []state.Request{n.Allocatable[0], {Resource: "memory", Amount: resource.Amount(2048)}, n.Allocatable[1]}
		}), nil},
		"labels": {"node n label.a.io/rack=r1 label.b= cpu=4", node(func(n *state.SetNode) { n.Labels = map[string]string{host: "n", "a.io/rack": "r1", "b": ""} }), nil},
		"taints": {"node n taint=k:v cpu=4 taint=l", node(func(n *state.SetNode) {
			n.Taints = []workload.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "l", Effect: "NoSchedule"}}
		}), nil},
		"not ready":        {"node n not-ready cpu=4", node(func(n *state.SetNode) { n.Ready = false }), nil},
		"cordoned":         {"node n cordoned cpu=4", node(func(n *state.SetNode) { n.Schedulable = false }), nil},
		"cordoned later":   {"node n cpu=4\ncordon n", node(func(n *state.SetNode) { n.Schedulable = false }), nil},
		"cordoned twice":   {"node n cpu=4\ncordon n\ncordon n", node(func(n *state.SetNode) { n.Schedulable = false }), nil},
		"uncordoned":       {"node n cpu=4\ncordon n\nuncordon n", node(func(*state.SetNode) {}), nil},
		"failed":           {"node n cpu=4\nfail n", node(func(n *state.SetNode) { n.Ready = false }), nil},
		"recovered":        {"node n not-ready cpu=4\nrecover n", node(func(*state.SetNode) {}), nil},
		"still cordoned":   {"node n cpu=4\ncordon n\nfail n\nrecover n", node(func(n *state.SetNode) { n.Schedulable = false }), nil},
		"another":          {"node n label.a=b cordoned cpu=1\nnode n cpu=4", node(func(*state.SetNode) {}), nil},
		"deleted":          {"node n cpu=4\ndelete node n", nil, nil},
		"back":             {"node n label.a=b cpu=1\ndelete node n\nnode n cpu=4", node(func(*state.SetNode) {}), nil},
		"foreign":          {"node n cpu=4\nforeign n cpu=500m pods=2", node(func(*state.SetNode) {}), foreign},
		"foreign before":   {"foreign n cpu=500m pods=2", nil, foreign},
		"another foreign":  {"node n cpu=4\nforeign n cpu=9\nforeign n cpu=500m pods=2", node(func(*state.SetNode) {}), foreign},
		"nothing foreign":  {"node n cpu=4\nforeign n cpu=9\nforeign n", node(func(*state.SetNode) {}), nil},
		"foreign survives": {"node n cpu=4\nforeign n cpu=500m pods=2\ndelete node n", nil, foreign},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(usual)
			for line := range strings.Lines(tc.src) {
				if _, err := p.line(line); err != nil {
					t.Fatal(err)
				}
			}
			got := p.s.Checkpoint().Snapshot()
			if diff := cmp.Diff(tc.nodes, got.Nodes); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.foreign, got.Foreign); diff != "" {
				t.Errorf("foreign usage (-want +got):\n%s", diff)
			}
			for _, n := range got.Nodes {
				if diff := cmp.Diff(&n, p.machines[n.Name]); diff != "" {
					t.Errorf("the player has another %s (-state +player):\n%s", n.Name, diff)
				}
			}
			if len(p.machines) != len(got.Nodes) {
				t.Errorf("the player has %d nodes, the state %d", len(p.machines), len(got.Nodes))
			}
		})
	}
}

// TestPlacedWritten: an admission is written with its places, and its end takes them back.
func TestPlacedWritten(t *testing.T) {
	const world = "flavor f topology=rack,host\nqueue A f/cpu=9\nnode n label.rack=r cpu=9\nsubmit w queue=A checked / main x2 required=rack cpu=2\nstep\n"
	tests := map[string]struct {
		more string
		held bool
	}{
		"admitted": {"", true}, "passed": {"passes w", true}, "leaving": {"evict w", true}, "evicted": {"evict w\nevicted w", false}, "finished": {"finish w", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(usual)
			for line := range strings.Lines(world + tc.more) {
				if _, err := p.line(line); err != nil {
					t.Fatal(err)
				}
			}
			placed := p.workloads["w"].Placed
			if len(placed) > 0 != tc.held {
				t.Fatalf("it is placed on %v", placed)
			}
			if !tc.held {
				return
			}
			if at := placed[0]; at.PodSet != "main" || len(at.Domains) != 1 || at.Domains[0].Count != 2 || at.Domains[0].Values[0] != "n" {
				t.Errorf("it is placed on %v", placed)
			}
		})
	}
}

// TestRecordOfNodes: a record has the events of nodes, and a replay decides the same.
func TestRecordOfNodes(t *testing.T) {
	p := newPlayer(usual)
	p.s.Record(100)
	for line := range strings.Lines("flavor f topology=rack,host\nqueue A f/cpu=9\nnode n label.rack=r cpu=2\nsubmit w queue=A required=rack cpu=2\nforeign n cpu=1\n" +
		"step\nforeign n\nfail n\nstep\nrecover n\nstep\nsubmit v queue=A required=rack cpu=1\nstep\nnode m label.rack=s cpu=1\nstep\ndelete node m\n") {
		if _, err := p.line(line); err != nil {
			t.Fatal(err)
		}
	}
	var record bytes.Buffer
	from, events := p.s.Publish().Record().Contents()
	if err := WriteRecord(&record, from, events); err != nil {
		t.Fatal(err)
	}
	s, steps, err := Replay(&record, nil)
	if err != nil || steps < 5 {
		t.Fatalf("%d steps, %v", steps, err)
	}
	if diff := cmp.Diff(p.s.Checkpoint().Snapshot(), s.Checkpoint().Snapshot()); diff != "" {
		t.Errorf("replayed, the world is another one (-played +replayed):\n%s", diff)
	}
}
