package quota

import (
	"math"
	"testing"

	"github.com/berth-project/berth/internal/core/resource"
)

// two is the cohort of the examples 2 to 4 of spec 10 §7: A of 6 and B of 4.
func two(borrowA, lendB resource.Amount) (f *Dimension, a, b Node) {
	f = newForest()
	c := add(f, true, None, 0, NoLimit, NoLimit)
	return f, add(f, false, c, 6, borrowA, NoLimit), add(f, false, c, 4, NoLimit, lendB)
}

// TestExample1 is number 1 of spec 10 §7; the other half of it is TestWorkedExample.
func TestExample1(t *testing.T) {
	e := newExample()
	e.f.Charge(e.mlA, one(9))
	e.f.Charge(e.mlB, one(4))
	e.f.Release(e.mlB, one(4))
	e.f.Release(e.mlA, one(9))
	for _, n := range []Node{e.org, e.ml, e.mlA, e.mlB, e.web} {
		if got := e.f.Usage(n, fr); got != 0 {
			t.Errorf("usage of node %d = %d, want 0", n, got)
		}
	}
}

// TestExamples2To4 are the numbers 2 to 4 of spec 10 §7.
func TestExamples2To4(t *testing.T) {
	tests := map[string]struct {
		borrowA, lendB       resource.Amount
		usedA, usedB         resource.Amount
		available, potential resource.Amount
		limited              bool // the bottleneck is A's borrowing limit, not the root
	}{
		"2: B uses 4":                   {NoLimit, NoLimit, 0, 4, 6, 10, false},
		"2: A uses 6":                   {NoLimit, NoLimit, 6, 0, 4, 10, false},
		"3: B lends 1":                  {NoLimit, 1, 0, 0, 7, 7, false},
		"3: and has 7 taken":            {NoLimit, 1, 7, 0, 0, 7, false},
		"4: A borrows 2":                {2, NoLimit, 0, 0, 8, 8, true},
		"4: and B uses 4":               {2, NoLimit, 0, 4, 6, 8, false},
		"4: and has 8 taken":            {2, NoLimit, 8, 0, 0, 8, true},
		"limit and root at once: limit": {2, NoLimit, 0, 2, 8, 8, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f, a, b := two(tc.borrowA, tc.lendB)
			f.Charge(a, one(tc.usedA))
			f.Charge(b, one(tc.usedB))
			if got := f.Available(a, fr); got != tc.available {
				t.Errorf("Available = %d, want %d", got, tc.available)
			}
			if got := f.Potential(a, fr); got != tc.potential {
				t.Errorf("Potential = %d, want %d", got, tc.potential)
			}
			at, limited := f.Bottleneck(a, fr)
			if want := map[bool]Node{true: a, false: f.Root(a)}[tc.limited]; at != want || limited != tc.limited {
				t.Errorf("Bottleneck = %d, %v, want %d, %v", at, limited, want, tc.limited)
			}
		})
	}
}

// TestExample5 is number 5 of spec 10 §7: over-admission blocks and is not corrected.
func TestExample5(t *testing.T) {
	f := newForest()
	q := add(f, false, None, 10, NoLimit, NoLimit)
	f.Charge(q, one(7))
	f.SetQuota(q, []Cell{{fr, 4, NoLimit, NoLimit}})
	f.Recompute()
	if f.Available(q, fr) != 0 || f.Usage(q, fr) != 7 || f.Borrows(q) || !f.Share(q).IsZero() {
		t.Errorf("after the cut: available %d, usage %d, borrows %v", f.Available(q, fr), f.Usage(q, fr), f.Borrows(q))
	}
	f.Release(q, one(4))
	if !f.Fits(q, one(1)) || f.Fits(q, one(2)) {
		t.Errorf("available after the release: %d, want 1", f.Available(q, fr))
	}
}

// TestExample6 is number 6 of spec 10 §7: no negative numbers, no NaN.
func TestExample6(t *testing.T) {
	f := newForest()
	c := add(f, true, None, 0, NoLimit, NoLimit)
	a := add(f, false, c, resource.Unlimited, NoLimit, NoLimit)
	b := add(f, false, c, resource.Unlimited, NoLimit, NoLimit)
	poor := add(f, false, c, 0, NoLimit, NoLimit)
	for range 2 {
		for _, n := range []Node{c, a, b, poor} {
			for what, got := range map[string]resource.Amount{"available": f.Available(n, fr), "potential": f.Potential(n, fr)} {
				if got != resource.Unlimited {
					t.Errorf("%s of node %d = %d, want no end", what, n, got)
				}
			}
			if share := f.Share(n); math.IsNaN(share.Value()) || share.Ceil() > 1 || share.Infinite() {
				t.Errorf("share of node %d = %v", n, share.Value())
			}
		}
		f.Charge(a, one(1000))
		f.Charge(poor, one(1000))
	}
	if got := f.Subtree(c, fr); got != resource.Unlimited {
		t.Errorf("subtree = %d, want no end", got)
	}
	f.Charge(poor, one(1000))
	f.SetWeight(b, 0)
	if f.Share(poor).Compare(f.Share(a)) <= 0 || f.Share(poor).Compare(f.Share(b)) <= 0 {
		t.Error("who borrows from what has no end has no larger share than who does not borrow")
	}
}

// TestExample7 is number 7 of spec 10 §7: a cohort that loses its object keeps its queues.
func TestExample7(t *testing.T) {
	f, a, _ := two(NoLimit, NoLimit)
	c := f.Parent(a)
	f.SetQuota(c, []Cell{{fr, 5, NoLimit, NoLimit}})
	f.Recompute()
	with := f.Available(a, fr)
	f.SetQuota(c, nil)
	f.Recompute()
	if without := f.Available(a, fr); with != 15 || without != 10 {
		t.Errorf("available with the cohort's own quota %d, without %d, want 15 and 10", with, without)
	}
}

// TestExample8 is number 8 of spec 10 §7: two cohorts below each other.
func TestExample8(t *testing.T) {
	f := newForest()
	x, y := add(f, true, None, 1, NoLimit, NoLimit), add(f, true, None, 2, NoLimit, NoLimit)
	under := map[Node]Node{x: add(f, false, x, 4, NoLimit, NoLimit), y: add(f, false, y, 4, NoLimit, NoLimit)}
	f.SetParent(x, y)
	f.SetParent(y, x)
	f.Recompute()
	for _, q := range under {
		if f.Fits(q, one(0)) {
			t.Errorf("node %d is admitted from", q)
		}
	}
	f.SetParent(y, None)
	f.Recompute()
	for _, q := range under {
		if got := f.Available(q, fr); got != 11 {
			t.Errorf("available to node %d after the cycle: %d, want 11", q, got)
		}
	}
}

// TestExample74 is number 74 of spec 10 §7: a flavor that a queue lists no more is
// charged as long as it is held.
func TestExample74(t *testing.T) {
	f := newForest()
	c := add(f, true, None, 0, NoLimit, NoLimit)
	a := add(f, false, c, 4, NoLimit, NoLimit)
	b := add(f, false, c, 3, resource.Unlimited, NoLimit)
	f.Charge(a, one(4))
	f.SetQuota(a, nil)
	f.Recompute()
	if f.Available(b, fr) != 0 || !f.Share(a).IsZero() || !f.Borrows(a) {
		t.Errorf("available to b %d, share of a %v, a borrows %v; want 0, 0 and true", f.Available(b, fr), f.Share(a).Value(), f.Borrows(a))
	}
	f.Release(a, one(4))
	if got := f.Available(b, fr); got != 3 {
		t.Errorf("available to b at the end: %d, want 3", got)
	}
}

// TestShareExamples are the numbers 1 to 3 of spec 20 §7, with cpu in thousandths.
func TestShareExamples(t *testing.T) {
	tests := map[string]struct {
		lendable, nominal, usage resource.Amount
		weight                   Weight
		value                    float64
		ceil                     int64
		borrows                  bool
	}{
		"1":                  {100_000, 20_000, 60_000, 1e9, 400, 400, true},
		"1: weight 2":        {100_000, 20_000, 60_000, 2e9, 200, 200, true},
		"2: borrows":         {100_000, 20_000, 21_000, 0, math.Inf(1), math.MaxInt64, true},
		"2: does not borrow": {100_000, 20_000, 20_000, 0, 0, 0, false},
		"3":                  {3, 0, 1, 1e9, 1000. / 3, 334, true},
		"nothing to lend":    {0, 0, 1, 1e9, 0, 0, true},
		"weight of 1/1000":   {100, 0, 100, 1e6, 1e6, 1e6, true},
		"weight of 100u":     {100, 0, 90, 100_000, 9e6, 9e6, true},
		"weight of 900u":     {100, 0, 90, 900_000, 1e6, 1e6, true},
		"the largest weight": {100, 0, 100, math.MaxInt64, 1e12 / float64(math.MaxInt64), 1, true},
		"past counting":      {1, 0, resource.Unlimited, 1e9, 9223372036854775807e3, math.MaxInt64, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newForest()
			org := add(f, true, None, tc.lendable-tc.nominal, NoLimit, NoLimit)
			ml := add(f, false, org, tc.nominal, NoLimit, NoLimit)
			f.SetWeight(ml, tc.weight)
			f.Charge(ml, one(tc.usage))
			s := f.Share(ml)
			if s.Value() != tc.value || s.Ceil() != tc.ceil || f.Borrows(ml) != tc.borrows {
				t.Errorf("Value = %v, Ceil = %d, Borrows = %v, want %v, %d, %v", s.Value(), s.Ceil(), f.Borrows(ml), tc.value, tc.ceil, tc.borrows)
			}
			if s.Infinite() != math.IsInf(tc.value, 1) || s.IsZero() != (tc.value == 0) {
				t.Errorf("Infinite = %v, IsZero = %v", s.Infinite(), s.IsZero())
			}
			if f.Borrows(org) || !f.Share(org).IsZero() {
				t.Error("the root borrows")
			}
		})
	}
}

// TestShareSumsFlavors: what counts is the sum over the flavors of a resource, and the
// resource of which the ratio is highest. FRs 0 and 3 are of one resource, 1 of another.
func TestShareSumsFlavors(t *testing.T) {
	f := newForest()
	org, q := f.Add("org", true), f.Add("q", false)
	f.SetParent(q, org)
	f.SetQuota(org, []Cell{{0, 10, NoLimit, NoLimit}, {3, 30, NoLimit, NoLimit}, {1, 100, NoLimit, NoLimit}})
	f.SetQuota(q, []Cell{{0, 0, NoLimit, NoLimit}, {3, 0, NoLimit, NoLimit}, {1, 0, NoLimit, NoLimit}})
	f.Recompute()
	for _, step := range []struct {
		fr     resource.FR
		amount resource.Amount
		want   float64
	}{
		{0, 4, 100}, {3, 4, 200}, {1, 20, 200}, {1, 5, 250}, {0, 6, 350},
	} {
		f.Charge(q, resource.Vector{{FR: step.fr, Amount: step.amount}})
		if got := f.Share(q).Value(); got != step.want {
			t.Errorf("after %d of FR %d the share is %v, want %v", step.amount, step.fr, got, step.want)
		}
	}
}

// TestBottleneck: limits at several heights of one tree.
func TestBottleneck(t *testing.T) {
	f := newForest()
	org := add(f, true, None, 20, NoLimit, NoLimit)
	team := add(f, true, org, 0, 8, NoLimit)
	q := add(f, false, team, 0, 5, NoLimit)
	peer := add(f, false, team, 0, NoLimit, NoLimit)
	other := add(f, false, org, 0, NoLimit, NoLimit)
	for _, step := range []struct {
		what    string
		do      func()
		at      Node
		limited bool
	}{
		{"empty", func() {}, q, true},
		{"the team has 4 left", func() { f.Charge(peer, one(4)) }, team, true},
		{"so has the root", func() { f.Charge(other, one(12)) }, team, true},
		{"the root has less", func() { f.Charge(other, one(1)) }, org, false},
		{"the queue is in a cycle", func() { f.SetParent(org, team); f.Recompute() }, None, false},
	} {
		step.do()
		if at, limited := f.Bottleneck(q, fr); at != step.at || limited != step.limited {
			t.Errorf("%s: %d, %v, want %d, %v", step.what, at, limited, step.at, step.limited)
		}
	}
	alone, fresh := add(f, false, None, 0, NoLimit, NoLimit), f.table.FR("f", "fresh")
	f.Reach(fresh) // after the last Recompute: no node has a quota of it
	if at, limited := f.Bottleneck(alone, fresh); at != alone || limited {
		t.Errorf("of what nobody has: %d, %v, want %d", at, limited, alone)
	}
}
