package quota

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
)

// TestTwin: edits, charges and releases in any order, settled at any time, leave the
// forest what the formulas say.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPair(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"":            p.look,
			"add":         func(t *rapid.T) { p.add(t) },
			"remove":      p.remove,
			"move":        func(t *rapid.T) { p.move(t, p.pick(t, "node", nil)) },
			"edit":        func(t *rapid.T) { p.edit(t, p.pick(t, "node", nil)) },
			"weigh":       func(t *rapid.T) { p.weigh(t, p.pick(t, "node", nil)) },
			"charge":      p.charge,
			"charge more": p.charge,
			"release":     p.release,
		})
	})
}

// TestReleaseIsInverse: after releasing in any order, everything is as it was. What is
// past counting is recounted, and not what this is about.
func TestReleaseIsInverse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPair(rt)
		charge := func() holding {
			fr := resource.FR(rapid.IntRange(0, p.frs-1).Draw(rt, "fr"))
			h := holding{p.pick(rt, "queue", p.isQueue), resource.Vector{{FR: fr, Amount: resource.Amount(rapid.IntRange(0, 12).Draw(rt, "amount"))}}}
			p.f.Charge(h.n, h.v)
			return h
		}
		for range rapid.IntRange(0, 3).Draw(rt, "before") {
			charge()
		}
		before := slices.Clone(p.f.cells)
		var held []holding
		for range rapid.IntRange(1, 8).Draw(rt, "charges") {
			held = append(held, charge())
		}
		for _, h := range rapid.Permutation(held).Draw(rt, "order") {
			p.f.Release(h.n, h.v)
		}
		if !slices.Equal(before, p.f.cells) {
			rt.Fatalf("it was %+v, is %+v", before, p.f.cells)
		}
	})
}

// TestRollback: shares are right in a speculation, and whatever happens in one, nested
// ones too, leaves no trace.
func TestRollback(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPair(rt)
		p.charge(rt)
		before, heldBefore := slices.Clone(p.f.cells), slices.Clone(p.held)
		outer := p.f.Mark()
		p.charge(rt)
		p.release(rt)
		p.agreeOnShares(rt)
		middle, held := slices.Clone(p.f.cells), slices.Clone(p.held)
		inner := p.f.Mark()
		for range rapid.IntRange(0, 4).Draw(rt, "charges") {
			p.charge(rt)
		}
		p.agree(rt)
		p.agreeOnShares(rt)
		inside, version := slices.Clone(p.f.cells), p.f.Version()
		p.f.Rollback(inner)
		if !slices.Equal(middle, p.f.cells) {
			rt.Fatalf("after the inner rollback it is %+v, was %+v", p.f.cells, middle)
		}
		if !slices.Equal(middle, inside) && p.f.Version() == version {
			rt.Fatal("rolled back, and the version is that of the speculation")
		}
		p.held = held
		for _, n := range p.list(p.isQueue) {
			p.sum(n)
		}
		p.agreeOnShares(rt)
		p.f.Rollback(outer)
		if !slices.Equal(before, p.f.cells) || len(p.f.log) != 0 || p.f.speculating != 0 {
			rt.Fatalf("after the rollback it is %+v, was %+v; %d left in the log", p.f.cells, before, len(p.f.log))
		}
		p.held = heldBefore
		for _, n := range p.list(p.isQueue) {
			p.sum(n)
		}
		p.agree(rt)
	})
}

// TestGuarantee: as long as everyone takes no more than what is available, a node
// always gets its guaranteed quota, and no node passes its borrowing limit.
func TestGuarantee(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPair(rt)
		for range 20 {
			n := p.pick(rt, "queue", p.isQueue)
			fr := resource.FR(rapid.IntRange(0, p.frs-1).Draw(rt, "fr"))
			amount := min(p.f.Available(n, fr), resource.Amount(rapid.Int64Range(0, 12).Draw(rt, "amount")))
			v := resource.Vector{{FR: fr, Amount: amount}}
			if !p.w.inCycle(n) && !p.f.Fits(n, v) {
				rt.Fatalf("%d is available in node %d and does not fit", amount, n)
			}
			p.f.Charge(n, v)
		}
		for _, n := range p.list(p.isQueue) {
			if p.w.inCycle(n) {
				continue
			}
			for i := range p.frs {
				fr := resource.FR(i)
				if p.f.Available(n, fr) < p.f.Local(n, fr) {
					rt.Fatalf("node %d guarantees itself %d more, and has %d", n, p.f.Local(n, fr), p.f.Available(n, fr))
				}
				c := p.w.cell(n, fr)
				if over := p.f.Usage(n, fr).Sub(c.Nominal); c.Borrow != NoLimit && p.f.Parent(n) != None && over > c.Borrow {
					rt.Fatalf("node %d borrows %d, past its limit %d", n, over, c.Borrow)
				}
				if p.f.Usage(n, fr) < 0 || p.f.Usage(n, fr) > p.f.Potential(n, fr) {
					rt.Fatalf("node %d uses %d of at most %d", n, p.f.Usage(n, fr), p.f.Potential(n, fr))
				}
			}
		}
	})
}

// TestMultiply: products are exact.
func TestMultiply(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		amount := rapid.OneOf( // the second kind has bits everywhere, which the first seldom has
			rapid.Int64Range(0, int64(resource.Unlimited)),
			rapid.Map(rapid.Int64(), func(i int64) int64 { return int64(uint64(i) * 0x9e3779b97f4a7c15 >> 1) }),
		)
		a, b, c := amount.Draw(rt, "a"), amount.Draw(rt, "b"), amount.Draw(rt, "c")
		x := product(resource.Amount(a), resource.Amount(b), resource.Amount(c))
		if got, want := x.big(), bigProduct(a, b, c); got.Cmp(want) != 0 {
			rt.Fatalf("%d·%d·%d = %d, want %d", a, b, c, got, want)
		}
		y := product(resource.Amount(c), resource.Amount(a), 1)
		if got, want := x.compare(y), x.big().Cmp(y.big()); got != want {
			rt.Fatalf("%v compares with %v as %d, want %d", x, y, got, want)
		}
	})
}
