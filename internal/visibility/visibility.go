// Package visibility is the aggregated API server inside the manager: it answers which Workloads are pending in a queue and at what
// position, in group visibility.kueue.x-k8s.io, and why a Workload waits, in group visibility.berth.dev. It is read-only, stores no
// objects, and runs on every replica. The API server authorizes callers. spec: 70 §2.4, §3.4, §4.6.
//
// It is a handler over net/http and not a generic API server of k8s.io/apiserver, which would bring storage, admission and etcd's client
// into the binary for five paths; authentication and authorization use the same code as such a server.
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
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// patience is how long a request waits for the engine.
const patience = 10 * time.Second

// Server is the handler of all requests. Its fields are set before the first one.
type Server struct {
	// Model returns the read model of the engine, see engine.Engine.Model.
	Model func() *state.Model
	// Read runs a function in the goroutine of the engine, see engine.Engine.Read.
	Read func(ctx context.Context, f func(*state.State) any) (any, error)
	// Places is what is free in the domains of topologies; nil without topologies.
	Places *occupancy.Map
	// Starts are forecast; nil for none.
	Starts Starts
	// Workload returns a Workload from the cache, which must not be modified, or nil.
	Workload func(namespace, name string) *kueue.Workload
	// Visit calls a function with every Workload of the cache, which must not be modified.
	Visit func(func(*kueue.Workload))
	// Requests selects the requests of a pod that count.
	Requests convert.Requests
	// Unwritten are decisions that no manager is there to write, by UID: admissions and preemptions. In a manager it is nil.
	Unwritten map[string]*trace.Attempt
	// Ready fails until the engine knows everything that exists.
	Ready func() error
	// Access identifies and authorizes callers.
	Access Access
	Log    logr.Logger

	// inFlight bounds concurrent requests, unknown concurrent requests with a token that may be new.
	inFlight, unknown *inflight.Limiter

	recent *recent
}

// Concurrent and waiting requests. A page takes a seat for each pageOfSeat Workloads that it may have.
const (
	seats            = 8
	seatsPerCaller   = 4
	waiting          = 64
	waitingPerCaller = 16
	pageOfSeat       = 5000
	retryAfter       = 1 // seconds
)

// New returns a server with its limits.
func New(s Server) *Server {
	s.recent = &recent{}
	s.inFlight = &inflight.Limiter{Seats: seats, PerCaller: seatsPerCaller, Waiting: waiting, WaitingPerCaller: waitingPerCaller}
	s.unknown = &inflight.Limiter{Seats: seats, PerCaller: seatsPerCaller, Waiting: waiting, WaitingPerCaller: waitingPerCaller}
	return &s
}

// HTTP serves it, with the limits of a connection.
func (s *Server) HTTP() *http.Server {
	return &http.Server{Handler: s, ReadHeaderTimeout: 32 * time.Second, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 64 << 10}
}

// paths parses a path into the attributes of its authorization.
var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("apis"), GrouplessAPIPrefixes: sets.NewString()}

// probes need no authorization.
var probes = []string{"/healthz", "/livez", "/readyz"}

// ServeHTTP authenticates, authorizes and answers one request, in this order.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := paths.NewRequestInfo(r)
	if err != nil {
		s.refuse(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	who, ok, err := s.authenticate(r)
	if errors.Is(err, inflight.ErrFull) {
		s.refuse(w, r, tooMany())
		return
	}
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
	release, err := s.inFlight.Acquire(r.Context(), who.User.GetName(), seatsOf(r))
	if err != nil {
		s.refuse(w, r, tooMany())
		return
	}
	defer release()
	decision, reason, err := s.Access.Authorizer.Authorize(inflight.For(r.Context(), who.User.GetName()), &attributes)
	switch {
	case decision == authorizer.DecisionAllow:
		s.answer(w, r, info, who.User)
	case err != nil:
		s.Log.Error(err, "The API server could not be asked whether a caller may read", "user", who.User.GetName(), "path", info.Path)
		s.refuse(w, r, apierrors.NewInternalError(errors.New("the API server could not be asked for permission")))
	default:
		s.refuse(w, r, forbidden(&attributes, reason))
	}
}

// authenticate identifies the caller. Callers with a token do not use the API server's proxy, and a new token costs a review: few of
// these run at once, and one address cannot use up all seats.
func (s *Server) authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	if r.Header.Get("Authorization") == "" {
		return s.Access.Authenticator.AuthenticateRequest(r)
	}
	release, err := s.unknown.Acquire(r.Context(), inflight.AddressOf(r), 1)
	if err != nil {
		return nil, false, err
	}
	defer release()
	return s.Access.Authenticator.AuthenticateRequest(r)
}

// seatsOf returns the seats that a request takes: large pages take more time and memory.
func seatsOf(r *http.Request) int {
	_, limit, err := pageOf(r.URL.Query())
	if err != nil {
		return 1 // the request is refused later
	}
	return int(1 + limit/pageOfSeat)
}

func tooMany() error {
	return apierrors.NewTooManyRequests("too many questions are being answered; ask again later", retryAfter)
}

// probe answers the probes' paths.
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

// forbidden is an API server's refusal, with the same text.
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
func (s *Server) answer(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, who user.Info) {
	if !info.IsResourceRequest {
		if !s.document(w, r, info.Path) {
			s.refuse(w, r, notFound(info))
		}
		return
	}
	res := find(info.APIGroup, info.APIVersion, info.Resource)
	switch at := len(info.Parts); {
	case res == nil, at > res.depth(), at == res.depth() && (info.Subresource != res.sub || res.namespaced != (info.Namespace != "")):
		s.refuse(w, r, notFound(info))
	case at < res.depth() || info.Verb != res.verb():
		if at == res.depth() {
			w.Header().Set("Allow", http.MethodGet)
		}
		s.refuse(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb))
	default:
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		object, err := s.read(ctx, res, &ask{caller: who, namespace: info.Namespace, name: info.Name, query: r.URL.Query()})
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: res.subKind})
		s.write(w, r, http.StatusOK, object)
	}
}

// ask is one caller's request to an endpoint.
type ask struct {
	caller          user.Info
	namespace, name string
	query           url.Values
}

// read returns the requested object.
func (s *Server) read(ctx context.Context, res *endpoint, a *ask) (runtime.Object, error) {
	if err := s.Ready(); err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	return res.read(ctx, s, a)
}

// question asks the engine; one that has stopped or is too busy is unavailable.
func question[T any](ctx context.Context, s *Server, f func(*state.State) T) (T, error) {
	answer, err := s.Read(ctx, func(st *state.State) any { return f(st) })
	out, _ := answer.(T)
	switch {
	case errors.Is(err, engine.ErrBusy):
		return out, tooMany()
	case err != nil:
		return out, apierrors.NewServiceUnavailable("the engine does not answer: " + err.Error())
	}
	return out, nil
}

func notFound(info *request.RequestInfo) error {
	if !info.IsResourceRequest {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, schema.GroupResource{}, "", "nothing is served at "+info.Path, 0, true)
	}
	what := schema.GroupResource{Group: info.APIGroup, Resource: strings.Trim(info.Resource+"/"+info.Subresource, "/")}
	return apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, what, info.Name, "", 0, true)
}
