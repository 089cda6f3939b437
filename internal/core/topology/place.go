package topology

import (
	"cmp"
	"slices"

	"github.com/berth-project/berth/internal/core/workload"
)

// Placement is where the pods of a pod set go. It is immutable.
type Placement struct {
	PodSet  string
	Flavor  string
	Levels  []string // the hostname alone where it is the lowest level
	Domains []Domain // in the order of all values of their paths
}

// Domain is a number of pods in one domain.
type Domain struct {
	Values []string // by level
	Count  int32
}

// Pods returns how many pods have a place.
func (p *Placement) Pods() (n int32) {
	for _, d := range p.Domains {
		n += d.Count
	}
	return n
}

// Place places pod sets on the capacity that is left. The result has an entry for each pod set, nil for one without
// pods. Nothing is charged; groups that are placed first are subtracted for later ones. The first failure ends it.
// spec: 20 §4.6.
func (s *Space) Place(pods []PodSet, o Options) ([]*Placement, *Failure) {
	out := make([]*Placement, len(pods))
	groups := groupsOf(pods)
	assumed := assumption{s: s}
	defer assumed.release()
	for i := range groups {
		s.keepPlaces(&groups[i], &assumed, out) // before any other group takes the places
	}
	for i := range groups {
		g := &groups[i]
		if f := s.resolve(g); f != nil {
			return nil, f
		}
		place, more := s.placeGroup, &assumed
		if g.kept {
			place = s.growGroup
		}
		if i+1 == len(groups) {
			more = nil
		}
		if f := place(g, o, more, out); f != nil {
			return nil, f
		}
	}
	return out, nil
}

// placeGroup places a group, and sets the results of its pod sets. assumed is nil if no other group follows.
func (s *Space) placeGroup(g *group, o Options, assumed *assumption, out []*Placement) *Failure {
	shares, f := s.placeShares(g, o)
	if f != nil {
		return f
	}
	out[g.workersAt()] = g.tree.placement(g.workers, shares, false)
	assumed.add(out[g.workersAt()], g.workers.Requests)
	if g.leader != nil {
		out[g.leaderAt] = g.tree.placement(g.leader, shares, true)
		assumed.add(out[g.leaderAt], g.leader.Requests)
	}
	return nil
}

// placement makes a placement of the shares of leaves, which it sorts: of the workers, or of the leader.
func (t *tree) placement(p *PodSet, shares []share, leader bool) *Placement {
	t.sortShares(shares)
	out := &Placement{PodSet: p.Name, Flavor: t.flavor, Levels: t.emitted()}
	if leader {
		for _, sh := range shares {
			if sh.leader {
				out.Domains = append(out.Domains, Domain{t.values(sh.id), 1})
			}
		}
		return out
	}
	out.Domains = make([]Domain, 0, len(shares))
	for _, sh := range shares {
		if sh.n > 0 {
			out.Domains = append(out.Domains, Domain{t.values(sh.id), int32(sh.n)})
		}
	}
	return out
}

func (t *tree) sortShares(shares []share) {
	all := t.levels[t.lowest()].All
	slices.SortFunc(shares, func(a, b share) int { return cmp.Compare(all[a.id].order, all[b.id].order) })
}

// placeShares returns how many pods each leaf gets. The result is scratch memory.
func (s *Space) placeShares(g *group, o Options) ([]share, *Failure) {
	t := g.tree
	if g.needed == 0 && g.leader == nil { // fewer pods than a slice has
		return nil, nil
	}
	t.number()
	sh := t.shapeOf(g, o.Empty)
	asked := question{sh.version, t.revision, g.needed, g.requested, g.required, g.unconstrained}
	if len(sh.last.shares) > 0 && sh.last.to == asked {
		s.scratch.answer = append(s.scratch.answer[:0], sh.last.shares...)
		return s.scratch.answer, nil
	}
	shares, f := s.choosePlaces(g, sh, o)
	if f == nil && len(shares) <= mostKept {
		sh.last = answer{asked, append(sh.last.shares[:0], shares...)}
	}
	return shares, f
}

// choosePlaces is placeShares without a look at the last answer.
func (s *Space) choosePlaces(g *group, sh *shape, o Options) ([]share, *Failure) {
	t := g.tree
	h := chooser{leader: g.leader != nil, least: g.least, tiers: s.gates.Affinity && t.hosts}
	if s.gates.Balanced && !g.required && !g.unconstrained {
		if shares, ok := s.balance(g, sh, h); ok {
			return shares, nil
		}
	}
	for l := g.requested; ; l-- {
		list := t.candidates(sh, l, h)
		if i := h.single(list, g.needed, g.required); i >= 0 {
			return s.descend(g, sh, h, l, list[i:i+1])
		}
		switch {
		case g.required:
			return nil, s.failure(g, sh, h, l, o)
		case !g.unconstrained && l > 0:
			continue
		}
		if chosen := h.several(list, g.needed); chosen != nil {
			return s.descend(g, sh, h, l, chosen)
		}
		return nil, s.failure(g, sh, h, l, o)
	}
}

// candidates returns the domains of a level, in no order. Without affinity, one that holds nothing is left out: it
// would get nothing, and change nothing.
func (t *tree) candidates(sh *shape, l int, h chooser) []candidate {
	list, all := t.s.scratch.list[:0], t.levels[l].All
	for id := range all {
		if c := &sh.counts[l][id]; all[id].live && (h.tiers || c.pods > 0 || c.leader) {
			list = append(list, candidate{c, int32(id), all[id].order})
		}
	}
	t.s.scratch.list = list
	return list
}

// appendKids appends the children of a domain of level l to list.
func (t *tree) appendKids(list []candidate, sh *shape, l int, id int32, h chooser) []candidate {
	all := t.levels[l+1].All
	for _, k := range t.levels[l].All[id].kids {
		if c := &sh.counts[l+1][k]; h.tiers || c.pods > 0 || c.leader {
			list = append(list, candidate{c, k, all[k].order})
		}
	}
	return list
}

// descend distributes a group over chosen domains of level l, and from there down to leaves. spec: 20 §4.6, phase 2b.
func (s *Space) descend(g *group, sh *shape, h chooser, l int, chosen []candidate) ([]share, *Failure) {
	sc := &s.scratch
	now, ok := h.distribute(&ranking{list: chosen, fixed: true}, g.needed, 0, h.leader, sc.shares[0][:0])
	next := sc.shares[1][:0]
	for ; ok && l < g.slice; l++ {
		list := sc.kids[:0]
		for _, p := range now {
			list = g.tree.appendKids(list, sh, l, p.id, h)
		}
		next, ok = h.distribute(&ranking{list: list, order: h.withoutLeader}, g.needed, 0, h.leader, next[:0])
		sc.kids, now, next = list, next, now
	}
	if l == g.slice {
		for i := range now {
			now[i].n *= g.size
		}
	}
	return s.descendEach(g, sh, h, l, now, next, ok)
}

// descendEach distributes the share of each domain of level l, in pods, among its own children, down to leaves.
func (s *Space) descendEach(g *group, sh *shape, h chooser, l int, now, next []share, ok bool) ([]share, *Failure) {
	sc := &s.scratch
	for ; ok && l < g.tree.lowest(); l++ {
		next = next[:0]
		for _, p := range now {
			list := g.tree.appendKids(sc.kids[:0], sh, l, p.id, h)
			from, unit := len(next), g.inner[l+1]
			if next, ok = h.distribute(&ranking{list: list, order: h.withoutLeader}, p.n/unit, unit, p.leader, next); !ok {
				break
			}
			for i := from; i < len(next); i++ {
				next[i].n *= unit
			}
			sc.kids = list
		}
		now, next = next, now
	}
	sc.shares = [2][]share{now, next}
	if !ok { // the counts of a domain and of its children disagree
		return nil, s.failure(g, sh, h, g.requested, Options{})
	}
	return now, nil
}

// assumption is usage that counts until the end of a request.
type assumption struct {
	s    *Space
	held []held
}

type held struct {
	account int32
	pods    int32
	pod     []workload.Request
}

// add counts a placement.
func (a *assumption) add(p *Placement, pod []workload.Request) {
	if p == nil || a == nil {
		return
	}
	for _, d := range p.Domains {
		h := held{a.s.account(a.s.keyOf(p.Flavor, p.Levels, d.Values)), d.Count, pod}
		a.held = append(a.held, h)
		a.s.assume(h, 1)
	}
}

func (a *assumption) release() {
	for _, h := range slices.Backward(a.held) {
		a.s.assume(h, -1)
	}
}

func (s *Space) assume(h held, sign int64) {
	for _, r := range h.pod {
		if c := s.known(r.Resource); c >= 0 {
			at := int(h.account)*s.stride + int(c)
			s.assumed[at] = s.assumed[at].Add(r.Amount.Mul(sign * int64(h.pods)))
		}
	}
	s.changed(h.account, false)
}
