// Package state is the engine's world and the only mutable scheduling cache: events in,
// decisions out. It knows names and versions, which package core does not, and no Kubernetes.
// One goroutine owns a State. spec: 10 §4.1, §4.16.
package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// State is the world as the events so far describe it.
type State struct {
	options     Options
	world       *cycle.World
	defined     catalog
	flavors     map[string]*flavor.Flavor
	cohorts     map[string]*cohort
	queues      map[string]*queue
	byIndex     []*queue // all queues ever, by cycle.Queue.Index
	localQueues map[Name]*localQueue
	leads       map[string][]*localQueue // the existing LocalQueues, by ClusterQueue
	namespaces  map[string]int32         // the numbers of spaces
	spaces      resource.Slots[space]
	records     map[string]*record            // by UID
	byNumber    numbered                      // by workload.Workload.Record
	names       map[Name]*record              // the newest of each name
	replacing   map[Name][]*record            // the slices that want to replace the one of a name
	variants    map[Name][]*record            // by namespace and UID of their parent
	orphans     map[string]map[string]*record // reserved in a queue that does not exist, by queue and UID
	classes     map[uint64]*class             // by hash, see class.next
	shapes      map[uint64]*shape             // likewise
	lastClass   int32
	lastLine    int32
	notices     []cycle.Decision // reasons known without an evaluation
	touched     []*seen
	backfilling int  // the number of queues with Backfill
	reshare     bool // an edit may have changed any fair share
	lastSaid    *said
	accounts    accounts
	tentative   []cycle.Decision // admissions of a run that is interrupted, not returned yet
	read        *publisher       // nil before the first Publish

	places *topology.Placer       // nil without topologies
	second map[string]*secondPass // by UID

	flight  *recorder
	begun   *Checkpoint // the one that is not complete, or nil
	applied *definition // of the workload of the event being applied, nil for none
}

// Name names a LocalQueue, or a ClusterQueue when it has no namespace.
type Name struct {
	Namespace, Name string
}

func (n Name) compare(o Name) int {
	return cmp.Or(strings.Compare(n.Namespace, o.Namespace), strings.Compare(n.Name, o.Name))
}

// seen is a queue whose view may have changed.
type seen struct {
	name    Name
	lq      *localQueue // nil for a ClusterQueue
	touched bool
	stale   bool // it is in publisher.stale
}

type cohort struct {
	node  quota.Node
	def   *Cohort // nil if only named by others
	named int     // number of its child queues and cohorts
}

type queue struct {
	seen
	published
	def Queue
	q   *cycle.Queue
}

// localQueue is a LocalQueue that exists, or that workloads name.
type localQueue struct {
	seen
	def     LocalQueue
	exists  bool
	records *record         // the workloads that name it, linked
	resting int             // number of them that are resting
	figures                 // of the workloads that name it
	view    *localQueueView // the last published one, nil while it does not exist

	account  account
	standing order.Standing // of its account
	line     int32          // the number of its line in UsageBased queues, 0 until it is in one
	ranked   *queue         // the queue in which its line has its standing, nil for none
}

// Options are the settings that decisions depend on.
type Options struct {
	cycle.Options
	// NoClasses: every workload is a class of its own.
	NoClasses bool
	// Topology is the gates of placement; nil ignores topologies.
	Topology *topology.Gates `json:",omitempty"`
	// Sharing is the rates of admission fair sharing; nil is without. spec: 20 §4.4.
	Sharing *sharing.Rates `json:",omitempty"`
	// Backfill is that of all queues that have none of their own.
	Backfill cycle.Backfill `json:",omitempty"`
	// FailFast evicts a workload whose failed node has no replacement now. spec: 20 §4.9.
	FailFast bool `json:",omitempty"`
}

// New returns an empty state.
func New(o Options) *State {
	s := &State{
		options: o, world: cycle.NewWorld(o.Options), flavors: map[string]*flavor.Flavor{}, cohorts: map[string]*cohort{},
		queues: map[string]*queue{}, localQueues: map[Name]*localQueue{}, leads: map[string][]*localQueue{}, namespaces: map[string]int32{},
		records: map[string]*record{}, replacing: map[Name][]*record{}, variants: map[Name][]*record{},
		orphans: map[string]map[string]*record{}, classes: map[uint64]*class{}, shapes: map[uint64]*shape{},
	}
	s.world.NamespaceLabels = func(w *workload.Workload) (map[string]string, bool) {
		n := &s.spaces.All[w.Space]
		return n.labels, n.exists
	}
	s.world.ReplacedSlice, s.world.Barred, s.world.Migrating = s.replacedSliceOf, s.barredBySibling, s.migrating
	s.world.Unbar = func(wl *workload.Workload) { s.requeueBarred(s.byNumber.record(wl.Record), barring{reserved: true}) }
	s.world.Assumed, s.world.StandingOf = s.assume, s.heldStanding
	if o.Topology != nil {
		s.places = topology.NewPlacer(topology.New(s.world.Table, *o.Topology), s.world.Ledger)
		s.world.Places = s.places
	}
	return s
}

// Step runs cycles while there is progress, and until the work exceeds a budget, see cycle.World.Step. Workloads that it admits count as
// admitted afterwards; the caller reports the outcome of the write with SetWorkload or
// AdmissionFailed. If the budget ends the step, a later one may return its admissions.
func (s *State) Step(now workload.Instant, budget int) cycle.Result {
	var r cycle.Result
	s.accounts.clock = max(s.accounts.clock, now)
	if len(s.notices) > 0 {
		r.Decisions = s.drainNotices()
		s.decided(r.Decisions)
	}
	void := len(s.tentative) > 0 // an event or a retraction may have made some of them void
	if void {
		r.Decisions, s.tentative = append(s.tentative, r.Decisions...), nil
	}
	placed, placeNext := s.runSecondPass(now)
	r.Decisions = append(r.Decisions, placed...)
	s.decided(placed)
	for again := true; again; {
		part := s.world.Step(now, budget-r.Work)
		for _, wl := range part.Retracted {
			r := s.byNumber.record(wl.Record)
			r.got, r.said = nil, nil
		}
		again = s.decided(part.Decisions)
		if len(part.Retracted) > 0 {
			s.retracted(part.Retracted)
			again, void = true, true
		}
		again = again && !part.More
		if r.Decisions == nil {
			r.Decisions = part.Decisions
		} else {
			r.Decisions = append(r.Decisions, part.Decisions...)
		}
		r.Cycles += part.Cycles
		r.Work += part.Work
		r.Heads += part.Heads
		r.Admitting += part.Admitting
		r.More, r.Next, r.Endless = part.More, part.Next, append(r.Endless, part.Endless...)
	}
	countSecondPass(&r, placed)
	s.flight.noteUnsettled(s)
	if placeNext != 0 && (r.Next == 0 || placeNext < r.Next) {
		r.Next = placeNext
	}
	s.world.SettleAdmissions(now, r.More)
	if void || r.More {
		r.Decisions = slices.DeleteFunc(r.Decisions, s.withheld)
	}
	s.flight.stepped(s, now, budget, &r)
	return r
}

// countSecondPass counts the workloads of a second pass as heads of the first cycle. spec: 10 §4.5.
func countSecondPass(r *cycle.Result, placed []cycle.Decision) {
	if len(placed) == 0 {
		return
	}
	r.Heads += len(placed)
	r.Cycles = max(r.Cycles, 1)
	if slices.ContainsFunc(placed, func(d cycle.Decision) bool { return d.Placed != nil || d.NodesFailed }) {
		r.Admitting = max(r.Admitting, 1)
	}
}

// retracted updates what depends on workloads that an earlier part of the run admitted. They are
// in line again, unless this part has admitted them as well.
func (s *State) retracted(workloads []*workload.Workload) {
	for _, wl := range workloads {
		r := s.byNumber.record(wl.Record)
		s.touch(r)
		switch {
		case r.assumed():
		case s.classKeyOf(r) != r.class.classKey, !s.belongs(r): // an event has changed its class or its queue since it was admitted
			s.place(r, r.in)
		default:
			s.updateRelated(r, r.in)
		}
	}
}

// withheld reports whether a decision is not to be returned by this step: an admission that is
// void, or that is kept for a later step, since it is still tentative.
func (s *State) withheld(d cycle.Decision) bool {
	if d.Admitted == nil {
		return false
	}
	if r := s.records[d.Workload.UID]; r == nil || r.got != d.Admitted {
		return true
	}
	if d.Workload.Tentative {
		s.tentative = append(s.tentative, d)
	}
	return d.Workload.Tentative
}

// decided records decisions, and reports whether they require another evaluation: of slices
// whose replaced slice was just admitted.
func (s *State) decided(decisions []cycle.Decision) (more bool) {
	for i := range decisions {
		d := &decisions[i]
		rec := s.byNumber.record(d.Workload.Record)
		s.say(rec, said{d.Attempt.Verdict, d.Attempt.Reason, d.Attempt.Note, d.Attempt.Victims, d.Attempt.Start})
		if d.Attempt.Verdict == trace.Admitted {
			rec.assume(d.Admitted)
		}
		if rec.in != nil && rec.said.waits() {
			s.read.noteAttempt(s.byIndex[rec.in.Index], d.Attempt)
		}
		s.touch(rec)
		for _, v := range d.Evict {
			s.flight.touch(s.byNumber.record(v.Workload.Record))
		}
	}
	if len(s.replacing) == 0 {
		return false
	}
	// After all are recorded: a replacement may have been admitted itself.
	for i := range decisions {
		if d := &decisions[i]; d.Attempt.Verdict == trace.Admitted {
			rec := s.byNumber.record(d.Workload.Record)
			charged := s.charge(rec)
			if p := s.replacedSlice(rec); p != nil {
				more = s.yieldLine(p) || more
			}
			more = s.updateReplacing(rec) || charged || more
		}
	}
	return more
}

// say records the last decision about a workload. Equal decisions share their memory.
func (s *State) say(r *record, it said) {
	if r.said.plain(&it) {
		return
	}
	if !s.lastSaid.plain(&it) {
		kept := it
		s.lastSaid = &kept
	}
	r.said = s.lastSaid
}

// Touched returns, sorted, the queues and the cohorts whose view may have changed since the
// last call. The view of a cohort is its fair share.
func (s *State) Touched() (queues []Name, cohorts []string) {
	s.touchShares()
	queues = make([]Name, len(s.touched))
	for i, t := range s.touched {
		queues[i] = t.name
		t.touched = false
	}
	s.touched = s.touched[:0]
	slices.SortFunc(queues, Name.compare)
	return queues, s.sharing(queues)
}

// touch notes that the views of a record's queues have changed, and the record.
func (s *State) touch(r *record) {
	s.flight.touch(r)
	s.read.touch(r)
	if r.in != nil {
		s.see(&s.byIndex[r.in.Index].seen)
	}
	if r.lq != nil {
		s.see(&r.lq.seen)
		if r.lq.resting > 0 { // these are in no line, and still pending
			s.seeQueue(r.lq.def.Queue)
		}
	}
}

// seeQueue is see for a ClusterQueue, if there is one of the name.
func (s *State) seeQueue(name string) {
	if q := s.queues[name]; q != nil {
		s.see(&q.seen)
	}
}

func (s *State) see(t *seen) {
	if !t.touched {
		t.touched = true
		s.touched = append(s.touched, t)
	}
}

// Grant is an admission in names.
type Grant struct {
	UID     string // of the workload
	Queue   string
	At      workload.Instant // the time of the reservation
	PodSets []PodSetGrant
	// Contested: another variant of the job holds quota too, so the controller of variants decides which one is admitted.
	Contested bool
	// Version and Generation are what the Workload had that was decided about.
	Version    uint64
	Generation int64
}

// PodSetGrant is the assignment of one pod set.
type PodSetGrant struct {
	Name  string
	Count int32
	Held  []Held
	// Placement is its places on nodes, nil for none. Delayed: they are to be found later.
	Placement *trace.Placement
	Delayed   bool
}

// Grant returns the admission of a decision in names.
func (s *State) Grant(d *cycle.Decision) Grant {
	return s.grantTo(s.records[d.Workload.UID], d.Workload, d.Queue, cmp.Or(d.Admitted, d.Placed))
}

// grantTo is Grant for a record, which may be nil for a workload that was deleted.
func (s *State) grantTo(r *record, wl *workload.Workload, queue string, a *flavor.Holding) Grant {
	g := s.grant(queue, a)
	g.UID, g.At, g.Contested = wl.UID, wl.ReservedAt, s.isContested(r)
	return g
}

func (s *State) grant(queue string, a *flavor.Holding) Grant {
	g := Grant{Queue: queue, PodSets: make([]PodSetGrant, 0, len(a.PodSets)), Version: a.Version, Generation: a.Generation}
	for _, ps := range a.PodSets {
		out := PodSetGrant{Name: ps.Name, Count: ps.Count, Placement: ps.Placement, Delayed: ps.Delayed, Held: make([]Held, 0, len(ps.Resources))}
		for _, r := range ps.Resources {
			held := s.held(resource.Entry{FR: r.FR, Amount: r.Amount})
			held.PodSet = ps.Name
			out.Held = append(out.Held, held)
		}
		g.PodSets = append(g.PodSets, out)
	}
	return g
}

// drainNotices returns the notices that are still true.
func (s *State) drainNotices() []cycle.Decision {
	slices.SortStableFunc(s.notices, func(a, b cycle.Decision) int {
		return strings.Compare(a.Workload.Key, b.Workload.Key)
	})
	var out []cycle.Decision
	for _, d := range s.notices {
		if s.isTrue(&d) {
			out = append(out, d)
		}
	}
	s.notices = nil
	return out
}

// manyNotices is the least number of notices that is too many: without steps, as on a standby, they are not drained.
const manyNotices = 1024

// compactNotices drops notices that are not true any more, and all but the last of a workload.
func (s *State) compactNotices() {
	seen := make(map[string]bool, len(s.records))
	kept := len(s.notices)
	for _, d := range slices.Backward(s.notices) {
		if uid := d.Workload.UID; !seen[uid] && s.isTrue(&d) {
			seen[uid] = true
			kept--
			s.notices[kept] = d
		}
	}
	s.notices = slices.Clone(s.notices[kept:])
}

// isTrue reports whether a notice is still true.
func (s *State) isTrue(d *cycle.Decision) bool {
	r := s.records[d.Workload.UID]
	return r != nil && r.wl == d.Workload && !r.wl.Reserved
}

// amounts interns a reservation, without zeros.
func (s *State) amounts(held []Held) ledger.Usage {
	if len(held) == 0 {
		return ledger.Usage{}
	}
	v := make(resource.Vector, 0, len(held))
	for _, h := range held {
		fr := s.world.Table.FR(h.Flavor, h.Resource)
		if h.Amount <= 0 {
			continue
		}
		s.world.Quota.Reach(fr)
		v = v.Add(fr, h.Amount)
	}
	return ledger.Usage{Quota: v}
}
