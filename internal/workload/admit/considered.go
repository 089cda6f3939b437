package admit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-project/berth/internal/core/trace"
)

// considered lists the flavors that were tried before a reservation, in the words that clients know, without the flavors that simply
// fit. It is "" if there are no others. spec: 10 §5.2.
func considered(l *trace.Attempt) string {
	var sets []string // in the order of their first flavor
	flavors, said := map[string][]string{}, map[[2]string][]string{}
	say := func(podSet, flavor, mode string, more ...string) {
		if !slices.Contains(sets, podSet) {
			sets = append(sets, podSet)
		}
		at := [2]string{podSet, flavor}
		if len(said[at]) == 0 {
			flavors[podSet], said[at] = append(flavors[podSet], flavor), []string{mode}
		}
		for _, m := range more {
			if !slices.Contains(said[at], m) {
				said[at] = append(said[at], m)
			}
		}
	}
	for i := range l.Refusals {
		r := &l.Refusals[i]
		mode := "NoFit"
		if r.Reach != nil {
			mode = "preemptionMode=NoCandidates"
		}
		if r.Pair != nil && r.Flavor != "" {
			say(r.PodSet, r.Flavor, mode, r.String())
		}
	}
	for _, ps := range l.PodSets {
		for _, c := range ps.Resources {
			if c.Level > 0 && c.Mode == trace.Fit {
				say(ps.Name, l.Table.Pair(c.FR).Flavor, "Fit", fmt.Sprintf("borrow=%d", c.Level))
			}
		}
	}
	for i, podSet := range sets {
		each := make([]string, 0, len(flavors[podSet]))
		for _, f := range flavors[podSet] {
			each = append(each, f+"("+strings.Join(said[[2]string{podSet, f}], ";")+")")
		}
		sets[i] = podSet + ": " + strings.Join(each, ", ")
	}
	return strings.Join(sets, " | ")
}
