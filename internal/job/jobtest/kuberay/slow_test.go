package kuberay_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job/jobtest/kuberay"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestJobsWhosePodsEndSlowly preempts a RayJob, whose status is Suspended while pods of its cluster, and its submitter, still end.
// Its quota is released when the last of them is gone, and then it can run again.
func TestJobsWhosePodsEndSlowly(t *testing.T) {
	t.Parallel()
	s := newServer(t, "ChildSuspended")
	j := view.New(kuberay.GVK("RayJob"))
	j.SetName("train")
	j.SetNamespace(s.op.Namespace)
	j.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
	j.Object["spec"] = map[string]any{
		"suspend": true, "shutdownAfterJobFinishes": true, "rayClusterSpec": view.Map(manifest(2, "1").Object, "spec", "rayClusterConfig"),
	}
	must(s.world, s.c.Create(s.ctx, j))
	is := func(state string, pods int) func() error {
		return func() error {
			must(s.world, s.c.Get(s.ctx, client.ObjectKeyFromObject(j), j))
			if got := view.String(j.Object, "status", "jobDeploymentStatus"); got != state || s.left() != pods {
				return fmt.Errorf("it is %q, with %d pods", got, s.left())
			}
			return nil
		}
	}
	s.until("it runs", is("Running", 4))
	w := s.preempt(is("Suspended", 4))
	s.linger(false, "ray.io/cluster")
	s.until("the pods of its cluster are gone", is("Suspended", 1))
	s.holds(w)
	s.released(w)
	s.quota = 12
	s.until("it runs again", is("Running", 4))
}

// TestInteractiveJobIsPreempted preempts a RayJob that waits for a user's submission, which KubeRay does not suspend by itself. Its
// quota is released, and later the job waits again, on a new cluster.
func TestInteractiveJobIsPreempted(t *testing.T) {
	t.Parallel()
	s := newServer(t, "ChildSuspended")
	j := view.New(kuberay.GVK("RayJob"))
	j.SetName("notebook")
	j.SetNamespace(s.op.Namespace)
	j.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
	j.Object["spec"] = map[string]any{
		"suspend": true, "shutdownAfterJobFinishes": true, "submissionMode": "InteractiveMode",
		"rayClusterSpec": view.Map(manifest(2, "1").Object, "spec", "rayClusterConfig"),
	}
	must(s.world, s.c.Create(s.ctx, j))
	is := func(state string, pods int) func() error {
		return func() error {
			must(s.world, s.c.Get(s.ctx, client.ObjectKeyFromObject(j), j))
			if got := view.String(j.Object, "status", "jobDeploymentStatus"); got != state || s.left() != pods {
				return fmt.Errorf("it is %q, with %d pods", got, s.left())
			}
			return nil
		}
	}
	s.until("it waits for its user", is("Waiting", 3))
	s.released(s.preempt(is("Suspended", 3)))
	s.quota = 12
	s.until("it waits again", is("Waiting", 3))
}

// TestClusterIsPreemptedBeforeItIsReady preempts a RayCluster that waited for its quota, whose state is still "suspended" therefore: its
// head has a gate of another controller. Its quota is released when the last pod is gone.
func TestClusterIsPreemptedBeforeItIsReady(t *testing.T) {
	t.Parallel()
	s := newServer(t, "ChildSuspended")
	c := view.New(kuberay.GVK("RayCluster"))
	c.SetName("notebook")
	c.SetNamespace(s.op.Namespace)
	c.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
	c.Object["spec"] = view.Map(manifest(2, "1").Object, "spec", "rayClusterConfig")
	view.Set(c.Object, true, "spec", "suspend")
	view.Set(c.Object, []any{map[string]any{"name": "test/not-yet"}}, "spec", "headGroupSpec", "template", "spec", "schedulingGates")
	is := func(suspend bool, pods int) func() error {
		return func() error {
			must(s.world, s.c.Get(s.ctx, client.ObjectKeyFromObject(c), c))
			if state := view.String(c.Object, "status", "state"); state != "suspended" || view.Bool(c.Object, "spec", "suspend") != suspend || s.left() != pods {
				return fmt.Errorf("it is %q, with %d pods", state, s.left())
			}
			return nil
		}
	}
	s.quota = 0
	must(s.world, s.c.Create(s.ctx, c))
	s.until("it waits", is(true, 0))
	s.quota = 12
	s.until("it starts", is(false, 3))
	s.released(s.preempt(is(true, 3)))
	s.quota = 12
	s.until("it starts again", is(false, 3))
}

// TestHeldPodsArePreempted preempts a service in an upgrade whose pods wait, and whose cluster does not. The slice for the upgrade
// is finished, and the service restarts with its current spec.
func TestHeldPodsArePreempted(t *testing.T) {
	t.Parallel()
	s := newServer(t, "GatedPods")
	s.quota = 3
	s.create(manifest(2, "1"))
	goal := func() string { return kuberay.HashOf(view.Map(s.get().Object, "spec", "rayClusterConfig")) }
	s.until("it serves", func() error { return s.served(goal()) })
	s.until("it is changed", func() error {
		s.edit(func(spec map[string]any) { ask(spec, 2) })
		if got := fmt.Sprint(view.Get(container(view.Map(s.get().Object, "spec")), "resources", "requests", "cpu")); got != "2" {
			return fmt.Errorf("its workers ask for %s", got)
		}
		return nil
	})
	s.until("the pods of a second cluster wait", func() error {
		if s.left() != 6 || len(s.live()) != 2 {
			return fmt.Errorf("%d pods, %d slices", s.left(), len(s.live()))
		}
		return nil
	})
	s.released(s.preempt(s.isStopped))
	s.quota = 12
	s.until("it serves what it asks for", func() error { return s.served(goal()) })
}

// TestPlainServiceIsPreempted preempts a service without the annotation, which is stopped as a whole and restarts unchanged.
func TestPlainServiceIsPreempted(t *testing.T) {
	t.Parallel()
	s := newServer(t, "ChildSuspended")
	o := manifest(2, "1")
	o.SetAnnotations(nil)
	s.create(o)
	serves := func() error {
		running := s.running()
		if o = s.get(); !view.HasCondition(o, "Ready") || running["head@1"] != 1 || running["workers@1"] != 2 || s.left() != 3 {
			return fmt.Errorf("pods %v", running)
		}
		if view.Bool(o.Object, "spec", "rayClusterConfig", "suspend") {
			return fmt.Errorf("its next cluster would be suspended")
		}
		return nil
	}
	s.until("it serves", serves)
	hash := kuberay.HashOf(view.Map(o.Object, "spec", "rayClusterConfig"))
	w := s.preempt(s.isStopped)
	if !view.Bool(s.get().Object, "spec", "rayClusterConfig", "suspend") {
		t.Error("a cluster that is still to be made would run")
	}
	s.released(w)
	s.quota = 12
	s.until("it serves again", serves)
	if again := kuberay.HashOf(view.Map(o.Object, "spec", "rayClusterConfig")); again != hash {
		t.Errorf("the start has moved the hash from %s to %s", hash, again)
	}
	if live := s.live(); len(live) != 1 || live[0].UID != w.UID {
		t.Errorf("%d workloads, want the one that there was", len(live))
	}
}

// isStopped returns an error until the service is suspended by its status.
func (s *server) isStopped() error {
	if svc := s.get(); !view.HasCondition(svc, "Suspended") || len(s.op.Objects(s.ctx, "RayCluster")) > 0 {
		return fmt.Errorf("conditions %v", view.Get(svc.Object, "status", "conditions"))
	}
	return nil
}

// preempt evicts a job whose pods outlive its stop. The quota is still held when its status is final.
func (s *server) preempt(over func() error) *kueue.Workload {
	s.linger(true, "")
	s.quota = 0
	w := s.holder()
	s.until("it is preempted", func() error {
		s.transition(s.workload(w), func(x *kueue.Workload) bool {
			return s.cfg.Lifecycle.Preempt(x, kueue.ReasonInClusterQueue, "", metav1.Now())
		})
		if !lifecycle.IsEvicted(s.workload(w)) {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	s.until("it says that it is stopped", over)
	s.holds(w)
	return w
}

// released ends all pods, and waits until their quota is released, and nothing else of the job is left.
func (s *server) released(w *kueue.Workload) {
	s.linger(false, "")
	s.until("its quota is given back", func() error {
		if live := s.live(); len(live) != 1 || live[0].UID != w.UID || lifecycle.IsReserved(live[0]) {
			return fmt.Errorf("%d workloads", len(live))
		}
		return nil
	})
}

func (s *server) workload(w *kueue.Workload) *kueue.Workload {
	now := &kueue.Workload{}
	must(s.world, s.c.Get(s.ctx, client.ObjectKeyFromObject(w), now))
	return now
}

// left counts the pods.
func (s *server) left() (n int) {
	s.pods(func(int, *corev1.Pod) { n++ })
	return n
}

// linger makes all pods outlive their deletion, or ends pods with a label.
func (s *server) linger(on bool, label string) {
	finalizers := `null`
	if on {
		finalizers = `["test/slow"]`
	}
	s.pods(func(_ int, p *corev1.Pod) {
		if _, has := p.Labels[label]; has || label == "" {
			must(s.world, s.c.Patch(s.ctx, p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))))
		}
	})
}

// holds fails the test if the quota is released within the usual time.
func (s *server) holds(w *kueue.Workload) {
	wait.Stays(s.tb, 1500*time.Millisecond, "the quota is held", func() error {
		if !lifecycle.IsReserved(s.workload(w)) {
			return fmt.Errorf("it is given back while %d pods run", s.left())
		}
		return nil
	})
}
