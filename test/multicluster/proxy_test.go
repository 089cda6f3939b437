package multicluster

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
)

// proxy passes TCP connections on, or holds their data back.
type proxy struct {
	port    string
	mu      sync.Mutex
	free    *sync.Cond
	stalled bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	// The port is listened on again after each outage: an ephemeral one could belong to an outgoing connection by then.
	p := &proxy{port: strconv.Itoa(embeddedtest.FreePort(t))}
	p.free = sync.NewCond(&p.mu)
	l, err := net.Listen("tcp", "127.0.0.1:"+p.port)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for t.Context().Err() == nil {
			p.serve(l, to)
			for t.Context().Err() == nil { // without a target it refuses connections
				time.Sleep(50 * time.Millisecond)
				out, err := net.Dial("tcp", to)
				if err != nil {
					continue
				}
				_ = out.Close()
				if l, err = net.Listen("tcp", "127.0.0.1:"+p.port); err == nil {
					break
				}
			}
		}
	}()
	return p
}

// serve passes connections on while there is a target.
func (p *proxy) serve(l net.Listener, to string) {
	defer func() { _ = l.Close() }()
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			_ = in.Close()
			return
		}
		go p.pass(in, out)
		go p.pass(out, in)
	}
}

// pass copies from one side to the other, and waits while the proxy is stalled.
func (p *proxy) pass(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 32*1024)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for p.stalled {
			p.free.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// stall holds all data back, or continues.
func (p *proxy) stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = on
	p.free.Broadcast()
}
