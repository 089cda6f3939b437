package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/training/plan"
)

// FuzzReadSnapshot: any content of a snapshot is read or refused, within bounds, and what is read is the runtime of the TrainJob.
func FuzzReadSnapshot(f *testing.F) {
	f.Add("{}")
	f.Add("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\nmetadata: {name: torch-distributed}\n")
	f.Add("a: &a [b, b]\nc: [*a, *a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		job := &trainerv1alpha1.TrainJob{}
		job.Name, job.UID, job.Spec.RuntimeRef.Name = "lark", "u", "torch-distributed"
		snapshot := &corev1.ConfigMap{Data: map[string]string{plan.SnapshotKey: text}}
		snapshot.OwnerReferences = append(snapshot.OwnerReferences, plan.Owner(job))
		job.Status.RuntimeSnapshot = &trainerv1alpha1.RuntimeSnapshotStatus{Hash: plan.SnapshotHash(snapshot)}
		embeddedtest.Bounded(t, len(text), func() {
			if r, err := plan.ReadSnapshot(job, snapshot); err == nil && r.Name != "torch-distributed" {
				t.Errorf("read runtime %s", r.Name)
			}
		})
	})
}
