package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// maxTries bounds the attempts of a write with conflicts. spec: 70 §4.11.
const maxTries = 5

// podManager is the field manager of the labels of pods.
const podManager = client.FieldOwner("berth-import")

// writer executes plans. Safe for concurrent use.
type writer struct {
	client   client.Client
	status   *reconcile.WorkloadStatus
	importer *Import
	world    *world
}

// result is the outcome of a pod.
type result struct {
	plan    *plan // nil if there is none
	changed bool  // something was written
	gone    bool  // the pod ended or was deleted meanwhile
	err     error
}

func (r *result) said() string {
	if r.changed {
		return "imported"
	}
	return "was imported before"
}

// importPod plans the import of a pod and executes it: its Workload, the admission, the pod's labels, in this order. The labels are
// written last because a manager stops labeled pods without an admission: an interrupted run must leave no such pod.
func (t *writer) importPod(ctx context.Context, pod *corev1.Pod) (r result) {
	if r.plan, r.err = t.importer.plan(t.world, pod); r.err != nil || r.plan.skip {
		return r
	}
	var w *kueue.Workload
	created := false
	for _, step := range []func() (changed bool, err error){
		func() (changed bool, err error) {
			w, created, err = t.ensure(ctx, r.plan)
			return created, err
		},
		func() (bool, error) { return t.admit(ctx, r.plan, w) },
		func() (bool, error) { return t.label(ctx, pod, r.plan) },
	} {
		changed := false
		r.err = patiently(ctx, func() (err error) {
			changed, err = step()
			return err
		})
		r.changed = r.changed || changed
		if apierrors.IsNotFound(r.err) {
			return result{plan: r.plan, gone: true, err: t.withdraw(ctx, w, created)}
		}
		if r.err != nil {
			break
		}
	}
	return r
}

// withdraw deletes the Workload that was made for a pod that ended before it got its labels: no manager might ever process it.
func (t *writer) withdraw(ctx context.Context, w *kueue.Workload, created bool) error {
	if !created {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": w.UID, "finalizers": nil}})
	if err != nil {
		return err
	}
	err = t.client.Patch(ctx, w.DeepCopy(), client.RawPatch(types.MergePatchType, body), podManager)
	if err == nil {
		err = t.client.Delete(ctx, w, client.Preconditions{UID: &w.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Workload %s of a pod that ended meanwhile: %w", w.Name, err)
	}
	return nil
}

// label sets the pod's labels, unless another pod has its name by now.
func (t *writer) label(ctx context.Context, pod *corev1.Pod, p *plan) (bool, error) {
	if len(p.labels) == 0 {
		return false, nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": p.labels}})
	if err != nil {
		return false, err
	}
	err = t.client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, body), podManager)
	if err != nil && !apierrors.IsNotFound(err) {
		err = fmt.Errorf("labeling the pod: %w", err)
	}
	return err == nil, err
}

// ensure creates the Workload, or returns the existing one if it describes the pod.
func (t *writer) ensure(ctx context.Context, p *plan) (w *kueue.Workload, changed bool, err error) {
	w = p.workload.DeepCopy()
	err = t.client.Create(ctx, w, client.FieldOwner(lookup.Manager(descriptor)))
	switch {
	case err == nil:
		return w, true, nil
	case !apierrors.IsAlreadyExists(err):
		return nil, false, fmt.Errorf("creating Workload %s: %w", p.workload.Name, err)
	}
	return t.existing(ctx, p)
}

// existing returns the existing Workload. One without an owner that the pod names is adopted.
func (t *writer) existing(ctx context.Context, p *plan) (w *kueue.Workload, changed bool, err error) {
	w = &kueue.Workload{}
	if err := t.client.Get(ctx, client.ObjectKeyFromObject(p.workload), w); err != nil {
		return nil, false, fmt.Errorf("reading Workload %s: %w", p.workload.Name, err)
	}
	owner := metav1.GetControllerOf(w)
	if owner == nil && settings.PrebuiltName(p.observed.Job) != "" {
		before := w.DeepCopy()
		w.OwnerReferences = append(w.OwnerReferences, p.workload.OwnerReferences...)
		metav1.SetMetaDataLabel(&w.ObjectMeta, kueue.JobUIDLabel, p.workload.Labels[kueue.JobUIDLabel])
		if !decide.Describes(settings, descriptor, p.observed, w) {
			return nil, false, fmt.Errorf("workload %s, which the pod names, does not describe it", w.Name)
		}
		err := t.client.Patch(ctx, w, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(lookup.Manager(descriptor)))
		if err != nil {
			return nil, false, fmt.Errorf("taking over Workload %s: %w", w.Name, err)
		}
		return w, true, nil
	}
	return w, false, t.fits(p, w, owner)
}

// fits returns the reason why a Workload cannot be admitted for the pod.
func (t *writer) fits(p *plan, w *kueue.Workload, owner *metav1.OwnerReference) error {
	switch {
	case owner == nil || owner.UID != p.observed.Job.GetUID():
		return fmt.Errorf("workload %s is there already and belongs to another object: delete it", w.Name)
	case w.DeletionTimestamp != nil:
		return fmt.Errorf("workload %s is being deleted: wait until it is gone", w.Name)
	case lifecycle.IsFinished(w):
		return fmt.Errorf("workload %s is finished: delete it", w.Name)
	case lifecycle.IsEvicted(w) || !lifecycle.IsActive(w):
		return fmt.Errorf("workload %s was evicted or deactivated after it was imported: its manager is about to stop the pod", w.Name)
	case w.Spec.QueueName != p.workload.Spec.QueueName:
		return fmt.Errorf("workload %s is in the queue %s already, and not in %s", w.Name, w.Spec.QueueName, p.workload.Spec.QueueName)
	case !decide.Describes(settings, descriptor, p.observed, w):
		return fmt.Errorf("workload %s does not describe the pod: delete it", w.Name)
	}
	return nil
}

// admit admits the Workload. After a conflict it reads the Workload and retries, a few times.
func (t *writer) admit(ctx context.Context, p *plan, w *kueue.Workload) (changed bool, err error) {
	for try := 1; ; try++ {
		next := w.DeepCopy()
		if !settings.Lifecycle.Import(next, p.admission.DeepCopy(), p.checks, t.importer.Now()) {
			return false, nil
		}
		if _, err = t.status.Strict(ctx, next); err == nil || !apierrors.IsConflict(err) || try == maxTries {
			return err == nil, err
		}
		if w, _, err = t.existing(ctx, p); err != nil {
			return false, err
		}
	}
}

// patiently retries a call when the API server asks for that, after the requested delay.
func patiently(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		status, _ := errors.AsType[*apierrors.StatusError](err)
		if status == nil || try == maxTries {
			return err
		}
		seconds, later := apierrors.SuggestsClientDelay(status)
		if !later {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(max(seconds, 1)) * time.Second):
		}
	}
}
