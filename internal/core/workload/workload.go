// Package workload is the unit of queueing as plain values: what it asks for, where
// it stands in line, and what it holds.
package workload

import (
	"cmp"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
)

// Instant is a point in time in nanoseconds since the Unix epoch; 0 is "never".
type Instant int64

// Workload is one unit of queueing. Everything but the fields below Reservation is
// fixed between two events about it.
type Workload struct {
	UID      string
	Key      string // namespace/name
	Queue    int32  // index of its queue in the world, -1 while it has none
	Priority int64  // effective priority, higher first
	Created  Instant
	Since    Instant // queue timestamp: its place among equals. spec: 10 §4.4
	PodSets  []PodSet
	Class    int32 // equivalence class: equal classes get equal answers

	Reservation
}

// Reservation is what a workload holds of a queue's quota.
type Reservation struct {
	Reserved   bool
	ReservedAt Instant
	Usage      resource.Vector
	Evicting   bool // told to go, still holding its quota
	Slot       int  // its index among the holders of its queue, while Reserved
}

// PodSet is a number of equal pods.
type PodSet struct {
	Name        string
	Count       int32
	Requests    []Request // of all Count pods together, sorted by resource name
	Constraints *Constraints
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

// Before is the order of reservation from newest to oldest, ended by UID: who goes
// first when someone has to. spec: 10 §4.7.3.
func (w *Workload) Before(o *Workload) int {
	return cmp.Or(
		cmp.Compare(w.Priority, o.Priority),
		cmp.Compare(o.ReservedAt, w.ReservedAt),
		strings.Compare(w.UID, o.UID),
	)
}
