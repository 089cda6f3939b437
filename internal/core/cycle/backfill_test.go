package cycle

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// twoStarts is a cohort of two strict queues with 4 gpus each that reserve starts, and of one without quota that borrows.
type twoStarts struct {
	*World
	a, b, borrower *Queue
	class          int32
}

func newTwoStarts() *twoStarts {
	w := NewWorld(Defaults())
	cohort := w.Quota.Add("all", true)
	w.Quota.SetParent(cohort, quota.None)
	s := &twoStarts{World: w, a: addQueue(w, "a", cohort, 4), b: addQueue(w, "b", cohort, 4), borrower: addQueue(w, "borrower", cohort, 0)}
	for _, q := range []*Queue{s.a, s.b} {
		q.Strict, q.Backfill = true, Easy
	}
	return s
}

func (s *twoStarts) submit(q *Queue, name string, gpus resource.Amount, bound workload.Instant) *workload.Workload {
	s.class++
	wl := &workload.Workload{UID: name, Key: "default/" + name, Queue: q.Index, Class: s.class, Since: workload.Instant(s.class), Bound: bound, PodSets: []workload.PodSet{{
		Name: "main", Count: 1, Requests: []workload.Request{{Resource: s.Table.ID("gpu"), Amount: gpus}},
	}}}
	s.Enqueue(wl)
	return wl
}

func (s *twoStarts) step(t *testing.T, now workload.Instant, want ...string) Result {
	t.Helper()
	r := s.Step(now, math.MaxInt)
	var admitted []string
	for _, d := range r.Decisions {
		if d.admits() {
			admitted = append(admitted, d.Workload.UID)
		}
	}
	if diff := cmp.Diff(want, admitted); diff != "" {
		t.Errorf("admitted at %d (-want +got):\n%s", now, diff)
	}
	s.SettleAdmissions(now, false)
	return r
}

func (s *twoStarts) starts(t *testing.T, a, b workload.Instant) {
	t.Helper()
	for q, want := range map[*Queue]workload.Instant{s.a: a, s.b: b} {
		if got := q.start; got == nil || got.at != want {
			t.Errorf("the start of %s is %+v, want %d", q.Name, got, want)
		}
	}
}

// TestStartsOfOneShare: two heads within their own quota need what a third queue has borrowed. The second one has no start before the first
// one runs, else each would keep the other out for ever.
func TestStartsOfOneShare(t *testing.T) {
	s := newTwoStarts()
	s.submit(s.borrower, "borrows", 3, 0)
	first, second := s.submit(s.a, "first", 2, 9), s.submit(s.b, "second", 2, 19)
	s.step(t, 1, "first", "second", "borrows")
	next := s.submit(s.a, "next", 4, 5)
	s.submit(s.b, "last", 4, 5)
	if r := s.step(t, 2); r.Next != 20 {
		t.Errorf("the next step is at %d, want 20", r.Next)
	}
	s.starts(t, 20, 0)
	s.Release(first)
	s.step(t, 10)
	s.Release(second)
	s.step(t, 20, "next")
	if s.b.start == nil || s.b.start.at != 25 {
		t.Errorf("the start of b is %+v, want 25", s.b.start)
	}
	s.Release(next)
	s.step(t, 25, "last")
}

// TestFollowersUnderFairSharing: the follower of the head whose turn came first is admitted, in whatever order the queues were made.
func TestFollowersUnderFairSharing(t *testing.T) {
	for _, names := range [][]string{{"a", "b"}, {"b", "a"}} {
		o := Defaults()
		o.Fair = &preempt.Fair{Strategies: []preempt.Strategy{preempt.LessThanOrEqualToFinalShare}}
		s := &twoStarts{World: NewWorld(o)}
		cohort := s.Quota.Add("all", true)
		s.Quota.SetQuota(cohort, []quota.Cell{{FR: s.Table.FR("f", "gpu"), Nominal: 5, Borrow: quota.NoLimit, Lend: quota.NoLimit}})
		queues := map[string]*Queue{}
		for _, name := range names {
			queues[name] = addQueue(s.World, name, cohort, 0)
			queues[name].Strict, queues[name].Backfill = true, Easy
		}
		s.a, s.b = queues["a"], queues["b"]
		s.submit(s.a, "a runs", 3, 50)
		s.submit(s.b, "b runs", 1, 50)
		s.step(t, 1, "b runs", "a runs")
		for _, name := range names {
			s.submit(queues[name], name+" head", 3, 50)
			s.submit(queues[name], name+" follows", 1, 5)
		}
		s.step(t, 2, "b follows")
	}
}

// TestCandidateBesideBothStarts: a candidate that leaves room for each of two starts, and not for both, is refused.
func TestCandidateBesideBothStarts(t *testing.T) {
	s := newTwoStarts()
	first, second := s.submit(s.a, "first", 2, 9), s.submit(s.b, "second", 3, 19)
	s.step(t, 1, "first", "second")
	s.submit(s.a, "next", 4, 50)
	s.step(t, 2)
	s.submit(s.b, "last", 4, 50)
	s.step(t, 3)
	s.starts(t, 10, 20)
	s.submit(s.borrower, "candidate", 1, 0)
	short := s.submit(s.borrower, "short", 1, 6)
	s.step(t, 4, "short")
	s.Release(first)
	s.Release(short)
	s.step(t, 10, "next")
	s.Release(second)
	s.step(t, 20, "last")
}

// TestCandidateBesideFurtherStart: a candidate is refused for a start behind the first one, beside which and the start of another queue there is no room
// for it. It would fit beside each of them alone.
func TestCandidateBesideFurtherStart(t *testing.T) {
	s := newTwoStarts()
	s.a.Backfill = Conservative
	first, second := s.submit(s.a, "first", 3, 9), s.submit(s.b, "second", 3, 19)
	s.step(t, 1, "first", "second")
	next := s.submit(s.a, "next", 3, 50)
	last := s.submit(s.b, "last", 4, 500)
	s.step(t, 2)
	s.starts(t, 10, 20)
	s.submit(s.a, "third", 4, 10)
	s.submit(s.a, "candidate", 1, 100)
	short := s.submit(s.a, "short", 1, 6)
	s.step(t, 3, "short")
	if got := s.a.further; len(got) != 2 || got[0].at != 60 || got[1].at != 70 {
		t.Errorf("the starts behind the first one are %+v, want 60 and 70", got)
	}
	s.Release(first)
	s.Release(short)
	s.step(t, 10, "next")
	s.Release(second)
	s.step(t, 20, "last")
	s.Release(next)
	s.step(t, 60, "third")
	s.Release(last)
	s.step(t, 61, "candidate")
}
