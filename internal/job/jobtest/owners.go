package jobtest

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/plan/view"
)

// RunOwners tests that jobs that own each other have one Workload, of the outermost queued one (spec: 30 §4.2.1, examples 6, 7 and
// 11 of §7). outermost is an AppWrapper; kinds are it, JobSet and Job.
func RunOwners(t *testing.T, outermost *Kind, kinds []*job.Descriptor) {
	w := newWorld(t, outermost.parallel(t), kinds)
	w.start(nil)
	in := func(name string, run func(*world)) {
		t.Run(name, func(t *testing.T) {
			at := *w
			at.t, at.namespace = t, at.newNamespace("yes")
			run(&at)
		})
	}
	in("a queue in the middle", queuedBelow)
	in("a forged owner", forged)
	w.stop()
	w.cfg.VerifyOwners = false
	w.start(nil)
	in("a forged owner is trusted, as upstream", trusted)
	in("more than ten owners", tooDeep)
	w.stop()
	w.cfg.VerifyOwners = true
	w.cfg.ManageAll = true
	w.start(nil)
	in("no queue at all", oneForAll)
	w.stop()
	for _, everything := range []bool{false, true} { // each stops its manager in between
		w.cfg.ManageAll = everything
		w.start(nil)
		in(fmt.Sprintf("away and back, all are managed %v", everything), calmChain)
		w.stop()
	}
}

// queuedBelow is a Job with a queue below a JobSet without one: it is a job of its own.
func queuedBelow(w *world) {
	set := w.jobSet("set")
	w.must(w.c.Create(w.ctx, set))
	o := w.ownedJob("job", set, set.GroupVersionKind(), "lq")
	wl := w.workloadOf(o)
	w.waitUntilStable()
	if owner := metav1.GetControllerOf(wl); owner.UID != o.UID || len(w.workloads()) != 1 {
		w.t.Errorf("%d workloads, the owner of one is %v", len(w.workloads()), owner)
	}
}

// oneForAll is an AppWrapper of a JobSet of a Job, none with a queue, where every job is managed.
func oneForAll(w *world) {
	set := w.jobSet("set")
	aw := w.create("aw", func(o job.Object) {
		o.SetLabels(nil)
		wrap(o, set)
	})
	wl := w.workloadOf(aw)
	set.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(aw, w.kind.Descriptor.GVK)})
	w.must(w.c.Create(w.ctx, set))
	o := w.ownedJob("set-a-0", set, set.GroupVersionKind(), "")
	wait.Until(w.t, "what is inside waits", func() error {
		for _, inside := range []job.Object{set, o} {
			d := w.descriptorOf(inside)
			got := d.New()
			if err := w.c.Get(w.ctx, client.ObjectKeyFromObject(inside), got); err != nil {
				return err
			}
			if !d.IsSuspended(got) {
				return fmt.Errorf("%s runs", inside.GetName())
			}
		}
		return nil
	})
	w.waitUntilStable()
	if all := w.workloads(); len(all) != 1 || all[0].UID != wl.UID || metav1.GetControllerOf(&all[0]).UID != aw.GetUID() {
		w.t.Errorf("%d workloads, want one, of the AppWrapper", len(all))
	}
}

// wrap makes an object the only component of an AppWrapper.
func wrap(aw job.Object, component *unstructured.Unstructured) {
	view.Set(view.Of(aw).Object, []any{map[string]any{"template": component.DeepCopy().Object}}, "spec", "components")
}

// jobsOf are Jobs that name an owner, which has made only the last one.
func (w *world) jobsOf() (forged []*batchv1.Job, genuine *batchv1.Job) {
	w.t.Helper()
	jobs := batchv1.SchemeGroupVersion.WithKind("Job")
	small := w.ownedJob("small", nil, jobs, "lq")
	w.admit(w.workloadOf(small))
	set := w.jobSet("set")
	set.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
	w.must(w.c.Create(w.ctx, set))
	large := func(j *batchv1.Job) {
		j.Spec.Parallelism, j.Spec.Completions = new(int32(50)), new(int32(50))
	}
	hungry := func(j *batchv1.Job) {
		j.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100")}
	}
	forged = append(forged,
		w.ownedJob("of-a-job", small, jobs, "lq", large),
		w.ownedJob("of-the-set", set, set.GroupVersionKind(), "lq"),
		w.ownedJob("set-a-7", set, set.GroupVersionKind(), "lq"),
		w.ownedJob("set-a-0", set, set.GroupVersionKind(), "lq", large),
		w.ownedJob("set-b-0", set, set.GroupVersionKind(), "lq", hungry),
	)
	other := w.jobSet("other")
	other.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
	w.must(w.c.Create(w.ctx, other))
	return forged, w.ownedJob("other-b-0", other, other.GroupVersionKind(), "lq")
}

// forged are Jobs whose owner cannot have made them: each is queued separately. A Job that its owner can have made is not.
func forged(w *world) {
	own, genuine := w.jobsOf()
	for _, j := range own {
		if owner := metav1.GetControllerOf(w.workloadOf(j)); owner.UID != j.UID {
			w.t.Errorf("the Workload of %s is owned by %s", j.Name, owner.Name)
		}
	}
	w.waitUntilStable()
	if n := len(w.workloads()); n != len(own)+3 { // the small Job and the two JobSets
		w.t.Errorf("%d workloads, want %d: one of %s is too many", n, len(own)+3, genuine.Name)
	}
}

// trusted are the same Jobs without verification of owners.
func trusted(w *world) {
	w.jobsOf()
	w.waitUntilStable()
	if n := len(w.workloads()); n != 3 {
		w.t.Errorf("%d workloads, want those of the owners", n)
	}
}

// tooDeep is a chain of Jobs with one owner too many.
func tooDeep(w *world) {
	gvk := batchv1.SchemeGroupVersion.WithKind("Job")
	var above *batchv1.Job
	for i := range 12 {
		queue := ""
		if i == 0 {
			queue = "lq"
		}
		if above == nil {
			above = w.ownedJob("top", nil, gvk, queue)
		} else {
			above = w.ownedJob(fmt.Sprintf("below%d", i), above, gvk, queue)
		}
	}
	w.tells(above, "JobNestingTooDeep")
	w.waitUntilStable()
	if n := len(w.workloads()); n != 1 {
		w.t.Errorf("%d workloads, want that of the outermost", n)
	}
}

func (w *world) ownedJob(name string, owner job.Object, gvk schema.GroupVersionKind, queue string, change ...func(*batchv1.Job)) *batchv1.Job {
	w.t.Helper()
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: batchv1.JobSpec{Suspend: new(queue != ""), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x"}},
		}}},
	}
	if queue != "" {
		j.Labels = map[string]string{kueue.QueueNameLabel: queue}
	}
	if owner != nil {
		j.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk)}
	}
	for _, f := range change {
		f(j)
	}
	w.must(w.c.Create(w.ctx, j))
	return j
}
