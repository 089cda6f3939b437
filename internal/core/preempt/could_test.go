package preempt

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
)

// TestUpperBound: every victim is a candidate of the policy, all of them together free no
// more than the upper bound, and what the upper bound says is impossible is never found.
func TestUpperBound(t *testing.T) {
	found := map[bool]int{}
	rapid.Check(t, func(rt *rapid.T) {
		draw, fair := drawSearch, rapid.Bool().Draw(rt, "fair")
		if fair {
			draw = drawFair
		}
		w, s := draw(rt)
		if rapid.Bool().Draw(rt, "one resource") && len(s.Requests.Quota) > 0 {
			s.Requests.Quota = s.Requests.Quota[:1]
			s.Need = []resource.FR{s.Requests.Quota[0].FR}
		}
		victims, _ := s.Targets()
		if len(victims) > 0 {
			found[fair]++
		}
		for _, v := range victims {
			if of := s.Policy.Candidates(relationOf(s, v), s.Preemptor); !of.Has(v.Workload) || of.Ends(v.Workload) {
				rt.Fatalf("%s is a victim (%s), and no candidate of %+v", v.Workload.UID, v.Reason, s.Policy)
			}
		}
		for _, e := range s.Requests.Quota {
			freed := resource.Amount(0)
			for _, v := range victims {
				freed += v.Workload.Usage.Quota.Of(e.FR)
			}
			all := w.f.Usage(w.f.Root(s.Node), e.FR) + 1000
			if most := s.UpperBound(e.FR, e.Amount, all); slices.Contains(s.Need, e.FR) && freed > most {
				rt.Fatalf("%v free %d of %d, more than the upper bound %d", describe(victims), freed, e.FR, most)
			}
			if len(victims) > 0 && !s.Could(e.FR, e.Amount) {
				rt.Fatalf("%d of %d could not be had, and yet has victims %v", e.Amount, e.FR, describe(victims))
			}
		}
	})
	if found[false] < 50 || found[true] < 50 {
		t.Errorf("victims were found %v times only (by fair sharing or not): the worlds are not what they should be", found)
	}
}

// relationOf is the relation of a victim to its preemptor, by the reason that it is given.
func relationOf(s *Search, v Victim) Relation {
	switch {
	case v.Node == s.Node:
		return SameQueue
	case v.Reason == InCohortReclaimWhileBorrows:
		return CohortWhileBorrowing
	}
	return Cohort
}
