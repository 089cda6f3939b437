package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	batch "github.com/berth-project/berth/internal/job/kind/job"
	"github.com/berth-project/berth/internal/job/plan/decide"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

func gvk(kind string) schema.GroupVersionKind {
	switch kind {
	case "Job", "CronJob":
		return schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: kind}
	case "JobSet":
		return schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: kind}
	case "AppWrapper":
		return schema.GroupVersionKind{Group: "workload.codeflare.dev", Version: "v1beta2", Kind: kind}
	case "PipelineRun":
		return schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: kind}
	default:
		return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}
	}
}

func tolerations(key string) []corev1.Toleration {
	return []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
}

func at(seconds int) metav1.Time {
	return metav1.NewTime(time.Unix(1_800_000_000, 0).Add(time.Duration(seconds) * time.Second))
}

// scene is a Job with its observation. Its Workload, if any, is the one that Next would create.
type scene struct {
	cfg *job.Config
	d   *job.Descriptor
	job *batchv1.Job
	o   *job.Observed
}

func newScene() *scene {
	s := &scene{d: batch.Descriptor(), cfg: &job.Config{
		AdmissionGatedBy: true, AnnotationIdentifiers: true, FinishOrphans: true, PartialAdmission: true, ReclaimablePods: true,
		Kinds: job.Kinds{gvk("Job"): true},
	}}
	s.job = &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: "train", Namespace: "ns", UID: "uid-1", Labels: map[string]string{kueue.QueueNameLabel: "lq"}, Annotations: map[string]string{},
		},
		Spec: batchv1.JobSpec{
			Suspend: new(true), Parallelism: new(int32(4)), Completions: new(int32(8)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"zone": "a"},
				Containers: []corev1.Container{{
					Name: "c", Image: "x", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B"}, {Name: "A", Value: "2"}},
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1000m")}},
				}},
			}},
		},
	}
	s.o = &job.Observed{
		Job: s.job, Verdict: job.Verdict{Mode: job.Managed}, Now: at(100),
		Flavors: job.Flavors{"gpu": {Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "h100"}, Tolerations: tolerations("gpu")}}},
		Classes: job.Classes{Workload: map[string]*kueue.WorkloadPriorityClass{"gold": {ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Value: 9}}},
	}
	return s
}

func (s *scene) decide() job.Action { return decide.Next(s.cfg, s.d, s.o) }

// workload gives the scene the Workload that Decide creates.
func (s *scene) workload() *kueue.Workload {
	a := s.decide()
	if a.Verb != job.CreateWorkload {
		panic(fmt.Sprintf("wanted a new workload, got %+v", a))
	}
	a.Workload.UID, a.Workload.CreationTimestamp = "w-uid", at(0)
	s.o.Workloads = append(s.o.Workloads, a.Workload)
	return a.Workload
}

// running makes the Job run with an admitted Workload.
func (s *scene) running() *kueue.Workload {
	w := s.workload()
	s.admit(w)
	a := s.decide()
	if a.Verb != job.PatchJob {
		panic(fmt.Sprintf("wanted a start, got %+v", a))
	}
	s.set(a.Job)
	return w
}

func (s *scene) admit(w *kueue.Workload) {
	admission := &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(w.Spec.PodSets[0].Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "gpu"},
	}}}
	s.cfg.Lifecycle.Reserve(w, admission, nil, at(10))
}

func (s *scene) evict(w *kueue.Workload) {
	s.cfg.Lifecycle.Preempt(w, kueue.ReasonInClusterQueue, "made room", at(20))
}

func (s *scene) set(o job.Object) {
	s.job = o.(*batchv1.Job)
	s.o.Job = o
}

// describeAction describes an action in one line.
func describeAction(a job.Action) string {
	var out string
	switch a.Verb {
	case job.Nothing:
		out = "nothing"
		if a.After > 0 {
			out += " for " + a.After.String()
		}
	case job.Fail:
		out = "fail: " + a.Err.Error()
	case job.Stall:
		out = "stall: " + a.Err.Error()
	case job.CreateWorkload:
		out = "create workload"
	case job.UpdateWorkload:
		out = fmt.Sprintf("update workload: queue %s, finalizers %d, count %d", a.Workload.Spec.QueueName, len(a.Workload.Finalizers), a.Workload.Spec.PodSets[0].Count)
	case job.DeleteWorkload:
		out = "delete workload"
	case job.WriteStatus:
		out = "status:"
		for _, c := range a.Workload.Status.Conditions {
			if c.LastTransitionTime.Equal(new(at(100))) {
				out += fmt.Sprintf(" %s=%s/%s", c.Type, c.Status, c.Reason)
			}
		}
	case job.WriteReclaimable:
		out = fmt.Sprintf("reclaimable %v", a.Workload.Status.ReclaimablePods)
	case job.WritePodsReady:
		out = "pods ready: " + lifecycle.Condition(a.Workload, kueue.WorkloadPodsReady).Reason
	case job.PatchJob:
		j := a.Job.(*batchv1.Job)
		out = fmt.Sprintf("job: suspend %v, stopping %q, selector %v", *j.Spec.Suspend, j.Annotations[kueue.JobStoppingAnnotation], j.Spec.Template.Spec.NodeSelector)
	case job.WriteReplacements:
		out = "replacements: " + lifecycle.Condition(a.Workload, kueue.WorkloadWaitingForReplacementPods).Reason
	case job.PatchJobStatus:
		out = "job status"
	case job.DeleteJob:
		out = "delete job"
	case job.PatchChildren, job.DeleteChildren:
		out = fmt.Sprintf("family %d", len(a.Children))
	}
	for _, e := range a.Events {
		out += " +" + e.Reason
	}
	return out
}

func finishJob(j *batchv1.Job, kind batchv1.JobConditionType) {
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Message: "m"})
}

const injected = "map[pool:h100 zone:a]"

// decision is a scene and the expected decision.
type decision struct {
	setup func(s *scene)
	want  string
}

func TestDecideWhose(t *testing.T) {
	runDecisions(t, map[string]decision{
		// Steps 0 and 2.
		"2: nothing to finalize": {func(s *scene) { s.o.Job = nil }, "nothing"},
		"2: the job is gone":     {func(s *scene) { s.workload(); s.o.Job = nil }, "status: Finished=True/OwnerNotFound"},
		"2: the job is being deleted": {
			func(s *scene) { s.workload(); s.job.DeletionTimestamp = new(at(50)) }, "status: Finished=True/OwnerNotFound",
		},
		"2: then the finalizer": {
			func(s *scene) {
				s.cfg.Lifecycle.Finish(s.workload(), kueue.ReasonOwnerNotFound, "", at(50))
				s.o.Job = nil
			},
			"update workload: queue lq, finalizers 0, count 4",
		},
		"2: a workload being deleted only loses the finalizer": {
			func(s *scene) { s.workload().DeletionTimestamp = new(at(50)); s.o.Job = nil }, "update workload: queue lq, finalizers 0, count 4",
		},
		"2: plain owners only lose the finalizer": {
			func(s *scene) { s.workload().OwnerReferences[0].Controller = nil; s.o.Job = nil }, "update workload: queue lq, finalizers 0, count 4",
		},
		// Step 3.
		"3: unmanaged": {func(s *scene) { s.o.Verdict.Mode = job.Unmanaged }, "nothing"},
		"3: unmanaged leaves a running job": {
			func(s *scene) { s.running(); s.o.Verdict.Mode = job.Unmanaged }, "status: Finished=True/OutOfSync +NamespaceUnmanaged",
		},
		"3: then the finalizer": {
			func(s *scene) {
				s.cfg.Lifecycle.Finish(s.running(), kueue.ReasonOutOfSync, "", at(50))
				s.o.Verdict.Mode = job.Unmanaged
			},
			"update workload: queue lq, finalizers 0, count 4",
		},
		"3: a workload that is not ours stays": {
			func(s *scene) { s.workload().Finalizers = nil; s.o.Verdict.Mode = job.Unmanaged }, "nothing",
		},
		"3: ignored":                       {func(s *scene) { s.o.Verdict.Mode = job.Ignored; s.job.Spec.Suspend = new(false) }, "nothing"},
		"3: gave up its queue":             {func(s *scene) { s.workload(); s.o.Verdict.Mode = job.Ignored }, "update workload: queue , finalizers 1, count 4"},
		"3: gave up its queue after start": {func(s *scene) { s.running(); s.o.Verdict.Mode = job.Ignored }, "nothing"},
		"3: owners are broken":             {func(s *scene) { s.o.Verdict = job.Verdict{Err: fmt.Errorf("broken")} }, "fail: broken"},
		"3: owners without end": {
			func(s *scene) { s.o.Verdict = job.Verdict{Err: fmt.Errorf("deep"), TooDeep: true} }, "stall: deep +JobNestingTooDeep",
		},
		// Step 4.
		"4: child without a workload above": {func(s *scene) { s.child(false) }, "job: suspend true, stopping \"\", selector map[zone:a] +Suspended"},
		"4: child of a waiting one":         {func(s *scene) { s.child(false, &kueue.Workload{}) }, "job: suspend true, stopping \"\", selector map[zone:a] +Suspended"},
		"4: child of an admitted one":       {func(s *scene) { s.child(false, admitted(0)) }, "nothing"},
		"4: the newest counts": {func(s *scene) {
			s.child(false, admitted(0), &kueue.Workload{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(1)}})
		}, "job: suspend true, stopping \"\", selector map[zone:a] +Suspended"},
		"4: finished ones do not": {
			func(s *scene) {
				done := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(1)}}
				lifecycle.Machine{}.Finish(done, "X", "", at(2))
				s.child(false, admitted(0), done)
			},
			"nothing",
		},
		"4: a suspended child stays": {func(s *scene) { s.child(true, admitted(0)) }, "nothing"},
		"4: an elastic child waits for the eviction": {
			func(s *scene) {
				s.child(false, &kueue.Workload{})
				s.job.Annotations[kueue.ElasticJobAnnotation] = "true"
			},
			"nothing",
		},
		"4: a finished child stays": {func(s *scene) { s.child(false); finishJob(s.job, batchv1.JobComplete) }, "nothing"},
		// Step 5: 4.4.2.
		"5: an edited waiting job updates its workload": {
			func(s *scene) { s.workload(); s.job.Spec.Parallelism = new(int32(2)) }, "update workload: queue lq, finalizers 1, count 2 +UpdatedWorkload",
		},
		"5: an edited selector does so too": {
			func(s *scene) { s.workload(); s.job.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "b"} },
			"update workload: queue lq, finalizers 1, count 4 +UpdatedWorkload",
		},
		"5: an edited job with quota gets another workload": {
			func(s *scene) { s.admit(s.workload()); s.job.Spec.Parallelism = new(int32(2)) }, "update workload: queue lq, finalizers 0, count 4",
		},
		"5: which is deleted next": {
			func(s *scene) {
				w := s.workload()
				s.admit(w)
				w.Finalizers = nil
				s.job.Spec.Parallelism = new(int32(2))
			},
			"delete workload +DeletedWorkload",
		},
		"5: and waited for": {
			func(s *scene) {
				w := s.workload()
				s.admit(w)
				w.Finalizers, w.DeletionTimestamp = nil, new(at(50))
				s.job.Spec.Parallelism = new(int32(2))
			},
			"nothing",
		},
		"5: a surplus workload goes": {
			func(s *scene) {
				surplus := s.workload().DeepCopy()
				surplus.Name, surplus.CreationTimestamp = "surplus", at(1)
				s.o.Workloads = append(s.o.Workloads, surplus)
			},
			"update workload: queue lq, finalizers 0, count 4",
		},
		"5: a running job without a workload stops": {
			func(s *scene) { s.job.Spec.Suspend = new(false) }, "job: suspend true, stopping \"\", selector map[zone:a] +Stopped",
		},
		"5: a running job that changed stops and is restored": {
			func(s *scene) { s.running(); s.job.Spec.Parallelism = new(int32(2)) }, "job: suspend true, stopping \"true\", selector " + injected + " +Stopped",
		},
		"5: the workload of a predecessor ends": {
			func(s *scene) { s.workload(); s.job.UID = "uid-2" }, "status: Finished=True/OwnerNotFound",
		},
		"5: a workload that only names the job as an owner is none of ours": {
			func(s *scene) { s.workload().OwnerReferences[0].Controller = nil }, "create workload +CreatedWorkload",
		},
	})
}

func TestDecideEndAndBeginning(t *testing.T) {
	runDecisions(t, map[string]decision{
		// Step 7.
		"7: a finished workload is let go": {
			func(s *scene) { s.cfg.Lifecycle.Finish(s.workload(), kueue.ReasonSucceeded, "", at(50)) }, "update workload: queue lq, finalizers 0, count 4",
		},
		"7: telling if nobody has": {
			func(s *scene) { s.cfg.Lifecycle.Finish(s.workload(), kueue.ReasonFailedToStart, "", at(50)) },
			"update workload: queue lq, finalizers 0, count 4 +FinishedWorkload",
		},
		"7: once": {
			func(s *scene) {
				w := s.workload()
				s.cfg.Lifecycle.Finish(w, kueue.ReasonFailedToStart, "", at(50))
				w.Finalizers = nil
			},
			"nothing",
		},
		// Step 8.
		"8: deleting the workload stops the job": {
			func(s *scene) { s.running().DeletionTimestamp = new(at(50)) }, "job: suspend true, stopping \"true\", selector " + injected + " +Stopped",
		},
		"8: then lets it go": {
			func(s *scene) { s.workload().DeletionTimestamp = new(at(50)) }, "update workload: queue lq, finalizers 0, count 4",
		},
		// Step 10.
		"10: succeeded":                    {func(s *scene) { s.running(); finishJob(s.job, batchv1.JobComplete) }, "status: Finished=True/Succeeded +FinishedWorkload"},
		"10: failed":                       {func(s *scene) { s.running(); finishJob(s.job, batchv1.JobFailed) }, "status: Finished=True/Failed +FinishedWorkload"},
		"10: finished without a workload":  {func(s *scene) { finishJob(s.job, batchv1.JobComplete) }, "nothing"},
		"10: finished while being evicted": {func(s *scene) { s.evict(s.running()); finishJob(s.job, batchv1.JobComplete) }, "status: Finished=True/Succeeded +FinishedWorkload"},
		"10: and changed after it finished": {func(s *scene) {
			s.cfg.Lifecycle.Finish(s.running(), kueue.ReasonSucceeded, "", at(50))
			finishJob(s.job, batchv1.JobComplete)
			s.job.Spec.Parallelism = new(int32(1))
		}, "update workload: queue lq, finalizers 0, count 4"},
		// Step 11.
		"11: create":                   {func(*scene) {}, "create workload +CreatedWorkload"},
		"11: not while pods run":       {func(s *scene) { s.job.Status.Active = 1 }, "nothing"},
		"11: a class that exists":      {func(s *scene) { s.job.Labels[kueue.PriorityClassLabel] = "gold" }, "create workload +CreatedWorkload"},
		"11: a class that is missing":  {func(s *scene) { s.job.Labels[kueue.PriorityClassLabel] = "lead" }, "fail: WorkloadPriorityClass \"lead\" does not exist: create it or name another one +WorkloadPriorityClassNotFound"},
		"11: a missing class of pods":  {func(s *scene) { s.job.Spec.Template.Spec.PriorityClassName = "lead" }, "fail: PriorityClass \"lead\" does not exist: create it or name another one"},
		"11: a prebuilt one, missing":  {func(s *scene) { s.job.Labels[kueue.PrebuiltWorkloadLabel] = "mine" }, "fail: workload ns/mine, which the job names, does not exist or belongs to another job: create it, or remove kueue.x-k8s.io/prebuilt-workload-name"},
		"11: stops for a prebuilt one": {func(s *scene) { s.job.Labels[kueue.PrebuiltWorkloadLabel] = "mine"; s.job.Spec.Suspend = new(false) }, "job: suspend true, stopping \"\", selector map[zone:a] +Stopped"},
		// Step 12.
		"12: reclaimable": {
			func(s *scene) { s.running(); s.job.Status.Succeeded = 6 }, "reclaimable [{main 2}]",
		},
		"12: it never shrinks": {
			func(s *scene) {
				w := s.running()
				w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 3}}
				s.job.Status.Succeeded = 6
			},
			"nothing",
		},
		"12: reclaimable, of a class that is missing": {
			func(s *scene) {
				s.classed()
				s.running()
				s.job.Labels[kueue.PriorityClassLabel], s.job.Status.Succeeded = "lead", 6
			},
			"reclaimable [{main 2}]",
		},
		"12: reclaimable is off": {func(s *scene) { s.running(); s.job.Status.Succeeded = 6; s.cfg.ReclaimablePods = false }, "nothing"},
		// Step 13.
		"13: not ready":             {func(s *scene) { s.running(); s.cfg.WaitForPodsReady = true }, "pods ready: WaitForStart"},
		"13: ready":                 {func(s *scene) { s.running(); s.cfg.WaitForPodsReady = true; s.job.Status.Ready = new(int32(4)) }, "pods ready: Started"},
		"13: no word before quota":  {func(s *scene) { s.workload(); s.cfg.WaitForPodsReady = true }, "nothing"},
		"13: nobody waits for them": {func(s *scene) { s.running(); s.job.Status.Ready = new(int32(4)) }, "nothing"},
	})
}

func TestDecideLife(t *testing.T) {
	runDecisions(t, map[string]decision{
		// Step 14.
		"14: an eviction stops the job": {func(s *scene) { s.evict(s.running()) }, "job: suspend true, stopping \"true\", selector " + injected + " +Stopped"},
		"14: waits for its pods": {
			func(s *scene) {
				s.evict(s.running())
				s.set(s.decide().Job)
				s.job.Status.Active, s.job.Status.StartTime = 2, new(at(30))
			},
			"nothing",
		},
		"14: forgets the start": {
			func(s *scene) { s.evict(s.running()); s.set(s.decide().Job); s.job.Status.StartTime = new(at(30)) }, "job status",
		},
		"14: restores": {
			func(s *scene) { s.evict(s.running()); s.set(s.decide().Job) }, "job: suspend true, stopping \"\", selector map[zone:a]",
		},
		"14: releases": {
			func(s *scene) { s.evict(s.running()); s.set(s.decide().Job); s.set(s.decide().Job) },
			"status: QuotaReserved=False/PendingEvaluation Admitted=False/NoReservation Requeued=True/Preempted",
		},
		"14: not while pods run": {func(s *scene) { s.evict(s.admitted()); s.job.Status.Active = 1 }, "nothing"},
		"14: and is done": {
			func(s *scene) { w := s.admitted(); s.evict(w); s.cfg.Lifecycle.Release(w, false, at(30)) }, "nothing",
		},
		"14: deactivated by Berth, kept for now": {func(s *scene) { s.deactivated(); s.o.Now = at(619) }, "nothing for 1s"},
		"14: deactivated by Berth, deleted":      {func(s *scene) { s.deactivated(); s.o.Now = at(620) }, "delete job +Deleted"},
		"14: activated again, then deactivated by the user, kept": {
			func(s *scene) {
				s.deactivated()
				s.cfg.Lifecycle.Requeue(s.o.Workloads[0], kueue.ReasonReactivated, "", at(300))
				s.o.Now = at(9999)
			},
			"nothing",
		},
		"14: deactivated by the user, kept": {
			func(s *scene) {
				w := s.admitted()
				w.Spec.Active = new(false)
				s.cfg.Lifecycle.Deactivate(w, at(20))
				s.cfg.Lifecycle.Release(w, false, at(21))
				s.cfg.DeleteDeactivatedAfter, s.o.Now = new(time.Minute), at(9999)
			},
			"nothing",
		},
		"14: moves to another queue": {
			func(s *scene) {
				w := s.admitted()
				s.evict(w)
				s.cfg.Lifecycle.Release(w, false, at(30))
				s.job.Labels[kueue.QueueNameLabel] = "other"
			},
			"update workload: queue other, finalizers 1, count 4",
		},
		// Step 15.
		"15a: start": {func(s *scene) { s.admitted() }, "job: suspend false, stopping \"\", selector " + injected + " +Started"},
		"15a: a conflict is permanent": {
			func(s *scene) {
				s.job.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "a100"}
				s.admit(s.workload())
			},
			"status: Finished=True/FailedToStart",
		},
		"15a: a flavor that is gone is not": {func(s *scene) { s.admitted(); s.o.Flavors = nil }, "fail: flavor gpu of the admission does not exist: create it, or evict the workload"},
		"15a: too many pod sets": {
			func(s *scene) {
				w := s.admitted()
				w.Status.Admission.PodSetAssignments = append(w.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{Name: "extra"})
			},
			"status: Finished=True/FailedToStart",
		},
		"15b: says what a check waits for": {
			func(s *scene) {
				w := s.workload()
				w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "prov", State: kueue.CheckStatePending, Message: "nodes are coming"}}
				s.admit(w)
			},
			"nothing +UpdatedAdmissionCheck",
		},
		"15b: has nothing to say": {
			func(s *scene) {
				w := s.workload()
				w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "prov", State: kueue.CheckStatePending}}
				s.admit(w)
			},
			"nothing",
		},
		"15c: moves to another queue": {func(s *scene) { s.workload(); s.job.Labels[kueue.QueueNameLabel] = "other" }, "update workload: queue other, finalizers 1, count 4"},
		"15c: out of every queue":     {func(s *scene) { s.workload(); delete(s.job.Labels, kueue.QueueNameLabel) }, "update workload: queue , finalizers 1, count 4"},
		"15: waits":                   {func(s *scene) { s.workload() }, "nothing"},
		// Step 16.
		"16: runs":               {func(s *scene) { s.running() }, "nothing"},
		"16: started by hand":    {func(s *scene) { s.workload(); s.job.Spec.Suspend = new(false) }, "job: suspend true, stopping \"\", selector map[zone:a] +Stopped"},
		"16: lost its admission": {func(s *scene) { w := s.running(); s.cfg.Lifecycle.Pending(w, kueue.ReasonSuspended, "", at(50)) }, "job: suspend true, stopping \"true\", selector " + injected + " +Stopped"},
		"16: a stop that began goes on": {
			func(s *scene) {
				s.running()
				s.job.Spec.Suspend = new(true)
				s.job.Annotations[kueue.JobStoppingAnnotation] = "true"
			},
			"job: suspend true, stopping \"\", selector map[zone:a]",
		},
		// Synchronisation.
		"priority: a new label": {
			func(s *scene) { s.running(); s.job.Labels[kueue.PriorityClassLabel] = "gold" }, "nothing",
		},
		"priority: a new label while waiting": {
			func(s *scene) { s.workload(); s.job.Labels[kueue.PriorityClassLabel] = "gold" }, "update workload: queue lq, finalizers 1, count 4 +UpdatedWorkload",
		},
		"gates: one is opened": {
			func(s *scene) {
				s.job.Annotations[kueue.AdmissionGatedByAnnotation] = "a.io/x,a.io/y"
				s.workload()
				s.job.Annotations[kueue.AdmissionGatedByAnnotation] = "a.io/y"
			},
			"update workload: queue lq, finalizers 1, count 4 +UpdatedWorkload",
		},
		"gates: none is added": {func(s *scene) { s.workload(); s.job.Annotations[kueue.AdmissionGatedByAnnotation] = "a.io/x" }, "nothing"},
	})
}

func runDecisions(t *testing.T, tests map[string]decision) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			tc.setup(s)
			before := []any{s.job.DeepCopy()}
			for _, w := range s.o.Workloads {
				before = append(before, w.DeepCopy())
			}
			if got := describeAction(s.decide()); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			after := []any{s.job}
			for _, w := range s.o.Workloads {
				after = append(after, w)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("Decide changed what it was given:\n%s", diff)
			}
		})
	}
}

// child makes the Job a child of a JobSet with the given Workloads.
func (s *scene) child(suspended bool, workloads ...*kueue.Workload) {
	s.job.Spec.Suspend = new(suspended)
	s.o.Verdict = job.Verdict{Mode: job.Follows, Ancestor: &job.Owner{GVK: gvk("JobSet"), Object: &metav1.ObjectMeta{Name: "set"}}}
	s.o.AncestorWorkloads = workloads
}

func admitted(created int) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(created)}}
	lifecycle.Machine{}.Reserve(w, &kueue.Admission{}, nil, at(created))
	return w
}

// admitted gives the waiting Job an admitted Workload.
func (s *scene) admitted() *kueue.Workload {
	w := s.workload()
	s.admit(w)
	return w
}

// deactivated has Berth deactivate the Workload at second 20, with a retention of ten minutes.
func (s *scene) deactivated() {
	w := s.admitted()
	s.cfg.DeleteDeactivatedAfter = new(10 * time.Minute)
	w.Spec.Active = new(false)
	s.cfg.Lifecycle.RequestDeactivation(w, kueue.ReasonRequeuingLimitExceeded, "", at(19))
	s.cfg.Lifecycle.Deactivate(w, at(20))
	s.cfg.Lifecycle.Release(w, false, at(21))
}

func TestNewWorkload(t *testing.T) {
	s := newScene()
	s.cfg.LabelKeysToCopy = []string{"team", "absent"}
	s.job.Labels["team"], s.job.Labels[kueue.MaxExecTimeSecondsLabel] = "blue", "60"
	s.job.Labels[kueue.PriorityClassLabel] = "gold"
	s.job.Annotations["provreq.kueue.x-k8s.io/x"], s.job.Annotations["other"] = "1", "2"
	s.job.Annotations[kueue.AdmissionGatedByAnnotation] = "a.io/x"
	s.job.Labels[berthv1alpha1.ExpectedRunSecondsKey], s.job.Annotations[berthv1alpha1.MinRunSecondsKey] = "90", "30"
	s.job.Annotations[kueue.JobMinParallelismAnnotation] = "2"
	template := s.job.Spec.Template.DeepCopy()
	template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "2"}, {Name: "B"}}
	want := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Name: "job-train-a6870", Namespace: "ns", Finalizers: []string{kueue.ResourceInUseFinalizer},
			Labels: map[string]string{"team": "blue", kueue.JobUIDLabel: "uid-1"},
			Annotations: map[string]string{
				"provreq.kueue.x-k8s.io/x": "1", kueue.AdmissionGatedByAnnotation: "a.io/x",
				berthv1alpha1.ExpectedRunSecondsKey: "90", berthv1alpha1.MinRunSecondsKey: "30",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "uid-1", Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: kueue.WorkloadSpec{
			QueueName: "lq", MaximumExecutionTimeSeconds: new(int32(60)), Priority: new(int32(9)),
			PriorityClassRef: &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass", Name: "gold"},
			PodSets:          []kueue.PodSet{{Name: "main", Count: 4, MinCount: new(int32(2)), Template: *template}},
		},
	}
	if diff := cmp.Diff(want, s.decide().Workload); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPriority(t *testing.T) {
	class := func(name string, value int32) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	}
	tests := map[string]struct {
		label, pod string
		fallback   *schedulingv1.PriorityClass
		want       string
	}{
		"nothing":         {"", "", nil, "none 0"},
		"label first":     {"gold", "pods", class("def", 1), "WorkloadPriorityClass gold 9"},
		"then the pods":   {"", "pods", class("def", 1), "PriorityClass pods 5"},
		"then a default":  {"", "", class("def", 1), "PriorityClass def 1"},
		"negative values": {"", "", class("low", -7), "PriorityClass low -7"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			if tc.label != "" {
				s.job.Labels[kueue.PriorityClassLabel] = tc.label
			}
			s.job.Spec.Template.Spec.PriorityClassName = tc.pod
			s.o.Classes.Pod = map[string]*schedulingv1.PriorityClass{"pods": class("pods", 5)}
			s.o.Classes.Default = tc.fallback
			spec := s.decide().Workload.Spec
			got := fmt.Sprintf("none %d", *spec.Priority)
			if ref := spec.PriorityClassRef; ref != nil {
				got = fmt.Sprintf("%s %s %d", ref.Kind, ref.Name, *spec.Priority)
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestEquivalence(t *testing.T) {
	tests := map[string]struct {
		change func(s *scene, w *kueue.Workload)
		same   bool
	}{
		"nothing":                   {func(*scene, *kueue.Workload) {}, true},
		"started":                   {func(s *scene, _ *kueue.Workload) { s.start() }, true},
		"quantity in other words":   {func(s *scene, _ *kueue.Workload) { s.requests()["cpu"] = resource.MustParse("1") }, true},
		"image":                     {func(s *scene, _ *kueue.Workload) { s.job.Spec.Template.Spec.Containers[0].Image = "y" }, false},
		"count":                     {func(s *scene, _ *kueue.Workload) { s.job.Spec.Parallelism = new(int32(3)) }, false},
		"tolerations while waiting": {func(s *scene, _ *kueue.Workload) { s.job.Spec.Template.Spec.Tolerations = tolerations("x") }, false},
		"tolerations once admitted": {func(s *scene, _ *kueue.Workload) { s.start(); s.job.Spec.Template.Spec.Tolerations = tolerations("x") }, true},
		"selector while waiting":    {func(s *scene, _ *kueue.Workload) { s.job.Spec.Template.Spec.NodeSelector = nil }, false},
		"selector while running": {func(s *scene, _ *kueue.Workload) {
			s.start()
			s.job.Spec.Template.Spec.NodeSelector = map[string]string{"x": "y"}
		}, true},
		"class while waiting": {func(s *scene, _ *kueue.Workload) { s.job.Spec.Template.Spec.RuntimeClassName = new("x") }, false},
		"affinity while waiting": {func(s *scene, _ *kueue.Workload) {
			s.job.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		}, false},
		"maximum time":                       {func(s *scene, _ *kueue.Workload) { s.job.Labels[kueue.MaxExecTimeSecondsLabel] = "5" }, false},
		"maximum time that is no number":     {func(s *scene, _ *kueue.Workload) { s.job.Labels[kueue.MaxExecTimeSecondsLabel] = "soon" }, true},
		"another environment, same outcome":  {func(s *scene, _ *kueue.Workload) { s.job.Spec.Template.Spec.Containers[0].Env[0].Value = "9" }, true},
		"running, admission of another name": {func(s *scene, w *kueue.Workload) { s.start(); w.Status.Admission.PodSetAssignments[0].Name = "x" }, true},
		"running, the flavor is gone":        {func(s *scene, _ *kueue.Workload) { s.start(); s.o.Flavors = nil }, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			w := s.workload()
			tc.change(s, w)
			a := describeAction(s.decide())
			updated := strings.HasSuffix(a, "+UpdatedWorkload") || strings.HasSuffix(a, "+Stopped")
			if updated == tc.same {
				t.Errorf("same should be %v: %s", tc.same, a)
			}
		})
	}
}

func (s *scene) requests() corev1.ResourceList {
	return s.job.Spec.Template.Spec.Containers[0].Resources.Requests
}

// start admits the only Workload and starts the Job.
func (s *scene) start() {
	s.admit(s.o.Workloads[0])
	s.set(s.decide().Job)
}

// TestRunsAsPlannedElsewhere: another version of the controller has planned the pods of a running job, so that PodSets differ from its
// Workload. The job is stopped only if its Workload does not hold quota for the pods with which it runs.
func TestRunsAsPlannedElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*scene, []kueue.PodSet)
		want   job.Verb
	}{
		"as it is planned":    {func(s *scene, _ []kueue.PodSet) { s.d.Planned = nil }, job.PatchJob},
		"as it runs":          {func(*scene, []kueue.PodSet) {}, job.Nothing},
		"with other commands": {func(_ *scene, runs []kueue.PodSet) { runs[0].Template.Spec.Containers[0].Command = []string{"x"} }, job.Nothing},
		"with more pods":      {func(_ *scene, runs []kueue.PodSet) { runs[0].Count++ }, job.PatchJob},
		"with more cpus": {func(_ *scene, runs []kueue.PodSet) {
			runs[0].Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("2")}
		}, job.PatchJob},
		"it does not run": {func(s *scene, _ []kueue.PodSet) {
			s.d.Planned.Runs = func(job.Object, *job.Setting) []kueue.PodSet { return nil }
		}, job.PatchJob},
		"it runs on a worker cluster": {func(s *scene, _ []kueue.PodSet) {
			s.d.Planned.Runs = func(job.Object, *job.Setting) []kueue.PodSet { return nil }
			s.job.Spec.ManagedBy, s.o.Workloads[0].Status.ClusterName = new(kueue.MultiKueueControllerName), "far"
		}, job.Nothing},
		"another controller runs it": {func(s *scene, _ []kueue.PodSet) {
			s.d.Planned.Runs = func(job.Object, *job.Setting) []kueue.PodSet { return nil }
			s.job.Spec.ManagedBy = new("example.com/other")
		}, job.PatchJob},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			w := s.running()
			s.job.Spec.Template.Spec.Containers[0].Env = nil // the plan differs
			runs := []kueue.PodSet{*w.Spec.PodSets[0].DeepCopy()}
			s.d.Planned = &job.Planned{Runs: func(job.Object, *job.Setting) []kueue.PodSet { return runs }}
			test.change(s, runs)
			a := s.decide()
			if a.Verb != test.want || (a.Verb == job.PatchJob && !*a.Job.(*batchv1.Job).Spec.Suspend) {
				t.Errorf("%+v", a)
			}
		})
	}
}

// TestEvictedAsPlannedElsewhere: the quota of an evicted job that another version of the controller has planned is released before its
// Workload is updated to the present plan. A new Workload would be active, although its user has deactivated it.
func TestEvictedAsPlannedElsewhere(t *testing.T) {
	s := newScene()
	w := s.running()
	s.job.Spec.Template.Spec.Containers[0].Env = nil // the plan differs
	s.d.Planned = &job.Planned{Runs: func(job.Object, *job.Setting) []kueue.PodSet { return nil }}
	w.Spec.Active = new(false)
	s.evict(w)
	s.job.Spec.Suspend = new(true)
	a := s.decide()
	for a.Verb == job.PatchJob || a.Verb == job.PatchJobStatus {
		s.set(a.Job)
		a = s.decide()
	}
	if a.Verb != job.WriteStatus || lifecycle.IsReserved(a.Workload) {
		t.Fatalf("after the stop: %s", describeAction(a))
	}
	s.o.Workloads[0] = a.Workload
	if a = s.decide(); a.Verb != job.UpdateWorkload || *a.Workload.Spec.Active || a.Workload.Spec.PodSets[0].Template.Spec.Containers[0].Env != nil {
		t.Errorf("after the release: %s", describeAction(a))
	}
}

func TestPartialAdmission(t *testing.T) {
	s := newScene()
	s.job.Annotations[kueue.JobMinParallelismAnnotation] = "2"
	w := s.workload()
	s.admit(w)
	w.Status.Admission.PodSetAssignments[0].Count = new(int32(3))
	s.set(s.decide().Job)
	if got := *s.job.Spec.Parallelism; got != 3 {
		t.Errorf("it starts with %d pods, want 3", got)
	}
	if got := describeAction(s.decide()); got != "nothing" {
		t.Errorf("while it runs: %s", got)
	}
	s.evict(w)
	s.set(s.decide().Job)
	s.set(s.decide().Job)
	if got := *s.job.Spec.Parallelism; got != 4 || !*s.job.Spec.Suspend {
		t.Errorf("after the stop: %d pods, want 4", got)
	}
}

// TestPartialAdmissionSwitched: a switch of the gate stops no running Job, and a Job that is stopped later has its own size again.
func TestPartialAdmissionSwitched(t *testing.T) {
	for _, before := range []bool{true, false} {
		s := newScene()
		s.cfg.PartialAdmission = before
		s.job.Annotations[kueue.JobMinParallelismAnnotation] = "2"
		w := s.workload()
		if has := w.Spec.PodSets[0].MinCount != nil; has != before {
			t.Fatalf("partial admission %v: minimum count %v", before, has)
		}
		s.admit(w)
		if before {
			w.Status.Admission.PodSetAssignments[0].Count = new(int32(3))
		}
		s.set(s.decide().Job)
		s.cfg.PartialAdmission = !before
		if got := describeAction(s.decide()); got != "nothing" {
			t.Errorf("partial admission was %v and is %v: %s", before, !before, got)
		}
		s.requests()["cpu"] = resource.MustParse("2")
		if got := describeAction(s.decide()); !strings.Contains(got, "suspend true") {
			t.Errorf("partial admission was %v and is %v, other requests: %s", before, !before, got)
		}
	}
}

func TestPrebuilt(t *testing.T) {
	tests := map[string]struct {
		change func(s *scene, w *kueue.Workload)
		want   string
	}{
		"adopted":           {func(_ *scene, w *kueue.Workload) { w.OwnerReferences = nil }, "update workload: queue lq, finalizers 1, count 4"},
		"owned, unlabelled": {func(_ *scene, w *kueue.Workload) { delete(w.Labels, kueue.JobUIDLabel) }, "update workload: queue lq, finalizers 1, count 4"},
		"used":              {func(*scene, *kueue.Workload) {}, "nothing"},
		"of an earlier job": {func(_ *scene, w *kueue.Workload) { w.OwnerReferences[0].UID = "x" }, "status: Finished=True/OwnerNotFound"},
		"beside its own": {
			func(s *scene, w *kueue.Workload) {
				own := w.DeepCopy()
				own.Name, own.UID = "own", "own"
				s.o.Workloads = append(s.o.Workloads, own)
			}, "update workload: queue lq, finalizers 0, count 4",
		},
		"beside its own, which has pods": {
			func(s *scene, w *kueue.Workload) {
				own := w.DeepCopy()
				own.Name, own.UID, s.job.Status.Active = "own", "own", 1
				s.admit(own)
				s.o.Workloads = append(s.o.Workloads, own)
			}, "nothing",
		},
		"runs by its own": {
			func(s *scene, w *kueue.Workload) {
				own := w.DeepCopy()
				own.Name, own.UID, s.job.Status.Active, s.job.Spec.Suspend = "own", "own", 1, new(false)
				s.admit(own)
				s.o.Workloads = append(s.o.Workloads, own)
			}, "job: suspend true, stopping \"\", selector map[zone:a] +Stopped",
		},
		"of somebody else":   {func(_ *scene, w *kueue.Workload) { w.OwnerReferences[0].UID, w.OwnerReferences[0].Name = "x", "x" }, "fail: workload ns/job-train-a6870, which the job names, does not exist or belongs to another job: create it, or remove kueue.x-k8s.io/prebuilt-workload-name"},
		"not equivalent":     {func(s *scene, _ *kueue.Workload) { s.requests()["cpu"] = resource.MustParse("2") }, "status: Finished=True/OutOfSync"},
		"only basic rules":   {func(s *scene, _ *kueue.Workload) { s.job.Spec.Template.Spec.NodeSelector = nil }, "nothing"},
		"follows the queue":  {func(s *scene, _ *kueue.Workload) { s.job.Labels[kueue.QueueNameLabel] = "other" }, "update workload: queue other, finalizers 1, count 4"},
		"keeps its priority": {func(s *scene, _ *kueue.Workload) { s.job.Labels[kueue.PriorityClassLabel] = "gold" }, "nothing"},
		"admitted before":    {func(s *scene, w *kueue.Workload) { s.admit(w) }, "job: suspend false, stopping \"\", selector " + injected + " +Started"},
		"out of sync, runs": {
			func(s *scene, w *kueue.Workload) {
				s.cfg.Lifecycle.Finish(w, kueue.ReasonOutOfSync, "", at(50))
				s.job.Spec.Suspend = new(false)
			},
			"job: suspend true, stopping \"\", selector map[zone:a] +Stopped",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			w := s.workload()
			s.o.Prebuilt = w
			s.job.Labels[kueue.PrebuiltWorkloadLabel] = w.Name
			tc.change(s, w)
			if got := describeAction(s.decide()); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func FuzzSplitGates(f *testing.F) {
	f.Add("a.io/x, b.io/y")
	f.Add(" ")
	f.Add(",")
	f.Fuzz(func(t *testing.T, text string) {
		gates := lifecycle.SplitGates(text)
		if again := lifecycle.SplitGates(strings.Join(gates, ",")); len(gates) > 1 && cmp.Diff(gates, again) != "" {
			t.Errorf("%q reads %q and then %q", text, gates, again)
		}
	})
}
