package wire

import (
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	whatifchange "github.com/berth-project/berth/internal/foresight/offline/change"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Requests returns how the requests of Workloads are computed for options of the manager, without what is around them.
func Requests(o *options.Options) convert.Requests {
	on := o.Gates.On
	return convert.Requests{
		ExcludePrefixes: o.Resources.ExcludePrefixes, Transformations: o.Resources.Transformations,
		KeepReclaimable: !on(feature.ReclaimablePods), Boost: on(feature.PriorityBoost), YieldToBorrowers: !on(feature.PrioritySortingWithinCohort),
		RequeueByCreation: o.PodsReady.RequeueBy == configv1beta2.CreationTimestamp, Gated: on(feature.AdmissionGatedBy),
		Slices: on(feature.ElasticJobsViaWorkloadSlices), KeepPlaces: on(feature.ElasticJobsViaWorkloadSlicesWithTAS),
		Variants: on(feature.ConcurrentAdmission), Topology: on(feature.TopologyAwareScheduling),
		Affinity: on(feature.TASRespectNodeAffinityPreferred), ByPrefix: on(feature.TASAssignmentsEncodingByHostnamePrefix),
		MaxMinRun: workload.Instant(o.MaxMinRunTime),
	}
}

// ChangeSettings returns the settings for what-ifs.
func ChangeSettings(o *options.Options) whatifchange.Settings {
	return whatifchange.Settings{Requests: Requests(o), Kinds: all.DescriptorsWith(o), Jobs: lookup.NewConfig(o), IgnoreUndeclared: o.Resources.IgnoreUndeclared}
}

// StateOptions returns the settings of the engine for options of the manager.
func StateOptions(o *options.Options) state.Options {
	on := o.Gates.On
	out := state.Options{Options: cycle.Defaults(), NoClasses: !on(feature.SchedulingEquivalenceHashing)}
	out.IgnoreUndeclared = o.Resources.IgnoreUndeclared
	out.NonBorrowingFirst = on(feature.FairSharingPrioritizeNonBorrowing)
	out.PriorityInCohort = on(feature.PrioritySortingWithinCohort)
	out.PreemptorFirst = on(feature.PrioritizePreemptorWorkloads)
	out.RecomputeOverlap = on(feature.RecomputeAssignmentUponPreemptionTargetsOverlap)
	out.KeepScan = on(feature.FlavorFungibilityPreserveScanProgress)
	out.FungibilityOff = !on(feature.FlavorFungibility)
	out.BlockAdmission = o.PodsReady.Enabled && o.PodsReady.BlockAdmission
	out.PartialAdmission = on(feature.PartialAdmission)
	out.Backfill = cycle.Backfill(o.Backfill)
	if on(feature.TopologyAwareScheduling) {
		out.PlaceAgain = on(feature.TASRecomputeAssignmentWithinSchedulingCycle)
		gates := topology.DefaultGates()
		gates.Mixed, gates.Overlapping = on(feature.TASProfileMixed), on(feature.TASHandleOverlappingFlavors)
		gates.Affinity, gates.Balanced = on(feature.TASRespectNodeAffinityPreferred), on(feature.TASBalancedPlacement)
		out.Topology, out.FailFast = &gates, on(feature.TASFailedNodeReplacementFailFast)
	}
	if afs := o.AdmissionFairSharing; afs.Enabled {
		out.Sharing = &sharing.Rates{HalfLife: workload.Instant(afs.HalfLife), Interval: workload.Instant(afs.SamplingInterval)}
		if len(afs.Weights) > 0 {
			out.Sharing.Weights = map[string]float64{}
			for name, w := range afs.Weights {
				out.Sharing.Weights[string(name)] = w
			}
		}
	}
	if o.FairSharing.Enabled {
		out.Fair = &preempt.Fair{WithinNominal: on(feature.FairSharingPreemptWithinNominal)}
		for _, s := range o.FairSharing.Strategies {
			strategy := preempt.LessThanOrEqualToFinalShare
			if s == configv1beta2.LessThanInitialShare {
				strategy = preempt.LessThanInitialShare
			}
			out.Fair.Strategies = append(out.Fair.Strategies, strategy)
		}
	}
	return out
}
