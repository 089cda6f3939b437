package ctl

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// listing is what the commands that list have in common.
type listing struct {
	output
	labels, fields string
	everywhere     bool // -A
}

// command makes the command; fetch gives the list and its table.
func (l *listing) command(t *tool, k *kind, help string, fetch func(context.Context, *session) (client.ObjectList, *table, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: k.plural(), Aliases: append([]string{k.name}, k.aliases[:len(k.aliases)-1]...),
		Short: "list " + k.plural(), Long: help, Args: noNames,
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
	l.flags(cmd, k.namespaced)
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

// show prints what was found. An empty table is a line on stderr, and no error.
func (l *listing) show(ctx context.Context, s *session, k *kind, list runtime.Object, t *table) error {
	if !l.asTable() {
		return l.print(s.out, list)
	}
	if len(t.rows) == 0 {
		return l.none(ctx, s, k.namespaced)
	}
	return t.write(s.out, l.format == "wide", !l.noHeaders)
}

func (l *listing) none(ctx context.Context, s *session, namespaced bool) error {
	if !namespaced || l.everywhere {
		fmt.Fprintln(s.errs, "No resources found")
		return nil
	}
	fmt.Fprintf(s.errs, "No resources found in %s namespace.\n", s.namespace)
	if gone := s.noNamespace(ctx); gone != "" {
		fmt.Fprintln(s.errs, gone)
	}
	return nil
}

// options are the selectors and the namespace, for the API server.
func (l *listing) options(s *session, namespaced bool) (*client.ListOptions, error) {
	var out client.ListOptions
	var err error
	if out.LabelSelector, err = labels.Parse(l.labels); err != nil {
		return nil, usage("--selector: %w", err)
	}
	if out.FieldSelector, err = fields.ParseSelector(l.fields); err != nil {
		return nil, usage("--field-selector: %w", err)
	}
	if namespaced && !l.everywhere {
		out.Namespace = s.namespace
	}
	return &out, nil
}

// fetch reads all of a kind that the selectors choose.
func (l *listing) fetch(ctx context.Context, s *session, list client.ObjectList, namespaced bool) error {
	o, err := l.options(s, namespaced)
	if err != nil {
		return err
	}
	return s.pages(ctx, list, o)
}

// namespace puts the column NAMESPACE in front with -A.
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

// pageSize is how many objects one request asks for. spec: 70 §4.9.
func pageSize() (int64, error) {
	const name, standard = "KUEUECTL_LIST_REQUEST_LIMIT", 100
	text := os.Getenv(name)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, usage("%s=%s: must be a positive number, the objects in one answer of the API server", name, text)
	}
	return n, nil
}

// pages reads a whole list, page by page.
func (s *session) pages(ctx context.Context, list client.ObjectList, o *client.ListOptions) error {
	size, err := pageSize()
	if err != nil {
		return err
	}
	var items []runtime.Object
	told := s.began().Add(slow)
	for o.Limit = size; ; {
		page, _ := list.DeepCopyObject().(client.ObjectList)
		err := s.List(ctx, page, o)
		if apierrors.IsResourceExpired(err) && o.Continue != "" {
			items, o.Continue, o.Limit = nil, "", 0 // it took too long: once more, in one piece
			continue
		}
		if err != nil {
			return err
		}
		some, err := apimeta.ExtractList(page)
		if err != nil {
			return err
		}
		items = append(items, some...)
		if o.Continue = page.GetContinue(); o.Continue == "" {
			list.SetResourceVersion(page.GetResourceVersion())
			return apimeta.SetList(list, items)
		}
		if now := s.began(); now.After(told) {
			told = now.Add(pause)
			fmt.Fprintf(s.errs, "still reading: %d so far\n", len(items))
		}
	}
}

// began is the clock of progress, which no test turns.
func (*session) began() time.Time { return time.Now() }

// get reads one path of the API server.
func (s *session) get(ctx context.Context, path string) ([]byte, error) {
	d, err := s.discover()
	if err != nil {
		return nil, err
	}
	return d.RESTClient().Get().AbsPath(path).DoRaw(ctx)
}
