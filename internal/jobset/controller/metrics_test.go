package controller_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// series are the values of a metric, or for a histogram how often it was observed, by the values of their labels.
func (w *world) series(name string) map[string]float64 {
	w.t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	w.must(err)
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// 60 §5.4: ends and restarts are counted once each, also when the manager starts again; the series of a JobSet go with it. JobSets are
// counted by phase.
func TestMetrics(t *testing.T) {
	w := newWorld(t, plan.Config{})
	good, bad := "good "+w.namespace, "bad "+w.namespace
	w.create(manifest("good", 1))
	w.create(manifest("bad", 2, "failurePolicy: {maxRestarts: 1}"))
	w.haveJobs("good-oar-0", "bad-oar-0", "bad-oar-1")
	w.setJob("good-oar-0", running(1))
	w.status("good", "it is ready", func(s *jobsetv1alpha2.JobSetStatus) bool { return s.ReplicatedJobsStatus[0].Ready == 1 })
	w.setJob("bad-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.is("bad", jobsetv1alpha2.ConditionRestarting, metav1.ConditionTrue, jobsetv1alpha2.ReasonDefaultFailurePolicy)
	w.byPhase()
	w.collect("bad-oar-0", "bad-oar-1")
	wait.Until(w.t, "the new Jobs are there", func() error {
		for _, j := range w.haveJobs("good-oar-0", "bad-oar-0", "bad-oar-1") {
			if j.DeletionTimestamp != nil {
				return fmt.Errorf("%s is old", j.Name)
			}
		}
		return nil
	})
	w.setJob("bad-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.is("bad", jobsetv1alpha2.ConditionFailed, metav1.ConditionTrue, jobsetv1alpha2.ReasonReachedMaxRestarts)
	w.setJob("good-oar-0", complete(1))
	w.is("good", jobsetv1alpha2.ConditionCompleted, metav1.ConditionTrue, jobsetv1alpha2.ReasonAllJobsCompleted)
	wait.Until(w.t, "the end is counted", func() error { // a manager that ends between the write and its answer counts nothing
		if n := w.series("jobset_completed_total")[good]; n != 1 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	w.stop()
	w.start()
	w.byPhase()
	for name, want := range map[string]map[string]float64{
		"jobset_completed_total":       {good: 1},
		"jobset_failed_total":          {bad: 1},
		"jobset_restarts_total":        {bad: 1},
		"jobset_time_to_ready_seconds": {w.namespace: 1},
	} {
		got := w.series(name)
		maps.DeleteFunc(got, func(labels string, _ float64) bool { return !strings.HasSuffix(labels, w.namespace) })
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	w.must(w.c.Delete(w.ctx, w.get("bad")))
	wait.Until(w.t, "its series are gone", func() error {
		for _, name := range []string{"jobset_failed_total", "jobset_restarts_total"} {
			if n, ok := w.series(name)[bad]; ok {
				return fmt.Errorf("%s is %v", name, n)
			}
		}
		return nil
	})
	w.byPhase()
}

// byPhase waits until the JobSets of the whole API server are counted as they are.
func (w *world) byPhase() {
	w.t.Helper()
	wait.Until(w.t, "JobSets are counted by phase", func() error {
		var list jobsetv1alpha2.JobSetList
		if err := w.c.List(w.ctx, &list); err != nil {
			return err
		}
		want := map[string]float64{plan.PhaseSuspended: 0, plan.PhaseRunning: 0, plan.PhaseRestarting: 0, plan.PhaseCompleted: 0, plan.PhaseFailed: 0}
		for i := range list.Items {
			if js := &list.Items[i]; plan.IsManaged(js) && js.DeletionTimestamp == nil {
				want[plan.Phase(js)]++
			}
		}
		if got := w.series("jobset_jobsets"); !maps.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}
