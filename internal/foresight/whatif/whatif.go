// Package whatif compares two futures of a State: as things are, and after a change.
package whatif

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/state"
)

// RunTime returns for how long a Workload runs from its admission on, and where that is known from; for one that is running already, that
// is from ReservedAt on. The length does not count if the source is Unknown.
type RunTime func(*state.Workload) (length workload.Instant, from Source)

// Source is where a run time is known from. Other packages may have more of them.
type Source string

// The sources of run times.
const (
	Expected Source = "expected" // an estimate of its user
	Bound    Source = "atMost"   // only its maximum execution time is known
	Assumed  Source = "assumed"  // a default
	Unknown  Source = "unknown"  // it holds its quota up to the horizon
)

// Options are how the futures are run.
type Options struct {
	Now workload.Instant
	// Horizon is how far both futures go, above 0.
	Horizon workload.Instant
	// Grace is how long the pods of a preempted Workload take to end, above 0.
	Grace workload.Instant
	// RunTime returns the run times in both futures. RunTimeAfter, unless nil, returns those after the change.
	RunTime, RunTimeAfter RunTime
	// Both calls two functions, perhaps at the same time, and returns when both have; nil calls one after the other.
	Both func(a, b func())
	// Watch, unless nil, is called with the share of the work that is done, and ends it with ErrStopped by returning false. Where Both calls
	// at the same time, Watch must be able to be.
	Watch func(done float64) (goOn bool)
}

// CheckHorizon returns an error for a horizon that no user may ask for.
func CheckHorizon(horizon time.Duration) error {
	if horizon < time.Second || horizon > 366*24*time.Hour {
		return errors.New("must be from 1s to a year, as in 2h")
	}
	return nil
}

// ErrStopped is the error of Compare if Watch ends it.
var ErrStopped = errors.New("the what-if was stopped")

// Compare runs a State forward twice, once after the events of a change, and returns what is different. It changes neither the
// checkpoint nor the State that it is of. The error is ErrStopped, or that of a fork.
func Compare(base *state.Checkpoint, change []state.Event, o Options) (*Report, error) {
	return compareParts(foresight.Parts(base, change), o)
}

// compareParts is Compare for a checkpoint and a change in parts.
func compareParts(parts []*state.Checkpoint, o Options) (*Report, error) {
	var before, after *branch
	var failed, failedToo error
	both := o.Both
	if both == nil {
		both = func(a, b func()) { a(); b() }
	}
	changed := o
	if o.RunTimeAfter != nil {
		changed.RunTime = o.RunTimeAfter
	}
	both(func() { before, failed = newBranch(parts, false, &o, 0) }, func() { after, failedToo = newBranch(parts, true, &changed, 0.5) })
	if err := cmp.Or(failed, failedToo); err != nil {
		return nil, err
	}
	return report(before, after), nil
}

// branch is one future.
type branch struct {
	*Options
	s      *state.State     // of the present part
	end    workload.Instant // the horizon
	quotas map[pool]int64   // nominal, -1 without a limit
	// courses has the Workloads that run or are changed; all others wait. created has the Workloads that the change creates.
	courses map[string]*course
	created map[string]bool
	waiting int               // how many Workloads without a course wait
	sources map[string]Source // of the run times of the Workloads that run, by UID
	used    map[pool]float64
	totals  Totals
}

// pool is a resource of a flavor in a ClusterQueue.
type pool struct{ queue, flavor, resource string }

// never is a time that has not come within the horizon.
const never workload.Instant = -1

// course is what happens to one Workload.
type course struct {
	uid, namespace, name, localQueue string
	priority                         int64

	running bool // it holds quota at the beginning
	holds   bool // it holds quota now
	failed  bool // a node of it is out of order
	ended   bool // it is finished, replaced, deleted, or kept out of its queue

	started, preempted, again, moved, finished workload.Instant
	preemptions                                int32
	cause                                      Cause
	by                                         string // the preemptor

	since workload.Instant // it waits since then, unless it holds or has ended
	waits workload.Instant // in all, before since

	queue string // in which it holds
	held  []state.Held
}

// newBranch is the future of parts, after their changes if changed is set. It is half of the work, and begins when a share of that is done.
func newBranch(parts []*state.Checkpoint, changed bool, o *Options, done float64) (*branch, error) {
	b := &branch{
		Options: o, end: o.Now + o.Horizon, courses: map[string]*course{}, created: map[string]bool{}, sources: map[string]Source{},
		used: map[pool]float64{}, quotas: map[pool]int64{},
	}
	share := 0.5 / float64(len(parts))
	for i, p := range parts {
		began := done + share*float64(i)
		if o.Watch != nil && !o.Watch(began) {
			return nil, ErrStopped
		}
		s, err := p.Fork()
		if err != nil {
			return nil, err
		}
		b.s = s
		b.begin()
		if changed {
			b.change(p.Change())
		}
		if err := b.run(began, share); err != nil {
			return nil, err
		}
	}
	b.totals.Waiting = b.waiting
	for _, c := range b.courses { //berth:unordered sums
		if !c.holds && !c.ended {
			c.waits += b.end - c.since
			b.totals.Waiting++
		}
	}
	return b, nil
}

// begin begins the courses of the Workloads that hold quota in the present part, and counts the others.
func (b *branch) begin() {
	var reserved []state.Workload
	for def := range b.s.Overview() {
		switch {
		case def.Reserved:
			reserved = append(reserved, *def)
		case def.Queueable:
			b.waiting++
		}
	}
	slices.SortFunc(reserved, func(a, b state.Workload) int { return strings.Compare(a.UID, b.UID) }) // sums of fractions depend on their order
	for i := range reserved {
		b.join(&reserved[i])
	}
}

// join begins the course of a Workload.
func (b *branch) join(def *state.Workload) *course {
	runs := def.Reserved && !def.Evicting
	c := &course{
		uid: def.UID, namespace: def.Namespace, name: def.Name, localQueue: def.LocalQueue, priority: def.Priority,
		running: runs, failed: runs && len(def.Unhealthy) > 0, since: b.Now,
		started: never, preempted: never, again: never, moved: never, finished: never,
	}
	b.courses[def.UID] = c
	if runs {
		b.hold(c, def, b.Now)
	}
	return c
}

// change applies events, and follows their direct effects on Workloads.
func (b *branch) change(events []state.Event) {
	for _, e := range events {
		uid := state.UID(e)
		was, existed := b.s.Definition(uid)
		b.s.Apply(e)
		if uid == "" {
			continue
		}
		def, exists := b.s.Definition(uid)
		joined, joins := existed && (was.Reserved || was.Queueable), exists && (def.Reserved || def.Queueable)
		c := b.courses[uid]
		if c == nil && joined {
			c = b.join(&was)
			b.waiting--
		}
		switch {
		case joins && !joined:
			b.join(&def)
			b.created[uid] = true
		case joins:
			b.follow(c, &def)
		case joined:
			b.release(c, b.Now)
			c.ended = true
			if exists && c.running {
				c.preempted, c.cause, c.preemptions = b.Now, ByChange, 1
			}
		}
	}
}

// follow adapts the course of a Workload to a definition that a change gave to it.
func (b *branch) follow(c *course, def *state.Workload) {
	c.localQueue, c.priority, c.failed = def.LocalQueue, def.Priority, def.Reserved && len(def.Unhealthy) > 0
	runs := def.Reserved && !def.Evicting
	switch {
	case runs:
		b.release(c, b.Now)
		b.hold(c, def, b.Now)
	case c.holds:
		b.release(c, b.Now)
		c.since, c.preempted, c.cause, c.preemptions = b.Now, b.Now, ByChange, 1
	}
}

// run runs the present part up to the horizon. It is a share of the work, and begins when a share is done.
func (b *branch) run(done, share float64) error {
	rules, stopped := foresight.Rules{Runs: b.runs, Grace: b.Grace}, false
	if b.Watch != nil {
		rules.Stop = func(now workload.Instant) bool {
			stopped = stopped || !b.Watch(done+share*seconds(now-b.Now)/seconds(b.Horizon))
			return stopped
		}
	}
	f := foresight.New(b.s, b.Now, rules, b.seen)
	f.Advance(b.end)
	f.DecideAll()
	if stopped {
		return ErrStopped
	}
	for _, q := range b.s.QueueDefinitions() {
		addQuotas(b.quotas, &q)
	}
	return nil
}

func (b *branch) runs(def *state.Workload) workload.Instant {
	length, from := b.RunTime(def)
	b.sources[def.UID] = from
	if from == Unknown {
		return foresight.Never
	}
	return max(0, length)
}

func (b *branch) seen(m foresight.Moment) {
	c := b.courses[m.Def.UID]
	if c == nil {
		pending := *m.Def
		pending.Release()
		c = b.join(&pending)
		b.waiting--
	}
	switch m.Kind {
	case foresight.Started:
		b.start(c, m)
	case foresight.Preempted:
		b.totals.Preemptions++
		b.release(c, m.At)
		c.since = m.At
		c.preemptions++
		c.again = never
		if c.preemptions == 1 {
			c.preempted, c.cause = m.At, ByNodes
			if m.By != nil {
				c.cause, c.by = ByPreemption, m.By.Key()
			}
		}
	case foresight.Finished:
		b.totals.Finishes++
		b.release(c, m.At)
		c.finished, c.ended = m.At, true
	case foresight.Replaced:
		b.release(c, m.At)
		c.since, c.ended = m.At, m.Def.VariantOf == ""
	}
}

// start is a start, or that the pods of a Workload which holds quota have their places.
func (b *branch) start(c *course, m foresight.Moment) {
	if c.holds {
		if c.failed {
			c.failed, c.moved = false, m.At
		}
		return
	}
	b.totals.Starts++
	c.waits += m.At - c.since
	if c.started == never && !c.running {
		c.started = m.At
	}
	if c.preemptions > 0 {
		c.again = m.At
	}
	b.hold(c, m.Def, m.At)
}

// hold counts the quota of a Workload from a time on, up to the horizon.
func (b *branch) hold(c *course, def *state.Workload, at workload.Instant) {
	c.holds, c.queue, c.held = true, def.Queue, def.Held
	b.count(c, seconds(b.end-at))
}

// release takes back the use that hold counted for the time after at.
func (b *branch) release(c *course, at workload.Instant) {
	if c.holds {
		b.count(c, -seconds(b.end-at))
	}
	c.holds, c.held = false, nil
}

func (b *branch) count(c *course, length float64) {
	for _, h := range c.held {
		b.used[pool{c.queue, h.Flavor, h.Resource}] += float64(h.Amount) * length
	}
}

func seconds(d workload.Instant) float64 { return float64(d) / 1e9 }
