package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// yard is the closed world of the steady figures. Cohorts have 20 queues of 8 GPUs of
// each of four flavors, and half as much again in shared pools. One queue of five is
// idle and lends; the others have long lines of 50 shapes in three priorities, are full
// and borrow, some of them within limits. A finished workload is submitted again as a new one
// of the same shape, priority and queue. Small ones still take the room of large ones,
// so before each round as many are added as wait too few.
type yard struct {
	s       *state.State
	now     workload.Instant
	rnd     *rand.Rand
	pending int // how many are to wait
	busy    []int
	shapes  [][]shape // by queue
	jobs    []job
	running []int32 // indices of jobs
	slots   []int32 // index of the job, by the serial number in the UID

	// The identities of the next arrivals, made beforehand.
	uids, names []string

	heads, looks, admissions, evictions int
}

// job is a workload of the generator, and the same one again after it finished.
type job struct {
	def state.Workload
	at  int32 // index in yard.running, -1 while it waits
}

// newYard makes a yard of queues with some number of workloads waiting.
func newYard(o cycle.Options, p preempt.Policy, queues, pending int) (*yard, error) {
	y := &yard{s: newState(o), now: 1e18, rnd: rand.New(rand.NewPCG(1, 2)), pending: pending}
	var busy []int
	var names [teams]string
	for i := range queues {
		if i%perCohort == 0 {
			names = addCohort(y.s, i/perCohort, gpus(16), gpus(16))
		}
		spec := queueSpec{nominal: gpus(8), borrow: quota.NoLimit, lend: quota.NoLimit, preemption: p, idle: i%perCohort/teams == 4 || (queues < perCohort && i%5 == 4)}
		switch i % 7 {
		case 2:
			spec.borrow = 8
		case 5:
			spec.lend = 4
		}
		if i%3 == 0 {
			spec.weight = new(2 * quota.DefaultWeight)
		}
		addQueue(y.s, i, names[i%teams], &spec)
		if !spec.idle {
			busy = append(busy, i)
		}
	}
	y.busy, y.shapes = busy, make([][]shape, queues)
	for _, q := range busy {
		y.shapes[q] = newShapes(y.rnd, 50)
	}
	return y, y.topUp()
}

// topUp submits workloads until as many wait as should.
func (y *yard) topUp() error {
	for range 10 {
		missing := y.pending - (len(y.jobs) - len(y.running))
		if missing <= 0 {
			return nil
		}
		for range missing {
			q := y.busy[len(y.jobs)%len(y.busy)]
			y.submit(q, y.priority(), &y.shapes[q][y.rnd.IntN(len(y.shapes[q]))])
		}
		y.runToEnd()
	}
	return fmt.Errorf("%d of %d wait: there is too much room", len(y.jobs)-len(y.running), y.pending)
}

// priority is high for 5 of 100, normal for 25 and low for the rest.
func (y *yard) priority() int64 {
	switch n := y.rnd.IntN(100); {
	case n < 5:
		return 1000
	case n < 30:
		return 100
	}
	return 0
}

func (y *yard) submit(queue int, priority int64, sh *shape) {
	y.now += millis
	def := arrival(len(y.slots), queue, priority, y.now, sh.podSets("main"))
	y.slots = append(y.slots, int32(len(y.jobs)))
	y.jobs = append(y.jobs, job{def: def, at: -1})
	y.s.Apply(state.SetWorkload(def))
}

// job returns the job of a UID.
func (y *yard) job(uid string) int32 { return y.slots[serial(uid)] }

// serial undoes identity.
func serial(uid string) int {
	n, err := strconv.ParseUint(uid[:8], 16, 31)
	if err != nil {
		panic(err) // it is one of ours
	}
	return int(n)
}

// runToEnd steps until no decision or write is left, and applies the decisions as events of an API server.
func (y *yard) runToEnd() {
	for evicted := true; evicted; {
		evicted = false
		y.now += millis
		r := y.s.Step(y.now, math.MaxInt)
		y.heads, y.looks = y.heads+r.Heads, y.looks+len(r.Decisions)
		for i := range r.Decisions {
			d := &r.Decisions[i]
			if d.Attempt.Verdict == trace.Admitted {
				y.admit(d)
			}
			for _, v := range d.Evict {
				y.evict(v.Workload.UID)
				evicted = true
			}
		}
	}
}

func (y *yard) admit(d *cycle.Decision) {
	y.admissions++
	n := y.job(d.Workload.UID)
	j := &y.jobs[n]
	j.at = int32(len(y.running))
	y.running = append(y.running, n)
	j.def.Version++
	j.def.Reserved, j.def.Admitted, j.def.Queue, j.def.ReservedAt = true, true, d.Queue, d.Workload.ReservedAt
	j.def.Held = y.s.Grant(d).PodSets[0].Held
	y.s.Apply(state.SetWorkload(j.def))
}

// evict evicts a workload, and requeues it once it has stopped.
func (y *yard) evict(uid string) {
	y.evictions++
	j := &y.jobs[y.job(uid)]
	j.def.Version++
	j.def.Evicting = true
	y.s.Apply(state.SetWorkload(j.def))
	y.stopped(j)
	j.def.Version++
	j.def.Reserved, j.def.Admitted, j.def.Evicting, j.def.Held, j.def.Since = false, false, false, nil, y.now
	y.s.Apply(state.SetWorkload(j.def))
}

// stopped takes a job out of the running ones.
func (y *yard) stopped(j *job) {
	last := len(y.running) - 1
	moved := y.running[last]
	y.running[j.at] = moved
	y.jobs[moved].at = j.at
	y.running = y.running[:last]
	j.at = -1
}

// event finishes a random running workload, starts others, and submits it again.
func (y *yard) event() {
	n := y.running[y.rnd.IntN(len(y.running))]
	j := &y.jobs[n]
	y.stopped(j)
	y.s.Apply(state.DeleteWorkload(j.def.UID))
	y.runToEnd()
	j.def.UID, j.def.Name = y.uids[0], y.names[0]
	y.uids, y.names = y.uids[1:], y.names[1:]
	y.slots = append(y.slots, n)
	j.def.Version, j.def.Created, j.def.Since = 1, y.now, y.now
	j.def.Reserved, j.def.Admitted, j.def.Queue, j.def.Held, j.def.ReservedAt = false, false, "", nil, 0
	y.s.Apply(state.SetWorkload(j.def))
}

// prepare makes the generator's data for some events.
func (y *yard) prepare(events int) {
	y.uids, y.names = y.uids[:0:0], y.names[:0:0]
	next := len(y.slots)
	for i := range events {
		uid, name := identity(next + i)
		y.uids, y.names = append(y.uids, uid), append(y.names, name)
	}
	y.slots = append(make([]int32, 0, next+events), y.slots...)
	y.running = append(make([]int32, 0, len(y.jobs)), y.running...)
}

// round is the result of one round of events.
type round struct {
	took                                              time.Duration
	events, heads, looks, admissions, evictions, news float64
	wakes                                             order.Wakes
}

// play runs events for some time, at most some number.
func (y *yard) play(b *bench, most int, length time.Duration) (r round, err error) {
	if b.events > 0 {
		most, length = b.events, math.MaxInt64
	}
	if err := y.topUp(); err != nil {
		return r, err
	}
	y.prepare(most)
	y.heads, y.looks, y.admissions, y.evictions = 0, 0, 0, 0
	if err := b.measuring(); err != nil {
		return r, err
	}
	before, wakes := mallocs(), y.s.Wakes()
	began := spent()
	events := 0
	for ; events < most && (events%8 != 0 || spent()-began < length); events++ {
		y.event()
	}
	r.took = spent() - began
	r.news = float64(mallocs() - before)
	r.events, r.heads, r.looks = float64(events), float64(y.heads), float64(y.looks)
	r.admissions, r.evictions = float64(y.admissions), float64(y.evictions)
	r.wakes = y.s.Wakes()
	r.wakes.All -= wakes.All
	r.wakes.Vain -= wakes.Vain
	return r, nil
}
