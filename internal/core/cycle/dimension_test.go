package cycle

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/ledger/ledgertest"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/worldtest"
)

func TestMain(m *testing.M) { os.Exit(worldtest.Main(m)) }

// seats places each pod on one seat of the first rack that has seats for all pods of a workload:
// a dimension that no package but ledger knows.
type seats struct {
	*ledgertest.Racks
	in   *ledger.Ledger
	key  ledger.Key
	size resource.Amount // of a rack

	measured int
}

func count(podSets []workload.PodSet, groups []flavor.PlaceGroup) (n resource.Amount) {
	for _, g := range groups {
		for _, i := range g.PodSets {
			n += resource.Amount(podSets[i].Count)
		}
	}
	return n
}

func (s *seats) rack(n resource.Amount) int {
	return slices.IndexFunc(s.Free, func(free resource.Amount) bool { return free >= n })
}

func (s *seats) Now(podSets []workload.PodSet, groups []flavor.PlaceGroup) bool {
	return s.rack(count(podSets, groups)) >= 0
}

func (s *seats) Ever(podSets []workload.PodSet, groups []flavor.PlaceGroup) bool {
	return count(podSets, groups) <= s.size
}

func (s *seats) Why([]workload.PodSet, []flavor.PlaceGroup) string {
	return "no rack has seats for all"
}

// Wants waits for the rack with the most free seats, which is the only measure.
func (s *seats) Wants(podSets []workload.PodSet, g flavor.PlaceGroup, like workload.Want, into []workload.Want) ([]workload.Want, bool) {
	like.FR = s.in.Measure(ledger.MeasureID{Of: s.key})
	like.Least = count(podSets, []flavor.PlaceGroup{g})
	return append(into, like), true
}

// addMeasures adds measures of other requests.
func (s *seated) addMeasures(n int) {
	for i := range n {
		s.Measure(ledger.MeasureID{Of: s.seats.key, Number: 1 + i})
	}
}

func (s *seats) Measure(int) resource.Amount {
	s.measured++
	return slices.Max(s.Free)
}

func (s *seats) AtMost(int) resource.Amount { return slices.Max(s.Free) }

func (s *seats) Raises(ledger.Part, int) bool { return true }

func (s *seats) Place(podSets []workload.PodSet, groups []flavor.PlaceGroup, u ledger.Usage, empty bool) (ledger.Usage, []*trace.Placement, bool) {
	n, rack := count(podSets, groups), 0
	if empty {
		return u.With(s.key, ledgertest.Seats{n}), make([]*trace.Placement, len(podSets)), n <= s.size
	}
	if rack = s.rack(n); rack < 0 {
		return u, nil, false
	}
	taken := make(ledgertest.Seats, rack+1)
	taken[rack] = n
	return u.With(s.key, taken), make([]*trace.Placement, len(podSets)), true
}

// seated is a world with more quota than anything needs and some racks of four seats; queues a and
// b are in one tree, and c in another one.
type seated struct {
	*World
	seats   *seats
	a, b, c *Queue
}

func newSeated(racks int, policy preempt.Policy) *seated {
	w := NewWorld(Defaults())
	s := &seated{World: w, seats: &seats{Racks: &ledgertest.Racks{}, in: w.Ledger, size: 4}}
	for range racks {
		s.seats.Free = append(s.seats.Free, s.seats.size)
	}
	s.seats.key = w.Extend(s.seats)
	w.Places = s.seats
	cohort := w.Quota.Add("all", true)
	s.a, s.b, s.c = addQueue(w, "a", cohort, 100), addQueue(w, "b", cohort, 100), addQueue(w, "c", quota.None, 100)
	for _, q := range []*Queue{s.a, s.b, s.c} {
		q.Shares, q.Preemption = true, policy
		q.Groups[0].Offers[0].Flavor.Levels = []string{"rack"}
	}
	w.Step(1, 1000)
	return s
}

// arrive adds a pending workload of some pods, one GPU each.
func (s *seated) arrive(q *Queue, name string, class, pods int32, priority int64) *workload.Workload {
	wl := &workload.Workload{UID: name, Key: "default/" + name, Queue: q.Index, Class: class, Priority: priority, PodSets: []workload.PodSet{{
		Name: "main", Count: pods, Requests: []workload.Request{{Resource: s.Table.ID("gpu"), Amount: resource.Amount(pods)}},
	}}}
	s.Enqueue(wl)
	return wl
}

func (s *seated) wantVerdicts(t *testing.T, when string, want ...string) {
	t.Helper()
	r := s.Step(2, 1000)
	s.SettleAdmissions(2, r.More)
	if diff := cmp.Diff(want, verdicts(r)); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", when, diff)
	}
}

func (s *seated) wantFree(t *testing.T, when string, want ...resource.Amount) {
	t.Helper()
	if diff := cmp.Diff(want, s.seats.Free); diff != "" {
		t.Fatalf("%s, free seats (-want +got):\n%s", when, diff)
	}
}

// TestDimension: a workload waits for a dimension that no package but ledger knows, whatever quota
// is released, is woken by a release in another tree that helps it, and by no other.
func TestDimension(t *testing.T) {
	s := newSeated(2, preempt.Policy{})
	three, two := s.arrive(s.a, "three", 1, 3, 0), s.arrive(s.c, "two", 1, 2, 0)
	s.wantVerdicts(t, "at first", "three admitted", "two admitted")
	s.wantFree(t, "at first", 1, 2)
	four := s.arrive(s.b, "four", 1, 4, 0)
	r := s.Step(2, 1000)
	attempt := r.Decisions[0].Attempt
	if attempt.Reason != trace.TopologyPlacementFailed || attempt.Sentence() != "pod set main: no rack has seats for all" {
		t.Fatalf("with too few seats, %s: %s", attempt.Reason, attempt.Sentence())
	}
	s.seats.Free[0]-- // a seat breaks
	s.Release(three)
	s.wantVerdicts(t, "a rack has three seats")
	s.Release(two)
	s.wantVerdicts(t, "a rack has four", "four admitted")
	s.wantFree(t, "with the admission", 3, 0)
	s.RemoveQueue(s.b)
	s.wantFree(t, "without its queue", 3, 4)
	if four.Reserved {
		t.Error("it holds its reservation without its queue")
	}
}

// TestCapacityChanged: capacity that comes from outside wakes as a release does.
func TestCapacityChanged(t *testing.T) {
	s := newSeated(1, preempt.Policy{})
	s.seats.Free[0] = 2
	s.arrive(s.a, "three", 1, 3, 0)
	s.wantVerdicts(t, "at first", "three waits")
	s.seats.Free[0] = 3
	s.CapacityChanged(s.seats.key)
	s.wantVerdicts(t, "with another seat", "three admitted")
	changes := func(n int) int {
		s.seats.measured = 0
		for range n {
			s.CapacityChanged(s.seats.key)
		}
		s.wantVerdicts(t, "with as many seats")
		return s.seats.measured
	}
	s.arrive(s.a, "again", 2, 3, 0)
	s.wantVerdicts(t, "without seats", "again waits")
	if once, often := changes(1), changes(100); once == 0 || often > once {
		t.Errorf("measured %d times after a change and %d times after a hundred", once, often)
	}
}

// TestRaisedInParts: the wake conditions on a dimension are evaluated within the budgets of the steps. Trees that share nothing go on meanwhile; the others
// decide once all are evaluated, as they would have at once.
func TestRaisedInParts(t *testing.T) {
	decide := func(budget int) (all []string, steps int) {
		s := newSeated(1, preempt.Policy{})
		alone := addQueue(s.World, "alone", quota.None, 100)
		s.Step(1, 1000)
		s.addMeasures(100)
		s.seats.Free[0] = 2
		s.arrive(s.a, "three", 1, 3, 0)
		s.arrive(s.c, "urgent", 2, 4, 9)
		s.wantVerdicts(t, "at first", "urgent waits", "three waits")
		s.seats.Free[0] = 4
		s.CapacityChanged(s.seats.key)
		s.arrive(s.b, "one", 3, 1, 0)
		s.arrive(alone, "other", 4, 1, 0)
		for more := true; more; steps++ {
			r := s.Step(2, budget)
			s.SettleAdmissions(2, r.More)
			if steps == 0 && !slices.Contains(verdicts(r), "other admitted") {
				t.Errorf("with a budget of %d, the first step decides %v", budget, verdicts(r))
			}
			if budget < 10 && r.Work > 2*budget {
				t.Errorf("a step of %d units of work", r.Work)
			}
			all, more = append(all, verdicts(r)...), r.More
		}
		return slices.DeleteFunc(all, func(s string) bool { return s == "other admitted" }), steps
	}
	atOnce, _ := decide(1000)
	inParts, steps := decide(4)
	if diff := cmp.Diff(atOnce, inParts); diff != "" || !slices.Contains(atOnce, "urgent admitted") || steps < 10 {
		t.Errorf("in %d steps (-at once +in parts):\n%s", steps, diff)
	}
}

// TestRaisedAgainAndAgain: capacity that changes before every step does not keep the trees from their decisions: they have as much work as
// the wake conditions.
func TestRaisedAgainAndAgain(t *testing.T) {
	s := newSeated(1, preempt.Policy{})
	s.addMeasures(100)
	for i := range int32(200) {
		s.arrive(s.a, fmt.Sprint("w", i), 1+i, 5, 0)
	}
	steps, decisions := 0, 0
	for ; decisions < 200; steps++ {
		if steps > 200 {
			t.Fatalf("%d decisions in %d steps", decisions, steps)
		}
		s.CapacityChanged(s.seats.key)
		r := s.Step(2, 4)
		s.SettleAdmissions(2, r.More)
		decisions += len(r.Decisions)
	}
}

// TestReleaseIsNoWork: a release of another dimension evaluates no wake condition; the next step does, once for all of them.
func TestReleaseIsNoWork(t *testing.T) {
	s := newSeated(1, preempt.Policy{})
	two, one := s.arrive(s.a, "two", 1, 2, 0), s.arrive(s.a, "one", 2, 1, 0)
	s.wantVerdicts(t, "at first", "one admitted", "two admitted")
	s.arrive(s.b, "four", 3, 4, 0)
	s.wantVerdicts(t, "with too few seats", "four waits")
	s.CapacityChanged(s.seats.key)
	s.wantVerdicts(t, "with as many")
	s.seats.measured = 0
	s.Release(two)
	s.Release(one)
	if s.seats.measured > 0 {
		t.Errorf("the releases measured %d times", s.seats.measured)
	}
	s.wantVerdicts(t, "after that", "four admitted")
}

// TestDimensionOfPreemptor: seats of victims are held for their preemptor, from heads of other trees
// as well, until the victims have left.
func TestDimensionOfPreemptor(t *testing.T) {
	s := newSeated(1, preempt.Policy{Within: preempt.LowerPriority})
	first := s.arrive(s.a, "first", 1, 2, 0)
	s.wantVerdicts(t, "at first", "first admitted")
	s.arrive(s.a, "urgent", 2, 3, 9)
	s.wantVerdicts(t, "a more urgent one", "urgent preempts")
	s.arrive(s.c, "other", 3, 2, 0)
	s.wantVerdicts(t, "a head of another tree", "other waits")
	s.wantFree(t, "before the victim has left", 2)
	s.Release(first)
	s.wantVerdicts(t, "after that", "urgent admitted", "other waits", "other waits")
	s.wantFree(t, "after that", 1)
}

// TestPlaceAgain: of two heads of one cycle that choose the same seats the second one gets others.
func TestPlaceAgain(t *testing.T) {
	s := newSeated(2, preempt.Policy{})
	s.arrive(s.a, "first", 1, 3, 1)
	s.arrive(s.c, "second", 2, 3, 0)
	s.wantVerdicts(t, "both", "first admitted", "second admitted")
	s.wantFree(t, "both", 1, 1)
}

// TestDelayed: a queue that delays placements reserves quota without places.
func TestDelayed(t *testing.T) {
	s := newSeated(1, preempt.Policy{})
	s.a.DelayAll = true
	wl := s.arrive(s.a, "later", 1, 9, 0)
	s.wantVerdicts(t, "more pods than seats", "later admitted")
	s.wantFree(t, "no seat is taken", 4)
	if wl.Usage.Shares() {
		t.Errorf("it holds seats: %v", wl.Usage)
	}
}

// TestSharingEnds: a tree without queues, or whose queues share no capacity, does not run with the sharing trees.
func TestSharingEnds(t *testing.T) {
	s := newSeated(1, preempt.Policy{})
	s.Quota.SetParent(s.c.Node, s.Quota.Root(s.a.Node))
	s.Edited(s.c.Node)
	s.a.Shares, s.b.Shares = false, false
	s.Edited(s.a.Node, s.b.Node)
	s.arrive(s.c, "one", 1, 1, 0)
	s.wantVerdicts(t, "after the edits", "one admitted")
	s.RemoveQueue(s.c)
	s.Step(2, 1000)
	for _, tree := range s.trees {
		if tree != nil && tree.shares {
			t.Errorf("tree %q with %d queues shares capacity", tree.name, len(tree.queues))
		}
	}
}

// TestAwake: after any sequence of arrivals, departures and changes from outside, no workload is
// inadmissible that an evaluation would admit.
func TestAwake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSeated(rapid.IntRange(1, 3).Draw(t, "racks"), preempt.Policy{})
		s.addMeasures(rapid.IntRange(0, 40).Draw(t, "measures"))
		var all []*workload.Workload
		queues := []*Queue{s.a, s.b, s.c}
		for i := range rapid.IntRange(1, 40).Draw(t, "events") {
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0, 1:
				pods := int32(rapid.IntRange(1, 5).Draw(t, "pods"))
				q := queues[rapid.IntRange(0, 2).Draw(t, "queue")]
				all = append(all, s.arrive(q, fmt.Sprint("w", i), 10*q.Index+pods, pods, 0))
			case 2:
				rack := rapid.IntRange(0, len(s.seats.Free)-1).Draw(t, "rack")
				s.seats.Free[rack] = max(0, s.seats.Free[rack]+resource.Amount(rapid.IntRange(-1, 2).Draw(t, "seats")))
				s.CapacityChanged(s.seats.key)
			default:
				if len(all) > 0 {
					at := rapid.IntRange(0, len(all)-1).Draw(t, "workload")
					s.Release(all[at])
					s.Dequeue(all[at])
					all = slices.Delete(all, at, at+1)
				}
			}
			for more, steps := true, 0; more; steps++ {
				if steps > 1000 {
					t.Fatal("no end")
				}
				r := s.Step(2, rapid.SampledFrom([]int{1000, 1, 2, 5}).Draw(t, "budget"))
				s.SettleAdmissions(2, r.More)
				more = r.More
			}
			for _, q := range queues {
				for _, wl := range q.Pending.All() {
					if attempt := s.Explain(wl); len(attempt.Refusals) == 0 {
						t.Fatalf("%s would be admitted, and waits: %v are free", wl.Key, s.seats.Free)
					}
				}
			}
			if slices.Min(s.seats.Free) < 0 {
				t.Fatalf("a rack holds more than it has: %v are free", s.seats.Free)
			}
		}
	})
}
