package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	multikueueplan "github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	plan "github.com/berth-project/berth/internal/workload/plan/slices"
)

func (w *workloads) observeSlices(ctx context.Context, s *observation) error {
	local := s.observed.Local
	if !w.Plan.Elastic || !job.IsElastic(local) {
		return nil
	}
	list, err := w.owned(ctx, s.key.Namespace, plan.Owner(local))
	if err != nil {
		return fmt.Errorf("listing the slices of %s %s/%s: %w", s.kind.GVK.Kind, s.key.Namespace, s.jobName, err)
	}
	facts := &s.observed.Job
	s.slices = []*kueue.Workload{local}
	for i := range list {
		other := &list[i]
		if other.UID == local.UID || lifecycle.IsFinished(other) || !plan.SameOwner(other, local) {
			continue
		}
		s.slices = append(s.slices, other)
		facts.Others = true
		facts.ReplacedBy = facts.ReplacedBy || (plan.Replaces(other) == local.Name && lifecycle.IsReserved(other))
		facts.Replaces = facts.Replaces || plan.Replaces(local) == other.Name
	}
	return nil
}

// followsChildren reports whether following the job needs the children of its copy. Only gated services do.
func (w *workloads) followsChildren(s *observation) bool {
	return s.kind.Remote.Follow != nil && job.IsElastic(s.observed.Local) && s.kind.ManagedChildren.Upgrades.GatesChildren(w.Jobs)
}

// syncElastic synchronizes an elastic job and its copy. The copy comes first: what the job learns from it may bring the next slice.
func (w *workloads) syncElastic(ctx context.Context, s *observation, conn *worker.Connection, there client.Object, create bool) error {
	remote, ok := there.(job.Object)
	if s.kind.Remote.Follow == nil || !ok {
		return nil
	}
	in := &job.Setting{Config: w.Jobs, Children: childrenOf(conn, s.kind.ManagedChildren.Child, there), Workloads: s.slices}
	by := s.observed.Local
	if !create || s.observed.Job.ReplacedBy || !lifecycle.IsAdmitted(by) { // until then the job may still change
		by = nil
	}
	next, err := w.Plan.Follow(s.kind, s.job, remote, by, in)
	if err == nil && next.Remote != nil {
		err = w.forwardTo(ctx, s, conn, there, next.Remote)
	}
	if err == nil && next.Local != nil {
		err = w.patchKeys(ctx, s, next.Local)
	}
	return err
}

// forwardTo writes a copy that follows its job, unless its worker cluster reverts that each time.
func (w *workloads) forwardTo(ctx context.Context, s *observation, conn *worker.Connection, there client.Object, next *unstructured.Unstructured) error {
	local, input := s.observed.Local, specInput{there.GetUID(), s.job.GetGeneration()}
	if w.records.specsWritten(local, conn.Name(), input) >= maxFollows {
		w.noteFault(s, conn.Name(), multikueueplan.Fault{Code: external.SpecFailed, Located: true, Text: fmt.Sprintf(
			"%s on %q is changed back after each write", s.kind.GVK.Kind, conn.Name())})
		return nil
	}
	return w.noteForwarded(s, conn.Name(), input, w.resize(ctx, s, conn, there, next))
}

// noteForwarded notes the result of forwarding a change. For want of the permission the job continues, and the check reports it.
func (w *workloads) noteForwarded(s *observation, cluster string, input specInput, err error) error {
	switch {
	case err == nil:
		w.records.wroteSpec(s.observed.Local, cluster, input)
	case apierrors.IsForbidden(err):
		w.requeue(s.key, againAfterRefusal)
		return nil
	}
	return err
}

// againAfterRefusal is when a change is forwarded again that the worker cluster refused.
const againAfterRefusal = time.Minute

// maxFollows bounds the writes of a copy for one generation of its job and one slice: one without quota, one with it, and repeats after
// writes of others.
const maxFollows = 10

func childrenOf(conn *worker.Connection, kind schema.GroupVersionKind, of client.Object) []job.Object {
	kept := conn.Store(kind)
	if kept == nil {
		return nil
	}
	var out []job.Object
	kept.Each(func(_ types.NamespacedName, o client.Object) {
		if ref := metav1.GetControllerOf(o); ref != nil && ref.UID == of.GetUID() {
			out = append(out, o.(job.Object))
		}
	})
	slices.SortFunc(out, func(a, b job.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// scale resizes a job with several Workloads. If that fails, existing Workloads continue, the check reports it, and scale returns when to
// retry.
func (w *workloads) scale(ctx context.Context, s *observation, conn *worker.Connection, there client.Object, next *unstructured.Unstructured) (again time.Duration, err error) {
	err = w.resize(ctx, s, conn, there, next)
	if err != nil && s.kind.Remote.Silent && !apierrors.IsConflict(err) {
		return againAfterRefusal, nil
	}
	return 0, err
}

func (w *workloads) resize(ctx context.Context, s *observation, conn *worker.Connection, there client.Object, next *unstructured.Unstructured) error {
	before, err := multikueueplan.Tree(s.kind, there.(job.Object))
	if err != nil {
		return err
	}
	after := next.DeepCopy()
	err = conn.Call(ctx, func(ctx context.Context, c client.Client) error {
		return c.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil && !apierrors.IsConflict(err) {
		w.noteFault(s, conn.Name(), multikueueplan.Fault{
			Code: external.SpecFailed, Text: fmt.Sprintf("%s on %q cannot be changed: %s", s.kind.GVK.Kind, conn.Name(), err), Located: true,
		})
	}
	return err
}
