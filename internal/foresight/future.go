// Package foresight runs the engine forward: what starts, is preempted and ends, and when, if workloads run as long as is expected. It is
// the same state and the same engine as production, on a copy.
package foresight

import (
	"cmp"
	"container/heap"
	"maps"
	"math"
	"slices"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// Kind is what happens to a workload.
type Kind int8

// The kinds of moments.
const (
	Started   Kind = iota // it is admitted, and its pods are taken to be ready
	Preempted             // it has to go, and is pending again
	Finished
	Replaced // a slice that replaces it has started, or another variant of its job: a slice ends, a variant is pending again
)

// Moment is one thing that happens to a workload. It must not be modified, nor kept after the call.
type Moment struct {
	At   workload.Instant
	Kind Kind
	Def  *state.Workload
	// By is the workload that preempts or replaces it, nil if its nodes failed.
	By *state.Workload
}

// Never is a run time without an end.
const Never = workload.Instant(math.MaxInt64)

// Rules are how long things take.
type Rules struct {
	// Runs returns for how long a workload runs from its admission on, [Never] if it does not end; for one that is running already, that is
	// from ReservedAt on.
	Runs func(*state.Workload) workload.Instant
	// Grace is how long the pods of a preempted workload take to end, above 0: queues whose rules let them preempt each other would go on
	// for ever otherwise, without any time passing.
	Grace workload.Instant
	// Stop, unless nil, is asked before each step. Once it returns true, what is under way returns soon, and the Future is of no more use.
	Stop func(now workload.Instant) bool
}

// Future is a State and its workloads, which end after their run times. Apart from its Rules, what happens takes no time: decisions are
// written at once, admission checks pass, and pods are ready.
type Future struct {
	s    *state.State
	now  workload.Instant
	seen func(Moment)
	Rules

	running map[string]*run // by UID
	// related are the UIDs of running, by their names and by VariantOf.
	related map[state.Name]map[string]bool
	due     dues
	stopped bool
	look    workload.Instant // the due at which the engine wants to look again; it counts if it is to come
	count   uint64
}

// run is a workload that holds quota.
type run struct {
	def   state.Workload
	until workload.Instant // its end, Never without one
	ends  uint64           // the number of the due that ends it
	stops bool             // it is preempted, and then releases its quota
}

// due is a moment to come at which something has to be done: a run ends, or nothing but the next step.
type due struct {
	at     workload.Instant
	number uint64
	uid    string // "" for none
}

// dues are a heap.
type dues []due

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(d[i].at, d[j].at), cmp.Compare(d[i].number, d[j].number)) < 0
}
func (d dues) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)   { *d = append(*d, x.(due)) }
func (d *dues) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// New returns the future of a State from a time on; it changes the State. seen is told what happens.
func New(s *state.State, now workload.Instant, rules Rules, seen func(Moment)) *Future {
	f := &Future{s: s, now: now, Rules: rules, seen: seen, running: map[string]*run{}, related: map[state.Name]map[string]bool{}}
	unwritten := s.TakeUnwritten()
	for _, uid := range s.ReservedOrResting() {
		def, _ := s.Definition(uid)
		switch {
		case def.Evicting && def.Reserved:
			f.stop(&run{def: def})
		case def.Reserved:
			def.Admitted, def.Ready = len(def.Delayed) == 0, len(def.Delayed) == 0
			def.PlaceNow = len(def.Delayed) > 0
			def.Version++
			s.Apply(state.SetWorkload(def))
			f.hold(def, f.until(&def))
		case def.Resting:
			def.Resting = false
			def.Version++
			s.Apply(state.SetWorkload(def))
		}
	}
	for i := range unwritten {
		f.start(&unwritten[i])
	}
	return f
}

// Now returns the time that the future has reached.
func (f *Future) Now() workload.Instant { return f.now }

// Next returns the time of the next thing that is due; false if there is none.
func (f *Future) Next() (at workload.Instant, more bool) {
	if len(f.due) == 0 {
		return 0, false
	}
	return f.due[0].at, true
}

// Apply applies an event at the current time, such as the arrival of a workload. DecideAll decides what comes of it.
func (f *Future) Apply(e state.Event) { f.s.Apply(e) }

// Advance lets everything happen before a time, and ends what ends at it. What comes of that, DecideAll or the next Advance decides.
func (f *Future) Advance(to workload.Instant) {
	for {
		f.DecideAll()
		if f.stopped {
			return
		}
		if len(f.due) == 0 || f.due[0].at > to {
			f.now = max(f.now, to)
			return
		}
		f.now = max(f.now, f.due[0].at)
		for len(f.due) > 0 && f.due[0].at <= f.now {
			d := heap.Pop(&f.due).(due)
			switch r := f.running[d.uid]; {
			case r == nil || r.ends != d.number:
			case r.stops:
				f.drop(r)
				f.release(&r.def)
			default:
				f.finish(r)
			}
		}
		if f.now == to {
			return
		}
	}
}

// stepBudget is the budget of one step. Steps are repeated until nothing is left, so it changes no outcome.
const stepBudget = 1 << 20

// DecideAll decides at the current time until nothing is left to decide.
func (f *Future) DecideAll() {
	for {
		if f.stopped = f.stopped || f.Stop != nil && f.Stop(f.now); f.stopped {
			return
		}
		r := f.s.Step(f.now, stepBudget)
		for i := range r.Decisions {
			f.carryOut(&r.Decisions[i])
		}
		if !r.More && len(r.Decisions) == 0 {
			if r.Next > f.now && (f.look <= f.now || r.Next < f.look) {
				f.look = r.Next
				f.later(r.Next, "")
			}
			return
		}
	}
}

func (f *Future) later(at workload.Instant, uid string) (number uint64) {
	f.count++
	heap.Push(&f.due, due{at, f.count, uid})
	return f.count
}

// carryOut writes a decision.
func (f *Future) carryOut(d *cycle.Decision) {
	uid := d.Workload.UID
	switch {
	case d.Attempt.Verdict == trace.Admitted:
		g := f.s.Grant(d)
		f.start(&g)
	case d.Placed != nil:
		if r := f.running[uid]; r != nil {
			g := f.s.Grant(d)
			r.def.TakePlaces(&g)
			f.ready(r)
		}
	case d.NodesFailed:
		f.preempt(uid, nil)
	}
	if len(d.Evict) == 0 {
		return
	}
	by, _ := f.s.Definition(uid)
	for _, v := range d.Evict {
		f.preempt(v.Workload.UID, &by)
	}
}

// start writes an admission.
func (f *Future) start(g *state.Grant) {
	def, ok := f.s.Definition(g.UID)
	if !ok {
		return
	}
	def.TakeGrant(g, false)
	def.Version++
	f.s.Apply(state.AdmissionWritten(def))
	until, replaced := f.ended(&def)
	if !replaced {
		until = f.until(&def)
	}
	r := f.hold(def, until)
	if def.Admitted {
		f.ready(r)
	}
}

// ended ends what an admitted workload takes the place of: other variants, or an older slice of its job, which goes on until the end of
// that one.
func (f *Future) ended(def *state.Workload) (until workload.Instant, slice bool) {
	if def.Replaces == "" && def.VariantOf == "" {
		return 0, false
	}
	uids := map[string]bool{}
	for _, name := range []string{def.Replaces, def.VariantOf} {
		if name != "" {
			maps.Copy(uids, f.related[state.Name{Namespace: def.Namespace, Name: name}])
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(uids)) {
		r := f.running[uid]
		switch {
		case r == nil || uid == def.UID || r.def.Namespace != def.Namespace:
		case def.Replaces != "" && r.def.Name == def.Replaces && r.def.Owner == def.Owner:
			until, slice = r.until, true
			f.drop(r)
			f.seen(Moment{At: f.now, Kind: Replaced, Def: &r.def, By: def})
			f.s.Apply(state.DeleteWorkload(uid))
		case def.VariantOf != "" && r.def.VariantOf == def.VariantOf:
			f.drop(r)
			f.seen(Moment{At: f.now, Kind: Replaced, Def: &r.def, By: def})
			f.release(&r.def)
		}
	}
	return until, slice
}

// until returns when a workload ends that holds quota.
func (f *Future) until(def *state.Workload) workload.Instant {
	length := f.Runs(def)
	if length >= Never-max(0, def.ReservedAt) {
		return Never
	}
	return max(f.now, def.ReservedAt+length)
}

// hold notes that a workload holds quota until it ends.
func (f *Future) hold(def state.Workload, until workload.Instant) *run {
	r := &run{def: def, until: until}
	f.add(r)
	if until < Never {
		r.ends = f.later(until, def.UID)
	}
	return r
}

// add makes a workload one of running.
func (f *Future) add(r *run) {
	f.running[r.def.UID] = r
	for _, name := range relations(&r.def) {
		if f.related[name] == nil {
			f.related[name] = map[string]bool{}
		}
		f.related[name][r.def.UID] = true
	}
}

// drop takes a workload out of running.
func (f *Future) drop(r *run) {
	delete(f.running, r.def.UID)
	for _, name := range relations(&r.def) {
		delete(f.related[name], r.def.UID)
		if len(f.related[name]) == 0 {
			delete(f.related, name)
		}
	}
}

// relations are the names by which others find a workload.
func relations(def *state.Workload) []state.Name {
	out := []state.Name{{Namespace: def.Namespace, Name: def.Name}}
	if def.VariantOf != "" {
		out = append(out, state.Name{Namespace: def.Namespace, Name: def.VariantOf})
	}
	return out
}

// ready reports that a workload has started, and writes that its pods are ready.
func (f *Future) ready(r *run) {
	r.def.Ready = true
	r.def.Version++
	f.s.Apply(state.SetWorkload(r.def))
	f.seen(Moment{At: f.now, Kind: Started, Def: &r.def})
}

func (f *Future) preempt(uid string, by *state.Workload) {
	r := f.running[uid]
	if r == nil || r.stops {
		return
	}
	f.seen(Moment{At: f.now, Kind: Preempted, Def: &r.def, By: by})
	r.def.Evicting = true
	r.def.Version++
	f.s.Apply(state.Written(r.def))
	f.stop(r)
}

// stop lets a preempted workload end its pods.
func (f *Future) stop(r *run) {
	r.stops = true
	f.add(r)
	r.ends = f.later(f.now+f.Grace, r.def.UID)
}

// release makes a workload pending again.
func (f *Future) release(def *state.Workload) {
	def.Release()
	def.Resting = false
	def.Version++
	f.s.Apply(state.SetWorkload(*def))
}

func (f *Future) finish(r *run) {
	f.drop(r)
	f.seen(Moment{At: f.now, Kind: Finished, Def: &r.def})
	f.s.Apply(state.DeleteWorkload(r.def.UID))
}
