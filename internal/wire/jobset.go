package wire

import (
	"context"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/install"
	jobsetcontroller "github.com/berth-project/berth/internal/jobset/controller"
	"github.com/berth-project/berth/internal/jobset/lease"
	planjobset "github.com/berth-project/berth/internal/jobset/plan"
	jobsetwebhook "github.com/berth-project/berth/internal/jobset/webhook"
	"github.com/berth-project/berth/internal/options/feature"
)

// jobSetWorkers is the default number of concurrent reconciles of JobSets. With one, as upstream, a large JobSet would delay all others
// (spec: 60 §6.1).
const jobSetWorkers = 10

func addJobSets(ctx context.Context, mgr ctrl.Manager, cfg Config) error {
	o := &cfg.Options
	leases, err := client.New(leaseConnection(cfg.REST), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("connecting to the API server for the Lease of JobSets: %w", err)
	}
	active, err := lease.Setup(ctx, mgr, leases, o, cfg.Log.WithName("jobsets"))
	if err != nil {
		return err
	}
	pods, err := jobsetcontroller.NewPods(ctx, mgr)
	if err != nil {
		return err
	}
	plan := planjobset.Config{
		InPlaceRestart: o.Gates.On(feature.InPlaceRestart), RestartJob: o.Gates.On(feature.RestartJob), ElasticJobSet: o.Gates.On(feature.ElasticJobSet),
		LazyChildren: o.JobSet.LazyChildren, FailEarly: o.JobSet.FailEarly, MaxJobs: o.MaxChildren,
	}
	workers := o.GroupKindConcurrency["JobSet.jobset.x-k8s.io"]
	if workers == 0 {
		workers = jobSetWorkers
	}
	err = jobsetcontroller.Setup(mgr, jobsetcontroller.Options{
		Plan: plan, Workers: workers, QPS: o.JobSet.Client.QPS, Burst: o.JobSet.Client.Burst, Pods: pods, Active: active, Now: time.Now,
	})
	if err != nil || !cfg.Groups.Has(install.Webhooks) {
		return err
	}
	return admission.SetupJobSets(mgr, jobsetwebhook.Options{Plan: plan, Leaders: jobsetcontroller.LeadersIn(pods)})
}

// jobSetsServed returns an error if TrainJobs have no JobSets to run as, before caches wait for them in vain.
func jobSetsServed(mapper apimeta.RESTMapper, groups install.Groups) error {
	if groups.Has(install.JobSet) {
		return nil
	}
	kind := jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet)
	if _, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); !apimeta.IsNoMatchError(err) {
		return err
	}
	return fmt.Errorf("TrainJobs are run by JobSets, and there are none in this cluster: install their controller first, or leave out both with --controllers=-jobset,-training")
}
