package decide_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// runUntilStable makes the writes of Next until there are none, and counts them.
func (s *scene) runUntilStable(t *testing.T) (writes int) {
	t.Helper()
	for range 10 {
		a := s.decide()
		switch a.Verb {
		case job.Nothing:
			return writes
		case job.PatchJob, job.PatchJobStatus:
			s.set(a.Job)
		case job.WriteStatus, job.UpdateWorkload:
			s.o.Workloads[0] = a.Workload
		default:
			t.Fatalf("unexpected: %s", describeAction(a))
		}
		writes++
	}
	t.Fatal("it does not settle")
	return writes
}

// A job that its user stopped gets its template back, keeps its quota while pods run, waits on hold, and is queued again when
// the mark goes (spec: 30 §6, u1).
func TestUserStop(t *testing.T) {
	for name, honoured := range map[string]bool{"honoured": true, "not honoured": false} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.cfg.HonourUserSuspend = honoured
			s.running()
			j := s.job.DeepCopy()
			j.Spec.Suspend = new(true)
			j.Annotations[job.UserStopAnnotation] = "true"
			j.Status = batchv1.JobStatus{Active: 1, StartTime: new(at(50))}
			s.set(j)
			if !honoured {
				a := s.decide()
				if a.Verb != job.PatchJob || *a.Job.(*batchv1.Job).Spec.Suspend {
					t.Errorf("got %s, want it started again", describeAction(a))
				}
				return
			}
			s.runUntilStable(t)
			if w := s.o.Workloads[0]; !lifecycle.IsReserved(w) || !*s.job.Spec.Suspend {
				t.Errorf("with a pod still there: reserved %v, suspended %v", lifecycle.IsReserved(w), *s.job.Spec.Suspend)
			}
			j = s.job.DeepCopy()
			j.Status.Active = 0
			s.set(j)
			s.runUntilStable(t)
			w := s.o.Workloads[0]
			if c := lifecycle.Condition(w, kueue.WorkloadQuotaReserved); lifecycle.IsReserved(w) || c.Reason != kueue.ReasonOnHold {
				t.Errorf("want it on hold: %+v", c)
			}
			if got := s.job.Spec.Template.Spec.NodeSelector; len(got) != 1 || got["zone"] != "a" || len(s.job.Spec.Template.Spec.Tolerations) > 0 {
				t.Errorf("the template is not what its user wrote: %v", got)
			}
			j = s.job.DeepCopy()
			delete(j.Annotations, job.UserStopAnnotation)
			j.Labels[kueue.QueueNameLabel] = "other"
			s.set(j)
			a := s.decide()
			if a.Verb != job.UpdateWorkload || a.Workload.Spec.QueueName != "other" {
				t.Fatalf("got %s, want it in its new queue before that can admit it", describeAction(a))
			}
			s.o.Workloads[0] = a.Workload
			if n := s.runUntilStable(t); n != 1 {
				t.Errorf("%d writes to go back into the queue", n)
			}
			if c := lifecycle.Condition(s.o.Workloads[0], kueue.WorkloadQuotaReserved); c.Reason != kueue.ReasonPendingEvaluation {
				t.Errorf("want it in the queue: %+v", c)
			}
		})
	}
}

// TestUserStopOnWorker: the status of a job that runs on a worker cluster shows pods until its copy is removed, which happens once it has no
// quota. A kind whose status is not changed here, such as TrainJob, is restored after that.
func TestUserStopOnWorker(t *testing.T) {
	for name, quiet := range map[string]bool{"its status is changed": true, "its status is left to the dispatcher": false} {
		s := newScene()
		s.cfg.HonourUserSuspend = true
		if !quiet {
			s.d.Stops = &job.Stops{Next: func(o job.Object, _ []kueue.PodSet, _ job.StopReason) (job.Step, job.Object) {
				j := o.(*batchv1.Job).DeepCopy()
				switch {
				case j.Status.Active > 0:
					return job.Wait, nil
				case j.Spec.Template.Spec.NodeSelector["pool"] == "":
					return job.Stopped, nil
				}
				delete(j.Spec.Template.Spec.NodeSelector, "pool")
				return job.Change, j
			}}
			s.d.Remote.Quiet = nil
		}
		s.running()
		s.o.Workloads[0].Status.ClusterName = "w1"
		j := s.job.DeepCopy()
		j.Spec.Suspend, j.Spec.ManagedBy = new(true), new(kueue.MultiKueueControllerName)
		j.Annotations[job.UserStopAnnotation] = "true"
		j.Status = batchv1.JobStatus{Active: 1, StartTime: new(at(50))}
		s.set(j)
		s.runUntilStable(t)
		if w := s.o.Workloads[0]; lifecycle.IsReserved(w) || !lifecycle.IsOnHold(w) || w.Status.ClusterName != "" {
			t.Errorf("%s: want it on hold: %+v", name, w.Status)
		}
		j = s.job.DeepCopy()
		j.Status = batchv1.JobStatus{} // its copy is gone
		s.set(j)
		s.runUntilStable(t)
		if got := s.job.Spec.Template.Spec.NodeSelector; len(got) != 1 || got["zone"] != "a" {
			t.Errorf("%s: the template is not what its user wrote: %v", name, got)
		}
	}
}
