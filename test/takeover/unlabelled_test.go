package takeover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestTakeoverQueuingUnlabelledJobs installs Berth, with a configuration that also queues jobs without a queue name, over TrainJobs. Their
// JobSets follow them, also one with more pods than Berth plans: none gets a Workload of its own, neither while it runs nor while it is
// stopped and made again.
func TestTakeoverQueuingUnlabelledJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "v1beta2")
	w.queues(map[string]string{"training": "6"})
	w.trainJobs()
	before := w.inventory()
	b := newBerth(w, "v1beta2")
	b.options.ManageJobsWithoutQueueName = true
	b.takeOver()
	b.unchanged(before)
	b.uses("training", "6", "6")

	_, js, wl := b.readTrainJob("mpi")
	wl.Spec.Active = new(false)
	b.write(byUser, wl)
	for _, name := range []string{"mpi-node-0", "mpi-launcher-0"} {
		b.stopsTraining(name)
	}
	b.collectsGarbage("mpi")
	wait.Until(t, "the JobSet is made again", func() error {
		now := &jobsetv1alpha2.JobSet{}
		if err := b.Get(b.Context(), client.ObjectKeyFromObject(js), now); err != nil {
			return err
		}
		if now.UID == js.UID || !*now.Spec.Suspend {
			return fmt.Errorf("its UID is %s, and was %s; suspend is %t", now.UID, js.UID, *now.Spec.Suspend)
		}
		return nil
	})
	b.trainJobUntil("mpi", map[string]string{"QuotaReserved": "False/Deactivated"})
	_, _, wl = b.readTrainJob("mpi")
	wl.Spec.Active = new(true)
	b.write(byUser, wl)
	b.trainJobUntil("mpi", map[string]string{"QuotaReserved": "False/WaitingForQuota", "Requeued": "True/Reactivated"}) // the next TrainJob has its quota
	_, _, wl = b.readTrainJob("mpi")
	pods := int32(0)
	for i := range wl.Spec.PodSets {
		pods += wl.Spec.PodSets[i].Count
	}
	if pods != 1 {
		t.Errorf("its Workload is for %d pods, want 1, as Berth plans it", pods)
	}
	for object, writes := range b.writes.to("workloads") {
		if strings.Contains(object, "jobset-") || slices.ContainsFunc(writes, func(text string) bool { return strings.Contains(text, `"name":"jobset-`) }) {
			t.Errorf("a JobSet has a Workload of its own:\n%s", strings.Join(writes, "\n"))
		}
	}
}

// stopsTraining waits until a Job of a TrainJob is suspended, and ends its pods.
func (b *berth) stopsTraining(name string) {
	b.Helper()
	wait.Until(b.T, name+" is stopped", func() error {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
		if b.get(j); !*j.Spec.Suspend {
			return errors.New("it runs")
		}
		j.Status.Active, j.Status.Ready, j.Status.StartTime = 0, new(int32(0)), nil
		j.Status.Conditions = []batchv1.JobCondition{{
			Type: batchv1.JobSuspended, Status: corev1.ConditionTrue, Reason: "JobSuspended", LastTransitionTime: b.began, LastProbeTime: b.began,
		}}
		return b.Status().Update(b.Context(), j, client.FieldOwner(byKubernetes))
	})
}

// collectsGarbage deletes the JobSet of a TrainJob with its Jobs, once Berth has deleted it, as the controller of Kubernetes does.
func (b *berth) collectsGarbage(name string) {
	b.Helper()
	wait.Until(b.T, "the JobSet is deleted", func() error {
		_, js, _ := b.readTrainJob(name)
		if js.DeletionTimestamp == nil {
			return errors.New("it is there")
		}
		var jobs batchv1.JobList
		b.try(b.List(b.Context(), &jobs, client.InNamespace(team)))
		for i := range jobs.Items {
			if metav1.IsControlledBy(&jobs.Items[i], js) {
				b.try(b.Delete(b.Context(), &jobs.Items[i], client.PropagationPolicy(metav1.DeletePropagationBackground)))
			}
		}
		js.Finalizers = nil
		return b.Update(b.Context(), js)
	})
}
