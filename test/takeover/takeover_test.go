package takeover

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// objects are resource versions by Kind/name.
type objects map[string]string

// inventory returns the resource versions of all jobs, their children and pods.
func (w *world) inventory() objects {
	w.Helper()
	out := objects{}
	kinds := []schema.GroupVersionKind{
		batchv1.SchemeGroupVersion.WithKind("Job"), corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Service"),
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"), jobsetv1alpha2.GroupVersion.WithKind("JobSet"), rayCluster, rayJob, lws,
	}
	for i := range kubeflow {
		kinds = append(kinds, kubeflow[i].gvk())
	}
	for _, gvk := range kinds {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := w.List(w.Context(), &list, client.InNamespace(team)); err != nil {
			w.Fatal(err)
		}
		for i := range list.Items {
			out[gvk.Kind+"/"+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	}
	var jobs trainerv1alpha1.TrainJobList // Berth adds fields to the status, so only the spec and the metadata count
	w.try(w.List(w.Context(), &jobs, client.InNamespace(team)))
	for i := range jobs.Items {
		meta := jobs.Items[i].ObjectMeta
		meta.ResourceVersion, meta.ManagedFields = "", nil
		out["TrainJob/"+meta.Name] = fmt.Sprint(meta)
		if name := meta.Name + "-mpi-hostfile"; meta.Name == "mpi" {
			hosts := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
			w.get(hosts)
			out["ConfigMap/"+name] = hosts.ResourceVersion
		}
	}
	return out
}

// populate writes the whole world.
func populate(t *testing.T, version string) *world {
	t.Helper()
	w := newWorld(t, version)
	w.queues(map[string]string{"main": "8", "checked": "2", "kinds": "6", "elastic": "1", "kubeflow": "12", "training": "6"})
	w.jobStates()
	w.kinds()
	w.trainJobs()
	return w
}

// takenOver is a world that was taken over: it is as before, and lives on.
func takenOver(t *testing.T, version string, takeOver func(*berth)) *berth {
	t.Helper()
	w := populate(t, version)
	before, conditions := w.inventory(), w.remember()
	if w.isOld() {
		w.inNewWords(conditions)
	}
	b := newBerth(w, version)
	takeOver(b)
	b.unchanged(before)
	b.adopted(conditions)
	b.liveOn()
	return b
}

// TestTakeover installs Berth over jobs in every state of their lives, stored by an older and by a present release, and lets them live on.
// Then the other system takes the cluster back.
func TestTakeover(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1beta2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			var m *manager
			b := takenOver(t, version, func(b *berth) { m = b.takeOver() })
			b.giveBack(m)
		})
	}
}

// TestTakeoverKilled does the same with managers that are killed at every step: in one of the versions, and with -long in both.
func TestTakeoverKilled(t *testing.T) {
	for _, version := range embeddedtest.Sample(t, 1, []string{"v1beta1", "v1beta2"}) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			takenOver(t, version, func(b *berth) { b.takeOverKilled(5) })
		})
	}
}

// TestTakeoverWithNewDefaults installs Berth over an old release with a configuration that switches waitForPodsReady on: Workloads that were
// admitted long ago are not evicted, although not all of their pods are ready.
func TestTakeoverWithNewDefaults(t *testing.T) {
	t.Parallel()
	w := populate(t, "v1beta1")
	before, conditions := w.inventory(), w.remember()
	w.inNewWords(conditions)
	b := newBerth(w, "v1beta2")
	b.takeOver()
	for name, version := range b.inventory() {
		if !stopsBegun(name) && version != before[name] {
			b.Errorf("%s was written", name)
		}
	}
	b.adopted(conditions)
	b.liveOn()
}

// stopsBegun reports whether an object belongs to a job that the other system had begun to stop.
func stopsBegun(name string) bool {
	return name == "Job/evicting" || name == "JobSet/halting" || name == "Job/halting-node-0"
}

// unchanged demands that jobs and pods were not written, but for the jobs whose stop had begun, and Workloads at most once.
func (b *berth) unchanged(before objects) {
	b.Helper()
	now := b.inventory()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !stopsBegun(name) && now[name] != before[name] {
			b.Errorf("%s was written", name)
		}
	}
	if len(now) != len(before) {
		b.Errorf("there are %d jobs and pods, and were %d", len(now), len(before))
	}
	for object, writes := range b.writes.to("workloads") {
		if len(writes) > 1 {
			b.Errorf("%s was written more than once:\n%s", object, strings.Join(writes, "\n"))
		}
	}
}

// remembered are the conditions of Workloads by name, with the times of their transitions.
type remembered map[string]map[string]string

// remember reads the conditions of all Workloads.
func (w *world) remember() remembered {
	w.Helper()
	out := remembered{}
	for _, wl := range w.workloads() {
		out[wl.Name] = map[string]string{}
		for _, c := range wl.Status.Conditions {
			out[wl.Name][c.Type] = fmt.Sprintf("%s/%s since %s", c.Status, c.Reason, c.LastTransitionTime.UTC().Format(time.TimeOnly))
		}
	}
	return out
}

// inNewWords changes the reasons of pending Workloads for which an old release has a word of its own.
func (w *world) inNewWords(of remembered) {
	w.Helper()
	for name, c := range of {
		for job, reason := range map[string]string{
			"job-waiting-": "WaitingForQuota", "job-deactivated-": "Deactivated", "job-elastic-": "ExceedsMaxQuota", "trainjob-later-": "WaitingForQuota",
		} {
			if strings.HasPrefix(name, job) {
				c["QuotaReserved"] = strings.Replace(c["QuotaReserved"], "Pending", reason, 1)
			}
		}
	}
}

// adopted demands that each Workload has the conditions that the other system wrote, that there are no others, and that they use the same quota.
func (b *berth) adopted(before remembered) {
	b.Helper()
	after := b.remember()
	for name := range after {
		if admitted := after[name]["Admitted"]; before[name]["Admitted"] == "" && strings.HasPrefix(admitted, "False/") {
			delete(after[name], "Admitted") // an old release does not write it
		}
		if before[name]["PodsReady"] == "" {
			delete(after[name], "PodsReady") // an old release does not write it, and Berth does only if waitForPodsReady is on
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		b.Errorf("conditions of Workloads changed (-before +after):\n%s", diff)
	}
	b.uses("main", "7", "7")
	b.uses("checked", "1", "0")
	b.uses("kinds", "6", "6")
	b.uses("elastic", "1", "1")
	b.uses("kubeflow", "12", "12")
	b.uses("training", "6", "6")
	if _, wl := b.read("finishing"); len(wl.Finalizers) > 0 {
		b.Errorf("finishing: finalizers %v", wl.Finalizers)
	}
}

// workloads reads all Workloads.
func (w *world) workloads() (out []kueue.Workload) {
	w.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(w.stored.WithKind("WorkloadList"))
	if err := w.List(w.Context(), list); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		var wl kueue.Workload
		w.unwire(&list.Items[i], &wl)
		out = append(out, wl)
	}
	return out
}

// uses waits until a ClusterQueue reports so many cpus reserved and in use.
func (b *berth) uses(queue, reserved, used string) {
	b.Helper()
	wait.Until(b.T, queue+" uses "+used, func() error {
		var cq kueue.ClusterQueue
		if err := b.Get(b.Context(), client.ObjectKey{Name: queue}, &cq); err != nil {
			return err
		}
		if is := total(cq.Status.FlavorsReservation) + " " + total(cq.Status.FlavorsUsage); is != reserved+" "+used {
			return fmt.Errorf("reserved and used are %s", is)
		}
		return nil
	})
}

func total(usage []kueue.FlavorUsage) string {
	if len(usage) != 1 {
		return "unknown"
	}
	return usage[0].Resources[0].Total.String()
}

// until waits until the Workload of a Job has conditions.
func (b *berth) until(name string, want map[string]string) {
	b.Helper()
	wait.Until(b.T, fmt.Sprintf("%s has %v", name, want), func() error {
		_, wl := b.read(name)
		have := conditions(wl)
		for kind, of := range want {
			if have[kind] != of {
				return fmt.Errorf("conditions %v", have)
			}
		}
		return nil
	})
}

// startsAndRuns waits until a Job is started, and runs its pods.
func (b *berth) startsAndRuns(name string) {
	b.Helper()
	wait.Until(b.T, name+" starts", func() error {
		if j, _ := b.read(name); *j.Spec.Suspend {
			return errors.New("it is suspended")
		}
		return nil
	})
	j, _ := b.read(name)
	j.Status.Conditions = slices.DeleteFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended })
	b.runs(j, *j.Spec.Parallelism, 0)
}

// stops waits until a Job is suspended, and ends its pods.
func (b *berth) stops(name string) {
	b.Helper()
	wait.Until(b.T, name+" is stopped", func() error {
		if j, _ := b.read(name); !*j.Spec.Suspend {
			return errors.New("it runs")
		}
		return nil
	})
	b.endPods(name)
}

// endPods ends the last pods of a suspended Job.
func (b *berth) endPods(name string) {
	b.Helper()
	wait.Until(b.T, "the pods of "+name+" end", func() error {
		j, _ := b.read(name)
		j.Status.Active, j.Status.Ready = 0, new(int32(0))
		return b.Status().Update(b.Context(), j, client.FieldOwner(byKubernetes))
	})
}

var admitted = map[string]string{"QuotaReserved": "True/QuotaReserved", "Admitted": "True/Admitted"}

// liveOn takes the Jobs further through their lives.
func (b *berth) liveOn() {
	b.Helper()
	// The stop that the other system began is completed, and the quota charged again: it was free.
	b.endPods("evicting")
	b.until("evicting", map[string]string{"QuotaReserved": "True/QuotaReserved", "Evicted": "False/QuotaReserved", "Requeued": "True/Preempted"})
	b.startsAndRuns("evicting")

	j, _ := b.read("running")
	b.complete(j)
	b.until("running", map[string]string{"Finished": "True/Succeeded"})
	b.until("waiting", admitted)
	b.startsAndRuns("waiting")
	b.uses("main", "8", "8")

	b.preempt()
	b.kindsLiveOn()
	b.trainingLivesOn()

	_, wl := b.read("checked")
	wl.Status.AdmissionChecks[0].State, wl.Status.AdmissionChecks[0].LastTransitionTime = kueue.CheckStateReady, metav1.Now()
	b.writeStatus("budget", wl)
	b.until("checked", admitted)
	b.startsAndRuns("checked")

	_, wl = b.read("deactivated")
	wl.Spec.Active = new(true)
	b.write(byUser, wl)
	b.until("deactivated", map[string]string{"Requeued": "True/Reactivated"})

	j, wl = b.read("backoff")
	if err := b.Delete(b.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		b.Fatal(err)
	}
	wait.Until(b.T, "the Workload of a deleted Job has no finalizers", func() error {
		if b.get(wl); len(wl.Finalizers) > 0 {
			return fmt.Errorf("%v", wl.Finalizers)
		}
		return nil
	})
}

// preempt lets an urgent Job preempt all others of the queue. No field of their admissions is left, whatever field manager wrote it.
func (b *berth) preempt() {
	b.Helper()
	urgent := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "urgent", Labels: map[string]string{
			kueue.QueueNameLabel: "main", kueue.PriorityClassLabel: "urgent",
		}},
		Spec: batchv1.JobSpec{Parallelism: new(int32(8)), Completions: new(int32(8)), Template: podsFor("1")},
	}
	b.write(byUser, urgent)
	victims := []string{"victim", "evicting", "waiting"}
	for _, name := range victims {
		b.stops(name)
	}
	for _, name := range victims {
		b.until(name, map[string]string{"QuotaReserved": "False/WaitingForQuota", "Evicted": "True/Preempted", "Requeued": "True/Preempted"})
		j, wl := b.read(name)
		if wl.Status.Admission != nil {
			b.Errorf("%s: admission %+v", name, wl.Status.Admission)
		}
		if selector := j.Spec.Template.Spec.NodeSelector; len(selector) > 0 {
			b.Errorf("%s: the node selector %v is left", name, selector)
		}
	}
	b.until("urgent", admitted)
	b.uses("main", "8", "8")
}
