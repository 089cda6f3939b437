package order

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// hall is a forest to hold tournaments in, by names.
type hall struct {
	table  *resource.Table
	ledger *ledger.Ledger
	forest *quota.Forest // its quota
	cpu    resource.FR
	nodes  map[string]quota.Node
}

func newHall() *hall {
	table := resource.NewTable()
	l := ledger.New(table)
	return &hall{table, l, l.Quota, table.FR("f", "cpu"), map[string]quota.Node{}}
}

// node adds a ClusterQueue or Cohort with that nominal quota of cpu.
func (h *hall) node(name string, cohort bool, parent string, nominal resource.Amount) {
	n := h.forest.Add(name, cohort)
	h.nodes[name] = n
	if parent != "" {
		h.forest.SetParent(n, h.nodes[parent])
	}
	h.forest.SetQuota(n, []quota.Cell{{FR: h.cpu, Nominal: nominal, Borrow: quota.NoLimit, Lend: quota.NoLimit}})
}

// head is a contestant in a test, its name the queue's.
type head struct {
	queue       string
	asks        resource.Amount
	priority    int64
	since       workload.Instant
	prioritized bool
	frees       resource.Amount
}

func (h *hall) contestant(d head) Contestant {
	c := Contestant{
		Node: h.nodes[d.queue], Name: d.queue, Prioritized: d.prioritized,
		Workload: &workload.Workload{UID: d.queue, Priority: d.priority, Since: d.since},
		Usage:    used(resource.Vector{{FR: h.cpu, Amount: d.asks}}),
	}
	if d.frees > 0 {
		c.Frees = used(resource.Vector{{FR: h.cpu, Amount: d.frees}})
	}
	return c
}

// upstream is what the rules are by default. spec: 20 §4.2.
var upstream = Rules{NonBorrowingFirst: true, ByPriority: true}

// order gives out everyone and returns the names of their queues, charging each.
func (t *Tournament) order() string {
	var names []string
	for c, ok := t.Next(); ok; c, ok = t.Next() {
		names = append(names, c.Name)
		t.ledger.Charge(c.Node, c.Usage)
	}
	return strings.Join(names, " ")
}

// TestTournament has examples 4 to 7 of spec 20 §7, and every rule of §4.2 on its own.
func TestTournament(t *testing.T) {
	// org lends 100 cpu; in the nested worlds, a and b are its cohorts.
	flat := func(h *hall) {
		h.node("org", true, "", 100)
		h.node("x", false, "org", 0)
		h.node("y", false, "org", 0)
	}
	nested := func(h *hall) {
		h.node("org", true, "", 100)
		h.node("a", true, "org", 0)
		h.node("b", true, "org", 0)
		h.node("x", false, "a", 0)
		h.node("x2", false, "a", 0)
		h.node("y", false, "b", 0)
		h.node("y2", false, "b", 0)
	}
	tests := map[string]struct {
		world func(*hall)
		used  map[string]resource.Amount
		rules *Rules
		heads []head
		want  string
	}{
		"4: a lower share goes before age and priority": {
			world: flat, heads: []head{{queue: "x", asks: 30, priority: 9}, {queue: "y", asks: 10, since: 5}}, want: "y x",
		},
		"5: within nominal goes before age and priority": {
			world: func(h *hall) { flat(h); h.node("own", false, "org", 50) },
			heads: []head{{queue: "x", asks: 1, priority: 9}, {queue: "own", asks: 50, since: 5}}, want: "own x",
		},
		"6: same share, higher priority": {
			world: flat, heads: []head{{queue: "x", asks: 10, priority: 5}, {queue: "y", asks: 10, priority: 9, since: 5}}, want: "y x",
		},
		"6: same share and priority, older": {
			world: flat, heads: []head{{queue: "x", asks: 10, since: 5}, {queue: "y", asks: 10, since: 4}}, want: "y x",
		},
		"7: above the queues their cohorts are compared": {
			world: nested, used: map[string]resource.Amount{"x": 20, "y2": 40},
			heads: []head{{queue: "x", asks: 10}, {queue: "y", asks: 1}}, want: "x y",
		},
		"a flag of the gate only: prioritized": {
			world: flat, heads: []head{{queue: "x", asks: 10}, {queue: "y", asks: 20, prioritized: true}}, want: "x y",
		},
		"prioritized goes before everything": {
			world: flat, rules: &Rules{PrioritizedFirst: true, NonBorrowingFirst: true, ByPriority: true},
			heads: []head{{queue: "x", asks: 10}, {queue: "y", asks: 20, prioritized: true}}, want: "y x",
		},
		"with the gate off, borrowing does not count: shares do": {
			world: func(h *hall) {
				flat(h)
				h.forest.SetWeight(h.nodes["x"], 1000*quota.DefaultWeight)
				h.node("z", false, "org", 5)
			},
			rules: &Rules{ByPriority: true},
			used:  map[string]resource.Amount{"z": 20},
			heads: []head{{queue: "x", asks: 10}, {queue: "z", asks: 1}}, want: "x z",
		},
		"with the gate off, priority does not count": {
			world: flat, rules: &Rules{NonBorrowingFirst: true},
			heads: []head{{queue: "x", asks: 10, since: 1}, {queue: "y", asks: 10, priority: 9, since: 2}}, want: "x y",
		},
		"all the same, by name": {
			world: flat, heads: []head{{queue: "y", asks: 10}, {queue: "x", asks: 10}}, want: "x y",
		},
		"who charged has a higher share from then on": {
			world: nested, // x wins by name; then b is behind a, and x2 waits for y and y2
			heads: []head{{queue: "y", asks: 10}, {queue: "y2", asks: 20}, {queue: "x2", asks: 21}, {queue: "x", asks: 10}}, want: "x y y2 x2",
		},
		"a slice is charged what it adds": {
			world: flat, used: map[string]resource.Amount{"x": 30},
			heads: []head{{queue: "x", asks: 32, frees: 30}, {queue: "y", asks: 33}}, want: "x y",
		},
		"without a parent goes first, trees by name of their root": {
			world: func(h *hall) {
				h.node("solo", false, "", 10)
				h.node("zoo", true, "", 10)
				h.node("q", false, "zoo", 10)
				flat(h)
			},
			heads: []head{{queue: "q", asks: 1}, {queue: "x", asks: 99}, {queue: "y", asks: 99}, {queue: "solo", asks: 99}},
			want:  "solo x y q",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHall()
			tc.world(h)
			h.forest.Recompute()
			for queue, amount := range tc.used {
				h.ledger.Charge(h.nodes[queue], used(resource.Vector{{FR: h.cpu, Amount: amount}}))
			}
			rules := &upstream
			if tc.rules != nil {
				rules = tc.rules
			}
			var cup Tournament
			cup.Reset(h.ledger, *rules)
			for _, d := range tc.heads {
				cup.Add(h.contestant(d))
			}
			if got := cup.order(); got != tc.want {
				t.Errorf("order %q, want %q", got, tc.want)
			}
		})
	}
}

// cupTwin is the tournament as spec 20 §4.2 words it: recursive, nothing kept.
type cupTwin struct {
	rules Rules
	l     *ledger.Ledger
	left  []Contestant
}

// note is what a contestant brings to one level.
type note struct {
	c       Contestant
	borrows bool
	share   quota.Share
}

func (w *cupTwin) next() (Contestant, bool) {
	if len(w.left) == 0 {
		return Contestant{}, false
	}
	var alone []note
	root := quota.None
	for _, c := range w.left {
		r := w.l.Quota.Root(c.Node)
		if r == quota.None || r == c.Node {
			alone = append(alone, note{c: c})
		} else if root == quota.None || w.l.Quota.Name(r) < w.l.Quota.Name(root) {
			root = r
		}
	}
	var winner Contestant
	if len(alone) > 0 {
		winner = slices.MinFunc(alone, w.compare).c
	} else {
		winner = *w.winner(root)
	}
	w.left = slices.DeleteFunc(w.left, func(c Contestant) bool { return c.Entry == winner.Entry })
	return winner, true
}

func (w *cupTwin) winner(cohort quota.Node) *Contestant {
	var notes []note
	for _, kid := range w.l.Quota.Kids(cohort) {
		if w.l.Quota.IsCohort(kid) {
			if c := w.winner(kid); c != nil {
				notes = append(notes, w.simulate(*c, kid))
			}
			continue
		}
		for _, c := range w.left {
			if c.Node == kid {
				notes = append(notes, w.simulate(c, kid))
			}
		}
	}
	if len(notes) == 0 {
		return nil
	}
	best := slices.MinFunc(notes, w.compare)
	return &best.c
}

func (w *cupTwin) simulate(c Contestant, n quota.Node) note {
	defer w.l.Rollback(w.l.Mark())
	w.l.Release(c.Node, c.Frees)
	w.l.Charge(c.Node, c.Usage)
	s := note{c: c, share: w.l.Quota.Share(n)}
	for _, e := range c.Usage.Quota {
		s.borrows = s.borrows || w.l.Quota.Usage(n, e.FR) > w.l.Quota.Subtree(n, e.FR)
	}
	return s
}

func (w *cupTwin) compare(a, b note) int {
	order := func(first, second bool) int {
		switch {
		case first == second:
			return 0
		case first:
			return -1
		}
		return 1
	}
	x, y := a.c.Workload, b.c.Workload
	by := []int{
		order(w.rules.PrioritizedFirst && a.c.Prioritized, w.rules.PrioritizedFirst && b.c.Prioritized),
		order(w.rules.NonBorrowingFirst && !a.borrows, w.rules.NonBorrowingFirst && !b.borrows),
		a.share.Compare(b.share),
		order(w.rules.ByPriority && x.Priority > y.Priority, w.rules.ByPriority && y.Priority > x.Priority),
		order(x.Since < y.Since, y.Since < x.Since),
		order(a.c.Name < b.c.Name, b.c.Name < a.c.Name),
		order(x.UID < y.UID, y.UID < x.UID),
	}
	for _, c := range by {
		if c != 0 {
			return c
		}
	}
	return 0
}

// drawForest makes a small forest, with its queues.
func drawForest(t *rapid.T) (l *ledger.Ledger, queues []quota.Node) {
	table := resource.NewTable()
	l = ledger.New(table)
	f := l.Quota
	frs := []resource.FR{table.FR("a", "cpu"), table.FR("b", "cpu"), table.FR("a", "gpu")}
	names := rapid.Permutation([]string{"k0", "k1", "k2", "k3", "k4", "k5"}).Draw(t, "names")
	cohorts := []quota.Node{quota.None}
	for i := range rapid.IntRange(1, 6).Draw(t, "cohorts") {
		cohorts = append(cohorts, f.Add(names[i], true))
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "queues") {
		queues = append(queues, f.Add(fmt.Sprint("q", i), false))
	}
	limit := rapid.SampledFrom([]resource.Amount{quota.NoLimit, quota.NoLimit, quota.NoLimit, 0, 2})
	loop := rapid.IntRange(0, 9).Draw(t, "loop") == 9
	for i, n := range slices.Concat(cohorts[1:], queues) {
		above := cohorts[:min(i+1, len(cohorts))] // those before it: no cycle
		if loop {
			above = cohorts
		}
		f.SetParent(n, rapid.SampledFrom(above).Draw(t, "parent"))
		f.SetWeight(n, rapid.SampledFrom([]quota.Weight{1e9, 1e9, 0, 5e8, 3e9, 100_000}).Draw(t, "weight"))
		var cells []quota.Cell
		for _, fr := range frs {
			cells = append(cells, quota.Cell{
				FR: fr, Nominal: resource.Amount(rapid.IntRange(0, 6).Draw(t, "nominal")),
				Borrow: limit.Draw(t, "borrow"), Lend: limit.Draw(t, "lend"),
			})
		}
		f.SetQuota(n, cells)
	}
	f.Recompute()
	for _, q := range queues {
		l.Charge(q, drawUsage(t, 8))
	}
	return l, queues
}

func drawUsage(t *rapid.T, most int) ledger.Usage {
	var v resource.Vector
	for fr := range resource.FR(3) {
		if amount := rapid.IntRange(-most/2, most).Draw(t, "amount"); amount > 0 {
			v = append(v, resource.Entry{FR: fr, Amount: resource.Amount(amount)})
		}
	}
	return used(v)
}

// used is a usage of quota alone.
func used(v resource.Vector) ledger.Usage { return ledger.Usage{Quota: v} }

// TestTournamentTwin: whatever is charged and released between two calls, the same
// contestant wins as in a tournament that starts over each time.
func TestTournamentTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, queues := drawForest(t)
		var cup Tournament
		for range 2 { // the second one in the memory of the first
			rules := Rules{
				NonBorrowingFirst: rapid.Bool().Draw(t, "non-borrowing"),
				ByPriority:        rapid.Bool().Draw(t, "priority"), PrioritizedFirst: rapid.Bool().Draw(t, "prioritized"),
			}
			cup.Reset(l, rules)
			twin := &cupTwin{rules: rules, l: l}
			for i := range rapid.IntRange(0, 8).Draw(t, "heads") {
				q := rapid.SampledFrom(queues).Draw(t, "queue")
				c := Contestant{
					Node: q, Name: l.Quota.Name(q), Usage: drawUsage(t, 5), Prioritized: rapid.Bool().Draw(t, "is prioritized"), Entry: i,
					Workload: &workload.Workload{
						UID: fmt.Sprint(i), Priority: rapid.Int64Range(0, 1).Draw(t, "class"),
						Since: workload.Instant(rapid.IntRange(0, 1).Draw(t, "since")),
					},
				}
				if rapid.IntRange(0, 3).Draw(t, "slice") == 3 {
					c.Frees = drawUsage(t, 2)
					l.Charge(q, c.Frees)
				}
				cup.Add(c)
				twin.left = append(twin.left, c)
			}
			for {
				want, more := twin.next()
				got, ok := cup.Next()
				if ok != more || got.Entry != want.Entry {
					t.Fatalf("%s/%s wins, want %s/%s", got.Name, got.Workload.UID, want.Name, want.Workload.UID)
				}
				if !ok {
					break
				}
				switch rapid.IntRange(0, 2).Draw(t, "then") {
				case 0: // it is skipped
				case 1:
					l.Release(got.Node, got.Frees)
					l.Charge(got.Node, got.Usage)
				case 2:
					v := drawUsage(t, 3)
					other := rapid.SampledFrom(queues).Draw(t, "other")
					l.Charge(other, v)
				}
			}
		}
	})
}

// contestants is a tree of cohorts, three levels below the root, and a head for each queue.
func contestants(queues int) (h *hall, heads []Contestant) {
	h = newHall()
	h.node("root", true, "", 1000)
	for i := range 3 {
		h.node(fmt.Sprint("a", i), true, "root", 10)
		h.node(fmt.Sprint("b", i), true, fmt.Sprint("a", i), 10)
	}
	for i := range queues {
		name := fmt.Sprint("q", i)
		h.node(name, false, fmt.Sprint("b", i%3), resource.Amount(i%7))
		heads = append(heads, h.contestant(head{queue: name, asks: resource.Amount(1 + i%13), since: workload.Instant(i)}))
	}
	h.forest.Recompute()
	return h, heads
}

// run gives out all heads, charging each, and releases them again.
func (t *Tournament) run(l *ledger.Ledger, heads []Contestant) {
	t.Reset(l, upstream)
	for _, c := range heads {
		t.Add(c)
	}
	for c, ok := t.Next(); ok; c, ok = t.Next() {
		l.Charge(c.Node, c.Usage)
	}
	for _, c := range heads {
		l.Release(c.Node, c.Usage)
	}
}

func TestTournamentNoAllocations(t *testing.T) {
	h, heads := contestants(50)
	var cup Tournament
	cup.run(h.ledger, heads)
	if n := testing.AllocsPerRun(10, func() { cup.run(h.ledger, heads) }); n != 0 {
		t.Errorf("a tournament allocates %v times", n)
	}
}

// BenchmarkTournament gives out the heads of that contestants queues of one tree.
func BenchmarkTournament(b *testing.B) {
	for _, queues := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			h, heads := contestants(queues)
			var cup Tournament
			b.ReportAllocs()
			for b.Loop() {
				cup.run(h.ledger, heads)
			}
		})
	}
}
