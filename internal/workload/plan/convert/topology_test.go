package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// spec: 20 §4.5.
func TestTopologyRequest(t *testing.T) {
	cases := map[string]struct {
		request *kueue.PodSetTopologyRequest
		want    *workload.Topology
	}{
		"none":                  {nil, nil},
		"labels of ranks alone": {&kueue.PodSetTopologyRequest{PodIndexLabel: new("i"), SubGroupIndexLabel: new("j"), PodSetGroupName: new("g")}, nil},
		"required":              {&kueue.PodSetTopologyRequest{Required: new("rack")}, &workload.Topology{Required: "rack"}},
		"preferred":             {&kueue.PodSetTopologyRequest{Preferred: new("rack")}, &workload.Topology{Preferred: "rack"}},
		"unconstrained":         {&kueue.PodSetTopologyRequest{Unconstrained: new(true)}, &workload.Topology{}},
		"not unconstrained":     {&kueue.PodSetTopologyRequest{Unconstrained: new(false)}, &workload.Topology{}},
		"slices": {
			&kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: new(int32(2))},
			&workload.Topology{Slices: []workload.SliceLayer{{Level: "rack", Size: 2}}},
		},
		"layers": {
			&kueue.PodSetTopologyRequest{Required: new("zone"), PodSetSliceRequiredTopologyConstraints: []kueue.PodSetSliceTopologyConstraint{
				{Topology: "block", Size: 8}, {Topology: "rack", Size: 4},
			}},
			&workload.Topology{Required: "zone", Slices: []workload.SliceLayer{{Level: "block", Size: 8}, {Level: "rack", Size: 4}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := Requests{Topology: true}
			if diff := cmp.Diff(tc.want, r.topology(&kueue.PodSet{TopologyRequest: tc.request})); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// A placement that is written in a status is read as it was decided, with the usage of one pod.
func TestPlacementRoundTrip(t *testing.T) {
	w := workloadWith(condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved))
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 8, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": apiresource.MustParse("1"), "cpu": apiresource.MustParse("500m")}},
	}}}}}}
	placement := &trace.Placement{Flavor: "gpus", Levels: []string{"block", "rack"}, Domains: []trace.Domain{
		{Values: []string{"b1", "r1"}, Count: 5}, {Values: []string{"b1", "r2"}, Count: 3},
	}}
	grant := state.Grant{Queue: "cq", PodSets: []state.PodSetGrant{{Name: "main", Count: 8, Placement: placement, Held: []state.Held{
		{PodSet: "main", Flavor: "gpus", Resource: "nvidia.com/gpu", Amount: 8},
	}}}}
	r := Requests{Topology: true, ByPrefix: true}
	w.Status.Admission = Admission(grant, r)
	got := Workload(w, r)
	if diff := cmp.Diff([]state.PodSetPlacement{{PodSet: "main", Placement: *placement}}, got.Placed); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	perPod := []state.Request{{Resource: "cpu", Amount: 500}, {Resource: "nvidia.com/gpu", Amount: 1}, {Resource: "pods", Amount: 1}}
	if diff := cmp.Diff(perPod, got.PodSets[0].PerPod); diff != "" {
		t.Errorf("one pod (-want +got):\n%s", diff)
	}
	if len(Workload(w, Requests{}).Placed) > 0 {
		t.Error("places count although the gate is off")
	}
}

// The flavor of a placement is the one that was decided, whatever resources the quota is for. spec: 20 §4.5.
func TestFlavorOfPlacement(t *testing.T) {
	type flavors map[corev1.ResourceName]kueue.ResourceFlavorReference
	for name, tc := range map[string]struct {
		main, leader flavors
		group        string
		unknown      bool // what flavors have a topology
		want         string
	}{
		"of a resource of the pods":        {main: flavors{"nvidia.com/gpu": "tas", "a-license": "shared"}, want: "tas"},
		"of a resource that replaces it":   {main: flavors{"credits": "tas"}, want: "tas"},
		"of one that has a topology":       {main: flavors{"a-license": "shared", "credits": "tas"}, want: "tas"},
		"of one, if none is known":         {main: flavors{"credits": "tas"}, unknown: true, want: "tas"},
		"of resources of its group":        {leader: flavors{"nvidia.com/gpu": "tas"}, group: "g", want: "tas"},
		"of its group, beside its own":     {main: flavors{"a-license": "shared"}, leader: flavors{"nvidia.com/gpu": "tas"}, group: "g", unknown: true, want: "tas"},
		"of what its group is charged for": {main: flavors{"a-license": "shared"}, leader: flavors{"credits": "tas"}, group: "g", want: "tas"},
		"not of pods that are not with it": {leader: flavors{"nvidia.com/gpu": "tas"}, want: ""},
		"of a deleted one":                 {main: flavors{"credits": "gone"}, want: "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			w := workloadWith(condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved))
			w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": apiresource.MustParse("1")}
			leader := *w.Spec.PodSets[0].DeepCopy()
			leader.Name = "leader"
			w.Spec.PodSets = append(w.Spec.PodSets, leader)
			if tc.group != "" {
				for i := range w.Spec.PodSets {
					w.Spec.PodSets[i].TopologyRequest = &kueue.PodSetTopologyRequest{Required: new("block"), PodSetGroupName: &tc.group}
				}
			}
			places := &kueue.TopologyAssignment{Levels: []string{"block", "rack"}}
			w.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{
				{Name: "main", Flavors: tc.main, TopologyAssignment: places}, {Name: "leader", Flavors: tc.leader},
			}}
			r := Requests{Topology: true}
			if !tc.unknown {
				r.HasTopology = func(flavor string) bool { return flavor == "tas" }
			}
			got := Workload(w, r).Placed
			if len(got) != 1 || got[0].Flavor != tc.want {
				t.Errorf("placed %+v, want it on %q", got, tc.want)
			}
		})
	}
}

// spec: 20 §4.7.4.
func TestPlaceNow(t *testing.T) {
	waiting := func(states ...kueue.CheckState) *kueue.Workload {
		w := workloadWith(condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved))
		w.Status.Admission = Admission(state.Grant{Queue: "cq", PodSets: []state.PodSetGrant{{Name: "main", Count: 8, Delayed: true}}}, Requests{})
		for _, s := range states {
			w.Status.AdmissionChecks = append(w.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "c", State: s, PodSetUpdates: []kueue.PodSetUpdate{
				{Name: "main", NodeSelector: map[string]string{"node": "new"}},
			}})
		}
		return w
	}
	on := func(cluster string, w *kueue.Workload) *kueue.Workload {
		w.Status.ClusterName = cluster
		return w
	}
	cases := map[string]struct {
		w    *kueue.Workload
		want bool
	}{
		"no check any more": {waiting(), true},
		"on a worker":       {on("w1", waiting()), false},
		"on a worker, by a check that left its queue": {on("w1", waiting(kueue.CheckStateReady)), false},
		"a pending check":   {waiting(kueue.CheckStateReady, kueue.CheckStatePending), false},
		"all checks passed": {waiting(kueue.CheckStateReady, kueue.CheckStateReady), true},
	}
	for name, tc := range cases {
		got := Workload(tc.w, Requests{Topology: true})
		if got.PlaceNow != tc.want || len(got.Delayed) != 1 || len(got.Updates) != len(tc.w.Status.AdmissionChecks) {
			t.Errorf("%s: place now %v, delayed %v, updates %v", name, got.PlaceNow, got.Delayed, got.Updates)
		}
	}
}

// The pods that a reservation is for, where the pod set has more. spec: 20 §4.10.
func TestGranted(t *testing.T) {
	for name, tc := range map[string]struct {
		count     *int32
		reclaimed int32
		want      map[string]int32
	}{
		"all":                   {new(int32(8)), 0, nil},
		"no count":              {nil, 0, nil},
		"some":                  {new(int32(7)), 0, map[string]int32{"main": 7}},
		"as many as are left":   {new(int32(7)), 1, nil},
		"fewer than are left":   {new(int32(6)), 1, map[string]int32{"main": 6}},
		"more than are left":    {new(int32(7)), 2, nil},
		"more than the job has": {new(int32(9)), 0, nil},
	} {
		w := workloadWith(condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, kueue.ReasonQuotaReserved))
		w.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: tc.count}}}
		w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: tc.reclaimed}}
		if diff := cmp.Diff(tc.want, Workload(w, Requests{Topology: true}).Granted); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// spec: 20 §4.7.4.
func TestDelay(t *testing.T) {
	known := Known{Check: func(name kueue.AdmissionCheckReference) *kueue.AdmissionCheck {
		controllers := map[kueue.AdmissionCheckReference]string{
			"remote": kueue.MultiKueueControllerName, "nodes": kueue.ProvisioningRequestControllerName, "other": "example.com/check",
		}
		if controllers[name] == "" {
			return nil
		}
		return &kueue.AdmissionCheck{Spec: kueue.AdmissionCheckSpec{ControllerName: controllers[name]}}
	}}
	cases := map[string]struct {
		rule kueue.AdmissionCheckStrategyRule
		want state.Queue
	}{
		"other clusters":      {kueue.AdmissionCheckStrategyRule{Name: "remote"}, state.Queue{DelayAll: true, PlacedElsewhere: true}},
		"nodes":               {kueue.AdmissionCheckStrategyRule{Name: "nodes"}, state.Queue{DelayAll: true}},
		"nodes of flavors":    {kueue.AdmissionCheckStrategyRule{Name: "nodes", OnFlavors: []kueue.ResourceFlavorReference{"b", "a"}}, state.Queue{DelayFlavors: []string{"a", "b"}}},
		"another check":       {kueue.AdmissionCheckStrategyRule{Name: "other"}, state.Queue{}},
		"a check that is not": {kueue.AdmissionCheckStrategyRule{Name: "gone"}, state.Queue{}},
	}
	for name, tc := range cases {
		var got state.Queue
		cq := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{
			AdmissionChecks: []kueue.AdmissionCheckStrategyRule{tc.rule},
		}}}
		Delay(&got, cq, known)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The pod sets of a job that opted in are elastic with the gate, whether the Workload replaces another one or not. spec: 20 §4.11.
func TestElastic(t *testing.T) {
	for name, tc := range map[string]struct {
		r    Requests
		on   string
		want bool
	}{
		"opted in":               {Requests{Topology: true, Slices: true, KeepPlaces: true}, "true", true},
		"not opted in":           {Requests{Topology: true, Slices: true, KeepPlaces: true}, "", false},
		"gate off":               {Requests{Topology: true, Slices: true}, "true", false},
		"no elastic jobs":        {Requests{Topology: true, KeepPlaces: true}, "true", false},
		"no topologies":          {Requests{Slices: true, KeepPlaces: true}, "true", false},
		"an annotation of false": {Requests{Topology: true, Slices: true, KeepPlaces: true}, "false", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := workloadWith()
			w.Annotations = map[string]string{kueue.ElasticJobAnnotation: tc.on}
			w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
			if got := Workload(w, tc.r).PodSets[0].Elastic; got != tc.want {
				t.Errorf("elastic: %v", got)
			}
		})
	}
}

// Fields of node affinity are about the names of nodes.
func TestNodeTerm(t *testing.T) {
	got := nodeTerm(&corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}},
		MatchFields:      []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}},
	})
	want := workload.Term{{Key: "zone", Op: workload.Exists}, {Key: workload.NodeName, Op: workload.In, Values: []string{"n1"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("term (-want +got):\n%s", diff)
	}
}
