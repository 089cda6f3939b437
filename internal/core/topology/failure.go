package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// Cause is why a placement failed.
type Cause uint8

// The causes of failures.
const (
	TooFew          Cause = iota // the domains do not hold all pods
	NoTree                       // the flavor has no topology
	BadGroup                     // a group is two pod sets, one of them a single pod
	UnknownLevel                 // the topology does not have the level
	SliceAboveLevel              // slices are cut in a broader level than the pods are placed in
	LayerOrder                   // a layer of slices is not narrower than the one around it
	LayerSize                    // the size of a layer does not divide the size of the one around it
	NoDomains                    // no node counts
	StaleDomain                  // a pod's domain does not exist any more
	ElasticLevel                 // an elastic job and a level that is required or preferred
	BrokenSlice                  // no domain has the rest of the slice that lost pods
)

// Unit is what a failure counts.
type Unit string

// The units of failures.
const (
	Pods   Unit = "pod(s)"
	Slices Unit = "slice(s)"
)

// Failure is why pods cannot be placed. spec: 20 §4.6.
type Failure struct {
	Cause                   Cause
	PodSet, Group           string
	Topology, Flavor, Level string
	Unit                    Unit
	Fit, Needed             int64 // in units
	Nodes                   int   // that count
	Excluded                []Exclusion
	Best                    []string // the values of the domain that holds most, of Level
	Layers                  []LayerFit
	Levels                  []LevelFit
}

// Exclusion counts the nodes, or domains, that one cause excludes. What an Exclusion names first is checked first.
type Exclusion struct {
	Kind  ExclusionKind
	Name  string // the taint, or the resource
	Nodes int
}

// ExclusionKind is a kind of causes that exclude nodes, in the order in which they are listed.
type ExclusionKind uint8

// The kinds of causes.
const (
	ByAffinity ExclusionKind = iota
	BySelector
	ByTaint
	ByResource
	ByDomain
)

var exclusionNames = [...]string{"affinity", "nodeSelector", "taint", "resource", "topologyDomain"}

// LayerFit is how many slices of a layer fit into the best domain, and how many are needed there.
type LayerFit struct {
	Level       string
	Size        int64
	Fit, Needed int64
}

// LevelFit is how much the domains of a level hold, the fullest first.
type LevelFit struct {
	Level string
	Total int // how many domains there are
	First []DomainFit
}

// DomainFit is how many pods and slices a domain holds.
type DomainFit struct {
	Values       []string
	Pods, Slices int64
}

// listed is how many domains of a level a failure lists.
const listed = 5

// String returns the failure in one sentence. spec: 20 §4.6, failure text.
func (f *Failure) String() string {
	var b strings.Builder
	if f.Cause != TooFew {
		return f.impossible()
	}
	fmt.Fprintf(&b, "topology %q ", f.Topology)
	if f.Fit <= 0 {
		fmt.Fprintf(&b, "doesn't allow to fit any of %d %s", f.Needed, f.Unit)
	} else {
		fmt.Fprintf(&b, "allows to fit only %d out of %d %s", f.Fit, f.Needed, f.Unit)
	}
	fmt.Fprintf(&b, " of pod set %s in flavor %s", f.PodSet, f.Flavor)
	if f.Level != "" {
		fmt.Fprintf(&b, " at level %s", f.Level)
	}
	if len(f.Best) > 0 {
		fmt.Fprintf(&b, "; most fit in %s", strings.Join(f.Best, "/"))
	}
	for i, l := range f.Layers {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%d of %d slice(s) of %d at level %s", sep, l.Fit, l.Needed, l.Size, l.Level)
	}
	if f.Nodes > 0 {
		fmt.Fprintf(&b, ". Total nodes: %d", f.Nodes)
	}
	for i, x := range f.Excluded {
		sep := ", "
		if i == 0 {
			sep = "; excluded: "
		}
		b.WriteString(sep + exclusionNames[x.Kind])
		if x.Name != "" {
			fmt.Fprintf(&b, " %q", x.Name)
		}
		fmt.Fprintf(&b, ": %d", x.Nodes)
	}
	return b.String()
}

func (f *Failure) impossible() string {
	at := fmt.Sprintf("pod set %s in flavor %s", f.PodSet, f.Flavor)
	switch f.Cause {
	case NoTree:
		return fmt.Sprintf("flavor %s has no topology for pod set %s", f.Flavor, f.PodSet)
	case BadGroup:
		return fmt.Sprintf("placement group %s of pod set %s is not two pod sets of which one is a single pod", f.Group, f.PodSet)
	case UnknownLevel:
		return fmt.Sprintf("topology %q has no level %s for %s", f.Topology, f.Level, at)
	case SliceAboveLevel:
		return fmt.Sprintf("level %s of slices is above the level in which %s is placed", f.Level, at)
	case LayerOrder:
		return fmt.Sprintf("level %s of slices of %s is not below the one before it", f.Level, at)
	case LayerSize:
		return fmt.Sprintf("slices at level %s of %s do not divide the ones around them", f.Level, at)
	case NoDomains:
		return fmt.Sprintf("topology %q has no domains at level %s for %s: no node counts", f.Topology, f.Level, at)
	case StaleDomain:
		return fmt.Sprintf("a domain of %s is no longer in topology %q", at, f.Topology)
	case ElasticLevel:
		return fmt.Sprintf("an elastic job can neither require nor prefer a level: %s", at)
	case BrokenSlice, TooFew:
	}
	return fmt.Sprintf("no domain of topology %q completes the slices of %s", f.Topology, at)
}

// failure describes why a group does not fit into the domains of level l.
func (s *Space) failure(g *group, sh *shape, h chooser, l int, o Options) *Failure {
	t := g.tree
	f := &Failure{
		Cause: TooFew, PodSet: g.workers.Name, Group: g.workers.Group, Topology: t.def.Topology, Flavor: t.flavor,
		Level: t.def.Levels[g.requested], Unit: Pods, Needed: g.needed, Nodes: t.active,
	}
	if g.size > 1 {
		f.Unit = Slices
	}
	list := t.candidates(sh, l, h)
	var best int
	f.Fit, best = h.fit(list, g.required)
	if !o.Explain {
		return f
	}
	if best >= 0 {
		f.Best = t.pathValues(l, list[best].id)
		f.Layers = t.layerFits(g, sh, l, list[best].id)
	}
	f.Excluded = t.exclusions(sh)
	for level := range t.levels {
		f.Levels = append(f.Levels, t.levelFit(sh, level))
	}
	return f
}

// fit returns how much domains hold, in one of them or together, and the index of the one that holds most, -1 if none
// can host the leader.
func (h chooser) fit(list []candidate, single bool) (n int64, best int) {
	best = -1
	lost := int64(plenty)
	for i := range list {
		c := &list[i]
		n += c.slices
		if h.leader && !c.leader {
			continue
		}
		if best < 0 || c.slicesWL > list[best].slicesWL || (c.slicesWL == list[best].slicesWL && c.order < list[best].order) {
			best = i
		}
		lost = min(lost, c.slices-c.slicesWL)
	}
	switch {
	case best < 0:
		return 0, best
	case single:
		return list[best].slicesWL, best
	}
	return n - lost, best
}

// pathValues returns the values of a domain's path.
func (t *tree) pathValues(l int, id int32) []string {
	values := make([]string, l+1)
	for ; l >= 0; l-- {
		values[l] = t.levels[l].All[id].value
		id = t.levels[l].All[id].parent
	}
	return values
}

// layerFits counts the slices of each layer in one domain, if there are several layers.
func (t *tree) layerFits(g *group, sh *shape, l int, id int32) (out []LayerFit) {
	if len(g.workers.Layers) < 2 {
		return nil
	}
	for _, layer := range g.workers.Layers {
		at, size := t.levelOf(layer.Level), int64(layer.Size)
		out = append(out, LayerFit{layer.Level, size, t.portions(sh, l, id, at, size), g.needed * g.size / size})
	}
	return out
}

// portions counts the whole portions of a size that the domains of one level hold, below a domain of level l.
func (t *tree) portions(sh *shape, l int, id int32, at int, size int64) (n int64) {
	if l >= at {
		return sh.counts[l][id].pods / size
	}
	for _, k := range t.levels[l].All[id].kids {
		n += t.portions(sh, l+1, k, at, size)
	}
	return n
}

func (t *tree) levelFit(sh *shape, l int) LevelFit {
	out := LevelFit{Level: t.def.Levels[l]}
	list := t.candidates(sh, l, chooser{tiers: true})
	out.Total = len(list)
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.slices, a.slices), cmp.Compare(b.pods, a.pods), cmp.Compare(a.order, b.order))
	})
	for _, c := range list[:min(listed, len(list))] {
		out.First = append(out.First, DomainFit{t.pathValues(l, c.id), c.pods, c.slices})
	}
	return out
}

// exclusions counts the nodes that hold no pod of a shape, each by the first cause. Where leaves have several nodes,
// resources exclude leaves.
func (t *tree) exclusions(sh *shape) (out []Exclusion) {
	add := func(kind ExclusionKind, name string) {
		for i := range out {
			if out[i].Kind == kind && out[i].Name == name {
				out[i].Nodes++
				return
			}
		}
		out = append(out, Exclusion{kind, name, 1})
	}
	for id := range t.leaves {
		lf := &t.leaves[id]
		if lf.active == 0 {
			continue
		}
		if sh.confined != nil && !sh.confined.has(t, int32(id)) {
			add(ByDomain, "")
			continue
		}
		passed := int32(0)
		for _, slot := range lf.nodes {
			n := &t.s.nodes.All[slot]
			if !n.active() || !t.counts(lf, n) {
				continue
			}
			switch kind, name, excluded := t.excludes(sh.filter, slot); {
			case excluded:
				add(kind, name)
			default:
				passed++
			}
		}
		if passed > 0 && sh.counts[t.lowest()][id].pods == 0 {
			add(ByResource, t.limiting(sh, int32(id)))
		}
	}
	slices.SortFunc(out, func(a, b Exclusion) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func (t *tree) excludes(f *filter, slot int32) (kind ExclusionKind, name string, excluded bool) {
	if f == nil {
		return 0, "", false
	}
	switch f.match(t.s, slot).verdict {
	case untolerated:
		taint, _ := f.repelledBy(&t.s.nodes.All[slot])
		return ByTaint, taintName(taint), true
	case unselected:
		return BySelector, "", true
	case averse:
		return ByAffinity, "", true
	case passes:
	}
	return 0, "", false
}

func taintName(t workload.Taint) string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// limiting returns the name of the resource of which a leaf has too little for one pod, the first by name.
func (t *tree) limiting(sh *shape, id int32) string {
	lf, stride, least := &t.leaves[id], t.s.stride, ""
	capacity := row(t.capacity, id, stride)
	if sh.filter != nil {
		capacity = t.capacityFor(sh.filter, lf)
	}
	for _, n := range sh.workers {
		free := resource.Amount(0)
		if n.column >= 0 {
			free = capacity[n.column].Sub(row(t.s.assumed, lf.account, stride)[n.column])
		}
		if n.column >= 0 && !sh.empty {
			free = free.Sub(row(t.s.used, lf.account, stride)[n.column])
		}
		if name := t.s.table.Name(n.resource); free < n.amount && (least == "" || name < least) {
			least = name
		}
	}
	return least
}
