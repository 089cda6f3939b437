package controller

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// reconciler handles the jobs of one kind.
type reconciler struct {
	d        *job.Descriptor
	composed *job.Groups                 // of a reconciler of groups
	cfg      *atomic.Pointer[job.Config] // of all kinds
	gate     *lookup.Gate
	client   client.Client
	cache    client.Reader // also of kinds without Go types, which the client would read from the API server
	live     client.Reader
	kinds    *kinds
	// byParent and byPrebuilt find jobs by the UID of their controller, and by the Workload that they name.
	byParent, byPrebuilt *reconcile.Index
	status               *reconcile.WorkloadStatus
	events               reconcile.Events
	now                  func() time.Time
	// created is called for every Workload that was made; may be nil
	created func(kind string, job client.Object, w *kueue.Workload)
	// ungated is called for every pod that was ungated; may be nil
	ungated    func(w *kueue.Workload, gates []string, group bool, at time.Time)
	childCache *childCache // of a kind with managed children
	// childWatches are of a kind with elastic jobs
	childWatches childWatches
	// written overlays what the cache does not show yet: Workloads, children and pods of a kind with managed children, so that the room of an
	// ungated pod is not given to another one; and created slices of elastic jobs, whose names do not keep a second one from being created,
	// since they follow the generation and the children of the job.
	written *reconcile.Overlay[client.Object]
	// refusals are refused starts, by the admission of the Workload
	refusals *reconcile.Refusals
	again    chan event.GenericEvent // has an entry after a change of the retention of jobs

	lastNotes reconcile.LastNotes
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/status,verbs=update;patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=resourceflavors;workloadpriorityclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile makes the next write for one job.
func (r *reconciler) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	observe := r.observeJob
	if r.composed != nil {
		observe = r.observeGroup
	}
	o, err := observe(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	switch lag, err := r.lag(ctx, o); {
	case err != nil:
		return reconcile.Retry(err).Result(ctx)
	case lag > 0:
		return reconcile.Wait(lag).Result(ctx)
	}
	a := decide.Next(r.cfg.Load(), r.d, o)
	return r.do(ctx, req.NamespacedName, o, a).Result(ctx)
}

// observeJob reads a job and everything that decide.Next needs.
func (r *reconciler) observeJob(ctx context.Context, key types.NamespacedName) (*job.Observed, error) {
	o := &job.Observed{Now: metav1.NewTime(r.now()), Flavors: job.Flavors{}}
	var err error
	if o.Workloads, err = r.workloads(ctx, key.Namespace, byOwner(r.d.GVK), key.Name); err != nil {
		return nil, err
	}
	if o.Job, err = r.job(ctx, key, len(o.Workloads) > 0); err != nil || o.Job == nil {
		return o, err
	}
	if r.isMember(o.Job) {
		o.Job = nil // the group is the job, and the member's earlier Workloads are orphans
		return o, nil
	}
	switch o.Verdict, err = r.gate.JudgeExisting(ctx, r.d, o.Job); {
	case err != nil && !hasLive(o):
		return nil, err
	case err != nil:
		o.Verdict = job.Verdict{Err: err}
	case o.Verdict.Mode == job.Follows:
		o.AncestorRuns = r.gate.Runs(o.Verdict.Ancestor)
		uid := string(o.Verdict.Ancestor.Object.GetUID())
		if o.AncestorWorkloads, err = r.workloads(ctx, key.Namespace, byOwnerUID, uid); err != nil {
			return nil, err
		}
	}
	if isLeftAlone(o) {
		return o, nil
	}
	return o, r.observeAround(ctx, o)
}

// isLeftAlone reports whether nothing around a job decides about it: it has no live Workload, and is to have none, or its namespace is not
// managed.
func isLeftAlone(o *job.Observed) bool {
	return o.Verdict.Mode == job.Unmanaged || (o.Verdict.Mode != job.Managed && !hasLive(o))
}

// hasLive reports whether a job has Workloads that are not finished.
func hasLive(o *job.Observed) bool {
	return slices.ContainsFunc(o.Workloads, func(w *kueue.Workload) bool { return !lifecycle.IsFinished(w) })
}

// observeAround reads what is around a job that has Workloads, or is to have one.
func (r *reconciler) observeAround(ctx context.Context, o *job.Observed) (err error) {
	if o.Objects, err = r.gate.Refer(ctx, r.d, o.Job); err != nil {
		return err
	}
	steps := []func(context.Context, *job.Observed) error{r.observeChildren, r.prebuilt, r.flavors}
	if r.d.Remote != nil && r.d.Remote.Gated {
		steps = append(steps, r.delegated)
	}
	for _, step := range steps {
		if err := step(ctx, o); err != nil {
			return err
		}
	}
	o.Classes, err = r.classes(ctx, o)
	return err
}

// job reads the job, or nil if there is none. Before Workloads are treated as orphans the API server is asked: the cache of jobs
// may be behind the cache of Workloads.
func (r *reconciler) job(ctx context.Context, key types.NamespacedName, hasWorkloads bool) (job.Object, error) {
	object := r.d.New()
	err := r.cache.Get(ctx, key, object)
	if apierrors.IsNotFound(err) && hasWorkloads {
		err = r.live.Get(ctx, key, object)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", r.d.GVK.Kind, key, err)
	}
	return object, nil
}

// workloads reads the Workloads of one index entry, oldest first.
func (r *reconciler) workloads(ctx context.Context, namespace, index, value string) ([]*kueue.Workload, error) {
	return workloadsBy(ctx, r.cache, namespace, index, value)
}

func workloadsBy(ctx context.Context, cache client.Reader, namespace, index, value string, options ...client.ListOption) ([]*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := cache.List(ctx, &list, append(options, client.InNamespace(namespace), client.MatchingFields{index: value})...); err != nil {
		return nil, fmt.Errorf("listing workloads of %s/%s: %w", namespace, value, err)
	}
	out := make([]*kueue.Workload, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	decide.SortByAge(out)
	return out, nil
}

// lag returns for how long to wait while a slice that was created for the job exists, and the cache does not show it yet; zero otherwise. The slice
// reconciles the job when the cache shows it, but one that is deleted while the watch is broken has no event.
func (r *reconciler) lag(ctx context.Context, o *job.Observed) (time.Duration, error) {
	if o.Job == nil || r.d.Elastic == nil || r.written.Len() == 0 {
		return 0, nil
	}
	shown := make([]client.Object, len(o.Workloads))
	for i, w := range o.Workloads {
		shown[i] = w
	}
	all := r.written.List(shown, func(x client.Object) bool {
		_, isWorkload := x.(*kueue.Workload)
		return isWorkload && metav1.IsControlledBy(x, o.Job)
	})
	for _, w := range all[len(shown):] {
		var stored kueue.Workload
		err := r.live.Get(ctx, client.ObjectKeyFromObject(w), &stored)
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("reading workload %s: %w", client.ObjectKeyFromObject(w), err)
		}
		if err == nil && stored.UID == w.GetUID() {
			return reconcile.Believed, nil
		}
		r.written.Gone(w.GetUID())
	}
	return 0, nil
}

func (r *reconciler) prebuilt(ctx context.Context, o *job.Observed) error {
	name := r.cfg.Load().PrebuiltName(o.Job)
	if name == "" || !r.d.Prebuilt {
		return nil
	}
	var w kueue.Workload
	err := r.cache.Get(ctx, client.ObjectKey{Namespace: o.Job.GetNamespace(), Name: name}, &w)
	if err == nil {
		o.Prebuilt = &w
	}
	return client.IgnoreNotFound(err)
}

func (r *reconciler) flavors(ctx context.Context, o *job.Observed) error {
	read := func(w *kueue.Workload) error {
		if w == nil || w.Status.Admission == nil || !lifecycle.IsReserved(w) {
			return nil
		}
		if err := r.started(ctx, o, w); err != nil {
			return err
		}
		for _, a := range w.Status.Admission.PodSetAssignments {
			for _, name := range a.Flavors {
				if o.Flavors[name] != nil {
					continue
				}
				var flavor kueue.ResourceFlavor
				err := r.cache.Get(ctx, client.ObjectKey{Name: string(name)}, &flavor)
				if client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("reading flavor %s: %w", name, err)
				}
				if err == nil {
					o.Flavors[name] = &flavor
				}
			}
		}
		return nil
	}
	for _, w := range o.Workloads {
		if err := read(w); err != nil {
			return err
		}
	}
	return read(o.Prebuilt)
}

// started reads the variant on which a Workload runs, if it is a parent.
func (r *reconciler) started(ctx context.Context, o *job.Observed, w *kueue.Workload) error {
	if !lifecycle.IsParent(w) {
		return nil
	}
	as, err := lookup.AsStarted(ctx, r.cache, w)
	if as != nil {
		if o.Started == nil {
			o.Started = map[types.UID]*kueue.Workload{}
		}
		o.Started[w.UID] = as
	}
	return err
}

// classes reads the priority classes that the job names, or the default one.
func (r *reconciler) classes(ctx context.Context, o *job.Observed) (job.Classes, error) {
	podSets, err := r.d.PodSets(o.Job, job.NewSetting(r.cfg.Load(), o))
	if err != nil {
		return job.Classes{}, nil //nolint:nilerr // the plan says what is wrong with them
	}
	return r.classesOf(ctx, o.Job, podSets)
}

func (r *reconciler) classesOf(ctx context.Context, object job.Object, podSets []kueue.PodSet) (job.Classes, error) {
	classes := job.Classes{Workload: map[string]*kueue.WorkloadPriorityClass{}, Pod: map[string]*schedulingv1.PriorityClass{}}
	var err error
	ofWorkload, ofPods := job.ClassNames(r.d, object, podSets)
	switch {
	case ofWorkload != "":
		var class kueue.WorkloadPriorityClass
		if err = r.cache.Get(ctx, client.ObjectKey{Name: ofWorkload}, &class); err == nil {
			classes.Workload[ofWorkload] = &class
		}
	case ofPods != "":
		var class schedulingv1.PriorityClass
		if err = r.cache.Get(ctx, client.ObjectKey{Name: ofPods}, &class); err == nil {
			classes.Pod[ofPods] = &class
		}
	default:
		var list schedulingv1.PriorityClassList
		err = r.cache.List(ctx, &list, client.UnsafeDisableDeepCopy)
		classes.Default = job.DefaultClass(list.Items)
	}
	if client.IgnoreNotFound(err) != nil {
		return classes, fmt.Errorf("reading priority classes: %w", err)
	}
	return classes, nil
}
