package conversion

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

func TestExpandRefuses(t *testing.T) {
	one := kueue.TopologyAssignmentSlice{
		DomainCount: 2, ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Universal: new("h")}},
		PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(1))},
	}
	cases := map[string]struct {
		change func(s *kueue.TopologyAssignmentSlice)
		err    string
	}{
		"too few roots": {func(s *kueue.TopologyAssignmentSlice) {
			s.ValuesPerLevel = []kueue.TopologyAssignmentSliceLevelValues{{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: []string{"a"}}}}
		}, "slices[0].valuesPerLevel[0].individual.roots has 1 entries for 2 domains"},
		"too few counts": {func(s *kueue.TopologyAssignmentSlice) {
			s.PodCounts = kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{1}}
		}, "slices[0].podCounts.individual has 1 entries for 2 domains"},
		"few bytes for a great many": {func(s *kueue.TopologyAssignmentSlice) { s.DomainCount = 1 << 30 }, "more than 262144 domains"},
		"many levels": {func(s *kueue.TopologyAssignmentSlice) {
			s.DomainCount, s.ValuesPerLevel = assignment.MaxDomains, slices.Repeat(s.ValuesPerLevel, 100_000)
		}, "slices[0].valuesPerLevel has 100000 levels, at most 16 are allowed"},
		"one long value for many": {func(s *kueue.TopologyAssignmentSlice) {
			s.DomainCount = 100_000
			s.ValuesPerLevel = []kueue.TopologyAssignmentSliceLevelValues{{Universal: new(strings.Repeat("h", 1<<20))}}
		}, "the domains have more than 33554432 bytes in v1beta1; read the object as v1beta2"},
		"one long prefix for many": {func(s *kueue.TopologyAssignmentSlice) {
			s.DomainCount = 100_000
			s.ValuesPerLevel = []kueue.TopologyAssignmentSliceLevelValues{{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{
				Prefix: new(strings.Repeat("h", 1<<20)), Roots: make([]string, 100_000),
			}}}
		}, "the domains have more than 33554432 bytes in v1beta1; read the object as v1beta2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := one
			tc.change(&s)
			if _, err := expand([]kueue.TopologyAssignmentSlice{s}, newSpace()); err == nil || err.Error() != tc.err {
				t.Errorf("error %v, want %s", err, tc.err)
			}
		})
	}
}

// TestExpandShares: the pod sets of one object share its bounds.
func TestExpandShares(t *testing.T) {
	many := []kueue.TopologyAssignmentSlice{{
		DomainCount: assignment.MaxDomains / 2, ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Universal: new("h")}},
		PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(1))},
	}}
	left := newSpace()
	for i := range 3 {
		if _, err := expand(many, left); (err != nil) != (i == 2) {
			t.Errorf("pod set %d: %v", i, err)
		}
	}
}

// Thousands of domains survive, and the annotation stays far below its limit (spec: 70 §7 #53).
func TestManyDomains(t *testing.T) {
	list := func(n int) []any {
		var out []any
		for i := range n {
			out = append(out, object{"values": []any{fmt.Sprintf("rack-%d", i/32), fmt.Sprintf("node-%d", i)}, "count": int64(1 + i%2)})
		}
		return out
	}
	for _, n := range []int{4000, assignment.MaxRun + 1} {
		o := object{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "status": object{"admission": object{"podSetAssignments": []any{
			object{"name": "main", "topologyAssignment": object{"levels": []any{"rack", "host"}, "domains": list(n)}},
		}}}}
		convert(t, o, kueue.GroupVersion)
		got := at(items(at(o, "status", "admission"), "podSetAssignments")[0], "topologyAssignment")
		if want := 1 + n/assignment.MaxRun; len(items(got, "slices")) != want {
			t.Errorf("%d slices for %d domains, want %d", len(items(got, "slices")), n, want)
		}
		convert(t, o, kueuev1beta1.GroupVersion)
		if diff := cmp.Diff(list(n), got["domains"]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if o["metadata"] != nil {
			t.Error("an annotation for what comes back by itself")
		}
	}
	// a slice for each of 1000 domains: their shape is too large and is dropped
	var slices []any
	for i := range assignment.MaxSlices {
		host := object{"universal": fmt.Sprintf("%s-%d", strings.Repeat("h", 50), i)}
		slices = append(slices, object{"domainCount": int64(1), "valuesPerLevel": []any{host, host, host}, "podCounts": object{"universal": int64(1)}})
	}
	o := object{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "status": object{"admission": object{"podSetAssignments": []any{
		object{"name": "main", "topologyAssignment": object{"levels": []any{"a", "b", "c"}, "slices": slices}},
	}}}}
	convert(t, o, kueuev1beta1.GroupVersion)
	if o["metadata"] != nil {
		t.Errorf("%d bytes of annotations", len(fmt.Sprint(o["metadata"])))
	}
	convert(t, o, kueue.GroupVersion)
	got := at(items(at(o, "status", "admission"), "podSetAssignments")[0], "topologyAssignment")
	if len(items(got, "slices")) != 1 {
		t.Errorf("%d slices", len(items(got, "slices")))
	}
}

// v1beta2 cannot represent a domain without a value for each level.
func TestRaggedDomains(t *testing.T) {
	for _, values := range [][]any{{"x"}, {"x", "y", "z"}} {
		o := object{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "status": object{"admission": object{"podSetAssignments": []any{
			object{"name": "main", "topologyAssignment": object{"levels": []any{"a", "b"}, "domains": []any{
				object{"values": []any{"x", "y"}, "count": int64(1)}, object{"values": values, "count": int64(1)},
			}}},
		}}}}
		err := Convert(o, kueue.GroupVersion)
		if err == nil || !strings.Contains(err.Error(), "status.admission.podSetAssignments[main].topologyAssignment: domains[1].values") {
			t.Errorf("error %v", err)
		}
	}
}
