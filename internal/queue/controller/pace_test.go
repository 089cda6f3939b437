package controller

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Figures are written at most once a second; the condition Active is written at once.
func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newPace(newTurns(), always)
	p.now = func() time.Time { return now }
	c := fake.NewClientBuilder().WithScheme(scheme(t)).Build() // without objects
	a, b := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	steps := []struct {
		what        string
		after       time.Duration
		name        types.NamespacedName
		figuresOnly bool
		want        time.Duration
	}{
		{"the first", 0, a, true, 0},
		{"too soon", 300 * time.Millisecond, a, true, 700 * time.Millisecond},
		{"another object", 0, b, true, 0},
		{"waiting does not make it longer", 400 * time.Millisecond, a, true, 300 * time.Millisecond},
		{"in time", 300 * time.Millisecond, a, true, 0},
		{"a condition", 100 * time.Millisecond, a, false, 0},
		{"after it", 100 * time.Millisecond, a, true, 900 * time.Millisecond},
		{"in time again", 900 * time.Millisecond, a, true, 0},
		{"as long as ever", 100 * time.Millisecond, a, true, 900 * time.Millisecond},
		{"after a rest", 10 * time.Second, a, true, 0},
	}
	for _, s := range steps {
		now = now.Add(s.after)
		taken, err := p.acquire(t.Context(), s.name)
		if err != nil {
			t.Fatal(err)
		}
		object := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.name.Name}}
		got, err := taken.write(t.Context(), c, object, client.MergeFrom(object.DeepCopy()), s.figuresOnly)
		taken.release()
		if got != s.want || err != nil {
			t.Errorf("%s: wait %s, want %s; %v", s.what, got, s.want, err)
		}
	}
	if got := p.changed(a); got != interval {
		t.Errorf("a change waits %s, want the whole interval", got)
	}
	p.forget(a)
	if got := p.changed(a); got != delay {
		t.Errorf("a change of a forgotten object waits %s", got)
	}
}

// While many changes come, an object is written less and less often; after fewer of them once a second again.
func TestPaceOfManyChanges(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newPace(newTurns(), always)
	p.now = func() time.Time { return now }
	a := types.NamespacedName{Name: "a"}
	p.writes(a)
	steps := []struct {
		changes int
		after   time.Duration // the next write; only that of a condition may come before the last interval has passed
		want    time.Duration
	}{
		{4, interval, interval},
		{5, interval, 2 * interval},
		{9, 2 * interval, interval},
		{5, interval, 2 * interval},
		{10, 2 * interval, 4 * interval},
		{50, 4 * interval, longest},
		{30, 8 * interval, interval},
		{4, interval / 100, interval},
		{5, interval / 100, 2 * interval},
	}
	for i, s := range steps {
		for range s.changes {
			p.changed(a)
		}
		now = now.Add(s.after)
		p.writes(a)
		if got := p.rest(a); got != s.want {
			t.Errorf("step %d: %d changes within %s: the next interval is %s, want %s", i, s.changes, s.after, got, s.want)
		}
	}
}

// However many wait for turns, few write at once, and a cancelled one stops waiting.
func TestTurnsAreFew(t *testing.T) {
	p := newPace(newTurns(), always)
	var held []turn
	for i := range figureWriters {
		taken, err := p.acquire(t.Context(), types.NamespacedName{Name: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, taken)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.acquire(ctx, types.NamespacedName{Name: "late"}); err == nil {
		t.Error("one more than there are turns writes")
	}
	for _, taken := range held {
		taken.release()
	}
	if _, err := p.acquire(t.Context(), types.NamespacedName{Name: "late"}); err != nil {
		t.Error(err)
	}
}

// A hundred ClusterQueues change again and again, for ten seconds, and a write takes the API server three milliseconds. No status is older
// than a second plus the duration of a write of all, or four seconds where it changes ten times a second; none is written more than once in
// a second, and the last figures stay.
func TestFiguresAreFresh(t *testing.T) {
	t.Run("three changes a second", func(t *testing.T) { testFreshness(t, interval/3, interval) })
	t.Run("ten changes a second", func(t *testing.T) { testFreshness(t, interval/10, longest) })
}

func testFreshness(t *testing.T, step, oldest time.Duration) {
	const (
		queues = 100
		slack  = 200 * time.Millisecond
	)
	steps := int(10 * interval / step)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		written := map[string][]time.Time{}
		c := interceptor.NewClient(manyQueues(t, queues), interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
				mu.Lock()
				written[o.GetName()] = append(written[o.GetName()], time.Now())
				mu.Unlock()
				time.Sleep(3 * time.Millisecond)
				return c.SubResource(sub).Patch(ctx, o, p, options...)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer func() { cancel(); running.Wait() }()
		e := engine.New(state.New(state.Options{Options: cycle.Defaults()}), time.Now)
		pace := newPace(newTurns(), always)
		touched := &touched{pace: pace}
		e.OnTouched(func(queues []state.Name, _ []string) {
			for _, n := range queues {
				touched.add(types.NamespacedName{Name: n.Name})
			}
		})
		figures, err := controller.NewUnmanaged("figures", controller.Options{
			Reconciler: &clusterQueues{writer: writer{c, e, pace}}, MaxConcurrentReconciles: 5, SkipNameValidation: new(true),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := figures.Watch(touched.source()); err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = e.Run(ctx) })
		running.Go(func() { _ = figures.Start(ctx) })
		synctest.Wait()
		shown := func(i int) int32 {
			cq := &kueue.ClusterQueue{}
			if err := c.Get(ctx, types.NamespacedName{Name: fmt.Sprint("cq-", i)}, cq); err != nil {
				t.Fatal(err)
			}
			return int32(cq.Status.FlavorsUsage[0].Resources[0].Total.Value())
		}
		for i := range queues {
			e.Post(state.SetQueue(definition(t, i)))
		}
		for n := range steps {
			for i := range queues {
				e.Post(state.SetWorkload(using(i, n+1)))
			}
			time.Sleep(step)
			for i := range queues {
				if got, least := shown(i), n+1-int((oldest+slack+step-1)/step); int(got) < least {
					t.Fatalf("after %s the status of queue %d shows step %d, want at least %d of %d", time.Duration(n+1)*step, i, got, least, n+1)
				}
			}
		}
		time.Sleep(oldest + slack)
		for i := range queues {
			if got := shown(i); int(got) != steps {
				t.Errorf("in the end the status of queue %d shows step %d of %d", i, got, steps)
			}
		}
		for name, times := range written {
			for i := range times[1:] {
				if since := times[i+1].Sub(times[i]); since < interval {
					t.Errorf("%s is written again after %s", name, since)
				}
			}
			if most := 4 + int(10*interval/oldest); len(times) > most {
				t.Errorf("%s is written %d times in ten seconds, want at most %d", name, len(times), most)
			}
		}
	})
}

func always() bool { return true }

// manyQueues returns active ClusterQueues cq-0, cq-1, … with cpu of one flavor.
func manyQueues(t *testing.T, n int) client.WithWatch {
	t.Helper()
	objects := []client.Object{&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}}
	for i := range n {
		cq := clusterQueue(metav1.ConditionTrue)
		cq.Name, cq.UID, cq.Finalizers = fmt.Sprint("cq-", i), types.UID(fmt.Sprint(i)), []string{kueue.ResourceInUseFinalizer}
		fillStatus(cq, state.View{}, nil)
		objects = append(objects, cq)
	}
	return fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).WithStatusSubresource(&kueue.ClusterQueue{}).Build()
}

func definition(t *testing.T, i int) state.Queue {
	cq := clusterQueue(metav1.ConditionTrue)
	cq.Name = fmt.Sprint("cq-", i)
	def, err := convert.Queue(cq, nil)
	if err != nil {
		t.Error(err)
	}
	return def
}

// using returns the n-th version of a Workload, which uses n cpus of queue i.
func using(i, n int) state.Workload {
	return state.Workload{
		UID: fmt.Sprint(i), Namespace: "ns", Name: fmt.Sprint(i), Version: uint64(n), Generation: 1,
		Reserved: true, Admitted: true, Queue: fmt.Sprint("cq-", i), Held: []state.Held{{Flavor: "f", Resource: "cpu", Amount: resource.Amount(n) * 1000}},
		PodSets: []state.PodSet{{Name: "main", Count: 1}},
	}
}
