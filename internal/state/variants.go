package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/workload"
)

// A variant is a Workload of a job that may get one flavor. Of the variants of a job one is admitted: the first, or the one
// with the most preferred flavor. While the engine's admission of one is not written, the others wait. Several may hold quota while
// their admission checks go on; then the engine grants quota only, and the controller of variants admits one of them. While one is
// admitted, another one that fits gets no quota before that one was evicted and has left. spec: 20 §4.13.

// sameVariant reports whether two definitions have the same place among the variants of a job.
func sameVariant(a, b *definition) bool { return a.VariantOf == b.VariantOf && a.Rank == b.Rank }

// siblings is the key of a record's variants in the index. It has one.
func (r *record) siblings() Name { return Name{r.name().Namespace, r.def.VariantOf} }

// joinVariants adds a record to the variants of its job, if it is one.
func (s *State) joinVariants(r *record) {
	if r.def.VariantOf != "" {
		s.variants[r.siblings()] = append(s.variants[r.siblings()], r)
	}
}

// leaveVariants removes a record from the variants of its job.
func (s *State) leaveVariants(r *record) {
	if r.def.VariantOf == "" {
		return
	}
	key := r.siblings()
	if s.variants[key] = slices.DeleteFunc(s.variants[key], func(o *record) bool { return o == r }); len(s.variants[key]) == 0 {
		delete(s.variants, key)
	}
}

// isDivided reports whether the variants of a pending workload are queued in its place, given its queue or nil.
func (r *record) isDivided(q *queue) bool { return q != nil && q.def.Variants && r.def.Divisible }

// barredBySibling returns why a variant waits for others of its job, "" if it need not.
func (s *State) barredBySibling(w *workload.Workload) (note string) {
	r := s.records[w.UID]
	if r == nil || r.def.VariantOf == "" {
		return ""
	}
	for _, o := range s.variants[r.siblings()] {
		switch {
		case o == r || o.wl == nil:
		case o.wl.Reserved && !o.def.Reserved:
			return "another variant of its job is being admitted"
		case !o.isRunning() || s.mayMigrate(r, o):
		case o.wl.Evicting:
			note = "the variant that its job runs on is being stopped"
		case o.def.Rank < r.def.Rank:
			note = "a variant of its job with a preferred flavor is admitted"
		default:
			note = "another variant of its job is admitted, and the policy of the ClusterQueue allows no migration to this flavor"
		}
	}
	return note
}

// isRunning reports whether a variant is admitted and has not released its quota.
func (r *record) isRunning() bool { return r.def.Reserved && r.def.Admitted }

// mayMigrate reports whether the job of a variant may migrate to it from the one that it runs on.
func (s *State) mayMigrate(to, from *record) bool {
	return to.def.Rank < from.def.Rank && to.in != nil && from.in != nil && to.def.Rank < s.byIndex[to.in.Index].def.MigratesTo
}

// migrating returns the variant from which the job of another one migrates, none if it does not run.
func (s *State) migrating(w *workload.Workload) (leaving []preempt.Victim) {
	r := s.records[w.UID]
	if r == nil || r.def.VariantOf == "" {
		return nil
	}
	for _, o := range s.variants[r.siblings()] {
		if o != r && o.wl != nil && o.isRunning() && s.mayMigrate(r, o) {
			leaving = append(leaving, preempt.Victim{Workload: o.wl, Node: o.in.Node, Reason: preempt.Migration})
		}
	}
	return leaving
}

// isContested reports whether another variant of a record's job holds a reservation.
func (s *State) isContested(r *record) bool {
	return r != nil && r.def.VariantOf != "" && slices.ContainsFunc(s.variants[r.siblings()], func(o *record) bool {
		return o != r && o.def.Holds
	})
}

// barring is what of a variant bars others.
type barring struct{ reserved, written, admitted, evicting bool }

func (r *record) barring() barring {
	if r.def.VariantOf == "" || r.wl == nil {
		return barring{}
	}
	return barring{r.wl.Reserved, r.def.Reserved, r.def.Admitted, r.wl.Evicting}
}

// requeueBarred evaluates the variants of a record's job again that may be barred otherwise than before.
func (s *State) requeueBarred(r *record, before barring) {
	if r.def.VariantOf == "" || r.barring() == before {
		return
	}
	for _, o := range s.variants[r.siblings()] {
		if o != r && o.in != nil && !o.wl.Reserved && s.world.EvaluateAgain(o.wl) {
			s.read.touch(o)
		}
	}
}
