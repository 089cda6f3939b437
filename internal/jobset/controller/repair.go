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
		WatchesRawSource(source.Kind(o.Pods, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(exclusive))).
		WithOptions(reconcile.ControllerOptions(o.Workers)).
		Complete(whenActive(o.Active, r))
}

// exclusive asks for a look at a pod that is placed exclusively.
func exclusive(_ context.Context, pod *corev1.Pod) []ctrlreconcile.Request {
	if !plan.IsExclusive(pod) {
		return nil
	}
	return []ctrlreconcile.Request{request(pod.Namespace, pod.Name)}
}

// Reconcile checks a follower, or all followers of a leader: each pod of a Job changes some times, so no change of a follower may cost a look at all.
func (r *repairer) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var pod corev1.Pod
	if err := r.pods.Get(ctx, req.NamespacedName, &pod); err != nil {
		return reconcile.Retry(client.IgnoreNotFound(err)).Result(ctx)
	}
	if plan.IsLeader(&pod) {
		if !plan.IsPlacedLeader(&pod) {
			return ctrlreconcile.Result{}, nil
		}
		pods, err := list(ctx, r.pods, pod.Namespace, client.MatchingFields{podsByJob: plan.JobOf(&pod)})
		if err == nil {
			err = r.check(ctx, &pod, pods)
		}
		return reconcile.Retry(err).Result(ctx)
	}
	leaders, err := LeadersIn(r.pods)(ctx, pod.Namespace, &pod)
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	if leader, err := plan.LeaderOf(&pod, leaders); err == nil && plan.IsPlacedLeader(leader) {
		return reconcile.Retry(r.check(ctx, leader, []*corev1.Pod{&pod})).Result(ctx)
	}
	return ctrlreconcile.Result{}, nil // an event of the leader follows
}

// check removes the followers among some pods that are in another domain than their leader, which has a node.
func (r *repairer) check(ctx context.Context, leader *corev1.Pod, pods []*corev1.Pod) error {
	node, err := metadata(ctx, r.client, "Node", "", leader.Spec.NodeName)
	if err != nil {
		return err
	}
	misplaced, err := plan.Misplaced(leader, pods, node)
	if err != nil {
		return err
	}
	var work []func() error
	for _, pod := range misplaced {
		work = append(work, func() error { return r.remove(ctx, pod) })
	}
	return errors.Join(r.turns.atOnce(work)...)
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
