package admit

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// TestReplacement: the replacement of a failed node is written only while that node alone is recorded. A node that is healthy again keeps
// its pods, whatever was decided meanwhile, and one without a replacement evicts no workload then. spec: 20 §4.9.
func TestReplacement(t *testing.T) {
	c := connect(t)
	for name, tc := range map[string]struct {
		recorded []string // when it is written; n1 had failed when it was decided
		evicts   bool     // there is no replacement
		want     string   // the node afterwards
		late     bool
	}{
		"the node is still the only one":        {recorded: []string{"n1"}, want: "n2"},
		"it is healthy again":                   {want: "n1", late: true},
		"another one":                           {recorded: []string{"n3"}, want: "n1", late: true},
		"one more":                              {recorded: []string{"n1", "n3"}, want: "n1", late: true},
		"no replacement":                        {recorded: []string{"n1"}, evicts: true, want: "evicted"},
		"no replacement, and healthy again":     {evicts: true, want: "n1"},
		"no replacement, and it is another one": {recorded: []string{"n3"}, evicts: true, want: "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := create(t, c, "placed")
			on := func(node string) *trace.Placement {
				return &trace.Placement{Flavor: "f", Levels: []string{"kubernetes.io/hostname"}, Domains: []trace.Domain{{Values: []string{node}, Count: 2}}}
			}
			writer := newWriter(c, c)
			first := admission(w)
			first.Grant.PodSets[0].Placement = on("n1")
			if err := writer.write(t.Context(), &order{Decision: first}); err != nil {
				t.Fatal(err)
			}
			w = live(t, c, w)
			for _, n := range tc.recorded {
				w.Status.UnhealthyNodes = append(w.Status.UnhealthyNodes, kueue.UnhealthyNode{Name: n})
			}
			if err := c.Status().Update(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			d := admission(w)
			d.SecondPass, d.Failed, d.Grant.PodSets[0].Placement = true, []string{"n1"}, on("n2")
			if tc.evicts {
				d.Grant, d.NodesFailed = nil, true
			}
			if err := writer.write(t.Context(), &order{Decision: d}); (err != nil) != tc.late {
				t.Errorf("error %v", err)
			}
			now := live(t, c, w)
			domains, err := assignment.Decode(now.Status.Admission.PodSetAssignments[0].TopologyAssignment)
			if err != nil {
				t.Fatal(err)
			}
			got := domains[0].Values[0]
			if apimeta.IsStatusConditionTrue(now.Status.Conditions, kueue.WorkloadEvicted) {
				got = "evicted"
			}
			if got != tc.want {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
			if replaced := got == "n2" || got == "evicted"; replaced != (len(now.Status.UnhealthyNodes) == 0) && len(tc.recorded) > 0 {
				t.Errorf("%v are recorded", now.Status.UnhealthyNodes)
			}
			if err := c.Delete(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		})
	}
}
