package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// openPages are the views of three pages that stay open: the first page, the Workloads, and a ClusterQueue.
var openPages = []string{
	"/ws/workloads/dashboard?order=state&limit=100", "/ws/usage",
	"/ws/workloads?order=state&limit=100", "/ws/namespaces",
	"/ws/cluster-queue/QUEUE", "/ws/cluster-queue/QUEUE/usage", "/ws/cluster-queue/QUEUE/timeline",
}

// looks is what open pages of the dashboard cost the manager.
type looks struct {
	open, closed share
	first        time.Duration // the longest until a view was there, from when it was asked for, or until the pages were closed
}

// share is the processor time that the manager used during some time.
type share struct{ cpu, during time.Duration }

func (s share) plus(o share) share { return share{s.cpu + o.cpu, s.during + o.during} }

// cores returns the average number of used cores.
func (s share) cores() float64 { return s.cpu.Seconds() / s.during.Seconds() }

// look leaves the pages closed and opens them in turn, each for some time, until enough is closed. The queue is that of the ClusterQueue's
// page. Only whole turns count.
func (s *system) look(ctx context.Context, queue string, turn time.Duration, enough <-chan struct{}) (*looks, error) {
	out := &looks{}
	for {
		closed, over, err := s.spends(ctx, turn, enough)
		if err != nil {
			return nil, err
		}
		var open share
		var first time.Duration
		if !over {
			leave := s.openDashboard(ctx, queue)
			open, over, err = s.spends(ctx, turn, enough)
			var failed error
			if first, failed = leave(); err != nil || failed != nil {
				return nil, errors.Join(err, failed)
			}
		}
		switch {
		case over && out.open.during == 0:
			return nil, errors.New("-dashboard: the load ended too early: use a shape that goes on, such as deep")
		case over:
			return out, nil
		}
		out.closed, out.open, out.first = out.closed.plus(closed), out.open.plus(open), max(out.first, first)
	}
}

// spends returns what the manager uses during some time. It is over earlier if enough is closed.
func (s *system) spends(ctx context.Context, during time.Duration, enough <-chan struct{}) (used share, over bool, err error) {
	before, err := cpuOf(s.manager.Process.Pid)
	if err != nil {
		return share{}, false, err
	}
	began := time.Now()
	select {
	case <-time.After(during):
	case <-enough:
		over = true
	case <-ctx.Done():
		return share{}, false, context.Cause(ctx)
	}
	after, err := cpuOf(s.manager.Process.Pid)
	return share{after - before, time.Since(began)}, over, err
}

// openDashboard opens the pages. The returned function closes them, and returns the longest time until a view was there.
func (s *system) openDashboard(ctx context.Context, queue string) (leave func() (time.Duration, error)) {
	ctx, cancel := context.WithCancel(ctx)
	type outcome struct {
		first time.Duration
		err   error
	}
	outcomes := make(chan outcome, len(openPages))
	for _, path := range openPages {
		go func() {
			var o outcome
			o.first, o.err = s.view(ctx, path, queue)
			outcomes <- o
		}()
	}
	return func() (longest time.Duration, err error) {
		cancel()
		for range openPages {
			o := <-outcomes
			longest, err = max(longest, o.first), errors.Join(err, o.err)
		}
		return longest, err
	}
}

// view reads a view of the dashboard until ctx ends. It returns after which time the view was there.
func (s *system) view(ctx context.Context, path, queue string) (first time.Duration, err error) {
	began := time.Now()
	u, err := url.Parse("ws://" + s.dashboard + strings.ReplaceAll(path, "QUEUE", queue))
	if err != nil {
		return 0, err
	}
	values := u.Query()
	values.Set("delta", "true")
	u.RawQuery = values.Encode()
	conn, response, err := websocket.DefaultDialer.DialContext(ctx, u.String(), nil)
	if ctx.Err() != nil && err != nil {
		return time.Since(began), nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", u.Path, err)
	}
	_ = response.Body.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	for {
		_, _, err := conn.ReadMessage()
		if first == 0 {
			first = time.Since(began)
		}
		switch {
		case ctx.Err() != nil:
			return first, nil
		case err != nil:
			return first, fmt.Errorf("%s: %w", u.Path, err)
		}
	}
}
