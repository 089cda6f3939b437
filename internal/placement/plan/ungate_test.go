package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/placement/plan"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

// pod reads "NAME SET [gated] [PHASE] [deleting] [pool=VALUE]".
func pod(line string) *corev1.Pod {
	words := strings.Fields(line)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: words[0], UID: types.UID(words[0]), Labels: map[string]string{kueue.PodSetLabel: words[1]},
		Annotations: map[string]string{kueue.WorkloadSliceNameAnnotation: "s1"},
	}}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "else"}}
	for _, w := range words[2:] {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "gated":
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate})
		case "deleting":
			p.DeletionTimestamp = &metav1.Time{}
		case "pool":
			p.Spec.NodeSelector = map[string]string{"pool": value}
		default:
			p.Status.Phase = corev1.PodPhase(key)
		}
	}
	return p
}

func TestDecide(t *testing.T) {
	tests := map[string]struct {
		pods    []string
		done    int32 // of 3 pods of main
		shrunk  bool  // to 2
		want    []string
		granted *int32
		warns   bool
	}{
		"lowest names first":              {pods: []string{"d main gated", "b main gated", "c main gated", "a main gated"}, want: []string{"a", "b", "c"}},
		"those that run take room":        {pods: []string{"a main", "b main", "c main gated", "d main gated"}, want: []string{"c"}},
		"those that end do, too":          {pods: []string{"a main deleting", "b main", "c main gated", "d main gated"}, want: []string{"c"}},
		"those that are over do not":      {pods: []string{"a main Succeeded", "b main Failed", "c main gated"}, want: []string{"c"}},
		"no more than there is room":      {pods: []string{"a main", "b main", "c main", "d main", "e main gated"}},
		"sets do not share":               {pods: []string{"a main", "b main", "c main", "d main gated", "e side gated", "f side gated"}, want: []string{"e"}},
		"a set that nobody knows":         {pods: []string{"a other gated"}},
		"one that is deleted stays gated": {pods: []string{"a main gated deleting", "b main gated"}, want: []string{"b"}},
		"what was let go before":          {pods: []string{"a main gated", "b main", "c main gated", "d main gated"}, want: []string{"a", "c"}},
		"another node selector":           {pods: []string{"a main gated pool=a100", "b main gated pool=h100", "c main gated", "d main gated"}, want: []string{"b", "c", "d"}, warns: true},
		"another one, without room":       {pods: []string{"a main", "b main", "c main", "d main gated pool=a100"}},
		"quota that was given back":       {pods: []string{"a main gated", "b main gated"}, done: 2, want: []string{"a"}},
		"a slice that shrank":             {pods: []string{"a main gated", "b main gated", "c main gated"}, shrunk: true, want: []string{"a", "b"}},
		"fewer were admitted":             {pods: []string{"a main gated", "b main gated"}, granted: new(int32(1)), want: []string{"a"}},
	}
	for name, tc := range tests {
		w := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 3}, {Name: "side", Count: 1}}}}
		w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(3))}, {Name: "side", Count: new(int32(1))}}}
		if tc.granted != nil {
			w.Status.Admission.PodSetAssignments[0].Count = tc.granted
		}
		if tc.shrunk {
			w.Spec.PodSets[0].Count = 2
		}
		if tc.done > 0 {
			w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: tc.done}}
		}
		o := &plan.Observed{Slice: w, Infos: []job.PodSetInfo{
			{Name: "main", NodeSelector: map[string]string{"pool": "h100"}, Annotations: map[string]string{kueue.WorkloadSliceNameAnnotation: "s0"}, Tolerations: []corev1.Toleration{{Key: "gpu"}}},
			{Name: "side"},
		}}
		for _, line := range tc.pods {
			o.Pods = append(o.Pods, pod(line))
		}
		var got []string
		freed, contradiction := plan.Decide(o)
		wanted := ""
		if tc.warns {
			wanted = `Pod a stays gated: its node selector pool is "a100" and would have to be "h100". Delete it, and remove the selector from the template of its job`
		}
		if contradiction != wanted {
			t.Errorf("%s: contradiction %q, want %q", name, contradiction, wanted)
		}
		for _, p := range freed {
			got = append(got, p.Name)
			if plan.IsGated(p) || len(p.Spec.SchedulingGates) != 1 {
				t.Errorf("%s: gates of %s: %v", name, p.Name, p.Spec.SchedulingGates)
			}
			if p.Labels[kueue.PodSetLabel] != "main" {
				continue
			}
			if p.Spec.NodeSelector["pool"] != "h100" || p.Annotations[kueue.WorkloadSliceNameAnnotation] != "s0" || len(p.Spec.Tolerations) != 1 {
				t.Errorf("%s: %s is not told what was admitted: %v %v", name, p.Name, p.ObjectMeta, p.Spec)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
}

// TestInPlaces: a freed pod gets the node of a free place of its pod set, or is not freed. Without an assignment it is freed at once.
func TestInPlaces(t *testing.T) {
	w := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 3}, {Name: "side", Count: 1}}}}
	w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: "True"}, {Type: kueue.WorkloadAdmitted, Status: "True"}}
	domains := []assignment.Domain{{Values: []string{"n1"}, Count: 1}, {Values: []string{"n2"}, Count: 2}}
	w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{
		{Name: "main", Count: new(int32(3)), TopologyAssignment: assignment.Encode([]string{corev1.LabelHostname}, domains, true)}, {Name: "side", Count: new(int32(1))},
	}}
	infos := []job.PodSetInfo{{Name: "main", SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}}, {Name: "side"}}
	runs := pod("a main")
	runs.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n2"}
	all := []*corev1.Pod{runs, pod("b main gated"), pod("c main gated"), pod("d side gated"), pod("e main gated")}
	for name, tc := range map[string]struct {
		unhealthy string
		want      []string
	}{
		"two are free":          {"", []string{"b n1", "c n2", "d "}},
		"one is on a sick node": {"n1", []string{"c n2", "d "}},
	} {
		w.Status.UnhealthyNodes = nil
		if tc.unhealthy != "" {
			w.Status.UnhealthyNodes = []kueue.UnhealthyNode{{Name: tc.unhealthy}}
		}
		var freed []*corev1.Pod
		for _, p := range all[1:] {
			freed = append(freed, plan.Free(p, &infos[map[string]int{"main": 0, "side": 1}[p.Labels[kueue.PodSetLabel]]]))
		}
		placed, err := plan.InPlaces(w, infos, all, freed)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range placed {
			if plan.IsGated(p) || plan.IsUnplaced(p) {
				t.Errorf("%s: %s has a gate", name, p.Name)
			}
			got = append(got, p.Name+" "+p.Spec.NodeSelector[corev1.LabelHostname])
		}
		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
