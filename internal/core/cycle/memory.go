package cycle

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Memory is the state of a World beyond queues, quota and workloads: which workloads were
// evaluated, and for which ones it holds quota. Losing it loses time, not correctness; a
// world with the memory of another one decides exactly as that one would. Workloads are named
// by UID. Names in JSON are the ones in stored flight records.
type Memory struct {
	Cycles   uint64
	Measures []ledger.MeasureID `json:",omitempty"` // see ledger.Ledger.Measures
	Swept    int                `json:",omitempty"` // World.sweptMeasures
	Trees    []TreeMemory
	Queues   []QueueMemory
	Scans    []ScanMemory
}

// TreeMemory is about the tree that a queue belongs to.
type TreeMemory struct {
	Queue        string
	Woke, Edited bool
	WokeAt       workload.Instant
	Touched      bool `json:",omitempty"` // something has changed since the last step
}

// QueueMemory is about one queue and its line.
type QueueMemory struct {
	Queue             string
	Inadmissible      []InadmissibleMemory `json:"Parks,omitempty"`
	InadmissibleAlone []string             `json:"Aside,omitempty"`
	// Released are FRs some of which was released, and whose classes are not all evaluated.
	Released        []resource.FR          `json:",omitempty"`
	Prioritized     string                 `json:"Sticky,omitempty"`
	Nomination      *NominationMemory      `json:"Claim,omitempty"`
	HeadReservation *HeadReservationMemory `json:"Stand,omitempty"`
	Start           *StartMemory           `json:",omitempty"`
	Further         []*StartMemory         `json:",omitempty"` // of the workloads behind that of Start
	// Unevaluated: its tree is touched, and its head was not evaluated since.
	Unevaluated bool `json:",omitempty"`
}

// InadmissibleMemory is about an inadmissible class.
type InadmissibleMemory struct {
	Member, By string
	Wants      []workload.Want
	Tried      bool `json:",omitempty"`
}

// NominationMemory is about quota held for a preemptor.
type NominationMemory struct {
	Preemptor string `json:"Heir"`
	Replaces  string `json:"Before"`
	ledger.Usage
	Rest    [][]ledger.Item `json:",omitempty"` // of the Usage, see ledger.Ledger.Remember
	Victims []VictimMemory
	Places  []*trace.Placement `json:",omitempty"` // of the Usage, by pod set
	Level   int
	Since   workload.Instant
	Expired bool
}

// VictimMemory is about a victim that has not left yet.
type VictimMemory struct {
	UID, Reason string
	Ran         workload.Instant `json:",omitempty"`
}

// HeadReservationMemory is about quota kept for the head of a strict queue.
type HeadReservationMemory struct {
	UID      string
	Replaces string `json:"Before"`
	Level    int
	ledger.Usage
	Rest [][]ledger.Item `json:",omitempty"`
}

// StartMemory is about the reserved start of a blocked workload.
type StartMemory struct {
	UID string
	At  workload.Instant `json:",omitempty"`
	ledger.Usage
	Rest    [][]ledger.Item `json:",omitempty"`
	Level   int             `json:",omitempty"`
	Ends    int             `json:",omitempty"`
	Overdue bool            `json:",omitempty"`
}

// ScanMemory is about where a search for flavors resumes.
type ScanMemory struct {
	UID     string
	Tried   []workload.Tried
	Cycle   uint64
	Rounds  int32
	Current bool // nothing was released in its queue since
}

// Checkpoint is the memory of a World at one moment, packed. The scans of workloads are not in it, see Scan. It is complete when it is
// Done; then it may be used while the world changes.
type Checkpoint struct {
	memory   Memory
	classes  []*order.Packing // of memory.Queues
	complete int              // how many of them are
	places   []place          // by Queue.Index
}

// place is a queue at one moment.
type place struct {
	name       string // "" if it was removed
	generation uint64
}

// Checkpoint begins to copy the world's memory, which costs some words for each queue. Call it when the last Step has left nothing to do.
func (w *World) Checkpoint() *Checkpoint {
	w.applyEdits()
	w.raiseGrown(math.MaxInt)
	w.raising.owed = 0
	c := &Checkpoint{
		memory: Memory{Cycles: w.cycles, Measures: w.Ledger.Measures(), Swept: w.sweptMeasures}, places: make([]place, len(w.Queues)),
		classes: make([]*order.Packing, 0, len(w.Queues)),
	}
	c.memory.Queues = make([]QueueMemory, 0, len(w.Queues))
	for i, q := range w.Queues {
		if q == nil {
			continue
		}
		c.places[i] = place{q.Name, w.Quota.Generation(q.Node)}
		if q.tree.queues[0] == q {
			c.memory.Trees = append(c.memory.Trees, TreeMemory{q.Name, q.tree.woke, q.tree.edited, q.tree.wokeAt, q.tree.touched})
		}
		c.memory.Queues = append(c.memory.Queues, w.rememberQueue(q))
		c.classes = append(c.classes, q.Pending.BeginPacking())
	}
	return c
}

// Done reports whether the checkpoint is complete.
func (c *Checkpoint) Done() bool { return c.complete == len(c.classes) }

// Continue copies inadmissible classes, about so many, and reports whether there are more. Call it between changes of the world.
func (c *Checkpoint) Continue(classes int) (more bool) {
	for ; c.complete < len(c.classes); c.complete++ {
		if classes -= c.classes[c.complete].Continue(classes); !c.classes[c.complete].Done() {
			return true
		}
	}
	return false
}

// Memory returns the memory of a complete checkpoint with some scans. The world may change meanwhile.
func (c *Checkpoint) Memory(scans []ScanMemory) Memory {
	m := c.WithoutClasses(scans)
	m.Queues = slices.Clone(m.Queues)
	for i, packed := range c.classes {
		for _, k := range packed.Classes().Unpack() {
			m.Queues[i].Inadmissible = append(m.Queues[i].Inadmissible, InadmissibleMemory{uid(k.Member), uid(k.By), k.Wants, k.Tried})
		}
	}
	return m
}

// WithoutClasses is Memory without the inadmissible classes.
func (c *Checkpoint) WithoutClasses(scans []ScanMemory) Memory {
	m := c.memory
	m.Scans = scans
	return m
}

// QueueName returns the name of the queue of an index, "" if it was removed or the index is negative.
func (c *Checkpoint) QueueName(index int32) string {
	if index < 0 {
		return ""
	}
	return c.places[index].name
}

// Scan returns the memory of where the search for flavors of a pending workload resumes, given the index of its queue.
func (c *Checkpoint) Scan(uid string, s *workload.Scan, queue int32) ScanMemory {
	return ScanMemory{uid, s.Tried, s.Cycle, s.Rounds, s.Generation == c.places[queue].generation}
}

// Unsettled returns a superset of the workloads that were admitted in runs that have not ended, also those whose admissions were
// retracted. Call it between Step and SettleAdmissions.
func (w *World) Unsettled() []*workload.Workload { return w.tentative }

func (w *World) rememberQueue(q *Queue) QueueMemory {
	m := QueueMemory{Queue: q.Name, Prioritized: uid(q.Pending.Prioritized()), Released: slices.Clone(q.Pending.Released())}
	if head := q.Pending.Head(); q.tree.touched && head != nil {
		m.Unevaluated = q.evaluated != head || q.evaluatedVersion != q.tree.version
	}
	for _, wl := range q.Pending.InadmissibleAlone() {
		m.InadmissibleAlone = append(m.InadmissibleAlone, wl.UID)
	}
	if c := q.nomination; c != nil {
		m.Nomination = &NominationMemory{Preemptor: c.preemptor.UID, Usage: c.usage, Level: c.level, Since: c.since, Expired: c.expired, Rest: w.Ledger.Remember(c.usage), Places: c.places}
		if c.replaces != nil && c.replaces.Reserved {
			m.Nomination.Replaces = c.replaces.UID
		}
		for _, v := range c.remaining() {
			m.Nomination.Victims = append(m.Nomination.Victims, VictimMemory{v.Workload.UID, v.Reason, v.Ran})
		}
	}
	if s := q.headReservation; s != nil {
		m.HeadReservation = &HeadReservationMemory{UID: s.wl.UID, Level: s.level, Usage: s.usage, Rest: w.Ledger.Remember(s.usage)}
		if s.replaces != nil && s.replaces.Reserved {
			m.HeadReservation.Replaces = s.replaces.UID
		}
	}
	if q.start != nil {
		m.Start = w.rememberStart(q.start)
	}
	for _, s := range q.further {
		m.Further = append(m.Further, w.rememberStart(s))
	}
	return m
}

func (w *World) rememberStart(s *start) *StartMemory {
	return &StartMemory{s.wl.UID, s.at, s.usage, w.Ledger.Remember(s.usage), s.level, s.ends, s.overdue}
}

func uid(wl *workload.Workload) string {
	if wl == nil {
		return ""
	}
	return wl.UID
}

// Recall gives a world with the same queues and workloads the memory of another one; find
// returns the workload of a UID, or nil. The error names the first queue or workload that is
// missing.
func (w *World) Recall(m Memory, find func(uid string) *workload.Workload) error {
	return w.recall(m, find, func(q *Queue, i int) error { return q.recallClasses(m.Queues[i].Inadmissible, find) })
}

// RecallCheckpoint is Recall for the result of WithoutClasses of a checkpoint. equal returns the workload that is equal to one of the
// world of the checkpoint, nil if that one has left its line since.
func (w *World) RecallCheckpoint(c *Checkpoint, scans []ScanMemory, find func(uid string) *workload.Workload, equal func(*workload.Workload) *workload.Workload) error {
	return w.recall(c.WithoutClasses(scans), find, func(q *Queue, i int) error {
		if !c.classes[i].Restore(&q.Pending, equal, &q.now) {
			return errors.New("a workload of its line is missing")
		}
		return nil
	})
}

// recall is Recall, with a function that makes the classes inadmissible of a queue, given the index of its memory.
func (w *World) recall(m Memory, find func(uid string) *workload.Workload, classes func(q *Queue, i int) error) error {
	w.applyEdits()
	w.raising = raising{} // the memory is of a world in which nothing has changed since
	w.cycles = m.Cycles
	w.Ledger.RestoreMeasures(m.Measures)
	w.sweptMeasures = m.Swept
	queues := map[string]*Queue{}
	for _, q := range w.Queues {
		if q != nil {
			queues[q.Name] = q
		}
	}
	w.due = w.due[:0]
	for _, t := range m.Trees {
		q := queues[t.Queue]
		if q == nil {
			return fmt.Errorf("there is no queue %q", t.Queue)
		}
		q.tree.woke, q.tree.wokeAt, q.tree.edited = t.Woke, t.WokeAt, false
		if t.Edited {
			w.markEdited(q.tree)
		}
	}
	for _, s := range m.Scans {
		wl := find(s.UID)
		if wl == nil {
			return fmt.Errorf("there is no workload %q", s.UID)
		}
		wl.Scan = &workload.Scan{Tried: s.Tried, Cycle: s.Cycle, Rounds: s.Rounds, Generation: w.Quota.Generation(w.Queues[wl.Queue].Node)}
		if !s.Current {
			wl.Scan.Generation--
		}
	}
	for i := range m.Queues {
		q := queues[m.Queues[i].Queue]
		if q == nil {
			return fmt.Errorf("there is no queue %q", m.Queues[i].Queue)
		}
		if err := w.recallQueue(q, &m.Queues[i], find, func() error { return classes(q, i) }); err != nil {
			return fmt.Errorf("queue %s: %w", q.Name, err)
		}
	}
	for _, t := range w.touched {
		t.touched = false
	}
	w.touched = w.touched[:0]
	for _, t := range m.Trees {
		if t.Touched {
			w.touch(queues[t.Queue].tree)
		}
	}
	return nil
}

// recallClasses makes classes inadmissible as they were.
func (q *Queue) recallClasses(classes []InadmissibleMemory, find func(uid string) *workload.Workload) error {
	for i := range classes {
		c := &classes[i]
		member, by := find(c.Member), find(c.By)
		if member == nil {
			return fmt.Errorf("there is no workload %q", c.Member)
		}
		if by == nil {
			by = &workload.Workload{UID: c.By}
		}
		q.Pending.Restore(order.InadmissibleClass{Member: member, By: by, Wants: c.Wants, Tried: c.Tried}, &q.now)
	}
	return nil
}

func (w *World) recallStarts(q *Queue, m *QueueMemory, get func(uid string) *workload.Workload) {
	recall := func(b *StartMemory) *start {
		return &start{q: q, wl: get(b.UID), at: b.At, usage: w.Ledger.Recall(b.Usage, b.Rest), level: b.Level, ends: b.Ends, overdue: b.Overdue}
	}
	if m.Start != nil {
		q.start = recall(m.Start)
		w.starters = append(w.starters, q)
	}
	for _, b := range m.Further {
		q.further = append(q.further, recall(b))
	}
}

func (w *World) recallQueue(q *Queue, m *QueueMemory, find func(uid string) *workload.Workload, classes func() error) error {
	var missing error
	get := func(uid string) *workload.Workload {
		if uid == "" {
			return nil
		}
		wl := find(uid)
		if wl == nil {
			missing = fmt.Errorf("there is no workload %q", uid)
		}
		return wl
	}
	for _, a := range m.InadmissibleAlone {
		if wl := get(a); wl != nil {
			q.Pending.SetInadmissibleAlone(wl)
		}
	}
	if err := classes(); err != nil {
		return err
	}
	q.Pending.Measures(func(fr resource.FR) { w.watchMeasure(q, fr) })
	q.Pending.SetReleased(m.Released)
	if sticky := get(m.Prioritized); sticky != nil {
		q.Pending.Prioritize(sticky)
	}
	var c *nomination
	if m.Nomination != nil {
		c = &nomination{preemptor: get(m.Nomination.Preemptor), replaces: get(m.Nomination.Replaces), usage: w.Ledger.Recall(m.Nomination.Usage, m.Nomination.Rest), level: m.Nomination.Level, since: m.Nomination.Since, expired: m.Nomination.Expired, places: m.Nomination.Places}
		for _, v := range m.Nomination.Victims {
			if wl := get(v.UID); wl != nil {
				c.victims = append(c.victims, preempt.Victim{Workload: wl, Node: w.Queues[wl.Queue].Node, Reason: v.Reason, Ran: v.Ran})
			}
		}
	}
	var s *headReservation
	if m.HeadReservation != nil {
		s = &headReservation{get(m.HeadReservation.UID), m.HeadReservation.Level, w.Ledger.Recall(m.HeadReservation.Usage, m.HeadReservation.Rest), get(m.HeadReservation.Replaces)}
	}
	w.recallStarts(q, m, get)
	if missing != nil {
		return missing
	}
	w.setHeld(q, c, s)
	if m.Unevaluated {
		return nil
	}
	if q.evaluated = q.Pending.Head(); q.evaluated != nil {
		q.evaluatedVersion = q.tree.version
	}
	return nil
}
