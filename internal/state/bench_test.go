package state

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// yard is a state with many queues in one cohort, to be kept busy.
type yard struct {
	b         *testing.B
	s         *State
	now       int64
	serial    int
	defs      map[string]*Workload
	decisions int
}

// newYard makes queues of 10 gpus each below one cohort of cohorts.
func newYard(b *testing.B, queues int, p preempt.Policy) *yard {
	y := &yard{b: b, s: New(Options{Options: immediately()}), defs: map[string]*Workload{}}
	y.s.Apply(SetNamespace{Name: "team", Labels: nil})
	y.s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	for i := range queues {
		y.s.Apply(SetQueue(y.queue(i, 10, p)))
		y.s.Apply(SetLocalQueue(LocalQueue{Namespace: "team", Name: queueName(i), Queue: queueName(i)}))
	}
	for i := range (queues + 9) / 10 {
		y.s.Apply(SetCohort(Cohort{Name: fmt.Sprint("c", i), Parent: "root"}))
	}
	return y
}

func queueName(i int) string { return fmt.Sprintf("q%04d", i) }

func (y *yard) queue(i int, nominal resource.Amount, p preempt.Policy) Queue {
	return Queue{
		Name: queueName(i), Cohort: fmt.Sprint("c", i/10), Namespaces: []workload.Term{{}}, Preemption: p,
		Groups: []Group{{
			Resources: []string{"gpu"},
			Flavors:   []FlavorQuota{{"f", []Quota{{"gpu", nominal, quota.NoLimit, quota.NoLimit}}}},
		}},
	}
}

func (y *yard) submit(queue int, priority int64, gpus resource.Amount) *Workload {
	y.serial++
	y.now++
	def := &Workload{
		UID: fmt.Sprintf("u%07d", y.serial), Namespace: "team", Name: fmt.Sprintf("w%07d", y.serial), Version: 1,
		LocalQueue: queueName(queue), Priority: priority, Created: workload.Instant(y.now), Since: workload.Instant(y.now),
		PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{"gpu", gpus}}}}, Queueable: true,
	}
	y.defs[def.UID] = def
	y.s.Apply(SetWorkload(*def))
	return def
}

// step decides and writes everything down, and returns who was admitted.
func (y *yard) step() (admitted []*Workload) {
	y.now++
	r := y.s.Step(workload.Instant(y.now), 1_000_000)
	y.decisions += len(r.Decisions)
	for i := range r.Decisions {
		if d := &r.Decisions[i]; d.Attempt.Verdict == trace.Admitted {
			y.write(d)
			admitted = append(admitted, y.defs[d.Workload.UID])
		}
	}
	return admitted
}

func (y *yard) write(d *cycle.Decision) {
	def := y.defs[d.Workload.UID]
	def.Version++
	def.Reserved, def.Admitted, def.Queue, def.ReservedAt = true, true, d.Queue, d.Workload.ReservedAt
	def.Held = nil
	for _, ps := range y.s.Grant(d).PodSets {
		def.Held = append(def.Held, ps.Held...)
	}
	y.s.Apply(SetWorkload(*def))
}

func (y *yard) finish(def *Workload) {
	delete(y.defs, def.UID)
	y.s.Apply(DeleteWorkload(def.UID))
}

func (y *yard) report() {
	y.b.ReportMetric(float64(y.decisions)/y.b.Elapsed().Seconds(), "decisions/s")
	y.b.ReportAllocs()
}

// BenchmarkRefill: one of many running workloads finishes and the next one starts, with
// a long line behind it, all of one class or each of its own.
func BenchmarkRefill(b *testing.B) {
	for _, queues := range []int{1, 100, 1000} {
		for _, classes := range []int{1, 1000} {
			b.Run(fmt.Sprintf("queues=%d/classes=%d", queues, classes), func(b *testing.B) {
				y := newYard(b, queues, preempt.Policy{})
				for i := range 10*queues + 10_000 {
					y.submit(i%queues, int64(i%classes), 1)
				}
				running := y.step()
				if len(running) != 10*queues {
					b.Fatalf("%d are running", len(running))
				}
				y.decisions = 0
				for b.Loop() {
					y.finish(running[0])
					next := y.step()
					if len(next) != 1 {
						b.Fatalf("%d were admitted", len(next))
					}
					running = append(running[1:], next[0])
					y.submit(y.serial%queues, int64(y.serial%classes), 1)
				}
				y.report()
			})
		}
	}
}

// BenchmarkBurst: 10,000 workloads arrive at once and all fit; one operation is one
// of them, from its arrival to its admission.
func BenchmarkBurst(b *testing.B) {
	for _, queues := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			const size = 10_000
			var y *yard
			left := 0
			for b.Loop() {
				if left == 0 {
					b.StopTimer()
					decisions := 0
					if y != nil {
						decisions = y.decisions
					}
					y = newYard(b, queues, preempt.Policy{})
					y.decisions = decisions
					for i := range queues {
						y.s.Apply(SetQueue(y.queue(i, size, preempt.Policy{})))
					}
					left = size
					b.StartTimer()
					for i := range size {
						y.submit(i%queues, 0, 1)
					}
					if n := len(y.step()); n != size {
						b.Fatalf("%d were admitted", n)
					}
				}
				left--
			}
			y.report()
		})
	}
}

// BenchmarkInadmissible: a release that helps no workload, with many waiting for more: the time it
// wakes is parked again.
func BenchmarkInadmissible(b *testing.B) {
	for _, tc := range []struct{ queues, waiting, classes int }{
		{1, 10_000, 1}, {1, 10_000, 100}, {1, 10_000, 10_000}, {100, 10_000, 1}, {1000, 10_000, 1},
	} {
		b.Run(fmt.Sprintf("queues=%d/waiting=%d/classes=%d", tc.queues, tc.waiting, tc.classes), func(b *testing.B) {
			y := newYard(b, tc.queues, preempt.Policy{})
			for i := range tc.queues {
				y.submit(i, 1_000_000, 10)
			}
			if n := len(y.step()); n != tc.queues {
				b.Fatalf("%d are running", n)
			}
			small := Workload{
				UID: "small", Namespace: "team", Name: "small", LocalQueue: queueName(0), Queueable: true, Reserved: true,
				Queue: queueName(0), Held: []Held{{Flavor: "f", Resource: "gpu", Amount: 1}}, PodSets: []PodSet{{Name: "main", Count: 1}},
			}
			for i := range tc.waiting {
				y.submit(i%tc.queues, int64(i%tc.classes), 2)
			}
			y.step()
			y.decisions = 0
			for b.Loop() {
				small.Version++
				y.s.Apply(SetWorkload(small))
				y.s.Apply(DeleteWorkload(small.UID))
				if n := len(y.step()); n != 0 {
					b.Fatalf("%d were admitted", n)
				}
			}
			y.report()
		})
	}
}

// BenchmarkPreempt: a workload of higher priority finds its victims among many, waits
// for them and starts.
func BenchmarkPreempt(b *testing.B) {
	for _, tc := range []struct {
		name    string
		queues  int
		holders int // in each queue
		p       preempt.Policy
	}{
		{"own queue of 100", 1, 100, preempt.Policy{Within: preempt.LowerPriority}},
		{"own queue of 1000", 1, 1000, preempt.Policy{Within: preempt.LowerPriority}},
		{"cohort of 100 queues of 100", 100, 100, preempt.Policy{Reclaim: preempt.Any}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			y := newYard(b, tc.queues, tc.p)
			for i := range tc.queues {
				nominal := resource.Amount(tc.holders)
				if tc.queues > 1 { // the first owns what all the others use
					nominal = 0
					if i == 0 {
						nominal = resource.Amount(tc.queues * tc.holders)
					}
				}
				y.s.Apply(SetQueue(y.queue(i, nominal, tc.p)))
			}
			for i := range tc.queues * tc.holders {
				y.submit(i%tc.queues, 0, 1)
			}
			if n := len(y.step()); n != tc.queues*tc.holders {
				b.Fatalf("%d are running", n)
			}
			y.decisions = 0
			for b.Loop() {
				p := y.submit(0, 1, 1)
				victims := y.s.Step(workload.Instant(y.now), 1000).Decisions[0].Evict
				if len(victims) != 1 {
					b.Fatalf("%d victims", len(victims))
				}
				v := y.defs[victims[0].Workload.UID]
				y.finish(v)
				if n := y.step(); len(n) != 1 || n[0] != p {
					b.Fatal("the preemptor was not admitted")
				}
				y.finish(p)
				for i := range tc.queues {
					if queueName(i) == v.Queue {
						y.submit(i, 0, 1)
					}
				}
				y.step()
			}
			y.report()
		})
	}
}

// BenchmarkEdit: one queue of many is edited.
func BenchmarkEdit(b *testing.B) {
	for _, queues := range []int{100, 1000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			y := newYard(b, queues, preempt.Policy{})
			for b.Loop() {
				y.now++
				y.s.Apply(SetQueue(y.queue(int(y.now)%queues, resource.Amount(10+int(y.now)/queues%2), preempt.Policy{})))
			}
			b.ReportAllocs()
		})
	}
}

// BenchmarkSampleUsage is a sample of 10,000 LocalQueues of 100 ClusterQueues, with the read model: once an interval. Each has an
// admitted workload, or none has used anything.
func BenchmarkSampleUsage(b *testing.B) {
	benchmarkUsage(b, func(b *testing.B, s *State, now workload.Instant) {
		for b.Loop() {
			s.Apply(SampleUsage{Now: now, Max: math.MaxInt})
			s.Publish()
			s.Touched()
			now += workload.Instant(time.Second)
		}
	})
}

// BenchmarkBeginCheckpointUsage is the longest piece of a checkpoint of that world.
func BenchmarkBeginCheckpointUsage(b *testing.B) {
	benchmarkUsage(b, func(b *testing.B, s *State, _ workload.Instant) {
		for b.Loop() {
			s.BeginCheckpoint()
			b.StopTimer()
			s.ContinueCheckpoint(math.MaxInt)
			b.StartTimer()
		}
	})
}

func benchmarkUsage(b *testing.B, run func(b *testing.B, s *State, now workload.Instant)) {
	for name, busy := range map[string]bool{"busy": true, "idle": false} {
		b.Run(name, func(b *testing.B) {
			const queues, each = 100, 100
			s := New(Options{Options: cycle.Defaults(), Sharing: &sharing.Rates{HalfLife: workload.Instant(time.Hour), Interval: workload.Instant(time.Second)}})
			s.Record(1000)
			y := yard{s: s}
			s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
			s.Apply(SetNamespace{Name: "team"})
			for i := range queues {
				def := y.queue(i, each, preempt.Policy{})
				def.UsageBased = true
				s.Apply(SetQueue(def))
				for k := range each {
					lq := fmt.Sprintf("lq%d-%d", i, k)
					s.Apply(SetLocalQueue(LocalQueue{Namespace: "team", Name: lq, Queue: def.Name}))
					if !busy {
						continue
					}
					s.Apply(SetWorkload(Workload{
						UID: lq, Namespace: "team", Name: lq, Version: 1, LocalQueue: lq, Reserved: true, Admitted: true, Queue: def.Name, ReservedAt: 1,
						PodSets: gpus(1), Held: []Held{{PodSet: "main", Flavor: "f", Resource: "gpu", Amount: 1}},
					}))
				}
			}
			now := workload.Instant(time.Second)
			for range 3 {
				s.Apply(SampleUsage{Now: now, Max: math.MaxInt})
				now += workload.Instant(time.Second)
			}
			s.Publish()
			run(b, s, now)
		})
	}
}
