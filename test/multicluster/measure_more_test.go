package multicluster

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
)

var (
	dispatches = flag.Int("dispatches", 100, "how many jobs to measure with in each round, with a black hole and without")
	rounds     = flag.Int("rounds", 2, "how many rounds of each there are")
	objects    = flag.Int("objects", 5000, "how many remote objects there are when the memory of the manager is measured")
	heap       = flag.String("heap", "", "file for a profile of what is alive in the manager's heap then")
)

// TestMeasureBlackHole prints the time of Jobs from their creation until a worker has them, while all of three workers answer and while
// one of them accepts requests and never answers. The moment at which it begins to do so is part of it.
func TestMeasureBlackHole(t *testing.T) {
	if !*measure {
		t.Skip("not asked to measure")
	}
	all := start(t, []string{"hub", "w1", "w2", "w3"}, map[string]string{})
	hub, workers := all[0], all[1:]
	hub.workers(workers...)
	hub.queues("1000", "workers")
	for _, w := range workers {
		w.queues("1000")
		hub.connection(w.name, metav1.ConditionTrue, kueue.ReasonActive)
	}
	times := map[bool][]time.Duration{}
	hub.dispatchTimes("warm", 10)
	hub.clear(workers)
	for round := range *rounds {
		for _, hole := range []bool{false, true} {
			workers[2].proxy.stall(hole)
			times[hole] = append(times[hole], hub.dispatchTimes(fmt.Sprintf("r%d-%v", round, hole), *dispatches)...)
			workers[2].proxy.stall(false)
			hub.connection("w3", metav1.ConditionTrue, kueue.ReasonActive)
			hub.clear(workers)
		}
	}
	for _, hole := range []bool{false, true} {
		slices.Sort(times[hole])
		name := map[bool]string{false: "no black hole", true: "one black hole of three"}[hole]
		for _, q := range []float64{0.5, 0.9, 0.99, 1} {
			report(fmt.Sprintf("dispatch.p%g_ms[%s]", 100*q, name), float64(quantile(times[hole], q).Microseconds())/1000)
		}
	}
	report("dispatch.p99_ratio", float64(quantile(times[true], 0.99))/float64(quantile(times[false], 0.99)))
}

// quantile is the least value that a share q of all are not above.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// dispatchTimes creates so many Jobs, five in two seconds, and returns the time until each had a cluster.
func (c *cluster) dispatchTimes(prefix string, n int) []time.Duration {
	c.t.Helper()
	cfg := embeddedtest.ConfigOf(c.t, c.kubeconfig())
	watching, err := client.NewWithWatch(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		c.t.Fatal(err)
	}
	stream, err := watching.Watch(c.t.Context(), &kueue.WorkloadList{}, client.InNamespace("team"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer stream.Stop()
	began := map[string]time.Time{}
	var mu sync.Mutex
	go func() {
		for i := range n {
			j := job(fmt.Sprintf("%s-%03d", prefix, i), "1", "3600")
			mu.Lock()
			began[j.Name] = time.Now()
			mu.Unlock()
			if err := c.Create(context.Background(), j); err != nil {
				c.t.Errorf("creating a job: %v", err)
			}
			time.Sleep(400 * time.Millisecond)
		}
	}()
	took := map[string]time.Duration{}
	limit := time.After(5 * time.Minute)
	for len(took) < n {
		select {
		case e := <-stream.ResultChan():
			w, ok := e.Object.(*kueue.Workload)
			if !ok || w.Status.ClusterName == "" || metav1.GetControllerOf(w) == nil {
				continue
			}
			name := metav1.GetControllerOf(w).Name
			mu.Lock()
			if at, ours := began[name]; ours && took[name] == 0 {
				took[name] = time.Since(at)
			}
			mu.Unlock()
		case <-limit:
			c.t.Fatalf("%d of %d jobs have a cluster", len(took), n)
		}
	}
	out := make([]time.Duration, 0, n)
	for _, d := range took {
		out = append(out, d)
	}
	return out
}

// clear deletes all jobs of a hub, and waits until all their objects are deleted everywhere.
func (c *cluster) clear(workers []*cluster) {
	c.t.Helper()
	if err := c.DeleteAllOf(c.t.Context(), &batchv1.Job{}, client.InNamespace("team"), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		c.t.Fatal(err)
	}
	wait.Until(c.t, "the workloads go with their jobs", func() error {
		var list kueue.WorkloadList
		err := c.List(context.Background(), &list)
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d workloads", len(list.Items))
		}
		return err
	})
	for _, w := range workers {
		w.empty()
	}
}

// TestMeasureMemory prints the memory of a manager whose jobs wait on two workers, with a copy on each.
func TestMeasureMemory(t *testing.T) {
	if !*measure {
		t.Skip("not asked to measure")
	}
	configs, pprof := map[string]string{}, "127.0.0.1:"+strconv.Itoa(embeddedtest.FreePort(t))
	if *heap != "" {
		configs["hub"] = "pprofBindAddress: " + pprof + "\n"
	}
	all := start(t, []string{"hub", "w1", "w2"}, configs)
	hub, workers := all[0], all[1:]
	hub.workers(workers...)
	hub.queues("100000", "workers")
	for _, w := range workers {
		w.queues("0")
		hub.connection(w.name, metav1.ConditionTrue, kueue.ReasonActive)
	}
	time.Sleep(5 * time.Second)
	report("manager.rss_mb[no remote objects]", hub.manager.RSS())
	jobs := *objects / len(workers)
	began := time.Now()
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for i := part; i < jobs; i += 8 {
				if err := hub.Create(context.Background(), job(fmt.Sprintf("j%05d", i), "1", "1")); err != nil {
					t.Errorf("creating a job: %v", err)
				}
			}
		})
	}
	wg.Wait()
	wait.Until(t, "all have their copies, and say what they wait for", func() error {
		time.Sleep(2 * time.Second)
		var list kueue.WorkloadList
		if err := hub.List(context.Background(), &list, client.InNamespace("team")); err != nil {
			return err
		}
		n := 0
		for i := range list.Items {
			if checks := list.Items[i].Status.AdmissionChecks; len(checks) > 0 && strings.Contains(checks[0].Message, "w2: ") {
				n++
			}
		}
		if n < jobs {
			return fmt.Errorf("%d of %d", n, jobs)
		}
		return nil
	})
	report("remote_objects.wall_s", time.Since(began).Seconds())
	held := 0
	for _, w := range workers {
		var list kueue.WorkloadList
		if err := w.List(context.Background(), &list, client.HasLabels{kueue.MultiKueueOriginLabel}); err != nil {
			t.Fatal(err)
		}
		held += len(list.Items)
	}
	report("remote_objects", float64(held))
	report("manager.rss_mb[then]", hub.manager.RSS())
	report("manager.peak_rss_mb", hub.manager.PeakRSS())
	report("manager.cpu_s", hub.manager.CPU().Seconds())
	time.Sleep(30 * time.Second)
	report("manager.rss_mb[half a minute later]", hub.manager.RSS())
	if *heap != "" {
		saveHeap(t, pprof, *heap)
	}
}

// saveHeap writes what is alive in the heap of a process to a file.
func saveHeap(t *testing.T, address, file string) {
	t.Helper()
	response, err := http.Get("http://" + address + "/debug/pprof/heap?gc=1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	profile, err := io.ReadAll(response.Body)
	if err == nil {
		err = os.WriteFile(file, profile, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
