package ctl

import (
	"errors"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
)

// newKubectl makes a command that runs kubectl, so that users need one program only. spec: 70 §4.9.
func (t *tool) newKubectl(verb string) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb, Short: verb + " an object of the queueing API, with kubectl",
		Long: "Runs kubectl " + verb + " with the same arguments, for the kinds of the queueing API. kubectl has to be on the PATH.\n\n  berth " + verb + " " + map[string]string{
			"get": "clusterqueue gpus -o yaml", "describe": "workload job-train-1a2b3 -n team-a", "edit": "clusterqueue gpus",
			"patch": `localqueue main -n team-a --type merge -p '{"spec":{"stopPolicy":"Hold"}}'`,
		}[verb],
	}
	cmd.AddCommand(kubectlCommands(verb, cluster.Kinds...)...)
	return cmd
}

func kubectlCommands(verb string, of ...*cluster.Kind) []*cobra.Command {
	var out []*cobra.Command
	for _, k := range of {
		out = append(out, &cobra.Command{
			Use: k.Name, Aliases: k.Aliases, Short: "kubectl " + verb + " " + k.Name, DisableFlagParsing: true,
			Long: "Runs kubectl " + verb + " " + k.Plural() + "." + kueue.GroupVersion.Group + " with the same arguments.\n\n  berth " + verb + " " + k.Name + " NAME",
			RunE: func(cmd *cobra.Command, args []string) error {
				if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
					return cmd.Help()
				}
				return kubectl(cmd, append([]string{verb, k.Plural() + "." + kueue.GroupVersion.Group}, args...))
			},
		})
	}
	return out
}

func kubectl(cmd *cobra.Command, args []string) error {
	path, err := exec.LookPath("kubectl")
	if err != nil {
		return errors.New("kubectl is not on the PATH: install it (https://kubernetes.io/docs/tasks/tools), or use " +
			cmd.Root().CommandPath() + " list, create, stop and resume, which do without")
	}
	run := exec.CommandContext(cmd.Context(), path, args...)
	run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	err = run.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return exited(failed.ExitCode())
	}
	return err
}

// exited is the exit code of another program that has printed its own error.
type exited int

func (exited) Error() string   { return "" }
func (e exited) ExitCode() int { return max(int(e), 1) }
