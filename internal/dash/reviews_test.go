package dash

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/options"
)

// A user with many connections and namespaces does not use up the reviews of others.
func TestUsersShareReviews(t *testing.T) {
	var mu sync.Mutex
	var order []string
	asked := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(order)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		mu.Lock()
		order = append(order, review.Spec.User)
		mu.Unlock()
		review.Status.Allowed = review.Spec.ResourceAttributes.Namespace != ""
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	o := options.DefaultDashboard()
	o.AuthMode = options.AuthTokenReview
	cfg := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	a, err := newAccess(inflight.OnBudget(cfg, 100, 1), cfg, server.Client(), &o)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for view := range 8 {
		among := map[string]bool{}
		for i := range 30 {
			among[fmt.Sprint("ns-", view, "-", i)] = true
		}
		all.Go(func() {
			may, err := a.within(t.Context(), caller{&user.DefaultInfo{Name: "greedy"}}, workloadsResource, among)
			if err != nil || len(may) != len(among) {
				t.Errorf("the greedy user may list in %d namespaces: %v", len(may), err)
			}
		})
	}
	wait.Until(t, "somebody asks", wait.Is(func() bool { return asked() >= 20 }))
	before := asked()
	if ok, err := a.may(t.Context(), caller{&user.DefaultInfo{Name: "modest"}}, workloadsResource, "red", ""); err != nil || !ok {
		t.Errorf("the modest user: %v, %v", ok, err)
	}
	mu.Lock()
	if at := slices.Index(order, "modest"); at < 0 || at > before+20 { // not behind the 128 that the greedy one waits for
		t.Errorf("the modest user was asked about in place %d, after %d others", at, before)
	}
	mu.Unlock()
	all.Wait()
}

// One caller cannot open all connections, and gets a refusal.
func TestConnectionsPerCaller(t *testing.T) {
	s := &Server{
		options: options.Dashboard{AuthMode: options.AuthDisabled, Origins: []string{origin}}, access: &access{disabled: true}, hub: newHub(), limits: newLimits(),
		connections: newConnections(), turns: newTurns(), mux: http.NewServeMux(),
		pace: pace{debounce: debounce, write: writeLimit, ping: pingEvery, recheck: recheckEvery},
	}
	s.route()
	server := httptest.NewServer(s)
	defer server.Close()
	defer s.hub.end()
	for range connectionsPerCaller {
		release, err := s.connections.Acquire(t.Context(), "127.0.0.1", 1)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	conn, got, err := websocket.DefaultDialer.Dial("ws"+server.URL[len("http"):]+"/ws/workloads", http.Header{"Origin": []string{origin}})
	if conn != nil {
		_ = conn.Close()
	}
	if got != nil {
		defer func() { _ = got.Body.Close() }()
	}
	if err == nil || got == nil || got.StatusCode != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" {
		t.Errorf("one connection too many: %+v, %v", got, err)
	}
	if release, err := s.connections.Acquire(t.Context(), "192.0.2.7", 1); err != nil {
		t.Errorf("another caller: %v", err)
	} else {
		release()
	}
}
