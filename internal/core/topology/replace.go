package topology

import (
	"slices"
)

// Replace places the pods of failed nodes elsewhere, and leaves all others where they are. The present placements are the
// pod sets' Earlier, and stay charged. Only hosts can be replaced. spec: 20 §4.9.
func (s *Space) Replace(pods []PodSet, nodes []string, o Options) ([]*Placement, *Failure) {
	var hosts []string
	for _, n := range nodes {
		hosts = append(hosts, s.HostOf(n))
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	out := make([]*Placement, len(pods))
	assumed := assumption{s: s}
	defer assumed.release()
	for i := range pods {
		if out[i] = pods[i].Earlier; out[i] == nil {
			continue
		}
		for _, host := range hosts {
			placed, f := s.replaceHost(pods, i, out[i], host, hosts, o, &assumed)
			if f != nil {
				return nil, f
			}
			out[i] = placed
		}
	}
	return out, nil
}

// replaceHost moves the pods that a placement has on one host.
func (s *Space) replaceHost(
	pods []PodSet, i int, present *Placement, host string, failed []string, o Options, assumed *assumption,
) (*Placement, *Failure) {
	isHost := func(d Domain) bool { return d.Values[len(d.Values)-1] == host }
	if len(present.Levels) == 0 || present.Levels[len(present.Levels)-1] != Hostname || !slices.ContainsFunc(present.Domains, isHost) {
		return present, nil
	}
	p := pods[i]
	p.Group, p.Earlier, p.Elastic, p.Count = "", nil, false, 0
	rest := &Placement{PodSet: p.Name, Flavor: present.Flavor, Levels: present.Levels}
	for _, d := range present.Domains {
		if isHost(d) {
			p.Count += d.Count
		} else {
			rest.Domains = append(rest.Domains, d)
		}
	}
	peer, leads := peerOf(pods, i)
	if leads { // levels and filters of the workers are the ones of the group
		p.Constraints, p.Prefers, p.Required, p.Preferred, p.Layers = peer.Constraints, peer.Prefers, peer.Required, peer.Preferred, nil
	}
	g := &group{members: []int{0}, workers: &p}
	if f := s.resolve(g); f != nil {
		return nil, f
	}
	t := g.tree
	stale := func(d Domain) bool {
		return !slices.Contains(failed, d.Values[len(d.Values)-1]) && t.leafAt(d.Values) < 0
	}
	f := &Failure{
		Cause: StaleDomain, PodSet: p.Name, Flavor: t.flavor, Topology: t.def.Topology, Level: t.def.Levels[g.requested],
		Needed: int64(p.Count), Unit: Pods,
	}
	if !slices.Equal(present.Levels, t.emitted()) || slices.ContainsFunc(rest.Domains, stale) {
		return nil, f
	}
	if ok := t.confine(g, rest, peer, failed); !ok {
		f.Cause = BrokenSlice
		return nil, f
	}
	if f = s.resolve(g); f != nil { // its layers may have changed
		return nil, f
	}
	shares, f := s.placeShares(g, o)
	if f != nil {
		return nil, f
	}
	moved := t.placement(&p, shares, false)
	assumed.add(moved, p.Requests)
	return t.mergeRest(rest, moved), nil
}

// peerOf returns the other pod set of a group, nil if there is none, and whether the pod set is its leader.
func peerOf(pods []PodSet, i int) (peer *PodSet, leads bool) {
	p := &pods[i]
	for j := range pods {
		if o := &pods[j]; j != i && p.Group != "" && o.Group == p.Group && o.Count > 0 {
			return o, o.Count > p.Count || (o.Count == p.Count && j < i)
		}
	}
	return nil, false
}

// confine restricts where the pods of g may go, and sets their layers. It reports false where a slice has to be completed
// and no domain does so. Where no pod of the pod set is left, it stays with the other one of its group.
func (t *tree) confine(g *group, rest *Placement, peer *PodSet, failed []string) bool {
	p := g.workers
	g.confined = &confinement{level: -1, hosts: failed}
	if len(p.Layers) > 0 && p.Count%max(1, p.Layers[0].Size) != 0 {
		return t.completeSlice(g, rest)
	}
	near := rest.Domains
	if len(near) == 0 && peer != nil && peer.Earlier != nil {
		near = peer.Earlier.Domains
	}
	for _, d := range near {
		leaf := t.leafAt(d.Values)
		if g.required && leaf >= 0 && !slices.Contains(failed, d.Values[0]) {
			g.confined.level, g.confined.id = g.requested, t.ancestor(leaf, g.requested)
			break
		}
	}
	return true
}

// completeSlice confines g to the first domain that has the rest of the innermost slice that lost pods.
func (t *tree) completeSlice(g *group, rest *Placement) bool {
	p, m := g.workers, g.workers.Count
	var broken Layer
	var whole []Layer
	for _, l := range p.Layers {
		if m%max(1, l.Size) == 0 {
			whole = []Layer{l}
		} else {
			broken = l
		}
	}
	p.Layers = whole
	level := t.levelOf(broken.Level)
	if level < 0 {
		return false
	}
	there := map[int32]int32{}
	for _, d := range rest.Domains {
		if leaf, ok := t.leafOf[d.Values[len(d.Values)-1]]; ok {
			there[t.ancestor(leaf, level)] += d.Count
		}
	}
	t.number()
	found, all := false, t.levels[level].All
	for id, n := range there { //berth:unordered the first in the order of the tree is chosen
		if (n+m)%broken.Size == 0 && (!found || all[id].order < all[g.confined.id].order) {
			found, g.confined.level, g.confined.id = true, level, id
		}
	}
	return found
}

// ancestor returns the domain of a level above a leaf.
func (t *tree) ancestor(leaf int32, level int) int32 {
	for l := t.lowest(); l > level; l-- {
		leaf = t.levels[l].All[leaf].parent
	}
	return leaf
}

// mergeRest merges moved pods with the rest, of which some may be on failed hosts that the tree does not have any more:
// they keep their places among their neighbors.
func (t *tree) mergeRest(rest, moved *Placement) *Placement {
	if t.knows(rest) {
		return t.merge(rest, moved)
	}
	out := &Placement{PodSet: rest.PodSet, Flavor: rest.Flavor, Levels: rest.Levels}
	known := &Placement{PodSet: rest.PodSet, Flavor: rest.Flavor, Levels: rest.Levels}
	for _, d := range rest.Domains {
		if t.leafAt(d.Values) < 0 {
			out.Domains = append(out.Domains, d)
		} else {
			known.Domains = append(known.Domains, d)
		}
	}
	out.Domains = append(out.Domains, t.merge(known, moved).Domains...)
	return out
}
