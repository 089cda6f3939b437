// Package ungate removes the scheduling gates of the pods of admitted jobs: of elastic jobs as many as are admitted, and of jobs with a
// topology assignment together with the choice of a domain. It reconciles chains of slices; a Workload that is no slice is a chain by
// itself. A change of a Workload or of a pod of the chain requeues it.
//
//	Workloads of the job ─► the admitted slice ─┬─► plan.Decide ─┐
//	pods of the chain ──────────────────────────┴─► plan.Place ──┴─► one patch for each pod
//
// It runs whatever the feature gates are: the templates of running jobs have the scheduling gates, and cannot change any more. Without
// TopologyAwareScheduling the topology gate is removed without a choice.
//
// A patch has the resource version of the pod that was read. An ungated pod counts as running at once, even if the cache does not show it
// yet, so that no two pods get the same room (spec: 20 §4.8, 30 §4.11).
package ungate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/placement/plan"
	"github.com/berth-project/berth/internal/reconcile"
	chains "github.com/berth-project/berth/internal/workload/plan/slices"
)

const (
	workers = 4
	// atOnce is how many pods of a job are ungated at once.
	atOnce = 8
)

// Indexes of the cache of Workloads.
const (
	byChain = "berth.chain"        // of elastic jobs: the name of their chain
	byOwner = "berth.elasticOwner" // of elastic jobs: the UID of their controller
)

// Options are the settings of the controller.
type Options struct {
	Config *job.Config
	// Pods are the pods that were started for an admission, shared with other controllers; nil is a cache of its own. It is filled once a
	// Workload needs it.
	Pods *reconcile.Pods
	// Ungated is called for every ungated pod with its Workload, the removed gates, and whether it belongs to a group; may be nil.
	Ungated func(w *kueue.Workload, gates []string, group bool, at time.Time)
	Events  reconcile.Events
	Now     func() time.Time
}

type reconciler struct {
	Options
	gate    *lookup.Gate
	client  client.Client
	live    client.Reader
	late    *reconcile.Late // many clusters have no such job, and many pods
	written *reconcile.Overlay[*corev1.Pod]
	notes   reconcile.LastNotes // of chains, until a reconcile succeeds
}

// failedToUngate is the reason of the event about pods that stay gated because of a failure.
const failedToUngate = "FailedToUngate"

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (err error) {
	if o.Pods == nil {
		if o.Pods, err = reconcile.NewStartedPods(ctx, mgr); err != nil {
			return err
		}
	}
	r := &reconciler{
		Options: o, gate: lookup.NewGate(o.Config, nil, mgr.GetCache(), mgr.GetAPIReader()), client: mgr.GetClient(), live: mgr.GetAPIReader(),
		written: reconcile.NewOverlay[*corev1.Pod](o.Now),
	}
	for name, value := range map[string]func(*kueue.Workload) string{
		byChain: chains.Chain,
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
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(r.ofWorkload)).
		WithOptions(reconcile.ControllerOptions(workers)).
		Build(r)
	if err != nil {
		return fmt.Errorf("controller of gated pods: %w", err)
	}
	r.late = &reconcile.Late{Pods: o.Pods, Watch: func() error {
		return c.Watch(source.Kind(o.Pods.Cache, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(ofPod), predicate.TypedFuncs[*corev1.Pod]{
			UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Pod]) bool { return isChange(e.ObjectOld, e.ObjectNew) },
		}))
	}}
	return nil
}

func (r *reconciler) ofWorkload(_ context.Context, o client.Object) []ctrlreconcile.Request {
	w, ok := o.(*kueue.Workload)
	if !ok || (!job.IsElastic(w) && !plan.HasPlaces(w) && !leftPlaces(w)) {
		return nil
	}
	return request(w.Namespace, chains.Chain(w))
}

// leftPlaces reports whether the job of a Workload may run on without it, with a topology gate in its template: its namespace or its kind left
// management.
func leftPlaces(w *kueue.Workload) bool {
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
	return c != nil && c.Reason == kueue.ReasonOutOfSync && plan.IsAssigned(w)
}

// isChange reports whether a pod changed in anything that decides which pods are ungated. Its node does not: otherwise the start of each of
// many pods would have all of them listed.
func isChange(before, after *corev1.Pod) bool {
	return job.PodIsOver(before) != job.PodIsOver(after) || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		len(before.Spec.SchedulingGates) != len(after.Spec.SchedulingGates) ||
		!maps.Equal(before.Spec.NodeSelector, after.Spec.NodeSelector) ||
		!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)
}

// ofPod returns the chain of a pod. A pod that names a Workload and no chain, and has no gate, belongs to no elastic job. If it requests a
// topology its end may free the slot of another pod.
func ofPod(_ context.Context, pod *corev1.Pod) []ctrlreconcile.Request {
	if pod.Annotations[kueue.WorkloadSliceNameAnnotation] == "" && !plan.IsGated(pod) && !plan.IsUnplaced(pod) && !plan.AsksForTopology(pod) {
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
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch,roleName=kueue-manager-topology-role
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch,roleName=kueue-manager-topology-role
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads;resourceflavors,verbs=get;list;watch

// Reconcile ungates the pods of one chain for which there is room.
func (r *reconciler) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	err := r.reconcile(ctx, req.NamespacedName)
	if err == nil {
		r.notes.ForgetReason(req.NamespacedName, failedToUngate)
	}
	return reconcile.Retry(err).Result(ctx)
}

func (r *reconciler) reconcile(ctx context.Context, chain types.NamespacedName) error {
	if err := r.late.Ready(ctx); err != nil {
		return err
	}
	pods, err := r.Pods.OfChain(ctx, chain)
	if err == nil && len(pods) == 0 {
		r.notes.Forget(chain)
	}
	if err != nil || len(pods) == 0 {
		return err
	}
	managed, err := r.gate.IsManaged(ctx, chain.Namespace)
	if err != nil {
		return err
	}
	if !managed {
		return r.ungateAll(ctx, pods)
	}
	if err := r.updateToWritten(ctx, pods); err != nil {
		return err
	}
	w, err := r.granting(ctx, chain, pods)
	if err == nil && w == nil {
		return r.ungateDisabled(ctx, chain, pods)
	}
	if err != nil {
		return err
	}
	next, contradiction, err := r.decide(ctx, w, pods)
	if err == nil {
		r.warnOfContradiction(chain, w, contradiction)
		err = r.ungate(ctx, w, pods, next)
	}
	if reconcile.IsFailure(err) && r.notes.IsNews(chain, failedToUngate, "") {
		r.Events.Warning(w, failedToUngate, err.Error())
	}
	return err
}

// contradicted is the key of the last note about a pod that stays gated for its node selector.
const contradicted = "contradicted"

// warnOfContradiction reports a pod that stays gated for its node selector, once.
func (r *reconciler) warnOfContradiction(chain types.NamespacedName, w *kueue.Workload, note string) {
	switch {
	case note == "":
		r.notes.ForgetReason(chain, contradicted)
	case r.notes.IsNews(chain, contradicted, note):
		r.Events.Warning(w, failedToUngate, note)
	}
}

// updateToWritten replaces pods of the cache by newer versions that this process wrote.
func (r *reconciler) updateToWritten(ctx context.Context, pods []*corev1.Pod) (err error) {
	for i, pod := range pods {
		if pods[i], err = reconcile.Resolve(ctx, r.written, r.live, pod); err != nil {
			return err
		}
	}
	return nil
}

// decide returns the pods as they should be, one for each of the given pods. A pod that the gate of elastic jobs holds gets no domain: it
// would keep the slot from a pod that may run.
func (r *reconciler) decide(ctx context.Context, w *kueue.Workload, pods []*corev1.Pod) (all []*corev1.Pod, contradiction string, err error) {
	next := newPods(pods)
	if job.IsElastic(w) && slices.ContainsFunc(pods, plan.IsGated) {
		flavors, err := r.flavors(ctx, w)
		if err != nil {
			return nil, "", err
		}
		infos, err := job.InfosFromAdmission(r.Config, w, flavors)
		if err != nil {
			return nil, "", err
		}
		var freed []*corev1.Pod
		freed, contradiction = plan.Decide(&plan.Observed{Slice: w, Infos: infos, Pods: pods})
		if plan.HasPlaces(w) {
			plan.HoldForPlaces(freed, infos)
		}
		next.replace(freed)
	}
	switch {
	case !plan.HasPlaces(w):
	case !r.Config.Topology:
		next.replace(plan.FreeUnplaced(next.list))
	default:
		if err := r.place(ctx, w, next); err != nil {
			return nil, "", err
		}
		for i, pod := range pods {
			if plan.IsUnplaced(next.list[i]) && !plan.IsUnplaced(pod) {
				next.list[i] = pod // no place is free: it keeps the gate that it has
			}
		}
	}
	return next.list, contradiction, nil
}

// place gives places to the pods that the gate of elastic jobs does not hold.
func (r *reconciler) place(ctx context.Context, w *kueue.Workload, next *newList) error {
	unhealthy, err := r.unhealthy(ctx, w)
	if err != nil {
		return err
	}
	free := make([]*corev1.Pod, 0, len(next.list))
	for _, pod := range next.list {
		if !job.IsElastic(w) || !plan.IsGated(pod) {
			free = append(free, pod)
		}
	}
	placed, err := plan.Place(&plan.Placement{Workload: w, Pods: free, Unhealthy: unhealthy})
	if err != nil {
		return fmt.Errorf("workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	next.replace(placed)
	return nil
}

// newList is a list of pods in which some are replaced.
type newList struct {
	list []*corev1.Pod
	at   map[types.UID]int
}

func newPods(pods []*corev1.Pod) *newList {
	n := &newList{list: append([]*corev1.Pod(nil), pods...), at: make(map[types.UID]int, len(pods))}
	for i, pod := range pods {
		n.at[pod.UID] = i
	}
	return n
}

func (n *newList) replace(pods []*corev1.Pod) {
	for _, pod := range pods {
		n.list[n.at[pod.UID]] = pod
	}
}

// ungateAll removes the gates of pods whose namespace left management while their job runs: its template has the gates, and cannot change
// any more. Only pods of a job that Berth started name a chain (spec: 30 §4.2.5 rule 2).
func (r *reconciler) ungateAll(ctx context.Context, pods []*corev1.Pod) error {
	var errs []error
	for _, pod := range pods {
		if (!plan.IsGated(pod) && !plan.IsUnplaced(pod)) || pod.DeletionTimestamp != nil {
			continue
		}
		errs = append(errs, client.IgnoreNotFound(r.patch(ctx, pod, plan.Abandon(pod))))
	}
	return reconcile.Summarize(errs)
}

// ungateDisabled is ungateAll for jobs whose kind is not enabled any more.
func (r *reconciler) ungateDisabled(ctx context.Context, chain types.NamespacedName, pods []*corev1.Pod) error {
	named, err := r.named(ctx, chain)
	if err != nil || !slices.ContainsFunc(named, func(w *kueue.Workload) bool { return r.Config.Kinds.AreOff(w.OwnerReferences) }) {
		return err
	}
	return r.ungateAll(ctx, pods)
}

// granting returns the Workload that lets the pods of a chain run, nil if there is none: the admitted slice of the job, or the Workload
// with the name of the chain. If only pods remain of a chain of slices, the job is their controller.
func (r *reconciler) granting(ctx context.Context, chain types.NamespacedName, pods []*corev1.Pod) (*kueue.Workload, error) {
	named, err := r.named(ctx, chain)
	if err != nil {
		return nil, err
	}
	if len(named) == 1 && !job.IsElastic(named[0]) {
		return admitted(named[0]), nil
	}
	owner := lastController(named)
	if len(named) == 0 {
		owner = lastController(pods)
	}
	if owner == "" {
		return chains.Granting(named), nil
	}
	all, err := r.workloads(ctx, chain.Namespace, byOwner, owner)
	return chains.Granting(all), err
}

func admitted(w *kueue.Workload) *kueue.Workload {
	if chains.LetsPodsRun(w) {
		return w
	}
	return nil
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
