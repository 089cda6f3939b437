package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/workload"
)

// definition is a Workload as a record keeps it. What the record has anyway is not said
// twice: the UID and the name are in its core's value, the namespace and the LocalQueue are
// its lane, what it replaces it says itself, and its pod sets are a shape.
type definition struct {
	Version        uint64
	Generation     int64
	Priority       int64
	Created, Since workload.Instant
	Owner          string
	Problem        *workload.Problem
	shape          *shape
	*reservation   // of those that are Reserved; never nil

	Gated, Resting, Queueable, Told     bool
	Reserved, Admitted, Evicting, Ready bool
}

// reservation is what a Workload says about what it holds.
type reservation struct {
	Queue      string
	Held       []Held
	ReservedAt workload.Instant
}

// unreserved is the reservation of all that have none.
var unreserved reservation

// definition returns what is kept of a definition. It is a user of its shape, which was
// another one before, the same or none.
func (s *State) definition(def *Workload, before *shape) definition {
	d := definition{
		Version: def.Version, Generation: def.Generation, Priority: def.Priority, Created: def.Created, Since: def.Since,
		Owner: def.Owner, Problem: def.Problem, shape: s.joinShape(def.PodSets, before), reservation: &unreserved,
		Gated: def.Gated, Resting: def.Resting, Queueable: def.Queueable, Told: def.Told,
		Reserved: def.Reserved, Admitted: def.Admitted, Evicting: def.Evicting, Ready: def.Ready,
	}
	if def.Reserved {
		d.reservation = &reservation{def.Queue, def.Held, def.ReservedAt}
	}
	return d
}

// rests reports whether it would be in line but for a time that the outside knows.
func (d *definition) rests() bool { return d.Resting && d.Queueable && !d.Reserved }

// workload returns the definition of a record as it was given, but for what it said about a
// reservation that it does not have.
func (s *State) workload(r *record) Workload {
	d, name := &r.def, r.name()
	return Workload{
		UID: r.uid(), Namespace: name.Namespace, Name: name.Name, Version: d.Version, Generation: d.Generation,
		LocalQueue: r.lane.name.Name, Priority: d.Priority, Created: d.Created, Since: d.Since, PodSets: s.podSets(d.shape),
		Owner: d.Owner, Replaces: r.replaces, Gated: d.Gated, Problem: d.Problem, Resting: d.Resting, Queueable: d.Queueable, Told: d.Told,
		Reserved: d.Reserved, Admitted: d.Admitted, Evicting: d.Evicting, Ready: d.Ready,
		Queue: d.Queue, Held: d.Held, ReservedAt: d.ReservedAt,
	}
}

// past is what a record was before it was defined anew.
type past struct {
	def      definition
	lane     *localQueue
	replaces string
}

// samePlace reports whether nothing changed, since it was defined as before, that decisions
// depend on.
func (r *record) samePlace(before *past) bool {
	a, b := &before.def, &r.def
	if a.Reserved != b.Reserved || a.Priority != b.Priority || a.Since != b.Since || (a.Evicting && !b.Evicting) {
		return false
	}
	follows := before.replaces == r.replaces && a.Owner == b.Owner
	if b.Reserved { // what it asked for does not matter while it holds something
		return a.Queue == b.Queue && a.ReservedAt == b.ReservedAt && slices.Equal(a.Held, b.Held) && follows
	}
	return before.lane == r.lane && follows && b.shape == r.class.shape &&
		[...]bool{a.Gated, a.Resting, a.Queueable} == [...]bool{b.Gated, b.Resting, b.Queueable} && sameProblem(a.Problem, b.Problem)
}

func sameProblem(a, b *workload.Problem) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}
