package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	elastic "github.com/berth-project/berth/internal/workload/plan/slices"
)

// Not every job is one object with one Workload: the pods of a group share one Workload, and a LeaderWorkerSet has several.

// observeMembers reads the pods of a Workload, the oldest owner first. All members are owners.
func (w *workloads) observeMembers(ctx context.Context, s *observation) error {
	for _, ref := range s.observed.Local.OwnerReferences {
		if schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind) != s.kind.GVK {
			continue
		}
		o := s.kind.New()
		err := w.cache.Get(ctx, client.ObjectKey{Namespace: s.key.Namespace, Name: ref.Name}, o)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading %s %s/%s: %w", ref.Kind, s.key.Namespace, ref.Name, err)
		}
		if err == nil && o.GetUID() == ref.UID {
			s.members = append(s.members, o)
		}
	}
	w.followMembers(ctx, s.kind)
	facts := &s.observed.Job
	facts.Missing = len(s.members) == 0
	for _, o := range s.members {
		facts.Active = facts.Active || s.kind.IsActive(o)
	}
	if !facts.Missing {
		s.job, s.jobName = s.members[0], s.members[0].GetName()
	}
	return nil
}

func (s *observation) locals() []job.Object {
	if s.members == nil && s.job != nil {
		return []job.Object{s.job}
	}
	return s.members
}

func (s *observation) of(o job.Object) *observation {
	one := *s
	one.job, one.jobName = o, o.GetName()
	return &one
}

// jobsOf returns our objects on a worker cluster that are the job of a Workload, sorted by name.
func (m *shared) jobsOf(conn *worker.Connection, s *observation) []job.Object {
	kept := conn.Store(s.kind.GVK)
	switch {
	case kept == nil: // run by an external controller
		return nil
	case s.kind.Groups != nil:
		var out []job.Object
		for _, o := range kept.Of(s.key) {
			if m.Plan.Owns(o) {
				out = append(out, o.(job.Object))
			}
		}
		slices.SortFunc(out, func(a, b job.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
		return out
	}
	if o := m.jobOf(conn, s); o != nil {
		return []job.Object{o}
	}
	return nil
}

// isOf reports whether an object on a worker cluster is the job of a Workload: it names the Workload or, for a job with several, the same
// local job, and none of the others still needs it there.
func (m *shared) isOf(cluster string, s *observation, o client.Object) bool {
	if s.kind.Remote.Workloads == nil {
		return m.Plan.WorkloadOf(o) == s.key.Name
	}
	origin := types.UID(o.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation])
	return slices.ContainsFunc(s.observed.Local.OwnerReferences, ownedBy(origin)) && !slices.Contains(s.remain, "") && !slices.Contains(s.remain, cluster)
}

func (w *workloads) observeSiblings(ctx context.Context, s *observation) error {
	if s.kind.Remote.Workloads == nil || len(s.observed.Local.OwnerReferences) == 0 {
		return nil
	}
	list, err := w.owned(ctx, s.key.Namespace, string(s.observed.Local.OwnerReferences[0].UID))
	if err != nil {
		return fmt.Errorf("listing the workloads of %s %s/%s: %w", s.kind.GVK.Kind, s.key.Namespace, s.jobName, err)
	}
	out := &plan.Siblings{First: true}
	own := order(s.observed.Local)
	for i := range list {
		wl := &list[i]
		if wl.DeletionTimestamp != nil {
			continue
		}
		out.Present++
		if wl.UID == s.observed.Local.UID || lifecycle.IsFinished(wl) {
			continue
		}
		if wl.Status.ClusterName != "" {
			out.Clusters = append(out.Clusters, wl.Status.ClusterName)
		}
		if lifecycle.IsReserved(wl) {
			s.remain = append(s.remain, wl.Status.ClusterName)
		}
		out.First = out.First && cmp.Or(cmp.Compare(own, order(wl)), strings.Compare(s.key.Name, wl.Name)) < 0
	}
	slices.Sort(out.Clusters)
	out.Clusters = slices.Compact(out.Clusters)
	if s.job != nil {
		out.Wanted = s.kind.Remote.Workloads(s.job)
		if out.Wanted < 0 || out.Wanted > maxSiblings {
			s.observed.Job.Err = fmt.Errorf("%s %s/%s has %d replicas: it may have 0 to %d", s.kind.GVK.Kind, s.key.Namespace, s.jobName, out.Wanted, maxSiblings)
		}
	}
	s.observed.Job.Siblings = out
	return nil
}

const maxSiblings = 1_000_000

// order returns the index of a Workload in its job, the last one if it has none.
func order(wl *kueue.Workload) int {
	n, err := strconv.Atoi(wl.Annotations[kueue.ComponentWorkloadIndexAnnotation])
	if err != nil || n < 0 {
		return maxSiblings + 1
	}
	return n
}

func (w *workloads) siblingsOf(ctx context.Context, wl client.Object) []types.NamespacedName {
	_, several := wl.GetAnnotations()[kueue.ComponentWorkloadIndexAnnotation]
	if !(several || (w.Plan.Elastic && job.IsElastic(wl))) || len(wl.GetOwnerReferences()) == 0 {
		return nil
	}
	list, err := w.owned(ctx, wl.GetNamespace(), string(wl.GetOwnerReferences()[0].UID))
	if err != nil {
		return nil // requeued by a later event
	}
	var out []types.NamespacedName
	for i := range list {
		if o := &list[i]; o.UID != wl.GetUID() {
			out = append(out, client.ObjectKeyFromObject(o))
		}
	}
	return out
}

func moved(before, after client.Object) bool {
	a, ok := before.(*kueue.Workload)
	b, both := after.(*kueue.Workload)
	return ok && both && (a.Status.ClusterName != b.Status.ClusterName || lifecycle.IsReserved(a) != lifecycle.IsReserved(b) ||
		lifecycle.IsFinished(a) != lifecycle.IsFinished(b) || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil))
}

// syncJobs synchronizes every object of the job, and deletes copies whose original no longer exists.
func (w *workloads) syncJobs(ctx context.Context, s *observation, conn *worker.Connection, create bool) (again time.Duration, err error) {
	if s.members == nil {
		return w.syncJob(ctx, s, conn, create)
	}
	var errs []error
	for _, o := range s.members {
		after, err := w.syncJob(ctx, s.of(o), conn, create)
		errs = append(errs, err)
		again = reconcile.Earliest(again, after)
	}
	for _, there := range w.jobsOf(conn, s) {
		known := slices.ContainsFunc(s.members, func(o job.Object) bool { return o.GetName() == there.GetName() })
		if create && !known && there.GetDeletionTimestamp() == nil {
			errs = append(errs, conn.Delete(ctx, s.kind.GVK, there))
		}
	}
	return again, errors.Join(errs...)
}

// followMembers requeues the Workload of a group when one of its pods is deleted: its copy must be deleted, too.
func (w *workloads) followMembers(ctx context.Context, d *job.Descriptor) {
	names := job.Config{AnnotationIdentifiers: w.Plan.Annotations}
	requeue := func(o client.Object) {
		if name := names.GroupName(o); name != "" {
			w.requeue(types.NamespacedName{Namespace: o.GetNamespace(), Name: name}, copyEventDelay)
		}
	}
	w.follow(ctx, d, toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, next any) {
			a, ok := old.(client.Object)
			if b, both := next.(client.Object); ok && both && a.GetDeletionTimestamp() == nil && b.GetDeletionTimestamp() != nil {
				requeue(b)
			}
		},
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if gone, ok := o.(client.Object); ok {
				requeue(gone)
			}
		},
	})
}

func (w *workloads) follow(ctx context.Context, d *job.Descriptor, handler toolscache.ResourceEventHandler) {
	w.mu.Lock()
	begun := w.forwarded[d.GVK]
	w.forwarded[d.GVK] = true
	w.mu.Unlock()
	if begun {
		return
	}
	informer, err := w.informers.GetInformer(ctx, d.New())
	if err == nil {
		_, err = informer.AddEventHandler(handler)
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Following changes of jobs", "kind", d.GVK.Kind)
		w.mu.Lock()
		delete(w.forwarded, d.GVK)
		w.mu.Unlock()
	}
}

func (m *shared) requeueByOrigin(o client.Object) {
	d := m.kinds[o.GetObjectKind().GroupVersionKind()]
	origin := o.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation]
	if d == nil || d.Remote.Workloads == nil || origin == "" {
		return
	}
	m.requeueOwned(o.GetNamespace(), origin, copyEventDelay)
}

// isOrphaned reports whether a job with several Workloads has neither its original here nor a copy of a Workload there.
func (c *collector) isOrphaned(ctx context.Context, conn *worker.Connection, d *job.Descriptor, o client.Object) bool {
	origin := types.UID(o.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation])
	if d == nil || d.Remote.Workloads == nil || origin == "" {
		return false
	}
	copied := false
	conn.Store(worker.WorkloadKind).Each(func(key types.NamespacedName, wl client.Object) {
		copied = copied || (key.Namespace == o.GetNamespace() && wl.GetAnnotations()[kueue.JobOwnerNameAnnotation] == o.GetName() &&
			wl.GetAnnotations()[kueue.JobOwnerGVKAnnotation] == d.GVK.String())
	})
	if copied {
		return false
	}
	local := d.New()
	err := c.live.Get(ctx, client.ObjectKeyFromObject(o), local)
	return apierrors.IsNotFound(err) || (err == nil && local.GetUID() != origin)
}

// byOwner is an index of Workloads.
const byOwner = "multikueue.owner"

// ownersOf are what a Workload is found by: the UID of each owner, its kind and name, and the owner of its slices.
func ownersOf(o client.Object) (out []string) {
	for _, ref := range o.GetOwnerReferences() {
		out = append(out, string(ref.UID), kindAndName(ref.Kind, ref.Name))
	}
	if owner := elastic.Owner(o.(*kueue.Workload)); owner != "" {
		out = append(out, owner)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func kindAndName(kind, name string) string { return kind + "/" + name }

// owned lists the Workloads of an owner: see ownersOf. They are shared with the cache.
func (m *shared) owned(ctx context.Context, namespace, owner string) ([]kueue.Workload, error) {
	var list kueue.WorkloadList
	err := m.cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{byOwner: owner}, client.UnsafeDisableDeepCopy)
	return list.Items, err
}

func ownedBy(uid types.UID) func(metav1.OwnerReference) bool {
	return func(ref metav1.OwnerReference) bool { return ref.UID == uid }
}

// deletePieces deletes our objects that no controller of a copy owns: the pods of a group, or an object whose pods are one.
func (c *collector) deletePieces(ctx context.Context, conn *worker.Connection, copied *kueue.Workload) error {
	gvk, name := c.ownerOf(copied)
	d := c.kinds[gvk]
	if conn.Store(gvk) == nil || d == nil || d.Remote.Workloads != nil { // several copies are collected one by one, then their job
		return nil
	}
	s := &observation{key: client.ObjectKeyFromObject(copied), kind: d, jobName: name}
	s.observed.Local = copied
	var errs []error
	for _, o := range c.jobsOf(conn, s) {
		if o.GetDeletionTimestamp() == nil {
			errs = append(errs, conn.Delete(ctx, gvk, o))
		}
	}
	return errors.Join(errs...)
}
