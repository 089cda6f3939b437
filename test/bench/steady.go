package main

import (
	"runtime"
	"time"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
)

// Rounds of the steady figures: the median of them counts.
const (
	rounds    = 5
	roundTime = 300 * time.Millisecond
	mostInOne = 20_000 // events
)

// steady: 1,000 queues in 50 cohorts and 100,000 pending workloads; no preemption.
func (b *bench) steady() error {
	_, err := b.keepBusy("steady", cycle.Defaults(), preempt.Policy{}, 1000)
	return err
}

// million is steady with 10,000 queues and 1,000,000 pending workloads. Call it with -events 10000: a round of 300 ms has too few.
func (b *bench) million() error {
	y, err := b.keepBusy("million", cycle.Defaults(), preempt.Policy{}, 10_000)
	if err != nil {
		return err
	}
	all := heap()
	y.s = nil
	b.figure("million.bytes", all-heap()) // without the generator's definitions, which a manager has in its caches
	runtime.KeepAlive(y)
	return nil
}

// steadyPreempting is the same with preemption in the own queue and in borrowing ones. Since all pending workloads must be evaluated once
// before it begins, it has only 10 of the cohorts, and a fifth of the rest; cohorts are independent of each other.
func (b *bench) steadyPreempting() error {
	_, err := b.keepBusy("steady_preempting", cycle.Defaults(), preempt.Policy{Within: preempt.LowerPriority, Reclaim: preempt.Any}, 200)
	return err
}

// fair is steady with fair sharing.
func (b *bench) fair() error {
	_, err := b.keepBusy("fair", fairOptions(), preempt.Policy{}, 1000)
	return err
}

func fairOptions() cycle.Options {
	o := cycle.Defaults()
	o.Fair = &preempt.Fair{Strategies: []preempt.Strategy{preempt.LessThanOrEqualToFinalShare, preempt.LessThanInitialShare}}
	return o
}

func (b *bench) keepBusy(name string, o cycle.Options, p preempt.Policy, queues int) (*yard, error) {
	y, err := newYard(o, p, queues, 100*queues)
	if err != nil {
		return nil, err
	}
	b.say("%s: %d run, %d wait", name, len(y.running), len(y.jobs)-len(y.running))
	if _, err := y.play(b, mostInOne, roundTime); err != nil { // until the caches are warm
		return nil, err
	}
	var all []round
	for range rounds {
		r, err := y.play(b, mostInOne, roundTime)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	b.say("%s: %d run, %d wait", name, len(y.running), len(y.jobs)-len(y.running))
	figure := func(what string, of func(round) float64) { b.figure(name+"."+what, medianOf(all, of)) }
	figure("decisions_per_s", func(r round) float64 { return r.heads / r.took.Seconds() })
	figure("allocs_per_decision", func(r round) float64 { return r.news / r.heads })
	figure("allocs_per_event", func(r round) float64 { return r.news / r.events })
	figure("events_per_s", func(r round) float64 { return r.events / r.took.Seconds() })
	figure("ns_per_event", func(r round) float64 { return float64(r.took) / r.events })
	figure("decisions_per_event", func(r round) float64 { return r.heads / r.events })
	figure("looks_per_event", func(r round) float64 { return r.looks / r.events })
	figure("admissions_per_s", func(r round) float64 { return r.admissions / r.took.Seconds() })
	figure("wakes_per_event", func(r round) float64 { return float64(r.wakes.All) / r.events })
	figure("wakes_in_vain_ratio", func(r round) float64 { return float64(r.wakes.Vain) / max(1, float64(r.wakes.All)) })
	if p != (preempt.Policy{}) {
		figure("evictions_per_event", func(r round) float64 { return r.evictions / r.events })
	}
	return y, nil
}

func medianOf(all []round, of func(round) float64) float64 {
	var samples []float64
	for _, r := range all {
		samples = append(samples, of(r))
	}
	return median(samples)
}

// scaling compares a steady world with a hundredth of it: 10 queues in one cohort and
// 1,000 that wait. Since that cohort has half the queues, there is a third world with
// one whole cohort. Rounds of all of them alternate, so that a slow moment of the
// machine hits all of them.
func (b *bench) scaling() error {
	sizes := []struct {
		name            string
		queues, pending int
	}{{"large", 1000, 100_000}, {"small", 10, 1000}, {"cohort", perCohort, 2000}}
	perDecision, perEvent := map[string]float64{}, map[string]float64{}
	yards := make([]*yard, len(sizes))
	all := make([][]round, len(sizes))
	for i, size := range sizes {
		y, err := newYard(cycle.Defaults(), preempt.Policy{}, size.queues, size.pending)
		if err != nil {
			return err
		}
		yards[i] = y
	}
	for n := range rounds + 1 {
		for i, y := range yards {
			r, err := y.play(b, mostInOne, roundTime)
			if err != nil {
				return err
			}
			if n > 0 { // the first one is for the caches
				all[i] = append(all[i], r)
			}
		}
	}
	for i, size := range sizes {
		perDecision[size.name] = medianOf(all[i], func(r round) float64 { return float64(r.took) / r.heads })
		perEvent[size.name] = medianOf(all[i], func(r round) float64 { return float64(r.took) / r.events })
	}
	b.figure("scaling.ratio", perDecision["large"]/perDecision["small"])
	b.figure("scaling.event_ratio", perEvent["large"]/perEvent["small"])
	b.figure("scaling.equal_cohorts_ratio", perDecision["large"]/perDecision["cohort"])
	for i, size := range sizes {
		b.figure("scaling."+size.name+"_ns_per_decision", perDecision[size.name])
		b.figure("scaling."+size.name+"_ns_per_event", perEvent[size.name])
		b.figure("scaling."+size.name+"_decisions_per_event", medianOf(all[i], func(r round) float64 { return r.heads / r.events }))
	}
	return nil
}
