// Package local runs a control plane and a manager together in this process, for one directory, and finds, stops and removes such
// installations.
//
//	DIR/berth.json     the Record of the running process, locked (flock) while it lives
//	DIR/topology.yaml  the objects for nodes in levels, if there are any
//	DIR/kubeconfig     the administrator's; this and everything else in DIR is the control plane's
package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/listen"
	"github.com/berth-project/berth/internal/metrics"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
)

// stopLimit is how long a control plane may take to stop before it is killed.
const stopLimit = 30 * time.Second

// Config selects the programs to run and their flags.
type Config struct {
	// Plane is the control plane; Plane.Dir is the directory of everything.
	Plane embedded.Config
	// Build is this program, for the record and the metrics.
	Build metrics.Build
	// NoManager runs the control plane alone and installs nothing in it.
	NoManager bool
	// Options and Groups of the manager. Its webhooks listen on a free port, which is reserved. So do metrics, probes and the visibility
	// API if their options are the default. Leader election is off.
	Options options.Options
	// Reload is as in wire.Config.
	Reload func() (options.Options, error)
	Groups install.Groups
	// Intercept, if set, sees all requests of the manager to the API server.
	Intercept transport.WrapperFunc
	// OnReady is called once, when everything is usable.
	OnReady func(Record)
	Log     logr.Logger
}

// Run locks the directory, starts everything, and runs until ctx ends or a part fails. It leaves no process running. The error is nil
// when ctx ended it. For a program that ended unexpectedly it has the end of the log.
func Run(ctx context.Context, cfg Config) error {
	held, err := acquire(cfg.Plane.Dir, Record{PID: os.Getpid(), Version: cfg.Build.Version})
	if err != nil {
		return err
	}
	defer held.release()
	plane, err := embedded.Start(ctx, cfg.Plane)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err = writeTopology(cfg.Plane); err == nil {
		err = serve(ctx, cfg, plane, held)
	}
	select {
	case <-plane.Done():
		if died := plane.Err(); died != nil {
			return died
		}
		if ctx.Err() == nil && err == nil {
			err = errors.New("the control plane was stopped by somebody else: start it again")
		}
	default:
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if stop := plane.Stop(limited); stop != nil && err == nil {
		err = fmt.Errorf("stopping the control plane: %w", stop)
	}
	return err
}

// serve runs the manager until ctx, the control plane or the manager itself ends.
func serve(ctx context.Context, cfg Config, plane *embedded.ControlPlane, held *holding) error {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-plane.Done():
			cancel()
		case <-running.Done():
		}
	}()
	record := held.record
	record.Server, record.Kubeconfig = plane.Server(), plane.Kubeconfig()
	if cfg.NoManager {
		if err := held.ready(record, cfg.OnReady); err != nil {
			return err
		}
		<-running.Done()
		return nil
	}
	manager, release, err := managerConfig(&cfg, &record)
	if err != nil {
		return err
	}
	defer release()
	if err := held.write(record); err != nil {
		return err
	}
	unwritten := make(chan error, 1)
	manager.OnReady = func() {
		if err := held.ready(record, cfg.OnReady); err != nil {
			unwritten <- err
			cancel()
		}
	}
	err = wire.Run(running, manager)
	select {
	case err = <-unwritten:
	default:
		if running.Err() != nil { // the error is then a consequence of the end
			err = nil
		}
	}
	return err
}

// managerConfig returns the manager's configuration beside the control plane, with ports that are reserved until release; the record gets
// its addresses.
func managerConfig(cfg *Config, record *Record) (manager wire.Config, release func(), err error) {
	var held []*listen.Reservation
	release = func() {
		for _, r := range held {
			r.Release()
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	rest, err := clientcmd.BuildConfigFromFlags("", record.Kubeconfig)
	if err != nil {
		return wire.Config{}, release, err
	}
	if cfg.Intercept != nil {
		rest.Wrap(cfg.Intercept)
	}
	o, plain := cfg.Options, options.Default()
	o.LeaderElection.Enabled = false
	reserved := map[string]bool{}
	reserve := func() (*listen.Reservation, error) {
		r, err := listen.Reserve(0)
		if err == nil {
			held, reserved[r.Address()] = append(held, r), true
		}
		return r, err
	}
	webhooks, err := reserve()
	if err != nil {
		return wire.Config{}, release, err
	}
	o.Webhook.Host, o.Webhook.Port = "127.0.0.1", webhooks.Port
	if o.Trainer.StatusAddress == plain.Trainer.StatusAddress {
		progress, err := reserve()
		if err != nil {
			return wire.Config{}, release, err
		}
		o.Trainer.StatusAddress, o.Trainer.StatusPort = progress.Address(), progress.Port
	}
	for _, a := range []struct{ address, standard *string }{
		{&o.Health.Address, &plain.Health.Address},
		{&o.Metrics.Address, &plain.Metrics.Address},
		{&o.VisibilityAddress, &plain.VisibilityAddress},
	} {
		if *a.address != *a.standard {
			continue
		}
		r, err := reserve()
		if err != nil {
			return wire.Config{}, release, err
		}
		*a.address = r.Address()
	}
	record.WebhookPort, record.Health, record.Metrics = o.Webhook.Port, o.Health.Address, o.Metrics.Address
	if o.Dashboard.Served() {
		record.Dashboard = o.Dashboard.Address
	}
	return wire.Config{
		REST: rest, Options: o, Reload: cfg.Reload, Groups: cfg.Groups, Install: true, Log: cfg.Log, Build: cfg.Build,
		WebhookURL: "https://" + webhooks.Address(), Reserved: reserved,
	}, release, nil
}
