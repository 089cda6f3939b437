package topology

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestRanking compares what a ranking gives with the one of a list that is sorted as a whole.
func TestRanking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := chooser{
			leader: rapid.Bool().Draw(t, "leader"), least: rapid.Bool().Draw(t, "least"), tiers: rapid.Bool().Draw(t, "tiers"),
		}
		var list []candidate
		total := int64(0)
		for i := range rapid.IntRange(0, 150).Draw(t, "candidates") {
			c := count{pods: int64(rapid.IntRange(0, 9).Draw(t, "pods")), score: int32(rapid.IntRange(0, 1).Draw(t, "score"))}
			c.leader = rapid.IntRange(0, 3).Draw(t, "able") > 0
			c.podsWL = max(0, c.pods-int64(rapid.IntRange(0, 2).Draw(t, "penalty")))
			c.slices, c.slicesWL = c.pods, c.podsWL
			total += c.pods
			list = append(list, candidate{&c, int32(i), int32(i * 7919 % 151)})
		}
		n := int64(rapid.IntRange(0, int(total)+1).Draw(t, "n"))
		sorted := slices.SortedFunc(slices.Values(list), h.withoutLeader)
		want, fits := h.distribute(&ranking{list: slices.Clone(sorted), fixed: true}, n, 0, h.leader, nil)
		got, ok := h.distribute(&ranking{list: slices.Clone(list), order: h.withoutLeader}, n, 0, h.leader, nil)
		if ok != fits || !slices.Equal(got, want) {
			t.Fatalf("%v %v, want %v %v", got, ok, want, fits)
		}
		r := ranking{list: list, order: h.withoutLeader}
		for i := range sorted {
			if r.at(i).id != sorted[i].id {
				t.Fatalf("candidate %d is %d, want %d", i, r.at(i).id, sorted[i].id)
			}
		}
	})
}

// TestPart checks the arithmetic of parts.
func TestPart(t *testing.T) {
	s := world(DefaultGates(), host{"h1", "r1", 4}, host{"h2", "r1", 4})
	pod := requests(gpu, 1, pods, 1)
	part := func(domains ...any) ledger.Part { return s.Part([]Charge{{earlierOf(earlier(domains...)), pod}}) }
	if s.Part([]Charge{{nil, pod}}) != nil || part() != nil {
		t.Error("nothing is a part")
	}
	four, two := part("h1", 3, "h2", 1), part("h1", 1, "h2", 1)
	if !four.Beyond(two).Equal(part("h1", 2)) || four.Beyond(four) != nil || !four.Beyond(part("h3", 9)).Equal(four) {
		t.Errorf("4 beyond 2: %+v", four.Beyond(two))
	}
	if four.Equal(two) || !four.Equal(s.Part([]Charge{{earlierOf(earlier("h2", 1, "h1", 1)), pod}, {earlierOf(earlier("h1", 2)), pod}})) {
		t.Error("parts of the same amounts are not equal, or others are")
	}
	d := s.Dimension()
	for name, tc := range map[string]struct {
		part ledger.Part
		want bool
	}{
		"all of it":         {part("h1", 4, "h2", 4), true},
		"one too many":      {part("h1", 5), false},
		"added up":          {s.Part([]Charge{{earlierOf(earlier("h1", 3)), pod}, {earlierOf(earlier("h1", 2)), pod}}), false},
		"an unknown domain": {part("h3", 1), false},
		"another flavor":    {s.Part([]Charge{{&Placement{Flavor: "g", Levels: []string{Hostname}, Domains: []Domain{{[]string{"h1"}, 1}}}, pod}}), false},
	} {
		if d.Fits(0, tc.part) != tc.want {
			t.Errorf("%s: fits is %v", name, !tc.want)
		}
	}
	if slices.ContainsFunc(s.assumed, func(a resource.Amount) bool { return a != 0 }) {
		t.Errorf("asking left an assumption: %v", s.assumed)
	}
}

// TestUnknownResources: a request makes no column for a resource that no node reports, and fits once a node does.
func TestUnknownResources(t *testing.T) {
	s := world(DefaultGates(), host{"h1", "r1", 2})
	id := func(i int) resource.ID { return s.table.ID(fmt.Sprint("example.com/made-up-", i)) }
	pod := gang(1)
	for i := range 100 {
		pod.Requests = append(pod.Requests, workload.Request{Resource: id(i), Amount: 1})
	}
	_, f := s.Place([]PodSet{pod}, Options{})
	if f == nil {
		t.Fatal("placed without its resources")
	}
	s.SetForeign("h1", pod.Requests[2:])
	held := s.Part([]Charge{{earlierOf(earlier("h1", 1)), pod.Requests}})
	if s.Dimension().Fits(0, held) {
		t.Error("a part of unknown resources fits")
	}
	leader := gang(1, func(p *PodSet) { p.Group, p.Requests = "g", pod.Requests })
	workers := gang(2, func(p *PodSet) { p.Name, p.Group = "workers", "g" })
	if _, f := s.Place([]PodSet{leader, workers}, Options{}); f == nil {
		t.Error("placed a leader without its resources")
	}
	if len(s.columns) != 2 || s.stride != 4 {
		t.Errorf("%d columns in rows of %d", len(s.columns), s.stride)
	}
	if slices.ContainsFunc(s.assumed, func(a resource.Amount) bool { return a != 0 }) {
		t.Errorf("asking left an assumption: %v", s.assumed)
	}
	s.SetForeign("h1", nil)
	n := host{"h1", "r1", 2}.node()
	for i := range 100 {
		n.Allocatable = append(n.Allocatable, workload.Request{Resource: id(i), Amount: 1})
	}
	s.SetNode(n)
	if placed, f := s.Place([]PodSet{pod}, Options{}); text(placed) != "h1:1" || f != nil {
		t.Errorf("placed on %s, %v", text(placed), f)
	}
	if !s.Dimension().Fits(0, held) {
		t.Error("a part of reported resources does not fit")
	}
}

// TestOverlap places over nodes that two flavors share.
func TestOverlap(t *testing.T) {
	for shared, want := range map[bool]string{true: "h1:2 | h2:2", false: "h1:2 | h1:2"} {
		gates := DefaultGates()
		gates.Overlapping = shared
		s := world(gates, host{"h1", "r1", 2}, host{"h2", "r1", 4})
		s.SetTree("g", Tree{Topology: "other", Levels: []string{Hostname}})
		a, b := gang(2), gang(2)
		b.Flavor = "g"
		placed, f := s.Place([]PodSet{a, b}, Options{})
		if f != nil || text(placed) != want {
			t.Errorf("shared usage is %v: placed on %s, %v", shared, text(placed), f)
		}
		if empty, _ := s.Place([]PodSet{a, b}, Options{Empty: true}); text(empty) != want {
			t.Errorf("shared usage is %v: without usage placed on %s", shared, text(empty))
		}
	}
}

// TestUnknownUsage keeps the usage of a host that is deleted, and counts it when the host or the tree is back.
func TestUnknownUsage(t *testing.T) {
	s := world(DefaultGates(), host{"h1", "r1", 2})
	held := s.Part([]Charge{{earlierOf(earlier("h1", 2)), requests(gpu, 1, pods, 1)}}).(*part)
	s.apply(held, 1, nil)
	full := func(when string) {
		t.Helper()
		if placed, f := s.Place([]PodSet{gang(1)}, Options{}); f == nil {
			t.Errorf("%s: placed on %s", when, text(placed))
		}
	}
	full("charged")
	s.RemoveNode("h1")
	s.SetNode(host{"h1", "r2", 2}.node())
	full("the node is back, in another rack")
	s.RemoveTree("f")
	s.SetTree("f", Tree{Topology: "default", Levels: []string{"rack", Hostname}})
	full("the tree is back, with other levels")
	s.RemoveNode("h1")
	s.apply(held, -1, nil)
	s.RemoveTree("f")
	if len(s.accountOf) != 0 {
		t.Errorf("accounts are left: %v", s.accountOf)
	}
}

// TestHostOf finds hosts by the names of their nodes, also of removed ones.
func TestHostOf(t *testing.T) {
	s := world(DefaultGates())
	n := host{"h1", "r1", 2}.node()
	n.Name = "node-1"
	s.SetNode(n)
	held := s.Part([]Charge{{earlierOf(earlier("h1", 1)), requests(pods, 1)}}).(*part)
	s.apply(held, 1, nil)
	if s.HostOf("node-1") != "h1" || s.HostOf("other") != "other" {
		t.Error("the hostname is not the label's")
	}
	s.RemoveNode("node-1")
	if s.HostOf("node-1") != "h1" {
		t.Error("the hostname of a removed node is forgotten while pods are on it")
	}
	s.apply(held, -1, nil)
	s.SetNode(host{"h2", "r1", 2}.node())
	if s.HostOf("node-1") != "node-1" {
		t.Error("the hostname of a removed node is never forgotten")
	}
}

// TestMoreResources widens the rows of the arrays while there is usage.
func TestMoreResources(t *testing.T) {
	table := newTable()
	s := New(table, DefaultGates())
	s.SetTree("f", Tree{Topology: "t", Levels: []string{Hostname}})
	var all []workload.Request
	for i := range 11 {
		all = append(all, workload.Request{Resource: table.ID(fmt.Sprint("r", i)), Amount: resource.Amount(10 + i)})
		n := host{"h", "r", 1}.node()
		n.Allocatable = append(slices.Clone(all), requests(pods, 9)...)
		s.SetNode(n)
		p := PodSet{Name: "p", Flavor: "f", Count: 1, Requests: append(slices.Clone(all[i:]), requests(pods, 1)...)}
		for range 2 {
			placed, f := s.Place([]PodSet{p}, Options{})
			if i == 9 {
				if f == nil {
					t.Fatal("a tenth pod is placed where nine are allowed")
				}
				return
			}
			if f != nil {
				t.Fatal(f)
			}
			if held := s.Part([]Charge{{placed[0], p.Requests}}); s.Dimension().Fits(0, held) {
				s.apply(held.(*part), 1, nil)
				break
			}
		}
	}
	t.Fatal("not reached")
}

// TestViews reads leaves, and the largest domains.
func TestViews(t *testing.T) {
	s := world(DefaultGates(), host{"h1", "r2", 4}, host{"h2", "r1", 3}, host{"h3", "r1", 2})
	s.apply(s.Part([]Charge{{earlierOf(earlier("h2", 1)), requests(gpu, 2, pods, 1)}}).(*part), 1, nil)
	amounts := func(pods, gpus resource.Amount) []resource.Amount { return []resource.Amount{pods, gpus} }
	want := []Leaf{
		{Path: []string{"b1", "r1", "h2"}, Nodes: 1, Capacity: amounts(100, 3), Used: amounts(1, 2)},
		{Path: []string{"b1", "r1", "h3"}, Nodes: 1, Capacity: amounts(100, 2), Used: amounts(0, 0)},
		{Path: []string{"b1", "r2", "h1"}, Nodes: 1, Capacity: amounts(100, 4), Used: amounts(0, 0)},
	}
	var got []Leaf
	s.Leaves("f", []resource.ID{pods, gpu}, func(l *Leaf) {
		leaf := *l
		leaf.Capacity, leaf.Used = slices.Clone(l.Capacity), slices.Clone(l.Used)
		got = append(got, leaf)
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	largest, f := s.Largest(gang(1), Options{})
	if f != nil || largest[1].First[0].Pods != 4 || largest[1].Total != 2 || largest[2].First[0].Values[2] != "h1" {
		t.Errorf("largest: %+v %v", largest, f)
	}
	s.Leaves("g", nil, func(*Leaf) { t.Error("there is a leaf of an unknown tree") })
	if !slices.Equal(s.Flavors(), []string{"f"}) {
		t.Errorf("trees of %v", s.Flavors())
	}
	before := s.trees["f"].revision
	s.SetForeign("h1", requests(gpu, 1))
	if def, ok := s.Tree("f"); !ok || def.Topology != "default" || s.trees["f"].revision == before {
		t.Error("a change of foreign usage is no edit")
	}
}

// TestUntolerated excludes nodes of a domain that has no hostname. spec: 20 §6 #11.
func TestUntolerated(t *testing.T) {
	for exclude, want := range map[bool]int64{true: 3, false: 5} {
		gates := DefaultGates()
		gates.ExcludeUntolerated = exclude
		s := world(gates, host{"h1", "r1", 3})
		s.SetTree("f", Tree{Topology: "t", Levels: []string{"rack"}})
		n := host{"h2", "r1", 2}.node()
		n.Taints = []workload.Taint{{Key: "k", Effect: "NoExecute"}}
		s.SetNode(n)
		if _, f := s.Place([]PodSet{gang(6, required("rack"))}, Options{Explain: true}); f == nil || f.Fit != want {
			t.Errorf("%v, want %d to fit", f, want)
		}
	}
}

// TestImpossible asks for what no topology offers.
func TestImpossible(t *testing.T) {
	group := func(n int, count int32) (out []PodSet) {
		for range n {
			p := gang(count, required("rack"))
			p.Group = "g"
			out = append(out, p)
		}
		return out
	}
	elsewhere := gang(1)
	elsewhere.Flavor = "g"
	tests := map[string]struct {
		ask  []PodSet
		want Cause
	}{
		"no tree":           {[]PodSet{elsewhere}, NoTree},
		"three pod sets":    {group(3, 1), BadGroup},
		"two sets of many":  {group(2, 2), BadGroup},
		"no level":          {[]PodSet{gang(1, required("row"))}, UnknownLevel},
		"no slice level":    {[]PodSet{gang(1, sliced(Layer{"row", 1}))}, UnknownLevel},
		"slices above":      {[]PodSet{gang(1, required("rack"), sliced(Layer{"block", 1}))}, SliceAboveLevel},
		"layers upside":     {[]PodSet{gang(8, sliced(Layer{"rack", 4}, Layer{"block", 2}))}, LayerOrder},
		"layers do not fit": {[]PodSet{gang(8, sliced(Layer{"rack", 4}, Layer{Hostname, 3}))}, LayerSize},
	}
	s := world(DefaultGates(), host{"h1", "r1", 9})
	texts := map[string]Cause{}
	for name, tc := range tests {
		_, f := s.Place(tc.ask, Options{})
		if f == nil || f.Cause != tc.want {
			t.Errorf("%s: %v, want the cause %d", name, f, tc.want)
			continue
		}
		if c, seen := texts[f.String()]; f.String() == "" || (seen && c != f.Cause) {
			t.Errorf("%s: two causes have the text %q", name, f)
		}
		texts[f.String()] = f.Cause
	}
	flip := host{"h1", "r1", 9}.node()
	flip.Ready = false
	s.SetNode(flip)
	if _, f := s.Place([]PodSet{gang(1)}, Options{}); f == nil || f.Cause != NoDomains {
		t.Errorf("no node counts: %v", f)
	}
	if placed, f := s.Place([]PodSet{gang(0)}, Options{}); f != nil || placed[0] != nil {
		t.Errorf("no pods: %v %v", placed, f)
	}
}

// TestNodeNames: node affinity may be about the names of nodes, and a term without expressions is of no node.
func TestNodeNames(t *testing.T) {
	name := func(op workload.Operator, names ...string) workload.Term {
		return workload.Term{{Key: workload.NodeName, Op: op, Values: names}}
	}
	tests := map[string]struct {
		terms []workload.Term
		want  string
	}{
		"one node":                {[]workload.Term{name(workload.In, "n2")}, "n2:1"},
		"not that one":            {[]workload.Term{name(workload.NotIn, "n1")}, "n2:1"},
		"one of two terms":        {[]workload.Term{name(workload.In, "n9"), name(workload.In, "n2")}, "n2:1"},
		"with a label that is so": {[]workload.Term{append(name(workload.In, "n2"), workload.Expr{Key: "rack", Op: workload.In, Values: []string{"r1"}})}, "n2:1"},
		"with one that is not":    {[]workload.Term{append(name(workload.In, "n2"), workload.Expr{Key: "rack", Op: workload.In, Values: []string{"r2"}})}, ""},
		"an empty term":           {[]workload.Term{{}}, ""},
		"an empty and another":    {[]workload.Term{{}, name(workload.In, "n2")}, "n2:1"},
	}
	for title, tc := range tests {
		t.Run(title, func(t *testing.T) {
			s := world(DefaultGates(), host{"n1", "r1", 1}, host{"n2", "r1", 1})
			p := gang(1)
			p.Constraints = &workload.Constraints{Affinity: tc.terms}
			placed, f := s.Place([]PodSet{p}, Options{Explain: true})
			if got := text(placed); got != tc.want || (f == nil) != (tc.want != "") {
				t.Errorf("placed on %q (%v), want %q", got, f, tc.want)
			}
		})
	}
}

// TestBoundOfManyNodes: a node of a leaf that is with more foreign pods than capacity does not lower the bound of what fits on the others.
func TestBoundOfManyNodes(t *testing.T) {
	s := New(newTable(), DefaultGates())
	s.SetTree("f", Tree{Levels: []string{"rack"}})
	node := func(name string, taints ...workload.Taint) {
		s.SetNode(Node{
			Name: name, Ready: true, Schedulable: true, Labels: map[string]string{"rack": "r", Hostname: name}, Taints: taints,
			Allocatable: []workload.Request{{Resource: cpu, Amount: 8}, {Resource: pods, Amount: 110}},
		})
	}
	node("a")
	node("b", workload.Taint{Key: "k", Effect: "NoSchedule"})
	s.SetForeign("b", []workload.Request{{Resource: cpu, Amount: 12}})
	one := []workload.Request{{Resource: pods, Amount: 1}, {Resource: cpu, Amount: 1}}
	gang := []PodSet{{Name: "w", Flavor: "f", Count: 8, Required: "rack", Requests: one}}
	l := ledger.New(newTable())
	key, queue := l.Extend(s.Dimension()), l.Quota.Add("q", false)
	l.Quota.Recompute()
	placed, f := s.Place(gang, Options{})
	if f != nil {
		t.Fatal(f)
	}
	usage := ledger.Usage{}.With(key, s.Part([]Charge{{Placement: placed[0], Requests: one}}))
	l.Charge(queue, usage)
	number, needed, _ := s.MeasureOf(gang, false)
	if have := s.Dimension().Measure(number); have >= needed {
		t.Fatalf("it has room beside itself: %d of %d", have, needed)
	}
	l.Release(queue, usage)
	if most, have := s.Dimension().AtMost(number), s.Dimension().Measure(number); have < needed || most < have {
		t.Errorf("after the release the measure is %d, its bound %d; needed %d", have, most, needed)
	}
}

// TestBoundedChoice: the search for an even choice ends where it would cost too much, also with few states.
func TestBoundedChoice(t *testing.T) {
	for name, tc := range map[string]struct {
		domains int
		needed  int64
		want    int // domains chosen
	}{
		"few of many": {10_000, 10, 10},
		"many of few": {500, 400, 400},
		"both":        {10_000, 400, 0},
	} {
		list := make([]candidate, tc.domains)
		for i := range list {
			list[i] = candidate{&count{pods: 1, slices: 1}, int32(i), int32(i)}
		}
		b := balancer{g: &group{needed: tc.needed, size: 1}, scratch: &evenScratch{}}
		if got := b.choose(list, func(i, j int) int { return i - j }); len(got) != tc.want {
			t.Errorf("%s: %d domains are chosen, want %d", name, len(got), tc.want)
		}
	}
}
