// Package ctl holds the commands for users and operators of queues: list, stop, resume, explain, top, create, delete, version and
// completion, and get, describe, edit and patch, which kubectl does. They need only an API server; list, explain and top ask the
// manager first. spec: 70 §4.9.
package ctl

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/options/strict"
)

// group is the GroupID of the commands of this package in the help of their parent.
const group = "queues"

// tool is shared by all commands.
type tool struct {
	version    string
	connection cluster.Connection
	settings   string // --config
	now        func() time.Time
}

// AddTo adds the commands to the root of the command line, and their heading to its help.
func AddTo(root *cobra.Command, version string) {
	addTo(root, &tool{version: version, now: time.Now})
}

func addTo(root *cobra.Command, t *tool) {
	root.AddGroup(&cobra.Group{ID: group, Title: "Queues and Workloads:"})
	for _, command := range []*cobra.Command{
		t.newList(), t.newExplain(), t.newTop(), t.newStop(), t.newResume(), t.newCreate(), t.newDelete(),
		t.newKubectl("get"), t.newKubectl("describe"), t.newKubectl("edit"), t.newKubectl("patch"),
	} {
		command.GroupID = group
		t.connection.Add(command)
		root.AddCommand(command)
	}
	version := t.newVersion()
	t.connection.Add(version)
	root.AddCommand(version, newCompletion())
	finish(root)
}

// finish makes parent commands report unknown names.
func finish(parent *cobra.Command) {
	for _, command := range parent.Commands() {
		command.Flags().SortFlags = false
		if command.HasSubCommands() && command.RunE == nil {
			command.Args = cobra.ArbitraryArgs
			command.RunE = func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return cmd.Help()
				}
				return unknown(cmd, args[0])
			}
		}
		finish(command)
	}
}

// unknown is the error for a misspelt kind, as in `berth list clusterqueus`.
func unknown(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
		names = append(names, c.Aliases...)
	}
	if near := strict.Nearest(name, names); near != "" {
		return cluster.Usage("%s: unknown kind %q: did you mean %s %s? See %s --help", cmd.CommandPath(), name, cmd.CommandPath(), near, cmd.CommandPath())
	}
	return cluster.Usage("%s: unknown kind %q: see %s --help", cmd.CommandPath(), name, cmd.CommandPath())
}

// session is a running command.
type session struct {
	*cluster.Session
	manager
}

// open makes a session. It sends no request yet.
func (t *tool) open(cmd *cobra.Command) (*session, error) {
	s, err := t.connection.Open(cmd, t.version, t.now)
	return &session{Session: s, manager: manager{settings: t.settings}}, err
}

// run connects and runs a command.
func (t *tool) run(cmd *cobra.Command, work func(ctx context.Context, s *session) error) error {
	s, err := t.open(cmd)
	if err != nil {
		return err
	}
	err = work(cmd.Context(), s)
	if err == nil {
		return nil
	}
	if _, coded := errors.AsType[cluster.UsageError](err); coded {
		return err
	}
	return s.Advise(cmd.Context(), err)
}

// exactly requires as many arguments as there are names, and reports the missing one.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return cluster.Usage("%s: %s is missing: see %s --help", cmd.CommandPath(), names[len(args)], cmd.CommandPath())
		case len(args) > len(names):
			return cluster.Usage("%s: unexpected argument %q: it takes %s; see %s --help", cmd.CommandPath(), args[len(names)], cmp.Or(strings.Join(names, " "), "no arguments"), cmd.CommandPath())
		}
		return nil
	}
}

// noNames is for list commands: users of kubectl expect that an argument names an object.
func noNames(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return cluster.Usage("%s: unexpected argument %q: for one object, give --field-selector metadata.name=%s", cmd.CommandPath(), args[0], args[0])
}
