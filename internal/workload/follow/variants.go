package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	plan "github.com/berth-project/berth/internal/workload/plan/variants"
)

// maxSteps bounds the writes of one reconcile: more than a parent with all its variants ever needs at once.
const maxSteps = 100

// byParent is the index of variants by the UID of their parent.
const byParent = "variants.parent"

// Divider keeps the variants of Workloads in ClusterQueues with a concurrentAdmissionPolicy. Package internal/workload/plan/variants decides;
// this one reads its input, makes the writes one after another, and emits the events. spec: 20 §4.13.
type Divider struct {
	Client client.Client
	Reader client.Reader // reads past the cache
	Status *reconcile.WorkloadStatus
	Events reconcile.Events
	Plan   plan.Config
	Now    func() time.Time
}

// Setup adds the controller to the manager.
func (d *Divider) Setup(ctx context.Context, mgr ctrl.Manager, workers int) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, byParent, func(o client.Object) []string {
		if owner := parentOf(o); owner != nil {
			return []string{string(owner.UID)}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("variants").WithOptions(reconcile.ControllerOptions(workers)).
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(toParent), builder.WithPredicates(predicate.NewPredicateFuncs(d.concerns)))
	if d.Plan.On {
		edited := builder.WithPredicates(reconcile.EditedLater())
		b = b.Watches(&kueue.ClusterQueue{}, handler.EnqueueRequestsFromMapFunc(d.under), edited).
			Watches(&kueue.LocalQueue{}, handler.EnqueueRequestsFromMapFunc(d.inside), edited)
	}
	return b.Complete(d)
}

// concerns reports whether a Workload may need a write. With the feature gate off that is what an earlier manager left: parents and variants.
func (d *Divider) concerns(o client.Object) bool {
	w, is := o.(*kueue.Workload)
	return d.Plan.On || (is && (lifecycle.IsParent(w) || parentOf(w) != nil))
}

// parentOf returns the owner of a Workload that may be a variant, whatever its annotations are; nil for none.
func parentOf(o client.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != "Workload" || owner.APIVersion != kueue.GroupVersion.String() {
		return nil
	}
	return owner
}

// toParent maps a variant to its parent, and any other Workload to itself.
func toParent(_ context.Context, o client.Object) []ctrlreconcile.Request {
	key := client.ObjectKeyFromObject(o)
	if owner := parentOf(o); owner != nil {
		key.Name = owner.Name
	}
	return []ctrlreconcile.Request{{NamespacedName: key}}
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/status,verbs=update;patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=clusterqueues;localqueues,verbs=get;list;watch

// Reconcile makes the writes of one Workload, if it is a parent or is to be one. Each starts from the outcomes of those before, which the
// cache may not show yet.
func (d *Divider) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	o, err := d.observe(ctx, req.NamespacedName)
	if err != nil || o == nil {
		return reconcile.Retry(err).Result(ctx)
	}
	var failed []error
	for range maxSteps {
		step := d.Plan.Next(o)
		if step.Guarded {
			if step, err = d.confirm(ctx, o, step); err != nil {
				return reconcile.Retry(err).Result(ctx)
			}
		}
		if step.Verb == plan.Nothing {
			return outcome(&step, o.Now, failed).Result(ctx)
		}
		stored, err := d.write(ctx, &step)
		if step.Verb == plan.Create && err != nil && !apierrors.IsAlreadyExists(err) { // the other steps do not wait for it
			d.Events.Warning(o.Parent, "FailedCreateVariant", err.Error())
			o.Failed, failed = append(o.Failed, plan.FlavorOf(step.Workload)), append(failed, err)
			continue
		}
		if err != nil {
			return reconcile.Retry(err).Result(ctx)
		}
		for _, e := range step.Events {
			d.Events.Normal(e.About, e.Reason, e.Note)
		}
		if stored == nil && step.Verb != plan.Delete {
			return ctrlreconcile.Result{}, nil // its event comes
		}
		o.Apply(&step, stored)
	}
	return reconcile.Wait(0).Result(ctx)
}

// outcome returns the outcome of a reconcile that has nothing more to do, after failed creations.
func outcome(last *plan.Step, now metav1.Time, failed []error) reconcile.Outcome {
	switch {
	case len(failed) > 0:
		return reconcile.Retry(errors.Join(failed...))
	case last.Wake.IsZero():
		return reconcile.Done()
	}
	return reconcile.Wait(last.Wake.Sub(now.Time))
}

// observe reads a Workload and its variants from the cache; nil if it does not exist. They are not to be changed.
func (d *Divider) observe(ctx context.Context, key types.NamespacedName) (*plan.Observed, error) {
	parent := &kueue.Workload{}
	if err := d.Client.Get(ctx, key, parent, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	o := &plan.Observed{Parent: parent, Now: metav1.NewTime(d.Now())}
	var list kueue.WorkloadList
	err := d.Client.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{byParent: string(parent.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	o.Variants = reconcile.Pointers(list.Items)
	if d.Plan.On {
		o.Queue, err = d.queueOf(ctx, parent)
	}
	return o, err
}

// queueOf returns the ClusterQueue to which the LocalQueue of a Workload leads, nil if there is none.
func (d *Divider) queueOf(ctx context.Context, w *kueue.Workload) (*kueue.ClusterQueue, error) {
	lq, cq := &kueue.LocalQueue{}, &kueue.ClusterQueue{}
	if w.Spec.QueueName == "" {
		return nil, nil
	}
	err := d.Client.Get(ctx, entranceOf(w), lq, client.UnsafeDisableDeepCopy)
	if err == nil {
		err = d.Client.Get(ctx, types.NamespacedName{Name: string(lq.Spec.ClusterQueue)}, cq, client.UnsafeDisableDeepCopy)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return cq, nil
}

// errLags reports that the cache is behind.
func errLags(w *kueue.Workload) error {
	return apierrors.NewConflict(kueue.Resource("workloads"), w.Name, fmt.Errorf("the cache shows an old version of a Workload that decides about it"))
}

// confirm reads the parent and its variants again, past the cache, and returns the step that follows. It must be the same one: otherwise
// the cache lags behind, and the Workload is reconciled again.
func (d *Divider) confirm(ctx context.Context, o *plan.Observed, step plan.Step) (plan.Step, error) {
	fresh := &plan.Observed{Queue: o.Queue, Now: o.Now, Failed: o.Failed}
	for i, w := range append([]*kueue.Workload{o.Parent}, o.Variants...) {
		live := &kueue.Workload{}
		switch err := d.Reader.Get(ctx, client.ObjectKeyFromObject(w), live); {
		case apierrors.IsNotFound(err) && i > 0:
			continue
		case err != nil:
			return step, err
		case live.UID != w.UID:
			return step, errLags(w)
		}
		if i == 0 {
			fresh.Parent = live
		} else {
			fresh.Variants = append(fresh.Variants, live)
		}
	}
	again := d.Plan.Next(fresh)
	if again.String() != step.String() {
		return step, errLags(step.Workload)
	}
	*o = *fresh
	return again, nil
}

// write carries out a step, and returns the Workload as stored; nil if it was deleted, or is not known.
func (d *Divider) write(ctx context.Context, step *plan.Step) (stored *kueue.Workload, err error) {
	w := step.Workload.DeepCopy()
	switch step.Verb {
	case plan.Nothing:
	case plan.Patch:
		err = d.Client.Patch(ctx, w, client.MergeFromWithOptions(step.Was, client.MergeFromWithOptimisticLock{}))
	case plan.Create:
		err = d.Client.Create(ctx, w)
	case plan.Delete:
		uid := w.UID
		err = client.IgnoreNotFound(d.Client.Delete(ctx, w, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
		w = nil
	case plan.WriteStatus:
		w, err = d.Status.Strict(ctx, w)
	case plan.WritePodsReady:
		return nil, d.Status.PodsReady(ctx, w)
	case plan.WriteReclaimable:
		return nil, d.Status.ReclaimablePods(ctx, w)
	}
	if err != nil {
		return nil, fmt.Errorf("writing workload %s/%s (%s): %w", step.Workload.Namespace, step.Workload.Name, step, err)
	}
	return w, nil
}

// under maps a ClusterQueue to the Workloads of its LocalQueues that may have variants.
func (d *Divider) under(ctx context.Context, cq client.Object) []ctrlreconcile.Request {
	entrance := entrances(ctx, d.Client, cq)
	return reconcile.Matching(ctx, d.Client, &kueue.WorkloadList{}, "Workloads", func(w *kueue.Workload) bool {
		return parentOf(w) == nil && entrance[entranceOf(w)]
	})
}

func (d *Divider) inside(ctx context.Context, lq client.Object) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, d.Client, &kueue.WorkloadList{}, "Workloads", func(w *kueue.Workload) bool {
		return parentOf(w) == nil && string(w.Spec.QueueName) == lq.GetName()
	}, client.InNamespace(lq.GetNamespace()))
}
