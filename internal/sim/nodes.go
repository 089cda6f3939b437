package sim

import (
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// maxNodes is how many nodes a script may have.
const maxNodes = 20_000

// level returns the label key of a level: host is the hostname.
func level(name string) string {
	if name == "host" {
		return topology.Hostname
	}
	return name
}

// levels removes topology=LEVEL,...
func (a *args) levels() (levels []string) {
	text, ok := a.value("topology")
	if !ok {
		return nil
	}
	for name := range strings.SplitSeq(text, ",") {
		a.checkName(name, "/")
		levels = append(levels, level(name))
	}
	return levels
}

// node adds a node, or changes the whole definition of one.
func (p *player) node(a *args) string {
	n := state.SetNode{Name: a.name("NAME"), Labels: a.labels(a.pairs("label.")), Ready: !a.flag("not-ready"), Schedulable: !a.flag("cordoned")}
	for _, text := range a.values("taint") {
		key, value := a.keyValue("taint", text, false)
		n.Taints = append(n.Taints, workload.Taint{Key: key, Value: value, Effect: "NoSchedule"})
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[topology.Hostname] = n.Name
	n.Allocatable = a.requests(110)
	if p.machines[n.Name] == nil && len(p.machines) == maxNodes {
		a.fail("there may be %d nodes in a script", maxNodes)
	}
	if a.done() {
		p.machines[n.Name] = &n
		p.s.Apply(n)
	}
	return ""
}

// requests removes the amounts of resources, with so many pods unless they are among them.
func (a *args) requests(pods int64) (out []state.Request) {
	for _, r := range a.pairs("") {
		a.checkName(r[0], "/")
		if slices.ContainsFunc(out, func(o state.Request) bool { return o.Resource == r[0] }) {
			a.fail("%s is there twice", quote(r[0]))
		}
		out = append(out, state.Request{Resource: r[0], Amount: a.amount(r[0], r[1])})
	}
	if pods > 0 && !slices.ContainsFunc(out, func(r state.Request) bool { return r.Resource == podsResource }) {
		out = append(out, state.Request{Resource: podsResource, Amount: resource.Amount(pods)})
	}
	slices.SortFunc(out, func(x, y state.Request) int { return strings.Compare(x.Resource, y.Resource) })
	return out
}

// changeNode returns a command that changes a node.
func changeNode(change func(*state.SetNode)) func(*player, *args) string {
	return func(p *player, a *args) string {
		old := p.findNode(a, a.name("NODE"))
		if a.done() {
			n := *old
			change(&n)
			p.machines[n.Name] = &n
			p.s.Apply(n)
		}
		return ""
	}
}

// findNode returns the node of a name, and fails if there is none.
func (p *player) findNode(a *args, name string) *state.SetNode {
	n := p.machines[name]
	if n == nil {
		known := sortedKeys(p.machines)
		if near := nearest(name, known[:min(len(known), maxWords)]); near != "" {
			a.fail("there is no node %s; did you mean %q?", quote(name), near)
		}
		a.fail("there is no node %s", quote(name))
	}
	return n
}

// foreign sets what the pods of a node use that no queue placed.
func (p *player) foreign(a *args) string {
	f := state.SetForeign{Node: a.name("NODE"), Used: a.requests(0)}
	if a.done() {
		p.s.Apply(f)
	}
	return ""
}

// places removes the request for places of a pod set, and sets the usage of one of its pods: its part of the requests.
func (a *args) places(ps *state.PodSet) {
	t := &workload.Topology{Required: level(a.nameOf("required", "")), Preferred: level(a.nameOf("preferred", ""))}
	anywhere := a.flag("unconstrained")
	explicit := anywhere || t.Required != "" || t.Preferred != ""
	if (anywhere || t.Required != "") && t.Preferred != "" || anywhere && t.Required != "" {
		a.fail("write at most one of required=LEVEL, preferred=LEVEL and unconstrained")
	}
	for _, text := range a.values("slice") {
		name, size := a.keyValue("slice", text, true)
		t.Slices = append(t.Slices, workload.SliceLayer{Level: level(name), Size: int32(a.whole("the size of a slice", size, 1, maxPods))})
		explicit = true
	}
	if explicit {
		ps.Topology = t
	}
	ps.Elastic = a.flag("elastic")
}

// perPod returns the requests of one pod.
func perPod(ps *state.PodSet) []state.Request {
	out := []state.Request{{Resource: podsResource, Amount: 1}}
	for _, r := range ps.Requests {
		if r.Resource != podsResource {
			out = append(out, state.Request{Resource: r.Resource, Amount: r.Amount.Scale(ps.Count, 1)})
		}
	}
	slices.SortFunc(out, func(x, y state.Request) int { return strings.Compare(x.Resource, y.Resource) })
	return out
}

const podsResource = "pods"

// writePlaces writes the places of a workload that holds quota. It reports false if that gave the engine something new to decide.
func (p *player) writePlaces(name string) (settled bool) {
	grant, def := p.placings[name], p.workloads[name]
	delete(p.placings, name)
	if def == nil || !def.Reserved || def.Evicting {
		p.s.Apply(state.AdmissionFailed{UID: name, Version: grant.Version})
		return false
	}
	def.TakePlaces(&grant)
	def.Version++
	p.s.Apply(state.AdmissionWritten(*def))
	return !p.succeed(def)
}

// unhealthy records failed nodes of a workload, as the controller of node failures does; none is a recovery.
func (p *player) unhealthy(a *args) string {
	def := p.workload(a)
	var nodes []string
	for len(a.words) > 0 && a.err == nil {
		nodes = append(nodes, a.name("NODE"))
	}
	if a.err == nil && !def.Admitted {
		a.fail("%s is not admitted", quote(def.Name))
	}
	if a.done() {
		def.Unhealthy = nodes
		p.set(def)
	}
	return ""
}
