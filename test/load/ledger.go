package main

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// phase is the observed progress of a workload.
type phase int8

const (
	waiting phase = iota // without quota, or not seen yet
	running
	leaving // evicted, and asked to release its quota
	done
)

// entry is what the ledger keeps of one workload.
type entry struct {
	arrival
	phase    phase
	seen     bool
	holds    bool
	run      int           // counts admissions and evictions, so that a timer knows whether it still matters
	started  time.Duration // of this run
	wait     time.Duration // from creation to the first admission
	admitted bool          // at least once
	evicted  int
	places   map[string]int32 // pods of its reservation by node, in shapes with nodes
}

// point is a moment at which the usage changed.
type point struct {
	at   time.Duration
	used int64 // cores, of all cohorts
}

// freed are cores that a workload gave back.
type freed struct {
	at    time.Duration
	cores int64
}

// order is the generator's next action for a workload.
type order int8

const (
	nothing order = iota
	start         // let it run for its time, then finish it
	release       // give its quota back
)

// maxProblems bounds the violations that are kept as text; the rest are counted.
const maxProblems = 20

// ledger follows all workloads and checks the system's guarantees: no cohort and no queue
// exceeds its quota, no workload runs twice at a time or loses its quota without an
// eviction, none is lost. It must see every write in the API server's order.
type ledger struct {
	shape    *shape
	entries  []entry
	byName   map[string]int
	used     []int64          // of each cohort
	usedBy   [][]int64        // of each queue of each cohort
	onNode   map[string]int32 // pods by node, nil without nodes
	usage    []point
	problems []string
	broken   int // promises

	free [][]freed // of each cohort: cores that were given back and not taken again, oldest first
	idle []float64 // ms, of each core that was taken again: see takeAgain

	from       time.Duration // when the measurement began
	doneBefore int

	created, running, done int
	evictions              int
	lost                   float64 // core seconds of runs that an eviction ended
}

func newLedger(s *shape, arrivals []arrival) *ledger {
	l := &ledger{
		shape: s, entries: make([]entry, len(arrivals)), byName: make(map[string]int, len(arrivals)),
		used: make([]int64, s.cohorts), usedBy: make([][]int64, s.cohorts), usage: []point{{}}, free: make([][]freed, s.cohorts),
	}
	if s.nodes > 0 {
		l.onNode = map[string]int32{}
	}
	for i, a := range arrivals {
		l.entries[i].arrival = a
		l.byName[s.workloadName(&a)] = i
	}
	for i := range l.usedBy {
		l.usedBy[i] = make([]int64, s.queues)
	}
	return l
}

// begin begins the measurement.
func (l *ledger) begin(at time.Duration) { l.from, l.doneBefore, l.idle = at, l.done, nil }

// inUse is the quota that is in use in all cohorts.
func (l *ledger) inUse() (cores int64) {
	for _, used := range l.used {
		cores += used
	}
	return cores
}

// full reports whether all quota is in use.
func (l *ledger) full() bool { return l.inUse() == l.shape.quota()*int64(l.shape.cohorts) }

// find returns the index of a workload.
func (l *ledger) find(w *kueue.Workload) (int, bool) {
	i, ok := l.byName[w.Name]
	if !ok || w.Namespace != cohortName(l.entries[i].cohort) {
		l.problem("workload %s/%s is none of ours", w.Namespace, w.Name)
		return 0, false
	}
	return i, true
}

// see records the state of a workload at that time, created at the given one, and returns the next action.
func (l *ledger) see(i int, w *kueue.Workload, created, at time.Duration) order {
	e := &l.entries[i]
	if !e.seen {
		e.seen = true
		l.created++
	}
	reserved, finished := lifecycle.IsReserved(w), lifecycle.IsFinished(w)
	l.hold(e, w, reserved && !finished, created, at)
	switch {
	case e.phase == done:
		if !finished {
			l.problem("%s is no longer finished", w.Name)
		}
	case finished:
		l.enter(e, done)
	case reserved && lifecycle.IsEvicted(w):
		return l.evict(e, at)
	case reserved && lifecycle.IsAdmitted(w):
		return l.admit(e, w, created, at)
	case !reserved && e.phase == running:
		l.problem("%s lost its quota without an eviction", w.Name)
		l.enter(e, waiting)
	case !reserved:
		l.enter(e, waiting)
	}
	return nothing
}

func (l *ledger) evict(e *entry, at time.Duration) order {
	if e.phase == leaving {
		return nothing // reported already
	}
	if e.phase == running {
		l.lost += float64(l.shape.classes[e.class].cpu) * (at - e.started).Seconds()
	}
	l.enter(e, leaving)
	e.evicted++
	l.evictions++
	return release
}

func (l *ledger) admit(e *entry, w *kueue.Workload, created, at time.Duration) order {
	if e.phase == running {
		return nothing
	}
	if e.phase == leaving {
		l.problem("%s was admitted again before it gave its quota back", w.Name)
	}
	l.enter(e, running)
	e.started = at
	if !e.admitted {
		e.admitted, e.wait = true, at-created
	}
	return start
}

func (l *ledger) enter(e *entry, next phase) {
	if e.phase == next {
		return
	}
	if e.phase == running {
		l.running--
	}
	if next == running {
		l.running++
	}
	if next == done {
		l.done++
	}
	e.phase = next
	e.run++
}

// hold records a workload's reservation, and checks that there was as much quota.
func (l *ledger) hold(e *entry, w *kueue.Workload, holds bool, created, at time.Duration) {
	if holds == e.holds {
		return
	}
	e.holds = holds
	cpu := l.shape.classes[e.class].cpu
	if holds {
		l.checkAdmission(e, w)
		l.occupy(e, w)
		l.takeAgain(e.cohort, cpu, created, at)
	} else {
		l.vacate(e)
		l.free[e.cohort] = append(l.free[e.cohort], freed{at, cpu})
		cpu = -cpu
	}
	l.used[e.cohort] += cpu
	l.usedBy[e.cohort][e.queue] += cpu
	l.usage = append(l.usage, point{at, l.usage[len(l.usage)-1].used + cpu})
	if used, quota := l.used[e.cohort], l.shape.quota(); holds && used > quota {
		l.problem("%s: cohort %s uses %d of %d cores", w.Name, cohortName(e.cohort), used, quota)
	}
	if used, most := l.usedBy[e.cohort][e.queue], l.shape.ceiling(); holds && used > most {
		l.problem("%s: queue %s uses %d of at most %d cores", w.Name, queueName(e.cohort, e.queue), used, most)
	}
}

// takeAgain takes the cores that are free for the longest time, and notes how long they were idle while the workload that takes them
// waited. Cores that were never in use before are not noted.
func (l *ledger) takeAgain(cohort int, cores int64, created, at time.Duration) {
	free := l.free[cohort]
	for cores > 0 && len(free) > 0 {
		n := min(cores, free[0].cores)
		idle := float64(at-max(free[0].at, created)) / float64(time.Millisecond)
		l.idle = append(l.idle, slices.Repeat([]float64{idle}, int(n))...)
		cores -= n
		if free[0].cores -= n; free[0].cores == 0 {
			free = free[1:]
		}
	}
	l.free[cohort] = free
}

// checkAdmission checks that the admission is about this workload.
func (l *ledger) checkAdmission(e *entry, w *kueue.Workload) {
	a := w.Status.Admission
	if a == nil || len(a.PodSetAssignments) != 1 {
		l.problem("%s has quota reserved and no admission of one pod set", w.Name)
		return
	}
	got, want := a.PodSetAssignments[0].ResourceUsage[corev1.ResourceCPU], l.shape.classes[e.class].cpu
	if got.Value() != want || string(a.ClusterQueue) != queueName(e.cohort, e.queue) {
		l.problem("%s is admitted to %s with %s cores, but it asks %s for %d", w.Name, a.ClusterQueue, got.String(), queueName(e.cohort, e.queue), want)
	}
}

// gone notes a deleted workload: no part of the system may delete one.
func (l *ledger) gone(i int) {
	l.problem("%s was deleted", l.shape.workloadName(&l.entries[i].arrival))
}

// problem records a violation.
func (l *ledger) problem(format string, args ...any) {
	l.broken++
	if len(l.problems) < maxProblems {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

// due reports whether the run with this number still runs.
func (l *ledger) due(i, run int) bool {
	e := &l.entries[i]
	return e.phase == running && e.run == run
}

// waits are the times from creation to the first admission in ms, of one class or, for a
// negative one, of all.
func (l *ledger) waits(class int) (ms []float64) {
	for i := range l.entries {
		if e := &l.entries[i]; e.admitted && (class < 0 || e.class == class) {
			ms = append(ms, float64(e.wait)/float64(time.Millisecond))
		}
	}
	return ms
}

// utilisation is the share of the quota in use, as means of n equal parts of the time
// until end.
func (l *ledger) utilisation(end time.Duration, n int) []float64 {
	out := make([]float64, n)
	if end <= 0 {
		return out
	}
	width := float64(end) / float64(n)
	whole := width * float64(l.shape.quota()) * float64(l.shape.cohorts)
	for i, p := range l.usage {
		until := end
		if i+1 < len(l.usage) {
			until = min(end, l.usage[i+1].at)
		}
		from := float64(p.at)
		for from < float64(until) {
			k := min(n-1, int(from/width))
			to := float64(until)
			if k < n-1 {
				to = min(to, float64(k+1)*width)
			}
			if to <= from {
				to = float64(until) // rounding must not stop the walk
			}
			out[k] += (to - from) * float64(p.used) / whole
			from = to
		}
	}
	return out
}
