// Package ungate removes the scheduling gates of the pods of elastic jobs, as many as are admitted. It reconciles chains of slices: a
// change of a Workload or of a pod of the chain requeues it.
//
//	Workloads of the job ─► the admitted slice ─┐
//	pods of the chain ──────────────────────────┴─► plan.Decide ─► one patch for each pod
//
// A patch has the resource version of the pod that was read. An ungated pod counts as running at once, even if the cache does not show it
// yet, so that no two pods get the same room (spec: 30 §4.11).
package ungate

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/placement/plan"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

const workers = 4

// Indexes of the cache.
const (
	byChain = "berth.chain"        // of pods and Workloads: the name of their chain
	byOwner = "berth.elasticOwner" // of Workloads: the UID of their controller
)

// Options are the settings of the controller.
type Options struct {
	Config *job.Config
	// Ungated is called for every ungated pod with its Workload, the removed gates, and whether it belongs to a group; may be nil.
	Ungated func(w *kueue.Workload, gates []string, group bool, at time.Time)
	Now     func() time.Time
}

type reconciler struct {
	Options
	gate   *lookup.Gate
	client client.Client
	live   client.Reader
	pods   *reconcile.Pods // pods that were started for an admission; filled once there is an elastic job
	watch  func() error

	filling sync.Mutex
	filled  bool

	written *reconcile.Overlay[*corev1.Pod]
}

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	cache, err := reconcile.NewGatedPods(mgr, kueue.PodSetLabel)
	if err != nil {
		return err
	}
	err = cache.IndexField(ctx, &corev1.Pod{}, byChain, func(o client.Object) []string {
		if name := plan.Chain(o.(*corev1.Pod)); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing pods: %w", err)
	}
	r := &reconciler{
		Options: o, gate: lookup.NewGate(o.Config, nil, mgr.GetCache(), mgr.GetAPIReader()), client: mgr.GetClient(), live: mgr.GetAPIReader(),
		pods: cache, written: reconcile.NewOverlay[*corev1.Pod](o.Now),
	}
	for name, value := range map[string]func(*kueue.Workload) string{
		byChain: slices.Chain,
		byOwner: func(w *kueue.Workload) string {
			if ref := metav1.GetControllerOf(w); ref != nil {
				return string(ref.UID)
			}
			return ""
		},
	} {
		err := mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, name, func(o client.Object) []string {
			if v := value(o.(*kueue.Workload)); v != "" && job.IsElastic(o) {
				return []string{v}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("indexing workloads: %w", err)
		}
	}
	c, err := ctrl.NewControllerManagedBy(mgr).Named("elastic_job_ungater").
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(ofWorkload)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Build(r)
	if err != nil {
		return fmt.Errorf("controller of elastic pods: %w", err)
	}
	r.watch = func() error {
		return c.Watch(source.Kind(cache.Cache, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(ofPod)))
	}
	return nil
}

func ofWorkload(_ context.Context, o client.Object) []ctrlreconcile.Request {
	w, ok := o.(*kueue.Workload)
	if !ok || !job.IsElastic(w) {
		return nil
	}
	return request(w.Namespace, slices.Chain(w))
}

// ofPod returns the chain of a pod. A pod that names a Workload and no chain, and has no gate, does not belong to an elastic job.
func ofPod(_ context.Context, pod *corev1.Pod) []ctrlreconcile.Request {
	if pod.Annotations[kueue.WorkloadSliceNameAnnotation] == "" && !plan.IsGated(pod) {
		return nil
	}
	return request(pod.Namespace, plan.Chain(pod))
}

func request(namespace, chain string) []ctrlreconcile.Request {
	if chain == "" {
		return nil
	}
	return []ctrlreconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: chain}}}
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch,roleName=kueue-manager-elastic-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads;resourceflavors,verbs=get;list;watch

// Reconcile ungates the pods of one chain for which there is room.
func (r *reconciler) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	err := r.reconcile(ctx, req.NamespacedName)
	return reconcile.Retry(err).Result(ctx)
}

func (r *reconciler) reconcile(ctx context.Context, chain types.NamespacedName) error {
	if err := r.fill(ctx); err != nil {
		return err
	}
	managed, err := r.gate.IsManaged(ctx, chain.Namespace)
	if err != nil {
		return err
	}
	o := &plan.Observed{}
	if o.Pods, err = r.podsOf(ctx, chain); err != nil {
		return err
	}
	if !managed {
		return r.ungateAll(ctx, o.Pods)
	}
	for i, pod := range o.Pods {
		if o.Pods[i], err = reconcile.Resolve(ctx, r.written, r.live, pod); err != nil {
			return err
		}
	}
	if o.Slice, err = r.granting(ctx, chain, o.Pods); err != nil || o.Slice == nil {
		return err
	}
	flavors, err := r.flavors(ctx, o.Slice)
	if err != nil {
		return err
	}
	if o.Infos, err = job.InfosFromAdmission(r.Config, o.Slice, flavors); err != nil {
		return err
	}
	for _, pod := range plan.Decide(o) {
		if err := r.ungate(ctx, o, pod); err != nil {
			return err
		}
	}
	return nil
}

// ungateAll removes the gates of pods whose namespace left management while their job runs: its template has the gate, and cannot change
// any more. Only pods of a job that Berth started name a chain (spec: 30 §4.2.5 rule 2).
func (r *reconciler) ungateAll(ctx context.Context, pods []*corev1.Pod) error {
	for _, pod := range pods {
		if !plan.IsGated(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if err := r.patch(ctx, pod, plan.Free(pod, &job.PodSetInfo{})); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// fill starts to watch pods, once. Most clusters have no elastic job, and many pods.
func (r *reconciler) fill(ctx context.Context) error {
	r.filling.Lock()
	defer r.filling.Unlock()
	if !r.filled {
		if err := r.pods.Fill(); err != nil {
			return err
		}
		if err := r.watch(); err != nil {
			return fmt.Errorf("watching pods: %w", err)
		}
		r.filled = true
	}
	if !r.pods.WaitForCacheSync(ctx) {
		return fmt.Errorf("the cache of pods is not filled yet: %w", context.Cause(ctx))
	}
	return nil
}

func (r *reconciler) podsOf(ctx context.Context, chain types.NamespacedName) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := r.pods.List(ctx, &list, client.InNamespace(chain.Namespace), client.MatchingFields{byChain: chain.Name}); err != nil {
		return nil, fmt.Errorf("listing pods of %s: %w", chain, err)
	}
	out := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// granting returns the admitted slice of the job that the chain belongs to, nil if there is none. If only pods remain of the chain, the
// job is their controller.
func (r *reconciler) granting(ctx context.Context, chain types.NamespacedName, pods []*corev1.Pod) (*kueue.Workload, error) {
	named, err := r.workloads(ctx, chain.Namespace, byChain, chain.Name)
	if err != nil {
		return nil, err
	}
	if len(named) == 0 { // the pods may name a later slice
		var w kueue.Workload
		if err := r.client.Get(ctx, chain, &w); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading workload %s: %w", chain, err)
		} else if err == nil {
			named = append(named, &w)
		}
	}
	owner := lastController(named)
	if len(named) == 0 {
		owner = lastController(pods)
	}
	if owner == "" {
		return slices.Granting(named), nil
	}
	all, err := r.workloads(ctx, chain.Namespace, byOwner, owner)
	return slices.Granting(all), err
}

// lastController returns the UID of the controller of the last object that has one, empty for none.
func lastController[O metav1.Object](objects []O) (uid string) {
	for _, o := range objects {
		if ref := metav1.GetControllerOf(o); ref != nil {
			uid = string(ref.UID)
		}
	}
	return uid
}

func (r *reconciler) workloads(ctx context.Context, namespace, index, value string) ([]*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{index: value}); err != nil {
		return nil, fmt.Errorf("listing workloads of %s/%s: %w", namespace, value, err)
	}
	out := make([]*kueue.Workload, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

func (r *reconciler) flavors(ctx context.Context, w *kueue.Workload) (job.Flavors, error) {
	out := job.Flavors{}
	for _, a := range w.Status.Admission.PodSetAssignments {
		for _, name := range a.Flavors {
			if out[name] != nil {
				continue
			}
			var flavor kueue.ResourceFlavor
			if err := r.client.Get(ctx, client.ObjectKey{Name: string(name)}, &flavor); err != nil {
				return nil, fmt.Errorf("reading flavor %s: %w", name, err)
			}
			out[name] = &flavor
		}
	}
	return out, nil
}

func (r *reconciler) ungate(ctx context.Context, o *plan.Observed, pod *corev1.Pod) error {
	for _, old := range o.Pods {
		if old.UID != pod.UID {
			continue
		}
		err := r.patch(ctx, old, pod)
		r.written.Wrote(old, pod, err)
		if err != nil {
			return err
		}
		if r.Ungated != nil {
			r.Ungated(o.Slice, []string{kueue.ElasticJobSchedulingGate}, false, r.Now())
		}
	}
	return nil
}

func (r *reconciler) patch(ctx context.Context, old, next *corev1.Pod) error {
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, next, patch, client.FieldOwner("kueue")); err != nil {
		return fmt.Errorf("taking the gate off pod %s/%s: %w", old.Namespace, old.Name, err)
	}
	return nil
}
