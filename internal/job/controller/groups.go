package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// byGroup is the index of members by their job.
const byGroup = "berth.group"

// parallel is the number of concurrent writes to members of a job.
const parallel = 8

// reconciled is the subject of one reconciler: the jobs of a kind, or the groups of its objects.
type reconciled struct {
	d      *job.Descriptor
	groups *job.Groups
}

// withGroups adds the reconcilers of groups.
func withGroups(descriptors []*job.Descriptor) []reconciled {
	var out []reconciled
	for _, d := range descriptors {
		out = append(out, reconciled{d: d})
		if d.Groups != nil {
			out = append(out, reconciled{d.Groups.Jobs, d.Groups})
		}
	}
	return out
}

// members are the objects of a job: itself, or its members.
func members(o job.Object) []job.Object {
	if c, ok := o.(job.Composite); ok {
		return c.Members()
	}
	return []job.Object{o}
}

// each calls do for every member, concurrently. Members that are not found are skipped, unless there is only one.
func each(list []job.Object, do func(job.Object) error) error {
	if len(list) == 1 {
		return do(list[0])
	}
	errs := make([]error, len(list))
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i, m := range list {
		wg.Go(func() {
			slots <- struct{}{}
			errs[i] = client.IgnoreNotFound(do(m))
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// byUID are the objects of a job by UID.
func byUID(o job.Object) map[types.UID]job.Object {
	out := map[types.UID]job.Object{}
	for _, m := range members(o) {
		out[m.GetUID()] = m
	}
	return out
}

// isMember reports whether an object is a member of a group, and no job itself.
func (r *reconciler) isMember(o job.Object) bool {
	return r.d.Groups != nil && r.d.Groups.Member(o, r.cfg.Load()) != ""
}

// setupGroups starts the controller of groups. A request has the name of the group.
func (r *reconciler) setupGroups(ctx context.Context, mgr ctrl.Manager, workers int) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, r.d.New(), byGroup, func(o client.Object) []string {
		if name := r.composed.Member(o, r.cfg.Load()); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.watch(mgr, r.name()+"_group", workers, r.groupOfWorkload).
		Watches(r.d.New(), handler.EnqueueRequestsFromMapFunc(r.jobOf)).
		Complete(r)
}

// groupOfWorkload returns the group with the name of a Workload, also if the Workload belongs to another job.
func (r *reconciler) groupOfWorkload(ctx context.Context, w client.Object) []ctrlreconcile.Request {
	if _, ours := w.GetAnnotations()[kueue.IsGroupWorkloadAnnotation]; ours || metav1.GetControllerOf(w) == nil {
		return []ctrlreconcile.Request{request(w.GetNamespace(), w.GetName())}
	}
	return r.find(ctx, w.GetNamespace(), client.MatchingFields{byGroup: w.GetName()})
}

// observeGroup reads a group: its members, and the Workload of its name.
func (r *reconciler) observeGroup(ctx context.Context, key types.NamespacedName) (*job.Observed, error) {
	o := &job.Observed{Now: metav1.NewTime(r.now()), Flavors: job.Flavors{}}
	var w *kueue.Workload
	var found kueue.Workload
	switch err := r.cache.Get(ctx, key, &found); {
	case err == nil:
		w = &found
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading workload %s: %w", key, err)
	}
	list, err := r.groupWith(ctx, key, w)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		if w != nil && r.isGroupless(w) {
			o.Workloads = []*kueue.Workload{w}
		}
		return o, nil
	}
	o.Job = r.composed.Join(key.Name, list, r.cfg.Load(), o.Now.Time)
	if o.Verdict, err = r.gate.JudgeExisting(ctx, r.d, o.Job); err != nil {
		return nil, err
	}
	managed := o.Verdict.Mode == job.Managed
	if w != nil && (managed || w.Annotations[kueue.IsGroupWorkloadAnnotation] != "" || r.cfg.Load().PrebuiltName(o.Job) == key.Name) {
		o.Workloads = []*kueue.Workload{w}
	}
	if isLeftAlone(o) {
		return o, nil
	}
	if err := errors.Join(r.flavors(ctx, o), r.delegated(ctx, o)); err != nil {
		return nil, err
	}
	o.Classes, err = r.classes(ctx, o)
	return o, err
}

// groupWith lists the members of a group. If the cache has none and the group has a Workload, the API server is asked: the cache of
// members may be behind the cache of Workloads.
func (r *reconciler) groupWith(ctx context.Context, key types.NamespacedName, w *kueue.Workload) ([]job.Object, error) {
	list, err := r.group(ctx, r.cache, key, client.MatchingFields{byGroup: key.Name})
	if err == nil && len(list) == 0 && w != nil && r.isGroupless(w) {
		return r.group(ctx, r.live, key, client.MatchingLabels{kueue.ManagedLabel: "true"})
	}
	return list, err
}

// isGroupless reports whether a Workload is deleted with the last member of its group: it has no controller, and was made for no
// other object (spec: 30 §4.9).
func (r *reconciler) isGroupless(w *kueue.Workload) bool {
	_, marked := w.Annotations[kueue.IsGroupWorkloadAnnotation]
	owned := slices.ContainsFunc(w.OwnerReferences, r.isOurs)
	return metav1.GetControllerOf(w) == nil && w.Annotations[kueue.JobOwnerGVKAnnotation] == "" && (marked || owned)
}

func (r *reconciler) group(ctx context.Context, from client.Reader, key types.NamespacedName, option client.ListOption) ([]job.Object, error) {
	list := r.newList()
	if err := from.List(ctx, list, client.InNamespace(key.Namespace), option); err != nil {
		return nil, fmt.Errorf("listing the members of %s: %w", key, err)
	}
	var out []job.Object
	err := apimeta.EachListItem(list, func(o runtime.Object) error {
		if m := o.(job.Object); r.composed.Member(m, r.cfg.Load()) == key.Name {
			out = append(out, m)
		}
		return nil
	})
	return out, err
}
