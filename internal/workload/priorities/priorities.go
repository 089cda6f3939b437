// Package priorities writes the value of a WorkloadPriorityClass into the priority of the
// Workloads that name it. spec: 10 §2.6, §4.13.
package priorities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
)

// again is the delay of a second reconcile of a class after its value changed: a Workload that is
// being created meanwhile may have the old value.
const again = 3 * time.Second

// Keeper writes priorities. Only a new class or a new value triggers it: other changes of
// spec.priority stay until then.
type Keeper struct {
	Client client.Client

	// written are the values that the Workloads of classes got in a first reconcile; only the worker uses it.
	written map[string]value
}

// value is that of a class, which may have been created again.
type value struct {
	class types.UID
	is    int32
}

type queue = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]

// Setup adds the controller to the manager.
func (k *Keeper) Setup(mgr ctrl.Manager) error {
	enqueue := func(q queue, class client.Object) {
		q.Add(ctrlreconcile.Request{NamespacedName: types.NamespacedName{Name: class.GetName()}})
	}
	changes := handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.(*kueue.WorkloadPriorityClass).Value != e.ObjectNew.(*kueue.WorkloadPriorityClass).Value {
				enqueue(q, e.ObjectNew)
			}
		},
	}
	return ctrl.NewControllerManagedBy(mgr).Named("workloadpriorityclass").
		Watches(&kueue.WorkloadPriorityClass{}, changes).
		WithOptions(reconcile.ControllerOptions(1)).
		Complete(k)
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloadpriorityclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch;patch

// Reconcile sets the priority of every Workload of a class to its value, in any state of the Workload.
func (k *Keeper) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var class kueue.WorkloadPriorityClass
	if err := k.Client.Get(ctx, req.NamespacedName, &class); err != nil {
		delete(k.written, req.Name)
		return ctrlreconcile.Result{}, client.IgnoreNotFound(err) // without the class priorities stay
	}
	var list kueue.WorkloadList
	if err := k.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return ctrlreconcile.Result{}, fmt.Errorf("listing workloads: %w", err)
	}
	var failed []error
	for i := range list.Items {
		w := &list.Items[i]
		ref := w.Spec.PriorityClassRef
		if ref == nil || ref.Kind != kueue.WorkloadPriorityClassKind || ref.Name != class.Name ||
			(w.Spec.Priority != nil && *w.Spec.Priority == class.Value) {
			continue
		}
		next := w.DeepCopy()
		next.Spec.Priority = new(class.Value)
		err := k.Client.Patch(ctx, next, client.MergeFromWithOptions(w, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("priority of workload %s/%s: %w", w.Namespace, w.Name, err))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	now := value{class.UID, class.Value}
	if k.written[class.Name] == now {
		return ctrlreconcile.Result{}, nil
	}
	if k.written == nil {
		k.written = map[string]value{}
	}
	k.written[class.Name] = now
	return ctrlreconcile.Result{RequeueAfter: again}, nil // the queue drops a delayed entry beside one that is ready
}
