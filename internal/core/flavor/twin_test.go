package flavor

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// outcome is an assignment in words.
type outcome struct {
	OK     bool
	Given  []string
	Usage  string
	Tried  []string
	Reason trace.Reason
}

func (w *world) outcome(a *Assignment) outcome {
	out := outcome{OK: a.Mode != NoFit, Reason: a.Reason, Usage: a.Usage.Quota.Format(w.Table)}
	for _, ps := range a.PodSets {
		for _, r := range ps.Resources {
			out.Given = append(out.Given, given(ps.Name, w.Table.Pair(r.FR), r.Amount, grade{r.Mode, int(r.Level)}))
		}
	}
	slices.Sort(out.Given)
	for _, t := range a.Tried {
		out.Tried = append(out.Tried, fmt.Sprint(t))
	}
	return out
}

func given(podSet string, p resource.Pair, amount resource.Amount, g grade) string {
	return fmt.Sprintf("%s: %d %s from %s, %s %d", podSet, amount, p.Resource, p.Flavor, g.mode, g.level)
}

// TestAssignTwin: a workload of several pod sets gets, in a random tree, the flavors
// that trying everything gives; so it does once more in the same memory, where it goes
// on, or keeps its first flavor, and is pinned.
func TestAssignTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld()
		drawWorld(rt, w)
		podSets := drawPodSets(rt, w)
		drawPins(rt, w, podSets)
		var a Assignment
		w.Assign(podSets, &a)
		w.agree(rt, podSets, &a)
		first := a.Holding()
		if diff := cmp.Diff(Holding{PodSets: a.PodSets, Usage: a.Usage}, *first, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("a copy differs (-original +copy):\n%s", diff)
		}
		for range 2 {
			switch rapid.IntRange(0, 2).Draw(rt, "next") {
			case 0:
				w.Resume, w.Only = slices.Clone(a.Tried), nil
			case 1:
				w.Only = first
			case 2:
				w.Only, w.Resume = nil, nil
				for range rapid.IntRange(0, 4).Draw(rt, "resumed") {
					w.Resume = append(w.Resume, workload.Tried{
						PodSets: int16(rapid.IntRange(0, 2).Draw(rt, "number")), Group: int16(rapid.IntRange(0, 1).Draw(rt, "group")),
						Next: int32(rapid.IntRange(0, 4).Draw(rt, "index")),
					})
				}
			}
			var more resource.Vector
			for fr := range resource.FR(w.Table.Len()) {
				more = more.Plus(fr, resource.Amount(rapid.IntRange(0, 3).Draw(rt, "more")))
			}
			w.Ledger.Charge(w.Node, ledger.Usage{Quota: more})
			before := fmt.Sprint(*first)
			w.Assign(podSets, &a)
			w.agree(rt, podSets, &a)
			if diff := cmp.Diff(before, fmt.Sprint(*first)); diff != "" {
				rt.Fatalf("the copy changed:\n%s", diff)
			}
		}
	})
}

func (w *world) agree(t *rapid.T, podSets []workload.PodSet, a *Assignment) {
	want := w.bruteForce(podSets)
	if diff := cmp.Diff(want, w.outcome(a)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if !want.OK && len(a.Refusals) == 0 {
		if !slices.ContainsFunc(w.Groups, func(g Group) bool { return len(g.Offers) == 0 }) {
			t.Fatal("nothing fits, and nothing was refused")
		}
	}
	if !slices.IsSortedFunc(a.Usage.Quota, func(x, y resource.Entry) int { return int(x.FR) - int(y.FR) }) {
		t.Fatalf("usage is out of order: %v", a.Usage)
	}
	mode, level := Fit, 0
	for _, ps := range a.PodSets {
		for _, r := range ps.Resources {
			mode, level = min(mode, r.Mode), max(level, int(r.Level))
		}
	}
	if want.OK && a.Mode != mode || a.Level != level || (len(a.Tried) > 0) != (len(want.Tried) > 0) {
		t.Fatalf("mode %s and level %d of parts with %s and %d; untried: %v", a.Mode, a.Level, mode, level, a.Tried)
	}
}

func drawWorld(t *rapid.T, w *world) {
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	w.Policy = Fungibility{flag("try"), flag("stop"), flag("over"), rapid.IntRange(0, 7).Draw(t, "off") == 7}
	w.PreemptsWhileBorrowing = flag("while borrowing")
	w.IgnoreUndeclared = flag("ignore undeclared")
	if rapid.IntRange(0, 7).Draw(t, "no preemption") == 7 {
		w.NoPreemption = &trace.Reach{}
	}
	w.NoReclaim = flag("no reclaim")
	w.Oracle = w.guess
	kinds := rapid.SampledFrom([][][]string{
		{{"cpu", "gpu"}}, {{"cpu"}, {"gpu"}}, {{"gpu"}, {"cpu"}}, {{"cpu", "pods"}, {"gpu"}}, {{"gpu", "cpu"}, {"pods"}},
	}).Draw(t, "resource groups")
	for i, resources := range kinds {
		var g Group
		for _, name := range resources {
			g.Resources = append(g.Resources, w.Table.ID(name))
		}
		for j := range rapid.IntRange(0, 3).Draw(t, "flavors") {
			o := Offer{Flavor: &Flavor{
				Name: fmt.Sprintf("g%df%d", i, j), Missing: rapid.IntRange(0, 9).Draw(t, "missing") == 9, Labels: map[string]string{},
			}}
			for _, key := range []string{"zone", "disk"} {
				if v := rapid.IntRange(0, 3).Draw(t, key); v > 1 {
					o.Flavor.Labels[key] = fmt.Sprint(v)
				}
			}
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
	w.recompute()
}

// guess is an oracle of which nothing can be foreseen except the candidates that the
// policies spare, and that more than the queue owns is borrowed.
func (w *world) guess(q *Question) (Mode, trace.Reach) {
	h := 0
	stir := func(n int) { h = (h*31 + n) % 1_000_003 }
	for _, e := range q.Requests.Quota {
		stir(int(e.FR)*7 + int(e.Amount)*3)
	}
	for _, fr := range slices.Concat(q.Need, slices.Sorted(slices.Values(q.Short))) {
		stir(int(fr))
	}
	mode := []Mode{NoCandidates, Preempt, Reclaim, Preempt, Reclaim}[h%5]
	switch {
	case w.NoPreemption != nil:
		mode = NoCandidates
	case w.NoReclaim:
		mode = min(mode, Preempt)
	}
	for i, fr := range q.Short {
		q.Levels[i] = (h/5 + int(fr)) % 3
		if q.Requests.Quota.Of(fr) > w.Quota.Subtree(w.Node, fr) {
			q.Levels[i] = max(q.Levels[i], 1)
		}
	}
	return mode, trace.Reach{}
}

func drawPodSets(t *rapid.T, w *world) (podSets []workload.PodSet) {
	for i := range rapid.IntRange(1, 3).Draw(t, "pod sets") {
		ps := podSet(fmt.Sprint("p", i))
		ps.Count = int32(rapid.IntRange(0, 3).Draw(t, "pods"))
		ps.Group = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "group")
		for _, name := range []string{"cpu", "gpu"} {
			if rapid.IntRange(0, 3).Draw(t, "asks") > 0 {
				ps.Requests = append(ps.Requests, workload.Request{
					Resource: w.Table.ID(name), Amount: resource.Amount(rapid.IntRange(0, 6).Draw(t, name)),
				})
			}
		}
		if asks := rapid.IntRange(0, 19).Draw(t, "uncovered"); asks > 17 {
			ps.Requests = append(ps.Requests, workload.Request{Resource: w.Table.ID("lic"), Amount: resource.Amount(asks - 18)})
		}
		if zone := rapid.IntRange(0, 9).Draw(t, "selects"); zone > 6 {
			ps.Constraints = &workload.Constraints{Selector: map[string]string{"zone": fmt.Sprint(zone - 6)}}
		}
		podSets = append(podSets, ps)
	}
	return podSets
}

func drawPins(t *rapid.T, w *world, podSets []workload.PodSet) {
	if w.Table.Len() == 0 || rapid.IntRange(0, 2).Draw(t, "elastic") < 2 {
		return
	}
	for range rapid.IntRange(1, 3).Draw(t, "pins") {
		w.Pins = append(w.Pins, workload.Pin{
			PodSet: podSets[rapid.IntRange(0, len(podSets)-1).Draw(t, "pinned")].Name,
			FR:     resource.FR(rapid.IntRange(0, w.Table.Len()-1).Draw(t, "pin")),
		})
	}
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
	if f.Off {
		return []int{fits, int(g.mode)}
	}
	if f.PreemptionOverBorrowing {
		return []int{fits, -g.level, int(g.mode)}
	}
	return []int{fits, int(g.mode), -g.level}
}

// choose is the search of §4.6.4 over the ranks: the first flavor that is good enough,
// else the best, the earlier of equals; −1 for none. last is the last it looked at.
func choose(f Fungibility, grades [][]grade, from int) (best, last int) {
	best, bestRank := -1, []int{0}
	for i := from; i < len(grades); i++ {
		worst := slices.MinFunc(grades[i], func(a, b grade) int { return slices.Compare(rank(f, a), rank(f, b)) })
		tryOn := worst.mode == NoFit || worst.mode == NoCandidates ||
			(worst.mode != Fit && !f.StopWhenPreempting) || (worst.level > 0 && f.TryNextWhenBorrowing)
		if f.Off {
			tryOn = worst.mode != Fit
		}
		if !tryOn {
			return i, i
		}
		if slices.Compare(rank(f, worst), bestRank) > 0 {
			best, bestRank = i, rank(f, worst)
		}
	}
	return best, len(grades) - 1
}

// wish is the requests of one pod set, the implicit pods included.
func (w *world) wish(ps workload.PodSet) map[string]resource.Amount {
	wish := map[string]resource.Amount{}
	for _, r := range ps.Requests {
		wish[w.Table.Name(r.Resource)] = r.Amount
	}
	if w.cover("pods") >= 0 {
		wish["pods"] = resource.Amount(ps.Count)
	}
	return wish
}

func (w *world) cover(name string) int {
	return slices.IndexFunc(w.Groups, func(g Group) bool { return slices.Contains(g.Resources, w.Table.ID(name)) })
}

// soFar is what the pod sets looked at so far take, and what of it is short.
type soFar struct {
	taken map[resource.FR]resource.Amount
	short map[resource.FR]bool
}

func (so soFar) usage() (v resource.Vector) {
	for fr, amount := range so.taken {
		if amount > 0 {
			v = v.Plus(fr, amount)
		}
	}
	return v
}

// bruteForce assigns by §4.6.1 to §4.6.5, over the grades of everything.
func (w *world) bruteForce(podSets []workload.PodSet) outcome {
	out := outcome{OK: true}
	so := soFar{taken: map[resource.FR]resource.Amount{}, short: map[resource.FR]bool{}}
	var order []string
	groups := map[string][]workload.PodSet{}
	for _, ps := range podSets {
		name := "group " + ps.Group
		if ps.Group == "" {
			name = "single " + ps.Name
		}
		if groups[name] == nil {
			order = append(order, name)
		}
		groups[name] = append(groups[name], ps)
	}
	for number, name := range order {
		if out.Reason = w.bruteGroup(number, groups[name], so, &out); out.Reason != "" {
			out.OK = false
			break
		}
	}
	out.Usage = so.usage().Format(w.Table)
	slices.Sort(out.Given)
	return out
}

// bruteGroup assigns one group of pod sets, and says why when it cannot.
func (w *world) bruteGroup(number int, members []workload.PodSet, so soFar, out *outcome) trace.Reason {
	total := map[string]resource.Amount{}
	for _, ps := range members {
		for name, amount := range w.wish(ps) {
			total[name] += amount
		}
	}
	chosen := map[int]int{} // by resource group
	gradeOf := map[string]grade{}
	picked := soFar{taken: maps.Clone(so.taken), short: maps.Clone(so.short)}
	var tried []string
	for _, name := range slices.Sorted(maps.Keys(total)) {
		gi := w.cover(name)
		if _, done := chosen[gi]; done {
			continue
		}
		if gi < 0 {
			if total[name] == 0 || w.IgnoreUndeclared {
				continue
			}
			return trace.NoMatchingFlavor
		}
		g := w.Groups[gi]
		var grades [][]grade
		var severity []int
		clash := false
		from := w.bruteStart(number, gi)
		for i, o := range g.Offers {
			grades, severity = append(grades, nil), append(severity, 0)
			usable, clashes := w.usable(members, gi, o, chosen)
			if !usable || clashes {
				grades[i], severity[i] = []grade{{NoFit, 0}}, trace.NoMatchingFlavor.Severity()
				clash = clash || (usable && i >= from)
				continue
			}
			asks := resource.Vector{}
			for at, id := range g.Resources {
				if amount, asked := total[w.Table.Name(id)]; asked {
					asks = append(asks, resource.Entry{FR: o.FRs[at], Amount: amount})
				}
			}
			grades[i], severity[i] = w.grades(asks, picked)
		}
		best, last := choose(w.Policy, grades, from)
		if best < 0 {
			if clash {
				out.Tried = append(out.Tried, tried...)
			}
			least := trace.NoMatchingFlavor.Severity()
			for _, s := range severity[from:] {
				least = min(least, s)
			}
			return []trace.Reason{"", trace.TopologyPlacementFailed, trace.WaitingForQuota, trace.ExceedsMaxQuota, trace.NoMatchingFlavor}[least]
		}
		if last < len(grades)-1 && !w.Policy.Off {
			tried = append(tried, fmt.Sprint(workload.Tried{PodSets: int16(number), Group: int16(gi), Next: int32(last + 1)}))
		}
		chosen[gi] = best
		next := 0
		for at, id := range g.Resources {
			if amount, asked := total[w.Table.Name(id)]; asked {
				gradeOf[w.Table.Name(id)] = grades[best][next]
				fr := g.Offers[best].FRs[at]
				picked.taken[fr] += amount
				if grades[best][next].mode != Fit {
					picked.short[fr] = true
				}
				next++
			}
		}
	}
	out.Tried = append(out.Tried, tried...)
	for _, ps := range members {
		for name, amount := range w.wish(ps) {
			gi := w.cover(name)
			if gi < 0 {
				continue
			}
			fr := w.Groups[gi].Offers[chosen[gi]].FRs[slices.Index(w.Groups[gi].Resources, w.Table.ID(name))]
			so.taken[fr] += amount
			if gradeOf[name].mode != Fit {
				so.short[fr] = true
			}
			out.Given = append(out.Given, given(ps.Name, w.Table.Pair(fr), amount, gradeOf[name]))
		}
	}
	return ""
}

func (w *world) bruteStart(number, group int) int {
	if w.Only != nil || w.Policy.Off {
		return 0
	}
	for _, t := range w.Resume {
		if int(t.PodSets) == number && int(t.Group) == group && 0 < t.Next && int(t.Next) < len(w.Groups[group].Offers) {
			return int(t.Next)
		}
	}
	return 0
}

// usable is §4.6.2 for all pod sets of a group, as far as the worlds have it; clashes is
// about the labels of earlier picks.
func (w *world) usable(members []workload.PodSet, group int, o Offer, chosen map[int]int) (usable, clashes bool) {
	if o.Flavor.Missing {
		return false, false
	}
	for _, ps := range members {
		groups := map[int]bool{}
		for name := range w.wish(ps) {
			groups[w.cover(name)] = true
		}
		if ps.Constraints != nil {
			zone, labelled := o.Flavor.Labels["zone"]
			if labelled && zone != ps.Constraints.Selector["zone"] {
				return false, clashes
			}
		}
		for name := range w.wish(ps) {
			if w.cover(name) != group {
				continue
			}
			fr := w.Table.FR(o.Flavor.Name, name)
			for _, pin := range w.Pins {
				if pin.PodSet == ps.Name && w.Table.Pair(pin.FR).Resource == name && pin.FR != fr {
					return false, clashes
				}
			}
			if w.Only != nil && !slices.ContainsFunc(w.Only.PodSets, func(got trace.PodSet) bool {
				return got.Name == ps.Name && slices.ContainsFunc(got.Resources, func(r trace.Choice) bool { return r.FR == fr })
			}) {
				return false, clashes
			}
		}
		for other, at := range chosen {
			for key, value := range w.Groups[other].Offers[at].Flavor.Labels {
				if have, ok := o.Flavor.Labels[key]; ok && have != value && groups[other] && groups[group] {
					clashes = true
				}
			}
		}
	}
	return true, clashes
}

// grades is §4.6.3 for what is asked of a flavor, by one question for all of it that is
// short; severity is that of the most severe reason if it never fits.
func (w *world) grades(asks resource.Vector, picked soFar) (grades []grade, severity int) {
	all := soFar{taken: maps.Clone(picked.taken), short: maps.Clone(picked.short)}
	q := Question{}
	for _, e := range asks {
		all.taken[e.FR] += e.Amount
		val := all.taken[e.FR]
		level, reclaim := w.Quota.Level(w.Node, e.FR, val)
		g := grade{NoFit, level}
		switch {
		case val > w.Quota.Potential(w.Node, e.FR):
			severity = trace.ExceedsMaxQuota.Severity()
		case val <= w.Ledger.Available(w.Node, e.FR):
			g.mode = Fit
		case w.Quota.Nominal(w.Node, e.FR) >= val || reclaim || w.PreemptsWhileBorrowing:
			g.mode = NoCandidates
			q.Short, q.Levels, all.short[e.FR] = append(q.Short, e.FR), append(q.Levels, 0), true
		default:
			severity = max(severity, trace.WaitingForQuota.Severity())
		}
		grades = append(grades, g)
	}
	if severity > 0 || len(q.Short) == 0 {
		return grades, severity
	}
	q.Need, q.Requests.Quota = slices.Sorted(maps.Keys(all.short)), all.usage()
	mode, _ := w.Oracle(&q)
	for i := range grades {
		if mode != NoCandidates && grades[i].mode == NoCandidates {
			grades[i] = grade{mode, q.Levels[slices.Index(q.Short, asks[i].FR)]}
		}
	}
	return grades, 0
}
