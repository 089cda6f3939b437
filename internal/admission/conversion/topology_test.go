package conversion

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

func TestCompress(t *testing.T) {
	cases := map[string]struct {
		values []string // of one level
		counts []int32
		want   string
	}{
		"none": {nil, nil, `[]`},
		"one":  {[]string{"h"}, []int32{2}, `[{"domainCount":1,"valuesPerLevel":[{"universal":"h"}],"podCounts":{"universal":2}}]`},
		"prefix and suffix": {
			[]string{"n-1.x", "n-2.x"},
			[]int32{1, 2},
			`[{"domainCount":2,"valuesPerLevel":[{"individual":{"prefix":"n-","suffix":".x","roots":["1","2"]}}],"podCounts":{"individual":[1,2]}}]`,
		},
		"where they overlap the suffix wins": {
			[]string{"n-1", "n-11"},
			[]int32{1, 1},
			`[{"domainCount":2,"valuesPerLevel":[{"individual":{"prefix":"n-","suffix":"1","roots":["","1"]}}],"podCounts":{"universal":1}}]`,
		},
		"nothing in common": {
			[]string{"a", "b"},
			[]int32{1, 1},
			`[{"domainCount":2,"valuesPerLevel":[{"individual":{"roots":["a","b"]}}],"podCounts":{"universal":1}}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var domains []domain
			for i, v := range tc.values {
				domains = append(domains, domain{[]string{v}, tc.counts[i]})
			}
			got, err := json.Marshal(compress(domains))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Compressed domains expand to themselves.
func TestCompressExpands(t *testing.T) {
	word := rapid.StringMatching(`[ab-]{0,4}`)
	rapid.Check(t, func(t *rapid.T) {
		var domains []domain
		for range rapid.IntRange(0, 8).Draw(t, "domains") {
			domains = append(domains, domain{[]string{word.Draw(t, "rack"), word.Draw(t, "host")}, rapid.Int32Range(1, 3).Draw(t, "pods")})
		}
		got, err := expand(compress(domains), newSpace())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(domains, got, cmp.AllowUnexported(domain{})); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// The shape of other slices changes the encoding of domains, never the domains.
func TestRefillOtherDomains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var first, second []domain
		for n := 0; first == nil || second == nil || len(first[0].values) != len(second[0].values); n++ {
			var err error
			if first, err = expand(legalAssignment(r).Slices, newSpace()); err != nil {
				t.Fatal(err)
			}
			if second, err = expand(legalAssignment(r).Slices, newSpace()); err != nil {
				t.Fatal(err)
			}
			if len(first) == 0 || len(second) == 0 {
				first = nil
			}
		}
		second = second[:min(len(first), len(second))]
		filled, fits := refill(shapeOf(compress(first[:len(second)])), second)
		if !fits {
			return
		}
		got, err := expand(filled, newSpace())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(second, got, cmp.AllowUnexported(domain{})); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestFits(t *testing.T) {
	run := []domain{{[]string{"n-1"}, 1}, {[]string{"n-11"}, 1}}
	part := func(prefix, suffix string) kueue.TopologyAssignmentSliceLevelValues {
		return kueue.TopologyAssignmentSliceLevelValues{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Prefix: &prefix, Suffix: &suffix}}
	}
	both := part("", "")
	both.Universal = new("n-1")
	cases := map[string]struct {
		values kueue.TopologyAssignmentSliceLevelValues
		want   bool
	}{
		"same for all":       {kueue.TopologyAssignmentSliceLevelValues{Universal: new("n-1")}, false},
		"prefix and suffix":  {part("n-", "1"), true},
		"they overlap":       {part("n-1", "1"), false},
		"another prefix":     {part("m", ""), false},
		"another suffix":     {part("", "2"), false},
		"neither way to say": {kueue.TopologyAssignmentSliceLevelValues{}, false},
		"both ways to say":   {both, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := fits(run, 0, tc.values); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

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
		}, "slices[0].valuesPerLevel[0] has no value for domain 1"},
		"too few counts": {func(s *kueue.TopologyAssignmentSlice) {
			s.PodCounts = kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{1}}
		}, "slices[0].podCounts has no count for domain 1"},
		"few bytes for a great many": {func(s *kueue.TopologyAssignmentSlice) { s.DomainCount = 1 << 30 }, "more than 262144 domains"},
		"many levels": {func(s *kueue.TopologyAssignmentSlice) {
			s.DomainCount, s.ValuesPerLevel = maxDomains, slices.Repeat(s.ValuesPerLevel, 100_000)
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
		DomainCount: maxDomains / 2, ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Universal: new("h")}},
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
	for _, n := range []int{4000, maxRun + 1} {
		o := object{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "status": object{"admission": object{"podSetAssignments": []any{
			object{"name": "main", "topologyAssignment": object{"levels": []any{"rack", "host"}, "domains": list(n)}},
		}}}}
		convert(t, o, kueue.GroupVersion)
		assignment := at(items(at(o, "status", "admission"), "podSetAssignments")[0], "topologyAssignment")
		if want := 1 + n/maxRun; len(items(assignment, "slices")) != want {
			t.Errorf("%d slices for %d domains, want %d", len(items(assignment, "slices")), n, want)
		}
		convert(t, o, kueuev1beta1.GroupVersion)
		if diff := cmp.Diff(list(n), assignment["domains"]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if o["metadata"] != nil {
			t.Error("an annotation for what comes back by itself")
		}
	}
	// a slice for each of 1000 domains: their shape is too large and is dropped
	var slices []any
	for i := range maxSlices {
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
	assignment := at(items(at(o, "status", "admission"), "podSetAssignments")[0], "topologyAssignment")
	if len(items(assignment, "slices")) != 1 {
		t.Errorf("%d slices", len(items(assignment, "slices")))
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
