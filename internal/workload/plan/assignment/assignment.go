// Package assignment is the codec of topology assignments: domains with their pod counts, and the compressed form in the status of a
// Workload.
//
//	rack-1/n-1: 2 ─┐  Encode   levels [kubernetes.io/hostname]
//	rack-1/n-2: 2 ─┼────────►  slices [{domainCount 3, prefix n-, roots 1 2 7, podCounts 2}]
//	rack-2/n-7: 2 ─┘  ◄──────
//	                  Decode
//
// Clients compare encoded assignments, so Encode has exactly one output for its input. Decode reads every legal form (spec: 20 §2.4).
package assignment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/trace"
)

const (
	// MaxLevels is the most levels of a topology.
	MaxLevels = 16
	// MaxSlices is the most slices of one assignment.
	MaxSlices = 1000
	// MaxRun is the most domains that one slice can list.
	MaxRun = 100_000
	// MaxDomains bounds the domains of one assignment. A slice of a few bytes may stand for any number of equal domains, and an object with
	// more different domains cannot be stored.
	MaxDomains = 1 << 18
)

// Domain is a topology domain: its values, broadest level first, and its pods.
type Domain = trace.Domain

// compare orders domains by the path of their values, then by count.
func compare(a, b Domain) int {
	return cmp.Or(slices.Compare(a.Values, b.Values), cmp.Compare(a.Count, b.Count))
}

// IsByHostname reports whether the narrowest of the levels is the hostname.
func IsByHostname(levels []string) bool {
	return len(levels) > 0 && levels[len(levels)-1] == corev1.LabelHostname
}

// Encode returns the assignment of domains, each with a value for every level. Domains without pods are left out. byPrefix is the feature
// gate TASAssignmentsEncodingByHostnamePrefix. The order of domains does not matter, and domains is not changed (spec: 20 §2.4).
func Encode(levels []string, domains []Domain, byPrefix bool) *kueue.TopologyAssignment {
	sorted := make([]Domain, 0, len(domains))
	for _, d := range domains {
		if d.Count > 0 {
			sorted = append(sorted, d)
		}
	}
	slices.SortFunc(sorted, compare)
	if last := len(levels) - 1; IsByHostname(levels) && last > 0 {
		for i := range sorted {
			sorted[i].Values = sorted[i].Values[last:]
		}
		levels = levels[last:]
	}
	return EncodeInOrder(levels, sorted, byPrefix)
}

// EncodeInOrder is Encode for domains that have pods, and are in the order of all values of their paths, but have the values of the
// encoded levels only: the hostname alone where that is the narrowest level.
func EncodeInOrder(levels []string, sorted []Domain, byPrefix bool) *kueue.TopologyAssignment {
	hosts := IsByHostname(levels)
	out := &kueue.TopologyAssignment{Levels: slices.Clone(levels), Slices: Compress(sorted)}
	if !byPrefix || len(sorted) == 0 {
		return out
	}
	runs := [][]Domain{sorted}
	if hosts && len(sorted) > 1 {
		runs = runsByPrefix(sorted)
	}
	var split []kueue.TopologyAssignmentSlice
	for _, run := range runs {
		split = append(split, Compress(run)...)
	}
	if len(split) <= 1 || len(sorted) > MaxRun || !isShorter(out.Slices, split) {
		out.Slices = split
	}
	return out
}

// isShorter reports whether the JSON of a has fewer bytes than that of b.
func isShorter(a, b []kueue.TopologyAssignmentSlice) bool {
	return len(text(a)) < len(text(b))
}

func text(s []kueue.TopologyAssignmentSlice) []byte {
	out, err := json.Marshal(s)
	if err != nil {
		panic("slices are strings and numbers and always marshal: " + err.Error())
	}
	return out
}

// runsByPrefix cuts domains into runs of hostnames with the same beginning, as few as MaxSlices slices allow: encoder B of spec 20 §2.4.
func runsByPrefix(domains []Domain) [][]Domain {
	cuts := make([][]int, len(domains)) // of each hostname: the lengths of the beginnings that it shares with another one
	for depth, keys := longest(domains, cuts), make([]string, len(domains)); depth > 0; depth-- {
		for i, d := range domains {
			keys[i] = keyOf(d.Values[0], cuts[i], depth)
		}
		if runs, fits := cutByKeys(domains, keys); fits {
			return runs
		}
	}
	return [][]Domain{domains}
}

// longest fills in the candidates of every hostname: for each beginning that ends in a dash, its length, negative if only one hostname has
// it. It returns the largest number of candidates of a hostname.
func longest(domains []Domain, cuts [][]int) (most int) {
	shared := map[string]int{}
	for i, d := range domains {
		host := d.Values[0]
		for at := range len(host) - 1 {
			if host[at] == '-' {
				cuts[i] = append(cuts[i], at+1)
				shared[host[:at+1]]++
			}
		}
		most = max(most, len(cuts[i]))
	}
	for i, d := range domains {
		for j, n := range cuts[i] {
			if shared[d.Values[0][:n]] < 2 {
				cuts[i][j] = -n
			}
		}
	}
	return most
}

// keyOf returns the longest shared beginning among the first depth candidates of a hostname, empty for none.
func keyOf(host string, cuts []int, depth int) string {
	for _, n := range slices.Backward(cuts[:min(depth, len(cuts))]) {
		if n > 0 {
			return host[:n]
		}
	}
	return ""
}

// cutByKeys cuts domains between neighbours with different keys. It reports false if that takes more than MaxSlices slices.
func cutByKeys(domains []Domain, keys []string) (runs [][]Domain, fits bool) {
	count := 0
	for from := 0; from < len(domains); {
		to := from + 1
		for to < len(domains) && keys[to] == keys[from] {
			to++
		}
		runs = append(runs, domains[from:to])
		if count += (to - from + MaxRun - 1) / MaxRun; count > MaxSlices {
			return nil, false
		}
		from = to
	}
	return runs, true
}

// Decode returns the domains of an assignment in their order, nil for a nil one. It is an error if the assignment breaks a rule of the API.
func Decode(a *kueue.TopologyAssignment) ([]Domain, error) {
	switch {
	case a == nil:
		return nil, nil
	case len(a.Levels) < 1 || len(a.Levels) > MaxLevels:
		return nil, fmt.Errorf("levels has %d entries, 1 to %d are allowed", len(a.Levels), MaxLevels)
	case len(a.Slices) > MaxSlices:
		return nil, fmt.Errorf("slices has %d entries, at most %d are allowed", len(a.Slices), MaxSlices)
	}
	var out []Domain
	for i := range a.Slices {
		s := &a.Slices[i]
		if len(s.ValuesPerLevel) != len(a.Levels) {
			return nil, fmt.Errorf("slices[%d].valuesPerLevel has %d entries for %d levels", i, len(s.ValuesPerLevel), len(a.Levels))
		}
		if int(s.DomainCount) > MaxDomains-len(out) {
			return nil, fmt.Errorf("more than %d domains", MaxDomains)
		}
		var err error
		if out, err = Expand(out, s); err != nil {
			return nil, fmt.Errorf("slices[%d].%w", i, err)
		}
	}
	return out, nil
}

// Pods returns the number of pods of all domains.
func Pods(domains []Domain) int {
	total := 0
	for _, d := range domains {
		total += int(d.Count)
	}
	return total
}
