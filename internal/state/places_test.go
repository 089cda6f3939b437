package state

import (
	"strings"
	"testing"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
)

// TestMissingTopology: no workload gets quota of a flavor before its topology exists, in a queue that sends its workloads to other clusters,
// where nodes are not needed. Then its places are delayed, also without a request for them. spec: 20 §4.5, §4.7.4.
func TestMissingTopology(t *testing.T) {
	for name, tc := range map[string]struct {
		request *workload.Topology
		count   int32
		other   string // a second flavor of the queue, and whether it has a topology
		off     bool
		want    string // before there is the topology
	}{
		"implied":                 {count: 1},
		"requested":               {count: 1, request: &workload.Topology{}},
		"no pods":                 {count: 0},
		"another has none":        {count: 1, other: "plain", want: "plain"},
		"another has one":         {count: 1, other: "placed", want: "placed delayed"},
		"none has one, requested": {count: 1, other: "plain", request: &workload.Topology{}},
		"the gate is off":         {count: 1, off: true, want: "tas"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Options: immediately()}
			if !tc.off {
				o.Topology = new(topology.DefaultGates())
			}
			s := New(o)
			tas := flavor.Flavor{Name: "tas", Topology: "racks"}
			s.Apply(SetFlavor(tas))
			s.Apply(SetFlavor(flavor.Flavor{Name: "plain"}))
			s.Apply(SetFlavor(flavor.Flavor{Name: "placed", Topology: "blocks", Levels: []string{"block"}}))
			s.Apply(SetNamespace{Name: "ns"})
			g := Group{Resources: []string{"cpu"}}
			for _, f := range []string{"tas", tc.other} {
				if f != "" {
					g.Flavors = append(g.Flavors, FlavorQuota{Flavor: f, Resources: []Quota{{Resource: "cpu", Nominal: 1, Borrow: quota.NoLimit, Lend: quota.NoLimit}}})
				}
			}
			s.Apply(SetQueue(Queue{Name: "cq", Namespaces: []workload.Term{{}}, Groups: []Group{g}, DelayAll: true, PlacedElsewhere: true}))
			s.Apply(SetLocalQueue(LocalQueue{Namespace: "ns", Name: "lq", Queue: "cq"}))
			s.Apply(SetWorkload(Workload{
				UID: "w", Namespace: "ns", Name: "w", Version: 1, LocalQueue: "lq", Queueable: true,
				PodSets: []PodSet{{
					Name: "main", Count: tc.count, Topology: tc.request, Requests: []Request{{"cpu", 1}}, PerPod: []Request{{"cpu", 1}, {"pods", 1}},
				}},
			}))
			if got := granted(s, 1); got != tc.want {
				t.Errorf("granted %q, want %q", got, tc.want)
			}
			if tc.want != "" {
				return
			}
			tas.Levels = []string{"rack"}
			s.Apply(SetFlavor(tas))
			want := "tas"
			if tc.count > 0 {
				want += " delayed"
			}
			if got := granted(s, 2); got != want {
				t.Errorf("granted %q with the topology, want %q", got, want)
			}
		})
	}
}

// granted are the flavors that a step grants to the first pod set.
func granted(s *State, now workload.Instant) string {
	var out []string
	for _, d := range s.Step(now, 10).Decisions {
		if d.Admitted == nil {
			continue
		}
		ps := s.Grant(&d).PodSets[0]
		for _, h := range ps.Held {
			out = append(out, h.Flavor)
		}
		if ps.Delayed {
			out = append(out, "delayed")
		}
	}
	return strings.Join(out, " ")
}
