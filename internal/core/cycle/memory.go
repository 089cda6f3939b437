package cycle

import (
	"fmt"
	"slices"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Memory is what a World knows beyond queues, quota and workloads: what it has looked at
// already, and for whom it holds quota. Losing it loses time, not correctness; with it a
// world goes on exactly where another one was. Workloads are named by UID.
type Memory struct {
	Cycles uint64
	Trees  []TreeMemory
	Queues []QueueMemory
	Scans  []ScanMemory
}

// TreeMemory is about the tree that a queue belongs to.
type TreeMemory struct {
	Queue        string
	Woke, Edited bool
	WokeAt       workload.Instant
}

// QueueMemory is about one queue and its line.
type QueueMemory struct {
	Queue string
	Parks []ParkMemory `json:",omitempty"`
	Aside []string     `json:",omitempty"`
	// Released are FRs some of which was released, with somebody left to look at for it.
	Released []resource.FR `json:",omitempty"`
	Sticky   string        `json:",omitempty"`
	Claim    *ClaimMemory  `json:",omitempty"`
	Stand    *StandMemory  `json:",omitempty"`
}

// ParkMemory is about a parked class.
type ParkMemory struct {
	Member, By string
	Wants      []workload.Want
	Tried      bool `json:",omitempty"`
}

// ClaimMemory is about quota held for an heir.
type ClaimMemory struct {
	Heir, Before string
	Usage        resource.Vector
	Victims      []VictimMemory
	Level        int
	Since        workload.Instant
	Expired      bool
}

// VictimMemory is about a victim that has not left yet.
type VictimMemory struct{ UID, Reason string }

// StandMemory is about the head of a strict queue that keeps quota from others.
type StandMemory struct {
	UID, Before string
	Level       int
	Usage       resource.Vector
}

// ScanMemory is about where a search for flavors goes on.
type ScanMemory struct {
	UID     string
	Tried   []workload.Tried
	Cycle   uint64
	Rounds  int32
	Current bool // nothing was released in its queue since
}

// Remember returns the world's memory. Step must have come to an end before.
func (w *World) Remember() Memory {
	w.settle()
	m := Memory{Cycles: w.cycles}
	for _, q := range w.Queues {
		if q == nil {
			continue
		}
		if q.tree.queues[0] == q {
			m.Trees = append(m.Trees, TreeMemory{q.Name, q.tree.woke, q.tree.edited, q.tree.wokeAt})
		}
		m.Queues = append(m.Queues, w.rememberQueue(q))
		for _, wl := range q.Pending.All() {
			if s := wl.Scan; s != nil {
				m.Scans = append(m.Scans, ScanMemory{wl.UID, s.Tried, s.Cycle, s.Rounds, s.Generation == w.Quota.Generation(q.Node)})
			}
		}
	}
	return m
}

func (w *World) rememberQueue(q *Queue) QueueMemory {
	m := QueueMemory{Queue: q.Name, Sticky: uid(q.Pending.Sticky()), Released: slices.Clone(q.Pending.Released())}
	for _, p := range q.Pending.Parks() {
		m.Parks = append(m.Parks, ParkMemory{uid(p.Member), uid(p.By), p.Wants, p.Tried})
	}
	for _, wl := range q.Pending.Aside() {
		m.Aside = append(m.Aside, wl.UID)
	}
	if c := q.claim; c != nil {
		m.Claim = &ClaimMemory{Heir: c.heir.UID, Usage: c.usage, Level: c.level, Since: c.since, Expired: c.expired}
		if c.before != nil && c.before.Reserved {
			m.Claim.Before = c.before.UID
		}
		for _, v := range c.remaining() {
			m.Claim.Victims = append(m.Claim.Victims, VictimMemory{v.Workload.UID, v.Reason})
		}
	}
	if s := q.stand; s != nil {
		m.Stand = &StandMemory{UID: s.wl.UID, Level: s.level, Usage: s.usage}
		if s.before != nil && s.before.Reserved {
			m.Stand.Before = s.before.UID
		}
	}
	return m
}

func uid(wl *workload.Workload) string {
	if wl == nil {
		return ""
	}
	return wl.UID
}

// Recall gives a world with the same queues and workloads the memory of another one;
// find returns the workload of a UID, or nil. It fails if the memory is about queues or
// workloads that are not there.
func (w *World) Recall(m Memory, find func(uid string) *workload.Workload) error {
	w.settle()
	w.cycles = m.Cycles
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
			w.relook(q.tree)
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
		if err := w.recallQueue(q, &m.Queues[i], find); err != nil {
			return fmt.Errorf("queue %s: %w", q.Name, err)
		}
	}
	for _, t := range w.touched {
		t.touched = false
	}
	w.touched = w.touched[:0]
	return nil
}

func (w *World) recallQueue(q *Queue, m *QueueMemory, find func(uid string) *workload.Workload) error {
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
	for _, a := range m.Aside {
		if wl := get(a); wl != nil {
			q.Pending.SetAside(wl)
		}
	}
	for _, p := range m.Parks {
		if member := get(p.Member); member != nil {
			q.Pending.Restore(order.Park{Member: member, By: &workload.Workload{UID: p.By}, Wants: p.Wants, Tried: p.Tried}, &q.now)
		}
	}
	q.Pending.Remind(m.Released)
	if sticky := get(m.Sticky); sticky != nil {
		q.Pending.Stick(sticky)
	}
	var c *claim
	if m.Claim != nil {
		c = &claim{heir: get(m.Claim.Heir), before: get(m.Claim.Before), usage: m.Claim.Usage, level: m.Claim.Level, since: m.Claim.Since, expired: m.Claim.Expired}
		for _, v := range m.Claim.Victims {
			if wl := get(v.UID); wl != nil {
				c.victims = append(c.victims, preempt.Victim{Workload: wl, Node: w.Queues[wl.Queue].Node, Reason: v.Reason})
			}
		}
	}
	var s *stand
	if m.Stand != nil {
		s = &stand{get(m.Stand.UID), m.Stand.Level, m.Stand.Usage, get(m.Stand.Before)}
	}
	if missing != nil {
		return missing
	}
	w.keep(q, c, s)
	if q.looked = q.Pending.Head(); q.looked != nil {
		q.lookedVersion = q.tree.version
	}
	return nil
}
