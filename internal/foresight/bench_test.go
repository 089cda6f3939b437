package foresight

import (
	"fmt"
	"testing"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

const minute = 60 * second

// busy returns 100,000 pending workloads of 1 to 4 gpus behind running ones, in 1,000 queues of 10 gpus, ten of them to a cohort; below
// one root if root is set. Each has a run time of half an hour or so.
func busy(root string, pending int) (*state.State, *Prediction) {
	const queues = 1000
	s := state.New(state.Options{Options: cycle.Defaults()})
	s.Apply(state.SetNamespace{Name: "n"})
	s.Apply(state.SetFlavor(flavor.Flavor{Name: "f"}))
	for i := range queues {
		name := fmt.Sprint("q", i)
		s.Apply(state.SetQueue{
			Name: name, Cohort: fmt.Sprint("c", i/10), Namespaces: []workload.Term{{}},
			Groups: []state.Group{{Resources: []string{"gpu"}, Flavors: []state.FlavorQuota{{
				Flavor: "f", Resources: []state.Quota{{Resource: "gpu", Nominal: 10, Borrow: quota.NoLimit, Lend: quota.NoLimit}},
			}}}},
		})
		s.Apply(state.SetLocalQueue{Namespace: "n", Name: name, Queue: name})
		if root != "" && i%10 == 0 {
			s.Apply(state.SetCohort(state.Cohort{Name: fmt.Sprint("c", i/10), Parent: root}))
		}
	}
	run := Prediction{Estimate: Estimate{Source: Declared}, of: unlearned, shift: logSeconds(30 * minute)}
	f := New(s, second, Rules{Runs: func(*state.Workload) workload.Instant { return Never }, Grace: second}, func(Moment) {})
	for i := range pending + queues*4 { // 4 of 2.5 gpus on average run
		uid := fmt.Sprintf("u%07d", i)
		s.Apply(state.SetWorkload(state.Workload{
			UID: uid, Namespace: "n", Name: uid, Version: 1, Generation: 1, LocalQueue: fmt.Sprint("q", i%queues),
			Created: workload.Instant(i), Since: workload.Instant(i), Queueable: true, PodSets: []state.PodSet{{
				Name: "main", Count: 1, Requests: []state.Request{{Resource: "gpu", Amount: resource.Amount(1 + i/queues%4)}}, Constraints: &workload.Constraints{},
			}},
		}))
		if i == queues*4-1 {
			f.DecideAll()
		}
	}
	f.DecideAll()
	return s, &run
}

// BenchmarkForesee is one run of two hours, from its fork to its starts, for 100,000 pending workloads in 1,000 queues: in 100 trees of
// cohorts, or in one in which each release concerns all queues.
func BenchmarkForesee(b *testing.B) {
	for _, root := range []string{"", "root"} {
		b.Run("root="+root, func(b *testing.B) {
			s, run := busy(root, 100_000)
			parts := Parts(s.Checkpoint(), nil)
			scope := Scope{Now: second, Horizon: 120 * minute, Grace: second, Grid: minute, First: 1000}
			b.ReportAllocs()
			began := 0
			for b.Loop() {
				r, err := Foresee(parts, scope, func(*state.Workload) *Prediction { return run }, 1)
				if err != nil {
					b.Fatal(err)
				}
				began = 0
				for _, at := range r.starts {
					if at != Never {
						began++
					}
				}
			}
			b.ReportMetric(float64(began), "starts")
		})
	}
}

// BenchmarkSummarize is the quantiles of 32 runs.
func BenchmarkSummarize(b *testing.B) {
	runs := make([]*Run, 32)
	for i := range runs {
		runs[i] = &Run{Scope: Scope{Now: second, Horizon: 120 * minute}}
		for k := range 100_000 {
			runs[i].uids = append(runs[i].uids, fmt.Sprintf("u%07d", k))
			runs[i].starts = append(runs[i].starts, second+workload.Instant((k*7919+i*104729)%7200)*second)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		Summarize(runs)
	}
}
