package admission

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetwebhook "github.com/berth-project/berth/internal/jobset/webhook"
	"github.com/berth-project/berth/internal/review"
	trainingwebhook "github.com/berth-project/berth/internal/training/webhook"
)

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

// Names of the webhook configurations. JobSets and training have upstream's names, so that Berth's configurations replace an upstream
// controller's (spec: 60 §5.6, 50 §3.1).
const (
	MutatingName           = "kueue-mutating-webhook-configuration"
	ValidatingName         = "kueue-validating-webhook-configuration"
	JobSetMutatingName     = "jobset-mutating-webhook-configuration"
	JobSetValidatingName   = "jobset-validating-webhook-configuration"
	TrainingMutatingName   = "defaulter.trainer.kubeflow.org"
	TrainingValidatingName = "validator.trainer.kubeflow.org"
)

// How long the API server waits for an answer: timeoutSeconds where the request fails without one, openTimeoutSeconds where it is carried
// out regardless. The webhooks of JobSets and training use the API server's default.
const (
	timeoutSeconds     int32 = 5
	openTimeoutSeconds int32 = 2
)

// Configurations returns the objects that make the API server call the webhooks of jobs, queues and Workloads. Webhooks of jobs select
// the managed namespaces, so Berth is not even called in any other (spec: 30 §4.2.5).
func Configurations(target Target, o Options) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration) {
	return configurations(MutatingName, ValidatingName, target, new(timeoutSeconds), list(&o, nil))
}

// JobSetConfigurations returns the same for the webhooks of JobSets and of their pods.
func JobSetConfigurations(target Target) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration) {
	return configurations(JobSetMutatingName, JobSetValidatingName, target, nil, jobSets(jobsetwebhook.Options{}, nil))
}

// TrainingConfigurations returns the same for the webhooks of TrainJobs and runtimes.
func TrainingConfigurations(target Target) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration) {
	return configurations(TrainingMutatingName, TrainingValidatingName, target, nil, training(trainingwebhook.Options{}, nil))
}

// configurations makes the API server call hooks and wait timeout seconds for an answer; nil is its default.
func configurations(
	mutatingName, validatingName string, target Target, timeout *int32, hooks []review.Webhook,
) (*admissionv1.MutatingWebhookConfiguration, *admissionv1.ValidatingWebhookConfiguration) {
	version := admissionv1.SchemeGroupVersion.String()
	mutating := &admissionv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "MutatingWebhookConfiguration"}, ObjectMeta: metav1.ObjectMeta{Name: mutatingName},
	}
	validating := &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ValidatingWebhookConfiguration"}, ObjectMeta: metav1.ObjectMeta{Name: validatingName},
	}
	for i := range hooks {
		h := &hooks[i]
		hook := admissionv1.ValidatingWebhook{
			Name: h.Name, ClientConfig: target.clientConfig(h.Path), Rules: rules(h), NamespaceSelector: h.Namespaces, ObjectSelector: h.Objects,
			MatchConditions: conditions(h), FailurePolicy: new(admissionv1.Fail), SideEffects: new(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: timeout,
		}
		if !h.Mutating() {
			validating.Webhooks = append(validating.Webhooks, hook)
			continue
		}
		changing := admissionv1.MutatingWebhook{
			Name: hook.Name, ClientConfig: hook.ClientConfig, Rules: hook.Rules, NamespaceSelector: hook.NamespaceSelector, ObjectSelector: hook.ObjectSelector,
			MatchConditions: hook.MatchConditions, FailurePolicy: hook.FailurePolicy, SideEffects: hook.SideEffects,
			AdmissionReviewVersions: hook.AdmissionReviewVersions, TimeoutSeconds: hook.TimeoutSeconds,
		}
		mutating.Webhooks = append(mutating.Webhooks, changing)
		if h.Open {
			mutating.Webhooks = append(mutating.Webhooks, openTo(h, changing))
		}
	}
	return mutating, validating
}

// openTo returns the webhook for objects that the conditions of the given one exclude. Such objects are written without an answer.
func openTo(h *review.Webhook, of admissionv1.MutatingWebhook) admissionv1.MutatingWebhook {
	of.Name = "default." + of.Name
	of.FailurePolicy, of.TimeoutSeconds = new(admissionv1.Ignore), new(openTimeoutSeconds)
	of.MatchConditions = []admissionv1.MatchCondition{{Name: "may-get-the-default-queue", Expression: "!(" + h.When.Expression + ")"}}
	return of
}

// rules returns the requests that a webhook gets: creations, and updates if it asks for them.
func rules(h *review.Webhook) []admissionv1.RuleWithOperations {
	operations := []admissionv1.OperationType{admissionv1.Create}
	if h.Updates {
		operations = append(operations, admissionv1.Update)
	}
	return []admissionv1.RuleWithOperations{{
		Operations: operations,
		Rule:       admissionv1.Rule{APIGroups: []string{h.GVK.Group}, APIVersions: []string{h.GVK.Version}, Resources: h.Resources},
	}}
}

func conditions(h *review.Webhook) []admissionv1.MatchCondition {
	if h.When.Expression == "" {
		return nil
	}
	return []admissionv1.MatchCondition{h.When}
}
