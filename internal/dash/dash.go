// Package dash is the dashboard: a back end that shows queues, workloads and reasons to wait over WebSockets, and its web pages. It is
// part of the manager and reads from the manager's caches, on every replica. Callers see only objects that the API server permits them
// to read. spec: 70 §4.10.
package dash

import (
	"embed"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
)

//go:embed web
var pages embed.FS

// Limits of a connection. spec: 70 §4.10.
const (
	debounce     = 200 * time.Millisecond
	writeLimit   = 5 * time.Second
	readLimit    = 8 << 10 // bytes of a message
	pingEvery    = 30 * time.Second
	placesEvery  = time.Second // at most
	recheckEvery = 30 * time.Second

	statusPath = "/auth/status" // needs no authentication
)

// Starts returns when a pending Workload is expected to start, nil for others. It is nil without forecasts.
type Starts func(*kueue.Workload) *berthv1alpha1.ExpectedStart

// Sources are what views contain beside API objects. Each may be nil.
type Sources struct {
	Places   *occupancy.Map // of topologies
	Rates    *sharing.Rates // of admission fair sharing
	Starts   Starts
	Position Position
	End      End
	Explain  Explain
	// Model returns the read model of the engine.
	Model  func() *state.Model
	WhatIf WhatIf
}

// Server is the handler of all requests.
type Server struct {
	Sources
	options options.Dashboard
	cache   cache.Cache   // the manager's: namespaces, queues and Workloads, without managed fields
	extra   cache.Cache   // our own: pods and events
	live    client.Reader // for nodes, pods and events one by one, and for the owners of pods
	access  *access
	log     logr.Logger
	all     *reconcile.Workloads
	history *history
	usage   *usage

	hub    *hub
	owners *owners
	limits *limits
	mux    *http.ServeMux
	// connections bounds the open connections, turns the views and objects that are built at once. Both share fairly between callers.
	connections, turns *inflight.Limiter
	questions          *inflight.Limiter // what-ifs
	costly             costly

	// pace holds intervals and timeouts; tests shorten them.
	pace pace
}

type pace struct{ debounce, write, ping, recheck, places, samples, whatIf, progress time.Duration }

// route registers the handlers.
func (s *Server) route() {
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	s.mux.HandleFunc("GET "+statusPath, s.authStatus)
	s.mux.HandleFunc("GET /api/{kind}/{name}", s.object)
	s.streams()
	s.mux.HandleFunc("GET /ws/what-if/answer", s.answerWhatIf)
	s.site()
}

// HTTP returns the HTTP server, with the limits of a connection. Its shutdown ends all views.
func (s *Server) HTTP() *http.Server {
	out := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 64 << 10}
	out.RegisterOnShutdown(s.hub.end) // the HTTP server does not close WebSockets
	return out
}

// ServeHTTP answers within the limits, and only to pages of allowed origins.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if r.URL.Path != "/healthz" && !s.limits.allow(r) {
		busy(w, "too many requests")
		return
	}
	if protected(r.URL.Path) && s.crossOrigin(w, r) {
		return
	}
	s.mux.ServeHTTP(w, r)
}

// crossOrigin answers preflight requests of browsers, and refuses pages of other origins. spec: 70 §4.10, §6 row 16.
func (s *Server) crossOrigin(w http.ResponseWriter, r *http.Request) (answered bool) {
	header := w.Header()
	header.Add("Vary", "Origin")
	if !mayRead(&s.options, r) {
		if r.URL.Path == statusPath {
			return false // the browser enforces the origin
		}
		refuse(w, http.StatusForbidden, "this origin is not among those that may read from the dashboard")
		return true
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		header.Set("Access-Control-Allow-Origin", origin)
		header.Set("Access-Control-Allow-Headers", "Authorization")
		header.Set("Access-Control-Allow-Methods", "GET")
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	return false
}

// authStatus reports, without authentication, whether a token is needed, and whether a given one is valid.
func (s *Server) authStatus(w http.ResponseWriter, r *http.Request) {
	out := map[string]any{"authMode": s.options.AuthMode}
	if s.options.AuthMode == options.AuthTokenReview && r.Header.Get("Authorization") != "" {
		who, err := s.access.caller(r.Context(), r, 0)
		out["authenticated"] = err == nil
		if err == nil {
			out["user"] = who.name()
		}
	}
	write(w, http.StatusOK, out)
}

// site serves the pages. All of them are one document, whose content depends on the path.
func (s *Server) site() {
	policy := "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	serve := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", policy)
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, pages, "web/"+name)
		}
	}
	for _, path := range []string{
		"/{$}", "/login", "/workloads", "/local-queues", "/cluster-queues", "/cohorts", "/resource-flavors", "/topologies", "/what-if", "/workload/{ns}/{name}", "/workload/{ns}/{name}/explanation",
		"/local-queue/{ns}/{name}", "/cluster-queue/{name}", "/cohort/{name}", "/resource-flavor/{name}", "/topology/{name}",
	} {
		s.mux.HandleFunc("GET "+path, serve("berth.html"))
	}
	for _, name := range []string{"berth.js", "topology.js", "explain.js", "charts.js", "whatif.js", "berth.css"} {
		s.mux.HandleFunc("GET /assets/"+name, serve(name))
	}
}

// protected reports whether access to a path depends on the page's origin.
func protected(path string) bool {
	return strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/ws/") || path == statusPath
}

// write answers with JSON.
func write(w http.ResponseWriter, code int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		code, data = http.StatusInternalServerError, []byte(`{"error":"this cannot be shown"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data)
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, code int, why string) {
	write(w, code, map[string]string{"error": why})
}

// upgrader makes a WebSocket of a request. Its origin was checked before.
var upgrader = websocket.Upgrader{
	HandshakeTimeout: 10 * time.Second, ReadBufferSize: 1 << 10, WriteBufferSize: 16 << 10,
	Subprotocols: []string{subprotocol}, CheckOrigin: func(*http.Request) bool { return true },
	Error: func(w http.ResponseWriter, _ *http.Request, code int, reason error) { refuse(w, code, reason.Error()) },
}
