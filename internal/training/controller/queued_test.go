package controller_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/trainjob"
	jobwebhook "github.com/berth-project/berth/internal/job/webhook"
	"github.com/berth-project/berth/internal/training/plan"
)

// newQueuedWorld is a world in which every TrainJob waits in a queue.
func newQueuedWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, nil, &admission.Options{Options: jobwebhook.Options{
		Jobs: &job.Config{
			ManagedNamespaces: labels.Everything(), ManageAll: true, Topology: true,
			Kinds: job.Kinds{trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob): true},
		},
		Descriptors: []*job.Descriptor{trainjob.Descriptor(plan.DefaultConfig())},
	}})
}

// TestNameTaken creates a TrainJob whose name is taken: the API server refuses it with AlreadyExists, which clients test for.
// One that takes the name of a TrainJob that was deleted is accepted, whatever that one left behind.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	w := newQueuedWorld(t)
	w.create(w.newJob("lark", ""))
	first := w.jobset("lark", suspendIs(true))
	if err := w.c.Create(w.ctx, w.newJob("lark", "")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the name of a TrainJob: %v, want AlreadyExists", err)
	}
	w.must(w.c.Delete(w.ctx, w.job("lark"))) // nothing collects garbage here: the snapshot stays
	w.create(w.newJob("lark", ""))
	w.jobset("lark", func(j *jobsetv1alpha2.JobSet) bool {
		return j.UID != first.UID && metav1.IsControlledBy(j, w.job("lark"))
	})

	// A ConfigMap of the user's is in the way of the TrainJob, and not of its creation.
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "wren-runtime-snapshot"}})
	w.create(w.newJob("wren", ""))
	if err := w.c.Create(w.ctx, w.newJob("wren", "")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the name of a TrainJob that cannot start: %v, want AlreadyExists", err)
	}
	w.hasEvent("wren", "Warning TrainJobResourcesCreationFailed")
}

// TestSchemaFirst: what the schema says of a new TrainJob is said by the API server, with the field, and not by a webhook that cannot
// read it.
func TestSchemaFirst(t *testing.T) {
	t.Parallel()
	w := newQueuedWorld(t)
	create := func(spec string) error {
		job := &unstructured.Unstructured{}
		w.must(yaml.Unmarshal([]byte("{metadata: {name: lark, namespace: "+w.namespace+"}, spec: "+spec+"}"), &job.Object))
		job.SetGroupVersionKind(trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob))
		return w.c.Create(w.ctx, job)
	}
	invalid(t, create("{runtimeRef: {name: acme-torch}, trainer: {numNodes: two}}"), "spec.trainer.numNodes")
	invalid(t, create("{runtimeRef: {kind: TrainingRuntime}}"), "spec.runtimeRef.name")
	invalid(t, create("{trainer: {numNodes: 1}}"), "spec.runtimeRef")
	invalid(t, create("{runtimeRef: {name: ''}}"), "spec.runtimeRef.name")
	denied(t, create("{runtimeRef: {name: a/b}}"), "must be created before the TrainJob")
	invalid(t, w.c.Create(w.ctx, w.newJob("a/b", "")), "metadata.name")
}

// TestTargetsSaidOnce has patches name what the runtime does not have: it is said once, where the patch is.
func TestTargetsSaidOnce(t *testing.T) {
	t.Parallel()
	w := newQueuedWorld(t)
	job := w.newJob("lark", "")
	job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", "{containers: [{name: ghost}]}"), patchOf("b.io/y", "{}")}
	job.Spec.RuntimePatches[1].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Name = "nope"
	err := w.c.Create(w.ctx, job)
	const at = "].trainingRuntimeSpec.template.spec.replicatedJobs["
	denied(t, err, "spec.runtimePatches[0"+at+"node].template.spec.template.spec.containers[ghost]", "spec.runtimePatches[1"+at+"nope]")
	for _, text := range []string{"no container of that name", "no replicated job of that name"} {
		if n := strings.Count(err.Error(), text); n != 1 {
			t.Errorf("%q is said %d times in %s", text, n, err)
		}
	}
	if strings.Contains(err.Error(), "spec.runtimeRef") {
		t.Errorf("the runtime is blamed: %s", err)
	}
	job = w.newJob("wren", "runtimeRef: {name: none}")
	if err := w.c.Create(w.ctx, job); strings.Count(err.Error(), "spec.runtimeRef") != 1 {
		t.Errorf("a runtime that does not exist is not said once: %s", err)
	}
}
