package simulation

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/state"
)

// TestBackfill is a cluster that is loaded to 90%, with large jobs among small ones, and limits from one to three times the runs. A strict
// queue uses more of its quota with backfill, and in one that is not strict large jobs wait less. docs/backfill.md has its figures (-v).
func TestBackfill(t *testing.T) {
	testBackfill(t, loadedTrace(t, rand.New(rand.NewPCG(embeddedtest.Seed(t, 1), 2))))
}

const gpus = 64

// loadedTrace draws the jobs of TestBackfill.
func loadedTrace(t *testing.T, random *rand.Rand) (jobs []Job) {
	const submitted = 2000
	at, work := 0.0, 0.0
	for range submitted {
		j := Job{Class: "small", Namespace: "n", LocalQueue: "q", Pods: 1 + random.Int32N(8), PerPod: []state.Request{{Resource: "gpu", Amount: 1}}}
		if random.IntN(20) == 0 {
			j.Class, j.Pods = "large", 32+random.Int32N(17)
		}
		run := 600 * random.ExpFloat64()
		j.Submit, j.Run = workload.Instant(at)*Second, (1+workload.Instant(run))*Second
		j.Limit = workload.Instant(float64(j.Run) * (1 + 2*random.Float64()))
		jobs = append(jobs, j)
		at += 600 * 6.275 / gpus / 0.9 * random.ExpFloat64() // the mean run and size
		work += run * float64(j.Pods)
	}
	t.Logf("%d jobs, offered load %.0f%%", submitted, 100*work/at/gpus)
	return jobs
}

func testBackfill(t *testing.T, jobs []Job) {
	run := func(strict, backfill bool) (all *Result, large Class) {
		world := []state.Event{
			state.SetNamespace{Name: "n"},
			state.SetFlavor(flavor.Flavor{Name: "f"}),
			state.SetLocalQueue{Namespace: "n", Name: "q", Queue: "q"},
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
			t.Logf("strict %v, backfill %v: used %.1f%% until the last submission, %s: P50 %.0f s, P90 %.0f s, P99 %.0f s, slowdown %.1f",
				strict, backfill, 100*all.Utilisation[0].Loaded, c.Name, c.P50, c.P90, c.P99, c.Slowdown)
			if c.Name == "large" {
				large = c
			}
		}
		return all, large
	}
	plain, _ := run(true, false)
	filled, _ := run(true, true)
	_, starved := run(false, false)
	_, kept := run(false, true)
	if plain.Utilisation[0].Loaded >= filled.Utilisation[0].Loaded {
		t.Errorf("the strict queue uses %.3f of its quota, without backfill %.3f", filled.Utilisation[0].Loaded, plain.Utilisation[0].Loaded)
	}
	if kept.P90 >= starved.P90 || kept.Started != starved.Started {
		t.Errorf("of the large jobs %+v, without backfill %+v", kept, starved)
	}
}
