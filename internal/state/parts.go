package state

import (
	"slices"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/trace"
)

// Parts divides a complete checkpoint, and a change of its State, into parts of cohort trees that decide independently of each other: of
// least workloads or more each, if there are as many. The events of the change that concern a part are its Change. A fork of a part is small:
// its data stay in the processor's cache, and a step takes half the time.
//
// A fork of a part decides about its workloads as a fork of the whole, but for one difference: where a head lost its flavor to another one and
// its search is to go on with the next flavor, it also does so if only other trees had a cycle in between.
//
// Together are trees that share nodes or namespaces of slices and variants. The whole is one part where all trees depend on each other, or
// if the change may concern all.
func (c *Checkpoint) Parts(least int, change []Event) []*Checkpoint {
	copied := *c
	copied.change, copied.ground = change, new(c.nodesMemory())
	whole := []*Checkpoint{&copied}
	if c.options.BlockAdmission || c.options.Sharing != nil || len(c.usage.Accounts) > 0 || c.number < 2*least {
		return whole
	}
	d := &division{of: c, number: map[subject]int32{}, byUID: map[string][]subject{}}
	events, divides := d.joinChange(change)
	if !divides {
		return whole
	}
	d.joinDefinitions()
	for queue, uid := range c.world.Victims() {
		d.byUID[uid] = append(d.byUID[uid], queueNamed(queue))
	}
	d.set(subject{kind: theNodes})
	d.lines = c.byLocalQueue()
	d.joinWorkloads()
	parts := d.divide(least)
	if len(parts) == 1 {
		return whole
	}
	for i, e := range change {
		p := parts[d.part(events[i])]
		p.change = append(p.change, e)
	}
	return parts
}

// Change returns the events of a change that concern a part, in their order. They are not applied to its forks.
func (c *Checkpoint) Change() []Event { return c.change }

// subject is a thing that a part has whole.
type subject struct {
	kind int8
	Name
}

// The kinds of subjects.
const (
	aQueue int8 = iota
	aCohort
	aLocalQueue
	aNamespace // whose slices and variants may be of several LocalQueues
	aUID       // of a workload in a change
	theNodes
)

func queueNamed(name string) subject    { return subject{aQueue, Name{Name: name}} }
func cohortNamed(name string) subject   { return subject{aCohort, Name{Name: name}} }
func localQueueNamed(name Name) subject { return subject{aLocalQueue, name} }

// division finds which subjects depend on each other: a forest of disjoint sets.
type division struct {
	of     *Checkpoint
	lines  [][]*workloadCheckpoint // by LocalQueue
	byUID  map[string][]subject    // that depend on a workload
	number map[subject]int32
	above  []int32 // by number: another one of its set, or itself
	parts  []int32 // by number of the first of a set, which is the lowest one
}

// set returns the first number of the set of a subject, which it adds.
func (d *division) set(x subject) int32 {
	n, known := d.number[x]
	if !known {
		n = int32(len(d.above))
		d.number[x], d.above = n, append(d.above, n)
	}
	for d.above[n] != n {
		d.above[n] = d.above[d.above[n]]
		n = d.above[n]
	}
	return n
}

// join notes that two subjects depend on each other.
func (d *division) join(x, y subject) {
	a, b := d.set(x), d.set(y)
	d.above[max(a, b)] = min(a, b)
}

// part returns the number of the part of a subject.
func (d *division) part(x subject) int32 { return d.parts[d.set(x)] }

// joinDefinitions joins the queues of each tree with their LocalQueues, and trees that share nodes.
func (d *division) joinDefinitions() {
	placed := map[string]bool{} // the flavors with a topology
	for f := range d.of.defined.flavors.all() {
		placed[f.Name] = d.of.options.Topology != nil && f.HasTopology()
	}
	for q := range d.of.defined.queues.all() {
		d.joinQueue(q.def, func(f *FlavorQuota) bool { return placed[f.Flavor] })
	}
	for c := range d.of.defined.cohorts.all() {
		d.joinCohort(c)
	}
	for l := range d.of.defined.localQueues.all() {
		d.join(localQueueNamed(l.key()), queueNamed(l.Queue))
	}
}

func (d *division) joinQueue(q *Queue, placed func(*FlavorQuota) bool) {
	d.set(queueNamed(q.Name))
	if q.Cohort != "" {
		d.join(queueNamed(q.Name), cohortNamed(q.Cohort))
	}
	for _, g := range q.Groups {
		for i := range g.Flavors {
			if placed(&g.Flavors[i]) {
				d.join(queueNamed(q.Name), subject{kind: theNodes})
			}
		}
	}
}

func (d *division) joinCohort(c *Cohort) {
	d.set(cohortNamed(c.Name))
	if c.Parent != "" {
		d.join(cohortNamed(c.Name), cohortNamed(c.Parent))
	}
}

// joinWorkloads joins the LocalQueues of workloads with all that the workloads depend on.
func (d *division) joinWorkloads() {
	for _, line := range d.lines {
		in := localQueueNamed(*line[0].def.localQueue)
		d.set(in)
		for _, w := range line {
			if len(d.byUID) > 0 {
				for _, x := range d.byUID[w.def.r.uid()] {
					d.join(in, x)
				}
			}
			if w.rare != nil {
				d.joinRare(in, w.rare)
			}
			if def := w.def.rare; def != &nothing && def != &divisible {
				d.joinDefinition(in, def.Queue, def.Replaces != "" || def.VariantOf != "", len(def.Placed)+len(def.Delayed)+len(def.Unhealthy) > 0 || def.PlaceNow)
			}
		}
	}
	related := map[string]bool{} // namespaces with slices or variants
	for x := range d.number {    //berth:unordered a set
		related[x.Namespace] = related[x.Namespace] || x.kind == aNamespace
	}
	for _, line := range d.lines {
		if in := *line[0].def.localQueue; related[in.Namespace] {
			d.join(localQueueNamed(in), subject{aNamespace, Name{Namespace: in.Namespace}})
		}
	}
}

func (d *division) joinRare(in subject, r *rareCheckpoint) {
	if name := d.of.world.QueueName(r.queue); name != "" {
		d.join(in, queueNamed(name))
	}
	if r.assumed != nil && slices.ContainsFunc(r.assumed.PodSets, func(ps trace.PodSet) bool { return ps.Placement != nil || ps.Delayed }) {
		d.join(in, subject{kind: theNodes})
	}
}

// joinDefinition joins a LocalQueue with the queue in which a workload of it holds quota, "" for none, with its namespace if the workload is
// a slice or a variant, and with the nodes if it has places or waits for some.
func (d *division) joinDefinition(in subject, queue string, related, placed bool) {
	if queue != "" {
		d.join(in, queueNamed(queue))
	}
	if related {
		d.join(in, subject{aNamespace, Name{Namespace: in.Namespace}})
	}
	if placed {
		d.join(in, subject{kind: theNodes})
	}
}

// joinChange joins what the events of a change concern, and returns a subject of each; false if one of them may concern all parts.
func (d *division) joinChange(change []Event) (of []subject, divides bool) {
	for _, e := range change {
		var x subject
		switch e := e.(type) {
		case SetQueue:
			x = queueNamed(e.Name)
			d.joinQueue((*Queue)(&e), d.isPlaced)
		case DeleteQueue:
			x = queueNamed(string(e))
		case SetCohort:
			x = cohortNamed(e.Name)
			d.joinCohort((*Cohort)(&e))
		case DeleteCohort:
			x = cohortNamed(string(e))
		case SetNode, DeleteNode, SetForeign:
			x = subject{kind: theNodes}
		case SetWorkload:
			x = d.joinChanged((*Workload)(&e))
		case DeleteWorkload:
			x = subject{aUID, Name{Name: string(e)}}
			d.byUID[string(e)] = append(d.byUID[string(e)], x)
		default:
			return nil, false
		}
		d.set(x)
		of = append(of, x)
	}
	return of, true
}

// isPlaced reports whether a flavor has a topology.
func (d *division) isPlaced(f *FlavorQuota) bool {
	def, _, exists := d.of.defined.flavors.find(func(o *flavor.Flavor) int { return compareFlavors(o, &flavor.Flavor{Name: f.Flavor}) })
	return exists && d.of.options.Topology != nil && def.HasTopology()
}

// joinChanged joins a workload of a change with its LocalQueues before and after, and with all that it depends on.
func (d *division) joinChanged(def *Workload) subject {
	x, in := subject{aUID, Name{Name: def.UID}}, localQueueNamed(Name{def.Namespace, def.LocalQueue})
	d.byUID[def.UID] = append(d.byUID[def.UID], x)
	d.join(x, in)
	d.joinDefinition(in, def.Queue, def.Replaces != "" || def.VariantOf != "", len(def.Placed)+len(def.Delayed)+len(def.Unhealthy) > 0 || def.PlaceNow)
	return x
}

// divide makes the parts: of sets in the order of their first subjects, of least workloads or more each.
func (d *division) divide(least int) []*Checkpoint {
	workloads := make([]int, len(d.above))
	for _, line := range d.lines {
		workloads[d.set(localQueueNamed(*line[0].def.localQueue))] += len(line)
	}
	d.parts = make([]int32, len(d.above))
	var sizes []int
	for n := range d.above {
		if int(d.above[n]) != n {
			continue
		}
		if last := len(sizes) - 1; last < 0 || sizes[last] >= least && workloads[n] > 0 {
			sizes = append(sizes, 0)
		}
		sizes[len(sizes)-1] += workloads[n]
		d.parts[n] = int32(len(sizes) - 1)
	}
	parts := make([]*Checkpoint, len(sizes))
	worlds := d.of.world.Divide(len(parts), func(queue string) int { return int(d.part(queueNamed(queue))) })
	for i := range parts {
		c := *d.of
		c.workloads, c.lines, c.world, c.number = nil, [][]*workloadCheckpoint{}, worlds[i], sizes[i]
		c.shapes, c.classes = c.shapes*sizes[i]/d.of.number, c.classes*sizes[i]/d.of.number
		if int32(i) != d.part(subject{kind: theNodes}) {
			c.nodes.All, c.nodes.Foreign, c.second = nil, nil, nil
		}
		c.ground = new(c.nodesMemory())
		parts[i] = &c
	}
	d.divideDefinitions(parts)
	for _, line := range d.lines {
		p := parts[d.part(localQueueNamed(*line[0].def.localQueue))]
		p.lines = append(p.lines, line)
	}
	return parts
}

// divideDefinitions gives each part its definitions.
func (d *division) divideDefinitions(parts []*Checkpoint) {
	queues, cohorts, localQueues := make([][]*definedQueue, len(parts)), make([][]*Cohort, len(parts)), make([][]*LocalQueue, len(parts))
	of := map[string][]int32{} // the parts that have something in a namespace
	for x := range d.number {  //berth:unordered a set
		if p := d.part(x); x.kind == aLocalQueue && !slices.Contains(of[x.Namespace], p) {
			of[x.Namespace] = append(of[x.Namespace], p)
		}
	}
	for q := range d.of.defined.queues.all() {
		p := d.part(queueNamed(q.def.Name))
		queues[p] = append(queues[p], q)
	}
	for c := range d.of.defined.cohorts.all() {
		p := d.part(cohortNamed(c.Name))
		cohorts[p] = append(cohorts[p], c)
	}
	for l := range d.of.defined.localQueues.all() {
		p := d.part(localQueueNamed(l.key()))
		localQueues[p] = append(localQueues[p], l)
	}
	namespaces := make([][]*Namespace, len(parts))
	for n := range d.of.defined.namespaces.all() {
		for _, p := range of[n.Name] {
			namespaces[p] = append(namespaces[p], n)
		}
	}
	for i := range parts {
		parts[i].defined = catalog{sortedOf(namespaces[i]), d.of.defined.flavors, sortedOf(cohorts[i]), sortedOf(queues[i]), sortedOf(localQueues[i])}
	}
}
