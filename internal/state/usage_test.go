package state

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/sharing"
	"github.com/berth-project/berth/internal/core/workload"
)

// used is the event by which a LocalQueue has used an amount.
func used(lq Name, amount order.Standing) SetUsage {
	return SetUsage{Namespace: lq.Namespace, Name: lq.Name, Consumed: []sharing.Used{{Resource: "gpu", Amount: float64(amount)}}}
}

// setUsage changes the standing of a LocalQueue. Some are equal.
func (m *machine) setUsage(t *rapid.T) {
	if !m.usageBased {
		t.Skip("no usage")
	}
	key, lq := pick(t, "localqueue", m.lqs, any1)
	m.usages[key] = order.Standing(rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "standing"))
	counts := func() (out []int) {
		for _, name := range slices.Sorted(maps.Keys(m.s.queues)) {
			p := &m.s.queues[name].q.Pending
			classes := 0
			p.EachInadmissible(func(int32, *workload.Workload) { classes++ })
			out = append(out, p.Active(), p.Inadmissible(), classes)
		}
		return out
	}
	before := counts()
	m.s.Apply(used(Name{lq.Namespace, lq.Name}, m.usages[key]))
	if now := counts(); !slices.Equal(before, now) {
		t.Fatalf("a change of a standing makes %v of the active and inadmissible %v", now, before)
	}
	m.s.Apply(used(Name{lq.Namespace, "ghost"}, 7)) // has no effect
}

// checkLines holds for the line of a queue: it is in the order of standings, and a class is of one LocalQueue if they count.
func (m *machine) checkLines(t *rapid.T, q *queue, line []*workload.Workload) {
	active := q.q.Pending.Active()
	compare := func(a, b *workload.Workload) int {
		standing := func(w *workload.Workload) order.Standing {
			if name := m.s.records[w.UID].lq.name; q.def.UsageBased {
				return m.usages[name.Namespace+"/"+name.Name]
			}
			return 0
		}
		first := q.q.Pending.Prioritized()
		switch x, y := standing(a), standing(b); {
		case x != y:
			return cmp.Compare(x, y)
		case slices.Contains(line[:active], a) && (a == first || b == first):
			return cmp.Or(map[bool]int{true: -1}[a == first], 1)
		}
		return order.Compare(a, b)
	}
	for i := 1; i < len(line); i++ {
		if i != active && compare(line[i-1], line[i]) >= 0 {
			t.Fatalf("%s comes before %s", line[i-1].Key, line[i].Key)
		}
	}
	localQueues := map[int32]*localQueue{}
	for _, w := range line {
		r := m.s.records[w.UID]
		if other := localQueues[w.Class]; other != nil && other != r.lq && q.def.UsageBased {
			t.Fatalf("%s is in a class of %v and %v", w.Key, other.name, r.lq.name)
		}
		if localQueues[w.Class] = r.lq; w.Line != 0 != q.def.UsageBased {
			t.Fatalf("%s is in line %d", w.Key, w.Line)
		}
	}
}

// TestPagesByUsage: the places of pending workloads follow the usage of their LocalQueues, at once. spec: 20 §4.4, 70 §4.6.
func TestPagesByUsage(t *testing.T) {
	red, blue, green := Name{"red", "main"}, Name{"blue", "main"}, Name{"red", "green"}
	s := lines(red, blue, green)
	y := yard{s: s}
	def := y.queue(0, 10, preempt.Policy{})
	def.UsageBased = true
	s.Apply(SetQueue(def))
	for i, lq := range []Name{red, blue, green, red, blue, green} {
		s.submitTo(lq, string(rune('a'+i)), int64(i), workload.Instant(i+1), 1)
	}
	expect := func(when string, want ...string) {
		t.Helper()
		list, _ := s.Publish().Waiting(queueName(0))
		if diff := gocmp.Diff(want, show(list.Page(nil, 0, 1000))); diff != "" || list.Len() != len(want) {
			t.Errorf("%s: %d pending, page (-want +got):\n%s", when, list.Len(), diff)
		}
		for _, p := range list.Page(nil, 0, 1000) {
			if place := list.place(p.entry); place != int(p.InClusterQueue) {
				t.Errorf("%s: %s has place %d, and is number %d of the page", when, p.UID(), place, p.InClusterQueue)
			}
		}
	}
	use := func(lq Name, standing order.Standing) { s.Apply(used(lq, standing)) }
	expect("nothing is used", "f 0 0", "e 1 0", "d 2 0", "c 3 1", "b 4 1", "a 5 1")
	use(red, 1)
	use(blue, 2)
	expect("the lowest usage first", "f 0 0", "c 1 1", "d 2 0", "a 3 1", "e 4 0", "b 5 1")
	use(green, 2)
	kept, _ := s.Publish().Waiting(queueName(0))
	expect("equal usage", "d 0 0", "a 1 1", "f 2 0", "e 3 0", "c 4 1", "b 5 1")
	use(red, 9)
	expect("red has used more", "f 0 0", "e 1 0", "c 2 1", "b 3 1", "d 4 0", "a 5 1")
	if diff := gocmp.Diff([]string{"d 0 0", "a 1 1", "f 2 0"}, show(kept.Page(nil, 0, 3))); diff != "" {
		t.Errorf("a model of before (-want +got):\n%s", diff)
	}
	moved := Workload{UID: "d", Namespace: "red", Name: "d", Version: 2, LocalQueue: "green", Priority: 3, Created: 4, Since: 4, Queueable: true}
	moved.PodSets = []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "gpu", Amount: 1}}}}
	s.Apply(SetWorkload(moved))
	expect("d has another LocalQueue", "f 0 0", "e 1 0", "d 2 1", "c 3 2", "b 4 1", "a 5 0")
	s.Apply(DeleteLocalQueue(red))
	expect("a LocalQueue is deleted", "f 0 0", "e 1 0", "d 2 1", "c 3 2", "b 4 1")
	s.Apply(SetLocalQueue(LocalQueue{Namespace: "red", Name: "main", Queue: queueName(0)}))
	expect("it comes again, without usage", "a 0 0", "f 1 0", "e 2 0", "d 3 1", "c 4 2", "b 5 1")
	def.UsageBased = false
	s.Apply(SetQueue(def))
	expect("usage does not count", "f 0 0", "e 1 0", "d 2 1", "c 3 2", "b 4 1", "a 5 0")
}
