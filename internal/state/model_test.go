package state

import (
	"fmt"
	"math"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/quota"
)

// keptModel is a Model that a reader keeps, with its dump when it was published.
type keptModel struct {
	*Model
	shows string
}

// checkModel holds after every few events: the published model equals passes over all workloads, and earlier models have not changed.
func (m *machine) checkModel(t *rapid.T) {
	if m.checks++; m.checks%3 > 0 {
		return
	}
	got := m.s.Publish()
	for _, ask := range []Asked{{}, {Classes: true, Keys: true}} {
		if diff := gocmp.Diff(sortedKeys(m.s.slowStatistics(ask)), sortedKeys(got.Statistics(ask)), gocmp.AllowUnexported(quota.Share{})); diff != "" {
			t.Fatalf("statistics (-slow +model):\n%s", diff)
		}
	}
	equal := func(what string, slow, model any) {
		if diff := gocmp.Diff(slow, model, gocmp.AllowUnexported(quota.Share{})); diff != "" {
			t.Fatalf("%s (-slow +model):\n%s", what, diff)
		}
	}
	for name, q := range m.s.queues {
		slow, _ := m.s.slowQueue(name)
		view, known := got.Queue(name)
		equal(fmt.Sprint("queue ", name, known), slow, view)
		m.checkLine(t, q, got)
	}
	for name := range m.s.localQueues {
		equal(fmt.Sprint("local queue ", name), m.s.slowLocalQueue(name.Namespace, name.Name), got.LocalQueue(name.Namespace, name.Name))
	}
	for name := range m.s.cohorts {
		slow, isDefined := m.s.slowCohortShare(name)
		share, known := got.CohortShare(name)
		equal("cohort "+name, slow, share)
		equal("cohort is defined "+name, isDefined, known)
	}
	m.checkGround(t, got)
	m.checkReasons(t, got)
	m.checkTrees(t, got)
	if again := m.s.Publish(); again != got {
		t.Fatal("without an event the model is another one")
	}
	for _, k := range m.kept {
		equal("a model of before", k.shows, k.Model.dump())
	}
	m.kept = append(m.kept[max(0, len(m.kept)-2):], keptModel{got, got.dump()})
}

// checkReasons: the published reasons and traces belong to the last decisions.
func (m *machine) checkReasons(t *rapid.T, got *Model) {
	said := map[string]bool{}
	for last := range got.Lasts() {
		r := m.s.records[last.UID()]
		if want, sure := m.s.slowReason(r); sure && last.Reason() != want {
			t.Fatalf("%s waits for %s, the model says %s", r.wl.Key, want, last.Reason())
		}
		found, _, is := got.Find(r.in.Name, last.UID(), r.wl.Priority, r.wl.Since)
		if !is || found.Reason() != last.Reason() {
			t.Fatalf("%s waits for %s, and is found: %v %v", r.wl.Key, last.Reason(), is, found.Reason())
		}
		if attempt, kept := last.Attempt(); kept && (attempt.UID != last.UID() || attempt.Reason != last.Reason() || attempt.Verdict != last.verdict) {
			t.Fatalf("%s waits for %s, its trace says\n%s", r.wl.Key, last.Reason(), attempt)
		}
		said[last.UID()] = true
	}
	for uid, r := range m.s.records {
		if want, sure := m.s.slowReason(r); sure && want != "" && !said[uid] {
			t.Fatalf("%s waits for %s, the model says nothing", r.wl.Key, want)
		}
	}
}

func (m *machine) checkLine(t *rapid.T, q *queue, got *Model) {
	list, _ := got.Waiting(q.def.Name)
	page, want := list.Page(nil, 0, 1<<40), m.s.waiting(q)
	if len(page) != len(want) || list.Len() != len(want) {
		t.Fatalf("%d of %s wait, the model has %d and %d", len(want), q.def.Name, len(page), list.Len())
	}
	places := map[*localQueue]int32{}
	for i, r := range want {
		p := page[i]
		if p.wl != r.wl || p.InClusterQueue != int32(i) || p.InLocalQueue != places[r.lq] || p.created != r.def.Created || p.lq != r.lq || list.place(p.entry) != i {
			t.Fatalf("%s is %s's number %d, and %d in its LocalQueue; the model has %s with place %d", r.wl.Key, q.def.Name, i, places[r.lq], p.UID(), list.place(p.entry))
		}
		places[r.lq]++
		if r.in == q.q && !r.wl.Reserved && m.s.placeInLine(r) != i {
			t.Fatalf("%s is number %d of %s, want %d", r.wl.Key, m.s.placeInLine(r), q.def.Name, i)
		}
	}
}

func sortedKeys(s Statistics) Statistics {
	for i := range s.Queues {
		q := &s.Queues[i]
		for _, keys := range [][]string{q.Active.Keys, q.Inadmissible.Keys, q.AdmittedKeys} {
			slices.Sort(keys)
		}
	}
	for i := range s.LocalQueues {
		slices.Sort(s.LocalQueues[i].AdmittedKeys)
	}
	return s
}

// dump is all that a model shows.
func (m *Model) dump() string {
	out := fmt.Sprintf("%+v\n", sortedKeys(m.Statistics(Asked{Classes: true, Keys: true})))
	for q := range m.queues.all() {
		view, _ := m.Queue(q.Name)
		out += plainView(&view)
		for _, p := range (PendingList{q}).Page(nil, 0, 1<<40) {
			out += fmt.Sprint(" ", p.UID(), p.LocalQueue(), p.Created(), p.Priority(), p.InClusterQueue, p.InLocalQueue)
		}
	}
	return out
}

// A model follows also when hundreds of classes of one queue change at once.
func TestModelOfManyClasses(t *testing.T) {
	s := statisticsWorld(1, 0)
	expect := func(when string) {
		t.Helper()
		ask := Asked{Classes: true, Keys: true}
		if diff := gocmp.Diff(sortedKeys(s.slowStatistics(ask)), sortedKeys(s.Publish().Statistics(ask)), gocmp.AllowUnexported(quota.Share{})); diff != "" {
			t.Errorf("%s (-slow +model):\n%s", when, diff)
		}
	}
	expect("no workload")
	for i := range 400 {
		s.Apply(SetWorkload(Workload{
			UID: fmt.Sprint(i), Namespace: "ns", Name: fmt.Sprint(i), Version: 1, LocalQueue: "q0-0", Queueable: true, Priority: int64(i),
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: 1}}}},
		}))
	}
	expect("all are new")
	s.Step(1, 1000)
	expect("all but 20 are inadmissible")
	s.Apply(DeleteWorkload("399"))
	s.Step(2, 1)
	expect("a few have changed")
	q := s.queues["q0"].def
	q.Groups = []Group{{
		Resources: []string{"cpu"},
		Flavors:   []FlavorQuota{{Flavor: "f", Resources: []Quota{{Resource: "cpu", Nominal: 30, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}},
	}}
	s.Apply(SetQueue(q))
	s.Step(1e12, 7)
	expect("an edit has made all active")
}

// tooLarge is a workload that stays in the line of q0.
func tooLarge() Workload {
	return Workload{
		UID: "large", Namespace: "ns", Name: "large", LocalQueue: "q0-0", Queueable: true,
		PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "cpu", Amount: 1000}}}},
	}
}

// Publishing costs in proportion to the turn, not to the world.
func TestPublishCostsByTheTurn(t *testing.T) {
	cost := func(queues int) float64 {
		s := statisticsWorld(queues, 4*queues)
		s.Step(1, math.MaxInt)
		s.Publish()
		def := tooLarge()
		return testing.AllocsPerRun(50, func() {
			def.Version++
			def.Priority = int64(def.Version)
			s.Apply(SetWorkload(def))
			s.Step(1, 1000)
			s.Publish()
		})
	}
	if small, large := cost(10), cost(2000); large > 2*small+50 {
		t.Errorf("a turn with one event costs %v allocations among 2,000 queues, %v among 10", large, small)
	}
}

// BenchmarkPublish is the cost of a published turn with one event.
func BenchmarkPublish(b *testing.B) {
	for _, queues := range []int{10, 10_000} {
		b.Run(fmt.Sprint(queues, " queues"), func(b *testing.B) {
			s := statisticsWorld(queues, 4*queues)
			s.Publish()
			def := tooLarge()
			b.ReportAllocs()
			for b.Loop() {
				def.Version++
				def.Priority = int64(def.Version)
				s.Apply(SetWorkload(def))
				s.Publish()
			}
		})
	}
}
