package state

import (
	"iter"
	"maps"
	"slices"

	"github.com/berth-project/berth/internal/core/order"
)

// TakeGrant changes w as a written grant of a time does: it is admitted, unless checks are pending or places are to be found later.
func (w *Workload) TakeGrant(g *Grant, checks bool) {
	w.Reserved, w.Admitted, w.Queue, w.ReservedAt = true, !checks, g.Queue, g.At
	w.Held, w.Granted, w.Placed, w.Delayed = nil, nil, nil, nil
	for _, ps := range g.PodSets {
		w.SetGranted(ps.Name, ps.Count)
		if ps.Delayed {
			w.Delayed, w.Admitted, w.PlaceNow = append(w.Delayed, ps.Name), false, !checks
		}
		for _, h := range ps.Held {
			h.PodSet = ps.Name
			w.Held = append(w.Held, h)
		}
	}
	w.placed(g)
}

// SetGranted records the number of pods of a pod set that its reservation is for.
func (w *Workload) SetGranted(podSet string, count int32) {
	if slices.ContainsFunc(w.PodSets, func(ps PodSet) bool { return ps.Name == podSet && count < ps.Count }) {
		if w.Granted == nil {
			w.Granted = map[string]int32{}
		}
		w.Granted[podSet] = count
	}
}

// TakePlaces changes w as the written places of a second pass do.
func (w *Workload) TakePlaces(g *Grant) {
	w.Placed, w.Admitted, w.Delayed, w.PlaceNow, w.Unhealthy = nil, true, nil, false, nil
	w.placed(g)
}

func (w *Workload) placed(g *Grant) {
	for _, ps := range g.PodSets {
		if ps.Placement != nil {
			w.Placed = append(w.Placed, PodSetPlacement{PodSet: ps.Name, Placement: *ps.Placement})
		}
	}
}

// Release takes back what w holds, at the end of an eviction or of its work.
func (w *Workload) Release() {
	w.Reserved, w.Admitted, w.Ready, w.Evicting, w.Held = false, false, false, false, nil
	w.Granted, w.Placed, w.Delayed, w.PlaceNow, w.Unhealthy = nil, nil, nil, false, nil
}

// Definition returns the workload of a UID as it was set last; false if there is none.
func (s *State) Definition(uid string) (Workload, bool) {
	r := s.records[uid]
	if r == nil {
		return Workload{}, false
	}
	return r.def.workload(s.world.Table.Names()), true
}

// Overview returns the definitions of all workloads, in no order and without their pod sets. A value must not be kept after its turn.
func (s *State) Overview() iter.Seq[*Workload] {
	return func(yield func(*Workload) bool) {
		var none shape
		for _, r := range s.records { //berth:unordered callers sort what they keep
			d := *r.def
			d.shape = &none
			if def := d.workload(nil); !yield(&def) {
				return
			}
		}
	}
}

// QueueDefinitions returns the definitions of the ClusterQueues, in the order of their indexes.
func (s *State) QueueDefinitions() (out []Queue) {
	for q := range s.defined.queues.all() {
		out = append(out, *q.def)
	}
	return out
}

// UIDs returns the UIDs of all workloads, sorted.
func (s *State) UIDs() []string { return slices.Sorted(maps.Keys(s.records)) }

// HasLocalQueue reports whether a LocalQueue exists.
func (s *State) HasLocalQueue(namespace, name string) bool {
	l := s.localQueues[Name{namespace, name}]
	return l != nil && l.exists
}

// Queues returns the names of all ClusterQueues, sorted.
func (s *State) Queues() []string { return slices.Sorted(maps.Keys(s.queues)) }

// FirstInLine returns the UIDs of the first pending workloads of a ClusterQueue, at most so many, themselves in no order.
func (s *State) FirstInLine(queue string, most int) []string {
	q := s.queues[queue]
	if q == nil {
		return nil
	}
	all := q.q.Pending.All()
	if len(all) > most {
		slices.SortFunc(all, order.Compare)
		all = all[:most]
	}
	uids := make([]string, len(all))
	for i, w := range all {
		uids[i] = w.UID
	}
	return uids
}

// ReservedOrResting returns the UIDs of the workloads that have a reservation, or that are backed off, sorted.
func (s *State) ReservedOrResting() []string {
	var uids []string
	for uid, r := range s.records { //berth:unordered sorted below
		if r.def.Reserved || r.def.Resting {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// TakeUnwritten returns the admissions that are not written yet, by UID, for a copy of a State, which has no writers. It takes back other
// decisions that are not written, new places and evictions: the next step makes them again.
func (s *State) TakeUnwritten() (admissions []Grant) {
	var uids []string
	for uid, r := range s.records { //berth:unordered sorted below
		if r.assumed() || (r.wl.Evicting && !r.def.Evicting) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	for _, uid := range uids {
		r := s.records[uid]
		if r.wl.Evicting {
			s.Apply(EvictionFailed(uid))
		}
		switch {
		case !r.assumed():
		case r.def.Reserved:
			s.Apply(AdmissionFailed{uid, r.got.Version})
		default:
			queue := ""
			if q := s.quotaOf(r); q != nil {
				queue = q.Name
			}
			admissions = append(admissions, s.grantTo(r, r.wl, queue, r.got))
		}
	}
	return admissions
}
