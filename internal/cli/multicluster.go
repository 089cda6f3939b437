package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/local"
	"github.com/berth-project/berth/internal/cli/multicluster"
	"github.com/berth-project/berth/internal/listen"
	"github.com/berth-project/berth/internal/wire"
)

const multiclusterDemoHelp = `Shows many clusters on one machine: a manager and two workers, each a Kubernetes control plane of its own with simulated nodes. Jobs of
three kinds are created on the manager and run on the workers; one worker is killed and comes back; all jobs end. It takes two to three
minutes and 3 GB. Afterwards everything is stopped and removed, unless --keep is given.

  berth multicluster demo`

func newMulticluster(version string) *cobra.Command {
	parent := &cobra.Command{Use: "multicluster", Short: "see jobs go to other clusters", Long: "Many clusters on one machine, to look at.\n\n  berth multicluster demo"}
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "a manager, two workers, one of them killed: in three minutes",
		Long:  multiclusterDemoHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runMulticlusterDemo(cmd, version, keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the clusters up, and print how to use them")
	parent.AddCommand(cmd)
	return parent
}

func runMulticlusterDemo(cmd *cobra.Command, version string, keep bool) (err error) {
	wire.LeadLogs(logr.Discard()) // failures are shown by the demo
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	dir, err := os.MkdirTemp("", "berth-multicluster-")
	if err != nil {
		return err
	}
	m := &machine{dir: dir, ports: map[string]*listen.Reservation{}}
	if err := os.WriteFile(m.config(), []byte(multicluster.Configuration), 0o600); err != nil {
		return err
	}
	fmt.Fprintf(out, "berth %s: many clusters, in %s\n", version, dir)
	err = multicluster.Run(ctx, m, out)
	if err == nil && keep {
		for _, name := range append([]string{multicluster.Hub}, multicluster.Workers...) {
			fmt.Fprintf(out, "%s: export KUBECONFIG=%s   berth down --purge --dir %s\n", name, filepath.Join(m.of(name), "kubeconfig"), m.of(name))
		}
		return nil
	}
	stopped := m.stopAll(cmd)
	switch {
	case interrupted(ctx):
		return errors.Join(cluster.ErrInterrupted, stopped, os.RemoveAll(dir))
	case err != nil:
		return errors.Join(fmt.Errorf("the demo failed, its logs are below %s: %w", dir, err), stopped)
	}
	fmt.Fprintln(out, "Everything is stopped and removed.")
	return errors.Join(stopped, os.RemoveAll(dir))
}

// machine runs clusters in the background, each in a folder of its own.
type machine struct {
	dir   string
	mu    sync.Mutex
	ports map[string]*listen.Reservation // of API servers: a restarted one keeps its address
}

func (m *machine) of(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) config() string { return filepath.Join(m.dir, "config.yaml") }

// Start starts a cluster, and waits until it is ready.
func (m *machine) Start(ctx context.Context, name string) (string, error) {
	port, err := m.port(name)
	if err != nil {
		return "", err
	}
	record, err := background(ctx, m.of(name), "--dir="+m.of(name), "--port="+strconv.Itoa(port), "--port-reserved", "--nodes=2", "--config="+m.config())
	return record.Kubeconfig, err
}

// port returns the port of an API server, which no other program gets until stopAll, even while the API server is down.
func (m *machine) port(name string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ports[name] == nil {
		r, err := listen.Reserve(0)
		if err != nil {
			return 0, err
		}
		m.ports[name] = r
	}
	return m.ports[name].Port, nil
}

// Kill ends a cluster as a power cut would, and waits until all its processes have ended.
func (m *machine) Kill(name string) error {
	record, found, err := local.Find(m.of(name))
	switch {
	case err != nil:
		return err
	case !found || record.PID == 0:
		return fmt.Errorf("nothing runs in %s", m.of(name))
	}
	if err := syscall.Kill(record.PID, syscall.SIGKILL); err != nil {
		return err
	}
	for range 100 {
		if _, found, err := local.Find(m.of(name)); err != nil || !found {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("what runs in %s does not end", m.of(name))
}

// stopAll stops all running clusters and releases their ports.
func (m *machine) stopAll(cmd *cobra.Command) error {
	m.mu.Lock()
	ports := maps.Clone(m.ports)
	clear(m.ports)
	m.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		if _, err := local.Stop(context.WithoutCancel(cmd.Context()), m.of(name), stopLimit, cmd.ErrOrStderr()); err != nil {
			errs = append(errs, err)
		}
		ports[name].Release()
	}
	return errors.Join(errs...)
}
