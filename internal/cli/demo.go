package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/demo"
	"github.com/berth-project/berth/internal/cli/demo/autoscale"
	"github.com/berth-project/berth/internal/cli/demo/racks"
	"github.com/berth-project/berth/internal/cli/local"
	"github.com/berth-project/berth/internal/embedded/simnode"
)

const demoHelp = `Shows Berth at work in less than a minute: two teams with 16 GPUs each, in one cohort, submit Jobs of several sizes and
priorities to a real Kubernetes control plane with simulated nodes. It shows which jobs run, which wait and why, which borrow the
other team's GPUs, and which are preempted to give them back. Afterwards everything is stopped and removed, unless --keep is given.

  berth demo
  berth demo --keep      leaves the cluster up to look around

"berth demo topology" shows placement in racks and blocks, "berth demo autoscale" jobs that wait for new nodes.`

const autoscaleDemoHelp = `Shows an admission check that asks a cluster autoscaler for nodes, in less than a minute. The cluster has no nodes: a job reserves
quota and waits, nodes come, it runs, they go. Of another job the first attempt fails, and a third one loses its nodes while it runs. The
autoscaler is a stand-in that runs with the demo. Afterwards everything is stopped and removed.

  berth demo autoscale`

const topologyDemoHelp = `Shows placement by topology in less than a minute: 16 nodes in 4 racks, and gangs of pods that need a rack each. One of high
priority preempts another, because the idle nodes are in different racks; then a node fails, and only its pod moves. Each node is drawn with
the letter of the job on it. Afterwards everything is stopped and removed, unless --keep is given.

  berth demo topology
  berth demo topology --keep      leaves the cluster up to look around`

// aDemo is one of the demos.
type aDemo struct {
	play func(context.Context, demo.Config) error
	// flags of berth up for the same cluster.
	flags []string
	// next suggests commands after the demo.
	next func(out io.Writer, dir string, r local.Record) error
}

func newDemo(version string) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "see it at work: two teams share 32 GPUs, in a minute",
		Long:  demoHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return aDemo{play: demo.Run, next: whatNext}.run(cmd.Context(), cmd.OutOrStdout(), version, keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the cluster up, and print what to try next")
	cmd.AddCommand(newTopologyDemo(version), newAutoscaleDemo(version))
	return cmd
}

func newAutoscaleDemo(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "autoscale",
		Short: "jobs that wait for nodes of a cluster autoscaler",
		Long:  autoscaleDemoHelp,
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return aDemo{play: autoscale.Run}.run(cmd.Context(), cmd.OutOrStdout(), version, false)
		},
	}
}

func newTopologyDemo(version string) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "gangs that need a rack each, and a node that fails",
		Long:  topologyDemoHelp,
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := aDemo{play: racks.Run, next: whatNextInRacks, flags: []string{"--topology=" + racks.Topology, "--node-capacity=" + racks.NodeCapacity}}
			return d.run(cmd.Context(), cmd.OutOrStdout(), version, keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the cluster up, and print what to try next")
	return cmd
}

func (d aDemo) run(ctx context.Context, out io.Writer, version string, keep bool) error {
	dir, err := os.MkdirTemp("", "berth-demo-")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "berth %s: starting a Kubernetes control plane in %s\n", version, dir)
	began := time.Now()
	err = d.play(ctx, demo.Config{
		Dir: dir, Version: version, Out: out,
		Log: func(to io.Writer) (logr.Logger, error) { return newLog(to, "info") },
	})
	switch {
	case interrupted(ctx):
		return errors.Join(cluster.ErrInterrupted, os.RemoveAll(dir))
	case err != nil:
		return fmt.Errorf("the demo failed, its logs are in %s/logs: %w", dir, err)
	case !keep:
		fmt.Fprintf(out, "Done in %.0f s; everything is stopped and removed.\n", time.Since(began).Seconds())
		return os.RemoveAll(dir)
	}
	fmt.Fprintln(out, "Starting the same cluster in the background")
	record, err := background(ctx, dir, append([]string{"--dir=" + dir}, d.flags...)...)
	if err != nil {
		return err
	}
	return d.next(out, dir, record)
}

// whatNext suggests commands after the demo.
func whatNext(out io.Writer, dir string, r local.Record) error {
	manifest, err := demo.Sample()
	if err != nil {
		return err
	}
	sample := filepath.Join(dir, local.SampleName)
	if err := os.WriteFile(sample, manifest, 0o600); err != nil {
		return err
	}
	fmt.Fprintf(out, `It is up at %s. Try next:

  export KUBECONFIG=%s
  kubectl get jobs,workloads -A
  kubectl get clusterqueue team-a -o yaml
  kubectl create -f %s      (16 GPUs for a minute; the third has to wait)
  kubectl get workloads -n team-a -w
  kubectl describe workloads -n team-a

It stops, and is removed, with

  berth down --purge --dir %s

`, r.Server, r.Kubeconfig, sample, dir)
	return nil
}

// whatNextInRacks suggests commands after the demo of placement by topology.
func whatNextInRacks(out io.Writer, dir string, r local.Record) error {
	levels, err := simnode.ParseTopology(racks.Topology)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `It is up at %s. Try next:

  export KUBECONFIG=%s
  kubectl get nodes -L %s
  kubectl get pods -n team -o wide
  kubectl get workloads -n team -o yaml
  kubectl annotate node b1-r1-h01 berth.dev/simulated-failure=true      (pretrain has its whole rack: where can it go?)
  kubectl annotate node b1-r1-h01 berth.dev/simulated-failure-

It stops, and is removed, with

  berth down --purge --dir %s

`, r.Server, r.Kubeconfig, strings.Join(levels.Labels()[:len(levels)-1], ","), dir)
	return err
}
