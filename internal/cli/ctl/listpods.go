package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/job/kind/all"
)

const listPodsHelp = `Lists the pods of a job, whatever its kind.

  berth list pods --for job/train
  berth list pods --for trainjob/llama -n team-a -o wide`

// listPods is the command line of `berth list pods`.
type listPods struct {
	listing
	of string
}

func (t *tool) newListPods() *cobra.Command {
	var l listPods
	cmd := &cobra.Command{
		Use: "pods", Aliases: []string{"pod", "po"}, Short: "list the pods of a job", Long: listPodsHelp, Args: noNames,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.of == "" {
				return cluster.Usage("%s: --for is missing: say whose pods, as in --for job/train", cmd.CommandPath())
			}
			if err := l.output.check(); err != nil {
				return err
			}
			return t.run(cmd, l.run)
		},
	}
	l.flags(cmd, true)
	cmd.Flags().StringVar(&l.of, "for", "", "the job, as `TYPE[.GROUP]/NAME`")
	return cmd
}

func (l *listPods) run(ctx context.Context, s *session) error {
	o, err := l.options(s, true)
	if err != nil {
		return err
	}
	jobs, err := s.Resolve(ctx, l.of, l.everywhere)
	if err != nil {
		return err
	}
	list, out := &corev1.PodList{}, &table{}
	for i := range jobs {
		selection := *o
		if selection.LabelSelector, err = podsOf(&jobs[i]); err != nil {
			return err
		}
		if more, ok := o.LabelSelector.Requirements(); ok {
			selection.LabelSelector = selection.LabelSelector.Add(more...)
		}
		selection.Namespace = jobs[i].GetNamespace()
		if l.asTable() {
			err = l.rows(ctx, s, out, &selection)
		} else {
			var some corev1.PodList
			err = s.Pages(ctx, &some, &selection)
			list.Items = append(list.Items, some.Items...)
		}
		if err != nil {
			return err
		}
	}
	if !l.asTable() {
		return l.print(s.Out, list)
	}
	if len(out.rows) == 0 {
		return l.none(ctx, s, true)
	}
	return out.write(s.Out, l.format == "wide", !l.noHeaders)
}

// rows reads the table of pods that the API server renders.
func (l *listPods) rows(ctx context.Context, s *session, out *table, o *client.ListOptions) error {
	size, err := cluster.PageSize()
	if err != nil {
		return err
	}
	d, err := s.Discovery()
	if err != nil {
		return err
	}
	for next := ""; ; {
		data, err := d.RESTClient().Get().AbsPath("/api/v1/namespaces/"+o.Namespace+"/pods").
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
			Param("labelSelector", o.LabelSelector.String()).Param("fieldSelector", o.FieldSelector.String()).
			Param("limit", fmt.Sprint(size)).Param("continue", next).DoRaw(ctx)
		if err != nil {
			return err
		}
		var page metav1.Table
		if err := json.Unmarshal(data, &page); err != nil {
			return fmt.Errorf("the table of pods: %w", err)
		}
		if out.columns == nil {
			out.columns = l.columns()
			for _, c := range page.ColumnDefinitions {
				out.columns = append(out.columns, column{strings.ToUpper(c.Name), c.Priority > 0})
			}
		}
		for _, row := range page.Rows {
			cells := l.cells(o.Namespace)
			for _, cell := range row.Cells {
				cells = append(cells, fmt.Sprint(cell))
			}
			out.add(cells...)
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// podsOf selects the pods of a job. spec: 70 §4.9.
func podsOf(job *unstructured.Unstructured) (labels.Selector, error) {
	gk := job.GroupVersionKind().GroupKind()
	for _, d := range all.Descriptors() {
		if d.GVK.GroupKind() != gk || d.PodLabels == nil {
			continue
		}
		set, err := d.PodLabels(job)
		if err != nil {
			return nil, fmt.Errorf("unsupported kind %s: %w", job.GetKind(), err)
		}
		return labels.SelectorFromValidatedSet(set), nil
	}
	return nil, fmt.Errorf("unsupported kind %s: it is not known which pods belong to one", job.GetKind())
}
