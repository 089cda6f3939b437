package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
)

const listHelp = `Lists the objects of the queueing API in tables, or prints them with -o. Lists may be narrowed down by label (-l) and by field.

  berth list workloads -n team-a
  berth list clusterqueues -o wide`

func (t *tool) newList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "list workloads, queues, cohorts, flavors, and the pods of a job", Long: listHelp}
	cmd.AddCommand(
		t.newListWorkloads(), t.newListLocalQueues(), t.newListClusterQueues(), t.newListCohorts(), t.newListResourceFlavors(),
		t.newListPods(), t.newListTopologies(), t.newListAdmissionChecks(), t.newListPriorityClasses(),
	)
	return cmd
}

// listing is shared by the list commands.
type listing struct {
	output
	labels, fields string
	everywhere     bool // -A
	// after, if not nil, is called once the table is printed.
	after func()
}

// command makes the command; fetch returns the list and its table.
func (l *listing) command(t *tool, k *cluster.Kind, help string, fetch func(context.Context, *session) (client.ObjectList, *table, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: k.Plural(), Aliases: append([]string{k.Name}, k.Aliases[:len(k.Aliases)-1]...),
		Short: "list " + k.Plural(), Long: help, Args: noNames,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.output.check(); err != nil {
				return err
			}
			return t.run(cmd, func(ctx context.Context, s *session) error {
				list, table, err := fetch(ctx, s)
				if err != nil {
					return err
				}
				return l.show(ctx, s, k, list, table)
			})
		},
	}
	l.flags(cmd, k.Namespaced)
	return cmd
}

func (l *listing) flags(cmd *cobra.Command, namespaced bool) {
	if namespaced {
		cmd.Flags().BoolVarP(&l.everywhere, "all-namespaces", "A", false, "of all namespaces")
	}
	cmd.Flags().StringVarP(&l.labels, "selector", "l", "", "only those with these labels, as in team=a,tier!=test")
	cmd.Flags().StringVar(&l.fields, "field-selector", "", "only those with these fields, as in metadata.name=x")
	l.output.addTable(cmd)
}

// show prints the list. An empty one is a line on stderr, not an error.
func (l *listing) show(ctx context.Context, s *session, k *cluster.Kind, list runtime.Object, t *table) error {
	if !l.asTable() {
		return l.print(s.Out, list)
	}
	if l.after != nil {
		defer l.after()
	}
	if len(t.rows) == 0 {
		return l.none(ctx, s, k.Namespaced)
	}
	return t.write(s.Out, l.format == "wide", !l.noHeaders)
}

func (l *listing) none(ctx context.Context, s *session, namespaced bool) error {
	if !namespaced || l.everywhere {
		fmt.Fprintln(s.Errs, "No resources found")
		return nil
	}
	fmt.Fprintf(s.Errs, "No resources found in %s namespace.\n", s.Namespace)
	if gone := s.NoNamespace(ctx); gone != "" {
		fmt.Fprintln(s.Errs, gone)
	}
	return nil
}

// options returns the selectors and the namespace for the API server.
func (l *listing) options(s *session, namespaced bool) (*client.ListOptions, error) {
	var out client.ListOptions
	var err error
	if out.LabelSelector, err = labels.Parse(l.labels); err != nil {
		return nil, cluster.Usage("--selector: %w", err)
	}
	if out.FieldSelector, err = fields.ParseSelector(l.fields); err != nil {
		return nil, cluster.Usage("--field-selector: %w", err)
	}
	if namespaced && !l.everywhere {
		out.Namespace = s.Namespace
	}
	return &out, nil
}

// fetch reads all objects of a kind that the selectors match.
func (l *listing) fetch(ctx context.Context, s *session, list client.ObjectList, namespaced bool) error {
	o, err := l.options(s, namespaced)
	if err != nil {
		return err
	}
	return s.Pages(ctx, list, o)
}

// columns adds the column NAMESPACE with -A.
func (l *listing) columns(headers ...string) []column {
	if l.everywhere {
		headers = append([]string{"NAMESPACE"}, headers...)
	}
	return columns(headers...)
}

func (l *listing) cells(namespace string, cells ...string) []string {
	if l.everywhere {
		return append([]string{namespace}, cells...)
	}
	return cells
}
