package simulation

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/state"
)

// Result is what came of a trace. Times are in seconds.
type Result struct {
	Jobs     int     `json:"jobs"`
	Finished int     `json:"finished"`
	Refused  int     `json:"neverStarted"` // had not started when the run was over
	Makespan float64 `json:"makespanSeconds"`

	Utilisation []Utilisation `json:"utilisation"`
	// IdleWhileWaiting is the share of the time-weighted quota of Main that was free while something waited.
	Main             string  `json:"mainResource"`
	IdleWhileWaiting float64 `json:"idleWhileWaiting"`

	Preemptions int `json:"preemptions"`
	// Repeated is the work that preempted jobs had done and did again, as a share of all work, in amounts of Main times time.
	Repeated float64 `json:"repeatedWork"`
	// Fairness is Jain's index of the mean bounded slowdowns of the queues: 1 if all are equal, 1/n if one of n bears everything.
	Fairness float64 `json:"fairness"`
	// Fragmentation is that of each level of each flavor with a topology.
	Fragmentation []Fragmentation `json:"fragmentation,omitempty"`

	Classes []Class `json:"classes"`
	Queues  []Class `json:"queues"`
	Series  Series  `json:"series"`
}

// Utilisation is how much of a quota was in use on average, up to the last submission and up to the end.
type Utilisation struct {
	Resource string  `json:"resource"`
	Quota    int64   `json:"quota"`
	Share    float64 `json:"share"`
	Loaded   float64 `json:"shareUntilLastSubmission"`
}

// Class is the waiting times of a group of jobs, from their submissions to their first starts.
type Class struct {
	Name        string  `json:"name"`
	Jobs        int     `json:"jobs"`
	Started     int     `json:"started"`
	Preemptions int     `json:"preemptions"`
	P50         float64 `json:"waitP50Seconds"`
	P90         float64 `json:"waitP90Seconds"`
	P99         float64 `json:"waitP99Seconds"`
	Slowdown    float64 `json:"meanSlowdown"` // (wait + run) / max(run, 10 s)
}

// Options are the bounds of a run.
type Options struct {
	Start workload.Instant // the time of Submit 0, not 0
	// Until ends the run so long after the start; 0 is when nothing more happens.
	Until workload.Instant
	Grace workload.Instant // how long the pods of a preempted job take to end, above 0
	// Progress, unless nil, is called now and then with the number of submitted jobs.
	Progress func(submitted int)
}

// track is what is known of a job while it runs.
type track struct {
	first workload.Instant // its first start, 0 before
	last  workload.Instant // its last start
	stops int32            // preemptions
}

// runner is one run.
type runner struct {
	Options
	jobs   []Job
	tracks []track
	res    Result
	quota  map[string]int64 // by resource
	usage  *usage
	spots  *spots
	waits  int // jobs that wait now
	runs   int
}

// mostIdle is how often the engine may look again at a time that it chose, while nothing runs: what still waits then waits for ever.
const mostIdle = 100

// Run runs jobs, which are in the order of their submissions, and returns what came of them. The events build the world, in an empty
// State. The error is the context's.
func Run(ctx context.Context, s *state.State, world []state.Event, jobs []Job, o Options) (*Result, error) {
	for _, e := range world {
		s.Apply(e)
	}
	r := &runner{Options: o, jobs: jobs, tracks: make([]track, len(jobs)), quota: Quota(world)}
	r.res.Jobs, r.res.Main = len(jobs), mainOf(jobs)
	r.usage, r.spots = newUsage(o.Start, r.quota, r.res.Main), newSpots(s, r.res.Main, o.Start)
	f := foresight.New(s, o.Start, foresight.Rules{Runs: r.length, Grace: o.Grace}, r.seen)
	for i := 0; i < len(jobs); {
		at := o.Start + jobs[i].Submit
		if r.over(at) {
			break
		}
		f.Advance(at)
		r.usage.upTo(f.Now(), r.waits > 0)
		for ; i < len(jobs) && o.Start+jobs[i].Submit == at; i++ {
			f.Apply(state.SetWorkload(jobs[i].definition(i, o.Start, len(r.spots.trees) > 0)))
			r.waits++
		}
		if r.spots.isDue(at) {
			f.DecideAll()
			r.spots.lookAt(at, r.usage.width)
		}
		if o.Progress != nil {
			o.Progress(i)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	r.usage.loaded()
	for idle := 0; idle < mostIdle; idle++ {
		f.DecideAll()
		next, more := f.Next()
		if !more || r.over(next) {
			break
		}
		if r.runs > 0 {
			idle = 0
		}
		f.Advance(next)
		if r.spots.isDue(next) {
			f.DecideAll()
			r.spots.lookAt(next, r.usage.width)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	r.finish()
	return &r.res, nil
}

func (r *runner) over(at workload.Instant) bool { return r.Until > 0 && at > r.Start+r.Until }

func (r *runner) length(w *state.Workload) workload.Instant {
	if n := numberOf(w.UID); n >= 0 && n < len(r.jobs) {
		return r.jobs[n].Run
	}
	return foresight.Never
}

func (r *runner) seen(m foresight.Moment) {
	n := numberOf(m.Def.UID)
	if n < 0 || n >= len(r.jobs) {
		return
	}
	r.usage.upTo(m.At, r.waits > 0)
	t := &r.tracks[n]
	switch m.Kind {
	case foresight.Started:
		if t.first == 0 {
			t.first = m.At
		}
		t.last = m.At
		r.waits, r.runs = r.waits-1, r.runs+1
		r.usage.change(m.Def.Held, 1)
	case foresight.Preempted:
		t.stops++
		r.res.Preemptions++
		r.waits, r.runs = r.waits+1, r.runs-1
		r.usage.change(m.Def.Held, -1)
		r.usage.lose(m.Def.Held, m.At-t.last)
	case foresight.Replaced: // jobs of a trace have neither slices nor variants
	case foresight.Finished:
		r.res.Finished++
		r.runs--
		r.usage.change(m.Def.Held, -1)
	}
}

// Quota sums the nominal quotas of all queues and cohorts by resource.
func Quota(world []state.Event) map[string]int64 {
	out := map[string]int64{}
	add := func(groups []state.Group) {
		for _, g := range groups {
			for _, f := range g.Flavors {
				for _, q := range f.Resources {
					if q.Nominal < resource.Unlimited {
						out[q.Resource] += int64(q.Nominal)
					}
				}
			}
		}
	}
	for _, e := range world {
		switch e := e.(type) {
		case state.SetQueue:
			add(e.Groups)
		case state.SetCohort:
			add(e.Groups)
		}
	}
	return out
}

// mainOf returns the main resource of jobs, by how many request it.
func mainOf(jobs []Job) string {
	counts := map[string]int64{}
	for i := range jobs {
		for _, r := range jobs[i].PerPod {
			counts[r.Resource]++
		}
	}
	return Main(counts)
}

// Main returns the resource of which results tell most: an extended resource before cpu, cpu before others, then the largest amount.
func Main(amounts map[string]int64) string {
	best := ""
	for name, n := range amounts { //berth:unordered the order below is total
		if best == "" || cmp.Or(cmp.Compare(rank(best), rank(name)), cmp.Compare(amounts[best], n), cmp.Compare(name, best)) < 0 {
			best = name
		}
	}
	return best
}

func rank(name string) int {
	switch {
	case strings.Contains(name, "/"):
		return 2
	case name == "cpu":
		return 1
	}
	return 0
}

func (r *runner) finish() {
	r.usage.result(&r.res)
	r.res.Fragmentation = r.spots.means()
	classes, queues := map[string]*group{}, map[string]*group{}
	for i := range r.jobs {
		j, t := &r.jobs[i], &r.tracks[i]
		if t.first == 0 {
			r.res.Refused++
		}
		groupOf(classes, j.class()).add(j, t, r.Start)
		groupOf(queues, j.Namespace+"/"+j.LocalQueue).add(j, t, r.Start)
	}
	r.res.Classes, r.res.Queues = summaries(classes), summaries(queues)
	r.res.Fairness = jain(r.res.Queues)
}

// group collects the jobs of a class.
type group struct {
	Class
	waits     []float64
	slowdowns float64
	order     int64 // of its first job's pods, for the table
}

func groupOf(in map[string]*group, name string) *group {
	g := in[name]
	if g == nil {
		g = &group{Class: Class{Name: name}, order: math.MaxInt64}
		in[name] = g
	}
	return g
}

func (g *group) add(j *Job, t *track, start workload.Instant) {
	g.Jobs++
	g.Preemptions += int(t.stops)
	g.order = min(g.order, int64(j.Pods))
	if t.first == 0 {
		return
	}
	wait := seconds(t.first - start - j.Submit)
	g.Started++
	g.waits = append(g.waits, wait)
	run := seconds(j.Run)
	g.slowdowns += max(1, (wait+run)/max(run, 10))
}

func summaries(of map[string]*group) []Class {
	var list []*group
	for _, g := range of { //berth:unordered sorted below
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *group) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Name, b.Name)) })
	out := make([]Class, 0, len(list))
	for _, g := range list {
		slices.Sort(g.waits)
		g.P50, g.P90, g.P99 = quantile(g.waits, 0.5), quantile(g.waits, 0.9), quantile(g.waits, 0.99)
		if g.Started > 0 {
			g.Slowdown = g.slowdowns / float64(g.Started)
		}
		out = append(out, g.Class)
	}
	return out
}

// quantile returns the smallest value that so many of a sorted list do not exceed, 0 of an empty one.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func jain(queues []Class) float64 {
	var sum, squares, n float64
	for _, q := range queues {
		if q.Started > 0 {
			sum, squares, n = sum+q.Slowdown, squares+q.Slowdown*q.Slowdown, n+1
		}
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (n * squares)
}

func seconds(d workload.Instant) float64 { return float64(d) / float64(Second) }
