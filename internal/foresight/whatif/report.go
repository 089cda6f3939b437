package whatif

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// Effect is what a change does to a Workload.
type Effect string

// The effects, in the order of a Report.
const (
	// Evicted: it is preempted or evicted within the horizon, and would not be.
	Evicted Effect = "preempted"
	// NotStarted: it does not start within the horizon, and would.
	NotStarted Effect = "notStarted"
	// Stranded: a node of it fails, and there is no replacement within the horizon.
	Stranded Effect = "stranded"
	Later    Effect = "later" // it waits longer
	// Moved: a node of it fails, and its pods there get another one.
	Moved   Effect = "moved"
	New     Effect = "new"     // the change creates it, or lets it join its queue
	Removed Effect = "removed" // the change deletes it, or keeps it out of its queue
	Starts  Effect = "starts"  // it starts within the horizon, and would not
	Earlier Effect = "earlier" // it waits less
	// Shifted: it starts or is preempted at another time, and waits as long in all.
	Shifted Effect = "shifted"
	// Spared: it is not preempted within the horizon, and would be.
	Spared Effect = "spared"
)

var effects = []Effect{Evicted, NotStarted, Stranded, Later, Moved, New, Removed, Starts, Earlier, Shifted, Spared}

// Cause is why a Workload loses its quota.
type Cause string

// The causes.
const (
	ByPreemption Cause = "preemption"
	ByNodes      Cause = "nodes"  // a failed node of it has no replacement
	ByChange     Cause = "change" // the change itself evicts it
)

// Report is the differences between two futures. Times are in seconds from the beginning.
type Report struct {
	Horizon float64 `json:"horizonSeconds"`
	Before  Totals  `json:"before"`
	After   Totals  `json:"after"`
	// RunTimes is how many Workloads run in either future, by the source of their run times.
	RunTimes  map[Source]int `json:"runTimes"`
	Workloads []Workload     `json:"workloads"`
	Use       []Use          `json:"use"`
}

// Totals are the sums of one future.
type Totals struct {
	Starts      int `json:"starts"`
	Finishes    int `json:"finishes"`
	Preemptions int `json:"preemptions"` // also those by failed nodes
	Waiting     int `json:"waiting"`     // at the horizon
}

// Workload is what a change does to a Workload.
type Workload struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	LocalQueue string `json:"localQueue"`
	Priority   int64  `json:"priority"`
	Effect     Effect `json:"effect"`
	// Longer is by how much longer it waits within the horizon, below 0 for less. AtLeast: it waits, in one of the futures, beyond that.
	Longer  float64 `json:"waitsLongerSeconds"`
	AtLeast bool    `json:"atLeast,omitempty"`
	Before  *Course `json:"before,omitempty"` // nil where it does not exist
	After   *Course `json:"after,omitempty"`

	uid string
}

// Course is what happens to a Workload in one future.
type Course struct {
	Running bool     `json:"running"` // it holds quota at the beginning
	Starts  *float64 `json:"startsAfterSeconds,omitempty"`
	// Preempted is its first preemption or eviction, with its cause and the preemptor as namespace/name. StartsAgain is the start after the
	// last one.
	Preempted   *float64 `json:"preemptedAfterSeconds,omitempty"`
	Cause       Cause    `json:"cause,omitempty"`
	By          string   `json:"by,omitempty"`
	Preemptions int32    `json:"preemptions,omitempty"`
	StartsAgain *float64 `json:"startsAgainAfterSeconds,omitempty"`
	Moved       *float64 `json:"movedAfterSeconds,omitempty"` // when its pods have another node
	Finishes    *float64 `json:"finishesAfterSeconds,omitempty"`
	Waits       float64  `json:"waitsSeconds"` // within the horizon
	Waiting     bool     `json:"waitingAtHorizon"`
}

// Use is the mean use of a quota up to the horizon. Amounts are in the engine's unit: thousandths of cpu, whole units of others.
type Use struct {
	ClusterQueue string   `json:"clusterQueue"`
	Flavor       string   `json:"flavor"`
	Resource     string   `json:"resource"`
	Before       Fraction `json:"before"`
	After        Fraction `json:"after"`
}

// Fraction is a mean amount in use, and the nominal quota: 0 for none, -1 for one without a limit.
type Fraction struct {
	Used  float64 `json:"used"`
	Quota int64   `json:"quota"`
}

func report(before, after *branch) *Report {
	r := &Report{Horizon: seconds(before.Horizon), Before: before.totals, After: after.totals, RunTimes: map[Source]int{}, Workloads: []Workload{}}
	maps.Copy(before.sources, after.sources)
	for _, from := range before.sources { //berth:unordered sums
		r.RunTimes[from]++
	}
	add := func(uid string) {
		b, a := before.courses[uid], after.courses[uid]
		if w, differs := compare(b.or(a), a.or(b), after.created[uid], after.Now, after.end); differs {
			r.Workloads = append(r.Workloads, w)
		}
	}
	for uid := range after.courses { //berth:unordered sorted below
		add(uid)
	}
	for uid := range before.courses { //berth:unordered sorted below
		if after.courses[uid] == nil {
			add(uid)
		}
	}
	slices.SortFunc(r.Workloads, compareWorkloads)
	r.Use = uses(before, after)
	return r
}

func compareWorkloads(a, b Workload) int {
	return cmp.Or(
		cmp.Compare(slices.Index(effects, a.Effect), slices.Index(effects, b.Effect)), cmp.Compare(math.Abs(b.Longer), math.Abs(a.Longer)),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.uid, b.uid),
	)
}

// runsAtLast reports whether its last wait ends within the horizon.
func (c *course) runsAtLast() bool { return c.holds || c.finished != never }

// isOut reports whether it is deleted, replaced or kept out of its queue.
func (c *course) isOut() bool { return c.ended && c.finished == never }

// or returns the course or, where a Workload has none, that of one which waits all the time, with the names of another course.
func (c *course) or(other *course) *course {
	if c != nil {
		return c
	}
	return &course{
		uid: other.uid, namespace: other.namespace, name: other.name, localQueue: other.localQueue, priority: other.priority, since: never,
		started: never, preempted: never, again: never, moved: never, finished: never,
	}
}

// compare returns what is different for a Workload; created: the change creates it.
func compare(before, after *course, created bool, now, end workload.Instant) (w Workload, differs bool) {
	for _, c := range []*course{before, after} {
		if c.since == never {
			c.since, c.waits = now, end-now
		}
	}
	effect := effectOf(before, after, created)
	if effect == "" {
		return w, false
	}
	w = Workload{
		Namespace: after.namespace, Name: after.name, LocalQueue: after.localQueue, Priority: after.priority, Effect: effect,
		After: after.export(now), uid: after.uid,
	}
	if effect != New {
		w.Before = before.export(now)
		w.Longer = seconds(after.waits - before.waits)
		w.AtLeast = w.Longer != 0 && (w.Before.Waiting || w.After.Waiting)
	}
	if effect == Removed {
		w.After, w.Longer, w.AtLeast = nil, 0, false
	}
	return w, true
}

// effectOf returns the effect of a change on a Workload, "" for none.
func effectOf(before, after *course, created bool) Effect {
	begins := func(was, is bool) bool { return is && !was }
	switch {
	case created:
		return New
	case begins(before.preemptions > 0, after.preemptions > 0):
		return Evicted
	case begins(before.isOut(), after.isOut()):
		return Removed
	case begins(after.runsAtLast(), before.runsAtLast()):
		return NotStarted
	case begins(before.failed, after.failed):
		return Stranded
	case begins(before.moved != never, after.moved != never):
		return Moved
	case begins(after.preemptions > 0, before.preemptions > 0):
		return Spared
	case begins(before.runsAtLast(), after.runsAtLast()):
		return Starts
	case after.waits > before.waits:
		return Later
	case after.waits < before.waits:
		return Earlier
	case after.started != before.started, after.preempted != before.preempted, after.again != before.again:
		return Shifted
	}
	return ""
}

func (c *course) export(now workload.Instant) *Course {
	at := func(t workload.Instant) *float64 {
		if t == never {
			return nil
		}
		return new(seconds(t - now))
	}
	return &Course{
		Running: c.running, Starts: at(c.started), Preempted: at(c.preempted), Cause: c.cause, By: c.by, Preemptions: c.preemptions,
		StartsAgain: at(c.again), Moved: at(c.moved), Finishes: at(c.finished), Waits: seconds(c.waits), Waiting: !c.holds && !c.ended,
	}
}

// uses returns the use of all quotas, and of what is used beside a quota, by names.
func uses(before, after *branch) []Use {
	all := map[pool]*Use{}
	of := func(p pool) *Use {
		if all[p] == nil {
			all[p] = &Use{ClusterQueue: p.queue, Flavor: p.flavor, Resource: p.resource}
		}
		return all[p]
	}
	for _, side := range []struct {
		*branch
		of func(*Use) *Fraction
	}{{before, func(u *Use) *Fraction { return &u.Before }}, {after, func(u *Use) *Fraction { return &u.After }}} {
		length := seconds(side.Horizon)
		for p, amount := range side.used { //berth:unordered sorted below
			if mean := amount / length; mean > 1e-9 { // else an error of rounding
				side.of(of(p)).Used = mean
			}
		}
		for p, nominal := range side.quotas { //berth:unordered sorted below
			side.of(of(p)).Quota = nominal
		}
	}
	out := make([]Use, 0, len(all))
	for _, u := range all { //berth:unordered sorted below
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b Use) int {
		return cmp.Or(strings.Compare(a.ClusterQueue, b.ClusterQueue), strings.Compare(a.Flavor, b.Flavor), strings.Compare(a.Resource, b.Resource))
	})
	return out
}

// addQuotas adds the nominal quotas of a ClusterQueue.
func addQuotas(to map[pool]int64, q *state.Queue) {
	for _, g := range q.Groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				nominal := int64(r.Nominal)
				if r.Nominal >= resource.Unlimited {
					nominal = -1
				}
				to[pool{q.Name, f.Flavor, r.Resource}] = nominal
			}
		}
	}
}
