// Package admission holds the one list of webhooks. The server and the webhook configurations are both made from it, so they cannot
// disagree. The webhooks themselves are in the rooms of their subjects: job/webhook, queue/webhook, workload/webhook, jobset/webhook,
// training/webhook.
package admission

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	jobwebhook "github.com/berth-project/berth/internal/job/webhook"
	jobsetwebhook "github.com/berth-project/berth/internal/jobset/webhook"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
	queuewebhook "github.com/berth-project/berth/internal/queue/webhook"
	"github.com/berth-project/berth/internal/review"
	trainingwebhook "github.com/berth-project/berth/internal/training/webhook"
	workloadwebhook "github.com/berth-project/berth/internal/workload/webhook"
)

// Options configure the webhooks of jobs, queues and Workloads.
type Options struct {
	jobwebhook.Options
	Workloads workloadwebhook.Options
	Queues    queuewebhook.Options
	// Training means that SetupTraining registers the webhooks of TrainJobs, which then cover their queueing too: the paths are the same.
	Training bool
}

// NewOptions derives the webhooks' options from the manager's.
func NewOptions(o *options.Options, descriptors []*job.Descriptor) Options {
	return Options{
		Options: jobwebhook.Options{
			Jobs: lookup.NewConfig(o), Descriptors: descriptors, Namespaces: o.ManagedNamespaceSelector, LabelledOnly: o.LabelledOnly,
		},
		Workloads: workloadwebhook.Options{
			NonNegative:    o.Gates.On(feature.WorkloadValidateResourcesAreNonNegative),
			PodSetMetadata: o.Gates.On(feature.WorkloadValidationForPodSetMetadata),
			SliceSize:      o.Gates.On(feature.TASValidateWorkloadSliceSize),
			PriorityBoost:  o.Gates.On(feature.PriorityBoost),
		},
		Queues: queuewebhook.Options{
			StrictOnFlavors: o.Gates.On(feature.RejectUpdatesToCQWithInvalidOnFlavors), UsageSharing: o.AdmissionFairSharing.Enabled,
			Variants: o.Gates.On(feature.ConcurrentAdmission),
		},
	}
}

// list returns the webhooks of jobs, queues and Workloads, in a fixed order. r is nil if they are not served.
func list(o *Options, r *review.Readers) []review.Webhook {
	out := jobwebhook.Webhooks(&o.Options, r)
	if o.Training {
		out = slices.DeleteFunc(out, func(h review.Webhook) bool { return h.GVK == trainingwebhook.TrainJob })
	}
	out = append(out, queuewebhook.Webhooks(o.Queues)...)
	return complete(append(out, workloadwebhook.Webhooks(o.Workloads, o.Jobs)...))
}

// jobSets returns the webhooks of JobSets.
func jobSets(o jobsetwebhook.Options, r *review.Readers) []review.Webhook {
	return complete(jobsetwebhook.Webhooks(o, r))
}

func training(o trainingwebhook.Options, r *review.Readers) []review.Webhook {
	return complete(trainingwebhook.Webhooks(o, r))
}

// queued returns the queueing webhooks of TrainJobs, if TrainJobs are among the enabled kinds.
func queued(o *Options, r *review.Readers) []review.Webhook {
	if o == nil {
		return nil
	}
	of := o.Options
	of.Descriptors = slices.Clone(of.Descriptors)
	for i, d := range of.Descriptors {
		if d.GVK == trainingwebhook.TrainJob {
			of.Descriptors[i] = trainingwebhook.WithoutRuntime(d)
		}
	}
	return slices.DeleteFunc(jobwebhook.Webhooks(&of, r), func(h review.Webhook) bool { return h.GVK != trainingwebhook.TrainJob })
}

// complete fills in the names and paths that follow from the kind.
func complete(hooks []review.Webhook) []review.Webhook {
	for i := range hooks {
		h := &hooks[i]
		h.Name = cmp.Or(h.Name, review.NewName(strings.ToLower(h.GVK.Kind), h.Mutating()))
		h.Path = cmp.Or(h.Path, review.NewPath(h.GVK, h.Mutating()))
	}
	return hooks
}

// register serves webhooks.
func register(mgr ctrl.Manager, hooks []review.Webhook) {
	for i := range hooks {
		mgr.GetWebhookServer().Register(hooks[i].Path, &admission.Webhook{Handler: hooks[i].Handler()})
	}
}

// Setup registers every webhook with the manager's server. Any other path allows everything: the webhook configurations in the cluster may
// have been made from another configuration file, or by a newer Berth, and an unserved path would refuse all objects of its webhook.
func Setup(mgr ctrl.Manager, o Options) error {
	r, err := review.NewReaders(mgr)
	if err != nil {
		return err
	}
	register(mgr, list(&o, r))
	mgr.GetWebhookServer().Register("/", &admission.Webhook{Handler: admission.HandlerFunc(allow)})
	return nil
}

func allow(context.Context, admission.Request) admission.Response { return admission.Allowed("") }

// SetupJobSets registers the webhooks of JobSets with the manager's server.
func SetupJobSets(mgr ctrl.Manager, o jobsetwebhook.Options) error {
	r, err := review.NewReaders(mgr)
	if err == nil {
		register(mgr, jobSets(o, r))
	}
	return err
}

// SetupTraining registers the webhooks of TrainJobs and runtimes with the manager's server. If queue enables TrainJobs, their queueing
// rules run first, in the same webhooks. Nil: TrainJobs are not queued.
func SetupTraining(mgr ctrl.Manager, o trainingwebhook.Options, queue *Options) error {
	r, err := review.NewReaders(mgr)
	if err == nil {
		o.Queued = queued(queue, r)
		register(mgr, training(o, r))
	}
	return err
}

// IsOfJobSets reports whether a client configuration calls a webhook of JobSetConfigurations, on whatever host.
func IsOfJobSets(c *admissionv1.WebhookClientConfig) bool {
	path := ""
	if c.Service != nil && c.Service.Path != nil {
		path = *c.Service.Path
	}
	if c.URL != nil {
		if u, err := url.Parse(*c.URL); err == nil {
			path = u.Path
		}
	}
	return slices.ContainsFunc(jobSets(jobsetwebhook.Options{}, nil), func(h review.Webhook) bool { return h.Path == path })
}
