package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

// TestMissingJobSet: a JobSet that is gone has the end of its deletion event, however often it is missed before that arrives. Without an event it
// counts as deleted after a while.
func TestMissingJobSet(t *testing.T) {
	job := &trainerv1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "wren", UID: "job"}}
	jobset := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "wren", UID: "jobset", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: trainerv1alpha1.GroupVersion.String(), Kind: trainerv1alpha1.KindTrainJob, Name: "wren", UID: "job", Controller: new(true)},
	}}}
	jobset.Status.Conditions = []metav1.Condition{{Type: string(jobsetv1alpha2.ConditionFailed), Status: metav1.ConditionTrue}}
	start := time.Unix(1000, 0)
	missed := func(times int, apart time.Duration) (m *memory, deleted bool) {
		m = newMemory()
		m.noteApplied(job, jobSetID, applied{version: versionOf(jobset)})
		for i := range times {
			m.noteMissing(job, start.Add(time.Duration(i)*apart))
		}
		m.update(job, func(k *known) { deleted = k.deleted != nil })
		return m, deleted
	}
	m, deleted := missed(4, eventDelay/4)
	if deleted {
		t.Fatal("it counts as deleted before its event can have arrived")
	}
	m.noteDeleted(jobset)
	m.update(job, func(k *known) {
		if k.deleted == nil || k.deleted.end == nil {
			t.Errorf("its end is lost: %+v", k.deleted)
		}
	})
	if _, deleted := missed(2, eventDelay); !deleted {
		t.Error("without an event it never counts as deleted")
	}
	for _, version := range []string{"example.com/v1", trainerv1alpha1.GroupVersion.Group + "/v9"} {
		foreign := jobset.DeepCopy()
		foreign.OwnerReferences[0].APIVersion, foreign.OwnerReferences[0].Name = version, "other"
		m := newMemory()
		if m.noteDeleted(foreign); len(m.jobs) > 0 {
			t.Errorf("a JobSet of a TrainJob of %s is remembered, which nothing reconciles", version)
		}
	}
}
