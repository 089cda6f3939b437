package takeover

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

var measure = flag.Bool("measure", false, "measure a takeover of 1,000 running and 10,000 waiting jobs")

// TestMeasureTakeover installs Berth over 1,000 running and 10,000 waiting Jobs. The time is from the start of the manager, its installation
// included, until the queue reports all of them and the end of a running Job admits a waiting one.
func TestMeasureTakeover(t *testing.T) {
	if !*measure {
		t.Skip("needs -measure")
	}
	const running, pending = 1000, 10_000
	w := newWorld(t, "v1beta2")
	w.queues(map[string]string{"bulk": fmt.Sprint(running)})
	inParallel(running, func(i int) { w.running(fmt.Sprintf("r%d", i), "bulk", 1, byAdmission) })
	inParallel(pending, func(i int) { w.waiting(fmt.Sprintf("p%d", i), "bulk", 1) })
	if t.Failed() {
		t.FailNow()
	}
	before := w.inventory()
	b := newBerth(w, "v1beta2")
	began := time.Now()
	m := b.run(true, nil)
	wait.Ready(t, "the manager", m.ready, m.ended)
	t.Logf("takeover.ready: %.1f s", time.Since(began).Seconds())
	wait.Until(t, "the queue reports all jobs", func() error {
		var cq kueue.ClusterQueue
		if err := b.Get(t.Context(), client.ObjectKey{Name: "bulk"}, &cq); err != nil {
			return err
		}
		s := &cq.Status
		if s.ReservingWorkloads != running || s.AdmittedWorkloads != running || s.PendingWorkloads != pending {
			return fmt.Errorf("%d reserving, %d admitted, %d pending", s.ReservingWorkloads, s.AdmittedWorkloads, s.PendingWorkloads)
		}
		return nil
	})
	t.Logf("takeover.counted: %.1f s", time.Since(began).Seconds())
	b.waitForWrites()
	most, all := 0, 0
	for _, writes := range b.writes.to("workloads") {
		most, all = max(most, len(writes)), all+len(writes)
	}
	t.Logf("takeover.workload_writes: %d, at most %d to one", all, most)
	written := 0
	for name, version := range b.inventory() {
		if before[name] != version {
			written++
		}
	}
	j, _ := b.read("r0")
	b.complete(j)
	wait.Until(t, "a waiting Job is admitted", func() error {
		var cq kueue.ClusterQueue
		if err := b.Get(t.Context(), client.ObjectKey{Name: "bulk"}, &cq); err != nil {
			return err
		}
		if cq.Status.PendingWorkloads != pending-1 {
			return fmt.Errorf("%d pending", cq.Status.PendingWorkloads)
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("takeover.seconds: %.1f s", took.Seconds())
	t.Logf("takeover.jobs_written: %d of %d", written, len(before))
	if written > 0 || most > 1 {
		t.Errorf("%d jobs were written, and a Workload %d times", written, most)
	}
	if took > time.Minute { // the figure, on a quiet machine
		t.Errorf("it took %s", took)
	}
}

// inParallel calls a function for 0 to n-1.
func inParallel(n int, do func(i int)) {
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	all.Wait()
}
