package dash

import (
	"cmp"
	"slices"
	"time"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// states are the values of the query parameter state, in the order in which Workloads are listed by state.
var states = []string{lifecycle.StatePending, lifecycle.StateQuotaReserved, lifecycle.StateAdmitted, lifecycle.StateFinished}

// Position returns the ClusterQueue in whose line a pending Workload is, and how many are before it there; false for others.
type Position func(*kueue.Workload) (queue string, before int, known bool)

// position is a place in line.
type position struct {
	ClusterQueue string `json:"clusterQueue"`
	Before       int    `json:"before"`
}

// leading returns the first n objects in order. It sorts only those: a page has few of a hundred thousand Workloads.
func leading[E any](objects []E, n int, compare func(a, b E) int) []E {
	if n <= 0 {
		return nil
	}
	var first []E
	full := false // the n-th of first is a bound
	for _, o := range objects {
		if full && compare(o, first[n-1]) >= 0 {
			continue
		}
		if first = append(first, o); len(first) >= 2*n {
			slices.SortFunc(first, compare)
			first, full = first[:n], true
		}
	}
	slices.SortFunc(first, compare)
	return first[:min(n, len(first))]
}

// end is the index after the last entry of the requested page in a list.
func (q *query) end(total int) int {
	from := min(q.offset, total)
	if q.limit < 0 {
		return total
	}
	return from + min(total-from, q.limit)
}

// leadingByState returns the first n Workloads by state: first what waits, the most urgent and oldest first, then the others, the latest
// change first.
func leadingByState(found []*kueue.Workload, n int) []*kueue.Workload {
	type ranked struct {
		w        *kueue.Workload
		state    int
		priority int32
		at       time.Time
	}
	all := make([]ranked, len(found))
	for i, w := range found {
		r := ranked{w: w, state: slices.Index(states, lifecycle.StateOf(w))}
		if r.state == 0 {
			r.at = lifecycle.InLineSince(w)
			if w.Spec.Priority != nil {
				r.priority = *w.Spec.Priority
			}
		} else {
			r.at = lifecycle.TrueSince(w, conditionOf[r.state])
		}
		all[i] = r
	}
	all = leading(all, n, func(a, b ranked) int {
		if by := cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(b.priority, a.priority)); by != 0 {
			return by
		}
		if a.state > 0 {
			a, b = b, a
		}
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.w.UID, b.w.UID)) // as the engine orders a line
	})
	out := make([]*kueue.Workload, 0, len(all))
	for i := range all {
		out = append(out, all[i].w)
	}
	return out
}

// conditionOf are the conditions that states begin with, "" for the first.
var conditionOf = []string{"", kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadFinished}

// summary counts the Workloads that a caller may list.
type summary struct {
	Pending       int `json:"pending"`
	QuotaReserved int `json:"quotareserved"`
	Admitted      int `json:"admitted"`
	Finished      int `json:"finished"`

	LastHour berthv1alpha1.Activity `json:"lastHour"`
}

func summarize(found []*kueue.Workload, now time.Time) (s summary) {
	counts := []*int{&s.Pending, &s.QuotaReserved, &s.Admitted, &s.Finished}
	for _, w := range found {
		*counts[slices.Index(states, lifecycle.StateOf(w))]++
		lifecycle.CountLastHour(&s.LastHour, w, now)
	}
	return s
}
