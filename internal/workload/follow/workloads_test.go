package follow

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// world is a namespace with a follower that the tests call directly.
type world struct {
	t         *testing.T
	c         client.WithWatch
	f         *Follower
	namespace string
	now       time.Time
	record    *events.FakeRecorder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := embeddedtest.Client(t, "../../../config/crd", kueue.AddToScheme)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "follow-"}}
	w := &world{t: t, c: c, now: time.Now().Truncate(time.Second), record: events.NewFakeRecorder(20)}
	w.must(c.Create(t.Context(), ns))
	w.namespace = ns.Name
	w.f = &Follower{
		Client: c, Live: c, Status: reconcile.NewWorkloadStatus(c), Events: reconcile.NewEvents(w.record, nil), Slices: true,
		Now: func() time.Time { return w.now },
	}
	w.rules(lifecycle.Rules{Gated: true, Orphans: true})
	w.queue("cq")
	w.must(c.Create(t.Context(), w.localQueue("lq", "cq")))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) rules(r lifecycle.Rules) { w.f.current.Store(&r) }

// own returns the name of a ClusterQueue of this world.
func (w *world) own(name string) string { return w.namespace + "-" + name }

func (w *world) queue(name string, tune ...func(*kueue.ClusterQueue)) {
	w.t.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: w.own(name)}}
	for _, set := range tune {
		set(cq)
	}
	w.must(w.c.Create(w.t.Context(), cq))
}

func (w *world) localQueue(name, to string) *kueue.LocalQueue {
	return &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(w.own(to))},
	}
}

func (w *world) create(name string, tune ...func(*kueue.Workload)) *kueue.Workload {
	w.t.Helper()
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: kueue.WorkloadSpec{QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "any"}}},
		}}}},
	}
	for _, set := range tune {
		set(wl)
	}
	w.must(w.c.Create(w.t.Context(), wl))
	return wl
}

// change writes a transition of a Workload.
func (w *world) change(wl *kueue.Workload, change func(lifecycle.Machine, *kueue.Workload) bool) {
	w.t.Helper()
	_, _, err := reconcile.NewWorkloadStatus(w.c).Transition(w.t.Context(), w.live(wl), func(x *kueue.Workload) bool {
		return change(lifecycle.Machine{}, x)
	})
	w.must(err)
}

// reserve gives a Workload quota of a ClusterQueue.
func (w *world) reserve(wl *kueue.Workload, in string) {
	w.t.Helper()
	w.change(wl, func(m lifecycle.Machine, x *kueue.Workload) bool {
		return m.Reserve(x, &kueue.Admission{
			ClusterQueue: kueue.ClusterQueueReference(w.own(in)), PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}},
		}, nil, metav1.NewTime(w.now))
	})
}

func (w *world) finish(wl *kueue.Workload) {
	w.t.Helper()
	w.change(wl, func(m lifecycle.Machine, x *kueue.Workload) bool {
		return m.Finish(x, kueue.ReasonSucceeded, "done", metav1.NewTime(w.now))
	})
}

func (w *world) live(wl *kueue.Workload) *kueue.Workload {
	w.t.Helper()
	out := &kueue.Workload{}
	w.must(w.c.Get(w.t.Context(), client.ObjectKeyFromObject(wl), out))
	return out
}

func (w *world) look(wl *kueue.Workload) ctrl.Result {
	w.t.Helper()
	result, err := w.f.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(wl)})
	w.must(err)
	return result
}

// has checks conditions, as Type=Status/Reason.
func (w *world) has(wl *kueue.Workload, want ...string) {
	w.t.Helper()
	got := []string{}
	for _, c := range w.live(wl).Status.Conditions {
		got = append(got, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	for _, c := range want {
		if !slices.Contains(got, c) {
			w.t.Errorf("no %s among %q", c, got)
		}
	}
}

// tells checks the events since the last call, without their notes.
func (w *world) tells(want ...string) {
	w.t.Helper()
	var got []string
	for {
		select {
		case e := <-w.record.Events:
			got = append(got, strings.Join(strings.SplitN(e, " ", 3)[:2], " "))
			continue
		default:
		}
		break
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("events -want +got:\n%s", diff)
	}
}

// A reconcile makes the one write that the state requires, emits its events, and returns the time of the next.
func TestOneWritePerReconcile(t *testing.T) {
	for name, scene := range map[string]func(*world){
		"10 §4.10 nothing to do": func(w *world) {
			wl := w.create("a")
			before := w.live(wl)
			if r := w.look(wl); r != (ctrl.Result{}) || w.live(wl).ResourceVersion != before.ResourceVersion {
				w.t.Errorf("result %+v", r)
			}
			w.tells()
			w.look(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "none"}})
		},
		"10 §4.10 the status, and what is told": func(w *world) {
			wl := w.create("a", func(wl *kueue.Workload) {
				wl.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "example.com/a"}
			})
			w.look(wl)
			w.has(wl, "QuotaReserved=False/AdmissionGated")
			w.tells("Normal AdmissionGated")
		},
		"10 §4.11 a warning, then spec.active": func(w *world) {
			limit := int32(10)
			wl := w.create("a", func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = &limit })
			w.reserve(wl, "cq")
			if r := w.look(wl); r.RequeueAfter != 10*time.Second {
				w.t.Errorf("it is looked at again after %s, want 10s", r.RequeueAfter)
			}
			w.now = w.now.Add(10 * time.Second)
			w.look(wl)
			w.has(wl, "DeactivationTarget=True/MaximumExecutionTimeExceeded")
			w.tells("Warning MaximumExecutionTimeExceeded")
			w.look(wl)
			if got := w.live(wl); lifecycle.IsActive(got) {
				w.t.Error("it is active")
			}
			w.look(wl)
			w.has(wl, "Evicted=True/DeactivatedDueToMaximumExecutionTimeExceeded")
			w.tells("Normal EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded")
		},
		"10 §4.10 retention lets it go, then deletes it": func(w *world) {
			keep := time.Minute
			w.rules(lifecycle.Rules{KeepFinished: &keep})
			wl := w.create("a", func(wl *kueue.Workload) { wl.Finalizers = []string{kueue.ResourceInUseFinalizer, "example.com/mine"} })
			w.finish(wl)
			if r := w.look(wl); r.RequeueAfter != time.Minute {
				w.t.Errorf("it is looked at again after %s, want 1m", r.RequeueAfter)
			}
			w.now = w.now.Add(time.Minute)
			w.look(wl)
			if got := w.live(wl); !slices.Equal(got.Finalizers, []string{"example.com/mine"}) || got.DeletionTimestamp != nil {
				w.t.Errorf("finalizers %q, deleted %v", got.Finalizers, got.DeletionTimestamp)
			}
			w.tells()
			w.look(wl)
			if got := w.live(wl); got.DeletionTimestamp == nil {
				w.t.Error("it is not deleted")
			}
			w.tells("Normal Deleted")
		},
		"10 §4.10 a check of MultiKueue that left the queue of a job on a worker cluster": func(w *world) {
			check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: w.own("mk")}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName}}
			w.must(w.c.Create(w.t.Context(), check))
			wl := w.create("a")
			w.reserve(wl, "cq")
			w.change(wl, func(_ lifecycle.Machine, x *kueue.Workload) bool {
				x.Status.ClusterName = "w1"
				x.Status.AdmissionChecks = []kueue.AdmissionCheckState{{
					Name: kueue.AdmissionCheckReference(check.Name), State: kueue.CheckStateReady, LastTransitionTime: metav1.NewTime(w.now),
				}}
				return true
			})
			w.look(wl)
			w.must(w.c.Delete(w.t.Context(), check))
			w.look(wl)
			if got := w.live(wl).Status.AdmissionChecks; len(got) != 1 {
				w.t.Errorf("checks %v", got)
			}
			w.change(wl, func(_ lifecycle.Machine, x *kueue.Workload) bool { // its copy was evicted
				x.Status.AdmissionChecks[0].State = kueue.CheckStateRetry
				return true
			})
			w.look(wl)
			if got := w.live(wl); !lifecycle.IsEvicted(got) {
				w.t.Errorf("not evicted, with checks %v", got.Status.AdmissionChecks)
			}
			w.change(wl, func(m lifecycle.Machine, x *kueue.Workload) bool { return m.Release(x, false, metav1.NewTime(w.now)) })
			w.look(wl)
			if got := w.live(wl).Status.AdmissionChecks; len(got) != 0 {
				w.t.Errorf("released, with checks %v", got)
			}
		},
		"10 §4.17 whose job is gone": func(w *world) {
			wl := w.create("a", func(wl *kueue.Workload) {
				wl.Labels = map[string]string{kueue.JobUIDLabel: "u"}
				wl.Finalizers = []string{kueue.ResourceInUseFinalizer}
			})
			w.look(wl)
			w.has(wl, "Finished=True/OwnerNotFound")
			w.look(wl)
			if got := w.live(wl); len(got.Finalizers) > 0 {
				w.t.Errorf("finalizers %q", got.Finalizers)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { scene(newWorld(t)) })
	}
}

// Every write is pinned to the version that was read: if it is old the write fails, and the Workload is requeued.
func TestOldObjects(t *testing.T) {
	keep := time.Duration(0)
	for name, scene := range map[string]func(*world) *kueue.Workload{
		"status": func(w *world) *kueue.Workload {
			return w.create("a", func(wl *kueue.Workload) {
				wl.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "example.com/a"}
			})
		},
		"spec.active": func(w *world) *kueue.Workload {
			wl := w.create("a")
			w.change(wl, func(m lifecycle.Machine, x *kueue.Workload) bool {
				return m.RequestDeactivation(x, kueue.ReasonAdmissionCheck, "no", metav1.NewTime(w.now))
			})
			return wl
		},
		"finalizer": func(w *world) *kueue.Workload {
			wl := w.create("a", func(wl *kueue.Workload) { wl.Finalizers = []string{kueue.ResourceInUseFinalizer} })
			w.finish(wl)
			return wl
		},
		"deletion": func(w *world) *kueue.Workload {
			wl := w.create("a")
			w.finish(wl)
			return wl
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.rules(lifecycle.Rules{Gated: true, KeepFinished: &keep})
			wl := scene(w)
			old := w.live(wl)
			changed := old.DeepCopy()
			changed.Labels = map[string]string{"new": "label"}
			w.must(w.c.Update(t.Context(), changed))
			w.f.Client = interceptor.NewClient(w.c, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if into, ok := o.(*kueue.Workload); ok {
						old.DeepCopyInto(into)
						return nil
					}
					return c.Get(ctx, key, o, options...)
				},
			})
			if r, err := w.f.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(wl)}); err != nil && !apierrors.IsConflict(err) || err == nil && r.RequeueAfter == 0 {
				t.Errorf("result %+v, error %v: it is not looked at again", r, err)
			}
			if got := w.live(wl); got.ResourceVersion != changed.ResourceVersion {
				t.Errorf("an old object was written over a newer one: %+v", got)
			}
			w.tells()
		})
	}
}

// The LocalQueue of a Workload counts and, once it has a reservation, the ClusterQueue of the reservation.
func TestReadQueues(t *testing.T) {
	w := newWorld(t)
	w.queue("other")
	for name, tc := range map[string]struct {
		wl            *kueue.Workload
		local, queues string
	}{
		"waiting":              {w.create("waiting"), "lq", "cq"},
		"with quota":           {w.create("reserved"), "lq", "other"},
		"in no queue":          {w.create("free", func(wl *kueue.Workload) { wl.Spec.QueueName = "" }), "", ""},
		"in one that is gone":  {w.create("lost", func(wl *kueue.Workload) { wl.Spec.QueueName = "none" }), "", ""},
		"with quota of nobody": {w.create("ghost"), "lq", ""},
	} {
		switch name {
		case "with quota":
			w.reserve(tc.wl, "other")
		case "with quota of nobody":
			w.reserve(tc.wl, "none")
		}
		got, err := w.f.readQueues(t.Context(), w.live(tc.wl))
		w.must(err)
		local, queues := "", ""
		if got.LocalQueue != nil {
			local = got.LocalQueue.Name
		}
		if got.ClusterQueue != nil {
			queues = strings.TrimPrefix(got.ClusterQueue.Name, w.namespace+"-")
		}
		if local != tc.local || queues != tc.queues {
			t.Errorf("%s: queues %q and %q, want %q and %q", name, local, queues, tc.local, tc.queues)
		}
	}
}

// A change of a queue requeues its pending Workloads and the holders of its quota.
func TestRequeuedByQueues(t *testing.T) {
	w := newWorld(t)
	w.queue("other")
	w.must(w.c.Create(t.Context(), w.localQueue("second", "other")))
	w.create("here")
	w.reserve(w.create("moved"), "other")
	w.create("there", func(wl *kueue.Workload) {
		wl.Spec.QueueName, wl.Annotations = "second", map[string]string{kueue.AdmissionGatedByAnnotation: "example.com/a"}
	})
	names := func(list []ctrl.Request) (out []string) {
		for _, r := range list {
			if r.Namespace == w.namespace {
				out = append(out, r.Name)
			}
		}
		slices.Sort(out)
		return out
	}
	named := func(name string) *kueue.ClusterQueue {
		return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: w.own(name)}}
	}
	for name, tc := range map[string]struct {
		got  []ctrl.Request
		want []string
	}{
		"ClusterQueue":         {w.f.under(t.Context(), named("cq")), []string{"here", "moved"}},
		"the other":            {w.f.under(t.Context(), named("other")), []string{"moved", "there"}},
		"activated":            {w.f.gatedUnder(t.Context(), named("other")), []string{"there"}},
		"activated, no gates":  {w.f.gatedUnder(t.Context(), named("cq")), nil},
		"LocalQueue":           {w.f.inside(t.Context(), w.localQueue("second", "other")), []string{"there"}},
		"of another namespace": {w.f.inside(t.Context(), &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lq"}}), nil},
		"the rules":            {w.f.all(t.Context(), nil), []string{"here", "moved", "there"}},
	} {
		if diff := cmp.Diff(tc.want, names(tc.got)); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}

func TestActivated(t *testing.T) {
	of := func(status metav1.ConditionStatus) *kueue.ClusterQueue {
		cq := &kueue.ClusterQueue{}
		if status != "" {
			cq.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: status}}
		}
		return cq
	}
	for _, tc := range []struct {
		old, changed metav1.ConditionStatus
		want         bool
	}{
		{"", metav1.ConditionTrue, false},
		{"", metav1.ConditionFalse, true},
		{metav1.ConditionTrue, metav1.ConditionFalse, true},
		{metav1.ConditionFalse, metav1.ConditionTrue, true},
		{metav1.ConditionFalse, metav1.ConditionFalse, false},
	} {
		if got := activated.Update(event.UpdateEvent{ObjectOld: of(tc.old), ObjectNew: of(tc.changed)}); got != tc.want {
			t.Errorf("from %q to %q: %t", tc.old, tc.changed, got)
		}
	}
	if activated.Create(event.CreateEvent{Object: of(metav1.ConditionFalse)}) || activated.Delete(event.DeleteEvent{Object: of(metav1.ConditionFalse)}) {
		t.Error("more than updates")
	}
}

// New rules hold from the next reconcile on, and every Workload is requeued.
func TestNewRules(t *testing.T) {
	w := newWorld(t)
	wl := w.create("a", func(wl *kueue.Workload) {
		wl.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "example.com/a"}
	})
	w.rules(lifecycle.Rules{})
	w.look(wl)
	w.tells()
	changed, again := make(chan lifecycle.Rules), make(chan event.GenericEvent, 1)
	w.f.Changed = changed
	c := &changes{f: w.f, again: again}
	if c.NeedLeaderElection() {
		t.Error("a replica that waits does not take new rules")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	changed <- lifecycle.Rules{}
	changed <- lifecycle.Rules{Gated: true}
	<-again
	cancel()
	w.must(<-ended)
	w.look(wl)
	w.has(wl, "QuotaReserved=False/AdmissionGated")
}

// slice creates a Workload of an elastic job that replaces another one, unless that name is empty.
func (w *world) slice(name, replaces string, tune ...func(*kueue.Workload)) *kueue.Workload {
	w.t.Helper()
	owner := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "u", Controller: new(true)}
	return w.create(name, append(tune, func(wl *kueue.Workload) {
		wl.OwnerReferences = []metav1.OwnerReference{owner}
		wl.Annotations = map[string]string{kueue.ElasticJobAnnotation: "true", kueue.WorkloadSliceNameAnnotation: "first"}
		if replaces != "" {
			wl.Annotations[kueue.WorkloadSliceReplacementForAnnotation] = w.namespace + "/" + replaces
		}
	})...)
}

// TestForsaken: a deleted Workload is released once its owners are gone, also if no controller of their kind runs.
func TestForsaken(t *testing.T) {
	w := newWorld(t)
	job := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "job"}} // of a kind without a controller
	w.must(w.c.Create(t.Context(), job))
	own := func(kind, name string, uid types.UID, controller bool) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, UID: uid, Controller: &controller}
	}
	unserved := own("None", "job", "u", true)
	unserved.APIVersion = "none.example.com/v1"
	for name, tc := range map[string]struct { //berth:unordered each has a Workload of its own
		owners []metav1.OwnerReference
		after  time.Duration
		wake   time.Duration // 0 is gone
	}{
		"at-once":             {[]metav1.OwnerReference{own("ConfigMap", "gone", "u", true)}, 0, time.Minute},
		"job-is-gone":         {[]metav1.OwnerReference{own("ConfigMap", "gone", "u", true)}, time.Minute, 0},
		"another-of-its-name": {[]metav1.OwnerReference{own("ConfigMap", "job", "u", true)}, time.Minute, 0},
		"job-exists":          {[]metav1.OwnerReference{own("ConfigMap", "job", job.UID, true)}, time.Minute, time.Minute},
		"kind-is-not-served":  {[]metav1.OwnerReference{unserved}, time.Minute, 0},
		"group-is-gone":       {[]metav1.OwnerReference{own("ConfigMap", "a", "a", false), own("ConfigMap", "b", "b", false)}, time.Minute, 0},
		"member-exists":       {[]metav1.OwnerReference{own("ConfigMap", "a", "a", false), own("ConfigMap", "job", job.UID, false)}, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			wl := w.create(name, func(wl *kueue.Workload) {
				wl.Finalizers, wl.OwnerReferences = []string{kueue.ResourceInUseFinalizer}, tc.owners
			})
			w.must(w.c.Delete(t.Context(), wl))
			defer func(now time.Time) { w.now = now }(w.now)
			w.now = w.live(wl).DeletionTimestamp.Add(tc.after)
			result := w.look(wl)
			err := w.c.Get(t.Context(), client.ObjectKeyFromObject(wl), &kueue.Workload{})
			if result.RequeueAfter != tc.wake || apierrors.IsNotFound(err) != (tc.wake == 0) {
				t.Errorf("requeued after %s, %v; want %s", result.RequeueAfter, err, tc.wake)
			}
		})
	}
}

// spec: 20 §4.11.
func TestFinishReplaced(t *testing.T) {
	w := newWorld(t)
	first := w.slice("first", "")
	w.reserve(first, "cq")
	second := w.slice("second", "first")
	w.look(second)
	if lifecycle.IsFinished(w.live(first)) {
		t.Fatal("its successor has no quota, and it is finished")
	}
	w.reserve(second, "cq")
	w.f.Slices = false
	w.look(second)
	if lifecycle.IsFinished(w.live(first)) {
		t.Error("the feature is off, and it is finished")
	}
	w.f.Slices = true
	w.look(second)
	w.has(first, "Finished=True/WorkloadSliceReplaced")
	w.tells("Normal WorkloadSliceReplaced")
	w.look(second)
	w.tells()
	orphan := w.slice("third", "none")
	w.reserve(orphan, "cq")
	w.look(orphan)
}

// TestReplacedWithoutQuota: a Workload that gets quota after its replacement was admitted is finished.
func TestReplacedWithoutQuota(t *testing.T) {
	w := newWorld(t)
	first, second := w.slice("first", ""), w.slice("second", "first")
	w.reserve(second, "cq")
	if r := w.look(second); r.RequeueAfter != replacedDelay {
		t.Errorf("result %+v while the replaced Workload waits", r)
	}
	w.reserve(first, "cq")
	if r := w.look(second); r.RequeueAfter != 0 {
		t.Errorf("result %+v after the replaced Workload has finished", r)
	}
	w.has(first, "Finished=True/WorkloadSliceReplaced")
	if r := w.look(second); r.RequeueAfter != 0 {
		t.Errorf("result %+v although nothing is left to finish", r)
	}
}

// TestReplacedIsGone: a replaced Workload that is deleted, which the cache does not show yet, does not cost its replacement the next deadline.
func TestReplacedIsGone(t *testing.T) {
	w := newWorld(t)
	first := w.slice("first", "")
	w.reserve(first, "cq")
	second := w.slice("second", "first", func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = new(int32(60)) })
	w.reserve(second, "cq")
	cached := w.live(first)
	w.must(w.c.Delete(t.Context(), first))
	w.f.Client = interceptor.NewClient(w.c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if into, ok := o.(*kueue.Workload); ok && key.Name == first.Name {
				cached.DeepCopyInto(into)
				return nil
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	if r := w.look(second); r.RequeueAfter <= 0 {
		t.Errorf("result %+v", r)
	}
}
