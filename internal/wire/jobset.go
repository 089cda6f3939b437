package wire

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
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
	if err := alone(ctx, mgr.GetAPIReader(), time.Now()); err != nil {
		return err
	}
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
	err = jobset.Setup(mgr, jobset.Options{
		Plan: plan, Workers: workers, QPS: jobSetQPS, Burst: jobSetQPS, Pods: pods, Now: time.Now,
	})
	if err != nil || !cfg.Groups.Has(Webhooks) {
		return err
	}
	return webhook.SetupJobSets(mgr, webhook.JobSetOptions{Plan: plan, Pods: pods, PodsByJob: jobset.PodsByJob})
}

// upstreamLease is what an upstream controller of JobSets holds while it works (spec: 60 §5.6).
var upstreamLease = types.NamespacedName{Namespace: "jobset-system", Name: "6d4f6a47.jobset.x-k8s.io"}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get

// alone refuses to run JobSets beside an upstream controller that does so: the two would fight over every Job. One that
// runs without leader election cannot be seen.
func alone(ctx context.Context, c client.Reader, now time.Time) error {
	var lease coordinationv1.Lease
	err := c.Get(ctx, upstreamLease, &lease)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // an installation of before, without the right to look
		return nil
	case err != nil:
		return fmt.Errorf("looking for another controller of JobSets: %w", err)
	}
	s := &lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil ||
		!now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second)) {
		return nil
	}
	return fmt.Errorf("%s runs JobSets already: it holds the Lease %s; stop it, or leave JobSets to it with --controllers=-jobset", *s.HolderIdentity, upstreamLease)
}

// jobSetsServed tells early what TrainJobs lack if nobody has installed JobSets.
func jobSetsServed(mapper apimeta.RESTMapper, groups Groups) error {
	if groups.Has(JobSet) {
		return nil
	}
	kind := jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet)
	if _, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); !apimeta.IsNoMatchError(err) {
		return err
	}
	return fmt.Errorf("TrainJobs are run by JobSets, and there are none in this cluster: install their controller first, or leave out both with --controllers=-jobset,-training")
}

// handOver removes the webhook configurations of JobSets if these are left to somebody else from now on: nobody would
// answer, and so refuse, what they lead to. Those of an upstream controller, of the same names, stay.
func handOver(ctx context.Context, c client.Client, groups Groups) error {
	if groups.Has(JobSet) && groups.Has(Webhooks) {
		return nil
	}
	mutating, validating := &admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{}
	for name, o := range map[string]client.Object{webhook.JobSetMutatingName: mutating, webhook.JobSetValidatingName: validating} {
		err := c.Get(ctx, client.ObjectKey{Name: name}, o)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil && leadsHere(mutating, validating) {
			err = c.Delete(ctx, o)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("handing over webhook configuration %s: %w", name, err)
		}
		mutating.Webhooks, validating.Webhooks = nil, nil
	}
	return nil
}

// leadsHere says whether some webhook leads to ours of JobSets.
func leadsHere(m *admissionv1.MutatingWebhookConfiguration, v *admissionv1.ValidatingWebhookConfiguration) bool {
	for i := range m.Webhooks {
		if webhook.IsOfJobSets(&m.Webhooks[i].ClientConfig) {
			return true
		}
	}
	for i := range v.Webhooks {
		if webhook.IsOfJobSets(&v.Webhooks[i].ClientConfig) {
			return true
		}
	}
	return false
}
