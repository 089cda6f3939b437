package takeover

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// byDispatcher is the field manager with which the other system writes the state of its check alone. spec: 40 §4.4.
const byDispatcher = "kueue.x-k8s.io/multikueue"

// sendMore lets Berth send a Job that then runs on the worker cluster, and one that waits there.
func (h *hubAndWorker) sendMore() {
	h.hub.Helper()
	create := func(name string, pods int32) *batchv1.Job {
		j := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, Labels: map[string]string{kueue.QueueNameLabel: "remote"}},
			Spec:       batchv1.JobSpec{Parallelism: &pods, Completions: &pods, Template: podsFor("1")},
		}
		h.hub.write(byUser, j)
		return j
	}
	create("fresh", 1)
	h.startsThere("fresh")
	h.hub.until("fresh", admitted)
	key := client.ObjectKey{Namespace: team, Name: nameOf(batchv1.SchemeGroupVersion.WithKind("Job"), create("late", 3))}
	wait.Until(h.hub.T, "late is sent, and waits", func() error {
		wl, copied := &kueue.Workload{}, &kueue.Workload{}
		if err := errors.Join(h.hub.Get(h.hub.Context(), key, wl), h.worker.Get(h.worker.Context(), key, copied)); err != nil {
			return err
		}
		if got := conditions(copied)["QuotaReserved"]; !strings.HasPrefix(got, "False/") || !slices.Equal(wl.Status.NominatedClusterNames, []string{far}) {
			return fmt.Errorf("nominated are %v, and there QuotaReserved is %q", wl.Status.NominatedClusterNames, got)
		}
		return nil
	})
}

// giveBack stops Berth on both clusters, and lets the other system write the objects of both as it does: one whose dispatch it goes on
// with, one that it evicts, and one that it finishes, of each of which it removes the copies.
func (h *hubAndWorker) giveBack(managers ...*manager) {
	h.hub.Helper()
	h.sendMore()
	for _, m := range managers {
		m.stop()
	}
	h.hub.isLeft()
	h.worker.isLeft()
	h.isOnWire()

	h.admitThere("late")
	for _, name := range []string{"fresh", "steady"} {
		h.evictThere(name)
	}
	h.finishThere("offered")
	h.hub.forgetsRuns()
	for _, wl := range h.worker.workloads() {
		if wl.Spec.QueueName == "remote" && wl.Labels[kueue.MultiKueueOriginLabel] != "" && !strings.HasPrefix(wl.Name, "job-late-") {
			h.worker.Errorf("%s is there", wl.Name)
		}
	}
}

// isOnWire demands that sent Workloads, their copies and the copies of their Jobs have the fields by which the other system finds and
// follows them. spec: 40 §2.4, §2.6.
func (h *hubAndWorker) isOnWire() {
	h.hub.Helper()
	for _, name := range []string{"steady", "offered", "fresh"} {
		j, wl := h.hub.read(name)
		check := wl.Status.AdmissionChecks[0]
		if wl.Status.ClusterName != far || wl.Status.NominatedClusterNames != nil || check.Name != dispatch || check.State != kueue.CheckStateReady ||
			!strings.HasPrefix(check.Message, fmt.Sprintf("The workload was admitted on %q", far)) {
			h.hub.Errorf("%s: status %+v", name, wl.Status)
		}
		if *j.Spec.ManagedBy != kueue.MultiKueueControllerName || *j.Spec.Suspend {
			h.hub.Errorf("%s: managedBy %s, suspend %t", name, *j.Spec.ManagedBy, *j.Spec.Suspend)
		}
		h.hub.hasKnownAnnotations(j)
		sent, copied := h.worker.readCopy(h.hub.world, name)
		if sent.Labels[kueue.MultiKueueOriginLabel] != "multikueue" || sent.Annotations[kueue.PrebuiltWorkloadLabel] != wl.Name || sent.Spec.ManagedBy != nil {
			h.worker.Errorf("%s: labels %v, annotations %v, managedBy %v", name, sent.Labels, sent.Annotations, sent.Spec.ManagedBy)
		}
		h.worker.hasKnownAnnotations(sent)
		if copied.Labels[kueue.MultiKueueOriginLabel] != "multikueue" || !metav1.IsControlledBy(copied, sent) || copied.Labels[kueue.JobUIDLabel] != string(sent.UID) {
			h.worker.Errorf("%s: the copied Workload has %+v", name, copied.ObjectMeta)
		}
	}
	_, wl := h.hub.read("late")
	if check := wl.Status.AdmissionChecks[0]; wl.Status.ClusterName != "" || check.State != kueue.CheckStatePending {
		h.hub.Errorf("late: status %+v", wl.Status)
	}
	copied := h.worker.copied(wl)
	if copied.Labels[kueue.MultiKueueOriginLabel] != "multikueue" || copied.Labels[kueue.JobUIDLabel] != "" || len(copied.OwnerReferences)+len(copied.Finalizers) > 0 {
		h.worker.Errorf("late: the copied Workload has %+v", copied.ObjectMeta)
	}
}

// copied returns the copy of a hub's Workload.
func (w *world) copied(wl *kueue.Workload) *kueue.Workload {
	w.Helper()
	out := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: wl.Namespace, Name: wl.Name}}
	w.get(out)
	return out
}

// hasKnownAnnotations demands that a Job has no annotation of Berth's, except what the start added to it, and the marks of copies.
func (b *berth) hasKnownAnnotations(j *batchv1.Job) {
	b.Helper()
	for key := range j.Annotations {
		if strings.Contains(key, "berth.dev/") && key != "berth.dev/injected" && !strings.HasPrefix(key, ofCopies) {
			b.Errorf("%s has the annotation %s", j.Name, key)
		}
	}
}

// admitThere admits the waiting copy of a Job, and reports that on the hub. spec: 40 §4.4.
func (h *hubAndWorker) admitThere(name string) {
	h.hub.Helper()
	_, wl := h.hub.read(name)
	copied := h.worker.copied(wl)
	copied.Status.Conditions = nil
	h.worker.setAdmitted(copied, "remote")
	h.worker.applyStatus(byAdmission, copied)
	h.hub.admittedThere(wl)
	if wl.Status.ClusterName != far || wl.Status.NominatedClusterNames != nil {
		h.hub.Errorf("%s: cluster %q, nominated %v, after its admission", name, wl.Status.ClusterName, wl.Status.NominatedClusterNames)
	}
}

// admittedThere applies the status of a Workload that the worker cluster has admitted.
func (w *world) admittedThere(wl *kueue.Workload) {
	w.Helper()
	wl.Status.ClusterName, wl.Status.NominatedClusterNames = far, nil
	wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
	wl.Status.AdmissionChecks[0].Message = fmt.Sprintf("The workload was admitted on %q", far)
	w.applyStatus(byAdmission, wl)
}

// evictThere retries a Job that runs on the worker cluster, releases its quota, and removes its copies. spec: 40 §4.4, rule 2.
func (h *hubAndWorker) evictThere(name string) {
	h.hub.Helper()
	j, wl := h.hub.read(name)
	reserved := wl.Status
	wl.Status = kueue.WorkloadStatus{AdmissionChecks: []kueue.AdmissionCheckState{{
		Name: dispatch, State: kueue.CheckStateRetry, Message: "evicted there", LastTransitionTime: h.hub.began,
	}}}
	h.hub.applyStatus(byDispatcher, wl)
	if wl.Status.ClusterName != reserved.ClusterName || wl.Status.Admission == nil {
		h.hub.Errorf("%s: status %+v after the retry of its check", name, wl.Status)
	}
	wl.Status = kueue.WorkloadStatus{AdmissionChecks: wl.Status.AdmissionChecks}
	wl.Status.AdmissionChecks[0].State, wl.Status.AdmissionChecks[0].RetryCount = kueue.CheckStatePending, new(int32(1))
	h.hub.released(wl, "AdmissionCheck")
	h.hub.applyStatus(byAdmission, wl)
	if s := wl.Status; s.Admission != nil || s.ClusterName != "" || len(s.AdmissionChecks) != 1 || s.AdmissionChecks[0].State != kueue.CheckStatePending {
		h.hub.Errorf("%s: status %+v after its eviction", name, s)
	}
	j.Spec.Suspend = new(true)
	h.hub.write(byKueue, j)
	h.removeCopies(name)
}

// finishThere ends a Job on the worker cluster and then on the hub, and removes its copies.
func (h *hubAndWorker) finishThere(name string) {
	h.hub.Helper()
	finished := func(w *world, wl *kueue.Workload) {
		wl.Status.Conditions = append(wl.Status.Conditions, w.condition(wl, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "Job finished successfully"))
		w.applyStatus(byAdmission, wl)
		wl.Finalizers = nil
		w.write(byKueue, wl)
	}
	sent, copied := h.worker.readCopy(h.hub.world, name)
	sent.Status.StartTime = &h.worker.began
	h.worker.complete(sent)
	finished(h.worker.world, copied)
	j, wl := h.hub.read(name)
	j.Status = sent.Status
	h.hub.writeStatus(byKueue, j)
	finished(h.hub.world, wl)
	h.removeCopies(name)
}

// forgetsRuns applies the status of the StatefulSet's Workload, of which the other system does not know a condition of Berth's.
func (b *berth) forgetsRuns() {
	b.Helper()
	found := 0
	for _, wl := range b.workloads() {
		if conditions(&wl)[runsRemotely] == "" {
			continue
		}
		found++
		wl.Status.Conditions = slices.DeleteFunc(wl.Status.Conditions, func(c metav1.Condition) bool { return c.Type == runsRemotely })
		b.applyStatus(byAdmission, &wl)
		if of := conditions(&wl); of[runsRemotely] != "" || of["Admitted"] != "True/Admitted" {
			b.Errorf("%s has the conditions %v", wl.Name, of)
		}
	}
	if found == 0 {
		b.Errorf("no Workload has the condition %s", runsRemotely)
	}
}

// removeCopies deletes the copy of a Job, and then that of its Workload.
func (h *hubAndWorker) removeCopies(name string) {
	h.hub.Helper()
	sent, copied := h.worker.readCopy(h.hub.world, name)
	h.worker.try(h.worker.Delete(h.worker.Context(), sent, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	copied.Finalizers = nil
	h.worker.write(byKueue, copied)
	h.worker.try(h.worker.Delete(h.worker.Context(), copied))
	if err := h.worker.isGone(name); err != nil {
		h.worker.Error(err)
	}
	if err := h.worker.Get(h.worker.Context(), client.ObjectKeyFromObject(copied), copied); !apierrors.IsNotFound(err) {
		h.worker.Errorf("%s is there, with finalizers %v: %v", copied.Name, copied.Finalizers, err)
	}
}
