package order

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

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

// plain is a line without cleverness: a list that is sorted when it is looked at.
type plain struct {
	all    []*workload.Workload
	parked map[int32][]resource.FR // by class
	aside  map[*workload.Workload]bool
	sticky *workload.Workload
}

func (p *plain) isParked(w *workload.Workload) bool {
	_, parked := p.parked[w.Class]
	return parked || p.aside[w]
}

func (p *plain) list() (active, parked []*workload.Workload) {
	for _, w := range p.all {
		if p.isParked(w) {
			parked = append(parked, w)
		} else {
			active = append(active, w)
		}
	}
	slices.SortFunc(active, Compare)
	slices.SortFunc(parked, Compare)
	if i := slices.Index(active, p.sticky); p.sticky != nil && i > 0 {
		active = slices.Insert(slices.Delete(active, i, i+1), 0, p.sticky)
	}
	return active, parked
}

// tidy forgets classes that nobody is in any more.
func (p *plain) tidy() {
	for class := range p.parked {
		if !slices.ContainsFunc(p.all, func(w *workload.Workload) bool { return w.Class == class && !p.aside[w] }) {
			delete(p.parked, class)
		}
	}
}

// TestPendingTwin: the line is, after every event, the one that sorting would give.
func TestPendingTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var line Pending
		twin := &plain{parked: map[int32][]resource.FR{}, aside: map[*workload.Workload]bool{}}
		serial := 0
		pick := func(t *rapid.T, from []*workload.Workload) *workload.Workload {
			if len(from) == 0 {
				t.Skip("nobody there")
			}
			return rapid.SampledFrom(from).Draw(t, "who")
		}
		frs := rapid.SliceOfDistinct(rapid.Map(rapid.IntRange(0, 3), func(i int) resource.FR { return resource.FR(i) }), rapid.ID[resource.FR])
		rt.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				active, parked := twin.list()
				if diff := cmp.Diff(keys(append(active, parked...)), keys(line.All())); diff != "" {
					t.Fatalf("in line (-twin +line):\n%s", diff)
				}
				if line.Active() != len(active) || line.Parked() != len(parked) {
					t.Fatalf("%d active and %d parked, want %d and %d", line.Active(), line.Parked(), len(active), len(parked))
				}
				var head *workload.Workload
				if len(active) > 0 {
					head = active[0]
				}
				if line.Head() != head {
					t.Fatalf("head is %v, want %v", line.Head(), head)
				}
			},
			"add": func(t *rapid.T) {
				serial++
				class := rapid.Int32Range(0, 3).Draw(t, "class")
				w := &workload.Workload{
					UID: fmt.Sprint(serial), Key: fmt.Sprint("w", serial), Class: class, Priority: int64(class / 2),
					Since: workload.Instant(rapid.IntRange(0, 3).Draw(t, "since")),
				}
				strict := rapid.IntRange(0, 5).Draw(t, "strict") == 5
				if strict {
					delete(twin.parked, class)
				}
				twin.all = append(twin.all, w)
				line.Add(w, strict)
			},
			"remove": func(t *rapid.T) {
				w := pick(t, twin.all)
				twin.all = slices.DeleteFunc(twin.all, func(o *workload.Workload) bool { return o == w })
				delete(twin.aside, w)
				if twin.sticky == w {
					twin.sticky = nil
				}
				twin.tidy()
				if !line.Remove(w) || line.Remove(w) {
					t.Fatal("not removed exactly once")
				}
			},
			"park": func(t *rapid.T) {
				active, _ := twin.list()
				w, wants := pick(t, active), frs.Draw(t, "wants")
				twin.parked[w.Class] = wants
				line.Park(w, wants)
			},
			"set aside": func(t *rapid.T) {
				active, _ := twin.list()
				w := pick(t, active)
				twin.aside[w] = true
				twin.tidy()
				line.SetAside(w)
			},
			"stick": func(t *rapid.T) {
				active, _ := twin.list()
				twin.sticky = pick(t, active)
				line.Stick(twin.sticky)
			},
			"wake": func(t *rapid.T) {
				released := frs.Draw(t, "released")
				_, before := twin.list()
				for class, wants := range twin.parked {
					if slices.ContainsFunc(wants, func(fr resource.FR) bool { return slices.Contains(released, fr) }) {
						delete(twin.parked, class)
					}
				}
				_, after := twin.list()
				if n := line.Wake(released); n != len(before)-len(after) {
					t.Fatalf("woke %d, want %d", n, len(before)-len(after))
				}
			},
			"wake all": func(t *rapid.T) {
				_, before := twin.list()
				clear(twin.parked)
				clear(twin.aside)
				if n := line.WakeAll(); n != len(before) {
					t.Fatalf("woke %d, want %d", n, len(before))
				}
			},
		})
	})
}

func keys(line []*workload.Workload) []string {
	out := make([]string, 0, len(line))
	for _, w := range line {
		out = append(out, w.Key)
	}
	return out
}

// TestStickySurvivesParking: whoever waits for victims is head again when woken.
func TestStickySurvivesParking(t *testing.T) {
	var line Pending
	first := &workload.Workload{UID: "1", Class: 1, Priority: 5}
	heir := &workload.Workload{UID: "2", Class: 2, Priority: 1}
	line.Add(first, false)
	line.Add(heir, false)
	line.Stick(heir)
	line.Park(heir, []resource.FR{7})
	if line.Head() != first {
		t.Fatal("a parked workload is head")
	}
	line.Wake([]resource.FR{7})
	if line.Head() != heir {
		t.Fatal("the sticky workload lost its place while it was parked")
	}
}
