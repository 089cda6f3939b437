package main

import (
	"fmt"
	"time"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight/whatif"
	"github.com/berth-project/berth/internal/state"
)

// whatIf: the world of steady, 100,000 pending workloads and 1,000 queues, with run times of 20 minutes to 4 hours. The question is 16 GPUs
// more of each flavor for one queue; both futures go on for 2 hours. The figures are the whole answer, with both forks, where each future has a core, and the processor time of both.
func (b *bench) whatIf() error {
	y, err := newYard(cycle.Defaults(), preempt.Policy{}, 1000, many)
	if err != nil {
		return err
	}
	queue := y.s.QueueDefinitions()[y.busy[0]]
	queue.Groups = []state.Group{queue.Groups[0]}
	queue.Groups[0].Flavors = append([]state.FlavorQuota{}, queue.Groups[0].Flavors...)
	for i := range queue.Groups[0].Flavors {
		f := &queue.Groups[0].Flavors[i]
		f.Resources = append([]state.Quota{}, f.Resources...)
		for r := range f.Resources {
			f.Resources[r].Nominal += gpus(16)[r]
		}
	}
	if err := b.measuring(); err != nil {
		return err
	}
	const minute = workload.Instant(time.Minute)
	var took, all []float64
	var r *whatif.Report
	for range 5 {
		base := y.s.Checkpoint()
		began, shorter := spent(), time.Duration(0)
		r, err = whatif.Compare(base, []state.Event{state.SetQueue(queue)}, whatif.Options{
			Now: y.now, Horizon: 120 * minute, Grace: minute / 2, RunTime: func(def *state.Workload) (workload.Instant, whatif.Source) {
				return workload.Instant(20+serial(def.UID)*7%220) * minute, whatif.Expected
			},
			Both: func(before, after func()) {
				from := spent()
				before()
				between := spent()
				after()
				shorter = min(between-from, spent()-between)
			},
		})
		if err != nil {
			return err
		}
		all = append(all, (spent() - began).Seconds())
		took = append(took, (spent() - began - shorter).Seconds())
	}
	b.say("%d starts in 2 hours, %d with the change, which matters to %d workloads", r.Before.Starts, r.After.Starts, len(r.Workloads))
	b.figure("whatif.seconds", percentile(took, 50))
	b.figure("whatif.processor_seconds", percentile(all, 50))
	if r.After.Starts <= r.Before.Starts {
		return fmt.Errorf("more quota starts no more workloads: %d, and %d before", r.After.Starts, r.Before.Starts)
	}
	return nil
}
