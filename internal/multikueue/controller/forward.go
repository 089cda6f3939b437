package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

func waits(wl *kueue.Workload, check kueue.AdmissionCheckReference) bool {
	return checkIn(wl, check).State == kueue.CheckStatePending && wl.Status.ClusterName == "" && lifecycle.IsReserved(wl) && !lifecycle.IsEvicted(wl)
}

func checkIn(wl *kueue.Workload, check kueue.AdmissionCheckReference) kueue.AdmissionCheckState {
	if c := plan.CheckOf(wl, check); c != nil {
		return *c
	}
	return kueue.AdmissionCheckState{}
}

// patchKeys writes the labels and annotations that the local job takes from its copy. They come after its status.
func (w *workloads) patchKeys(ctx context.Context, s *observation, next *unstructured.Unstructured) error {
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

// maxSpecWrites bounds the successful writes of a copy in a row for one state of its job: mutations that still want a change then always
// will.
const maxSpecWrites = 3

func (w *workloads) forwardSpec(ctx context.Context, s *observation, conn *worker.Connection, there client.Object, todo *plan.JobStep) error {
	local := s.observed.Local
	if todo.SpecFault != nil {
		if e := external.As(todo.SpecFault); e != nil {
			w.noteFault(s, conn.Name(), plan.Fault{Code: e.Code, Text: e.Text, Located: true})
		}
		w.requeue(s.key, deferred)
		return nil // the job continues
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

// forward requeues the Workloads of changed jobs, for kinds whose spec is forwarded. It starts with the first such job: the kind may not
// exist before.
func (w *workloads) forward(ctx context.Context, d *job.Descriptor, f *external.Framework) {
	if len(f.SpecPaths) > 0 {
		w.followChanges(ctx, d)
	}
}

func (w *workloads) followChanges(ctx context.Context, d *job.Descriptor) {
	w.follow(ctx, d, cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, next any) {
		a, ok := old.(client.Object)
		b, both := next.(client.Object)
		if ok && both && a.GetGeneration() != b.GetGeneration() {
			w.requeueOwned(b.GetNamespace(), string(b.GetUID()), 0)
		}
	}})
}

// requeueOwned requeues the Workloads of an owner: see ownersOf.
func (m *shared) requeueOwned(namespace, owner string, after time.Duration) {
	list, err := m.owned(context.Background(), namespace, owner)
	if err != nil {
		return // requeued by a later event
	}
	for i := range list {
		m.requeue(client.ObjectKeyFromObject(&list[i]), after)
	}
}

// endJob deletes the job of an evicted copy that no controller on the worker cluster stops. The copy keeps its quota until the job is
// deleted or inactive.
func (w *workloads) endJob(ctx context.Context, s *observation, conn *worker.Connection) error {
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
