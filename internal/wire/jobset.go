package wire

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/berth-project/berth/internal/controller/jobset"
	"github.com/berth-project/berth/internal/options"
	planjobset "github.com/berth-project/berth/internal/plan/jobset"
	"github.com/berth-project/berth/internal/webhook"
)

// Upstream's controller of JobSets has one worker; a large JobSet would hold up all others.
// Its limit of requests is kept (spec: 60 §2.2, §6.1).
const (
	jobSetWorkers = 10
	jobSetQPS     = 500
)

// addJobSets adds the controllers of JobSets and their webhooks.
func addJobSets(ctx context.Context, mgr ctrl.Manager, cfg Config) error {
	o := &cfg.Options
	pods, err := jobset.NewPods(ctx, mgr)
	if err != nil {
		return err
	}
	plan := planjobset.Config{
		InPlaceRestart: o.Gates.On(options.InPlaceRestart), RestartJob: o.Gates.On(options.RestartJob), ElasticJobSet: o.Gates.On(options.ElasticJobSet),
		LazyChildren: o.JobSet.LazyChildren,
	}
	workers := o.GroupKindConcurrency["JobSet.jobset.x-k8s.io"]
	if workers == 0 {
		workers = jobSetWorkers
	}
	err = jobset.Setup(ctx, mgr, jobset.Options{
		Plan: plan, Workers: workers, QPS: jobSetQPS, Burst: jobSetQPS, Pods: pods, Now: time.Now,
	})
	if err != nil || !cfg.Groups.Has(Webhooks) {
		return err
	}
	return webhook.SetupJobSets(mgr, webhook.JobSetOptions{Plan: plan, Pods: pods, PodsByJob: jobset.PodsByJob})
}
