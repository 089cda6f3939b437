package decide_test

import (
	"testing"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// TestLeavesAndComesBack: a job that Berth suspended is resumed when its namespace leaves management, and a job whose Workload was
// finished only for that is queued again once it is managed again (spec: 30 §4.2.5).
func TestLeavesAndComesBack(t *testing.T) {
	left := func(s *scene, w *kueue.Workload) {
		s.cfg.Lifecycle.Finish(w, kueue.ReasonOutOfSync, "The namespace is no longer managed", at(50))
	}
	// gone is a job that waited, and Berth suspended it, in a namespace that is no longer managed.
	gone := func(s *scene) {
		w := s.workload()
		left(s, w)
		w.Finalizers = nil
		job.MarkSuspended(s.job)
		s.o.Verdict.Mode = job.Unmanaged
	}
	const resumed = "job: suspend false, stopping \"\", selector map[zone:a]"
	runDecisions(t, map[string]decision{
		"given back":                {gone, resumed + " +Resumed"},
		"it never had a workload":   {func(s *scene) { gone(s); s.o.Workloads = nil }, resumed + " +Resumed"},
		"its user suspended it":     {func(s *scene) { gone(s); s.job.Annotations = nil }, "nothing"},
		"another client resumed it": {func(s *scene) { gone(s); s.job.Spec.Suspend = new(false) }, resumed},
		"it is the copy of another": {func(s *scene) { gone(s); s.job.Labels[kueue.MultiKueueOriginLabel] = "m" }, "nothing"},
		"no controller here would run it": {
			func(s *scene) { gone(s); s.job.Spec.ManagedBy = new(kueue.MultiKueueControllerName) }, "nothing",
		},
		"its user stopped it while it ran": {
			func(s *scene) {
				gone(s)
				s.cfg.HonourUserSuspend, s.job.Annotations[job.UserStopAnnotation] = true, "true"
			}, "nothing",
		},
		"comes back and runs": {
			func(s *scene) { left(s, s.running()) }, "job: suspend true, stopping \"true\", selector " + injected + " +Stopped",
		},
		"comes back and waits": {func(s *scene) { left(s, s.workload()) }, "update workload: queue lq, finalizers 0, count 4"},
		"comes back, and its workload is deleted next": {
			func(s *scene) { w := s.workload(); left(s, w); w.Finalizers = nil }, "delete workload +DeletedWorkload",
		},
		"another client finished the workload": {
			func(s *scene) { s.cfg.Lifecycle.Finish(s.running(), kueue.ReasonSucceeded, "", at(50)) },
			"update workload: queue lq, finalizers 0, count 4",
		},
		"a child of a job that is about to be stopped": {func(s *scene) { s.child(false); s.o.AncestorRuns = true }, "nothing"},
		"a child of a job that runs without quota": {
			func(s *scene) { s.child(false, &kueue.Workload{}); s.o.AncestorRuns = true },
			"job: suspend true, stopping \"\", selector map[zone:a] +Suspended",
		},
		"a child that its parent resumed": {func(s *scene) { s.child(false, admitted(0)); job.MarkSuspended(s.job) }, resumed},
	})
}
