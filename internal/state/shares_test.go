package state

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

// sharingWorld is a cohort below another, with a queue that borrows from its neighbor.
func sharingWorld(fair bool, weight *quota.Weight, used resource.Amount) *State {
	o := cycle.Defaults()
	if fair {
		o.Fair = &preempt.Fair{}
	}
	s := New(Options{Options: o})
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetNamespace{Name: "ns", Labels: nil})
	s.Apply(SetCohort(Cohort{Name: "all"}))
	s.Apply(SetCohort(Cohort{Name: "org", Parent: "all"}))
	queue := func(name string, nominal resource.Amount, weight *quota.Weight) {
		s.Apply(SetQueue(Queue{Name: name, Cohort: "org", Weight: weight, Namespaces: []workload.Term{{}}, Groups: []Group{{
			Resources: []string{"cpu"},
			Flavors:   []FlavorQuota{{Flavor: "f", Resources: []Quota{{Resource: "cpu", Nominal: nominal, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}},
		}}}))
	}
	queue("ml", 20, weight)
	queue("web", 80, nil)
	s.Touched()
	s.Apply(SetWorkload(Workload{
		UID: "w", Namespace: "ns", Name: "w", LocalQueue: "lq", Reserved: true, Admitted: true, Queue: "ml", ReservedAt: 1,
		Held: []Held{{PodSet: "main", Flavor: "f", Resource: "cpu", Amount: used}},
	}))
	return s
}

// spec: 20 §7 examples 1 and 2.
func TestShares(t *testing.T) {
	cases := map[string]struct {
		fair   bool
		weight *quota.Weight
		used   resource.Amount
		want   string
	}{
		"borrowed by lendable":     {true, nil, 60, "400"},
		"by weight":                {true, new(quota.Weight(2e9)), 60, "200"},
		"infinite":                 {true, new(quota.Weight(0)), 21, fmt.Sprint(int64(math.MaxInt64))},
		"nothing borrowed":         {true, new(quota.Weight(0)), 20, "0"},
		"rounded up":               {true, new(quota.Weight(3e9)), 60, "134"},
		"none without fair shares": {false, nil, 60, "none"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			view, _ := sharingWorld(tc.fair, tc.weight, tc.used).Publish().Queue("ml")
			got := "none"
			if view.Share != nil {
				got = fmt.Sprint(view.Share.Ceil())
			}
			if got != tc.want {
				t.Errorf("share %s, want %s", got, tc.want)
			}
		})
	}
}

// Who uses quota touches the cohorts above; an edit touches all that may share something
// else.
func TestTouchedCohorts(t *testing.T) {
	s := sharingWorld(true, nil, 60)
	queues, cohorts := s.Touched()
	if diff := cmp.Diff([]string{"all", "org"}, cohorts); diff != "" || len(queues) != 2 {
		t.Errorf("touched %v, and (-want +got)\n%s", queues, diff)
	}
	s.Apply(SetCohort(Cohort{Name: "elsewhere"}))
	queues, cohorts = s.Touched()
	if diff := cmp.Diff([]string{"all", "elsewhere", "org"}, cohorts); diff != "" || len(queues) != 2 {
		t.Errorf("an edit touched %v, and (-want +got)\n%s", queues, diff)
	}
	if queues, cohorts = s.Touched(); len(queues)+len(cohorts) != 0 {
		t.Errorf("touched %v and %v again", queues, cohorts)
	}
	if _, cohorts = sharingWorld(false, nil, 60).Touched(); len(cohorts) != 0 {
		t.Errorf("touched %v although there is no fair sharing", cohorts)
	}
	if _, known := s.Publish().CohortShare("nobody's"); known {
		t.Error("there is a share of a cohort that does not exist")
	}
}
