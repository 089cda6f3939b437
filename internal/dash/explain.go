package dash

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/quota"
	amounts "github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// Explain returns the explanation of a Workload as far as the read model has it; without figures, traced is false. readable selects the
// namespaces in which the caller may list Workloads.
type Explain func(w *kueue.Workload, readable func(namespaces []string) []string) (e *berthv1alpha1.Explanation, traced bool)

// End returns when a Workload that holds quota is expected to end, zero if that is unknown.
type End func(*kueue.Workload) time.Time

// explanationResource is the right to ask why a Workload waits, as for `berth explain`.
var explanationResource = resource{berthv1alpha1.GroupVersion.WithResource("workloads/explanation"), "Explanation"}

// shownEnds is how many Workloads an explanation names that have to end.
const shownEnds = 20

// explanationView is why a Workload waits, with the quotas of its ClusterQueue and of the Cohorts above.
type explanationView struct {
	*berthv1alpha1.Explanation
	// Traced: it has the figures of its last evaluation. Else it has none, and the reason of its condition.
	Traced bool `json:"traced"`
	// Levels are the ClusterQueue and the Cohorts above it up to the root.
	Levels []levelView `json:"levels"`
	// Ends has, for each flavor that is short, the Workloads that have to end.
	Ends []endsView `json:"ends"`
}

// levelView is a ClusterQueue or Cohort. It has neither name nor quotas if the caller may not get it.
type levelView struct {
	Kind   string      `json:"kind"`
	Name   string      `json:"name,omitempty"`
	Hidden bool        `json:"hidden,omitempty"`
	Quotas []quotaView `json:"quotas,omitempty"`
}

// quotaView is one flavor and resource of a level, see state.Tree.
type quotaView struct {
	Flavor         string                `json:"flavor"`
	Resource       string                `json:"resource"`
	Nominal        apiresource.Quantity  `json:"nominal"`
	Quota          apiresource.Quantity  `json:"quota"`
	Used           apiresource.Quantity  `json:"used"`
	Borrowable     apiresource.Quantity  `json:"borrowable"`
	BorrowingLimit *apiresource.Quantity `json:"borrowingLimit,omitempty"`
	LendingLimit   *apiresource.Quantity `json:"lendingLimit,omitempty"`
	// Missing is how much the Workload is short of, at the level that has no more to give. Never: it is that much more than can ever be had.
	Missing *apiresource.Quantity `json:"missing,omitempty"`
	Never   bool                  `json:"never,omitempty"`
}

// endsView is the Workloads that have to end until a flavor has enough, in the order in which they are expected to end.
type endsView struct {
	Flavor    string    `json:"flavor"`
	Resources []string  `json:"resources"`
	Known     bool      `json:"known"`  // else too many run
	Enough    bool      `json:"enough"` // else amounts are missing when all have ended
	Count     int       `json:"count"`
	Others    int       `json:"others,omitempty"` // of these, the ones that the caller may not list
	Workloads []endView `json:"workloads"`        // the first ones that the caller may list
	// By is when the last one is expected to end, nil if that is unknown.
	By *metav1.Time `json:"by,omitempty"`
}

type endView struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	End       *metav1.Time `json:"end,omitempty"`
}

// explanation is the view of why a Workload waits. It reads the read model, and costs in proportion to the queues of the cohort tree.
func (s *Server) explanation(ctx context.Context, a *ask) (any, error) {
	w, err := one[kueue.Workload](ctx, s, a, workloadsResource)
	if err != nil {
		return nil, err
	}
	if err := s.access.must(ctx, a.who, explanationResource, a.namespace, a.name); err != nil {
		return nil, err
	}
	switch {
	case w == nil:
		return none(workloadsResource, a), nil
	case s.Explain == nil || s.Model == nil:
		return missing{"this manager has no engine, and explains nothing"}, nil
	}
	var failed error
	readable := func(namespaces []string) []string {
		may, err := s.access.within(ctx, a.who, workloadsResource, setOf(namespaces))
		failed = cmp.Or(failed, err)
		return slices.DeleteFunc(slices.Clone(namespaces), func(n string) bool { return !may[n] })
	}
	v := explanationView{Levels: []levelView{}, Ends: []endsView{}}
	v.Explanation, v.Traced = s.Explain(w, readable)
	v.Explanation.SetGroupVersionKind(berthv1alpha1.GroupVersion.WithKind("Explanation"))
	tree := s.Model().Tree(v.ClusterQueue)
	if failed != nil || tree == nil || v.Verdict == "" {
		return v, failed
	}
	if v.Levels, err = s.levels(ctx, a, tree, v.Explanation); err != nil {
		return nil, err
	}
	if v.Verdict == string(trace.Waits) {
		v.Ends = s.ends(tree, v.Explanation, readable)
	}
	return v, failed
}

func setOf(names []string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// levels returns the levels of a tree, with what the Workload is short of where it is.
func (s *Server) levels(ctx context.Context, a *ask, tree *state.Tree, e *berthv1alpha1.Explanation) ([]levelView, error) {
	out := make([]levelView, 0, len(tree.Levels))
	for i := range tree.Levels {
		level := &tree.Levels[i]
		v, what := levelView{Kind: clusterQueuesResource.kind}, clusterQueuesResource
		if level.Cohort {
			v.Kind, what = cohortsResource.kind, cohortsResource
		}
		may, err := s.access.may(ctx, a.who, what, "", level.Name)
		if err != nil {
			return nil, err
		}
		if !may {
			v.Hidden = true
			out = append(out, v)
			continue
		}
		v.Name = level.Name
		for k := range level.Cells {
			c := &level.Cells[k]
			of := corev1.ResourceName(c.Resource)
			q := quotaView{
				Flavor: c.Flavor, Resource: c.Resource, Nominal: convert.Quantity(of, c.Nominal), Quota: convert.Quantity(of, c.Quota), Used: convert.Quantity(of, c.Used),
				Borrowable: convert.Quantity(of, c.Borrowable), BorrowingLimit: limitOf(of, c.Borrow), LendingLimit: limitOf(of, c.Lend),
			}
			q.Missing, q.Never = missingOf(&q, level.Name, level.Cohort, e.Shortfalls)
			v.Quotas = append(v.Quotas, q)
		}
		out = append(out, v)
	}
	return out, nil
}

// limitOf is a limit of borrowing or lending, nil for none.
func limitOf(of corev1.ResourceName, a amounts.Amount) *apiresource.Quantity {
	if a == quota.NoLimit {
		return nil
	}
	return new(convert.Quantity(of, a))
}

// missingOf returns the largest amount that is missing of a flavor and resource at a level, nil for none. Amounts that can never be had are
// missing at the ClusterQueue.
func missingOf(q *quotaView, level string, cohort bool, shortfalls []berthv1alpha1.Shortfall) (most *apiresource.Quantity, never bool) {
	for i := range shortfalls {
		short := &shortfalls[i]
		if short.Flavor != q.Flavor || short.Resource != q.Resource || short.Requested == nil {
			continue
		}
		has, ever := short.Available, false
		switch {
		case short.Reason == string(trace.ExceedsMaxQuota) && !cohort:
			has, ever = short.Potential, true
		case short.LimitedBy != trace.Node(level, cohort):
			continue
		}
		if has == nil {
			continue
		}
		lacks := short.Requested.DeepCopy()
		lacks.Sub(*has)
		if lacks.Sign() > 0 && (most == nil || lacks.Cmp(*most) > 0) {
			most, never = &lacks, ever
		}
	}
	return most, never
}

// needs are the amounts of a flavor that a Workload waits for.
func needs(e *berthv1alpha1.Explanation) (flavors []string, of map[string][]state.Held) {
	of = map[string][]state.Held{}
	for i := range e.Shortfalls {
		short := &e.Shortfalls[i]
		if short.Reason != string(trace.WaitingForQuota) || short.Requested == nil || short.LimitedBy == "" {
			continue
		}
		amount := convert.Amount(corev1.ResourceName(short.Resource), *short.Requested)
		all, known := of[short.Flavor]
		if !known {
			flavors = append(flavors, short.Flavor)
		}
		if at := slices.IndexFunc(all, func(h state.Held) bool { return h.Resource == short.Resource }); at >= 0 {
			all[at].Amount = max(all[at].Amount, amount) // it includes what pod sets before have got
			continue
		}
		of[short.Flavor] = append(all, state.Held{Flavor: short.Flavor, Resource: short.Resource, Amount: amount})
	}
	return flavors, of
}

// ends returns, for each flavor that is short, the Workloads that have to end.
func (s *Server) ends(tree *state.Tree, e *berthv1alpha1.Explanation, readable func([]string) []string) []endsView {
	expected := map[string]time.Time{} // by UID
	end := func(p state.PendingWorkload) workload.Instant {
		at := s.endOf(p)
		if at.IsZero() {
			return 0
		}
		expected[p.UID()] = at
		return workload.Instant(at.UnixNano())
	}
	out := []endsView{}
	flavors, of := needs(e)
	for _, flavor := range flavors {
		first, enough, known := tree.Ends(of[flavor], end)
		v := endsView{Flavor: flavor, Enough: enough, Known: known, Count: len(first), Workloads: []endView{}}
		for _, h := range of[flavor] {
			v.Resources = append(v.Resources, h.Resource)
		}
		among := map[string]bool{}
		for _, w := range first {
			namespace, _ := w.Name()
			among[namespace] = true
		}
		may := setOf(readable(slices.Sorted(maps.Keys(among))))
		for i, w := range first {
			namespace, name := w.Name()
			at := timeOf(expected[w.UID()])
			switch {
			case !may[namespace]:
				v.Others++
			case len(v.Workloads) < shownEnds:
				v.Workloads = append(v.Workloads, endView{namespace, name, at})
			}
			if i == len(first)-1 {
				v.By = at
			}
		}
		out = append(out, v)
	}
	return out
}

// endOf returns when a workload with a reservation is expected to end, zero if that is unknown.
func (s *Server) endOf(p state.PendingWorkload) time.Time {
	if s.End == nil {
		return time.Time{}
	}
	if w := s.workloadOf(p); w != nil {
		return s.End(w)
	}
	return time.Time{}
}

// workloadOf returns the Workload of a workload of the read model, nil if the cache has another one, or none. It must not be modified.
func (s *Server) workloadOf(p state.PendingWorkload) *kueue.Workload {
	namespace, name := p.Name()
	if w := s.all.Get(namespace, name); w != nil && string(w.UID) == p.UID() {
		return w
	}
	return nil
}

func timeOf(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return new(metav1.NewTime(at.UTC().Truncate(time.Second)))
}
