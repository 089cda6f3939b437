package topology

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// twin is placement as spec 20 §4.6 has it: everything is computed from nodes and charges each time.
type twin struct {
	gates   Gates
	nodes   map[string]Node
	foreign map[string][]workload.Request
	trees   map[string]Tree
	charges []*twinCharge
}

type twinCharge struct {
	placement *Placement
	pod       []workload.Request
}

// twinDomain is a domain with its counts.
type twinDomain struct {
	path                           []string
	parent                         *twinDomain
	kids                           []*twinDomain
	nodes                          []Node
	pods, podsWL, slices, slicesWL int64
	score                          int64
	leader                         bool
}

// twinTree is the domains of a tree by level, each level sorted by path.
type twinTree [][]*twinDomain

func (w *twin) hosts(flavor string) bool {
	levels := w.trees[flavor].Levels
	return levels[len(levels)-1] == Hostname
}

// build makes the domains of the nodes that count. Of nodes with one hostname, the first of all decides about the path.
func (w *twin) build(flavor string) twinTree {
	def := w.trees[flavor]
	byPath := map[string]*twinDomain{}
	out := make(twinTree, len(def.Levels))
	first := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[name]
		var path []string
		matches := true
		for k, v := range def.NodeLabels {
			matches = matches && n.Labels[k] == v
		}
		for _, l := range def.Levels {
			v, ok := n.Labels[l]
			path, matches = append(path, v), matches && ok
		}
		if !matches {
			continue
		}
		joined := strings.Join(path, "/")
		if w.hosts(flavor) {
			host := path[len(path)-1]
			if first[host] == "" {
				first[host] = joined
			}
			if first[host] != joined {
				continue
			}
		}
		if !n.Ready || !n.Schedulable {
			continue
		}
		var parent *twinDomain
		for l := range path {
			key := strings.Join(path[:l+1], "/") + "|"
			d, ok := byPath[key]
			if !ok {
				d = &twinDomain{path: path[:l+1], parent: parent}
				byPath[key] = d
				out[l] = append(out[l], d)
				if parent != nil {
					parent.kids = append(parent.kids, d)
				}
			}
			parent = d
		}
		parent.nodes = append(parent.nodes, n)
	}
	byValues := func(a, b *twinDomain) int { return slices.Compare(a.path, b.path) }
	for _, level := range out {
		slices.SortFunc(level, byValues)
		for _, d := range level {
			slices.SortFunc(d.kids, byValues)
		}
	}
	return out
}

// same reports whether a charge counts in a leaf.
func (w *twin) same(flavor string, path []string, p *Placement) bool {
	if p.Levels[len(p.Levels)-1] == Hostname {
		return w.hosts(flavor) && (w.gates.Overlapping || p.Flavor == flavor)
	}
	return p.Flavor == flavor && slices.Equal(p.Levels, w.trees[flavor].Levels) && len(path) > 0
}

func (w *twin) usedAt(flavor string, path []string, r resource.ID, charges []*twinCharge) (n resource.Amount) {
	for _, c := range charges {
		if !w.same(flavor, path, c.placement) {
			continue
		}
		for _, d := range c.placement.Domains {
			values := path
			if w.hosts(flavor) {
				values = path[len(path)-1:]
			}
			if slices.Equal(d.Values, values) {
				n += amountOf(c.pod, r) * resource.Amount(d.Count)
			}
		}
	}
	return n
}

func amountOf(requests []workload.Request, r resource.ID) (n resource.Amount) {
	for _, q := range requests {
		if q.Resource == r {
			n += q.Amount
		}
	}
	return n
}

// suits reports whether a node passes the filters of a pod set.
func (w *twin) suits(p *PodSet, n Node) (score int64, ok bool) {
	hosts := w.hosts(p.Flavor)
	c := p.Constraints
	if c == nil {
		c = &workload.Constraints{}
	}
	if hosts || w.gates.ExcludeUntolerated {
		for _, taint := range n.Taints {
			tolerated := !taint.Repels()
			for _, t := range c.Tolerations {
				tolerated = tolerated || t.Tolerates(taint)
			}
			if !tolerated {
				return 0, false
			}
		}
	}
	if !hosts {
		return 0, true
	}
	for k, v := range c.Selector {
		if have, has := n.Labels[k]; !has || have != v {
			return 0, false
		}
	}
	likes := len(c.Affinity) == 0
	for _, t := range c.Affinity {
		likes = likes || t.Matches(n.Labels)
	}
	if !likes {
		return 0, false
	}
	if w.gates.Affinity {
		for _, t := range p.Prefers {
			if t.Term.Matches(n.Labels) {
				score += int64(t.Weight)
			}
		}
	}
	return score, true
}

// twinAsk is a group, its levels, and the restrictions of a replacement.
type twinAsk struct {
	workers, leader *PodSet
	r, s            int
	z, needed       int64
	inner           map[int]int64
	within          []string // path of the demanded domain
	without         []string // hostnames
	least           bool
	empty           bool
	assumed         []*twinCharge
}

// fill computes all counts. spec: 20 §4.6, phase 1.
func (w *twin) fill(tree twinTree, a *twinAsk) {
	for _, d := range tree[len(tree)-1] {
		w.fillLeaf(d, a)
		a.slice(d, len(tree)-1)
	}
	for l := len(tree) - 2; l >= 0; l-- {
		for _, d := range tree[l] {
			a.fillParent(d, l)
		}
	}
}

func (w *twin) fillLeaf(d *twinDomain, a *twinAsk) {
	flavor := a.workers.Flavor
	if len(a.within) > 0 && (len(a.within) > len(d.path) || !slices.Equal(d.path[:len(a.within)], a.within)) {
		return
	}
	if slices.Contains(a.without, d.path[len(d.path)-1]) {
		return
	}
	passed := false
	free := map[resource.ID]resource.Amount{}
	for _, n := range d.nodes {
		score, ok := w.suits(a.workers, n)
		if !ok {
			continue
		}
		passed = true
		d.score += score
		for _, r := range []resource.ID{cpu, pods, gpu} {
			free[r] += amountOf(n.Allocatable, r)
			if slices.ContainsFunc(n.Allocatable, func(o workload.Request) bool { return o.Resource == r }) {
				free[r] -= amountOf(w.foreign[n.Name], r)
			}
		}
	}
	if !passed {
		return
	}
	for r := range free {
		if !a.empty {
			free[r] -= w.usedAt(flavor, d.path, r, w.charges)
		}
		free[r] -= w.usedAt(flavor, d.path, r, a.assumed)
	}
	holds := func(pod []workload.Request, less []workload.Request) int64 {
		n := int64(plenty)
		for _, q := range pod {
			if q.Amount > 0 {
				n = min(n, int64(max(0, free[q.Resource]-amountOf(less, q.Resource))/q.Amount))
			}
		}
		return n
	}
	d.pods = holds(a.workers.Requests, nil)
	d.podsWL = d.pods
	if a.leader != nil && holds(a.leader.Requests, nil) > 0 {
		d.leader = true
		d.podsWL = holds(a.workers.Requests, a.leader.Requests)
	}
}

func (a *twinAsk) slice(d *twinDomain, l int) {
	if l == a.s {
		d.slices, d.slicesWL = d.pods/a.z, d.podsWL/a.z
	}
}

func (a *twinAsk) fillParent(d *twinDomain, l int) {
	*d = twinDomain{path: d.path, parent: d.parent, kids: d.kids}
	var penalties, slicePenalties []int64
	for _, k := range d.kids {
		pods, with := k.pods, k.podsWL
		if in := a.inner[l+1]; in > 1 {
			pods, with = pods/in*in, with/in*in
		}
		d.pods += pods
		d.slices += k.slices
		d.score += k.score
		if k.leader {
			d.leader = true
			penalties = append(penalties, pods-with)
			slicePenalties = append(slicePenalties, k.slices-k.slicesWL)
		}
	}
	switch {
	case a.leader == nil:
		d.podsWL, d.slicesWL = d.pods, d.slices
	case d.leader:
		d.podsWL, d.slicesWL = d.pods-slices.Min(penalties), d.slices-slices.Min(slicePenalties)
	default:
		d.podsWL, d.slicesWL = 0, 0
	}
	a.slice(d, l)
}

// The sort orders.
func (w *twin) orderA(a *twinAsk) func(x, y *twinDomain) int {
	return func(x, y *twinDomain) int {
		up := cmp.Compare(x.slices, y.slices)
		if !a.least {
			up = -up
		}
		return cmp.Or(cmp.Compare(y.score, x.score), up, cmp.Compare(x.pods, y.pods), slices.Compare(x.path, y.path))
	}
}

func (w *twin) orderB(a *twinAsk) func(x, y *twinDomain) int {
	return func(x, y *twinDomain) int {
		up := cmp.Compare(x.slicesWL, y.slicesWL)
		if !a.least {
			up = -up
		}
		able := 0
		if a.leader != nil {
			able = cmp.Compare(one(y.leader), one(x.leader))
		}
		return cmp.Or(able, cmp.Compare(y.score, x.score), up, cmp.Compare(x.podsWL, y.podsWL), slices.Compare(x.path, y.path))
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// twinShare is what a domain is given.
type twinShare struct {
	at     *twinDomain
	n      int64
	leader bool
}

// twinFailure is a cause, and how much would fit.
type twinFailure struct {
	cause Cause
	fit   int64
}

// choose is phase 2a.
func (w *twin) choose(tree twinTree, a *twinAsk) ([]*twinDomain, *twinFailure) {
	p := a.workers
	unconstrained := p.Required == "" && p.Preferred == ""
	for l := a.r; ; l-- {
		list := slices.SortedFunc(slices.Values(tree[l]), w.orderB(a))
		fits := func(d *twinDomain) bool { return d.slicesWL >= a.needed && (a.leader == nil || d.leader) }
		var able []*twinDomain
		for _, d := range list {
			if a.leader == nil || d.leader {
				able = append(able, d)
			}
		}
		if a.least {
			if i := slices.IndexFunc(list, fits); i >= 0 {
				return list[i : i+1], nil
			}
		}
		for i := 0; !a.least && i < len(able); {
			var best *twinDomain
			tier := able[i].score
			for ; i < len(able) && able[i].score == tier; i++ {
				if fits(able[i]) && (best == nil || able[i].slicesWL < best.slicesWL) {
					best = able[i]
				}
			}
			if best != nil {
				return []*twinDomain{best}, nil
			}
			if p.Required == "" {
				break // lower tiers of affinity count for required alone
			}
		}
		switch {
		case p.Required != "":
			f := &twinFailure{}
			for _, d := range able {
				f.fit = max(f.fit, d.slicesWL)
			}
			return nil, f
		case !unconstrained && l > 0:
			continue
		}
		return w.greedy(list, a)
	}
}

// greedy is step 4 of phase 2a.
func (w *twin) greedy(list []*twinDomain, a *twinAsk) ([]*twinDomain, *twinFailure) {
	fail := &twinFailure{}
	penalty := int64(-1)
	for _, d := range list {
		fail.fit += d.slices
		if d.leader && (penalty < 0 || d.slices-d.slicesWL < penalty) {
			penalty = d.slices - d.slicesWL
		}
	}
	if a.leader != nil {
		fail.fit -= max(0, penalty)
		if penalty < 0 {
			fail.fit = 0
		}
	}
	list = frontWithLeader(list, a.needed, a.leader != nil, sliceRoom)
	left, unplaced := a.needed, a.leader != nil
	var chosen []*twinDomain
	if unplaced {
		if len(list) == 0 || !list[0].leader {
			return nil, fail
		}
		if list[0].slicesWL >= left {
			d := smallest(list, left, !a.least, func(d *twinDomain) (int64, bool) { return d.slicesWL, d.leader })
			return []*twinDomain{d}, nil
		}
		chosen, left = append(chosen, list[0]), left-list[0].slicesWL
		list = slices.SortedFunc(slices.Values(list[1:]), w.orderA(a))
	}
	for left > 0 {
		if len(list) == 0 {
			return nil, fail
		}
		d := list[0]
		if d.slices >= left {
			d = smallest(list, left, !a.least, func(d *twinDomain) (int64, bool) { return d.slices, true })
		}
		chosen, left, list = append(chosen, d), left-d.slices, list[1:]
	}
	return chosen, nil
}

// smallest returns the domain with the least sufficient room, of the affinity of the first one.
func smallest(list []*twinDomain, n int64, best bool, room func(*twinDomain) (int64, bool)) *twinDomain {
	if !best {
		return list[0]
	}
	var out *twinDomain
	size := int64(0)
	for _, d := range list {
		if r, ok := room(d); ok && r >= n && d.score == list[0].score && (out == nil || r < size) {
			out, size = d, r
		}
	}
	return out
}

func sliceRoom(d *twinDomain) (all, with int64) { return d.slices, d.slicesWL }

func frontWithLeader(list []*twinDomain, n int64, wanted bool, room func(*twinDomain) (int64, int64)) []*twinDomain {
	if !wanted {
		return list
	}
	sum := int64(0)
	for _, d := range list {
		all, _ := room(d)
		sum += all
	}
	for i, d := range list {
		if all, with := room(d); d.leader && all-with <= sum-n {
			return slices.Concat(list[i:i+1], list[:i], list[i+1:])
		}
	}
	return list
}

// share is Take.
func (w *twin) share(list []*twinDomain, a *twinAsk, n int64, leader bool, room func(*twinDomain) (int64, int64)) (out []twinShare, ok bool) {
	list = frontWithLeader(list, n, leader, room)
	all := func(d *twinDomain) (int64, bool) { r, _ := room(d); return r, true }
	with := func(d *twinDomain) (int64, bool) { _, r := room(d); return r, d.leader }
	for len(list) > 0 && (n > 0 || leader) {
		d := list[0]
		if leader {
			if r, able := with(d); able && r >= n {
				return append(out, twinShare{smallest(list, n, !a.least, with), n, true}), true
			}
			r, able := with(d)
			r = min(r, n)
			if r > 0 || able {
				out = append(out, twinShare{d, r, able})
			}
			n, leader = n-r, !able
		} else {
			r, _ := all(d)
			if r >= n {
				return append(out, twinShare{smallest(list, n, !a.least, all), n, false}), true
			}
			if r > 0 {
				out = append(out, twinShare{d, r, false})
			}
			n -= r
		}
		list = list[1:]
	}
	return out, n == 0 && !leader
}

// descend is phase 2b.
func (w *twin) descend(tree twinTree, a *twinAsk, l int, chosen []*twinDomain) ([]twinShare, bool) {
	now, ok := w.share(chosen, a, a.needed, a.leader != nil, sliceRoom)
	for ; ok && l < a.s; l++ {
		var pool []*twinDomain
		for _, p := range now {
			pool = append(pool, p.at.kids...)
		}
		slices.SortFunc(pool, w.orderA(a))
		now, ok = w.share(pool, a, a.needed, a.leader != nil, sliceRoom)
	}
	for i := range now {
		now[i].n *= a.z
	}
	return w.descendEach(tree, a, l, now, ok)
}

func (w *twin) descendEach(tree twinTree, a *twinAsk, l int, now []twinShare, ok bool) ([]twinShare, bool) {
	for ; ok && l < len(tree)-1; l++ {
		var next []twinShare
		unit := max(1, a.inner[l+1])
		for _, p := range now {
			kids := slices.SortedFunc(slices.Values(p.at.kids), w.orderA(a))
			shares, fit := w.share(kids, a, p.n/unit, p.leader, func(d *twinDomain) (int64, int64) { return d.pods / unit, d.podsWL / unit })
			ok = ok && fit
			for _, s := range shares {
				next = append(next, twinShare{s.at, s.n * unit, s.leader})
			}
		}
		now = next
	}
	return now, ok
}

// ask resolves the levels of a group.
func (w *twin) ask(workers, leader *PodSet) (*twinAsk, *twinFailure) {
	a := &twinAsk{workers: workers, leader: leader, z: 1, inner: map[int]int64{}}
	def, known := w.trees[workers.Flavor]
	if !known {
		return nil, &twinFailure{cause: NoTree}
	}
	lowest := len(def.Levels) - 1
	a.r, a.s = lowest, lowest
	switch {
	case workers.Required != "":
		a.r = slices.Index(def.Levels, workers.Required)
	case workers.Preferred != "":
		a.r = slices.Index(def.Levels, workers.Preferred)
	case len(workers.Layers) > 0:
		a.r = 0
	}
	if len(workers.Layers) > 0 {
		a.s, a.z = slices.Index(def.Levels, workers.Layers[0].Level), int64(workers.Layers[0].Size)
	}
	if a.r < 0 || a.s < 0 {
		return nil, &twinFailure{cause: UnknownLevel}
	}
	if a.s < a.r {
		return nil, &twinFailure{cause: SliceAboveLevel}
	}
	at, size := a.s, a.z
	for i := 1; i < len(workers.Layers); i++ {
		l, inner := slices.Index(def.Levels, workers.Layers[i].Level), int64(workers.Layers[i].Size)
		if l < 0 {
			return nil, &twinFailure{cause: UnknownLevel}
		}
		if l <= at {
			return nil, &twinFailure{cause: LayerOrder}
		}
		if size%inner != 0 {
			return nil, &twinFailure{cause: LayerSize}
		}
		for at < l {
			at++
			a.inner[at] = inner
		}
		size = inner
	}
	a.needed = int64(workers.Count) / a.z
	a.least = w.gates.Mixed && workers.Required == "" && workers.Preferred == ""
	return a, nil
}

// one places one group.
func (w *twin) one(a *twinAsk) ([]twinShare, *twinFailure) {
	tree := w.build(a.workers.Flavor)
	if len(tree[0]) == 0 {
		return nil, &twinFailure{cause: NoDomains}
	}
	w.fill(tree, a)
	if w.gates.Balanced && a.workers.Preferred != "" && (a.needed > 0 || a.leader != nil) {
		if shares, ok := w.balance(tree, a); ok {
			return shares, nil
		}
	}
	chosen, f := w.choose(tree, a)
	if f != nil {
		return nil, f
	}
	shares, ok := w.descend(tree, a, len(chosen1(chosen).path)-1, chosen)
	if !ok {
		return nil, &twinFailure{fit: -1}
	}
	return shares, nil
}

func chosen1(list []*twinDomain) *twinDomain {
	if len(list) == 0 {
		return &twinDomain{path: make([]string, 1)}
	}
	return list[0]
}

func (w *twin) placement(p *PodSet, shares []twinShare, leader bool) *Placement {
	def := w.trees[p.Flavor]
	out := &Placement{PodSet: p.Name, Flavor: p.Flavor, Levels: def.Levels}
	if w.hosts(p.Flavor) {
		out.Levels = def.Levels[len(def.Levels)-1:]
	}
	slices.SortFunc(shares, func(x, y twinShare) int { return slices.Compare(x.at.path, y.at.path) })
	for _, s := range shares {
		n := s.n
		if leader {
			n = int64(one(s.leader))
		}
		if n > 0 {
			out.Domains = append(out.Domains, Domain{s.at.path[len(s.at.path)-len(out.Levels):], int32(n)})
		}
	}
	return out
}

// place places groups in their order.
func (w *twin) place(pods []PodSet, o Options) ([]*Placement, *twinFailure) {
	out := make([]*Placement, len(pods))
	var assumed []*twinCharge
	done := map[int]bool{}
	for i := range pods {
		if done[i] || pods[i].Count <= 0 {
			continue
		}
		workers, leader := i, -1
		for j := i + 1; j < len(pods); j++ {
			if pods[j].Group == pods[i].Group && pods[i].Group != "" && pods[j].Count > 0 {
				leader = j
			}
		}
		if leader >= 0 && pods[leader].Count > pods[workers].Count {
			workers, leader = leader, workers
		}
		done[workers], done[max(leader, i)] = true, true
		var l *PodSet
		if leader >= 0 {
			l = &pods[leader]
		}
		if l != nil && l.Count != 1 {
			return nil, &twinFailure{cause: BadGroup}
		}
		a, f := w.ask(&pods[workers], l)
		if f != nil {
			return nil, f
		}
		a.empty, a.assumed = o.Empty, assumed
		shares, f := w.one(a)
		if f != nil {
			return nil, f
		}
		out[workers] = w.placement(&pods[workers], shares, false)
		assumed = append(assumed, &twinCharge{out[workers], pods[workers].Requests})
		if leader >= 0 {
			out[leader] = w.placement(l, shares, true)
			out[leader].Flavor = pods[workers].Flavor
			assumed = append(assumed, &twinCharge{out[leader], l.Requests})
		}
	}
	return out, nil
}
