package decide_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/leaderworkerset"
	podkind "github.com/berth-project/berth/internal/job/kind/pod"
	"github.com/berth-project/berth/internal/job/kind/statefulset"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestDecideCorners: edge cases of the steps that other rules depend on.
func TestDecideCorners(t *testing.T) {
	stopping := func(s *scene) {
		s.job.Spec.Suspend = new(true)
		s.job.Annotations[kueue.JobStoppingAnnotation] = "true"
	}
	runDecisions(t, map[string]decision{
		"1: a kind may leave a job alone": {func(s *scene) { s.d.States = &job.States{Skip: yes, OnHold: no, Halt: no} }, "nothing"},
		"2: orphans are not finished if nobody wants that": {
			func(s *scene) { s.workload(); s.o.Job = nil; s.cfg.FinishOrphans = false }, "update workload: queue lq, finalizers 0, count 4",
		},
		"3: gave up its queue and runs, without quota": {
			func(s *scene) { s.workload(); s.job.Spec.Suspend = new(false); s.o.Verdict.Mode = job.Ignored }, "nothing",
		},
		"3: gave up its queue, and its workload is over": {
			func(s *scene) {
				s.cfg.Lifecycle.Finish(s.workload(), kueue.ReasonSucceeded, "", at(1))
				s.o.Verdict.Mode = job.Ignored
			}, "update workload: queue lq, finalizers 0, count 4",
		},
		"3: gave up its queue, and has quota": {
			func(s *scene) { s.admitted(); s.o.Verdict.Mode = job.Ignored }, "status: QuotaReserved=False/OnHold Admitted=False/NoReservation",
		},
		"3: gave up its queue, and its last pods end": {
			func(s *scene) { s.admitted(); s.job.Status.Active, s.o.Verdict.Mode = 1, job.Ignored }, "nothing",
		},
		"3: gave up its queue, and its pods run on a worker cluster": {
			func(s *scene) {
				s.admitted().Status.ClusterName = "w1"
				s.job.Spec.ManagedBy, s.job.Status.Active, s.o.Verdict.Mode = new(kueue.MultiKueueControllerName), 1, job.Ignored
			},
			"status: QuotaReserved=False/OnHold Admitted=False/NoReservation",
		},
		"3: gave up its queue, runs, and has to make room": {
			func(s *scene) { s.evict(s.running()); s.o.Verdict.Mode = job.Ignored }, "job: suspend true, stopping \"true\", selector map[pool:h100 zone:a] +Stopped",
		},
		"3: gave up its queue, and ran to its end": {
			func(s *scene) { s.running(); s.complete(); s.o.Verdict.Mode = job.Ignored }, "status: Finished=True/Succeeded +FinishedWorkload",
		},
		"3: gave up its queue, was named before": {
			func(s *scene) {
				s.admitted().OwnerReferences[0].UID = "uid-0"
				s.o.Verdict.Mode = job.Ignored
			}, "status: Finished=True/OwnerNotFound",
		},
		"3: gave up its queue and runs, and its workload is deleted": {
			func(s *scene) {
				s.workload().DeletionTimestamp = new(at(50))
				s.job.Spec.Suspend, s.o.Verdict.Mode = new(false), job.Ignored
			}, "update workload: queue lq, finalizers 0, count 4",
		},
		"3: owners are broken, and it has to make room": {
			func(s *scene) { s.evict(s.running()); s.o.Verdict = job.Verdict{Err: fmt.Errorf("broken")} },
			"job: suspend true, stopping \"true\", selector map[pool:h100 zone:a] +Stopped",
		},
		"3: owners without end, and it has ended": {
			func(s *scene) {
				s.running()
				s.complete()
				s.o.Verdict = job.Verdict{Err: fmt.Errorf("deep"), TooDeep: true}
			}, "status: Finished=True/Succeeded +FinishedWorkload",
		},
		"3: left alone by now, and has to make room": {
			func(s *scene) { s.evict(s.running()); s.d.States = &job.States{Skip: yes, OnHold: no, Halt: no} },
			"job: suspend true, stopping \"true\", selector map[pool:h100 zone:a] +Stopped",
		},
		"3: left alone by now, and waits": {
			func(s *scene) {
				s.workload()
				s.d.States = &job.States{Skip: yes, OnHold: no, Halt: func(job.Object) bool { return false }}
			},
			"update workload: queue , finalizers 1, count 4",
		},
		"4: a child with quota of its own": {
			func(s *scene) { s.admitted(); s.child(true, &kueue.Workload{}) }, "status: QuotaReserved=False/OnHold Admitted=False/NoReservation",
		},
		"4: a child with a place in the line of its own": {
			func(s *scene) { s.workload(); s.child(true, &kueue.Workload{}) }, "update workload: queue , finalizers 1, count 4",
		},
		"4: a child that runs by quota of its own": {
			func(s *scene) { s.running(); s.child(false, &kueue.Workload{}) }, "job: suspend true, stopping \"\", selector map[pool:h100 zone:a] +Suspended",
		},
		"4: a child that ran by quota of its own": {
			func(s *scene) { s.running(); s.complete(); s.child(false, admitted(0)) }, "status: Finished=True/Succeeded +FinishedWorkload",
		},
		"4: a child that is being stopped": {func(s *scene) { s.child(false); stopping(s) }, "nothing"},
		"4: a child of an elastic one waits for the eviction": {
			func(s *scene) {
				s.child(false, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"}}})
			}, "nothing",
		},
		"5: pod sets that cannot be made": {
			func(s *scene) { s.undescribed() }, "stall: no template +ErrWorkloadCompose",
		},
		"5: pod sets that cannot be made, and it refers to another object": {
			func(s *scene) {
				s.undescribed()
				s.d.Refers = func(job.Object) []job.Reference { return []job.Reference{{Name: "runtime"}} }
			}, "fail: no template +ErrWorkloadCompose",
		},
		"5: pod sets that cannot be made, and it refers to no other object": {
			func(s *scene) { s.undescribed(); s.d.Refers = func(job.Object) []job.Reference { return nil } }, "stall: no template +ErrWorkloadCompose",
		},
		"5: pod sets that cannot be made, and it runs": {
			func(s *scene) { s.undescribed(); s.job.Spec.Suspend = new(false) }, "job: suspend true, stopping \"\", selector map[zone:a] +Stopped",
		},
		"5: pod sets that cannot be made, and it waits": {func(s *scene) { s.workload(); s.undescribed() }, "stall: no template +ErrWorkloadCompose"},
		"5: pod sets that cannot be made any more, and it runs": {
			func(s *scene) { s.running(); s.undescribed() }, "stall: no template +ErrWorkloadCompose",
		},
		"5: pod sets that cannot be made any more, and it has to make room": {
			func(s *scene) { s.evict(s.running()); s.undescribed() }, "job: suspend true, stopping \"true\", selector map[pool:h100 zone:a] +Stopped",
		},
		"5: pod sets that cannot be made any more, and it has ended": {
			func(s *scene) { s.running(); s.complete(); s.undescribed() }, "status: Finished=True/Succeeded +FinishedWorkload",
		},
		"5: pod sets that cannot be made any more, and its workload has ended": {
			func(s *scene) {
				w := s.running()
				s.complete()
				s.cfg.Lifecycle.Finish(w, kueue.ReasonSucceeded, "", at(30))
				w.Finalizers = nil
				s.undescribed()
			}, "nothing",
		},
		"12: without its class, and it has to make room": {
			func(s *scene) { s.classed(); s.evict(s.running()); s.job.Labels[kueue.PriorityClassLabel] = "none" },
			"job: suspend true, stopping \"true\", selector map[pool:h100 zone:a] +Stopped",
		},
		"12: without its class, and it runs": {
			func(s *scene) { s.classed(); s.running(); s.job.Labels[kueue.PriorityClassLabel] = "none" },
			`fail: WorkloadPriorityClass "none" does not exist: create it or name another one +WorkloadPriorityClassNotFound`,
		},
		"5: an edited image": {
			func(s *scene) { s.workload(); s.job.Spec.Template.Spec.Containers[0].Image = "y" }, "update workload: queue lq, finalizers 1, count 4 +UpdatedWorkload",
		},
		"5: pod sets that cannot be made any more, and only the larger slice has to make room": {
			func(s *scene) {
				s.cfg.ElasticJobs = true
				s.job.Annotations[kueue.ElasticJobAnnotation] = "true"
				s.running()
				s.job.Spec.Parallelism = new(int32(6))
				next := s.decide().Workload
				next.UID, next.CreationTimestamp = "w-next", at(60)
				s.cfg.Lifecycle.Reserve(next, &kueue.Admission{}, []kueue.AdmissionCheckReference{"check"}, at(61))
				s.evict(next)
				s.o.Workloads = append(s.o.Workloads, next)
				s.undescribed()
			}, "status: QuotaReserved=False/PendingEvaluation Requeued=True/Preempted",
		},
		"5: unreadable, with a workload that only names it": {
			func(s *scene) { w := s.evictedAndUnreadable(); w.OwnerReferences[0].Controller = nil }, "stall: dim +ErrJobExpression",
		},
		"5: unreadable, with the workload of an earlier job": {
			func(s *scene) { w := s.evictedAndUnreadable(); w.OwnerReferences[0].UID = "uid-0" }, "status: Finished=True/OwnerNotFound",
		},
		"5: unreadable, has made room": {
			func(s *scene) {
				s.cfg.Lifecycle.Release(s.evictedAndUnreadable(), false, at(30))
				s.job.Labels[kueue.QueueNameLabel] = "other"
			}, "stall: dim +ErrJobExpression",
		},
		"5: unreadable, has to make room": {func(s *scene) { s.evictedAndUnreadable() }, "status: QuotaReserved=False/PendingEvaluation Admitted=False/NoReservation Requeued=True/Preempted"},
		"5: of two slices the one with quota has its class first": {
			func(s *scene) {
				s.cfg.ElasticJobs = true
				s.job.Annotations[kueue.ElasticJobAnnotation], s.job.Labels[kueue.PriorityClassLabel] = "true", "gold"
				s.running()
				s.job.Spec.Parallelism = new(int32(6))
				next := s.decide().Workload
				next.UID, next.CreationTimestamp = "w-next", at(60)
				s.o.Workloads = append(s.o.Workloads, next)
				s.o.Classes.Workload["silver"] = &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "silver"}, Value: 5}
				s.job.Labels[kueue.PriorityClassLabel] = "silver"
			}, "update workload: queue lq, finalizers 1, count 4 +UpdatedWorkload",
		},
		"7: telling that it failed is not done twice": {
			func(s *scene) { s.cfg.Lifecycle.Finish(s.running(), kueue.ReasonFailed, "", at(50)) }, "update workload: queue lq, finalizers 0, count 4",
		},
		"8: a finished job is not stopped for its workload": {
			func(s *scene) {
				w := s.running()
				w.DeletionTimestamp = new(at(50))
				finishJob(s.job, batchv1.JobComplete)
			}, "update workload: queue lq, finalizers 0, count 4",
		},
		"9: a job that asks not to run": {
			func(s *scene) { s.admitted(); s.d.States = &job.States{Skip: no, OnHold: yes, Halt: no} },
			"status: QuotaReserved=False/OnHold Admitted=False/NoReservation",
		},
		"9: it has no quota anyway": {func(s *scene) { s.workload(); s.d.States = &job.States{Skip: no, OnHold: yes, Halt: no} }, "nothing"},
		"10: a job that its user stopped is over": {
			func(s *scene) {
				s.running()
				s.cfg.HonourUserSuspend = true
				s.job.Annotations[job.UserStopAnnotation] = "true"
				finishJob(s.job, batchv1.JobFailed)
			}, "status: Finished=True/Failed +FinishedWorkload",
		},
		"12: without quota it may shrink": {
			func(s *scene) {
				w := s.workload()
				w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 3}}
				s.job.Status.Succeeded = 6
			}, "reclaimable [{main 2}]",
		},
		"12: never more than there are": {
			func(s *scene) {
				w := s.running()
				w.Spec.PodSets[0].Count, w.Spec.PodSets[0].MinCount = 1, new(int32(1))
				w.Status.Admission.PodSetAssignments[0].Count = new(int32(1))
				s.job.Spec.Parallelism, s.job.Annotations[kueue.JobMinParallelismAnnotation] = new(int32(1)), "1"
				s.d.Reclaimable = func(job.Object, *job.Setting) []kueue.ReclaimablePod {
					return []kueue.ReclaimablePod{{Name: "main", Count: 9}}
				}
			}, "reclaimable [{main 1}]",
		},
		"14: deactivated by Berth, active again": {
			func(s *scene) { s.deactivated(); s.o.Workloads[0].Spec.Active = nil; s.o.Now = at(9999) }, "nothing",
		},
		"15a: what a kind cannot do is permanent": {
			func(s *scene) {
				s.admitted()
				s.d.Start = func(job.Object, []job.PodSetInfo, *job.Setting) error { return fmt.Errorf("no") }
			}, "status: Finished=True/FailedToStart",
		},
		"15b: a check that is through says nothing": {
			func(s *scene) {
				w := s.workload()
				w.Status.AdmissionChecks = []kueue.AdmissionCheckState{
					{Name: "a", State: kueue.CheckStateReady, Message: "nodes are there"}, {Name: "b", State: kueue.CheckStatePending},
				}
				s.admit(w)
			}, "nothing",
		},
	})
}

// undescribed makes the pod sets of the job impossible.
func (s *scene) undescribed() {
	s.d.PodSets = func(job.Object, *job.Setting) ([]kueue.PodSet, error) { return nil, fmt.Errorf("no template") }
}

// classed gives the job a priority class.
func (s *scene) classed() { s.job.Labels[kueue.PriorityClassLabel] = "gold" }

// complete ends the Job.
func (s *scene) complete() {
	s.job.Status.Conditions = append(s.job.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue})
}

// evictedAndUnreadable has a waiting Job whose expressions fail and whose quota is to be released.
func (s *scene) evictedAndUnreadable() *kueue.Workload {
	w := s.admitted()
	s.evict(w)
	s.d.Declared = &job.Declared{Unreadable: func(job.Object, *job.Setting) error { return fmt.Errorf("dim") }}
	return w
}

// TestSinglePod: an evicted pod that had started is deleted, and not queued again, unless the gate is off. One that had not is not deleted, and
// waits in its queue again. And an ended pod is released in an unmanaged namespace.
func TestSinglePod(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "u", Finalizers: []string{kueue.ManagedFinalizer},
			Labels: map[string]string{kueue.QueueNameLabel: "lq", kueue.ManagedLabel: "true"},
		},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}}, Containers: []corev1.Container{{Name: "c", Image: "x"}},
		},
	}
	deleted := pod.DeepCopy()
	deleted.DeletionTimestamp = new(at(50))
	for _, tc := range []struct {
		pod             *corev1.Pod
		requeues, again bool
	}{{deleted, false, false}, {deleted, true, true}, {pod, false, true}} {
		s := &scene{d: podkind.Descriptor(), cfg: &job.Config{FinishOrphans: true}, o: &job.Observed{
			Job: pod, Verdict: job.Verdict{Mode: job.Managed}, Now: at(100),
		}}
		s.d.Once.Requeues = tc.requeues
		again := tc.again
		w := s.workload()
		s.admit(w)
		s.evict(w)
		s.o.Job = tc.pod
		a := s.decide()
		if a.Verb != job.WriteStatus || lifecycle.IsReserved(a.Workload) {
			t.Fatalf("got %s", describeAction(a))
		}
		if c := lifecycle.Condition(a.Workload, kueue.WorkloadRequeued); (c.Status == metav1.ConditionTrue) != again {
			t.Errorf("assigned again %v: %s", again, c.Status)
		}
	}
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	running := pod.DeepCopy()
	running.Spec.SchedulingGates = nil
	for _, o := range []*corev1.Pod{pod, ended, running} {
		s := &scene{d: podkind.Descriptor(), cfg: &job.Config{}, o: &job.Observed{Job: o, Verdict: job.Verdict{Mode: job.Unmanaged}, Now: at(100)}}
		a := s.decide()
		if (a.Verb == job.PatchJob) != (o != running) {
			t.Errorf("phase %q: verb %d", o.Status.Phase, a.Verb)
		}
		if o == pod && job.PodIsGated(a.Job.(*corev1.Pod)) {
			t.Error("a pod that we gated is not given back")
		}
	}
}

// TestSetsCorners is the same for kinds with groups: a world, and what is written in it.
func TestSetsCorners(t *testing.T) {
	parent := map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"}
	hold := func(s *served) *kueue.Workload {
		s.runUntilStable()
		return s.o.Workloads[0]
	}
	set := func(s *served) *appsv1.StatefulSet { return s.o.Job.(*appsv1.StatefulSet) }
	member := func(s *served) *corev1.Pod {
		s.pod("web-0", "web", map[string]string{"controller-revision-hash": "r1"}, map[string]string{kueue.PodSuspendingParentAnnotation: parent[kueue.PodSuspendingParentAnnotation]})
		return s.o.Pods[len(s.o.Pods)-1]
	}
	open := func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }
	for name, tc := range map[string]struct {
		change func(s *served)
		want   []string
	}{
		"it is being deleted": {func(s *served) { hold(s); set(s).DeletionTimestamp = new(at(1)) }, []string{"status W: OwnerNotFound", "update W in lq main:2 let go"}},
		"nobody knows whose it is": {func(s *served) {
			s.o.Verdict = job.Verdict{Err: fmt.Errorf("broken")}
		}, []string{"waits: broken"}},
		"its namespace is given up": {func(s *served) { hold(s); s.o.Verdict.Mode = job.Unmanaged }, []string{"status W: OutOfSync", "update W in lq main:2 let go"}},
		"the workload of an earlier one of its name": {func(s *served) {
			w := hold(s)
			w.Name, w.OwnerReferences[0].UID = "old", "uid-0"
		}, []string{"status old: OwnerNotFound", "update old in lq main:2 let go", "create W in lq main:2"}},
		"a workload that only names it": {func(s *served) {
			w := hold(s)
			w.Name, w.OwnerReferences[0].UID = "old", "uid-0"
			delete(w.Annotations, kueue.JobOwnerGVKAnnotation)
		}, []string{"create W in lq main:2"}},
		"a surplus workload on its way out": {func(s *served) {
			w := hold(s)
			w.Name, w.Finalizers, w.DeletionTimestamp = "old", nil, new(at(1))
		}, []string{"create W in lq main:2"}},
		"its workload is deleted, with a pod": {func(s *served) {
			hold(s)
			member(s)
			s.runUntilStable()
			s.o.Workloads[0].DeletionTimestamp = new(at(1))
			member(s).Name = "web-1"
		}, nil},
		"its workload is deleted, without one": {func(s *served) { hold(s).DeletionTimestamp = new(at(1)) }, []string{"update W in lq main:2 let go", "create W in lq main:2"}},
		"its workload ended when it left management": {func(s *served) {
			s.cfg.Lifecycle.Finish(hold(s), kueue.ReasonOutOfSync, "The namespace is no longer managed", at(1))
		}, []string{"update W in lq main:2 let go", "delete W", "create W in lq main:2"}},
		"its workload is over": {func(s *served) {
			s.cfg.Lifecycle.Finish(hold(s), kueue.ReasonSucceeded, "", at(1))
			set(s).Spec.Replicas = new(int32(0))
		}, nil},
		"evicted before it has pods": {func(s *served) {
			w := hold(s)
			s.cfg.Lifecycle.Reserve(w, &kueue.Admission{ClusterQueue: "cq"}, nil, at(1))
			s.cfg.Lifecycle.Preempt(w, kueue.ReasonInClusterQueue, "", at(2))
		}, []string{"status W: PendingEvaluation"}},
		"evicted with a pod": {func(s *served) {
			w := hold(s)
			member(s)
			s.runUntilStable()
			s.cfg.Lifecycle.Reserve(w, &kueue.Admission{ClusterQueue: "cq"}, nil, at(1))
			s.cfg.Lifecycle.Preempt(w, kueue.ReasonInClusterQueue, "", at(2))
		}, nil},
		"on a worker": {func(s *served) {
			set(s).Labels[kueue.MultiKueueOriginLabel] = "m"
			set(s).Labels[kueue.PrebuiltWorkloadLabel] = "theirs"
			s.o.Workloads = []*kueue.Workload{{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: kueue.WorkloadSpec{QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 2}}}}}
		}, []string{"update theirs in lq main:2 let go"}},
		"inactive, scaled to 0": {func(s *served) { hold(s).Spec.Active = new(false); set(s).Spec.Replicas = new(int32(0)) }, nil},
		"inactive with quota, scaled to 0": {func(s *served) {
			w := hold(s)
			s.cfg.Lifecycle.Reserve(w, &kueue.Admission{ClusterQueue: "cq"}, nil, at(1))
			w.Spec.Active, set(s).Spec.Replicas = new(false), new(int32(0))
		}, []string{"status W: OnHold"}},
		"another template while on hold": {func(s *served) {
			s.cfg.Lifecycle.Pending(hold(s), kueue.ReasonOnHold, "", at(1))
			set(s).Spec.Template.Spec.Containers[0].Image = "y"
		}, []string{"update W in lq main:2", "status W: PendingEvaluation"}},
		"another queue while on hold": {func(s *served) {
			s.cfg.Lifecycle.Pending(hold(s), kueue.ReasonOnHold, "", at(1))
			set(s).Labels[kueue.QueueNameLabel] = "other"
		}, []string{"update W in other main:2", "status W: PendingEvaluation"}},
		"no such class while on hold": {func(s *served) {
			s.cfg.Lifecycle.Pending(hold(s), kueue.ReasonOnHold, "", at(1))
			set(s).Labels[kueue.PriorityClassLabel] = "none"
		}, []string{"status W: PendingEvaluation", `waits: WorkloadPriorityClass "none" does not exist: create it or name another one`}},
		"another template while it waits": {func(s *served) { hold(s); set(s).Spec.Template.Spec.Containers[0].Image = "y" }, nil},
		"resized with quota": {func(s *served) {
			s.cfg.Lifecycle.Reserve(hold(s), &kueue.Admission{ClusterQueue: "cq"}, nil, at(1))
			set(s).Spec.Replicas = new(int32(5))
		}, []string{"status W: OnHold", "update W in lq main:5", "status W: PendingEvaluation"}},
		"resized with quota, with a pod": {func(s *served) {
			s.cfg.Lifecycle.Reserve(hold(s), &kueue.Admission{ClusterQueue: "cq"}, nil, at(1))
			member(s)
			s.runUntilStable()
			set(s).Spec.Replicas = new(int32(5))
		}, nil},
		"resized with quota, with a pod of no owner": {func(s *served) {
			s.cfg.Lifecycle.Reserve(hold(s), &kueue.Admission{ClusterQueue: "cq"}, nil, at(1))
			s.o.Alive = map[string]bool{nameOfWeb: true}
			set(s).Spec.Replicas = new(int32(5))
		}, nil},
		"resized with quota on a worker": {func(s *served) {
			s.cfg.Lifecycle.Reserve(hold(s), &kueue.Admission{ClusterQueue: "cq"}, nil, at(1))
			s.o.Workloads[0].Labels[kueue.MultiKueueOriginLabel], set(s).Labels[kueue.MultiKueueOriginLabel] = "m", "m"
			set(s).Spec.Replicas = new(int32(5))
		}, nil},
		"another template with quota, without a pod": {func(s *served) {
			s.cfg.Lifecycle.Reserve(hold(s), &kueue.Admission{ClusterQueue: "cq"}, nil, at(1))
			set(s).Spec.Template.Spec.Containers[0].Image = "y"
		}, nil},
		"a pod that is over": {func(s *served) { hold(s); member(s).Status.Phase = corev1.PodFailed }, nil},
		"a pod that goes":    {func(s *served) { hold(s); member(s).DeletionTimestamp = new(at(1)) }, nil},
		"the queue of a pod that runs": {func(s *served) {
			hold(s)
			member(s)
			s.runUntilStable()
			open(s.o.Pods[0])
			set(s).Labels[kueue.QueueNameLabel] = "other"
		}, []string{"update W in other main:2"}},
		"an old pod that runs": {func(s *served) {
			set(s).Status.CurrentRevision, set(s).Status.UpdateRevision = "r1", "r2"
			s.o.Makers["web"] = set(s)
			hold(s)
			open(member(s))
			s.runUntilStable()
		}, nil},
		"an old pod of an earlier one": {func(s *served) {
			set(s).Status.CurrentRevision, set(s).Status.UpdateRevision = "r1", "r2"
			s.o.Makers["web"] = set(s).DeepCopy()
			s.o.Makers["web"].SetUID("uid-0")
			hold(s)
			member(s)
		}, []string{"stamp web-0"}},
		"no roll-out yet": {func(s *served) {
			set(s).Status.UpdateRevision = "r2"
			s.o.Makers["web"] = set(s)
			hold(s)
			delete(member(s).Labels, "controller-revision-hash")
		}, []string{"stamp web-0"}},
		"a pod that is left behind": {func(s *served) { hold(s); member(s); s.o.Workloads, s.o.Job = nil, nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServed(statefulset.Descriptor(), newStatefulSet(2))
			s.cfg.FinishOrphans = true
			tc.change(s)
			var got []string
			for _, line := range s.runUntilStable() {
				got = append(got, strings.ReplaceAll(line, nameOfWeb, "W"))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestSetsMarks is what a Workload and a pod of a group carry.
func TestSetsMarks(t *testing.T) {
	set := newStatefulSet(2)
	set.Labels["team"], set.Labels[kueue.MaxExecTimeSecondsLabel], set.Labels[kueue.PriorityClassLabel] = "blue", "60", "gold"
	s := newServed(statefulset.Descriptor(), set)
	s.cfg.LabelKeysToCopy, s.cfg.AnnotationIdentifiers = []string{"team", "absent"}, false
	s.runUntilStable()
	w := s.o.Workloads[0]
	if _, absent := w.Labels["absent"]; w.Labels["team"] != "blue" || absent || w.Spec.MaximumExecutionTimeSeconds != nil {
		t.Errorf("labels %v, maximum time %v: what serves has no end", w.Labels, w.Spec.MaximumExecutionTimeSeconds)
	}
	for _, name := range []string{"web-0", "web-1"} {
		s.pod(name, "web", nil, map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"})
	}
	s.o.Pods[1].Spec.SchedulingGates = nil
	s.runUntilStable()
	for i, class := range []string{"gold", ""} {
		labels := s.o.Pods[i].Labels
		if labels[kueue.PriorityClassLabel] != class || labels[kueue.PodGroupNameLabel] != nameOfWeb || labels[kueue.PrebuiltWorkloadLabel] != nameOfWeb {
			t.Errorf("labels of %s: %v", s.o.Pods[i].Name, labels)
		}
	}

	long := newStatefulSet(1)
	long.Name = strings.Repeat("n", 60)
	s = newServed(statefulset.Descriptor(), long)
	s.cfg.AnnotationIdentifiers = false
	s.runUntilStable()
	s.pod("p", long.Name, nil, map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"})
	s.runUntilStable()
	if p := s.o.Pods[0]; p.Annotations[kueue.PodGroupNameLabel] == "" || p.Labels[kueue.PodGroupNameLabel] != "" {
		t.Errorf("a name that is too long for a label: labels %v, annotations %v", p.Labels, p.Annotations)
	}
}

// TestGroupsOnAWorker: the Workloads of a LeaderWorkerSet that came from a manager are named by the object there.
func TestGroupsOnAWorker(t *testing.T) {
	set := newLeaderWorkerSet(t)
	set.SetLabels(map[string]string{kueue.QueueNameLabel: "lq", kueue.MultiKueueOriginLabel: "m", kueue.PrebuiltWorkloadLabel: "not-this"})
	set.SetAnnotations(map[string]string{kueue.MultiKueueOriginUIDAnnotation: "uid-there"})
	s := newServed(leaderworkerset.Descriptor(), set)
	if log := s.runUntilStable(); len(log) > 0 {
		t.Errorf("a worker makes no Workload: %v", log)
	}
	name := s.cfg.WorkloadName(s.d.GVK, "llm-0", "uid-there")
	s.o.Workloads = []*kueue.Workload{{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.WorkloadSpec{QueueName: "lq", PodSets: []kueue.PodSet{{Name: "leader", Count: 1}, {Name: "worker", Count: 3}}}}}
	if diff := cmp.Diff([]string{"update " + name + " in lq leader:1 worker:3 let go"}, s.runUntilStable()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The Workload has what the custom labels of metrics are read from, and keeps what means something. spec: 70 §2.1.2.
func TestSeriesLabelsAreCopied(t *testing.T) {
	carries := func(t *testing.T, w *kueue.Workload) {
		t.Helper()
		if w == nil || w.Labels["team"] != "blue" || w.Annotations["example.com/project"] != "7" {
			t.Fatalf("workload %+v", w)
		}
		if _, absent := w.Labels["absent"]; absent || w.Labels[kueue.JobUIDLabel] == "mine" || w.Annotations["example.com/other"] != "" {
			t.Errorf("labels %v, annotations %v", w.Labels, w.Annotations)
		}
	}
	configure := func(cfg *job.Config, o metav1.Object) {
		cfg.SeriesLabels, cfg.SeriesAnnotations = []string{"team", "absent", kueue.JobUIDLabel}, []string{"example.com/project"}
		o.SetLabels(maps.Clone(o.GetLabels()))
		o.GetLabels()["team"], o.GetLabels()[kueue.JobUIDLabel] = "blue", "mine"
		o.SetAnnotations(map[string]string{"example.com/project": "7", "example.com/other": "8"})
	}
	s := newScene()
	configure(s.cfg, s.job)
	carries(t, s.decide().Workload)

	set := newStatefulSet(2)
	served := newServed(statefulset.Descriptor(), set)
	configure(served.cfg, set)
	served.runUntilStable()
	carries(t, served.o.Workloads[0])
}

func yes(job.Object) bool { return true }

func no(job.Object) bool { return false }
