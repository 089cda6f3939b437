package evict

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/plan/lifecycle"
	"github.com/berth-project/berth/internal/reconcile"
)

// Follower evicts workloads that are deactivated or whose queue is stopped, and lets
// them back in afterwards.
type Follower struct {
	Client  client.Client
	Status  *reconcile.WorkloadStatus
	Events  reconcile.Events
	Machine lifecycle.Machine
	Now     func() time.Time
}

// Setup adds the controller to the manager.
func (f *Follower) Setup(mgr ctrl.Manager, workers int) error {
	specOnly := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).Named("workload").For(&kueue.Workload{}).
		Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(f.under), specOnly).
		Watches(&kueue.LocalQueue{}, handler.EnqueueRequestsFromMapFunc(f.inside), specOnly).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(f)
}

// world is what the decision about one workload depends on.
type world struct {
	wl                         *kueue.Workload
	localStopped, queueStopped kueue.StopPolicy // "" for running
}

// Reconcile decides about one workload and makes at most one write.
func (f *Follower) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var wl kueue.Workload
	if err := f.Client.Get(ctx, req.NamespacedName, &wl); err != nil {
		return ctrlreconcile.Result{}, client.IgnoreNotFound(err)
	}
	if lifecycle.IsFinished(&wl) {
		return ctrlreconcile.Result{}, nil
	}
	w := world{wl: &wl}
	if err := f.gather(ctx, &w); err != nil {
		return ctrlreconcile.Result{}, err
	}
	wasEvicted := lifecycle.IsEvicted(&wl)
	stored, wrote, err := f.Status.Transition(ctx, &wl, func(next *kueue.Workload) bool {
		w.wl = next
		return f.decide(w, metav1.NewTime(f.Now()))
	})
	if err != nil {
		return reconcile.Retry(client.IgnoreNotFound(err)).Result(ctx)
	}
	if wrote && !wasEvicted && lifecycle.IsEvicted(stored) && stored.Status.Admission != nil {
		c := lifecycle.Condition(stored, kueue.WorkloadEvicted)
		f.Events.Normal(stored, "EvictedDueTo"+c.Reason, c.Message)
	}
	return ctrlreconcile.Result{}, nil
}

// gather finds out whether the queues are stopped: those that the workload waits in,
// or holds quota of.
func (f *Follower) gather(ctx context.Context, w *world) error {
	var lq kueue.LocalQueue
	key := types.NamespacedName{Namespace: w.wl.Namespace, Name: string(w.wl.Spec.QueueName)}
	if err := f.Client.Get(ctx, key, &lq); err != nil {
		return ignoreMissing(err)
	}
	w.localStopped = running(lq.Spec.StopPolicy)
	name := lq.Spec.ClusterQueue
	if a := w.wl.Status.Admission; a != nil {
		name = a.ClusterQueue
	}
	var cq kueue.ClusterQueue
	if err := f.Client.Get(ctx, types.NamespacedName{Name: string(name)}, &cq); err != nil {
		return ignoreMissing(err)
	}
	w.queueStopped = running(cq.Spec.StopPolicy)
	return nil
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func running(p kueue.StopPolicy) kueue.StopPolicy {
	if p == kueue.StopPolicyNone {
		return ""
	}
	return p
}

// decide changes the workload's status as its deactivation or its queues' stop
// policies demand, and tells whether it did. spec: 10 §4.10 steps 6 to 8, §4.12.
func (f *Follower) decide(w world, now metav1.Time) bool {
	wl := w.wl
	if !lifecycle.IsActive(wl) {
		return f.Machine.Deactivate(wl, now)
	}
	stopped, reason, what := w.queueStopped, kueue.ReasonClusterQueueStopped, "ClusterQueue"
	if w.localStopped != "" {
		stopped, reason, what = w.localStopped, kueue.ReasonLocalQueueStopped, "LocalQueue"
	}
	if lifecycle.IsReserved(wl) && stopped != "" {
		message := fmt.Sprintf("The %s is stopped (stopPolicy %s)", what, stopped)
		switch {
		case !lifecycle.IsAdmitted(wl) && !lifecycle.IsEvicted(wl):
			return f.Machine.Pending(wl, kueue.ReasonSuspended, message, now)
		case stopped == kueue.StopPolicyHoldAndDrain:
			return f.Machine.Evict(wl, reason, "", message, now)
		}
		return false
	}
	return f.readmit(w, now)
}

// readmit lets an evicted workload back into line once the reason is gone.
func (f *Follower) readmit(w world, now metav1.Time) bool {
	if !lifecycle.IsRequeueBlocked(w.wl) || lifecycle.IsReserved(w.wl) {
		return false
	}
	switch reason := lifecycle.Condition(w.wl, kueue.WorkloadRequeued).Reason; {
	case strings.HasPrefix(reason, kueue.ReasonDeactivated):
		return f.Machine.Requeue(w.wl, kueue.ReasonReactivated, "The workload is active again", now)
	case reason == kueue.ReasonClusterQueueStopped && w.queueStopped == "":
		return f.Machine.Requeue(w.wl, kueue.ReasonClusterQueueRestarted, "The ClusterQueue runs again", now)
	case reason == kueue.ReasonLocalQueueStopped && w.localStopped == "":
		return f.Machine.Requeue(w.wl, kueue.ReasonLocalQueueRestarted, "The LocalQueue runs again", now)
	}
	return false
}

// under maps a ClusterQueue to the workloads that wait in it or hold its quota.
func (f *Follower) under(ctx context.Context, cq client.Object) []ctrlreconcile.Request {
	var queues kueue.LocalQueueList
	if err := f.Client.List(ctx, &queues); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing LocalQueues")
		return nil
	}
	entrance := map[types.NamespacedName]bool{}
	for i := range queues.Items {
		if string(queues.Items[i].Spec.ClusterQueue) == cq.GetName() {
			entrance[client.ObjectKeyFromObject(&queues.Items[i])] = true
		}
	}
	return f.workloads(ctx, "", func(wl *kueue.Workload) bool {
		a := wl.Status.Admission
		return entrance[types.NamespacedName{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}] ||
			(a != nil && string(a.ClusterQueue) == cq.GetName())
	})
}

// inside maps a LocalQueue to its workloads.
func (f *Follower) inside(ctx context.Context, lq client.Object) []ctrlreconcile.Request {
	return f.workloads(ctx, lq.GetNamespace(), func(wl *kueue.Workload) bool {
		return string(wl.Spec.QueueName) == lq.GetName()
	})
}

func (f *Follower) workloads(ctx context.Context, namespace string, match func(*kueue.Workload) bool) []ctrlreconcile.Request {
	var list kueue.WorkloadList
	if err := f.Client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Workloads")
		return nil
	}
	var out []ctrlreconcile.Request
	for i := range list.Items {
		if match(&list.Items[i]) {
			out = append(out, ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}
