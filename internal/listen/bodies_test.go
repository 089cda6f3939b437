package listen

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

func read(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "as the handler says it: "+err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body[:min(len(body), 10)])
}

func TestBodies(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want int
	}{
		"ordinary":                {`{"kind":"ConversionReview"}`, http.StatusOK},
		"large":                   {strings.Repeat("x", MaxBody), http.StatusOK},
		"too large":               {strings.Repeat("x", MaxBody+1), http.StatusRequestEntityTooLarge},
		"few bytes, many objects": {`[` + strings.Repeat("{},", maxBodies/perObject+1) + `{}]`, http.StatusRequestEntityTooLarge},
		"few bytes, many nulls":   {`[` + strings.Repeat("null,", maxBodies/perObject+1) + `null]`, http.StatusRequestEntityTooLarge},
		"brackets in a string":    {`["` + strings.Repeat(`{\"null`, maxBodies/perObject+1) + `"]`, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			var b Bodies
			w := httptest.NewRecorder()
			b.Limit(http.HandlerFunc(read)).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tc.body)))
			if w.Code != tc.want {
				t.Errorf("answered %d, want %d: %.100s", w.Code, tc.want, w.Body)
			}
			if taken := b.taken.Load(); taken != 0 {
				t.Errorf("%d bytes are still counted after the request", taken)
			}
		})
	}
}

// TestBodiesShare: large requests share their memory, and do not block ordinary ones.
func TestBodiesShare(t *testing.T) {
	var b Bodies
	b.taken.Store(maxBodies)
	for name, tc := range map[string]struct {
		size, want int
	}{
		"ordinary": {freeBody, http.StatusOK},
		"large":    {freeBody + 1, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			b.Limit(http.HandlerFunc(read)).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, tc.size))))
			if w.Code != tc.want || (tc.want != http.StatusOK && w.Header().Get("Retry-After") == "") {
				t.Errorf("answered %d, want %d: %.100s", w.Code, tc.want, w.Body)
			}
		})
	}
	if taken := b.taken.Load(); taken != maxBodies {
		t.Errorf("%d bytes are counted, want %d", taken, maxBodies)
	}
}

// TestSlowBody: a client that does not send its body holds its connection for a limited time.
func TestSlowBody(t *testing.T) {
	var b Bodies
	ended := make(chan error, 1)
	s := httptest.NewServer(b.within(50*time.Millisecond, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		ended <- err
	})))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	if err := wait.Receive(t, "the reading ends", ended); err == nil {
		t.Error("the body was read to an end that was never sent")
	}
}

// TestRefusedBodyIsNoRequest: the rest of a refused body is not read as the next request on the connection.
func TestRefusedBodyIsNoRequest(t *testing.T) {
	var b Bodies
	s := httptest.NewServer(b.Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close() // as a handler of webhooks does before it answers
		w.WriteHeader(http.StatusOK)
	})))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	inner := "POST /inner HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n"+strings.Repeat(inner, 10)); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(wait.Patience)); err != nil {
		t.Fatal(err)
	}
	answers, _ := io.ReadAll(conn) // until the server closes the connection, or resets it
	if n := strings.Count(string(answers), "HTTP/1.1 "); n != 1 {
		t.Errorf("%d answers to one request:\n%s", n, answers)
	}
}

// TestLargeBodiesInTurn: large requests leave processors to ordinary ones, all are answered in turn, and a cancelled one does not keep
// its place.
func TestLargeBodiesInTurn(t *testing.T) {
	var b Bodies
	begun, hold := make(chan struct{}, 100), make(chan struct{})
	handler := b.Limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read(w, r)
		if r.Header.Get("X-Hold") != "" {
			begun <- struct{}{}
			<-hold
		}
	}))
	ask := func(ctx context.Context, size int, held string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(make([]byte, size)))
		r.Header.Set("X-Hold", held)
		handler.ServeHTTP(w, r)
		return w.Code
	}
	atOnce := max(1, runtime.GOMAXPROCS(0)/2)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			if code := ask(t.Context(), freeBody+1, "yes"); code != http.StatusOK {
				t.Errorf("a large one: %d", code)
			}
		})
	}
	for range atOnce {
		<-begun
	}
	if code := ask(t.Context(), freeBody, ""); code != http.StatusOK {
		t.Errorf("an ordinary one has to wait: %d", code)
	}
	gone, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if code := ask(gone, freeBody+1, ""); code == http.StatusOK {
		t.Error("one large request too many is answered")
	}
	close(hold)
	all.Wait()
	for range atOnce + 1 {
		if code := ask(t.Context(), freeBody+1, ""); code != http.StatusOK {
			t.Errorf("a large one after the others: %d", code)
		}
	}
	if len(b.large) != 0 || b.taken.Load() != 0 {
		t.Errorf("%d turns and %d bytes are still counted", len(b.large), b.taken.Load())
	}
}
