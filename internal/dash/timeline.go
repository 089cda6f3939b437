package dash

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Workloads in one timeline. Names are authorized for scanned ones at most.
const (
	shownRuns  = 60
	shownStart = 40
	scanned    = 5
)

// timelineView is the last hour of a ClusterQueue, and the next starts.
type timelineView struct {
	// Since is from when on the runs that have ended are all known.
	Since metav1.Time `json:"since"`
	// Runs are of the Workloads that hold quota, and then of ended ones, the last first. More have no place here, and Others are in
	// namespaces in which the caller may not list Workloads.
	Runs       []runView `json:"runs"`
	MoreRuns   int       `json:"moreRuns"`
	OtherRuns  int       `json:"otherRuns"`
	Waiting    []waiting `json:"waiting"` // in the order of the line
	MoreWait   int       `json:"moreWaiting"`
	OthersWait int       `json:"otherWaiting"`
}

// runView is a run. Expected is when one that holds quota is expected to end, nil if that is unknown.
type runView struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Start     metav1.Time  `json:"start"`
	End       *metav1.Time `json:"end,omitempty"`
	Outcome   string       `json:"outcome,omitempty"`
	Expected  *metav1.Time `json:"expected,omitempty"`
}

// waiting is a pending Workload.
type waiting struct {
	Namespace string                       `json:"namespace"`
	Name      string                       `json:"name"`
	Position  int32                        `json:"position"` // from 0
	Start     *berthv1alpha1.ExpectedStart `json:"start,omitempty"`
	Reason    string                       `json:"reason,omitempty"` // why it waits, as in its condition
}

// timeline is the view of the runs of a ClusterQueue and of the starts that are expected.
func (s *Server) timeline(ctx context.Context, a *ask) (any, error) {
	q, err := one[kueue.ClusterQueue](ctx, s, a, clusterQueuesResource)
	switch {
	case err != nil || q == nil:
		return none(clusterQueuesResource, a), err
	case s.Model == nil:
		return missing{"this manager has no engine, and has no timeline"}, nil
	}
	m := s.Model()
	var v timelineView
	if err := s.runs(ctx, a, m, &v); err != nil {
		return nil, err
	}
	return v, s.nextStarts(ctx, a, m, &v)
}

// runs sets the runs of a timeline.
func (s *Server) runs(ctx context.Context, a *ask, m *state.Model, v *timelineView) error {
	all, complete := s.history.of(a.name)
	v.Since = *timeOf(complete)
	expected := map[string]time.Time{} // by namespace/name
	view, _ := m.Queue(a.name)
	before := len(all)
	for p := range m.Holders(a.name) {
		if len(all)-before == scanned*shownRuns {
			v.MoreRuns = view.Reserved - scanned*shownRuns
			break
		}
		w := s.workloadOf(p)
		if w == nil || !holds(w) {
			continue // the cache is behind the engine, or before it
		}
		if r, known := runOf(w); known {
			all = append(all, r)
			if s.End != nil {
				expected[r.namespace+"/"+r.name] = s.End(w)
			}
		}
	}
	slices.SortFunc(all, func(a, b run) int {
		if a.end.IsZero() != b.end.IsZero() {
			return a.end.Compare(b.end) // the ones that hold quota first
		}
		return cmp.Or(b.end.Compare(a.end), b.start.Compare(a.start), strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
	if past := len(all) - scanned*shownRuns; past > 0 {
		v.MoreRuns, all = v.MoreRuns+past, all[:scanned*shownRuns]
	}
	may, err := s.listed(ctx, a, len(all), func(i int) string { return all[i].namespace })
	if err != nil {
		return err
	}
	v.Runs = []runView{}
	for i := range all {
		r := &all[i]
		switch {
		case !may[r.namespace]:
			v.OtherRuns++
		case len(v.Runs) == shownRuns:
			v.MoreRuns++
		default:
			show := runView{Namespace: r.namespace, Name: r.name, Start: *timeOf(r.start), End: timeOf(r.end), Outcome: r.outcome}
			if r.end.IsZero() {
				show.Expected = timeOf(expected[r.namespace+"/"+r.name])
			}
			v.Runs = append(v.Runs, show)
		}
	}
	return nil
}

// nextStarts sets the pending Workloads of a timeline.
func (s *Server) nextStarts(ctx context.Context, a *ask, m *state.Model, v *timelineView) error {
	line, _ := m.Waiting(a.name)
	v.Waiting = []waiting{}
	page := line.Page(nil, 0, scanned*shownStart)
	v.MoreWait = line.Len() - len(page)
	namespace := func(i int) string {
		of, _ := page[i].Name()
		return of
	}
	may, err := s.listed(ctx, a, len(page), namespace)
	if err != nil {
		return err
	}
	for i, p := range page {
		namespace, name := p.Name()
		switch {
		case !may[namespace]:
			v.OthersWait++
		case len(v.Waiting) == shownStart:
			v.MoreWait++
		default:
			of := waiting{Namespace: namespace, Name: name, Position: page[i].InClusterQueue}
			if w := s.workloadOf(p.PendingWorkload); w != nil {
				if s.Starts != nil {
					of.Start = s.Starts(w)
				}
				if c := lifecycle.Unreserved(w); c != nil {
					of.Reason = c.Reason
				}
			}
			v.Waiting = append(v.Waiting, of)
		}
	}
	return nil
}

// listed returns the namespaces of n Workloads in which the caller may list Workloads.
func (s *Server) listed(ctx context.Context, a *ask, n int, namespace func(i int) string) (map[string]bool, error) {
	among := map[string]bool{}
	for i := range n {
		among[namespace(i)] = true
	}
	return s.access.within(ctx, a.who, workloadsResource, among)
}
