package lookup

import (
	"cmp"
	"fmt"

	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/training"
	trainingplan "github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// TrainingConfig returns the configuration of TrainJobs. self is the user name of the manager, which owns the patches of the queue (spec: 50
// §4.13.2).
func TrainingConfig(o *options.Options, self string) *trainingplan.Config {
	t := &o.Trainer
	cfg := &trainingplan.Config{
		ExtraGPUs: t.GPUResources, MergedResources: t.CountMergedResources, MaxPods: o.MaxChildren,
		Patches: patch.Config{
			ConflictPolicy: patch.ConflictPolicy(t.ConflictPolicy), SchedulingManagers: t.SchedulingManagers,
			RestrictMetadata: t.RestrictMetadata, StrictTargets: t.StrictTargets, Selectors: o.Gates.On(feature.RuntimePatchSelectors),
			Ownership: patch.Ownership{Mode: patch.OwnershipMode(t.OwnershipMode), Self: self},
		},
	}
	if o.Gates.On(feature.TrainJobStatus) {
		cfg.Progress = &trainingplan.Progress{URL: cmp.Or(t.StatusURL, fmt.Sprintf("https://%s.%s.svc:%d", t.StatusService, o.Namespace, t.StatusPort))}
	}
	for _, r := range t.Reserved {
		reserved := patch.ReservedManager{Manager: r.Manager}
		for _, subject := range r.Subjects {
			if user, group := training.Subject(subject); user != "" {
				reserved.Users = append(reserved.Users, user)
			} else if group != "" {
				reserved.Groups = append(reserved.Groups, group)
			}
		}
		cfg.Patches.Ownership.Reserved = append(cfg.Patches.Ownership.Reserved, reserved)
	}
	return cfg
}
