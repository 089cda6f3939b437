package controller

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/reconcile"
)

// repairer removes followers that are bound to another domain than their leader: the leader died after they were
// created and restarted elsewhere (spec: 60 §4.10). Correctly placed followers stay.
type repairer struct {
	client client.Client
	pods   client.Reader
	turns  turns
	now    func() time.Time
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch,roleName=kueue-manager-jobset-role

func (r *repairer) setup(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("pod").
		WatchesRawSource(source.Kind(o.Pods, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(r.leaders))).
		WithOptions(reconcile.ControllerOptions(o.Workers)).
		Complete(whenActive(o.Active, r))
}

// leaders returns the leader that a change of a pod affects: the pod itself, or the leader of a follower.
func (r *repairer) leaders(ctx context.Context, pod *corev1.Pod) []ctrlreconcile.Request {
	switch {
	case !plan.IsExclusive(pod):
		return nil
	case plan.IsLeader(pod):
		return []ctrlreconcile.Request{request(pod.Namespace, pod.Name)}
	}
	pods, err := list(ctx, r.pods, pod.Namespace, client.MatchingFields{PodsByJob: pod.Labels[jobsetv1alpha2.JobKeyKey]})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "The leader of a pod cannot be found", "pod", pod.Name)
		return nil
	}
	leader, err := plan.LeaderOf(pod, pods)
	if err != nil {
		return nil // its own event requeues the leader later
	}
	return []ctrlreconcile.Request{request(leader.Namespace, leader.Name)}
}

// Reconcile checks the followers of one leader.
func (r *repairer) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var leader corev1.Pod
	if err := r.pods.Get(ctx, req.NamespacedName, &leader); err != nil {
		return reconcile.Retry(client.IgnoreNotFound(err)).Result(ctx)
	}
	if !plan.IsPlacedLeader(&leader) {
		return ctrlreconcile.Result{}, nil
	}
	node, err := metadata(ctx, r.client, "Node", "", leader.Spec.NodeName)
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	pods, err := list(ctx, r.pods, leader.Namespace, client.MatchingFields{PodsByJob: leader.Labels[jobsetv1alpha2.JobKeyKey]})
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	misplaced, err := plan.Misplaced(&leader, pods, node)
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	var work []func() error
	for _, pod := range misplaced {
		work = append(work, func() error { return r.remove(ctx, pod) })
	}
	return reconcile.Retry(errors.Join(r.turns.atOnce(work)...)).Result(ctx)
}

// remove marks a pod as disrupted, so that a pod failure policy can ignore its end, and deletes it.
func (r *repairer) remove(ctx context.Context, pod *corev1.Pod) error {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if !isDisrupted(pod) {
		data, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": pod.UID},
			"status": map[string]any{"conditions": []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: jobsetv1alpha2.ReasonExclusivePlacementViolation,
				Message: "the pod is bound to another topology domain than its leader is in", LastTransitionTime: metav1.NewTime(r.now()),
			}}},
		})
		if err != nil {
			return err
		}
		if err := r.client.Status().Patch(ctx, object, client.RawPatch(types.StrategicMergePatchType, data)); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	err := r.client.Delete(ctx, object, client.Preconditions{UID: &pod.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	return client.IgnoreNotFound(err)
}

func isDisrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}
