package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/worker"
)

// collector removes orphans from worker clusters (spec: 40 §4.7). It runs on the leader.
type collector struct {
	*shared
	suspects map[string]map[string]bool // jobs without a Workload on either side at the last collection, by cluster
}

// Start collects at every interval. The first collection is one interval after the start, when the caches are filled.
func (c *collector) Start(ctx context.Context) error {
	tick := time.NewTicker(c.GCInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.collect(ctx)
		}
	}
}

// collect visits the connected clusters, except those whose origin another manager uses as well.
func (c *collector) collect(ctx context.Context) {
	before := c.suspects
	c.suspects = map[string]map[string]bool{}
	for _, name := range c.fleet.Names() {
		conn := c.fleet.Link(name).Connection
		if conn == nil || conn.Contested() {
			continue
		}
		c.collectCopies(ctx, conn)
		c.suspects[name] = c.collectJobs(ctx, conn, before[name])
	}
}

// hasWorkload reports whether a Workload exists here and is not being deleted; for a copy, its own original. It is true if that cannot be
// read.
func (c *collector) hasWorkload(ctx context.Context, key types.NamespacedName, copied *kueue.Workload) bool {
	another := func(wl *kueue.Workload) bool { return copied != nil && plan.IsOfAnother(copied, wl) }
	wl := &kueue.Workload{}
	err := c.cache.Get(ctx, key, wl, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || (err == nil && another(wl)) { // the cache may be behind the watch of the worker cluster
		wl = &kueue.Workload{}
		err = c.live.Get(ctx, key, wl)
	}
	return !apierrors.IsNotFound(err) && (err != nil || (wl.DeletionTimestamp == nil && !another(wl)))
}

func (c *collector) collectCopies(ctx context.Context, conn *worker.Connection) {
	conn.Store(worker.WorkloadKind).Each(func(key types.NamespacedName, o client.Object) {
		copied, ok := o.(*kueue.Workload)
		if !ok || !c.Plan.Owns(copied) || c.hasWorkload(ctx, key, copied) || ctx.Err() != nil {
			return
		}
		err := c.deleteOwner(ctx, conn, copied)
		if err == nil {
			if copied.DeletionTimestamp != nil {
				return // the worker cluster removes its finalizer, and keeps the quota until the pods are gone
			}
			err = conn.Delete(ctx, worker.WorkloadKind, copied)
		}
		c.logRemoval(conn, "workload", key, err)
	})
}

func (c *collector) deleteOwner(ctx context.Context, conn *worker.Connection, copied *kueue.Workload) error {
	ref := metav1.GetControllerOf(copied)
	if ref == nil {
		return c.deletePieces(ctx, conn, copied)
	}
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	kept := conn.Store(gvk)
	if kept == nil {
		return nil
	}
	o := kept.Get(types.NamespacedName{Namespace: copied.Namespace, Name: ref.Name})
	if o == nil || !c.Plan.Owns(o) || o.GetUID() != ref.UID || o.GetDeletionTimestamp() != nil {
		return nil
	}
	return conn.Delete(ctx, gvk, o)
}

// collectJobs removes jobs that had a Workload on neither side at two collections, and returns the suspects of this one.
func (c *collector) collectJobs(ctx context.Context, conn *worker.Connection, before map[string]bool) map[string]bool {
	suspects := map[string]bool{}
	for _, gvk := range conn.JobKinds() {
		conn.Store(gvk).Each(func(key types.NamespacedName, o client.Object) {
			workload := types.NamespacedName{Namespace: key.Namespace, Name: c.Plan.WorkloadOf(o)}
			switch {
			case !c.Plan.Made(o) || o.GetDeletionTimestamp() != nil:
				return
			case workload.Name == "":
				if !c.isOrphaned(ctx, conn, c.kinds[gvk], o) {
					return
				}
			case conn.Store(worker.WorkloadKind).Get(workload) != nil || c.hasWorkload(ctx, workload, nil):
				return
			}
			id := gvk.String() + " " + key.String()
			if !before[id] {
				suspects[id] = true
				return
			}
			c.logRemoval(conn, gvk.Kind, key, conn.Delete(ctx, gvk, o))
		})
	}
	return suspects
}

func (c *collector) logRemoval(conn *worker.Connection, kind string, key types.NamespacedName, err error) {
	log := ctrl.Log.WithName("multikueue")
	if err != nil && !apierrors.IsConflict(err) {
		log.Info("Cannot remove an orphan, trying again later", "cluster", conn.Name(), "kind", kind, "object", key.String(), "err", err.Error())
		return
	}
	if err == nil {
		log.Info("Removed an orphan", "cluster", conn.Name(), "kind", kind, "object", key.String())
	}
}
