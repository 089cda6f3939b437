package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestMachine feeds random events to a state and asks after every step whether the
// world is still sound: see check and checkSettled.
func TestMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt)
		rt.Repeat(m.actions())
		m.step(rt)
		m.replay(rt)
	})
}

// actions are what may happen, by name. The one without a name follows each of them.
func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":                 m.check,
		"submit":           m.submit,
		"submit more":      m.submit,
		"submit yet more":  m.submit,
		"step":             m.step,
		"step again":       m.step,
		"step once more":   m.step,
		"interrupted":      m.interrupted,
		"written":          m.written,
		"checks passed":    m.passed,
		"more is written":  m.written,
		"all is written":   m.allWritten,
		"write fails":      m.writeFails,
		"evict written":    m.evictWritten,
		"evict fails":      m.evictFails,
		"evicted":          m.evicted,
		"may stay":         m.mayStay,
		"finish":           m.finish,
		"queueable":        m.queueable,
		"delete":           m.delete,
		"reserved outside": m.reservedOutside,
		"evicted outside":  m.evictedOutside,
		"edit workload":    m.editWorkload,
		"stale":            m.stale,
		"edit queue":       func(t *rapid.T) { m.editQueue(t) },
		"delete queue":     m.deleteQueue,
		"edit cohort":      m.editCohort,
		"delete cohort":    m.deleteCohort,
		"edit flavor":      m.editFlavor,
		"edit localqueue":  m.editLocalQueue,
		"usage":            m.setUsage,
		"other usage":      m.setUsage,
		"edit namespace":   m.editNamespace,
		"gate":             m.gate,
		"rest":             m.rest,
		"problem":          m.problem,
		"ready":            m.ready,
		"ready again":      m.ready,
		"slice":            m.slice,
		"copy":             m.copy,
		"checkpoint":       m.checkpoint,
		"fork":             m.forkBetween,
		"edit node":        m.editNode,
		"edit other node":  m.editNode,
		"delete node":      m.deleteNode,
		"foreign":          m.setForeign,
		"divide":           m.divide,
		"divide more":      m.divide,
		"follow job":       m.followJob,
		"job changes":      m.followJob,
	}
}

// drawOptions draws the settings of a world.
func drawOptions(t *rapid.T) Options {
	o := Options{Options: immediately()}
	if rapid.IntRange(0, 2).Draw(t, "fair sharing") == 2 {
		strategies := [][]preempt.Strategy{
			{preempt.LessThanOrEqualToFinalShare, preempt.LessThanInitialShare}, {preempt.LessThanInitialShare}, {preempt.LessThanOrEqualToFinalShare},
		}
		o.Fair = &preempt.Fair{Strategies: rapid.SampledFrom(strategies).Draw(t, "strategies"), WithinNominal: rapid.Bool().Draw(t, "within nominal")}
		o.NonBorrowingFirst = rapid.Bool().Draw(t, "non-borrowing first")
	}
	rare := func(what string) bool { return rapid.IntRange(0, 4).Draw(t, what) == 4 }
	o.PriorityInCohort, o.RecomputeOverlap = !rare("no priority in cohort"), !rare("no recompute")
	o.KeepScan, o.PreemptorFirst, o.FungibilityOff = !rare("no scan kept"), rare("preemptor first"), rare("no fungibility")
	o.NoClasses, o.BlockAdmission = rare("no classes"), rare("block admission")
	return o
}

// immediately are the usual options, but for edits that have effect at once.
func immediately() cycle.Options {
	o := cycle.Defaults()
	o.EditWindow = 0
	return o
}

// machine is a state and its events: the truth as the API server has it, and
// the writes that are still on their way there.
type machine struct {
	s          *State
	options    Options
	now        int64
	preempting bool // whether queues may have a preemption policy
	cpu        bool // whether workloads ask for two resources
	partial    bool // whether pod sets may shrink
	usageBased bool // whether queues may be
	places     bool // whether there are topologies
	variants   bool // whether queues may have variants
	backfill   bool // whether queues may reserve starts

	flavors    map[string]flavor.Flavor
	cohorts    map[string]Cohort
	queues     map[string]Queue
	lqs        map[string]LocalQueue
	usages     map[string]order.Standing // by LocalQueue
	namespaces map[string]map[string]string
	objects    map[string]*object
	nodes      map[string]SetNode
	foreign    map[string]SetForeign
	serial     int
	shown      map[string]string // by queue and cohort: what its status shows
	checks     int
	kept       []keptModel
	ground     groundTwin

	checkpoints   []keptCheckpoint
	editedBetween []string // queues that were edited since the present step began; it may have admitted before
}

// object is a Workload of the API server.
type object struct {
	def       Workload
	old       []Workload      // earlier versions
	admission *cycle.Decision // being written
	grant     Grant
	evicting  bool // its eviction is being written
	checked   bool // it has checks to pass once it holds quota
}

func newMachine(t *rapid.T) *machine { return newMachineOf(t, drawOptions(t)) }

func newMachineOf(t *rapid.T, options Options) *machine {
	m := &machine{
		preempting: rapid.IntRange(0, 3).Draw(t, "preempting") > 0, cpu: rapid.Bool().Draw(t, "two resources"),
		flavors: map[string]flavor.Flavor{}, cohorts: map[string]Cohort{}, queues: map[string]Queue{}, lqs: map[string]LocalQueue{}, usages: map[string]order.Standing{},
		namespaces: map[string]map[string]string{}, objects: map[string]*object{},
	}
	m.options, m.partial = options, rapid.IntRange(0, 3).Draw(t, "partial") == 3
	m.usageBased = rapid.IntRange(0, 2).Draw(t, "usage based") == 2
	m.variants = rapid.IntRange(0, 2).Draw(t, "variants") == 2
	m.backfill = rapid.IntRange(0, 2).Draw(t, "backfill") == 2
	m.drawPlaces(t)
	m.s = New(m.options)
	m.s.Record(rapid.IntRange(1, 40).Draw(t, "record"))
	for _, name := range []string{"n0", "n1"} {
		m.namespaces[name] = map[string]string{"team": name}
		m.s.Apply(SetNamespace{Name: name, Labels: m.namespaces[name]})
	}
	for _, name := range []string{"f0", "f1"} {
		m.flavors[name] = m.levels(t, flavor.Flavor{Name: name})
		m.s.Apply(SetFlavor(m.flavors[name]))
	}
	for range 4 {
		if m.places {
			m.editNode(t)
		}
	}
	for range rapid.IntRange(1, 6).Draw(t, "queues") {
		m.editQueue(t)
	}
	for range rapid.IntRange(0, 2).Draw(t, "cohorts") {
		m.editCohort(t)
	}
	for range rapid.IntRange(4, 20).Draw(t, "workloads") {
		m.submit(t)
	}
	for range 3 {
		if m.variants {
			m.divide(t)
		}
	}
	return m
}

func (m *machine) tick() workload.Instant { m.now++; return workload.Instant(m.now) }

func pick[V any](t *rapid.T, what string, from map[string]V, ok func(V) bool) (string, V) {
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(from)) {
		if ok(from[k]) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		t.Skip("no " + what)
	}
	k := rapid.SampledFrom(keys).Draw(t, what)
	return k, from[k]
}

func any1[V any](V) bool { return true }

// set writes a new version of an object and tells the state.
func (m *machine) set(o *object) {
	o.old = append(o.old, o.def)
	o.def.Version++
	o.def.Holds = o.def.VariantOf != "" && o.def.Reserved
	m.s.Apply(SetWorkload(o.def))
}

func (m *machine) submit(t *rapid.T) {
	m.serial++
	o := &object{def: Workload{
		UID: fmt.Sprintf("u%02d", m.serial), Name: fmt.Sprintf("w%02d", m.serial),
		Namespace:  rapid.SampledFrom([]string{"n0", "n0", "n0", "n1"}).Draw(t, "namespace"),
		LocalQueue: rapid.SampledFrom(slices.Sorted(maps.Keys(m.lqNames()))).Draw(t, "localqueue"),
		Queueable:  true,
	}, checked: rapid.IntRange(0, 2).Draw(t, "checked") == 2}
	o.def.Created = m.tick()
	if rapid.IntRange(0, 4).Draw(t, "older") == 0 {
		o.def.Created = workload.Instant(rapid.Int64Range(0, m.now).Draw(t, "created"))
	}
	o.def.Since = o.def.Created
	o.def.MinRun, o.def.Bound = drawMinRun(t), drawBound(t)
	m.shape(t, &o.def)
	m.objects[o.def.UID] = o
	m.set(o)
}

// shape draws what a workload asks for.
func (m *machine) shape(t *rapid.T, def *Workload) {
	def.Priority = rapid.SampledFrom([]int64{1, 0, 2, 3}).Draw(t, "priority")
	def.PodSets = nil
	for i := range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "podsets") {
		ps := PodSet{Name: fmt.Sprintf("p%d", i), Count: 1}
		if m.places {
			ps.Count = rapid.Int32Range(1, 4).Draw(t, "pods")
		}
		if m.partial {
			ps.Count = rapid.Int32Range(1, 3).Draw(t, "count")
			ps.MinCount = rapid.Int32Range(0, ps.Count).Draw(t, "min")
		}
		for _, name := range []string{"cpu", "gpu"} {
			n := rapid.SampledFrom([]int64{1, 2, 3, 4, 0}).Draw(t, name)
			if name == "cpu" && !m.cpu {
				n = 0
			}
			if n > 0 || name == "gpu" {
				ps.Requests = append(ps.Requests, Request{name, resource.Amount(n * int64(ps.Count))})
			}
		}
		def.PodSets = append(def.PodSets, ps)
	}
	if m.places {
		m.requestPlaces(t, def.PodSets)
	}
}

func (m *machine) quotas(t *rapid.T, limits bool) []Group {
	amount := func(name string) resource.Amount {
		return resource.Amount(rapid.SampledFrom([]int64{3, 2, 4, 6, 0}).Draw(t, name))
	}
	limit := func(name string) resource.Amount {
		if !limits || rapid.IntRange(0, 3).Draw(t, name) > 0 {
			return quota.NoLimit
		}
		return amount(name)
	}
	var groups []Group
	flavors := rapid.SampledFrom([][]string{{"f0"}, {"f0"}, {"f0", "f1"}, {"f1", "f0"}}).Draw(t, "flavors")
	for _, resources := range rapid.SampledFrom([][][]string{{{"gpu", "cpu"}}, {{"gpu"}, {"cpu"}}, {{"gpu"}}}).Draw(t, "groups") {
		g := Group{Resources: resources}
		for _, f := range flavors {
			fq := FlavorQuota{Flavor: f}
			for _, r := range resources {
				q := Quota{Resource: r, Nominal: amount("nominal"), Borrow: limit("borrow"), Lend: limit("lend")}
				if r == "cpu" {
					q.Nominal += 5
				}
				q.Lend = min(q.Lend, q.Nominal)
				fq.Resources = append(fq.Resources, q)
			}
			g.Flavors = append(g.Flavors, fq)
		}
		groups = append(groups, g)
	}
	return groups
}

func (m *machine) editQueue(t *rapid.T) (name string) {
	name = rapid.SampledFrom([]string{"q0", "q1", "q2", "q3"}).Draw(t, "queue")
	def := Queue{
		Name: name, Cohort: rapid.SampledFrom([]string{"c0", "c0", "c1", ""}).Draw(t, "cohort"),
		Strict:     rapid.IntRange(0, 3).Draw(t, "strict") == 0,
		Namespaces: []workload.Term{{}},
		Fungibility: flavor.Fungibility{
			TryNextWhenBorrowing: rapid.Bool().Draw(t, "try"), StopWhenPreempting: rapid.Bool().Draw(t, "stop"),
			PreemptionOverBorrowing: rapid.Bool().Draw(t, "over"),
		},
	}
	def.Groups = m.quotas(t, def.Cohort != "")
	if rapid.IntRange(0, 11).Draw(t, "selective") == 7 {
		def.Namespaces = []workload.Term{{{Key: "team", Op: workload.In, Values: []string{"n0"}}}}
	}
	if m.queues[name].Closed == "" && rapid.IntRange(0, 11).Draw(t, "closed") == 7 {
		def.Closed = "stopped"
	}
	m.drawPolicy(t, &def)
	if m.backfill {
		def.Backfill = rapid.SampledFrom([]cycle.Backfill{cycle.NoBackfill, cycle.Easy, cycle.Conservative, cycle.Conservative}).Draw(t, "reserves starts")
	}
	def.UsageBased = m.usageBased && rapid.IntRange(0, 4).Draw(t, "by usage") > 0
	if m.preempting {
		rules := []preempt.Rule{preempt.LowerPriority, preempt.LowerOrNewerEqualPriority, preempt.Never}
		def.Preemption.Within = rapid.SampledFrom(rules).Draw(t, "within")
		def.Preemption.Reclaim = rapid.SampledFrom(append(rules, preempt.Any)).Draw(t, "reclaim")
		def.Preemption.BorrowWithin = def.Preemption.Reclaim != preempt.Never && rapid.Bool().Draw(t, "borrow within")
	}
	if _, known := m.queues[name]; !known {
		for _, ns := range []string{"n0", "n1"} {
			lq := LocalQueue{Namespace: ns, Name: name, Queue: name}
			m.lqs[ns+"/"+name] = lq
			m.s.Apply(SetLocalQueue(lq))
		}
	}
	m.queues[name] = def
	m.s.Apply(SetQueue(def))
	return name
}

func (m *machine) deleteQueue(t *rapid.T) {
	m.rarely(t)
	name, _ := pick(t, "queue", m.queues, any1)
	delete(m.queues, name)
	m.s.Apply(DeleteQueue(name))
	for _, uid := range slices.Sorted(maps.Keys(m.objects)) {
		if o := m.objects[uid]; o.admission != nil && o.grant.Queue == name { // the write bounces
			m.fail(o)
		}
	}
}

// rarely skips most of the time what would leave little to look at.
func (m *machine) rarely(t *rapid.T) {
	if rapid.IntRange(0, 7).Draw(t, "really") != 5 {
		t.Skip("rarely")
	}
}

func (m *machine) editCohort(t *rapid.T) {
	def := Cohort{
		Name:   rapid.SampledFrom([]string{"c0", "c1", "c2"}).Draw(t, "cohort"),
		Parent: rapid.SampledFrom([]string{"", "", "c1", "c2", "c0"}).Draw(t, "parent"),
	}
	if def.Parent == def.Name {
		def.Parent = ""
	}
	if rapid.Bool().Draw(t, "own") {
		def.Groups = m.quotas(t, def.Parent != "")
	}
	m.cohorts[def.Name] = def
	m.s.Apply(SetCohort(def))
}

func (m *machine) deleteCohort(t *rapid.T) {
	name, _ := pick(t, "cohort", m.cohorts, any1)
	delete(m.cohorts, name)
	m.s.Apply(DeleteCohort(name))
}

func (m *machine) editFlavor(t *rapid.T) {
	name := rapid.SampledFrom([]string{"f0", "f1"}).Draw(t, "flavor")
	if len(m.flavors) < 2 {
		name = "f0"
		if _, ok := m.flavors[name]; ok {
			name = "f1"
		}
	}
	f := m.levels(t, flavor.Flavor{Name: name})
	switch rapid.IntRange(0, 5).Draw(t, "how") {
	case 2:
		f.Taints = []workload.Taint{{Key: "k", Effect: "NoSchedule"}}
	case 1:
		m.rarely(t)
		delete(m.flavors, name)
		m.s.Apply(DeleteFlavor(name))
		return
	}
	m.flavors[name] = f
	m.s.Apply(SetFlavor(f))
}

func (m *machine) editLocalQueue(t *rapid.T) {
	key, lq := pick(t, "localqueue", m.lqs, any1)
	if !lq.Stopped {
		m.rarely(t)
	}
	lq.Stopped = !lq.Stopped && rapid.Bool().Draw(t, "stopped")
	lq.Deleted = lq.Stopped && rapid.Bool().Draw(t, "being deleted")
	lq.Queue = rapid.SampledFrom([]string{lq.Name, lq.Name, "q0"}).Draw(t, "queue")
	if len(m.lqs) > 1 && rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
		delete(m.lqs, key)
		delete(m.usages, key)
		m.s.Apply(DeleteLocalQueue{Namespace: lq.Namespace, Name: lq.Name})
		return
	}
	m.lqs[key] = lq
	m.s.Apply(SetLocalQueue(lq))
}

// turnLocalQueue has a LocalQueue lead to another ClusterQueue, or closes or opens it.
func (m *machine) turnLocalQueue(t *rapid.T) {
	key := rapid.SampledFrom(slices.Sorted(maps.Keys(m.lqs))).Draw(t, "localqueue")
	lq := m.lqs[key]
	lq.Stopped = rapid.IntRange(0, 3).Draw(t, "stopped") == 0
	lq.Deleted = lq.Stopped && rapid.Bool().Draw(t, "being deleted")
	lq.Queue = rapid.SampledFrom([]string{lq.Name, "q0", "q1"}).Draw(t, "queue")
	m.lqs[key] = lq
	m.s.Apply(SetLocalQueue(lq))
}

func (m *machine) editNamespace(t *rapid.T) {
	labels := map[string]string{"team": rapid.SampledFrom([]string{"n0", "n1"}).Draw(t, "team")}
	m.namespaces["n0"] = labels
	m.s.Apply(SetNamespace{Name: "n0", Labels: labels})
}

func (m *machine) finish(t *rapid.T) {
	_, o := pick(t, "workload", m.objects, func(o *object) bool { return o.def.Queueable })
	o.def.Queueable, o.def.Reserved, o.def.Admitted, o.def.Evicting = false, false, false, false
	o.def.Held, o.def.Queue, o.def.Placed = nil, "", nil
	o.evicting = o.evicting && o.admission != nil // what is being written keeps its quota until the writer's report
	m.set(o)
}

func (m *machine) delete(t *rapid.T) {
	m.rarely(t)
	uid, _ := pick(t, "workload", m.objects, any1)
	delete(m.objects, uid)
	m.s.Apply(DeleteWorkload(uid))
}

func (m *machine) reservedOutside(t *rapid.T) {
	_, o := pick(t, "pending", m.objects, func(o *object) bool {
		return o.def.Queueable && !o.def.Reserved && o.admission == nil && o.def.VariantOf == ""
	})
	o.def.Reserved, o.def.Queue, o.def.ReservedAt = true, rapid.SampledFrom([]string{"q0", "q1", "ghost"}).Draw(t, "in"), m.tick()
	o.def.Held = []Held{{Flavor: "f0", Resource: "gpu", Amount: resource.Amount(rapid.Int64Range(0, 3).Draw(t, "held"))}}
	m.placedOutside(t, &o.def)
	m.set(o)
}

func (m *machine) editWorkload(t *rapid.T) {
	_, o := pick(t, "workload", m.objects, func(o *object) bool { return o.def.Queueable })
	switch {
	case o.def.Reserved || o.admission != nil:
		o.def.Priority, o.def.MinRun = rapid.Int64Range(0, 3).Draw(t, "priority"), drawMinRun(t)
		if rapid.Bool().Draw(t, "other bound") {
			o.def.Bound = drawBound(t)
		}
	case rapid.Bool().Draw(t, "move"):
		o.def.LocalQueue = rapid.SampledFrom([]string{"q0", "q1"}).Draw(t, "to")
	default:
		m.shape(t, &o.def)
		m.restrict(&o.def)
	}
	m.set(o)
}

// gate opens or closes what keeps a workload from preempting.
func (m *machine) gate(t *rapid.T) {
	_, o := pick(t, "pending", m.objects, func(o *object) bool { return o.def.Queueable && !o.def.Reserved && o.admission == nil })
	o.def.Gated = !o.def.Gated
	m.set(o)
}

// rest sends a workload out of the line for a while, or back into it.
func (m *machine) rest(t *rapid.T) {
	_, o := pick(t, "pending", m.objects, func(o *object) bool { return o.def.Queueable && !o.def.Reserved && o.admission == nil })
	o.def.Resting = !o.def.Resting
	m.set(o)
}

// problem gives a workload something that keeps it from being admitted, or takes it away.
func (m *machine) problem(t *rapid.T) {
	_, o := pick(t, "pending", m.objects, func(o *object) bool { return o.def.Queueable && !o.def.Reserved && o.admission == nil })
	if o.def.Problem != nil {
		o.def.Problem = nil
	} else {
		o.def.Problem = &workload.Problem{Reason: string(trace.Misconfigured), Note: "it asks for too little"}
	}
	m.set(o)
}

// ready has the pods of a workload become ready, or not ready any more.
func (m *machine) ready(t *rapid.T) {
	_, o := pick(t, "running", m.objects, func(o *object) bool { return o.def.Reserved })
	o.def.Ready = !o.def.Ready
	m.set(o)
}

// slice submits a workload that may take the place of another one, which it may not if
// the owner is not the same.
func (m *machine) slice(t *rapid.T) {
	_, before := pick(t, "slice", m.objects, func(o *object) bool { return o.def.Queueable && o.def.VariantOf == "" })
	m.submit(t)
	o := m.objects[fmt.Sprintf("u%02d", m.serial)]
	o.def.LocalQueue, o.def.Replaces = before.def.LocalQueue, before.def.Name // in its namespace or, in vain, in another
	if rapid.IntRange(0, 4).Draw(t, "stranger") == 4 {
		o.def.Owner = "somebody else"
	}
	m.set(o)
}

// copy goes on with a state that was written down and read again, or with a fork.
func (m *machine) copy(t *rapid.T) {
	m.shown = nil // a copy has touched nothing
	m.step(t)
	restored := m.fork(t)
	if diff := gocmp.Diff(m.s.Dump(), restored.Dump()); diff != "" {
		t.Fatalf("a copy differs:\n%s", diff)
	}
	m.s = restored
	m.s.Record(rapid.IntRange(1, 40).Draw(t, "record"))
}

// reread is the state that comes of a snapshot that was written down.
func reread(t *rapid.T, s *Snapshot) *State {
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var from Snapshot
	if err := json.Unmarshal(data, &from); err != nil {
		t.Fatal(err)
	}
	restored, err := Restore(&from)
	if err != nil {
		t.Fatal(err)
	}
	return restored
}

// replay runs the record of the flight again.
func (m *machine) replay(t *rapid.T) {
	from, events := m.s.Publish().Record().Contents()
	again := reread(t, from)
	for i := range events {
		r := again.Apply(events[i])
		if e, is := events[i].(Step); is && (Hash(r.Decisions) != e.Hash || r.Cycles != e.Cycles) {
			t.Fatalf("event %d of %d decides otherwise than recorded", i+1, len(events))
		}
	}
	if diff := gocmp.Diff(m.s.Dump(), again.Dump()); diff != "" {
		t.Fatalf("the replayed world differs:\n%s", diff)
	}
}

func (m *machine) stale(t *rapid.T) {
	_, o := pick(t, "old version", m.objects, func(o *object) bool { return len(o.old) > 1 })
	m.s.Apply(SetWorkload(rapid.SampledFrom(o.old[1:]).Draw(t, "version")))
}

// step runs the engine, checks every decision, and then that nothing is left to do.
func (m *machine) step(t *rapid.T) { m.stepAnd(t, func() {}) }

// stepAnd is step, with a call before the checks, which may leave measures behind.
func (m *machine) stepAnd(t *rapid.T, stepped func()) {
	bound := 20 + 6*(len(m.objects)+len(m.queues))
	if m.backfill {
		bound *= 20 // an evaluation may find up to 16 starts
	}
	told := map[string]bool{}
	for uid, r := range m.s.records {
		told[uid] = r.wl.Evicting
	}
	r := m.s.Step(m.tick(), bound)
	stepped()
	if r.More || len(r.Endless) > 0 {
		t.Fatalf("no end after %d cycles", r.Cycles)
	}
	for i := range r.Decisions {
		m.decided(t, &r.Decisions[i], told)
	}
	checkStarts(t, r.Decisions)
	m.checkRoom(t, r.Decisions)
	for _, d := range r.Decisions { // all are charged by now, and still each fits
		rec := m.s.records[d.Workload.UID]
		if d.Attempt.Verdict == trace.Admitted && rec.in != nil && !m.fitsBeside(rec) {
			t.Fatalf("%s was admitted past quota", d.Workload.Key)
		}
	}
	m.checkSettled(t)
}

func (m *machine) decided(t *rapid.T, d *cycle.Decision, told map[string]bool) {
	o := m.objects[d.Workload.UID]
	switch {
	case o == nil || !o.def.Queueable || o.def.Reserved:
		t.Fatalf("a decision about %s, which does not wait", d.Workload.Key)
	case d.Attempt.Verdict == trace.Waits && d.Attempt.Reason == "", d.Attempt.Sentence() == "":
		t.Fatalf("no reason given: %s", d.Attempt)
	case d.Attempt.Verdict == trace.Preempts && len(d.Attempt.Victims) == 0:
		t.Fatalf("preempts nobody: %s", d.Attempt)
	case d.Attempt.Verdict == trace.Admitted:
		o.admission, o.grant = d, m.s.Grant(d)
		m.checkPlaced(t, d)
		m.checkAlone(t, o)
		if d.Replaced != nil {
			if old := m.objects[d.Replaced.UID]; old == nil || old.def.Name != o.def.Replaces || old.def.Owner != o.def.Owner {
				t.Fatalf("%s takes the place of %s", o.def.Key(), d.Replaced.Key)
			}
		}
	}
	for _, v := range d.Evict {
		victim := m.objects[v.Workload.UID]
		if victim == nil || told[v.Workload.UID] || !v.Workload.Reserved {
			t.Fatalf("%s is told to go again, or does not hold anything: %s", v.Workload.Key, d.Attempt)
		}
		told[v.Workload.UID] = true
		victim.evicting = true
	}
}

// fitsBeside reports whether a reserved workload would fit if it were not there.
func (m *machine) fitsBeside(r *record) bool {
	f := m.s.world.Ledger
	mark := f.Mark()
	defer f.Rollback(mark)
	f.Release(r.in.Node, r.wl.Usage)
	return f.Fits(r.in.Node, r.wl.Usage)
}

// check holds after every event: every workload is in one place, the right one, and
// the forest is charged with what the holders hold.
func (m *machine) check(t *rapid.T) {
	seen := map[string]string{}
	put := func(w *workload.Workload, place string) {
		if seen[w.UID] != "" {
			t.Fatalf("%s is %s and %s", w.Key, seen[w.UID], place)
		}
		seen[w.UID] = place
	}
	for name, q := range m.s.queues {
		sum := map[resource.FR]resource.Amount{}
		for w := range q.q.Holders().All() {
			put(w, "held in "+name)
			if !w.Reserved || w.Gone {
				t.Fatalf("%s holds quota: %v, is out of the forest: %v", w.Key, w.Reserved, w.Gone)
			}
			for _, e := range w.Usage.Quota {
				sum[e.FR] += e.Amount
			}
		}
		m.s.world.ApplyEdits()
		for fr := range resource.FR(m.s.world.Table.Len()) {
			if have := m.s.world.Quota.Usage(q.q.Node, fr); have != sum[fr] {
				t.Fatalf("%s is charged %d of %v, its holders hold %d", name, have, m.s.world.Table.Pair(fr), sum[fr])
			}
		}
		line := q.q.Pending.All()
		for _, w := range line {
			put(w, "waits in "+name)
		}
		if n := q.q.Pending.Active() + q.q.Pending.Inadmissible(); n != len(line) {
			t.Fatalf("%s has %d active and parked, and %d in line", name, n, len(line))
		}
		m.checkLines(t, q, line)
	}
	members := 0
	for _, c := range m.s.classes {
		for ; c != nil; c = c.next {
			members += int(c.members)
		}
	}
	if members != len(m.s.records) || len(m.s.records) != len(m.objects) {
		t.Fatalf("%d objects, %d records, %d members of classes", len(m.objects), len(m.s.records), members)
	}
	for uid, o := range m.objects {
		if want := m.place(o); seen[uid] != want {
			t.Fatalf("%s should be %q, is %q", o.def.Key(), want, seen[uid])
		}
		delete(seen, uid)
	}
	if len(seen) > 0 {
		t.Fatalf("in place, but gone: %v", seen)
	}
	for name, l := range m.s.localQueues {
		if l.ranked != m.s.usageBased(l) {
			t.Fatalf("%v has its standing in another queue than it leads to", name)
		}
	}
	m.checkPlaces(t, m.s)
	m.checkSlices(t)
	m.checkVariants(t)
	m.checkTouched(t)
	m.checkModel(t)
	m.checkCheckpoint(t)
}

// place says where an object belongs.
func (m *machine) place(o *object) string {
	def := m.counted(o)
	if def.Reserved {
		_, ok := m.queues[def.Queue]
		for _, replacement := range m.objects {
			ok = ok && (!m.follows(replacement, o) || !m.counted(replacement).Admitted)
		}
		if ok {
			return "held in " + def.Queue
		}
		return ""
	}
	for _, replacement := range m.objects {
		if comesAfter(replacement, o) && m.counted(replacement).Reserved {
			return ""
		}
	}
	lq, ok := m.lqs[def.Namespace+"/"+def.LocalQueue]
	if q, exists := m.queues[lq.Queue]; !ok || !exists || lq.Stopped || !def.Queueable || def.Resting || (q.Variants && def.Divisible) {
		return ""
	}
	return "waits in " + lq.Queue
}

// checkSettled holds when a step has ended.
func (m *machine) checkSettled(t *rapid.T) {
	if !m.backfill { // the time of a start may come
		m.tick()
	}
	if again := m.s.Step(workload.Instant(m.now), 1000); again.Cycles > 0 || len(again.Decisions) > 0 {
		t.Fatalf("a settled world had something left to decide: %v", again)
	}
	m.checkHeads(t)
	m.checkClaims(t)
	fresh := m.rebuilt(nil)
	if diff := gocmp.Diff(plainDump(fresh), plainDump(m.s)); diff != "" {
		t.Fatalf("rebuilt and incremental differ (-rebuilt +incremental):\n%s", diff)
	}
	m.checkPlaces(t, fresh)
	m.checkAwake(t)
	m.checkNothingMissed(t, fresh)
}

// checkHeads: where others may pass, a workload that is still active waits for
// somebody else, not by want of a look.
func (m *machine) checkHeads(t *rapid.T) {
	for name, q := range m.s.queues {
		head := q.q.Pending.Head()
		if head == nil || q.q.Strict || q.q.Closed != "" || m.s.world.Quota.Root(q.q.Node) == quota.None {
			continue
		}
		attempt := m.s.Attempt(head.UID)
		if attempt == nil || (attempt.Verdict != trace.Preempts && attempt.Note == "") {
			t.Fatalf("%s is head of %s, active, and nobody is in its way: %v", head.Key, name, attempt)
		}
	}
}

// checkClaims: once the victims are gone all heirs fit, side by side.
func (m *machine) checkClaims(t *rapid.T) {
	f := m.s.world.Ledger
	mark := f.Mark()
	defer f.Rollback(mark)
	gone := map[string]bool{}
	leave := func(n quota.Node, w *workload.Workload) {
		if w.Reserved && !gone[w.UID] {
			gone[w.UID] = true
			f.Release(n, w.Usage)
		}
	}
	var replacing []*queue
	for _, name := range slices.Sorted(maps.Keys(m.s.queues)) {
		q := m.s.queues[name]
		if q.q.Preemptor() == nil || q.q.Closed != "" || f.Quota.Root(q.q.Node) == quota.None {
			continue
		}
		replacing = append(replacing, q)
		_, victims, before := q.q.Nomination()
		for _, v := range victims {
			leave(v.Node, v.Workload)
		}
		if before != nil {
			leave(q.q.Node, before)
		}
	}
	for _, q := range replacing {
		usage, _, _ := q.q.Nomination()
		if !f.Fits(q.q.Node, usage) {
			t.Fatalf("what is claimed for %s is not there any more", q.q.Preemptor().Key)
		}
		f.Charge(q.q.Node, usage)
	}
}

// rebuilt is a state made from nothing but the truth and the writes on their way.
// shuffle may reorder the calls that make it.
func (m *machine) rebuilt(shuffle func([]func(*State))) *State {
	var calls []func(*State)
	add := func(f func(*State)) { calls = append(calls, f) }
	for _, name := range slices.Sorted(maps.Keys(m.namespaces)) {
		add(func(s *State) { s.Apply(SetNamespace{Name: name, Labels: m.namespaces[name]}) })
	}
	for _, name := range slices.Sorted(maps.Keys(m.flavors)) {
		add(func(s *State) { s.Apply(SetFlavor(m.flavors[name])) })
	}
	m.rebuildPlaces(add)
	for _, name := range slices.Sorted(maps.Keys(m.cohorts)) {
		add(func(s *State) { s.Apply(SetCohort(m.cohorts[name])) })
	}
	for _, name := range slices.Sorted(maps.Keys(m.queues)) {
		add(func(s *State) { s.Apply(SetQueue(m.queues[name])) })
	}
	for _, key := range slices.Sorted(maps.Keys(m.lqs)) {
		add(func(s *State) {
			s.Apply(SetLocalQueue(m.lqs[key]))
			s.Apply(used(Name{m.lqs[key].Namespace, m.lqs[key].Name}, m.usages[key]))
		})
	}
	for _, uid := range slices.Sorted(maps.Keys(m.objects)) {
		o := m.objects[uid]
		def := m.counted(o)
		def.Evicting = def.Evicting || o.evicting
		add(func(s *State) { s.Apply(SetWorkload(def)) })
	}
	if shuffle != nil {
		shuffle(calls)
	}
	s := New(m.options)
	for _, f := range calls {
		f(s)
	}
	return s
}

// plainDump is a dump without the order in line: who is parked or sticky is known
// only to workloads that were evaluated.
func plainDump(s *State) []string {
	var out []string
	from := 0
	sortLine := func() { slices.Sort(out[from:]) }
	for line := range strings.Lines(s.Dump()) {
		if strings.HasPrefix(line, "queue") {
			sortLine()
			from = len(out)
		}
		if place, key, ok := strings.Cut(strings.TrimSpace(line), ". "); ok && len(place) < 4 {
			line = "  waits " + key + "\n"
		}
		out = append(out, line)
	}
	sortLine()
	return out
}

// checkNothingMissed: without preemptors, every workload that fits is admitted:
// a fresh state admits no workload.
func (m *machine) checkNothingMissed(t *rapid.T, fresh *State) {
	for _, q := range m.s.queues {
		if q.q.Backfill != cycle.NoBackfill {
			return // its starts depend on the order of evaluations: the twin of package cycle is about them
		}
		if q.q.Preemptor() != nil || q.q.Pending.Prioritized() != nil {
			return
		}
	}
	for _, d := range fresh.Step(workload.Instant(m.now), 1000).Decisions {
		attempt, r := m.s.Attempt(d.Attempt.UID), m.s.records[d.Attempt.UID]
		inadmissible := r.in != nil && r.in.Pending.WantsOf(r.wl) != nil
		switch {
		case d.Attempt.Verdict == trace.Admitted && attempt != nil && attempt.Note != "" && !inadmissible:
			return // somebody is in its way, who got there at another time
		case d.Attempt.Verdict == trace.Admitted && inadmissible && (m.options.FungibilityOff || inPart(d.Attempt, r)) && m.anotherFirst(d.Attempt):
			return // it fits since others took something, which wakes no class
		case d.Attempt.Verdict == trace.Admitted && r.wl.Gated && attempt != nil && attempt.Reason == trace.PendingEvaluation:
			return // it waits for its gates, whatever others take meanwhile. spec: 40 §4.10
		case d.Attempt.Verdict == trace.Admitted:
			t.Fatalf("missed by the state that knows only events: %s\nits last look was %v\n%s", d.Attempt, attempt, m.s.Dump())
		case d.Attempt.Verdict == trace.Preempts:
			return // from here on the two worlds differ
		}
	}
}

// anotherFirst reports whether a pod set before the last, or an earlier resource of one that is
// placed, got another flavor for want of the first: the search does not take back its picks, nor
// go on where it stopped when fungibility is off or it asks for fewer pods, so with less for what
// comes first there may be enough for what follows. spec: 10 §4.6.1.
func (m *machine) anotherFirst(attempt *trace.Attempt) bool {
	last := attempt.PodSets[len(attempt.PodSets)-1].Name
	return slices.ContainsFunc(attempt.Refusals, func(r trace.Refusal) bool { return r.PodSet != last || m.places })
}

// inPart reports whether not all pods were admitted.
func inPart(attempt *trace.Attempt, r *record) bool {
	for i := range attempt.PodSets {
		if attempt.PodSets[i].Count < r.wl.PodSets[i].Count {
			return true
		}
	}
	return false
}
