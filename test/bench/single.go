package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

const (
	many  = 100_000
	start = workload.Instant(1e18)
)

// queues adds queues of one kind in cohorts without quota of their own.
func addQueues(s *state.State, n int, spec queueSpec) {
	var names [teams]string
	for i := range n {
		if i%perCohort == 0 {
			names = addCohort(s, i/perCohort, amounts{}, amounts{})
		}
		addQueue(s, i, names[i%teams], &spec)
	}
}

// burst: 100,000 workloads of 50 shapes arrive in 1,000 empty queues with room for all. The figure counts from the first arrival to the
// last decision; written_per_s counts until all admissions are written as well.
func (b *bench) burst() error {
	var decided, written, news []float64
	for range 3 {
		s := newState(cycle.Defaults())
		addQueues(s, 1000, queueSpec{nominal: gpus(1000), borrow: quota.NoLimit, lend: quota.NoLimit})
		s.Step(start, math.MaxInt)
		defs := arrivals(1000, many)
		if err := b.measuring(); err != nil {
			return err
		}
		before := mallocs()
		began := spent()
		for i := range defs {
			s.Apply(state.SetWorkload(defs[i]))
		}
		r := s.Step(start+many*millis, math.MaxInt)
		took := spent() - began
		news = append(news, float64(mallocs()-before)/many)
		again := spent()
		admitted := 0
		for i := range r.Decisions {
			d := &r.Decisions[i]
			if d.Attempt.Verdict != trace.Admitted {
				continue
			}
			admitted++
			def := &defs[serial(d.Workload.UID)]
			def.Version++
			def.Reserved, def.Admitted, def.Queue, def.ReservedAt = true, true, d.Queue, d.Workload.ReservedAt
			def.Held = s.Grant(d).PodSets[0].Held
			s.Apply(state.SetWorkload(*def))
		}
		if admitted != many {
			return fmt.Errorf("%d of %d were admitted", admitted, many)
		}
		decided = append(decided, many/took.Seconds())
		written = append(written, many/(took+spent()-again).Seconds())
	}
	b.figure("burst.admit_per_s", median(decided))
	b.figure("burst.written_per_s", median(written))
	b.figure("burst.allocs_per_admission", median(news))
	return nil
}

// arrivals are workloads for queues in turn, of 50 shapes and three priorities.
func arrivals(queues, n int) []state.Workload {
	y := yard{rnd: rand.New(rand.NewPCG(3, 4))}
	shapes := newShapes(y.rnd, 50)
	defs := make([]state.Workload, n)
	for i := range defs {
		q := i % queues
		defs[i] = arrival(i, q, y.priority(), start+workload.Instant(i)*millis, shapes[y.rnd.IntN(50)].podSets("main"))
	}
	return defs
}

// inadmissible: 100,000 equal workloads of 8 GPUs wait in the 20 queues of one cohort, which
// are full. One GPU with its CPUs is released, which admits no workload, and charged
// again; an event is the release with the step that follows.
// one_queue is the same with all of them in one queue and namespace.
func (b *bench) inadmissible() error {
	for _, lines := range []int{perCohort, 1} {
		perRelease, perPair, looks, err := b.release(lines)
		if err != nil {
			return err
		}
		name := "parked."
		if lines == 1 {
			name = "parked.one_queue_"
		}
		b.figure(name+"ns_per_event", perRelease)
		b.figure(name+"ns_per_release_and_reservation", perPair)
		b.figure(name+"looks_per_event", looks)
	}
	return nil
}

// release returns the time of a release and of one with the reservation that follows, in nanoseconds, and the evaluations of inadmissible
// workloads.
func (b *bench) release(lines int) (perRelease, perPair, looks float64, err error) {
	s := newState(cycle.Defaults())
	addQueues(s, perCohort, queueSpec{nominal: gpus(8), borrow: quota.NoLimit, lend: quota.NoLimit})
	var small []state.Workload
	for q := range perCohort {
		for f, pool := range pools {
			n := many + 2*(len(pools)*q+f)
			s.Apply(state.SetWorkload(running(n, q, 0, start, pool, gpus(7))))
			small = append(small, running(n+1, q, 0, start, pool, gpus(1)))
			s.Apply(state.SetWorkload(small[len(small)-1]))
		}
	}
	eight := shape{ask: gpus(8)}
	for i := range many {
		def := arrival(i, i%lines, 0, start, eight.podSets("main"))
		s.Apply(state.SetWorkload(def))
	}
	if r := s.Step(start, math.MaxInt); r.Decisions[0].Attempt.Verdict == trace.Admitted {
		return 0, 0, 0, fmt.Errorf("there is room for %s", r.Decisions[0].Attempt.Workload)
	}
	const events = 20_000
	var releases, pairs []float64
	seen := 0
	for range 5 {
		if err := b.measuring(); err != nil {
			return 0, 0, 0, err
		}
		var in time.Duration
		began, beganAt := spent(), clock()
		for i := range events {
			def := &small[i%len(small)]
			def.Version++
			from := clock()
			s.Apply(state.DeleteWorkload(def.UID))
			seen += len(s.Step(start, math.MaxInt).Decisions)
			in += since(from)
			s.Apply(state.SetWorkload(*def))
		}
		pair := float64(spent()-began) / events
		pairs = append(pairs, pair)
		releases = append(releases, pair*float64(in)/float64(since(beganAt)))
	}
	return median(releases), median(pairs), float64(seen) / (5 * events), nil
}

// memory: the heap that 100,000 pending workloads with two pod sets each add to a full
// world of 1,000 queues after their evaluation, published read model included. Strings shared with the generator count;
// the generator keeps nothing.
func (b *bench) memory() error {
	for _, distinct := range []bool{false, true} {
		s := newState(cycle.Defaults())
		addQueues(s, 1000, queueSpec{nominal: gpus(8), borrow: quota.NoLimit, lend: quota.NoLimit})
		n := many
		for q := range 1000 {
			for _, pool := range pools {
				s.Apply(state.SetWorkload(running(n, q, 0, start, pool, gpus(8))))
				n++
			}
		}
		s.Step(start, math.MaxInt)
		s.Publish()
		before := heap()
		fill(s, distinct)
		r := s.Step(start+many*millis, math.MaxInt)
		if looks := len(r.Decisions); looks < 1000 {
			return fmt.Errorf("only %d were looked at", looks)
		}
		for i := range r.Decisions {
			if r.Decisions[i].Attempt.Verdict == trace.Admitted {
				return fmt.Errorf("there is room for %s", r.Decisions[i].Attempt.Workload)
			}
		}
		r = cycle.Result{}
		s.Publish()
		s.ContinueCheckpoint(math.MaxInt)
		name := "memory.bytes_per_pending"
		if distinct {
			name = "memory.distinct_bytes_per_pending"
		}
		b.figure(name, (heap()-before)/many)
		runtime.KeepAlive(s)
	}
	return nil
}

// fill submits workloads with two pod sets, of 50 shapes or each of its own.
func fill(s *state.State, distinct bool) {
	y := yard{rnd: rand.New(rand.NewPCG(5, 6))}
	shapes := newShapes(y.rnd, 50)
	for i := range many {
		q := i % 1000
		sh := shapes[y.rnd.IntN(50)]
		if distinct {
			sh.ask[0] += resource.Amount(i)
		}
		s.Apply(state.SetWorkload(arrival(i, q, y.priority(), start+workload.Instant(i)*millis, sh.podSets("driver", "worker"))))
	}
}

// heap is what is in use, in bytes.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
