package wire

import (
	"cmp"
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/trainjob"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options/feature"
	trainingcontroller "github.com/berth-project/berth/internal/training/controller"
	trainingplan "github.com/berth-project/berth/internal/training/plan"
	trainingwebhook "github.com/berth-project/berth/internal/training/webhook"
)

func addTraining(ctx context.Context, mgr ctrl.Manager, kinds *jobKinds, cfg Config) error {
	o := &cfg.Options
	self, err := account(ctx, mgr)
	if err != nil {
		return err
	}
	plan := lookup.TrainingConfig(o, self) // the manager owns the patches of its own account
	err = trainingcontroller.Setup(mgr, trainingcontroller.Options{
		Config: plan, Runtimes: cfg.runtimes, KeepDeleted: !o.Trainer.RecreateDeletedJobSet, Workers: o.Concurrency, Now: time.Now,
		CA: client.ObjectKey{Namespace: o.Namespace, Name: cmp.Or(o.Certs.Secret, install.DefaultCertSecret)},
	})
	cfg.meter.SetTrainJobs(trainJobPhases(mgr.GetCache()))
	if err == nil && o.Gates.On(feature.TrainJobStatus) {
		err = addProgress(mgr, &cfg)
	}
	if err != nil || !cfg.Groups.Has(install.Webhooks) {
		return err
	}
	jobs := install.WebhookOptions(o, cfg.Groups)
	jobs.Descriptors = kinds.list
	jobs.Self = plan.Patches.Ownership.Self
	return admission.SetupTraining(mgr, trainingwebhook.Options{
		Plan: plan, Runtimes: cfg.runtimes, Now: time.Now, Conflict: cfg.meter.PatchConflict, Denied: cfg.meter.PatchDenied,
	}, &jobs)
}

// trainJobPhases returns a function that lists the phase of each TrainJob from the cache.
func trainJobPhases(c cache.Cache) func() []string {
	return func() []string {
		var list trainerv1alpha1.TrainJobList
		ctx, stop := context.WithTimeout(context.Background(), time.Second) // a scrape does not wait for a cache
		defer stop()
		if err := c.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		out := make([]string, 0, len(list.Items))
		for i := range list.Items {
			out = append(out, trainingplan.Phase(&list.Items[i]))
		}
		return out
	}
}

// shareRuntimes replaces the kind of TrainJobs by one that reads the runtimes of their controller and webhooks.
func (c *Config) shareRuntimes(kinds []*job.Descriptor) {
	plan := lookup.TrainingConfig(&c.Options, "")
	plan.Recorded = c.runtimes.Recorded
	kind := trainjob.Descriptor(plan)
	for i, d := range kinds {
		if d.GVK == kind.GVK {
			kinds[i] = kind
		}
	}
}

func account(ctx context.Context, mgr ctrl.Manager) (string, error) {
	c, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return "", err
	}
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &review); err != nil {
		return "", fmt.Errorf("asking the API server for the name of this account: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}
