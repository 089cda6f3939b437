package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/workload"
)

// definition is a Workload as records store it, immutable: without UID, namespace and name, which the core value of its record
// contains, and with its pod sets as a shape.
type definition struct {
	Version        uint64
	Priority       int64
	Created, Since workload.Instant
	Bound          workload.Instant
	Owner          string
	r              *record // whose definition it is; only what never changes of it may be read
	localQueue     *Name   // of its localQueue
	shape          *shape
	*rare          // never nil

	Generation                         int32 // no object is changed 2³¹ times
	Resting, Queueable, Told, Reserved bool
}

// rare is what most definitions lack: the reservation of a Workload, and more.
type rare struct {
	Queue      string
	Held       []Held
	ReservedAt workload.Instant
	Replaces   string
	VariantOf  string
	Rank       int32
	Holds      bool
	Divisible  bool
	Problem    *workload.Problem
	MinRun     workload.Instant
	Granted    map[string]int32
	Placed     []PodSetPlacement
	Delayed    []string
	PlaceNow   bool
	Gated      bool
	Admitted   bool
	Evicting   bool
	Ready      bool
	Unhealthy  []string
	Updates    []PodSetUpdate
}

// nothing and divisible are what is rare of most definitions, and undefined is the definition of a blank record.
var (
	nothing   rare
	divisible = rare{Divisible: true}
	undefined = &definition{rare: &nothing}
)

// definition returns the stored form of a definition of a record. It is a user of its shape; before is its
// former shape, the same or nil.
func (s *State) definition(r *record, def *Workload, before *shape) *definition {
	d := &definition{
		Version: def.Version, Generation: int32(def.Generation), Priority: def.Priority, Created: def.Created, Since: def.Since,
		Bound: def.Bound, Owner: def.Owner, r: r, localQueue: &r.lq.name, shape: s.joinShape(def.PodSets, before), rare: &nothing,
		Resting: def.Resting, Queueable: def.Queueable, Told: def.Told, Reserved: def.Reserved,
	}
	switch {
	case def.Reserved:
		d.rare = &rare{
			def.Queue, def.Held, def.ReservedAt, def.Replaces, def.VariantOf, def.Rank, def.Holds, def.Divisible, def.Problem, def.MinRun,
			def.Granted, def.Placed, def.Delayed, def.PlaceNow, def.Gated, def.Admitted, def.Evicting, def.Ready, def.Unhealthy, def.Updates,
		}
	case def.Replaces != "" || def.VariantOf != "" || def.Problem != nil || def.MinRun != 0 || def.Gated || def.Admitted || def.Evicting || def.Ready:
		d.rare = &rare{
			Replaces: def.Replaces, VariantOf: def.VariantOf, Rank: def.Rank, Holds: def.Holds, Divisible: def.Divisible, Problem: def.Problem, MinRun: def.MinRun,
			Gated: def.Gated, Admitted: def.Admitted, Evicting: def.Evicting, Ready: def.Ready,
		}
	case def.Divisible:
		d.rare = &divisible
	}
	return d
}

// rests reports whether it would be in line but for its backoff.
func (d *definition) rests() bool { return d.Resting && d.Queueable && !d.Reserved }

// workload returns the original form of a definition, without a reservation if it is not Reserved. resources are the names of
// resources by number. It reads what never changes, and so may run while the State changes.
func (d *definition) workload(resources []string) Workload {
	name := d.r.name()
	return Workload{
		UID: d.r.uid(), Namespace: name.Namespace, Name: name.Name, Version: d.Version, Generation: int64(d.Generation),
		LocalQueue: d.localQueue.Name, Priority: d.Priority, Created: d.Created, Since: d.Since, PodSets: d.shape.definition(resources),
		Owner: d.Owner, Replaces: d.Replaces, VariantOf: d.VariantOf, Rank: d.Rank, Holds: d.Holds, Divisible: d.Divisible,
		Gated: d.Gated, Problem: d.Problem, MinRun: d.MinRun, Bound: d.Bound, Resting: d.Resting, Queueable: d.Queueable, Told: d.Told,
		Reserved: d.Reserved, Admitted: d.Admitted, Evicting: d.Evicting, Ready: d.Ready,
		Queue: d.Queue, Held: d.Held, ReservedAt: d.ReservedAt, Granted: d.Granted, Placed: d.Placed, Delayed: d.Delayed,
		PlaceNow: d.PlaceNow, Unhealthy: d.Unhealthy, Updates: d.Updates,
	}
}

// samePlace reports whether no input of decisions changed since an earlier definition.
func (r *record) samePlace(a *definition) bool {
	b := r.def
	if a.Reserved != b.Reserved || a.Priority != b.Priority || a.Since != b.Since || (a.Evicting && !b.Evicting) {
		return false
	}
	follows := a.Replaces == b.Replaces && a.Owner == b.Owner && sameVariant(a, b)
	if b.Reserved { // its requests do not matter while it holds quota
		return follows && b.holdsLike(a)
	}
	return a.localQueue == b.localQueue && follows && b.shape == r.class.shape && a.Bound == b.Bound &&
		[...]bool{a.Gated, a.Resting, a.Queueable, a.Divisible} == [...]bool{b.Gated, b.Resting, b.Queueable, b.Divisible} && sameProblem(a.Problem, b.Problem)
}

// holdsLike reports whether the reservation is that of an earlier definition. The usage of each pod matters on its node.
func (d *definition) holdsLike(a *definition) bool {
	return a.Queue == d.Queue && a.ReservedAt == d.ReservedAt && slices.Equal(a.Held, d.Held) && samePlaced(a.Placed, d.Placed) && (len(d.Placed) == 0 || a.shape == d.shape)
}

func sameProblem(a, b *workload.Problem) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}
