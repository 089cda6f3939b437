package assignment

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

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
			var domains []Domain
			for i, v := range tc.values {
				domains = append(domains, Domain{Values: []string{v}, Count: tc.counts[i]})
			}
			got, err := json.Marshal(Compress(domains))
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
		var domains []Domain
		for range rapid.IntRange(0, 8).Draw(t, "domains") {
			domains = append(domains, Domain{Values: []string{word.Draw(t, "rack"), word.Draw(t, "host")}, Count: rapid.Int32Range(1, 3).Draw(t, "pods")})
		}
		got := decoded(t, &kueue.TopologyAssignment{Levels: []string{"rack", "host"}, Slices: Compress(domains)})
		if diff := cmp.Diff(domains, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// The shape of other slices changes the encoding of domains, never the domains.
func TestRefillOtherDomains(t *testing.T) {
	filledOnce := false
	rapid.Check(t, func(t *rapid.T) {
		levels := rapid.IntRange(1, 3).Draw(t, "levels")
		a := legal(t, levels)
		domains := decoded(t, a)
		if len(domains) == 0 {
			return
		}
		changed := &domains[rapid.IntRange(0, len(domains)-1).Draw(t, "domain")]
		changed.Values[rapid.IntRange(0, levels-1).Draw(t, "level")] = rapid.SampledFrom([]string{"", "n-1", "n-111"}).Draw(t, "value")
		changed.Count = rapid.Int32Range(1, 3).Draw(t, "count")
		filled, fits := Refill(ShapeOf(a.Slices), domains)
		if !fits {
			return
		}
		filledOnce = true
		if diff := cmp.Diff(domains, decoded(t, &kueue.TopologyAssignment{Levels: make([]string, levels), Slices: filled})); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
	if !filledOnce {
		t.Error("no shape fitted other domains: the property was never tested")
	}
}

// Every legal assignment has the shape of itself.
func TestRefill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := legal(t, rapid.IntRange(1, 3).Draw(t, "levels"))
		filled, fits := Refill(ShapeOf(a.Slices), decoded(t, a))
		if fits != (len(a.Slices) > 0) {
			t.Fatalf("fits: %v", fits)
		}
		if diff := cmp.Diff(a.Slices, filled); fits && diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// legal draws any legal assignment, including encodings that Encode does not produce.
func legal(t *rapid.T, levels int) *kueue.TopologyAssignment {
	word := rapid.SampledFrom([]string{"", "a", "n-1", "n-11", "node-7"})
	part := rapid.Ptr(word, true)
	out := &kueue.TopologyAssignment{Levels: make([]string, levels), Slices: []kueue.TopologyAssignmentSlice{}}
	for range rapid.IntRange(0, 3).Draw(t, "slices") {
		n := rapid.IntRange(1, 4).Draw(t, "domains")
		s := kueue.TopologyAssignmentSlice{DomainCount: int32(n)}
		for range levels {
			v := kueue.TopologyAssignmentSliceLevelValues{}
			if rapid.Bool().Draw(t, "universal") {
				v.Universal = new(word.Draw(t, "value"))
			} else {
				v.Individual = &kueue.TopologyAssignmentSliceLevelIndividualValues{
					Prefix: part.Draw(t, "prefix"), Suffix: part.Draw(t, "suffix"), Roots: rapid.SliceOfN(word, n, n).Draw(t, "roots"),
				}
			}
			s.ValuesPerLevel = append(s.ValuesPerLevel, v)
		}
		pods := rapid.Int32Range(1, 3)
		if rapid.Bool().Draw(t, "one count") {
			s.PodCounts.Universal = new(pods.Draw(t, "count"))
		} else {
			s.PodCounts.Individual = rapid.SliceOfN(pods, n, n).Draw(t, "counts")
		}
		out.Slices = append(out.Slices, s)
	}
	return out
}

func decoded(t rapid.TB, a *kueue.TopologyAssignment) []Domain {
	t.Helper()
	domains, err := Decode(a)
	if err != nil {
		t.Fatal(err)
	}
	return domains
}

func TestFits(t *testing.T) {
	run := []Domain{{Values: []string{"n-1"}, Count: 1}, {Values: []string{"n-11"}, Count: 1}}
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
