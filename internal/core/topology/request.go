package topology

import (
	"slices"

	"github.com/berth-project/berth/internal/core/workload"
)

// PodSet is a request to place equal pods. It asks for one domain of the level Required, or for the fewest domains
// from the level Preferred up, or with neither for any nodes. Its slices and pointers are kept, and must not be modified. spec:
// 20 §2.3.
type PodSet struct {
	Name                string
	Flavor              string // whose tree
	Group               string // two pod sets of a group are placed together: workers, and a leader of one pod
	Count               int32
	Requests            []workload.Request // of one pod, with `pods`
	Constraints         *workload.Constraints
	Prefers             []Preference
	Required, Preferred string
	Layers              []Layer // outermost first

	// Elastic: the job is resized while it runs, and so may request no level. spec: 20 §4.11.
	Elastic bool
	// Earlier is the placement so far, which is not placed a second time: of the slice that this one replaces (20 §4.11),
	// for Place, which counts its usage itself; or of pods of which some are moved (20 §4.9), for Replace, which
	// expects it charged.
	Earlier *Placement
}

// Layer cuts pods into slices of a size, each in one domain of a level.
type Layer struct {
	Level string
	Size  int32
}

// Options are how a request is evaluated.
type Options struct {
	Empty   bool // the usage of placed pods is ignored; foreign pods stay. spec: 20 §4.7.1
	Explain bool // a failure counts what excludes nodes, and how much the domains hold
}

// group is one or two pod sets that are placed together, and their levels in the tree.
type group struct {
	members       []int // indexes of pod sets
	workers       *PodSet
	leader        *PodSet // nil without
	leaderAt      int     // the index of the leader
	tree          *tree
	requested     int // level
	slice         int // level
	size          int64
	inner         []int64 // by level
	needed        int64   // slices
	required      bool
	unconstrained bool
	least         bool // LeastFreeCapacity
	confined      *confinement
	kept          bool // the earlier placements stay, as far as the pod sets have pods
}

// groupsOf puts pod sets with pods into groups, in order of first appearance.
func groupsOf(pods []PodSet) (groups []group) {
	for i := range pods {
		p := &pods[i]
		if p.Count <= 0 {
			continue
		}
		at := -1
		if p.Group != "" {
			at = slices.IndexFunc(groups, func(g group) bool { return g.workers.Group == p.Group })
		}
		if at < 0 {
			groups = append(groups, group{members: []int{i}, workers: p})
			continue
		}
		g := &groups[at]
		switch g.members = append(g.members, i); {
		case p.Count > g.workers.Count:
			g.workers, g.leader, g.leaderAt = p, g.workers, g.members[0]
		default:
			g.leader, g.leaderAt = p, i
		}
	}
	return groups
}

// workersAt returns the index of the workers.
func (g *group) workersAt() int {
	if len(g.members) > 1 && g.leaderAt == g.members[0] {
		return g.members[1]
	}
	return g.members[0]
}

// resolve finds the levels of a group, or the reason why it asks for the impossible. spec: 20 §4.6, levels.
func (s *Space) resolve(g *group) *Failure {
	p := g.workers
	fail := func(c Cause, level string) *Failure {
		return &Failure{Cause: c, PodSet: p.Name, Group: p.Group, Flavor: p.Flavor, Level: level, Needed: int64(p.Count), Unit: Pods}
	}
	if len(g.members) > 2 || (g.leader != nil && g.leader.Count != 1) {
		return fail(BadGroup, "")
	}
	if level := p.Required + p.Preferred; level != "" && p.Elastic {
		return fail(ElasticLevel, level)
	}
	t, ok := s.trees[p.Flavor]
	if !ok || t.lowest() < 0 {
		return fail(NoTree, "")
	}
	g.tree = t
	refuse := func(c Cause, level string) *Failure {
		f := fail(c, level)
		f.Topology = t.def.Topology
		return f
	}
	level := g.levelAsked(t)
	if g.requested = t.levelOf(level); g.requested < 0 {
		return refuse(UnknownLevel, level)
	}
	g.least = g.unconstrained && s.gates.Mixed
	g.slice, g.size = t.lowest(), 1
	if len(p.Layers) > 0 {
		g.slice, g.size = t.levelOf(p.Layers[0].Level), max(1, int64(p.Layers[0].Size))
	}
	if g.slice < 0 {
		return refuse(UnknownLevel, p.Layers[0].Level)
	}
	if g.slice < g.requested {
		return refuse(SliceAboveLevel, p.Layers[0].Level)
	}
	if cause, wrong := g.layer(t); wrong != "" {
		return refuse(cause, wrong)
	}
	g.needed = int64(p.Count) / g.size
	if t.active == 0 {
		return refuse(NoDomains, level)
	}
	return nil
}

// levelAsked returns the level that a group requests. Slices alone may go anywhere.
func (g *group) levelAsked(t *tree) string {
	p := g.workers
	switch {
	case p.Required != "":
		g.required = true
		return p.Required
	case p.Preferred != "":
		return p.Preferred
	}
	g.unconstrained = true
	if len(p.Layers) > 0 {
		return t.def.Levels[0]
	}
	return t.def.Levels[t.lowest()]
}

// layer sets the inner sizes of the levels below the slice level, or returns the level of a layer that is wrong.
func (g *group) layer(t *tree) (Cause, string) {
	g.inner = make([]int64, len(t.levels))
	for l := range g.inner {
		g.inner[l] = 1
	}
	if len(g.workers.Layers) == 0 {
		return 0, ""
	}
	above, size := g.slice, g.size
	for _, layer := range g.workers.Layers[1:] {
		l, inner := t.levelOf(layer.Level), max(1, int64(layer.Size))
		switch {
		case l < 0:
			return UnknownLevel, layer.Level
		case l <= above:
			return LayerOrder, layer.Level
		case size%inner != 0:
			return LayerSize, layer.Level
		}
		for i := above + 1; i <= l; i++ {
			g.inner[i] = inner
		}
		above, size = l, inner
	}
	return 0, ""
}
