package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/ctl/terminal"
)

const explainHelp = `Explains why a Workload waits, or what it got: which flavors were tried, what is short by how much and at which queue or cohort,
which Workloads would be preempted, and what requeues it. The answer is the manager's, for this very moment. Where no manager answers, as on
a cluster whose queues another controller of the same API runs, it is computed here from the objects of the API, and a line says so: that
needs the right to list queues and Workloads. What may not be asked or listed is derived from the Workload's conditions.

A job is named by its kind; its Workloads are explained.

  berth explain workload job-train-1a2b3 -n team-a
  berth explain job train -n team-a
  berth explain trainjob/llama -n team-a
  berth explain workload job-train-1a2b3 -o yaml`

// explain is the command line of `berth explain`.
type explain struct {
	output
}

func (t *tool) newExplain() *cobra.Command {
	var e explain
	cmd := &cobra.Command{
		Use: "explain TYPE NAME | TYPE/NAME", Short: "why a workload or job waits, or what it got", Long: explainHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && strings.Contains(args[0], "/") {
				return nil
			}
			return exactly("TYPE", "NAME")(cmd, args)
		},
		ValidArgsFunction: t.completeExplain,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.check(); err != nil {
				return err
			}
			return t.run(cmd, func(ctx context.Context, s *session) error { return e.run(ctx, s, strings.Join(args, "/")) })
		},
	}
	e.add(cmd, "json", "yaml")
	t.addSettings(cmd)
	return cmd
}

func (t *tool) completeExplain(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return []string{"workload", "job", "jobset", "trainjob"}, cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1 && cluster.Workload.Is(args[0]):
		return t.complete(cluster.Workload, nil)(cmd, nil, typed)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (e *explain) run(ctx context.Context, s *session, reference string) error {
	word, name, _ := strings.Cut(reference, "/")
	if cluster.Workload.Is(word) {
		var w kueue.Workload
		if err := s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &w); err != nil {
			return err
		}
		return e.one(ctx, s, &w)
	}
	jobs, err := s.Resolve(ctx, reference, false)
	if err != nil {
		return err
	}
	if len(jobs) == 0 {
		if gone := s.NoNamespace(ctx); gone != "" {
			return fmt.Errorf("%s", gone)
		}
		return fmt.Errorf("there is no %s %q in the namespace %s: kubectl get %s -n %s shows what there is", word, name, s.Namespace, word, s.Namespace)
	}
	return e.job(ctx, s, word, &jobs[0])
}

// job explains the Workloads of a job, or why it has none.
func (e *explain) job(ctx context.Context, s *session, word string, job *unstructured.Unstructured) error {
	workloads, err := s.workloadsOf(ctx, job.GetNamespace(), job.GetUID(), &client.ListOptions{})
	if err != nil {
		return err
	}
	for i := range workloads {
		if err := e.one(ctx, s, &workloads[i]); err != nil {
			return err
		}
	}
	if len(workloads) > 0 {
		return nil
	}
	why := s.without(ctx, job)
	if !e.asTable() {
		return fmt.Errorf("%s %q has no Workload to print: %s", word, job.GetName(), why)
	}
	_, err = fmt.Fprintf(s.Out, "%s/%s has no Workload: %s\n", job.GetNamespace(), job.GetName(), terminal.Printable(why))
	return err
}

// without returns the reason why a job has no Workload, as far as the job and the policy about queue labels show it.
func (s *session) without(ctx context.Context, job *unstructured.Unstructured) string {
	gvk := job.GroupVersionKind()
	if mapping, err := s.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err == nil {
		if why := s.ignored(ctx, s.queueLabels(ctx), mapping.Resource.GroupResource(), job); why != "" {
			return why
		}
	}
	for _, owner := range job.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller {
			return fmt.Sprintf("it belongs to the %s %s, which may have one: explain %s/%s", owner.Kind, owner.Name, strings.ToLower(owner.Kind), owner.Name)
		}
	}
	queue := job.GetLabels()[kueue.QueueNameLabel]
	if queue == "" {
		return "it has no label " + kueue.QueueNameLabel + ", so it is not queued: set the label to the name of a LocalQueue before the job starts"
	}
	return "its label sends it to the LocalQueue " + queue + ", but no manager has made a Workload for it: is one running, with the integration for this kind, and is the namespace managed?"
}

func (e *explain) one(ctx context.Context, s *session, w *kueue.Workload) error {
	explanation, err := s.explanation(ctx, w)
	_, refused := errors.AsType[*apierrors.StatusError](err)
	_, blind := errors.AsType[unreadable](err)
	switch {
	case err == nil:
	case blind:
		fmt.Fprintf(s.Errs, "No manager answers, and nothing can be computed here (%v); this is what the conditions say:\n", err)
		explanation = s.byConditions(ctx, w)
	case refused && s.alone == nil && s.failed == nil && ctx.Err() == nil:
		fmt.Fprintf(s.Errs, "The manager cannot be asked (%s); this is what the conditions say:\n", reason(err, cluster.Workload, berthv1alpha1.GroupVersion, "get workloads/explanation"))
		explanation = s.byConditions(ctx, w)
	default:
		return err
	}
	if !e.asTable() {
		return e.print(s.Out, explanation)
	}
	_, err = fmt.Fprint(s.Out, inWords(explanation, s.Now()))
	return err
}

// explanation asks the manager.
func (s *session) explanation(ctx context.Context, w *kueue.Workload) (*berthv1alpha1.Explanation, error) {
	data, err := s.ask(ctx, "/apis/"+berthv1alpha1.GroupVersion.String()+"/namespaces/"+w.Namespace+"/workloads/"+w.Name+"/explanation")
	if err != nil {
		return nil, err
	}
	out := &berthv1alpha1.Explanation{}
	if err := json.Unmarshal(data, out); err != nil {
		return nil, err
	}
	if out.Text == "" {
		return nil, fmt.Errorf("it answers with something else than an explanation")
	}
	return out, nil
}

// reason describes why the manager's answer about an object is missing, and what to do. right is the verb and
// the resource that it takes to ask, in an API of the manager's.
func reason(err error, kind *cluster.Kind, api schema.GroupVersion, right string) string {
	switch {
	case apierrors.IsForbidden(err):
		return "you may not: it takes the right to " + right + " of " + api.Group
	case apierrors.IsTooManyRequests(err):
		return "it has too many questions to answer: ask again later"
	case apierrors.IsServiceUnavailable(err):
		return "it does not answer: is it running? kubectl get apiservice " + api.Version + "." + api.Group + " says where it should be"
	case named(err):
		return "it has not seen this " + kind.Kind + " yet"
	case apierrors.IsNotFound(err):
		return "its API " + api.Group + " is not installed: berth install"
	}
	return err.Error()
}

// inWords is the trace, its sentence, the position in the queue, and when it starts.
func inWords(e *berthv1alpha1.Explanation, now time.Time) string {
	var b strings.Builder
	for line := range strings.Lines(e.Text) {
		fmt.Fprintln(&b, terminal.Printable(strings.TrimSuffix(line, "\n")))
	}
	if e.Message != "" && !strings.Contains(e.Text, e.Message) {
		fmt.Fprintf(&b, "  in short: %s\n", terminal.Printable(e.Message))
	}
	if p := e.PositionInClusterQueue; p != nil && !strings.Contains(e.Text, " in line of ") {
		switch *p {
		case 0:
			fmt.Fprintf(&b, "  it is the first in ClusterQueue %s\n", e.ClusterQueue)
		case 1:
			fmt.Fprintf(&b, "  1 workload is ahead of it in ClusterQueue %s\n", e.ClusterQueue)
		default:
			fmt.Fprintf(&b, "  %d workloads are ahead of it in ClusterQueue %s\n", *p, e.ClusterQueue)
		}
	}
	b.WriteString(startInWords(e, now))
	return b.String()
}
