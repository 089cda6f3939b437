package multicluster

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

var (
	measure = flag.Bool("measure", false, "measure instead of testing, and print name: value lines")
	howMany = flag.Int("jobs", 1000, "how many jobs to measure with")
	inTurn  = flag.Bool("in-turn", false, "nominate workers one after the other, with the incremental dispatcher")
	seconds = flag.Int("seconds", 1, "how long each of them runs")
	toStart = flag.Bool("to-start", false, "stop when all of them run, which they do for an hour, instead of when all have finished")
)

// TestMeasure prints how long it takes until Jobs are dispatched to two workers and have ended, and what that costs in writes.
func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("not asked to measure")
	}
	configs := map[string]string{}
	if *inTurn {
		configs["hub"] = "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, incrementalDispatcherConfig: {stepSize: 1}}\n"
	}
	all := start(t, []string{"hub", "w1", "w2"}, configs)
	hub, w1, w2 := all[0], all[1], all[2]
	hub.workers(w1, w2)
	hub.queues("100", "workers")
	w1.queues("50")
	w2.queues("50")
	for _, name := range []string{"w1", "w2"} {
		hub.connection(name, metav1.ConditionTrue, kueue.ReasonActive)
	}
	before := []map[string]float64{hub.writes(), w1.writes(), w2.writes()}
	book := &ledger{counts: map[string]int{}, life: fmt.Sprintf("j%04d", *howMany/2)}
	for _, c := range all {
		book.follow(t, c, kueue.GroupVersion.WithKind("Workload"))
		book.follow(t, c, batchv1.SchemeGroupVersion.WithKind("Job"))
	}
	if *toStart {
		*seconds = 3600
	}
	began := time.Now()
	hub.submit(*howMany)
	report("created_s", time.Since(began).Seconds())
	reach := func(milestone string, on ...*cluster) {
		wait.Until(t, milestone, func() error {
			n := 0
			for _, c := range on {
				n += book.thatReached(c, milestone)
			}
			if n < *howMany {
				return fmt.Errorf("%d of %d", n, *howMany)
			}
			return nil
		})
		report(milestone+"_s", time.Since(began).Seconds())
	}
	reach("dispatched", hub)
	if *toStart {
		reach("running", w1, w2)
	} else {
		reach("finished", hub)
	}
	report("manager.rss_mb", hub.manager.RSS())
	if !*toStart {
		w1.empty()
		w2.empty()
	}
	book.end(*howMany)
	total := 0.0
	for i, c := range all {
		after := c.writes()
		for _, kind := range slices.Sorted(maps.Keys(after)) {
			n := (after[kind] - before[i][kind]) / float64(*howMany)
			total += n
			report("job.writes["+c.name+" "+kind+"]", n)
		}
	}
	report("job.writes_by_berth", total)
}

// submit creates so many Jobs, eight at a time.
func (c *cluster) submit(n int) {
	c.t.Helper()
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for i := part; i < n; i += 8 {
				if err := c.Create(context.Background(), job(fmt.Sprintf("j%04d", i), "10m", strconv.Itoa(*seconds))); err != nil {
					c.t.Errorf("creating a job: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func report(name string, value float64) { fmt.Printf("%s: %.2f\n", name, value) }

var series = regexp.MustCompile(`^apiserver_request_total\{(.*)\} (\S+)$`)

// writes counts what only Berth writes: Workloads and queues, and of Jobs what their own controller does not do.
func (c *cluster) writes() map[string]float64 {
	c.t.Helper()
	cfg := embeddedtest.ConfigOf(c.t, c.kubeconfig())
	body, err := kubernetes.NewForConfigOrDie(cfg).RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		c.t.Fatal(err)
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
			c.t.Fatal(err)
		}
		resource, verb := labels["resource"], labels["verb"]
		ofJobs := resource == "jobs" && labels["group"] == "batch" && (verb == "PATCH" || verb == "APPLY" || (c.name != "hub" && (verb == "POST" || verb == "DELETE")))
		switch {
		case verb == "GET" || verb == "LIST" || verb == "WATCH" || strings.HasPrefix(labels["code"], "4"):
		case labels["group"] == "kueue.x-k8s.io" || ofJobs:
			if sub := labels["subresource"]; sub != "" {
				resource += "/" + sub
			}
			counts[resource+" "+verb] += n
		}
	}
	return counts
}
