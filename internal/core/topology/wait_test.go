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

// single draws the pod sets of one group.
func (p *pair) single() []PodSet {
	pods := p.draw()
	for i := range pods {
		pods[i].Count = max(1, pods[i].Count)
	}
	first := pods[0]
	return slices.DeleteFunc(pods, func(o PodSet) bool { return o.Name != first.Name && (o.Group == "" || o.Group != first.Group) })
}

// checkMeasure: a group that has places needs no more than its measure, and one that needs no more has places
// where the measure is exact: in one domain, without a leader.
func (p *pair) checkMeasure(request []PodSet, empty bool) {
	_, f := p.s.Place(request, Options{Empty: empty})
	number, needed, ok := p.s.MeasureOf(request, empty)
	if !ok {
		if f == nil {
			p.Fatalf("it has places, and no measure: %+v", request)
		}
		return
	}
	most := p.s.Dimension().AtMost(number)
	have := p.s.Dimension().Measure(number)
	if have > most {
		p.Fatalf("measure %d of %+v is %d, beyond its bound %d", number, request, have, most)
	}
	if f == nil && have < needed {
		p.Fatalf("with places, measure %d of it is %d, which needs %d: %+v", number, have, needed, request)
	}
	if f != nil && have >= needed && len(request) == 1 && request[0].Required != "" {
		p.Fatalf("without places (%s), measure %d of it is %d, which needs %d: %+v", f, number, have, needed, request)
	}
}

// TestMeasures: measures before and after edits, charges and releases. A release reports every measure that it raises.
func TestMeasures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t, drawGates(t))
		p.rich = p.chance(2, "rich")
		p.setTree("f")
		p.setTree("g")
		for i := range p.n(1, 8, "nodes") {
			p.setNode(fmt.Sprint("h", i))
		}
		var known [][]PodSet
		for range p.n(1, 20, "steps") {
			switch {
			case p.chance(3, "edit"):
				p.edit()
			case len(p.held) > 0 && p.chance(2, "release"):
				i := p.n(0, len(p.held)-1, "which")
				if p.chance(2, "unread") {
					p.release(p.held[i])
				} else {
					p.checkRaises(p.held[i], known)
				}
				p.held = slices.Delete(p.held, i, i+1)
			default:
				request := p.single()
				known = append(known, request)
				if placed, f := p.s.Place(request, Options{}); f == nil {
					p.held = append(p.held, p.hold(request, placed))
					p.charge(p.held[len(p.held)-1])
				}
			}
			if !p.chance(2, "look") {
				continue // the bounds of measures have more to count
			}
			for _, request := range known {
				p.checkMeasure(request, false)
				p.checkMeasure(request, true)
			}
		}
		p.checkNumbers(known)
	})
}

// checkRaises releases a part, and checks the measures of some requests.
func (p *pair) checkRaises(h *heldParts, known [][]PodSet) {
	d, before := p.s.Dimension(), map[int]resource.Amount{}
	for _, request := range known {
		for _, empty := range []bool{false, true} {
			if number, _, ok := p.s.MeasureOf(request, empty); ok {
				before[number] = d.Measure(number)
			}
		}
	}
	p.release(h)
	part := h.usage.Part(p.key)
	for number, was := range before { //berth:unordered all are checked
		most := d.AtMost(number)
		switch now := d.Measure(number); {
		case now > most:
			p.Fatalf("after a release of %v, measure %d is %d, beyond its bound %d", show(h.placed), number, now, most)
		case now < was:
			p.Fatalf("a release of %v lowers measure %d from %d to %d", show(h.placed), number, was, now)
		case now > was && (part == nil || !d.Raises(part, number)):
			p.Fatalf("a release of %v raises measure %d from %d to %d, and does not say so", show(h.placed), number, was, now)
		case now > was && p.s.Measured()[number].Empty:
			p.Fatalf("a release of %v raises measure %d of empty nodes", show(h.placed), number)
		}
	}
}

// checkNumbers: another Space with these measures numbers requests alike, and a number that is free is used again.
func (p *pair) checkNumbers(known [][]PodSet) {
	other := newPair(p.T, p.w.gates)
	for _, flavor := range []string{"f", "g"} {
		if def, ok := p.s.Tree(flavor); ok {
			other.s.SetTree(flavor, def)
		}
	}
	for _, n := range p.s.Nodes().All {
		other.s.SetNode(n)
	}
	other.s.RestoreMeasures(p.s.Measured())
	d, numbers := p.s.Dimension(), map[int]bool{}
	for _, request := range known {
		a, needed, ok := p.s.MeasureOf(request, true)
		b, needs, knows := other.s.MeasureOf(request, true)
		if a != b || needed != needs || ok != knows {
			p.Fatalf("restored, the measure of %+v is %d (%v), which needs %d, not %d (%v), which needs %d", request, b, knows, needs, a, ok, needed)
		}
		if !ok {
			continue
		}
		numbers[a] = true
		if foreign := len(p.s.Nodes().Foreign) > 0; !foreign && d.Measure(a) != other.s.Dimension().Measure(a) {
			p.Fatalf("restored, measure %d of empty nodes is %d, not %d", a, other.s.Dimension().Measure(a), d.Measure(a))
		}
	}
	if len(numbers) == 0 {
		return
	}
	freed := rapid.SampledFrom(sortedNumbers(numbers)).Draw(p.T, "free")
	d.Forget(freed)
	if p.s.Measured()[freed].Key != "" {
		p.Fatalf("measure %d is not forgotten", freed)
	}
	fresh := []PodSet{{Name: "w", Flavor: "f", Count: 1, Requests: []workload.Request{{Resource: pods, Amount: 1}, {Resource: cpu, Amount: 77}}}}
	if number, _, ok := p.s.MeasureOf(fresh, true); ok && number != freed {
		p.Fatalf("the number of another measure is %d, and %d is free", number, freed)
	}
}

func sortedNumbers(numbers map[int]bool) (out []int) {
	for n := range numbers { //berth:unordered sorted below
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// TestRemember: what a workload holds survives as data, also in another Space.
func TestRemember(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t, drawGates(t))
		p.rich = true
		p.setTree("f")
		p.setTree("g")
		for i := range p.n(1, 6, "nodes") {
			p.setNode(fmt.Sprint("h", i))
		}
		other := newPair(t, p.w.gates)
		for range p.n(1, 6, "workloads") {
			request := p.draw()
			placed, f := p.s.Place(request, Options{})
			if f != nil {
				continue
			}
			part := p.hold(request, placed).usage.Part(p.key)
			if part == nil {
				continue
			}
			d := p.s.Dimension()
			items := d.Remember(part)
			if again := d.Recall(items); !part.Equal(again) || !again.Equal(part) {
				t.Fatalf("recalled, %v is %v", items, d.Remember(again))
			}
			elsewhere := other.s.Dimension().Recall(items)
			if diff := cmp.Diff(items, other.s.Dimension().Remember(elsewhere)); diff != "" {
				t.Fatalf("elsewhere (-want +got):\n%s", diff)
			}
			other.l.Charge(other.queue, ledger.Usage{}.With(other.key, elsewhere))
			other.l.Release(other.queue, ledger.Usage{}.With(other.key, elsewhere))
		}
		for _, n := range other.s.used {
			if n != 0 {
				t.Fatalf("%d is left of what was charged and released", n)
			}
		}
	})
}

// TestMeasureOfLevels: a measure belongs to the levels that a topology had, whatever their places in it.
func TestMeasureOfLevels(t *testing.T) {
	s := New(newTable(), DefaultGates())
	s.SetTree("f", Tree{Levels: []string{"rack", Hostname}})
	for i, name := range []string{"a", "b"} {
		s.SetNode(Node{
			Name: name, Ready: true, Schedulable: true, Labels: map[string]string{"block": "b0", "rack": fmt.Sprint("r", i), Hostname: name},
			Allocatable: []workload.Request{{Resource: cpu, Amount: 2}, {Resource: pods, Amount: 10}},
		})
	}
	gang := func(level string) []PodSet {
		return []PodSet{{Name: "w", Flavor: "f", Count: 4, Required: level, Requests: []workload.Request{{Resource: pods, Amount: 1}, {Resource: cpu, Amount: 1}}}}
	}
	rack, _, _ := s.MeasureOf(gang("rack"), false)
	s.SetTree("f", Tree{Levels: []string{"block", Hostname}})
	block, needed, ok := s.MeasureOf(gang("block"), false)
	if have := s.Dimension().Measure(block); !ok || have != needed {
		t.Errorf("four pods fit into the block, measure %d is %d, they need %d; that of a rack was %d", block, have, needed, rack)
	}
}

// TestBoundAfterEdits: after an edit a bound grows by what fits on the nodes that have changed, if the pods may run there.
func TestBoundAfterEdits(t *testing.T) {
	node := func(name, disk string, cpus resource.Amount) Node {
		return Node{
			Name: name, Ready: true, Schedulable: true, Labels: map[string]string{Hostname: name, "disk": disk},
			Allocatable: []workload.Request{{Resource: cpu, Amount: cpus}, {Resource: pods, Amount: 10}},
		}
	}
	for name, tc := range map[string]struct {
		edit        func(*Space)
		free, empty resource.Amount // more
	}{
		"nothing":                {func(*Space) {}, 0, 0},
		"a node that fits":       {func(s *Space) { s.SetNode(node("c", "ssd", 2)) }, 2, 2},
		"a node of another kind": {func(s *Space) { s.SetNode(node("c", "hdd", 2)) }, 0, 0},
		"one that is too small":  {func(s *Space) { s.SetNode(node("c", "ssd", 0)) }, 0, 0},
		"one that is not ready":  {func(s *Space) { n := node("c", "ssd", 2); n.Ready = false; s.SetNode(n) }, 0, 0},
		"a relabeled node":       {func(s *Space) { s.SetNode(node("b", "ssd", 3)) }, 3, 3},
		"a removed node":         {func(s *Space) { s.RemoveNode("a") }, 0, 0},
		"foreign pods":           {func(s *Space) { s.SetForeign("a", []workload.Request{{Resource: cpu, Amount: 3}}) }, 1, 1},
		"foreign pods elsewhere": {func(s *Space) { s.SetForeign("b", []workload.Request{{Resource: pods, Amount: 1}}) }, 0, 0},
		"a release": {func(s *Space) {
			p := s.Part([]Charge{{&Placement{Flavor: "f", Levels: []string{Hostname}, Domains: []Domain{{Values: []string{"a"}, Count: 1}}}, []workload.Request{{Resource: cpu, Amount: 1}}}})
			s.apply(p.(*part), -1, nil)
		}, 5, 0},
		"other levels": {func(s *Space) { s.SetTree("f", Tree{Levels: []string{"disk", Hostname}}) }, resource.Unlimited, resource.Unlimited},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(newTable(), DefaultGates())
			s.SetTree("f", Tree{Levels: []string{Hostname}})
			s.SetNode(node("a", "ssd", 4))
			s.SetNode(node("b", "hdd", 4))
			gang := []PodSet{{
				Name: "w", Flavor: "f", Count: 9, Requests: []workload.Request{{Resource: pods, Amount: 1}, {Resource: cpu, Amount: 1}},
				Constraints: &workload.Constraints{Selector: map[string]string{"disk": "ssd"}},
			}}
			d := s.Dimension()
			free, _, _ := s.MeasureOf(gang, false)
			empty, _, ok := s.MeasureOf(gang, true)
			if !ok || d.Measure(free) != 5 || d.Measure(empty) != 5 {
				t.Fatalf("the measures are %d and %d (%v), want 5: four pods fit", d.Measure(free), d.Measure(empty), ok)
			}
			tc.edit(s)
			if a, b := d.AtMost(free), d.AtMost(empty); a != tc.free.Add(5) || b != tc.empty.Add(5) {
				t.Errorf("the bounds are %d and %d, want %d and %d", a, b, tc.free.Add(5), tc.empty.Add(5))
			}
		})
	}
}
