package cluster

import (
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
	done, silent := make(chan struct{}), make(chan struct{})
	defer func() {
		close(done)
		<-silent // the command writes to the same place afterwards
	}()
	go func() {
		defer close(silent)
		timer := time.NewTimer(slow)
		defer timer.Stop()
		for waited := slow; ; waited += pause {
			select {
			case <-done:
				return
			case <-p.ctx.Done():
				return
			case <-timer.C:
				p.tell("still waiting for %s to answer (%s)\n", p.host, waited)
				timer.Reset(pause)
			}
		}
	}()
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

func (p *patient) tell(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.to, format, args...)
}
