package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/jobset/restartagent"
	"github.com/berth-project/berth/internal/metrics"
)

const agentHelp = `Runs in the pods of a JobSet with restartStrategy: InPlaceRestart: holds the worker back until all pods are there, and ends its
container when a pod elsewhere restarts. docs/jobset.md has a JobSet with it. The environment says the rest:

  JOBSET_NAME, POD_NAME        required
  WORKER_COMMAND               run by $SHELL, or bash, once the barrier is lifted; the agent exits with its code
  STARTUP_PROBE_PATH, _PORT    without a command: where the agent answers when it is lifted (default /barrier-is-down, 8081)
  IN_PLACE_RESTART_EXIT_CODE   what to exit with in order to be started again (default 1)

  berth in-place-restart-agent`

// podNamespaceFile contains a container's namespace.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func newAgent(build metrics.Build) *cobra.Command {
	var kubeconfig, namespace string
	cmd := &cobra.Command{
		Use:   "in-place-restart-agent",
		Short: "keep a pod of a JobSet in step when it restarts in place",
		Long:  agentHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if namespace == "" {
				data, err := os.ReadFile(podNamespaceFile)
				if err != nil {
					return cluster.Usage("--namespace is empty, and there is no service account: %w", err)
				}
				namespace = strings.TrimSpace(string(data))
			}
			c, err := restartagent.FromEnv(namespace, os.LookupEnv)
			if err != nil {
				return cluster.Usage("%w", err)
			}
			signals := make(chan os.Signal, 1) // Main also listens and cancels the context, but the agent needs to know which signal it was
			signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			to, _, err := locate(kubeconfig)
			if err != nil {
				return err
			}
			to.UserAgent = userAgent(build)
			return restartagent.Run(context.WithoutCancel(cmd.Context()), to, c, signals, func(format string, args ...any) {
				fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
			})
		},
	}
	kubeconfigFlag(cmd.Flags(), &kubeconfig)
	cmd.Flags().StringVar(&namespace, "namespace", "", "namespace of the pod (default that of the service account)")
	return cmd
}
