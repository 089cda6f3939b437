package controller_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/training/controller"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/plan/patch"
)

func conditions(job *trainerv1alpha1.TrainJob) []string {
	out := []string{}
	for _, c := range job.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s/%s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return out
}

// has waits until a TrainJob has exactly these conditions.
func (w *world) has(name string, want ...string) {
	w.t.Helper()
	wait.Until(w.t, "TrainJob "+name+" has its conditions", func() error {
		if got := conditions(w.job(name)); !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}

const (
	isSuspended = "Suspended=True/Suspended: TrainJob is suspended"
	isResumed   = "Suspended=False/Resumed: TrainJob is resumed"
	isOverdue   = "Failed=True/DeadlineExceeded: TrainJob exceeded its active deadline"
)

// eventsOf lists the core/v1 events of a TrainJob. All of them are as clients expect (spec: 50 §4.12, §5.2).
func (w *world) eventsOf(name string) []corev1.Event {
	w.t.Helper()
	var list corev1.EventList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	var out []corev1.Event
	for _, e := range list.Items {
		if e.InvolvedObject.Name == name && e.InvolvedObject.Kind == "TrainJob" {
			if e.FirstTimestamp.IsZero() || e.ReportingController != "trainer-trainjob-controller" || e.Action != "Reconciling" {
				w.t.Errorf("event %s has firstTimestamp %v, reporting component %q and action %q", e.Reason, e.FirstTimestamp, e.ReportingController, e.Action)
			}
			out = append(out, e)
		}
	}
	return out
}

// events lists the types and reasons of the events of a TrainJob.
func (w *world) events(name string) []string {
	w.t.Helper()
	out := []string{}
	for _, e := range w.eventsOf(name) {
		out = append(out, e.Type+" "+e.Reason)
	}
	return out
}

// times is how often events of a reason were told about a TrainJob.
func (w *world) times(name, reason string) (n int32) {
	w.t.Helper()
	for _, e := range w.eventsOf(name) {
		if e.Reason == reason {
			n += e.Count
		}
	}
	return n
}

func (w *world) hasEvent(name, want string) {
	w.t.Helper()
	wait.Until(w.t, "TrainJob "+name+" has event "+want, func() error {
		if got := w.events(name); !slices.Contains(got, want) {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
}

func snapshotAnnotation(w *world, name string) string {
	w.t.Helper()
	var snapshot corev1.ConfigMap
	w.must(w.c.Get(w.ctx, snapshotKey(w, name), &snapshot))
	return snapshot.Annotations[patch.Annotation]
}

func snapshotKey(w *world, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.namespace, Name: name + "-runtime-snapshot"}
}

// TestLife is 50 §7, 1, 21 to 24: created, run, completed; suspended, resumed; the runtime edited and deleted meanwhile.
func TestLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.create(w.newJob("lark", ""))
	jobset := w.jobset("lark", suspendIs(false))
	node := &jobset.Spec.ReplicatedJobs[0]
	job := w.job("lark")
	if *node.Template.Spec.Parallelism != 3 || *node.Template.Spec.Completions != 3 || !metav1.IsControlledBy(jobset, job) {
		t.Errorf("JobSet %+v", jobset)
	}
	if diff := cmp.Diff(map[string]string{"from": "template"}, jobset.Labels); diff != "" || len(jobset.Annotations) > 0 || len(jobset.Finalizers)+len(job.Finalizers) > 0 {
		t.Errorf("labels %v, annotations %v", jobset.Labels, jobset.Annotations)
	}
	managers := map[string]bool{}
	for _, f := range jobset.ManagedFields {
		managers[f.Manager+" "+string(f.Operation)] = true
	}
	if diff := cmp.Diff(map[string]bool{"trainer Apply": true}, managers); diff != "" {
		t.Errorf("field managers (-want +got):\n%s", diff)
	}
	if job.Spec.Suspend == nil || *job.Spec.Suspend || *job.Spec.ManagedBy != trainerv1alpha1.DefaultManager {
		t.Errorf("defaults: %+v", job.Spec)
	}
	w.report("lark", active(1))
	wait.Until(w.t, "the counters are mirrored", func() error {
		if s := w.job("lark").Status; len(s.JobsStatus) != 1 || s.JobsStatus[0].Active != 1 || len(s.Conditions) > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	w.report("lark", ends("Completed", "AllJobsCompleted"))
	w.has("lark", "Complete=True/AllJobsCompleted: the JobSet's words")
	if at := w.job("lark").Status.Conditions[0].LastTransitionTime; at.Unix() != 1_800_000_000 {
		t.Errorf("it completed at %v", at)
	}
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Spec.Suspend = new(true) })) // which says so, and does nothing else
	w.has("lark", "Complete=True/AllJobsCompleted: the JobSet's words", isSuspended)
	if done := w.findJobSet("lark"); done == nil || *done.Spec.Suspend {
		t.Errorf("the JobSet of a TrainJob that has finished is %+v", done)
	}

	w.create(w.newJob("wren", "suspend: true"))
	w.jobset("wren", suspendIs(true))
	w.has("wren", isSuspended)
	var snapshot corev1.ConfigMap
	w.must(w.c.Get(w.ctx, snapshotKey(w, "wren"), &snapshot))
	if !strings.Contains(snapshot.Data["runtime"], "img:a") || !metav1.IsControlledBy(&snapshot, w.job("wren")) {
		t.Errorf("snapshot %+v", snapshot)
	}
	var runtime trainerv1alpha1.TrainingRuntime
	w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "acme-torch"}, &runtime))
	runtime.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image = "img:b"
	w.must(w.c.Update(w.ctx, &runtime))
	w.must(w.change(w.c, "wren", func(j *trainerv1alpha1.TrainJob) { j.Spec.Suspend = new(false) }))
	if image := w.jobset("wren", suspendIs(false)).Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image; image != "img:a" {
		t.Errorf("a runtime that changed gets into a TrainJob that has begun: %s", image)
	}
	w.has("wren", isResumed)
	w.must(w.c.Delete(w.ctx, &runtime))
	w.must(w.change(w.c, "wren", func(j *trainerv1alpha1.TrainJob) { j.Spec.Suspend = new(true) }))
	w.jobset("wren", suspendIs(true))
	w.has("wren", isSuspended)
	w.report("wren", ends("Failed", "FailedJobs"))
	w.has("wren", isSuspended, "Failed=True/FailedJobs: the JobSet's words")
	if got := w.events("wren"); len(got) > 0 {
		t.Errorf("events %q", got)
	}
}

// TestNameAgain is 50 §7, 25: a TrainJob that is made again does not begin with what the first one left. Nothing collects
// garbage here, so the leftovers stay until they are found; the manager may not delete Secrets, and waits for that.
func TestNameAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	runtime := &trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "mpi"}}
	runtime.Spec = acmeTorch()
	runtime.Spec.MLPolicy = &trainerv1alpha1.MLPolicy{MLPolicySource: trainerv1alpha1.MLPolicySource{MPI: &trainerv1alpha1.MPIPolicy{}}}
	w.create(runtime)
	spec := "runtimeRef: {name: mpi, kind: TrainingRuntime}"
	w.create(w.newJob("lark", spec))
	first := w.jobset("lark", suspendIs(false))
	w.must(w.c.Delete(w.ctx, w.job("lark")))
	runtime.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image = "img:b"
	w.must(w.c.Update(w.ctx, runtime))
	w.create(w.newJob("lark", spec))
	w.must(w.c.Delete(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "lark-mpi-ssh-auth"}})) // as Kubernetes does
	second := w.jobset("lark", func(j *jobsetv1alpha2.JobSet) bool { return metav1.IsControlledBy(j, w.job("lark")) })
	if image := second.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image; image != "img:b" || second.UID == first.UID {
		t.Errorf("image %s", image)
	}
	var secret corev1.Secret
	w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "lark-mpi-ssh-auth"}, &secret))
	if !metav1.IsControlledBy(&secret, w.job("lark")) {
		t.Errorf("the Secret is that of the first TrainJob")
	}
}

// TestMPI is 50 §7, 15: keys are made once, and the host file is put right when somebody changes it.
func TestMPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	runtime := &trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "mpi"}}
	runtime.Spec = acmeTorch()
	runtime.Spec.MLPolicy = &trainerv1alpha1.MLPolicy{MLPolicySource: trainerv1alpha1.MLPolicySource{MPI: &trainerv1alpha1.MPIPolicy{}}}
	w.create(runtime)
	w.create(w.newJob("lark", "{runtimeRef: {name: mpi, kind: TrainingRuntime}, trainer: {numNodes: 2, numProcPerNode: 3}}"))
	w.jobset("lark", suspendIs(false))
	secretKey, hostKey := client.ObjectKey{Namespace: w.namespace, Name: "lark-mpi-ssh-auth"}, client.ObjectKey{Namespace: w.namespace, Name: "lark-mpi-hostfile"}
	var secret, later corev1.Secret
	w.must(w.c.Get(w.ctx, secretKey, &secret))
	block, _ := pem.Decode(secret.Data["ssh-privatekey"])
	if block == nil || block.Type != "EC PRIVATE KEY" || len(secret.Data) != 2 || !strings.HasPrefix(string(secret.Data["ssh-publickey"]), "ecdsa-sha2-nistp521 AAAA") {
		t.Fatalf("Secret %v", secret.Data)
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err != nil || key.Curve.Params().BitSize != 521 {
		t.Errorf("private key: %v", err)
	}
	const hosts = "lark-node-0-0.lark slots=3\nlark-node-0-1.lark slots=3\n"
	var hostfile corev1.ConfigMap
	w.must(w.c.Get(w.ctx, hostKey, &hostfile))
	if hostfile.Data["hostfile"] != hosts {
		t.Errorf("host file %q", hostfile.Data)
	}
	hostfile.Data = map[string]string{"hostfile": "nobody"}
	w.must(w.c.Update(w.ctx, &hostfile))
	wait.Until(w.t, "the host file is put right", func() error {
		w.must(w.c.Get(w.ctx, hostKey, &hostfile))
		if hostfile.Data["hostfile"] != hosts {
			return fmt.Errorf("%q", hostfile.Data)
		}
		return nil
	})
	w.must(w.c.Delete(w.ctx, &hostfile))
	wait.Until(w.t, "the host file is made again", func() error { return w.c.Get(w.ctx, hostKey, &hostfile) })
	w.must(w.c.Get(w.ctx, secretKey, &later))
	if later.ResourceVersion != secret.ResourceVersion {
		t.Error("the Secret was written again")
	}
}

// TestPodGroup: the group follows the TrainJob while it is suspended, and is left alone afterwards.
func TestPodGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	runtime := &trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "gang"}, Spec: acmeTorch()}
	runtime.Spec.PodGroupPolicy = &trainerv1alpha1.PodGroupPolicy{PodGroupPolicySource: trainerv1alpha1.PodGroupPolicySource{Coscheduling: &trainerv1alpha1.CoschedulingPolicy{}}}
	w.create(runtime)
	w.create(w.newJob("lark", "{suspend: true, runtimeRef: {name: gang, kind: TrainingRuntime}}"))
	if mark := w.jobset("lark", suspendIs(true)).Spec.ReplicatedJobs[0].Template.Spec.Template.Labels["scheduling.x-k8s.io/pod-group"]; mark != "lark" {
		t.Errorf("mark %q", mark)
	}
	group := func() *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(plan.CoschedulingPodGroup)
		w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "lark"}, u))
		return u
	}
	members := func() int64 {
		n, _, _ := unstructured.NestedInt64(group().Object, "spec", "minMember")
		return n
	}
	if members() != 3 {
		t.Errorf("%d members", members())
	}
	set := func(n int64) {
		u := group()
		w.must(unstructured.SetNestedField(u.Object, n, "spec", "minMember"))
		w.must(w.c.Update(w.ctx, u))
	}
	set(7)
	wait.Until(w.t, "the group is put right", func() error {
		if n := members(); n != 3 {
			return fmt.Errorf("%d members", n)
		}
		return nil
	})
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Spec.Suspend = new(false) }))
	w.jobset("lark", suspendIs(false))
	set(7)
	w.waitQuiet()
	if members() != 7 {
		t.Error("the group of a TrainJob that runs was written")
	}
}

// TestDeadline is 50 §7, 26 to 28.
func TestDeadline(t *testing.T) {
	w := newWorld(t, nil)
	failures := 2
	w.traffic.failing(func(r *http.Request) bool {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/jobsets/lark") && failures > 0 {
			failures--
			return true
		}
		return false
	})
	w.create(w.newJob("lark", "activeDeadlineSeconds: 2"))
	w.create(w.newJob("wren", "{activeDeadlineSeconds: 2, suspend: true}"))
	w.create(w.newJob("owl", "{activeDeadlineSeconds: 1, suspend: true}"))
	w.jobset("lark", suspendIs(false))
	w.has("lark", isOverdue)
	if c := w.job("lark"); c.Status.Conditions[0].LastTransitionTime.Sub(c.CreationTimestamp.Time) < 2*time.Second {
		t.Error("it failed before its deadline")
	}
	wait.Until(w.t, "the JobSet is gone", func() error {
		if j := w.findJobSet("lark"); j != nil {
			return fmt.Errorf("%v", j.DeletionTimestamp)
		}
		return nil
	})
	w.waitQuiet()
	if w.findJobSet("lark") != nil {
		t.Error("the JobSet was made again")
	}
	w.has("wren", isSuspended)
	resumed := time.Now().Truncate(time.Second)
	w.must(w.change(w.c, "wren", func(j *trainerv1alpha1.TrainJob) { j.Spec.Suspend = new(false) }))
	w.has("wren", isResumed, isOverdue)
	if at := w.job("wren").Status.Conditions[1].LastTransitionTime; at.Sub(resumed) < 2*time.Second {
		t.Errorf("resumed at %v, failed at %v", resumed, at)
	}
	w.has("owl", isSuspended)
	w.stop()
	w.must(w.change(w.c, "owl", func(j *trainerv1alpha1.TrainJob) { j.Spec.Suspend = new(false) }))
	owl := w.job("owl")
	owl.Status.Conditions = []metav1.Condition{{Type: "Suspended", Status: "False", Reason: "Resumed", Message: "TrainJob is resumed", LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))}}
	w.must(w.c.Status().Update(w.ctx, owl))
	w.start()
	w.has("owl", isResumed, isOverdue)
}

// refuseStatus refuses writes of the status of a TrainJob, and counts them, until allow is called.
func (w *world) refuseStatus(name string) (refused *atomic.Int32, allow func()) {
	var allowed atomic.Bool
	refused = &atomic.Int32{}
	w.traffic.failing(func(r *http.Request) bool {
		is := !allowed.Load() && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/trainjobs/"+name+"/status")
		if is {
			refused.Add(1)
		}
		return is
	})
	return refused, func() { allowed.Store(true) }
}

// TestLostDeadline: a JobSet that was deleted after the deadline is not created again, nor is its deletion the user's, if the status cannot be
// written.
func TestLostDeadline(t *testing.T) {
	t.Parallel()
	for _, keepDeleted := range []bool{false, true} {
		var ahead atomic.Int64
		w := newWorld(t, func(o *controller.Options) {
			o.KeepDeleted, o.Now = keepDeleted, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		w.create(w.newJob("lark", "activeDeadlineSeconds: 3600"))
		first := w.jobset("lark", suspendIs(false))
		w.waitQuiet()
		refused, allow := w.refuseStatus("lark")
		ahead.Store(int64(2 * time.Hour))
		w.report("lark", active(1))
		wait.Until(t, "the JobSet is deleted", func() error {
			if j := w.findJobSet("lark"); j != nil && j.UID == first.UID {
				return errors.New("it exists")
			}
			return nil
		})
		before := refused.Load()
		wait.Until(t, "the status is written again after the deletion", func() error {
			if refused.Load() < before+2 {
				return errors.New("it is not")
			}
			return nil
		})
		allow()
		w.has("lark", isOverdue)
		created := slices.DeleteFunc(w.traffic.in(w.namespace), func(line string) bool { return line != "PATCH jobsets/lark 201" })
		if len(created) != 1 {
			t.Errorf("keepDeleted %v: the JobSet was created %d times", keepDeleted, len(created))
		}
	}
}

// TestDeletedJobSet is 50 §7, 29 and 30.
func TestDeletedJobSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, name := range []string{"lark", "wren"} {
		w.create(w.newJob(name, ""))
	}
	first := w.jobset("lark", suspendIs(false))
	w.must(w.c.Delete(w.ctx, first))
	w.jobset("lark", func(j *jobsetv1alpha2.JobSet) bool { return j.UID != first.UID && !*j.Spec.Suspend })

	// The manager may not write the status of wren before the JobSet is gone.
	w.jobset("wren", suspendIs(false))
	w.waitQuiet()
	refused, allow := w.refuseStatus("wren")
	w.report("wren", ends("Failed", "FailedJobs"))
	w.must(w.c.Delete(w.ctx, w.findJobSet("wren")))
	before := refused.Load()
	wait.Until(w.t, "the status is written again after the deletion", func() error {
		if refused.Load() == before {
			return errors.New("it is not")
		}
		return nil
	})
	allow()
	w.has("wren", "Failed=True/FailedJobs: the JobSet's words")
	w.waitQuiet()
	if w.findJobSet("wren") != nil {
		t.Error("a JobSet that failed was made again")
	}

	strict := newWorld(t, func(o *controller.Options) { o.KeepDeleted = true })
	strict.create(strict.newJob("lark", ""))
	strict.must(strict.c.Delete(strict.ctx, strict.jobset("lark", suspendIs(false))))
	strict.has("lark", "Failed=True/JobSetDeleted: The JobSet was deleted")
	if strict.findJobSet("lark") != nil {
		t.Error("the JobSet was made again")
	}
}

// TestNotOurs is 50 §7, 31, and a kind of runtime that is not known.
func TestNotOurs(t *testing.T) {
	w := newWorld(t, nil)
	w.create(w.newJob("lark", "managedBy: kueue.x-k8s.io/multikueue"))
	w.stop() // and with it the webhooks
	w.create(w.newJob("owl", "runtimeRef: {name: a, kind: Strange, apiGroup: b.io}"))
	w.create(w.newJob("gone", "runtimeRef: {name: gone}"))
	misfit := w.newJob("misfit", "")
	misfit.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", "{containers: [{name: ghost}]}")}
	w.create(misfit)
	foreign := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "taken"}}
	w.create(foreign)
	w.create(w.newJob("taken", ""))
	w.start()
	w.has("owl", "Failed=True/TrainingRuntimeNotSupported: Runtimes of kind Strange.b.io are not supported")
	w.hasEvent("gone", "Warning TrainJobResourcesCreationFailed")
	w.hasEvent("taken", "Warning TrainJobResourcesCreationFailed")
	w.hasEvent("misfit", "Warning TrainJobValidationFailed")
	if w.findJobSet("misfit") != nil || w.findJobSet("gone") != nil || metav1.GetControllerOf(w.findJobSet("taken")) != nil {
		t.Error("a JobSet was made that must not be")
	}
	if got := conditions(w.job("gone")); len(got) > 0 {
		t.Errorf("a failure makes no condition, but there are %q", got)
	}
	w.create(&trainerv1alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "gone", Finalizers: []string{trainerv1alpha1.ResourceInUseFinalizer}}, Spec: acmeTorch()})
	w.jobset("gone", suspendIs(false)) // tried again until the runtime is there
	wait.Until(w.t, "the old finalizer is removed", func() error {
		var r trainerv1alpha1.ClusterTrainingRuntime
		w.must(w.c.Get(w.ctx, client.ObjectKey{Name: "gone"}, &r))
		if len(r.Finalizers) > 0 {
			return fmt.Errorf("%v", r.Finalizers)
		}
		return nil
	})
	w.must(w.c.Delete(w.ctx, &trainerv1alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}))
	if w.findJobSet("lark") != nil || !cmp.Equal(w.job("lark").Status, trainerv1alpha1.TrainJobStatus{}) {
		t.Error("a TrainJob of another cluster was touched")
	}
	if err := w.c.Get(w.ctx, snapshotKey(w, "lark"), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("its snapshot: %v", err)
	}
}

// TestWrites counts what a TrainJob costs, and that it costs nothing more once nothing changes, also after a restart.
func TestWrites(t *testing.T) {
	w := newWorld(t, nil)
	job := w.newJob("lark", "suspend: true")
	w.create(job)
	w.has("lark", isSuspended)
	w.waitQuiet()
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) {
		j.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf(trainerv1alpha1.QueuePatchManager, "{nodeSelector: {zone: a}}")}
		j.Spec.Suspend = new(false)
	}))
	w.has("lark", isResumed)
	if a := snapshotAnnotation(w, "lark"); a != "" {
		t.Errorf("recorded before it runs: %s", a)
	}
	w.report("lark", runs)
	wait.Until(w.t, "what it is built from is recorded", func() error {
		if snapshotAnnotation(w, "lark") == "" {
			return errors.New("it is not")
		}
		return nil
	})
	w.waitQuiet()
	counts := map[string]int{}
	for _, line := range w.traffic.in(w.namespace) {
		if !strings.HasSuffix(line, " 409") { // the cache was behind, and nothing was written
			counts[line]++
		}
	}
	snapshots, jobsets, statuses := 0, 0, 0
	for line, n := range counts {
		switch {
		case strings.HasPrefix(line, "PATCH configmaps/lark-runtime-snapshot"):
			snapshots += n
		case strings.HasPrefix(line, "PATCH jobsets/lark"):
			jobsets += n
		case strings.HasPrefix(line, "PATCH trainjobs/lark/status"):
			statuses += n
		default:
			t.Errorf("%d times %s", n, line)
		}
	}
	// The second write of the snapshot records what the JobSet was built from, the third of the status that its pods run.
	if snapshots != 2 || jobsets != 2 || statuses != 3 {
		t.Errorf("%d writes of the snapshot, %d of the JobSet, %d of the status: %v", snapshots, jobsets, statuses, counts)
	}
	before := len(w.traffic.in(w.namespace))
	w.stop()
	w.start()
	w.waitQuiet()
	if after := w.traffic.in(w.namespace); len(after) != before {
		t.Errorf("a restart writes %v", after[before:])
	}
}

// TestSnapshotAgain is 50 §4.3: a snapshot that somebody deletes is made again from the live runtime, once something else wakes
// the TrainJob.
func TestSnapshotAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.create(w.newJob("lark", "suspend: true"))
	w.jobset("lark", suspendIs(true))
	w.has("lark", isSuspended)
	var runtime trainerv1alpha1.TrainingRuntime
	w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "acme-torch"}, &runtime))
	runtime.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image = "img:b"
	w.must(w.c.Update(w.ctx, &runtime))
	var snapshot corev1.ConfigMap
	w.must(w.c.Get(w.ctx, snapshotKey(w, "lark"), &snapshot))
	w.must(w.c.Delete(w.ctx, &snapshot))
	w.waitQuiet()
	if err := w.c.Get(w.ctx, snapshotKey(w, "lark"), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("the deletion woke the TrainJob: %v", err)
	}
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Labels = map[string]string{"a": "b"} }))
	w.jobset("lark", func(j *jobsetv1alpha2.JobSet) bool {
		return j.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Image == "img:b"
	})
	w.must(w.c.Get(w.ctx, snapshotKey(w, "lark"), &snapshot))
	if !strings.Contains(snapshot.Data["runtime"], "img:b") {
		t.Errorf("snapshot %s", snapshot.Data["runtime"])
	}
}

// TestPrunedRecord is 50 §4.13.6: where the CRD that is served drops status.runtimePatches, they are written once, and the rest
// of the status goes on.
func TestPrunedRecord(t *testing.T) {
	w := newWorld(t, nil)
	w.traffic.mu.Lock()
	w.traffic.prune = true
	w.traffic.mu.Unlock()
	job := w.newJob("lark", "suspend: true")
	job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{patchOf("a.io/x", selector("a"))}
	w.create(job)
	w.has("lark", isSuspended)
	w.waitQuiet()
	statuses := func() (n int) {
		for _, line := range w.traffic.in(w.namespace) {
			if line == "PATCH trainjobs/lark/status 200" {
				n++
			}
		}
		return n
	}
	before := statuses()
	for _, value := range []string{"b", "c", "d"} { // each wakes it
		w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Labels = map[string]string{"a": value} }))
		w.waitQuiet()
	}
	if after := statuses(); before == 0 || after != before {
		t.Errorf("%d writes of the status, and %d when nothing had changed", before, after-before)
	}
	w.must(w.change(w.c, "lark", func(j *trainerv1alpha1.TrainJob) { j.Spec.Suspend = new(false) }))
	w.jobset("lark", suspendIs(false))
	w.report("lark", ends("Completed", "AllJobsCompleted"))
	w.has("lark", isResumed, "Complete=True/AllJobsCompleted: the JobSet's words")
}
