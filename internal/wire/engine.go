package wire

import (
	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/state"
)

// stateOptions is what the configuration says about decisions.
func stateOptions(o *options.Options) state.Options {
	on := o.Gates.On
	out := state.Options{Options: cycle.Defaults(), NoClasses: !on(options.SchedulingEquivalenceHashing)}
	out.IgnoreUndeclared = o.Resources.IgnoreUndeclared
	out.NonBorrowingFirst = on(options.FairSharingPrioritizeNonBorrowing)
	out.PriorityInCohort = on(options.PrioritySortingWithinCohort)
	out.PreemptorFirst = on(options.PrioritizePreemptorWorkloads)
	out.RecomputeOverlap = on(options.RecomputeAssignmentUponPreemptionTargetsOverlap)
	out.KeepScan = on(options.FlavorFungibilityPreserveScanProgress)
	out.FungibilityOff = !on(options.FlavorFungibility)
	out.BlockAdmission = o.PodsReady.Enabled && o.PodsReady.BlockAdmission
	out.PartialAdmission = on(options.PartialAdmission)
	if o.FairSharing.Enabled {
		out.Fair = &preempt.Fair{WithinNominal: on(options.FairSharingPreemptWithinNominal)}
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
