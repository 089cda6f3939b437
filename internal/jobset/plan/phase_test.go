package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// 60 §5.1, §5.4: the phase that a JobSet is counted in.
func TestPhase(t *testing.T) {
	for want, conditions := range map[string][]metav1.Condition{
		PhaseRunning: {
			{Type: "Suspended", Status: "False"}, {Type: "RestartingJobSet", Status: "False"}, {Type: "StartupPolicyInProgress", Status: "True"},
		},
		PhaseSuspended:  {{Type: "Suspended", Status: "True"}, {Type: "RestartingJobSet", Status: "False"}},
		PhaseRestarting: {{Type: "Suspended", Status: "False"}, {Type: "RestartingJobSet", Status: "True"}},
		PhaseCompleted:  {{Type: "Suspended", Status: "True"}, {Type: "Completed", Status: "True"}},
		PhaseFailed:     {{Type: "RestartingJobSet", Status: "True"}, {Type: "Failed", Status: "True"}},
	} {
		js := &jobsetv1alpha2.JobSet{Status: jobsetv1alpha2.JobSetStatus{Conditions: conditions}}
		if got := Phase(js); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// 60 §5.4: the time until all Jobs are ready begins with the creation, the last resume, or the restart that is under way.
func TestReadySince(t *testing.T) {
	at := func(s int64) metav1.Time { return metav1.Unix(s, 0) }
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		before     int32 // ready or succeeded by the status
		ready      int   // of two Jobs
		suspended  bool
		want       metav1.Time
	}{
		"created":      {nil, 0, 2, false, at(10)},
		"not all":      {nil, 0, 1, false, metav1.Time{}},
		"as before":    {nil, 2, 2, false, metav1.Time{}},
		"is suspended": {nil, 0, 2, true, metav1.Time{}},
		"resumed":      {[]metav1.Condition{{Type: "Suspended", Status: "False", LastTransitionTime: at(20)}}, 0, 2, false, at(20)},
		"restarted": {[]metav1.Condition{
			{Type: "RestartingJobSet", Status: "True", LastTransitionTime: at(30)}, {Type: "Suspended", Status: "False", LastTransitionTime: at(20)},
		}, 0, 2, false, at(30)},
		"restarted before": {[]metav1.Condition{
			{Type: "RestartingJobSet", Status: "False", LastTransitionTime: at(30)}, {Type: "Suspended", Status: "False", LastTransitionTime: at(20)},
		}, 0, 2, false, at(20)},
	} {
		t.Run(name, func(t *testing.T) {
			w := big(t, 2)
			w.command("decide quietly")
			for i := range tc.ready {
				w.job(JobName("ring", "oar", i), "ready", []string{"1"})
			}
			w.js.CreationTimestamp, w.js.Spec.Suspend, w.js.Status.Conditions = at(10), &tc.suspended, tc.conditions
			w.js.Status.ReplicatedJobsStatus[0].Ready = tc.before
			w.now = time.Unix(60, 0)
			if p := w.c.Decide(w.observed()); !p.ReadySince.Equal(tc.want.Time) {
				t.Errorf("%v, want %v", p.ReadySince, tc.want)
			}
		})
	}
}
