package topology

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// greedyResult is what the greedy test of balanced placement yields.
type greedyResult struct {
	fits   bool
	n      int
	last   *twinDomain
	leader *twinDomain
}

func (w *twin) greedyTest(list []*twinDomain, a *twinAsk) (r greedyResult) {
	left := a.needed
	rest := list
	if a.leader != nil {
		sorted := slices.SortedFunc(slices.Values(list), w.orderB(a))
		if len(sorted) == 0 || !sorted[0].leader {
			return r
		}
		r.leader, r.last, r.n = sorted[0], sorted[0], 1
		left -= sorted[0].slicesWL
		rest = sorted[1:]
	}
	for _, d := range slices.SortedFunc(slices.Values(rest), w.orderA(a)) {
		if left <= 0 || d.slices <= 0 {
			break
		}
		left -= d.slices
		r.last, r.n = d, r.n+1
	}
	r.fits = left <= 0
	return r
}

// copyPruned copies siblings and their children, and empties the ones below a threshold.
func (w *twin) copyPruned(list []*twinDomain, a *twinAsk, threshold int64) (out []*twinDomain) {
	prune := func(d *twinDomain) {
		if d.slices < threshold {
			*d = twinDomain{path: d.path, parent: d.parent, kids: d.kids}
		} else if d.slicesWL < threshold {
			d.leader = false
		}
	}
	for _, d := range list {
		c := *d
		c.kids = nil
		for _, k := range d.kids {
			kc := *k
			kc.parent = &c
			prune(&kc)
			c.kids = append(c.kids, &kc)
		}
		if len(c.kids) > 0 {
			plain := *a
			plain.inner = nil
			plain.fillParent(&c, len(c.path)-1)
		}
		prune(&c)
		out = append(out, &c)
	}
	return out
}

// balance is balanced placement, or not ok.
func (w *twin) balance(tree twinTree, a *twinAsk) ([]twinShare, bool) {
	var sets [][]*twinDomain
	if a.r == 0 {
		sets = append(sets, tree[0])
	} else {
		for _, d := range tree[a.r-1] {
			sets = append(sets, d.kids)
		}
	}
	var best []*twinDomain
	var bestThreshold int64
	var bestCount int
	for _, set := range sets {
		var tested []*twinDomain
		if a.r < a.s {
			for _, d := range set {
				tested = append(tested, d.kids...)
			}
		} else {
			tested = set
		}
		r := w.greedyTest(tested, a)
		if !r.fits {
			continue
		}
		threshold := min(a.needed/int64(r.n), r.last.slices)
		if a.leader != nil {
			threshold = min(threshold, r.leader.slicesWL)
		}
		if best != nil && threshold < bestThreshold {
			continue
		}
		pruned := w.copyPruned(set, a, threshold)
		again := w.greedyTest(pruned, a)
		if !again.fits {
			threshold = min(threshold, r.last.slicesWL)
			if a.leader == nil || threshold <= 0 || (best != nil && threshold < bestThreshold) {
				continue
			}
			pruned = w.copyPruned(set, a, threshold)
			if again = w.greedyTest(pruned, a); !again.fits {
				continue
			}
		}
		if best == nil || threshold > bestThreshold || (threshold == bestThreshold && again.n < bestCount) {
			best, bestThreshold, bestCount = pruned, threshold, again.n
		}
	}
	if best == nil {
		return nil, false
	}
	l := a.r
	if a.r < a.s {
		chosen := w.choices(best, a, func(x, y *twinDomain) int {
			able := 0
			if a.leader != nil {
				able = one(y.leader) - one(x.leader)
			}
			return cmp.Or(able, cmp.Compare(y.slicesWL, x.slicesWL), cmp.Compare(entropyOf(y), entropyOf(x)), slices.Compare(x.path, y.path))
		})
		if chosen == nil {
			return nil, false
		}
		best, l = nil, l+1
		for _, d := range chosen {
			best = append(best, d.kids...)
		}
	}
	chosen := w.choices(best, a, func(x, y *twinDomain) int { return slices.Compare(x.path, y.path) })
	if chosen == nil || a.needed < int64(len(chosen))*bestThreshold {
		return nil, false
	}
	return w.spread(tree, a, l, chosen, bestThreshold)
}

func (w *twin) spread(tree twinTree, a *twinAsk, l int, chosen []*twinDomain, threshold int64) ([]twinShare, bool) {
	left := a.needed - int64(len(chosen))*threshold
	var now []twinShare
	for i, d := range slices.SortedFunc(slices.Values(chosen), w.orderB(a)) {
		room, hosts := d.slices, a.leader != nil && i == 0
		if hosts {
			room = d.slicesWL
		}
		extra := max(0, min(room-threshold, left))
		left -= extra
		at := tree[l][slices.IndexFunc(tree[l], func(o *twinDomain) bool { return slices.Equal(o.path, d.path) })]
		now = append(now, twinShare{at, threshold + extra, hosts})
	}
	if left > 0 {
		return nil, false
	}
	for ; l < a.s; l++ {
		var next []twinShare
		for _, p := range now {
			shares, ok := w.share(slices.SortedFunc(slices.Values(p.at.kids), w.orderA(a)), a, p.n, p.leader, sliceRoom)
			if !ok {
				return nil, false
			}
			next = append(next, shares...)
		}
		now = next
	}
	for i := range now {
		now[i].n *= a.z
	}
	return w.descendEach(tree, a, l, now, true)
}

func entropyOf(d *twinDomain) (e float64) {
	for _, k := range d.kids {
		if k.pods > 0 {
			p := float64(k.pods) / float64(d.pods)
			e -= p * math.Log2(p)
		}
	}
	return e
}

// choices tries every way to choose domains, in the order in which states are found.
func (w *twin) choices(list []*twinDomain, a *twinAsk, order func(x, y *twinDomain) int) []*twinDomain {
	type state struct {
		unled bool
		left  int64
		path  []*twinDomain
	}
	n := w.greedyTest(list, a).n
	states := []state{{unled: a.leader != nil, left: a.needed * a.z}}
	add := func(next []state, s state) []state {
		for _, o := range next {
			if o.unled == s.unled && o.left == s.left && len(o.path) == len(s.path) {
				return next
			}
		}
		return append(next, s)
	}
	for _, d := range slices.SortedFunc(slices.Values(list), order) {
		next := slices.Clone(states)
		for _, s := range states {
			if len(s.path) == n || (!s.unled && s.left <= 0) {
				continue
			}
			path := append(slices.Clone(s.path), d)
			if s.unled && d.leader {
				next = add(next, state{false, s.left - d.podsWL, path})
			}
			if d.slices > 0 {
				next = add(next, state{s.unled, s.left - d.pods, path})
			}
		}
		states = next
	}
	var best *state
	for i, s := range states {
		if len(s.path) == n && !s.unled && s.left <= 0 && (best == nil || s.left > best.left) {
			best = &states[i]
		}
	}
	if best == nil {
		return nil
	}
	return best.path
}

// resize is 20 §4.11 for pod sets without a group, in order. What each keeps is not free for the others.
func (w *twin) resize(pods []PodSet) (out [][]Domain, f *twinFailure) {
	charges := w.charges
	defer func() { w.charges = charges }()
	asks, failures, kept := make([]*twinAsk, len(pods)), make([]*twinFailure, len(pods)), make([][]Domain, len(pods))
	charge := func(ps *PodSet, domains []Domain) {
		w.charges = append(slices.Clone(w.charges), &twinCharge{&Placement{Flavor: ps.Flavor, Levels: w.emitted(ps.Flavor), Domains: domains}, ps.Requests})
	}
	for i := range pods {
		ps := &pods[i]
		switch asks[i], failures[i] = w.ask(ps, nil); {
		case ps.Elastic && ps.Required+ps.Preferred != "":
			failures[i] = &twinFailure{cause: ElasticLevel}
		case failures[i] == nil && len(w.build(ps.Flavor)[0]) == 0:
			failures[i] = &twinFailure{cause: NoDomains}
		}
		if failures[i] != nil || !w.knows(ps.Flavor, ps.Earlier) {
			continue
		}
		left := int32(asks[i].needed * asks[i].z)
		for _, d := range ps.Earlier.Domains {
			if d.Count = min(d.Count, left); d.Count > 0 {
				kept[i] = append(kept[i], d)
				left -= d.Count
			}
		}
		charge(ps, kept[i])
		asks[i].needed = int64(left) / asks[i].z
	}
	for i := range pods {
		got := kept[i]
		if failures[i] != nil {
			return nil, failures[i]
		}
		if asks[i].needed > 0 {
			extra, f := w.domains(&pods[i], asks[i], nil)
			if f != nil {
				return nil, f
			}
			charge(&pods[i], extra)
			got = w.inOrder(pods[i].Flavor, slices.Concat(got, extra))
		}
		out = append(out, got)
	}
	return out, nil
}

func (w *twin) emitted(flavor string) []string {
	if w.hosts(flavor) {
		return []string{Hostname}
	}
	return w.trees[flavor].Levels
}

// domains places a group, and adds its pods to other domains.
func (w *twin) domains(ps *PodSet, a *twinAsk, base []Domain) ([]Domain, *twinFailure) {
	shares, f := w.one(a)
	if f != nil {
		return nil, f
	}
	return w.inOrder(ps.Flavor, slices.Concat(base, w.placement(ps, shares, false).Domains)), nil
}

// inOrder adds up the pods of each domain, in the order of the domains.
func (w *twin) inOrder(flavor string, domains []Domain) []Domain {
	sums := map[string]int32{}
	for _, d := range domains {
		sums[strings.Join(d.Values, "/")] += d.Count
	}
	tree := w.build(flavor)
	var out []Domain
	for _, d := range tree[len(tree)-1] {
		values := d.path
		if w.hosts(flavor) {
			values = values[len(values)-1:]
		}
		if n := sums[strings.Join(values, "/")]; n > 0 {
			out = append(out, Domain{values, n})
		}
	}
	return out
}

func (w *twin) knows(flavor string, p *Placement) bool {
	tree := w.build(flavor)
	for _, d := range p.Domains {
		if w.leaf(tree, d) == nil {
			return false
		}
	}
	levels := w.trees[flavor].Levels
	return slices.Equal(p.Levels, levels[len(levels)-len(p.Levels):]) && (len(p.Levels) == len(levels) || w.hosts(flavor)) && p.Flavor == flavor
}

func (w *twin) leaf(tree twinTree, d Domain) *twinDomain {
	for _, leaf := range tree[len(tree)-1] {
		if len(d.Values) <= len(leaf.path) && slices.Equal(leaf.path[len(leaf.path)-len(d.Values):], d.Values) {
			return leaf
		}
	}
	return nil
}

// replace is 20 §4.9 for one pod set without a group and one failed host.
func (w *twin) replace(ps PodSet, host string) ([]Domain, *twinFailure) {
	var rest []Domain
	m := int32(0)
	for _, d := range ps.Earlier.Domains {
		if d.Values[len(d.Values)-1] == host {
			m += d.Count
		} else {
			rest = append(rest, d)
		}
	}
	ps.Count = m
	a, f := w.ask(&ps, nil)
	if f != nil {
		return nil, f
	}
	tree := w.build(ps.Flavor)
	if len(tree[0]) == 0 {
		return nil, &twinFailure{cause: NoDomains}
	}
	if !w.knows(ps.Flavor, &Placement{Flavor: ps.Flavor, Levels: ps.Earlier.Levels}) {
		return nil, &twinFailure{cause: StaleDomain}
	}
	for _, d := range rest {
		if w.leaf(tree, d) == nil {
			return nil, &twinFailure{cause: StaleDomain}
		}
	}
	within := []string(nil)
	if a.z > 1 && int64(m)%a.z != 0 {
		layers := ps.Layers
		ps.Layers = nil
		var bad Layer
		for _, l := range layers {
			if m%l.Size != 0 {
				bad = l
			} else {
				ps.Layers = []Layer{l}
			}
		}
		level := slices.Index(w.trees[ps.Flavor].Levels, bad.Level)
		for _, d := range tree[level] {
			n := int32(0)
			for _, r := range rest {
				if slices.Equal(w.leaf(tree, r).path[:level+1], d.path) {
					n += r.Count
				}
			}
			if n > 0 && (n+m)%bad.Size == 0 && within == nil {
				within = d.path
			}
		}
		if within == nil {
			return nil, &twinFailure{cause: BrokenSlice}
		}
		if a, f = w.ask(&ps, nil); f != nil {
			return nil, f
		}
	} else if ps.Required != "" && len(rest) > 0 {
		within = w.leaf(tree, rest[0]).path[:a.r+1]
	}
	a.within, a.without = within, []string{host}
	return w.domains(&ps, a, rest)
}
