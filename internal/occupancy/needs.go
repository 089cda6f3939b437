package occupancy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// maxShapes bounds the shapes of a flavor that are listed.
const maxShapes = 16

// Shape is pods of equal requests and constraints, of workloads that hold places of a flavor or wait for some.
type Shape struct {
	Requests         []state.Request // of one pod
	Constrained      bool            // a node selector or affinity restricts its nodes
	Running, Waiting int             // workloads
	// Largest is by level the domain that holds the most further pods, and how many.
	Largest []topology.LevelFit
}

// Shapes returns the shapes of a flavor, the ones of most workloads first, at most 16.
func (r *Reader) Shapes(f *Flavor) []Shape {
	type found struct {
		Shape
		podSet workload.PodSet
	}
	of := map[string]*found{}
	at := func(ps *state.PodSet) *found {
		key := shapeKey(ps)
		if of[key] == nil {
			of[key] = &found{Shape{Requests: ps.PerPod, Constrained: constrained(ps.Constraints)}, r.podSet(ps)}
		}
		return of[key]
	}
	for _, h := range r.holders { //berth:unordered counts
		for i := range h.Placed {
			n := slices.IndexFunc(h.PodSets, func(ps state.PodSet) bool { return ps.Name == h.Placed[i].PodSet })
			if n >= 0 && h.Placed[i].Flavor == f.Name {
				at(&h.PodSets[n]).Running++
			}
		}
	}
	if r.Model != nil {
		r.waiting(f, func(ps *state.PodSet, workloads int) { at(ps).Waiting += workloads })
	}
	keys := make([]string, 0, len(of))
	for key := range of { //berth:unordered sorted below
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if x, y := of[a], of[b]; x.Running+x.Waiting != y.Running+y.Waiting {
			return y.Running + y.Waiting - x.Running - x.Waiting
		}
		return strings.Compare(a, b)
	})
	var out []Shape
	for _, key := range keys[:min(maxShapes, len(keys))] {
		s := of[key]
		s.Largest, _ = r.places.LargestOf(&s.podSet, r.flavors[f.Name])
		out = append(out, s.Shape)
	}
	return out
}

// waiting calls visit with the pod sets of each class of pending workloads that may get a flavor.
func (r *Reader) waiting(f *Flavor, visit func(ps *state.PodSet, workloads int)) {
	for queue := range r.Queues() {
		if !slices.Contains(r.PlacedFlavors(queue), f.Name) {
			continue
		}
		list, _ := r.Waiting(queue)
		count, first := map[int32]int{}, []state.PendingWorkload(nil)
		for w := range list.All() {
			if r.Holds(w.UID()) {
				continue
			}
			if count[w.Class()]++; count[w.Class()] == 1 {
				first = append(first, w)
			}
		}
		for _, w := range first {
			podSets := w.PodSets(r.Model)
			for i := range podSets {
				visit(&podSets[i], count[w.Class()])
			}
		}
	}
}

func constrained(c *workload.Constraints) bool {
	return c != nil && (len(c.Selector) > 0 || len(c.Affinity) > 0)
}

func shapeKey(ps *state.PodSet) string {
	key := fmt.Sprint(ps.PerPod)
	if ps.Constraints != nil {
		key += fmt.Sprintf("%v", *ps.Constraints) // maps are printed in order
	}
	return key
}

func (r *Reader) podSet(ps *state.PodSet) workload.PodSet {
	return workload.PodSet{
		Name: ps.Name, Count: ps.Count, MinCount: ps.MinCount, Group: ps.Group, Constraints: ps.Constraints, Topology: ps.Topology,
		Requests: r.requests(ps.Requests), PerPod: r.requests(ps.PerPod),
	}
}

// Need is what pod sets of a pending workload lack of one flavor's domains.
type Need struct {
	PodSets []string // placed together
	Flavor  string
	topology.Room
	Why string // why they cannot be placed whatever is free, "" if they may
}

// Needs returns what a pending workload of a ClusterQueue needs, for each pod set or group and each flavor with a topology of the
// queue; false if it is not pending there. Each group is compared with all that is free: others of the workload are not
// subtracted.
func (r *Reader) Needs(queue, uid string) (out []Need, pending bool) {
	if r.Model == nil {
		return nil, false
	}
	list, known := r.Waiting(queue)
	if !known || r.Holds(uid) {
		return nil, false
	}
	for w := range list.All() {
		if w.UID() == uid {
			return r.needsOf(queue, w.PodSets(r.Model)), true
		}
	}
	return nil, false
}

func (r *Reader) needsOf(queue string, defs []state.PodSet) (out []Need) {
	podSets := make([]workload.PodSet, len(defs))
	var groups [][]int
	for i := range defs {
		podSets[i] = r.podSet(&defs[i])
		at := slices.IndexFunc(groups, func(g []int) bool { return defs[i].Group != "" && defs[g[0]].Group == defs[i].Group })
		if at >= 0 {
			groups[at] = append(groups[at], i)
		} else {
			groups = append(groups, []int{i})
		}
	}
	for _, g := range groups {
		for _, name := range r.PlacedFlavors(queue) {
			n := Need{Flavor: name}
			for _, i := range g {
				n.PodSets = append(n.PodSets, defs[i].Name)
			}
			room, f := r.places.RoomFor(podSets, flavor.PlaceGroup{PodSets: g, Flavor: r.flavors[name]})
			if n.Room = room; f != nil {
				n.Why = f.String()
			}
			out = append(out, n)
		}
	}
	return out
}
