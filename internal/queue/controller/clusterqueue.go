// Package controller writes the status of ClusterQueues, LocalQueues and Cohorts, and the
// finalizers that hold a ClusterQueue while workloads run in it, a ResourceFlavor or an
// AdmissionCheck while a ClusterQueue names it, and a Topology while a ResourceFlavor names
// it. spec: 10 §4.13, 20 §4.5.
package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

type clusterQueues struct {
	writer
	variants bool // feature gate ConcurrentAdmission
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues;topologies,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues,verbs=patch,roleName=kueue-manager-queues-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues/status,verbs=patch,roleName=kueue-manager-queues-role

func (r *clusterQueues) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cq kueue.ClusterQueue
	return r.inTurn(ctx, req.NamespacedName, &cq, func(turn turn) (ctrl.Result, error) {
		view, known := r.engine.Model().Queue(cq.Name)
		if !known {
			return ctrl.Result{RequeueAfter: delay}, nil // the feed reports it soon
		}
		problems, err := r.problems(ctx, &cq)
		if err != nil {
			return ctrl.Result{}, err
		}
		before := cq.DeepCopy()
		fillStatus(&cq, view, problems)
		var result ctrl.Result
		if !equality.Semantic.DeepEqual(before.Status, cq.Status) {
			figuresOnly := equality.Semantic.DeepEqual(before.Status.Conditions, cq.Status.Conditions)
			if result.RequeueAfter, err = turn.write(ctx, r.client, &cq, statusPatch(before, figuresOnly), figuresOnly); err != nil {
				return reconcile.Retry(err).Result(ctx)
			}
			if result.RequeueAfter > 0 {
				cq.Status = before.Status
			}
		}
		if cq.DeletionTimestamp != nil && !view.Closed { // it may still admit a workload
			return ctrl.Result{RequeueAfter: delay}, nil
		}
		return result, r.finalize(ctx, &cq, view.Reserved == 0)
	})
}

// statusPatch returns a merge patch. A patch of conditions, which may have other writers,
// fails with a conflict if the object has changed.
func statusPatch(before client.Object, figuresOnly bool) client.Patch {
	if figuresOnly {
		return client.MergeFrom(before)
	}
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
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
		Variants: r.variants,
		Flavor: func(name kueue.ResourceFlavorReference) *kueue.ResourceFlavor {
			flavor := &kueue.ResourceFlavor{}
			if !get(string(name), flavor) {
				return nil
			}
			return flavor
		},
		Check: func(name kueue.AdmissionCheckReference) *kueue.AdmissionCheck {
			check := &kueue.AdmissionCheck{}
			if !get(string(name), check) {
				return nil
			}
			return check
		},
		Topology: func(name kueue.TopologyReference) bool { return get(string(name), &kueue.Topology{}) },
		Parent: func(name string) string {
			cohort := &kueue.Cohort{}
			get(name, cohort) // without one it has no parent
			return string(cohort.Spec.ParentName)
		},
	})
	return problems, broken
}

func fillStatus(cq *kueue.ClusterQueue, view state.View, problems []convert.Problem) {
	FillFigures(cq, view)
	FillActive(cq, problems)
}

// FillFigures sets the counts and amounts of a status.
func FillFigures(cq *kueue.ClusterQueue, view state.View) {
	st := &cq.Status
	st.PendingWorkloads = int32(view.Active + view.Inadmissible)
	st.ReservingWorkloads = int32(view.Reserved)
	st.AdmittedWorkloads = int32(view.Admitted)
	st.FlavorsReservation = convert.FlavorUsage(cq.Spec.ResourceGroups, view.Reservation, view.Borrowed)
	st.FlavorsUsage = convert.FlavorUsage(cq.Spec.ResourceGroups, view.Usage, view.BorrowedUsage)
	st.FairSharing = fairSharing(view.Share)
}

// FillActive sets the condition Active of a status.
func FillActive(cq *kueue.ClusterQueue, problems []convert.Problem) {
	active := metav1.Condition{
		Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue, Reason: kueue.ReasonReady,
		Message: "Can admit new workloads", ObservedGeneration: cq.Generation,
	}
	if len(problems) > 0 {
		active.Status, active.Reason = metav1.ConditionFalse, problems[0].Reason
		active.Message = "Can't admit new workloads: " + convert.Sentence(problems)
	}
	apimeta.SetStatusCondition(&cq.Status.Conditions, active)
}

// finalize holds the ClusterQueue while workloads hold its quota. Pending ones do not count, and reservations
// without admission are lost. spec: 10 §4.13.
func (r *clusterQueues) finalize(ctx context.Context, cq *kueue.ClusterQueue, idle bool) error {
	return hold(ctx, r.client, cq, cq.DeletionTimestamp == nil || !idle)
}

// hold sets or removes the finalizer with one patch, if that changes anything.
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
