package evict

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// world is a namespace with a running victim and a pending preemptor.
type world struct {
	t      *testing.T
	c      client.WithWatch
	p      *Preemptor
	record *events.FakeRecorder
	told   []string // of Preempted
	victim *kueue.Workload
	by     *kueue.Workload
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := embeddedtest.Client(t, "../../../config/crd", kueue.AddToScheme)
	w := &world{t: t, c: c, record: events.NewFakeRecorder(20)}
	w.p = &Preemptor{
		Client: c, Reader: c, Status: reconcile.NewWorkloadStatus(c), Events: reconcile.NewEvents(w.record, nil),
		Engine: engine.New(state.New(state.Options{}), time.Now), Now: time.Now, Log: logr.Discard(),
		Preempted: func(by, of, reason string) { w.told = append(w.told, by+" "+of+" "+reason) },
	}
	w.p.Init()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "evict-"}}
	w.must(c.Create(t.Context(), ns))
	w.victim, w.by = w.create(ns.Name, "victim"), w.create(ns.Name, "preemptor")
	w.reserve()
	return w
}

// reserve gives the victim quota.
func (w *world) reserve() {
	w.t.Helper()
	w.change(func(x *kueue.Workload) bool {
		return lifecycle.Machine{}.Reserve(x, &kueue.Admission{
			ClusterQueue: "of", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}},
		}, nil, metav1.Now())
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(namespace, name string) *kueue.Workload {
	w.t.Helper()
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{kueue.JobUIDLabel: name + "-job"}},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "any"}}},
		}}}},
	}
	w.must(w.c.Create(w.t.Context(), wl))
	return wl
}

// change writes a transition of the victim.
func (w *world) change(change func(*kueue.Workload) bool) {
	w.t.Helper()
	stored, _, err := reconcile.NewWorkloadStatus(w.c).Transition(w.t.Context(), w.live(), change)
	w.must(err)
	w.victim = stored
}

func (w *world) live() *kueue.Workload {
	w.t.Helper()
	out := &kueue.Workload{}
	w.must(w.c.Get(w.t.Context(), client.ObjectKeyFromObject(w.victim), out))
	return out
}

func (w *world) order() *order {
	name := func(wl *kueue.Workload) engine.Workload {
		return engine.Workload{UID: string(wl.UID), Namespace: wl.Namespace, Name: wl.Name}
	}
	return &order{
		victim: engine.Victim{Workload: name(w.victim), Path: "/root/of", Reason: preempt.InCohortReclamation},
		by:     &preemption{Decision: engine.Decision{Workload: name(w.by), Queue: "by", Path: "/root/by"}},
	}
}

// events returns the recorded events without their notes.
func (w *world) events() (out []string) {
	for {
		select {
		case e := <-w.record.Events:
			out = append(out, strings.Join(strings.SplitN(e, " ", 3)[:2], " "))
		default:
			return out
		}
	}
}

// spec: 10 §4.7.6.
func TestVictimIsEvicted(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*world)
		job    string
		events []string
	}{
		"for a preemptor": {func(*world) {}, "preemptor-job", []string{"Normal Preempted", "Normal EvictedDueToPreempted", "Normal PreemptedWorkload"}},
		"for one that is gone": {
			func(w *world) { w.must(w.c.Delete(w.t.Context(), w.by)) }, "UNKNOWN", []string{"Normal Preempted", "Normal EvictedDueToPreempted"},
		},
		"for one that was made again": {
			func(w *world) {
				w.must(w.c.Delete(w.t.Context(), w.by))
				w.create(w.by.Namespace, w.by.Name)
			}, "UNKNOWN", []string{"Normal Preempted", "Normal EvictedDueToPreempted"},
		},
		"for one without a job": {
			func(w *world) {
				w.by.Labels = nil
				w.must(w.c.Update(w.t.Context(), w.by))
			}, "UNKNOWN", []string{"Normal Preempted", "Normal EvictedDueToPreempted", "Normal PreemptedWorkload"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.before(w)
			w.must(w.p.preempt(t.Context(), w.order()))
			got := w.live()
			evicted, preempted := lifecycle.Condition(got, kueue.WorkloadEvicted), lifecycle.Condition(got, kueue.WorkloadPreempted)
			if evicted == nil || evicted.Reason != kueue.ReasonPreempted || preempted == nil || preempted.Reason != preempt.InCohortReclamation {
				t.Fatalf("conditions %+v", got.Status.Conditions)
			}
			want := "Preempted to accommodate a workload (UID: " + string(w.by.UID) + ", JobUID: " + tc.job +
				") due to reclamation within the cohort; preemptor path: /root/by; preemptee path: /root/of"
			if evicted.Message != want || preempted.Message != want {
				t.Errorf("message\n%s, want\n%s", evicted.Message, want)
			}
			if !lifecycle.IsReserved(got) || got.Status.Admission == nil {
				t.Error("its quota is gone before its pods are")
			}
			if diff := cmp.Diff(tc.events, w.events()); diff != "" {
				t.Errorf("events -want +got:\n%s", diff)
			}
			if !slices.Equal(w.told, []string{"by of " + preempt.InCohortReclamation}) {
				t.Errorf("told %q", w.told)
			}
		})
	}
}

// A victim that is about to be deactivated is evicted for that, and its event agrees.
func TestVictimIsDeactivated(t *testing.T) {
	w := newWorld(t)
	w.change(func(x *kueue.Workload) bool {
		return lifecycle.Machine{}.RequestDeactivation(x, kueue.ReasonAdmissionCheck, "a check says no", metav1.Now())
	})
	w.must(w.p.preempt(t.Context(), w.order()))
	if diff := cmp.Diff([]string{"Normal Preempted", "Normal EvictedDueToDeactivatedDueToAdmissionCheck", "Normal PreemptedWorkload"}, w.events()); diff != "" {
		t.Errorf("events -want +got:\n%s", diff)
	}
}

// A victim that is already evicted or deleted is not evicted again, and counts for no preemptor.
func TestVictimEvictedAlready(t *testing.T) {
	for name, change := range map[string]func(*kueue.Workload) bool{
		"preempted": func(x *kueue.Workload) bool {
			return lifecycle.Machine{}.Preempt(x, preempt.InClusterQueue, "for another", metav1.Now())
		},
		"evicted": func(x *kueue.Workload) bool {
			return lifecycle.Machine{}.Evict(x, kueue.ReasonClusterQueueStopped, "", "it stopped", metav1.Now())
		},
		"finished": func(x *kueue.Workload) bool {
			return lifecycle.Machine{}.Finish(x, kueue.ReasonSucceeded, "done", metav1.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.change(change)
			w.must(w.p.preempt(t.Context(), w.order()))
			if got := w.live(); got.ResourceVersion != w.victim.ResourceVersion {
				t.Errorf("written again: %+v", got.Status.Conditions)
			}
			if e := w.events(); len(e) > 0 || len(w.told) > 0 {
				t.Errorf("events %q, told %q", e, w.told)
			}
		})
	}
}

// TestEvictionWithoutAnswer: until it is known what came of an eviction, no other victim is named. It is reported once, and a victim that
// has got quota anew is not evicted again.
func TestEvictionWithoutAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		written, again bool // the first write was carried out; the victim got quota anew afterwards
		err            error
	}{
		"written":                     {written: true},
		"written, and admitted again": {written: true, again: true, err: errLost},
		"not written":                 {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			answers := []error{io.EOF, nil}
			w.p.Status = reconcile.NewWorkloadStatus(interceptor.NewClient(w.c, interceptor.Funcs{SubResourceApply: func(
				ctx context.Context, to client.Client, sub string, of runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
			) error {
				answer := answers[0]
				if answers = answers[1:]; answer == nil || tc.written {
					if err := to.SubResource(sub).Apply(ctx, of, opts...); err != nil {
						return err
					}
				}
				return answer
			}}))
			o := w.order()
			err := w.p.preempt(t.Context(), o)
			if pause := w.p.failed(o, err, time.Hour); err == nil || pause != reconcile.UnansweredPause || len(w.events())+len(w.told) > 0 {
				t.Fatalf("error %v, retried after %s, told %q", err, pause, w.told)
			}
			if tc.again {
				w.change(func(x *kueue.Workload) bool {
					return lifecycle.Machine{}.Release(x, true, metav1.Now())
				})
				w.reserve()
			}
			err = w.p.preempt(t.Context(), o)
			if !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if evicted := lifecycle.IsEvicted(w.live()); evicted == tc.again || len(w.told) > 1 || evicted != (len(w.told) == 1) {
				t.Errorf("evicted: %v, told %q", evicted, w.told)
			}
			if err != nil && w.p.failed(o, err, time.Millisecond) > 0 {
				t.Error("it is tried once more")
			}
		})
	}
}

// A victim whose own admission is not written yet is named again later; a pending Workload is not changed.
func TestVictimNotWritten(t *testing.T) {
	w := newWorld(t)
	w.victim = w.create(w.victim.Namespace, "waiting")
	notWritten := func() {
		t.Helper()
		if err := w.p.preempt(t.Context(), w.order()); !errors.Is(err, errNotWritten) {
			t.Errorf("error %v", err)
		}
		if got := w.live(); got.ResourceVersion != w.victim.ResourceVersion {
			t.Errorf("written: %+v", got.Status.Conditions)
		}
	}
	notWritten()
	w.change(func(x *kueue.Workload) bool { // it was preempted before this admission
		lifecycle.Machine{}.Reserve(x, &kueue.Admission{ClusterQueue: "q"}, nil, metav1.Now())
		lifecycle.Machine{}.Preempt(x, preempt.InClusterQueue, "for another", metav1.Now())
		return lifecycle.Machine{}.Release(x, false, metav1.Now())
	})
	notWritten()
}

// A cache that lags behind costs another attempt; another object of the name is not the victim.
func TestVictimOfAnOldCache(t *testing.T) {
	w := newWorld(t)
	old := w.live()
	changed := old.DeepCopy()
	changed.Labels["new"] = "label"
	w.must(w.c.Update(t.Context(), changed))
	w.p.Client = interceptor.NewClient(w.c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if into, ok := o.(*kueue.Workload); ok && key.Name == "victim" {
				old.DeepCopyInto(into)
				return nil
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	w.must(w.p.preempt(t.Context(), w.order()))
	if got := w.live(); !lifecycle.IsEvicted(got) || got.Labels["new"] != "label" {
		t.Errorf("labels %v, conditions %+v", got.Labels, got.Status.Conditions)
	}
	other := w.order()
	other.victim.UID = "another"
	if err := w.p.preempt(t.Context(), other); !apierrors.IsNotFound(err) {
		t.Errorf("error %v, want not found", err)
	}
}

// decisions keeps the decisions of an engine.
type decisions struct {
	mu  sync.Mutex
	got []engine.Decision
}

func (d *decisions) Write(x engine.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got = append(d.got, x)
}

// last returns the newest decision about a Workload.
func (d *decisions) last(uid string) (out engine.Decision, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.got {
		if x.UID == uid {
			out, n = x, n+1
		}
	}
	return out, n
}

// A failed preemption is decided anew, unless the victim was deleted, which freed its quota.
func TestFailedPreemption(t *testing.T) {
	e, got := engine.New(state.New(state.Options{}), time.Now), &decisions{}
	e.AddWriter(got)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	settle := func() {
		for range 3 {
			if err := e.Ask(ctx, func(*state.State) {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	wants := func(uid string, priority int64) state.Workload {
		return state.Workload{
			UID: uid, Namespace: "ns", Name: uid, Version: 1, Generation: 1, LocalQueue: "lq", Queueable: true, Priority: priority,
			PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: []state.Request{{Resource: "cpu", Amount: 4}}}},
		}
	}
	e.Post(state.SetFlavor(flavor.Flavor{Name: "f"}))
	e.Post(state.SetNamespace{Name: "ns", Labels: nil})
	q := state.Queue{Name: "cq", Namespaces: []workload.Term{{}}, Groups: []state.Group{{
		Resources: []string{"cpu"},
		Flavors: []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{
			{Resource: "cpu", Nominal: 4, Borrow: quota.NoLimit, Lend: quota.NoLimit},
		}}},
	}}}
	q.Preemption.Within = preempt.LowerPriority
	e.Post(state.SetQueue(q))
	e.Post(state.SetLocalQueue(state.LocalQueue{Namespace: "ns", Name: "lq", Queue: "cq"}))
	e.Post(state.SetWorkload(wants("victim", 0)))
	e.Open()
	settle()
	e.Post(state.SetWorkload(wants("urgent", 1)))
	settle()
	d, before := got.last("urgent")
	if len(d.Evict) != 1 {
		t.Fatalf("decided %+v", d)
	}
	p := &Preemptor{Engine: e, Log: logr.Discard()}
	o := &order{victim: d.Evict[0], by: &preemption{Decision: d}}
	if p.failed(o, apierrors.NewNotFound(kueue.GroupVersion.WithResource("workloads").GroupResource(), "victim"), time.Second) > 0 {
		t.Error("a victim that is gone is told again")
	}
	settle()
	if _, n := got.last("urgent"); n != before {
		t.Errorf("%d decisions after the victim was found to be gone, %d before", n, before)
	}
	if p.failed(o, errNotWritten, time.Millisecond) > 0 {
		t.Error("an order that failed is repeated as it is")
	}
	wait.Until(t, "the victim is named again", func() error {
		if again, n := got.last("urgent"); n <= before || len(again.Evict) != 1 {
			return errors.New("it is not")
		}
		return nil
	})
}

// The event names both priorities, with base and boost. spec: 10 §5.2.
func TestRanks(t *testing.T) {
	rank := func(priority int32, boost string) *kueue.Workload {
		return &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kueue.PriorityBoostAnnotation: boost}},
			Spec:       kueue.WorkloadSpec{Priority: &priority},
		}
	}
	for name, tc := range map[string]struct {
		boosts bool
		by     *kueue.Workload
		want   string
	}{
		"with boosts":          {true, rank(100, "20"), "; preemptor effective priority: 120 (base: 100, boost: 20); preemptee effective priority: -3 (base: 2, boost: -5)"},
		"without":              {false, rank(100, "20"), "; preemptor effective priority: 100 (base: 100, boost: 0); preemptee effective priority: 2 (base: 2, boost: 0)"},
		"for one that is gone": {true, nil, ""},
	} {
		p := &Preemptor{Requests: convert.Requests{Boost: tc.boosts}}
		if got := p.ranks(tc.by, rank(2, "-5")); got != tc.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, tc.want)
		}
	}
}

// The event names its victim first, and the others of the preemption.
func TestPreemptedNote(t *testing.T) {
	in := func(namespace, name string) engine.Victim {
		return engine.Victim{Workload: engine.Workload{UID: name + "-uid", Namespace: namespace, Name: name}, Path: "/root/of", Reason: preempt.InClusterQueue}
	}
	victim := func(name string) engine.Victim { return in("ns", name) }
	begins := "Preempted workload ns/a (UID: a-uid) due to prioritization in the ClusterQueue; preemptor path: /root/by; preemptee path: /root/of"
	for name, tc := range map[string]struct {
		all  []engine.Victim
		want string
	}{
		"alone":   {[]engine.Victim{victim("a")}, begins},
		"of many": {[]engine.Victim{victim("b"), victim("a"), victim("c")}, begins + "; other victims of this preemption: ns/b, ns/c"},
		"of other tenants": {
			[]engine.Victim{in("other", "b"), victim("a"), victim("c"), in("third", "d")},
			begins + "; other victims of this preemption: ns/c, 2 of other namespaces",
		},
	} {
		o := &order{victim: victim("a"), by: &preemption{Decision: engine.Decision{Workload: engine.Workload{Namespace: "ns", Name: "by"}, Path: "/root/by", Evict: tc.all}}}
		if got := preemptedNote(o); got != tc.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, tc.want)
		}
	}
	o := &order{victim: in("other", "a"), by: &preemption{Decision: engine.Decision{Workload: engine.Workload{Namespace: "ns", Name: "by"}, Path: "/root/by", Evict: []engine.Victim{in("other", "a")}}}}
	want := "Preempted workload of another namespace (UID: a-uid) due to prioritization in the ClusterQueue; preemptor path: /root/by; preemptee path: /root/of"
	if got := preemptedNote(o); got != want {
		t.Errorf("of another tenant:\n%s, want\n%s", got, want)
	}
}
