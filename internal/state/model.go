package state

import (
	"cmp"
	"strings"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/workload"
)

// Model is the read model: the counts, the usage and the lines of all queues at one moment, between two events. It is immutable; any
// number of goroutines may read it, for as long as they keep it, while the State goes on. See State.Publish.
type Model struct {
	queues      sorted[*queueView]
	localQueues sorted[*localQueueView] // the existing ones
	cohorts     sorted[*cohortView]     // the defined or named ones
	namespaces  sorted[*Namespace]      // the existing ones
	resources   *[]string               // the names of resource.IDs
	traces      *[]*tracePage           // of the last evaluations, by Queue.Index
	flight      *Record                 // nil without a recorder
	fair        bool                    // there is fair sharing
	ground
}

// queueView is a ClusterQueue in a Model.
type queueView struct {
	*Queue
	root     string // of its cohort tree, "" without one and below a cycle
	index    int32  // cycle.Queue.Index
	inactive string // why it admits no workload as its definition says, "" if it does
	closed   bool   // no workload can be admitted
	share    quota.Share

	active, inadmissible        int32 // in line
	resting, reserved, admitted int32
	sums                        *sums
	line, held                  sorted[*entry]
	classes                     sorted[failed]     // the inadmissible ones
	first                       *workload.Workload // the prioritized workload, or nil
	lines                       sorted[*lineView]  // the LocalQueue lines of a UsageBased one, whose workloads are not in line
	firstLine                   *lineView          // the one of the prioritized workload, or nil
}

// failed is an inadmissible class, with the workload whose evaluation made it so.
type failed struct {
	class int32
	by    *entry
}

// evaluated returns the workload whose evaluation made a class inadmissible, nil if it is not.
func evaluated(classes sorted[failed], class int32) *entry {
	f, _, _ := classes.find(func(f failed) int { return cmp.Compare(f.class, class) })
	return f.by
}

// localQueueView is a LocalQueue in a Model. Its figures count its workloads in the ClusterQueue that it points to.
type localQueueView struct {
	Name
	queue                               string
	stopped, deleted                    bool
	inLine, resting, reserved, admitted int32
	sums                                *sums
	usage                               *sharing.Usage // nil without admission fair sharing
}

// cohortView is a Cohort in a Model.
type cohortView struct {
	name, parent, root string // parent is "" for none; root is "" below a cycle
	defined            bool
	def                *Cohort // nil if only named by others; immutable
	subtree            *[]Held
	share              quota.Share
}

func compareQueues(a, b *queueView) int           { return strings.Compare(a.Name, b.Name) }
func compareLocalQueues(a, b *localQueueView) int { return a.Name.compare(b.Name) }
func compareCohorts(a, b *cohortView) int         { return strings.Compare(a.name, b.name) }
func compareClasses(a, b failed) int              { return cmp.Compare(a.class, b.class) }

func (m *Model) queue(name string) *queueView {
	q, _, _ := m.queues.find(func(q *queueView) int { return strings.Compare(q.Name, name) })
	return q
}

func (m *Model) localQueue(name Name) *localQueueView {
	l, _, _ := m.localQueues.find(func(l *localQueueView) int { return l.Name.compare(name) })
	return l
}

func (m *Model) cohort(name string) *cohortView {
	c, _, _ := m.cohorts.find(func(c *cohortView) int { return strings.Compare(c.name, name) })
	return c
}

// Queue returns the view of a ClusterQueue, false if there is none of that name.
func (m *Model) Queue(name string) (View, bool) {
	q := m.queue(name)
	if q == nil {
		return View{}, false
	}
	v := View{Counts: Counts{int(q.active), int(q.inadmissible + q.resting), int(q.reserved), int(q.admitted)}}
	if q.inactive != "" {
		v.Active, v.Inadmissible, v.Closed = 0, v.Active+v.Inadmissible, true
	}
	if m.fair {
		v.Share = &q.share
	}
	v.Reservation, v.Usage = q.sums.lists()
	if q.Cohort != "" {
		v.Borrowed, v.BorrowedUsage = q.borrowed(v.Reservation), q.borrowed(v.Usage)
	}
	return v, true
}

// lists returns the usage of all reservations and that of the admitted workloads.
func (s *sums) lists() (reserved, used []Held) {
	if s == nil {
		return nil, nil
	}
	for i := range s.held {
		h := &s.held[i]
		reserved = append(reserved, Held{Flavor: h.Flavor, Resource: h.Resource, Amount: h.reserved.amount()})
		if h.admitted > 0 {
			used = append(used, Held{Flavor: h.Flavor, Resource: h.Resource, Amount: h.used.amount()})
		}
	}
	return reserved, used
}

// borrowed returns the part of held past the queue's own quota.
func (q *queueView) borrowed(held []Held) (out []Held) {
	for _, h := range held {
		if h.Amount = h.Amount.Sub(q.nominal(h.Flavor, h.Resource)); h.Amount > 0 {
			out = append(out, h)
		}
	}
	return out
}

// nominal returns the queue's own quota of a flavor and resource.
func (q *queueView) nominal(flavor, name string) resource.Amount {
	for _, g := range q.Groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				if f.Flavor == flavor && r.Resource == name {
					return r.Nominal
				}
			}
		}
	}
	return 0
}

// LocalQueue returns the view of a LocalQueue, an empty one if it or its ClusterQueue does not exist.
func (m *Model) LocalQueue(namespace, name string) View {
	l := m.localQueue(Name{namespace, name})
	if l == nil || m.queue(l.queue) == nil {
		return View{}
	}
	v := View{Counts: Counts{int(l.inLine), int(l.resting), int(l.reserved), int(l.admitted)}}
	v.Reservation, v.Usage = l.sums.lists()
	return v
}

// CohortShare returns the fair share of a cohort, nil without fair sharing; false if there is no Cohort of that name.
func (m *Model) CohortShare(name string) (share *quota.Share, known bool) {
	c := m.cohort(name)
	switch {
	case c == nil || !c.defined:
		return nil, false
	case !m.fair:
		return nil, true
	}
	return &c.share, true
}

// PointsTo returns the name of the ClusterQueue that a LocalQueue points to, whether that exists or not; false if there is no such
// LocalQueue.
func (m *Model) PointsTo(namespace, localQueue string) (queue string, ok bool) {
	l := m.localQueue(Name{namespace, localQueue})
	if l == nil {
		return "", false
	}
	return l.queue, true
}

// isActive reports whether a workload is in line and is evaluated when it is the head.
func (q *queueView) isActive(e *entry) bool {
	return !q.closed && e.has(inLine) && !e.has(alone) && q.evaluated(e) == nil
}

// evaluated returns the workload whose evaluation made the class of a workload in line inadmissible, which may have left the line
// since; nil if the class is active.
func (q *queueView) evaluated(e *entry) *entry {
	return evaluated(q.classes, e.wl.Class)
}
