// Package queues keeps the status of ClusterQueues and LocalQueues, and the
// finalizers that hold a ClusterQueue while workloads run in it and a ResourceFlavor
// while a ClusterQueue names it. spec: 10 §4.13.
package queues

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/convert"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/state"
)

// settle is how long changes of a queue's figures are gathered before its status is
// written: at most one write a second and object.
const settle = time.Second

// Figures of all queues together are written at this rate: a thousand queues that move at
// once must not crowd out admissions. What else a status says is written at once.
const (
	figuresPerSecond = 20
	figuresBurst     = 50
)

type pace struct{ *rate.Limiter }

func newPace() pace { return pace{rate.NewLimiter(figuresPerSecond, figuresBurst)} }

// keep waits until figures may be written, if nothing but figures has changed.
func (p pace) keep(ctx context.Context, before, after []metav1.Condition) error {
	if !equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return p.Wait(ctx)
}

// clusterQueues writes the status of ClusterQueues.
type clusterQueues struct {
	client client.Client
	engine *engine.Engine
	pace   pace
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues/finalizers,verbs=update

// Reconcile brings the status of one ClusterQueue up to date.
func (r *clusterQueues) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	var cq kueue.ClusterQueue
	if err := r.client.Get(ctx, req.NamespacedName, &cq); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	view, known := state.View{}, false
	if err := r.engine.Ask(ctx, func(s *state.State) { view, known = s.Queue(cq.Name) }); err != nil {
		return ctrl.Result{}, err
	}
	if !known {
		return ctrl.Result{RequeueAfter: settle}, nil // the feed has it in a moment
	}
	problems, err := r.problems(ctx, &cq)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := cq.DeepCopy()
	fillStatus(&cq, view, problems)
	if !equality.Semantic.DeepEqual(before.Status, cq.Status) {
		if err := r.pace.keep(ctx, before.Status.Conditions, cq.Status.Conditions); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.client.Status().Patch(ctx, &cq, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, fmt.Errorf("writing status: %w", client.IgnoreNotFound(err))
		}
	}
	return ctrl.Result{}, r.finalize(ctx, &cq, view.Admitted == 0)
}

func (r *clusterQueues) problems(ctx context.Context, cq *kueue.ClusterQueue) ([]convert.Problem, error) {
	var broken error
	get := func(name string, into client.Object) bool {
		err := r.client.Get(ctx, types.NamespacedName{Name: name}, into, client.UnsafeDisableDeepCopy)
		if err != nil && !apierrors.IsNotFound(err) {
			broken = err
		}
		return err == nil
	}
	problems := convert.Problems(cq, convert.Known{
		Flavor: func(name kueue.ResourceFlavorReference) bool { return get(string(name), &kueue.ResourceFlavor{}) },
		Check: func(name kueue.AdmissionCheckReference) *kueue.AdmissionCheck {
			check := &kueue.AdmissionCheck{}
			if !get(string(name), check) {
				return nil
			}
			return check
		},
	})
	return problems, broken
}

func fillStatus(cq *kueue.ClusterQueue, view state.View, problems []convert.Problem) {
	st := &cq.Status
	st.PendingWorkloads = int32(view.Active + view.Parked)
	st.ReservingWorkloads = int32(view.Reserved)
	st.AdmittedWorkloads = int32(view.Admitted)
	st.FlavorsReservation = convert.FlavorUsage(cq.Spec.ResourceGroups, view.Reservation, view.Borrowed)
	st.FlavorsUsage = convert.FlavorUsage(cq.Spec.ResourceGroups, view.Usage, view.BorrowedUsage)
	active := metav1.Condition{
		Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue, Reason: kueue.ReasonReady,
		Message: "Can admit new workloads", ObservedGeneration: cq.Generation,
	}
	if len(problems) > 0 {
		active.Status, active.Reason = metav1.ConditionFalse, problems[0].Reason
		active.Message = "Can't admit new workloads: " + convert.Sentence(problems)
	}
	apimeta.SetStatusCondition(&st.Conditions, active)
}

// finalize holds the ClusterQueue while workloads run in it.
func (r *clusterQueues) finalize(ctx context.Context, cq *kueue.ClusterQueue, idle bool) error {
	return hold(ctx, r.client, cq, cq.DeletionTimestamp == nil || !idle)
}

// hold sets or drops the finalizer with one patch, if that changes anything.
func hold(ctx context.Context, c client.Client, obj client.Object, held bool) error {
	before := obj.DeepCopyObject().(client.Object)
	changed := false
	if held && obj.GetDeletionTimestamp() == nil {
		changed = controllerutil.AddFinalizer(obj, kueue.ResourceInUseFinalizer)
	} else if !held {
		changed = controllerutil.RemoveFinalizer(obj, kueue.ResourceInUseFinalizer)
	}
	if !changed {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, obj, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("finalizer of %s: %w", obj.GetName(), err)
	}
	return nil
}
