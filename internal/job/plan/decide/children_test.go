package decide_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
)

// TestPodsThatOutliveTheirJob: for a kind whose controller reports the end of a job before its pods have ended, no quota is
// released or requested again while one of them is left.
func TestPodsThatOutliveTheirJob(t *testing.T) {
	left := func(s *scene) {
		s.o.Pods = []*corev1.Pod{{}}
		s.d.ManagedChildren = &job.ManagedChildren{
			IsActive: func(_ job.Object, in *job.Setting) bool { return len(in.Pods) > 0 },
			Others:   func(job.Object) map[string]string { return nil },
		}
	}
	// evicted is stopped and has made room, but for one pod.
	evicted := func(s *scene) *kueue.Workload {
		w := s.running()
		s.evict(w)
		for a := s.decide(); a.Verb == job.PatchJob; a = s.decide() {
			s.set(a.Job)
		}
		left(s)
		return w
	}
	const released = "status: QuotaReserved=False/PendingEvaluation Admitted=False/NoReservation Requeued=True/Preempted"
	runDecisions(t, map[string]decision{
		"a pod is left":     {func(s *scene) { evicted(s) }, "nothing for 1s"},
		"none is left":      {func(s *scene) { evicted(s); s.o.Pods = nil }, released},
		"nobody looks":      {func(s *scene) { evicted(s); s.d.ManagedChildren = nil }, released},
		"the job tells":     {func(s *scene) { evicted(s); s.job.Status.Active = 1 }, "nothing"},
		"all are watched":   {func(s *scene) { evicted(s); s.d.ManagedChildren.Others = nil }, "nothing"},
		"it is not stopped": {func(s *scene) { w := s.running(); s.evict(w); left(s) }, "job: suspend true, stopping \"true\", selector " + injected + " +Stopped"},
		"its user stopped it": {
			func(s *scene) {
				s.cfg.HonourUserSuspend = true
				evicted(s)
				s.job.Annotations = map[string]string{job.UserStopAnnotation: "true"}
			}, "nothing for 1s",
		},
		"its workload is of another size": {
			func(s *scene) { w := evicted(s); w.Spec.PodSets[0].Count = 7 }, "nothing for 1s",
		},
		"it has no workload any more": {func(s *scene) { evicted(s); s.o.Workloads = nil }, "nothing for 1s"},
		"it has none, and no pod":     {func(s *scene) { evicted(s); s.o.Workloads, s.o.Pods = nil, nil }, "create workload +CreatedWorkload"},
		"its pods are on another cluster": {
			func(s *scene) {
				evicted(s)
				s.o.Workloads, s.job.Spec.ManagedBy = nil, new(kueue.MultiKueueControllerName)
			}, "create workload +CreatedWorkload",
		},
		"it left its queue": {func(s *scene) { s.admitted(); left(s); s.o.Verdict.Mode = job.Ignored }, "nothing for 1s"},
		"it left its queue, and all are watched": {
			func(s *scene) {
				s.admitted()
				left(s)
				s.d.ManagedChildren.Others, s.o.Verdict.Mode = nil, job.Ignored
			}, "nothing",
		},
		"it left its queue, and its suspend field is ignored in its state": {
			func(s *scene) {
				s.admitted()
				left(s)
				s.d.States, s.d.Stops = &job.States{Skip: no, OnHold: no, Halt: yes}, nil
				s.o.Verdict.Mode = job.Ignored
			}, "job status",
		},
		"it follows an owner by now": {func(s *scene) { s.admitted(); left(s); s.child(true) }, "nothing for 1s"},
		"it is deleted":              {func(s *scene) { evicted(s); s.job.DeletionTimestamp = new(at(50)) }, "status: Finished=True/OwnerNotFound"},
	})
}

// TestResizedWithoutGating: a kind with watched pods is resized as any other, and its templates get the values of the admission.
func TestResizedWithoutGating(t *testing.T) {
	e := newElastic(4)
	e.d.ManagedChildren = &job.ManagedChildren{IsActive: func(job.Object, *job.Setting) bool { return false }}
	e.runUntilStable()
	e.admit(e.of("w001"))
	e.runUntilStable()
	if got := e.job.Spec.Template.Spec.NodeSelector["pool"]; got != "h100" {
		t.Errorf("the pods go to %q", got)
	}
	e.scale(6)
	e.runUntilStable()
	if got := e.describe(); len(got) != 3 || got[1] != "w002: 6 for w001" {
		t.Errorf("%v", got)
	}
}

// TestNotResized: a running job that changes its size is stopped unless it is elastic.
func TestNotResized(t *testing.T) {
	for name, tc := range map[string]struct { //berth:unordered a test
		change func(*elastic)
		want   string
	}{
		"it is":                      {func(*elastic) {}, "create workload"},
		"the feature gate is off":    {func(e *elastic) { e.cfg.ElasticJobs = false }, "job: suspend true"},
		"the kind has no such jobs":  {func(e *elastic) { e.d.Elastic = nil }, "job: suspend true"},
		"the job has no annotation":  {func(e *elastic) { e.job.Annotations = nil }, "job: suspend true"},
		"nobody leads jobs as it is": {func(e *elastic) { e.d.ManagedChildren = withoutGating() }, "job: suspend true"},
	} {
		e := newElastic(4)
		e.runUntilStable()
		e.admit(e.of("w001"))
		e.runUntilStable()
		e.pods()
		tc.change(e)
		e.scale(6)
		if got := describeAction(e.decide()); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// withoutGating has managed children that the configuration does not gate.
func withoutGating() *job.ManagedChildren {
	return &job.ManagedChildren{
		Upgrades: &job.Upgrades{GatesChildren: func(*job.Config) bool { return false }},
		IsActive: func(job.Object, *job.Setting) bool { return false },
	}
}
