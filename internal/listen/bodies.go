package listen

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// MaxBody is the largest body of a request, in bytes. An API server takes objects of at most 3 MiB, and a review holds two.
	MaxBody = 16 << 20
	// freeBody is the uncounted cost of one request, so that ordinary reviews pass while large ones wait.
	freeBody = 512 << 10
	// maxBodies is the cost of all requests together beyond that, in bytes of memory.
	maxBodies = 96 << 20
	// perObject is the cost of one JSON object or null in a body, in bytes: two characters may decode to a whole struct.
	perObject = 1 << 10
	// bodyWithin is how long a client has to send its request.
	bodyWithin = 15 * time.Second
)

// Bodies bounds the memory of request bodies before they are decoded. The zero value is ready to use.
//
// A body costs its length, and a kilobyte for each JSON object in it, as a few bytes of text may decode to much more. Small bodies are
// free, so that large requests do not block ordinary ones. Few large ones are answered at a time.
type Bodies struct {
	taken atomic.Int64
	once  sync.Once
	large chan struct{} // holds a token for each large request in progress
}

// begin waits until a large request may be answered: large requests use at most half of the processors, and the memory of as many.
func (b *Bodies) begin(ctx context.Context) error {
	b.once.Do(func() { b.large = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)) })
	select {
	case b.large <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errBusy means that other requests use up the memory.
var errBusy = errors.New("too many large requests at once; try again")

// Limit bounds the bodies of requests to a handler. Larger ones get 413, and 429 while other requests use up the shared memory.
func (b *Bodies) Limit(next http.Handler) http.Handler { return b.within(bodyWithin, next) }

func (b *Bodies) within(limit time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Test recorders have no deadlines.
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		body := &meteredBody{ReadCloser: http.MaxBytesReader(w, r.Body, MaxBody), bodies: b, ctx: r.Context()}
		defer body.release()
		answer := &refusal{ResponseWriter: w, body: body}
		// The server keeps its own request: the rest of its body determines whether the connection can be reused.
		metered := r.WithContext(r.Context())
		metered.Body = body
		next.ServeHTTP(answer, metered)
	})
}

// meteredBody counts the cost of a body while it is read, and fails once it costs too much.
type meteredBody struct {
	io.ReadCloser
	bodies       *Bodies
	cost, taken  int64
	text, escape bool
	ctx          context.Context //nolint:containedctx // of the request, whose body it is
	begun        bool            // it counts among the large requests in progress
	err          error
}

func (m *meteredBody) Read(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	n, err := m.ReadCloser.Read(p)
	m.cost += int64(n) + perObject*m.objects(p[:n])
	if charge := m.cost - freeBody - m.taken; charge > 0 {
		m.taken += charge
		if m.bodies.taken.Add(charge) > maxBodies {
			m.err = errBusy
		}
	}
	if m.cost > maxBodies {
		m.err = &http.MaxBytesError{Limit: MaxBody}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		m.err = err
	}
	if errors.Is(err, io.EOF) && m.err == nil && m.taken > 0 && !m.begun { // the body is complete: answering it costs time
		m.err = m.bodies.begin(m.ctx)
		m.begun = m.err == nil
	}
	if m.err != nil {
		return n, m.err
	}
	return n, err
}

// objects counts the JSON objects and nulls that begin in the next part of a body.
func (m *meteredBody) objects(part []byte) (n int64) {
	for _, c := range part {
		switch {
		case m.escape:
			m.escape = false
		case m.text && c == '\\':
			m.escape = true
		case c == '"':
			m.text = !m.text
		case !m.text && (c == '{' || c == 'n'):
			n++
		}
	}
	return n
}

func (m *meteredBody) release() {
	m.bodies.taken.Add(-m.taken)
	if m.begun {
		<-m.bodies.large
	}
}

// refusal sets the status of the answer to a body that cost too much, whatever the handler makes of the error.
type refusal struct {
	http.ResponseWriter
	body    *meteredBody
	refused bool
}

// Unwrap is for http.ResponseController.
func (r *refusal) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *refusal) WriteHeader(status int) {
	r.refuse()
	if !r.refused {
		r.ResponseWriter.WriteHeader(status)
	}
}

func (r *refusal) Write(p []byte) (int, error) {
	r.refuse()
	if r.refused {
		return len(p), nil
	}
	return r.ResponseWriter.Write(p)
}

// refuse answers once that the body cost too much, if it did.
func (r *refusal) refuse() {
	if r.body.err == nil || r.refused {
		return
	}
	r.refused = true
	status := http.StatusRequestEntityTooLarge
	if errors.Is(r.body.err, errBusy) {
		status = http.StatusTooManyRequests
		r.Header().Set("Retry-After", "1")
	}
	http.Error(r.ResponseWriter, r.body.err.Error(), status)
}

// Webhooks is a webhook server whose requests are bounded by Bodies and checked by callers, if that is not nil, except at the open paths.
func Webhooks(s ctrlwebhook.Server, callers *Callers, open ...string) ctrlwebhook.Server {
	return &webhooks{Server: s, callers: callers, open: open}
}

type webhooks struct {
	ctrlwebhook.Server
	bodies  Bodies
	callers *Callers
	open    []string
}

// Register serves with a handler at a path.
func (w *webhooks) Register(path string, handler http.Handler) {
	handler = w.bodies.Limit(handler)
	if w.callers != nil && !slices.Contains(w.open, path) {
		handler = w.callers.Check(handler)
	}
	w.Server.Register(path, handler)
}
