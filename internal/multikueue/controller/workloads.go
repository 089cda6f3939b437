package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/worker"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// workloads follows Workloads that have a check of ours.
type workloads struct {
	*shared

	informers informers
	written   *reconcile.Overlay[*kueue.Workload]

	mu        sync.Mutex
	forwarded map[schema.GroupVersionKind]bool // kinds whose changes are followed
}

// sight is one Workload with everything that decides about it.
type sight struct {
	key      types.NamespacedName
	observed plan.Observed
	config   *kueue.MultiKueueConfig
	// kind describes the job, nil if it cannot be sent; job is the local one, nil if it is missing.
	kind    *job.Descriptor
	job     job.Object
	jobName string
	// members are the objects of a job that may be several, of which job is the first.
	members []job.Object
	// remain are the clusters where others of several Workloads need the job that they share. Empty is that of one with quota that has none
	// yet, and may need it anywhere.
	remain []string
	// slices are the Workloads of an elastic job that are not over, and this one.
	slices []*kueue.Workload
	// connections are those that were observed, by cluster: what is done is done through them.
	connections map[string]*worker.Connection
}

// check is the state of our check.
func (s *sight) check() kueue.AdmissionCheckState { return checkIn(s.observed.Local, s.observed.Check) }

// Reconcile looks at one Workload and does what is to be done.
func (w *workloads) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	s, err := w.gather(ctx, req.NamespacedName)
	if err != nil || s == nil {
		return reconcile.Retry(err).Result(ctx)
	}
	decided := plan.Decide(w.Plan, &s.observed)
	if len(decided.Steps) > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Decided", "rule", decided.Rule, "steps", len(decided.Steps))
	}
	again, err := w.carryOut(ctx, s, &decided)
	if err == nil {
		err = decided.Err
	}
	if err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	if s.observed.Gone {
		w.records.forget(s.observed.Local)
	}
	if after := decided.After; again > 0 && (after == 0 || again < after) {
		return ctrlreconcile.Result{RequeueAfter: again}, nil
	}
	return ctrlreconcile.Result{RequeueAfter: decided.After}, nil
}

// gather reads what decides about a Workload; nil if it has no check of ours.
func (w *workloads) gather(ctx context.Context, key types.NamespacedName) (*sight, error) {
	local, err := w.newest(ctx, key)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	s := &sight{key: key, connections: map[string]*worker.Connection{}}
	s.observed.Local, s.observed.Gone, s.observed.Now = local, err != nil, metav1.NewTime(w.Now())
	if s.observed.Gone {
		if s.observed.Local = w.records.lastSeen(key); s.observed.Local == nil {
			return nil, nil
		}
	}
	check, err := w.checkOf(ctx, s.observed.Local)
	if err != nil || check == nil {
		return nil, err
	}
	s.observed.Check = kueue.AdmissionCheckReference(check.Name)
	if err := w.owner(ctx, s); err != nil {
		return nil, err
	}
	config, err := w.configOf(ctx, check)
	if errors.Is(err, errConfig) && s.observed.Gone {
		config, err = &kueue.MultiKueueConfig{}, nil // what is connected is cleaned up
	}
	if err != nil {
		return nil, err
	}
	w.observe(s, config)
	w.lifecycle(s)
	if err := w.rehearse(ctx, s); err != nil {
		return nil, err
	}
	about := w.records.about(s.observed.Local)
	s.observed.SyncFailures, s.observed.ToldAt, s.observed.Job.OutOfSync = about.syncFailures, about.reportedAt, about.mismatches
	return s, nil
}

// newest returns a Workload as the cache shows it, or as it was written since: by an older one the choice between two clusters that have both
// admitted it would be made again, and might be another.
func (w *workloads) newest(ctx context.Context, key types.NamespacedName) (*kueue.Workload, error) {
	var shown kueue.Workload
	if err := w.cache.Get(ctx, key, &shown); err != nil {
		return nil, err
	}
	return reconcile.Resolve(ctx, w.written, w.live, &shown)
}

// wrote notes a Workload that was written.
func (w *workloads) wrote(s *sight, stored *kueue.Workload) {
	s.observed.Local = stored
	w.written.Updated(stored)
}

// checkOf finds our check among those of a Workload.
func (m *shared) checkOf(ctx context.Context, wl *kueue.Workload) (*kueue.AdmissionCheck, error) {
	names := make([]kueue.AdmissionCheckReference, len(wl.Status.AdmissionChecks))
	for i := range names {
		names[i] = wl.Status.AdmissionChecks[i].Name
	}
	return m.checkAmong(ctx, names)
}

// checkAmong finds our check among some; nil if there is none.
func (m *shared) checkAmong(ctx context.Context, names []kueue.AdmissionCheckReference) (*kueue.AdmissionCheck, error) {
	for _, name := range names {
		var check kueue.AdmissionCheck
		err := m.cache.Get(ctx, client.ObjectKey{Name: string(name)}, &check)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && check.Spec.ControllerName == kueue.MultiKueueControllerName {
			return &check, nil
		}
	}
	return nil, nil
}

// ownerOf is the job of a Workload: the one its annotations name, its controller, or its first owner.
func (m *shared) ownerOf(wl *kueue.Workload) (gvk schema.GroupVersionKind, name string) {
	if api, kind, ok := strings.Cut(wl.Annotations[kueue.JobOwnerGVKAnnotation], ", Kind="); ok && wl.Annotations[kueue.JobOwnerNameAnnotation] != "" {
		gvk = schema.FromAPIVersionAndKind(strings.TrimPrefix(api, "/"), kind)
		if m.kinds[gvk] != nil {
			return gvk, wl.Annotations[kueue.JobOwnerNameAnnotation]
		}
	}
	ref := metav1.GetControllerOf(wl)
	if ref == nil && len(wl.OwnerReferences) > 0 {
		ref = &wl.OwnerReferences[0]
	}
	if ref == nil {
		return schema.GroupVersionKind{}, ""
	}
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind), ref.Name
}

// owner reads the local job.
func (w *workloads) owner(ctx context.Context, s *sight) error {
	gvk, name := w.ownerOf(s.observed.Local)
	facts := &s.observed.Job
	facts.Kind, s.jobName = gvk.Kind, name
	if s.kind = w.kinds[gvk]; s.kind == nil {
		return nil
	}
	facts.Adapter = true
	if err := w.slices(ctx, s); err != nil {
		return err
	}
	facts.Gated, facts.Silent = s.kind.Remote.Gated, s.kind.Remote.Silent
	facts.Active = lifecycle.RunsRemotely(s.observed.Local) // said of silent kinds only; others are asked
	if s.observed.Gone {
		return w.siblings(ctx, s)
	}
	if facts.Managed = facts.Gated; s.kind.Groups != nil {
		return w.members(ctx, s)
	}
	object := s.kind.New()
	err := w.cache.Get(ctx, client.ObjectKey{Namespace: s.key.Namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		facts.Missing = true
		return w.siblings(ctx, s)
	case err != nil:
		return fmt.Errorf("reading %s %s/%s: %w", gvk.Kind, s.key.Namespace, name, err)
	}
	s.job = object
	if facts.Gated {
		return w.siblings(ctx, s)
	}
	facts.Active, facts.Over = s.kind.IsActive(object), plan.Ended(s.kind, object)
	if w.Plan.Elastic && job.IsElastic(s.observed.Local) {
		facts.Started = object
	}
	facts.Field, facts.Wanted = strings.Join(s.kind.Remote.ManagedBy, "."), kueue.MultiKueueControllerName
	f := w.external(s)
	if s.kind.Remote.Follow != nil {
		w.followChanges(ctx, s.kind)
	}
	if f == nil {
		facts.Manager = s.kind.ManagedBy(object)
		facts.Managed = facts.Manager == kueue.MultiKueueControllerName
		return nil
	}
	w.forward(ctx, s.kind, f)
	tree, err := plan.Tree(s.kind, object)
	if err != nil {
		return err
	}
	if facts.Manager, err = f.Manager(tree.Object); err != nil {
		return fmt.Errorf("%s %s/%s: %w", gvk.Kind, s.key.Namespace, name, err)
	}
	facts.Wanted, facts.Managed = f.Value, f.Unchecked || facts.Manager == f.Value
	facts.RetryRefused, facts.Alone, facts.Carried, facts.Transformed = f.Retry, f.Alone, f.NoJob, f.Creates
	return nil
}

// observe says what is known of every cluster of the configuration, and of those that hold something although they are not in it.
func (w *workloads) observe(s *sight, config *kueue.MultiKueueConfig) {
	s.config = config
	for _, name := range config.Spec.Clusters {
		s.observed.Clusters = append(s.observed.Clusters, w.look(s, name, true))
	}
	for _, name := range w.fleet.Names() {
		if slices.Contains(config.Spec.Clusters, name) {
			continue
		}
		if c := w.look(s, name, false); c.Connected && (c.Copy != nil || c.HasJob) {
			s.observed.Clusters = append(s.observed.Clusters, c)
		}
	}
}

// nominate finds the clusters of a Workload that gets quota now and passes no other check than ours.
func (w *workloads) nominate(wl *kueue.Workload, required []kueue.AdmissionCheckReference) []string {
	ctx := context.Background() // it only reads caches
	if len(required) != 1 {
		return nil
	}
	check, err := w.checkAmong(ctx, required)
	if err != nil || check == nil {
		return nil
	}
	config, err := w.configOf(ctx, check)
	if err != nil {
		return nil
	}
	gvk, name := w.ownerOf(wl)
	s := &sight{key: client.ObjectKeyFromObject(wl), connections: map[string]*worker.Connection{}, kind: w.kinds[gvk], jobName: name}
	if f := w.external(s); s.kind == nil || (f != nil && (f.Preconditions || f.Creates)) {
		return nil // it may be refused
	}
	s.observed.Local = wl
	w.observe(s, config)
	return w.Plan.NominateAtOnce(wl, s.observed.Clusters)
}

func (w *workloads) look(s *sight, name string, listed bool) plan.Cluster {
	link := w.fleet.Link(name)
	conn := link.Connection
	out := plan.Cluster{Name: name, Listed: listed, LostSince: link.LostSince, FirstLost: link.FirstLost, Slow: link.Slow}
	out.Fault = w.records.fault(s.observed.Local, name, func() string { return w.inputs(s, name) })
	if conn == nil {
		return out
	}
	if w.records.stepRuns(s.key, name) {
		out.LostSince, out.Busy = s.observed.Now.Time, true
		out.HasJob = s.kind != nil && len(w.jobsOf(conn, s)) > 0
		return out
	}
	s.connections[name] = conn
	out.Connected = true
	if o, ok := conn.Store(worker.WorkloadKind).Get(s.key).(*kueue.Workload); ok {
		if w.Plan.Owns(o) {
			out.Copy = o
			if o.DeletionTimestamp == nil && conn.Store(worker.WorkloadKind).Deleting(o) {
				out.Copy = o.DeepCopy()
				out.Copy.DeletionTimestamp = &s.observed.Now
			}
		} else {
			out.Fault = &plan.Fault{Code: plan.NameConflict, Text: "another manager has a workload of this name there", Skip: true}
		}
	}
	if s.kind == nil {
		return out
	}
	out.Lacks = conn.Lack(s.kind.GVK) != "" || (s.kind.Remote.Follow != nil && conn.Lack(s.kind.Family.Child) != "")
	out.HasJob = len(w.jobsOf(conn, s)) > 0
	return out
}

// inputs are what a fault on a cluster depends on, besides the cluster itself.
func (w *workloads) inputs(s *sight, cluster string) string {
	var c kueue.MultiKueueCluster
	_ = w.cache.Get(context.Background(), client.ObjectKey{Name: cluster}, &c, client.UnsafeDisableDeepCopy) // a deleted one is another input
	return fmt.Sprint(s.observed.Local.Generation, s.config.UID, s.config.Generation, c.UID, c.Generation, c.Labels, c.Annotations)
}

func (w *workloads) noteFault(s *sight, cluster string, fault plan.Fault) {
	w.records.noteFault(s.observed.Local, cluster, w.inputs(s, cluster), fault)
}

// jobOf is the remote job of a Workload, nil if there is none of ours.
func (m *shared) jobOf(conn *worker.Connection, s *sight) job.Object {
	kept := conn.Store(s.kind.GVK)
	if kept == nil {
		return nil // a controller of its own carries the jobs
	}
	o, ok := kept.Get(types.NamespacedName{Namespace: s.key.Namespace, Name: s.jobName}).(job.Object)
	if !ok || !m.Plan.Owns(o) || !m.isOf(conn.Name(), s, o) {
		return nil
	}
	return o
}

// ofWorkload keeps what a Workload was when it goes: it says where its job is.
func (w *workloads) ofWorkload() handler.EventHandler {
	add := func(o client.Object, q queueType) {
		q.Add(ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	others := func(ctx context.Context, o client.Object, q queueType) {
		for _, key := range w.siblingsOf(ctx, o) {
			q.AddAfter(ctrlreconcile.Request{NamespacedName: key}, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queueType) {
			add(e.Object, q)
			others(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queueType) {
			add(e.ObjectNew, q)
			if moved(e.ObjectOld, e.ObjectNew) {
				others(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queueType) {
			wl, ok := e.Object.(*kueue.Workload)
			w.written.Gone(e.Object.GetUID())
			if !ok || len(wl.Status.AdmissionChecks) == 0 {
				return
			}
			if check, err := w.checkOf(ctx, wl); err == nil && check == nil {
				return
			}
			w.records.deleted(wl)
			add(wl, q)
			others(ctx, wl, q)
		},
	}
}

// ofConfig finds the Workloads of a configuration.
func (w *workloads) ofConfig(ctx context.Context, config client.Object) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	for _, check := range w.shared.ofConfig(ctx, config) {
		out = append(out, w.having(ctx, check.Name)...)
	}
	return out
}

// ofCheck finds the Workloads of a check.
func (w *workloads) ofCheck(ctx context.Context, check client.Object) []ctrlreconcile.Request {
	if c, ok := check.(*kueue.AdmissionCheck); !ok || c.Spec.ControllerName != kueue.MultiKueueControllerName {
		return nil
	}
	return w.having(ctx, check.GetName())
}

// having lists the Workloads with a check.
func (m *shared) having(ctx context.Context, check string) []ctrlreconcile.Request {
	var list kueue.WorkloadList
	if err := m.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing Workloads")
		return nil
	}
	var out []ctrlreconcile.Request
	for i := range list.Items {
		wl := &list.Items[i]
		if slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return string(c.Name) == check }) {
			out = append(out, ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(wl)})
		}
	}
	return out
}

// wakeUsers has the Workloads looked at that a cluster matters to: it was connected, or it is not any more.
func (m *shared) wakeUsers(ctx context.Context, cluster string) {
	for _, req := range m.users(ctx, cluster) {
		m.wake(req.NamespacedName, 0)
	}
}

// users lists the Workloads that a cluster matters to.
func (m *shared) users(ctx context.Context, cluster string) (out []ctrlreconcile.Request) {
	named := m.naming(ctx, cluster)
	for _, check := range m.checksWhere(ctx, func(p *kueue.AdmissionCheckParametersReference) bool { return named[p.Name] }) {
		out = append(out, m.having(ctx, check.Name)...)
	}
	return out
}

// ofCluster finds the Workloads of a cluster.
func (w *workloads) ofCluster(ctx context.Context, cluster client.Object) []ctrlreconcile.Request {
	return w.users(ctx, cluster.GetName())
}
