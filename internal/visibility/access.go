package visibility

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-project/berth/internal/inflight"
)

// Access identifies and authorizes callers.
type Access struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.UnconditionalAuthorizer
}

// answersKept is how long answers of the API server are cached, as in other aggregated API servers.
const answersKept = 10 * time.Second

// Reviews in a second and at once: of permissions, and of tokens, where any caller can cause a review with an unknown token. Neither
// budget affects the other, or the manager's own requests.
const (
	rightsQPS, rightsBurst = 50, 100
	tokensQPS, tokensBurst = 20, 50
)

// The ConfigMap in which the API server publishes the authorities and headers by which it identifies callers.
const (
	trustNamespace = "kube-system"
	trustConfigMap = "extension-apiserver-authentication"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Delegate leaves the decisions to the API server: it identifies the caller, by the headers of its proxy or by a token review, and
// authorizes the request. follow must run until ctx ends: it reads trustConfigMap. spec: 70 §4.6.
func Delegate(cfg *rest.Config, httpClient *http.Client) (access Access, follow func(context.Context), err error) {
	client, err := kubernetes.NewForConfigAndClient(inflight.OnBudget(cfg, rightsQPS, rightsBurst), httpClient)
	if err != nil {
		return Access{}, nil, fmt.Errorf("asking the API server for permissions: %w", err)
	}
	tokens, err := kubernetes.NewForConfigAndClient(inflight.OnBudget(cfg, tokensQPS, tokensBurst), httpClient)
	if err != nil {
		return Access{}, nil, fmt.Errorf("asking the API server who calls: %w", err)
	}
	authority := func(key string) (*dynamiccertificates.ConfigMapCAController, error) {
		return dynamiccertificates.NewDynamicCAFromConfigMapController(key, trustNamespace, trustConfigMap, key, client)
	}
	proxies, err := authority("requestheader-client-ca-file")
	if err != nil {
		return Access{}, nil, err
	}
	callers, err := authority("client-ca-file")
	if err != nil {
		return Access{}, nil, err
	}
	headers := headerrequest.NewRequestHeaderAuthRequestController(trustConfigMap, trustNamespace, client,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")
	retry := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	access.Authenticator, _, err = authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: true}, CacheTTL: answersKept, WebhookRetryBackoff: retry,
		TokenAccessReviewClient: tokens.AuthenticationV1(), TokenAccessReviewTimeout: patience,
		ClientCertificateCAContentProvider: callers,
		RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{
			CAContentProvider:   proxies,
			UsernameHeaders:     headerrequest.StringSliceProviderFunc(headers.UsernameHeaders),
			UIDHeaders:          headerrequest.StringSliceProviderFunc(headers.UIDHeaders),
			GroupHeaders:        headerrequest.StringSliceProviderFunc(headers.GroupHeaders),
			ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(headers.ExtraHeaderPrefixes),
			AllowedClientNames:  headerrequest.StringSliceProviderFunc(headers.AllowedClientNames),
		},
	}.New()
	if err != nil {
		return Access{}, nil, fmt.Errorf("asking the API server who calls: %w", err)
	}
	access.Authorizer, err = authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: answersKept, DenyCacheTTL: answersKept, WebhookRetryBackoff: retry,
	}.New()
	if err != nil {
		return Access{}, nil, fmt.Errorf("asking the API server for permissions: %w", err)
	}
	return access, func(ctx context.Context) {
		go proxies.Run(ctx, 1)
		go callers.Run(ctx, 1)
		headers.Run(ctx, 1)
	}, nil
}
