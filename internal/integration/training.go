package integration

import (
	"cmp"
	"fmt"

	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	"github.com/berth-project/berth/internal/options/trainer"
	"github.com/berth-project/berth/internal/plan/train"
	"github.com/berth-project/berth/internal/plan/train/patch"
)

// TrainConfig is what the options say about TrainJobs. self is the user name of the manager, whose are the patches of the
// queue (spec: 50 §4.13.2).
func TrainConfig(o *options.Options, self string) *train.Config {
	t := &o.Trainer
	cfg := &train.Config{
		ExtraGPUs: t.GPUResources, MergedResources: t.CountMergedResources, MaxPods: o.MaxChildren,
		Patches: patch.Config{
			ConflictPolicy: patch.ConflictPolicy(t.ConflictPolicy), SchedulingManagers: t.SchedulingManagers,
			RestrictMetadata: t.RestrictMetadata, StrictTargets: t.StrictTargets, Selectors: o.Gates.On(feature.RuntimePatchSelectors),
			Ownership: patch.Ownership{Mode: patch.OwnershipMode(t.OwnershipMode), Self: self},
		},
	}
	if o.Gates.On(feature.TrainJobStatus) {
		cfg.Progress = &train.Progress{URL: cmp.Or(t.StatusURL, fmt.Sprintf("https://%s.%s.svc:%d", t.StatusService, o.Namespace, t.StatusPort))}
	}
	for _, r := range t.Reserved {
		reserved := patch.ReservedManager{Manager: r.Manager}
		for _, subject := range r.Subjects {
			if user, group := trainer.Subject(subject); user != "" {
				reserved.Users = append(reserved.Users, user)
			} else if group != "" {
				reserved.Groups = append(reserved.Groups, group)
			}
		}
		cfg.Patches.Ownership.Reserved = append(cfg.Patches.Ownership.Reserved, reserved)
	}
	return cfg
}
