package takeover

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// checkName is the admission check of the queue "checked". Its controller is the test.
const checkName = "budget"

// queues writes the flavor f, the queues with so many cpus, and their statuses as the other system leaves them.
func (w *world) queues(cpus map[string]string) {
	w.Helper()
	w.write(byUser, &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: "f", Finalizers: []string{kueue.ResourceInUseFinalizer}},
		Spec:       kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "a"}},
	})
	w.write(byUser, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000})
	check := &kueue.AdmissionCheck{
		ObjectMeta: metav1.ObjectMeta{Name: checkName, Finalizers: []string{kueue.ResourceInUseFinalizer}},
		Spec:       kueue.AdmissionCheckSpec{ControllerName: "example.com/budget"},
	}
	w.write(byUser, check)
	check.Status.Conditions = []metav1.Condition{{
		Type: "Active", Status: metav1.ConditionTrue, Reason: "Active", Message: "The admission check is active", LastTransitionTime: w.began, ObservedGeneration: 1,
	}}
	w.writeStatus("budget", check)
	for name, n := range cpus {
		cq := &kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{kueue.ResourceInUseFinalizer}},
			Spec: kueue.ClusterQueueSpec{
				NamespaceSelector: &metav1.LabelSelector{},
				Preemption:        &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionLowerPriority},
				ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
					Name: "f", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse(n)}},
				}}}},
			},
		}
		if name == "checked" {
			cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: checkName}}}
		}
		w.write(byUser, cq)
		cq.Status.Conditions = []metav1.Condition{{
			Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue, Reason: "Ready", Message: "Can admit new workloads", LastTransitionTime: w.began, ObservedGeneration: 1,
		}}
		w.writeStatus(byKueue, cq)
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)}}
		w.write(byUser, lq)
	}
}

// jobStates writes a Job in every state of its life. In the queue "main", of 8 cpus, running, victim and evicting hold 7.
func (w *world) jobStates() {
	w.Helper()
	w.running("running", "main", 3, byAdmission)
	w.running("victim", "main", 2, byKueue) // an older release wrote statuses by Update
	w.evicting()
	w.waiting("waiting", "main", 4)
	w.checked()
	w.inBackoff()
	w.deactivated()
	w.finished("finished", nil)
	w.finished("finishing", []string{kueue.ResourceInUseFinalizer})
}

// running writes an admitted Job of which one pod is ready. The status is applied by the field manager kueue-admission, or updated by another.
func (w *world) running(name, queue string, pods int32, manager string) {
	w.Helper()
	j := w.job(name, queue, pods)
	wl := w.queued(j)
	w.setAdmitted(wl, queue)
	if manager == byAdmission {
		w.applyStatus(manager, wl)
	} else {
		w.writeStatus(manager, wl)
	}
	w.start(j, wl)
	w.runs(j, pods, 1)
	if pods == 1 {
		w.ready(wl, metav1.ConditionTrue, "Started")
	}
}

// waiting writes a Job that does not fit.
func (w *world) waiting(name, queue string, pods int32) {
	w.Helper()
	j := w.job(name, queue, pods)
	wl := w.queued(j)
	wl.Status.ResourceRequests = []kueue.PodSetRequest{{Name: "main", Resources: corev1.ResourceList{"cpu": *resource.NewQuantity(int64(pods), resource.DecimalSI)}}}
	w.refused(wl, "WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, 3 more needed")
}

// refused writes the verdict of the other system's scheduler about a pending Workload.
func (w *world) refused(wl *kueue.Workload, reason, message string) {
	w.Helper()
	if w.isOld() {
		reason = "Pending"
	} else {
		wl.Status.Conditions = append(wl.Status.Conditions,
			w.condition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "The workload has no reservation"))
	}
	wl.Status.Conditions = append(wl.Status.Conditions, w.condition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, reason, message))
	w.applyStatus(byAdmission, wl)
}

// checked writes a Job that holds quota and waits for its admission check.
func (w *world) checked() {
	w.Helper()
	j := w.job("checked", "checked", 1)
	wl := w.queued(j)
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: checkName, State: kueue.CheckStatePending, LastTransitionTime: w.began}}
	w.writeStatus(byKueue, wl)
	w.setReserved(wl, "checked")
	if !w.isOld() {
		wl.Status.Conditions = append(wl.Status.Conditions, w.condition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse, "UnsatisfiedAdmissionChecks",
			"The workload has failed admission checks"))
	}
	w.applyStatus(byAdmission, wl)
}

// evicting writes a Job whose preemption is at its first step: it is suspended, one pod is left, and its quota is still charged.
func (w *world) evicting() {
	w.Helper()
	j := w.job("evicting", "main", 2)
	wl := w.queued(j)
	w.setAdmitted(wl, "main")
	w.applyStatus(byAdmission, wl)
	w.start(j, wl)
	w.runs(j, 2, 2)
	w.ready(wl, metav1.ConditionTrue, "Started")
	message := "Preempted to accommodate a workload (UID: 3a1c, JobUID: UNKNOWN) due to prioritization in the ClusterQueue"
	preempted := w.condition(wl, kueue.WorkloadPreempted, metav1.ConditionTrue, "InClusterQueue", message)
	preempted.ObservedGeneration = 0
	wl.Status.Conditions = append(wl.Status.Conditions, w.condition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue, "Preempted", message), preempted)
	wl.Status.SchedulingStats = evicted("Preempted", "")
	w.applyStatus(byAdmission, wl)
	j.Spec.Suspend = new(true)
	j.Annotations = map[string]string{kueue.JobStoppingAnnotation: "true"}
	w.write(byKueue, j)
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
		Type: batchv1.JobSuspended, Status: corev1.ConditionTrue, Reason: "JobSuspended", LastTransitionTime: w.began, LastProbeTime: w.began,
	})
	j.Status.StartTime = nil
	w.runs(j, 1, 0)
	w.ready(wl, metav1.ConditionFalse, "WaitForRecovery")
}

func evicted(reason, cause string) *kueue.SchedulingStats {
	return &kueue.SchedulingStats{Evictions: []kueue.EvictionCount{{Reason: reason, UnderlyingCause: cause, Count: 1}}}
}

// released sets the conditions of a Workload whose quota was released after an eviction.
func (w *world) released(wl *kueue.Workload, reason string) {
	wl.Status.Admission = nil
	pending := "PendingEvaluation"
	if w.isOld() {
		pending = "Pending"
	}
	wl.Status.Conditions = append(wl.Status.Conditions,
		w.condition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, pending, "evicted"),
		w.condition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "The workload has no reservation"),
		w.condition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue, reason, "evicted"),
		w.condition(wl, kueue.WorkloadRequeued, metav1.ConditionFalse, reason, "evicted"))
	wl.Status.SchedulingStats = evicted(reason, map[string]string{"PodsReadyTimeout": "WaitForStart"}[reason])
}

// inBackoff writes a Job that was not ready in time, and may queue again in an hour. There is quota for it.
func (w *world) inBackoff() {
	w.Helper()
	j := w.job("backoff", "main", 1)
	w.backsOff(w.queued(j))
}

// backsOff writes the status of a Workload that was evicted, and waits for the end of a backoff.
func (w *world) backsOff(wl *kueue.Workload) {
	w.Helper()
	w.released(wl, "PodsReadyTimeout")
	at := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	wl.Status.RequeueState = &kueue.RequeueState{Count: new(int32(2)), RequeueAt: &at}
	w.applyStatus(byAdmission, wl)
}

// deactivated writes a Job whose Workload its user has deactivated.
func (w *world) deactivated() {
	w.Helper()
	j := w.job("deactivated", "main", 1)
	wl := w.queued(j)
	wl.Spec.Active = new(false)
	w.write(byUser, wl)
	w.released(wl, "Deactivated")
	if !w.isOld() {
		for i := range wl.Status.Conditions {
			if c := &wl.Status.Conditions[i]; c.Type == kueue.WorkloadQuotaReserved {
				c.Reason, c.Message = "Deactivated", "The workload is deactivated"
			}
		}
	}
	w.applyStatus(byAdmission, wl)
}

// finished writes a Job that has succeeded, and its Workload with the finalizers that are left.
func (w *world) finished(name string, finalizers []string) {
	w.Helper()
	w.running(name, "main", 1, byAdmission)
	j, wl := w.read(name)
	w.complete(j)
	wl.Status.Conditions = append(wl.Status.Conditions, w.condition(wl, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "Job finished successfully"))
	w.applyStatus(byAdmission, wl)
	wl.Finalizers = finalizers
	w.write(byKueue, wl)
}

// complete writes the status of a Job whose pods have succeeded.
func (w *world) complete(j *batchv1.Job) {
	w.Helper()
	now := metav1.Now()
	j.Status.Active, j.Status.Ready, j.Status.Succeeded, j.Status.CompletionTime = 0, new(int32(0)), *j.Spec.Completions, &now
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached, LastTransitionTime: now, LastProbeTime: now,
		})
	}
	w.writeStatus(byKubernetes, j)
}

// read returns a Job of the world and its Workload.
func (w *world) read(name string) (*batchv1.Job, *kueue.Workload) {
	w.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
	w.get(j)
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: nameOf(batchv1.SchemeGroupVersion.WithKind("Job"), j)}}
	w.get(wl)
	return j, wl
}

// conditions are "Type=Status/Reason" of a Workload, by type.
func conditions(wl *kueue.Workload) map[string]string {
	out := map[string]string{}
	for _, c := range wl.Status.Conditions {
		out[c.Type] = fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
	return out
}
