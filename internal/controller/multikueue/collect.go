package multikueue

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// collector removes what workers hold that nothing here stands for (spec: 40 §4.7). It is a runnable of the leader.
type collector struct {
	*shared
	suspects map[string]map[string]bool // jobs without a Workload on either side, by cluster, as of the last look
}

// Start looks at every interval until ctx ends. The first look is one interval after the start, when the caches are filled.
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

// collect looks at all clusters that are connected. One whose origin is another manager's as well is left alone.
func (c *collector) collect(ctx context.Context) {
	before := c.suspects
	c.suspects = map[string]map[string]bool{}
	for _, r := range c.fleet.all() {
		conn, _, _ := r.connected()
		if conn == nil || c.contested(conn) {
			continue
		}
		c.copies(ctx, conn)
		c.suspects[r.name] = c.jobs(ctx, conn, before[r.name])
	}
}

// contested says whether something on a cluster is another manager's with our origin, and has the cluster say so, or not any more.
func (c *collector) contested(conn *connection) bool {
	found := false
	for _, kept := range conn.stores {
		kept.each(func(_ types.NamespacedName, o client.Object) { found = found || c.Plan.Foreign(o) })
	}
	if conn.foreign.Swap(found) != found {
		c.touch(conn.name)
	}
	return found
}

// lives says whether a Workload is here and stays. What cannot be told counts as yes.
func (c *collector) lives(ctx context.Context, key types.NamespacedName) bool {
	var wl kueue.Workload
	err := c.cache.Get(ctx, key, &wl, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) { // the cache may be behind the watch of the worker
		err = c.live.Get(ctx, key, &wl)
	}
	return !apierrors.IsNotFound(err) && (err != nil || wl.DeletionTimestamp == nil)
}

// copies removes those whose Workload is gone or going, each after its job.
func (c *collector) copies(ctx context.Context, conn *connection) {
	conn.stores[workloadKind].each(func(key types.NamespacedName, o client.Object) {
		copied, ok := o.(*kueue.Workload)
		if !ok || !c.Plan.Owns(copied) || c.lives(ctx, key) || ctx.Err() != nil {
			return
		}
		err := c.ownerGone(ctx, conn, copied)
		if err == nil {
			err = conn.deleteWorkload(ctx, copied)
		}
		c.told(conn, "workload", key, err)
	})
}

// ownerGone deletes the job that adopted a copy, if it is ours.
func (c *collector) ownerGone(ctx context.Context, conn *connection, copied *kueue.Workload) error {
	ref := metav1.GetControllerOf(copied)
	if ref == nil {
		return nil
	}
	kept := conn.stores[schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)]
	if kept == nil {
		return nil
	}
	o := kept.get(types.NamespacedName{Namespace: copied.Namespace, Name: ref.Name})
	if o == nil || !c.Plan.Owns(o) || o.GetUID() != ref.UID || o.GetDeletionTimestamp() != nil {
		return nil
	}
	return conn.delete(ctx, kept, o)
}

// jobs removes those whose Workload was on neither side at two looks, and returns the suspects of this one.
func (c *collector) jobs(ctx context.Context, conn *connection, before map[string]bool) map[string]bool {
	suspects := map[string]bool{}
	for _, gvk := range slices.SortedFunc(maps.Keys(conn.stores), func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) }) {
		if gvk == workloadKind {
			continue
		}
		kept := conn.stores[gvk]
		kept.each(func(key types.NamespacedName, o client.Object) {
			workload := types.NamespacedName{Namespace: key.Namespace, Name: c.Plan.WorkloadOf(o)}
			if !c.Plan.Owns(o) || workload.Name == "" || o.GetDeletionTimestamp() != nil ||
				conn.stores[workloadKind].get(workload) != nil || c.lives(ctx, workload) {
				return
			}
			id := gvk.String() + " " + key.String()
			if !before[id] {
				suspects[id] = true
				return
			}
			c.told(conn, gvk.Kind, key, conn.delete(ctx, kept, o))
		})
	}
	return suspects
}

func (c *collector) told(conn *connection, kind string, key types.NamespacedName, err error) {
	log := ctrl.Log.WithName("multikueue")
	if err != nil && !apierrors.IsConflict(err) {
		log.Info("Cannot remove an orphan, trying again later", "cluster", conn.name, "kind", kind, "object", key.String(), "err", err.Error())
		return
	}
	if err == nil {
		log.Info("Removed an orphan", "cluster", conn.name, "kind", kind, "object", key.String())
	}
}
