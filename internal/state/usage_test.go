package state

import (
	"cmp"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/order"
	"github.com/berth-project/berth/internal/core/workload"
)

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
			out = append(out, p.Active(), p.Inadmissible(), len(p.InadmissibleClassIDs()))
		}
		return out
	}
	before := counts()
	m.s.Apply(SetUsage{lq.Namespace, lq.Name, m.usages[key]})
	if now := counts(); !slices.Equal(before, now) {
		t.Fatalf("a change of a standing makes %v of the active and inadmissible %v", now, before)
	}
	m.s.Apply(SetUsage{lq.Namespace, "ghost", 7}) // has no effect
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
