package inspect

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/berth-project/berth/internal/inflight"
)

// How long answers of the API server are cached: of token reviews, and of allowed and denied access reviews.
const (
	callersKept = time.Minute
	allowedKept = 5 * time.Minute
	deniedKept  = 30 * time.Second
	patience    = 10 * time.Second
)

// Rates of access reviews and of token reviews. The budgets are separate, also from the one of the manager's other requests.
const (
	rightsQPS, rightsBurst = 20, 50
	tokensQPS, tokensBurst = 20, 50
)

// Limits of concurrent and of queued authentications, in all and of one address.
const (
	atOnce, atOncePerAddress   = 8, 4
	waiting, waitingPerAddress = 64, 16
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Guard admits requests with a token whose user may read the path, by review of the API server: others are answered 401 and 403. A
// token that the API server cannot review is unknown. spec: 70 §2.1.2, §7 example 32.
func Guard(cfg *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	client, err := kubernetes.NewForConfigAndClient(inflight.OnBudget(cfg, rightsQPS, rightsBurst), httpClient)
	if err != nil {
		return nil, fmt.Errorf("asking the API server for permissions: %w", err)
	}
	tokens, err := kubernetes.NewForConfigAndClient(inflight.OnBudget(cfg, tokensQPS, tokensBurst), httpClient)
	if err != nil {
		return nil, fmt.Errorf("asking the API server who calls: %w", err)
	}
	retry := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	callers, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: false}, CacheTTL: callersKept, WebhookRetryBackoff: retry,
		TokenAccessReviewClient: tokens.AuthenticationV1(), TokenAccessReviewTimeout: patience,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("asking the API server who calls: %w", err)
	}
	rights, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: allowedKept, DenyCacheTTL: deniedKept, WebhookRetryBackoff: retry,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("asking the API server for permissions: %w", err)
	}
	unknown := &inflight.Limiter{Seats: atOnce, PerCaller: atOncePerAddress, Waiting: waiting, WaitingPerCaller: waitingPerAddress}
	return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			identified, err := unknown.Acquire(r.Context(), inflight.AddressOf(r), 1)
			if err != nil {
				w.Header().Set("Retry-After", "1")
				http.Error(w, err.Error(), http.StatusTooManyRequests)
				return
			}
			caller, ok, err := callers.AuthenticateRequest(r)
			identified()
			if err != nil || !ok {
				log.V(1).Info("Somebody unknown was turned away", "path", r.URL.Path, "why", fmt.Sprint(err))
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
				return
			}
			decision, reason, err := rights.Authorize(inflight.For(r.Context(), caller.User.GetName()), authorizer.AttributesRecord{
				User: caller.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path,
			})
			if err != nil {
				log.Error(err, "The API server does not say who may read this", "path", r.URL.Path)
				http.Error(w, "the API server does not say who may read this", http.StatusInternalServerError)
				return
			}
			if decision != authorizer.DecisionAllow {
				log.V(1).Info("Somebody without the right was turned away", "path", r.URL.Path, "user", caller.User.GetName(), "why", reason)
				http.Error(w, "Forbidden: a ClusterRole with this path as nonResourceURL is needed", http.StatusForbidden)
				return
			}
			handler.ServeHTTP(w, r)
		}), nil
	}, nil
}
