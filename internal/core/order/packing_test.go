package order

import (
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// packAtOnce packs the inadmissible classes without a Packing.
func packAtOnce(line *Pending) (packed PackedClasses) {
	line.each(func(c *class) {
		if c.stage != awake {
			packed = append(packed, packedClass{c.head(), c.by, c.stage == tried, c.packedWants.clone()})
		}
	})
	return packed
}

// classTexts are the classes in words, in the order of Unpack.
func classTexts(classes []InadmissibleClass) []string {
	out := make([]string, 0, len(classes))
	for _, k := range classes {
		out = append(out, fmt.Sprint(k.Member.UID, " by ", k.By.UID, " for ", k.Wants, ", tried: ", k.Tried))
	}
	return out
}

// TestPacking: a packing has the classes as they were when it began, however far it is when they change; and another line that takes
// them over has the same ones.
func TestPacking(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		y := newYard()
		line, all, serial := &Pending{}, []*workload.Workload{}, 0
		add := func(t *rapid.T) {
			serial++
			class := rapid.Int32Range(0, 60).Draw(t, "class")
			w := &workload.Workload{UID: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "uid"), "-", serial), Class: class, Priority: int64(class / 30)}
			all = append(all, w)
			line.Add(w, rapid.IntRange(0, 9).Draw(t, "strict") == 9)
		}
		setInadmissible := func(t *rapid.T, w *workload.Workload) {
			var wants []workload.Want
			for i := range rapid.IntRange(0, testFRs-1).Draw(t, "wants") {
				least := resource.Amount(rapid.IntRange(0, 5).Draw(t, "least"))
				winnable := rapid.IntRange(0, 3).Draw(t, "winnable") == 3
				wants = append(wants, workload.Want{FR: resource.FR(i), Least: least, Offer: uint16(i / 2), Winnable: winnable})
			}
			line.SetInadmissible(w, wants)
		}
		for range rapid.IntRange(0, 80).Draw(rt, "workloads") {
			add(rt)
			if rapid.IntRange(0, 3).Draw(rt, "inadmissible") > 0 {
				setInadmissible(rt, pick(rt, all))
			}
		}
		packing, want := line.BeginPacking(), packAtOnce(line).Unpack()
		check := func(t *rapid.T) {
			if !packing.Done() {
				return
			}
			if diff := gocmp.Diff(classTexts(want), classTexts(packing.Classes().Unpack())); diff != "" {
				t.Fatalf("packed (-at once +in pieces):\n%s", diff)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":     check,
			"add":  add,
			"park": func(t *rapid.T) { setInadmissible(t, pick(t, all)) },
			"remove": func(t *rapid.T) {
				w := pick(t, all)
				all = slices.DeleteFunc(all, func(o *workload.Workload) bool { return o == w })
				line.Remove(w)
			},
			"alone": func(t *rapid.T) { line.SetInadmissibleAlone(pick(t, all)) },
			"release": func(t *rapid.T) {
				fr := resource.FR(rapid.IntRange(0, testFRs-1).Draw(t, "fr"))
				y.use(y.node, fr, resource.Amount(rapid.IntRange(0, 6).Draw(t, "amount")))
				line.Release(fr, y)
			},
			"wake next": func(*rapid.T) { line.WakeNext(y) },
			"wake all": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 9 {
					line.WakeAll()
				}
			},
			"continue": func(t *rapid.T) { packing.Continue(rapid.IntRange(1, 2*chunkLen).Draw(t, "classes")) },
			"begin": func(t *rapid.T) {
				before := packing
				packing, want = line.BeginPacking(), packAtOnce(line).Unpack()
				if !before.Done() {
					t.Fatal("the packing before is not complete")
				}
			},
		})
		packing.complete()
		check(rt)
	})
}

// TestPackingRestore: a line with equal workloads takes over the classes, without the representatives that have left.
func TestPackingRestore(t *testing.T) {
	var line, other Pending
	y, copies := newYard(), map[*workload.Workload]*workload.Workload{}
	add := func(uid string, class int32) *workload.Workload {
		w := &workload.Workload{UID: uid, Class: class}
		line.Add(w, false)
		clone := *w
		copies[w] = &clone
		other.Add(&clone, false)
		return w
	}
	wants := []workload.Want{{FR: 1, Least: 2}}
	first, second, third := add("1", 1), add("2", 1), add("3", 2)
	line.SetInadmissible(first, wants)
	line.Release(1, y)
	line.SetInadmissible(third, nil)
	line.Remove(first)
	other.Remove(copies[first])
	delete(copies, first)
	packing := line.BeginPacking()
	packing.complete()
	find := func(w *workload.Workload) *workload.Workload { return copies[w] }
	if !packing.Restore(&other, find, y) {
		t.Fatal("a member was not found")
	}
	if diff := gocmp.Diff(classTexts(packAtOnce(&line).Unpack()), classTexts(packAtOnce(&other).Unpack())); diff != "" {
		t.Errorf("restored (-line +other):\n%s", diff)
	}
	if other.Representative(copies[third]) != nil || other.Representative(copies[second]).UID != "1" {
		t.Error("the representatives are not the same")
	}
	delete(copies, third)
	if packing.Restore(&Pending{}, find, y) {
		t.Error("a member that is missing was found")
	}
}
