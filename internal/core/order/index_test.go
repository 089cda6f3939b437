package order

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestWakeIndex: the index contains the entries that were put and not removed, in order, in
// any number of blocks, and finds the next of every one.
func TestWakeIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const classes = 400
		line, s := &Pending{}, &entries{first: none}
		for i := range classes { // several of one rank and one UID, so that the slot decides
			line.Add(&workload.Workload{UID: fmt.Sprint(i % 7), Class: int32(i), Priority: int64(i % 3), Since: workload.Instant(i % 5)}, false)
		}
		values := rapid.SampledFrom([]int{1, 5, 1000}).Draw(t, "values")
		entryOf := func(i int) indexEntry {
			c := line.classes[int32(i)]
			return indexEntry{least: resource.Amount(i * 7919 % values), rank: c.members[0].rank, slot: c.slot}
		}
		var twin []indexEntry
		at := func(tk indexEntry) (int, bool) { return slices.BinarySearchFunc(twin, tk, line.order) }
		run := func(i int, put bool) {
			tk := entryOf(i)
			switch at, there := at(tk); {
			case put && !there:
				twin = slices.Insert(twin, at, tk)
				line.put(s, tk)
			case !put && there:
				twin = slices.Delete(twin, at, at+1)
				after := s.remove(line.find(s, &tk))
				if x := s.at(after); (x == nil) != (at == len(twin)) || x != nil && *x != twin[at] {
					t.Fatalf("behind what was taken off is %v at %v", x, after)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if n := soundEntries(t, line, s); n != len(twin) {
					t.Fatalf("%d entries, want %d", n, len(twin))
				}
				for x := (place{}); ; x = s.past(x) {
					tk := s.at(x)
					if tk == nil {
						break
					}
					from, _ := at(*tk)
					next := s.at(s.past(x))
					want := slices.IndexFunc(twin[from:], func(o indexEntry) bool { return o.least > tk.least })
					if (next == nil) != (want < 0) || want >= 0 && *next != twin[from+want] {
						t.Fatalf("past %v is %v", *tk, next)
					}
				}
			},
			"some": func(t *rapid.T) {
				put := rapid.Bool().Draw(t, "put")
				from, step := rapid.IntRange(0, classes-1).Draw(t, "from"), rapid.SampledFrom([]int{1, 3, 7, classes - 1}).Draw(t, "step")
				for i := range rapid.IntRange(1, 150).Draw(t, "how many") {
					run((from+i*step)%classes, put)
				}
			},
			"the first ones": func(t *rapid.T) {
				for range min(len(twin), rapid.IntRange(1, 100).Draw(t, "how many")) {
					first := twin[0]
					twin = twin[1:]
					s.remove(line.find(s, &first))
				}
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					s.clear()
					twin = nil
				}
			},
		})
	})
}

// order is compare for values.
func (p *Pending) order(a, b indexEntry) int {
	return cmp.Or(cmp.Compare(a.least, b.least), p.inLine(&a, &b))
}
