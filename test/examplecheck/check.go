// Package examplecheck is an admission check by example: copy it to write your own. It approves Workloads that say who
// pays for them. A Workload that has reserved quota in a ClusterQueue with such a check is admitted once it carries the
// annotation
//
//	example.com/cost-center: "4711"      approved; its pods get the label example.com/cost-center
//	example.com/cost-center: ask-later   asks again after the seconds of example.com/ask-after (default 60)
//	example.com/cost-center: none        rejected: the Workload is deactivated
//
// and waits without it. It is built like the checks inside Berth (internal/check), and needs nothing of Berth but its API types. Two
// functions decide, and neither reads or writes:
//
//	active   whether an AdmissionCheck is usable: its condition Active
//	plan     the entry of the check in a Workload that holds quota
//
// A third one, cleanup, would name the objects that a Workload does not need any more; this check creates none. The two controllers read,
// carry the decisions out, and repeat that after every event, so that they may be interrupted anywhere. They change entries of this check
// only, never add one, and never write the same answer twice.
package examplecheck

import (
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// ControllerName is the spec.controllerName of AdmissionChecks that this controller answers.
const ControllerName = "example.com/cost-center"

// The annotations of a Workload. Integrations copy them from the job if they are configured to.
const (
	costCenter = "example.com/cost-center"
	askAfter   = "example.com/ask-after"
)

// fieldOwner is the field manager of the status.
const fieldOwner = client.FieldOwner("example.com-cost-center")

// Setup adds both controllers to a manager, whose scheme has to know kueue.x-k8s.io/v1beta2.
func Setup(mgr ctrl.Manager) error {
	c := mgr.GetClient()
	if err := ctrl.NewControllerManagedBy(mgr).Named("example-check").For(&kueue.AdmissionCheck{}).Complete(&checks{c}); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("example-check-workloads").For(&kueue.Workload{}).Complete(&workloads{c})
}

// checks sets the condition Active of its AdmissionChecks: before that their ClusterQueues are inactive.
type checks struct{ client.Client }

// Reconcile sets the condition Active.
func (r *checks) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var check kueue.AdmissionCheck
	if err := r.Get(ctx, req.NamespacedName, &check); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if check.Spec.ControllerName != ControllerName {
		return ctrl.Result{}, nil
	}
	before := check.DeepCopy()
	if !apimeta.SetStatusCondition(&check.Status.Conditions, active(&check)) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Status().Patch(ctx, &check, client.MergeFrom(before), fieldOwner)
}

// workloads answers its checks in Workloads.
type workloads struct{ client.Client }

// Reconcile evaluates one Workload. The manager of the queues lists the checks that it needs as Pending, resets them after an eviction,
// and counts the retries: a check's controller only ever changes entries that exist and are Pending.
func (r *workloads) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var wl kueue.Workload
	if err := r.Get(ctx, req.NamespacedName, &wl); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !holds(&wl) {
		return ctrl.Result{}, nil // quota first; evicted Workloads get no answer
	}
	before := wl.DeepCopy()
	for i, entry := range wl.Status.AdmissionChecks {
		ours, err := r.ours(ctx, entry.Name)
		if err != nil {
			return ctrl.Result{}, err
		}
		if ours {
			wl.Status.AdmissionChecks[i] = plan(before, entry, metav1.Now())
		}
	}
	if equality.Semantic.DeepEqual(before.Status, wl.Status) {
		return ctrl.Result{}, nil
	}
	// With the lock no other writer's update is overwritten: a conflict comes back here with it.
	lock := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return ctrl.Result{}, r.Status().Patch(ctx, &wl, lock, fieldOwner)
}

// ours reports whether this controller answers a check.
func (r *workloads) ours(ctx context.Context, name kueue.AdmissionCheckReference) (bool, error) {
	var check kueue.AdmissionCheck
	if err := r.Get(ctx, client.ObjectKey{Name: string(name)}, &check); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return check.Spec.ControllerName == ControllerName, nil
}

// active decides the condition Active of an AdmissionCheck: this one needs no parameters.
func active(check *kueue.AdmissionCheck) metav1.Condition {
	return metav1.Condition{
		Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: kueue.ReasonActive,
		Message: "Cost centers are checked", ObservedGeneration: check.Generation,
	}
}

// holds reports whether a Workload has a quota reservation that checks decide about.
func holds(wl *kueue.Workload) bool {
	is := func(condition string) bool { return apimeta.IsStatusConditionTrue(wl.Status.Conditions, condition) }
	return is(kueue.WorkloadQuotaReserved) && !is(kueue.WorkloadEvicted) && !is(kueue.WorkloadFinished)
}

// plan decides about a Workload, and returns the entry of the check as it is to be. Only Pending is answered.
func plan(wl *kueue.Workload, entry kueue.AdmissionCheckState, now metav1.Time) kueue.AdmissionCheckState {
	center := wl.Annotations[costCenter]
	if entry.State != kueue.CheckStatePending || center == "" {
		return entry // it waits for the annotation
	}
	entry.LastTransitionTime = now
	switch center {
	case "none":
		entry.State, entry.Message = kueue.CheckStateRejected, "Nobody pays for this workload"
	case "ask-later":
		seconds, err := strconv.ParseInt(wl.Annotations[askAfter], 10, 32)
		if err != nil || seconds < 0 {
			seconds = 60
		}
		entry.State, entry.Message = kueue.CheckStateRetry, "The cost center is not known yet"
		entry.RequeueAfterSeconds = new(int32(seconds))
	default:
		entry.State, entry.Message = kueue.CheckStateReady, "Paid by cost center "+center
		entry.PodSetUpdates = nil
		for _, ps := range wl.Spec.PodSets {
			entry.PodSetUpdates = append(entry.PodSetUpdates, kueue.PodSetUpdate{Name: ps.Name, Labels: map[string]string{costCenter: center}})
		}
	}
	return entry
}
