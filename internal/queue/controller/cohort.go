package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/reconcile"
)

// cohorts writes the status of Cohorts: their fair share, if there is fair sharing.
type cohorts struct{ writer }

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=cohorts,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=cohorts/status,verbs=patch,roleName=kueue-manager-queues-role

func (r *cohorts) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cohort kueue.Cohort
	return r.inTurn(ctx, req.NamespacedName, &cohort, func(turn turn) (ctrl.Result, error) {
		share, known := r.engine.Model().CohortShare(cohort.Name)
		if !known {
			return ctrl.Result{RequeueAfter: delay}, nil // the feed reports it soon
		}
		before := cohort.DeepCopy()
		cohort.Status.FairSharing = fairSharing(share)
		if equality.Semantic.DeepEqual(before.Status, cohort.Status) {
			return ctrl.Result{}, nil
		}
		rest, err := turn.write(ctx, r.client, &cohort, client.MergeFrom(before), true)
		if err != nil {
			return reconcile.Retry(err).Result(ctx)
		}
		return ctrl.Result{RequeueAfter: rest}, nil
	})
}

// fairSharing returns the status of a share. spec: 20 §2.1, §4.1.
func fairSharing(share *quota.Share) *kueue.FairSharingStatus {
	if share == nil {
		return nil
	}
	return &kueue.FairSharingStatus{WeightedShare: share.Ceil()}
}
