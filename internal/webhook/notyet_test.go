package webhook

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

func TestNotYet(t *testing.T) {
	podSets := func(change func(*kueue.PodSet)) kueue.WorkloadSpec {
		ps := kueue.PodSet{Name: "main", Count: 2}
		change(&ps)
		return kueue.WorkloadSpec{PodSets: []kueue.PodSet{ps}}
	}
	cases := map[string]struct {
		object client.Object
		want   string // the path, "" for no warning
	}{
		"a plain queue":     {&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{CohortName: "c"}}, ""},
		"fair sharing":      {&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{FairSharing: &kueue.FairSharing{}}}, "spec.fairSharing"},
		"of a cohort":       {&kueue.Cohort{Spec: kueue.CohortSpec{FairSharing: &kueue.FairSharing{}}}, "spec.fairSharing"},
		"a topology":        {&kueue.ResourceFlavor{Spec: kueue.ResourceFlavorSpec{TopologyName: "t"}}, "spec.topologyName"},
		"a plain workload":  {&kueue.Workload{Spec: podSets(func(*kueue.PodSet) {})}, ""},
		"partial admission": {&kueue.Workload{Spec: podSets(func(p *kueue.PodSet) { p.MinCount = new(int32(1)) })}, "spec.podSets[main].minCount"},
		"a gate":            {&kueue.Workload{Spec: kueue.WorkloadSpec{PreemptionGates: []kueue.PreemptionGate{{Name: "g"}}}}, "spec.preemptionGates"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := notYet(tc.object)
			if tc.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || tc.want == "" || !strings.HasPrefix(got[0], tc.want+" ") {
				t.Errorf("warnings %q, want one about %q", got, tc.want)
			}
		})
	}
}
