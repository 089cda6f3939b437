package topology

import (
	"fmt"
	"slices"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Placer places the pods of workloads for package cycle: it is its cycle.Placer.
type Placer struct {
	*Space
	Key ledger.Key // of the Space among the dimensions of the ledger
	in  *ledger.Ledger
}

// NewPlacer adds the usage of a Space to a ledger, and returns its Placer.
func NewPlacer(s *Space, in *ledger.Ledger) *Placer { return &Placer{s, in.Extend(s.Dimension()), in} }

// Now reports whether all groups have places in what is free.
func (p *Placer) Now(podSets []workload.PodSet, groups []flavor.PlaceGroup) bool {
	_, f := p.Space.Place(asked(podSets, groups), Options{})
	return f == nil
}

// Ever reports whether they would have on nodes without workloads that hold quota.
func (p *Placer) Ever(podSets []workload.PodSet, groups []flavor.PlaceGroup) bool {
	_, f := p.Space.Place(asked(podSets, groups), Options{Empty: true})
	return f == nil
}

// Why is why they have none now.
func (p *Placer) Why(podSets []workload.PodSet, groups []flavor.PlaceGroup) string {
	if _, f := p.Space.Place(asked(podSets, groups), Options{Explain: true}); f != nil {
		return f.String()
	}
	return "other workloads of the same cycle take the nodes"
}

// RoomFor returns how much of a group of pod sets the domains of its level hold.
func (p *Placer) RoomFor(podSets []workload.PodSet, g flavor.PlaceGroup) (Room, *Failure) {
	return p.Room(asked(podSets, []flavor.PlaceGroup{g}))
}

// LargestOf returns, by level, the domains that hold most pods with the requests of a pod set, whatever places it asks for.
func (p *Placer) LargestOf(ps *workload.PodSet, f *flavor.Flavor) ([]LevelFit, *Failure) {
	pod := *ps
	pod.Topology = nil
	return p.Largest(asked([]workload.PodSet{pod}, []flavor.PlaceGroup{{PodSets: []int{0}, Flavor: f}})[0], Options{})
}

// Wants waits for the domains to hold the group: all of their capacity, and the free part of it.
func (p *Placer) Wants(podSets []workload.PodSet, g flavor.PlaceGroup, like workload.Want, into []workload.Want) ([]workload.Want, bool) {
	pods := asked(podSets, []flavor.PlaceGroup{g})
	for i := range pods {
		pods[i].Count = podSets[g.PodSets[i]].Least()
	}
	for _, empty := range []bool{true, false} {
		number, needed, ok := p.MeasureOf(pods, empty)
		if !ok {
			return into, false
		}
		want := like
		want.FR, want.Least, want.Winnable = p.in.Measure(ledger.MeasureID{Of: p.Key, Number: number}), needed, like.Winnable && !empty
		into = append(into, want)
	}
	return into, true
}

// Place returns u with the places of all groups, and the placement of each pod set.
func (p *Placer) Place(podSets []workload.PodSet, groups []flavor.PlaceGroup, u ledger.Usage, empty bool) (ledger.Usage, []*trace.Placement, bool) {
	pods := asked(podSets, groups)
	placed, f := p.Space.Place(pods, Options{Empty: empty})
	if f != nil {
		return u, nil, false
	}
	charges, out := make([]Charge, 0, len(pods)), make([]*trace.Placement, len(podSets))
	for i, at := range members(groups) {
		charges = append(charges, Charge{placed[i], pods[i].Requests})
		if pl := placed[i]; pl != nil {
			out[at] = pl.traced()
		}
	}
	return u.With(p.Key, p.Part(charges)), out, true
}

// traced returns a placement as traces have it, and placementOf the inverse.
func (p *Placement) traced() *trace.Placement {
	out := &trace.Placement{Flavor: p.Flavor, Levels: p.Levels, Domains: make([]trace.Domain, len(p.Domains))}
	for i, d := range p.Domains {
		out.Domains[i] = trace.Domain(d)
	}
	return out
}

func placementOf(p *trace.Placement) *Placement {
	out := &Placement{Flavor: p.Flavor, Levels: p.Levels, Domains: make([]Domain, len(p.Domains))}
	for i, d := range p.Domains {
		out.Domains[i] = Domain(d)
	}
	return out
}

// members returns the indexes of the pod sets of all groups.
func members(groups []flavor.PlaceGroup) (all []int) {
	for _, g := range groups {
		all = append(all, g.PodSets...)
	}
	return all
}

// asked returns the pod sets of the groups as requests for places.
func asked(podSets []workload.PodSet, groups []flavor.PlaceGroup) []PodSet {
	var out []PodSet
	for n, g := range groups {
		for _, i := range g.PodSets {
			ps := &podSets[i]
			req := PodSet{
				Name: ps.Name, Flavor: g.Flavor.Name, Count: ps.Count, Requests: ps.PerPod, Constraints: tolerating(ps.Constraints, g.Flavor),
				Elastic: ps.Elastic,
			}
			if ps.Earlier != nil {
				req.Earlier = placementOf(ps.Earlier)
			}
			if len(g.PodSets) > 1 {
				req.Group = fmt.Sprint(n)
			}
			if t := ps.Topology; t != nil {
				req.Required, req.Preferred = t.Required, t.Preferred
				for _, l := range t.Slices {
					req.Layers = append(req.Layers, Layer(l))
				}
				for _, a := range t.Affinity {
					req.Prefers = append(req.Prefers, Preference(a))
				}
			}
			out = append(out, req)
		}
	}
	return out
}

// tolerating returns constraints with the tolerations that a flavor gives to its pods.
func tolerating(c *workload.Constraints, f *flavor.Flavor) *workload.Constraints {
	if len(f.Tolerations) == 0 {
		return c
	}
	var out workload.Constraints
	if c != nil {
		out = *c
	}
	out.Tolerations = slices.Concat(out.Tolerations, f.Tolerations)
	return &out
}

// Held returns the part of the dimension for placements of pod sets, given the requests of one pod of each.
func (p *Placer) Held(u ledger.Usage, placements []*trace.Placement, perPod [][]workload.Request) ledger.Usage {
	var charges []Charge
	for i, pl := range placements {
		if pl != nil {
			charges = append(charges, Charge{placementOf(pl), perPod[i]})
		}
	}
	return u.With(p.Key, p.Part(charges))
}

// Replaced returns placements without the pods' places on failed nodes, which get others; nil for pod sets without an earlier placement. The
// earlier ones stay charged. Without room it returns why.
func (p *Placer) Replaced(
	podSets []workload.PodSet, groups []flavor.PlaceGroup, earlier []*trace.Placement, failed []string,
) ([]*trace.Placement, string) {
	pods, at := asked(podSets, groups), members(groups)
	for i := range pods {
		pods[i].Earlier = placementOf(earlier[at[i]])
	}
	placed, f := p.Replace(pods, failed, Options{Explain: true})
	if f != nil {
		return nil, f.String()
	}
	out := make([]*trace.Placement, len(podSets))
	for i, pl := range placed {
		if pl != nil {
			out[at[i]] = pl.traced()
		}
	}
	return out, ""
}
