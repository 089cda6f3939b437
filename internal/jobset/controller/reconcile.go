package controller

import (
	"context"
	"fmt"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/job"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/reconcile"
)

type reconciler struct {
	plan     plan.Config
	client   client.Client
	live     client.Reader
	jobs     *jobs
	pods     client.Reader
	recorder events.EventRecorder
	metrics  *metrics
	written  *written
	turns    turns
	now      func() time.Time
	// refusals of objects of JobSets, by the UID of the JobSet
	refusals *reconcile.Refusals
}

// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=get;list;watch;delete,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets/status,verbs=patch,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets/finalizers,verbs=update,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups=batch,resources=jobs/status,verbs=patch,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups="",resources=services;persistentvolumeclaims,verbs=get;list;watch;create,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs,verbs=get,roleName=kueue-manager-jobset-role

// lag is the delay before a retry if the cache has an old version of a JobSet; its event usually comes earlier.
const lag = 100 * time.Millisecond

func (r *reconciler) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var js jobsetv1alpha2.JobSet
	if err := r.client.Get(ctx, req.NamespacedName, &js, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.written.forget(req.NamespacedName)
			r.metrics.forget(req.NamespacedName)
			return ctrlreconcile.Result{}, nil
		}
		return reconcile.Retry(err).Result(ctx)
	}
	if js.DeletionTimestamp != nil || !plan.IsManaged(&js) {
		return ctrlreconcile.Result{}, nil
	}
	r.metrics.saw(&js)
	if r.written.statuses.IsBehind(&js) {
		return reconcile.Wait(lag).Result(ctx)
	}
	o, err := r.observe(ctx, &js)
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	p := r.plan.Decide(o)
	for _, w := range p.Warnings {
		if r.written.isNews(&js, w) {
			log.FromContext(ctx).Info(w)
		}
	}
	return r.carryOut(ctx, o, &p).Result(ctx)
}

// observe reads the input of the plan for a JobSet, almost all from caches, with which it is shared: it must not be changed.
func (r *reconciler) observe(ctx context.Context, js *jobsetv1alpha2.JobSet) (*plan.Observed, error) {
	o := &plan.Observed{JobSet: js, Now: r.now(), CountersWritten: r.written.status(js), Priorities: plan.Priorities{Classes: map[string]int32{}}}
	o.Jobs = r.written.jobs(js).List(r.jobs.of(js.UID), nil)
	if plan.HasService(js) {
		found, err := metadata(ctx, r.client, "Service", js.Namespace, plan.ServiceName(js))
		if err != nil {
			return nil, err
		}
		o.ServiceExists = found != nil
	}
	for _, name := range plan.ClaimNames(js) {
		found, err := metadata(ctx, r.client, "PersistentVolumeClaim", js.Namespace, name)
		if err != nil {
			return nil, err
		}
		if found != nil {
			if o.Claims == nil {
				o.Claims = map[string]metav1.Object{}
			}
			o.Claims[name] = found
		}
	}
	var classes schedulingv1.PriorityClassList
	if err := r.client.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing priority classes: %w", err)
	}
	for i := range classes.Items {
		c := &classes.Items[i]
		o.Priorities.Classes[c.Name] = c.Value
	}
	if c := job.DefaultClass(classes.Items); c != nil {
		o.Priorities.Default = c.Value
	}
	if r.plan.WatchesPods(js) {
		pods, err := list(ctx, r.pods, js.Namespace, client.MatchingFields{podsByJobSet: js.Name})
		if err != nil {
			return nil, err
		}
		o.Pods = pods
	}
	var err error
	o.OwnerActive, err = r.ownerActive(ctx, js)
	return o, err
}

// metadata reads the metadata of an object of the core group; nil if it does not exist.
func metadata(ctx context.Context, c client.Reader, kind, namespace, name string) (metav1.Object, error) {
	found := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s/%s: %w", kind, namespace, name, err)
	}
	return found, nil
}

// ownerActive reports whether a JobSet whose time to live counts down belongs to a TrainJob that has not finished. For other JobSets
// it makes no request.
func (r *reconciler) ownerActive(ctx context.Context, js *jobsetv1alpha2.JobSet) (bool, error) {
	owner := plan.TrainJobOf(js)
	if js.Spec.TTLSecondsAfterFinished == nil || plan.FinishedCondition(js) == nil || owner == nil {
		return false, nil
	}
	var job trainerv1alpha1.TrainJob
	err := r.live.Get(ctx, client.ObjectKey{Namespace: js.Namespace, Name: owner.Name}, &job)
	switch {
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the TrainJob of %s/%s: %w", js.Namespace, js.Name, err)
	}
	finished := apimeta.IsStatusConditionTrue(job.Status.Conditions, "Complete") || apimeta.IsStatusConditionTrue(job.Status.Conditions, "Failed")
	return job.UID == owner.UID && !finished, nil
}
