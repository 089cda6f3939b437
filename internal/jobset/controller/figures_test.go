package controller_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/jobset/controller"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// manifest is a JobSet of n Jobs with one pod each.
func manifest(name string, n int, lines ...string) string {
	return fmt.Sprintf(`
metadata: {name: %s}
spec:
  replicatedJobs:
  - {name: oar, replicas: %d, template: {spec: {parallelism: 1, completions: 1, template: {spec: {containers: [{name: c, image: i}]}}}}}
  %s
`, name, n, strings.Join(lines, "\n  "))
}

// all waits until all Jobs of the namespace are as wanted.
func (w *world) all(n int, what string, is func(*batchv1.Job) bool) {
	w.t.Helper()
	wait.Until(w.t, fmt.Sprintf("%d Jobs %s", n, what), func() error {
		found := 0
		for _, j := range w.jobs() {
			if is(j) {
				found++
			}
		}
		if found != n {
			return fmt.Errorf("%d are", found)
		}
		return nil
	})
}

// TestFigures holds the bounds on writes: a JobSet of 1,000 Jobs (200 without -long) is created with 10 writes more than there are Jobs, and
// suspended and resumed with about one for each Job; each takes at most 30 s of processor time, and meanwhile a small one is not kept waiting. The API server's
// own counter is read. Then nothing is written at all.
func TestFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 200 Jobs")
	}
	w := newWorld(t, plan.Config{})
	n, spare := 200, 10
	if embeddedtest.Long() {
		n = 1000
	}
	written := func() int { return w.metric("POST", "jobs") + w.metric("PATCH", "jobs") + w.metric("DELETE", "jobs") }
	count := func(what string, do func()) {
		t.Helper()
		before, all, start, used := written(), len(w.requests.in(w.namespace)), time.Now(), cpuTime(t)
		do()
		took := cpuTime(t) - used // of the manager and this test: how long the rest of the machine takes is not the manager's
		t.Logf("%s: %.1f s, %.1f s of processor time", what, time.Since(start).Seconds(), took.Seconds())
		if took > 30*time.Second {
			t.Errorf("%s: it takes %s of processor time", what, took)
		}
		w.quiet(time.Second)
		jobs, total := written()-before, len(w.requests.in(w.namespace))-all
		t.Logf("%s: %d writes of Jobs by the API server's count, %d requests that write in all", what, jobs, total)
		if jobs < n || total > n+spare || jobs > total {
			t.Errorf("%s: %d writes of Jobs, %d requests; want %d to %d", what, jobs, total, n, n+spare)
		}
	}
	count("create", func() {
		w.create(manifest("big", n))
		small := w.inNamespace(t)
		small.create(manifest("small", 2))
		start := time.Now()
		small.haveJobs("small-oar-0", "small-oar-1")
		t.Logf("a small JobSet beside it had its Jobs after %.2f s", time.Since(start).Seconds())
		w.all(n, "exist", func(*batchv1.Job) bool { return true })
	})
	suspend := func(is bool) {
		w.update("big", func(js *jobsetv1alpha2.JobSet) {
			js.Spec.Suspend = &is
			if !is {
				js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
			}
		})
		w.all(n, fmt.Sprintf("have suspend %v", is), func(j *batchv1.Job) bool { return *j.Spec.Suspend == is })
	}
	count("suspend", func() { suspend(true) })
	count("resume with another node selector", func() { suspend(false) })
	w.all(n, "are placed", func(j *batchv1.Job) bool { return j.Spec.Template.Spec.NodeSelector["zone"] == "a" })
	before := len(w.requests.in(w.namespace))
	w.update("big", func(js *jobsetv1alpha2.JobSet) { metav1.SetMetaDataAnnotation(&js.ObjectMeta, "a", "b") })
	w.staysQuiet(time.Second, before)
}

// A restart costs two writes for each Job, and one for the status to count it.
func TestWritesOfARestart(t *testing.T) {
	w := newWorld(t, plan.Config{})
	const n = 20
	w.create(manifest("big", n, "failurePolicy: {maxRestarts: 1}"))
	w.all(n, "exist", func(*batchv1.Job) bool { return true })
	before := w.quiet(time.Second)
	w.setJob("big-oar-7", failedAt("BackoffLimitExceeded", "", time.Now()))
	for i := range n {
		w.collect(fmt.Sprintf("big-oar-%d", i))
	}
	w.all(n, "are of attempt 1", func(j *batchv1.Job) bool { return j.Labels[jobsetv1alpha2.RestartAttemptKey] == "1" })
	total := w.quiet(time.Second) - before
	t.Logf("%d writes for %d Jobs", total, n)
	if total > 2*n+5 {
		t.Errorf("%d writes:\n%s", total, strings.Join(w.requests.in(w.namespace)[before:], "\n"))
	}
}

// BenchmarkIdleReconcile reads a JobSet from the caches of a manager and finds nothing to do. On a busy machine cpu-ms/op
// tells more than the time: it is the processor time of the process, garbage collection included.
func BenchmarkIdleReconcile(b *testing.B) {
	for _, n := range []int{100, 1000, 2000, 5000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newWorld(b, plan.Config{})
			w.create(manifest("big", n))
			w.all(n, "exist", func(*batchv1.Job) bool { return true })
			w.quiet(3 * time.Second)
			r, err := controller.NewReconciler(w.ctx, plan.Config{}, w.cached, w.cache, controller.Options{Pods: w.pods, Now: time.Now})
			w.must(err)
			before := len(w.requests.in(w.namespace))
			req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: "big"}}
			b.ReportAllocs()
			used := cpuTime(b)
			for b.Loop() {
				if _, err := r.Reconcile(w.ctx, req); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpuTime(b)-used).Seconds()*1000/float64(b.N), "cpu-ms/op")
			b.StopTimer()
			if lines := w.requests.in(w.namespace); len(lines) != before {
				b.Fatalf("idle, but: %v", lines[before:])
			}
		})
	}
}

// cpuTime is the processor time that this process has used.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
