// Package flavor finds a flavor for every request of a workload: which flavors its
// pods can use, which of those have quota, and which is preferred. spec: 10 §4.6.
package flavor

import (
	"fmt"
	"strings"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
)

// Flavor is a kind of node.
type Flavor struct {
	Name        string
	Labels      map[string]string
	Taints      []workload.Taint
	Tolerations []workload.Toleration // given to the pods that start on it
	Missing     bool                  // named by a queue, but there is no such object
}

// Group is a set of resources that get their flavors together.
type Group struct {
	Resources []resource.ID
	Offers    []Offer // in order of preference
}

// Offer is a flavor of a group, with an FR for each of the group's resources.
type Offer struct {
	Flavor *Flavor
	FRs    []resource.FR
}

// Mode says how well a request fits, from worst to best.
type Mode int8

// The modes. NoCandidates could fit by preemption, but nobody may be preempted;
// Preempt needs a victim in the own queue; Reclaim only victims elsewhere.
const (
	NoFit Mode = iota
	NoCandidates
	Preempt
	Reclaim
	Fit
)

// String is the mode's word in traces.
func (m Mode) String() string {
	return [...]string{"no fit", "no candidates", "preempt", "reclaim", "fit"}[m]
}

// Fungibility says when a search goes on past a flavor that would do.
type Fungibility struct {
	TryNextWhenBorrowing    bool // past a flavor that fits by borrowing
	StopWhenPreempting      bool // content with a flavor that needs preemption
	PreemptionOverBorrowing bool
}

// preferred tells whether a is strictly better than b. spec: 10 §4.6.4.
func (f Fungibility) preferred(a, b grade) bool {
	switch {
	case a.mode == NoFit:
		return false
	case b.mode == NoFit:
		return true
	case (a.mode == NoCandidates) != (b.mode == NoCandidates):
		return b.mode == NoCandidates
	case f.PreemptionOverBorrowing && a.level != b.level:
		return a.level < b.level
	case a.mode != b.mode:
		return a.mode > b.mode
	}
	return a.level < b.level
}

// stop tells whether the search is content with g.
func (f Fungibility) stop(g grade) bool {
	switch {
	case g.mode <= NoCandidates:
		return false
	case g.mode < Fit && !f.StopWhenPreempting:
		return false
	case g.level > 0 && f.TryNextWhenBorrowing:
		return false
	}
	return true
}

// grade is how well something fits and how far up the cohorts it borrows.
type grade struct {
	mode  Mode
	level int
}

// worst is the grade of two requests that both must fit: the one less preferred.
// spec: 10 §4.6.4.
func (f Fungibility) worst(a, b grade) grade {
	if f.preferred(a, b) {
		return b
	}
	return a
}

// mismatch says why the pods cannot use the flavor, "" if they can. Only selector
// entries and affinity expressions about the flavor's own label keys count.
// spec: 10 §4.6.2.
func (f *Flavor) mismatch(c *workload.Constraints) string {
	if f.Missing {
		return fmt.Sprintf("flavor %s does not exist", f.Name)
	}
	if c == nil {
		c = &workload.Constraints{}
	}
	for _, taint := range f.Taints {
		if taint.Repels() && !tolerated(taint, c.Tolerations) && !tolerated(taint, f.Tolerations) {
			return fmt.Sprintf("flavor %s has taint %s that the pods do not tolerate", f.Name, taintText(taint))
		}
	}
	for key, want := range f.Labels { //berth:unordered every differing key rejects; the message names none
		if have, asked := c.Selector[key]; asked && have != want {
			return fmt.Sprintf("flavor %s does not match the node selector", f.Name)
		}
	}
	if !f.inAffinity(c.Affinity) {
		return fmt.Sprintf("flavor %s does not match the required node affinity", f.Name)
	}
	return ""
}

func (f *Flavor) inAffinity(terms []workload.Term) bool {
	if len(terms) == 0 {
		return true
	}
	match := false
	for _, term := range terms {
		relevant := 0
		met := true
		for _, e := range term {
			if _, ours := f.Labels[e.Key]; ours {
				relevant++
				met = met && e.Matches(f.Labels)
			}
		}
		if relevant == 0 {
			return true // this alternative says nothing about the flavor
		}
		match = match || met
	}
	return match
}

func tolerated(taint workload.Taint, by []workload.Toleration) bool {
	for _, t := range by {
		if t.Tolerates(taint) {
			return true
		}
	}
	return false
}

func taintText(t workload.Taint) string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	return strings.TrimSuffix(text+":"+t.Effect, ":")
}

// refuse makes the refusal of a flavor that does not match.
func refuse(podSet, flavor, detail string) trace.Refusal {
	return trace.Refusal{PodSet: podSet, Flavor: flavor, Reason: trace.NoMatchingFlavor, Detail: detail}
}
