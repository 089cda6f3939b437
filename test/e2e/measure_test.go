package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/test/process"
)

var measure = flag.Bool("measure", false, "measure instead of testing, and print name: value lines")

// TestMeasure prints the figures of the README: run it with `make measure`. It fails only if something does not work; the reader judges
// the speed.
func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("not asked to measure")
	}
	start := time.Now()
	c := up(t)
	report("control_plane.ready_s", time.Since(start).Seconds())
	start = time.Now()
	m := c.manager(t)
	report("manager.ready_s", time.Since(start).Seconds())
	c.queues(t, "measure", map[string]string{"measure": "10"})
	reportIdle("manager", m)

	const jobs = 50
	before := c.writes(t)
	all := make([]*batchv1.Job, jobs)
	start = time.Now()
	for i := range all {
		all[i] = job("measure", fmt.Sprintf("j%02d", i), "main", 1, "0.2")
		c.create(t, all[i])
	}
	for _, j := range all {
		wait.Until(t, j.Name+" is finished", func() error { return c.finished(t, j, "Succeeded") })
	}
	report("jobs.wall_s", time.Since(start).Seconds())
	time.Sleep(3 * time.Second)
	after := c.writes(t)
	total := 0.0
	for _, kind := range slices.Sorted(maps.Keys(after)) {
		n := (after[kind] - before[kind]) / jobs
		if kind != eventKind {
			total += n
		}
		report("job.writes["+kind+"]", n)
	}
	report("job.writes_by_berth", total)
	report("manager.busy_rss_mb", m.RSS())
	m.Kill()

	config := filepath.Join(t.TempDir(), "everything.yaml")
	if err := os.WriteFile(config, []byte(everything), 0o600); err != nil {
		t.Fatal(err)
	}
	reportIdle("everything", c.manager(t, "--config", config, "--feature-gates", "AllAlpha=true,AllBeta=true"))
}

// everything is a configuration that turns on what is off by default.
const everything = `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 1s}
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}
waitForPodsReady: {timeout: 5m}
objectRetentionPolicies: {workloads: {afterFinished: 1h}}
metrics: {enableClusterQueueResources: true}
`

// reportIdle reports what a manager costs that has nothing to do.
func reportIdle(name string, m *process.Manager) {
	const idle = 30 * time.Second
	time.Sleep(3 * time.Second)
	used := m.CPU()
	time.Sleep(idle)
	report(name+".idle_cpu_percent", 100*(m.CPU()-used).Seconds()/idle.Seconds())
	report(name+".idle_rss_mb", m.RSS())
}

func report(name string, value float64) { fmt.Printf("%s: %.2f\n", name, value) }

var series = regexp.MustCompile(`^apiserver_request_total\{(.*)\} (\S+)$`)

// eventKind is the key under which events of any writer are counted.
const eventKind = "events, by anyone"

// writes counts, from the API server's own metrics, the writes that only Berth makes: all of Workloads, patches of Jobs, and status
// updates of its queues.
func (c *cluster) writes(t *testing.T) map[string]float64 {
	t.Helper()
	cfg := embeddedtest.ConfigOf(t, c.kubeconfig)
	body, err := kubernetes.NewForConfigOrDie(cfg).RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		found := series.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}
		labels := map[string]string{}
		for pair := range strings.SplitSeq(found[1], ",") {
			name, value, _ := strings.Cut(pair, "=")
			labels[name] = strings.Trim(value, `"`)
		}
		n, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		switch resource, verb := labels["resource"], labels["verb"]; {
		case verb == "GET" || verb == "LIST" || verb == "WATCH" || strings.HasPrefix(labels["code"], "4"):
		case labels["group"] == "kueue.x-k8s.io", resource == "jobs" && (verb == "PATCH" || verb == "APPLY"):
			name := resource
			if sub := labels["subresource"]; sub != "" {
				name += "/" + sub
			}
			counts[name+" "+verb] += n
		case resource == "events":
			counts[eventKind] += n
		}
	}
	return counts
}
