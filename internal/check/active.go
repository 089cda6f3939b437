package check

import (
	"context"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
)

// Activity keeps the condition Active of the AdmissionChecks of one controller. Before it is true their ClusterQueues are inactive.
type Activity struct {
	// Controller is the spec.controllerName of the checks, and the field manager.
	Controller string
	// Active decides whether a check is usable: the status, reason and message of the condition. again is when to ask again without an
	// event, 0 for never.
	Active func(ctx context.Context, check *kueue.AdmissionCheck) (condition metav1.Condition, again time.Duration, err error)

	client  client.Client
	written *reconcile.Overlay[*kueue.AdmissionCheck]
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks,verbs=get;list;watch

// Setup adds the controller under a name to the manager. watch adds the events, beside events of the checks, after which Active is asked
// again.
func (a *Activity) Setup(mgr ctrl.Manager, name string, watch func(*builder.Builder)) error {
	a.client, a.written = mgr.GetClient(), reconcile.NewOverlay[*kueue.AdmissionCheck](time.Now)
	b := ctrl.NewControllerManagedBy(mgr).Named(name).For(&kueue.AdmissionCheck{}, builder.WithPredicates(reconcile.Edited())).
		WithOptions(reconcile.ControllerOptions(1))
	watch(b)
	return b.Complete(a)
}

// lag is the delay before a check is decided about again of which the cache does not show the last condition.
const lag = 100 * time.Millisecond

// Reconcile writes the condition of one check, if it changed.
func (a *Activity) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var check kueue.AdmissionCheck
	if err := a.client.Get(ctx, req.NamespacedName, &check, client.UnsafeDisableDeepCopy); err != nil || check.Spec.ControllerName != a.Controller {
		return ctrlreconcile.Result{}, client.IgnoreNotFound(err)
	}
	if a.written.IsBehind(&check) { // what changed back meanwhile would look unchanged
		return reconcile.Wait(lag).Result(ctx)
	}
	condition, again, err := a.Active(ctx, &check)
	if err != nil {
		return ctrlreconcile.Result{}, err
	}
	result := ctrlreconcile.Result{RequeueAfter: again}
	old := apimeta.FindStatusCondition(check.Status.Conditions, kueue.AdmissionCheckActive)
	if old != nil && old.Status == condition.Status && old.Reason == condition.Reason && old.Message == condition.Message {
		return result, nil
	}
	if err := a.write(ctx, &check, condition); err != nil {
		return reconcile.Retry(client.IgnoreNotFound(err)).Result(ctx)
	}
	return result, nil
}

func (a *Activity) write(ctx context.Context, check *kueue.AdmissionCheck, condition metav1.Condition) error {
	condition.Type, condition.ObservedGeneration = kueue.AdmissionCheckActive, check.Generation
	next := check.DeepCopy()
	apimeta.SetStatusCondition(&next.Status.Conditions, condition)
	pinned := client.MergeFromWithOptions(check, client.MergeFromWithOptimisticLock{})
	err := a.client.Status().Patch(ctx, next, pinned, client.FieldOwner(a.Controller))
	if err == nil {
		a.written.Updated(next)
	}
	return err
}

// Of returns requests for the AdmissionChecks of a controller that match, for a handler of events about other objects.
func Of(ctx context.Context, cache client.Reader, controller string, match func(*kueue.AdmissionCheck) bool) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, cache, &kueue.AdmissionCheckList{}, "AdmissionChecks", func(c *kueue.AdmissionCheck) bool {
		return c.Spec.ControllerName == controller && match(c)
	})
}
