// Package cli is the command line of berth. spec: 70 §5.5.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-project/berth/internal/cli/ctl"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/preflight"
	"github.com/berth-project/berth/internal/cli/simulate"
	"github.com/berth-project/berth/internal/cli/whatif"
	"github.com/berth-project/berth/internal/metrics"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// Main runs the command line args, whose first element is the program's name, and returns the exit code: 0 for success, 1 for a failure,
// 2 for bad usage or configuration. An error is written to stderr, on one line unless it comes with a log.
func Main(build metrics.Build, args []string, stdout, stderr io.Writer) int {
	// The reader of the output may have ended; the command then stops in order instead of being killed by the signal.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		began := time.Now()
		cancel()
		for range signals {
			if time.Since(began) > patience {
				fmt.Fprintln(stderr, "error: told twice to stop: stopping at once")
				os.Exit(exitFailed) // an embedded control plane ends with it
			}
		}
	}()
	return run(ctx, build, args, stdout, stderr)
}

// patience is how soon a second stop signal counts as the same one: make and timeout, for example, forward a signal that also arrives
// directly.
const patience = time.Second

func run(ctx context.Context, build metrics.Build, args []string, stdout, stderr io.Writer) int {
	program := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	root := newRoot(build, program)
	args = args[1:]
	if program == completer {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if err.Error() != "" { // else another program has printed it
		fmt.Fprintf(stderr, "error: %v\n", err)
	}
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return coded.ExitCode()
	}
	return exitFailed
}

const rootHelp = `Berth queues, admits, places and runs batch and AI jobs on Kubernetes.

It speaks the APIs that you use already: Kueue's queues, Kubeflow Trainer's TrainJob, JobSet and batch Jobs.

See it at work, on a control plane of its own with simulated nodes:
  berth demo

Try it by hand:
  berth up --detach
  export KUBECONFIG=~/.berth/kubeconfig
  kubectl get nodes
  berth down

Run it on a cluster that you have:
  berth manager --kubeconfig ~/.kube/config --install

Ask what waits, and why:
  berth list workloads -A
  berth explain job train -n team-a
  berth top --watch`

// newRoot builds the command tree. Called as kubectl-berth, it presents itself as kubectl's plugin.
func newRoot(build metrics.Build, program string) *cobra.Command {
	version := build.Version
	root := &cobra.Command{
		Use:           "berth",
		Short:         "queues, admits, places and runs batch and AI jobs on Kubernetes",
		Long:          rootHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
		Args: cobra.ArbitraryArgs, // RunE knows which command was meant
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cluster.Usage("%w: see %s --help", err, cmd.CommandPath())
	})
	root.AddGroup(&cobra.Group{ID: clusterGroup, Title: "Clusters and the manager:"})
	for _, command := range []*cobra.Command{newUp(build), newDown(), newManager(build), newInstall(build), newDemo(version), newMulticluster(version), newMultiKueue(), newImport(build), newReplay(), simulate.New(version), whatif.New(version), preflight.New(version), newAgent(build)} {
		command.GroupID = clusterGroup
		root.AddCommand(command)
		if command.Args == nil {
			command.Args = noArguments
		}
		command.Flags().SortFlags = false
		command.Flags().SetNormalizeFunc(spelling)
	}
	ctl.AddTo(root, version)
	if name := calledAs[program]; name != "" {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
		rename(root, name)
	}
	return root
}

// clusterGroup is the GroupID of the commands that run or prepare clusters.
const clusterGroup = "clusters"

// calledAs maps the program's file name to the user's spelling of the command: kubectl finds plugins by file name.
var calledAs = map[string]string{
	"kubectl-berth": "kubectl berth", completer: "kubectl berth",
	// Names of links that users of Kueue's own client expect.
	"kubectl-kueue": "kubectl kueue", "kueuectl": "kueuectl",
}

// completer is the program that kubectl runs to complete arguments of kubectl berth.
const completer = "kubectl_complete-berth"

// rename replaces the program's name in the help texts.
func rename(command *cobra.Command, name string) {
	for _, before := range []string{"\n  ", "\"", "run "} {
		command.Long = strings.ReplaceAll(command.Long, before+"berth ", before+name+" ")
	}
	for _, child := range command.Commands() {
		rename(child, name)
	}
}

func unknownCommand(root *cobra.Command, name string) error {
	if near := root.SuggestionsFor(name); len(near) > 0 {
		return cluster.Usage("unknown command %q: did you mean %s %s? See %s --help", name, root.CommandPath(), near[0], root.CommandPath())
	}
	return cluster.Usage("unknown command %q: see %s --help", name, root.CommandPath())
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return cluster.Usage("unexpected argument %q: %s takes flags only, see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
}

// spelling accepts the flag name of the upstream manager.
func spelling(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "zap-log-level" {
		name = "log-level"
	}
	return pflag.NormalizedName(name)
}

// defaultDir is the directory of `berth up` without --dir.
const defaultDir = "~/.berth"

func dirFlag(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "dir", defaultDir, "directory for the data, certificates, logs and the kubeconfig")
}

// expand makes the value of --dir an absolute path. Shells do not expand ~ in --dir=~/x.
func expand(dir string) (string, error) {
	if dir == "" {
		return "", cluster.Usage("--dir is empty: name a directory, or leave it out for %s", defaultDir)
	}
	if rest, ok := strings.CutPrefix(dir, "~"); ok && (rest == "" || rest[0] == filepath.Separator) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", cluster.Usage("--dir %s: there is no home directory (%w): name another directory", dir, err)
		}
		dir = filepath.Join(home, rest)
	}
	return filepath.Abs(dir)
}

// forDir is the flag for a directory, empty for the default one.
func forDir(dir string) string {
	if standard, err := expand(defaultDir); err == nil && standard == dir {
		return ""
	}
	return " --dir " + dir
}
