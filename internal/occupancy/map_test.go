package occupancy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// world is a state with 2 racks of 3 nodes, with 4 GPUs each, and a ClusterQueue q that has enough quota.
type world struct {
	*state.State
	now     int64
	version uint64
}

func newWorld() *world {
	options := state.Options{Options: cycle.Defaults(), Topology: new(topology.DefaultGates())}
	options.EditWindow = 0
	w := &world{State: state.New(options)}
	w.Apply(state.SetNamespace{Name: "ns"})
	w.Apply(state.SetFlavor(flavor.Flavor{Name: "f", Topology: "dc", Levels: []string{"rack", topology.Hostname}}))
	w.Apply(state.SetQueue(state.Queue{Name: "q", Namespaces: []workload.Term{{}}, Groups: []state.Group{{
		Resources: []string{"gpu"},
		Flavors:   []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{{Resource: "gpu", Nominal: 1000, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}},
	}}}))
	w.Apply(state.SetLocalQueue(state.LocalQueue{Namespace: "ns", Name: "l", Queue: "q"}))
	for i := range 6 {
		w.node(i, true, true)
	}
	return w
}

func (w *world) node(i int, ready, schedulable bool) {
	name := fmt.Sprint("n", i)
	w.Apply(state.SetNode{
		Name: name, Labels: map[string]string{"rack": fmt.Sprint("r", i/3), topology.Hostname: name}, Ready: ready, Schedulable: schedulable,
		Allocatable: []state.Request{{Resource: "gpu", Amount: 4}, {Resource: "pods", Amount: 110}},
	})
}

// submit adds a gang of pods with one GPU each, and steps.
func (w *world) submit(name string, pods int32, places *workload.Topology) {
	w.version++
	w.Apply(state.SetWorkload(state.Workload{
		UID: name, Namespace: "ns", Name: name, Version: w.version, LocalQueue: "l", Queueable: true, Created: workload.Instant(w.version),
		Since: workload.Instant(w.version),
		PodSets: []state.PodSet{{
			Name: "main", Count: pods, Requests: []state.Request{{Resource: "gpu", Amount: resource.Amount(pods)}}, Topology: places,
			PerPod: []state.Request{{Resource: "gpu", Amount: 1}, {Resource: "pods", Amount: 1}}, Shape: fmt.Sprint(places),
		}},
	}))
	w.step()
}

func (w *world) step() {
	w.now += 1e9
	w.Step(workload.Instant(w.now), 1000)
}

// show is all that a reader shows, as text.
func show(r *Reader) string {
	var b strings.Builder
	for _, f := range r.Flavors("") {
		fmt.Fprintf(&b, "%s of %s %v: %v\n", f.Name, f.Topology, f.Levels, f.Resources)
		fmt.Fprintf(&b, "nodes %+v\n", r.NodesOf(&f))
		for level := range f.Levels {
			domains := r.Domains(&f, level, nil)
			for _, d := range domains {
				fmt.Fprintf(&b, "%s: %d nodes %d excluded %d leaves %d pods", strings.Join(d.Values, "/"), d.Nodes.Counted, d.Nodes.Excluded(), d.Leaves, d.Pods)
				for _, a := range d.Amounts {
					fmt.Fprintf(&b, ", %s %d of %d free", a.Resource, a.Free, a.Capacity)
				}
				for _, o := range r.Occupants(&f, d.Values) {
					fmt.Fprintf(&b, ", %s/%s %s %d", o.Namespace, o.Name, o.PodSet, o.Pods)
				}
				b.WriteByte('\n')
			}
			for _, fill := range FillOf(&f, domains) {
				fmt.Fprintf(&b, "level %s: %s %d free, at most %d at once, fragmentation %.2f\n", f.Levels[level], fill.Resource, fill.Free, fill.LargestFree, fill.Fragmentation())
			}
		}
		for _, s := range r.Shapes(&f) {
			fmt.Fprintf(&b, "shape %v: %d run, %d wait", s.Requests, s.Running, s.Waiting)
			for _, l := range s.Largest {
				if len(l.First) > 0 {
					fmt.Fprintf(&b, ", %d in %s", l.First[0].Pods, strings.Join(l.First[0].Values, "/"))
				}
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// A reader shows amounts, nodes, pods and shapes of every domain, and what a pending gang lacks.
func TestReader(t *testing.T) {
	w := newWorld()
	w.submit("five", 5, &workload.Topology{Required: "rack"})
	w.node(2, false, true)
	w.node(5, true, false)
	w.Apply(state.SetNode{Name: "odd", Labels: map[string]string{topology.Hostname: "odd"}, Ready: true, Schedulable: true})
	w.submit("nine", 9, &workload.Topology{Required: "rack"})
	m := New(w.Publish, new(topology.DefaultGates()))
	m.Read(func(r *Reader) {
		want := `f of dc [rack kubernetes.io/hostname]: [gpu]
nodes {Counted:4 NotReady:1 Cordoned:1 Unlabeled:1}
r0: 2 nodes 1 excluded 3 leaves 5 pods, gpu 3 of 8 free
r1: 2 nodes 1 excluded 3 leaves 0 pods, gpu 8 of 8 free
level rack: gpu 11 free, at most 8 at once, fragmentation 0.00
r0/n0: 1 nodes 0 excluded 1 leaves 4 pods, gpu 0 of 4 free, ns/five main 4
r0/n1: 1 nodes 0 excluded 1 leaves 1 pods, gpu 3 of 4 free, ns/five main 1
r0/n2: 0 nodes 1 excluded 1 leaves 0 pods, gpu 0 of 0 free
r1/n3: 1 nodes 0 excluded 1 leaves 0 pods, gpu 4 of 4 free
r1/n4: 1 nodes 0 excluded 1 leaves 0 pods, gpu 4 of 4 free
r1/n5: 0 nodes 1 excluded 1 leaves 0 pods, gpu 0 of 0 free
level kubernetes.io/hostname: gpu 11 free, at most 4 at once, fragmentation 0.00
shape [{gpu 1} {pods 1}]: 1 run, 1 wait, 8 in r1, 4 in r1/n3
`
		if diff := cmp.Diff(want, show(r)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		needs, pending := r.Needs("q", "nine")
		if !pending || len(needs) != 1 || needs[0].Level != "rack" || !needs[0].One || needs[0].Needed != 9 || needs[0].Why != "" {
			t.Fatalf("it needs %+v", needs)
		}
		if got := fmt.Sprint(needs[0].Domains); got != "[{[r0] 3 3} {[r1] 8 8}]" {
			t.Errorf("the racks hold %s", got)
		}
		for queue, uid := range map[string]string{"q": "five", "none": "nine"} {
			if _, pending := r.Needs(queue, uid); pending {
				t.Errorf("%s waits in %s", uid, queue)
			}
		}
	})
}

// A gang that spreads over racks fragments them: less fits into one rack than could if the free GPUs were together.
func TestFragmentation(t *testing.T) {
	w := newWorld()
	w.submit("a", 7, &workload.Topology{Required: "rack"})
	w.submit("b", 7, &workload.Topology{Required: "rack"})
	New(w.Publish, new(topology.DefaultGates())).Read(func(r *Reader) {
		f := r.Flavors("dc")[0]
		if got := FillOf(&f, r.Domains(&f, 0, nil))[0]; got.Free != 10 || got.LargestFree != 5 || got.Fragmentation() != 0.5 {
			t.Errorf("%+v: %v", got, got.Fragmentation())
		}
		within := r.Domains(&f, 1, []string{"r1"})
		if len(within) != 3 || within[0].Values[1] != "n3" {
			t.Errorf("in r1 there are %v", within)
		}
	})
	var none *Map
	none.Read(func(r *Reader) {
		if len(r.Flavors("")) != 0 {
			t.Error("there are flavors without topologies")
		}
	})
}

// A reader that follows each model equals a reader of the last model alone.
func TestFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := drawer{t}
		w := newWorld()
		follows := New(w.Publish, new(topology.DefaultGates()))
		for i := range 60 {
			switch draw.IntN(6) {
			case 0:
				w.node(draw.IntN(7), draw.IntN(3) > 0, draw.IntN(4) > 0)
			case 1:
				w.Apply(state.DeleteNode(fmt.Sprint("n", draw.IntN(6))))
			case 2:
				w.Apply(state.SetForeign{Node: fmt.Sprint("n", draw.IntN(6)), Used: []state.Request{{Resource: "gpu", Amount: resource.Amount(draw.IntN(3))}}})
			case 3:
				w.Apply(state.DeleteWorkload(fmt.Sprint("w", draw.IntN(i+1))))
				w.step()
			case 4:
				f := flavor.Flavor{Name: "f", Topology: "dc", Levels: [][]string{{"rack", topology.Hostname}, {"rack"}, {topology.Hostname}, nil}[draw.IntN(4)]}
				w.Apply(state.SetFlavor(f))
			case 5:
				w.submit(fmt.Sprint("w", i), int32(draw.IntN(6)+1), []*workload.Topology{nil, {Required: "rack"}, {Preferred: "rack"}}[draw.IntN(3)])
			}
			if draw.IntN(3) > 0 {
				continue
			}
			var got, want string
			follows.Read(func(r *Reader) { got = show(r) })
			New(w.Publish, new(topology.DefaultGates())).Read(func(r *Reader) { want = show(r) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("event %d (-anew +followed):\n%s", i, diff)
			}
		}
	})
}

// drawer draws numbers.
type drawer struct{ *rapid.T }

func (d drawer) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(d.T, "number") }

// TestLateNames: resources beyond the limit of names share a number here as in the state, whose later names keep theirs.
func TestLateNames(t *testing.T) {
	w := newWorld()
	m := New(w.Publish, new(topology.DefaultGates()))
	for i := range resource.MaxRequested {
		w.Apply(state.SetForeign{Node: "n0", Used: []state.Request{{Resource: fmt.Sprint("example.com/r", i), Amount: 1}}})
	}
	for i := range 3 {
		w.Apply(state.SetForeign{Node: "n1", Used: []state.Request{{Resource: fmt.Sprint("example.com/late", i), Amount: 1}, {Resource: "gpu", Amount: 1}}})
		w.node(i, true, true)
		m.Read(func(r *Reader) {
			if got, want := r.table.IDs(), len(r.Model.Resources()); got != want {
				t.Errorf("%d names, the state has %d", got, want)
			}
		})
	}
}
