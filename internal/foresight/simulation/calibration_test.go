package simulation

import (
	"fmt"
	"testing"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/state"
)

const hour = 3600 * Second

// foreseen is a forecast, and when the workload started then.
type foreseen struct {
	foresight.Start
	at workload.Instant
}

// calibration replays a trace, learns from what finishes as a manager does, and makes a forecast now and then.
type calibration struct {
	s       *state.State
	jobs    []Job
	learner *foresight.Learner
	came    *foresight.Arrivals
	began   map[string]workload.Instant // the last start
	ran     map[string]workload.Instant // before it was preempted
	awaited map[string][]int            // the forecasts of a pending workload
	made    []foreseen
	unknown int
}

func (c *calibration) job(uid string) *foresight.Job {
	j := &c.jobs[numberOf(uid)]
	return &foresight.Job{
		Kind: "Job", LocalQueue: j.Namespace + "/" + j.LocalQueue, Shape: uint64(j.Pods)<<32 | uint64(j.PerPod[0].Amount), Ran: c.ran[uid],
	}
}

func (c *calibration) seen(m foresight.Moment) {
	uid := m.Def.UID
	switch m.Kind {
	case foresight.Started:
		c.began[uid] = m.At
		for _, i := range c.awaited[uid] {
			c.made[i].at = m.At
		}
		delete(c.awaited, uid)
	case foresight.Finished:
		c.learner.Learn(c.job(uid), m.At-c.began[uid], m.At)
	case foresight.Replaced: // there are neither slices nor variants
	case foresight.Preempted:
		c.ran[uid] = max(c.ran[uid], m.At-c.began[uid])
	}
}

// foresee makes a forecast, and notes it for all that may start before the horizon.
func (c *calibration) foresee(t *testing.T, scope foresight.Scope, runs int) {
	t.Helper()
	parts := foresight.Parts(c.s.Checkpoint(), nil)
	predict := func(w *state.Workload) *foresight.Prediction { return c.learner.Predict(c.job(w.UID)) }
	scope.Recent = c.came.Recent(scope.Now, c.learner.Predict)
	made := make([]*foresight.Run, runs)
	for i := range made {
		run, err := foresight.Foresee(parts, scope, predict, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		made[i] = run
	}
	f := foresight.Summarize(made)
	for _, q := range c.s.Queues() {
		for _, uid := range c.s.FirstInLine(q, scope.First) {
			switch start, _, known := f.Of(uid, q); {
			case !known:
				c.unknown++
			case start.P10 < foresight.Never:
				c.awaited[uid] = append(c.awaited[uid], len(c.made))
				c.made = append(c.made, foreseen{start, foresight.Never})
			}
		}
	}
}

// calibrationWorld is queues of 64 gpus each, four of them to a cohort, in which they lend to each other, and reclaim.
func calibrationWorld(queues int) (world []state.Event, shares []Share) {
	world = []state.Event{state.SetNamespace{Name: "n"}, state.SetFlavor(flavor.Flavor{Name: "f"})}
	for i := range queues {
		name := fmt.Sprint("q", i)
		world = append(world, state.SetQueue{
			Name: name, Cohort: fmt.Sprint("c", i/4), Namespaces: []workload.Term{{}}, Preemption: preempt.Policy{Reclaim: preempt.Any},
			Groups: []state.Group{{Resources: []string{"gpu"}, Flavors: []state.FlavorQuota{{
				Flavor: "f", Resources: []state.Quota{{Resource: "gpu", Nominal: 64, Borrow: resource.Unlimited, Lend: resource.Unlimited}},
			}}}},
		}, state.SetLocalQueue{Namespace: "n", Name: name, Queue: name})
		shares = append(shares, Share{Namespace: "n", Name: name, Weight: 1})
	}
	return world, shares
}

// calibrate returns the shares of forecasts that are right, too late and too early, and the number of forecasts.
func calibrate(t *testing.T, seed uint64) (inside, late, early float64, all int) {
	t.Helper()
	const queues = 8
	world, shares := calibrationWorld(queues)
	g := Generator{Jobs: 12000, Over: 96 * hour, Load: 0.8 * queues, Quota: 64, Resource: "gpu", Unit: 1, Seed: seed, Queues: shares}
	c := &calibration{
		s: state.New(state.Options{Options: cycle.Defaults()}), jobs: g.Make(), learner: foresight.NewLearner(), came: foresight.NewArrivals(hour),
		began: map[string]workload.Instant{}, ran: map[string]workload.Instant{}, awaited: map[string][]int{},
	}
	for _, e := range world {
		c.s.Apply(e)
	}
	start := hour
	f := foresight.New(c.s, start, foresight.Rules{Grace: Second, Runs: func(w *state.Workload) workload.Instant { return c.jobs[numberOf(w.UID)].Run }}, c.seen)
	next := start + 24*hour
	for i := range c.jobs {
		at := start + c.jobs[i].Submit
		for ; next <= at && next <= start+90*hour; next += 5 * hour {
			f.Advance(next)
			f.DecideAll()
			c.foresee(t, foresight.Scope{Now: next, Horizon: 8 * hour, Grace: Second, Grid: Second, First: 1000, Seed: seed}, 19)
		}
		f.Advance(at)
		def := c.jobs[i].definition(i, start, false)
		c.came.Add(&def, c.job(def.UID))
		f.Apply(state.SetWorkload(def))
	}
	f.Advance(start + 1000*hour)
	for _, o := range c.made {
		switch {
		case o.at < o.P10:
			late++
		case o.at > o.P90:
			early++
		default:
			inside++
		}
	}
	n := float64(len(c.made))
	if c.unknown > 0 {
		t.Errorf("%d starts are unknown, though there is something to learn from", c.unknown)
	}
	return inside / n, late / n, early / n, len(c.made)
}

// TestCalibration: of the starts that a forecast says lie in a window from the 10th to the 90th percentile, 75 to 85 of 100 do. Run
// times are log-normal, and known only from what has finished; jobs that a forecast does not know arrive, and preempt others.
func TestCalibration(t *testing.T) {
	if testing.Short() {
		t.Skip("runs thousands of forecasts")
	}
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inside, late, early, all := calibrate(t, seed)
			t.Logf("%d forecasts: %.1f%% inside, %.1f%% start before, %.1f%% after", all, 100*inside, 100*late, 100*early)
			if inside < 0.75 || inside > 0.85 {
				t.Errorf("%.1f%% of %d starts are inside their windows", 100*inside, all)
			}
			if all < 300 {
				t.Errorf("only %d forecasts were made", all)
			}
		})
	}
}
