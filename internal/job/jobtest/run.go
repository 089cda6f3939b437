// Package jobtest is the conformance suite of all kinds of jobs, on a real API
// server: queued, started, preempted, finished, deleted, with restarts at any
// write, and in unmanaged namespaces.
//
//	Manifest ─► create ─► Workload ─► admit ─► started ─► evict ─► restored …
//
// Third-party kinds have reduced CRDs, and the test stands in for their
// controllers, whose status it writes.
package jobtest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// State is a state in the status of a job.
type State string

// The states of a job that is not suspended; Stopped is for a suspended one.
const (
	Active    State = "active"    // pods run
	Stopped   State = "stopped"   // no pod runs any more
	Succeeded State = "succeeded" // it is over
	Failed    State = "failed"    // it is over
)

// Kind is a kind of jobs with its test data.
type Kind struct {
	Descriptor *job.Descriptor
	// Manifest is a job in YAML, without name, namespace and labels. Each of its pod templates has the node selector
	// zone: a and nothing that contradicts pool: h100.
	Manifest string
	// PodSets are the pod sets of the manifest, as name:count.
	PodSets []string
	// Objects are objects that the manifest refers to, in YAML.
	Objects []string
	// Status are statuses in YAML, by state.
	Status map[State]string
	// Templates are the templates of the pods that the controllers of the kind make, one for each pod set. Nil: as in its pod sets.
	Templates func(*testing.T, job.Object) []corev1.PodTemplateSpec
	// Writes is the number of writes of a whole life: 4 if 0.
	Writes int
	// Deleted reports that a job is stopped by deleting it. Its owners are judged at its creation only.
	Deleted bool
	// Ends reports that a running job can only be stopped for good. It is finished then.
	Ends bool
	// Ungated reports that the kind passes no scheduling gates to its pods, so that they cannot be placed.
	Ungated bool
	// Endless reports that a job of the kind never finishes by itself.
	Endless bool

	rest *rest.Config // the API server of the test
}

// parallel gives the test an API server of its own and runs it in parallel: a manager manages a whole cluster.
func (k *Kind) parallel(t *testing.T) *Kind {
	t.Parallel()
	own := *k
	own.rest = embeddedtest.Exclusive(t)
	return &own
}

// Run runs the suite for a kind. parent is a kind that may own jobs of it. Without -long half of the tests are left out, different ones for
// each kind, and a job in trouble lives one life of each sort.
func Run(t *testing.T, kind *Kind, parent *job.Descriptor) {
	kind = kind.parallel(t)
	kinds := []*job.Descriptor{kind.Descriptor}
	if parent.GVK != kind.Descriptor.GVK {
		kinds = append(kinds, parent)
	}
	w := newWorld(t, kind, kinds)
	w.start(nil)
	tests := []test{
		{"failed", failed},
		{"contradiction", contradiction},
		{"deleted", deleted},
		{"refused", refused},
		{"unmanaged namespace", unmanaged},
		{"namespace changes", namespaceChanges},
		{"namespace comes back", comesBack},
		{"given back", givenBack},
	}
	switch {
	case kind.Deleted:
		tests = append(tests, test{"removed", removed})
	case kind.Ends:
		tests = append(tests, test{"ended", ended}, test{"unsuspended by hand", byHand}, test{"child", child})
	default:
		tests = append(tests, test{"preempted", preempted}, test{"workload lost", lost}, test{"unsuspended by hand", byHand}, test{"child", child}, test{"stopped by its user", stoppedByUser})
	}
	for _, test := range append([]test{{"life", life}, {"placed", placed}}, embeddedtest.Sample(t, len(tests)/2, tests)...) {
		t.Run(test.name, func(t *testing.T) {
			at := *w
			at.t = t
			at.namespace = at.newNamespace("yes")
			test.run(&at)
			for _, line := range w.traffic.unpinned {
				t.Errorf("a patch without a resource version: %s", line)
			}
		})
	}
	w.stop()
	t.Run("comes back with the job's event first", func(t *testing.T) { newWorld(t, kind, kinds).away(calm, true) })
	inTrouble(t, kind, kinds)
}

// inTrouble runs two lives of a job: one with an eviction, one whose namespace leaves management for a while. Without -long one of them has a
// manager that is restarted, and one a manager whose writes fail.
func inTrouble(t *testing.T, kind *Kind, kinds []*job.Descriptor) {
	type life struct {
		name string
		run  func(*world, trouble)
	}
	lives := []life{
		{"evicted", func(w *world, start trouble) { w.through(start) }},
		{"comes back", func(w *world, start trouble) { w.away(start, false) }},
	}
	for _, l := range embeddedtest.Sample(t, 1, lives) {
		t.Run(l.name, func(t *testing.T) {
			dying(t, 4, func(t *testing.T, start trouble) { l.run(newWorld(t, kind, kinds), start) })
		})
	}
	for _, l := range embeddedtest.Sample(t, 1, lives) {
		t.Run(l.name, func(t *testing.T) {
			failing(t, 2, func(t *testing.T, start trouble) { l.run(newWorld(t, kind, kinds), start) })
		})
	}
}

// test is a part of the suite.
type test struct {
	name string
	run  func(*world)
}

// spec is the user's spec, as stored by the API server.
func spec(t *testing.T, o job.Object) any {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	return m["spec"]
}

func (w *world) suspended(o job.Object) error {
	if !w.kind.Descriptor.IsSuspended(w.again(o)) {
		return errors.New("it is not suspended")
	}
	return nil
}

func (w *world) runs(o job.Object) error {
	if w.kind.Descriptor.IsSuspended(w.again(o)) {
		return errors.New("it is suspended")
	}
	return nil
}

func (w *world) released(wl *kueue.Workload) error {
	if got := w.get(wl); lifecycle.IsReserved(got) {
		return fmt.Errorf("quota is reserved: %v", conditions(got))
	}
	return nil
}

func conditions(wl *kueue.Workload) []string {
	var out []string
	for _, c := range wl.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	slices.Sort(out)
	return out
}

// templates are the templates of the pods of a job.
func (w *world) templates(o job.Object) (out []corev1.PodTemplateSpec) {
	w.t.Helper()
	if w.kind.Templates != nil {
		return w.kind.Templates(w.t, o)
	}
	sets, err := w.kind.Descriptor.PodSets(o, &job.Setting{Config: w.cfg})
	w.must(err)
	for _, s := range sets {
		out = append(out, s.Template)
	}
	return out
}

// started checks that the pods have the admitted values.
func (w *world) started(o job.Object) {
	w.t.Helper()
	wait.Until(w.t, "the job runs", func() error { return w.runs(o) })
	want := make([]map[string]string, len(w.kind.PodSets))
	for i := range want {
		want[i] = map[string]string{"zone": "a", "pool": "h100"}
	}
	var got []map[string]string
	for _, t := range w.templates(w.again(o)) {
		got = append(got, t.Spec.NodeSelector)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("node selectors -want +got:\n%s", diff)
	}
}

// life is a job that is admitted and succeeds: in four writes and no more.
func life(w *world) {
	o := w.create("train", nil)
	wl := w.workloadOf(o)
	var sets []string
	for _, s := range wl.Spec.PodSets {
		sets = append(sets, fmt.Sprintf("%s:%d", s.Name, s.Count))
	}
	if diff := cmp.Diff(w.kind.PodSets, sets); diff != "" {
		w.t.Errorf("pod sets -want +got:\n%s", diff)
	}
	if owner := metav1.GetControllerOf(wl); owner == nil || owner.UID != o.GetUID() || wl.Spec.QueueName != "lq" {
		w.t.Errorf("owner %v, queue %s", owner, wl.Spec.QueueName)
	}
	w.waitUntilStable()
	if diff := cmp.Diff(o.GetResourceVersion(), w.again(o).GetResourceVersion()); diff != "" {
		w.t.Errorf("a waiting job was touched: %s", diff)
	}
	w.admit(wl)
	w.started(o)
	w.waitUntilStable()
	if got := w.get(wl); !lifecycle.IsAdmitted(got) || len(w.workloads()) != 1 {
		w.t.Errorf("conditions %v, %d workloads", conditions(got), len(w.workloads()))
	}
	if w.kind.Endless {
		return
	}
	w.status(o, Active)
	w.status(o, Succeeded)
	wait.Until(w.t, "the workload is let go", func() error {
		got := w.get(wl)
		if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonSucceeded || len(got.Finalizers) > 0 {
			return fmt.Errorf("%v, finalizers %v", conditions(got), got.Finalizers)
		}
		return nil
	})
	w.waitUntilStable()
	writes, _ := w.traffic.in(w.namespace)
	want := 4 // create the Workload, start, finish, remove the finalizer
	if w.kind.Writes != 0 {
		want = w.kind.Writes
	}
	if len(writes) != want {
		w.t.Errorf("%d writes in a whole life:\n%s", len(writes), writes)
	}
	w.tells(o, "CreatedWorkload", "FinishedWorkload", "Started")
}

// preempted is an evicted job: it keeps its quota until its pods are gone, is restored, and is started again.
func preempted(w *world) {
	o := w.create("train", nil)
	before := spec(w.t, w.again(o))
	wl := w.workloadOf(o)
	for round := range 2 {
		w.admit(wl)
		w.started(o)
		w.status(o, Active)
		w.waitUntilStable()
		w.evict(wl)
		wait.Until(w.t, "the job is stopped", func() error { return w.stopped(o) })
		w.waitUntilStable()
		if !lifecycle.IsReserved(w.get(wl)) {
			w.t.Errorf("round %d: the quota is released while pods run", round)
		}
		w.status(o, Stopped)
		wait.Until(w.t, "the quota is released", func() error { return w.released(wl) })
		w.waitUntilStable()
		if diff := cmp.Diff(before, spec(w.t, w.again(o))); diff != "" {
			w.t.Errorf("round %d: not what the user wrote -want +got:\n%s", round, diff)
		}
	}
	if got := w.workloads(); len(got) != 1 || got[0].UID != wl.UID {
		w.t.Errorf("%d workloads, want the first one", len(got))
	}
}

// removed is a job that is stopped by deleting it, after an eviction and after a user started it.
func removed(w *world) {
	for _, admitted := range []bool{true, false} {
		o := w.create(fmt.Sprintf("train-%v", admitted), nil)
		wl := w.workloadOf(o)
		if admitted {
			w.admit(wl)
			w.started(o)
			w.evict(wl)
		} else {
			got := w.again(o)
			w.must(w.kind.Descriptor.Start(got, make([]job.PodSetInfo, len(w.kind.PodSets)), nil))
			w.must(w.c.Update(w.ctx, got))
		}
		wait.Until(w.t, "the job is gone", func() error {
			err := w.c.Get(w.ctx, client.ObjectKeyFromObject(o), w.kind.Descriptor.New())
			if err == nil {
				return errors.New("it exists")
			}
			return client.IgnoreNotFound(err)
		})
		wait.Until(w.t, "the workload is over", func() error {
			if c := lifecycle.Condition(w.get(wl), kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonOwnerNotFound {
				return fmt.Errorf("%v", conditions(w.get(wl)))
			}
			return nil
		})
		if got := w.get(wl); admitted {
			w.requeuedFalse(got)
		}
		wait.Until(w.t, "it tells once that it was stopped", func() error {
			if n := count(w.events(o), "Stopped"); n != 1 {
				return fmt.Errorf("%d events", n)
			}
			return nil
		})
	}
}

func count(list []string, of string) int {
	n := 0
	for _, s := range list {
		if s == of {
			n++
		}
	}
	return n
}

// stopped reports whether the stop of the job has begun. A stop may take more than one write.
func (w *world) stopped(o job.Object) error {
	got := w.again(o)
	if d := w.kind.Descriptor; !d.IsSuspended(got) && !d.IsStopping(got) {
		return errors.New("it is not stopped")
	}
	return nil
}

func failed(w *world) {
	if w.kind.Endless {
		return
	}
	o := w.create("train", nil)
	wl := w.workloadOf(o)
	w.admit(wl)
	w.started(o)
	w.status(o, Active)
	w.status(o, Failed)
	wait.Until(w.t, "the workload is finished", func() error {
		if c := lifecycle.Condition(w.get(wl), kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonFailed {
			return fmt.Errorf("%v", conditions(w.get(wl)))
		}
		return nil
	})
}

// contradiction is a job whose node selector contradicts the flavor's.
func contradiction(w *world) {
	o := w.create("train", nil)
	before := spec(w.t, w.again(o))
	wl := w.workloadOf(o)
	w.play(wl, func(x *kueue.Workload) bool {
		a := &kueue.Admission{ClusterQueue: "cq"}
		for _, s := range x.Spec.PodSets {
			a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
				Name: s.Name, Count: new(s.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "gpu"},
			})
		}
		if !w.cfg.Lifecycle.Reserve(x, a, nil, metav1.Now()) {
			return false
		}
		// The flavor's pool is h100, and the check wants another.
		state := kueue.AdmissionCheckState{Name: "check", State: kueue.CheckStateReady, LastTransitionTime: metav1.Now(), Message: "m"}
		for _, s := range x.Spec.PodSets {
			state.PodSetUpdates = append(state.PodSetUpdates, kueue.PodSetUpdate{Name: s.Name, NodeSelector: map[string]string{"pool": "other"}})
		}
		x.Status.AdmissionChecks = []kueue.AdmissionCheckState{state}
		return true
	})
	wait.Until(w.t, "the workload is finished", func() error {
		if c := lifecycle.Condition(w.get(wl), kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonFailedToStart {
			return fmt.Errorf("%v", conditions(w.get(wl)))
		}
		return nil
	})
	w.waitUntilStable()
	got := w.again(o)
	if diff := cmp.Diff(before, spec(w.t, got)); diff != "" || !w.kind.Descriptor.IsSuspended(got) {
		w.t.Errorf("a job that cannot be started was changed -want +got:\n%s", diff)
	}
}

// byHand is a user who starts a waiting job.
func byHand(w *world) {
	o := w.create("train", nil)
	w.workloadOf(o)
	was := spec(w.t, w.again(o))
	infos := make([]job.PodSetInfo, len(w.kind.PodSets))
	wait.Until(w.t, "the job is started by hand", func() error {
		got := w.again(o)
		in := &job.Setting{Config: w.cfg, Objects: w.objects(got)}
		if err := w.kind.Descriptor.Start(got, infos, in); err != nil {
			return err
		}
		return w.c.Update(w.ctx, got)
	})
	wait.Until(w.t, "it is stopped again", func() error { return w.suspended(o) })
	w.waitUntilStable()
	if diff := cmp.Diff(was, spec(w.t, w.again(o))); diff != "" {
		w.t.Errorf("-want +got:\n%s", diff)
	}
	if n := len(w.workloads()); n != 1 {
		w.t.Errorf("%d workloads", n)
	}
}

// objects are the objects that a job refers to, as the reconciler reads them.
func (w *world) objects(o job.Object) map[job.Reference]job.Object {
	w.t.Helper()
	out := map[job.Reference]job.Object{}
	if w.kind.Descriptor.Refers == nil {
		return out
	}
	for _, ref := range w.kind.Descriptor.Refers(o) {
		for _, text := range w.kind.Objects {
			if u := parse(w.t, text); u.GroupVersionKind() == ref.GVK && u.GetName() == ref.Name {
				out[ref] = u
			}
		}
	}
	return out
}

// deleted is a job that is deleted while it waits and while it runs.
func deleted(w *world) {
	for _, running := range []bool{false, true} {
		o := w.create(fmt.Sprintf("train-%v", running), nil)
		wl := w.workloadOf(o)
		if running {
			w.admit(wl)
			w.started(o)
		}
		w.must(w.c.Delete(w.ctx, w.again(o), client.PropagationPolicy(metav1.DeletePropagationBackground)))
		wait.Until(w.t, "the workload is let go", func() error {
			got := w.get(wl)
			if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonOwnerNotFound || len(got.Finalizers) > 0 {
				return fmt.Errorf("%v, finalizers %v", conditions(got), got.Finalizers)
			}
			return nil
		})
	}
}

// running starts a job before it is created.
func (w *world) running(o job.Object) {
	w.t.Helper()
	in := &job.Setting{Config: w.cfg, Objects: w.objects(o)}
	w.must(w.kind.Descriptor.Start(o, make([]job.PodSetInfo, len(w.kind.PodSets)), in))
}

// unmanaged is a job in an unmanaged namespace, with a queue, alone and as a child.
func unmanaged(w *world) {
	w.namespace = w.newNamespace("no")
	o := w.create("train", w.running)
	owned := w.create("child", func(c job.Object) {
		w.running(c)
		c.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(o, w.kind.Descriptor.GVK)})
	})
	w.status(o, Active)
	w.must(w.c.Patch(w.ctx, w.again(owned), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
	w.waitUntilStable()
	if writes, events := w.traffic.in(w.namespace); len(writes) > 0 || len(events) > 0 || len(w.workloads()) > 0 {
		w.t.Errorf("writes %v, events %v, %d workloads", writes, events, len(w.workloads()))
	}
}

// namespaceChanges removes the namespace of a running and a waiting job from management, and adds it again.
func namespaceChanges(w *world) {
	runs, waits := w.create("runs", nil), w.create("waits", nil)
	wlRuns, wlWaits := w.workloadOf(runs), w.workloadOf(waits)
	w.admit(wlRuns)
	w.started(runs)
	w.relabel("no")
	for _, wl := range []*kueue.Workload{wlRuns, wlWaits} {
		wait.Until(w.t, "the workload is out of sync", func() error {
			got := w.get(wl)
			if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonOutOfSync || len(got.Finalizers) > 0 {
				return fmt.Errorf("%v", conditions(got))
			}
			return nil
		})
	}
	w.waitUntilStable()
	w.must(w.runs(runs))
	if w.kind.Descriptor.Once == nil { // a pod that waits was gated by Berth
		w.must(w.suspended(waits))
	}
	// The user removes the queue.
	was := w.again(runs)
	writes, _ := w.traffic.in(w.namespace)
	w.status(runs, Active)
	w.waitUntilStable()
	if after, _ := w.traffic.in(w.namespace); len(after) != len(writes) {
		w.t.Errorf("written after the namespace was given up: %v", after[len(writes):])
	}
	if now := w.again(runs); now.GetGeneration() != was.GetGeneration() {
		w.t.Error("a running job was changed")
	}
}

// child is a job of an ancestor with a Workload.
func child(w *world) {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
	parent := &batchv1.CronJob{ // of an external kind, which may own any other
		ObjectMeta: metav1.ObjectMeta{Name: "parent", Namespace: w.namespace, Labels: map[string]string{kueue.QueueNameLabel: "lq"}},
		Spec:       batchv1.CronJobSpec{Schedule: "@yearly", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}},
	}
	w.must(w.c.Create(w.ctx, parent))
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: "parent", Namespace: w.namespace, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(parent, cronJob)}},
		Spec:       kueue.WorkloadSpec{QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: template}}},
	}
	w.must(w.c.Create(w.ctx, wl))
	o := w.create("child", func(c job.Object) {
		w.running(c)
		c.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(parent, cronJob)})
	})
	wait.Until(w.t, "the child is suspended", func() error { return w.stopped(o) })
	w.admit(wl)
	w.waitUntilStable()
	// Its parent starts it, and it keeps running.
	wait.Until(w.t, "the parent starts it", func() error {
		got := w.again(o)
		if err := w.kind.Descriptor.Start(got, make([]job.PodSetInfo, len(w.kind.PodSets)), &job.Setting{Config: w.cfg, Objects: w.objects(got)}); err != nil {
			return err
		}
		return w.c.Update(w.ctx, got)
	})
	w.waitUntilStable()
	w.must(w.runs(o))
	if n := len(w.workloads()); n != 1 {
		w.t.Errorf("%d workloads, want that of the parent", n)
	}
	w.evict(wl)
	w.play(wl, func(x *kueue.Workload) bool { return w.cfg.Lifecycle.Release(x, false, metav1.Now()) }) // as the controller of the external kind does
	wait.Until(w.t, "the child is suspended once more", func() error { return w.stopped(o) })
}
