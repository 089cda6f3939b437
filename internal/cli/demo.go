package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/berth-project/berth/internal/cli/demo"
	"github.com/berth-project/berth/internal/cli/local"
)

const demoHelp = `Shows Berth at work in less than a minute: two teams with 16 GPUs each, in one cohort, submit Jobs of several sizes and
priorities to a real Kubernetes control plane with simulated nodes. It shows which jobs run, which wait and why, which borrow the
other team's GPUs, and which are preempted to give them back. Afterwards everything is stopped and removed, unless --keep is given.

  berth demo
  berth demo --keep      leaves the cluster up to look around`

func newDemo(version string) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "see it at work: two teams share 32 GPUs, in a minute",
		Long:  demoHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), cmd.OutOrStdout(), version, keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the cluster up, and print what to try next")
	return cmd
}

func runDemo(ctx context.Context, out io.Writer, version string, keep bool) error {
	dir, err := os.MkdirTemp("", "berth-demo-")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "berth %s: starting a Kubernetes control plane in %s\n", version, dir)
	began := time.Now()
	err = demo.Run(ctx, demo.Config{
		Dir: dir, Version: version, Out: out,
		Log: func(to io.Writer) (logr.Logger, error) { return newLog(to, "info") },
	})
	switch {
	case interrupted(ctx):
		return errors.Join(errInterrupted, os.RemoveAll(dir))
	case err != nil:
		return fmt.Errorf("the demo failed, its logs are in %s/logs: %w", dir, err)
	case !keep:
		fmt.Fprintf(out, "Done in %.0f s; everything is stopped and removed.\n", time.Since(began).Seconds())
		return os.RemoveAll(dir)
	}
	fmt.Fprintln(out, "Starting the same cluster in the background")
	record, err := background(ctx, dir, "--dir="+dir)
	if err != nil {
		return err
	}
	return whatNext(out, dir, record)
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
