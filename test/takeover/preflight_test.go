package takeover

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// TestMeasurePreflight runs bin/berth preflight on the objects of 50,000 waiting Jobs and their Workloads, and the few of their queue.
func TestMeasurePreflight(t *testing.T) {
	if !*measure {
		t.Skip("needs -measure")
	}
	const jobs = 50_000
	w := newWorld(t, "v1beta2")
	w.queues(map[string]string{"bulk": "1"})
	inParallel(jobs, func(i int) {
		j := w.job(fmt.Sprintf("p%d", i), "bulk", 1)
		wl := w.workloadOf(j, "bulk", []kueue.PodSet{podSet(j)})
		w.write(byKueue, wl)
		w.refused(wl, "WaitingForQuota", "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, 1 more needed")
	})
	if t.Failed() {
		t.FailNow()
	}
	c := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", "berth"), "preflight", "--kubeconfig", w.kubeconfig, "--fail-on", "never")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	began := time.Now()
	report, err := c.Output()
	took := time.Since(began)
	if err != nil {
		t.Fatalf("berth preflight: %v\n%s%s", err, report, stderr.Bytes())
	}
	peak := float64(c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024
	t.Logf("preflight.seconds: %.1f s", took.Seconds())
	t.Logf("preflight.cpu_seconds: %.1f s", (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds())
	t.Logf("preflight.peak_rss_mb: %.0f MB", peak)
	t.Logf("what it found:\n%s", report)
	if took > time.Minute || peak > 500 { // the figures, on a quiet machine
		t.Errorf("it took %s and %.0f MB", took, peak)
	}
}
