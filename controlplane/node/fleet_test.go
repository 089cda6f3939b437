package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/berth-project/berth/controlplane/capacity"
	"github.com/berth-project/berth/controlplane/simnode"
)

// A later start replaces the names, labels and capacity that an earlier one gave to the nodes; labels of users stay.
func TestSync(t *testing.T) {
	topology := func(text string) (f fleet) {
		levels, err := simnode.ParseTopology(text)
		if err != nil {
			t.Fatal(err)
		}
		f.nodes, f.levels = levels.Nodes(), levels.Labels()
		return f
	}
	plain := func(count int) fleet { return fleet{nodes: simnode.Plain(count)} }
	rack, host := "cloud.provider.com/topology-rack", corev1.LabelHostname
	for name, tc := range map[string]struct {
		first, then fleet
		want        map[string]map[string]string // topology labels by node
	}{
		"none, then a topology": {plain(2), topology("rack=1,host=2"), map[string]map[string]string{
			"r1-h01": {rack: "r1", host: "r1-h01"}, "r1-h02": {rack: "r1", host: "r1-h02"},
		}},
		"a topology, then none": {topology("rack=1,host=2"), plain(1), map[string]map[string]string{"berth-node-0": {host: "berth-node-0"}}},
		"other labels":          {topology("rack=1,host=1"), topology("a.b/row=1,host=1"), map[string]map[string]string{"r1-h01": {"a.b/row": "r1", host: "r1-h01"}}},
		"fewer":                 {topology("rack=2,host=1"), topology("rack=1,host=1"), map[string]map[string]string{"r1-h01": {rack: "r1", host: "r1-h01"}}},
		"the same":              {topology("host=1"), topology("host=1"), map[string]map[string]string{"h01": {host: "h01"}}},
	} {
		t.Run(name, func(t *testing.T) {
			client, size := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}), ""
			for i, f := range []fleet{tc.first, tc.then} {
				size = []string{"cpu=1,memory=1Gi", "cpu=2"}[i]
				var err error
				if f.capacity, err = capacity.Parse(size); err != nil {
					t.Fatal(err)
				}
				if err := f.sync(t.Context(), client, now); err != nil {
					t.Fatal(err)
				}
				list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: simnode.Label})
				if err != nil {
					t.Fatal(err)
				}
				for j := range list.Items {
					node := &list.Items[j]
					if node.Labels["user"] = "kept"; i == 0 {
						if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]map[string]string{}
			for _, node := range list.Items {
				if node.Name == "foreign" {
					continue
				}
				if node.Status.Allocatable.Cpu().Value() != 2 || len(node.Status.Allocatable) != 2 {
					t.Errorf("node %s has %v", node.Name, node.Status.Allocatable)
				}
				if tc.first.nodes[0].Name == node.Name && node.Labels["user"] != "kept" {
					t.Errorf("node %s lost the label of a user: %v", node.Name, node.Labels)
				}
				labels := node.Labels
				for _, other := range []string{"user", "type", simnode.Label, corev1.LabelArchStable, corev1.LabelOSStable} {
					delete(labels, other)
				}
				got[node.Name] = labels
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || len(list.Items) != len(tc.want)+1 {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}
