package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// submit makes pending workloads. Copies are named NAME-0001 and so on.
func (p *player) submit(a *args) string {
	name := a.name("NAME")
	copies := int(a.times(int64(p.most.workloads)))
	def := state.Workload{Namespace: "default", Queueable: true}
	before, sets := a.split()
	def.Namespace = before.nameOf("namespace", def.Namespace)
	def.Created = p.at(before, "at")
	def.Since = def.Created
	checked := before.flag("checked")
	p.change(&def, before, sets)
	if len(def.PodSets) == 0 {
		before.fail("%s asks for nothing; name resources, or a pod set after a \"/\"", name)
	}
	before.done()
	a.err = before.err
	names := []string{name}
	if copies > 1 {
		names = nil
		for i := range copies {
			names = append(names, fmt.Sprintf("%s-%04d", name, i+1))
		}
	}
	p.add(a, def, names)
	for _, name := range names {
		if a.err == nil {
			p.checked[name] = checked
		}
	}
	return ""
}

// at removes key=SECOND, by default now.
func (p *player) at(a *args, key string) workload.Instant {
	return seconds(a.number(key, p.now, 0, maxSecond))
}

// add writes new workloads that differ in their names only. They may have the name of a finished one, which is deleted then.
func (p *player) add(a *args, def state.Workload, names []string) {
	if p.submitted+len(names) > p.most.workloads {
		a.fail("there may be %d workloads in a script, and there were %d before these %d", p.most.workloads, p.submitted, len(names))
	}
	a.checkName(names[len(names)-1], "")
	for _, name := range names {
		if old := p.workloads[name]; a.err == nil && old != nil && old.Queueable {
			a.fail("there is a workload %s already; edit changes it", name)
		}
	}
	if !a.done() {
		return
	}
	p.submitted += len(names)
	for _, name := range names {
		own := def
		own.UID, own.Name, own.Generation = name, name, 1
		if p.workloads[name] != nil {
			p.s.Apply(state.DeleteWorkload(name))
		}
		p.workloads[name] = &own
		p.set(&own)
	}
}

// set tells the state about a new version of a workload.
func (p *player) set(def *state.Workload) {
	def.Version++
	p.s.Apply(state.SetWorkload(*def))
}

// change applies the words before the first pod set, and the pod sets, if there are any.
func (p *player) change(def *state.Workload, a *args, sets []*args) {
	def.LocalQueue = a.nameOf("queue", def.LocalQueue)
	def.Priority = a.number("prio", def.Priority, math.MinInt64, math.MaxInt64)
	def.Owner = a.nameOf("owner", def.Owner)
	def.Replaces = a.nameOf("replaces", def.Replaces)
	def.MinRun = seconds(a.number("min-run", int64(def.MinRun/second), 0, maxSecond))
	def.Bound = seconds(a.number("limit", int64(def.Bound/second), 0, maxSecond))
	def.Gated = a.flag("gated") || def.Gated
	switch why := a.nameOf("problem", ""); why {
	case "":
	case "none":
		def.Problem = nil
	default:
		def.Problem = &workload.Problem{Reason: "Misconfigured", Note: why}
	}
	if len(a.words) > 0 {
		sets = slices.Insert(sets, 0, &args{command: a.command, usage: a.usage, known: a.known, words: append([]string{"main"}, a.words...)})
		a.words = nil
	}
	if len(sets) == 0 {
		return
	}
	def.PodSets = nil
	if len(sets) > maxPodSets {
		a.fail("a workload has at most %d pod sets", maxPodSets)
		return
	}
	for _, b := range sets {
		ps := b.podSet()
		b.done()
		if slices.ContainsFunc(def.PodSets, func(o state.PodSet) bool { return o.Name == ps.Name }) {
			b.fail("there are two pod sets named %s", quote(ps.Name))
		}
		if a.err == nil {
			a.err = b.err
		}
		def.PodSets = append(def.PodSets, ps)
	}
}

// split removes all words: the ones before the first "/", and the ones of each pod set.
func (a *args) split() (before *args, sets []*args) {
	rest := &args{command: a.command, usage: a.usage, known: a.known, err: a.err}
	before = rest
	for _, w := range a.words {
		if w == "/" {
			rest = &args{command: a.command, usage: a.usage}
			sets = append(sets, rest)
		} else {
			rest.words = append(rest.words, w)
		}
	}
	a.words = nil
	return before, sets
}

// podSet reads a pod set: NAME [xCOUNT] and the requests of all its pods together.
func (a *args) podSet() state.PodSet {
	ps := state.PodSet{Name: a.name("the name of a pod set"), Count: int32(a.times(maxPods)), Constraints: &workload.Constraints{}}
	ps.MinCount = int32(a.number("min", 0, 1, int64(ps.Count)))
	ps.Group = a.nameOf("group", "")
	ps.Shape = a.shape()
	a.places(&ps)
	c := ps.Constraints
	c.Selector = a.labels(a.pairs("selector."))
	c.Tolerations = a.tolerations()
	for _, text := range a.values("affinity") {
		key, value := a.keyValue("affinity", text, true)
		c.Affinity = append(c.Affinity, workload.Term{{Key: key, Op: workload.In, Values: []string{value}}})
	}
	for _, r := range a.pairs("") {
		a.checkName(r[0], "/")
		switch misplaced := []string{"queue", "namespace", "prio", "at", "owner", "replaces", "gate", "problem", "rest", "ready", "min-run", "limit"}; {
		case slices.Contains(misplaced, r[0]):
			a.fail("%s= belongs before the pod sets, and there only once", r[0])
		case slices.Contains([]string{"required", "preferred", "group", "min"}, r[0]):
			a.fail("%s is there twice", quote(r[0]))
		case r[0] == "unconstrained", r[0] == "elastic":
			a.fail("%s takes no value", quote(r[0]))
		}
		ps.Requests = append(ps.Requests, state.Request{Resource: r[0], Amount: a.amount(r[0], r[1])})
	}
	slices.SortFunc(ps.Requests, func(x, y state.Request) int { return strings.Compare(x.Resource, y.Resource) })
	for i := range len(ps.Requests) - 1 {
		if ps.Requests[i].Resource == ps.Requests[i+1].Resource {
			a.fail("%s is there twice", quote(ps.Requests[i].Resource))
		}
	}
	ps.PerPod = perPod(&ps)
	return ps
}

// shape is the same for pod sets with the same constraints, in whatever order.
func (a *args) shape() string {
	var words []string
	for _, w := range a.words {
		if strings.HasPrefix(w, "selector.") || strings.HasPrefix(w, "tolerate=") || strings.HasPrefix(w, "affinity=") {
			words = append(words, w)
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// workload removes the name of a workload and returns it.
func (p *player) workload(a *args) *state.Workload { return p.find(a, a.word("NAME")) }

// find returns the workload of a name, and fails if there is none.
func (p *player) find(a *args, name string) *state.Workload {
	def := p.workloads[name]
	if def != nil || a.err != nil {
		return def
	}
	known := sortedKeys(p.workloads)
	if near := nearest(name, known[:min(len(known), maxWords)]); near != "" {
		a.fail("there is no workload %s; did you mean %q?", quote(name), near)
	}
	a.fail("there is no workload %s", quote(name))
	return nil
}

// edit writes a new version of a workload. Stale: an old one arrives late.
func (p *player) edit(a *args) string {
	def := p.workload(a)
	if a.flag("stale") {
		if a.done() {
			old := *def
			old.Version, old.Queueable = 0, false
			p.s.Apply(state.SetWorkload(old))
		}
		return ""
	}
	if a.err != nil {
		return ""
	}
	next := *def
	if len(a.words) > 0 {
		next.Generation++
	}
	before, sets := a.split()
	next.Gated = oneOf(before, "gate", next.Gated, map[string]bool{"open": false, "closed": true})
	yes := map[string]bool{"yes": true, "no": false}
	next.Resting = oneOf(before, "rest", next.Resting, yes)
	next.Ready = oneOf(before, "ready", next.Ready, yes)
	p.change(&next, before, sets)
	before.done()
	a.err = before.err
	if a.done() {
		*def = next
		p.set(def)
	}
	return ""
}

// reserve makes a workload with a reservation of another controller.
func (p *player) reserve(a *args) string {
	name := a.name("NAME")
	def := state.Workload{
		Namespace: "default", Queueable: true, LocalQueue: a.nameOf("queue", ""), Priority: a.number("prio", 0, math.MinInt64, math.MaxInt64),
		Created: p.at(a, "at"), ReservedAt: p.at(a, "since"), Owner: a.nameOf("owner", ""), Reserved: true, Admitted: !a.flag("pending"),
	}
	def.Since, def.Queue, def.MinRun = def.Created, def.LocalQueue, seconds(a.number("min-run", 0, 0, maxSecond))
	def.Bound = seconds(a.number("limit", 0, 0, maxSecond))
	ps := state.PodSet{Name: "main", Count: 1}
	var frs []string
	for _, c := range a.cells(false) {
		if slices.ContainsFunc(ps.Requests, func(r state.Request) bool { return r.Resource == c.Resource }) {
			a.fail("%s is of two flavors; pods get a resource of one", c.Resource)
		}
		def.Held = append(def.Held, state.Held{PodSet: ps.Name, Flavor: c.flavor, Resource: c.Resource, Amount: c.Nominal})
		ps.Requests = append(ps.Requests, state.Request{Resource: c.Resource, Amount: c.Nominal})
		frs = append(frs, c.flavor+"/"+c.Resource)
	}
	slices.SortFunc(ps.Requests, func(x, y state.Request) int { return strings.Compare(x.Resource, y.Resource) })
	ps.PerPod = perPod(&ps)
	def.PodSets = []state.PodSet{ps}
	switch {
	case def.Queue == "":
		a.fail("queue= is missing; usage: %s", a.usage)
	case len(def.Held) == 0:
		a.fail("%s holds nothing; write FLAVOR/RESOURCE=AMOUNT", name)
	}
	p.spread(a, nil, frs)
	p.add(a, def, []string{name})
	return ""
}

// finish finishes a workload, which releases its quota.
func (p *player) finish(a *args) string {
	def := p.workload(a)
	if def != nil && !def.Queueable {
		a.fail("%s is finished already", def.Name)
	}
	if a.done() {
		p.end(def)
	}
	return ""
}

func (p *player) end(def *state.Workload) {
	def.Queueable = false
	def.Release()
	p.set(def)
}

// evict starts an eviction by another controller.
func (p *player) evict(a *args) string {
	def := p.workload(a)
	if def != nil && !def.Reserved {
		a.fail("%s holds nothing", def.Name)
	}
	if a.done() {
		def.Evicting = true
		p.set(def)
	}
	return ""
}

// evicted ends an eviction: the workload's owner reports that it has stopped.
func (p *player) evicted(a *args) string {
	def := p.workload(a)
	if def != nil && !def.Evicting {
		a.fail("%s was not told to go", def.Name)
	}
	if a.done() {
		def.Release()
		p.set(def)
	}
	return ""
}
