package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/resource"
)

const fr resource.FR = 0

func one(amount resource.Amount) resource.Vector {
	return resource.Vector{{FR: fr, Amount: amount}}
}

// add makes a settled node with quota of one FR.
func add(f *Dimension, cohort bool, parent Node, nominal, borrow, lend resource.Amount) Node {
	n := f.Add("", cohort)
	f.SetParent(n, parent)
	f.SetQuota(n, []Cell{{FR: fr, Nominal: nominal, Borrow: borrow, Lend: lend}})
	f.Recompute()
	return n
}

// example is the tree of spec 10 §4.3.4.
type example struct {
	f                      *Dimension
	org, ml, mlA, mlB, web Node
}

func newExample() example {
	f := newForest()
	e := example{f: f}
	e.org = add(f, true, None, 10, NoLimit, NoLimit)
	e.ml = add(f, true, e.org, 4, 6, 2)
	e.mlA = add(f, false, e.ml, 8, 5, 3)
	e.mlB = add(f, false, e.ml, 0, NoLimit, NoLimit)
	e.web = add(f, false, e.org, 6, NoLimit, NoLimit)
	return e
}

// TestWorkedExample is the table of spec 10 §4.3.4, to the digit.
func TestWorkedExample(t *testing.T) {
	e := newExample()
	read := func(of func(Node, resource.FR) resource.Amount, nodes ...Node) (out []resource.Amount) {
		for _, n := range nodes {
			out = append(out, of(n, fr))
		}
		return out
	}
	type row struct{ Usage, Available []resource.Amount }
	look := func() row {
		return row{read(e.f.Usage, e.mlA, e.mlB, e.ml, e.org), read(e.f.Available, e.mlA, e.mlB, e.ml, e.web)}
	}
	type amounts = []resource.Amount
	if diff := cmp.Diff(amounts{8, 0, 7, 6, 18}, read(e.f.Subtree, e.mlA, e.mlB, e.ml, e.web, e.org)); diff != "" {
		t.Errorf("subtree of ml-a, ml-b, ml, web, org:\n%s", diff)
	}
	if diff := cmp.Diff(amounts{18, 13, 13, 13, 18}, read(e.f.Potential, e.org, e.ml, e.mlA, e.mlB, e.web)); diff != "" {
		t.Errorf("potential of org, ml, ml-a, ml-b, web:\n%s", diff)
	}
	steps := []struct {
		name string
		do   func()
		want row
	}{
		{"empty", func() {}, row{amounts{0, 0, 0, 0}, amounts{13, 13, 13, 18}}},
		{"ml-a +9", func() { e.f.Charge(e.mlA, one(9)) }, row{amounts{9, 0, 4, 0}, amounts{4, 9, 9, 18}}},
		{"then ml-b +4", func() { e.f.Charge(e.mlB, one(4)) }, row{amounts{9, 4, 8, 3}, amounts{4, 5, 5, 15}}},
		{"then ml-a -9", func() { e.f.Release(e.mlA, one(9)) }, row{amounts{0, 4, 4, 0}, amounts{13, 9, 9, 18}}},
	}
	for _, s := range steps {
		s.do()
		if diff := cmp.Diff(s.want, look()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, diff)
		}
	}
}

// TestWorkedExampleLevels is the sentence below that table, about its second state.
func TestWorkedExampleLevels(t *testing.T) {
	e := newExample()
	e.f.Charge(e.mlA, one(9))
	tests := map[string]struct {
		v       resource.Amount
		level   int
		reclaim bool
	}{
		"3 in the cohort": {3, 1, true},
		"4 in the root":   {4, 2, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if level, reclaim := e.f.Level(e.mlA, fr, tc.v); level != tc.level || reclaim != tc.reclaim {
				t.Errorf("Level = %d, %v, want %d, %v", level, reclaim, tc.level, tc.reclaim)
			}
		})
	}
}

func TestUnlimited(t *testing.T) {
	tests := map[string]struct {
		nominal, borrow, lend resource.Amount // of the queue that is charged
		potential             resource.Amount
		availableAfter        resource.Amount
	}{
		"nominal":        {resource.Unlimited, NoLimit, NoLimit, resource.Unlimited, resource.Unlimited},
		"borrowing":      {5, resource.Unlimited, NoLimit, 15, 14},
		"lending":        {5, NoLimit, resource.Unlimited, 15, 14},
		"nominal and no": {resource.Unlimited, 0, 0, resource.Unlimited, resource.Unlimited},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newForest()
			c := add(f, true, None, 10, NoLimit, NoLimit)
			q := add(f, false, c, tc.nominal, tc.borrow, tc.lend)
			if got := f.Potential(q, fr); got != tc.potential {
				t.Errorf("Potential = %d, want %d", got, tc.potential)
			}
			f.Charge(q, one(1))
			if got := f.Available(q, fr); got != tc.availableAfter {
				t.Errorf("Available = %d, want %d", got, tc.availableAfter)
			}
			f.Release(q, one(1))
			if q, c := f.Usage(q, fr), f.Usage(c, fr); q != 0 || c != 0 {
				t.Errorf("usage after release: %d and %d in the cohort", q, c)
			}
		})
	}
}

func TestHeight(t *testing.T) {
	f := newForest()
	root := add(f, true, None, 0, NoLimit, NoLimit)
	add(f, true, root, 0, NoLimit, NoLimit) // no children: height 0
	mid := add(f, true, root, 0, NoLimit, NoLimit)
	low := add(f, true, mid, 0, NoLimit, NoLimit)
	q := add(f, false, low, 0, NoLimit, NoLimit)
	for n, want := range map[Node]int32{1: 0, low: 1, mid: 2, root: 3, q: 0} {
		if got := f.nodes[n].height; got != want {
			t.Errorf("height of node %d = %d, want %d", n, got, want)
		}
	}
}

// TestCycle: below a cycle nothing is available, and what is charged there is still
// there when the cycle is broken. spec: 10 §4.3.5.
func TestCycle(t *testing.T) {
	f := newForest()
	x := add(f, true, None, 2, NoLimit, NoLimit)
	y := add(f, true, x, 3, NoLimit, NoLimit)
	q := add(f, false, y, 4, NoLimit, NoLimit)
	f.Charge(q, one(6))
	f.SetParent(x, y)
	f.Recompute()
	for n, name := range map[Node]string{x: "x", y: "y", q: "q"} {
		if f.Root(n) != None || f.Available(n, fr) != 0 || f.Potential(n, fr) != 0 {
			t.Errorf("%s: root %d, available %d, potential %d", name, f.Root(n), f.Available(n, fr), f.Potential(n, fr))
		}
	}
	if f.Fits(q, one(0)) {
		t.Error("something fits below a cycle")
	}
	f.Charge(q, one(1))
	f.SetParent(x, None)
	f.Recompute()
	if got := f.Available(q, fr); got != 2 || f.Usage(x, fr) != 7 {
		t.Errorf("after the cycle: available %d, charged to the root %d, want 2 and 7", got, f.Usage(x, fr))
	}
}

// TestRemovedNodesAreReused: a new node on an old number knows nothing of the old one.
func TestRemovedNodesAreReused(t *testing.T) {
	f := newForest()
	c := add(f, true, None, 5, NoLimit, NoLimit)
	q := add(f, false, c, 4, 1, 1)
	generation := f.Generation(c) + 1
	if f.Bump(c); f.Generation(c) != generation {
		t.Errorf("generation %d after a bump, want %d", f.Generation(c), generation)
	}
	f.Remove(c)
	f.Recompute()
	if f.Parent(q) != None || f.Available(q, fr) != 4 {
		t.Errorf("after its parent left: parent %d, available %d", f.Parent(q), f.Available(q, fr))
	}
	again := f.Add("", false)
	f.Recompute()
	if again != c || f.Available(again, fr) != 0 || f.BorrowLimit(again, fr) != NoLimit || f.IsCohort(again) {
		t.Errorf("node %d was not blank: available %d, borrowing limit %d", again, f.Available(again, fr), f.BorrowLimit(again, fr))
	}
	if got := f.Generation(again); got <= generation {
		t.Errorf("generation %d comes after %d", got, generation)
	}
}

// TestReach: room for more FRs changes nothing that is known, in trees at rest as well.
func TestReach(t *testing.T) {
	f := newForest()
	add(f, false, None, 1, NoLimit, NoLimit)
	c := add(f, true, None, 5, NoLimit, NoLimit)
	q := add(f, false, c, 5, 3, NoLimit)
	f.Charge(q, one(7))
	f.Reach(11)
	if got := f.Recompute(); len(got) > 0 {
		t.Errorf("settled %d", got)
	}
	if f.Available(q, fr) != 1 || f.Usage(c, fr) != 7 || f.Share(q).Value() != 200 || f.BorrowLimit(q, 11) != NoLimit || f.Available(q, 11) != 0 {
		t.Errorf("available %d, used %d, share %v; of the new FR: borrowing limit %d, available %d",
			f.Available(q, fr), f.Usage(c, fr), f.Share(q).Value(), f.BorrowLimit(q, 11), f.Available(q, 11))
	}
}

// TestRecount: a cohort may be past counting when no queue is.
func TestRecount(t *testing.T) {
	const much resource.Amount = 1 << 62
	f := newForest()
	c := add(f, true, None, 5, NoLimit, NoLimit)
	a, b := add(f, false, c, 1, NoLimit, 0), add(f, false, c, 0, NoLimit, NoLimit)
	f.Charge(a, one(much))
	f.Charge(b, one(much-1))
	if f.Saturated(a, one(1)) {
		t.Error("2⁶³−2 is called past counting") // a keeps 1 to itself
	}
	f.Charge(b, one(2))
	if !f.Saturated(a, one(1)) || !f.Saturated(b, one(1)) {
		t.Errorf("usage of the cohort is %d, and said to be counted", f.Usage(c, fr))
	}
	f.Recount(b, one(3))
	if got := f.Usage(c, fr); got != much-1+3 || f.Saturated(a, one(1)) {
		t.Errorf("usage of the cohort = %d, want %d", got, much-1+3)
	}
}

// newForest counts up to 12 FRs: 4 flavors of 3 resources, the flavor first.
func newForest() *Dimension {
	t := resource.NewTable()
	for i := range 12 {
		t.FR(string(rune('a'+i/3)), string(rune('x'+i%3)))
	}
	d := NewDimension(t)
	return &d
}
