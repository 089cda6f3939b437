package controller_test

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestHugeMPI: a TrainJob of two billion MPI nodes is refused with the field, on a dry run too. One that was stored while no webhook was
// called fails with a condition, and the manager goes on with others.
func TestHugeMPI(t *testing.T) {
	w := newQueuedWorld(t)
	var spec trainerv1alpha1.TrainingRuntimeSpec
	must(yaml.UnmarshalStrict([]byte(`
mlPolicy: {numNodes: 2, mpi: {runLauncherAsNode: true}}
template:
  spec:
    replicatedJobs:
      - name: node
        template: {spec: {template: {spec: {containers: [{name: node, image: i}]}}}}
      - name: launcher
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: i}]}}}
`), &spec))
	w.create(&trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "mpi"}, Spec: spec})
	huge := w.newJob("huge", "")
	huge.Spec.RuntimeRef.Name, huge.Spec.Trainer = "mpi", &trainerv1alpha1.Trainer{NumNodes: new(int32(2147483647))}
	wait.Until(w.t, "it is refused", func() error { // the runtime has to be in the cache
		err := w.c.Create(w.ctx, huge.DeepCopy(), client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.trainer.numNodes: Invalid value: 2147483647: the MPI hostfile would have at least ") {
			return errors.Join(errors.New("it is not refused"), err)
		}
		return nil // within the time limit of webhooks
	})

	w.stop()
	w.create(huge)
	w.start()
	wait.Until(w.t, "it fails", func() error {
		c := apimeta.FindStatusCondition(w.job("huge").Status.Conditions, string(trainerv1alpha1.ConditionFailed))
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != trainerv1alpha1.ReasonResourcesCreationFailed || !strings.Contains(c.Message, "the MPI hostfile") {
			return errors.New("it has not failed")
		}
		return nil
	})
	w.create(w.newJob("lark", ""))
	w.jobset("lark", suspendIs(true))
	if w.findJobSet("huge") != nil {
		t.Error("a JobSet was made")
	}
}
