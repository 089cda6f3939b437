// Package visibility is the aggregated API server inside the manager: it answers which
// Workloads are pending in a queue and at what position, in group
// visibility.kueue.x-k8s.io, and why a Workload waits, in group visibility.berth.dev. It
// is read-only, stores nothing, and runs on every replica. Who may ask decides the
// API server. spec: 70 §2.4, §3.4, §4.6.
//
// It is a handler over net/http and not a generic API server of k8s.io/apiserver, which
// would bring storage, admission and etcd's client into the binary for five paths; what
// authenticates and authorizes is the same code that such a server uses.
package visibility

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/convert"
	"github.com/berth-project/berth/internal/state"
)

// patience is how long a request waits for the engine.
const patience = 10 * time.Second

// Server is the handler of all requests. Its fields are set before the first one.
type Server struct {
	// Ask runs a function in the goroutine of the engine, see engine.Engine.Ask.
	Ask func(context.Context, func(*state.State)) error
	// Workload returns a Workload from the cache, which must not be modified, or nil.
	Workload func(namespace, name string) *kueue.Workload
	// Requests say which of a pod's requests count.
	Requests convert.Requests
	// Ready fails until the engine knows everything that exists.
	Ready func() error
	// Access decides who asks and whether they may.
	Access Access
	Log    logr.Logger
}

// HTTP serves it, with the limits of a connection.
func (s *Server) HTTP() *http.Server {
	return &http.Server{Handler: s, ReadHeaderTimeout: 32 * time.Second, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 64 << 10}
}

// paths splits a path into what is authorized.
var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("apis"), GrouplessAPIPrefixes: sets.NewString()}

// probes are answered to everybody.
var probes = []string{"/healthz", "/livez", "/readyz"}

// ServeHTTP answers one request: who asks, may they, and only then what.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := paths.NewRequestInfo(r)
	if err != nil {
		s.refuse(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	who, ok, err := s.Access.Authenticator.AuthenticateRequest(r)
	if err != nil || !ok {
		if err != nil {
			s.Log.V(1).Info("A caller could not be authenticated", "error", err.Error())
		}
		s.refuse(w, r, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	if !info.IsResourceRequest && s.probe(w, info.Path) {
		return
	}
	attributes := authorizer.AttributesRecord{
		User: who.User, Verb: info.Verb, Path: info.Path, ResourceRequest: info.IsResourceRequest, APIGroup: info.APIGroup, APIVersion: info.APIVersion,
		Namespace: info.Namespace, Resource: info.Resource, Subresource: info.Subresource, Name: info.Name,
	}
	decision, reason, err := s.Access.Authorizer.Authorize(r.Context(), &attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		s.answer(w, r, info)
	case err != nil:
		s.Log.Error(err, "The API server could not be asked whether a caller may read", "user", who.User.GetName(), "path", info.Path)
		s.refuse(w, r, apierrors.NewInternalError(errors.New("the API server could not be asked for permission")))
	default:
		s.refuse(w, r, forbidden(&attributes, reason))
	}
}

// probe answers the paths that tell whether the server lives.
func (s *Server) probe(w http.ResponseWriter, path string) bool {
	for _, p := range probes {
		if path != p {
			continue
		}
		if err := s.Ready(); err != nil && path == "/readyz" {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		} else {
			_, _ = w.Write([]byte("ok"))
		}
		return true
	}
	return false
}

// forbidden is the refusal of an API server, in its words.
func forbidden(a authorizer.Attributes, reason string) error {
	what := schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}
	why := "User " + quoted(a.GetUser().GetName()) + " cannot " + a.GetVerb()
	switch {
	case !a.IsResourceRequest():
		why += " path " + quoted(a.GetPath())
	default:
		full := a.GetResource()
		if a.GetSubresource() != "" {
			full += "/" + a.GetSubresource()
		}
		why += " resource " + quoted(full) + " in API group " + quoted(a.GetAPIGroup())
		if a.GetNamespace() != "" {
			why += " in the namespace " + quoted(a.GetNamespace())
		} else {
			why += " at the cluster scope"
		}
	}
	if reason != "" {
		why += ": " + reason
	}
	return apierrors.NewForbidden(what, a.GetName(), errors.New(why))
}

func quoted(s string) string { return `"` + s + `"` }

// answer serves what the caller may read.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if !info.IsResourceRequest {
		if !s.document(w, r, info.Path) {
			s.refuse(w, r, notFound(info))
		}
		return
	}
	res := find(info.APIGroup, info.APIVersion, info.Resource)
	switch at := len(info.Parts); {
	case res == nil, at > 3, at == 3 && (info.Subresource != res.sub || res.namespaced != (info.Namespace != "")):
		s.refuse(w, r, notFound(info))
	case at < 3 || info.Verb != "get":
		if at == 3 {
			w.Header().Set("Allow", http.MethodGet)
		}
		s.refuse(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb))
	default:
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		object, err := s.read(ctx, res, info, r.URL.Query())
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: res.subKind})
		s.write(w, r, http.StatusOK, object)
	}
}

// read makes the object that is asked for.
func (s *Server) read(ctx context.Context, res *endpoint, info *request.RequestInfo, query url.Values) (runtime.Object, error) {
	if err := s.Ready(); err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	return res.read(ctx, s, info.Namespace, info.Name, query)
}

// ask asks the engine; an engine that has stopped or is too busy is unavailable.
func (s *Server) ask(ctx context.Context, f func(*state.State)) error {
	if err := s.Ask(ctx, f); err != nil {
		return apierrors.NewServiceUnavailable("the engine does not answer: " + err.Error())
	}
	return nil
}

func notFound(info *request.RequestInfo) error {
	if !info.IsResourceRequest {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, schema.GroupResource{}, "", "nothing is served at "+info.Path, 0, true)
	}
	what := schema.GroupResource{Group: info.APIGroup, Resource: strings.Trim(info.Resource+"/"+info.Subresource, "/")}
	return apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, what, info.Name, "", 0, true)
}
