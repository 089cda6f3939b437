// Package admission is admission: what the API server asks before it stores an
// object. One list of webhooks (name, path, rules, handler) makes both the
// server and the webhook configurations, so the two cannot disagree.
//
//	jobs       ─► the hard gate ─► defaults, or rules of all kinds + the kind's own
//	Kueue kinds ─► defaults, or the rules that schema and CEL cannot say
//
// Refusals are 403 with every mistake of the object, each with the path of its
// field. What a schema or CEL rule says is not said again here: those answer
// first, with 422 (spec: 10 §3, 30 §3).
package admission

import (
	"context"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/options/feature"
)

// Options say what the webhooks do.
type Options struct {
	// Jobs is the configuration of jobs, and Descriptors all kinds that this build has; the enabled ones get webhooks.
	Jobs        *job.Config
	Descriptors []*job.Descriptor
	// Namespaces selects the managed ones, for webhook configurations. It must match as Jobs.ManagedNamespaces does.
	Namespaces metav1.LabelSelector

	// LabelledOnly has the API server call about pods, Deployments and StatefulSets only where they bear a mark of a queue. They get no
	// queue by default.
	LabelledOnly bool
	// NonNegative refuses negative requests in Workloads: gate WorkloadValidateResourcesAreNonNegative.
	NonNegative bool
	// PodSetMetadata checks labels and annotations of pod sets: gate WorkloadValidationForPodSetMetadata.
	PodSetMetadata bool
	// PriorityBoost checks the annotation of that name.
	PriorityBoost bool
	// Training says that SetupTraining registers the webhooks of TrainJobs, with those of their queues in them: the paths are
	// the same.
	Training bool
	// Pods are those of jobs that are led, if this process keeps them in memory. Nil: the API server is asked.
	Pods client.Reader
	// Self is the user name of the manager, whose stops are its own.
	Self string
	// StrictOnFlavors refuses every unknown flavor in an admission check strategy: gate
	// RejectUpdatesToCQWithInvalidOnFlavors.
	StrictOnFlavors bool
}

// NewOptions is what the options of the manager mean for webhooks.
func NewOptions(o *options.Options, descriptors []*job.Descriptor) Options {
	return Options{
		Jobs: lookup.NewConfig(o), Descriptors: descriptors, Namespaces: o.ManagedNamespaceSelector, LabelledOnly: o.LabelledOnly,
		NonNegative:     o.Gates.On(feature.WorkloadValidateResourcesAreNonNegative),
		PodSetMetadata:  o.Gates.On(feature.WorkloadValidationForPodSetMetadata),
		PriorityBoost:   o.Gates.On(feature.PriorityBoost),
		StrictOnFlavors: o.Gates.On(feature.RejectUpdatesToCQWithInvalidOnFlavors),
	}
}

// hook is one webhook.
type hook struct {
	name, path string
	mutating   bool
	// jobs restricts it to managed namespaces.
	jobs bool
	// declared says that the kind may be called like another one.
	declared bool
	// onUpdate has a mutating one called for changes, too.
	onUpdate bool
	// family is the kind of jobs whose pods it is about, and label one that all of them have.
	family *job.Descriptor
	label  string
	// onlyIf is a match condition; empty for none.
	onlyIf string
	// open says that objects for which onlyIf is false are written while no manager answers. They are sent to a mutating webhook
	// all the same, for the default queue of their namespace.
	open bool
	// advises says that it warns and never refuses, so that what it is about may be written without it.
	advises   bool
	gvk       schema.GroupVersionKind
	resources []string
	// defaults is set if mutating, validate if not.
	defaults func(s *server) defaulter
	validate func(s *server) validator
}

// defaulter changes a new object. The error refuses the request.
type defaulter func(ctx context.Context, req *admission.Request, object client.Object) error

// validator refuses an object. old is nil for a new one.
type validator func(ctx context.Context, req *admission.Request, object, old client.Object) error

// hooks is the list of all webhooks, in a fixed order.
func hooks(o *Options) []hook {
	var out []hook
	for _, d := range o.Descriptors {
		if !o.Jobs.Kinds[d.GVK] || (o.Training && d.GVK == trainJobKind) {
			continue
		}
		resources := []string{d.Resource}
		onlyIf := marked(o, d)
		out = append(out,
			hook{
				onlyIf: onlyIf, open: onlyIf != "" && !(o.LabelledOnly && slices.Contains(builtIn, d.GVK.Group)), mutating: true, jobs: true, declared: d.Declared,
				onUpdate: d.Serving || hasUserStop(o, d) || d.Guard != nil, gvk: d.GVK, resources: resources,
				defaults: func(s *server) defaulter { return s.defaultJob(d) },
			},
			hook{onlyIf: onlyIf, jobs: true, declared: d.Declared, gvk: d.GVK, resources: resources, validate: func(s *server) validator { return s.validateJob(d) }},
		)
		out = append(out, familyHooks(o, d)...)
	}
	of := kueue.GroupVersion.WithKind
	out = append(out,
		hook{mutating: true, gvk: of("ClusterQueue"), resources: []string{"clusterqueues"}, defaults: (*server).holdUntilUnused},
		hook{gvk: of("ClusterQueue"), resources: []string{"clusterqueues"}, validate: (*server).validateClusterQueue},
		hook{gvk: of("Cohort"), resources: []string{"cohorts"}, validate: (*server).validateCohort},
		hook{advises: true, onlyIf: "has(object.spec.fairSharing)", gvk: of("LocalQueue"), resources: []string{"localqueues"}, validate: (*server).advise},
		hook{mutating: true, gvk: of("ResourceFlavor"), resources: []string{"resourceflavors"}, defaults: (*server).holdUntilUnused},
		hook{gvk: of("ResourceFlavor"), resources: []string{"resourceflavors"}, validate: (*server).validateResourceFlavor},
		hook{mutating: true, onlyIf: defaulted, gvk: of("Workload"), resources: []string{"workloads"}, defaults: (*server).defaultWorkload},
		hook{onlyIf: judged, gvk: of("Workload"), resources: []string{"workloads", "workloads/status"}, validate: (*server).validateWorkload},
	)
	for i := range out {
		h := &out[i]
		kind := strings.ToLower(h.gvk.Kind)
		if h.declared {
			kind += "." + h.gvk.Group
		}
		h.name, h.path = "v"+kind+".kb.io", Path(h.gvk, false)
		if h.mutating {
			h.name, h.path = "m"+kind+".kb.io", Path(h.gvk, true)
		}
		if h.family != nil {
			of := strings.ToLower(h.family.GVK.Kind)
			h.name, h.path = h.name[:len(h.name)-len("kb.io")]+of+".kb.io", h.path+"-of-"+of
		}
	}
	return out
}

// Path is where the webhook of a kind listens, such as /mutate-batch-v1-job.
func Path(gvk schema.GroupVersionKind, mutating bool) string {
	verb := "/validate-"
	if mutating {
		verb = "/mutate-"
	}
	return verb + strings.ReplaceAll(gvk.Group, ".", "-") + "-" + gvk.Version + "-" + strings.ToLower(gvk.Kind)
}

// server answers the webhooks.
type server struct {
	o      *Options
	gate   *lookup.Gate
	reader client.Reader
	cache  client.Reader // also of kinds without Go types
	live   client.Reader // on the webhooks' own budget
	scheme *runtime.Scheme
	// descriptors are the enabled kinds of jobs.
	descriptors []*job.Descriptor
}

func newServer(mgr ctrl.Manager, o *Options, live client.Reader) *server {
	enabled := slices.DeleteFunc(slices.Clone(o.Descriptors), func(d *job.Descriptor) bool { return !o.Jobs.Kinds[d.GVK] })
	return &server{
		o: o, reader: mgr.GetClient(), cache: mgr.GetCache(), live: live, scheme: mgr.GetScheme(), descriptors: enabled,
		gate: lookup.NewGate(o.Jobs, o.Descriptors, mgr.GetCache(), live),
	}
}

// Setup registers every webhook with the server of the manager. Job kinds that are not enabled, or that this build does
// not know how to handle, get one that allows everything: a configuration that somebody else installed may call it.
func Setup(mgr ctrl.Manager, o Options) error {
	live, err := newLive(mgr)
	if err != nil {
		return err
	}
	s := newServer(mgr, &o, live)
	served := map[string]bool{}
	for _, h := range hooks(&o) {
		served[h.path] = true
		mgr.GetWebhookServer().Register(h.path, &admission.Webhook{Handler: guarded(h.gvk, s.handler(h))})
	}
	for gvk := range o.Jobs.Kinds {
		for _, path := range []string{Path(gvk, true), Path(gvk, false)} {
			if !served[path] && !(o.Training && gvk == trainJobKind) {
				mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: admission.HandlerFunc(allow)})
			}
		}
	}
	return nil
}

func allow(context.Context, admission.Request) admission.Response { return admission.Allowed("") }

// Target is where the API server finds the webhooks.
type Target struct {
	// URL is the base of every path, such as https://127.0.0.1:9443. Empty: the Service.
	URL string
	// Service and Namespace name the Service, which listens on port 443.
	Service, Namespace string
	// CABundle is the authority of the serving certificate, in PEM.
	CABundle []byte
}

func (t Target) clientConfig(path string) admissionv1.WebhookClientConfig {
	c := admissionv1.WebhookClientConfig{CABundle: t.CABundle}
	if t.URL != "" {
		c.URL = new(strings.TrimSuffix(t.URL, "/") + path)
	} else {
		c.Service = &admissionv1.ServiceReference{Namespace: t.Namespace, Name: t.Service, Path: &path}
	}
	return c
}

// Names of the webhook configurations.
const (
	MutatingName   = "kueue-mutating-webhook-configuration"
	ValidatingName = "kueue-validating-webhook-configuration"
)

// Configurations are the objects that make the API server call the webhooks. Webhooks of jobs select the managed
// namespaces, so that in any other Berth is not even called (spec: 30 §4.2.5).
func Configurations(target Target, o Options) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration) {
	version := admissionv1.SchemeGroupVersion.String()
	mutating := &admissionv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "MutatingWebhookConfiguration"}, ObjectMeta: metav1.ObjectMeta{Name: MutatingName},
	}
	validating := &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingWebhookConfiguration"}, ObjectMeta: metav1.ObjectMeta{Name: ValidatingName},
	}
	for _, h := range hooks(&o) {
		rules := []admissionv1.RuleWithOperations{h.rule()}
		var selector, objects *metav1.LabelSelector
		if h.jobs {
			selector = o.Namespaces.DeepCopy()
		}
		if h.label != "" {
			objects = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: h.label, Operator: metav1.LabelSelectorOpExists}}}
		}
		if !h.mutating {
			validating.Webhooks = append(validating.Webhooks, admissionv1.ValidatingWebhook{
				Name: h.name, ClientConfig: target.clientConfig(h.path), Rules: rules, NamespaceSelector: selector, ObjectSelector: objects, MatchConditions: h.conditions(),
				FailurePolicy: new(h.failurePolicy()), SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				TimeoutSeconds: new(timeoutSeconds),
			})
			continue
		}
		hook := admissionv1.MutatingWebhook{
			Name: h.name, ClientConfig: target.clientConfig(h.path), Rules: rules, NamespaceSelector: selector, ObjectSelector: objects, MatchConditions: h.conditions(),
			FailurePolicy: new(admissionv1.Fail), SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			TimeoutSeconds: new(timeoutSeconds),
		}
		mutating.Webhooks = append(mutating.Webhooks, hook)
		if h.open {
			mutating.Webhooks = append(mutating.Webhooks, openTo(&h, hook))
		}
	}
	return mutating, validating
}

// How long the API server waits for an answer: timeoutSeconds where the request fails without one, and openTimeoutSeconds where
// it is carried out.
const (
	timeoutSeconds     int32 = 5
	openTimeoutSeconds int32 = 2
)

// openTo is the webhook that asks about the objects which another one is not called for, and which are written without an answer.
func openTo(h *hook, of admissionv1.MutatingWebhook) admissionv1.MutatingWebhook {
	of.Name = "default." + of.Name
	of.FailurePolicy, of.TimeoutSeconds = new(admissionv1.Ignore), new(openTimeoutSeconds)
	of.MatchConditions = []admissionv1.MatchCondition{{Name: "may-get-the-default-queue", Expression: "!(" + h.onlyIf + ")"}}
	return of
}

func (h *hook) failurePolicy() admissionv1.FailurePolicyType {
	if h.advises {
		return admissionv1.Ignore
	}
	return admissionv1.Fail
}

// rule says which requests a webhook gets: new objects, and changed ones for validation and for kinds that serve.
func (h *hook) rule() admissionv1.RuleWithOperations {
	operations := []admissionv1.OperationType{admissionv1.Create}
	if !h.mutating || h.onUpdate {
		operations = append(operations, admissionv1.Update)
	}
	return admissionv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionv1.Rule{APIGroups: []string{h.gvk.Group}, APIVersions: []string{h.gvk.Version}, Resources: h.resources},
	}
}

// handler makes the answer to a request from what the webhook does with its object.
func (s *server) handler(h hook) admission.Handler {
	if h.mutating {
		change := h.defaults(s)
		return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
			return s.mutate(ctx, &req, h.gvk, change)
		})
	}
	check := h.validate(s)
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		return s.validate(ctx, &req, h.gvk, check)
	})
}

func badRequest(err error) admission.Response { return admission.Errored(http.StatusBadRequest, err) }
