package review

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-project/berth/internal/inflight"
)

// Webhooks answer every client that reaches their port, and a review may be forged. Their requests to the API server have a separate
// budget, so that the manager's work continues under any load. Jobs, TrainJobs and JobSets have a budget each.
const (
	liveQPS, liveBurst = 50, 100 // requests in a second and at once
	liveAtOnce         = 16
	livePerNamespace   = 8
	liveWaiting        = 256
	livePerReview      = 100     // requests for one review
	maxAnswer          = 32      // MiB of one
	maxObject          = 8 << 20 // bytes of JSON: an API server takes 3 MiB in a shorter encoding
	retryAfter         = 1       // seconds
)

// Live asks the API server on behalf of webhooks. Namespaces share its budget fairly.
type Live struct {
	to    client.Client
	turns *inflight.Limiter
}

// connectLive makes a client with a mapper of its own: owner names in a review can cause the mapper to ask the API server, too.
func connectLive(cfg *rest.Config, httpClient *http.Client, scheme *runtime.Scheme) (*Live, error) {
	cfg = inflight.OnBudget(cfg, liveQPS, liveBurst)
	bounded := *httpClient
	bounded.Transport = inflight.BoundAnswers(maxAnswer, "the API server")(httpClient.Transport)
	httpClient = &bounded
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connecting the webhooks to the API server: %w", err)
	}
	to, err := client.New(cfg, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting the webhooks to the API server: %w", err)
	}
	return &Live{to, &inflight.Limiter{Seats: liveAtOnce, PerCaller: livePerNamespace, Waiting: liveWaiting, WaitingPerCaller: liveWaiting / 4}}, nil
}

// caller is the review for which live requests are made.
type caller struct {
	namespace string
	requests  atomic.Int32
}

type callerKey struct{}

var errTooMuch = errors.New("the object takes too many questions to the API server to be judged; name fewer others in it")

// begin waits until a request may be made, which takes so many seats.
func (l *Live) begin(ctx context.Context, seats int) (end func(), err error) {
	r, _ := ctx.Value(callerKey{}).(*caller)
	if r == nil {
		return nil, errors.New("a live request belongs to a review: serve the webhook by its Handler")
	}
	if r.requests.Add(1) > livePerReview {
		return nil, errTooMuch
	}
	return l.turns.Acquire(ctx, r.namespace, seats)
}

// Get reads an object.
func (l *Live) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	end, err := l.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer end()
	return l.to.Get(ctx, key, into, options...)
}

// List reads objects, for one review of a namespace at a time and for two in all: answers are large. The caller pages long lists.
func (l *Live) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	end, err := l.begin(ctx, livePerNamespace)
	if err != nil {
		return err
	}
	defer end()
	return l.to.List(ctx, into, options...)
}

// Create makes a review of permissions.
func (l *Live) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	end, err := l.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer end()
	return l.to.Create(ctx, object, options...)
}

// guarded refuses requests that no API server sends to the webhook of a kind, before the API server is asked about anything.
func guarded(gvk schema.GroupVersionKind, next admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		if err := plausible(gvk, &req); err != nil {
			return badRequest(err)
		}
		if len(content.IsPathSegmentName(req.Name)) > 0 {
			return admission.Allowed("") // the API server refuses the name itself, with the field
		}
		ctx = context.WithValue(ctx, callerKey{}, &caller{namespace: req.Namespace})
		return next.Handle(inflight.For(ctx, req.Namespace), req)
	})
}

// plausible refuses requests that no API server sends. The version may differ from Berth's: another installation may have made the
// webhook.
func plausible(gvk schema.GroupVersionKind, req *admission.Request) error {
	switch {
	case req.Kind.Group != gvk.Group || req.Kind.Kind != gvk.Kind:
		return fmt.Errorf("request.kind: this webhook is for %s, not for %s", gvk.GroupKind(), schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind})
	case req.Operation != admissionv1.Create && req.Operation != admissionv1.Update:
		return fmt.Errorf("request.operation: this webhook is for CREATE and UPDATE, not for %q", req.Operation)
	case len(req.Object.Raw) > maxObject || len(req.OldObject.Raw) > maxObject:
		return fmt.Errorf("request.object: is larger than %d bytes, which the API server does not store", maxObject)
	case req.Operation == admissionv1.Update && len(req.OldObject.Raw) == 0:
		return errors.New("request.oldObject: must be there for an UPDATE")
	case req.Namespace != "" && len(content.IsDNS1123Label(req.Namespace)) > 0:
		return fmt.Errorf("request.namespace: %q is no name of a namespace", req.Namespace)
	}
	return nil
}

// busy is the answer while too many requests wait for the API server.
func busy() admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Message: "too many objects are being checked at once; try again", Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfter},
	}}}
}
