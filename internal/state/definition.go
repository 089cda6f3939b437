package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/workload"
)

// definition is a Workload as a record stores it, without the parts that the record contains
// anyway: UID and name are in its core value, namespace and LocalQueue in lq, Replaces in
// replaces, and its pod sets are a shape.
type definition struct {
	Version        uint64
	Generation     int64
	Priority       int64
	Created, Since workload.Instant
	Owner          string
	Problem        *workload.Problem
	shape          *shape
	*reservation   // of a Reserved workload; never nil

	Gated, Resting, Queueable, Told     bool
	Reserved, Admitted, Evicting, Ready bool
}

// reservation is the reservation of a Workload.
type reservation struct {
	Queue      string
	Held       []Held
	ReservedAt workload.Instant
}

// unreserved is the reservation of all Workloads without one.
var unreserved reservation

// definition returns the stored form of a definition. It is a user of its shape; before is its
// former shape, the same or nil.
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

// rests reports whether it would be in line but for its backoff.
func (d *definition) rests() bool { return d.Resting && d.Queueable && !d.Reserved }

// workload returns the original definition of a record, without a reservation if it is not
// Reserved.
func (s *State) workload(r *record) Workload {
	d, name := &r.def, r.name()
	return Workload{
		UID: r.uid(), Namespace: name.Namespace, Name: name.Name, Version: d.Version, Generation: d.Generation,
		LocalQueue: r.lq.name.Name, Priority: d.Priority, Created: d.Created, Since: d.Since, PodSets: s.podSets(d.shape),
		Owner: d.Owner, Replaces: r.replaces, Gated: d.Gated, Problem: d.Problem, Resting: d.Resting, Queueable: d.Queueable, Told: d.Told,
		Reserved: d.Reserved, Admitted: d.Admitted, Evicting: d.Evicting, Ready: d.Ready,
		Queue: d.Queue, Held: d.Held, ReservedAt: d.ReservedAt,
	}
}

// past is a record before its new definition.
type past struct {
	def      definition
	lq       *localQueue
	replaces string
}

// samePlace reports whether no input of decisions changed since before.
func (r *record) samePlace(before *past) bool {
	a, b := &before.def, &r.def
	if a.Reserved != b.Reserved || a.Priority != b.Priority || a.Since != b.Since || (a.Evicting && !b.Evicting) {
		return false
	}
	follows := before.replaces == r.replaces && a.Owner == b.Owner
	if b.Reserved { // its requests do not matter while it holds quota
		return a.Queue == b.Queue && a.ReservedAt == b.ReservedAt && slices.Equal(a.Held, b.Held) && follows
	}
	return before.lq == r.lq && follows && b.shape == r.class.shape &&
		[...]bool{a.Gated, a.Resting, a.Queueable} == [...]bool{b.Gated, b.Resting, b.Queueable} && sameProblem(a.Problem, b.Problem)
}

func sameProblem(a, b *workload.Problem) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}
