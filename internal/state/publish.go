package state

import (
	"iter"
	"slices"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// publisher keeps the published Model. Events only take notes of workloads and queues. Publish compares the entry of each touched workload with
// its entry before, which updates the figures of its queues, and makes new views of those queues and cohorts.
//
//	event ──touch──► touched ──entryOf──► figures of queues ──► stale ──view──► Model
//
// A nil publisher notes nothing.
type publisher struct {
	model   *Model
	entries pieces[*entry]    // by record number; nil for a workload in no figure
	touched []int32           // record numbers, with repeats
	stale   []*seen           // queues and LocalQueues whose view may differ
	changed []*localQueueView // scratch memory of Publish: the views of LocalQueues that do differ
	cohorts map[string]bool   // cohorts whose view may differ: true if their tree was edited
	classes []classNote
	traces  traces
	ground  // of the next Model
}

// classNote is a class of a queue that may have become active or inadmissible.
type classNote struct{ queue, class int32 }

// published is the part of a queue that its views consist of.
type published struct {
	figures
	def      *Queue         // a copy of the definition
	view     *queueView     // the last one
	line     sorted[*entry] // the pending workloads, in the order of the queue, unless it is UsageBased
	lines    lineViews
	held     sorted[*entry]   // the workloads with a reservation
	classes  sorted[failed]   // the inadmissible ones
	notes    int              // about them, since the last Publish
	attempts []*trace.Attempt // of evaluations since the last Publish, the last one at the end
	gone     bool             // it was deleted
}

func (p *publisher) touch(r *record) {
	if p != nil && !r.noted {
		r.noted = true
		p.touched = append(p.touched, r.first.Record)
	}
}

// define notes that the definition of a LocalQueue has changed, and so may what its workloads count for.
func (p *publisher) define(l *localQueue, records iter.Seq[*record]) {
	if p == nil {
		return
	}
	p.see(&l.seen)
	for r := range records {
		p.touch(r)
	}
}

// see notes that the view of a queue may differ.
func (p *publisher) see(t *seen) {
	if p != nil && !t.stale {
		t.stale = true
		p.stale = append(p.stale, t)
	}
}

// edit notes that the tree of a cohort was edited, or that there is no such cohort any more. "" is none.
func (p *publisher) edit(cohort string) {
	if p != nil && cohort != "" {
		p.cohorts[cohort] = true
	}
}

// noteClass notes that a class of a queue may have become active or inadmissible.
func (p *publisher) noteClass(q *queue, id int32) {
	p.classes = append(p.classes, classNote{q.q.Index, id})
	q.notes++
}

// watch follows the classes of a queue.
func (s *State) watch(q *queue) {
	if s.read == nil {
		return
	}
	q.q.Pending.Watch(func(w *workload.Workload) {
		s.read.noteClass(q, w.Class)
		s.read.see(&q.seen)
		if r := s.byNumber.record(w.Record); r != nil {
			s.read.touch(r)
		}
	})
}

// Publish returns the read model of the world as it is now, the same one if nothing was touched since the last call. It costs in
// proportion to the workloads and queues that were touched, and after an edit to the nodes of the edited trees; the first call
// builds the model, and from then on events take notes until the next call. Call it between events.
func (s *State) Publish() *Model {
	if s.read == nil {
		s.beginPublishing()
	}
	p := s.read
	noted := len(p.touched) + len(p.stale) + len(p.cohorts) + len(p.classes) + len(p.traces.noted)
	if noted == 0 && p.ground == p.model.ground && p.model.namespaces == s.defined.namespaces && !s.flight.hasNews() {
		return p.model
	}
	s.countTouched()
	s.updateClasses()
	s.staleTrees()
	next := *p.model
	next.ground = p.ground
	if s.world.Table.IDs() > len(*next.resources) {
		next.resources = new(s.world.Table.Names())
	}
	for _, t := range p.stale {
		t.stale = false
		if t.lq == nil {
			s.publishQueue(&next, t.name.Name)
		} else {
			s.publishLocalQueue(&next, t.lq)
		}
	}
	s.publishChanged(&next)
	clear(p.stale)
	p.stale = p.stale[:0]
	for name, edited := range p.cohorts { //berth:unordered each has a place of its own
		s.publishCohort(&next, name, edited)
	}
	clear(p.cohorts)
	next.namespaces = s.defined.namespaces
	p.traces.publish(&next, len(s.queues))
	next.flight = s.flight.publish(&next)
	if next != *p.model {
		p.model = &next
	}
	return p.model
}

// countTouched updates the figures of the queues of touched workloads.
func (s *State) countTouched() {
	if s.read == nil {
		s.beginPublishing()
	}
	s.world.ApplyEdits()
	p := s.read
	for _, number := range p.touched {
		s.updateEntry(number)
	}
	p.touched = p.touched[:0]
}

// beginPublishing notes the whole world.
func (s *State) beginPublishing() {
	s.read = &publisher{model: &Model{fair: s.options.Fair != nil, resources: &[]string{}}, cohorts: map[string]bool{}}
	for _, r := range s.records { //berth:unordered the model does not depend on the order of the notes
		s.read.touch(r)
	}
	for _, q := range s.queues { //berth:unordered likewise
		s.watch(q)
		s.read.see(&q.seen)
		q.q.Pending.EachInadmissible(func(class int32, _ *workload.Workload) { s.read.noteClass(q, class) })
	}
	for _, l := range s.localQueues { //berth:unordered likewise
		s.read.see(&l.seen)
	}
	for name := range s.cohorts { //berth:unordered likewise
		s.read.edit(name)
	}
	s.beginGround()
}

// manyClasses is the number of notes about a queue from which its set of classes is made anew, if that many of them may differ.
const manyClasses = 64

// updateClasses updates the sets of inadmissible classes.
func (s *State) updateClasses() {
	p := s.read
	for _, n := range p.classes {
		switch q := s.byIndex[n.queue]; {
		case q.notes == 0: // made anew
		case q.notes > manyClasses && q.notes > q.classes.Len()/4:
			classes := make([]failed, 0, q.classes.Len())
			q.q.Pending.EachInadmissible(func(class int32, by *workload.Workload) {
				classes = append(classes, failed{class, s.evaluatedEntry(q, class, by)})
			})
			slices.SortFunc(classes, compareClasses)
			q.classes, q.notes = sortedOf(classes), 0
		default:
			s.updateClass(q, n.class)
		}
	}
	for _, n := range p.classes {
		s.byIndex[n.queue].notes = 0
	}
	p.classes = p.classes[:0]
}

func (s *State) updateClass(q *queue, class int32) {
	old := evaluated(q.classes, class)
	by := q.q.Pending.Evaluated(class)
	switch {
	case by == nil && old != nil:
		q.classes = q.classes.drop(failed{class: class}, compareClasses)
	case by != nil:
		if e := s.evaluatedEntry(q, class, by); e != old {
			q.classes = q.classes.put(failed{class, e}, compareClasses)
		}
	}
}

// evaluatedEntry returns an entry with the decision that made a class inadmissible, given the workload that was evaluated. It is that of
// the workload unless that has left the line: then the published one of the class is kept, if it is about the same evaluation.
func (s *State) evaluatedEntry(q *queue, class int32, by *workload.Workload) *entry {
	r := s.byNumber.record(by.Record)
	if r == nil || r.uid() != by.UID {
		r = nil
	}
	if r != nil && r.wl == by {
		if e := s.read.entries.at(by.Record); e != nil && *e != nil && (*e).said == r.said {
			return *e
		}
	}
	if old := evaluated(q.classes, class); old != nil && old.wl.UID == by.UID && (r == nil || old.said == r.said) {
		return old
	}
	e := &entry{wl: by, waits: noQueue}
	if r != nil {
		e.said = r.said
	}
	return e
}

// staleTrees notes all queues and cohorts in the trees of the edited cohorts.
func (s *State) staleTrees() {
	visited := map[quota.Node]bool{}
	var edited []quota.Node
	for name, does := range s.read.cohorts { //berth:unordered a set
		if c := s.cohorts[name]; does && c != nil {
			edited = append(edited, c.node)
		}
	}
	f := s.world.Quota
	var below func(quota.Node)
	below = func(n quota.Node) {
		if visited[n] {
			return
		}
		visited[n] = true
		if !f.IsCohort(n) {
			if q := s.queues[f.Name(n)]; q != nil {
				s.read.see(&q.seen)
			}
			return
		}
		s.read.cohorts[f.Name(n)] = true
		for _, kid := range f.Kids(n) {
			below(kid)
		}
	}
	for _, n := range edited {
		for up := map[quota.Node]bool{}; f.Parent(n) != quota.None && !up[n] && !visited[n]; n = f.Parent(n) {
			up[n] = true
		}
		below(n)
	}
}

func (s *State) publishQueue(m *Model, name string) {
	q := s.queues[name]
	if q == nil {
		m.queues = m.queues.drop(&queueView{Queue: &Queue{Name: name}}, compareQueues)
		return
	}
	root := s.world.Quota.Root(q.q.Node)
	v := queueView{
		Queue: q.published.def, index: q.q.Index, inactive: q.q.Closed, closed: q.q.Closed != "" || root == quota.None, share: s.world.Quota.Share(q.q.Node),
		active: int32(q.q.Pending.Active()), inadmissible: int32(q.q.Pending.Inadmissible()), first: q.q.Pending.Prioritized(),
		resting: q.figures.resting, reserved: q.figures.reserved, admitted: q.figures.admitted,
		sums: q.figures.publish(), line: q.line, held: q.held, classes: q.classes, lines: q.lines.inOrder,
	}
	if v.first != nil {
		v.firstLine = q.lines.of[s.byNumber.record(v.first.Record).lq]
	}
	if q.def.Cohort != "" && root != quota.None {
		v.root = s.world.Quota.Name(root)
	}
	if q.view == nil || *q.view != v {
		q.view = new(v)
		m.queues = m.queues.put(q.view, compareQueues)
	}
}

func (s *State) publishLocalQueue(m *Model, l *localQueue) {
	if !l.exists {
		l.view = nil
		if now := s.localQueues[l.name]; now == nil || !now.exists { // else there is a new one of its name
			m.localQueues = m.localQueues.drop(&localQueueView{Name: l.name}, compareLocalQueues)
		}
		return
	}
	v := localQueueView{
		Name: l.name, queue: l.def.Queue, stopped: l.def.Stopped, deleted: l.def.Deleted, inLine: l.figures.inLine, resting: l.figures.resting,
		reserved: l.figures.reserved, admitted: l.figures.admitted, sums: l.figures.publish(),
		usage: l.usage(s.options.Sharing),
	}
	if l.view == nil || *l.view != v {
		l.view = new(v)
		s.read.changed = append(s.read.changed, l.view)
	}
}

// publishChanged adds the views of LocalQueues that differ.
func (s *State) publishChanged(m *Model) {
	changed := s.read.changed
	slices.SortFunc(changed, compareLocalQueues) // after a sample they are in order
	m.localQueues = m.localQueues.putAll(changed, compareLocalQueues)
	clear(changed)
	s.read.changed = changed[:0]
}

func (s *State) publishCohort(m *Model, name string, edited bool) {
	c, old := s.cohorts[name], m.cohort(name)
	if c == nil {
		m.cohorts = m.cohorts.drop(&cohortView{name: name}, compareCohorts)
		return
	}
	v := cohortView{name: name}
	if old != nil {
		v = *old
	}
	if edited || old == nil {
		v.defined, v.def, v.parent, v.root, v.subtree = c.def != nil, c.def, c.parent(), s.root(c.node), nil
		if v.root != "" {
			v.subtree = new(s.subtreeOf(c.node))
		}
	}
	if v.share = (quota.Share{}); v.root != "" {
		v.share = s.world.Quota.Share(c.node)
	}
	if old == nil || *old != v {
		m.cohorts = m.cohorts.put(new(v), compareCohorts)
	}
}

// subtreeOf returns the quota of a cohort's subtree, without zeros, by flavor and resource.
func (s *State) subtreeOf(n quota.Node) (out []Held) {
	for i := range s.world.Table.Len() {
		fr := resource.FR(i)
		s.world.Quota.Reach(fr)
		if a := s.world.Quota.Subtree(n, fr); a != 0 {
			out = append(out, s.held(resource.Entry{FR: fr, Amount: a}))
		}
	}
	slices.SortFunc(out, compareHeld)
	return out
}
