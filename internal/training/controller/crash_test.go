package controller_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

// TestKilledAtAnyWrite takes a TrainJob through its whole life, with a suspension and two changes of its patches, with the
// manager killed at each of its writes in turn and started again. The end is the same every time.
func TestKilledAtAnyWrite(t *testing.T) {
	if testing.Short() {
		t.Skip("starts dozens of managers")
	}
	t.Parallel()
	embeddedtest.AtEveryWrite(t, 9, func(t *testing.T, m *embeddedtest.Mortal) {
		w := newStoppedWorld(t, nil)
		plain := w.rest
		w.rest = rest.CopyConfig(plain)
		w.rest.Wrap(m.Wrap)
		w.start()
		revive := func() {
			m.Revive(func() {
				w.stop()
				w.rest = plain
				w.start()
			})
		}
		live(t, w, revive)
		w.stop()
	})
}

// live is the life of one TrainJob. revive starts the manager again if it was killed.
func live(t *testing.T, w *world, revive func()) {
	t.Helper()
	until := func(what string, check func() error) {
		t.Helper()
		wait.Until(w.t, what, func() error { revive(); return check() })
	}
	runtime := &trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "mpi"}, Spec: acmeTorch()}
	runtime.Spec.MLPolicy = &trainerv1alpha1.MLPolicy{MLPolicySource: trainerv1alpha1.MLPolicySource{MPI: &trainerv1alpha1.MPIPolicy{}}}
	w.create(runtime)
	w.create(w.newJob("lark", "{suspend: true, runtimeRef: {name: mpi, kind: TrainingRuntime}, trainer: {numNodes: 2}}"))
	jobset := func(suspended bool, zone string) func() error {
		return func() error {
			js := w.findJobSet("lark")
			if js == nil || js.Spec.Suspend == nil || *js.Spec.Suspend != suspended || js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector["zone"] != zone {
				return fmt.Errorf("%+v", js)
			}
			return nil
		}
	}
	has := func(want ...string) func() error {
		return func() error {
			if got := conditions(w.job("lark")); !slices.Equal(got, want) {
				return fmt.Errorf("%q, want %q", got, want)
			}
			return nil
		}
	}
	set := func(suspend bool, zone string) func() error {
		return func() error { // the webhook of a stopped manager does not answer
			return w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) {
				j.Spec.Suspend = new(suspend)
				j.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf(trainerv1alpha1.QueuePatchManager, selector(zone))}
			})
		}
	}
	until("the JobSet waits", jobset(true, ""))
	until("it is suspended", has(isSuspended))
	var made corev1.Secret
	w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "lark-mpi-ssh-auth"}, &made))
	before := w.findJobSet("lark").UID
	until("one update patches and starts", set(false, "a"))
	until("the JobSet runs", jobset(false, "a"))
	until("it is resumed", has(isResumed))
	until("it is stopped", set(true, "a"))
	until("the JobSet stops", jobset(true, "a"))
	until("it starts elsewhere", set(false, "b"))
	until("the JobSet runs elsewhere", jobset(false, "b"))
	w.report("lark", ends("Completed", "AllJobsCompleted"))
	until("it completes", has(isResumed, "Complete=True/AllJobsCompleted: the JobSet's words"))
	recorded := func() error {
		var snapshot corev1.ConfigMap
		w.must(w.c.Get(w.ctx, snapshotKey(w, "lark"), &snapshot))
		hashes, _ := patch.BuiltFrom(snapshot.Annotations)
		s := w.job("lark").Status.RuntimePatches
		if want := patch.Hashes(w.job("lark").Spec.RuntimePatches, nil); !cmp.Equal(hashes, want) || len(s) != 1 || s[0].State != trainerv1alpha1.RuntimePatchApplied {
			return fmt.Errorf("built from %v, want %v; status %+v", hashes, want, s)
		}
		return nil
	}
	until("what was applied is recorded", recorded)
	w.waitQuiet()

	var secrets corev1.SecretList
	w.must(w.c.List(w.ctx, &secrets, client.InNamespace(w.namespace)))
	if len(secrets.Items) != 1 || secrets.Items[0].ResourceVersion != made.ResourceVersion {
		t.Errorf("the keys changed: %d Secrets", len(secrets.Items))
	}
	if after := w.findJobSet("lark"); after.UID != before || after.Generation != 4 { // made, started, stopped, started
		t.Errorf("the JobSet has generation %d, the same one %v", after.Generation, after.UID == before)
	}
	if got := w.events("lark"); len(got) > 1 { // one may tell of the write whose answer never came
		t.Errorf("events %q", got)
	}
}
