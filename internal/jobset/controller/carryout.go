package controller

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	plan "github.com/berth-project/berth/internal/jobset/plan"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// parallel bounds the concurrent writes of Jobs and pods (spec: 60 §5.7).
const parallel = 50

// turns bounds the concurrent writes over all JobSets. Each JobSet waits in line for one turn at a time, and its next write
// goes to the end of the line: a small JobSet finishes soon while thousands of writes of a large one are pending.
// With a bound for each JobSet, the API server, where all requests come together, would mostly work for the large one.
type turns chan struct{}

func newTurns() turns { return make(turns, parallel) }

// carryOut executes a plan. A failure does not stop the other steps, except that nothing is done if the
// status cannot be written, and no Job is created without its Service and claims.
func (r *reconciler) carryOut(ctx context.Context, o *plan.Observed, p *plan.Plan) reconcile.Outcome {
	if p.Status != nil {
		if err := r.writeStatus(ctx, o.JobSet, p); err != nil {
			return reconcile.Retry(err)
		}
	}
	waits, err := r.change(ctx, o.JobSet, p)
	if p.DeleteJobSet {
		gone := r.client.Delete(ctx, o.JobSet.DeepCopy(), client.Preconditions{UID: &o.JobSet.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
		return reconcile.Retry(errors.Join(err, client.IgnoreNotFound(gone)))
	}
	failures := []error{p.Err, err}
	more := false
	if err := r.prepare(ctx, o.JobSet, p); err != nil {
		failures = append(failures, err)
	} else {
		more, err = r.create(ctx, o.JobSet, p.Create)
		failures = append(failures, err)
	}
	err = errors.Join(failures...)
	if end := r.giveUp(o, err); end != nil {
		return r.carryOut(ctx, o, end)
	}
	if err != nil {
		return reconcile.Retry(err)
	}
	if more {
		return reconcile.Wait(0)
	}
	after := p.After
	if waits {
		after = reconcile.Earliest(after, refusedPause)
	}
	if r.written.jobs(o.JobSet).Len() > 0 {
		after = reconcile.Earliest(after, reconcile.Believed) // a Job that comes and goes while a watch is broken has no event
	}
	if after > 0 {
		return reconcile.Wait(after)
	}
	return reconcile.Done()
}

// change deletes and patches Jobs, and reports whether a Job must wait for its old pods. One event reports all Jobs that could not be changed.
func (r *reconciler) change(ctx context.Context, js *jobsetv1alpha2.JobSet, p *plan.Plan) (waits bool, err error) {
	var work []func() error
	for _, j := range p.Delete {
		work = append(work, func() error { return r.delete(ctx, js, j) })
	}
	var mu sync.Mutex
	for _, patch := range p.Patches {
		work = append(work, func() error {
			refused, err := r.patch(ctx, js, patch)
			mu.Lock()
			defer mu.Unlock()
			waits = waits || refused
			return err
		})
	}
	err = reconcile.Summarize(r.turns.atOnce(work))
	if reconcile.IsFailure(err) {
		r.tell(js, plan.Event{Warning: true, Reason: jobsetv1alpha2.EventJobChangeFailed, Note: err.Error()})
	}
	return waits, err
}

// giveUp returns the plan that ends a JobSet whose objects are refused for good, or nil.
func (r *reconciler) giveUp(o *plan.Observed, err error) *plan.Plan {
	if !r.refusals.IsFinal(o.JobSet.UID, err) || o.Refused != "" {
		return nil
	}
	o.Refused = lifecycle.Cut(err.Error(), lifecycle.MaxMessage)
	if end := r.plan.Decide(o); end.Finished != "" {
		return &end
	}
	return nil
}

// refusedPause is the delay before the retry of a resume that the API server refused because old pods may still exist.
const refusedPause = time.Second

// atOnce runs functions of one JobSet concurrently, and returns their errors in the order of the functions.
func (t turns) atOnce(work []func() error) []error {
	failed := make([]error, len(work))
	var wg sync.WaitGroup
	for i, do := range work {
		t <- struct{}{} // waiting senders are served in the order of their arrival
		wg.Go(func() {
			defer func() { <-t }()
			failed[i] = do()
		})
	}
	wg.Wait()
	return slices.DeleteFunc(failed, func(err error) bool { return err == nil })
}

// writeStatus patches the changed fields of the status, unless the JobSet has changed meanwhile, and emits the events.
func (r *reconciler) writeStatus(ctx context.Context, js *jobsetv1alpha2.JobSet, p *plan.Plan) error {
	changed := js.DeepCopy() // the answer is decoded into it
	changed.Status = *p.Status
	err := r.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(js, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("writing the status of JobSet %s/%s: %w", js.Namespace, js.Name, err)
	}
	r.written.wroteStatus(changed)
	r.metrics.count(client.ObjectKeyFromObject(js), p, r.now())
	for _, e := range p.Events {
		r.tell(js, e)
	}
	return nil
}

const action = "Reconciling"

// maxNote is the number of bytes of text that an Event keeps.
const maxNote = 1024

// tell records an event. The reference leaves the version of the JobSet out, so that repeats count as one series
// (spec: 60 §5.2).
func (r *reconciler) tell(js *jobsetv1alpha2.JobSet, e plan.Event) {
	regarding := &corev1.ObjectReference{
		APIVersion: jobsetv1alpha2.GroupVersion.String(), Kind: jobsetv1alpha2.KindJobSet, Namespace: js.Namespace, Name: js.Name, UID: js.UID,
	}
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(regarding, nil, kind, e.Reason, action, "%s", lifecycle.Cut(e.Note, maxNote))
}

func (r *reconciler) delete(ctx context.Context, js *jobsetv1alpha2.JobSet, j *batchv1.Job) error {
	object := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}}
	err := r.client.Delete(ctx, object, client.Preconditions{UID: &j.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Job %s/%s: %w", j.Namespace, j.Name, err)
	}
	r.written.deletedJob(js, j)
	return nil
}

// patch changes a Job. It reports whether the API server refuses a new template because of the pods of the old one, which is
// a reason to wait and no failure. A refusal because of the content of the template is a failure.
func (r *reconciler) patch(ctx context.Context, js *jobsetv1alpha2.JobSet, p plan.Patch) (refused bool, err error) {
	apply := func() (*batchv1.Job, error) {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: p.Job.Namespace, Name: p.Job.Name}}
		return j, r.client.Patch(ctx, j, client.RawPatch(types.MergePatchType, p.Data))
	}
	j, err := apply()
	if p.Template && apierrors.IsInvalid(err) && p.Job.Status.StartTime != nil {
		// Up to Kubernetes 1.35 a template can change only before the Job was started.
		restarted := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: p.Job.Namespace, Name: p.Job.Name}}
		unstarted := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"startTime":null}}`, p.Job.UID)
		if r.client.Status().Patch(ctx, restarted, client.RawPatch(types.MergePatchType, unstarted)) == nil {
			j, err = apply()
		}
	}
	switch {
	case err == nil:
		r.written.jobs(js).Updated(read(j))
		return false, nil
	case apierrors.IsNotFound(err):
		return false, nil // its deletion event requeues the JobSet
	case p.Template && apierrors.IsInvalid(err) && !reconcile.IsRefused(err):
		log.FromContext(ctx).V(1).Info("A Job is not ready to be resumed, trying again", "job", p.Job.Name, "err", err.Error())
		return true, nil
	}
	return false, fmt.Errorf("changing Job %s/%s: %w", p.Job.Namespace, p.Job.Name, err)
}

func (r *reconciler) prepare(ctx context.Context, js *jobsetv1alpha2.JobSet, p *plan.Plan) error {
	if p.Service != nil {
		if err := r.client.Create(ctx, p.Service); err != nil && !apierrors.IsAlreadyExists(err) {
			r.tell(js, plan.Event{Warning: true, Reason: jobsetv1alpha2.EventHeadlessServiceCreationFailed, Note: err.Error()})
			return fmt.Errorf("creating Service %s/%s: %w", p.Service.Namespace, p.Service.Name, err)
		}
	}
	var failures []error
	for _, policy := range p.Claims {
		for _, claim := range policy {
			if err := r.client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
				failures = append(failures, fmt.Errorf("creating PersistentVolumeClaim %s/%s: %w", claim.Namespace, claim.Name, err))
				break
			}
		}
	}
	if err := errors.Join(failures...); err != nil {
		r.tell(js, plan.Event{Warning: true, Reason: jobsetv1alpha2.EventPVCCreationFailed, Note: err.Error()})
		return err
	}
	return nil
}

// create creates Jobs, and reports whether there are more than one pass creates. Windows of one, two, four Jobs and so on follow each
// other, as in the Job controller: an API server that refuses one Job most probably refuses all, so the rest is not tried
// then. A name that is taken stops only its own Job. One event reports all Jobs that could not be created.
func (r *reconciler) create(ctx context.Context, js *jobsetv1alpha2.JobSet, jobs iter.Seq[plan.Missing]) (more bool, err error) {
	if jobs == nil {
		return false, nil
	}
	next, stop := iter.Pull(jobs)
	defer stop()
	var failures []error
	tried, refused := 0, false
	for window := 1; !refused && tried < plan.Window && ctx.Err() == nil; window *= 2 {
		work := r.nextWindow(ctx, js, next, min(window, plan.Window-tried))
		if len(work) == 0 {
			break
		}
		tried += len(work)
		for _, err := range r.turns.atOnce(work) {
			refused = refused || !errors.Is(err, errTaken)
			failures = append(failures, err)
		}
	}
	_, more = next()
	err = reconcile.Summarize(failures)
	if err == nil || ctx.Err() != nil {
		return more, errors.Join(err, ctx.Err())
	}
	r.tell(js, plan.Event{Warning: true, Reason: jobsetv1alpha2.EventJobCreationFailed, Note: err.Error()})
	return more && !refused, err
}

// nextWindow returns the functions that create the next Jobs, at most n.
func (r *reconciler) nextWindow(ctx context.Context, js *jobsetv1alpha2.JobSet, next func() (plan.Missing, bool), n int) (work []func() error) {
	for len(work) < n {
		missing, ok := next()
		if !ok {
			break
		}
		work = append(work, func() error { return r.createOne(ctx, js, missing.Build()) })
	}
	return work
}

// errTaken is the error of a Job whose name another object has.
var errTaken = errors.New("a Job of this name exists that does not belong to this JobSet")

// createOne creates a Job. An existing Job of this JobSet was created by a write that neither this process nor the cache remembers.
func (r *reconciler) createOne(ctx context.Context, js *jobsetv1alpha2.JobSet, j *batchv1.Job) error {
	err := r.client.Create(ctx, j)
	if err == nil {
		r.written.jobs(js).Created(read(j))
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Job %s/%s: %w", j.Namespace, j.Name, err)
	}
	var have batchv1.Job
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(j), &have); err != nil {
		return fmt.Errorf("reading Job %s/%s, which exists already: %w", j.Namespace, j.Name, err)
	}
	if owner := jobSetOf(&have); owner == nil || owner.UID != js.UID {
		return fmt.Errorf("creating Job %s/%s: %w", j.Namespace, j.Name, errTaken) // never adopted
	}
	r.written.jobs(js).Created(read(&have))
	return nil
}
