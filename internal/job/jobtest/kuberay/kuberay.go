// Package kuberay stands in for KubeRay 1.7 in tests, as far as spec 30 §4.10.1 describes it.
//
//	RayService ─► service: pending, active, capacity, traffic ─┬─► RayCluster ─► cluster ─► pods
//	RayJob ─────► job ──────────────────────────────────────────┴─► Job ─────────► its pod
//
// It uses a real API server, or [Memory], an API server in a map.
package kuberay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/job/plan/view"
)

// Operator creates clusters for services and pods for clusters, stops both, and replaces a cluster when the service's spec has
// another hash. It makes one step of each service and cluster after the other, in KubeRay's order.
type Operator struct {
	client.Client
	Namespace string
	// Dies reports whether it dies instead of the next write. Its memory is lost, and a new operator makes the next step.
	Dies func() bool
	// Skips reports whether it skips an object in this step.
	Skips func(client.Object) bool
	// Order is the order in which it handles n objects; services, clusters and pods may come in any order.
	Order func(n int) []int
	// Lingers is the number of steps after which it deletes an unused cluster. It starts over after a death.
	Lingers int

	mu   sync.Mutex
	made int
	busy bool              // the last step made writes
	idle map[types.UID]int // steps for which clusters have been unused
}

// HashAnnotation is the hash of the spec that a cluster was made for, and groupsAnnotation its number of worker groups.
const (
	HashAnnotation   = "ray.io/hash-without-replicas-and-workers-to-delete"
	groupsAnnotation = "ray.io/num-worker-groups"
	// sizesAnnotation has the workers of a cluster at full capacity, by group: the request of Serve to Ray's autoscaler.
	sizesAnnotation = "test/full-size"
)

// GVK is a kind of Ray's.
func GVK(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: kind}
}

// Begin runs the operator until the returned function is called. Its steps list everything, so they become rare while there is nothing to do.
func (k *Operator) Begin(ctx context.Context) (stop func()) {
	const shortest, longest = 20 * time.Millisecond, 160 * time.Millisecond
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for pause := shortest; ; pause = min(2*pause, longest) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			if k.Step(ctx); k.wasBusy() {
				pause = shortest / 2
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

func (k *Operator) wasBusy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.busy
}

// Trouble changes the disturbances of a running operator.
func (k *Operator) Trouble(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// Objects are the objects of a kind.
func (k *Operator) Objects(ctx context.Context, kind string) []unstructured.Unstructured {
	list := view.NewList(GVK(kind))
	_ = k.List(ctx, list, client.InNamespace(k.Namespace))
	return list.Items
}

func (k *Operator) podsOf(ctx context.Context, uid types.UID) []corev1.Pod {
	var list corev1.PodList
	_ = k.List(ctx, &list, client.InNamespace(k.Namespace))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		ref := metav1.GetControllerOf(&p)
		return ref == nil || ref.UID != uid
	})
}

// death is what write panics with.
type death struct{}

// write makes a write, unless the operator dies before it. The next step retries a failed write.
func (k *Operator) write(do func() error) {
	k.busy = true
	if k.Dies != nil && k.Dies() {
		panic(death{})
	}
	_ = do()
}

// Step reconciles every object once.
func (k *Operator) Step(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = false
	defer func() {
		if r := recover(); r != nil {
			if _, died := r.(death); !died {
				panic(r)
			}
			k.idle = nil
		}
	}()
	clusters := k.Objects(ctx, "RayCluster")
	for kind, reconcile := range map[string]func(context.Context, *unstructured.Unstructured, []unstructured.Unstructured){ //berth:unordered no world has both
		"RayService": k.service, "RayJob": k.job,
	} {
		for _, o := range inOrder(k, k.Objects(ctx, kind)) {
			if k.skips(&o) {
				continue
			}
			reconcile(ctx, &o, slices.DeleteFunc(slices.Clone(clusters), func(c unstructured.Unstructured) bool {
				ref := metav1.GetControllerOf(&c)
				return ref == nil || ref.UID != o.GetUID()
			}))
		}
	}
	for _, c := range inOrder(k, clusters) {
		if !k.skips(&c) && c.GetDeletionTimestamp() == nil {
			k.cluster(ctx, &c)
		}
	}
	k.collect(ctx, clusters)
}

// collect stands in for the garbage collector: it deletes objects without an existing owner.
func (k *Operator) collect(ctx context.Context, clusters []unstructured.Unstructured) {
	exists := map[types.UID]bool{}
	for _, o := range append(k.Objects(ctx, "RayService"), k.Objects(ctx, "RayJob")...) {
		exists[o.GetUID()] = true
	}
	var submitters batchv1.JobList
	_ = k.List(ctx, &submitters, client.InNamespace(k.Namespace))
	for i := range submitters.Items {
		exists[submitters.Items[i].UID] = true
	}
	var pods corev1.PodList
	_ = k.List(ctx, &pods, client.InNamespace(k.Namespace))
	var all []client.Object
	for i := range clusters {
		exists[clusters[i].GetUID()] = true
		all = append(all, &clusters[i])
	}
	for i := range pods.Items {
		all = append(all, &pods.Items[i])
	}
	for _, o := range inOrder(k, all) {
		ref := metav1.GetControllerOf(o)
		if ref != nil && !exists[ref.UID] && o.GetDeletionTimestamp() == nil && !k.skips(o) {
			k.write(func() error { return k.Delete(ctx, o) })
		}
	}
}

func (k *Operator) skips(o client.Object) bool { return k.Skips != nil && k.Skips(o) }

// inOrder sorts objects by Order.
func inOrder[T any](k *Operator, list []T) []T {
	if k.Order == nil || len(list) < 2 {
		return list
	}
	out := make([]T, 0, len(list))
	for _, at := range k.Order(len(list)) {
		out = append(out, list[at])
	}
	return out
}

// name returns a name for a new cluster.
func (k *Operator) name(s *unstructured.Unstructured) string {
	k.made++
	return fmt.Sprintf("%s-c%04d", s.GetName(), k.made)
}
