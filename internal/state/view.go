package state

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Counts are the workloads of a queue. spec: 10 §4.4.
type Counts struct {
	Active       int // in line, to be looked at
	Inadmissible int // in line, until a wake condition holds
	Reserved     int // with a reservation, admitted ones included
	Admitted     int
}

// View is the status of a ClusterQueue or LocalQueue.
type View struct {
	Counts
	// Reservation is the usage of all reservations, Usage that of admitted workloads.
	Reservation, Usage []Held
	// Borrowed and BorrowedUsage are the parts of them past the ClusterQueue's own quota.
	Borrowed, BorrowedUsage []Held
	// Share is the fair share of the ClusterQueue, nil without fair sharing.
	Share *quota.Share
	// Closed: the ClusterQueue admits nothing, as its definition says.
	Closed bool
}

func (s *State) held(e resource.Entry) Held {
	p := s.world.Table.Pair(e.FR)
	return Held{Flavor: p.Flavor, Resource: p.Resource, Amount: e.Amount}
}

// Wakes returns how many classes of workloads releases have activated, and how many of them in vain.
func (s *State) Wakes() order.Wakes { return s.world.Wakes() }

// QueueOf returns the ClusterQueue of a workload's line or reservation, "" for none.
func (s *State) QueueOf(uid string) string {
	if r := s.records[uid]; r != nil && r.in != nil {
		return r.in.Name
	}
	return ""
}

// Path returns the path from the root of the cohort tree to a ClusterQueue, "/root/…/queue";
// below a cycle of cohorts only the queue.
func (s *State) Path(queue string) string {
	q := s.queues[queue]
	if q == nil {
		return ""
	}
	s.world.ApplyEdits()
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

// Line returns the keys of the pending workloads of a ClusterQueue, in order.
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

// Attempt returns the last decision about a pending workload, with present figures, or its place
// in line; the assignment of a workload with a reservation; nil for an unknown workload, and
// for one without a place.
func (s *State) Attempt(uid string) *trace.Attempt {
	r := s.records[uid]
	if r == nil {
		return nil
	}
	attempt := &trace.Attempt{Workload: r.wl.Key, UID: uid, Priority: r.wl.Priority}
	if r.in != nil {
		attempt.Queue = r.in.Name
	}
	switch {
	case r.in != nil && r.wl.Reserved:
		return attemptOfHeld(r.wl, r.in.Name, s.heldBy(r))
	case r.passed:
		attempt.Verdict, attempt.Reason, attempt.Note = trace.Waits, trace.WaitingForQuota, "a later slice of its job has quota, and may take its place for good"
		return attempt
	case r.in == nil && s.quotaOf(r) != nil:
		attempt.Verdict, attempt.Note = trace.Withdrawn, "another slice of its job has taken its place"
		return attempt
	case r.in == nil && (r.said == nil || !r.def.Queueable):
		return nil
	case r.said == nil:
		attempt.Verdict, attempt.Reason, attempt.Note = trace.Waits, trace.PendingEvaluation, s.behind(r)
		return attempt
	case r.in != nil && r.in.Closed == "":
		attempt = s.world.Explain(r.wl)
	}
	attempt.Verdict, attempt.Reason, attempt.Note, attempt.Victims = r.said.verdict, r.said.reason, r.said.note, r.said.victims
	return attempt
}

// attemptOfHeld is the record of a reservation in a queue, which is by pod set.
func attemptOfHeld(wl *workload.Workload, queue string, held []Held) *trace.Attempt {
	names := make([]resource.Pair, len(held))
	attempt := &trace.Attempt{Workload: wl.Key, UID: wl.UID, Queue: queue, Priority: wl.Priority, Verdict: trace.Admitted}
	for i, h := range held {
		last := len(attempt.PodSets) - 1
		if last < 0 || attempt.PodSets[last].Name != h.PodSet {
			attempt.PodSets = append(attempt.PodSets, trace.PodSet{Name: h.PodSet})
			last++
		}
		names[i] = resource.Pair{Flavor: h.Flavor, Resource: h.Resource}
		attempt.PodSets[last].Resources = append(attempt.PodSets[last].Resources, trace.Choice{Amount: h.Amount, FR: resource.FR(i), Mode: trace.Held})
	}
	attempt.Table = resource.NamesOf(names)
	return attempt
}

// heldBy returns the reservation of a record, by pod set.
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

// Explain is the text of Attempt, "" for nil.
func (s *State) Explain(uid string) string {
	if attempt := s.Attempt(uid); attempt != nil {
		return attempt.String()
	}
	return ""
}

// behind is the place of a workload in line.
func (s *State) behind(r *record) string {
	place := 1 + slices.Index(r.in.Pending.All(), r.wl)
	return fmt.Sprintf("number %d in line of ClusterQueue %s", place, r.in.Name)
}

// Dump writes the whole world in a stable form: two states that would decide alike have the
// same dump, whatever events led to them.
func (s *State) Dump() string {
	s.world.ApplyEdits()
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
				s.world.Quota.Usage(q.q.Node, c.FR).Format(p.Resource), s.world.Ledger.Available(q.q.Node, c.FR).Format(p.Resource))
		}
		var held []string
		for w := range q.q.Holders().All() {
			line := fmt.Sprintf("  holds %s: %s", w.Key, w.Usage.Quota.Format(s.world.Table))
			if w.Evicting {
				line += " (leaving)"
			}
			held = append(held, line)
		}
		slices.Sort(held)
		for _, h := range held {
			b.WriteString(h + "\n")
		}
		if q.def.UsageBased {
			usages := slices.SortedFunc(slices.Values(s.leadingTo(name)), func(a, b *localQueue) int { return a.name.compare(b.name) })
			for _, l := range usages {
				fmt.Fprintf(&b, "  usage of %s/%s: %.6g\n", l.name.Namespace, l.name.Name, math.Float64frombits(uint64(l.standing)))
			}
		}
		for i, key := range s.Line(name) {
			fmt.Fprintf(&b, "  %d. %s\n", i+1, key)
		}
	}
	return b.String()
}

// Figure is one node of the cohort trees, with its figures of one flavor-resource or with its fair share.
type Figure struct {
	Cohort                               bool
	Name                                 string
	Subtree, Usage, Available, Potential resource.Amount
	Share                                quota.Share
}

// Figures returns the figures of every cohort and every queue, each sorted by name.
func (s *State) Figures(flavor, res string) []Figure {
	s.world.ApplyEdits()
	fr := s.world.Table.FR(flavor, res)
	f := s.world.Quota
	f.Reach(fr)
	var out []Figure
	s.nodes(func(cohort bool, name string, n quota.Node) {
		out = append(out, Figure{
			Cohort: cohort, Name: name, Subtree: f.Subtree(n, fr), Usage: f.Usage(n, fr), Available: s.world.Ledger.Available(n, fr),
			Potential: f.Potential(n, fr),
		})
	})
	return out
}

// Shares returns the fair shares of every cohort and every queue, each sorted by name.
func (s *State) Shares() []Figure {
	s.world.ApplyEdits()
	var out []Figure
	s.nodes(func(cohort bool, name string, n quota.Node) {
		out = append(out, Figure{Cohort: cohort, Name: name, Share: s.world.Quota.Share(n)})
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
