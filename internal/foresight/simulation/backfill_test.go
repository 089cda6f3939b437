package simulation

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/state"
)

// TestBackfill runs three traces in the Standard Workload Format, whose work is 90% of what 64 GPUs can do, with large jobs among small ones. A strict
// queue uses no less of its quota with backfill and small jobs wait less, and in one that is not strict large jobs do. docs/backfill.md has the
// figures (-v).
func TestBackfill(t *testing.T) {
	for number, trace := range []struct {
		name string
		job  func(*rand.Rand) drawnJob
		pace func(at float64) float64 // of arrivals, 1 on average
	}{
		{"exponential", exponentialJob, func(float64) float64 { return 1 }},
		{"powers of two", powerOfTwoJob, func(float64) float64 { return 1 }},
		{"days and nights", dayJob, func(at float64) float64 { return 1 + 0.9*math.Sin(2*math.Pi*at/86400) }},
	} {
		t.Run(trace.name, func(t *testing.T) {
			swf := makeSWF(rand.New(rand.NewPCG(embeddedtest.Seed(t, 1), uint64(2+number))), trace.job, trace.pace)
			jobs, left, err := ReadSWF(trace.name, strings.NewReader(swf), Processor{"gpu", 1})
			if err != nil || left > 0 {
				t.Fatal(err, left)
			}
			for i := range jobs {
				if jobs[i].LocalQueue, jobs[i].Class = "q", "small"; jobs[i].Pods >= gpus/2 {
					jobs[i].Class = "large"
				}
			}
			testBackfill(t, jobs)
		})
	}
}

const gpus = 64

// drawnJob is a job of a trace. Its times are in seconds.
type drawnJob struct {
	gpus       int
	run, limit float64
}

// exponentialJob has exponential run times of 10 minutes on average, and a limit of one to three times its run. One of twenty is large.
func exponentialJob(random *rand.Rand) drawnJob {
	j := drawnJob{gpus: 1 + random.IntN(8), run: 1 + 600*random.ExpFloat64()}
	if random.IntN(20) == 0 {
		j.gpus = 32 + random.IntN(17)
	}
	j.limit = j.run * (1 + 2*random.Float64())
	return j
}

// powerOfTwoJob has log-normal run times with a median of 5 minutes, and the limit of the smallest of four classes that is at least one and a half
// times its run.
func powerOfTwoJob(random *rand.Rand) drawnJob {
	j := drawnJob{gpus: 1, run: min(1+300*math.Exp(1.5*random.NormFloat64()), 5*3600)}
	for j.gpus < gpus && random.IntN(5) < 3 {
		j.gpus *= 2
	}
	for _, class := range []float64{900, 3600, 4 * 3600, 8 * 3600} {
		if j.limit = class; class >= 1.5*j.run {
			break
		}
	}
	return j
}

// dayJob is short on one or two GPUs, with a limit of half an hour, or one of ten times trains on 8 to 64 for one to four hours.
func dayJob(random *rand.Rand) drawnJob {
	if random.IntN(10) > 0 {
		return drawnJob{gpus: 1 + random.IntN(2), run: min(1+300*random.ExpFloat64(), 1800), limit: 1800}
	}
	run := 3600 * (1 + 3*random.Float64())
	return drawnJob{gpus: 8 << random.IntN(4), run: run, limit: 1.2 * run}
}

// makeSWF makes a trace of 2,000 jobs.
func makeSWF(random *rand.Rand, draw func(*rand.Rand) drawnJob, pace func(at float64) float64) string {
	jobs, work := make([]drawnJob, 2000), 0.0
	for i := range jobs {
		jobs[i] = draw(random)
		work += jobs[i].run * float64(jobs[i].gpus)
	}
	gap, at := work/gpus/0.9/float64(len(jobs)), 0.0
	var out strings.Builder
	for i, j := range jobs {
		fmt.Fprintf(&out, "%d %.0f -1 %.0f %d -1 -1 %d %.0f -1 1 1 1 -1 1 -1 -1 -1\n", i+1, at, j.run, j.gpus, j.gpus, j.limit)
		at += gap * random.ExpFloat64() / pace(at)
	}
	return out.String()
}

func testBackfill(t *testing.T, jobs []Job) {
	run := func(strict bool, backfill cycle.Backfill) (all *Result, large, small Class) {
		world := []state.Event{
			state.SetNamespace{Name: "default"},
			state.SetFlavor(flavor.Flavor{Name: "f"}),
			state.SetLocalQueue{Namespace: "default", Name: "q", Queue: "q"},
			state.SetQueue{
				Name: "q", Namespaces: []workload.Term{{}}, Strict: strict, Backfill: backfill,
				Groups: []state.Group{{Resources: []string{"gpu"}, Flavors: []state.FlavorQuota{{
					Flavor: "f", Resources: []state.Quota{{Resource: "gpu", Nominal: resource.Amount(gpus), Borrow: quota.NoLimit, Lend: quota.NoLimit}},
				}}}},
			},
		}
		all, err := Run(context.Background(), state.New(state.Options{Options: cycle.Defaults()}), world, jobs, Options{Start: Second, Grace: Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all.Classes {
			t.Logf("strict %v, backfill %q: used %.1f%% until the last submission, %s: P50 %.0f min, P90 %.0f min, P99 %.0f min, slowdown %.1f",
				strict, backfill, 100*all.Utilisation[0].Loaded, c.Name, c.P50/60, c.P90/60, c.P99/60, c.Slowdown)
			if c.Name == "large" {
				large = c
			} else {
				small = c
			}
		}
		return all, large, small
	}
	plain, _, late := run(true, cycle.NoBackfill)
	_, starved, _ := run(false, cycle.NoBackfill)
	for _, backfill := range []cycle.Backfill{cycle.Easy, cycle.Conservative} {
		filled, _, early := run(true, backfill)
		_, kept, _ := run(false, backfill)
		if plain.Utilisation[0].Loaded > filled.Utilisation[0].Loaded || early.P90 >= late.P90 {
			t.Errorf("%s: the strict queue uses %.3f of its quota, %.3f without backfill, of the small jobs %+v, without %+v",
				backfill, filled.Utilisation[0].Loaded, plain.Utilisation[0].Loaded, early, late)
		}
		if kept.P90 >= starved.P90 || kept.Started != starved.Started {
			t.Errorf("%s: of the large jobs %+v, without backfill %+v", backfill, kept, starved)
		}
	}
}
