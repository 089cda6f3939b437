package metrics

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/state"
)

// Gauges of topologies show how fragmented the nodes are, with a series for each level and none for each domain, and go with their flavor.
func TestTopologies(t *testing.T) {
	gates := topology.DefaultGates()
	s := state.New(state.Options{Options: cycle.Defaults(), Topology: &gates})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(Options{Topologies: true, Places: occupancy.New(s.Publish, &gates)}))
	w := &world{t: t, state: s, registry: registry}
	s.Apply(state.SetNamespace{Name: "ns"})
	s.Apply(state.SetFlavor(flavor.Flavor{Name: "f", Topology: "dc", Levels: []string{"rack", topology.Hostname}}))
	s.Apply(state.SetQueue(state.Queue{Name: "q", Namespaces: []workload.Term{{}}, Groups: []state.Group{{
		Resources: []string{"cpu"},
		Flavors:   []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{{Resource: "cpu", Nominal: 1 << 40, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}},
	}}}))
	s.Apply(state.SetLocalQueue(state.LocalQueue{Namespace: "ns", Name: "l", Queue: "q"}))
	for i := range 6 {
		name := fmt.Sprint("n", i)
		s.Apply(state.SetNode{
			Name: name, Labels: map[string]string{"rack": fmt.Sprint("r", i/3), topology.Hostname: name}, Ready: i != 5, Schedulable: i != 4,
			Allocatable: []state.Request{{Resource: "cpu", Amount: 4000}, {Resource: "ephemeral-storage", Amount: 1 << 30}, {Resource: "pods", Amount: 110}},
		})
	}
	for i, pods := range []int32{7, 2} {
		name := fmt.Sprint("w", i)
		s.Apply(state.SetWorkload(state.Workload{
			UID: name, Namespace: "ns", Name: name, Version: 1, LocalQueue: "l", Queueable: true, PodSets: []state.PodSet{{
				Name: "main", Count: pods, Requests: []state.Request{{Resource: "cpu", Amount: 1000 * resource.Amount(pods)}},
				PerPod: []state.Request{{Resource: "cpu", Amount: 1000}, {Resource: "pods", Amount: 1}}, Topology: &workload.Topology{Required: "rack"},
			}},
		}))
		w.step()
	}
	want := []string{
		"berth_topology_capacity{flavor=f,resource=cpu,topology=dc} 16",
		"berth_topology_domains{flavor=f,level=kubernetes.io/hostname,topology=dc} 6",
		"berth_topology_domains{flavor=f,level=rack,topology=dc} 2",
		"berth_topology_fragmentation_ratio{flavor=f,level=kubernetes.io/hostname,resource=cpu,topology=dc} 0",
		"berth_topology_fragmentation_ratio{flavor=f,level=rack,resource=cpu,topology=dc} 0.2857142857142857",
		"berth_topology_free{flavor=f,resource=cpu,topology=dc} 7",
		"berth_topology_largest_free{flavor=f,level=kubernetes.io/hostname,resource=cpu,topology=dc} 4",
		"berth_topology_largest_free{flavor=f,level=rack,resource=cpu,topology=dc} 5",
		"berth_topology_nodes{flavor=f,state=cordoned,topology=dc} 1",
		"berth_topology_nodes{flavor=f,state=counted,topology=dc} 4",
		"berth_topology_nodes{flavor=f,state=not_ready,topology=dc} 1",
		"berth_topology_nodes{flavor=f,state=unlabeled,topology=dc} 0",
	}
	if diff := cmp.Diff(want, w.scrape("berth_topology_")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s.Apply(state.DeleteFlavor("f"))
	w.expect("without the flavor", "berth_topology_")
}
