package visibility

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/occupancy"
	"github.com/berth-project/berth/internal/state"
)

const usage = "/apis/visibility.berth.dev/v1alpha1/topologies/dc/usage"

// racks is a topology dc with the racks r0 and r1 of two nodes each, and a gang of 3 pods that runs in r0.
func racks() *occupancy.Map {
	gates := topology.DefaultGates()
	st := state.New(state.Options{Options: cycle.Defaults(), Topology: &gates})
	st.Apply(state.SetNamespace{Name: "red"})
	st.Apply(state.SetFlavor(flavor.Flavor{Name: "f", Topology: "dc", Levels: []string{"rack", topology.Hostname}}))
	st.Apply(state.SetQueue(state.Queue{Name: "cq", Namespaces: []workload.Term{{}}, Groups: []state.Group{{
		Resources: []string{"gpu"},
		Flavors:   []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{{Resource: "gpu", Nominal: 99, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}},
	}}}))
	st.Apply(state.SetLocalQueue(state.LocalQueue{Namespace: "red", Name: "q", Queue: "cq"}))
	for i := range 4 {
		name := fmt.Sprint("n", i)
		st.Apply(state.SetNode{
			Name: name, Labels: map[string]string{"rack": fmt.Sprint("r", i/2), topology.Hostname: name}, Ready: i != 3, Schedulable: true,
			Allocatable: []state.Request{{Resource: "gpu", Amount: 2}, {Resource: "pods", Amount: 110}},
		})
	}
	st.Apply(state.SetWorkload(state.Workload{UID: "u", Namespace: "red", Name: "w", Version: 1, LocalQueue: "q", Queueable: true, PodSets: []state.PodSet{{
		Name: "main", Count: 3, Requests: []state.Request{{Resource: "gpu", Amount: 3}}, Topology: &workload.Topology{Required: "rack"},
		PerPod: []state.Request{{Resource: "gpu", Amount: 1}, {Resource: "pods", Amount: 1}},
	}}}))
	st.Step(1e9, 100)
	return occupancy.New(st.Publish, &gates)
}

// The use of a topology has its levels with their domains, hosts only if they are asked for, and no names of workloads.
func TestTopologyUsage(t *testing.T) {
	s := world(rules{"get visibility.berth.dev/topologies/usage /dc"})
	s.Places = racks()
	got := get(s, usage)
	var out berthv1alpha1.TopologyUsage
	if err := json.Unmarshal(got.Body.Bytes(), &out); err != nil || got.Code != 200 || len(out.Flavors) != 1 {
		t.Fatalf("%d %s: %v", got.Code, got.Body, err)
	}
	f := out.Flavors[0]
	if f.Nodes != (berthv1alpha1.NodeCounts{Counted: 3, NotReady: 1}) {
		t.Errorf("nodes: %+v", f.Nodes)
	}
	var lines []string
	for _, l := range f.Levels {
		r := l.Resources[0]
		lines = append(lines, fmt.Sprintf("%s: %d domains, %s of %s free, at most %s, %d%%", l.Level, l.Count, &r.Free, &r.Capacity, &r.LargestFree, r.FragmentationPercent))
		for _, d := range l.Domains {
			lines = append(lines, fmt.Sprintf("%s: %d nodes, %d excluded, %d pods, %s free", strings.Join(d.Values, "/"), d.Nodes, d.Excluded, d.Pods, &d.Resources[0].Free))
		}
	}
	for _, l := range f.Shapes[0].Largest {
		lines = append(lines, fmt.Sprintf("%d of %d pods in %v", l.Pods, f.Shapes[0].Running, l.Domain))
	}
	want := []string{
		"rack: 2 domains, 3 of 6 free, at most 2, 33%", "r0: 2 nodes, 0 excluded, 3 pods, 1 free", "r1: 1 nodes, 1 excluded, 0 pods, 2 free",
		"kubernetes.io/hostname: 4 domains, 3 of 6 free, at most 2, 0%", "2 of 1 pods in [r1]", "2 of 1 pods in [r1 n2]",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if strings.Contains(got.Body.String(), "red") {
		t.Errorf("it names what is in namespaces: %s", got.Body)
	}
	if hosts := get(s, usage+"?hosts=true"); hosts.Code != 200 || strings.Count(hosts.Body.String(), `"values":["r1","n3"]`) != 1 {
		t.Errorf("with hosts: %d %s", hosts.Code, hosts.Body)
	}
	for path, code := range map[string]int{usage + "?hosts=perhaps": 400, strings.Replace(usage, "/dc/", "/none/", 1): 403} {
		if got := get(s, path); got.Code != code {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	all := world(rules{"everything"})
	if got := get(all, usage); got.Code != 200 || !strings.Contains(got.Body.String(), `"flavors":[]`) {
		t.Errorf("without topologies: %d %s", got.Code, got.Body)
	}
}
