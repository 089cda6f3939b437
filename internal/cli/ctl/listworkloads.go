package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	visibilityv1beta2 "github.com/berth-project/berth/api/visibility/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

const listWorkloadsHelp = `Lists Workloads, one for each job that is queued: whose they are, where they wait or run, at what position in their
LocalQueue, and when they are expected to start (? is unknown). Where no manager answers, these are computed here from the objects of
the API, and a line says so.
-o wide adds the priority and why a pending one waits. Objects whose queue label is ignored have no Workload: they follow on stderr,
a line each, unless the list is narrowed down.

  berth list workloads -n team-a
  berth list workloads -A --status pending -o wide
  berth list workloads --for job/train
  berth list workloads -q main --status admitted --status quotareserved`

// statusAll is the word for all states.
const statusAll = "all"

var statuses = []string{
	statusAll, lifecycle.StatePending, lifecycle.StateQuotaReserved, lifecycle.StateAdmitted, lifecycle.StateFinished,
}

// listWorkloads is the command line of `berth list workloads`.
type listWorkloads struct {
	listing
	clusterQueue, localQueue, of string
	statuses                     []string
}

func (t *tool) newListWorkloads() *cobra.Command {
	var l listWorkloads
	cmd := l.command(t, cluster.Workload, listWorkloadsHelp, l.fetch)
	t.addSettings(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&l.clusterQueue, "clusterqueue", "c", "", "only those that hold quota of this ClusterQueue")
	flags.StringVarP(&l.localQueue, "localqueue", "q", "", "only those of this LocalQueue")
	flags.StringSliceVar(&l.statuses, "status", nil, "only those that are "+strings.Join(statuses[1:], ", ")+", or "+statusAll+"; may be repeated")
	flags.StringVar(&l.of, "for", "", "only those of this object, as `TYPE[.GROUP]/NAME`")
	_ = cmd.RegisterFlagCompletionFunc("clusterqueue", t.completeFlag(cluster.ClusterQueue))
	_ = cmd.RegisterFlagCompletionFunc("localqueue", t.completeFlag(cluster.LocalQueue))
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (l *listWorkloads) fetch(ctx context.Context, s *session) (client.ObjectList, *table, error) {
	for i, status := range l.statuses {
		if l.statuses[i] = strings.ToLower(status); !slices.Contains(statuses, l.statuses[i]) {
			return nil, nil, cluster.Usage("--status %s: must be one of %s", status, strings.Join(statuses, ", "))
		}
	}
	list, err := l.read(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if l.labels == "" && l.fields == "" && l.of == "" && l.clusterQueue == "" && l.localQueue == "" && len(l.statuses) == 0 {
		l.after = func() { l.tellIgnored(ctx, s) }
	}
	list.Items = slices.DeleteFunc(list.Items, func(w kueue.Workload) bool { return !l.wants(&w) })
	if !l.asTable() || len(list.Items) == 0 {
		return list, &table{}, nil
	}
	out, err := l.table(ctx, s, list.Items)
	return list, out, err
}

// read reads the Workloads that the selectors and --for match.
func (l *listWorkloads) read(ctx context.Context, s *session) (*kueue.WorkloadList, error) {
	o, err := l.options(s, true)
	if err != nil {
		return nil, err
	}
	list := &kueue.WorkloadList{}
	if l.of == "" {
		return list, s.Pages(ctx, list, o)
	}
	jobs, err := s.Resolve(ctx, l.of, l.everywhere)
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		some, err := s.workloadsOf(ctx, jobs[i].GetNamespace(), jobs[i].GetUID(), o)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, some...)
	}
	return list, nil
}

// workloadsOf lists the Workloads of an object by its label; if there is none, by ownership. spec: 70 §4.9.
func (s *session) workloadsOf(ctx context.Context, namespace string, owner types.UID, o *client.ListOptions) ([]kueue.Workload, error) {
	labeled := *o
	labeled.Namespace = namespace
	own, err := labels.NewRequirement(kueue.JobUIDLabel, "=", []string{string(owner)})
	if err != nil {
		return nil, err
	}
	labeled.LabelSelector = labels.NewSelector().Add(*own)
	if requirements, selectable := labelsOf(o); selectable {
		labeled.LabelSelector = labeled.LabelSelector.Add(requirements...)
	}
	var list kueue.WorkloadList
	if err := s.Pages(ctx, &list, &labeled); err != nil || len(list.Items) > 0 {
		return list.Items, err
	}
	every := *o
	every.Namespace = namespace
	if err := s.Pages(ctx, &list, &every); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(w kueue.Workload) bool {
		return !slices.ContainsFunc(w.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner })
	}), nil
}

func labelsOf(o *client.ListOptions) (labels.Requirements, bool) {
	if o.LabelSelector == nil {
		return nil, false
	}
	return o.LabelSelector.Requirements()
}

func (l *listWorkloads) wants(w *kueue.Workload) bool {
	if l.clusterQueue != "" && (w.Status.Admission == nil || string(w.Status.Admission.ClusterQueue) != l.clusterQueue) {
		return false
	}
	if l.localQueue != "" && string(w.Spec.QueueName) != l.localQueue {
		return false
	}
	return len(l.statuses) == 0 || slices.Contains(l.statuses, statusAll) || slices.Contains(l.statuses, lifecycle.StateOf(w))
}

func (l *listWorkloads) table(ctx context.Context, s *session, items []kueue.Workload) (*table, error) {
	namespace := s.Namespace
	if l.everywhere {
		namespace = ""
	}
	queues, err := s.clusterQueuesOf(ctx, namespace)
	if err != nil {
		return nil, err
	}
	places, err := s.places(ctx, items)
	if err != nil {
		return nil, err
	}
	out := &table{columns: l.columns("NAME", "JOB TYPE", "JOB NAME", "LOCALQUEUE", "CLUSTERQUEUE", "STATUS", "POSITION IN QUEUE", "STARTS", "EXEC TIME", "AGE", "+PRIORITY", "+WAITS BECAUSE")}
	for i := range items {
		w := &items[i]
		key := types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
		queue := string(queues[key])
		if w.Status.Admission != nil {
			queue = string(w.Status.Admission.ClusterQueue)
		}
		status, position, begins, why := lifecycle.StateOf(w), "", "", ""
		if status == lifecycle.StatePending {
			why = pendingBecause(w)
			if at, ok := places[client.ObjectKeyFromObject(w)]; ok {
				position, begins = count(at.PositionInLocalQueue), starts(at.ExpectedStart, s.Now())
				if why == "" { // only the first of identical Workloads is evaluated (spec: 10 §4.4)
					why = kueue.ReasonPendingEvaluation + ": in line; berth explain says what would be short"
				}
			}
		}
		kinds, names := s.owners(w)
		out.add(l.cells(w.Namespace, w.Name, kinds, names, string(w.Spec.QueueName), queue, strings.ToUpper(status), position, begins, s.ran(w), s.Since(w.CreationTimestamp),
			strconv.Itoa(int(ptr.Deref(w.Spec.Priority, 0))), why)...)
	}
	return out, nil
}

// clusterQueuesOf maps the LocalQueues of a namespace, or of all, to their ClusterQueues.
func (s *session) clusterQueuesOf(ctx context.Context, namespace string) (map[types.NamespacedName]kueue.ClusterQueueReference, error) {
	var list kueue.LocalQueueList
	if err := s.Pages(ctx, &list, &client.ListOptions{Namespace: namespace}); err != nil {
		return nil, err
	}
	out := map[types.NamespacedName]kueue.ClusterQueueReference{}
	for i := range list.Items {
		out[client.ObjectKeyFromObject(&list.Items[i])] = list.Items[i].Spec.ClusterQueue
	}
	return out, nil
}

// pendingBecause returns the reason in a pending Workload's conditions.
func pendingBecause(w *kueue.Workload) string {
	if !lifecycle.IsActive(w) {
		return "stopped (spec.active is false)"
	}
	if c := lifecycle.Unreserved(w); c != nil {
		return c.Reason + ": " + c.Message
	}
	return ""
}

// longType bounds the displayed length of JOB TYPE. spec: 70 §4.9.
const longType = 20

// owners returns the columns JOB TYPE and JOB NAME.
func (s *session) owners(w *kueue.Workload) (kinds, names string) {
	var k, n []string
	for _, owner := range w.OwnerReferences {
		k = append(k, s.Singular(owner.APIVersion, owner.Kind))
		n = append(n, owner.Name)
	}
	kinds = strings.Join(k, ", ")
	if len(kinds) > longType {
		kinds = kinds[:longType] + "..."
	}
	return kinds, strings.Join(n, ", ")
}

// ran returns how long a Workload has been admitted.
func (s *session) ran(w *kueue.Workload) string {
	admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted)
	if admitted == nil || admitted.Status != metav1.ConditionTrue {
		return ""
	}
	end := s.Now()
	if finished := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished); finished != nil && finished.Status == metav1.ConditionTrue {
		end = finished.LastTransitionTime.Time
	}
	return duration.HumanDuration(end.Sub(admitted.LastTransitionTime.Time))
}

// places returns the pending Workloads as the manager lists them in their LocalQueues; none where the user may not ask. spec: 70 §7 example 49.
func (s *session) places(ctx context.Context, items []kueue.Workload) (map[types.NamespacedName]*visibilityv1beta2.PendingWorkload, error) {
	out, asked := map[types.NamespacedName]*visibilityv1beta2.PendingWorkload{}, map[types.NamespacedName]bool{}
	for i := range items {
		queue := types.NamespacedName{Namespace: items[i].Namespace, Name: string(items[i].Spec.QueueName)}
		if queue.Name == "" || asked[queue] || lifecycle.StateOf(&items[i]) != lifecycle.StatePending {
			continue
		}
		asked[queue] = true
		summary, err := s.pending(ctx, "namespaces/"+queue.Namespace+"/localqueues/"+queue.Name)
		_, blind := errors.AsType[unreadable](err)
		_, refused := errors.AsType[*apierrors.StatusError](err)
		switch {
		case err == nil:
		case blind:
			fmt.Fprintf(s.Errs, "no manager answers, and positions and starts cannot be computed here: %v\n", err)
			return out, nil
		case s.failed != nil:
			return nil, err
		case apierrors.IsForbidden(err) || named(err):
			continue
		case refused:
			fmt.Fprintf(s.Errs, "positions and starts are unknown: the manager cannot be asked (%s)\n", reason(err, cluster.LocalQueue, visibilityv1beta2.GroupVersion, "get localqueues/pendingworkloads"))
			return out, nil
		default:
			return nil, err
		}
		for i := range summary.Items {
			p := &summary.Items[i]
			out[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
		}
	}
	return out, nil
}

// named reports whether an error is about a missing object rather than a missing API.
func named(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err) && status.ErrStatus.Details != nil && status.ErrStatus.Details.Name != ""
}

// pending asks the manager for the pending list of a queue.
func (s *session) pending(ctx context.Context, queue string) (*visibilityv1beta2.PendingWorkloadsSummary, error) {
	return pendingFrom(ctx, s.ask, queue)
}

// pendingFrom reads the pending list of a queue.
func pendingFrom(
	ctx context.Context, read func(ctx context.Context, path string, parameters ...string) ([]byte, error), queue string, parameters ...string,
) (*visibilityv1beta2.PendingWorkloadsSummary, error) {
	data, err := read(ctx, "/apis/"+visibilityv1beta2.GroupVersion.String()+"/"+queue+"/pendingworkloads", parameters...)
	if err != nil {
		return nil, err
	}
	out := &visibilityv1beta2.PendingWorkloadsSummary{}
	return out, json.Unmarshal(data, out)
}
