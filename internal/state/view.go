package state

import (
	"fmt"
	"iter"
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
	// Share is the ClusterQueue's under fair sharing, nil without it.
	Share *quota.Share
}

// Queue returns the view of a ClusterQueue, false if there is none of that name.
func (s *State) Queue(name string) (View, bool) {
	q := s.queues[name]
	if q == nil {
		return View{}, false
	}
	v := View{Counts: Counts{Active: q.q.Pending.Active(), Parked: q.q.Pending.Parked()}, Share: s.share(q.q.Node)}
	for _, l := range s.heading(name) {
		if !l.def.Stopped {
			v.Parked += l.resting
		}
	}
	if q.q.Closed != "" {
		v.Active, v.Parked = 0, v.Active+v.Parked
	}
	s.tally(&v, q.q.Holders().All())
	if q.def.Cohort != "" {
		v.Borrowed = s.borrowed(q, v.Reservation)
		v.BorrowedUsage = s.borrowed(q, v.Usage)
	}
	return v, true
}

// borrowed is what of held is past the queue's own quota.
func (s *State) borrowed(q *queue, held []Held) []Held {
	s.world.Settle()
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
	lq := s.localQueues[Name{namespace, name}]
	if lq == nil || !lq.exists || s.queues[lq.def.Queue] == nil {
		return v
	}
	q := s.queues[lq.def.Queue].q
	var reserved []*workload.Workload
	for r := lq.records; r != nil; r = r.next {
		switch {
		case r.in != q:
		case r.wl.Reserved:
			reserved = append(reserved, r.wl)
		default:
			v.Active++
		}
	}
	if !lq.def.Stopped {
		v.Parked = lq.resting
	}
	s.tally(&v, slices.Values(reserved))
	return v
}

func (s *State) tally(v *View, reserved iter.Seq[*workload.Workload]) {
	var all, admitted resource.Vector
	for w := range reserved {
		v.Reserved++
		all = all.Sum(w.Usage)
		if r := s.records[w.UID]; r.def.Admitted {
			v.Admitted++
			admitted = admitted.Sum(w.Usage)
		}
	}
	for _, e := range all {
		v.Reservation = append(v.Reservation, s.held(e))
	}
	for _, e := range admitted {
		v.Usage = append(v.Usage, s.held(e))
	}
}

func (s *State) held(e resource.Entry) Held {
	p := s.world.Table.Pair(e.FR)
	return Held{Flavor: p.Flavor, Resource: p.Resource, Amount: e.Amount}
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
	s.world.Settle()
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

// Look returns what is known of a workload: of one that waits what was decided last, with
// the figures of now, or its place in line; of one that holds quota what it holds. It is
// nil for unknown workloads, and for those that have no place.
func (s *State) Look(uid string) *trace.Look {
	r := s.records[uid]
	if r == nil {
		return nil
	}
	look := &trace.Look{Workload: r.wl.Key, UID: uid, Priority: r.wl.Priority}
	if r.in != nil {
		look.Queue = r.in.Name
	}
	switch {
	case r.in != nil && r.wl.Reserved:
		return s.holding(r)
	case r.passed:
		look.Verdict, look.Reason, look.Note = trace.Waits, trace.WaitingForQuota, "a later slice of its job has quota, and may take its place for good"
		return look
	case r.in == nil && s.quotaOf(r) != nil:
		look.Verdict, look.Note = trace.Withdrawn, "another slice of its job has taken its place"
		return look
	case r.in == nil && (r.said == nil || !r.def.Queueable):
		return nil
	case r.said == nil:
		look.Verdict, look.Reason, look.Note = trace.Waits, trace.PendingEvaluation, s.behind(r)
		return look
	case r.in != nil && r.in.Closed == "":
		look = s.world.Explain(r.wl)
	}
	look.Verdict, look.Reason, look.Note, look.Victims = r.said.verdict, r.said.reason, r.said.note, r.said.victims
	return look
}

// holding is what a workload with a reservation holds.
func (s *State) holding(r *record) *trace.Look {
	look := &trace.Look{
		Workload: r.wl.Key, UID: r.wl.UID, Queue: r.in.Name, Priority: r.wl.Priority, Verdict: trace.Admitted, Table: s.world.Table,
	}
	for _, h := range s.heldBy(r) {
		last := len(look.PodSets) - 1
		if last < 0 || look.PodSets[last].Name != h.PodSet {
			look.PodSets = append(look.PodSets, trace.PodSet{Name: h.PodSet})
			last++
		}
		c := trace.Choice{Amount: h.Amount, FR: s.world.Table.FR(h.Flavor, h.Resource), Mode: trace.Held}
		look.PodSets[last].Resources = append(look.PodSets[last].Resources, c)
	}
	return look
}

// heldBy is what a record has quota for, pod set by pod set.
func (s *State) heldBy(r *record) []Held {
	if !r.assumed() {
		return r.def.Held
	}
	var held []Held
	for _, ps := range s.grant("", r.got).PodSets {
		held = append(held, ps.Held...)
	}
	return held
}

// Explain is Look in words, "" where there is none.
func (s *State) Explain(uid string) string {
	if look := s.Look(uid); look != nil {
		return look.String()
	}
	return ""
}

// behind is the place of a workload in line.
func (s *State) behind(r *record) string {
	place := 1 + slices.Index(r.in.Pending.All(), r.wl)
	return fmt.Sprintf("number %d in line of ClusterQueue %s", place, r.in.Name)
}

// Dump writes the whole world in a stable form: two states that would decide alike
// dump alike, whatever events led to them.
func (s *State) Dump() string {
	s.world.Settle()
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
		for w := range q.q.Holders().All() {
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

// Figure is what one node of the cohort trees has of one flavor-resource.
type Figure struct {
	Cohort                               bool
	Name                                 string
	Subtree, Usage, Available, Potential resource.Amount
}

// Figures returns the figures of every cohort and every queue, each sorted by name.
func (s *State) Figures(flavor, res string) []Figure {
	s.world.Settle()
	fr := s.world.Table.FR(flavor, res)
	f := s.world.Quota
	f.Reach(fr)
	var out []Figure
	s.nodes(func(cohort bool, name string, n quota.Node) {
		out = append(out, Figure{cohort, name, f.Subtree(n, fr), f.Usage(n, fr), f.Available(n, fr), f.Potential(n, fr)})
	})
	return out
}

// ShareFigure is the fair share of one node of the cohort trees.
type ShareFigure struct {
	Cohort bool
	Name   string
	Share  quota.Share
}

// Shares returns the fair shares of every cohort and every queue, each sorted by name.
func (s *State) Shares() []ShareFigure {
	s.world.Settle()
	var out []ShareFigure
	s.nodes(func(cohort bool, name string, n quota.Node) {
		out = append(out, ShareFigure{cohort, name, s.world.Quota.Share(n)})
	})
	return out
}

func (s *State) nodes(visit func(cohort bool, name string, n quota.Node)) {
	for _, name := range slices.Sorted(maps.Keys(s.cohorts)) {
		visit(true, name, s.cohorts[name].node)
	}
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		visit(false, name, s.queues[name].q.Node)
	}
}

// HasFlavor reports whether a flavor exists.
func (s *State) HasFlavor(name string) bool {
	f := s.flavors[name]
	return f != nil && !f.Missing
}

// HasQueue reports whether a ClusterQueue exists.
func (s *State) HasQueue(name string) bool { return s.queues[name] != nil }
