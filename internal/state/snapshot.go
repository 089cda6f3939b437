package state

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/topology"
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
	NodesMemory
	Usage sharing.Memory `json:",omitzero"`
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
	Start   *trace.Start   `json:",omitempty"`
}

// Checkpoint is a State at one moment: copies of what changes, and references to what does not.
type Checkpoint struct {
	options   Options
	resources []string
	pairs     []resource.Pair
	defined   catalog
	usage     sharing.Memory
	workloads []*page
	lines     [][]*workloadCheckpoint // of a part, in place of workloads: by LocalQueue
	number    int                     // of workloads
	shapes    int                     // their number, about
	classes   int                     // likewise
	bounded   bool                    // some queue reserves starts
	change    []Event                 // of a part, see Parts
	ground    *NodesMemory            // of a part, for all its forks; else nil
	notices   []cycle.Decision
	world     *cycle.Checkpoint
	nodes     topology.Nodes
	measured  []topology.Measured
	second    []secondPassMemory
}

// Checkpoint copies s, which costs some words for each queue and inadmissible class, and without a recorder for each workload. Call it
// when the last step has left nothing to do.
func (s *State) Checkpoint() *Checkpoint {
	c := s.BeginCheckpoint()
	s.ContinueCheckpoint(math.MaxInt)
	return c
}

// ContinueCheckpoint goes on with the checkpoint that was begun last, for about so many inadmissible classes, and reports whether there is
// more to do.
func (s *State) ContinueCheckpoint(classes int) (more bool) {
	if s.begun != nil && !s.begun.world.Continue(classes) {
		s.begun = nil
	}
	return s.begun != nil
}

// BeginCheckpoint begins a checkpoint of s as it is now, which costs some words for each queue, and without a recorder for each workload.
// It can be used once it is Done; events may come before and between, which pay for the classes that they
// change. One that was begun earlier is completed first. Call it when the last step has left nothing to do.
func (s *State) BeginCheckpoint() *Checkpoint {
	s.ContinueCheckpoint(math.MaxInt)
	c := &Checkpoint{
		options: s.options, defined: s.defined, world: s.world.Checkpoint(), resources: s.world.Table.Names(), pairs: s.world.Table.Pairs(),
		usage: s.usageMemory(), number: len(s.records), shapes: len(s.shapes), classes: len(s.classes), bounded: s.backfilling > 0,
	}
	s.begun = c
	if s.places != nil {
		c.nodes, c.measured, c.second = s.places.Nodes(), s.places.Measured(), s.secondPasses()
	}
	for _, d := range s.notices {
		if s.isTrue(&d) {
			c.notices = append(c.notices, d)
		}
	}
	if s.flight != nil {
		c.workloads = s.flight.shareRecords(s)
	} else {
		c.workloads = s.copyRecords().table
	}
	return c
}

// Done reports whether the checkpoint is complete.
func (c *Checkpoint) Done() bool { return c.world.Done() }

// Snapshot returns the State as data, without the notices that a step would return. It may be called in any goroutine, while the State
// changes.
func (c *Checkpoint) Snapshot() *Snapshot {
	out := c.withoutWorkloads()
	out.Memory = c.world.Memory(c.scans())
	out.Workloads = slices.AppendSeq(make([]WorkloadMemory, 0, c.number), c.memories())
	return out
}

func (c *Checkpoint) withoutWorkloads() *Snapshot {
	queues := make([]Queue, 0, c.defined.queues.Len())
	for q := range c.defined.queues.all() {
		queues = append(queues, *q.def)
	}
	return &Snapshot{
		Options: c.options, Resources: slices.Clone(c.resources), Pairs: slices.Clone(c.pairs), Queues: queues,
		Namespaces: definitions(c.defined.namespaces), Flavors: definitions(c.defined.flavors), Cohorts: definitions(c.defined.cohorts),
		LocalQueues: definitions(c.defined.localQueues), NodesMemory: c.nodesMemory(), Usage: c.usageInOrder(),
	}
}

func (c *Checkpoint) nodesMemory() NodesMemory {
	if c.ground != nil {
		return *c.ground
	}
	return rememberNodes(c.nodes, c.measured, c.second, c.resources)
}

// scans returns where the searches for flavors resume, by UID: numbers of records are not the same in copies.
func (c *Checkpoint) scans() (scans []cycle.ScanMemory) {
	for w := range c.records() {
		if w.rare != nil && w.rare.scan != nil {
			scans = append(scans, c.world.Scan(w.def.r.uid(), w.rare.scan, w.rare.queue))
		}
	}
	slices.SortFunc(scans, func(a, b cycle.ScanMemory) int { return strings.Compare(a.UID, b.UID) })
	return scans
}

// memories returns the workloads by UID.
func (c *Checkpoint) memories() iter.Seq[WorkloadMemory] {
	sorted := slices.SortedFunc(c.records(), func(a, b *workloadCheckpoint) int { return strings.Compare(a.def.r.uid(), b.def.r.uid()) })
	return func(yield func(WorkloadMemory) bool) {
		for _, w := range sorted {
			if !yield(c.memory(w)) {
				return
			}
		}
	}
}

func (c *Checkpoint) memory(w *workloadCheckpoint) WorkloadMemory {
	m := WorkloadMemory{Def: w.def.workload(c.resources)}
	if w.rare != nil {
		m.Evicting = w.rare.evicting
		if w.rare.assumed != nil {
			m.Assumed, m.In, m.At, m.Priority, m.Since = w.rare.assumed, c.world.QueueName(w.rare.queue), w.rare.at, w.rare.priority, w.rare.since
		}
	}
	if w.said != nil {
		m.Verdict, m.Reason, m.Note, m.Victims, m.Start = w.said.verdict, w.said.reason, w.said.note, w.said.victims, w.said.start
	}
	return m
}

// Restore makes a State of a snapshot.
func Restore(from *Snapshot) (*State, error) {
	s := newRestored(from, len(from.Workloads))
	for i := range from.Workloads {
		w := &from.Workloads[i]
		if err := s.recall(w); err != nil {
			return nil, fmt.Errorf("workload %s: %w", w.Def.Key(), err)
		}
	}
	s.restored()
	return s, s.world.Recall(from.Memory, s.workload)
}

// newRestored makes a State of a snapshot, for n workloads, which follow.
func newRestored(from *Snapshot, n int) *State {
	s := New(from.Options)
	s.records = make(map[string]*record, n)
	for _, name := range from.Resources {
		s.world.Table.ID(name)
	}
	for _, p := range from.Pairs {
		s.world.Table.FR(p.Flavor, p.Resource)
	}
	for _, n := range from.Namespaces {
		s.Apply(SetNamespace(n))
	}
	if s.places != nil {
		s.places.Reserve(len(from.Nodes))
	}
	for _, f := range from.Foreign {
		s.Apply(f)
	}
	for _, n := range from.Nodes {
		s.Apply(n)
	}
	for _, f := range from.Flavors { // after the nodes: a tree of all its nodes at once costs half
		s.Apply(SetFlavor(f))
	}
	for _, c := range from.Cohorts {
		s.Apply(SetCohort(c))
	}
	if s.places != nil {
		s.places.RestoreMeasures(from.Measured)
	}
	for _, q := range from.Queues {
		s.Apply(SetQueue(q))
	}
	for _, l := range from.LocalQueues {
		s.Apply(SetLocalQueue(l))
	}
	s.restoreUsage(&from.Usage)
	for _, m := range from.Second {
		if s.second == nil {
			s.second = map[string]*secondPass{}
		}
		s.second[m.UID] = &secondPass{m.Due, m.Failed}
	}
	return s
}

// restored ends the restoring of workloads.
func (s *State) restored() {
	s.notices = nil
	s.Touched() // the copy starts without touched queues
}

// workload returns the core's value of the workload of a UID, or nil.
func (s *State) workload(uid string) *workload.Workload {
	if r := s.records[uid]; r != nil {
		return r.wl
	}
	return nil
}

// recall places a workload as it was.
func (s *State) recall(m *WorkloadMemory) error {
	r := s.newRecord(m.Def.UID, m.Def.Key())
	if m.Verdict != "" {
		s.say(r, said{m.Verdict, m.Reason, m.Note, m.Victims, m.Start})
	}
	s.define(r, &m.Def)
	rare := &rareCheckpoint{assumed: m.Assumed, at: m.At, since: m.Since, priority: m.Priority, evicting: m.Evicting}
	return s.recallPlace(r, rare, func(int32) string { return m.In })
}

// recallPlace places a record as it was. queue returns the name of the queue of its admission, "" if that was deleted.
func (s *State) recallPlace(r *record, rare *rareCheckpoint, queue func(int32) string) error {
	if rare == nil || rare.assumed == nil {
		r.wl = &workload.Workload{Reservation: workload.Reservation{Evicting: rare != nil && rare.evicting}}
		s.place(r, s.quotaOf(r))
		return nil
	}
	s.intern(r)
	r.got = s.recallPlaces(r, rare.assumed)
	name := queue(rare.queue)
	if name == "" {
		return nil // its queue was deleted
	}
	q := s.queues[name]
	if q == nil {
		return fmt.Errorf("it was admitted to ClusterQueue %s, which is not there", name)
	}
	r.wl.Queue, r.wl.ReservedAt, r.wl.Evicting = q.q.Index, rare.at, rare.evicting
	r.wl.Priority, r.wl.Since, r.wl.Bound = rare.priority, rare.since, s.bound(r, q.q)
	s.charge(r)
	s.updateRelated(r, nil)
	return nil
}
