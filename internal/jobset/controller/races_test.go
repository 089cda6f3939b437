package controller_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// 60 §6.3: a failure of a Job of an older attempt never counts, whenever it comes.
func TestOldFailures(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(with("failurePolicy: {maxRestarts: 3}"))
	w.haveJobs(allOfRing...)
	w.setJob("ring-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.is("ring", jobsetv1alpha2.ConditionRestarting, metav1.ConditionTrue, jobsetv1alpha2.ReasonDefaultFailurePolicy)
	w.setJob("ring-oar-0", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.setJob("ring-oar-2", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.collect(allOfRing...)
	w.all(4, "are of attempt 1", func(j *batchv1.Job) bool { return j.Labels[jobsetv1alpha2.RestartAttemptKey] == "1" })
	w.quiet(300 * time.Millisecond)
	if s := w.get("ring").Status; s.Restarts != 1 {
		t.Errorf("status %+v", s)
	}
}

// 60 §6.3: success and failure that are seen together are a failure.
func TestFailureBeatsSuccess(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(with("successPolicy: {operator: Any}"))
	w.haveJobs(allOfRing...)
	w.quiet(300 * time.Millisecond)
	w.stop()
	w.setJob("ring-oar-0", complete(2))
	w.setJob("ring-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.start()
	w.is("ring", jobsetv1alpha2.ConditionFailed, metav1.ConditionTrue, jobsetv1alpha2.ReasonFailedJobs)
}

// 60 §6.3: a JobSet of the same name comes while Jobs of the previous one are still ending: it waits for each, reports it,
// and adopts none.
func TestSameNameAgain(t *testing.T) {
	w := newWorld(t, plan.Config{})
	first := w.create(ring)
	old := w.haveJobs(allOfRing...)
	w.must(w.c.Delete(w.ctx, first, client.PropagationPolicy("Background")))
	second := w.create(ring)
	wait.Until(w.t, "it tells of Jobs that are in the way", func() error {
		for _, e := range w.events("ring") {
			if e.Reason == jobsetv1alpha2.EventJobCreationFailed && e.Regarding.UID == second.UID {
				return nil
			}
		}
		return errors.New("no event")
	})
	for name, j := range w.jobs() {
		if j.UID != old[name].UID || j.OwnerReferences[0].UID != first.UID || j.DeletionTimestamp != nil {
			t.Errorf("%s was touched", name)
		}
	}
	for _, j := range old {
		w.must(w.c.Delete(w.ctx, j, client.PropagationPolicy("Background")))
	}
	w.all(4, "belong to the new one", func(j *batchv1.Job) bool { return j.OwnerReferences[0].UID == second.UID })
}

// 60 §6.3: a child that a user deletes during a restart, and a JobSet that is deleted during one.
func TestDeletedInARestart(t *testing.T) {
	w := newWorld(t, plan.Config{})
	js := w.create(with("failurePolicy: {maxRestarts: 3}"))
	w.haveJobs(allOfRing...)
	w.setJob("ring-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.is("ring", jobsetv1alpha2.ConditionRestarting, metav1.ConditionTrue, jobsetv1alpha2.ReasonDefaultFailurePolicy)
	w.collect("ring-oar-1", "ring-oar-0")
	wait.Until(w.t, "one is back", func() error {
		if j := w.jobs()["ring-oar-0"]; j == nil || j.DeletionTimestamp != nil {
			return fmt.Errorf("%v", j)
		}
		return nil
	})
	w.must(w.c.Delete(w.ctx, w.jobs()["ring-oar-0"], client.PropagationPolicy("Background")))
	wait.Until(w.t, "it is back again", func() error {
		if j := w.jobs()["ring-oar-0"]; j == nil || j.Labels[jobsetv1alpha2.RestartAttemptKey] != "1" {
			return fmt.Errorf("%v", j)
		}
		return nil
	})
	w.must(w.c.Delete(w.ctx, js, client.PropagationPolicy("Foreground")))
	before := w.quiet(300 * time.Millisecond)
	w.collect("ring-oar-2") // which is not made again
	w.staysQuiet(300*time.Millisecond, before)
}

// 60 §4.12: an expired JobSet waits for its TrainJob.
func TestTimeToLiveOfATrainJob(t *testing.T) {
	w := newWorld(t, plan.Config{})
	train := &trainerv1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "ring", Namespace: w.namespace}}
	train.Spec.RuntimeRef.Name = "torch"
	w.must(w.c.Create(w.ctx, train))
	js := w.jobSet(with("ttlSecondsAfterFinished: 0"))
	js.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(train, trainerv1alpha1.GroupVersion.WithKind("TrainJob"))}
	w.must(w.c.Create(w.ctx, js))
	w.haveJobs(allOfRing...)
	w.setJob("ring-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.is("ring", jobsetv1alpha2.ConditionFailed, metav1.ConditionTrue, jobsetv1alpha2.ReasonFailedJobs)
	w.quiet(500 * time.Millisecond)
	if js := w.get("ring"); js.DeletionTimestamp != nil {
		t.Error("it is deleted before its TrainJob has finished")
	}
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"x","message":"","lastTransitionTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
	w.must(w.c.Status().Patch(w.ctx, train, client.RawPatch(types.MergePatchType, patch)))
	wait.Until(w.t, "it is deleted", func() error {
		if js := w.get("ring"); js.DeletionTimestamp == nil {
			return errors.New("not yet")
		}
		return nil
	})
}
