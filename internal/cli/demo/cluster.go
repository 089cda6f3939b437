package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"k8s.io/client-go/transport"

	"github.com/berth-project/berth/internal/cli/local"
	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/metrics"
	"github.com/berth-project/berth/internal/options"
)

// Cluster describes the cluster of a demo; the zero value is what `berth up` starts.
type Cluster struct {
	// Topology and NodeCapacity of the simulated nodes, as in embedded.Config.
	Topology, NodeCapacity string
	// NoNodes starts without nodes.
	NoNodes bool
	// Intercept, if set, sees all requests of the manager to the API server.
	Intercept transport.WrapperFunc
}

// Play starts a cluster, calls show with its record once everything is usable, and stops it. It leaves no process running. show returns
// Ended with the error that it receives from ended, which is that of the cluster.
func Play(ctx context.Context, cfg Config, cluster Cluster, show func(context.Context, local.Record, chan error) error) error {
	groups, err := install.ParseGroups("")
	if err != nil {
		return err
	}
	path := filepath.Join(cfg.Dir, "logs", "manager.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	log, err := cfg.Log(file)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	progress := &preface{out: cfg.Out}
	ready, ended := make(chan local.Record, 1), make(chan error, 1)
	go func() {
		ended <- local.Run(running, local.Config{
			Plane: embedded.Config{Dir: cfg.Dir, Topology: cluster.Topology, NodeCapacity: cluster.NodeCapacity, NoNodes: cluster.NoNodes, Stderr: progress},
			Build: metrics.Build{Version: cfg.Version}, Options: options.Default(), Groups: groups, Log: log,
			Intercept: cluster.Intercept, OnReady: func(r local.Record) { ready <- r },
		})
	}()
	var shown error
	select {
	case err := <-ended:
		return errors.Join(err, ctx.Err())
	case record := <-ready:
		progress.over.Store(true)
		shown = show(running, record, ended)
	}
	stop()
	if errors.Is(shown, errEnded) {
		return shown
	}
	if err := <-ended; err != nil && shown == nil {
		return fmt.Errorf("stopping: %w", err)
	}
	return shown
}

// preface passes on the control plane's progress until it is ready.
type preface struct {
	out  io.Writer
	over atomic.Bool
}

func (p *preface) Write(data []byte) (int, error) {
	if p.over.Load() {
		return len(data), nil
	}
	return p.out.Write(data)
}

// errEnded is the error for a control plane or manager that ended during the demo.
var errEnded = errors.New("the demo's cluster ended")

// Ended is the error of a demo whose cluster has ended by itself.
func Ended(err error) error { return fmt.Errorf("%w: %w", errEnded, cmp.Or(err, context.Canceled)) }
