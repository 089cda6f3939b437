package visibility

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/state"
)

// A caller with a thousand requests is asked to retry later, and uses up neither all seats nor the waiting places of another caller.
func TestInFlight(t *testing.T) {
	s := world(rules{"everything"})
	model, held, begun := s.Model, make(chan struct{}), make(chan struct{}, 1000)
	s.Model = func() *state.Model {
		begun <- struct{}{}
		<-held
		return model()
	}
	var all sync.WaitGroup
	codes := make(chan *httptest.ResponseRecorder, 1000)
	for range 1000 {
		all.Go(func() { codes <- get(s, lines, "X-Remote-User", "greedy", "Authorization", "") })
	}
	for range 1000 - seatsPerCaller - waitingPerCaller { // the others hold a seat or wait for one
		got := <-codes
		if got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") != "1" || !strings.Contains(got.Body.String(), `"reason":"TooManyRequests"`) {
			t.Fatalf("one question too many: %d %v %s", got.Code, got.Header(), got.Body)
		}
	}
	for range seatsPerCaller {
		<-begun
	}
	if len(begun) != 0 {
		t.Errorf("%d questions of one caller are answered at once", seatsPerCaller+len(begun))
	}
	other := make(chan int, 1)
	all.Go(func() { other <- get(s, lines, "X-Remote-User", "other", "Authorization", "").Code })
	wait.Receive(t, "another caller does not wait for the greedy one", begun)
	close(held)
	all.Wait()
	if code := <-other; code != http.StatusOK {
		t.Errorf("the other caller got %d", code)
	}
}

// Unknown tokens are reviewed a few at a time, and the requests of one address wait for each other.
func TestTokensInFlight(t *testing.T) {
	s := world(rules{"everything"})
	full := make(chan struct{}, 1)
	for range seatsPerCaller + waitingPerCaller + 1 {
		go func() {
			if _, err := s.unknown.Acquire(t.Context(), "192.0.2.1", 1); errors.Is(err, inflight.ErrFull) {
				full <- struct{}{}
			}
		}()
	}
	<-full // all seats are taken, and all places to wait
	if got := get(s, "/healthz"); got.Code != http.StatusTooManyRequests {
		t.Errorf("a token too many: %d", got.Code)
	}
	if got := get(s, "/healthz", "X-Remote-User", "alice", "Authorization", ""); got.Code != http.StatusOK {
		t.Errorf("a caller through the proxy got %d", got.Code)
	}
}

// An engine with too many questions is busy, which is no failure.
func TestBusyEngine(t *testing.T) {
	s := world(rules{"everything"})
	s.Workload = known
	s.Read = func(context.Context, func(*state.State) any) (any, error) { return nil, engine.ErrBusy }
	if got := get(s, explained); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v %s", got.Code, got.Header(), got.Body)
	}
}

// Many callers may read pages of the same line at once.
func TestPagesOfOneLine(t *testing.T) {
	s := world(rules{"everything"})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := get(s, lines, "X-Remote-User", "alice", "Authorization", ""); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), `"name":"w"`) {
				t.Errorf("%d %s", got.Code, got.Body)
			}
		})
	}
	all.Wait()
}
