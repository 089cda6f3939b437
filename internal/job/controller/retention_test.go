package controller_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Jobs whose Workload Berth deactivated are deleted by the current retention, also after an earlier deactivation; jobs that users
// deactivated stay. spec: 70 §2.1.10, §6 #5.
func TestRetentionChanges(t *testing.T) {
	t.Parallel()
	cfg := defaultConfig()
	cfg.Kinds[corev1.SchemeGroupVersion.WithKind("Pod")] = true
	w := newWorld(t, cfg)
	w.stop()
	w.kept = make(chan *time.Duration)
	w.start()
	deactivate := func(wl *kueue.Workload, byBerth bool) {
		t.Helper()
		w.until("it is deactivated", func() error {
			x := w.get(wl)
			x.Spec.Active = new(false)
			return w.c.Update(w.ctx, x)
		})
		w.play(wl, func(x *kueue.Workload) bool {
			if byBerth {
				w.cfg.Lifecycle.RequestDeactivation(x, kueue.ReasonRequeuingLimitExceeded, "", metav1.Now())
			}
			return w.cfg.Lifecycle.Deactivate(x, metav1.Now())
		})
		w.until("its quota is free", func() error {
			if x := w.get(wl); lifecycle.IsReserved(x) || lifecycle.DeactivatedByBerth(x) != byBerth {
				return fmt.Errorf("conditions %v", conditionTypes(x))
			}
			return nil
		})
	}
	start := func(name string, byBerth bool) {
		t.Helper()
		_, wl := w.started(name)
		deactivate(wl, byBerth)
	}
	start("ours", true)
	start("theirs", false)
	group := w.group("group", 2)
	deactivate(group, true) // while it waits: pods that run end with the eviction
	is := func(there bool, object client.Object) {
		t.Helper()
		w.until(fmt.Sprintf("%s is there: %v", object.GetName(), there), func() error {
			err := w.c.Get(w.ctx, client.ObjectKeyFromObject(object), object)
			if (err == nil && object.GetDeletionTimestamp() == nil) == there {
				return nil
			}
			return fmt.Errorf("error %w, deletion %v", err, object.GetDeletionTimestamp())
		})
	}
	jobNamed := func(name string) client.Object { return w.newJob(name) }
	w.waitUntilStable()
	is(true, jobNamed("ours"))
	w.kept <- new(time.Hour)
	w.kept <- nil
	w.waitUntilStable()
	is(true, jobNamed("ours"))
	w.kept <- new(time.Duration(0))
	is(false, jobNamed("ours"))
	for i := range 2 {
		is(false, w.member("group", i))
	}
	start("later", true) // by the same
	is(false, jobNamed("later"))
	w.kept <- nil
	start("kept", true)
	w.waitUntilStable()
	is(true, jobNamed("kept"))
	is(true, jobNamed("theirs"))
	if cfg.DeleteDeactivatedAfter != nil {
		t.Error("the configuration that others look at was changed")
	}
}

// member is a pod of a group.
func (w *world) member(group string, i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: fmt.Sprint(group, "-", i),
			Labels:      map[string]string{kueue.QueueNameLabel: "lq", kueue.PodGroupNameLabel: group, kueue.ManagedLabel: "true"},
			Annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: "2", kueue.RoleHashAnnotation: "main"}, Finalizers: []string{kueue.ManagedFinalizer},
		},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}},
			Containers:      []corev1.Container{{Name: "c", Image: "busybox"}},
		},
	}
}

// group makes the pods of a group, as the webhook would have them, and waits for their Workload.
func (w *world) group(name string, size int) *kueue.Workload {
	w.t.Helper()
	for i := range size {
		w.create(w.member(name, i))
	}
	var found kueue.Workload
	w.until("the group has a workload", func() error {
		return w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &found)
	})
	return &found
}
