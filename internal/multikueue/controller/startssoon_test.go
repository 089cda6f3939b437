package controller

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	integration "github.com/berth-project/berth/internal/job/kind/job"
	"github.com/berth-project/berth/internal/multikueue/plan"
)

// TestStartsSoon: the status of a Job is not copied between its admission and its start, but not delayed for longer.
func TestStartsSoon(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	of := func(suspended, over bool) *batchv1.Job {
		j := &batchv1.Job{Spec: batchv1.JobSpec{Suspend: &suspended}}
		if over {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}
		return j
	}
	const started, suspended, over = 0, 1, 2
	for _, c := range []struct {
		what         string
		local, there int
		ready        time.Duration // how long ago
		want         bool
	}{
		{"both are suspended", suspended, suspended, time.Second, true},
		{"the local one was started first", started, suspended, time.Second, true},
		{"the one there was started first", suspended, started, time.Second, true},
		{"both were started", started, started, time.Second, false},
		{"it is over before the local one was started", suspended, over, time.Second, false},
		{"the worker takes its time", started, suspended, time.Minute, false},
		{"the local one was stopped", suspended, started, time.Minute, false},
	} {
		w := &workloads{shared: &shared{Options: Options{Now: func() time.Time { return now }}}}
		s := &observation{kind: integration.Descriptor(), job: of(c.local == suspended, false), observed: plan.Observed{Check: "there", Local: &kueue.Workload{
			Status: kueue.WorkloadStatus{AdmissionChecks: []kueue.AdmissionCheckState{
				{Name: "there", State: kueue.CheckStateReady, LastTransitionTime: metav1.NewTime(now.Add(-c.ready))},
			}},
		}}}
		if got := w.startsSoon(s, of(c.there == suspended, c.there == over)); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
