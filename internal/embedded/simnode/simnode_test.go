package simnode

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

func TestParseTopology(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		labels []string
		nodes  int
		last   string // name of the last node
		says   string
	}{
		"short names": {
			"block=2,rack=4,host=8",
			[]string{"cloud.provider.com/topology-block", "cloud.provider.com/topology-rack", "kubernetes.io/hostname"},
			64, "b2-r4-h08", "2 block × 4 rack × 8 host",
		},
		"a label key": {
			"example.com/zone=2,rack=10,host=100",
			[]string{"example.com/zone", "cloud.provider.com/topology-rack", "kubernetes.io/hostname"},
			2000, "z2-r10-h100", "2 zone × 10 rack × 100 host",
		},
		"well-known labels": {
			"region=1,zone=3,host=1",
			[]string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "kubernetes.io/hostname"},
			3, "r1-z3-h01", "1 region × 3 zone × 1 host",
		},
		"one letter twice": {
			"row=2,rack=3,host=1",
			[]string{"cloud.provider.com/topology-row", "cloud.provider.com/topology-rack", "kubernetes.io/hostname"},
			6, "row2-rack3-h01", "2 row × 3 rack × 1 host",
		},
		"capitals, prefixes": {
			"cloud.provider.com/topology-block=1, example.com/My_Rack=2, kubernetes.io/hostname=3",
			[]string{"cloud.provider.com/topology-block", "example.com/My_Rack", "kubernetes.io/hostname"},
			6, "b1-m2-h03", "1 block × 2 my-rack × 3 hostname",
		},
		"hosts alone": {"host=3", []string{"kubernetes.io/hostname"}, 3, "h03", "3 host"},
	} {
		t.Run(name, func(t *testing.T) {
			topology, err := ParseTopology(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			nodes := topology.Nodes()
			if diff := cmp.Diff(tc.labels, topology.Labels()); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if len(nodes) != tc.nodes || topology.Count() != tc.nodes || nodes[len(nodes)-1].Name != tc.last || topology.String() != tc.says {
				t.Errorf("%d nodes (%d), the last %s, described as %q", len(nodes), topology.Count(), nodes[len(nodes)-1].Name, topology.String())
			}
		})
	}
}

func TestParseTopologyRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   `"" is not of the form level=count, as in block=2,rack=4,host=8`,
		"rack":                               `"rack" is not of the form level=count`,
		"rack=x,host=2":                      `rack=x: "x" is not a whole number of at least 1`,
		"rack=0,host=2":                      `rack=0: "0" is not a whole number of at least 1`,
		"rack=2,host=-1":                     `host=-1: "-1" is not a whole number`,
		"rack=100,host=51":                   "host=51: that makes more than 5000 nodes",
		"rack=5001,host=1":                   "rack=5001: that makes more than 5000 nodes",
		"a=9223372036854775807,b=2":          "more than 5000 nodes",
		"block=2,rack=4":                     "the last level is rack: it must be host",
		"host=2,rack=4":                      "rack comes after host, which must be the last level",
		"rack=2,rack=2,host=1":               "cloud.provider.com/topology-rack is given twice",
		"host=2,host=2":                      "kubernetes.io/hostname is given twice",
		"Rack=2,host=1":                      `"Rack" is neither a short name of a level, such as rack, nor a label key with a slash`,
		"a/b/c=2,host=1":                     `"a/b/c" is not a label key`,
		"berth.dev/simulated=2,host=1":       "berth.dev/simulated is a label that every simulated node has",
		strings.Repeat("a=1,", 3) + "host=1": "given twice",
		"a=1,b=1,c=1,d=1,e=1,f=1,g=1,i=1,j=1,k=1,l=1,m=1,n=1,o=1,p=1,q=1,host=1":  "17 levels: at most 16 are possible",
		strings.Repeat("x", 40) + "a=1," + strings.Repeat("x", 40) + "b=1,host=1": "nodes would get names such as xxx",
		"example.com/9=1,host=1,example.com/" + strings.Repeat("y", 64) + "=1":    "is not a label key",
	} {
		if got, err := ParseTopology(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
}

// Names of nodes are unique, valid, and sort as the nodes are in the topology; a domain of a level lies in one domain of the level above.
func TestNodesOfAnyTopology(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts []string
		for _, level := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"block", "rack", "row", "zone", "example.com/hall", "a.b/Unit_2"}), 0, 4,
			func(s string) string { return s }).Draw(t, "levels") {
			parts = append(parts, level+"="+rapid.SampledFrom([]string{"1", "2", "3", "11"}).Draw(t, "count"))
		}
		text := strings.Join(append(parts, "host="+rapid.SampledFrom([]string{"1", "3", "12"}).Draw(t, "hosts")), ",")
		topology, err := ParseTopology(text)
		if err != nil {
			if strings.Contains(err.Error(), "more than 5000 nodes") {
				return
			}
			t.Fatalf("%s: %v", text, err)
		}
		names, above := []string{}, map[string]string{}
		for _, node := range topology.Nodes() {
			names = append(names, node.Name)
			if node.Labels[corev1.LabelHostname] != node.Name || len(node.Labels) != len(topology) {
				t.Fatalf("node %s has the labels %v", node.Name, node.Labels)
			}
			parent := ""
			for _, label := range topology.Labels() {
				value := node.Labels[label]
				if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
					t.Fatalf("%s=%s: %v", label, value, problems)
				}
				if known, seen := above[label+value]; seen && known != parent {
					t.Fatalf("%s=%s is in %s and in %s", label, value, known, parent)
				}
				above[label+value], parent = parent, value
			}
		}
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != topology.Count() {
			t.Fatalf("names are not unique and sorted: %v", names)
		}
	})
}

func TestPlain(t *testing.T) {
	want := []Node{
		{"berth-node-0", map[string]string{corev1.LabelHostname: "berth-node-0"}},
		{"berth-node-1", map[string]string{corev1.LabelHostname: "berth-node-1"}},
	}
	if diff := cmp.Diff(want, Plain(2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHasFailed(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": false, "yes": false} {
		node := &corev1.Node{}
		node.Annotations = map[string]string{FailureAnnotation: value}
		if HasFailed(node) != want {
			t.Errorf("%q: %v", value, !want)
		}
	}
}
