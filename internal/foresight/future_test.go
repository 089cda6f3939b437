package foresight

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/worldtest"
)

func TestMain(m *testing.M) {
	os.Exit(worldtest.Main(m))
}

const second = workload.Instant(1e9)

func cpus(n int) []state.Request {
	return []state.Request{{Resource: "cpu", Amount: resource.Amount(n)}}
}

// drawWorld draws queues of one cohort, and workloads of which some run already.
func drawWorld(t *rapid.T) (*state.State, map[string]workload.Instant) { return drawWorldOf(t, "c") }

// drawWorldOf is drawWorld with several cohorts.
func drawWorldOf(t *rapid.T, cohorts ...string) (*state.State, map[string]workload.Instant) {
	o := state.Options{Options: cycle.Defaults()}
	if rapid.Bool().Draw(t, "fair") {
		o.Fair = &preempt.Fair{Strategies: []preempt.Strategy{preempt.LessThanOrEqualToFinalShare, preempt.LessThanInitialShare}, WithinNominal: true}
	}
	o.BlockAdmission = rapid.IntRange(0, 4).Draw(t, "block admission") == 0
	s := state.New(o)
	s.Apply(state.SetNamespace{Name: "n"})
	s.Apply(state.SetFlavor(flavor.Flavor{Name: "f"}))
	rules := []preempt.Rule{preempt.Never, preempt.LowerPriority, preempt.LowerOrNewerEqualPriority}
	queues := rapid.IntRange(1, 4).Draw(t, "queues")
	for i := range queues {
		name := fmt.Sprint("q", i)
		quota := resource.Amount(rapid.IntRange(1, 8).Draw(t, "quota"))
		s.Apply(state.SetQueue{
			Name: name, Cohort: rapid.SampledFrom(cohorts).Draw(t, "cohort"), Namespaces: []workload.Term{{}}, Strict: rapid.Bool().Draw(t, "strict"),
			Groups: []state.Group{{Resources: []string{"cpu"}, Flavors: []state.FlavorQuota{{
				Flavor: "f", Resources: []state.Quota{{Resource: "cpu", Nominal: quota}},
			}}}},
			Preemption: preempt.Policy{
				Within: rapid.SampledFrom(rules).Draw(t, "within"), Reclaim: rapid.SampledFrom(append(rules, preempt.Any)).Draw(t, "reclaim"),
			},
		})
		s.Apply(state.SetLocalQueue{Namespace: "n", Name: name, Queue: name})
	}
	runs := map[string]workload.Instant{}
	for i := range rapid.IntRange(1, 24).Draw(t, "workloads") {
		uid := fmt.Sprintf("w%02d", i)
		runs[uid] = workload.Instant(rapid.IntRange(0, 30).Draw(t, "runs")) * second
		if rapid.IntRange(0, 9).Draw(t, "without an end") == 0 {
			runs[uid] = Never
		}
		s.Apply(state.SetWorkload(state.Workload{
			UID: uid, Namespace: "n", Name: uid, Generation: 1, Queueable: true, Resting: rapid.IntRange(0, 9).Draw(t, "rests") == 0,
			LocalQueue: fmt.Sprint("q", rapid.IntRange(0, queues-1).Draw(t, "queue")),
			Priority:   int64(rapid.IntRange(0, 2).Draw(t, "priority")),
			Created:    workload.Instant(i) * second, Since: workload.Instant(i) * second,
			PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: cpus(rapid.IntRange(1, 6).Draw(t, "cpu")), Constraints: &workload.Constraints{}}},
		}))
	}
	return s, runs
}

// happened is a moment in words.
func happened(at workload.Instant, kind Kind, uid, by string) string {
	return fmt.Sprintf("%d %s %s %s", at/second, [...]string{"starts", "is preempted", "finishes"}[kind], uid, by)
}

// clockwork is the brute-force twin: it looks at the world once a second.
type clockwork struct {
	s     *state.State
	runs  map[string]workload.Instant
	grace workload.Instant
	defs  map[string]*state.Workload  // that hold quota
	stops map[string]workload.Instant // when the preempted ones of them release it
	out   []string
}

func (c *clockwork) second(now workload.Instant) {
	for again := true; again; {
		again = false
		for _, uid := range slices.Sorted(keys(c.defs)) {
			d := c.defs[uid]
			if at := c.stops[uid]; at > 0 {
				if at <= now {
					delete(c.defs, uid)
					delete(c.stops, uid)
					d.Release()
					d.Version++
					c.s.Apply(state.SetWorkload(*d))
					again = true
				}
				continue
			}
			if c.runs[uid] != Never && d.ReservedAt+c.runs[uid] <= now {
				c.out = append(c.out, happened(now, Finished, uid, ""))
				delete(c.defs, uid)
				c.s.Apply(state.DeleteWorkload(uid))
				again = true
			}
		}
		for {
			r := c.s.Step(now, 1)
			for _, d := range r.Decisions {
				again = true
				c.write(now, &d)
			}
			if !r.More && len(r.Decisions) == 0 {
				break
			}
		}
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (c *clockwork) write(now workload.Instant, d *cycle.Decision) {
	uid := d.Workload.UID
	if d.Attempt.Verdict == trace.Admitted {
		def, _ := c.s.Definition(uid)
		g := c.s.Grant(d)
		def.TakeGrant(&g, false)
		def.Version++
		c.s.Apply(state.AdmissionWritten(def))
		def.Ready = true
		def.Version++
		c.s.Apply(state.SetWorkload(def))
		c.defs[uid] = &def
		c.out = append(c.out, happened(now, Started, uid, ""))
	}
	for _, v := range d.Evict {
		def := c.defs[v.Workload.UID]
		c.stops[v.Workload.UID] = now + c.grace
		c.out = append(c.out, happened(now, Preempted, v.Workload.UID, "by "+uid))
		def.Evicting = true
		def.Version++
		c.s.Apply(state.Written(*def))
	}
}

// TestExact: what a fork foresees happens, whatever is asked of it meanwhile, and looking ahead changes nothing.
func TestExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, runs := drawWorld(t)
		world := &clockwork{s: s, runs: runs, grace: workload.Instant(rapid.IntRange(1, 9).Draw(t, "grace")) * second}
		world.defs, world.stops = map[string]*state.Workload{}, map[string]workload.Instant{}
		now := workload.Instant(rapid.IntRange(30, 60).Draw(t, "now")) * second
		for _, uid := range s.UIDs() { // as New takes them
			if def, _ := s.Definition(uid); def.Resting {
				def.Resting = false
				def.Version++
				s.Apply(state.SetWorkload(def))
			}
		}
		for at := 30 * second; at <= now; at += second {
			world.second(at)
			if at == now && len(world.stops) > 0 { // a fork does not show when these began to stop
				now += second
			}
		}
		var unwritten []cycle.Decision
		if rapid.Bool().Draw(t, "decisions are being written") {
			if uid := fmt.Sprintf("w%02d", len(runs)); rapid.Bool().Draw(t, "arrival") { // so that there is something to decide
				runs[uid] = 5 * second
				s.Apply(state.SetWorkload(state.Workload{
					UID: uid, Namespace: "n", Name: uid, Generation: 1, Queueable: true, LocalQueue: "q0", Priority: 2, Created: now, Since: now,
					PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: cpus(1), Constraints: &workload.Constraints{}}},
				}))
			}
			unwritten = s.Step(now, 1<<20).Decisions
		}
		before := s.Dump()
		fork, err := s.Checkpoint().Fork()
		if err != nil {
			t.Fatal(err)
		}
		var foreseen []string
		future := New(fork, now, Rules{Runs: func(w *state.Workload) workload.Instant { return runs[w.UID] }, Grace: world.grace}, func(m Moment) {
			by := ""
			if m.By != nil {
				by = "by " + m.By.UID
			}
			foreseen = append(foreseen, happened(m.At, m.Kind, m.Def.UID, by))
		})
		const horizon = 300 * second
		for at := now; at < now+horizon; {
			at = min(now+horizon, at+workload.Instant(rapid.IntRange(1, 200).Draw(t, "advance"))*second)
			future.Advance(at)
		}
		future.DecideAll()
		if after := s.Dump(); after != before {
			t.Fatalf("looking ahead changed the world:\n%s", cmp.Diff(before, after))
		}
		world.out = nil
		for i := range unwritten {
			world.write(now, &unwritten[i])
		}
		world.second(now)
		for at := now + second; at <= now+horizon; at += second {
			world.second(at)
		}
		slices.SortStableFunc(foreseen, byTime)
		slices.SortStableFunc(world.out, byTime)
		if diff := cmp.Diff(world.out, foreseen); diff != "" {
			t.Errorf("foreseen (+) is not what happens (-):\n%s", diff)
		}
	})
}

// byTime sorts what happens at one time by its words: the twin ends workloads in another order.
func byTime(a, b string) int {
	var x, y int
	fmt.Sscan(a, &x)
	fmt.Sscan(b, &y)
	if x != y {
		return x - y
	}
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}

// TestReplaced: a slice takes the place of the one that it names, and a variant that of the others of its job, in their namespace. To find them
// costs nothing for all others, which may be very many.
func TestReplaced(t *testing.T) {
	var seen []string
	s := state.New(state.Options{Options: cycle.Defaults()})
	f := New(s, second, Rules{Runs: func(*state.Workload) workload.Instant { return Never }, Grace: second}, func(m Moment) {
		seen = append(seen, fmt.Sprint(m.Kind == Replaced, " ", m.Def.UID, " by ", m.By.UID))
	})
	for i := range 5000 {
		f.hold(state.Workload{UID: fmt.Sprint("o", i), Namespace: "n", Name: fmt.Sprint("o", i)}, Never)
		s.Apply(state.SetWorkload(f.running[fmt.Sprint("o", i)].def))
	}
	f.hold(state.Workload{UID: "old", Namespace: "n", Name: "old", Owner: "job"}, minute)
	f.hold(state.Workload{UID: "away", Namespace: "away", Name: "old", Owner: "job"}, minute)
	for _, uid := range []string{"v2", "v1"} {
		f.hold(state.Workload{UID: uid, Namespace: "n", Name: uid, VariantOf: "parent"}, minute)
	}
	for _, def := range []state.Workload{
		{UID: "other", Namespace: "n", Name: "other", Owner: "another", Replaces: "old"},
		{UID: "new", Namespace: "n", Name: "new", Owner: "job", Replaces: "old"},
		{UID: "next", Namespace: "n", Name: "next", Owner: "job", Replaces: "old"}, // which is gone
		{UID: "v3", Namespace: "n", Name: "v3", VariantOf: "parent"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		until, slice := f.ended(&def)
		runtime.ReadMemStats(&after)
		if slice != (def.UID == "new") || slice && until != minute {
			t.Errorf("%s goes on until %d: %v", def.UID, until, slice)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 50_000 {
			t.Errorf("%s took %d bytes", def.UID, took)
		}
	}
	want := []string{"true old by new", "true v1 by v3", "true v2 by v3"}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
	f.seen = func(Moment) {}
	for i := range 5000 {
		f.finish(f.running[fmt.Sprint("o", i)])
	}
	if len(f.running) != 1 || len(f.related) != 1 {
		t.Errorf("%d run, and %d names are kept", len(f.running), len(f.related))
	}
}
