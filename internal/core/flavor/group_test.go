package flavor

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// flavors makes flavors without labels.
func flavors(names ...string) (out []*Flavor) {
	for _, name := range names {
		out = append(out, &Flavor{Name: name})
	}
	return out
}

// zoned is a flavor of one zone.
func zoned(name, zone string) *Flavor {
	return &Flavor{Name: name, Labels: map[string]string{"zone": zone, "arch": zone}}
}

// texts are the refusals of an assignment, with who they are about.
func texts(a *Assignment) (out []string) {
	for i := range a.Refusals {
		out = append(out, a.Refusals[i].PodSet+": "+a.Refusals[i].String())
	}
	return out
}

func (w *world) flavorsOf(a *Assignment) (out []string) {
	for _, ps := range a.PodSets {
		for _, r := range ps.Resources {
			out = append(out, fmt.Sprintf("%s %d %s", ps.Name, r.Amount, w.Table.Pair(r.FR).Flavor))
		}
	}
	return out
}

// TestPodSetGroups is spec 10 §4.6.1: pod sets of a group get the same flavors, and all
// of them have to match.
func TestPodSetGroups(t *testing.T) {
	zone := func(z string) *workload.Constraints {
		return &workload.Constraints{Selector: map[string]string{"zone": z}}
	}
	type set struct {
		name, group string
		amount      resource.Amount
		constraints *workload.Constraints
	}
	tests := map[string]struct {
		sets []set
		want []string
		gone []string
	}{
		"alone, each its own": {
			sets: []set{{name: "a", amount: 4}, {name: "b", amount: 8}},
			want: []string{"a 4 east", "b 8 west"},
			gone: []string{"b: gpu in flavor east: 12 requested, at most 10 can ever be had here"},
		},
		"together, where both fit": {
			sets: []set{{name: "a", group: "g", amount: 4}, {name: "b", group: "g", amount: 8}},
			want: []string{"a 4 west", "b 8 west"},
			gone: []string{"a: gpu in flavor east: 12 requested, at most 10 can ever be had here"},
		},
		"with one in between": {
			sets: []set{{name: "a", group: "g", amount: 4}, {name: "x", amount: 2}, {name: "b", group: "g", amount: 5}},
			want: []string{"a 4 east", "x 2 west", "b 5 east"},
			gone: []string{"x: gpu in flavor east: 11 requested, at most 10 can ever be had here"},
		},
		"the second does not match": {
			sets: []set{{name: "a", group: "g", amount: 1}, {name: "b", group: "g", amount: 1, constraints: zone("west")}},
			want: []string{"a 1 west", "b 1 west"},
			gone: []string{"b: flavor east does not match the node selector"},
		},
		"one without requests does not match": {
			sets: []set{{name: "a", group: "g", amount: 1}, {name: "b", group: "g", amount: -1, constraints: zone("west")}},
			want: []string{"a 1 west"},
			gone: []string{"b: flavor east does not match the node selector"},
		},
		"no flavor for both": {
			sets: []set{{name: "x", amount: 1}, {name: "a", group: "g", amount: 1, constraints: zone("east")}, {name: "b", group: "g", amount: 1, constraints: zone("west")}},
			want: []string{"x 1 east"},
			gone: []string{"b: flavor east does not match the node selector", "a: flavor west does not match the node selector"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.add("gpu", []*Flavor{zoned("east", "east"), zoned("west", "west")}, grade{Fit, 0}, grade{Fit, 1})
			w.cells[w.mid][0].Nominal = 20
			w.recompute()
			var podSets []workload.PodSet
			for _, s := range tc.sets {
				ps := workload.PodSet{Name: s.name, Group: s.group, Count: 1, Constraints: s.constraints}
				if s.amount >= 0 {
					ps.Requests = []workload.Request{{Resource: w.Table.ID("gpu"), Amount: s.amount}}
				}
				podSets = append(podSets, ps)
			}
			a := w.assign(podSets...)
			if diff := cmp.Diff(tc.want, w.flavorsOf(a)); diff != "" {
				t.Errorf("flavors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.gone, texts(a)); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
		})
	}
}

// TestResume is spec 10 §4.6.5.
func TestResume(t *testing.T) {
	fits, full, never := grade{Fit, 0}, grade{NoCandidates, 0}, grade{NoFit, 0}
	at := func(next int32) []workload.Tried { return []workload.Tried{{Next: next}} }
	tests := map[string]struct {
		grades  []grade
		resume  []workload.Tried
		policy  Fungibility
		want    string
		tried   []workload.Tried
		resumed bool
	}{
		"the first of three":       {grades: []grade{fits, fits, fits}, want: "a", tried: at(1)},
		"the second":               {grades: []grade{fits, fits, fits}, resume: at(1), want: "b", tried: at(2), resumed: true},
		"the last: none are left":  {grades: []grade{fits, fits, fits}, resume: at(2), want: "c", resumed: true},
		"past the end":             {grades: []grade{fits, fits, fits}, resume: at(3), want: "a", tried: at(1)},
		"of others":                {grades: []grade{fits, fits}, resume: []workload.Tried{{PodSets: 1, Next: 1}, {Group: 1, Next: 1}}, want: "a", tried: at(1)},
		"the best of all":          {grades: []grade{full, full, never}, want: "a"},
		"nothing from there on":    {grades: []grade{fits, never, never}, resume: at(1), want: "", resumed: true},
		"fungibility is off":       {grades: []grade{fits, fits, fits}, resume: at(1), policy: Fungibility{Off: true}, want: "a"},
		"one that came on the way": {grades: []grade{never, fits, fits}, want: "b", tried: at(2)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Policy, w.Resume = tc.policy, tc.resume
			w.add("gpu", flavors("a", "b", "c")[:len(tc.grades)], tc.grades...)
			w.recompute()
			a := w.assign(podSet("main", w.ask("gpu")))
			got := ""
			if len(a.PodSets) == 1 {
				got = w.Table.Pair(a.PodSets[0].Resources[0].FR).Flavor
			}
			if got != tc.want || a.Resumed != tc.resumed || (len(a.Tried) > 0) != (tc.tried != nil) {
				t.Errorf("got %q, want %q; resumed: %v; untried: %v", got, tc.want, a.Resumed, a.Tried)
			}
			if diff := cmp.Diff(tc.tried, a.Tried); diff != "" {
				t.Errorf("tried (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTriedOfSome: a failed group of pod sets leaves no trace of how far it got, those
// before it do.
func TestTriedOfSome(t *testing.T) {
	w := newWorld()
	w.add("cpu", flavors("a", "b"), grade{Fit, 0}, grade{Fit, 0})
	w.add("gpu", flavors("c"), grade{NoFit, 0})
	w.recompute()
	a := w.assign(podSet("one", w.ask("cpu")), podSet("two", workload.Request{Resource: w.Table.ID("cpu")}, w.ask("gpu")))
	if diff := cmp.Diff([]workload.Tried{{Next: 1}}, a.Tried); diff != "" || a.Mode != NoFit || len(a.PodSets) != 1 {
		t.Errorf("mode %s, %d pod sets, tried (-want +got):\n%s", a.Mode, len(a.PodSets), diff)
	}
}

// TestContradiction is spec 10 §6 #10: no node has two values for a label.
func TestContradiction(t *testing.T) {
	tests := map[string]struct {
		cpu, gpu []*Flavor
		group    bool // cpu and gpu are asked for by two pod sets of a group
		want     []string
		gone     []string
		tried    []workload.Tried
	}{
		"the next flavor agrees": {
			cpu: []*Flavor{zoned("x", "1")}, gpu: []*Flavor{zoned("y", "2"), zoned("z", "1")},
			want: []string{"main 10 x", "main 10 z"},
			gone: []string{"main: flavor y contradicts flavor x, which the pods also get: label arch"},
		},
		"none agrees, another pick may": {
			cpu: []*Flavor{zoned("x", "1"), zoned("x2", "2")}, gpu: []*Flavor{zoned("y", "2")},
			gone:  []string{"main: flavor y contradicts flavor x, which the pods also get: label arch"},
			tried: []workload.Tried{{Next: 1}},
		},
		"no key in common": {
			cpu: []*Flavor{zoned("x", "1")}, gpu: []*Flavor{{Name: "y", Labels: map[string]string{"disk": "2"}}},
			want: []string{"main 10 x", "main 10 y"},
		},
		"of different pods": {
			cpu: []*Flavor{zoned("x", "1")}, gpu: []*Flavor{zoned("y", "2")}, group: true,
			want: []string{"main 10 x", "second 10 y"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			fits := []grade{{Fit, 0}, {Fit, 0}}
			w.add("cpu", tc.cpu, fits...)
			w.add("gpu", tc.gpu, fits...)
			w.recompute()
			podSets := []workload.PodSet{podSet("main", w.ask("cpu"), w.ask("gpu"))}
			if tc.group {
				podSets = []workload.PodSet{podSet("main", w.ask("cpu")), podSet("second", w.ask("gpu"))}
				podSets[0].Group, podSets[1].Group = "g", "g"
			}
			a := w.assign(podSets...)
			if diff := cmp.Diff(tc.want, w.flavorsOf(a)); diff != "" {
				t.Errorf("flavors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.gone, texts(a)); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.tried, a.Tried); diff != "" {
				t.Errorf("tried (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRestrictions: pins of a running slice, and what an earlier assignment gave.
func TestRestrictions(t *testing.T) {
	w := newWorld()
	w.add("gpu", flavors("a", "b"), grade{Fit, 0}, grade{Fit, 0})
	w.recompute()
	ask := podSet("main", w.ask("gpu"))
	w.Resume = []workload.Tried{{Next: 1}}
	b := w.assign(ask)
	w.Resume = []workload.Tried{{Next: 2}}

	w.Only = b.Holding()
	a := w.assign(ask)
	if diff := cmp.Diff([]string{"main 10 b"}, w.flavorsOf(a)); diff != "" {
		t.Errorf("nominated (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"main: flavor a is not the one that the workload was nominated for"}, texts(a)); diff != "" {
		t.Errorf("nominated (-want +got):\n%s", diff)
	}

	w.Only, w.Resume = nil, nil
	w.Pins = []workload.Pin{{PodSet: "main", FR: w.Table.FR("b", "cpu")}, {PodSet: "main", FR: w.Table.FR("b", "gpu")}, {PodSet: "other", FR: w.Table.FR("a", "gpu")}}
	a = w.assign(ask)
	if diff := cmp.Diff([]string{"main 10 b"}, w.flavorsOf(a)); diff != "" {
		t.Errorf("pinned (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"main: flavor a is not the one that the running slice has"}, texts(a)); diff != "" {
		t.Errorf("pinned (-want +got):\n%s", diff)
	}

	w.Pins[1].FR = w.Table.FR("gone", "gpu")
	if a = w.assign(ask); a.Mode != NoFit || a.Reason != trace.NoMatchingFlavor {
		t.Errorf("pinned to a flavor that is gone: %s, %s", a.Mode, a.Reason)
	}
}

// TestShort: a refusal for want of quota says by how much, where, and which workloads preemption
// could have asked.
func TestShort(t *testing.T) {
	w := newWorld()
	w.add("gpu", flavors("own", "borrowed", "small"), grade{NoCandidates, 0}, grade{Fit, 1}, grade{NoFit, 0})
	w.used = w.used.Plus(w.Table.FR("borrowed", "gpu"), 4)
	w.cells[w.Node] = append(w.cells[w.Node], w.cells[w.mid][0])
	w.cells[w.Node][1].Nominal, w.cells[w.Node][1].Borrow = 2, 8
	w.recompute()
	want := []trace.Refusal{
		{
			PodSet: "main", Pair: &resource.Pair{Flavor: "own", Resource: "gpu"},
			Asked: 10, Available: 0, Potential: 10, Node: "cohort root", Reach: &trace.Reach{Within: "asked"},
		},
		{
			PodSet: "main", Pair: &resource.Pair{Flavor: "borrowed", Resource: "gpu"},
			Asked: 10, Available: 6, Potential: 10, Node: "ClusterQueue q", Limited: true,
		},
		{PodSet: "main", Pair: &resource.Pair{Flavor: "small", Resource: "gpu"}, Asked: 10},
	}
	a := w.assign(podSet("main", w.ask("gpu")))
	if diff := cmp.Diff(want, a.Refusals); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, before := range []nodeText{{"gone", true, "cohort gone"}, {"root", false, "ClusterQueue root"}} {
		w.nodes[w.root] = before // the node that had the number of root
		if got := w.assign(podSet("main", w.ask("gpu"))).Refusals[0].Node; got != "cohort root" {
			t.Errorf("short of quota is %s, once %s", got, before.text)
		}
	}
	if a.Mode != NoCandidates || a.Reason != "" {
		t.Errorf("mode %s, reason %q", a.Mode, a.Reason)
	}
	if diff := cmp.Diff([]resource.FR{w.Table.FR("own", "gpu")}, a.Needs(nil)); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
}
