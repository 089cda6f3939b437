package plan_test

import (
	"testing"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job/kind/ray/plan"
)

// TestRemoteService: the manager's view of the clusters on a worker (spec: 30 §4.10.3, Limitation 3). Restored counts result in the
// same demand as the clusters themselves.
func TestRemoteService(t *testing.T) {
	two := suffix("workers", "2")
	active := cluster("a", plan.Active, groups(2, "1"))
	pending := func(cpu string) plan.Cluster { return cluster("p", plan.Pending, groups(2, cpu)) }
	one, both := admitted(groups(2, "1")...), admitted(set("head", 2, "1"), set("workers", 4, "1"))
	tests := map[string]struct {
		spec     []kueue.PodSet
		clusters []plan.Cluster
		slice    *kueue.Workload
		want     string
		fits     bool
	}{
		"none yet":                 {groups(2, "1"), nil, one, "head:1@1 workers:2@1", true},
		"none yet, and more":       {groups(3, "1"), nil, one, "head:1@1 workers:3@1", false},
		"what is asked for":        {groups(2, "1"), []plan.Cluster{active}, one, "head:1@1 workers:2@1", true},
		"held, for the first time": {groups(2, "1"), []plan.Cluster{held(pending("1"))}, one, "head:1@1 workers:2@1", true},
		"an edit": {
			groups(2, "1"), []plan.Cluster{outdated(active)}, one, "head:2@1 workers:4@1", false,
		},
		"an edit that there is room for": {
			groups(2, "1"), []plan.Cluster{outdated(active)}, both, "head:2@1 workers:4@1", true,
		},
		"an edit of another shape": {
			groups(2, "2"), []plan.Cluster{outdated(active)}, both, "head:2@1 workers:2@1 " + two + ":2@2", false,
		},
		"forwarded, and held there": {
			groups(2, "1"), []plan.Cluster{outdated(active), held(pending("1"))}, both, "head:2@1 workers:4@1", true,
		},
		"forwarded, and edited again": {
			groups(2, "2"), []plan.Cluster{outdated(active), held(outdated(pending("1")))}, both, "head:2@1 workers:2@1 " + two + ":2@2", false,
		},
		"and started before": {
			groups(2, "1"), []plan.Cluster{outdated(active), outdated(pending("1"))}, both, "head:3@1 workers:6@1", false,
		},
		"it took over": {
			groups(2, "1"),
			[]plan.Cluster{cluster("p", plan.Active, groups(2, "1")), outdated(cluster("a", plan.Dangling, groups(2, "1")))},
			both, "head:2@1 workers:4@1", true,
		},
		"the old one goes": {
			groups(2, "1"),
			[]plan.Cluster{cluster("p", plan.Active, groups(2, "1")), cluster("a", plan.Deleting, groups(2, "1"))},
			both, "head:2@1 workers:4@1", true,
		},
		"one that goes without having started": {
			groups(2, "1"), []plan.Cluster{active, held(cluster("p", plan.Deleting, groups(2, "1")))}, both, "head:1@1 workers:2@1", true,
		},
		"a group more": {
			append(groups(2, "1"), set("more", 1, "1")), []plan.Cluster{active}, one, "head:1@1 workers:2@1 more:1@1", false,
		},
		"reverted after it was forwarded": {
			groups(2, "1"), []plan.Cluster{active, held(outdated(pending("2")))}, both, "head:1@1 workers:2@1", true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			there := &plan.Service{Spec: tc.spec, Clusters: tc.clusters, Slices: []*kueue.Workload{tc.slice}}
			there.ExpectClusters()
			if got := there.FitsIn(tc.slice); got != tc.fits {
				t.Errorf("fits %v, want %v", got, tc.fits)
			}
			here := &plan.Service{Spec: tc.spec, Slices: []*kueue.Workload{tc.slice}}
			here.RestoreClusters(there.Counts())
			if got := show(here.Demand().PodSets); got != tc.want {
				t.Errorf("after %s:\ngot  %s\nwant %s", there.Counts(), got, tc.want)
			}
		})
	}
}

// TestCounts tests the form of the annotation, and that a missing or invalid one results in the current demand.
func TestCounts(t *testing.T) {
	slice := admitted(set("head", 2, "1"), set("workers", 4, "1"))
	s := &plan.Service{Spec: groups(2, "1"), Clusters: []plan.Cluster{outdated(cluster("a", plan.Active, groups(2, "1")))}, Slices: []*kueue.Workload{slice}}
	s.ExpectClusters()
	want := `[{"cluster":"a","podSet":"head","count":1},{"cluster":"a","podSet":"workers","count":2},` +
		`{"cluster":"","podSet":"head","count":1},{"cluster":"","podSet":"workers","count":2}]`
	if got := s.Counts(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for text, want := range map[string]string{"": "head:2@1 workers:4@1", "{": "head:2@1 workers:4@1", "[]": "head:1@1 workers:2@1"} {
		here := &plan.Service{Spec: groups(2, "1"), Slices: []*kueue.Workload{slice}}
		if here.RestoreClusters(text); show(here.Demand().PodSets) != want {
			t.Errorf("%q: got %s, want %s", text, show(here.Demand().PodSets), want)
		}
	}
	waits := s.Demand()
	if len(waits.Held) != 1 || waits.Held[0] != "" {
		t.Errorf("held: %q", waits.Held)
	}
}
