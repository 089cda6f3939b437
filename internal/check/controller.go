// Package check runs admission checks: second conditions of an admission, beside quota. Package plan has the contract of a check; this one
// reads, writes and repeats. All checks are run by the same two controllers, each with a field manager of its own: Activity for
// AdmissionChecks, and Controller for Workloads.
//
//	Workload, AdmissionCheck, own objects ─► Observe ─► Cleanup and Plan ─► own writes, then the entries ─┐
//	                                           ▲                                                          │
//	                                           └──────────────────── events ◄─────────────────────────────┘
//
// (spec: 20 §4.17)
package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/check/plan"
	"github.com/berth-project/berth/internal/reconcile"
)

// Facts are everything that decides about the checks of one controller in one Workload.
type Facts interface {
	// Plan decides about one check of a Workload with a reservation (plan.Holds).
	Plan(check *kueue.AdmissionCheck, entry kueue.AdmissionCheckState) plan.Plan
	// Cleanup returns the deletions of objects that the Workload does not need any more, in any state.
	Cleanup() []plan.Write
}

// Controller answers the AdmissionChecks of one controller name in Workloads.
type Controller struct {
	// Name is the spec.controllerName of the checks, and the field manager of all writes.
	Name string
	// Observe reads, from caches, what decides about the given checks of a Workload. own returns the newest of some objects that belong to
	// checks: as the cache shows them, or as they were written since.
	Observe func(ctx context.Context, wl *kueue.Workload, checks []*kueue.AdmissionCheck, own Owned) (Facts, error)
	Events  reconcile.Events
	// Workers is how many Workloads are reconciled at once.
	Workers int
	Now     func() time.Time

	client  client.Client
	live    client.Reader
	status  *reconcile.WorkloadStatus
	written *reconcile.Overlay[*kueue.Workload]
	own     *reconcile.Overlay[client.Object]
}

// Owned returns objects as the cache shows them or as they were written, with the created ones for which belongs is true.
type Owned func(shown []client.Object, belongs func(client.Object) bool) []client.Object

// Setup adds the controller under a name to the manager. watch adds the events of own objects and of parameters.
func (c *Controller) Setup(mgr ctrl.Manager, name string, watch func(*builder.Builder)) error {
	c.client, c.live, c.status = mgr.GetClient(), mgr.GetAPIReader(), reconcile.NewWorkloadStatus(mgr.GetClient())
	c.written, c.own = reconcile.NewOverlay[*kueue.Workload](c.Now), reconcile.NewOverlay[client.Object](c.Now)
	checked := func(o client.Object) bool { return len(o.(*kueue.Workload).Status.AdmissionChecks) > 0 }
	b := ctrl.NewControllerManagedBy(mgr).Named(name).
		For(&kueue.Workload{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return checked(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool { return checked(e.ObjectOld) || checked(e.ObjectNew) },
			DeleteFunc: func(event.DeleteEvent) bool { return false }, // own objects have it as their owner
		})).
		Watches(&kueue.AdmissionCheck{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrlreconcile.Request {
			return c.OfCheck(ctx, o.GetName())
		}), builder.WithPredicates(predicate.Or(reconcile.EditedLater(), activated))).
		WithOptions(reconcile.ControllerOptions(max(c.Workers, 1)))
	watch(b)
	return b.Complete(c)
}

// activated passes checks that became active or inactive: Workloads wait while their check is not active.
var activated = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		is := func(o client.Object) bool {
			return apimeta.IsStatusConditionTrue(o.(*kueue.AdmissionCheck).Status.Conditions, kueue.AdmissionCheckActive)
		}
		return is(e.ObjectOld) != is(e.ObjectNew)
	},
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads;admissionchecks,verbs=get;list;watch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/status,verbs=patch

// OwnEvents is a handler of events about own objects, and ends the entries of deleted ones.
func (c *Controller) OwnEvents(h handler.EventHandler) handler.EventHandler {
	return ownEvents{h, c.own}
}

type ownEvents struct {
	handler.EventHandler
	own *reconcile.Overlay[client.Object]
}

func (h ownEvents) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() { // the watch missed a deletion
		h.own.Gone(e.ObjectOld.GetUID())
	}
	h.EventHandler.Update(ctx, e, q)
}

func (h ownEvents) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	h.own.Gone(e.Object.GetUID())
	h.EventHandler.Delete(ctx, e, q)
}

type queue = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]

// OfCheck returns requests for the Workloads that list a check.
func (c *Controller) OfCheck(ctx context.Context, name string) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, c.client, &kueue.WorkloadList{}, "Workloads", func(w *kueue.Workload) bool {
		return slices.ContainsFunc(w.Status.AdmissionChecks, func(s kueue.AdmissionCheckState) bool { return string(s.Name) == name })
	})
}

// Reconcile decides about one Workload: it makes the writes to own objects, then writes the entries.
func (c *Controller) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	var shown kueue.Workload
	if err := c.client.Get(ctx, req.NamespacedName, &shown, client.UnsafeDisableDeepCopy); err != nil {
		return ctrlreconcile.Result{}, client.IgnoreNotFound(err)
	}
	wl, err := reconcile.Resolve(ctx, c.written, c.live, &shown)
	if err != nil {
		return ctrlreconcile.Result{}, err
	}
	checks, err := c.checksOf(ctx, wl)
	if err != nil {
		return ctrlreconcile.Result{}, err
	}
	unshown := false
	facts, err := c.Observe(ctx, wl, checks, func(shown []client.Object, belongs func(client.Object) bool) []client.Object {
		all := c.own.List(shown, belongs)
		unshown = unshown || len(all) > len(shown)
		return all
	})
	if err != nil {
		return ctrlreconcile.Result{}, err
	}
	wrote, err := c.carryOut(ctx, wl, facts.Cleanup())
	errs := []error{err}
	next := wl.DeepCopy()
	for _, check := range checks {
		if !plan.Holds(wl) {
			break
		}
		at := slices.IndexFunc(next.Status.AdmissionChecks, func(s kueue.AdmissionCheckState) bool { return string(s.Name) == check.Name })
		decided := facts.Plan(check, next.Status.AdmissionChecks[at])
		n, err := c.carryOut(ctx, wl, decided.Writes)
		wrote += n
		if err = errors.Join(decided.Err, err); err != nil { // the other checks are not its matter
			errs = append(errs, fmt.Errorf("admission check %s: %w", check.Name, err))
			continue
		}
		next.Status.AdmissionChecks[at] = decided.Entry
	}
	errs = append(errs, c.writeEntries(ctx, wl, next))
	if err := errors.Join(errs...); err != nil {
		return result(ctx, errs, err)
	}
	switch {
	case wrote > 0: // the next decision sees the written objects
		return reconcile.Wait(0).Result(ctx)
	case unshown:
		return reconcile.Wait(reconcile.Believed).Result(ctx)
	}
	return ctrlreconcile.Result{}, nil
}

// result retries. A single error may only show that a cache lags behind.
func result(ctx context.Context, errs []error, all error) (ctrlreconcile.Result, error) {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return reconcile.Retry(errs[0]).Result(ctx)
	}
	return ctrlreconcile.Result{}, all
}

// checksOf returns the checks of this controller that a Workload lists.
func (c *Controller) checksOf(ctx context.Context, wl *kueue.Workload) (out []*kueue.AdmissionCheck, err error) {
	for _, s := range wl.Status.AdmissionChecks {
		check := &kueue.AdmissionCheck{}
		if err := c.client.Get(ctx, client.ObjectKey{Name: string(s.Name)}, check, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return nil, err
		} else if err == nil && check.Spec.ControllerName == c.Name {
			out = append(out, check)
		}
	}
	return out, nil
}

// carryOut makes writes in order until one fails, and returns how many were made.
func (c *Controller) carryOut(ctx context.Context, wl *kueue.Workload, writes []plan.Write) (n int, err error) {
	for i := range writes {
		w := &writes[i]
		switch err := c.write(ctx, w); {
		case err == nil:
			c.emit(wl, w.Event)
		case w.Verb == plan.Delete && client.IgnoreNotFound(err) == nil:
		case w.Verb == plan.Create && apierrors.IsAlreadyExists(err):
			if err := c.readExisting(ctx, wl, w); err != nil {
				return n, err
			}
			return n + 1, nil // the next decision sees it
		default:
			if w.Failed.Reason != "" {
				w.Failed.Note += ": " + err.Error()
				c.emit(wl, w.Failed)
			}
			return n, fmt.Errorf("%s %T %s: %w", w.Verb, w.Object, w.Object.GetName(), err)
		}
		n++
	}
	return n, nil
}

// readExisting reads an object that exists although the cache does not show it: its creation had no answer, or it is another one's.
func (c *Controller) readExisting(ctx context.Context, wl *kueue.Workload, w *plan.Write) error {
	there := w.Object.DeepCopyObject().(client.Object)
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(there), there); err != nil {
		return fmt.Errorf("%T %s: %w", there, there.GetName(), err)
	}
	if !metav1.IsControlledBy(there, wl) {
		w.Failed.Note += ": there is another object of that name"
		c.emit(wl, w.Failed)
		return fmt.Errorf("%T %s exists, and does not belong to the workload", there, there.GetName())
	}
	c.own.Created(there)
	return nil
}

func (c *Controller) write(ctx context.Context, w *plan.Write) error {
	object := w.Object.DeepCopyObject().(client.Object)
	switch w.Verb {
	case plan.Create:
		if err := c.client.Create(ctx, object, client.FieldOwner(c.Name)); err != nil {
			return err
		}
		c.own.Created(object)
	case plan.Patch:
		pinned := client.MergeFromWithOptions(w.Base.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
		if err := c.client.Patch(ctx, object, pinned, client.FieldOwner(c.Name)); err != nil {
			return err
		}
		c.own.Updated(object)
	case plan.Delete:
		uid := object.GetUID()
		if err := c.client.Delete(ctx, object, client.Preconditions{UID: &uid}); err != nil {
			return err
		}
		object.SetDeletionTimestamp(new(metav1.NewTime(c.Now())))
		c.own.Deleted(object)
	}
	return nil
}

// writeEntries writes the entries that changed, all at once, and emits an event for each new state.
func (c *Controller) writeEntries(ctx context.Context, wl, next *kueue.Workload) error {
	if equality.Semantic.DeepEqual(wl.Status.AdmissionChecks, next.Status.AdmissionChecks) {
		return nil
	}
	stored, err := c.status.Checks(ctx, wl, next, c.Name)
	c.written.Wrote(wl, stored, err)
	if err != nil {
		return err
	}
	for i, s := range next.Status.AdmissionChecks {
		if was := wl.Status.AdmissionChecks[i].State; was != s.State {
			note := fmt.Sprintf("Admission check %s changed from %s to %s", s.Name, was, s.State)
			if s.Message != "" {
				note += ": " + s.Message
			}
			c.emit(stored, plan.Event{Reason: reasonUpdated, Note: note})
		}
	}
	return nil
}

// reasonUpdated is the reason of the event of a new state of a check (spec: 20 §5.2).
const reasonUpdated = "AdmissionCheckUpdated"

func (c *Controller) emit(wl *kueue.Workload, e plan.Event) {
	switch {
	case e.Reason == "":
	case e.Warning:
		c.Events.Warning(wl, e.Reason, e.Note)
	default:
		c.Events.Normal(wl, e.Reason, e.Note)
	}
}
