package whatif

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/worldtest"
)

func TestMain(m *testing.M) {
	os.Exit(worldtest.Main(m))
}

const second = workload.Instant(1e9)

// world is queues of one cohort with their workloads, some of which run.
type world struct {
	s       *state.State
	queues  int
	cohorts []string
	runs    map[string]workload.Instant
	now     workload.Instant
}

func (w *world) newQueue(t *rapid.T, name string) state.SetQueue {
	rules := []preempt.Rule{preempt.Never, preempt.LowerPriority, preempt.LowerOrNewerEqualPriority}
	return state.SetQueue{
		Name: name, Cohort: rapid.SampledFrom(w.cohorts).Draw(t, "cohort"), Namespaces: []workload.Term{{}}, Strict: rapid.Bool().Draw(t, "strict"),
		Groups: []state.Group{{Resources: []string{"cpu"}, Flavors: []state.FlavorQuota{{
			Flavor: "f", Resources: []state.Quota{{Resource: "cpu", Nominal: resource.Amount(rapid.IntRange(0, 8).Draw(t, "quota"))}},
		}}}},
		Preemption: preempt.Policy{
			Within: rapid.SampledFrom(rules).Draw(t, "within"), Reclaim: rapid.SampledFrom(append(rules, preempt.Any)).Draw(t, "reclaim"),
		},
	}
}

func (w *world) newWorkload(t *rapid.T, uid string, created workload.Instant) state.SetWorkload {
	w.runs[uid] = workload.Instant(rapid.IntRange(1, 60).Draw(t, "runs")) * second
	if rapid.IntRange(0, 9).Draw(t, "without an end") == 0 {
		w.runs[uid] = foresight.Never
	}
	cpu := []state.Request{{Resource: "cpu", Amount: resource.Amount(rapid.IntRange(1, 6).Draw(t, "cpu"))}}
	return state.SetWorkload{
		UID: uid, Namespace: "n", Name: uid, Version: 1, Generation: 1, Queueable: true,
		LocalQueue: fmt.Sprint("q", rapid.IntRange(0, w.queues-1).Draw(t, "queue")),
		Priority:   int64(rapid.IntRange(0, 2).Draw(t, "priority")), Created: created, Since: created,
		PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: cpu, Constraints: &workload.Constraints{}}},
	}
}

func drawWorld(t *rapid.T) *world { return drawWorldOf(t, "c") }

// drawWorldOf draws a world of some cohorts.
func drawWorldOf(t *rapid.T, cohorts ...string) *world {
	w := &world{cohorts: cohorts, s: state.New(state.Options{Options: cycle.Defaults()}), runs: map[string]workload.Instant{}, now: 100 * second}
	w.s.Apply(state.SetNamespace{Name: "n"})
	w.s.Apply(state.SetFlavor(flavor.Flavor{Name: "f"}))
	w.queues = rapid.IntRange(1, 4).Draw(t, "queues")
	for i := range w.queues {
		name := fmt.Sprint("q", i)
		w.s.Apply(w.newQueue(t, name))
		w.s.Apply(state.SetLocalQueue{Namespace: "n", Name: name, Queue: name})
	}
	for i := range rapid.IntRange(1, 24).Draw(t, "workloads") {
		w.s.Apply(w.newWorkload(t, fmt.Sprintf("w%02d", i), workload.Instant(i)*second))
	}
	f := foresight.New(w.s, 50*second, foresight.Rules{Runs: w.length, Grace: second}, func(foresight.Moment) {})
	f.Advance(w.now)
	f.DecideAll()
	return w
}

func (w *world) length(def *state.Workload) workload.Instant { return w.runs[def.UID] }

func (w *world) options() Options {
	return Options{Now: w.now, Horizon: 300 * second, Grace: 3 * second, RunTime: func(def *state.Workload) (workload.Instant, Source) {
		if w.runs[def.UID] == foresight.Never {
			return 0, Unknown
		}
		return w.runs[def.UID], Expected
	}}
}

func (w *world) drawChange(t *rapid.T) (change []state.Event) {
	changed := map[string]bool{}
	for i := range rapid.IntRange(1, 3).Draw(t, "changes") {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			change = append(change, w.newQueue(t, fmt.Sprint("q", rapid.IntRange(0, w.queues-1).Draw(t, "queue"))))
		case 1:
			change = append(change, w.newWorkload(t, fmt.Sprint("new", i), w.now))
		case 2:
			if uids := w.s.UIDs(); len(uids) > 0 {
				uid := rapid.SampledFrom(uids).Draw(t, "deleted")
				changed[uid] = true
				change = append(change, state.DeleteWorkload(uid))
			}
		default:
			for _, uid := range w.s.UIDs() {
				if def, _ := w.s.Definition(uid); def.Reserved && !def.Evicting && !changed[uid] {
					changed[uid] = true
					def.Evicting = true
					def.Version++
					change = append(change, state.SetWorkload(def))
					break
				}
			}
		}
	}
	return change
}

// TestNoChange: without a change nothing is different.
func TestNoChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		r, err := Compare(w.s.Checkpoint(), nil, w.options())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Workloads) > 0 || r.Before != r.After {
			t.Errorf("%+v", r)
		}
		for _, u := range r.Use {
			if u.Before != u.After {
				t.Errorf("%+v", u)
			}
		}
	})
}

// first is the first start and the number of preemptions of each workload.
type first struct {
	at        map[string]workload.Instant
	preempted map[string]int
}

// happens runs a fork forward, without this package.
func (w *world) happens(t *rapid.T, change []state.Event) first {
	fork, err := w.s.Checkpoint().Fork()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range change {
		fork.Apply(e)
	}
	out := first{map[string]workload.Instant{}, map[string]int{}}
	f := foresight.New(fork, w.now, foresight.Rules{Runs: w.length, Grace: 3 * second}, func(m foresight.Moment) {
		switch _, has := out.at[m.Def.UID]; {
		case m.Kind == foresight.Started && !has:
			out.at[m.Def.UID] = m.At - w.now
		case m.Kind == foresight.Preempted:
			out.preempted[m.Def.UID]++
		}
	})
	f.Advance(w.now + 300*second)
	f.DecideAll()
	return out
}

// TestTwin: a report has exactly what is different between two futures, and the State is as before.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		change := w.drawChange(t)
		untouched, err := w.s.Checkpoint().Fork()
		if err != nil {
			t.Fatal(err)
		}
		was := w.s.Dump()
		r, err := Compare(w.s.Checkpoint(), change, w.options())
		if err != nil {
			t.Fatal(err)
		}
		if is := w.s.Dump(); is != was {
			t.Fatalf("the State changed:\n%s", cmp.Diff(was, is))
		}
		b, a := w.happens(t, nil), w.happens(t, change)
		evicted := map[string]bool{}
		for _, e := range change {
			if set, is := e.(state.SetWorkload); is && set.Evicting {
				evicted[set.UID] = true
			}
			if uid := state.UID(e); uid != "" {
				delete(b.at, uid) // compared below by what the report says of it
				delete(a.at, uid)
			}
		}
		reported := map[string]Workload{}
		for _, of := range r.Workloads {
			reported[of.Name] = of
			if of.Before == nil || of.After == nil || evicted[of.Name] {
				continue
			}
			for _, side := range []struct {
				course *Course
				of     first
			}{{of.Before, b}, {of.After, a}} {
				at, starts := side.of.at[of.Name]
				if !side.course.Running && (side.course.Starts != nil) != starts || (side.course.Starts != nil && *side.course.Starts != seconds(at)) ||
					int(side.course.Preemptions) != side.of.preempted[of.Name] {
					t.Errorf("%s: reported %+v, happens at %v (%v), preempted %d times", of.Name, side.course, at, starts, side.of.preempted[of.Name])
				}
			}
			if of.Effect == Evicted && (b.preempted[of.Name] > 0 || a.preempted[of.Name] == 0) {
				t.Errorf("%+v is not preempted by the change", of)
			}
		}
		for uid, at := range b.at { //berth:unordered each for itself
			if later, starts := a.at[uid]; (!starts || later != at) && reported[uid].Effect == "" {
				t.Errorf("%s starts after %v, and with the change after %v (%v): not reported", uid, at, later, starts)
			}
		}
		for uid := range evicted { //berth:unordered each for itself
			if got := reported[uid]; got.Effect != "" && got.Effect != Evicted && got.Effect != Removed && b.preempted[uid] == 0 {
				t.Errorf("%s is evicted by the change, and reported as %s", uid, got.Effect)
			}
		}
		got, want := w.s.Step(w.now, 1<<20), untouched.Step(w.now, 1<<20)
		if state.Hash(got.Decisions) != state.Hash(want.Decisions) || w.s.Dump() != untouched.Dump() {
			t.Error("the State decides otherwise than without the question")
		}
	})
}

// TestParts: a report of the smallest parts is that of the whole.
func TestParts(t *testing.T) {
	parted := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorldOf(t, "", "c", "d")
		at, change := w.s.Checkpoint(), w.drawChange(t)
		want, err := compareParts(at.Parts(math.MaxInt/2, change), w.options())
		if err != nil {
			t.Fatal(err)
		}
		parts, together := at.Parts(1, change), w.options()
		together.Both = func(a, b func()) {
			var both sync.WaitGroup
			both.Go(a)
			both.Go(b)
			both.Wait()
		}
		got, err := compareParts(parts, together)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Workload{})); diff != "" {
			t.Errorf("(-whole +parts):\n%s", diff)
		}
		parted += len(parts) - 1
	})
	if parted == 0 {
		t.Error("no world was divided")
	}
}

// TestEffects: one workload for each effect of a change of quota and of workloads.
func TestEffects(t *testing.T) {
	w := &world{runs: map[string]workload.Instant{}, now: 100 * second}
	w.s = state.New(state.Options{Options: cycle.Defaults()})
	queue := func(nominal resource.Amount) state.SetQueue {
		return state.SetQueue{
			Name: "q", Namespaces: []workload.Term{{}}, Preemption: preempt.Policy{Within: preempt.LowerPriority},
			Groups: []state.Group{{Resources: []string{"cpu"}, Flavors: []state.FlavorQuota{{
				Flavor: "f", Resources: []state.Quota{{Resource: "cpu", Nominal: nominal}},
			}}}},
		}
	}
	waits := func(uid string, priority int64, cpu resource.Amount, runs workload.Instant) state.SetWorkload {
		w.runs[uid] = runs
		return state.SetWorkload{
			UID: uid, Namespace: "n", Name: uid, Version: 1, Generation: 1, Queueable: true, LocalQueue: "q", Priority: priority,
			PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: []state.Request{{Resource: "cpu", Amount: cpu}}, Constraints: &workload.Constraints{}}},
		}
	}
	runs := func(of state.SetWorkload) state.SetWorkload {
		of.Reserved, of.Admitted, of.Ready, of.Queue, of.ReservedAt = true, true, true, "q", 90*second
		of.Held = []state.Held{{PodSet: "main", Flavor: "f", Resource: "cpu", Amount: of.PodSets[0].Requests[0].Amount}}
		return of
	}
	for _, e := range []state.Event{
		state.SetNamespace{Name: "n"},
		state.SetFlavor(flavor.Flavor{Name: "f"}), queue(4),
		state.SetLocalQueue{Namespace: "n", Name: "q", Queue: "q"},
		runs(waits("a", 0, 2, 100*second)), runs(waits("b", 1, 2, foresight.Never)), waits("c", 0, 2, 10*second), waits("d", 0, 4, 10*second),
	} {
		w.s.Apply(e)
	}
	slice := waits("a2", 0, 2, foresight.Never)
	slice.Replaces = "a"
	for name, tc := range map[string]struct {
		change []state.Event
		want   []string
	}{
		"more quota": {[]state.Event{queue(6)}, []string{"d starts -210+", "c earlier -90"}},
		"less quota": {[]state.Event{queue(3)}, []string{"c notStarted 210+"}},
		"a preemptor": {
			[]state.Event{waits("p", 2, 2, 20*second)},
			[]string{"a preempted 23", "c later 33", "p new 0"},
		},
		"a slice":     {[]state.Event{slice}, []string{"a removed 0", "a2 new 0"}},
		"one is gone": {[]state.Event{state.DeleteWorkload("a")}, []string{"a removed 0", "c earlier -90"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Compare(w.s.Checkpoint(), tc.change, w.options())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, of := range r.Workloads {
				more := ""
				if of.AtLeast {
					more = "+"
				}
				got = append(got, fmt.Sprintf("%s %s %v%s", of.Name, of.Effect, of.Longer, more))
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestWatch: the share of the work that is done grows to both ends of the futures. Watching changes no answer, and can end it at any moment.
// TestShifted: what is preempted and starts again sooner, and waits as long, is different.
func TestShifted(t *testing.T) {
	before := course{started: never, preempted: second, again: 5 * second, preemptions: 1, waits: 4 * second, holds: true}
	after := before
	if got := effectOf(&before, &after, false); got != "" {
		t.Errorf("equal courses: %s", got)
	}
	for what, change := range map[string]func(){ //berth:unordered each for itself
		"starts":       func() { after.started = 0 },
		"preempted":    func() { after.preempted = 0 },
		"starts again": func() { after.again = 4 * second },
	} {
		after = before
		if change(); effectOf(&before, &after, false) != Shifted {
			t.Errorf("%s at another time: %q", what, effectOf(&before, &after, false))
		}
	}
}

func TestWatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		change := w.drawChange(t)
		base, o := w.s.Checkpoint(), w.options()
		want, err := Compare(base, change, o)
		if err != nil {
			t.Fatal(err)
		}
		var shares []float64
		o.Watch = func(done float64) bool {
			shares = append(shares, done)
			return true
		}
		got, err := Compare(base, change, o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Workload{})); diff != "" {
			t.Fatalf("unwatched (-), watched (+):\n%s", diff)
		}
		if !slices.IsSorted(shares) || shares[0] != 0 || shares[len(shares)-1] != 1 || !slices.Contains(shares, 0.5) {
			t.Fatalf("the shares are %v", shares)
		}
		calls, last := 0, rapid.IntRange(1, len(shares)).Draw(t, "last call")
		o.Watch = func(float64) bool {
			calls++
			return calls < last
		}
		if r, err := Compare(base, change, o); !errors.Is(err, ErrStopped) || r != nil || calls > last+1 {
			t.Fatalf("stopped at call %d of %d: %v after %d calls", last, len(shares), err, calls)
		}
	})
}
