package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

type localQueues struct{ writer }

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=localqueues,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=localqueues/status,verbs=patch,roleName=kueue-manager-queues-role

func (r *localQueues) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var lq kueue.LocalQueue
	return r.inTurn(ctx, req.NamespacedName, &lq, func(turn turn) (ctrl.Result, error) {
		view := r.engine.Model().LocalQueue(lq.Namespace, lq.Name)
		cq := &kueue.ClusterQueue{}
		if err := r.client.Get(ctx, types.NamespacedName{Name: string(lq.Spec.ClusterQueue)}, cq); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		} else if err != nil {
			cq = nil
		}
		before := lq.DeepCopy()
		fillLocal(&lq, cq, view)
		fillUsage(&lq, cq, r.engine.Model().Usage(lq.Namespace, lq.Name))
		if equality.Semantic.DeepEqual(before.Status, lq.Status) {
			return ctrl.Result{}, nil
		}
		figuresOnly := equality.Semantic.DeepEqual(before.Status.Conditions, lq.Status.Conditions)
		rest, err := turn.write(ctx, r.client, &lq, statusPatch(before, figuresOnly), figuresOnly)
		if err != nil {
			return reconcile.Retry(err).Result(ctx)
		}
		return ctrl.Result{RequeueAfter: rest}, nil
	})
}

// fillUsage sets the past usage, which is what the next process begins with. Before the first sample, and without admission fair
// sharing, it stays as it is. spec: 20 §4.4.
func fillUsage(lq *kueue.LocalQueue, cq *kueue.ClusterQueue, u *sharing.Usage) {
	if cq == nil || u == nil || u.At == 0 {
		return
	}
	if lq.Status.FairSharing == nil {
		lq.Status.FairSharing = &kueue.LocalQueueFairSharingStatus{}
	}
	lq.Status.FairSharing.AdmissionFairSharingStatus = convert.PastUsageStatus(cq.Spec.ResourceGroups, u)
}

func fillLocal(lq *kueue.LocalQueue, cq *kueue.ClusterQueue, view state.View) {
	FillLocalFigures(lq, cq, view)
	FillLocalActive(lq, cq)
}

// FillLocalFigures sets the counts and amounts of a status. cq is nil if the ClusterQueue does not exist.
func FillLocalFigures(lq *kueue.LocalQueue, cq *kueue.ClusterQueue, view state.View) {
	st := &lq.Status
	st.PendingWorkloads, st.ReservingWorkloads, st.AdmittedWorkloads = 0, 0, 0
	st.FlavorsReservation, st.FlavorsUsage = nil, nil
	if cq != nil {
		st.PendingWorkloads = int32(view.Active + view.Inadmissible)
		st.ReservingWorkloads = int32(view.Reserved)
		st.AdmittedWorkloads = int32(view.Admitted)
		st.FlavorsReservation = convert.LocalQueueUsage(cq.Spec.ResourceGroups, view.Reservation)
		st.FlavorsUsage = convert.LocalQueueUsage(cq.Spec.ResourceGroups, view.Usage)
	}
}

// FillLocalActive sets the condition Active of a status. cq is nil if the ClusterQueue does not exist.
func FillLocalActive(lq *kueue.LocalQueue, cq *kueue.ClusterQueue) {
	active := metav1.Condition{Type: kueue.LocalQueueActive, ObservedGeneration: lq.Generation}
	active.Status, active.Reason, active.Message = localActive(lq, cq)
	apimeta.SetStatusCondition(&lq.Status.Conditions, active)
}

// localActive returns the status, reason and message of a LocalQueue's condition Active. spec: 10 §4.13.
func localActive(lq *kueue.LocalQueue, cq *kueue.ClusterQueue) (metav1.ConditionStatus, string, string) {
	switch {
	case convert.StoppedBy(lq.Spec.StopPolicy) != "":
		return metav1.ConditionFalse, kueue.ReasonStopped, "It is stopped " + convert.StoppedBy(lq.Spec.StopPolicy)
	case lq.Spec.ClusterQueue == "":
		return metav1.ConditionFalse, kueue.ReasonClusterQueueDoesNotExist, "It names no ClusterQueue; set spec.clusterQueue"
	case cq == nil:
		return metav1.ConditionFalse, kueue.ReasonClusterQueueDoesNotExist,
			fmt.Sprintf("ClusterQueue %q does not exist; create it or delete this LocalQueue", lq.Spec.ClusterQueue)
	case cq.DeletionTimestamp != nil, !apimeta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive):
		return metav1.ConditionFalse, kueue.ReasonClusterQueueIsInactive,
			fmt.Sprintf("ClusterQueue %q is inactive; its condition Active says why", lq.Spec.ClusterQueue)
	}
	return metav1.ConditionTrue, kueue.ReasonReady, "Can submit new workloads to its ClusterQueue"
}
