package foresight

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// Scope is what a forecast is about.
type Scope struct {
	Now     workload.Instant
	Horizon workload.Instant // how far it looks ahead
	Grace   workload.Instant // how long the pods of a preempted workload take to end, above 0
	// Grid is the resolution of ends: those in between are taken to the next multiple since Now. The engine then decides about many of
	// them at once.
	Grid workload.Instant
	// First bounds the pending workloads of each queue of which starts are noted.
	First int
	Seed  uint64
	// Recent are the arrivals of which more are expected, nil for none.
	Recent *Recent
	// Limit, unless nil, is called for each part. The stop that it returns is asked before each step; once that returns true the part ends, and the
	// run knows nothing of the starts after that.
	Limit func() (stop func() bool)
}

// Run is one of many futures: when pending workloads start, with run times that are drawn at random.
type Run struct {
	Scope
	uids    []string           // of the pending workloads, sorted
	starts  []workload.Instant // theirs; Never for one that does not start until the horizon, unseen for one that the run did not get to
	unknown []bool             // of which it is unknown whether they start: what runs before them may end or not
	endless map[string]int     // by the name of a queue: workloads of its cohort tree that ran, and whose run times are unknown
}

// unseen is before all times.
const unseen = workload.Instant(math.MinInt64)

// partSize is how many workloads the parts of a world have at least: their data stay in the processor's cache, and what each part costs in
// addition is little beside.
const partSize = 1000

// Parts divides a checkpoint and a change of its State into parts that are run forward one after another.
func Parts(at *state.Checkpoint, change []state.Event) []*state.Checkpoint {
	return at.Parts(partSize, change)
}

// Foresee runs the parts of a checkpoint forward. predict returns the prediction of a workload's run time. The same number of a run draws
// the same. The error is that of a fork.
func Foresee(parts []*state.Checkpoint, scope Scope, predict func(*state.Workload) *Prediction, number uint64) (*Run, error) {
	r := &Run{Scope: scope, endless: map[string]int{}}
	random := newDraws(scope.Seed, number)
	var coming []arriving
	if scope.Recent != nil {
		coming = scope.Recent.draw(random, scope.Now, scope.Now+scope.Horizon)
	}
	var all []expected
	for _, of := range parts {
		s, err := of.Fork()
		if err != nil {
			return nil, err
		}
		all = append(all, r.follow(s, coming, predict, random)...)
	}
	slices.SortFunc(all, func(a, b expected) int { return strings.Compare(a.uid, b.uid) })
	r.uids, r.starts, r.unknown = make([]string, len(all)), make([]workload.Instant, len(all)), make([]bool, len(all))
	for i, x := range all {
		r.uids[i], r.starts[i], r.unknown[i] = x.uid, x.start, x.unknown
	}
	return r, nil
}

// expected is a pending workload in one run, see Run.
type expected struct {
	uid     string
	start   workload.Instant
	unknown bool
}

// follow runs a State forward, and changes it. It returns its pending workloads. coming are the arrivals, of which it takes its own.
func (r *Run) follow(s *state.State, coming []arriving, predict func(*state.Workload) *Prediction, random *draws) (all []expected) {
	scope := &r.Scope
	queues := s.Queues()
	first := make([]int, 0, len(queues)+1) // the number of the first workload of each queue
	numbers := map[string]int{}
	for _, q := range queues {
		first = append(first, len(all))
		for _, uid := range s.FirstInLine(q, scope.First) {
			numbers[uid] = len(all)
			all = append(all, expected{uid: uid, start: Never})
		}
	}
	first = append(first, len(all))
	p := &part{Scope: scope, s: s, predict: predict, random: random, trees: map[string]int{}, arrived: map[string]*Prediction{}, lengths: map[string]workload.Instant{}}
	rules := Rules{Runs: p.runTime, Grace: scope.onGrid(scope.Now+scope.Grace) - scope.Now}
	if scope.Limit != nil {
		stop := scope.Limit()
		rules.Stop = func(workload.Instant) bool { return stop() }
	}
	f := New(s, scope.Now, rules, func(m Moment) {
		if m.Kind != Started {
			return
		}
		if i, noted := numbers[m.Def.UID]; noted && all[i].start == Never {
			all[i].start = m.At
		}
	})
	for _, a := range coming {
		if s.HasLocalQueue(a.def.Namespace, a.def.LocalQueue) {
			f.Advance(scope.onGrid(a.at))
			f.Apply(state.SetWorkload(a.def))
			p.arrived[a.def.UID] = a.of
		}
	}
	f.Advance(r.Now + r.Horizon)
	if f.stopped {
		markUnseen(all)
	}
	if len(p.trees) == 0 {
		return all
	}
	for i, q := range queues {
		n := p.trees[p.root(q)]
		if n == 0 {
			continue
		}
		r.endless[q] = n
		for k := range all[first[i]:first[i+1]] {
			x := &all[first[i]+k]
			x.unknown = x.unknown || x.start == Never
		}
	}
	return all
}

// markUnseen marks the starts that a run did not get to.
func markUnseen(all []expected) {
	for i := range all {
		if x := &all[i]; x.start == Never {
			x.start, x.unknown = unseen, true
		}
	}
}

// part is a part of the world in one run.
type part struct {
	*Scope
	s       *state.State
	predict func(*state.Workload) *Prediction
	random  *draws
	trees   map[string]int         // see Run.endless, by the root of the tree
	arrived map[string]*Prediction // by UID, of workloads that came after the beginning
	lengths map[string]workload.Instant
}

func (p *part) root(queue string) string { return rootOf(p.s.Path(queue)) }

// runTime draws the run time of a workload.
func (p *part) runTime(w *state.Workload) workload.Instant {
	predicted := p.arrived[w.UID]
	if predicted == nil {
		predicted = p.predict(w)
	}
	if predicted.Source == Unknown {
		p.trees[p.root(w.Queue)]++
		return Never
	}
	length, drawn := p.lengths[w.UID]
	if !drawn { // one that is preempted runs as long when it starts again
		length = predicted.length(p.random, max(0, p.Now-w.ReservedAt))
		p.lengths[w.UID] = length
	}
	if end := p.Now + p.Horizon; length > end-min(end, w.ReservedAt) {
		return Never // an end after the horizon needs no event
	}
	return p.onGrid(w.ReservedAt+length) - w.ReservedAt
}

// onGrid returns the first moment of the grid that is not before a time.
func (s *Scope) onGrid(at workload.Instant) workload.Instant {
	if s.Grid <= 0 {
		return at
	}
	return s.Now + (max(0, at-s.Now)+s.Grid-1)/s.Grid*s.Grid
}

// rootOf returns the first name of a path.
func rootOf(path string) string {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			return path[:i]
		}
	}
	return path
}

// Start is when a pending workload is expected to start: that is Never if it is after the horizon.
type Start struct {
	P10, P50, P90 workload.Instant
}

// Forecast is when pending workloads start, from several runs. It is immutable.
type Forecast struct {
	At, Horizon workload.Instant // made at, and how far it looks
	Runs        int
	uids        []string
	starts      []Start
	unknown     []bool
	endless     map[string]int
}

// leastRuns is the number of runs from which their 10th and 90th percentiles lie between the first and the last of them.
const leastRuns = 9

// Summarize makes a forecast of runs, the newest first. A start that an older run foresaw counts if it may still happen. The horizon is the
// nearest one of all runs.
func Summarize(runs []*Run) *Forecast {
	newest := runs[0]
	end := newest.Now + newest.Horizon
	for _, r := range runs {
		end = min(end, r.Now+r.Horizon)
	}
	f := &Forecast{
		At: newest.Now, Horizon: end - newest.Now, Runs: len(runs), uids: newest.uids, starts: make([]Start, len(newest.uids)), unknown: newest.unknown,
		endless: newest.endless,
	}
	var of []workload.Instant
	next := make([]int, len(runs))
	for i, uid := range f.uids {
		of = of[:0]
		for k, r := range runs {
			for next[k] < len(r.uids) && r.uids[next[k]] < uid {
				next[k]++
			}
			if n := next[k]; n == len(r.uids) || r.uids[n] != uid || r.starts[n] < newest.Now {
				continue // it is pending, and so has not started before now, or the run did not get to it
			}
			at := r.starts[next[k]]
			if at > end {
				at = Never
			}
			of = append(of, at)
		}
		f.starts[i] = startOf(of, newest.Now)
	}
	return f
}

// Empty returns the forecast of a time at which nothing is pending.
func Empty(now workload.Instant) *Forecast { return &Forecast{At: now} }

// startOf returns the quantiles of the starts that runs foresee. What happens is one more of them, and comes at any place among them with the same
// probability.
func startOf(of []workload.Instant, now workload.Instant) Start {
	if len(of) == 0 {
		return Start{Never, Never, Never}
	}
	slices.Sort(of)
	if len(of) >= leastRuns || of[len(of)-1] == Never {
		return Start{between(of, 0.1), between(of, 0.5), between(of, 0.9)}
	}
	var sum, squares float64
	for _, at := range of {
		x := logSeconds(at - now)
		sum, squares = sum+x, squares+x*x
	}
	n := float64(len(of))
	mean := sum / n
	spread := priorSpread
	if n > 1 {
		spread = student90[len(of)-2] * math.Sqrt(max(0, squares-n*mean*mean)/(n-1)*(1+1/n))
	}
	at := func(x float64) workload.Instant { return now + workload.Instant(math.Exp(x)*1e9) }
	return Start{at(mean - spread), at(mean), at(mean + spread)}
}

// student90 is the 90th percentile of Student's distribution with 1 to 7 degrees of freedom.
var student90 = [leastRuns - 2]float64{3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415}

// between returns a quantile of sorted values, which lie at i/(n+1).
func between(sorted []workload.Instant, q float64) workload.Instant {
	h := min(max(q*float64(len(sorted)+1), 1), float64(len(sorted))) - 1
	low, part := int(h), h-math.Floor(h)
	if part == 0 {
		return sorted[low]
	}
	a, b := sorted[low], sorted[low+1]
	if b == Never {
		return Never
	}
	return a + workload.Instant(part*float64(b-a))
}

// Of returns when a workload starts; false if that is unknown, and why. queue is the ClusterQueue in whose line it is.
func (f *Forecast) Of(uid, queue string) (start Start, why string, known bool) {
	i, noted := slices.BinarySearch(f.uids, uid)
	if !noted {
		return Start{}, "it was not in line, or too far back, when the last forecast was made", false
	}
	start = f.starts[i]
	if start.P10 == Never && f.unknown[i] {
		if f.endless[queue] == 0 {
			return Start{}, "the last forecast took too long to get to its start", false
		}
		return Start{}, fmt.Sprintf("the run times of %s in its cohort are unknown; set berth.dev/expected-run-seconds on their jobs, or wait until %d like them have finished",
			trace.Plural(f.endless[queue], "running Workload"), leastSamples), false
	}
	return start, "", true
}

// Endless returns how many workloads of the cohort tree of a ClusterQueue are taken to run on, since their run times are unknown.
func (f *Forecast) Endless(queue string) int { return f.endless[queue] }

// Counts are pending workloads by what is known of their starts: the median, that it is after the horizon, or nothing.
type Counts struct {
	Known, Later, Unknown int
}

// Count counts the pending workloads of the forecast.
func (f *Forecast) Count() (n Counts) {
	for i, s := range f.starts {
		switch {
		case s.P10 == Never && f.unknown[i]:
			n.Unknown++
		case s.P50 == Never:
			n.Later++
		default:
			n.Known++
		}
	}
	return n
}
