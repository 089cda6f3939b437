package conversion

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

const (
	// maxRun is the most domains that one slice can hold.
	maxRun = 100_000
	// maxDomains bounds the expansion of a few bytes of slices. An object with more different domains cannot be stored.
	maxDomains = 1 << 18
	// maxSlices is the most slices of one assignment.
	maxSlices = 1000
	// maxLevels is the most levels of a topology.
	maxLevels = 16
	// maxText bounds the values of all domains of one object as v1beta1, in bytes. v1beta1 spells each out, and a few bytes of slices may
	// stand for any number of them.
	maxText = 32 << 20
	// perDomain and perValue are the bytes that a domain and each of its values add to the text.
	perDomain, perValue = 32, 4
)

// domain is one topology domain: its values, broadest level first, and its pods.
type domain struct {
	values []string
	count  int32
}

// space is the part of the bounds of one object that is left while its topology assignments are expanded.
type space struct{ domains, text int }

func newSpace() *space { return &space{domains: maxDomains, text: maxText} }

// charge deducts the domains of a slice before memory is allocated for them.
func (left *space) charge(i int, s *kueue.TopologyAssignmentSlice) error {
	n := int(s.DomainCount)
	if n < 0 || n > left.domains {
		return fmt.Errorf("more than %d domains", maxDomains)
	}
	if len(s.ValuesPerLevel) > maxLevels {
		return fmt.Errorf("slices[%d].valuesPerLevel has %d levels, at most %d are allowed", i, len(s.ValuesPerLevel), maxLevels)
	}
	size := n * perDomain
	for _, v := range s.ValuesPerLevel {
		size += n * (perValue + len(ptr.Deref(v.Universal, "")))
		if v.Individual != nil {
			size += n * (len(ptr.Deref(v.Individual.Prefix, "")) + len(ptr.Deref(v.Individual.Suffix, "")))
			for _, root := range v.Individual.Roots[:min(n, len(v.Individual.Roots))] {
				size += len(root)
			}
		}
	}
	if size > left.text {
		return fmt.Errorf("the domains have more than %d bytes in v1beta1; read the object as v1beta2", maxText)
	}
	left.domains -= n
	left.text -= size
	return nil
}

// expand reads every legal form of slices (spec: 20 §2.4). It refuses slices that violate the rules of v1beta2 or exceed the space that
// is left.
func expand(slices []kueue.TopologyAssignmentSlice, left *space) ([]domain, error) {
	var out []domain
	for i, s := range slices {
		if err := left.charge(i, &s); err != nil {
			return nil, err
		}
		for j := range int(s.DomainCount) {
			d := domain{values: make([]string, len(s.ValuesPerLevel))}
			for level, v := range s.ValuesPerLevel {
				switch {
				case v.Universal != nil:
					d.values[level] = *v.Universal
				case v.Individual != nil && j < len(v.Individual.Roots):
					d.values[level] = ptr.Deref(v.Individual.Prefix, "") + v.Individual.Roots[j] + ptr.Deref(v.Individual.Suffix, "")
				default:
					return nil, fmt.Errorf("slices[%d].valuesPerLevel[%d] has no value for domain %d", i, level, j)
				}
			}
			switch {
			case s.PodCounts.Universal != nil:
				d.count = *s.PodCounts.Universal
			case j < len(s.PodCounts.Individual):
				d.count = s.PodCounts.Individual[j]
			default:
				return nil, fmt.Errorf("slices[%d].podCounts has no count for domain %d", i, j)
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// compress writes domains as one slice, or as few as the bound of a slice allows: encoder A of spec 20 §2.4.
func compress(domains []domain) []kueue.TopologyAssignmentSlice {
	out := []kueue.TopologyAssignmentSlice{}
	for len(domains) > 0 {
		run := domains[:min(len(domains), maxRun)]
		domains = domains[len(run):]
		s := kueue.TopologyAssignmentSlice{DomainCount: int32(len(run))}
		for level := range run[0].values {
			first, prefix, suffix := run[0].values[level], run[0].values[level], run[0].values[level]
			shortest, same := len(first), true
			for _, d := range run[1:] {
				v := d.values[level]
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
		s.PodCounts = counts(run, !slices.ContainsFunc(run, func(d domain) bool { return d.count != run[0].count }))
		out = append(out, s)
	}
	return out
}

// individual writes one value for each domain; each has the prefix and the suffix.
func individual(run []domain, level int, prefix, suffix *string) kueue.TopologyAssignmentSliceLevelValues {
	out := &kueue.TopologyAssignmentSliceLevelIndividualValues{Prefix: prefix, Suffix: suffix, Roots: make([]string, len(run))}
	for i, d := range run {
		v := d.values[level]
		out.Roots[i] = v[len(ptr.Deref(prefix, "")) : len(v)-len(ptr.Deref(suffix, ""))]
	}
	return kueue.TopologyAssignmentSliceLevelValues{Individual: out}
}

// counts writes the pods of each domain, or one number for all of them.
func counts(run []domain, universal bool) kueue.TopologyAssignmentSlicePodCounts {
	if universal {
		return kueue.TopologyAssignmentSlicePodCounts{Universal: &run[0].count}
	}
	out := make([]int32, len(run))
	for i, d := range run {
		out[i] = d.count
	}
	return kueue.TopologyAssignmentSlicePodCounts{Individual: out}
}

// shapeOf returns slices without their domains: sizes, universal values, prefixes and suffixes.
func shapeOf(slices []kueue.TopologyAssignmentSlice) []kueue.TopologyAssignmentSlice {
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

// refill writes domains as slices of a shape. It reports false if they do not fit, because the domains changed after the shape was taken.
func refill(shape []kueue.TopologyAssignmentSlice, domains []domain) ([]kueue.TopologyAssignmentSlice, bool) {
	if len(shape) == 0 || len(shape) > maxSlices {
		return nil, false
	}
	out := make([]kueue.TopologyAssignmentSlice, len(shape))
	for i, s := range shape {
		n := int(s.DomainCount)
		if n < 1 || n > min(len(domains), maxRun) || len(s.ValuesPerLevel) != len(domains[0].values) {
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
			if u := s.PodCounts.Universal; u != nil && d.count != *u {
				return nil, false
			}
		}
		filled.PodCounts = counts(run, s.PodCounts.Universal != nil)
		out[i] = filled
	}
	return out, len(domains) == 0
}

// fits reports whether v can encode the values of one level.
func fits(run []domain, level int, v kueue.TopologyAssignmentSliceLevelValues) bool {
	if (v.Universal == nil) == (v.Individual == nil) {
		return false
	}
	for _, d := range run {
		value := d.values[level]
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
