package wire

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/state"
)

// TestTopologyGates: each gate of topology that the engine reads changes its own option, and no other one. spec: 20 §5.8.
func TestTopologyGates(t *testing.T) {
	defaults := options.Default()
	for name, tc := range map[string]struct {
		gate feature.Gate
		want func(*state.Options)
	}{
		"TopologyAwareScheduling":                     {feature.TopologyAwareScheduling, func(o *state.Options) { o.Topology, o.FailFast = nil, false }},
		"TASProfileMixed":                             {feature.TASProfileMixed, func(o *state.Options) { o.Topology.Mixed = false }},
		"TASHandleOverlappingFlavors":                 {feature.TASHandleOverlappingFlavors, func(o *state.Options) { o.Topology.Overlapping = false }},
		"TASRecomputeAssignmentWithinSchedulingCycle": {feature.TASRecomputeAssignmentWithinSchedulingCycle, func(o *state.Options) { o.PlaceAgain = false }},
		"TASFailedNodeReplacementFailFast":            {feature.TASFailedNodeReplacementFailFast, func(o *state.Options) { o.FailFast = false }},
		"TASBalancedPlacement":                        {feature.TASBalancedPlacement, func(o *state.Options) { o.Topology.Balanced = true }},
		"TASRespectNodeAffinityPreferred":             {feature.TASRespectNodeAffinityPreferred, func(o *state.Options) { o.Topology.Affinity = true }},
	} {
		want, turned := StateOptions(&defaults), defaults
		turned.Gates = defaults.Gates.With(tc.gate, !defaults.Gates.On(tc.gate))
		tc.want(&want)
		if diff := cmp.Diff(want, StateOptions(&turned)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestMaxMinRunTime: the bound of the configuration reaches the conversion of Workloads and the webhooks of jobs; it is 0 by default.
func TestMaxMinRunTime(t *testing.T) {
	for body, want := range map[string]time.Duration{"": 0, "preemption: {maxMinRunTime: 10m}\n": 10 * time.Minute} {
		o, err := options.Parse("c.yaml", []byte("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"+body), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(Requests(&o).MaxMinRun); got != want || lookup.NewConfig(&o).MaxMinRunTime != want {
			t.Errorf("%q: %s for Workloads and %s for jobs, want %s", body, got, lookup.NewConfig(&o).MaxMinRunTime, want)
		}
	}
}

// TestFailedNodesGate: without the gate TASFailedNodeReplacement no controller follows nodes; one would need a manager.
func TestFailedNodesGate(t *testing.T) {
	cfg := Config{Options: options.Default()}
	cfg.Options.Gates = cfg.Options.Gates.With(feature.TASFailedNodeReplacement, false)
	if err := addNodeFailures(t.Context(), nil, nil, cfg); err != nil {
		t.Error(err)
	}
}
