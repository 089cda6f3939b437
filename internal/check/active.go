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

	client client.Client
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks,verbs=get;list;watch

// Setup adds the controller under a name to the manager. watch adds the events, beside events of the checks, after which Active is asked
// again.
func (a *Activity) Setup(mgr ctrl.Manager, name string, watch func(*builder.Builder)) error {
	a.client = mgr.GetClient()
	b := ctrl.NewControllerManagedBy(mgr).Named(name).For(&kueue.AdmissionCheck{}, builder.WithPredicates(editedOrJudged))
	watch(b)
	return b.Complete(a)
}

// editedOrJudged passes edits, and changes of the condition that Reconcile compares with.
var editedOrJudged = reconcile.EditedOr(func(c *kueue.AdmissionCheck) *metav1.Condition {
	return apimeta.FindStatusCondition(c.Status.Conditions, kueue.AdmissionCheckActive)
})

// Reconcile writes the condition of one check, if it changed.
func (a *Activity) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var check kueue.AdmissionCheck
	if err := a.client.Get(ctx, req.NamespacedName, &check, client.UnsafeDisableDeepCopy); err != nil || check.Spec.ControllerName != a.Controller {
		return ctrlreconcile.Result{}, client.IgnoreNotFound(err)
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
	condition.Type, condition.ObservedGeneration = kueue.AdmissionCheckActive, check.Generation
	next := check.DeepCopy()
	apimeta.SetStatusCondition(&next.Status.Conditions, condition)
	pinned := client.MergeFromWithOptions(&check, client.MergeFromWithOptimisticLock{})
	if err := a.client.Status().Patch(ctx, next, pinned, client.FieldOwner(a.Controller)); err != nil {
		return reconcile.Retry(client.IgnoreNotFound(err)).Result(ctx)
	}
	return result, nil
}

// Of returns requests for the AdmissionChecks of a controller that match, for a handler of events about other objects.
func Of(ctx context.Context, cache client.Reader, controller string, match func(*kueue.AdmissionCheck) bool) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, cache, &kueue.AdmissionCheckList{}, "AdmissionChecks", func(c *kueue.AdmissionCheck) bool {
		return c.Spec.ControllerName == controller && match(c)
	})
}
