package topology

import (
	"slices"
	"strings"
)

// keepPlaces sets the results of a group that replaces an earlier slice of its job to the remaining earlier placements, cut from the end.
// Where a domain is gone, none of them stays: the group is placed anew. spec: 20 §4.11.
func (s *Space) keepPlaces(g *group, assumed *assumption, out []*Placement) {
	workers, leads := g.workers.Earlier, g.leader != nil && g.leader.Earlier != nil
	if (workers == nil && !leads) || s.resolve(g) != nil {
		return
	}
	if (workers != nil && !g.tree.knows(workers)) || (leads && !g.tree.knows(g.leader.Earlier)) {
		return
	}
	g.kept = true
	if workers == nil {
		workers = &Placement{Flavor: g.tree.flavor, Levels: g.tree.emitted()}
	}
	at := g.workersAt()
	out[at] = workers.first(int32(g.needed*g.size), g.workers.Name)
	assumed.add(out[at], g.workers.Requests)
	if leads {
		out[g.leaderAt] = g.leader.Earlier.first(1, g.leader.Name)
		assumed.add(out[g.leaderAt], g.leader.Requests)
	}
}

// growGroup places the pods of a group beyond the kept ones.
func (s *Space) growGroup(g *group, o Options, assumed *assumption, out []*Placement) *Failure {
	at := g.workersAt()
	more, kept := *g, out[at]
	more.needed = (g.needed*g.size - int64(kept.Pods())) / g.size
	if g.leader != nil && out[g.leaderAt] != nil {
		more.leader = nil
	}
	if more.needed == 0 && more.leader == nil {
		return nil
	}
	extra := make([]*Placement, len(out))
	if f := s.placeGroup(&more, o, assumed, extra); f != nil {
		return f
	}
	out[at] = g.tree.merge(kept, extra[at])
	if more.leader != nil {
		out[g.leaderAt] = extra[g.leaderAt]
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
