// Package flavor finds a flavor for every request of a workload: which flavors its
// pods can use, which of those have quota, and which is preferred. spec: 10 §4.6.
package flavor

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Flavor is a kind of node.
type Flavor struct {
	Name        string
	Labels      map[string]string
	Taints      []workload.Taint
	Tolerations []workload.Toleration // given to the pods that start on it
	Missing     bool                  // named by a queue, but there is no such object
	// Topology is the name of its topology, and Levels are the label keys of that, the broadest
	// first; none if it has no topology, or if that is missing.
	Topology string   `json:",omitempty"`
	Levels   []string `json:",omitempty"`
}

// HasTopology reports whether pods are placed on the nodes of a flavor, by a topology that may be missing.
func (f *Flavor) HasTopology() bool { return f.Topology != "" || len(f.Levels) > 0 }

// lacksTopology reports whether the topology of a flavor is missing: its pods cannot be placed.
func (f *Flavor) lacksTopology() bool { return f.Topology != "" && len(f.Levels) == 0 }

// Group is a set of resources that get their flavors together.
type Group struct {
	Resources []resource.ID
	Offers    []Offer // in order of preference
}

// Offer is a flavor of a group, with an FR for each of the group's resources.
type Offer struct {
	Flavor *Flavor
	FRs    []resource.FR
}

// obstacle returns why a pod set of a group cannot use a flavor for its requests of a resource
// group, and the index of the first such pod set; it matches when all can. spec: 10 §4.6.2.
func (s *Search) obstacle(number int16, group int, o *Offer) (podSet int, d detail) {
	for i := range s.podSets {
		if s.numbers[i] != number {
			continue
		}
		d := s.restricted(&s.podSets[i], group, o)
		if d.kind == matches {
			d = o.Flavor.mismatch(s.podSets[i].Constraints)
		}
		if d.kind == matches {
			d = s.misplaced(&s.podSets[i], group, o.Flavor)
		}
		if d.kind != matches {
			return i, d
		}
	}
	if one := s.pickedPlaces(); one != nil && len(o.Flavor.Levels) > 0 && one != o.Flavor {
		return s.first(number), detail{kind: otherPlaces, flavor: o.Flavor.Name, other: one.Name}
	}
	return s.inconsistent(number, group, o.Flavor)
}

// inconsistent returns why the flavor contradicts the flavors that the same pods get from other
// resource groups: where two have different values for a label key, no node has both.
// spec: 10 §6 #10.
func (s *Search) inconsistent(number int16, group int, f *Flavor) (podSet int, d detail) {
	for _, p := range s.picks {
		key, differ := contradiction(f, p.flavor)
		if !differ {
			continue
		}
		for i := range s.podSets {
			ps := &s.podSets[i]
			if s.numbers[i] == number && s.asksOf(ps, p.group) && s.asksOf(ps, group) {
				return i, detail{kind: contradicts, flavor: f.Name, other: p.flavor.Name, key: key}
			}
		}
	}
	return 0, detail{}
}

// contradiction returns the first label key, in name order, that both flavors have with
// different values.
func contradiction(a, b *Flavor) (key string, found bool) {
	for k, v := range a.Labels { //berth:unordered the first key in name order is kept
		if w, has := b.Labels[k]; has && w != v && (!found || k < key) {
			key, found = k, true
		}
	}
	return key, found
}

// restricted returns why Only or a pin excludes a flavor for a pod set.
func (s *Search) restricted(ps *workload.PodSet, group int, o *Offer) detail {
	if s.Only == nil && len(s.Pins) == 0 {
		return detail{}
	}
	for i := range s.asks {
		a := &s.asks[i]
		if a.group != group {
			continue
		}
		if _, asks := s.requested(ps, a.resource); !asks {
			continue
		}
		if s.Only != nil && !s.gave(ps.Name, a.resource, o.FRs[a.at]) {
			return detail{kind: notNominated, flavor: o.Flavor.Name}
		}
		for _, pin := range s.Pins {
			if pin.PodSet == ps.Name && pin.FR != o.FRs[a.at] && s.Table.ResourceOf(pin.FR) == a.resource {
				return detail{kind: notPinned, flavor: o.Flavor.Name}
			}
		}
	}
	return detail{}
}

// gave reports whether Only assigns fr to a pod set for a resource.
func (s *Search) gave(podSet string, id resource.ID, fr resource.FR) bool {
	for _, ps := range s.Only.PodSets {
		if ps.Name != podSet {
			continue
		}
		for _, r := range ps.Resources {
			if s.Table.ResourceOf(r.FR) == id {
				return r.FR == fr
			}
		}
	}
	return false
}

// asksOf reports whether a pod set requests something of a resource group.
func (s *Search) asksOf(ps *workload.PodSet, group int) bool {
	for i := range s.asks {
		if s.asks[i].group != group {
			continue
		}
		if _, asks := s.requested(ps, s.asks[i].resource); asks {
			return true
		}
	}
	return false
}

// mismatch returns why the pods cannot use the flavor. Only selector entries and affinity
// expressions on the flavor's own label keys count. spec: 10 §4.6.2.
func (f *Flavor) mismatch(c *workload.Constraints) detail {
	if f.Missing {
		return detail{kind: missing, flavor: f.Name}
	}
	if c == nil {
		c = &workload.Constraints{}
	}
	if len(c.Flavors) > 0 && !slices.Contains(c.Flavors, f.Name) {
		return detail{kind: notAllowed, flavor: f.Name}
	}
	for _, taint := range f.Taints {
		if taint.Repels() && !tolerated(taint, c.Tolerations) && !tolerated(taint, f.Tolerations) {
			return detail{kind: tainted, flavor: f.Name, taint: taint}
		}
	}
	for key, want := range c.Selector { //berth:unordered every differing key rejects; the message names none
		if have, ours := f.Labels[key]; ours && have != want {
			return detail{kind: notSelected, flavor: f.Name}
		}
	}
	if !f.inAffinity(c.Affinity) {
		return detail{kind: notInAffinity, flavor: f.Name}
	}
	return detail{}
}

func (f *Flavor) inAffinity(terms []workload.Term) bool {
	if len(terms) == 0 {
		return true
	}
	match := false
	for _, term := range terms {
		relevant := 0
		met := true
		for _, e := range term {
			if _, ours := f.Labels[e.Key]; ours {
				relevant++
				met = met && e.Matches(f.Labels)
			}
		}
		if relevant == 0 {
			return true // this alternative does not restrict the flavor
		}
		match = match || met
	}
	return match
}

func tolerated(taint workload.Taint, by []workload.Toleration) bool {
	for _, t := range by {
		if t.Tolerates(taint) {
			return true
		}
	}
	return false
}
