package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/reconcile"
)

// refusedAgain is when a quota that the API server refused is tried again: what allows it causes no event.
const refusedAgain = 30 * time.Second

// quotas keeps the quota of the manager's ClusterQueues at the sum of the worker clusters, where a MultiKueueConfig asks for that (spec:
// 40 §4.11).
type quotas struct {
	*shared

	mu        sync.Mutex
	lastKnown map[types.NamespacedName]plan.Contribution // by worker cluster and ClusterQueue
}

func (m *shared) addQuotas(mgr ctrl.Manager) error {
	if !m.Quota {
		return nil
	}
	q := &quotas{shared: m, lastKnown: map[types.NamespacedName]plan.Contribution{}}
	all := handler.EnqueueRequestsFromMapFunc(q.allQueues)
	return ctrl.NewControllerManagedBy(mgr).Named("multikueue_clusterqueue").
		For(&kueue.ClusterQueue{}, builder.WithPredicates(editedOrAutomated)).
		Watches(&kueue.LocalQueue{}, handler.EnqueueRequestsFromMapFunc(q.ofLocalQueue), builder.WithPredicates(reconcile.Edited())).
		Watches(&kueue.AdmissionCheck{}, all, builder.WithPredicates(reconcile.Edited())).
		Watches(&kueue.MultiKueueConfig{}, all, builder.WithPredicates(reconcile.Edited())).
		Watches(&kueue.MultiKueueCluster{}, all).
		WatchesRawSource(source.Channel(m.quotaEvents, all)).
		WithOptions(reconcile.ControllerOptions(1)).
		Complete(q)
}

// editedOrAutomated passes edits, and changes of the condition that writeCondition compares with.
var editedOrAutomated = reconcile.EditedOr(func(cq *kueue.ClusterQueue) *metav1.Condition {
	return apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueQuotaAutomation)
})

// requeueQuotas requeues all ClusterQueues. It never blocks: one pending event is enough.
func (m *shared) requeueQuotas() {
	select {
	case m.quotaEvents <- event.GenericEvent{Object: &kueue.ClusterQueue{}}:
	default:
	}
}

func (q *quotas) allQueues(ctx context.Context, _ client.Object) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, q.cache, &kueue.ClusterQueueList{}, "ClusterQueues", func(cq *kueue.ClusterQueue) bool {
		return cq.Spec.AdmissionChecksStrategy != nil || apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueQuotaAutomation) != nil
	})
}

func (q *quotas) ofLocalQueue(_ context.Context, o client.Object) []ctrlreconcile.Request {
	lq, ok := o.(*kueue.LocalQueue)
	if !ok {
		return nil
	}
	return []ctrlreconcile.Request{{NamespacedName: types.NamespacedName{Name: string(lq.Spec.ClusterQueue)}}}
}

// Reconcile updates the quota and the condition of one ClusterQueue.
func (q *quotas) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var cq kueue.ClusterQueue
	if err := q.cache.Get(ctx, req.NamespacedName, &cq); err != nil || cq.DeletionTimestamp != nil {
		if client.IgnoreNotFound(err) == nil {
			q.forget(req.Name, nil)
		}
		return ctrlreconcile.Result{}, client.IgnoreNotFound(err)
	}
	after, condition, err := q.updateQuota(ctx, &cq)
	if err == nil {
		err = q.writeCondition(ctx, &cq, condition)
	}
	if err != nil {
		return reconcile.Retry(client.IgnoreNotFound(err)).Result(ctx)
	}
	return ctrlreconcile.Result{RequeueAfter: after}, nil
}

// forget drops the contributions of worker clusters, except the given ones, to a ClusterQueue.
func (q *quotas) forget(queue string, except []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.lastKnown, func(key types.NamespacedName, _ plan.Contribution) bool {
		return key.Name == queue && !slices.Contains(except, key.Namespace)
	})
}

func (q *quotas) writeCondition(ctx context.Context, cq *kueue.ClusterQueue, condition *metav1.Condition) error {
	next := cq.DeepCopy()
	if condition == nil {
		apimeta.RemoveStatusCondition(&next.Status.Conditions, kueue.ClusterQueueQuotaAutomation)
	} else {
		condition.Type, condition.ObservedGeneration = kueue.ClusterQueueQuotaAutomation, cq.Generation
		old := apimeta.FindStatusCondition(cq.Status.Conditions, condition.Type)
		if old != nil && old.Status == condition.Status && old.Reason == condition.Reason && old.Message == condition.Message {
			return nil
		}
		apimeta.SetStatusCondition(&next.Status.Conditions, *condition)
	}
	if len(next.Status.Conditions) == len(cq.Status.Conditions) && condition == nil {
		return nil
	}
	if err := q.client.Status().Patch(ctx, next, client.MergeFromWithOptions(cq, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the status of ClusterQueue %s: %w", cq.Name, err)
	}
	return nil
}

func unsupported(why string) *metav1.Condition {
	return &metav1.Condition{Status: metav1.ConditionFalse, Reason: kueue.ReasonUnsupportedConfiguration, Message: "The quota is left as it is: " + why}
}

// updateQuota writes the quota of a ClusterQueue. It returns the condition, nil without a check of ours, and when to reconcile again. cq
// becomes the stored ClusterQueue.
func (q *quotas) updateQuota(ctx context.Context, cq *kueue.ClusterQueue) (after time.Duration, condition *metav1.Condition, err error) {
	check, err := q.checkIn(ctx, cq)
	if err != nil || check == nil {
		return 0, nil, err
	}
	config, err := q.configOf(ctx, check)
	switch {
	case errors.Is(err, errConfig):
		return 0, unsupported(err.Error()), nil
	case err != nil:
		return 0, nil, err
	case config.Spec.QuotaManagement == nil || *config.Spec.QuotaManagement != kueue.QuotaManagementAutomated:
		return 0, &metav1.Condition{Status: metav1.ConditionFalse, Reason: kueue.ReasonNotRequested, Message: fmt.Sprintf(
			"quotaManagement of MultiKueueConfig %s is Manual: the quota is left to people", config.Name)}, nil
	}
	found, err := q.contributions(ctx, cq, config)
	if err != nil {
		return 0, nil, err
	}
	before := cq.DeepCopy()
	changed, why := plan.Automate(cq, found.parts)
	switch {
	case why != "":
		return found.after, unsupported(why), nil
	case len(found.unreadable) > 0:
		return found.after, unsupported("the queues of these worker clusters cannot be read: " + strings.Join(found.unreadable, ", ")), nil
	case !found.reached, found.unknown && apimeta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueQuotaAutomation):
		before.DeepCopyInto(cq) // the present quota may contain that of the unknown cluster
		return found.after, waiting(cq), nil
	}
	if changed {
		refused, err := q.write(ctx, before, cq)
		if refused != nil || err != nil {
			return reconcile.Earliest(found.after, refusedAgain), refused, err
		}
	}
	return found.after, &metav1.Condition{Status: metav1.ConditionTrue, Reason: kueue.ReasonQuotaAutomated, Message: fmt.Sprintf(
		"The quota is the sum of that of the worker clusters of MultiKueueConfig %s", config.Name)}, nil
}

// write writes the new quota. refused is the condition if the API server does not accept it.
func (q *quotas) write(ctx context.Context, before, cq *kueue.ClusterQueue) (refused *metav1.Condition, err error) {
	err = q.client.Patch(ctx, cq, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		refused = unsupported(err.Error())
		before.DeepCopyInto(cq)
		return refused, nil
	case err != nil:
		return nil, fmt.Errorf("writing the quota of ClusterQueue %s: %w", cq.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("The quota follows the worker clusters", "clusterQueue", cq.Name)
	return nil, nil
}

func waiting(cq *kueue.ClusterQueue) *metav1.Condition {
	if old := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueQuotaAutomation); old != nil {
		return old.DeepCopy()
	}
	return nil
}

func (m *shared) checkIn(ctx context.Context, cq *kueue.ClusterQueue) (*kueue.AdmissionCheck, error) {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil, nil
	}
	rules := cq.Spec.AdmissionChecksStrategy.AdmissionChecks
	names := make([]kueue.AdmissionCheckReference, len(rules))
	for i := range rules {
		names[i] = rules[i].Name
	}
	return m.checkAmong(ctx, names)
}

type contributions struct {
	parts []plan.Contribution
	// reached is true if at least one cluster is connected, unknown if a lost one that may return has no known contribution.
	reached, unknown bool
	unreadable       []string      // connected clusters whose queues may not be read
	after            time.Duration // until a lost cluster no longer counts
}

// contributions reads the worker clusters. A lost one keeps its last contribution as long as Workloads stay with it: a short loss must
// not change the quota.
func (q *quotas) contributions(ctx context.Context, cq *kueue.ClusterQueue, config *kueue.MultiKueueConfig) (*contributions, error) {
	var queues kueue.LocalQueueList
	if err := q.cache.List(ctx, &queues, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing LocalQueues: %w", err)
	}
	var related []types.NamespacedName
	for i := range queues.Items {
		if string(queues.Items[i].Spec.ClusterQueue) == cq.Name {
			related = append(related, client.ObjectKeyFromObject(&queues.Items[i]))
		}
	}
	out := &contributions{}
	q.forget(cq.Name, config.Spec.Clusters)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range config.Spec.Clusters {
		key := types.NamespacedName{Namespace: name, Name: cq.Name}
		link := q.fleet.Link(name)
		if conn := link.Connection; conn != nil {
			out.reached = true
			if conn.Lack(worker.ClusterQueueKind) != "" || conn.Lack(worker.LocalQueueKind) != "" {
				out.unreadable = append(out.unreadable, name)
				continue
			}
			q.lastKnown[key] = contribute(conn, related)
			out.parts = append(out.parts, q.lastKnown[key])
			continue
		}
		left := q.Plan.WorkerLostTimeout - q.Now().Sub(link.LostSince)
		switch {
		case left <= 0:
			delete(q.lastKnown, key)
			continue
		case q.lastKnown[key] != nil:
			out.parts = append(out.parts, q.lastKnown[key])
		default:
			out.unknown = true
		}
		out.after = reconcile.Earliest(out.after, left)
	}
	return out, nil
}

func contribute(conn *worker.Connection, related []types.NamespacedName) plan.Contribution {
	var locals []*kueue.LocalQueue
	var queues []*kueue.ClusterQueue
	conn.Store(worker.LocalQueueKind).Each(func(_ types.NamespacedName, o client.Object) {
		if lq, ok := o.(*kueue.LocalQueue); ok {
			locals = append(locals, lq)
		}
	})
	conn.Store(worker.ClusterQueueKind).Each(func(_ types.NamespacedName, o client.Object) {
		if cq, ok := o.(*kueue.ClusterQueue); ok {
			queues = append(queues, cq)
		}
	})
	slices.SortFunc(locals, func(a, b *kueue.LocalQueue) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return plan.Contribute(related, locals, queues)
}
