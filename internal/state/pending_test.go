package state

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// lines is a state with one ClusterQueue of 10 gpus, and LocalQueues that lead to it.
func lines(localQueues ...Name) *State {
	s := New(Options{Options: immediately()})
	y := yard{s: s}
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetNamespace{Name: "red", Labels: nil})
	s.Apply(SetNamespace{Name: "blue", Labels: nil})
	s.Apply(SetQueue(y.queue(0, 10, preempt.Policy{})))
	for _, l := range localQueues {
		s.Apply(SetLocalQueue(LocalQueue{Namespace: l.Namespace, Name: l.Name, Queue: queueName(0)}))
	}
	return s
}

func (s *State) submitTo(lq Name, uid string, priority int64, since workload.Instant, gpus resource.Amount) {
	s.Apply(SetWorkload(Workload{
		UID: uid, Namespace: lq.Namespace, Name: uid, Version: 1, LocalQueue: lq.Name, Priority: priority, Created: since, Since: since,
		Queueable: true, PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "gpu", Amount: gpus}}}},
	}))
}

// show is "uid in-cluster-queue in-local-queue" of every item.
func show(page []Placed) (out []string) {
	for _, p := range page {
		out = append(out, fmt.Sprintf("%s %d %d", p.UID(), p.InClusterQueue, p.InLocalQueue))
	}
	return out
}

// spec: 70 §4.6, §7 examples 37, 38 and 61.
func TestPages(t *testing.T) {
	red, blue, other := Name{"red", "main"}, Name{"blue", "main"}, Name{"red", "other"}
	s := lines(red, blue, other)
	for i, lq := range []Name{red, blue, blue, red} {
		s.submitTo(lq, fmt.Sprint("w", i), 0, workload.Instant(i+1), 1)
	}
	roundRobin := lines(Name{"red", "a"}, Name{"red", "b"}, Name{"red", "c"})
	for i := range 15 {
		roundRobin.submitTo(Name{"red", string(rune('a' + i%3))}, fmt.Sprintf("%c%d", 'a'+i%3, i/3), 0, workload.Instant(i+1), 1)
	}
	for name, tc := range map[string]struct {
		s             *State
		lq            *Name
		offset, limit int64
		want          []string
	}{
		"the whole line":                     {s, nil, 0, 1000, []string{"w0 0 0", "w1 1 0", "w2 2 1", "w3 3 1"}},
		"equal names in two namespaces":      {s, &blue, 0, 1000, []string{"w1 1 0", "w2 2 1"}},
		"its offset counts its own":          {s, &blue, 1, 1000, []string{"w2 2 1"}},
		"its limit counts its own":           {s, &red, 0, 1, []string{"w0 0 0"}},
		"a LocalQueue with nothing":          {s, &other, 0, 1000, nil},
		"past the end":                       {s, nil, 4, 1000, nil},
		"past the end of a LocalQueue":       {s, &red, 2, 1000, nil},
		"limit 0":                            {s, nil, 0, 0, nil},
		"an offset beyond any line":          {s, nil, math.MaxInt64, 100_000, nil},
		"in the middle, places count before": {roundRobin, nil, 6, 3, []string{"a2 6 2", "b2 7 2", "c2 8 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			list, ok := tc.s.Publish().Waiting(queueName(0))
			if !ok {
				t.Fatal("no such queue")
			}
			if diff := cmp.Diff(tc.want, show(list.Page(tc.lq, tc.offset, tc.limit))); diff != "" {
				t.Errorf("page (-want +got):\n%s", diff)
			}
		})
	}
	if _, ok := s.Publish().Waiting("nowhere"); ok {
		t.Error("a queue that does not exist has a line")
	}
	if q, ok := s.Publish().PointsTo("red", "other"); q != queueName(0) || !ok {
		t.Errorf("red/other points to %q, %v", q, ok)
	}
	if _, ok := s.Publish().PointsTo("blue", "other"); ok {
		t.Error("blue/other exists")
	}
}

// Inadmissible or not makes no difference to the order, priority does, and one whose victims
// leave goes first. Who is admitted is in line until that is written. spec: 10 §4.4,
// 70 §7 example 41.
func TestWaitingOrder(t *testing.T) {
	lq := Name{"red", "main"}
	s := lines(lq)
	y := yard{s: s}
	s.Apply(SetQueue(y.queue(0, 10, preempt.Policy{Within: preempt.LowerPriority})))
	whole := func() []string {
		list, _ := s.Publish().Waiting(queueName(0))
		var uids []string
		for _, p := range list.Page(nil, 0, 1000) {
			uids = append(uids, p.UID())
		}
		return uids
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, whole()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	s.submitTo(lq, "runs", 5, 1, 8)
	r := s.Step(1, 100)
	expect("the admission is not written", "runs")
	s.submitTo(lq, "large", 0, 2, 9)
	s.Step(2, 100)
	s.submitTo(lq, "late", 0, 3, 10)
	s.submitTo(lq, "high", 1, 4, 7)
	if c, _ := s.Publish().Queue(queueName(0)); c.Inadmissible != 1 || c.Active != 2 {
		t.Errorf("counts %+v, want one parked", c.Counts)
	}
	expect("one is parked, two are not", "runs", "high", "large", "late")
	d := r.Decisions[0]
	s.Apply(SetWorkload(Workload{
		UID: "runs", Namespace: "red", Name: "runs", Version: 2, LocalQueue: "main", Priority: 5, Created: 1, Since: 1, Queueable: true,
		PodSets:  []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "gpu", Amount: 8}}}},
		Reserved: true, Queue: d.Queue, Held: s.Grant(&d).PodSets[0].Held, ReservedAt: d.Workload.ReservedAt,
	}))
	expect("the admission is written", "high", "large", "late")
	s.submitTo(lq, "urgent", 10, 5, 9)
	s.Step(5, 100)
	s.submitTo(lq, "more urgent", 20, 6, 11)
	expect("urgent has somebody preempted", "urgent", "more urgent", "high", "large", "late")
	s.Apply(SetLocalQueue(LocalQueue{Namespace: "red", Name: "main", Queue: queueName(0), Stopped: true}))
	expect("its LocalQueue is stopped")
}

// A roll is of its moment, whatever the state goes through before somebody reads it.
func TestRollKeeps(t *testing.T) {
	lq, other := Name{"red", "main"}, Name{"red", "other"}
	s := lines(lq, other)
	for i := range 20 {
		s.submitTo(lq, fmt.Sprintf("w%02d", i), int64(i%3), workload.Instant(i+1), 3)
	}
	read := func(r PendingList) (out []string) {
		for _, p := range r.Page(nil, 0, 1000) {
			ns, name := p.Name()
			out = append(out, fmt.Sprint(p.UID(), ns, name, p.LocalQueue(), p.Priority(), p.Created(), p.InClusterQueue, p.InLocalQueue))
		}
		return out
	}
	at, _ := s.Publish().Waiting(queueName(0))
	later, _ := s.Publish().Waiting(queueName(0))
	want := read(at)
	s.Step(1, 100)
	for i := range 20 {
		r := s.records[fmt.Sprintf("w%02d", i)]
		def := r.def.workload(s.world.Table.Names())
		def.Version, def.Priority, def.Since, def.LocalQueue = 2, 9, workload.Instant(100-i), "other"
		if i%4 == 0 {
			s.Apply(DeleteWorkload(def.UID))
		} else {
			s.Apply(SetWorkload(def))
		}
	}
	s.Apply(DeleteLocalQueue{Namespace: "red", Name: "main"})
	s.Step(2, 100)
	s.Apply(DeleteQueue(queueName(0)))
	if diff := cmp.Diff(want, read(later)); diff != "" {
		t.Errorf("the roll of before (-at once +later):\n%s", diff)
	}
}

func TestLookNow(t *testing.T) {
	lq := Name{"red", "main"}
	s := lines(lq)
	s.submitTo(lq, "first", 0, 1, 4)
	s.submitTo(lq, "second", 0, 2, 40)
	expect := func(uid string, place int, verdict trace.Verdict, part string) {
		t.Helper()
		attempt, at := s.AttemptNow(uid)
		if at != place || attempt.Verdict != verdict || !strings.Contains(attempt.String(), part) {
			t.Errorf("%s is number %d, want %d:\n%s\nwant %s and %q", uid, at, place, attempt, verdict, part)
		}
	}
	expect("second", 1, trace.Waits, "number 2 in line")
	expect("second", 1, trace.Waits, "at most 10 can ever be had here") // no decision is made here yet
	s.Step(1, 100)
	expect("first", -1, trace.Admitted, "held")
	expect("second", 1, trace.Waits, "ExceedsMaxQuota")
	if attempt, at := s.AttemptNow("nobody"); attempt != nil || at != -1 {
		t.Errorf("nobody is number %d: %v", at, attempt)
	}
	y := yard{s: s}
	q := y.queue(0, 10, preempt.Policy{})
	q.Closed = "it is stopped"
	s.Apply(SetQueue(q))
	s.submitTo(lq, "third", 0, 3, 1)
	expect("third", 2, trace.Waits, "it is stopped")
}

// BenchmarkWaiting is what a list of pending workloads costs: the first in the goroutine
// of the engine, the second in that of the request.
func BenchmarkWaiting(b *testing.B) {
	const n = 50_000
	y := newYard(b, 1, preempt.Policy{})
	for i := range n {
		y.submit(0, int64(i*7919%1000), 1)
	}
	y.step()
	b.Run("copy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if list, _ := y.s.Publish().Waiting(queueName(0)); list.Len() < n-10 {
				b.Fatal(list.Len())
			}
		}
	})
	b.Run("page", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			list, _ := y.s.Publish().Waiting(queueName(0))
			b.StartTimer()
			if page := list.Page(nil, n/2, 1000); len(page) != 1000 {
				b.Fatal(len(page))
			}
		}
	})
	b.Run("look", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, place := y.s.AttemptNow("u0040000"); place < 0 {
				b.Fatal(place)
			}
		}
	})
}
