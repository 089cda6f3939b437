package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// What an agent does, event by event: current and previous attempt, -1 for none.
func TestAgent(t *testing.T) {
	type event struct {
		current, previous int32
		want              Advice
	}
	wait := Advice{}
	cases := map[string]struct {
		change func(*jobsetv1alpha2.JobSet)
		events []event
	}{
		"the first attempt begins when all are there": {events: []event{
			{-1, -1, Advice{Attempt: new(int32(0))}},
			{-1, -1, wait},
			{0, -1, Advice{Lift: true}},
			{0, -1, wait},
		}},
		"another pod restarts": {events: []event{
			{-1, -1, Advice{Attempt: new(int32(0))}},
			{0, -1, Advice{Lift: true}},
			{0, 0, Advice{Exit: true}},
		}},
		"a container that comes back is one attempt further": {events: []event{
			{0, -1, Advice{Attempt: new(int32(1))}},
			{0, 0, wait},
			{1, 0, Advice{Lift: true}},
		}},
		"one that comes back while the others restart again exits": {events: []event{
			{0, 1, Advice{Attempt: new(int32(1)), Exit: true}},
		}},
		"a new pod of the first attempt, after others have gone further, exits": {events: []event{
			{-1, 2, Advice{Attempt: new(int32(0)), Exit: true}},
		}},
		"switched off": {
			func(js *jobsetv1alpha2.JobSet) {
				js.Annotations = map[string]string{jobsetv1alpha2.DisableInPlaceRestartAnnotation: ""}
			},
			[]event{{3, 5, Advice{Lift: true}}, {3, 5, wait}},
		},
		"another strategy": {
			func(js *jobsetv1alpha2.JobSet) {
				js.Spec.FailurePolicy.RestartStrategy = jobsetv1alpha2.RestartRecreate
			},
			[]event{{-1, -1, Advice{Lift: true}}, {0, 0, wait}},
		},
		"no policy": {func(js *jobsetv1alpha2.JobSet) { js.Spec.FailurePolicy = nil }, []event{{-1, -1, Advice{Lift: true}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var a Agent
			for i, e := range tc.events {
				js := &jobsetv1alpha2.JobSet{}
				js.Spec.FailurePolicy = &jobsetv1alpha2.FailurePolicy{RestartStrategy: jobsetv1alpha2.RestartInPlace}
				if e.current >= 0 {
					js.Status.CurrentInPlaceRestartAttempt = &e.current
				}
				if e.previous >= 0 {
					js.Status.PreviousInPlaceRestartAttempt = &e.previous
				}
				if tc.change != nil {
					tc.change(js)
				}
				if diff := cmp.Diff(e.want, a.See(js)); diff != "" {
					t.Errorf("event %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}
