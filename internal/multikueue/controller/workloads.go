package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

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

type workloads struct {
	*shared

	informers informers
	written   *reconcile.Overlay[*kueue.Workload]

	mu        sync.Mutex
	forwarded map[schema.GroupVersionKind]bool // kinds with an event handler
}

// observation is one Workload with everything that decides about it.
type observation struct {
	key      types.NamespacedName
	observed plan.Observed
	config   *kueue.MultiKueueConfig
	// kind is nil if the job cannot be dispatched; job is the local one, nil if it does not exist.
	kind    *job.Descriptor
	job     job.Object
	jobName string
	// members are the objects of a job that may have several; job is the first.
	members []job.Object
	// remain are the clusters where other Workloads of the job need it. An empty name is one with quota and without a cluster, which may
	// need it anywhere.
	remain []string
	slices []*kueue.Workload
	// connections are the observed ones, by cluster: steps use the same.
	connections map[string]*worker.Connection
}

func (s *observation) check() kueue.AdmissionCheckState {
	return checkIn(s.observed.Local, s.observed.Check)
}

// Reconcile observes one Workload, decides, and carries out the plan.
func (w *workloads) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	s, err := w.observeWorkload(ctx, req.NamespacedName)
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
	if err == nil && s.observed.Gone {
		w.records.forget(s.observed.Local)
	}
	return w.result(ctx, s.key, reconcile.Earliest(again, decided.After), err)
}

// result has a Workload reconciled again after a pause, 0 for never, and no later than that if there is an error, whose backoff may be longer.
func (w *workloads) result(ctx context.Context, key types.NamespacedName, after time.Duration, err error) (ctrlreconcile.Result, error) {
	if err == nil {
		return ctrlreconcile.Result{RequeueAfter: after}, nil
	}
	if after > 0 {
		w.requeue(key, max(after, tryEvery)) // a second is for what is under way
	}
	return reconcile.Retry(err).Result(ctx)
}

// observeWorkload reads what decides about a Workload; nil if it has no check of ours, and nothing on worker clusters.
func (w *workloads) observeWorkload(ctx context.Context, key types.NamespacedName) (*observation, error) {
	local, err := w.newest(ctx, key)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	s := &observation{key: key, connections: map[string]*worker.Connection{}}
	s.observed.Local, s.observed.Gone, s.observed.Now = local, err != nil, metav1.NewTime(w.Now())
	if s.observed.Gone {
		if s.observed.Local = w.records.lastSeen(key); s.observed.Local == nil {
			return nil, nil
		}
	}
	if err := w.observeCheck(ctx, s); err != nil {
		return nil, err
	}
	unchecked := s.observed.Check == "" && !s.observed.Gone
	if unchecked && w.isLocal(s) {
		return nil, nil
	}
	if err := w.observeJob(ctx, s); err != nil {
		return nil, err
	}
	ran := unchecked && plan.RanElsewhere(&s.observed)
	if ran {
		s.config.Spec.Clusters = w.fleet.Names() // any of them may have its pods
	}
	w.observeClusters(s)
	if unchecked && !ran && len(s.observed.Clusters) == 0 {
		return nil, nil
	}
	w.observeJobEnds(s)
	if err := w.dryRun(ctx, s); err != nil {
		return nil, err
	}
	about := w.records.about(s.observed.Local)
	s.observed.SyncFailures, s.observed.ReportedAt, s.observed.Job.OutOfSync = about.syncFailures, about.reportedAt, about.mismatches
	return s, nil
}

// isLocal reports whether no worker cluster needs to be asked about a Workload that has no check. The Workloads of one job are observed together, which
// is done only for a Workload with a copy.
func (w *workloads) isLocal(s *observation) bool {
	wl := s.observed.Local
	gvk, _ := w.ownerOf(wl)
	d := w.kinds[gvk]
	if lifecycle.RunsRemotely(wl) || (lifecycle.MayRunElsewhere(wl) && d != nil && !d.Remote.Gated) {
		return false
	}
	return !slices.ContainsFunc(w.fleet.Names(), func(name string) bool {
		if d == nil || d.Remote.Workloads == nil {
			return true
		}
		conn := w.fleet.Link(name).Connection
		return conn != nil && conn.Store(worker.WorkloadKind).Get(s.key) != nil
	})
}

// newest returns the Workload of the cache, or a newer version that was written: an older one might lead to another choice between two
// clusters that have both admitted it.
func (w *workloads) newest(ctx context.Context, key types.NamespacedName) (*kueue.Workload, error) {
	var shown kueue.Workload
	if err := w.cache.Get(ctx, key, &shown); err != nil {
		return nil, err
	}
	return reconcile.Resolve(ctx, w.written, w.live, &shown)
}

func (w *workloads) wrote(s *observation, stored *kueue.Workload) {
	s.observed.Local = stored
	w.written.Updated(stored)
}

// observeCheck finds the check of a Workload, and its configuration. Of several checks, the one counts by which the Workload got its cluster. If
// that check is deleted, the Workload is followed on this cluster all the same.
func (w *workloads) observeCheck(ctx context.Context, s *observation) error {
	wl := s.observed.Local
	s.config = &kueue.MultiKueueConfig{} // connected clusters are cleaned up
	sent := lifecycle.MayRunElsewhere(wl) && wl.Status.ClusterName != ""
	check, err := w.checkAmong(ctx, namesOf(wl.Status.AdmissionChecks, sent))
	if err != nil {
		return err
	}
	if sent && (check == nil || checkIn(wl, kueue.AdmissionCheckReference(check.Name)).State != kueue.CheckStateReady) {
		deleted, err := w.deletedCheckOf(ctx, wl)
		if err != nil || deleted != "" {
			s.observed.Check, s.config.Spec.Clusters = deleted, []string{wl.Status.ClusterName}
			return err
		}
	}
	if check == nil {
		return nil
	}
	s.observed.Check = kueue.AdmissionCheckReference(check.Name)
	config, err := w.configOf(ctx, check)
	if err == nil {
		s.config = config
	} else if !errors.Is(err, errConfig) || !s.observed.Gone {
		return err
	}
	return nil
}

// namesOf lists the names of checks, if readyFirst with those first that are ready.
func namesOf(states []kueue.AdmissionCheckState, readyFirst bool) (names []kueue.AdmissionCheckReference) {
	for _, ready := range []bool{true, false} {
		for i := range states {
			if ready == (readyFirst && states[i].State == kueue.CheckStateReady) {
				names = append(names, states[i].Name)
			}
		}
	}
	return names
}

// deletedCheckOf returns the name of a check that is ready and does not exist, or "".
func (w *workloads) deletedCheckOf(ctx context.Context, wl *kueue.Workload) (kueue.AdmissionCheckReference, error) {
	for i := range wl.Status.AdmissionChecks {
		if c := &wl.Status.AdmissionChecks[i]; c.State == kueue.CheckStateReady {
			err := w.cache.Get(ctx, client.ObjectKey{Name: string(c.Name)}, &kueue.AdmissionCheck{}, client.UnsafeDisableDeepCopy)
			if apierrors.IsNotFound(err) {
				return c.Name, nil
			}
			if err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

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

// ownerOf returns the job of a Workload: from its annotations, its controller, or its first owner.
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

func (w *workloads) observeJob(ctx context.Context, s *observation) error {
	gvk, name := w.ownerOf(s.observed.Local)
	facts := &s.observed.Job
	facts.Kind, s.jobName = gvk.Kind, name
	if s.kind = w.kinds[gvk]; s.kind == nil {
		return nil
	}
	facts.Adapter = true
	if err := w.observeSlices(ctx, s); err != nil {
		return err
	}
	facts.Gated, facts.Silent = s.kind.Remote.Gated, s.kind.Remote.Silent
	facts.Active = lifecycle.RunsRemotely(s.observed.Local) // for silent kinds only; others are asked
	if s.observed.Gone {
		return w.observeSiblings(ctx, s)
	}
	if facts.Managed = facts.Gated; s.kind.Groups != nil {
		return w.observeMembers(ctx, s)
	}
	object := s.kind.New()
	err := w.cache.Get(ctx, client.ObjectKey{Namespace: s.key.Namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		facts.Missing = true
		return w.observeSiblings(ctx, s)
	case err != nil:
		return fmt.Errorf("reading %s %s/%s: %w", gvk.Kind, s.key.Namespace, name, err)
	}
	s.job = object
	if facts.Gated {
		return w.observeSiblings(ctx, s)
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
		facts.Err = fmt.Errorf("%s %s/%s: %w", gvk.Kind, s.key.Namespace, name, err)
	}
	facts.Wanted, facts.Managed = f.Value, f.Unchecked || facts.Manager == f.Value
	facts.RetryRefused, facts.Alone, facts.Carried, facts.Transformed = f.Retry, f.Alone, f.NoJob, f.Creates
	return nil
}

// observeClusters observes every cluster of the configuration, and others that hold objects of the Workload.
func (w *workloads) observeClusters(s *observation) {
	for _, name := range s.config.Spec.Clusters {
		s.observed.Clusters = append(s.observed.Clusters, w.observeCluster(s, name, true))
	}
	for _, name := range w.fleet.Names() {
		if slices.Contains(s.config.Spec.Clusters, name) {
			continue
		}
		if c := w.observeCluster(s, name, false); c.Connected && (c.Copy != nil || c.HasJob) {
			s.observed.Clusters = append(s.observed.Clusters, c)
		}
	}
}

// nominate returns the clusters of a Workload that gets a reservation now and has no other check.
func (w *workloads) nominate(wl *kueue.Workload, required []kueue.AdmissionCheckReference) []string {
	ctx := context.Background() // only reads caches
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
	s := &observation{key: client.ObjectKeyFromObject(wl), config: config, connections: map[string]*worker.Connection{}, kind: w.kinds[gvk], jobName: name}
	if f := w.external(s); s.kind == nil || (f != nil && (f.Preconditions || f.Creates)) {
		return nil // it may be refused
	}
	s.observed.Local = wl
	w.observeClusters(s)
	return w.Plan.NominateAtOnce(wl, s.observed.Clusters)
}

func (w *workloads) observeCluster(s *observation, name string, listed bool) plan.Cluster {
	link := w.fleet.Link(name)
	conn := link.Connection
	out := plan.Cluster{Name: name, Listed: listed, LostSince: link.LostSince, FirstLost: link.FirstLost, Untried: link.Untried, Slow: link.Slow != nil}
	out.Fault = w.records.fault(s.observed.Local, name, func() string { return w.inputs(s, name) })
	hasJob := func(conn *worker.Connection) bool { return s.kind != nil && conn != nil && w.mayHaveJob(conn, s) }
	if conn == nil {
		out.HasJob = hasJob(link.Slow)
		return out
	}
	if w.records.stepRuns(s.key, name) {
		out.LostSince, out.Busy, out.HasJob = s.observed.Now.Time, true, hasJob(conn)
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
	out.Lacks = conn.Lack(s.kind.GVK) != "" || (w.followsChildren(s) && (conn.Lack(s.kind.ManagedChildren.Child) != "" || !conn.MayPatch(s.kind.GVK)))
	out.HasJob = hasJob(conn)
	return out
}

// mayHaveJob reports whether a worker cluster has the job of a Workload, or was asked to create it and has not answered: another cluster
// must not start it then.
func (w *workloads) mayHaveJob(conn *worker.Connection, s *observation) bool {
	kept := conn.Store(s.kind.GVK)
	return len(w.jobsOf(conn, s)) > 0 || (kept != nil && kept.Creating(types.NamespacedName{Namespace: s.key.Namespace, Name: s.jobName}))
}

// inputs is what a fault on a cluster depends on, besides the cluster itself.
func (w *workloads) inputs(s *observation, cluster string) string {
	var c kueue.MultiKueueCluster
	_ = w.cache.Get(context.Background(), client.ObjectKey{Name: cluster}, &c, client.UnsafeDisableDeepCopy) // a deleted one is another input
	return fmt.Sprint(s.observed.Local.Generation, s.config.UID, s.config.Generation, c.UID, c.Generation, c.Labels, c.Annotations)
}

func (w *workloads) noteFault(s *observation, cluster string, fault plan.Fault) {
	w.records.noteFault(s.observed.Local, cluster, w.inputs(s, cluster), fault)
}

func (m *shared) jobOf(conn *worker.Connection, s *observation) job.Object {
	kept := conn.Store(s.kind.GVK)
	if kept == nil {
		return nil // run by an external controller
	}
	o, ok := kept.Get(types.NamespacedName{Namespace: s.key.Namespace, Name: s.jobName}).(job.Object)
	if !ok || !m.Plan.Owns(o) || !m.isOf(conn.Name(), s, o) {
		return nil
	}
	return o
}

// ofWorkload handles events of Workloads. A deleted one is remembered: it names its job.
func (w *workloads) ofWorkload() handler.EventHandler {
	add := func(o client.Object, q queueType) {
		q.Add(ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	checked := func(o client.Object) bool {
		wl, ok := o.(*kueue.Workload)
		return !ok || len(wl.Status.AdmissionChecks) > 0 || wl.Status.ClusterName != ""
	}
	others := func(ctx context.Context, o client.Object, q queueType) {
		for _, key := range w.siblingsOf(ctx, o) {
			q.AddAfter(ctrlreconcile.Request{NamespacedName: key}, copyEventDelay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queueType) {
			if checked(e.Object) {
				add(e.Object, q)
			}
			others(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queueType) {
			if checked(e.ObjectOld) || checked(e.ObjectNew) {
				add(e.ObjectNew, q)
			}
			if moved(e.ObjectOld, e.ObjectNew) {
				others(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queueType) {
			wl, ok := e.Object.(*kueue.Workload)
			w.written.Gone(e.Object.GetUID())
			if !ok {
				return
			}
			if check, err := w.checkAmong(ctx, namesOf(wl.Status.AdmissionChecks, false)); err == nil && check == nil && wl.Status.ClusterName == "" {
				return
			}
			w.records.deleted(wl)
			add(wl, q)
			others(ctx, wl, q)
		},
	}
}

func (w *workloads) ofConfig(ctx context.Context, config client.Object) []ctrlreconcile.Request {
	var out []ctrlreconcile.Request
	for _, check := range w.shared.ofConfig(ctx, config) {
		out = append(out, w.withCheck(ctx, check.Name)...)
	}
	return out
}

func (w *workloads) ofCheck(ctx context.Context, check client.Object) []ctrlreconcile.Request {
	if c, ok := check.(*kueue.AdmissionCheck); !ok || c.Spec.ControllerName != kueue.MultiKueueControllerName {
		return nil
	}
	return w.withCheck(ctx, check.GetName())
}

func (m *shared) withCheck(ctx context.Context, check string) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, m.cache, &kueue.WorkloadList{}, "Workloads", func(wl *kueue.Workload) bool {
		return slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return string(c.Name) == check })
	})
}

func (m *shared) requeueUsers(ctx context.Context, cluster string) {
	for _, req := range m.users(ctx, cluster) {
		m.requeue(req.NamespacedName, 0)
	}
}

func (m *shared) users(ctx context.Context, cluster string) (out []ctrlreconcile.Request) {
	named := m.configsNaming(ctx, cluster)
	for _, check := range m.checksWhere(ctx, func(p *kueue.AdmissionCheckParametersReference) bool { return named[p.Name] }) {
		out = append(out, m.withCheck(ctx, check.Name)...)
	}
	return append(out, reconcile.Matching(ctx, m.cache, &kueue.WorkloadList{}, "Workloads", func(wl *kueue.Workload) bool { return wl.Status.ClusterName == cluster })...)
}

func (w *workloads) ofCluster(ctx context.Context, cluster client.Object) []ctrlreconcile.Request {
	return w.users(ctx, cluster.GetName())
}
