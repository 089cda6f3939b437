package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
)

const (
	completed       = 100             // maximum number of names. spec: 70 §4.9
	completionLimit = 3 * time.Second // a waiting shell is worse than one without completion
)

// complete offers the names of a kind's objects, filtered by keep (nil: all): for the first argument, or for each of several Workloads to
// delete.
func (t *tool) complete(k *cluster.Kind, keep func(client.Object) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && k != cluster.Workload {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return t.namesOf(cmd, k, keep, args)
	}
}

// completeFlag offers the names of a kind's objects for a flag.
func (t *tool) completeFlag(k *cluster.Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return t.namesOf(cmd, k, nil, nil)
	}
}

func (t *tool) namesOf(cmd *cobra.Command, k *cluster.Kind, keep func(client.Object) bool, given []string) ([]string, cobra.ShellCompDirective) {
	none := cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	cmd.SetErr(io.Discard)
	s, err := t.open(cmd)
	if err != nil {
		return nil, none
	}
	object, err := cluster.Scheme.New(kueue.GroupVersion.WithKind(k.Kind + "List"))
	list, ok := object.(client.ObjectList)
	if err != nil || !ok {
		return nil, none
	}
	o := []client.ListOption{client.Limit(completed)}
	if k.Namespaced {
		o = append(o, client.InNamespace(s.Namespace))
	}
	if err := s.List(ctx, list, o...); err != nil {
		return nil, none
	}
	var names []string
	_ = apimeta.EachListItem(list, func(item runtime.Object) error {
		one, ok := item.(client.Object)
		if ok && (keep == nil || keep(one)) && !slices.Contains(given, one.GetName()) {
			names = append(names, one.GetName())
		}
		return nil
	})
	return names, none
}

const completionHelp = `Prints a script that completes commands, flags and names of objects in your shell.

  berth completion bash > /etc/bash_completion.d/berth
  berth completion zsh > "${fpath[1]}/_berth"
  berth completion fish > ~/.config/fish/completions/berth.fish
  berth completion powershell | Out-String | Invoke-Expression

kubectl finds a plugin, and what completes it, by the names of their files. For kubectl berth, make two links on your PATH:

  ln -s "$(command -v berth)" ~/.local/bin/kubectl-berth
  ln -s "$(command -v berth)" ~/.local/bin/kubectl_complete-berth`

func newCompletion() *cobra.Command {
	shells := map[string]func(*cobra.Command, io.Writer) error{
		"bash":       func(c *cobra.Command, to io.Writer) error { return c.GenBashCompletionV2(to, true) },
		"zsh":        (*cobra.Command).GenZshCompletion,
		"fish":       func(c *cobra.Command, to io.Writer) error { return c.GenFishCompletion(to, true) },
		"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
	}
	names := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use: "completion SHELL", Short: "print a script that completes commands in a shell", Long: completionHelp,
		ValidArgs: names,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && shells[args[0]] != nil {
				return nil
			}
			return cluster.Usage("%s takes one of bash, zsh, fish and powershell: see %s --help", cmd.CommandPath(), cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := shells[args[0]](cmd.Root(), cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("completion of %s: %w", args[0], err)
			}
			return nil
		},
	}
}
