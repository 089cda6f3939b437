package order

import (
	"slices"
	"testing"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

func TestCompare(t *testing.T) {
	old := &workload.Workload{UID: "a", Priority: 1, Since: 1}
	tests := map[string]struct {
		second *workload.Workload
		want   int
	}{
		"lower priority":      {&workload.Workload{UID: "a", Priority: 0, Since: 0}, -1},
		"higher priority":     {&workload.Workload{UID: "a", Priority: 2, Since: 9}, 1},
		"later in line":       {&workload.Workload{UID: "a", Priority: 1, Since: 2}, -1},
		"earlier in line":     {&workload.Workload{UID: "a", Priority: 1, Since: 0}, 1},
		"at once, larger UID": {&workload.Workload{UID: "b", Priority: 1, Since: 1}, -1},
		"itself":              {old, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Compare(old, tc.second); got != tc.want {
				t.Errorf("Compare = %d, want %d", got, tc.want)
			}
			if got := Compare(tc.second, old); got != -tc.want {
				t.Errorf("the other way round = %d, want %d", got, -tc.want)
			}
		})
	}
}

// WakeNext activates the class of Next, and reports whether there was one.
func (p *Pending) WakeNext(now Figures) bool {
	w, _ := p.Next(now)
	if w != nil {
		p.Wake(w)
	}
	return w != nil
}

const testFRs = 4

// yard is a forest of a queue and its neighbour below one cohort.
type yard struct {
	ledger      *ledger.Ledger
	node, other quota.Node
	extra       [testFRs]resource.Amount // what preemption could win
}

// newYard makes one that counts testFRs FRs: 3 of each for the queue alone, 3 for both.
func newYard() *yard {
	table := resource.NewTable()
	y := &yard{ledger: ledger.New(table)}
	forest := y.ledger.Quota
	top := forest.Add("top", true)
	y.node, y.other = forest.Add("queue", false), forest.Add("other", false)
	var own, shared []quota.Cell
	for i := range testFRs {
		c := quota.Cell{FR: table.FR("f", string(rune('a'+i))), Nominal: 3, Borrow: quota.NoLimit}
		own = append(own, c)
		c.Lend = quota.NoLimit
		shared = append(shared, c)
	}
	forest.SetQuota(y.node, own)
	forest.SetQuota(top, shared)
	forest.SetParent(y.node, top)
	forest.SetParent(y.other, top)
	forest.Recompute()
	return y
}

// use sets the usage of fr at a node.
func (y *yard) use(at quota.Node, fr resource.FR, amount resource.Amount) {
	y.ledger.Release(at, used(resource.Vector{{FR: fr, Amount: y.ledger.Quota.Usage(at, fr)}}))
	y.ledger.Charge(at, used(resource.Vector{{FR: fr, Amount: amount}}))
}

func (y *yard) Available(fr resource.FR) resource.Amount { return y.ledger.Available(y.node, fr) }

func (y *yard) AtMost(resource.FR) resource.Amount { return resource.Unlimited }

func (y *yard) Winnable(_ *workload.Workload, fr resource.FR, least resource.Amount) bool {
	return least <= y.Available(fr)+y.extra[fr]
}

// TestYard: the tests count on these figures.
func TestYard(t *testing.T) {
	y := newYard()
	if got := y.Available(1); got != 6 {
		t.Errorf("%d available, want 6", got)
	}
	y.use(y.other, 1, 2)
	if got := y.Available(1); got != 4 {
		t.Errorf("%d available when the neighbour uses 2, want 4", got)
	}
}

func keys(line []*workload.Workload) []string {
	out := make([]string, 0, len(line))
	for _, w := range line {
		out = append(out, w.Key)
	}
	return out
}

// TestPrioritizedSurvivesInadmissible: a workload whose victims are leaving is head again when activated.
func TestPrioritizedSurvivesInadmissible(t *testing.T) {
	var line Pending
	y := newYard()
	first := &workload.Workload{UID: "1", Class: 1, Priority: 5}
	preemptor := &workload.Workload{UID: "2", Class: 2, Priority: 1}
	line.Add(first, false)
	line.Add(preemptor, false)
	line.Prioritize(preemptor)
	line.SetInadmissible(preemptor, []workload.Want{{FR: 2}})
	if line.Head() != first {
		t.Fatal("a inadmissible workload is head")
	}
	line.Release(2, y)
	if !line.WakeNext(y) || line.Head() != preemptor {
		t.Fatal("the prioritized workload lost its place while it was inadmissible")
	}
}

// TestRelease: a release is noted only where it may be of use.
func TestRelease(t *testing.T) {
	const cpu, gpu, disk = 1, 2, 3
	tests := map[string]struct {
		fr        resource.FR
		available resource.Amount
		want      bool
	}{
		"too little":       {cpu, 3, false},
		"exactly enough":   {cpu, 4, true},
		"enough for all":   {cpu, 6, true},
		"another resource": {gpu, 1, true},
		"none left":        {gpu, 0, false},
		"not wanted":       {0, 6, false},
		"of no use yet":    {disk, 6, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			y := newYard()
			for fr := range resource.FR(testFRs) {
				y.use(y.node, fr, 6)
			}
			var line Pending
			for i, wants := range [][]workload.Want{
				{{FR: cpu, Least: 4}},
				{{FR: cpu, Least: 6}, {FR: gpu, Least: 1, Offer: 1}},
				{{FR: cpu, Least: 6}, {FR: disk, Least: 1}}, // lacks all of the disk, too, but the cpu goes first
				{{FR: cpu, Least: 5}, {FR: disk, Least: 1, Clause: 1}},
				nil,
			} {
				w := &workload.Workload{UID: string(rune('a' + i)), Class: int32(i)}
				line.Add(w, false)
				line.SetInadmissible(w, wants)
			}
			y.use(y.node, tc.fr, 6-tc.available)
			if got := line.Release(tc.fr, y); got != tc.want {
				t.Errorf("Release = %v, want %v", got, tc.want)
			}
			var noted []resource.FR
			if tc.want {
				noted = []resource.FR{tc.fr}
			}
			if !slices.Equal(line.Released(), noted) {
				t.Errorf("released are %v, want %v", line.Released(), noted)
			}
			if line.Active() != 0 {
				t.Errorf("%d woke without WakeNext", line.Active())
			}
		})
	}
	var empty Pending
	if empty.Release(cpu, newYard()) {
		t.Error("an empty line has use for a release")
	}
}

// guest is a workload in TestWake, of a class of its own. The order of the table is the order
// of the line.
type guest struct {
	key   string
	wants []workload.Want
	takes resource.Amount // of cpu when it is activated; with 0 it is inadmissible again
	awake bool            // it is not inadmissible to begin with, and stays where it is
}

// TestWake: one class at a time, as long as there is enough. spec: 10 §4.4, §6 #7.
func TestWake(t *testing.T) {
	const cpu, gpu = 1, 2
	one := func(fr resource.FR, least resource.Amount) []workload.Want {
		return []workload.Want{{FR: fr, Least: least}}
	}
	or := func(a, b []workload.Want) []workload.Want {
		return []workload.Want{a[0], {FR: b[0].FR, Least: b[0].Least, Offer: 1}}
	}
	with := func(a, b []workload.Want) []workload.Want { return []workload.Want{a[0], b[0]} }
	and := func(a, b []workload.Want) []workload.Want {
		return []workload.Want{a[0], {FR: b[0].FR, Least: b[0].Least, Clause: 1}}
	}
	won := func(least resource.Amount) []workload.Want {
		return []workload.Want{{FR: cpu, Least: least, Winnable: true}}
	}
	tests := map[string]struct {
		guests      []guest
		prioritized string
		released    []resource.FR // 6 of each are available then, and 2 of cpu can be won
		want        []string      // who is activated
		left        bool          // something released is not dealt with
	}{
		"nothing released": {guests: []guest{{key: "a", wants: one(cpu, 1)}}},
		"the first takes it all": {
			guests:   []guest{{key: "a", wants: one(cpu, 6), takes: 6}, {key: "b", wants: one(cpu, 1), takes: 1}},
			released: []resource.FR{cpu}, want: []string{"a"},
		},
		"there is enough left": {
			guests: []guest{
				{key: "a", wants: one(cpu, 4), takes: 4}, {key: "b", wants: one(cpu, 3), takes: 3}, {key: "c", wants: one(cpu, 2), takes: 2},
			},
			released: []resource.FR{cpu}, want: []string{"a", "c"},
		},
		"in the order of the line, not of what is wanted": {
			guests:   []guest{{key: "a", wants: one(cpu, 3)}, {key: "b", wants: one(cpu, 1)}, {key: "c", wants: one(cpu, 2)}},
			released: []resource.FR{cpu}, want: []string{"a", "b", "c"},
		},
		"a class that wants too much stays inadmissible": {
			guests:   []guest{{key: "a", wants: one(cpu, 7)}, {key: "b", wants: one(cpu, 6)}},
			released: []resource.FR{cpu}, want: []string{"b"},
		},
		"each has one look, for several FRs too": {
			guests:   []guest{{key: "a", wants: or(one(cpu, 1), one(gpu, 1))}, {key: "b", wants: one(gpu, 1)}},
			released: []resource.FR{gpu, cpu}, want: []string{"a", "b"},
		},
		"the first of all FRs goes first": {
			guests:   []guest{{key: "a", wants: one(gpu, 1)}, {key: "b", wants: one(cpu, 1)}},
			released: []resource.FR{cpu, gpu}, want: []string{"a", "b"},
		},
		"what was not released activates none": {
			guests:   []guest{{key: "a", wants: one(gpu, 1)}, {key: "b", wants: one(cpu, 1)}},
			released: []resource.FR{cpu}, want: []string{"b"},
		},
		"without wants": {guests: []guest{{key: "a"}}, released: []resource.FR{cpu}},
		"an offer lacks something": {
			guests:   []guest{{key: "a", wants: with(one(cpu, 1), one(gpu, 1))}, {key: "b", wants: with(one(gpu, 1), one(cpu, 1))}, {key: "c", wants: one(cpu, 1)}},
			released: []resource.FR{cpu}, want: []string{"c"},
		},
		"an offer lacks nothing": {
			guests:   []guest{{key: "a", wants: with(one(cpu, 1), one(gpu, 1))}, {key: "b", wants: with(one(gpu, 1), one(cpu, 1))}},
			released: []resource.FR{cpu, gpu}, want: []string{"a", "b"},
		},
		"a clause lacks something": {
			guests:   []guest{{key: "a", wants: and(one(cpu, 1), one(gpu, 1))}, {key: "b", wants: and(one(gpu, 1), one(cpu, 1))}, {key: "c", wants: one(cpu, 1)}},
			released: []resource.FR{cpu}, want: []string{"c"},
		},
		"no clause lacks anything": {
			guests:   []guest{{key: "a", wants: and(one(cpu, 1), one(gpu, 1))}, {key: "b", wants: and(one(gpu, 1), one(cpu, 1))}},
			released: []resource.FR{cpu, gpu}, want: []string{"a", "b"},
		},
		"the rest can be won": {
			guests:   []guest{{key: "a", wants: won(9)}, {key: "b", wants: one(cpu, 7)}, {key: "c", wants: won(8)}},
			released: []resource.FR{cpu}, want: []string{"c"},
		},
		"a head that comes first": {
			guests:   []guest{{key: "a", awake: true}, {key: "b", wants: one(cpu, 1)}},
			released: []resource.FR{cpu}, left: true,
		},
		"a head that comes later": {
			guests:   []guest{{key: "a", wants: one(cpu, 1), takes: 1}, {key: "b", awake: true}, {key: "c", wants: one(cpu, 1)}},
			released: []resource.FR{cpu}, want: []string{"a"}, left: true,
		},
		"a prioritized head": {
			guests:      []guest{{key: "a", wants: one(cpu, 1)}, {key: "b", awake: true}},
			prioritized: "b", released: []resource.FR{cpu}, left: true,
		},
		"the prioritized one sleeps": {
			guests:      []guest{{key: "a", awake: true}, {key: "b", wants: one(cpu, 1)}, {key: "c", wants: one(cpu, 6), takes: 6}},
			prioritized: "c", released: []resource.FR{cpu}, want: []string{"c"},
		},
		"there is not enough for the prioritized one": {
			guests:      []guest{{key: "a", wants: one(cpu, 1)}, {key: "b", wants: or(one(gpu, 1), one(cpu, 7))}},
			prioritized: "b", released: []resource.FR{cpu}, want: []string{"a"},
		},
		"the prioritized one has one look too": {
			guests:      []guest{{key: "a", wants: one(cpu, 1)}, {key: "b", wants: one(cpu, 1)}, {key: "c", wants: one(cpu, 1)}},
			prioritized: "b", released: []resource.FR{cpu}, want: []string{"b", "a", "c"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			y := newYard()
			for fr := range resource.FR(testFRs) {
				y.use(y.node, fr, 6)
			}
			var line Pending
			guests := map[*workload.Workload]guest{}
			for i, g := range tc.guests {
				w := &workload.Workload{UID: g.key, Key: g.key, Class: int32(i), Since: workload.Instant(i)}
				guests[w] = g
				line.Add(w, false)
				if g.key == tc.prioritized {
					line.Prioritize(w)
				}
				if !g.awake {
					line.SetInadmissible(w, g.wants)
				}
			}
			y.extra[cpu] = 2
			for _, fr := range tc.released {
				y.use(y.node, fr, 0)
				line.Release(fr, y)
			}
			var activated []string
			for line.WakeNext(y) {
				w := line.Head()
				activated = append(activated, w.Key)
				if g := guests[w]; g.takes > 0 {
					line.Remove(w)
					y.ledger.Charge(y.node, used(resource.Vector{{FR: cpu, Amount: g.takes}}))
				} else {
					line.SetInadmissible(w, g.wants)
				}
			}
			if !slices.Equal(activated, tc.want) {
				t.Errorf("activated are %v, want %v", activated, tc.want)
			}
			if left := len(line.Released()) > 0; left != tc.left {
				t.Errorf("released are %v, want some: %v", line.Released(), tc.left)
			}
		})
	}
}

// TestTriedClassesAreFiled: a class that was evaluated without success is evaluated again after
// the next release, whatever is left to evaluate for the one before.
func TestTriedClassesAreFiled(t *testing.T) {
	y := newYard()
	var line Pending
	first, second := &workload.Workload{UID: "1", Class: 1}, &workload.Workload{UID: "2", Class: 2}
	for _, w := range []*workload.Workload{first, second} {
		line.Add(w, false)
		line.SetInadmissible(w, []workload.Want{{FR: 1, Least: 1}})
	}
	for _, fr := range []resource.FR{1, 1, 3} { // the last one is of no use to them by itself
		line.Release(fr, y)
		if !line.WakeNext(y) || line.Head() != first {
			t.Fatalf("head is %v, want the first", line.Head())
		}
		line.SetInadmissible(first, []workload.Want{{FR: 1, Least: 1}})
		for _, k := range packAtOnce(&line).Unpack() {
			if k.Tried != (k.Member == first) {
				t.Fatalf("%s: tried is %v", k.Member.UID, k.Tried)
			}
		}
	}
}

// TestVoidTickets: what a class no longer needs does not come between the others, though
// its head is another one by now.
func TestVoidConditions(t *testing.T) {
	y := newYard()
	y.use(y.node, 1, 6)
	var line Pending
	add := func(uid string, class int32) {
		w := &workload.Workload{UID: uid, Key: uid, Class: class}
		line.Add(w, false)
		line.SetInadmissible(w, []workload.Want{{FR: 1, Least: 4}})
	}
	for i, uid := range []string{"2", "5", "6"} {
		add(uid, int32(i))
	}
	add("0", 1) // goes before 5
	for i, uid := range []string{"70", "71", "72", "1", "8"} {
		add(uid, int32(3+i))
	}
	y.use(y.node, 1, 0)
	line.Release(1, y)
	var activated []string
	for line.WakeNext(y) {
		activated = append(activated, line.Head().Key)
		line.SetInadmissible(line.Head(), []workload.Want{{FR: 1, Least: 4}})
	}
	if want := []string{"0", "1", "2", "6", "70", "71", "72", "8"}; !slices.Equal(activated, want) {
		t.Errorf("activated are %v, want %v", activated, want)
	}
}

// TestManyBehindTheInadmissible: a workload that joins an inadmissible class costs only its place.
func TestManyBehindTheInadmissible(t *testing.T) {
	y := newYard()
	var line Pending
	for i := range 10_000 {
		w := &workload.Workload{UID: "w", Since: workload.Instant(i)}
		line.Add(w, false)
		line.SetInadmissible(w, []workload.Want{{FR: 1, Least: 7}})
		line.fileTried(y)
	}
	if kept := line.kept(); kept > 200 {
		t.Errorf("room for %d entries is kept for one class", kept)
	}
}

// TestManyWants: what a class wants and watches is kept whether it fits into the class or not.
func TestManyWants(t *testing.T) {
	for n := 1; n <= 7; n++ {
		var wants []workload.Want
		for i := range n {
			wants = append(wants, workload.Want{FR: resource.FR(i), Offer: uint16(i), Least: resource.Amount(10 + i)})
		}
		for _, want := range wants {
			var line Pending
			w, now := &workload.Workload{UID: "w", Class: 1}, amounts{}
			line.Add(w, false)
			line.SetInadmissible(w, wants)
			line.fileTried(now)
			if got := line.WantsOf(w); !slices.Equal(got, wants) {
				t.Fatalf("it wants %v, want %v", got, wants)
			}
			sound(t, &line)
			now[want.FR] = want.Least
			if !line.Release(want.FR, now) || !line.WakeNext(now) {
				t.Errorf("of %d offers, that of %d does not wake it", n, want.FR)
			}
		}
	}
}

// amounts are figures of a queue in which preemption is not possible.
type amounts map[resource.FR]resource.Amount

func (a amounts) Available(fr resource.FR) resource.Amount { return a[fr] }

func (a amounts) AtMost(resource.FR) resource.Amount { return resource.Unlimited }

func (a amounts) Winnable(*workload.Workload, resource.FR, resource.Amount) bool { return false }

// TestChooseAgain: who lost after it was activated watches what is lacking by now, and that only.
func TestChooseAgain(t *testing.T) {
	both := []workload.Want{{FR: 1, Least: 2}, {FR: 2, Least: 2}}
	tests := map[string]struct {
		before, after [2]resource.Amount // available of the two FRs when it is filed
		use, useless  resource.FR
	}{
		"what it watched is there, and no more than that": {[2]resource.Amount{0, 1}, [2]resource.Amount{2, 0}, 2, 1},
		"what it watched is lacking still":                {[2]resource.Amount{0, 1}, [2]resource.Amount{0, 2}, 1, 2},
		"it watched all, and now lacks all":               {[2]resource.Amount{2, 2}, [2]resource.Amount{0, 0}, 1, 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var line Pending
			w, now := &workload.Workload{UID: "w", Class: 1}, amounts{1: tc.before[0], 2: tc.before[1]}
			line.Add(w, false)
			line.SetInadmissible(w, both)
			line.fileTried(now)
			now[1], now[2] = 2, 2
			if !line.Release(1, now) || !line.WakeNext(now) {
				t.Fatal("it is not activated though nothing is lacking")
			}
			now[1], now[2] = tc.after[0], tc.after[1]
			line.SetInadmissible(w, both)
			line.fileTried(now)
			sound(t, &line)
			had := now[tc.useless]
			if now[tc.useless] = 2; line.Release(tc.useless, now) {
				t.Errorf("a release of %d may be of use", tc.useless)
			}
			now[tc.useless] = had
			if now[tc.use] = 2; !line.Release(tc.use, now) {
				t.Errorf("a release of %d is of no use", tc.use)
			}
		})
	}
}

// TestWatchesAllThatMayBeWon: what preemption cannot win now it may win later without any
// release of it.
func TestWatchesAllThatMayBeWon(t *testing.T) {
	y := newYard()
	y.use(y.node, 1, 6)
	var line Pending
	w := &workload.Workload{UID: "w", Class: 1}
	line.Add(w, false)
	line.SetInadmissible(w, []workload.Want{{FR: 1, Least: 2, Winnable: true}, {FR: 2, Least: 2}})
	line.fileTried(y)
	y.extra[1] = 2
	if !line.Release(2, y) || !line.WakeNext(y) {
		t.Error("it sleeps on though the rest can be won")
	}
}

// TestPatternsOfOneHash: a pattern is that of the wants, not just one of the same hash.
func TestPatternsOfOneHash(t *testing.T) {
	var known Patterns
	var first, second class
	wants := []workload.Want{{FR: 1, Least: 2}, {FR: 2, Least: 3, Offer: 1}}
	known.pack(wants, &first)
	for hash := range known.known {
		known.known[hash] = &pattern{[]slot{{fr: 3}}, 1}
	}
	known.pack(wants, &second)
	if got := second.unpack(nil); !slices.Equal(got, wants) {
		t.Errorf("it wants %v, want %v", got, wants)
	}
}
