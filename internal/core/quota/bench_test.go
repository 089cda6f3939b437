package quota

import (
	"fmt"
	"testing"

	"github.com/berth-project/berth/internal/core/resource"
)

// forestOf1000 is a root with 10 cohorts of 10 cohorts of 10 queues each, depth 4: 12
// FRs with quota and limits everywhere, half of it used; and the queues.
func forestOf1000() (f *Dimension, queues []Node) {
	f = newForest()
	hang := func(parent Node, cohort bool, nominal resource.Amount) Node {
		n := f.Add(fmt.Sprint("n", len(f.nodes)), cohort)
		f.SetParent(n, parent)
		var cells []Cell
		for fr := range resource.FR(12) {
			cells = append(cells, Cell{fr, nominal, 1 << 30, nominal})
		}
		f.SetQuota(n, cells)
		return n
	}
	root := hang(None, true, 0)
	for range 10 {
		upper := hang(root, true, 100)
		for range 10 {
			lower := hang(upper, true, 100)
			for range 10 {
				queues = append(queues, hang(lower, false, 100))
			}
		}
	}
	f.Recompute()
	for i, q := range queues {
		f.Charge(q, allOf(resource.Amount(i%2)*150))
	}
	return f, queues
}

func allOf(amount resource.Amount) (v resource.Vector) {
	for fr := range resource.FR(12) {
		v = append(v, resource.Entry{FR: fr, Amount: amount})
	}
	return v
}

// TestAllocations: what the engine does all the time allocates nothing.
func TestAllocations(t *testing.T) {
	f, queues := forestOf1000()
	q, v := queues[777], allOf(2)
	tests := map[string]func(){
		"charge and release": func() { f.Charge(q, v); f.Release(q, v) },
		"fits":               func() { f.Fits(q, v) },
		"level":              func() { f.Level(q, 3, 200) },
		"bottleneck":         func() { f.Bottleneck(q, 3) },
		"speculation":        func() { m := f.Mark(); f.Charge(q, v); f.Rollback(m) },
		"share":              func() { f.Share(q).Compare(f.Share(f.Parent(q))) },
		"settle":             func() { f.Recompute() },
		"edit and settle":    func() { f.touch(q); f.Recompute() },
		"move":               func() { f.SetParent(q, None); f.SetParent(q, f.Parent(queues[776])); f.Recompute() },
		"recount":            func() { f.Recount(q, v) },
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			do() // room in the buffers
			if n := testing.AllocsPerRun(100, do); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func BenchmarkChargeRelease(b *testing.B) {
	for _, frs := range []int{1, 12} {
		b.Run(fmt.Sprintf("%d FRs", frs), func(b *testing.B) {
			f, queues := forestOf1000()
			v := allOf(2)[:frs]
			for i := 0; b.Loop(); i++ {
				q := queues[i*7%1000]
				f.Charge(q, v)
				f.Release(q, v)
			}
		})
	}
}

func BenchmarkAvailable(b *testing.B) {
	f, queues := forestOf1000()
	for i := 0; b.Loop(); i++ {
		f.Available(queues[i*7%1000], resource.FR(i%12))
	}
}

func BenchmarkFits(b *testing.B) {
	f, queues := forestOf1000()
	v := allOf(2)
	for i := 0; b.Loop(); i++ {
		f.Fits(queues[i*7%1000], v)
	}
}

func BenchmarkShare(b *testing.B) {
	f, queues := forestOf1000()
	for i := 0; b.Loop(); i++ {
		f.Share(queues[i*7%1000])
	}
}

func BenchmarkCompareShares(b *testing.B) {
	f, queues := forestOf1000()
	x, y := f.Share(queues[1]), f.Share(queues[3]) // equal, so that all of them is looked at
	for b.Loop() {
		x.Compare(y)
	}
}

func BenchmarkCeil(b *testing.B) {
	f, queues := forestOf1000()
	x := f.Share(queues[1])
	for b.Loop() {
		x.Ceil()
	}
}

// BenchmarkEdit is an edit of one queue in a tree of 1,111 nodes, and in a tree of its own.
func BenchmarkEdit(b *testing.B) {
	for _, alone := range []bool{false, true} {
		b.Run(fmt.Sprintf("alone=%v", alone), func(b *testing.B) {
			f, queues := forestOf1000()
			if alone {
				f.SetParent(queues[5], None)
				f.Recompute()
			}
			cells := []Cell{{0, 7, NoLimit, NoLimit}, {5, 7, NoLimit, NoLimit}}
			for b.Loop() {
				f.SetQuota(queues[5], cells)
				f.Recompute()
			}
		})
	}
}
