package cluster

import (
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

// patient tells on stderr that an answer takes its time, since a silent command looks like one that hangs.
type patient struct {
	next http.RoundTripper
	host string
	mu   sync.Mutex
	to   io.Writer
}

// RoundTrip implements http.RoundTripper.
func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		timer := time.NewTimer(slow)
		defer timer.Stop()
		for waited := slow; ; waited += pause {
			select {
			case <-done:
				return
			case <-r.Context().Done():
				return
			case <-timer.C:
				p.tell("still waiting for %s to answer (%s)\n", p.host, waited)
				timer.Reset(pause)
			}
		}
	}()
	return p.next.RoundTrip(r)
}

func (p *patient) tell(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.to, format, args...)
}
