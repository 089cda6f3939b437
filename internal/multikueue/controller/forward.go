package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// waits says whether a Workload waits to be sent.
func waits(wl *kueue.Workload, check kueue.AdmissionCheckReference) bool {
	return checkIn(wl, check).State == kueue.CheckStatePending && wl.Status.ClusterName == "" && lifecycle.IsReserved(wl) && !lifecycle.IsEvicted(wl)
}

// checkIn is the state of a check, empty if the Workload has none of that name.
func checkIn(wl *kueue.Workload, check kueue.AdmissionCheckReference) kueue.AdmissionCheckState {
	if c := plan.CheckOf(wl, check); c != nil {
		return *c
	}
	return kueue.AdmissionCheckState{}
}

// patchKeys writes the labels and annotations that the local job gets from its copy. They come after its status.
func (w *workloads) patchKeys(ctx context.Context, s *sight, next *unstructured.Unstructured) error {
	current, err := plan.Tree(s.kind, s.job)
	if err != nil {
		return err
	}
	after := current.DeepCopy()
	after.SetLabels(next.GetLabels())
	after.SetAnnotations(next.GetAnnotations())
	if err := w.client.Patch(ctx, after, client.MergeFrom(current)); err != nil {
		return fmt.Errorf("writing labels and annotations of %s %s/%s: %w", s.kind.GVK.Kind, s.key.Namespace, s.jobName, err)
	}
	return nil
}

// maxSpecWrites is how often a copy is written in a row for one state of its job: mutations that are not satisfied then never will be. Writes
// that fail are none.
const maxSpecWrites = 3

// forwardSpec brings the copy up to date with its job.
func (w *workloads) forwardSpec(ctx context.Context, s *sight, conn *worker.Connection, there client.Object, todo *plan.JobStep) error {
	local := s.observed.Local
	if todo.SpecFault != nil {
		if e := external.As(todo.SpecFault); e != nil {
			w.noteFault(s, conn.Name(), plan.Fault{Code: e.Code, Text: e.Text, Located: true})
		}
		w.wake(s.key, deferred)
		return nil // the job runs on
	}
	f := w.external(s)
	if f == nil {
		return nil
	}
	if todo.Spec == nil {
		w.records.specInSync(local, conn.Name())
		return nil
	}
	input := specInput{there.GetUID(), s.job.GetGeneration()}
	if w.records.specsWritten(local, conn.Name(), input) >= maxSpecWrites {
		w.noteFault(s, conn.Name(), plan.Fault{Code: external.SpecFailed, Located: true, Text: fmt.Sprintf(
			"%s/specSync on %q: the mutations want another change after each of %d writes: they must come to an end", f.Name, conn.Name(), maxSpecWrites)})
		return nil
	}
	before, err := plan.Tree(s.kind, there.(job.Object))
	if err != nil {
		return err
	}
	next := before.DeepCopy()
	next.Object["spec"] = todo.Spec.Object["spec"]
	err = conn.Call(ctx, func(ctx context.Context, c client.Client) error {
		return c.Patch(ctx, next, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	switch {
	case err == nil:
		w.records.wroteSpec(local, conn.Name(), input)
		conn.Store(s.kind.GVK).Put(next)
	case !apierrors.IsConflict(err):
		w.noteFault(s, conn.Name(), plan.Fault{Code: external.SpecFailed, Text: fmt.Sprintf("%s/specSync on %q: %s", f.Name, conn.Name(), err), Located: true})
	}
	return err
}

// forward has the Workloads of jobs looked at that change, for kinds whose copies follow them. It begins when the first such job is read:
// before, the kind may not exist.
func (w *workloads) forward(ctx context.Context, d *job.Descriptor, f *external.Framework) {
	if len(f.SpecPaths) > 0 {
		w.followChanges(ctx, d)
	}
}

// followChanges has the Workloads of a job looked at when it asks for something else.
func (w *workloads) followChanges(ctx context.Context, d *job.Descriptor) {
	w.follow(ctx, d, cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, next any) {
		a, ok := old.(client.Object)
		b, both := next.(client.Object)
		if ok && both && a.GetGeneration() != b.GetGeneration() {
			w.wakeOwned(b)
		}
	}})
}

// wakeOwned has the Workloads of a job looked at.
func (w *workloads) wakeOwned(o client.Object) {
	w.wakeWhere(o.GetNamespace(), 0, func(ref *metav1.OwnerReference) bool { return ref.UID == o.GetUID() })
}

// wakeWhere has the Workloads looked at, after a while, that have an owner which matches.
func (m *shared) wakeWhere(namespace string, after time.Duration, match func(*metav1.OwnerReference) bool) {
	var list kueue.WorkloadList
	if err := m.cache.List(context.Background(), &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return // they are looked at by and by
	}
	for i := range list.Items {
		for j := range list.Items[i].OwnerReferences {
			if match(&list.Items[i].OwnerReferences[j]) {
				m.wake(client.ObjectKeyFromObject(&list.Items[i]), after)
			}
		}
	}
}

// endJob removes a job whose copy was evicted, where nothing on the worker stops it. Its Workload holds the quota until the job is gone,
// or runs no more.
func (w *workloads) endJob(ctx context.Context, s *sight, conn *worker.Connection) error {
	o := w.jobOf(conn, s)
	if o != nil && o.GetDeletionTimestamp() == nil {
		return conn.Delete(ctx, s.kind.GVK, o)
	}
	runs := false
	for i := range s.observed.Clusters {
		if c := &s.observed.Clusters[i]; c.Name == conn.Name() {
			runs = c.JobRuns
		}
	}
	if o != nil && runs {
		return nil
	}
	if copied, ok := conn.Store(worker.WorkloadKind).Get(s.key).(*kueue.Workload); ok && w.Plan.Owns(copied) {
		return deleteWorkload(ctx, conn, copied)
	}
	return nil
}
