package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Counts are the workloads of a queue. spec: 10 §4.4.
type Counts struct {
	Active   int // in line, to be looked at
	Parked   int // in line, until an event can help
	Reserved int // with a reservation, admitted ones included
	Admitted int
}

// View is what the status of a ClusterQueue or LocalQueue shows.
type View struct {
	Counts
	// Reservation is what all reservations hold, Usage what admitted workloads hold.
	Reservation, Usage []Held
	// Borrowed and BorrowedUsage are what of them is past the ClusterQueue's own.
	Borrowed, BorrowedUsage []Held
}

// Queue returns the view of a ClusterQueue, false if there is none of that name.
func (s *State) Queue(name string) (View, bool) {
	q := s.queues[name]
	if q == nil {
		return View{}, false
	}
	v := View{Counts: Counts{Active: q.q.Pending.Active(), Parked: q.q.Pending.Parked()}}
	if q.q.Closed != "" {
		v.Active, v.Parked = 0, v.Active+v.Parked
	}
	s.tally(&v, q.q.Reserved(), func(*record) bool { return true })
	if q.def.Cohort != "" {
		v.Borrowed = s.borrowed(q, v.Reservation)
		v.BorrowedUsage = s.borrowed(q, v.Usage)
	}
	return v, true
}

// borrowed is what of held is past the queue's own quota.
func (s *State) borrowed(q *queue, held []Held) []Held {
	var out []Held
	for _, h := range held {
		fr := s.world.Table.FR(h.Flavor, h.Resource)
		if over := h.Amount.Sub(s.world.Quota.Nominal(q.q.Node, fr)); over > 0 {
			out = append(out, s.held(resource.Entry{FR: fr, Amount: over}))
		}
	}
	return out
}

// LocalQueue returns the view of a LocalQueue: its share of the ClusterQueue.
func (s *State) LocalQueue(namespace, name string) View {
	var v View
	lq, ok := s.localQueues[namespace+"/"+name]
	q := s.queues[lq.Queue]
	if !ok || q == nil {
		return v
	}
	mine := func(r *record) bool {
		return r != nil && r.def.Namespace == namespace && r.def.LocalQueue == name
	}
	s.tally(&v, q.q.Reserved(), mine)
	for _, w := range q.q.Pending.All() {
		if mine(s.records[w.UID]) {
			v.Active++
		}
	}
	return v
}

func (s *State) tally(v *View, reserved []*workload.Workload, mine func(*record) bool) {
	var all, admitted resource.Vector
	for _, w := range reserved {
		r := s.records[w.UID]
		if !mine(r) {
			continue
		}
		v.Reserved++
		all = sum(all, w.Usage)
		if r.def.Admitted {
			v.Admitted++
			admitted = sum(admitted, w.Usage)
		}
	}
	for _, e := range all {
		v.Reservation = append(v.Reservation, s.held(e))
	}
	for _, e := range admitted {
		v.Usage = append(v.Usage, s.held(e))
	}
}

func sum(a, b resource.Vector) resource.Vector {
	for _, e := range b {
		a = a.Plus(e.FR, e.Amount)
	}
	return a
}

func (s *State) held(e resource.Entry) Held {
	p := s.world.Table.Pair(e.FR)
	return Held{p.Flavor, p.Resource, e.Amount}
}

// QueueOf returns the ClusterQueue that a workload waits in or holds quota of, ""
// for none.
func (s *State) QueueOf(uid string) string {
	if r := s.records[uid]; r != nil && r.in != nil {
		return r.in.Name
	}
	return ""
}

// Path returns the way from the root of the cohort tree down to a ClusterQueue,
// "/root/…/queue"; below a cycle of cohorts only the queue.
func (s *State) Path(queue string) string {
	q := s.queues[queue]
	if q == nil {
		return ""
	}
	path := "/" + queue
	if s.world.Quota.Root(q.q.Node) == quota.None {
		return path
	}
	for name := q.def.Cohort; name != ""; {
		path = "/" + name + path
		c := s.cohorts[name]
		if c.def == nil {
			break
		}
		name = c.def.Parent
	}
	return path
}

// Generation returns the generation of the spec that a workload is known by.
func (s *State) Generation(uid string) int64 {
	if r := s.records[uid]; r != nil {
		return r.def.Generation
	}
	return 0
}

// Line returns the keys of those who wait in a ClusterQueue, in their order.
func (s *State) Line(queue string) []string {
	q := s.queues[queue]
	if q == nil {
		return nil
	}
	var keys []string
	for _, w := range q.q.Pending.All() {
		keys = append(keys, w.Key)
	}
	return keys
}

// Explain returns the trace of a workload in words: its last look, or its place in
// line. Unknown workloads give "".
func (s *State) Explain(uid string) string {
	r := s.records[uid]
	if r == nil {
		return ""
	}
	if look := s.looks[uid]; look != nil {
		return look.String()
	}
	if r.in == nil || r.wl.Reserved {
		return ""
	}
	line := r.in.Pending.All()
	for i, w := range line {
		if w == r.wl {
			look := trace.Look{Workload: w.Key, Queue: r.in.Name, Priority: w.Priority, Verdict: trace.Waits, Reason: trace.PendingEvaluation, Note: r.behind(i)}
			return look.String()
		}
	}
	return ""
}

func (r *record) behind(place int) string {
	return fmt.Sprintf("number %d in line of ClusterQueue %s", place+1, r.in.Name)
}

// Dump writes the whole world in a stable form: two states that would decide alike
// dump alike, whatever events led to them.
func (s *State) Dump() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		q := s.queues[name]
		fmt.Fprintf(&b, "queue %s", name)
		if q.q.Closed != "" {
			fmt.Fprintf(&b, " (closed: %s)", q.q.Closed)
		}
		b.WriteByte('\n')
		for _, c := range s.cells(q.def.Groups) {
			p := s.world.Table.Pair(c.FR)
			fmt.Fprintf(&b, "  %s/%s nominal %s used %s available %s\n", p.Flavor, p.Resource, c.Nominal.Format(p.Resource),
				s.world.Quota.Usage(q.q.Node, c.FR).Format(p.Resource), s.world.Quota.Available(q.q.Node, c.FR).Format(p.Resource))
		}
		var held []string
		for _, w := range q.q.Reserved() {
			line := fmt.Sprintf("  holds %s: %s", w.Key, w.Usage.Format(s.world.Table))
			if w.Evicting {
				line += " (leaving)"
			}
			held = append(held, line)
		}
		slices.Sort(held)
		for _, h := range held {
			b.WriteString(h + "\n")
		}
		for i, key := range s.Line(name) {
			fmt.Fprintf(&b, "  %d. %s\n", i+1, key)
		}
	}
	return b.String()
}
