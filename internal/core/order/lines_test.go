package order

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// pair is two lines in which the same happens: one of several LocalQueue lines, and one without.
type pair struct {
	*yard
	lines, flat Pending
	all         [][2]*workload.Workload // in lines and in flat
	serial      int
}

func (p *pair) pick(t *rapid.T) [2]*workload.Workload {
	if len(p.all) == 0 {
		t.Skip("none there")
	}
	return p.all[rapid.IntRange(0, len(p.all)-1).Draw(t, "who")]
}

func (p *pair) add(t *rapid.T) {
	p.serial++
	class := rapid.Int32Range(0, 7).Draw(t, "class")
	w := workload.Workload{
		UID: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "uid"), "-", p.serial), Key: fmt.Sprint("w", p.serial), Class: class,
		Priority: int64(class / 4), Since: workload.Instant(rapid.IntRange(0, 1).Draw(t, "since")),
	}
	flat := w
	w.Line = class%3 + 1
	strict := rapid.IntRange(0, 5).Draw(t, "strict") == 5
	p.lines.Add(&w, strict)
	p.flat.Add(&flat, strict)
	p.all = append(p.all, [2]*workload.Workload{&w, &flat})
}

func (p *pair) remove(t *rapid.T) {
	w := p.pick(t)
	p.all = slices.DeleteFunc(p.all, func(o [2]*workload.Workload) bool { return o == w })
	p.lines.Remove(w[0])
	p.flat.Remove(w[1])
}

func (p *pair) setInadmissible(t *rapid.T) {
	w := p.pick(t)
	if head := p.lines.Head(); head != nil && rapid.Bool().Draw(t, "the head") {
		w = p.all[slices.IndexFunc(p.all, func(o [2]*workload.Workload) bool { return o[0] == head })]
	}
	var wants []workload.Want
	for clause := range rapid.Uint8Range(0, 2).Draw(t, "clauses") {
		for i, fr := range rapid.SliceOfNDistinct(rapid.IntRange(0, testFRs-1), 1, testFRs, rapid.ID[int]).Draw(t, "frs") {
			least := resource.Amount(rapid.SampledFrom([]int{0, 1, 3, 4, 6}).Draw(t, "least"))
			winnable := rapid.IntRange(0, 3).Draw(t, "winnable") == 3
			wants = append(wants, workload.Want{FR: resource.FR(fr), Least: least, Clause: clause, Offer: uint16(i), Winnable: winnable})
		}
	}
	p.lines.SetInadmissible(w[0], wants)
	p.flat.SetInadmissible(w[1], wants)
}

func (p *pair) use(t *rapid.T) {
	fr := resource.FR(rapid.IntRange(0, testFRs-1).Draw(t, "fr"))
	p.yard.use(p.node, fr, resource.Amount(rapid.IntRange(0, 6).Draw(t, "amount")))
	p.extra[fr] = resource.Amount(rapid.IntRange(0, 2).Draw(t, "extra"))
	if lines, flat := p.lines.Release(fr, p), p.flat.Release(fr, p); lines != flat {
		t.Fatalf("a release of %d is noted: %v, without lines %v", fr, lines, flat)
	}
}

func (p *pair) agree(t *rapid.T) {
	all := keys(p.flat.All())
	if diff := gocmp.Diff(all, keys(p.lines.All())); diff != "" {
		t.Fatalf("in line (-without lines +with):\n%s", diff)
	}
	key := func(w *workload.Workload) string {
		if w == nil {
			return ""
		}
		return w.Key
	}
	if lines, flat := key(p.lines.Head()), key(p.flat.Head()); lines != flat {
		t.Fatalf("the head is %q, without lines %q", lines, flat)
	}
	if diff := gocmp.Diff(keys(p.flat.Behind(p.flat.Head(), 5, nil)), keys(p.lines.Behind(p.lines.Head(), 5, nil))); diff != "" {
		t.Fatalf("behind the head (-without lines +with):\n%s", diff)
	}
	if !slices.Equal(p.lines.Released(), p.flat.Released()) || p.lines.Wakes() != p.flat.Wakes() {
		t.Fatalf("released are %v and woken %v, without lines %v and %v", p.lines.Released(), p.lines.Wakes(), p.flat.Released(), p.flat.Wakes())
	}
	lines, flat := packAtOnce(&p.lines).Unpack(), packAtOnce(&p.flat).Unpack()
	if !slices.EqualFunc(lines, flat, func(a, b InadmissibleClass) bool {
		return a.Member.UID == b.Member.UID && a.By.UID == b.By.UID && a.Tried == b.Tried && slices.Equal(a.Wants, b.Wants)
	}) {
		t.Fatalf("inadmissible are %v, without lines %v", lines, flat)
	}
	sound(t, &p.lines)
}

// TestEqualStandings: lines of equal standing are as one line, whatever happens in them.
func TestEqualStandings(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := &pair{yard: newYard()}
		standing := Standing(rapid.SampledFrom([]int{0, 1, -7}).Draw(rt, "standing"))
		for number := int32(1); number <= 3; number++ {
			p.lines.SetStanding(number, standing)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":          p.agree,
			"add":       p.add,
			"add more":  p.add,
			"remove":    p.remove,
			"park":      p.setInadmissible,
			"park more": p.setInadmissible,
			"use":       p.use,
			"use more":  p.use,
			"inadmissible alone": func(t *rapid.T) {
				w := p.pick(t)
				p.lines.SetInadmissibleAlone(w[0])
				p.flat.SetInadmissibleAlone(w[1])
			},
			"prioritize": func(t *rapid.T) {
				w := p.pick(t)
				p.lines.Prioritize(w[0])
				p.flat.Prioritize(w[1])
			},
			"wake next": func(t *rapid.T) {
				if lines, flat := p.lines.WakeNext(p), p.flat.WakeNext(p); lines != flat {
					t.Fatalf("woke %v, without lines %v", lines, flat)
				}
			},
			"wake all": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "rarely") == 0 {
					p.lines.WakeAll()
					p.flat.WakeAll()
				}
			},
		})
	})
}

// TestUsageBeforePriority is acceptance example 14 of spec 20: a lower usage comes before any priority, and before the
// workload whose victims are leaving, which comes first of its usage.
func TestUsageBeforePriority(t *testing.T) {
	const red, blue, green = 1, 2, 3
	first := &workload.Workload{UID: "a", Key: "red-first", Class: 1, Line: red}
	second := &workload.Workload{UID: "b", Key: "red-second", Class: 1, Line: red, Since: 1}
	urgent := &workload.Workload{UID: "c", Key: "blue-urgent", Class: 2, Line: blue, Priority: 1000}
	later := &workload.Workload{UID: "d", Key: "green", Class: 3, Line: green, Since: 2}
	tests := map[string]struct {
		red, blue, green Standing
		prioritized      *workload.Workload
		want             []string
	}{
		"lower usage first": {red: 3, blue: 7, green: 9, want: []string{"red-first", "red-second", "blue-urgent", "green"}},
		"equal usage":       {red: 3, blue: 3, green: 3, want: []string{"blue-urgent", "red-first", "red-second", "green"}},
		"none is used":      {want: []string{"blue-urgent", "red-first", "red-second", "green"}},
		"usage before stickiness": {
			red: 3, blue: 7, green: 3, prioritized: urgent, want: []string{"red-first", "red-second", "green", "blue-urgent"},
		},
		"stickiness before priority": {
			red: 7, blue: 7, green: 1, prioritized: second, want: []string{"green", "red-second", "blue-urgent", "red-first"},
		},
		"stickiness in its line": {
			red: 3, blue: 7, green: 9, prioritized: second, want: []string{"red-second", "red-first", "blue-urgent", "green"},
		},
		"the last standing": {
			red: math.MaxInt64, blue: 7, green: 9, prioritized: first, want: []string{"blue-urgent", "green", "red-first", "red-second"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var p Pending
			for _, w := range []*workload.Workload{later, second, urgent, first} {
				w.HeapIndex = 0
				p.Add(w, false)
			}
			if tc.prioritized != nil {
				p.Prioritize(tc.prioritized)
			}
			p.SetStanding(red, tc.red)
			p.SetStanding(blue, tc.blue)
			p.SetStanding(green, tc.green)
			if diff := gocmp.Diff(tc.want, keys(p.All())); diff != "" {
				t.Errorf("in line (-want +got):\n%s", diff)
			}
			if head := p.Head(); head.Key != tc.want[0] {
				t.Errorf("the head is %s, want %s", head.Key, tc.want[0])
			}
			if diff := gocmp.Diff(tc.want[1:], keys(p.Behind(p.Head(), 9, nil))); diff != "" {
				t.Errorf("behind the head (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWakesInOrderOfStandings: the first class that a release activates is the first in the order of the present standings,
// and a prioritized head gives way to a line of lower standing only.
func TestWakesInOrderOfStandings(t *testing.T) {
	setUp := func() (*Pending, *plenty, [4]*workload.Workload) {
		p, now, all := new(Pending), &plenty{}, [4]*workload.Workload{}
		for i := range all {
			all[i] = &workload.Workload{UID: fmt.Sprint(i), Key: fmt.Sprint(i), Class: int32(i), Line: int32(1 + i/2), Priority: int64(i)}
			p.Add(all[i], false)
			p.SetInadmissible(all[i], either(resource.Amount(1+i%2), 100))
		}
		p.SetStanding(1, 3)
		p.SetStanding(2, 7)
		now[1] = 2
		p.Release(1, now)
		return p, now, all
	}
	wake := func(t *testing.T, p *Pending, now *plenty, want ...*workload.Workload) {
		t.Helper()
		for _, w := range want {
			if !p.WakeNext(now) || p.Head() != w {
				t.Fatalf("the head is %v, want %s", p.Head(), w.Key)
			}
			p.SetInadmissible(w, either(100, 100))
		}
	}
	t.Run("as they are", func(t *testing.T) {
		p, now, all := setUp()
		wake(t, p, now, all[1], all[0], all[3], all[2])
	})
	t.Run("changed between", func(t *testing.T) {
		p, now, all := setUp()
		wake(t, p, now, all[1])
		p.SetStanding(1, 8)
		wake(t, p, now, all[3])
		p.SetStanding(2, 8)
		wake(t, p, now, all[2], all[0])
		if p.WakeNext(now) || len(p.Released()) > 0 {
			t.Error("something is left to wake")
		}
	})
	t.Run("before a prioritized head", func(t *testing.T) {
		p, now, all := setUp()
		preemptor := &workload.Workload{UID: "p", Key: "p", Class: 9, Line: 3}
		p.Add(preemptor, false)
		p.Prioritize(preemptor)
		p.SetStanding(3, 3)
		if p.WakeNext(now) || p.Head() != preemptor || len(p.Released()) != 1 {
			t.Fatalf("the head is %v with %v released, want the preemptor, and the release is kept", p.Head(), p.Released())
		}
		p.SetStanding(3, 4)
		wake(t, p, now, all[1], all[0])
		if p.WakeNext(now) || p.Head() != preemptor || len(p.Released()) != 1 {
			t.Fatalf("the head is %v with %v released, want the preemptor, and the release is kept", p.Head(), p.Released())
		}
	})
}

// TestLinesAreForgotten: a line that has neither workloads nor a standing leaves nothing behind.
func TestLinesAreForgotten(t *testing.T) {
	p, now := new(Pending), &plenty{}
	for number := int32(1); number <= 100; number++ {
		w := &workload.Workload{UID: "w", Class: number, Line: number}
		p.Add(w, false)
		p.SetStanding(number, Standing(number))
		p.SetInadmissible(w, either(5, 5))
		p.Release(1, now)
		p.Remove(w)
		if p.lines == nil {
			t.Fatalf("line %d is forgotten with its standing", number)
		}
		p.SetStanding(number, 0)
		p.SetStanding(number, 0)
		if sound(t, p); p.lines != nil {
			t.Fatalf("line %d is kept", number)
		}
	}
	if others := len(p.wakeIndex(1).others); others > 1 {
		t.Errorf("there is room for %d lines in the wake index, want 1 at most", others)
	}
	all := many(100, 100)
	for i, w := range all {
		w.Line = int32(1 + i)
		p.Add(w, false)
		p.SetInadmissible(w, either(5, 5))
	}
	p.Release(1, now)
	for _, w := range all {
		p.Remove(w)
	}
	if kept := p.kept(); kept > 0 || p.lines != nil {
		t.Errorf("room for %d entries is kept for no line", kept)
	}
}

// manyLines is n lines of two workloads, one of them inadmissible.
func manyLines(n int) (*Pending, *plenty) {
	p, now := new(Pending), &plenty{}
	for i, w := range many(2*n, 2*n) {
		w.Line = int32(i/2 + 1)
		p.Add(w, false)
		p.SetStanding(w.Line, Standing(i*7919%(2*n)+1))
		if i%2 == 0 {
			p.SetInadmissible(w, either(resource.Amount(100+i%20), 100))
		}
	}
	p.fileTried(now)
	return p, now
}

// TestSetStandingIsLogarithmic counts the moves of a change of a standing among 10,000 lines.
func TestSetStandingIsLogarithmic(t *testing.T) {
	const n = 10_000
	p, _ := manyLines(n)
	before := make([]int32, n+1)
	for round := range 1000 {
		for _, l := range p.lines.all {
			before[l.number] = l.at
		}
		p.SetStanding(int32(round*7919%n+1), Standing(round*104729%(2*n)+1))
		moved := 0
		for _, l := range p.lines.all {
			if before[l.number] != l.at {
				moved++
			}
		}
		if most := bits.Len(n) + 1; moved > most {
			t.Fatalf("%d lines moved, want %d at most", moved, most)
		}
	}
	if n := testing.AllocsPerRun(100, func() { p.SetStanding(5, p.lines.all[4].standing+1) }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
	sound(t, p)
}

// BenchmarkSetStanding is a change of the standing of a line.
func BenchmarkSetStanding(b *testing.B) {
	for _, n := range []int{10, 100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("lines=%d", n), func(b *testing.B) {
			p, _ := manyLines(n)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				p.SetStanding(int32(i*7919%n+1), Standing(i*104729%(2*n)+1))
			}
		})
	}
}

// BenchmarkWakeAmongLines is a release that could help a class in each line, the evaluation of the first one, and one that
// helps none.
func BenchmarkWakeAmongLines(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		p, now := manyLines(n)
		for _, w := range p.All() { // so that there is no head
			if p.Evaluated(w.Class) == nil {
				p.SetInadmissible(w, nil)
			}
		}
		b.Run(fmt.Sprintf("lines=%d/all fit", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				now[1] = 1000
				if !p.Release(1, now) || !p.WakeNext(now) {
					b.Fatal("not activated")
				}
				now[1] = 0
				head := p.Head()
				p.SetInadmissible(head, either(100, 100))
				p.WakeNext(now)
			}
		})
		b.Run(fmt.Sprintf("lines=%d/none fits", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				now[1] = 99
				if p.Release(1, now) {
					b.Fatal("it is of use")
				}
			}
		})
	}
}
