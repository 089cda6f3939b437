package admit

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/engine"
)

// spec: 10 §5.2, 70 §5.2.
func TestReservedNote(t *testing.T) {
	table := resource.NewTable()
	onSpot, dear := table.FR("spot", "gpu"), table.FR("dear", "gpu")
	gets := func(name string, fr resource.FR, level int16) trace.PodSet {
		return trace.PodSet{Name: name, Resources: []trace.Choice{{FR: fr, Mode: trace.Fit, Level: level}}}
	}
	no := trace.Refusal{PodSet: "main", Pair: &resource.Pair{Flavor: "old"}, Detail: "the taint a=b is not tolerated"}
	few := trace.Refusal{PodSet: "main", Pair: table.Ref(onSpot), Asked: 3, Available: 1, Potential: 9, Reach: &trace.Reach{}}
	created := metav1.Unix(1000, 0)
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created}}
	again := w.DeepCopy()
	again.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadRequeued, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(1090, 0)}}
	const start = "Quota reserved in ClusterQueue cq, wait time since queued was "
	for name, tc := range map[string]struct {
		w       *kueue.Workload
		attempt *trace.Attempt
		want    string
	}{
		"no look":          {w, nil, start + "100s"},
		"plain fits":       {w, &trace.Attempt{PodSets: []trace.PodSet{gets("main", onSpot, 0)}}, start + "100s"},
		"requeued":         {again, &trace.Attempt{}, start + "10s"},
		"one does not fit": {w, &trace.Attempt{Refusals: []trace.Refusal{no}}, start + "100s; Flavors considered: main: old(NoFit;the taint a=b is not tolerated)"},
		"no flavor at all": {w, &trace.Attempt{Refusals: []trace.Refusal{{PodSet: "main", Detail: "no flavor"}}}, start + "100s"},
		"it borrows":       {w, &trace.Attempt{PodSets: []trace.PodSet{gets("main", dear, 2)}}, start + "100s; Flavors considered: main: dear(Fit;borrow=2)"},
		"several, and more": {
			w, &trace.Attempt{Refusals: []trace.Refusal{no, few}, PodSets: []trace.PodSet{gets("main", dear, 1), gets("driver", dear, 1)}},
			start + "100s; Flavors considered: main: old(NoFit;the taint a=b is not tolerated), " +
				"spot(preemptionMode=NoCandidates;gpu in flavor spot: 2 more needed (3 requested, 1 available), and no workload may be preempted for it), " +
				"dear(Fit;borrow=1) | driver: dear(Fit;borrow=1)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.attempt != nil {
				tc.attempt.Table = table.Frozen()
			}
			if got := reservedNote(tc.w, engine.Decision{Queue: "cq", Attempt: tc.attempt}, metav1.NewTime(created.Add(100*time.Second))); got != tc.want {
				t.Errorf("note\n%s, want\n%s", got, tc.want)
			}
		})
	}
}
