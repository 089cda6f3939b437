// Package workload is the unit of queueing as plain values: its requests, its place in line,
// and its reservation.
package workload

import (
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
)

// Instant is a point in time in nanoseconds since the Unix epoch; 0 is "never".
type Instant int64

// Workload is one unit of queueing. Everything but the fields below Reservation is
// fixed between two events about it.
type Workload struct {
	Scan *Scan // where its next search for flavors resumes; nil is at the first
	Reservation

	UID       string
	Key       string  // namespace/name
	Priority  int64   // effective priority, higher first
	Since     Instant // queue timestamp: its place among equals. spec: 10 §4.4
	PodSets   []PodSet
	Queue     int32 // index of its queue in the world, -1 while it has none
	Class     int32 // equivalence class: equal classes get equal answers
	HeapIndex int32 // its index in its class; set by package order
	Line      int32 // the number of its LocalQueue line; 0 where the lines of its queue have no standings, see package order

	// Record and Space are numbers by which the owner of the world finds its data of the
	// workload and of its namespace.
	Record, Space int32

	// Gated: it may not preempt others until its gates are open. spec: 20 §4.14.
	Gated bool
	// MayReplace: it is a slice of a job that may replace an earlier one.
	MayReplace bool
	// Variant: it is one of the variants of a job, of which one is admitted. spec: 20 §4.13.
	Variant bool

	// Problem is why it cannot be admitted whatever quota is free, nil for none.
	Problem *Problem

	// MinRun is how long it runs at least before it is preempted, unless no other victims suffice; 0 for no time.
	MinRun Instant

	// Bound is how long it runs at most from its reservation on, or will run from one; 0 for no bound.
	Bound Instant
}

// End is when a workload that holds quota ends at the latest, 0 if that is not known.
func (w *Workload) End() Instant {
	if w.Bound == 0 || w.ReservedAt == 0 {
		return 0
	}
	return w.ReservedAt + w.Bound
}

// Early reports whether a workload that holds quota has run for less than its MinRun at a time. An admission that may still be retracted has
// not started, and an eviction is not undone.
func (w *Workload) Early(now Instant) bool {
	return w.MinRun > 0 && now-w.ReservedAt < w.MinRun && !w.Evicting && !w.Tentative
}

// Problem is why a workload cannot be admitted: a reason as in trace.Reason, and a sentence.
type Problem struct{ Reason, Note string }

// Pin binds a resource of a pod set to a flavor-resource.
type Pin struct {
	PodSet string
	FR     resource.FR
}

// Scan remembers how far the last search for flavors got. It is memory only: a search
// without one starts at the first flavor. spec: 10 §4.6.5.
type Scan struct {
	Tried      []Tried // never empty
	Cycle      uint64  // the scheduling cycle it was made in
	Generation uint64  // of its queue, see cycle.Queue
	Rounds     int32   // failed evaluations since it last started at the first flavor
}

// Tried records that, for one group of pod sets, the flavors of one resource group were tried
// up to but without Next, and that there are more.
type Tried struct {
	PodSets int16 // index of the group of pod sets, in order of first appearance
	Group   int16 // index of the resource group
	Next    int32 // index of the first flavor not tried
}

// Reservation is what a workload holds.
type Reservation struct {
	Reserved  bool
	Evicting  bool // being evicted, still holding its quota
	Ready     bool // all its pods are
	Gone      bool // out of the ledger for the rest of a cycle
	Tentative bool // admitted in a run that has not ended: the admission may be retracted
	// Retractions counts the admissions retracted in this run.
	Retractions uint8
	ReservedAt  Instant
	Usage       ledger.Usage
}

// Want is the amount of one FR that one flavor requires for a pending workload. The wants of
// an offer are needed together, the offers of a clause are alternatives, and all clauses have
// to be met. Wants of one offer, and offers of one clause, are adjacent; numbers only
// distinguish neighbors. An FR is in one offer of a clause at most.
type Want struct {
	Least    resource.Amount
	FR       resource.FR
	Offer    uint16
	Clause   uint8
	Winnable bool // preemption may win the missing part
}

// PodSet is a number of equal pods.
type PodSet struct {
	Name        string
	Count       int32
	MinCount    int32     // may be admitted with as few as that; 0 for all or nothing
	Group       string    // pod sets of one group get the same flavors; "" is a group of its own
	Requests    []Request // of all Count pods together, sorted by resource name
	Constraints *Constraints
	// PerPod is the usage of one pod on its node: one of the resource pods, and its requests before
	// transformations. Topology is the request for places; nil is none. Both matter only on flavors
	// with a topology. spec: 20 §4.5.
	PerPod   []Request
	Topology *Topology
	// Elastic: its job is resized while it runs, and keeps the places of its pods. Earlier is where the pods of the
	// slice that it replaces are placed, during an evaluation. spec: 20 §4.11.
	Elastic bool
	Earlier *trace.Placement
}

// Topology is an explicit request for places. At most one of Required and Preferred is set; without
// both, any places will do. spec: 20 §2.3.
type Topology struct {
	Required, Preferred string       // the level in one of whose domains all pods have to be, or should be
	Slices              []SliceLayer // the outermost first
	Affinity            []WeightedTerm
}

// SliceLayer cuts the pods into groups of a size, each in one domain of a level.
type SliceLayer struct {
	Level string
	Size  int32
}

// WeightedTerm is a preference for nodes.
type WeightedTerm struct {
	Weight int32
	Term   Term
}

// Equal reports whether o is the same request.
func (t *Topology) Equal(o *Topology) bool {
	return t == o || (t != nil && o != nil && t.Required == o.Required && t.Preferred == o.Preferred && slices.Equal(t.Slices, o.Slices) &&
		slices.EqualFunc(t.Affinity, o.Affinity, func(a, b WeightedTerm) bool {
			return a.Weight == b.Weight && slices.EqualFunc(a.Term, b.Term, func(a, b Expr) bool {
				return a.Key == b.Key && a.Op == b.Op && slices.Equal(a.Values, b.Values)
			})
		}))
}

// Levels returns the levels that a flavor must have.
func (t *Topology) Levels() []string {
	var levels []string
	for _, level := range []string{t.Required, t.Preferred} {
		if level != "" {
			levels = append(levels, level)
		}
	}
	for _, l := range t.Slices {
		levels = append(levels, l.Level)
	}
	return levels
}

// Least is the least number of pods that may be admitted. Fewer than one whole slice would get no places.
func (p *PodSet) Least() int32 {
	if p.MinCount <= 0 {
		return p.Count
	}
	least := p.MinCount
	if t := p.Topology; t != nil && len(t.Slices) > 0 {
		least = max(least, t.Slices[0].Size)
	}
	return min(least, p.Count)
}

// Scaled is the pod set with another number of pods: each request is divided by the old
// count and multiplied by the new one. spec: 10 §4.6.1.
func (p PodSet) Scaled(count int32) PodSet {
	if count == p.Count || p.Count <= 0 {
		return p
	}
	requests := make([]Request, len(p.Requests))
	for i, r := range p.Requests {
		requests[i] = Request{r.Resource, r.Amount.Scale(p.Count, count)}
	}
	p.Count, p.Requests = count, requests
	return p
}

// Request is an amount of one resource, whatever its flavor.
type Request struct {
	Resource resource.ID
	Amount   resource.Amount
}

// Split returns the namespace and the name of its Key.
func (w *Workload) Split() (namespace, name string) {
	namespace, name, _ = strings.Cut(w.Key, "/")
	return namespace, name
}
