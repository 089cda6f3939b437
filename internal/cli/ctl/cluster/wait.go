package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// A request that takes longer than slow is reported, and again after every pause.
const (
	slow  = 2 * time.Second
	pause = 5 * time.Second
)

// patient reports slow answers on stderr, since a silent command seems to hang. It also ends every request with the command: some
// libraries send theirs without its context.
type patient struct {
	ctx  context.Context
	next http.RoundTripper
	host string
	mu   sync.Mutex
	to   io.Writer
}

// RoundTrip implements http.RoundTripper.
func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	defer announce(p.ctx, func(waited time.Duration) { p.tell("still waiting for %s to answer (%s)\n", p.host, waited) })()
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(p.ctx, cancel)
	end := func() { stop(); cancel() }
	response, err := p.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	response.Body = &body{response.Body, end}
	return response, nil
}

// body is an answer whose Close releases its request.
type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// Report does some work of this process, and names it on stderr if it takes long.
func (s *Session) Report(ctx context.Context, what string, work func()) {
	defer announce(ctx, func(waited time.Duration) { fmt.Fprintf(s.Errs, "still %s (%s)\n", what, waited) })()
	work()
}

// announce calls tell after slow, and again after every pause, until stop is called, which returns when tell has.
func announce(ctx context.Context, tell func(waited time.Duration)) (stop func()) {
	done, silent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(silent)
		timer := time.NewTimer(slow)
		defer timer.Stop()
		for waited := slow; ; waited += pause {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-timer.C:
				tell(waited)
				timer.Reset(pause)
			}
		}
	}()
	return func() {
		close(done)
		<-silent // the command writes to the same place afterwards
	}
}

// inside is a transport to a handler in this process.
type inside struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h inside) RoundTrip(r *http.Request) (*http.Response, error) {
	a := &answer{header: http.Header{}, code: http.StatusOK}
	h.ServeHTTP(a, r)
	return &http.Response{
		Status: http.StatusText(a.code), StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: r,
	}, nil
}

// answer is what a handler writes.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) { a.code = code }

// Write implements http.ResponseWriter.
func (a *answer) Write(some []byte) (int, error) { return a.body.Write(some) }

func (p *patient) tell(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.to, format, args...)
}
