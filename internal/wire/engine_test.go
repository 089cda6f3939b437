package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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

// TestFailedNodesGate: without the gate TASFailedNodeReplacement no controller follows nodes; one would need a manager.
func TestFailedNodesGate(t *testing.T) {
	cfg := Config{Options: options.Default()}
	cfg.Options.Gates = cfg.Options.Gates.With(feature.TASFailedNodeReplacement, false)
	if err := addNodeFailures(t.Context(), nil, nil, cfg); err != nil {
		t.Error(err)
	}
}
