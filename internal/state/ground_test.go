package state

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/ledger"
	"github.com/berth-project/berth/internal/core/topology"
)

// groundTwin is what the changes of models add up to, as text.
type groundTwin struct {
	last *Model
	has  map[string]string
}

// follow applies the changes since the last model.
func (g *groundTwin) follow(m *Model) {
	if g.has == nil {
		g.has = map[string]string{}
	}
	m.PlacesSince(g.last, func(e Event, uses ledger.Part) {
		set := func(kind, name string, what any) { g.has[kind+name] = fmt.Sprintf("%+v", what) }
		switch e := e.(type) {
		case SetNode:
			set("node ", e.Name, e)
		case DeleteNode:
			delete(g.has, "node "+string(e))
		case SetForeign:
			if set("foreign ", e.Node, e); len(e.Used) == 0 {
				delete(g.has, "foreign "+e.Node)
			}
		case SetFlavor:
			set("flavor ", e.Name, e)
		case DeleteFlavor:
			delete(g.has, "flavor "+string(e))
		case SetWorkload:
			set("workload ", e.UID, fmt.Sprintf("%s/%s in %s: %+v %+v", e.Namespace, e.Name, e.Queue, e.Placed, rememberedPart(uses)))
		case DeleteWorkload:
			delete(g.has, "workload "+string(e))
		}
	})
	g.last = m
}

func rememberedPart(p ledger.Part) []ledger.Item {
	items := topology.Dimension{}.Remember(p)
	slices.SortFunc(items, func(a, b ledger.Item) int {
		return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.At, b.At), cmp.Compare(a.Resource, b.Resource))
	})
	return items
}

// of returns what the changes have to add up to.
func (g *groundTwin) of(s *State) map[string]string {
	out := map[string]string{}
	if s.places == nil {
		return out
	}
	m := rememberNodes(s.places.Nodes(), nil, nil, s.world.Table.Names())
	for _, n := range m.Nodes {
		out["node "+n.Name] = fmt.Sprintf("%+v", n)
	}
	for _, f := range m.Foreign {
		out["foreign "+f.Node] = fmt.Sprintf("%+v", f)
	}
	for name, f := range s.flavors { //berth:unordered a set
		if len(f.Levels) > 0 && !f.Missing {
			out["flavor "+name] = fmt.Sprintf("%+v", SetFlavor(*f))
		}
	}
	for name, q := range s.queues { //berth:unordered a set
		for wl := range q.q.Holders().All() {
			uses, r := wl.Usage.Part(s.places.Key), s.records[wl.UID]
			if uses == nil {
				continue
			}
			placed := r.def.Placed
			if r.assumed() {
				placed = placementsOf(r.got)
			}
			out["workload "+wl.UID] = fmt.Sprintf("%s in %s: %+v %+v", wl.Key, name, placed, rememberedPart(uses))
		}
	}
	return out
}

// checkGround holds after every few events: the changes of the models add up to the nodes and the places of the state.
func (m *machine) checkGround(t *rapid.T, now *Model) {
	m.ground.follow(now)
	if diff := gocmp.Diff(m.ground.of(m.s), m.ground.has); diff != "" {
		t.Fatalf("nodes and places (-state +models):\n%s", diff)
	}
}

// A model of one node more costs the changes of one node, however many there are.
func TestPlacesSinceCostsByTheChange(t *testing.T) {
	cost := func(nodes int) float64 {
		s := New(Options{Options: immediately(), Topology: new(topology.DefaultGates())})
		for i := range nodes {
			s.Apply(SetNode{Name: fmt.Sprint("n", i), Labels: map[string]string{topology.Hostname: fmt.Sprint("n", i)}, Ready: true, Schedulable: true})
		}
		last, ready := s.Publish(), true
		return testing.AllocsPerRun(50, func() {
			ready = !ready
			s.Apply(SetNode{Name: "n7", Labels: map[string]string{topology.Hostname: "n7"}, Ready: ready, Schedulable: true})
			now, changes := s.Publish(), 0
			if now.PlacesSince(last, func(Event, ledger.Part) { changes++ }); changes != 1 {
				t.Fatalf("%d changes", changes)
			}
			last = now
		})
	}
	if small, large := cost(20), cost(5000); large > 4*small {
		t.Errorf("a change costs %v allocations among 5,000 nodes, %v among 20", large, small)
	}
}
