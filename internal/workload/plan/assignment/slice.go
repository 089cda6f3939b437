package assignment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Expand appends the domains of one slice. It is an error if the slice breaks a rule of the API. The caller bounds the number of domains.
func Expand(to []Domain, s *kueue.TopologyAssignmentSlice) ([]Domain, error) {
	if err := check(s); err != nil {
		return nil, err
	}
	levels := len(s.ValuesPerLevel)
	values := make([]string, levels*int(s.DomainCount))
	to = slices.Grow(to, int(s.DomainCount))
	for j := range int(s.DomainCount) {
		d := Domain{Values: values[j*levels : (j+1)*levels : (j+1)*levels]}
		for level, v := range s.ValuesPerLevel {
			if v.Universal != nil {
				d.Values[level] = *v.Universal
			} else {
				d.Values[level] = ptr.Deref(v.Individual.Prefix, "") + v.Individual.Roots[j] + ptr.Deref(v.Individual.Suffix, "")
			}
		}
		if d.Count = ptr.Deref(s.PodCounts.Universal, 0); s.PodCounts.Universal == nil {
			d.Count = s.PodCounts.Individual[j]
		}
		if d.Count < 1 {
			return nil, fmt.Errorf("podCounts: domain %d has %d pods, at least 1 is required", j, d.Count)
		}
		to = append(to, d)
	}
	return to, nil
}

// check returns why a slice has no meaning, beside its numbers of pods.
func check(s *kueue.TopologyAssignmentSlice) error {
	n := int(s.DomainCount)
	if n < 1 {
		return fmt.Errorf("domainCount is %d, at least 1 is required", n)
	}
	for level, v := range s.ValuesPerLevel {
		switch {
		case (v.Universal == nil) == (v.Individual == nil):
			return fmt.Errorf("valuesPerLevel[%d] must have exactly one of universal and individual", level)
		case v.Individual != nil && len(v.Individual.Roots) != n:
			return fmt.Errorf("valuesPerLevel[%d].individual.roots has %d entries for %d domains", level, len(v.Individual.Roots), n)
		}
	}
	switch c := &s.PodCounts; {
	case (c.Universal == nil) == (c.Individual == nil):
		return errors.New("podCounts must have exactly one of universal and individual")
	case c.Individual != nil && len(c.Individual) != n:
		return fmt.Errorf("podCounts.individual has %d entries for %d domains", len(c.Individual), n)
	}
	return nil
}

// Compress writes domains, in their order, as one slice, or as few as the bound of a slice allows: encoder A of spec 20 §2.4.
func Compress(domains []Domain) []kueue.TopologyAssignmentSlice {
	out := []kueue.TopologyAssignmentSlice{}
	for len(domains) > 0 {
		run := domains[:min(len(domains), MaxRun)]
		domains = domains[len(run):]
		s := kueue.TopologyAssignmentSlice{DomainCount: int32(len(run))}
		for level := range run[0].Values {
			first, prefix, suffix := run[0].Values[level], run[0].Values[level], run[0].Values[level]
			shortest, same := len(first), true
			for _, d := range run[1:] {
				v := d.Values[level]
				same = same && v == first
				shortest = min(shortest, len(v))
				prefix, suffix = commonPrefix(prefix, v), commonSuffix(suffix, v)
			}
			values := kueue.TopologyAssignmentSliceLevelValues{Universal: &first}
			if !same {
				prefix = prefix[:min(len(prefix), shortest-len(suffix))] // where they overlap, the suffix wins
				values = individual(run, level, nonEmpty(prefix), nonEmpty(suffix))
			}
			s.ValuesPerLevel = append(s.ValuesPerLevel, values)
		}
		s.PodCounts = counts(run, !slices.ContainsFunc(run, func(d Domain) bool { return d.Count != run[0].Count }))
		out = append(out, s)
	}
	return out
}

// individual writes one value for each domain; each has the prefix and the suffix.
func individual(run []Domain, level int, prefix, suffix *string) kueue.TopologyAssignmentSliceLevelValues {
	out := &kueue.TopologyAssignmentSliceLevelIndividualValues{Prefix: prefix, Suffix: suffix, Roots: make([]string, len(run))}
	for i, d := range run {
		v := d.Values[level]
		out.Roots[i] = v[len(ptr.Deref(prefix, "")) : len(v)-len(ptr.Deref(suffix, ""))]
	}
	return kueue.TopologyAssignmentSliceLevelValues{Individual: out}
}

// counts writes the pods of each domain, or one number for all of them.
func counts(run []Domain, universal bool) kueue.TopologyAssignmentSlicePodCounts {
	if universal {
		return kueue.TopologyAssignmentSlicePodCounts{Universal: new(run[0].Count)}
	}
	out := make([]int32, len(run))
	for i, d := range run {
		out[i] = d.Count
	}
	return kueue.TopologyAssignmentSlicePodCounts{Individual: out}
}

// ShapeOf returns slices without their domains: sizes, universal values, prefixes and suffixes.
func ShapeOf(slices []kueue.TopologyAssignmentSlice) []kueue.TopologyAssignmentSlice {
	out := make([]kueue.TopologyAssignmentSlice, len(slices))
	for i, s := range slices {
		s.PodCounts.Individual = nil
		s.ValuesPerLevel = append([]kueue.TopologyAssignmentSliceLevelValues(nil), s.ValuesPerLevel...)
		for level, v := range s.ValuesPerLevel {
			if v.Individual != nil {
				s.ValuesPerLevel[level].Individual = &kueue.TopologyAssignmentSliceLevelIndividualValues{
					Prefix: v.Individual.Prefix, Suffix: v.Individual.Suffix, Roots: []string{},
				}
			}
		}
		out[i] = s
	}
	return out
}

// Refill writes domains as slices of a shape. It reports false if they do not fit, because the domains changed after the shape was taken.
func Refill(shape []kueue.TopologyAssignmentSlice, domains []Domain) ([]kueue.TopologyAssignmentSlice, bool) {
	if len(shape) == 0 || len(shape) > MaxSlices {
		return nil, false
	}
	out := make([]kueue.TopologyAssignmentSlice, len(shape))
	for i, s := range shape {
		n := int(s.DomainCount)
		if n < 1 || n > min(len(domains), MaxRun) || len(s.ValuesPerLevel) != len(domains[0].Values) {
			return nil, false
		}
		run := domains[:n]
		domains = domains[n:]
		filled := kueue.TopologyAssignmentSlice{DomainCount: s.DomainCount}
		for level, v := range s.ValuesPerLevel {
			if !fits(run, level, v) {
				return nil, false
			}
			if v.Individual != nil {
				v = individual(run, level, v.Individual.Prefix, v.Individual.Suffix)
			}
			filled.ValuesPerLevel = append(filled.ValuesPerLevel, v)
		}
		for _, d := range run {
			if u := s.PodCounts.Universal; u != nil && d.Count != *u {
				return nil, false
			}
		}
		filled.PodCounts = counts(run, s.PodCounts.Universal != nil)
		out[i] = filled
	}
	return out, len(domains) == 0
}

// fits reports whether v can encode the values of one level.
func fits(run []Domain, level int, v kueue.TopologyAssignmentSliceLevelValues) bool {
	if (v.Universal == nil) == (v.Individual == nil) {
		return false
	}
	for _, d := range run {
		value := d.Values[level]
		if v.Universal != nil {
			if value != *v.Universal {
				return false
			}
			continue
		}
		prefix, suffix := ptr.Deref(v.Individual.Prefix, ""), ptr.Deref(v.Individual.Suffix, "")
		if len(value) < len(prefix)+len(suffix) || !strings.HasPrefix(value, prefix) || !strings.HasSuffix(value, suffix) {
			return false
		}
	}
	return true
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func commonPrefix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

func commonSuffix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return a[len(a)-n:]
}
