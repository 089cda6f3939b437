package dash

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// quotas is a ClusterQueue with so many flavors of 2 CPUs each.
func quotas(name string, flavors int) state.Event {
	g := state.Group{Resources: []string{"cpu"}}
	for i := range flavors {
		g.Flavors = append(g.Flavors, state.FlavorQuota{
			Flavor: fmt.Sprint("f", i), Resources: []state.Quota{{Resource: "cpu", Nominal: 2000, Borrow: quota.NoLimit, Lend: quota.NoLimit}},
		})
	}
	return state.SetQueue(state.Queue{Name: name, Namespaces: []workload.Term{{}}, Groups: []state.Group{g}})
}

func all(key seriesKey) (flavor, resource string, shown bool) { return key.flavor, key.resource, true }

// TestUsage: the use of a quota is sampled for an hour, a queue that is new or deleted has gaps, and several are summed.
func TestUsage(t *testing.T) {
	st := state.New(state.Options{Options: cycle.Defaults()})
	for i := range 2 {
		st.Apply(state.SetFlavor(flavor.Flavor{Name: fmt.Sprint("f", i)}))
	}
	st.Apply(state.SetNamespace{Name: "ns"})
	st.Apply(quotas("a", 2))
	st.Apply(state.SetLocalQueue(state.LocalQueue{Namespace: "ns", Name: "a", Queue: "a"}))
	start := time.Unix(1_000_000, 0).UTC()
	u := newUsage()
	u.addSample(start, st.Publish())
	st.Apply(state.SetWorkload(state.Workload{
		UID: "w", Namespace: "ns", Name: "w", Version: 1, LocalQueue: "a", Reserved: true, Queue: "a",
		Held: []state.Held{{PodSet: "main", Flavor: "f1", Resource: "cpu", Amount: 1500}},
	}))
	st.Apply(quotas("b", 1))
	u.addSample(start.Add(time.Minute), st.Publish())
	v := u.view(all)
	want := []seriesView{
		{Flavor: "f0", Resource: "cpu", Used: []float32{0, 0}, Quota: []float32{2, 4}},
		{Flavor: "f1", Resource: "cpu", Used: []float32{0, 1.5}, Quota: []float32{2, 2}},
	}
	if diff := cmp.Diff(want, v.Series); diff != "" || len(v.At) != 2 || !v.At[0].Time.Equal(start) {
		t.Errorf("at %v (-want +got):\n%s", v.At, diff)
	}
	onlyB := func(key seriesKey) (flavor, resource string, shown bool) { return "", key.resource, key.queue == "b" }
	if diff := cmp.Diff([]seriesView{{Resource: "cpu", Used: []float32{-1, 0}, Quota: []float32{0, 2}}}, u.view(onlyB).Series); diff != "" {
		t.Errorf("of a new queue (-want +got):\n%s", diff)
	}
	st.Apply(state.DeleteQueue("b"))
	for i := range keptSamples {
		if len(u.view(onlyB).Series) == 0 {
			t.Errorf("the deleted queue has no series after %d samples", i)
		}
		u.addSample(start.Add(time.Duration(2+i)*time.Minute), st.Publish())
	}
	v = u.view(all)
	if len(u.view(onlyB).Series) != 0 || len(v.At) != keptSamples || !v.At[keptSamples-1].Time.Equal(start.Add(62*time.Minute)) {
		t.Errorf("after an hour: %v, %v", u.view(onlyB).Series, v.At)
	}
}

// The memory of samples is bounded.
func TestUsageIsBounded(t *testing.T) {
	st := state.New(state.Options{Options: cycle.Defaults()})
	for i := range keptSeries/100 + 1 {
		st.Apply(quotas(fmt.Sprint("q", i), 100))
	}
	u := newUsage()
	u.addSample(time.Unix(1_000_000, 0), st.Publish())
	if v := u.view(all); len(u.series) != keptSeries || v.Left != 100 {
		t.Errorf("%d series, %d are left out", len(u.series), v.Left)
	}
}
