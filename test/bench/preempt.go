package main

import (
	"fmt"
	"math"
	"time"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// contest is a world in which 10,000 workloads of one GPU run in one cohort, a quarter
// of them on each flavor, and one that asks for 50 GPUs arrives in the first queue.
type contest struct {
	name    string
	options cycle.Options
	policy  preempt.Policy
	queues  int
	pool    resource.Amount // GPUs of each flavor in the cohort itself
	nominal [2]resource.Amount
	runs    [2]int // how many on each flavor; of the first queue and of every other one
	weight  quota.Weight
}

const wantVictims = 50

// contests: 50 of the 10,000 in the own queue; 50 that others have borrowed of what the
// first queue owns; 50 of what all of them borrow, where the first may have more.
var contests = []contest{
	{
		name: "own_queue", options: cycle.Defaults(), policy: preempt.Policy{Within: preempt.LowerPriority},
		queues: 1, nominal: [2]resource.Amount{2500}, runs: [2]int{2500}, weight: quota.DefaultWeight,
	},
	{
		name: "reclaim", options: cycle.Defaults(), policy: preempt.Policy{Within: preempt.LowerPriority, Reclaim: preempt.Any},
		queues: 100, nominal: [2]resource.Amount{1015, 15}, runs: [2]int{421, 21}, weight: quota.DefaultWeight,
	},
	{
		name: "fair", options: fairOptions(), policy: preempt.Policy{Within: preempt.LowerPriority, Reclaim: preempt.Any},
		queues: 100, pool: 1015, nominal: [2]resource.Amount{0, 15}, runs: [2]int{25, 25}, weight: 100 * quota.DefaultWeight,
	},
}

// preempt measures from the arrival to the decision. Then the arrival is taken back.
func (b *bench) preempt() error {
	var p50, p99, news float64
	var each []figure
	for i := range contests {
		c := &contests[i]
		r, err := b.fight(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if c.options.Fair == nil { // fair sharing has lines of its own
			p50, p99, news = max(p50, r.p50), max(p99, r.p99), max(news, r.news)
		}
		each = append(each, figure{"preempt." + c.name + "_p50_us", r.p50}, figure{"preempt." + c.name + "_p99_us", r.p99},
			figure{"preempt." + c.name + "_allocs", r.news})
	}
	b.figure("preempt.p99_us", p99)
	b.figure("preempt.p50_us", p50)
	b.figure("preempt.allocs", news)
	b.figures = append(b.figures, each...)
	return nil
}

func (c *contest) world() *state.State {
	s := newState(c.options)
	names := addCohort(s, 0, gpus(c.pool), amounts{})
	n := 0
	for q := range c.queues {
		kind := min(q, 1)
		spec := queueSpec{nominal: gpus(c.nominal[kind]), borrow: quota.NoLimit, lend: quota.NoLimit, preemption: c.policy}
		if q == 0 {
			spec.weight = &c.weight
		}
		addQueue(s, q, names[q%teams], &spec)
		for _, pool := range pools {
			for range c.runs[kind] {
				n++
				s.Apply(state.SetWorkload(running(n, q, int64(n%3)*100, start-millis*workload.Instant(n*7919%10_007), pool, gpus(1))))
			}
		}
	}
	s.Step(start, math.MaxInt)
	return s
}

// fought is the outcome of many arrivals: microseconds, and objects allocated.
type fought struct{ p50, p99, news float64 }

func (b *bench) fight(c *contest) (fought, error) {
	s := c.world()
	var p50, p99, news []float64
	n := many
	now := start
	for i := range 6 {
		if err := b.measuring(); err != nil {
			return fought{}, err
		}
		var took []float64
		for range 250 {
			n++
			now += 1000 * millis
			def := arrival(n, 0, 1000, now, (&shape{ask: gpus(wantVictims)}).podSets("main"))
			before := mallocs()
			from := spent()
			s.Apply(state.SetWorkload(def))
			r := s.Step(now, math.MaxInt)
			took = append(took, float64(spent()-from)/float64(time.Microsecond))
			news = append(news, float64(mallocs()-before))
			if len(r.Decisions) == 0 || r.Decisions[0].Attempt.Verdict != trace.Preempts || len(r.Decisions[0].Evict) != wantVictims {
				return fought{}, fmt.Errorf("the arrival did not have %d preempted: %d decisions", wantVictims, len(r.Decisions))
			}
			s.Apply(state.DeleteWorkload(def.UID))
			for _, v := range r.Decisions[0].Evict {
				s.Apply(state.EvictionFailed(v.Workload.UID))
			}
			s.Step(now, math.MaxInt)
		}
		if i > 0 { // the first round is for the caches
			p50, p99 = append(p50, percentile(took, 50)), append(p99, percentile(took, 99))
		}
	}
	return fought{median(p50), median(p99), median(news)}, nil
}
