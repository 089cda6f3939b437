package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// The machine's worlds with topologies: nodes in racks, flavors over them, and workloads with requests for places.

const rack = "rack"

// drawPlaces draws whether a world has topologies, and its gates.
func (m *machine) drawPlaces(t *rapid.T) {
	m.nodes, m.foreign = map[string]SetNode{}, map[string]SetForeign{}
	if m.places = rapid.IntRange(0, 3).Draw(t, "topologies") == 3; !m.places {
		return
	}
	gates := topology.DefaultGates()
	gates.Mixed = rapid.IntRange(0, 4).Draw(t, "best fit") < 4
	gates.Overlapping = rapid.IntRange(0, 4).Draw(t, "nodes of one flavor each") < 4
	gates.Shapes = rapid.SampledFrom([]int{96, 2}).Draw(t, "shapes")
	m.options.Topology = &gates
}

// levels draws the topology of a flavor.
func (m *machine) levels(t *rapid.T, f flavor.Flavor) flavor.Flavor {
	if !m.places {
		return f
	}
	all := [][]string{{rack, topology.Hostname}, {rack, topology.Hostname}, {rack}, {topology.Hostname}, nil}
	if f.Levels = rapid.SampledFrom(all).Draw(t, "levels"); f.Levels == nil && rapid.IntRange(0, 3).Draw(t, "none or missing") > 0 {
		return f
	}
	f.Topology = f.Name
	if f.Name == "f1" && rapid.Bool().Draw(t, "pool") {
		f.Labels = map[string]string{"pool": "p1"}
	}
	return f
}

// requestPlaces draws the request for places of pod sets, whose requests are of all pods together.
func (m *machine) requestPlaces(t *rapid.T, podSets []PodSet) {
	host := topology.Hostname
	requests := []*workload.Topology{
		nil,
		{Required: rack},
		{},
		{Required: host},
		{Preferred: rack},
		{Preferred: host},
		{Required: rack, Slices: []workload.SliceLayer{{Level: host, Size: 2}}},
		{Slices: []workload.SliceLayer{{Level: rack, Size: 2}}},
		{Slices: []workload.SliceLayer{{Level: rack, Size: 4}, {Level: host, Size: 2}}},
		{Required: "zone"},
	}
	elastic := rapid.IntRange(0, 2).Draw(t, "elastic") == 2
	for i := range podSets {
		ps := &podSets[i]
		ps.Elastic = elastic
		if ps.Topology = rapid.SampledFrom(requests).Draw(t, "places"); i > 0 && rapid.IntRange(0, 2).Draw(t, "group") == 2 {
			podSets[0].Group, ps.Group = "g", "g"
			podSets[0].Topology = ps.Topology
		}
	}
	for i := range podSets {
		ps := &podSets[i]
		ps.PerPod = []Request{{"pods", 1}}
		for _, r := range ps.Requests {
			ps.PerPod = append(ps.PerPod, Request{r.Resource, r.Amount / resource.Amount(ps.Count)})
		}
	}
}

// editNode adds a node, or changes one: its domain, its state, and its capacity.
func (m *machine) editNode(t *rapid.T) {
	if !m.places {
		t.Skip("no topologies")
	}
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "node")
	n, known := m.nodes[name]
	change := rapid.IntRange(0, 3).Draw(t, "change")
	if !known || change == 0 {
		labels := map[string]string{
			topology.Hostname: name, rack: rapid.SampledFrom([]string{"r0", "r1"}).Draw(t, "rack"), "pool": rapid.SampledFrom([]string{"p1", "p0"}).Draw(t, "pool"),
		}
		if rapid.IntRange(0, 5).Draw(t, "unlabeled") == 5 {
			delete(labels, rack)
		}
		n = SetNode{Name: name, Labels: labels, Ready: true, Schedulable: true}
	}
	if !known || change == 1 {
		n.Allocatable = nil
		for _, name := range []string{"cpu", "gpu", "pods"} {
			n.Allocatable = append(n.Allocatable, Request{name, resource.Amount(rapid.SampledFrom([]int64{4, 3, 6, 2, 9, 1, 0}).Draw(t, name))})
		}
	}
	switch change {
	case 2:
		n.Ready = !n.Ready
	case 3:
		n.Schedulable = !n.Schedulable
	}
	m.nodes[name] = n
	m.s.Apply(n)
}

func (m *machine) deleteNode(t *rapid.T) {
	name, _ := pick(t, "node", m.nodes, any1)
	m.rarely(t)
	delete(m.nodes, name)
	m.s.Apply(DeleteNode(name))
}

func (m *machine) setForeign(t *rapid.T) {
	name, _ := pick(t, "node", m.nodes, any1)
	f := SetForeign{Node: name}
	for _, name := range []string{"gpu", "pods"} {
		if n := rapid.SampledFrom([]int64{0, 1, 2}).Draw(t, name); n > 0 {
			f.Used = append(f.Used, Request{name, resource.Amount(n)})
		}
	}
	m.foreign[name] = f
	m.s.Apply(f)
}

// placedOutside draws places of a reservation that another controller wrote, of known and unknown nodes.
func (m *machine) placedOutside(t *rapid.T, def *Workload) {
	if !m.places || rapid.Bool().Draw(t, "without places") {
		return
	}
	p := PodSetPlacement{"p0", trace.Placement{Flavor: "f0", Levels: []string{topology.Hostname}}}
	for _, name := range []string{"a", "b", "e"} {
		if n := rapid.Int32Range(0, 1).Draw(t, name); n > 0 {
			p.Domains = append(p.Domains, trace.Domain{Values: []string{name}, Count: n})
		}
	}
	def.Placed = []PodSetPlacement{p}
}

// rebuildPlaces are the calls that make the nodes of a state.
func (m *machine) rebuildPlaces(add func(func(*State))) {
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		add(func(s *State) { s.Apply(m.nodes[name]) })
	}
	for _, name := range slices.Sorted(maps.Keys(m.foreign)) {
		add(func(s *State) { s.Apply(m.foreign[name]) })
	}
}

// amounts are what is used or free, by resource.
type amounts map[string]resource.Amount

// leafUse is the usage of every leaf, from scratch: of the pods that each reservation places, less what a slice holds already that it is to
// replace. A leaf of a hostname counts for all flavors, unless the gate is off. It is ambiguous where several slices are to replace one.
func (m *machine) leafUse() (use map[string]amounts, ambiguous bool) {
	use = map[string]amounts{}
	for _, name := range slices.Sorted(maps.Keys(m.s.queues)) {
		for wl := range m.s.queues[name].q.Holders().All() {
			o := m.objects[wl.UID]
			own := m.placesOf(o)
			for _, before := range m.objects { //berth:unordered at most one, else ambiguous
				switch {
				case !m.follows(o, before) || m.counted(o).Admitted:
				case m.rivals(o, before) > 1:
					ambiguous = true
				default:
					for key, held := range m.placesOf(before) { //berth:unordered each key by itself
						for r, n := range held { //berth:unordered each by itself
							if has, ok := own[key][r]; ok {
								own[key][r] = max(0, has-n)
							}
						}
					}
				}
			}
			for key, held := range own { //berth:unordered sums
				if use[key] == nil {
					use[key] = amounts{}
				}
				for r, n := range held { //berth:unordered sums
					use[key][r] += n
				}
			}
		}
	}
	return use, ambiguous
}

// rivals returns how many slices are to replace another one, or to be replaced, beside the pair.
func (m *machine) rivals(o, before *object) (n int) {
	for _, r := range m.objects { //berth:unordered a count
		if m.follows(r, before) || m.follows(before, r) || m.follows(r, o) {
			n++
		}
	}
	return n
}

// placesOf returns what the reservation of a workload has of each leaf.
func (m *machine) placesOf(o *object) map[string]amounts {
	use, r := map[string]amounts{}, m.s.records[o.def.UID]
	placed := r.def.Placed
	if r.assumed() {
		placed = nil
		for _, ps := range r.got.PodSets {
			if ps.Placement != nil {
				placed = append(placed, PodSetPlacement{ps.Name, *ps.Placement})
			}
		}
	}
	podSets := o.def.PodSets
	for _, p := range placed {
		at := slices.IndexFunc(podSets, func(ps PodSet) bool { return ps.Name == p.PodSet })
		for _, d := range p.Domains {
			if at >= 0 {
				m.use(use, m.leafKey(p.Flavor, p.Levels, d.Values), podSets[at].PerPod, d.Count)
			}
		}
	}
	return use
}

func (m *machine) use(use map[string]amounts, key string, perPod []Request, pods int32) {
	if use[key] == nil {
		use[key] = amounts{}
	}
	for _, r := range perPod {
		use[key][r.Resource] += r.Amount * resource.Amount(pods)
	}
}

func (m *machine) leafKey(flavor string, levels, values []string) string {
	if levels[len(levels)-1] != topology.Hostname {
		return flavor + ":" + strings.Join(values, "/")
	}
	if m.options.Topology.Overlapping {
		flavor = ""
	}
	return flavor + "@" + values[len(values)-1]
}

// pathIn returns the values of a node at all levels of a flavor, fewer where it lacks one.
func pathIn(f flavor.Flavor, n SetNode) (path []string) {
	for _, level := range f.Levels {
		if v, ok := n.Labels[level]; ok {
			path = append(path, v)
		}
	}
	return path
}

// leafCapacity is the allocatable of the nodes of a leaf, from scratch, without the usage of foreign pods.
func (m *machine) leafCapacity(f flavor.Flavor, values []string) (nodes int, sum amounts) {
	sum = amounts{}
	for _, n := range m.nodes { //berth:unordered a sum
		path := pathIn(f, n)
		if !slices.Equal(path, values) || !n.Ready || !n.Schedulable || (f.Labels["pool"] != "" && n.Labels["pool"] != f.Labels["pool"]) {
			continue
		}
		nodes++
		for _, r := range n.Allocatable {
			sum[r.Resource] += r.Amount
		}
		for _, r := range m.foreign[n.Name].Used {
			if slices.ContainsFunc(n.Allocatable, func(a Request) bool { return a.Resource == r.Resource }) {
				sum[r.Resource] -= r.Amount
			}
		}
	}
	return nodes, sum
}

// checkPlaces: the nodes have the capacity and the usage that they have from scratch.
func (m *machine) checkPlaces(t *rapid.T, s *State) {
	if !m.places {
		return
	}
	use, ambiguous := m.leafUse()
	for _, name := range slices.Sorted(maps.Keys(m.flavors)) {
		f := m.flavors[name]
		eachLeaf(s, name, func(leaf *topology.Leaf, held, taken amounts) {
			if leaf.Nodes == 0 {
				return
			}
			nodes, capacity := m.leafCapacity(f, leaf.Path)
			if nodes != leaf.Nodes {
				t.Fatalf("leaf %v of %s has %d nodes, not %d", leaf.Path, name, leaf.Nodes, nodes)
			}
			if diff := gocmp.Diff(capacity, held, nonZero); diff != "" {
				t.Fatalf("leaf %v of %s, capacity (-scratch +state):\n%s", leaf.Path, name, diff)
			}
			used := use[m.leafKey(name, f.Levels, leaf.Path)]
			if diff := gocmp.Diff(used, taken, nonZero); diff != "" && !ambiguous {
				t.Fatalf("leaf %v of %s, usage (-scratch +state):\n%s\n%s", leaf.Path, name, diff, s.Dump())
			}
		})
	}
}

// nonZero compares amounts without the zeros.
var nonZero = gocmp.Transformer("nonZero", func(a amounts) map[string]int64 {
	out := map[string]int64{}
	for r, n := range a { //berth:unordered a copy
		if n != 0 {
			out[r] = int64(n)
		}
	}
	return out
})

// eachLeaf visits the leaves of a flavor with their capacity and their usage.
func eachLeaf(s *State, flavor string, visit func(leaf *topology.Leaf, capacity, used amounts)) {
	var all []resource.ID
	for id := range s.world.Table.IDs() {
		all = append(all, resource.ID(id))
	}
	s.places.Leaves(flavor, all, func(leaf *topology.Leaf) {
		capacity, used := amounts{}, amounts{}
		for i, id := range all {
			capacity[s.world.Table.Name(id)], used[s.world.Table.Name(id)] = leaf.Capacity[i], leaf.Used[i]
		}
		visit(leaf, capacity, used)
	})
}

// checkPlaced: an admission has places exactly for the pods that need them, in one domain of the required level, and on nodes that
// count, with slices whole.
func (m *machine) checkPlaced(t *rapid.T, d *cycle.Decision) {
	if !m.places {
		return
	}
	one := map[string]string{} // the required domain, by placement group
	podSets := m.objects[d.Workload.UID].def.PodSets
	for i, ps := range d.Attempt.PodSets {
		def := podSets[i]
		if def.Topology == nil && slices.Contains(m.editedBetween, d.Queue) {
			continue
		}
		if (def.Topology != nil || m.implied(d.Queue)) != (ps.Placement != nil) {
			t.Fatalf("pod set %s, which requests places %v, is placed on %v:\n%s", ps.Name, def.Topology, ps.Placement, d.Attempt)
		}
		if ps.Placement == nil || def.Topology == nil {
			continue
		}
		pods, in := m.domains(t, ps.Placement)
		if level := def.Topology.Required; level != "" {
			where := one[cmp.Or(def.Group, def.Name)]
			for name := range in[level] { //berth:unordered one is allowed
				if where != "" && where != name {
					t.Fatalf("%s requires one %s, and is placed on %v", ps.Name, level, d.Attempt)
				}
				where = name
			}
			one[cmp.Or(def.Group, def.Name)] = where
		}
		if m.checkKept(t, d, &ps, def.Elastic); def.Group != "" || (def.Elastic && d.Replaced != nil) {
			continue // only workers have slices, and only pods that are placed now
		}
		want := ps.Count
		for n, layer := range def.Topology.Slices {
			if n == 0 {
				want -= want % layer.Size
			}
			for name, pods := range in[layer.Level] { //berth:unordered all are checked
				if pods%layer.Size != 0 {
					t.Fatalf("%s has %d pods in %s, in slices of %d", ps.Name, pods, name, layer.Size)
				}
			}
		}
		if pods != want {
			t.Fatalf("%d of %d pods of %s have places: %v", pods, want, ps.Name, ps.Placement)
		}
	}
}

// checkKept: an elastic job keeps the places of the slice that it replaces, unless one of them is gone, as far as it has pods.
func (m *machine) checkKept(t *rapid.T, d *cycle.Decision, ps *trace.PodSet, elastic bool) {
	if !elastic || d.Replaced == nil {
		return
	}
	old := m.s.records[d.Replaced.UID].placed(ps.Name)
	if pods, _ := m.domains(t, ps.Placement); pods > ps.Count {
		t.Fatalf("%d pods of %s have places, of %d", pods, ps.Name, ps.Count)
	}
	def := m.objects[d.Workload.UID].def
	group := slices.ContainsFunc(def.PodSets, func(o PodSet) bool { return o.Group != "" })
	if old == nil || group || old.Flavor != ps.Placement.Flavor || !slices.Equal(old.Levels, ps.Placement.Levels) || !m.allCount(old) {
		return
	}
	at := slices.IndexFunc(def.PodSets, func(o PodSet) bool { return o.Name == ps.Name })
	left := ps.Count
	if layers := def.PodSets[at].Topology.Slices; len(layers) > 0 {
		left -= left % layers[0].Size
	}
	for _, was := range old.Domains {
		keeps := min(was.Count, left)
		left -= keeps
		now := slices.IndexFunc(ps.Placement.Domains, func(o trace.Domain) bool { return slices.Equal(o.Values, was.Values) })
		if keeps > 0 && (now < 0 || ps.Placement.Domains[now].Count < keeps) {
			t.Fatalf("%s was on %v, and goes to %v", ps.Name, old, ps.Placement)
		}
	}
}

// allCount reports whether all domains of a placement have nodes that count.
func (m *machine) allCount(p *trace.Placement) bool {
	f := m.flavors[p.Flavor]
	for _, d := range p.Domains {
		found := false
		for _, n := range m.nodes { //berth:unordered any
			path := pathIn(f, n)
			found = found || (len(path) == len(f.Levels) && slices.Equal(path[len(path)-len(d.Values):], d.Values) && n.Ready && n.Schedulable &&
				(f.Labels["pool"] == "" || n.Labels["pool"] == f.Labels["pool"]))
		}
		if !found {
			return false
		}
	}
	return true
}

// implied reports whether all flavors of a queue have a topology.
func (m *machine) implied(queue string) bool {
	for _, g := range m.queues[queue].Groups {
		for _, f := range g.Flavors {
			if m.flavors[f.Flavor].Topology == "" {
				return false
			}
		}
	}
	return true
}

// domains returns how many pods a placement has, in all and by level and domain.
func (m *machine) domains(t *rapid.T, p *trace.Placement) (pods int32, in map[string]map[string]int32) {
	in = map[string]map[string]int32{}
	f := m.flavors[p.Flavor]
	for _, d := range p.Domains {
		pods += d.Count
		path := m.pathOf(t, f, d.Values)
		for l, level := range f.Levels {
			if in[level] == nil {
				in[level] = map[string]int32{}
			}
			in[level][strings.Join(path[:l+1], "/")] += d.Count
		}
	}
	return pods, in
}

// pathOf returns the values of all levels of a domain of a placement, whose nodes have to count.
func (m *machine) pathOf(t *rapid.T, f flavor.Flavor, values []string) []string {
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		path := pathIn(f, n)
		if len(path) == len(f.Levels) && slices.Equal(path[len(path)-len(values):], values) && n.Ready && n.Schedulable {
			return path
		}
	}
	t.Fatalf("flavor %s has no node in %v that counts", f.Name, values)
	return nil
}

// checkRoom: no leaf that an admission of this step uses has less than it holds.
func (m *machine) checkRoom(t *rapid.T, decisions []cycle.Decision) {
	if !m.places {
		return
	}
	use, ambiguous := m.leafUse()
	for _, d := range decisions {
		if d.Admitted == nil || ambiguous || d.Replaced != nil || m.s.records[d.Workload.UID].in == nil {
			continue // a slice keeps its places, also where too much is on a node
		}
		for i, ps := range d.Attempt.PodSets {
			if ps.Placement == nil {
				continue
			}
			f := m.flavors[ps.Placement.Flavor]
			for _, dom := range ps.Placement.Domains {
				path := m.pathOf(t, f, dom.Values)
				_, capacity := m.leafCapacity(f, path)
				used := use[m.leafKey(f.Name, f.Levels, path)]
				for _, r := range m.objects[d.Workload.UID].def.PodSets[i].PerPod {
					if r.Amount > 0 && used[r.Resource] > capacity[r.Resource] {
						t.Fatalf("%s is placed on %v, which holds %d %s of %d", d.Workload.Key, path, used[r.Resource], r.Resource, capacity[r.Resource])
					}
				}
			}
		}
	}
}

// checkAwake: no workload is inadmissible that an evaluation would admit, but behind an active head that comes first.
func (m *machine) checkAwake(t *rapid.T) {
	if !m.places {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m.s.queues)) {
		q := m.s.queues[name].q
		if q.Closed != "" {
			continue
		}
		if m.backfill {
			continue // see checkNothingMissed
		}
		for _, wl := range q.Pending.All() {
			wants := q.Pending.WantsOf(wl)
			if wants == nil || slices.ContainsFunc(wants, func(w workload.Want) bool { return slices.Contains(q.Pending.Released(), w.FR) }) {
				continue
			}
			attempt := m.s.world.Explain(wl)
			if attempt.Reason != trace.WaitingForQuota || len(attempt.PodSets) == 0 || !fits(attempt) {
				continue
			}
			if (m.options.FungibilityOff || inPart(attempt, m.s.records[wl.UID])) && m.anotherFirst(attempt) {
				continue // see checkNothingMissed
			}
			t.Fatalf("%s would be admitted, and waits:\n%s\nwants %v\n%s", wl.Key, attempt, wants, m.s.Dump())
		}
	}
}

// fits reports whether a record is of an assignment without preemption.
func fits(attempt *trace.Attempt) bool {
	for _, ps := range attempt.PodSets {
		for _, c := range ps.Resources {
			if c.Mode != flavor.Fit {
				return false
			}
		}
	}
	return true
}
