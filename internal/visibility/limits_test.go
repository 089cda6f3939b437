package visibility

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/state"
)

// A caller with a thousand requests is asked to retry later, and uses up neither all seats nor the waiting places of another caller.
func TestInFlight(t *testing.T) {
	s := world(rules{"everything"})
	read, held, begun := s.Read, make(chan struct{}), make(chan struct{}, 1000)
	s.Read = func(ctx context.Context, key string, f func(*state.State) any) (any, error) {
		begun <- struct{}{}
		<-held
		return read(ctx, key, f)
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
	select {
	case <-begun:
	case <-time.After(30 * time.Second):
		t.Error("another caller has to wait for the greedy one")
	}
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

// An engine with too many requests is busy, which is no failure.
func TestBusyEngine(t *testing.T) {
	s := world(rules{"everything"})
	s.Read = func(context.Context, string, func(*state.State) any) (any, error) { return nil, engine.ErrBusy }
	if got := get(s, lines); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v %s", got.Code, got.Header(), got.Body)
	}
}

// Many callers may read pages of the same line at once.
func TestPagesOfOneLine(t *testing.T) {
	s := world(rules{"everything"})
	read, cached := s.Read, sync.Map{}
	s.Read = func(ctx context.Context, key string, f func(*state.State) any) (any, error) {
		if answer, ok := cached.Load(key); ok {
			return answer, nil
		}
		answer, err := read(ctx, key, f)
		cached.Store(key, answer)
		return answer, err
	}
	get(s, lines)
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
