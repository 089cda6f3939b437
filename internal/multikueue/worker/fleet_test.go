package worker

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/multikueue/plan/external"
	"github.com/berth-project/berth/internal/reconcile"
)

// idle is a connection that only the test uses.
func idle(t *testing.T, lost func(*Connection, error)) *Connection {
	t.Helper()
	f := &Fleet{Options: Options{Now: time.Now, ClusterChanged: func(context.Context, string, bool) {}}, workers: map[string]*workerCluster{}}
	c := &Connection{fleet: f, name: "w1", lost: lost, slots: make(chan struct{}, callsAtOnce), calls: map[int64]time.Time{}}
	c.ctx, c.cancel = context.WithCancelCause(t.Context())
	t.Cleanup(func() { c.cancel(nil) })
	return c
}

// TestCalls: which calls count as failures, and what several of them do.
func TestCalls(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "x")
	unauthorized := apierrors.NewUnauthorized("no")
	broken := errors.New("connection reset")
	hook, internal := apierrors.NewInternalError(errors.New(`failed calling webhook "a.b": no endpoints`)), apierrors.NewInternalError(errors.New("no"))
	for name, tc := range map[string]struct {
		errs []error
		lost bool
	}{
		"answers":              {[]error{notFound, notFound, notFound, notFound, notFound, notFound}, false},
		"four failures":        {[]error{broken, broken, broken, broken}, false},
		"five failures":        {[]error{broken, broken, broken, broken, broken}, true},
		"an answer in between": {[]error{broken, broken, broken, notFound, broken, broken}, false},
		"a webhook is down":    {[]error{hook, hook, hook, hook, hook, hook}, false},
		"internal errors":      {[]error{internal, internal, internal, internal, internal}, true},
		"bad credentials":      {[]error{unauthorized}, true},
	} {
		lost := false
		c := idle(t, func(*Connection, error) { lost = true })
		for _, want := range tc.errs {
			if err := c.Call(t.Context(), func(context.Context, client.Client) error { return want }); !errors.Is(err, want) {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if lost != tc.lost {
			t.Errorf("%s: lost %v", name, lost)
		}
	}
}

// TestStuck: a worker cluster that does not answer delays no caller, and is skipped until the call ends in any way, which is reported,
// with its copies.
func TestStuck(t *testing.T) {
	for name, end := range map[string]error{
		"it answers": nil, "a late webhook": apierrors.NewInternalError(errors.New("failed calling webhook: deadline exceeded")), "no answer": context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := idle(t, func(*Connection, error) {})
			r := &workerCluster{name: "w1", connection: c}
			changed, objects := make(chan string, 9), make(chan string, 9)
			c.fleet.Plan = &plan.Config{}
			c.fleet.ClusterChanged = func(_ context.Context, cluster string, _ bool) { changed <- cluster }
			c.fleet.ObjectChanged = func(o client.Object) { objects <- o.GetName() }
			c.stores = map[schema.GroupVersionKind]*Store{WorkloadKind: {gvk: WorkloadKind}}
			c.stores[WorkloadKind].Put(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "copy"}})
			answer := make(chan struct{})
			began := time.Now()
			err := c.Call(t.Context(), func(context.Context, client.Client) error {
				<-answer
				return end
			})
			if !errors.Is(err, ErrStuck) {
				t.Errorf("got %v", err)
			}
			link := r.link()
			if link.Connection != nil || link.LostSince.Before(began) || link.Slow == nil {
				t.Errorf("it counts as connected, or as lost since %s (only slow: %v)", link.LostSince, link.Slow != nil)
			}
			if err := c.Call(t.Context(), func(context.Context, client.Client) error { return nil }); !errors.Is(err, ErrStuck) {
				t.Errorf("another call: %v", err)
			}
			if len(changed) > 0 {
				t.Error("reported before the call ends")
			}
			close(answer)
			wait.Receive(t, "it is reported", changed)
			if r.link().Connection != c {
				t.Error("it is reported and does not count as connected")
			}
			wait.Receive(t, "its copies are reported", objects)
		})
	}
}

// TestCallHangs: a call that cannot be ended, since its credential plugin does not end, ends the connection.
func TestCallHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan error, 1)
		c := idle(t, func(_ *Connection, err error) { lost <- err })
		end := make(chan struct{})
		hang := func(context.Context, client.Client) error {
			<-end
			return nil
		}
		if err := c.Call(t.Context(), hang); !errors.Is(err, ErrStuck) {
			t.Errorf("got %v", err)
		}
		if time.Sleep(callTimeout - slow); len(lost) > 0 {
			t.Errorf("it is lost before the call has had its time: %v", <-lost)
		}
		if why := <-lost; !errors.Is(why, errHangs) {
			t.Errorf("lost for %v", why)
		}
		c.wg.Go(func() { <-end })
		began := time.Now()
		if c.close(); time.Since(began) > slow {
			t.Errorf("closing it took %s", time.Since(began))
		}
		close(end)
	})
}

// TestCreate: an object counts as being created until its cluster answers, and for as long as a request without an answer may be carried out.
func TestCreate(t *testing.T) {
	refused, broken := apierrors.NewForbidden(schema.GroupResource{}, "x", nil), errors.New("connection reset")
	hook, internal := apierrors.NewInternalError(errors.New(`failed calling webhook "a.b": no endpoints`)), apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	for name, tc := range map[string]struct {
		takes    time.Duration
		err      error
		created  bool // is called
		creating time.Duration
	}{
		"at once":            {0, nil, true, 0},
		"late":               {2 * slow, nil, true, 2 * slow},
		"refused":            {0, refused, false, 0},
		"refused late":       {2 * slow, refused, false, 2 * slow},
		"without a webhook":  {0, hook, false, 0},
		"stored or not":      {0, internal, false, callTimeout + slow},
		"broken":             {0, broken, false, callTimeout + slow},
		"ended by its limit": {callTimeout, context.DeadlineExceeded, false, callTimeout + slow},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := idle(t, func(*Connection, error) {})
				c.stores = map[schema.GroupVersionKind]*Store{WorkloadKind: {}}
				c.client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
					Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
						time.Sleep(tc.takes)
						return tc.err
					},
				})
				o, created := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}}, false
				began := time.Now()
				err := c.Create(t.Context(), WorkloadKind, o, func() error {
					created = true
					return nil
				})
				if want := map[bool]error{false: tc.err, true: ErrStuck}[tc.takes > slow]; !errors.Is(err, want) {
					t.Errorf("got %v", err)
				}
				key := client.ObjectKeyFromObject(o)
				for synctest.Wait(); c.stores[WorkloadKind].Creating(key); synctest.Wait() {
					time.Sleep(slow / 4)
				}
				if counted := time.Since(began); counted != tc.creating {
					t.Errorf("it counts as being created for %s", counted)
				}
				if created != tc.created {
					t.Errorf("known as created: %v", created)
				}
				c.stores[WorkloadKind].setCreating(client.ObjectKey{Name: "next"}, true)
				if n := len(c.stores[WorkloadKind].creations); n != 1 {
					t.Errorf("%d creations are kept", n)
				}
			})
		})
	}
}

// TestLostSince: the time of the first loss survives failed attempts, and begins anew with each connection.
func TestLostSince(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &workerCluster{name: "w1", connection: idle(t, nil), firstLost: at.Add(-time.Hour)}
	r.disconnect(at)
	r.disconnect(at.Add(time.Minute))
	if link := r.link(); !link.LostSince.Equal(at) || !link.FirstLost.IsZero() || link.Slow != nil {
		t.Errorf("lost since %s, first %s", link.LostSince, link.FirstLost)
	}
}

// TestProbe: only a refusal before makes a success count.
func TestProbe(t *testing.T) {
	address := "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t)) // the port is opened twice
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &workerCluster{address: address}
	if r.probe(time.Now()) {
		t.Error("it was there all the time")
	}
	_ = l.Close()
	if r.probe(time.Now()) {
		t.Error("it refuses")
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if !r.backAt.IsZero() {
		t.Error("it counts as back before it took a connection")
	}
	if !r.probe(time.Now()) || r.probe(time.Now()) {
		t.Error("it is back, once")
	}
	for host, want := range map[string]string{"https://w1.example": "w1.example:443", "https://10.0.0.1:6443": "10.0.0.1:6443", "https://[::1]:6443": "[::1]:6443", "": ""} {
		if got := addressOf(&rest.Config{Host: host}); got != want {
			t.Errorf("%s: %s", host, got)
		}
	}
	if r.backAt.IsZero() {
		t.Error("it does not count as back")
	}
}

// TestCopiesShare: copies of a sweep share one pod set, from lists and watches, and are otherwise unchanged.
func TestCopiesShare(t *testing.T) {
	sweep := func(name string) *kueue.Workload {
		return &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
			Spec:       kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 3}}},
		}
	}
	s := &Store{objects: map[types.NamespacedName]client.Object{}, compact: reconcile.CompactWorkloads()}
	s.Put(sweep("put"))
	s.event(watch.Added, sweep("seen"))
	var first *kueue.PodSet
	for _, name := range []string{"put", "seen"} {
		w := s.Get(client.ObjectKey{Namespace: "a", Name: name}).(*kueue.Workload)
		if first == nil {
			first = &w.Spec.PodSets[0]
		}
		if &w.Spec.PodSets[0] != first || w.ManagedFields != nil {
			t.Errorf("%s has a pod set of its own, or says who wrote it: %v", name, w.ManagedFields)
		}
		want := sweep(name)
		want.ManagedFields = nil
		if diff := cmp.Diff(want, w); diff != "" {
			t.Errorf("%s changed (-before +after):\n%s", name, diff)
		}
	}
}

// TestTuneGC: garbage is collected earlier from the first worker cluster on, unless GOGC is set.
func TestTuneGC(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	t.Setenv("GOGC", "100")
	if (&Fleet{}).tuneGC(); percent() != 100 {
		t.Errorf("%d %%, although GOGC is set", percent())
	}
	t.Setenv("GOGC", "")
	f := &Fleet{}
	if f.tuneGC(); percent() != gcPercent {
		t.Errorf("%d %%", percent())
	}
	debug.SetGCPercent(80)
	if f.tuneGC(); percent() != 80 {
		t.Errorf("it is set again, to %d %%", percent())
	}
}

// TestUnansweredDeletion: an object counts as being deleted from the request on, also without an answer, until the request is refused.
func TestUnansweredDeletion(t *testing.T) {
	s := &Store{objects: map[types.NamespacedName]client.Object{}}
	o := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "u"}}
	s.Put(o)
	if s.Deleting(o) {
		t.Error("being deleted from the start")
	}
	s.setDeleting(o, true)
	if !s.Deleting(o) {
		t.Error("not being deleted")
	}
	s.setDeleting(o, false)
	if s.Deleting(o) {
		t.Error("being deleted although the deletion was refused")
	}
	s.setDeleting(o, true)
	s.event(watch.Deleted, o)
	if len(s.deletions) > 0 || s.Get(client.ObjectKeyFromObject(o)) != nil {
		t.Error("it is remembered")
	}
	s.Put(o)
	s.setDeleting(o, true)
	c := idle(t, func(*Connection, error) {})
	c.calls[1] = time.Now().Add(-time.Hour) // it does not answer, so nothing is sent
	unsent := o.DeepCopy()
	unsent.UID = "w"
	c.stores = map[schema.GroupVersionKind]*Store{WorkloadKind: s}
	if err := c.Delete(t.Context(), WorkloadKind, unsent); !errors.Is(err, ErrStuck) || s.Deleting(unsent) {
		t.Errorf("being deleted by a deletion that was not sent (%v)", err)
	}
	other := o.DeepCopy()
	other.UID = "v"
	s.replace([]client.Object{other})
	if len(s.deletions) > 0 || s.Deleting(other) {
		t.Error("another object of the name is being deleted")
	}
}

// one is a cache with one cluster.
type one struct {
	client.Reader
	cluster *kueue.MultiKueueCluster
}

func (o one) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o.cluster.DeepCopyInto(into.(*kueue.MultiKueueCluster))
	return nil
}

// TestDeprecatedPath: a kubeconfig in any file is warned of, usable or not (spec: 40 §5.2).
func TestDeprecatedPath(t *testing.T) {
	text := kubeconfig("server: 'https://w1.example:6443'", "token: t")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, anyPath := range map[string]bool{"any path": true, "any path, without a file": true, "the usual one": false} {
		path := path
		if strings.HasSuffix(name, "without a file") {
			path += ".none"
		}
		recorder := events.NewFakeRecorder(9)
		f := &Fleet{
			Options: Options{Now: time.Now, AnyPath: anyPath, Events: reconcile.NewEvents(recorder, nil), ClusterChanged: func(context.Context, string, bool) {}},
			workers: map[string]*workerCluster{},
		}
		cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "w1"}, Spec: kueue.MultiKueueClusterSpec{
			ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{LocationType: kueue.LocationTypePath, Location: path}},
		}}
		f.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).WithStatusSubresource(cluster).Build()
		if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		f.cache = one{cluster: cluster}
		// The last attempt has just failed, so that no other is due.
		f.workers["w1"] = &workerCluster{name: "w1", credentials: text, attempts: 1, next: time.Now().Add(time.Hour)}
		if !anyPath {
			if _, _, refused := f.load(t.Context(), cluster); refused == nil {
				t.Errorf("%s: a file elsewhere is read", name)
			}
			continue
		}
		if _, err := (&clusters{f}).Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: types.NamespacedName{Name: "w1"}}); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-recorder.Events:
			if !strings.HasPrefix(got, "Warning DeprecatedPathUsage ") {
				t.Errorf("%s: %s", name, got)
			}
		default:
			t.Errorf("%s: nobody is warned", name)
		}
	}
}

// TestWatchEnds: the end of the watch of Workloads ends the connection and, without degraded frameworks, that of any kind of jobs (spec:
// 40 §4.2).
func TestWatchEnds(t *testing.T) {
	jobs := schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	for name, tc := range map[string]struct {
		store    *Store
		degraded bool
		lost     bool
	}{
		"Workloads":                     {&Store{gvk: WorkloadKind}, true, true},
		"Workloads, nothing degraded":   {&Store{gvk: WorkloadKind}, false, true},
		"jobs":                          {&Store{gvk: jobs}, true, false},
		"jobs, nothing degraded":        {&Store{gvk: jobs}, false, true},
		"queues, nothing else degraded": {&Store{gvk: ClusterQueueKind, queues: true}, false, false},
	} {
		c := idle(t, nil)
		c.fleet.Degraded, c.fleet.Plan = tc.degraded, &plan.Config{}
		lost, again := false, false
		c.lost = func(*Connection, error) { lost = true }
		tc.store.newList = func() client.ObjectList { // opened again
			again = true
			c.cancel(nil)
			return &kueue.WorkloadList{}
		}
		c.client = fake.NewClientBuilder().Build()
		ended := watch.NewFake()
		ended.Stop()
		if c.follow(tc.store, ended); lost != tc.lost || again == tc.lost {
			t.Errorf("%s: lost %v, watched again %v", name, lost, again)
		}
	}
}

// TestForeignCopy: a copy of another manager with our origin marks the connection, and is reported when it is deleted: a Workload of its name
// may be dispatched then.
func TestForeignCopy(t *testing.T) {
	c := idle(t, nil)
	c.fleet.Plan, c.fleet.touched = &plan.Config{ManagerUID: "hub"}, make(chan event.GenericEvent, 9)
	var there []bool
	s := &Store{gvk: WorkloadKind}
	c.fleet.ObjectChanged = func(o client.Object) {
		there = append(there, s.Get(client.ObjectKeyFromObject(o)) != nil)
	}
	o := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "u", Annotations: map[string]string{plan.ManagerUIDAnnotation: "other"}}}
	stream := watch.NewFakeWithChanSize(3, false)
	stream.Add(o)
	stream.Delete(o.DeepCopy())
	stream.Error(&metav1.Status{}) // ends it
	c.consume(s, stream)
	if !c.foreign.Load() || len(c.fleet.touched) != 1 || !slices.Equal(there, []bool{true, false}) {
		t.Errorf("contested %v, %d times; reported as there: %v", c.foreign.Load(), len(c.fleet.touched), there)
	}
}

// TestAccessOfLateKinds: what the credentials may do with a kind that is served later is asked then, and every minute while they may not.
func TestAccessOfLateKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
		c := idle(t, nil)
		c.fleet.Plan, c.fleet.touched = &plan.Config{}, make(chan event.GenericEvent, 9)
		c.fleet.Kinds = map[schema.GroupVersionKind]*job.Descriptor{jobs: {GVK: jobs, Resource: "jobs", Remote: &job.Remote{}}}
		c.stores = map[schema.GroupVersionKind]*Store{WorkloadKind: {gvk: WorkloadKind}, jobs: {gvk: jobs}}
		c.lacks, c.denied = map[schema.GroupVersionKind]string{jobs: kueue.ReasonMissingCRD}, map[schema.GroupVersionKind][]string{}
		c.appeared = make(chan struct{}, 1)
		var asked atomic.Int32
		var allowed atomic.Bool
		c.client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				asked.Add(1)
				o.(*authorizationv1.SelfSubjectAccessReview).Status.Allowed = allowed.Load()
				return nil
			},
		})
		go c.reviewAccess()
		is := func(what, lack string, times int32) {
			t.Helper()
			synctest.Wait()
			if got := c.Lack(jobs); got != lack || asked.Load() != times {
				t.Errorf("%s: %q after %d reviews, want %q after %d", what, got, asked.Load(), lack, times)
			}
		}
		time.Sleep(2 * reviewAgain)
		is("not served", kueue.ReasonMissingCRD, 0)
		c.setLack(jobs, "")
		is("served and denied", kueue.ReasonForbidden, 2)
		allowed.Store(true)
		time.Sleep(reviewAgain)
		is("allowed", "", 4)
		time.Sleep(9 * reviewAgain)
		is("later", "", 4)
		c.cancel(nil)
	})
}

// TestDeniedChanges: a kind whose changes are forwarded is sent to a cluster that denies nothing but that, and the condition tells it.
func TestDeniedChanges(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayService"}
	follows := &job.Remote{Follow: func(job.Object, job.Object, *kueue.Workload, *job.Setting) (bool, bool, error) {
		return false, false, nil
	}}
	for _, tc := range []struct {
		remote     *job.Remote
		paths      [][]string
		denied     []string
		lack, text string
	}{
		{follows, nil, nil, "", "Every kind of jobs can be sent there"},
		{follows, nil, []string{"patch"}, "", "Changes of these kinds of jobs cannot be forwarded there: RayService (no permission to patch)"},
		{follows, nil, []string{"create", "patch"}, kueue.ReasonForbidden, "These kinds of jobs cannot be sent there: RayService (no permission to create or patch)"},
		{&job.Remote{}, [][]string{{"spec", "status"}}, []string{"patch"}, kueue.ReasonForbidden, "These kinds of jobs cannot be sent there: RayService (no permission to patch)"},
		{&job.Remote{}, nil, []string{"patch"}, "", "Every kind of jobs can be sent there"},
	} {
		c := idle(t, nil)
		c.fleet.Plan = &plan.Config{External: map[schema.GroupVersionKind]*external.Framework{kind: {SpecPaths: tc.paths}}}
		c.fleet.Kinds = map[schema.GroupVersionKind]*job.Descriptor{kind: {GVK: kind, Resource: "rayservices", Remote: tc.remote}}
		c.client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				review := o.(*authorizationv1.SelfSubjectAccessReview)
				review.Status.Allowed = !slices.Contains(tc.denied, review.Spec.ResourceAttributes.Verb)
				return nil
			},
		})
		c.denied = map[schema.GroupVersionKind][]string{kind: c.denies(kind)}
		if got := c.Lack(kind); got != tc.lack {
			t.Errorf("%v denied: lack %q, want %q", tc.denied, got, tc.lack)
		}
		if got := c.MayPatch(kind); got == slices.Contains(c.denies(kind), "patch") {
			t.Errorf("%v denied: it may patch: %v", tc.denied, got)
		}
		if got := c.frameworks(); got.Message != tc.text || (got.Reason == kueue.ReasonForbidden) != (got.Status == metav1.ConditionFalse) {
			t.Errorf("%v denied: %+v", tc.denied, got)
		}
	}
}

// TestWatchIsReleased: the context of a watch ends with it. A connection opens some kinds any number of times.
func TestWatchIsReleased(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var opened context.Context
	c := idle(t, nil)
	c.fleet.Plan = &plan.Config{}
	c.client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Watch: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
			opened = ctx
			return watch.NewFake(), nil
		},
	})
	stream, err := c.watch(t.Context(), &Store{gvk: ClusterQueueKind, queues: true, newList: func() client.ObjectList { return &kueue.ClusterQueueList{} }}, time.Minute)
	if err != nil || opened.Err() != nil {
		t.Fatalf("%v, its context: %v", err, opened.Err())
	}
	if stream.Stop(); opened.Err() == nil {
		t.Error("its context is kept")
	}
}

// TestDeletedByOthers: an object that existed and that we did not ask to delete counts as deleted by others, until it is created again.
func TestDeletedByOthers(t *testing.T) {
	o := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "u"}}
	key := client.ObjectKeyFromObject(o)
	for name, tc := range map[string]struct {
		before func(*Store)
		want   bool
	}{
		"by others":          {func(s *Store) { s.Put(o) }, true},
		"by us":              {func(s *Store) { s.Put(o); s.setDeleting(o, true) }, false},
		"by us, and dropped": {func(s *Store) { s.Put(o); s.setDeleting(o, true); s.drop(o) }, false},
		"it was not there":   {func(*Store) {}, false},
	} {
		s := &Store{objects: map[types.NamespacedName]client.Object{}}
		tc.before(s)
		s.event(watch.Deleted, o.DeepCopy())
		if got := s.DeletedByOthers(key); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
		if s.Put(o); s.DeletedByOthers(key) {
			t.Errorf("%s: also when it is there again", name)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := &Store{objects: map[types.NamespacedName]client.Object{}}
		s.Put(o)
		s.event(watch.Deleted, o.DeepCopy())
		if time.Sleep(deletedFor); s.DeletedByOthers(key) {
			t.Error("it is remembered for ever")
		}
		other := o.DeepCopy()
		other.Name = "c"
		s.Put(other)
		if s.event(watch.Deleted, other); len(s.deletions) != 1 {
			t.Errorf("%d are kept", len(s.deletions))
		}
	})
}
