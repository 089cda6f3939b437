// Package review is what the webhooks of all subjects share: an entry of their list, decoding the object of a request, judging and
// answering it, requests to the API server within a budget, and rules of several kinds.
//
//	request ─► guarded: could an API server have sent it? ─► decode ─► Defaults ─► patch
//	                                                               └─► Validate ─► allowed, or refused
//
// Refusals are 403 with every mistake of the object, each with the path of its field. Rules of a schema or of CEL are not repeated here:
// the API server checks them first, with 422 (spec: 10 §3, 30 §3).
package review

import (
	"context"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Webhook is one webhook: an entry of the lists of internal/admission, from which the server and the webhook configurations are made.
type Webhook struct {
	// Name and Path are unique in a configuration. Empty: NewName and NewPath of the kind.
	Name, Path string
	GVK        schema.GroupVersionKind
	// Resources are the resources of the rule, such as workloads and workloads/status.
	Resources []string
	// New makes an empty object of the kind.
	New func() client.Object

	// Updates also calls it for updates, not only for creations.
	Updates bool
	// Namespaces and Objects select by labels; nil selects all.
	Namespaces, Objects *metav1.LabelSelector
	// When is a match condition; the zero value is none.
	When admissionregistrationv1.MatchCondition
	// Open makes a mutating webhook also get, with a short timeout, objects for which When is false. These are written even while no
	// manager answers.
	Open bool

	// Defaults is set for a mutating webhook, Validate for any other.
	Defaults Defaulter
	Validate Validator
	// Warn, if not nil, returns warnings about an object. For an update only new warnings are sent.
	Warn func(object client.Object) []string
}

// Defaulter changes an object. The error refuses the request.
type Defaulter func(ctx context.Context, req *admission.Request, object client.Object) error

// Validator refuses an object. old is nil for a new one.
type Validator func(ctx context.Context, req *admission.Request, object, old client.Object) error

// Mutating reports whether it changes objects.
func (h *Webhook) Mutating() bool { return h.Defaults != nil }

// Handler answers the requests of the webhook.
func (h *Webhook) Handler() admission.Handler {
	return guarded(h.GVK, admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		told := &advice{}
		answer := h.validate
		if h.Mutating() {
			answer = h.mutate
		}
		response := answer(context.WithValue(ctx, adviceKey{}, told), &req)
		return response.WithWarnings(told.lines...)
	}))
}

// NewName is the name of the webhook of a kind, such as mjob.kb.io.
func NewName(kind string, mutating bool) string {
	if mutating {
		return "m" + kind + ".kb.io"
	}
	return "v" + kind + ".kb.io"
}

// NewPath is where the webhook of a kind listens, such as /mutate-batch-v1-job.
func NewPath(gvk schema.GroupVersionKind, mutating bool) string {
	verb := "/validate-"
	if mutating {
		verb = "/mutate-"
	}
	return verb + strings.ReplaceAll(gvk.Group, ".", "-") + "-" + gvk.Version + "-" + strings.ToLower(gvk.Kind)
}

// OnlyIf is the match condition of that expression; an empty one is none.
func OnlyIf(expression string) admissionregistrationv1.MatchCondition {
	if expression == "" {
		return admissionregistrationv1.MatchCondition{}
	}
	return admissionregistrationv1.MatchCondition{Name: "has-something-to-say", Expression: expression}
}

// Readers are the webhooks' sources of objects.
type Readers struct {
	// Client reads from the cache of the manager, and kinds without Go types from the API server on the budget of the manager.
	Client client.Reader
	// Cache reads every kind from the cache.
	Cache client.Reader
	// Live asks the API server on the budget of the webhooks.
	Live *Live
}

// NewReaders makes the readers of a manager, with a budget of their own.
func NewReaders(mgr ctrl.Manager) (*Readers, error) {
	live, err := connectLive(mgr.GetConfig(), mgr.GetHTTPClient(), mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	return &Readers{Client: mgr.GetClient(), Cache: mgr.GetCache(), Live: live}, nil
}

// advice collects the warnings of one answer.
type advice struct{ lines []string }

type adviceKey struct{}

// Advise adds warnings to the answer in progress, whether it allows or refuses.
func Advise(ctx context.Context, lines ...string) {
	if a, ok := ctx.Value(adviceKey{}).(*advice); ok {
		a.lines = append(a.lines, lines...)
	}
}
