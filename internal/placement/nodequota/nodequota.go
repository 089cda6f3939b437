// Package nodequota has the quota of annotated ClusterQueues and Cohorts follow their nodes: it writes spec.nominalQuota, as an autoscaler writes
// spec.replicas (ADR 0011), and says so in a condition of the ClusterQueue and in events. Evictions are not its business: a quota that falls
// below what is used only admits nothing new.
package nodequota

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/placement/plan/capacity"
	plan "github.com/berth-project/berth/internal/placement/plan/nodequota"
	"github.com/berth-project/berth/internal/reconcile"
)

// Condition of a ClusterQueue whose quota follows nodes, and its reasons.
const (
	Condition   = "QuotaFromNodes"
	Follows     = "FollowsNodes"
	Unsupported = "UnsupportedConfiguration"
)

// quotaChanged is the reason of the event about a new quota.
const quotaChanged = "QuotaFromNodesChanged"

// refusedBatches is the delay before a quota that the API server refused is tried again, in batches: a minute.
const refusedBatches = 12

// Options are the settings of the controllers.
type Options struct {
	Events reconcile.Events
	// Batch is how long changes of nodes are collected. 5 seconds, unless a test sets it.
	Batch time.Duration
	Now   func() time.Time
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch,roleName=kueue-manager-queues-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues;cohorts,verbs=patch,roleName=kueue-manager-queues-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues/status,verbs=patch,roleName=kueue-manager-queues-role

// Setup adds the controllers to the manager. Nodes come from its cache, whose transform is capacity.Trim, and are watched from the first
// annotated object on.
func Setup(mgr ctrl.Manager, o Options) error {
	if o.Batch == 0 {
		o.Batch = 5 * time.Second
	}
	return errors.Join(
		add(mgr, o, "clusterqueue", &kueue.ClusterQueueList{}, func(q *kueue.ClusterQueue) *[]kueue.ResourceGroup { return &q.Spec.ResourceGroups }),
		add(mgr, o, "cohort", &kueue.CohortList{}, func(c *kueue.Cohort) *[]kueue.ResourceGroup { return &c.Spec.ResourceGroups }),
	)
}

// follower is the controller of one kind.
type follower[T any, P interface {
	*T
	client.Object
}] struct {
	Options
	client client.Client
	cache  cache.Cache
	list   client.ObjectList
	groups func(P) *[]kueue.ResourceGroup

	nodes chan event.GenericEvent // a change of any node
	mu    sync.Mutex
	known bool // nodes are watched
}

func add[T any, P interface {
	*T
	client.Object
}](mgr ctrl.Manager, o Options, name string, list client.ObjectList, groups func(P) *[]kueue.ResourceGroup) error {
	f := &follower[T, P]{
		Options: o, client: mgr.GetClient(), cache: mgr.GetCache(), list: list, groups: groups, nodes: make(chan event.GenericEvent, 1),
	}
	edited := predicate.Or[client.Object](reconcile.Edited(), predicate.AnnotationChangedPredicate{}, automated)
	all := handler.EnqueueRequestsFromMapFunc(f.annotated)
	err := ctrl.NewControllerManagedBy(mgr).Named("quota_from_nodes_"+name).
		For(P(new(T)), builder.WithPredicates(edited)).
		Watches(&kueue.ResourceFlavor{}, all, builder.WithPredicates(reconcile.Edited())).
		WatchesRawSource(source.Channel(f.nodes, all)).
		WithOptions(reconcile.ControllerOptions(1)).
		Complete(f)
	if err != nil {
		return fmt.Errorf("controller of quota from nodes: %w", err)
	}
	return nil
}

// automated passes ClusterQueues whose quota becomes, or is no longer, that of worker clusters.
var automated = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return isAutomated(e.ObjectOld) != isAutomated(e.ObjectNew) },
}

// isAutomated reports whether the quota of a ClusterQueue is that of worker clusters, also while it cannot be followed.
func isAutomated(o client.Object) bool {
	cq, is := o.(*kueue.ClusterQueue)
	if !is {
		return false
	}
	c := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueQuotaAutomation)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason != kueue.ReasonNotRequested)
}

// annotated returns the objects with the annotation.
func (f *follower[T, P]) annotated(ctx context.Context, _ client.Object) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, f.cache, f.list.DeepCopyObject().(client.ObjectList), "objects whose quota follows nodes", func(o P) bool {
		return o.GetAnnotations()[plan.Annotation] != ""
	})
}

// watchNodes starts the watch of nodes once, and returns when they are known. Changes are collected: the event of the first is sent at the end
// of a batch.
func (f *follower[T, P]) watchNodes(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known {
		return nil
	}
	informer, err := f.cache.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	var collecting sync.Mutex
	pending := false
	changed := func() {
		collecting.Lock()
		defer collecting.Unlock()
		if pending {
			return
		}
		pending = true
		time.AfterFunc(f.Batch, func() {
			collecting.Lock()
			pending = false
			collecting.Unlock()
			select {
			case f.nodes <- event.GenericEvent{Object: P(new(T))}:
			default: // one pending event is enough
			}
		})
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, DeleteFunc: func(any) { changed() },
		UpdateFunc: func(old, o any) {
			if capacity.IsChange(old.(*corev1.Node), o.(*corev1.Node)) {
				changed()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	f.known = true
	return nil
}

// Reconcile updates the quota of one object.
func (f *follower[T, P]) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	outcome, err := f.follow(ctx, req.NamespacedName)
	if err != nil {
		outcome = reconcile.Retry(client.IgnoreNotFound(err))
	}
	return outcome.Result(ctx)
}

func (f *follower[T, P]) follow(ctx context.Context, key types.NamespacedName) (reconcile.Outcome, error) {
	o := P(new(T))
	if err := f.cache.Get(ctx, key, o); err != nil || o.GetDeletionTimestamp() != nil {
		return reconcile.Done(), err
	}
	percent, err := plan.ShareOf(o.GetAnnotations())
	if why := unsupported(o, err); why != "" {
		return reconcile.Done(), f.say(ctx, o, why, Unsupported)
	}
	if percent == 0 {
		return reconcile.Done(), f.say(ctx, o, "", "")
	}
	if err := f.watchNodes(ctx); err != nil {
		return reconcile.Done(), err
	}
	result, err := f.decide(ctx, o, percent)
	if err != nil {
		return reconcile.Done(), err
	}
	message := fmt.Sprintf("nominalQuota is %d%% of what the nodes of the flavors offer", percent)
	if len(result.Missing) > 0 {
		message += "; these flavors do not exist: " + strings.Join(result.Missing, ", ")
	}
	if result.Changed {
		if refused, err := f.write(ctx, o, &result, message); refused != "" || err != nil {
			again := refusedBatches * f.Batch // what allows it has no event
			if !result.Wake.IsZero() {
				again = min(again, result.Wake.Sub(f.Now()))
			}
			return reconcile.Wait(again), errors.Join(err, f.say(ctx, o, refused, Unsupported))
		}
	}
	if err := f.say(ctx, o, message, Follows); err != nil || result.Wake.IsZero() {
		return reconcile.Done(), err
	}
	return reconcile.Wait(result.Wake.Sub(f.Now())), nil
}

// unsupported returns why the quota of an object cannot follow nodes.
func unsupported(o client.Object, invalid error) string {
	value := o.GetAnnotations()[plan.Annotation]
	switch o := o.(type) {
	case *kueue.Cohort:
		if value != "" && o.Spec.ParentName != "" {
			return "only a Cohort without a parent can follow nodes"
		}
	case *kueue.ClusterQueue:
		if value != "" && isAutomated(o) {
			return "the quota is that of the worker clusters"
		}
	}
	if invalid != nil {
		return fmt.Sprintf("the annotation %s is %q: it %v", plan.Annotation, value, invalid)
	}
	return ""
}

func (f *follower[T, P]) decide(ctx context.Context, o P, percent int64) (plan.Result, error) {
	var list corev1.NodeList
	if err := f.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return plan.Result{}, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := reconcile.Pointers(list.Items)
	var failed error
	flavor := func(name kueue.ResourceFlavorReference) *kueue.ResourceFlavor {
		out := &kueue.ResourceFlavor{}
		if err := f.cache.Get(ctx, client.ObjectKey{Name: string(name)}, out, client.UnsafeDisableDeepCopy); err != nil {
			failed = errors.Join(failed, client.IgnoreNotFound(err))
			return nil
		}
		return out
	}
	result := plan.Follow(*f.groups(o), flavor, nodes, percent, f.Now())
	return result, failed
}

// write writes the new quota, and makes o the stored object. refused says why the API server does not accept it.
func (f *follower[T, P]) write(ctx context.Context, o P, result *plan.Result, message string) (refused string, err error) {
	before := o.DeepCopyObject().(client.Object)
	*f.groups(o) = result.Groups
	err = f.client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner("berth-quota-from-nodes"))
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		o.SetResourceVersion(before.GetResourceVersion())
		return "the API server refuses the quota: " + err.Error(), nil
	case err != nil:
		return "", fmt.Errorf("writing the quota of %s: %w", o.GetName(), err)
	}
	f.Events.Normal(o, quotaChanged, fmt.Sprintf("%s, now %d nodes", message, result.Nodes))
	return "", nil
}

// say writes the condition of a ClusterQueue; without a message there is none. The status of Cohorts has no conditions: what is unsupported of
// them is an event.
func (f *follower[T, P]) say(ctx context.Context, o P, message, reason string) error {
	cq, is := any(o).(*kueue.ClusterQueue)
	if !is {
		if reason == Unsupported {
			f.Events.Warning(o, reason, message)
		}
		return nil
	}
	before := cq.DeepCopy()
	if message == "" {
		apimeta.RemoveStatusCondition(&cq.Status.Conditions, Condition)
	} else {
		status := metav1.ConditionTrue
		if reason == Unsupported {
			status = metav1.ConditionFalse
		}
		apimeta.SetStatusCondition(&cq.Status.Conditions, metav1.Condition{
			Type: Condition, Status: status, Reason: reason, Message: message, ObservedGeneration: cq.Generation,
		})
	}
	old, now := apimeta.FindStatusCondition(before.Status.Conditions, Condition), apimeta.FindStatusCondition(cq.Status.Conditions, Condition)
	if old == nil && now == nil || old != nil && now != nil && old.Status == now.Status && old.Reason == now.Reason && old.Message == now.Message {
		return nil
	}
	if err := f.client.Status().Patch(ctx, cq, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the status of ClusterQueue %s: %w", cq.Name, err)
	}
	return nil
}
