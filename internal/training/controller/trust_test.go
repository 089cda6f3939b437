package controller_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/trainjob"
	"github.com/berth-project/berth/internal/training/controller"
	"github.com/berth-project/berth/internal/training/plan"
)

// image is the image of the node container that a JobSet runs, or empty.
func (w *world) image(name string) string {
	w.t.Helper()
	jobset := w.findJobSet(name)
	if jobset == nil {
		return ""
	}
	return jobset.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image
}

// recorded waits until the status confirms the snapshot that exists, and returns the snapshot.
func (w *world) recorded(name string) *corev1.ConfigMap {
	w.t.Helper()
	var snapshot corev1.ConfigMap
	wait.Until(w.t, "the status of "+name+" records its snapshot", func() error {
		if err := w.c.Get(w.ctx, snapshotKey(w, name), &snapshot); err != nil {
			return err
		}
		status := w.job(name).Status.RuntimeSnapshot
		if status == nil || status.Hash != plan.SnapshotHash(&snapshot) {
			return fmt.Errorf("status %+v, snapshot %s", status, plan.SnapshotHash(&snapshot))
		}
		return nil
	})
	return &snapshot
}

// forge puts a snapshot with another image into the place of the TrainJob's.
func (w *world) forge(name string) {
	w.t.Helper()
	job := w.job(name)
	spec := acmeTorch()
	spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image = "img:forged"
	runtime := plan.NamespacedRuntime(&trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "acme-torch", Namespace: w.namespace}, Spec: spec})
	forged, err := plan.Snapshot(job, runtime, nil)
	w.must(err)
	w.must(client.IgnoreNotFound(w.c.Delete(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: forged.Name, Namespace: forged.Namespace}})))
	w.create(forged)
}

// TestForgedSnapshot: a user who may write ConfigMaps replaces the snapshot of a TrainJob, or makes one before the manager does. The
// JobSet is built from the runtime all the same.
func TestForgedSnapshot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(w *world)
	}{
		"while the manager runs": {func(w *world) {
			w.create(w.newJob("lark", "suspend: true"))
			w.jobset("lark", suspendIs(true))
			w.recorded("lark")
			w.forge("lark")
			w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Labels = map[string]string{"a": "b"} }))
		}},
		"while the manager is away": {func(w *world) {
			w.create(w.newJob("lark", "suspend: true"))
			w.jobset("lark", suspendIs(true))
			w.recorded("lark")
			w.stop()
			w.forge("lark")
			w.start()
		}},
		"before the manager made one": {func(w *world) {
			w.stop()
			w.create(w.newJob("lark", "suspend: true"))
			w.forge("lark")
			w.start()
		}},
		"before the runtime existed": {func(w *world) {
			w.stop()
			var runtime trainerv1alpha1.TrainingRuntime
			w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "acme-torch"}, &runtime))
			w.must(w.c.Delete(w.ctx, &runtime))
			w.create(w.newJob("lark", "suspend: true"))
			w.start()
			w.has("lark", isSuspended)
			w.stop()
			w.forge("lark")
			w.create(&trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "acme-torch"}, Spec: acmeTorch()})
			w.start()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			tc.prepare(w)
			wait.Until(w.t, "the forged snapshot is replaced", func() error {
				var snapshot corev1.ConfigMap
				if err := w.c.Get(w.ctx, snapshotKey(w, "lark"), &snapshot); err != nil {
					return err
				}
				if strings.Contains(snapshot.Data[plan.SnapshotKey], "img:forged") {
					return errors.New("it is still there")
				}
				return nil
			})
			w.recorded("lark")
			w.jobset("lark", suspendIs(true))
			w.waitQuiet()
			if image := w.image("lark"); image != "img:a" {
				t.Errorf("the JobSet runs %s", image)
			}
			w.hasEvent("lark", "Warning TrainJobResourcesCreationFailed")
		})
	}
}

// TestSnapshotOfEarlierVersion: a TrainJob whose status records no snapshot, because the version that began it did not, keeps its
// snapshot although the runtime has changed since. The snapshot is recorded then.
func TestSnapshotOfEarlierVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.create(w.newJob("lark", "suspend: true"))
	w.jobset("lark", suspendIs(true))
	before := w.recorded("lark")
	w.has("lark", isSuspended)
	w.stop()
	job := w.job("lark")
	job.Status.RuntimeSnapshot = nil
	w.must(w.c.Status().Update(w.ctx, job))
	var runtime trainerv1alpha1.TrainingRuntime
	w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "acme-torch"}, &runtime))
	runtime.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image = "img:b"
	w.must(w.c.Update(w.ctx, &runtime))
	w.start()
	if after := w.recorded("lark"); after.UID != before.UID {
		t.Error("the snapshot was made again")
	}
	if image := w.image("lark"); image != "img:a" {
		t.Errorf("the JobSet runs %s", image)
	}
}

// TestForeignConfigMap: a ConfigMap that has the name of a TrainJob's, and is not controlled by it, is left as it is, and an event names it.
func TestForeignConfigMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	runtime := &trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "mpi"}, Spec: acmeTorch()}
	runtime.Spec.MLPolicy = &trainerv1alpha1.MLPolicy{MLPolicySource: trainerv1alpha1.MLPolicySource{MPI: &trainerv1alpha1.MPIPolicy{}}}
	w.create(runtime)
	theirs := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "lark-mpi-hostfile"}, Data: map[string]string{"hostfile": "theirs", "more": "x"},
	}
	w.create(theirs)
	w.create(w.newJob("lark", "{runtimeRef: {name: mpi, kind: TrainingRuntime}, trainer: {numNodes: 2}}"))
	w.hasEvent("lark", "Warning TrainJobResourcesCreationFailed")
	for _, e := range w.eventsOf("lark") {
		if !strings.Contains(e.Message, "ConfigMap lark-mpi-hostfile exists and is not the TrainJob's") {
			t.Errorf("event %s", e.Message)
		}
	}
	var now corev1.ConfigMap
	w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(theirs), &now))
	if now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("it was written: %+v", now)
	}
	w.must(w.c.Delete(w.ctx, &now))
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Labels = map[string]string{"a": "b"} }))
	w.jobset("lark", suspendIs(false))
	if err := w.c.Get(w.ctx, client.ObjectKeyFromObject(theirs), &now); apierrors.IsNotFound(err) || !metav1.IsControlledBy(&now, w.job("lark")) {
		t.Errorf("it is not made once the name is free: %v, %+v", err, now)
	}
}

// TestSuspendedWithoutObjects: whatever keeps the objects of a TrainJob from being applied, the queue can stop it. The suspension reaches its
// JobSet, and the counters, for which the queue waits, are mirrored.
func TestSuspendedWithoutObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *controller.Options) { o.Recheck = time.Hour }) // no check may fall between the deletion of an object and its obstacle
	mpi := &trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "mpi"}, Spec: acmeTorch()}
	mpi.Spec.MLPolicy = &trainerv1alpha1.MLPolicy{MLPolicySource: trainerv1alpha1.MLPolicySource{MPI: &trainerv1alpha1.MPIPolicy{}}}
	w.create(mpi)
	obstacles := map[string]client.Object{
		"snapshot":  &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "snapshot-runtime-snapshot"}},
		"hostfile":  &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hostfile-mpi-hostfile"}},
		"immutable": &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "immutable-mpi-hostfile"}, Immutable: new(true)},
		"keys":      &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys-mpi-ssh-auth"}},
	}
	for name := range obstacles {
		running := w.newJob(name, "{runtimeRef: {name: mpi, kind: TrainingRuntime}, trainer: {numNodes: 2}}")
		running.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf(trainerv1alpha1.QueuePatchManager, selector("a"))}
		w.create(running)
		w.jobset(name, suspendIs(false))
		w.report(name, runs)
		w.recorded(name)
	}
	w.waitQuiet()
	for name, obstacle := range obstacles {
		obstacle.SetNamespace(w.namespace)
		w.must(w.c.Delete(w.ctx, obstacle))
		if name == "immutable" {
			obstacle.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(w.job(name), trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob))})
		}
		obstacle.SetResourceVersion("")
		w.create(obstacle)
	}
	stop := func(name string) job.Step {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob))
		w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, o))
		step, changed := trainjob.Descriptor(plan.DefaultConfig()).Stops.Next(o, nil, job.WorkloadEvicted)
		if step == job.Change {
			w.must(w.c.Update(w.ctx, changed))
		}
		return step
	}
	for name := range obstacles {
		wait.Until(w.t, "TrainJob "+name+" is active", func() error {
			if !plan.IsActive(&w.job(name).Status) {
				return errors.New("it is not")
			}
			return nil
		})
		if step := stop(name); step != job.Change {
			t.Errorf("%s: step %v", name, step)
		}
	}
	for name := range obstacles {
		w.jobset(name, suspendIs(true))
		w.report(name, active(0))
		wait.Until(w.t, "TrainJob "+name+" is stopped", func() error {
			if step := stop(name); step != job.Stopped {
				return fmt.Errorf("step %v", step)
			}
			return nil
		})
		w.hasEvent(name, "Warning TrainJobResourcesCreationFailed")
	}
}
