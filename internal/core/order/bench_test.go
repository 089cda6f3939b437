package order

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// many makes n workloads of that many classes.
func many(n, classes int) []*workload.Workload {
	all := make([]*workload.Workload, n)
	for i := range all {
		all[i] = &workload.Workload{UID: fmt.Sprintf("%08d", i), Class: int32(i % classes), Since: workload.Instant(i * 7919 % n)}
	}
	return all
}

// plenty is a queue that has so much of each FR, and cannot preempt.
type plenty [testFRs]resource.Amount

func (p *plenty) Available(fr resource.FR) resource.Amount { return p[fr] }

func (p *plenty) AtMost(resource.FR) resource.Amount { return resource.Unlimited }

func (p *plenty) Winnable(*workload.Workload, resource.FR, resource.Amount) bool { return false }

// either wants so much of FR 1 or of FR 2.
func either(of1, of2 resource.Amount) []workload.Want {
	return []workload.Want{{FR: 1, Least: of1}, {FR: 2, Least: of2, Offer: 1}}
}

// TestNoAllocations: a line that has been in use for a while needs no more memory.
func TestNoAllocations(t *testing.T) {
	var line Pending
	now := &plenty{}
	all := many(1000, 500)
	for _, w := range all {
		if w.Class >= 300 {
			w.Priority = -1
		}
		line.Add(w, false)
	}
	lone := &workload.Workload{UID: "lone", Class: 1000, Priority: -2}
	first := &workload.Workload{UID: "first", Class: 1001, Priority: 1}
	line.Add(first, false)
	wants := make([][]workload.Want, 500)
	for i := range wants { // few want the same, so that an empty index is kept
		more := resource.Amount(i % 20)
		wants[i] = either(2+more, 2+more)
	}
	mine := either(1, 1<<30)
	for _, w := range all[:300] {
		line.SetInadmissible(w, wants[w.Class])
	}
	line.SetInadmissible(first, mine)
	tests := map[string]func(){
		"add and remove of a class": func() {
			line.Add(lone, false)
			line.Remove(lone)
		},
		"add and remove of a member": func() {
			line.Remove(all[999])
			line.Add(all[999], false)
		},
		"park and wake": func() {
			now[1] = 1
			if !line.Release(1, now) || !line.WakeNext(now) || line.Head() != first {
				t.Fatal("the first was not activated")
			}
			now[1] = 0
			line.SetInadmissible(first, mine)
			line.WakeNext(now)
		},
		"an evaluation at some": func() {
			now[1] = 3
			line.Release(1, now)
			evaluations := 0
			for ; line.WakeNext(now); evaluations++ {
				if head := line.Head(); head == first {
					line.SetInadmissible(head, mine)
				} else {
					line.SetInadmissible(head, wants[head.Class])
				}
			}
			now[1] = 0
			if evaluations != 31 || len(line.Released()) > 0 {
				t.Fatalf("%d evaluations, and released are %v", evaluations, line.Released())
			}
		},
		"a release that helps none": func() {
			now[2] = 1
			if line.Release(2, now) || line.WakeNext(now) {
				t.Fatal("it does")
			}
			now[2] = 0
		},
		"a head comes and goes": func() { // of a inadmissible class
			line.Remove(all[0])
			line.Add(all[0], false)
			line.Remove(all[500])
			line.Add(all[500], false)
		},
		"alone and back": func() {
			line.SetInadmissibleAlone(all[600])
			line.Remove(all[600])
			line.Add(all[600], false)
		},
	}
	for name, f := range tests {
		for range 200 { // void entries come and are tidied up
			f()
		}
		if n := testing.AllocsPerRun(500, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	if line.Inadmissible() != 601 || line.Active() != 400 {
		t.Errorf("%d inadmissible and %d active, want 601 and 400", line.Inadmissible(), line.Active())
	}
}

// TestMemory: a class of one costs little, even where every workload is one, and so does
// parking it, even where each wants another amount.
func TestMemory(t *testing.T) {
	const n = 100_000
	tests := map[string]struct {
		wants func(i int) []workload.Want // nil to stay awake
		most  uint64                      // bytes a class
	}{
		"awake":                      {nil, 200},
		"inadmissible":               {func(int) []workload.Want { return either(4, 1) }, 400},
		"inadmissible, each alone":   {func(i int) []workload.Want { return either(resource.Amount(1+i), 1) }, 480},
		"inadmissible without wants": {func(int) []workload.Want { return nil }, 220},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all := many(n, n)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			line := new(Pending)
			for i, w := range all {
				line.Add(w, false)
				if tc.wants != nil {
					line.SetInadmissible(w, tc.wants(i))
				}
			}
			line.fileTried(&plenty{})
			runtime.GC()
			runtime.ReadMemStats(&after)
			per := (after.HeapAlloc - before.HeapAlloc) / n
			t.Logf("%d bytes a class", per)
			if per > tc.most {
				t.Errorf("%d bytes a class of one, want %d at most", per, tc.most)
			}
			runtime.KeepAlive(line)
			runtime.KeepAlive(all)
		})
	}
}

// kept is for how many entries a line has room.
func (p *Pending) kept() (entries int) {
	for i := range p.indexes {
		for at := range p.indexes[i].len() {
			l := p.indexes[i].line(at)
			for _, block := range l.blocks[:cap(l.blocks)] {
				entries += cap(block)
			}
		}
	}
	return entries
}

// TestNoGarbage: the memory that a line keeps does not grow with how often its classes are
// inadmissible and activated, whatever they want, or get another head.
func TestNoGarbage(t *testing.T) {
	const n = 1000
	now := &plenty{}
	tests := map[string]func(line *Pending, all []*workload.Workload, round int){
		"a crowd on another index each time": func(line *Pending, all []*workload.Workload, round int) {
			setInadmissible := func(from, to int, wants func(i int) []workload.Want) {
				for i := from; i < to; i++ {
					line.SetInadmissible(all[i], wants(i))
				}
				line.fileTried(now)
			}
			alone := func(i int) []workload.Want { return either(resource.Amount(n+i), 1) }
			many := func(int) []workload.Want { return either(resource.Amount(1+round), 1) }
			setInadmissible(0, 5*round, alone)
			setInadmissible(n/2, n, many)
			setInadmissible(5*round, n/2, alone)
			sound(t, line)
			line.WakeAll()
		},
		"another head each time": func(line *Pending, all []*workload.Workload, round int) {
			for i, w := range all {
				line.SetInadmissible(w, either(resource.Amount(1+i), 1))
			}
			for range 50 {
				first := &workload.Workload{UID: "first", Class: int32(round), Priority: 1}
				line.Add(first, false)
				line.Remove(first)
			}
			sound(t, line)
		},
		"a workload with wants of its own comes and is deleted": func(line *Pending, all []*workload.Workload, round int) {
			for _, w := range all {
				line.SetInadmissible(w, either(1, 1))
			}
			for i := range 50 {
				w := &workload.Workload{UID: "w", Class: n}
				line.Add(w, false)
				line.SetInadmissible(w, either(resource.Amount(2+50*round+i), 2))
				line.Remove(w)
			}
			sound(t, line)
		},
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			line, all := new(Pending), many(n, n)
			for _, w := range all {
				line.Add(w, false)
			}
			for round := range 100 {
				f(line, all, round)
			}
			if kept := line.kept(); kept > 20*n {
				t.Errorf("room for %d entries is kept for %d classes", kept, n)
			}
		})
	}
}

func BenchmarkPushPop(b *testing.B) {
	const n = 100_000
	for _, classes := range []int{1, n} {
		b.Run(fmt.Sprintf("classes=%d", classes), func(b *testing.B) {
			var line Pending
			for _, w := range many(n, classes) {
				line.Add(w, false)
			}
			b.ReportAllocs()
			for b.Loop() {
				head := line.Head()
				line.Remove(head)
				head.Since += n / 2
				line.Add(head, false)
			}
		})
	}
}

// manyInadmissible makes a line of 10,000 inadmissible classes that want so many different amounts of FR 1,
// from 100 on, the last in line the least. The very last wants 99.
func manyInadmissible(values int) (line *Pending, all []*workload.Workload, wants [][]workload.Want) {
	const n = 10_000
	line, all = new(Pending), many(n, n)
	for i, w := range all {
		w.Since = workload.Instant(i)
		line.Add(w, false)
		least := resource.Amount(100 + (n-1-i)%values)
		if i == n-1 {
			least = 99
		}
		wants = append(wants, either(least, 100))
		line.SetInadmissible(w, wants[i])
	}
	line.fileTried(&plenty{})
	return line, all, wants
}

// BenchmarkWake is a release that helps no class, one that activates a single class, and one
// that could help all, with an evaluation of the first only.
func BenchmarkWake(b *testing.B) {
	for _, values := range []int{10, 10_000} {
		line, all, wants := manyInadmissible(values)
		last := len(all) - 1
		wake := func(now *plenty, available resource.Amount, want int) {
			now[1] = available
			if !line.Release(1, now) || !line.WakeNext(now) || line.Head() != all[want] {
				b.Fatal("not activated")
			}
			now[1] = 0
			line.SetInadmissible(all[want], wants[want])
			line.WakeNext(now)
		}
		for name, f := range map[string]func(now *plenty){
			"nothing released": func(now *plenty) { line.WakeNext(now) },
			"none fits": func(now *plenty) {
				now[1] = 98
				line.Release(1, now)
			},
			"one fits": func(now *plenty) { wake(now, 99, last) },
			"all fit":  func(now *plenty) { wake(now, 100_000, 0) },
		} {
			b.Run(fmt.Sprintf("values=%d/%s", values, name), func(b *testing.B) {
				now := &plenty{}
				b.ReportAllocs()
				for b.Loop() {
					f(now)
				}
			})
		}
	}
}

// BenchmarkDrain is an evaluation at each of 10,000 inadmissible classes, without success, after a release that
// could have helped them all.
func BenchmarkDrain(b *testing.B) {
	for _, values := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("values=%d", values), func(b *testing.B) {
			line, all, wants := manyInadmissible(values)
			now := &plenty{1: 100_000}
			b.ReportAllocs()
			for b.Loop() {
				line.Release(1, now)
				evaluations := 0
				for ; line.WakeNext(now); evaluations++ {
					line.SetInadmissible(all[line.Head().Class], wants[line.Head().Class])
				}
				if evaluations != len(all) {
					b.Fatalf("%d evaluations", evaluations)
				}
			}
		})
	}
}

// BenchmarkSetInadmissible is a class that is inadmissible and leaves.
func BenchmarkSetInadmissible(b *testing.B) {
	for _, values := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("values=%d", values), func(b *testing.B) {
			line, all, _ := manyInadmissible(values)
			w := &workload.Workload{UID: "w", Class: int32(len(all))}
			wants, now := either(98, 100), &plenty{}
			b.ReportAllocs()
			for b.Loop() {
				line.Add(w, false)
				line.SetInadmissible(w, wants)
				line.fileTried(now)
				line.Remove(w)
			}
		})
	}
}
