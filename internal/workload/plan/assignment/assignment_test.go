package assignment

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

const host = corev1.LabelHostname

// hosts are domains of one pod each; only their hostname counts.
func hosts(names ...string) (out []Domain) {
	for _, name := range names {
		out = append(out, Domain{Values: []string{name}, Count: 1})
	}
	return out
}

func numbered(format string, from, to int) (out []string) {
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

func TestEncode(t *testing.T) {
	cases := map[string]struct {
		levels  []string
		domains []Domain
		without bool // the gate TASAssignmentsEncodingByHostnamePrefix
		want    string
	}{
		"no domain": {[]string{"rack", host}, nil, false, `{"levels":["kubernetes.io/hostname"],"slices":[]}`},
		"domains without pods are left out": {
			[]string{"rack"},
			[]Domain{{Values: []string{"r1"}, Count: 0}},
			false, `{"levels":["rack"],"slices":[]}`,
		},
		"one domain is universal throughout": {
			[]string{"block", "rack"},
			[]Domain{{Values: []string{"b1", "r1"}, Count: 4}},
			false,
			`{"levels":["block","rack"],"slices":[{"domainCount":1,"valuesPerLevel":[{"universal":"b1"},{"universal":"r1"}],"podCounts":{"universal":4}}]}`,
		},
		"the suffix wins": {
			[]string{host},
			hosts("n-11", "n-1"),
			true,
			`{"levels":["kubernetes.io/hostname"],"slices":[{"domainCount":2,` +
				`"valuesPerLevel":[{"individual":{"prefix":"n-","suffix":"1","roots":["","1"]}}],"podCounts":{"universal":1}}]}`,
		},
		"domains come in the order of all levels, and the hostname alone is written": {
			[]string{"block", "rack", host},
			[]Domain{{Values: []string{"b2", "r1", "a"}, Count: 1}, {Values: []string{"b1", "r2", "b"}, Count: 2}, {Values: []string{"b1", "r1", "c"}, Count: 1}},
			false,
			`{"levels":["kubernetes.io/hostname"],"slices":[{"domainCount":3,` +
				`"valuesPerLevel":[{"individual":{"roots":["c","b","a"]}}],"podCounts":{"individual":[1,2,1]}}]}`,
		},
		"levels compare one by one, not as one text": { // as one text "r-1/z" would come before "r/a"
			[]string{"rack", "row"},
			[]Domain{{Values: []string{"r-1", "z"}, Count: 1}, {Values: []string{"r", "a"}, Count: 1}},
			false,
			`{"levels":["rack","row"],"slices":[{"domainCount":2,"valuesPerLevel":[` +
				`{"individual":{"prefix":"r","roots":["","-1"]}},{"individual":{"roots":["a","z"]}}],"podCounts":{"universal":1}}]}`,
		},
		"two small pools: encoder A is shorter": {
			[]string{host},
			hosts(slices.Concat(numbered("cluster-pool-a-%d", 1, 2), numbered("cluster-pool-b-%d", 1, 2))...),
			false,
			`{"levels":["kubernetes.io/hostname"],"slices":[{"domainCount":4,"valuesPerLevel":[` +
				`{"individual":{"prefix":"cluster-pool-","roots":["a-1","a-2","b-1","b-2"]}}],"podCounts":{"universal":1}}]}`,
		},
		"the same without the gate": {
			[]string{host},
			hosts(slices.Concat(numbered("cluster-pool-a-%d", 1, 2), numbered("cluster-pool-b-%d", 1, 2))...),
			true,
			`{"levels":["kubernetes.io/hostname"],"slices":[{"domainCount":4,"valuesPerLevel":[` +
				`{"individual":{"prefix":"cluster-pool-","roots":["a-1","a-2","b-1","b-2"]}}],"podCounts":{"universal":1}}]}`,
		},
		"other levels are one run": {
			[]string{"rack"},
			hosts(slices.Concat(numbered("cluster-pool-a-%d", 1, 2), numbered("cluster-pool-b-%d", 1, 2))...),
			false,
			`{"levels":["rack"],"slices":[{"domainCount":4,"valuesPerLevel":[` +
				`{"individual":{"prefix":"cluster-pool-","roots":["a-1","a-2","b-1","b-2"]}}],"podCounts":{"universal":1}}]}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(Encode(tc.levels, tc.domains, !tc.without))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEncodeChooses: of two encodings the shorter one is taken, encoder B if they are of one length.
func TestEncodeChooses(t *testing.T) {
	cases := map[string]struct {
		n       int // nodes in each of two pools
		without bool
		want    int // slices
	}{
		"the second slice costs more than it saves": {20, false, 1},
		"it saves more than it costs":               {60, false, 2},
		"without the gate":                          {60, true, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			domains := hosts(slices.Concat(numbered("cluster-pool-a-%02d", 1, tc.n), numbered("cluster-pool-b-%02d", 1, tc.n))...)
			if got := len(Encode([]string{host}, domains, !tc.without).Slices); got != tc.want {
				t.Errorf("%d slices, want %d", got, tc.want)
			}
		})
	}
	one, other := Compress(hosts("a-1")), Compress(hosts("b-1"))
	if isShorter(one, other) || isShorter(other, one) {
		t.Error("equal lengths are not shorter")
	}
}

// TestEncodeByPrefix: encoder B alone. A run is a list of hostnames, written with spaces.
func TestEncodeByPrefix(t *testing.T) {
	cases := map[string]struct {
		hosts []string
		want  []string
	}{
		"no dash":                       {[]string{"a1", "a2"}, []string{"a1 a2"}},
		"a last dash is no end":         {[]string{"a-", "a-b", "c-d"}, []string{"a- a-b c-d"}}, // only a-b has the beginning a-
		"a beginning of one host":       {[]string{"a-1", "b-1", "b-2"}, []string{"a-1", "b-1 b-2"}},
		"hosts without one are a run":   {[]string{"a-1", "b-1", "c-1", "c-2"}, []string{"a-1 b-1", "c-1 c-2"}},
		"the longest counts":            {[]string{"a-b-1", "a-b-2", "a-c-1", "a-c-2"}, []string{"a-b-1 a-b-2", "a-c-1 a-c-2"}},
		"a shorter one is between":      {[]string{"a-b-1", "a-b-2", "a-d-1"}, []string{"a-b-1 a-b-2", "a-d-1"}},
		"neighbours only":               {[]string{"a-1", "b", "a-2"}, []string{"a-1", "b", "a-2"}},
		"a long one that no other has":  {[]string{"a-1", "a-2", "a-3-x-y"}, []string{"a-1 a-2 a-3-x-y"}},
		"every dash of one ends a part": {[]string{"a--1", "a--2", "a-3"}, []string{"a--1 a--2", "a-3"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, run := range runsByPrefix(hosts(tc.hosts...)) {
				var names []string
				for _, d := range run {
					names = append(names, d.Path())
				}
				got = append(got, strings.Join(names, " "))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEncodeByPrefixBounded: the depth is lowered until there are at most 1,000 slices, and without such a depth all is one run.
func TestEncodeByPrefixBounded(t *testing.T) {
	var deep, wide []string
	for i := range MaxSlices + 1 {
		pair := []string{fmt.Sprintf("%d-%04d-a", i%2, i), fmt.Sprintf("%d-%04d-b", i%2, i)}
		deep = append(deep, pair...)
		wide = append(wide, fmt.Sprintf("%04d-a", i), fmt.Sprintf("%04d-b", i))
	}
	slices.Sort(deep)
	for name, tc := range map[string]struct {
		hosts []string
		want  int
	}{"at depth 1 two runs are left": {deep, 2}, "no depth is low enough": {wide, 1}} {
		t.Run(name, func(t *testing.T) {
			if got := len(runsByPrefix(hosts(tc.hosts...))); got != tc.want {
				t.Errorf("%d runs, want %d", got, tc.want)
			}
		})
	}
}

// Acceptance example 32 of spec 20: 900 nodes of one pool are one slice with a prefix, and a few kilobytes.
func TestManyNodesStaySmall(t *testing.T) {
	domains := hosts(numbered("pool-a-%04d", 1, 900)...)
	a := Encode([]string{"block", host}, withBlock(domains), true)
	if len(a.Slices) != 1 {
		t.Fatalf("%d slices", len(a.Slices))
	}
	if prefix := a.Slices[0].ValuesPerLevel[0].Individual.Prefix; *prefix != "pool-a-0" {
		t.Errorf("prefix %q", *prefix)
	}
	if size := len(text(a.Slices)); size > 6*900+200 {
		t.Errorf("%d bytes", size)
	}
	if diff := cmp.Diff(domains, decoded(t, a)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	two := Encode([]string{host}, hosts(numbered("pool-a-%05d", 1, 60_000)...), true)
	two = Encode([]string{host}, append(decoded(t, two), hosts(numbered("pool-b-%05d", 1, 60_000)...)...), true)
	if len(two.Slices) != 2 || two.Slices[0].DomainCount != 60_000 { // over 100,000 domains encoder B is chosen without a comparison
		t.Errorf("%d slices", len(two.Slices))
	}
}

func withBlock(domains []Domain) (out []Domain) {
	for _, d := range domains {
		out = append(out, Domain{Values: []string{"b1", d.Values[0]}, Count: d.Count})
	}
	return out
}

// Whatever is encoded decodes to the same domains, the JSON of the choice is never longer than that of encoder A, and neither the order
// of the input nor zero counts change the output.
func TestEncodeDecodes(t *testing.T) {
	word := rapid.StringMatching(`[ab-]{1,5}`)
	rapid.Check(t, func(t *rapid.T) {
		levels := rapid.SampledFrom([][]string{{host}, {"rack", host}, {"block", "rack"}}).Draw(t, "levels")
		byPath := map[string]Domain{}
		for range rapid.IntRange(0, 12).Draw(t, "domains") {
			d := Domain{Count: rapid.Int32Range(0, 3).Draw(t, "pods")}
			for range levels {
				d.Values = append(d.Values, word.Draw(t, "value"))
			}
			byPath[d.Path()] = d
		}
		var domains, want []Domain
		for _, path := range sortedKeys(byPath) {
			domains = append(domains, byPath[path])
		}
		for _, d := range slices.SortedFunc(slices.Values(domains), compare) {
			if d.Count > 0 {
				if IsByHostname(levels) {
					d.Values = d.Values[len(levels)-1:]
				}
				want = append(want, d)
			}
		}
		byPrefix := rapid.Bool().Draw(t, "gate")
		a := Encode(levels, domains, byPrefix)
		if diff := cmp.Diff(want, decoded(t, a), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		shuffled := rapid.Permutation(domains).Draw(t, "order")
		if diff := cmp.Diff(a, Encode(levels, shuffled, byPrefix)); diff != "" {
			t.Fatalf("the order matters (-sorted +shuffled):\n%s", diff)
		}
		if plain := Encode(levels, domains, false); isShorter(plain.Slices, a.Slices) && len(a.Slices) > 1 {
			t.Fatalf("%s is shorter than %s", text(plain.Slices), text(a.Slices))
		}
	})
}

func sortedKeys(m map[string]Domain) (out []string) {
	for key := range m { //berth:unordered sorted below
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

func TestDecodeRefuses(t *testing.T) {
	cases := map[string]struct {
		change func(a *kueue.TopologyAssignment)
		err    string
	}{
		"no level":    {func(a *kueue.TopologyAssignment) { a.Levels = nil }, "levels has 0 entries, 1 to 16 are allowed"},
		"many levels": {func(a *kueue.TopologyAssignment) { a.Levels = make([]string, 17) }, "levels has 17 entries, 1 to 16 are allowed"},
		"many slices": {
			func(a *kueue.TopologyAssignment) { a.Slices = slices.Repeat(a.Slices, 1001) },
			"slices has 1001 entries, at most 1000 are allowed",
		},
		"a level without values": {
			func(a *kueue.TopologyAssignment) { a.Levels = []string{"rack", host} },
			"slices[0].valuesPerLevel has 1 entries for 2 levels",
		},
		"no domain":        {func(a *kueue.TopologyAssignment) { a.Slices[0].DomainCount = 0 }, "slices[0].domainCount is 0, at least 1 is required"},
		"negative domains": {func(a *kueue.TopologyAssignment) { a.Slices[0].DomainCount = -1 }, "slices[0].domainCount is -1, at least 1 is required"},
		"a few bytes for a great many": {
			func(a *kueue.TopologyAssignment) { a.Slices[0].DomainCount = 1 << 30 },
			"more than 262144 domains",
		},
		"two ways to write values": {func(a *kueue.TopologyAssignment) {
			a.Slices[0].ValuesPerLevel[0].Individual = &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: []string{"a", "b"}}
		}, "slices[0].valuesPerLevel[0] must have exactly one of universal and individual"},
		"no values": {
			func(a *kueue.TopologyAssignment) { a.Slices[0].ValuesPerLevel[0].Universal = nil },
			"slices[0].valuesPerLevel[0] must have exactly one of universal and individual",
		},
		"too few roots": {func(a *kueue.TopologyAssignment) {
			a.Slices[0].ValuesPerLevel[0] = kueue.TopologyAssignmentSliceLevelValues{
				Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: []string{"a"}},
			}
		}, "slices[0].valuesPerLevel[0].individual.roots has 1 entries for 2 domains"},
		"two ways to count": {
			func(a *kueue.TopologyAssignment) { a.Slices[0].PodCounts.Individual = []int32{1, 1} },
			"slices[0].podCounts must have exactly one of universal and individual",
		},
		"no counts": {
			func(a *kueue.TopologyAssignment) { a.Slices[0].PodCounts.Universal = nil },
			"slices[0].podCounts must have exactly one of universal and individual",
		},
		"too many counts": {func(a *kueue.TopologyAssignment) {
			a.Slices[0].PodCounts = kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{1, 1, 1}}
		}, "slices[0].podCounts.individual has 3 entries for 2 domains"},
		"a domain without pods": {func(a *kueue.TopologyAssignment) {
			a.Slices[0].PodCounts = kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{1, 0}}
		}, "slices[0].podCounts: domain 1 has 0 pods, at least 1 is required"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &kueue.TopologyAssignment{Levels: []string{host}, Slices: []kueue.TopologyAssignmentSlice{{
				DomainCount: 2, ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Universal: new("n")}},
				PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(1))},
			}}}
			if domains, err := Decode(a); err != nil || Pods(domains) != 2 {
				t.Fatalf("the unchanged one: %v, %v", domains, err)
			}
			tc.change(a)
			if _, err := Decode(a); err == nil || err.Error() != tc.err {
				t.Errorf("error %v, want %s", err, tc.err)
			}
		})
	}
	if domains, err := Decode(nil); domains != nil || err != nil {
		t.Errorf("of nil: %v, %v", domains, err)
	}
}

// Every legal assignment decodes, and what is decoded is what a slow reading of the rules gives.
func TestDecodeAnyForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := legal(t, rapid.IntRange(1, 3).Draw(t, "levels"))
		var want []Domain
		for _, s := range a.Slices {
			for j := range s.DomainCount {
				var d Domain
				for _, v := range s.ValuesPerLevel {
					value := ""
					if v.Universal != nil {
						value = *v.Universal
					}
					if v.Individual != nil {
						for _, part := range []*string{v.Individual.Prefix, &v.Individual.Roots[j], v.Individual.Suffix} {
							if part != nil {
								value += *part
							}
						}
					}
					d.Values = append(d.Values, value)
				}
				for _, counts := range [][]int32{s.PodCounts.Individual, slices.Repeat([]int32{deref(s.PodCounts.Universal)}, int(j)+1)} {
					if d.Count == 0 && len(counts) > int(j) {
						d.Count = counts[j]
					}
				}
				want = append(want, d)
			}
		}
		if diff := cmp.Diff(want, decoded(t, a), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func deref(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}
