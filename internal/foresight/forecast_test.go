package foresight

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// line is one queue for one workload at a time: the first runs, and the others wait.
func line(n int) *state.State {
	s := state.New(state.Options{Options: cycle.Defaults()})
	s.Apply(state.SetNamespace{Name: "n"})
	s.Apply(state.SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(state.SetQueue{Name: "q", Namespaces: []workload.Term{{}}, Groups: []state.Group{{Resources: []string{"cpu"}, Flavors: []state.FlavorQuota{{
		Flavor: "f", Resources: []state.Quota{{Resource: "cpu", Nominal: 1}},
	}}}}})
	s.Apply(state.SetLocalQueue{Namespace: "n", Name: "q", Queue: "q"})
	for i := range n {
		uid := fmt.Sprintf("w%d", i)
		s.Apply(state.SetWorkload(state.Workload{
			UID: uid, Namespace: "n", Name: uid, Version: 1, Generation: 1, LocalQueue: "q", Queueable: true,
			Created: workload.Instant(i), Since: workload.Instant(i),
			PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: cpus(1), Constraints: &workload.Constraints{}}},
		}))
	}
	New(s, second, Rules{Runs: func(*state.Workload) workload.Instant { return Never }, Grace: second}, func(Moment) {}).DecideAll()
	return s
}

func forecastOf(t *testing.T, s *state.State, predict func(*state.Workload) *Prediction, runs int) *Forecast {
	t.Helper()
	var all []*Run
	parts := Parts(s.Checkpoint(), nil)
	for i := range runs {
		run, err := Foresee(parts, Scope{Now: second, Horizon: 60 * minute, Grace: second, Grid: second, First: 1000}, predict, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, run)
	}
	return Summarize(all)
}

func TestForecast(t *testing.T) {
	known := NewLearner().Predict(&Job{Expected: 10 * minute})
	f := forecastOf(t, line(10), func(*state.Workload) *Prediction { return known }, 32)
	before := workload.Instant(0)
	for i := 1; i < 10; i++ {
		start, why, known := f.Of(fmt.Sprint("w", i), "q")
		if !known {
			t.Fatalf("the start of the %d. in line is unknown: %s", i, why)
		}
		if start.P10 > start.P50 || start.P50 > start.P90 || start.P50 <= before {
			t.Errorf("the %d. in line starts at %+v, the one before at %d", i, start, before)
		}
		before = min(start.P50, Never-1)
	}
	if first, _, _ := f.Of("w1", "q"); first.P50 < 5*minute || first.P50 > 20*minute || first.P90 == Never {
		t.Errorf("the first starts at %+v", first)
	}
	if last, _, _ := f.Of("w9", "q"); last.P50 != Never {
		t.Errorf("the last starts at %+v, after the run times of nine", last)
	}
	if _, why, known := f.Of("other", "q"); known || !strings.Contains(why, "not in line") {
		t.Errorf("of an unknown workload it says %v %q", known, why)
	}
	if n := f.Count(); n.Known < 3 || n.Later == 0 || n.Unknown != 0 || n.Known+n.Later != 9 {
		t.Errorf("%+v", n)
	}
}

// TestHonestlyUnknown: nothing is known of what runs, so nothing of when the next one starts.
func TestHonestlyUnknown(t *testing.T) {
	unknown := NewLearner().Predict(&Job{})
	f := forecastOf(t, line(3), func(*state.Workload) *Prediction { return unknown }, 9)
	start, why, known := f.Of("w1", "q")
	if want := "the run times of 1 running Workload in its cohort are unknown; set berth.dev/expected-run-seconds on their jobs, or wait until 3 like them have finished"; known || why != want {
		t.Errorf("it starts at %+v, %v: %q", start, known, why)
	}
	if n := f.Endless("q"); n != 1 {
		t.Errorf("%d are endless", n)
	}
	if n := f.Count(); n != (Counts{Unknown: 2}) {
		t.Errorf("%+v", n)
	}
}

// TestLimit: of starts that a run did not get to nothing is known, unless earlier runs saw them. Each part has a limit of its own.
func TestLimit(t *testing.T) {
	known := NewLearner().Predict(&Job{Expected: 10 * minute})
	predict := func(*state.Workload) *Prediction { return known }
	at, limits := line(10).Checkpoint(), 0
	scope := Scope{Now: second, Horizon: 60 * 60 * second * 24, Grace: second, Grid: second, First: 1000}
	whole, err := Foresee([]*state.Checkpoint{at}, scope, predict, 1)
	if err != nil {
		t.Fatal(err)
	}
	scope.Limit = func() func() bool {
		limits++
		steps := 0
		return func() bool { steps++; return steps > 6 }
	}
	cut, err := Foresee([]*state.Checkpoint{at}, scope, predict, 1)
	if err != nil {
		t.Fatal(err)
	}
	alone, both := Summarize([]*Run{cut}), Summarize([]*Run{cut, whole})
	if _, why, known := alone.Of("w9", "q"); known || why != "the last forecast took too long to get to its start" {
		t.Errorf("of the last one it is known %v: %q", known, why)
	}
	if n := alone.Count(); n.Known == 0 || n.Unknown == 0 || n.Later != 0 {
		t.Errorf("%+v", n)
	}
	if _, _, known := both.Of("w9", "q"); !known || both.Count() != (Counts{Known: 9}) {
		t.Errorf("with an earlier run %+v", both.Count())
	}
	if _, err := Foresee([]*state.Checkpoint{at, line(2).Checkpoint()}, scope, predict, 1); err != nil || limits != 3 {
		t.Errorf("%d limits, %v", limits, err)
	}
}

// TestOlderRuns: a start that an older run foresaw counts if it may still happen.
func TestOlderRuns(t *testing.T) {
	at := func(now workload.Instant, starts ...workload.Instant) *Run {
		return &Run{Scope: Scope{Now: now, Horizon: 100}, uids: []string{"a", "b", "c"}, starts: starts, unknown: make([]bool, 3)}
	}
	runs := []*Run{at(50, 60, 149, Never)}
	for range leastRuns {
		runs = append(runs, at(40, 45, 140, 45)) // a and c did not start at 45, and 149 is too far for these
	}
	f := Summarize(runs)
	if diff := cmp.Diff([]Start{startOf([]workload.Instant{60}, 50), {140, 140, Never}, {Never, Never, Never}}, f.starts); diff != "" {
		t.Error(diff)
	}
	if f.Horizon != 90 {
		t.Errorf("it looks ahead for %d", f.Horizon)
	}
}

// TestReproducible: the same seed foresees the same, and looking ahead changes nothing.
func TestReproducible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _ := drawWorld(t)
		s.Step(30*second, 1000)
		before := s.Dump()
		known := NewLearner().Predict(&Job{Expected: 10 * second})
		scope := Scope{Now: 31 * second, Horizon: 10 * minute, Grace: second, Grid: second, First: 5, Seed: rapid.Uint64().Draw(t, "seed")}
		came := NewArrivals(31*second - 4*leastBlocks*block)
		for i := range rapid.IntRange(0, 9).Draw(t, "arrivals") {
			came.Add(&state.Workload{
				UID: fmt.Sprint("a", i), Namespace: "n", LocalQueue: "q0", Generation: 1, Version: 1, Queueable: true, Created: -workload.Instant(i) * 10 * minute,
				PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: cpus(1), Constraints: &workload.Constraints{}}},
			}, &Job{Expected: 10 * second})
		}
		predict := func(w *state.Workload) *Prediction {
			if strings.Contains(w.UID, "~") {
				t.Fatal("a workload that only a forecast knows is asked about")
			}
			return known
		}
		scope.Recent = came.Recent(scope.Now, NewLearner().Predict)
		var runs []*Run
		for range 2 {
			run, err := Foresee(Parts(s.Checkpoint(), nil), scope, predict, 1)
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, run)
		}
		if diff := cmp.Diff(runs[0].starts, runs[1].starts); diff != "" {
			t.Errorf("the second run differs:\n%s", diff)
		}
		if after := s.Dump(); after != before {
			t.Errorf("looking ahead changed the world:\n%s", cmp.Diff(before, after))
		}
	})
}

// TestForeseeParts: the smallest parts foresee what the whole does, if run times are not drawn.
func TestForeseeParts(t *testing.T) {
	parted := 0
	rapid.Check(t, func(t *rapid.T) {
		s, runs := drawWorldOf(t, "", "c", "d")
		s.Step(30*second, 1000)
		came := NewArrivals(31*second - 4*leastBlocks*block)
		for i := range rapid.IntRange(0, 9).Draw(t, "arrivals") {
			came.Add(&state.Workload{
				UID: fmt.Sprint("a", i), Namespace: "n", LocalQueue: fmt.Sprint("q", i%5), Generation: 1, Version: 1, Queueable: true, Created: -workload.Instant(i) * 10 * minute,
				PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: cpus(1), Constraints: &workload.Constraints{}}},
			}, &Job{})
		}
		scope := Scope{
			Now: 31 * second, Horizon: 10 * minute, Grace: second, Grid: second, First: 5, Seed: rapid.Uint64().Draw(t, "seed"),
			Recent: came.Recent(31*second, func(*Job) *Prediction { return fixed(20 * second) }),
		}
		predict := func(w *state.Workload) *Prediction { return fixed(runs[w.UID]) }
		at := s.Checkpoint()
		want, err := Foresee([]*state.Checkpoint{at}, scope, predict, 1)
		if err != nil {
			t.Fatal(err)
		}
		parts := at.Parts(1, nil)
		got, err := Foresee(parts, scope, predict, 1)
		if err != nil {
			t.Fatal(err)
		}
		want.Recent, got.Recent = nil, nil
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Run{})); diff != "" {
			t.Errorf("(-whole +parts):\n%s", diff)
		}
		parted += len(parts) - 1
	})
	if parted == 0 {
		t.Error("no world was divided")
	}
}

// fixed is the prediction of a run time that is known, or that has no end.
func fixed(length workload.Instant) *Prediction {
	if length == Never {
		return &Prediction{Estimate: Estimate{Source: Unknown}}
	}
	return &Prediction{Estimate: Estimate{Source: Bounded, Limit: length}, ran: length}
}

// TestArrivalsBounds: only the last arrivals are kept, and it is known from when on they are all there.
func TestArrivalsBounds(t *testing.T) {
	a := NewArrivals(0)
	for i := range 2 * maxArrivals {
		a.Add(&state.Workload{UID: fmt.Sprint(i), Created: workload.Instant(i) * 2 * second}, &Job{})
	}
	if len(a.all) != maxArrivals {
		t.Errorf("%d are kept", len(a.all))
	}
	r := a.Recent(4*maxArrivals*second, NewLearner().Predict)
	if len(r.all) != maxArrivals || r.from <= (2*maxArrivals-2)*second || r.from > 2*maxArrivals*second || a.Recent(leastBlocks*block-1, NewLearner().Predict) != nil {
		t.Errorf("of %d arrivals from %d on", len(r.all), r.from/second)
	}
}

// TestBurstOfArrivals: a burst that displaced all earlier arrivals is not repeated minute by minute, and a forecast has a bounded number.
func TestBurstOfArrivals(t *testing.T) {
	a := NewArrivals(0)
	now := 24 * 60 * minute
	for i := range 2 * maxArrivals {
		a.Add(&state.Workload{UID: fmt.Sprint(i), Created: now - minute + workload.Instant(i)}, &Job{})
	}
	if r := a.Recent(now, NewLearner().Predict); r != nil {
		t.Errorf("%d arrivals of %d s tell what is to come", len(r.all), (r.to-r.from)/second)
	}
	now += leastBlocks * block
	r := a.Recent(now, NewLearner().Predict)
	r.from -= 10 * minute
	if n := len(r.draw(newDraws(1, 1), now, now+1000*24*60*minute)); n != maxDrawn {
		t.Errorf("%d arrivals are drawn, want %d", n, maxDrawn)
	}
}

// TestKeptArrivals: arrivals that are not added because they would not be kept leave what adding them leaves.
func TestKeptArrivals(t *testing.T) {
	rapid.Check(t, keptArrivals)
}

func keptArrivals(t *rapid.T) {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	all, some := NewArrivals(0), NewArrivals(0)
	skipped := 0
	for i := range 3 * maxArrivals {
		def := &state.Workload{UID: fmt.Sprint(i), Created: workload.Instant(random.IntN(5*maxArrivals)) * second}
		all.Add(def, &Job{})
		if some.Keeps(def.Created) {
			some.Add(def, &Job{})
		} else {
			skipped++
		}
	}
	times := func(a *Arrivals) (out []workload.Instant) {
		for _, x := range a.all {
			out = append(out, x.at)
		}
		return append(out, a.since)
	}
	if skipped == 0 || !slices.Equal(times(all), times(some)) {
		t.Errorf("%d were skipped, and what is kept differs", skipped)
	}
}
