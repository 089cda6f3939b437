package conversion

import (
	"fmt"

	"k8s.io/utils/ptr"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
)

const (
	// maxText bounds the values of all domains of one object as v1beta1, in bytes. v1beta1 spells each out, and a few bytes of slices may
	// stand for any number of them.
	maxText = 32 << 20
	// perDomain and perValue are the bytes that a domain and each of its values add to the text.
	perDomain, perValue = 32, 4
)

// space is the part of the bounds of one object that is left while its topology assignments are expanded.
type space struct{ domains, text int }

func newSpace() *space { return &space{domains: assignment.MaxDomains, text: maxText} }

// charge deducts the domains of a slice before memory is allocated for them.
func (left *space) charge(i int, s *kueue.TopologyAssignmentSlice) error {
	n := int(s.DomainCount)
	if n < 0 || n > left.domains {
		return fmt.Errorf("more than %d domains", assignment.MaxDomains)
	}
	if len(s.ValuesPerLevel) > assignment.MaxLevels {
		return fmt.Errorf("slices[%d].valuesPerLevel has %d levels, at most %d are allowed", i, len(s.ValuesPerLevel), assignment.MaxLevels)
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

// expand reads the slices of one pod set. It refuses slices that violate the rules of v1beta2 or exceed the space that is left.
func expand(slices []kueue.TopologyAssignmentSlice, left *space) ([]assignment.Domain, error) {
	var out []assignment.Domain
	for i := range slices {
		err := left.charge(i, &slices[i])
		if err != nil {
			return nil, err
		}
		if out, err = assignment.Expand(out, &slices[i]); err != nil {
			return nil, fmt.Errorf("slices[%d].%w", i, err)
		}
	}
	return out, nil
}
