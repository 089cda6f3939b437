package topology

import (
	"slices"
	"strings"
)

// resized reports whether the group replaces an earlier slice of its job that was placed.
func (g *group) resized() bool {
	return g.workers.Earlier != nil || (g.leader != nil && g.leader.Earlier != nil)
}

// resize places a group whose job has grown or shrunk: it keeps the earlier placements, cuts them from the end, or places
// the difference. Where a domain is gone, the group is placed anew. spec: 20 §4.11.
func (s *Space) resize(g *group, o Options, assumed *assumption, out []*Placement) *Failure {
	t, at := g.tree, g.workersAt()
	workers := &Placement{PodSet: g.workers.Name, Flavor: t.flavor, Levels: t.emitted()}
	if g.workers.Earlier != nil {
		workers = g.workers.Earlier
	}
	if !t.knows(workers) || (g.leader != nil && g.leader.Earlier != nil && !t.knows(g.leader.Earlier)) {
		if f := s.placeGroup(g, o, out); f != nil {
			return f
		}
		assumed.addGroup(g, out)
		return nil
	}
	want := g.needed * g.size
	more := *g
	more.needed = max(0, want-int64(workers.Pods())) / g.size
	workers = workers.first(int32(want), g.workers.Name)
	if out[at] = workers; o.Empty {
		assumed.add(workers, g.workers.Requests)
	}
	if g.leader != nil && g.leader.Earlier != nil {
		more.leader = nil
		if out[g.leaderAt] = g.leader.Earlier.first(1, g.leader.Name); o.Empty {
			assumed.add(out[g.leaderAt], g.leader.Requests)
		}
	}
	if more.needed == 0 && more.leader == nil {
		return nil
	}
	shares, f := s.placeShares(&more, o)
	if f != nil {
		return f
	}
	extra := t.placement(g.workers, shares, false)
	out[at] = t.merge(workers, extra)
	assumed.add(extra, g.workers.Requests)
	if more.leader != nil {
		out[g.leaderAt] = t.placement(g.leader, shares, true)
		assumed.add(out[g.leaderAt], g.leader.Requests)
	}
	return nil
}

// first returns the placement of the first n pods.
func (p *Placement) first(n int32, podSet string) *Placement {
	out := &Placement{PodSet: podSet, Flavor: p.Flavor, Levels: p.Levels}
	for _, d := range p.Domains {
		if d.Count = min(d.Count, n); d.Count > 0 {
			out.Domains = append(out.Domains, d)
			n -= d.Count
		}
	}
	return out
}

// leafAt returns the leaf that a domain of a placement names, -1 if there is none that counts.
func (t *tree) leafAt(values []string) int32 {
	id := values[len(values)-1]
	if !t.hosts {
		id = strings.Join(values, "/")
	}
	at, ok := t.leafOf[id]
	if !ok || t.leaves[at].active == 0 {
		return -1
	}
	return at
}

// knows reports whether all domains of a placement count as leaves of the tree.
func (t *tree) knows(p *Placement) bool {
	return p.Flavor == t.flavor && slices.Equal(p.Levels, t.emitted()) &&
		!slices.ContainsFunc(p.Domains, func(d Domain) bool { return t.leafAt(d.Values) < 0 })
}

// merge adds placements up, in the order of the tree. All domains must count.
func (t *tree) merge(a, b *Placement) *Placement {
	t.number()
	shares := make([]share, 0, len(a.Domains)+len(b.Domains))
	for _, d := range slices.Concat(a.Domains, b.Domains) {
		shares = append(shares, share{id: t.leafAt(d.Values), n: int64(d.Count)})
	}
	t.sortShares(shares)
	merged := shares[:0]
	for _, s := range shares {
		if n := len(merged); n > 0 && merged[n-1].id == s.id {
			merged[n-1].n += s.n
			continue
		}
		merged = append(merged, s)
	}
	return t.placement(&PodSet{Name: a.PodSet}, merged, false)
}
