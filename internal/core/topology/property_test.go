package topology

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
	"github.com/berth-project/berth/internal/core/workload"
)

// pair is a Space in a ledger, and its twin.
type pair struct {
	*rapid.T
	s     *Space
	l     *ledger.Ledger
	key   ledger.Key
	queue quota.Node
	w     *twin
	held  []*heldParts
	rich  bool // most of what is asked for fits
	drawn [][]PodSet
}

// heldParts is the usage of a workload, and its charges in the twin.
type heldParts struct {
	request []PodSet
	placed  []*Placement
	usage   ledger.Usage
	charges []*twinCharge
}

func newPair(t *rapid.T, gates Gates) *pair {
	table := newTable()
	p := &pair{T: t, s: New(table, gates), l: ledger.New(table)}
	p.key = p.l.Extend(p.s.Dimension())
	p.queue = p.l.Quota.Add("q", false)
	p.l.Quota.Recompute()
	p.w = &twin{gates: gates, nodes: map[string]Node{}, foreign: map[string][]workload.Request{}, trees: map[string]Tree{}}
	return p
}

func (p *pair) chance(n int, label string) bool {
	return rapid.IntRange(0, n-1).Draw(p.T, label) == 0
}

func (p *pair) n(lo, hi int, label string) int { return rapid.IntRange(lo, hi).Draw(p.T, label) }

func (p *pair) setNode(name string) {
	n := Node{Name: name, Ready: !p.chance(6, "not ready"), Schedulable: !p.chance(8, "cordoned"), Labels: map[string]string{}}
	host := name
	rare := 1
	if p.rich {
		rare = 20
		n.Ready, n.Schedulable = true, true
	}
	if p.chance(20*rare, "shared hostname") {
		host = "h0"
	}
	for _, kv := range [][2]string{
		{"block", fmt.Sprint("b", p.n(0, 1, "block"))},
		{"rack", fmt.Sprint("r", p.n(0, 2, "rack"))},
		{Hostname, host},
		{"pool", fmt.Sprint("p", p.n(0, 3, "pool")/2)},
		{"disk", fmt.Sprint("d", p.n(0, 1, "disk"))},
	} {
		label, value := kv[0], kv[1]
		if label != "pool" && p.chance(25*rare, "no "+label) {
			continue
		}
		n.Labels[label] = value
	}
	if p.chance(6*rare, "taint") {
		n.Taints = []workload.Taint{{Key: "t", Value: fmt.Sprint(p.n(0, 1, "value")), Effect: "NoSchedule"}}
	}
	n.Allocatable = []workload.Request{{Resource: cpu, Amount: resource.Amount(p.n(0, 9, "cpu"))}, {Resource: pods, Amount: resource.Amount(p.n(1, 7, "pods"))}}
	if p.rich {
		n.Allocatable[0].Amount += 6
	}
	if p.chance(2, "gpus") {
		n.Allocatable = append(n.Allocatable, workload.Request{Resource: gpu, Amount: resource.Amount(p.n(0, 4, "gpu"))})
	}
	p.s.SetNode(n)
	p.w.nodes[name] = n
}

func (p *pair) setTree(flavor string) {
	d := Tree{Topology: "t-" + flavor, Levels: rapid.SampledFrom([][]string{
		{"block", "rack", Hostname}, {"rack", Hostname}, {Hostname}, {"block", "rack"}, {"block"}, {"block", "rack", Hostname},
	}).Draw(p.T, "levels")}
	if p.rich {
		d.Levels = []string{"block", "rack", Hostname}
	}
	if !p.rich && p.chance(2, "labels") {
		d.NodeLabels = map[string]string{"pool": fmt.Sprint("p", p.n(0, 1, "pool"))}
	}
	p.s.SetTree(flavor, d)
	p.w.trees[flavor] = d
}

// edit changes nodes, trees or foreign pods.
func (p *pair) edit() {
	name := fmt.Sprint("h", p.n(0, 9, "node"))
	switch n, known := p.w.nodes[name]; {
	case p.chance(3, "set"):
		p.setNode(name)
	case p.chance(4, "remove"):
		p.s.RemoveNode(name)
		delete(p.w.nodes, name)
	case known && p.chance(2, "flip"):
		n.Ready = !n.Ready
		p.s.SetNode(n)
		p.w.nodes[name] = n
	case p.chance(3, "tree"):
		p.setTree(rapid.SampledFrom([]string{"f", "g"}).Draw(p.T, "flavor"))
	case p.chance(6, "no tree"):
		flavor := rapid.SampledFrom([]string{"f", "g"}).Draw(p.T, "flavor")
		p.s.RemoveTree(flavor)
		delete(p.w.trees, flavor)
	default:
		p.w.foreign[name] = []workload.Request{
			{Resource: cpu, Amount: resource.Amount(p.n(0, 3, "cpu"))}, {Resource: pods, Amount: 1}, {Resource: gpu, Amount: resource.Amount(p.n(0, 1, "gpu"))},
		}
		p.s.SetForeign(name, p.w.foreign[name])
	}
}

func (p *pair) drawPod() []workload.Request {
	out := []workload.Request{{Resource: pods, Amount: 1}}
	if !p.chance(5, "no cpu") {
		out = append(out, workload.Request{Resource: cpu, Amount: resource.Amount(p.n(0, 3, "cpu"))})
	}
	if p.chance(5, "with gpu") {
		out = append(out, workload.Request{Resource: gpu, Amount: 1})
	}
	return out
}

func (p *pair) drawConstraints() *workload.Constraints {
	if p.rich || p.chance(2, "plain") {
		return nil
	}
	c := &workload.Constraints{}
	if p.chance(4, "selector") {
		c.Selector = map[string]string{"disk": fmt.Sprint("d", p.n(0, 1, "disk"))}
	}
	if p.chance(5, "affinity") {
		c.Affinity = []workload.Term{{{Key: "rack", Op: workload.NotIn, Values: []string{"r1"}}}}
	}
	if p.chance(2, "tolerates") {
		c.Tolerations = []workload.Toleration{{Key: "t", Value: "0", Effect: "NoSchedule"}}
	}
	return c
}

var someLevels = []string{"block", "rack", Hostname}

// draw makes the pod sets of a workload.
func (p *pair) draw() (out []PodSet) {
	if len(p.drawn) > 0 && p.chance(2, "again") {
		return rapid.SampledFrom(p.drawn).Draw(p.T, "of")
	}
	defer func() { p.drawn = append(p.drawn, out) }()
	for i := range p.n(1, 2, "groups") {
		ps := PodSet{
			Name: fmt.Sprint("w", i), Flavor: rapid.SampledFrom([]string{"f", "f", "g"}).Draw(p.T, "flavor"),
			Count: int32(p.n(0, 9, "count")), Requests: p.drawPod(), Constraints: p.drawConstraints(),
		}
		for range p.n(0, 2, "preferences") {
			ps.Prefers = append(ps.Prefers, Preference{
				Weight: int32(p.n(1, 3, "weight")),
				Term:   workload.Term{{Key: "disk", Op: workload.In, Values: []string{fmt.Sprint("d", p.n(0, 1, "disk"))}}},
			})
		}
		level := rapid.SampledFrom(someLevels).Draw(p.T, "level")
		switch p.n(0, 2, "kind") {
		case 0:
			ps.Required = level
		case 1:
			ps.Preferred = level
		}
		if p.chance(3, "layers") {
			at := p.n(0, 2, "layer")
			ps.Layers = []Layer{{someLevels[at], int32(p.n(1, 4, "size"))}}
			if at < 2 && p.chance(2, "second") {
				ps.Layers[0].Size = 4
				ps.Layers = append(ps.Layers, Layer{someLevels[p.n(at+1, 2, "layer")], 2})
			}
			if p.chance(4, "third") {
				ps.Layers = []Layer{{"block", 4}, {"rack", 2}, {Hostname, int32(p.n(1, 2, "size"))}}
			}
		}
		out = append(out, ps)
		if p.chance(2, "leader") {
			ps.Group, ps.Name = fmt.Sprint("g", i), fmt.Sprint("l", i)
			out[len(out)-1].Group = ps.Group
			ps.Count, ps.Requests = 1, p.drawPod()
			out = append(out, ps)
			if p.chance(2, "leader first") {
				n := len(out)
				out[n-1], out[n-2] = out[n-2], out[n-1]
			}
		}
	}
	return out
}

// compare places pod sets in both worlds.
func (p *pair) compare(request []PodSet, o Options) []*Placement {
	got, f := p.s.Place(request, o)
	want, wf := p.w.place(request, o)
	if (f == nil) != (wf == nil) {
		p.Fatalf("placed %v (%v), twin %v (%v)\nrequest %+v", show(got), f, show(want), wf, request)
	}
	if f != nil {
		if f.Cause != wf.cause || (f.Cause == TooFew && wf.fit >= 0 && f.Fit != wf.fit) {
			p.Fatalf("failure %+v, twin %+v\nrequest %+v", f, wf, request)
		}
		if f.String() == "" {
			p.Fatal("no text")
		}
		return nil
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		p.Fatalf("placement (-twin +got):\n%s\nrequest %+v", d, request)
	}
	again, f := p.s.Place(request, o)
	if d := cmp.Diff(got, again); d != "" || f != nil {
		p.Fatalf("placed again (-first +second, %v):\n%s\nrequest %+v", f, d, request)
	}
	return got
}

func show(all []*Placement) (out []string) {
	for _, p := range all {
		if p != nil {
			out = append(out, fmt.Sprintf("%s:%v", p.PodSet, p.Domains))
		}
	}
	return out
}

func (p *pair) hold(request []PodSet, placed []*Placement) *heldParts {
	var charges []Charge
	h := &heldParts{request: request, placed: placed}
	for i, pl := range placed {
		if pl != nil {
			charges = append(charges, Charge{pl, request[i].Requests})
			h.charges = append(h.charges, &twinCharge{pl, request[i].Requests})
		}
	}
	h.usage = ledger.Usage{}.With(p.key, p.s.Part(charges))
	return h
}

func (p *pair) charge(h *heldParts) {
	p.l.Charge(p.queue, h.usage)
	p.w.charges = append(p.w.charges, h.charges...)
}

func (p *pair) release(h *heldParts) {
	p.l.Release(p.queue, h.usage)
	p.w.charges = slices.DeleteFunc(p.w.charges, func(c *twinCharge) bool { return slices.Contains(h.charges, c) })
}

func drawGates(t *rapid.T) Gates {
	g := DefaultGates()
	g.Mixed = rapid.Bool().Draw(t, "mixed")
	g.Overlapping = rapid.Bool().Draw(t, "overlapping")
	g.Affinity = rapid.Bool().Draw(t, "affinity")
	g.Balanced = rapid.Bool().Draw(t, "balanced")
	g.ExcludeUntolerated = rapid.Bool().Draw(t, "exclude")
	g.Shapes = rapid.IntRange(1, 6).Draw(t, "shapes")
	return g
}

// TestTwin places random workloads in random worlds, with edits, charges and speculation in between.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t, drawGates(t))
		p.rich = p.chance(2, "rich")
		p.setTree("f")
		p.setTree("g")
		for i := range p.n(1, 10, "nodes") {
			p.setNode(fmt.Sprint("h", i))
		}
		var known [][]PodSet
		for range p.n(1, 25, "steps") {
			if p.chance(3, "edit") && (!p.rich || p.chance(2, "rich edit")) {
				p.edit()
			}
			request := p.draw()
			if len(known) > 0 && p.chance(2, "again") {
				request = rapid.SampledFrom(known).Draw(t, "request")
			}
			known = append(known, request)
			o := Options{Empty: p.chance(4, "empty"), Explain: p.chance(2, "explain")}
			placed := p.compare(request, o)
			if placed != nil && !o.Empty {
				p.checkPlaced(request, placed)
				p.held = append(p.held, p.hold(request, placed))
				p.charge(p.held[len(p.held)-1])
			}
			if len(p.held) > 0 && p.chance(3, "release") {
				i := p.n(0, len(p.held)-1, "which")
				p.release(p.held[i])
				p.held = slices.Delete(p.held, i, i+1)
			}
			if p.chance(3, "speculate") {
				p.speculate(request)
			}
			if len(p.held) > 0 && p.chance(2, "change") {
				p.changeHeld(rapid.SampledFrom(p.held).Draw(t, "held"))
			}
		}
		p.checkRebuilt()
	})
}

// speculate releases some workloads, places, and rolls back.
func (p *pair) speculate(request []PodSet) {
	mark, charges := p.l.Mark(), slices.Clone(p.w.charges)
	for _, h := range p.held {
		if p.chance(2, "victim") {
			p.release(h)
		}
		if p.chance(4, "look") {
			p.compare(request, Options{})
		}
	}
	if placed := p.compare(request, Options{}); placed != nil {
		p.charge(p.hold(request, placed))
		p.compare(request, Options{})
	}
	p.l.Rollback(mark)
	p.w.charges = charges
	p.compare(request, Options{})
}

// changeHeld replaces a host of placed pod sets, and resizes them all at once.
func (p *pair) changeHeld(h *heldParts) {
	var resized []PodSet
	for i, ps := range h.request {
		if ps.Group != "" || h.placed[i] == nil || p.w.trees[ps.Flavor].Levels == nil {
			continue
		}
		ps.Earlier = h.placed[i]
		if len(ps.Earlier.Domains) > 0 && ps.Earlier.Levels[0] == Hostname {
			// Hosts are named by their nodes, and some nodes have the name of another host.
			if host := rapid.SampledFrom(ps.Earlier.Domains).Draw(p.T, "host").Values[0]; p.s.HostOf(host) == host {
				got, f := p.s.Replace([]PodSet{ps}, []string{host}, Options{Explain: true})
				want, wf := p.w.replace(ps, host)
				p.compareDomains(got, f, want, wf, ps)
				if f == nil {
					p.checkMoved(ps, got[0], host)
				}
			}
		}
		ps.Count, ps.Elastic = int32(p.n(1, 9, "resized")), p.chance(2, "elastic")
		resized = append(resized, ps)
	}
	p.release(h)
	got, f := p.s.Place(resized, Options{})
	want, wf := p.w.resize(resized)
	for i := range resized {
		if f != nil || wf != nil {
			p.compareDomains(nil, f, nil, wf, resized[i])
			continue
		}
		p.compareDomains(got[i:i+1], f, want[i], wf, resized[i])
		if pods := got[i].Pods(); pods > resized[i].Count {
			p.Fatalf("%d pods are placed of %d", pods, resized[i].Count)
		}
	}
	p.charge(h)
}

// checkMoved checks that only the pods of a host have moved.
func (p *pair) checkMoved(ps PodSet, now *Placement, host string) {
	count := func(pl *Placement, at string) (n int32) {
		for _, d := range pl.Domains {
			if d.Values[0] == at {
				n += d.Count
			}
		}
		return n
	}
	if count(now, host) > 0 || now.Pods() != ps.Earlier.Pods() {
		p.Fatalf("%v after %v without %s", now.Domains, ps.Earlier.Domains, host)
	}
	for _, d := range ps.Earlier.Domains {
		if at := d.Values[0]; at != host && count(now, at) < count(ps.Earlier, at) {
			p.Fatalf("%v after %v without %s", now.Domains, ps.Earlier.Domains, host)
		}
	}
}

func (p *pair) compareDomains(got []*Placement, f *Failure, want []Domain, wf *twinFailure, ps PodSet) {
	if (f == nil) != (wf == nil) || (f != nil && f.Cause != wf.cause) {
		p.Fatalf("%v (%v), twin %v (%v)\npod set %+v of %v", show(got), f, want, wf, ps, ps.Earlier)
	}
	if f != nil {
		return
	}
	if d := cmp.Diff(want, got[0].Domains, cmpopts.EquateEmpty()); d != "" {
		p.Fatalf("(-twin +got):\n%s\npod set %+v of %v", d, ps, ps.Earlier)
	}
}

// checkPlaced checks what has to hold for every placement.
func (p *pair) checkPlaced(request []PodSet, placed []*Placement) {
	h := p.hold(request, placed)
	if part := h.usage.Part(p.key); part != nil && p.distinctHosts() && !p.s.Dimension().Fits(p.queue, part) {
		p.Fatalf("a placement does not fit: %v", show(placed))
	}
	for i, pl := range placed {
		ps := request[i]
		if pl == nil {
			if ps.Count > 0 {
				p.Fatalf("no placement for %d pods", ps.Count)
			}
			continue
		}
		size := int32(1)
		if len(ps.Layers) > 0 && !(ps.Group != "" && ps.Name[0] == 'l') {
			size = ps.Layers[0].Size
		}
		if ps.Group == "" && pl.Pods() != ps.Count/size*size {
			p.Fatalf("%d of %d pods are placed, in slices of %d", pl.Pods(), ps.Count, size)
		}
		if ps.Group != "" {
			continue
		}
		paths := p.paths(pl)
		if ps.Required != "" {
			l := slices.Index(p.w.trees[ps.Flavor].Levels, ps.Required)
			for _, path := range paths {
				if !slices.Equal(path[:l+1], paths[0][:l+1]) {
					p.Fatalf("required %s, placed in %v", ps.Required, paths)
				}
			}
		}
		for _, layer := range ps.Layers {
			l := slices.Index(p.w.trees[ps.Flavor].Levels, layer.Level)
			sums := map[string]int32{}
			for j, path := range paths {
				sums[fmt.Sprint(path[:l+1])] += pl.Domains[j].Count
			}
			for at, n := range sums {
				if n%layer.Size != 0 {
					p.Fatalf("%d pods in %s, slices are %d", n, at, layer.Size)
				}
			}
		}
	}
}

// distinctHosts reports whether no two nodes have one hostname. Where they do, two trees may have one each.
func (p *pair) distinctHosts() bool {
	seen := map[string]bool{}
	for _, n := range p.w.nodes {
		host, ok := n.Labels[Hostname]
		if ok && seen[host] {
			return false
		}
		seen[host] = true
	}
	return true
}

// paths returns all level values of a placement's domains.
func (p *pair) paths(pl *Placement) (out [][]string) {
	for _, d := range pl.Domains {
		for _, dom := range p.w.build(pl.Flavor)[len(p.w.trees[pl.Flavor].Levels)-1] {
			if slices.Equal(dom.path[len(dom.path)-len(d.Values):], d.Values) {
				out = append(out, dom.path)
			}
		}
	}
	return out
}

// checkRebuilt compares counts with the ones of a Space that gets the same nodes, trees and usage at once.
func (p *pair) checkRebuilt() {
	fresh := New(newTable(), p.s.gates)
	for _, name := range slices.Sorted(maps.Keys(p.w.trees)) {
		fresh.SetTree(name, p.w.trees[name])
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(p.w.nodes))) {
		fresh.SetNode(p.w.nodes[name])
		fresh.SetForeign(name, p.w.foreign[name])
	}
	for _, h := range p.held {
		if held := h.usage.Part(p.key); held != nil {
			fresh.apply(held.(*part), 1, nil)
		}
	}
	request := p.draw()
	got, f := p.s.Place(request, Options{Explain: true})
	want, wf := fresh.Place(request, Options{Explain: true})
	if d := cmp.Diff(want, got); d != "" {
		p.Fatalf("(-rebuilt +edited):\n%s", d)
	}
	if d := cmp.Diff(wf, f); d != "" {
		p.Fatalf("(-rebuilt +edited):\n%s", d)
	}
	for _, h := range slices.Clone(p.held) {
		p.release(h)
	}
	for _, n := range p.s.used {
		if n != 0 {
			p.Fatalf("usage is left: %v", p.s.used)
		}
	}
}

// TestBalanced places pods that prefer a level, with and without leaders, in worlds with room for most of them.
func TestBalanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gates := DefaultGates()
		gates.Balanced = true
		gates.Affinity = rapid.IntRange(0, 4).Draw(t, "affinity") == 0
		p := newPair(t, gates)
		p.rich = true
		p.setTree("f")
		p.setTree("g")
		for i := range p.n(3, 14, "nodes") {
			p.setNode(fmt.Sprint("h", i))
		}
		for range p.n(1, 5, "requests") {
			request := p.draw()
			for i := range request {
				ps := &request[i]
				ps.Required, ps.Preferred = "", rapid.SampledFrom([]string{"block", "rack", "rack"}).Draw(t, "level")
				if len(ps.Layers) > 0 {
					ps.Layers = []Layer{{rapid.SampledFrom([]string{"rack", Hostname}).Draw(t, "layer"), 2}}
				}
				if ps.Name[0] == 'w' {
					ps.Count = int32(p.n(2, 30, "pods"))
				} else {
					ps.Preferred, ps.Layers = request[i&^1].Preferred, request[i&^1].Layers
				}
			}
			if placed := p.compare(request, Options{}); placed != nil {
				p.checkPlaced(request, placed)
				p.charge(p.hold(request, placed))
			}
		}
	})
}

// TestWide places in one rack of many hosts, of which few are read in order.
func TestWide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t, drawGates(t))
		p.rich = true
		p.setTree("f")
		p.setTree("g")
		for i := range p.n(30, 60, "nodes") {
			name := fmt.Sprintf("h%02d", i)
			n := Node{
				Name: name, Ready: true, Schedulable: true, Labels: map[string]string{"block": "b", "rack": fmt.Sprint("r", i/50), Hostname: name},
				Allocatable: requests(cpu, p.n(0, 4, "cpu"), pods, p.n(1, 4, "pods"), gpu, 1),
			}
			p.s.SetNode(n)
			p.w.nodes[name] = n
		}
		for range p.n(1, 3, "requests") {
			request := p.draw()
			for i := range request {
				if request[i].Name[0] == 'w' {
					request[i].Count *= int32(p.n(1, 8, "times"))
				}
			}
			if placed := p.compare(request, Options{}); placed != nil {
				p.charge(p.hold(request, placed))
			}
		}
	})
}
