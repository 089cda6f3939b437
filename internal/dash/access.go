package dash

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/options"
)

const (
	tokensKept  = 1024
	answersKept = 10 * time.Second // of authorizations
	patience    = 10 * time.Second // with the API server
	atOnce      = 16               // questions for one view

	// Subprotocols of a WebSocket. Browsers cannot set headers and pass their token in one. spec: 70 §4.10.
	subprotocol      = "kueueviz.v1"
	tokenSubprotocol = "kueueviz.auth."
)

// access authenticates callers and authorizes their reads through the API server.
type access struct {
	disabled   bool
	audiences  []string
	ttl, short time.Duration
	tokenAPI   kubernetes.Interface
	authorizer authorizer.UnconditionalAuthorizer
	now        func() time.Time

	reviews singleflight.Group
	mu      sync.Mutex
	tokens  *lru.Cache // of review, by the hash of the token
}

// review is the API server's answer about a token; who is nil for an unknown token.
type review struct {
	who user.Info
	at  time.Time
}

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=kueue-manager-dashboard-role
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=kueue-manager-dashboard-role

// newAccess asks the API server over two connections: one for permissions, one for tokens.
func newAccess(forRights, forTokens *rest.Config, httpClient *http.Client, o *options.Dashboard) (*access, error) {
	rights, err := kubernetes.NewForConfigAndClient(forRights, httpClient)
	if err != nil {
		return nil, fmt.Errorf("asking the API server for permissions: %w", err)
	}
	tokenAPI, err := kubernetes.NewForConfigAndClient(forTokens, httpClient)
	if err != nil {
		return nil, fmt.Errorf("asking the API server who calls: %w", err)
	}
	a := &access{
		disabled: o.AuthMode == options.AuthDisabled, audiences: o.Audiences, ttl: o.CacheTTL, short: o.NegativeCacheTTL, tokenAPI: tokenAPI,
		now: time.Now, tokens: lru.New(tokensKept),
	}
	a.authorizer, err = authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: rights.AuthorizationV1(), AllowCacheTTL: answersKept, DenyCacheTTL: answersKept,
		WebhookRetryBackoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3},
	}.New()
	if err != nil {
		return nil, fmt.Errorf("asking the API server for permissions: %w", err)
	}
	return a, nil
}

// caller is an authenticated user. The zero value is a caller of a server without authentication, and may read everything.
type caller struct{ info user.Info }

func (c caller) name() string {
	if c.info == nil {
		return "anybody"
	}
	return c.info.GetName()
}

// errUnauthenticated is the error for a missing or unknown token.
var errUnauthenticated = errors.New("show a token that the API server knows")

// caller identifies the caller of a request, by a review not older than age; 0 is the configured age.
func (a *access) caller(ctx context.Context, r *http.Request, age time.Duration) (caller, error) {
	if a.disabled {
		return caller{}, nil
	}
	token := tokenOf(r)
	if token == "" {
		return caller{}, errUnauthenticated
	}
	who, err := a.know(inflight.For(ctx, inflight.AddressOf(r)), token, age)
	return caller{who}, err
}

// tokenOf returns the token of a request, from a header or a subprotocol; "" for none.
func tokenOf(r *http.Request) string {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	for _, line := range r.Header.Values("Sec-Websocket-Protocol") {
		for offered := range strings.SplitSeq(line, ",") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(offered), tokenSubprotocol); ok {
				token, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
				if err == nil {
					return string(token)
				}
			}
		}
	}
	return ""
}

func (a *access) know(ctx context.Context, token string, age time.Duration) (user.Info, error) {
	hash := sha256.Sum256([]byte(token))
	a.mu.Lock()
	kept, ok := a.tokens.Get(hash)
	a.mu.Unlock()
	if ok {
		r, limit := kept.(review), a.ttl
		if r.who == nil {
			limit = a.short
		}
		if age > 0 {
			limit = min(limit, age)
		}
		if a.now().Sub(r.at) < limit {
			return r.who, known(r.who)
		}
	}
	// The first caller may leave; the others still wait for the answer.
	answer, err, _ := a.reviews.Do(string(hash[:]), func() (any, error) {
		limited, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer stop()
		r := review{at: a.now()}
		var err error
		if r.who, err = a.ask(limited, token); err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.tokens.Add(hash, r)
		return r, nil
	})
	if err != nil {
		return nil, err
	}
	r, _ := answer.(review)
	return r.who, known(r.who)
}

func known(who user.Info) error {
	if who == nil {
		return errUnauthenticated
	}
	return nil
}

func (a *access) ask(ctx context.Context, token string) (user.Info, error) {
	got, err := a.tokenAPI.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: a.audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking the API server about a token: %w", err)
	}
	s := &got.Status
	meant := len(a.audiences) == 0 || slices.ContainsFunc(s.Audiences, func(have string) bool { return slices.Contains(a.audiences, have) })
	if !s.Authenticated || !meant {
		return nil, nil // an unknown token is no error
	}
	extra := map[string][]string{}
	for key, values := range s.User.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: s.User.Username, UID: s.User.UID, Groups: s.User.Groups, Extra: extra}, nil
}

// refused is the error for objects that the caller may not read.
type refused struct{ text string }

func (r *refused) Error() string { return r.text }

// resource is a kind of objects: its plural in URLs, with its subresource if it is one, and its name, which cached objects lack.
type resource struct {
	schema.GroupVersionResource
	kind string
}

func (r resource) gvk() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.kind) }

var (
	workloadsResource     = resource{kueue.GroupVersion.WithResource("workloads"), "Workload"}
	localQueuesResource   = resource{kueue.GroupVersion.WithResource("localqueues"), "LocalQueue"}
	clusterQueuesResource = resource{kueue.GroupVersion.WithResource("clusterqueues"), "ClusterQueue"}
	cohortsResource       = resource{kueue.GroupVersion.WithResource("cohorts"), "Cohort"}
	flavorsResource       = resource{kueue.GroupVersion.WithResource("resourceflavors"), "ResourceFlavor"}
	topologiesResource    = resource{kueue.GroupVersion.WithResource("topologies"), "Topology"}
	namespacesResource    = resource{corev1.SchemeGroupVersion.WithResource("namespaces"), "Namespace"}
	podsResource          = resource{corev1.SchemeGroupVersion.WithResource("pods"), "Pod"}
	eventsResource        = resource{corev1.SchemeGroupVersion.WithResource("events"), "Event"}
	nodesResource         = resource{corev1.SchemeGroupVersion.WithResource("nodes"), "Node"}
)

// may reports whether a caller may get the object of a name, or list all if there is no name, in a namespace or in all.
func (a *access) may(ctx context.Context, who caller, what resource, namespace, name string) (bool, error) {
	if a.disabled {
		return true, nil
	}
	verb := "list"
	if name != "" {
		verb = "get"
	}
	// The answer is cached, so it is useful even after the caller has left.
	ctx, stop := context.WithTimeout(inflight.For(context.WithoutCancel(ctx), who.name()), patience)
	defer stop()
	plural, sub, _ := strings.Cut(what.Resource, "/")
	decision, _, err := a.authorizer.Authorize(ctx, &authorizer.AttributesRecord{
		User: who.info, Verb: verb, APIGroup: what.Group, APIVersion: what.Version, Resource: plural, Subresource: sub,
		Namespace: namespace, Name: name, ResourceRequest: true,
	})
	if err != nil {
		return false, fmt.Errorf("asking the API server for permission: %w", err)
	}
	return decision == authorizer.DecisionAllow, nil
}

// must is may with a refusal as error.
func (a *access) must(ctx context.Context, who caller, what resource, namespace, name string) error {
	ok, err := a.may(ctx, who, what, namespace, name)
	if err != nil || ok {
		return err
	}
	text := fmt.Sprintf("%s may not list %s", who.name(), what.Resource)
	if name != "" {
		text = fmt.Sprintf("%s may not get %s %s", who.name(), what.Resource, name)
	}
	if namespace != "" {
		text += " in namespace " + namespace
	}
	return &refused{text}
}

// within returns the namespaces in which a caller may read. A caller that may list in all namespaces needs one review only.
// Namespaces themselves are readable for callers that may get them.
func (a *access) within(ctx context.Context, who caller, what resource, among map[string]bool) (map[string]bool, error) {
	all, err := a.may(ctx, who, what, "", "")
	if err != nil || all {
		return among, err
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	var failed error
	out, turns := map[string]bool{}, make(chan struct{}, atOnce)
	for namespace := range among { //berth:unordered the answers are a set
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			name := ""
			if what == namespacesResource {
				name = namespace
			}
			ok, err := a.may(ctx, who, what, namespace, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			} else if ok {
				out[namespace] = true
			}
		})
	}
	group.Wait()
	return out, failed
}
