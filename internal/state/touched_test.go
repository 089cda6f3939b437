package state

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/workload"
)

// checkTouched holds after every event: what shows something else now is touched. Nothing else has its status written.
func (m *machine) checkTouched(t *rapid.T) {
	queues, cohorts := m.s.Touched()
	now := map[string]string{}
	check := func(name, shows string, touched bool) {
		now[name] = shows
		if was, known := m.shown[name]; known && was != shows && !touched {
			t.Fatalf("%s is not touched, but shows\n%s, before that\n%s", name, shows, was)
		}
	}
	for name := range m.s.queues {
		view, _ := m.s.slowQueue(name)
		check("queue "+name, plainView(&view), slices.Contains(queues, Name{Name: name}))
	}
	for name, lq := range m.s.localQueues {
		if lq.exists {
			view := m.s.slowLocalQueue(name.Namespace, name.Name)
			check(fmt.Sprint("local queue ", name), plainView(&view), slices.Contains(queues, name))
		}
	}
	for name := range m.cohorts {
		share, _ := m.s.slowCohortShare(name)
		check("cohort "+name, plainShare(share), slices.Contains(cohorts, name))
	}
	m.shown = now
}

func plainView(v *View) string {
	plain := *v
	plain.Share = nil
	plain.Active, plain.Inadmissible = 0, plain.Active+plain.Inadmissible // which a status does not tell apart
	return fmt.Sprintf("%+v share %s", plain, plainShare(v.Share))
}

func plainShare(s *quota.Share) string {
	if s == nil {
		return "none"
	}
	return fmt.Sprint(s.Ceil())
}

// touchedWorld is a ClusterQueue q with quota for one Workload of its LocalQueue ns/l.
func touchedWorld() *State {
	s := New(Options{Options: immediately()})
	s.Apply(SetNamespace{Name: "ns", Labels: nil})
	s.Apply(SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(SetQueue(Queue{Name: "q", Namespaces: []workload.Term{{}}, Groups: []Group{{
		Resources: []string{"gpu"},
		Flavors:   []FlavorQuota{{Flavor: "f", Resources: []Quota{{Resource: "gpu", Nominal: 1, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}},
	}}}))
	s.Apply(SetLocalQueue(LocalQueue{Namespace: "ns", Name: "l", Queue: "q"}))
	return s
}

func touchedWorkload() Workload {
	return Workload{
		UID: "u", Namespace: "ns", Name: "w", Version: 1, LocalQueue: "l", Queueable: true,
		PodSets: []PodSet{{Name: "main", Count: 1, Requests: []Request{{Resource: "gpu", Amount: 1}}}},
	}
}

// An admission that could not be written counts no longer, and both queues show that.
func TestFailedAdmissionTouches(t *testing.T) {
	s := touchedWorld()
	s.Apply(SetWorkload(touchedWorkload()))
	s.Step(1, 10)
	if view, _ := s.Publish().Queue("q"); view.Reserved != 1 {
		t.Fatalf("view %+v", view)
	}
	s.Touched()
	s.Apply(AdmissionFailed{"u", 1})
	if got, _ := s.Touched(); !slices.Equal(got, []Name{{Name: "q"}, {"ns", "l"}}) {
		t.Errorf("touched %v", got)
	}
}

// A Workload that holds quota and has a time to wait already, as between its eviction and its end, is not counted as waiting; nor is it
// taken off that count when it is deleted.
func TestDeletedBeforeItRests(t *testing.T) {
	s, w := touchedWorld(), touchedWorkload()
	w.Reserved, w.Evicting, w.Resting, w.Queue = true, true, true, "q"
	w.Held = []Held{{Flavor: "f", Resource: "gpu", Amount: 1}}
	s.Apply(SetWorkload(w))
	s.Apply(DeleteWorkload("u"))
	all, _ := s.Publish().Queue("q")
	if own := s.Publish().LocalQueue("ns", "l"); own.Inadmissible != 0 || all.Inadmissible != 0 {
		t.Errorf("%d wait in the LocalQueue, %d in the ClusterQueue", own.Inadmissible, all.Inadmissible)
	}
}
