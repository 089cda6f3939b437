package state

import (
	"fmt"
	"maps"
	"slices"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Snapshot is a whole State as plain data: from it a State can be made that decides
// exactly as this one would.
type Snapshot struct {
	Options     Options
	Resources   []string        // in the order of their numbers
	Pairs       []resource.Pair // likewise
	Namespaces  []Namespace
	Flavors     []flavor.Flavor
	Cohorts     []Cohort
	Queues      []Queue // in the order of their indexes
	LocalQueues []LocalQueue
	Workloads   []WorkloadMemory
	Memory      cycle.Memory
}

// WorkloadMemory is a workload with the state that its definition does not contain.
type WorkloadMemory struct {
	Def      Workload
	Assumed  *flavor.Holding  `json:",omitempty"` // its admission, not written yet
	In       string           `json:",omitempty"` // the ClusterQueue of that admission
	At       workload.Instant `json:",omitempty"` // the time of the admission,
	Priority int64            `json:",omitempty"` // its priority then
	Since    workload.Instant `json:",omitempty"` // and its queue timestamp
	Evicting bool             `json:",omitempty"`
	// The last decision.
	Verdict trace.Verdict  `json:",omitempty"`
	Reason  trace.Reason   `json:",omitempty"`
	Note    string         `json:",omitempty"`
	Victims []trace.Victim `json:",omitempty"`
}

// Snapshot returns s as data, which shares immutable values with it. Call it after a step that
// left nothing to do.
func (s *State) Snapshot() *Snapshot {
	s.world.ApplyEdits()
	out := &Snapshot{Options: s.options, Memory: s.world.Remember()}
	out.Resources, out.Pairs = s.world.Table.Names(), s.world.Table.Pairs()
	for _, name := range slices.Sorted(maps.Keys(s.namespaces)) {
		if n := s.spaces.All[s.namespaces[name]]; n.exists {
			out.Namespaces = append(out.Namespaces, Namespace{name, n.labels})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.flavors)) {
		if f := s.flavors[name]; !f.Missing {
			out.Flavors = append(out.Flavors, *f)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.cohorts)) {
		if c := s.cohorts[name]; c.def != nil {
			out.Cohorts = append(out.Cohorts, *c.def)
		}
	}
	for _, q := range s.world.Queues {
		if q != nil {
			out.Queues = append(out.Queues, s.queues[q.Name].def)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.localQueues), Name.compare) {
		if l := s.localQueues[name]; l.exists {
			out.LocalQueues = append(out.LocalQueues, l.def)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(s.records)) {
		r := s.records[uid]
		m := WorkloadMemory{Def: s.workload(r), Evicting: r.wl.Evicting}
		if r.assumed() {
			m.Assumed, m.At, m.Priority, m.Since = r.got, r.wl.ReservedAt, r.wl.Priority, r.wl.Since
			if q := s.quotaOf(r); q != nil {
				m.In = q.Name
			}
		}
		if r.said != nil {
			m.Verdict, m.Reason, m.Note, m.Victims = r.said.verdict, r.said.reason, r.said.note, r.said.victims
		}
		out.Workloads = append(out.Workloads, m)
	}
	return out
}

// Restore makes a State of a snapshot.
func Restore(from *Snapshot) (*State, error) {
	s := New(from.Options)
	for _, name := range from.Resources {
		s.world.Table.ID(name)
	}
	for _, p := range from.Pairs {
		s.world.Table.FR(p.Flavor, p.Resource)
	}
	for _, n := range from.Namespaces {
		s.SetNamespace(n.Name, n.Labels)
	}
	for _, f := range from.Flavors {
		s.SetFlavor(f)
	}
	for _, c := range from.Cohorts {
		s.SetCohort(c)
	}
	for _, q := range from.Queues {
		s.SetQueue(q)
	}
	for _, l := range from.LocalQueues {
		s.SetLocalQueue(l)
	}
	for i := range from.Workloads {
		if err := s.recall(&from.Workloads[i]); err != nil {
			return nil, fmt.Errorf("workload %s: %w", from.Workloads[i].Def.Key(), err)
		}
	}
	s.notices = nil
	s.Touched() // the copy starts without touched queues
	err := s.world.Recall(from.Memory, func(uid string) *workload.Workload {
		if r := s.records[uid]; r != nil {
			return r.wl
		}
		return nil
	})
	return s, err
}

// recall places a workload as it was.
func (s *State) recall(m *WorkloadMemory) error {
	r := s.newRecord(m.Def.UID, m.Def.Key())
	if m.Verdict != "" {
		s.say(r, said{m.Verdict, m.Reason, m.Note, m.Victims})
	}
	s.define(r, &m.Def)
	if m.Assumed == nil {
		r.wl = &workload.Workload{Reservation: workload.Reservation{Evicting: m.Evicting}}
		s.place(r, s.quotaOf(r))
		return nil
	}
	s.intern(r)
	r.got = m.Assumed
	if m.In == "" {
		return nil // its queue was deleted
	}
	q := s.queues[m.In]
	if q == nil {
		return fmt.Errorf("it was admitted to ClusterQueue %s, which is not there", m.In)
	}
	r.wl.Queue, r.wl.ReservedAt, r.wl.Evicting = q.q.Index, m.At, m.Evicting
	r.wl.Priority, r.wl.Since = m.Priority, m.Since
	s.charge(r)
	s.updateRelated(r, nil)
	return nil
}
