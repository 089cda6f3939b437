package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	visibilityv1beta2 "github.com/berth-project/berth/api/visibility/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/cli/ctl/toppage"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// figures reads what the page shows: each kind of objects once, however many queues there are. opened is the queue whose pending list the
// page shows, "" for none, and shown are the queues on the page whose next starts are asked for.
func (o *top) figures(ctx context.Context, s *session, opened string, shown []string) (*toppage.Figures, error) {
	s.forget()
	f, err := s.forest(ctx)
	if err != nil {
		return nil, err
	}
	out := &toppage.Figures{}
	if s.alone != nil {
		out.Note = "no manager answers: computed here from the objects of the API"
	} else if s.failed != nil {
		out.Note = "no manager answers: the figures are what the last one wrote"
	}
	o.seen = nil
	var pending int32
	for _, q := range f.queues() {
		pending += q.Status.PendingWorkloads
		if o.wants(q.Name) {
			out.Queues = append(out.Queues, o.queueFigures(q))
		}
	}
	if err := o.missing(); err != nil {
		return nil, err
	}
	out.Resources = o.resources(f.total().shares)
	lines := map[string][]*kueue.Workload{}
	if pending > 0 || opened != "" {
		if lines, err = s.lines(ctx); apierrors.IsForbidden(err) {
			out.Note = "reasons and waiting times are unknown: " + err.Error()
		} else if err != nil {
			return nil, err
		}
	}
	for i := range out.Queues {
		q := &out.Queues[i]
		q.Waits, q.Why = firstOf(lines[q.Name])
	}
	o.askManager(ctx, s, shown, out)
	if opened != "" {
		out.Workloads, err = s.pendingList(ctx, opened, lines[opened])
	}
	out.At = s.Now()
	return out, err
}

// forest reads all queues and cohorts.
func (s *session) forest(ctx context.Context) (*forest, error) {
	var queues kueue.ClusterQueueList
	if err := s.Pages(ctx, &queues, &client.ListOptions{}); err != nil {
		return nil, err
	}
	var cohorts kueue.CohortList
	if err := s.Pages(ctx, &cohorts, &client.ListOptions{}); err != nil {
		return nil, err
	}
	if err := s.clusterQueueFigures(ctx, queues.Items); err != nil {
		return nil, err
	}
	return grow(cohorts.Items, queues.Items), nil
}

// queueFigures are the figures of one queue, as far as they are about the wanted resource.
func (o *top) queueFigures(q *kueue.ClusterQueue) toppage.Queue {
	out := toppage.Queue{Name: q.Name, Cohort: string(q.Spec.CohortName), Admitted: int(q.Status.AdmittedWorkloads), Pending: int(q.Status.PendingWorkloads), Off: off(q)}
	shares := sharesOf(q.Spec.ResourceGroups, &q.Status)
	for i := range shares {
		s := &shares[i]
		if o.resource != "" && s.resource != o.resource {
			continue
		}
		if use := s.use(); out.Fullest == "" || use.Full() > out.Use.Full() {
			out.Fullest, out.Use = s.flavor+"/"+s.resource, use
		}
		if s.borrowed.IsZero() {
			continue
		}
		borrows := toppage.Use{Quota: s.nominal.AsApproximateFloat64(), Reserved: s.borrowed.AsApproximateFloat64()}.Full()
		if out.Borrowed == "" || borrows > out.Borrows {
			out.Borrowed, out.Borrows = s.borrowed.String()+" "+s.resource[strings.LastIndex(s.resource, "/")+1:], borrows
		}
	}
	return out
}

// off is why a queue admits nothing, "" if it does.
func off(q *kueue.ClusterQueue) string {
	if !running(q) {
		return "stopped"
	}
	if is, _ := active(q.Status.Conditions); is != "true" {
		return "not active"
	}
	return ""
}

// resources sums the flavors of each resource: first devices, then the others, by their names.
func (o *top) resources(shares []share) (out []toppage.Resource) {
	var sums []share
	for i := range shares {
		if o.resource != "" && shares[i].resource != o.resource {
			continue
		}
		at := slices.IndexFunc(sums, func(s share) bool { return s.resource == shares[i].resource })
		if at < 0 {
			at, sums = len(sums), append(sums, share{pair: pair{resource: shares[i].resource}})
		}
		sums[at].add(&shares[i])
	}
	slices.SortFunc(sums, func(a, b share) int {
		if a, b := strings.Contains(a.resource, "/"), strings.Contains(b.resource, "/"); a != b {
			if a {
				return -1
			}
			return 1
		}
		return strings.Compare(a.resource, b.resource)
	})
	for i := range sums {
		s := &sums[i]
		out = append(out, toppage.Resource{Name: s.resource, Use: s.use(), Amount: s.reserved.String() + " of " + s.nominal.String()})
	}
	return out
}

// lines reads the Workloads that are in line, by their ClusterQueues.
func (s *session) lines(ctx context.Context) (map[string][]*kueue.Workload, error) {
	queues, err := s.clusterQueuesOf(ctx, "")
	if err != nil {
		return nil, err
	}
	// Only Workloads without an admission: the others may be many more.
	var all kueue.WorkloadList
	o := client.ListOptions{Limit: linePage, FieldSelector: fields.OneTermEqualSelector("status.admission.clusterQueue", "")}
	if err := s.Pages(ctx, &all, &o); apierrors.IsBadRequest(err) { // a CRD without that field
		err = s.Pages(ctx, &all, &client.ListOptions{Limit: linePage})
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	out := map[string][]*kueue.Workload{}
	for i := range all.Items {
		w := &all.Items[i]
		if !lifecycle.IsPending(w) || !lifecycle.MayQueue(w, true) {
			continue
		}
		if queue := queues[types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}]; queue != "" {
			out[string(queue)] = append(out[string(queue)], w)
		}
	}
	return out, nil
}

// linePage is the number of Workloads in one request: all of them are read.
const linePage = 500

// earlier orders Workloads by priority and time. The manager's own order may have more in it, such as past usage.
func earlier(a, b *kueue.Workload) int {
	return cmp.Or(
		cmp.Compare(ptr.Deref(b.Spec.Priority, 0), ptr.Deref(a.Spec.Priority, 0)),
		lifecycle.InLineSince(a).Compare(lifecycle.InLineSince(b)),
		cmp.Compare(a.UID, b.UID),
	)
}

// firstOf returns since when the oldest Workload of a line waits, and why the first one does.
func firstOf(line []*kueue.Workload) (oldest time.Time, why string) {
	if len(line) == 0 {
		return oldest, ""
	}
	for _, w := range line {
		if since := lifecycle.InLineSince(w); oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	return oldest, pendingBecause(slices.MinFunc(line, earlier))
}

// startsAtOnce is the number of requests for starts at once. The manager answers as many of one caller.
const startsAtOnce = 4

// askManager sets the figures that are no part of any status; a note says which of them are unknown, and why.
func (o *top) askManager(ctx context.Context, s *session, shown []string, figures *toppage.Figures) {
	starts, happened := s.nextStarts(ctx, shown, figures), o.lastHour(ctx, s, figures)
	switch {
	case figures.Note != "":
	case starts != nil:
		figures.Note = "starts are unknown: " + starts.Error()
	case happened != nil:
		figures.Note = "the last hour is unknown: " + reason(happened, cluster.ClusterQueue, berthv1alpha1.GroupVersion, "list queueactivities")
	}
}

// lastHour sets what happened in the last hour in the queues of the page.
func (o *top) lastHour(ctx context.Context, s *session, figures *toppage.Figures) error {
	data, err := s.raw()(ctx, "/apis/"+berthv1alpha1.GroupVersion.String()+"/queueactivities")
	if err != nil {
		return err
	}
	var all berthv1alpha1.QueueActivityList
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	figures.LastHour = &berthv1alpha1.Activity{}
	for i := range all.Items {
		if one := &all.Items[i]; o.wants(one.Name) {
			figures.LastHour.Admitted += one.LastHour.Admitted
			figures.LastHour.Finished += one.LastHour.Finished
			figures.LastHour.Failed += one.LastHour.Failed
			figures.LastHour.Evicted += one.LastHour.Evicted
		}
	}
	return nil
}

// raw reads from the manager, or from the standalone one.
func (s *session) raw() func(ctx context.Context, path string, parameters ...string) ([]byte, error) {
	if s.alone != nil {
		return s.alone.Raw
	}
	return s.Raw
}

// nextStarts sets when the first Workload of each of some queues is expected to start.
func (s *session) nextStarts(ctx context.Context, shown []string, figures *toppage.Figures) error {
	read := s.raw()
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(startsAtOnce)
	for i := range figures.Queues {
		q := &figures.Queues[i]
		if !slices.Contains(shown, q.Name) {
			continue
		}
		all.Go(func() error {
			summary, err := pendingFrom(ctx, read, "clusterqueues/"+q.Name, "limit", "1")
			if err == nil && len(summary.Items) > 0 {
				q.Starts = starts(summary.Items[0].ExpectedStart, s.Now())
			}
			return err
		})
	}
	return all.Wait()
}

// pendingList returns the Workloads in line of a queue as the manager lists them; by priority and time where it may not be asked.
func (s *session) pendingList(ctx context.Context, queue string, line []*kueue.Workload) (*toppage.PendingList, error) {
	out := &toppage.PendingList{Queue: queue}
	since := map[types.NamespacedName]*kueue.Workload{}
	for _, w := range line {
		since[client.ObjectKeyFromObject(w)] = w
	}
	summary, err := s.pending(ctx, "clusterqueues/"+queue)
	_, blind := errors.AsType[unreadable](err)
	_, refused := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil:
	case blind:
		out.Note = "positions and starts cannot be computed here: " + err.Error()
	case s.failed == nil && refused:
		out.Note = "positions and starts are unknown: the manager cannot be asked (" + reason(err, cluster.ClusterQueue, visibilityv1beta2.GroupVersion, "get clusterqueues/pendingworkloads") + ")"
	default:
		return nil, err
	}
	if err != nil {
		slices.SortFunc(line, earlier)
		for _, w := range line {
			out.Workloads = append(out.Workloads, toppage.Workload{
				Name: w.Namespace + "/" + w.Name, JobQueue: string(w.Spec.QueueName), Priority: count(ptr.Deref(w.Spec.Priority, 0)), Waits: lifecycle.InLineSince(w), Why: pendingBecause(w),
			})
		}
		return out, nil
	}
	for i := range summary.Items {
		p := &summary.Items[i]
		waits := p.CreationTimestamp.Time
		if w := since[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]; w != nil {
			waits = lifecycle.InLineSince(w)
		}
		why := p.Reason
		if p.Message != "" {
			why += ": " + p.Message
		}
		out.Workloads = append(out.Workloads, toppage.Workload{
			Name: p.Namespace + "/" + p.Name, JobQueue: p.LocalQueueName, Position: count(p.PositionInClusterQueue), Priority: strconv.Itoa(int(p.Priority)), Waits: waits,
			Starts: starts(p.ExpectedStart, s.Now()), Why: why,
		})
	}
	if n := len(summary.Items); n == int(visibilityv1beta2.DefaultLimit) {
		out.Note = fmt.Sprintf("the first %d", n)
	}
	return out, nil
}
