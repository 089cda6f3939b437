package flavor

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestMain runs ten times as many checks as rapid does by itself.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// rank turns a grade into a list of numbers, the larger the better, by the words of
// spec 10 §4.6.4.
func rank(f Fungibility, g grade) []int {
	fits := 2
	if g.mode == NoFit {
		return []int{0}
	}
	if g.mode == NoCandidates {
		fits = 1
	}
	if f.PreemptionOverBorrowing {
		return []int{fits, -g.level, int(g.mode)}
	}
	return []int{fits, int(g.mode), -g.level}
}

// choose is the search of §4.6.4 over the ranks: the first flavor that is good enough,
// else the best, the earlier of equals; −1 for none.
func choose(f Fungibility, grades [][]grade) int {
	best, bestRank := -1, []int{0}
	for i, ofFlavor := range grades {
		worst := slices.MinFunc(ofFlavor, func(a, b grade) int { return slices.Compare(rank(f, a), rank(f, b)) })
		tryOn := worst.mode == NoFit || worst.mode == NoCandidates ||
			(worst.mode != Fit && !f.StopWhenPreempting) || (worst.level > 0 && f.TryNextWhenBorrowing)
		if !tryOn {
			return i
		}
		if slices.Compare(rank(f, worst), bestRank) > 0 {
			best, bestRank = i, rank(f, worst)
		}
	}
	return best
}

// TestAssignTwin: a workload of several pod sets gets, in a random tree, the flavors
// that trying everything gives.
func TestAssignTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld()
		w.Policy = Fungibility{
			rapid.Bool().Draw(rt, "try"), rapid.Bool().Draw(rt, "stop"), rapid.Bool().Draw(rt, "over"),
		}
		w.PreemptsWhileBorrowing = rapid.Bool().Draw(rt, "while borrowing")
		w.Oracle = func(fr resource.FR, amount resource.Amount) (Mode, int) {
			h := (int(fr)*7 + int(amount)*3) % 5
			return []Mode{NoCandidates, Preempt, Reclaim, Preempt, Reclaim}[h], h % 3
		}
		split := rapid.Bool().Draw(rt, "two groups")
		drawGroups(rt, w, split)
		w.settle()
		var podSets []workload.PodSet
		for i := range rapid.IntRange(1, 3).Draw(rt, "pod sets") {
			ps := podSet(fmt.Sprint("p", i))
			for _, name := range []string{"cpu", "gpu"} {
				if rapid.IntRange(0, 3).Draw(rt, "asks") > 0 {
					ps.Requests = append(ps.Requests, workload.Request{
						Resource: w.Table.ID(name), Amount: resource.Amount(rapid.IntRange(0, 6).Draw(rt, name)),
					})
				}
			}
			podSets = append(podSets, ps)
		}
		a := w.Assign(podSets)
		want, ok := w.bruteForce(podSets)
		if (a.Mode != NoFit) != ok {
			rt.Fatalf("mode is %s, and a way was found: %v", a.Mode, ok)
		}
		if !ok {
			if a.Reason == "" || len(a.Refusals) == 0 {
				rt.Fatal("a refusal without a reason")
			}
			return
		}
		var got []string
		usage := resource.Vector(nil)
		for _, ps := range a.PodSets {
			for _, r := range ps.Resources {
				got = append(got, fmt.Sprintf("%s %s %s %d", ps.Name, w.Table.Pair(r.FR), r.Mode, r.Level))
				usage = usage.Plus(r.FR, r.Amount)
			}
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("got %q\nwant %q", got, want)
		}
		for _, e := range usage {
			if a.Usage.Of(e.FR) != e.Amount {
				rt.Fatalf("usage is %v, its parts are %v", a.Usage, usage)
			}
		}
	})
}

func drawGroups(t *rapid.T, w *world, split bool) {
	kinds := [][]string{{"cpu", "gpu"}}
	if split {
		kinds = [][]string{{"cpu"}, {"gpu"}}
	}
	for i, resources := range kinds {
		var g Group
		for _, name := range resources {
			g.Resources = append(g.Resources, w.Table.ID(name))
		}
		for j := range rapid.IntRange(1, 3).Draw(t, "flavors") {
			o := Offer{Flavor: &Flavor{Name: fmt.Sprintf("g%df%d", i, j), Missing: rapid.IntRange(0, 5).Draw(t, "missing") == 5}}
			for _, name := range resources {
				fr := w.Table.FR(o.Flavor.Name, name)
				for _, n := range []quota.Node{w.Node, w.mid, w.root} {
					w.cells[n] = append(w.cells[n], quota.Cell{
						FR: fr, Nominal: resource.Amount(rapid.IntRange(0, 6).Draw(t, "nominal")), Borrow: quota.NoLimit, Lend: quota.NoLimit,
					})
				}
				w.used = w.used.Plus(fr, resource.Amount(rapid.IntRange(0, 8).Draw(t, "used")))
				o.FRs = append(o.FRs, fr)
			}
			g.Offers = append(g.Offers, o)
		}
		w.Groups = append(w.Groups, g)
	}
}

// bruteForce assigns by §4.6.1 and §4.6.3, over the grades of everything.
func (w *world) bruteForce(podSets []workload.PodSet) (out []string, ok bool) {
	taken := map[resource.FR]resource.Amount{}
	for _, ps := range podSets {
		mine := map[resource.FR]resource.Amount{}
		for _, g := range w.Groups {
			asked := map[resource.ID]resource.Amount{}
			for _, r := range ps.Requests {
				if slices.Contains(g.Resources, r.Resource) {
					asked[r.Resource] = r.Amount
				}
			}
			if len(asked) == 0 {
				continue
			}
			var grades [][]grade
			for _, o := range g.Offers {
				if o.Flavor.Missing {
					grades = append(grades, []grade{{NoFit, 0}})
					continue
				}
				var ofFlavor []grade
				for i, id := range g.Resources {
					if amount, ok := asked[id]; ok {
						ofFlavor = append(ofFlavor, w.grade(o.FRs[i], amount+taken[o.FRs[i]]))
					}
				}
				grades = append(grades, ofFlavor)
			}
			chosen := choose(w.Policy, grades)
			if chosen < 0 {
				return nil, false
			}
			next := 0
			for i, id := range g.Resources {
				if amount, ok := asked[id]; ok {
					fr, grd := g.Offers[chosen].FRs[i], grades[chosen][next]
					next++
					mine[fr] += amount
					out = append(out, fmt.Sprintf("%s %s %s %d", ps.Name, w.Table.Pair(fr), grd.mode, grd.level))
				}
			}
		}
		for fr, amount := range mine {
			taken[fr] += amount
		}
	}
	return out, true
}

func (w *world) grade(fr resource.FR, amount resource.Amount) grade {
	if amount > w.Quota.Potential(w.Node, fr) {
		return grade{NoFit, 0}
	}
	level, reclaim := w.Quota.Level(w.Node, fr, amount)
	switch {
	case amount <= w.Quota.Available(w.Node, fr):
		return grade{Fit, level}
	case w.Quota.Nominal(w.Node, fr) >= amount || reclaim || w.PreemptsWhileBorrowing:
		mode, after := w.Oracle(fr, amount)
		if mode == NoCandidates {
			return grade{mode, level}
		}
		return grade{mode, after}
	}
	return grade{NoFit, level}
}
