package state

import (
	"maps"
	"slices"
)

// touchShares touches all queues after an edit, which may change the shares of their trees.
func (s *State) touchShares() {
	if !s.reshare || s.options.Fair == nil {
		return
	}
	for _, q := range s.queues { //berth:unordered Touched sorts them
		s.see(&q.seen)
	}
}

// sharing returns the cohorts whose share may have changed with the queues, all of them
// after an edit.
func (s *State) sharing(queues []Name) []string {
	all := s.reshare
	s.reshare = false
	if s.options.Fair == nil {
		return nil
	}
	above := map[string]bool{}
	if all {
		for name, c := range s.cohorts { //berth:unordered a set
			if c.def != nil {
				above[name] = true
			}
		}
	}
	for _, n := range queues {
		q := s.queues[n.Name]
		if n.Namespace != "" || q == nil {
			continue
		}
		for name := q.def.Cohort; name != "" && !above[name]; name = s.parentOf(name) {
			above[name] = true
		}
	}
	return slices.Sorted(maps.Keys(above))
}

// parentOf is the cohort above another, "" for none.
func (s *State) parentOf(cohort string) string {
	if c := s.cohorts[cohort]; c != nil {
		return c.parent()
	}
	return ""
}
