package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// bigNodes takes any number of pods.
func bigNodes(cfg *embedded.Config) { cfg.NodeCapacity = "cpu=1k,memory=1Ti,pods=10k" }

// TestMeasureJobSets prints the figures of JobSets: run it with `make measure-jobsets`. The Job controller, the garbage collector and the
// scheduler run beside Berth and cost most of the time; the counted writes are Berth's alone.
func TestMeasureJobSets(t *testing.T) {
	if !*measure {
		t.Skip("not asked to measure")
	}
	t.Run("large", measureLarge)
	t.Run("beside", measureBeside)
	t.Run("memory", measureMemory)
}

// measureLarge takes one JobSet of 1,000 Jobs of one pod through its life.
func measureLarge(t *testing.T) {
	const n = 1000
	c := up(t, bigNodes)
	m := c.manager(t)
	step := func(name string, do func()) {
		before, used, start := c.jobWrites(t), m.CPU(), time.Now()
		do()
		report("jobset."+name+"_s", time.Since(start).Seconds())
		time.Sleep(3 * time.Second)
		after := c.jobWrites(t)
		report("jobset."+name+"_writes", after.since(before))
		report("jobset."+name+"_writes_per_child", (after.since(before)-after.statuses+before.statuses)/n)
		report("jobset."+name+"_statuses", after.statuses-before.statuses)
		report("jobset."+name+"_cpu_s", (m.CPU() - used).Seconds())
	}
	js := jobSet("default", "large", replicated("one", n-1, 1, "3600"), replicated("other", 1, 1, "3600"))
	js.Spec.FailurePolicy = &jobsetv1alpha2.FailurePolicy{MaxRestarts: 3}
	step("create", func() {
		c.create(t, js)
		c.jobs(t, js, n, "exist", func(*batchv1.Job) bool { return true })
	})
	suspend := func(is bool) {
		wait.Until(t, "it is changed", func() error {
			if err := c.get(t, js); err != nil {
				return err
			}
			js.Spec.Suspend = &is
			return c.Update(context.Background(), js)
		})
		c.jobs(t, js, n, fmt.Sprintf("have suspend %v", is), func(j *batchv1.Job) bool { return *j.Spec.Suspend == is })
	}
	step("suspend", func() { suspend(true) })
	step("resume", func() { suspend(false) })
	step("restart", func() {
		c.fail(t, "large-other-0")
		c.jobs(t, js, n, "are of the second attempt", func(j *batchv1.Job) bool { return j.Labels[jobsetv1alpha2.RestartAttemptKey] == "1" })
	})
	wait.Until(t, "all are ready again", func() error {
		if err := c.get(t, js); err != nil {
			return err
		}
		for _, s := range js.Status.ReplicatedJobsStatus {
			if s.Name == "one" && s.Ready != n-1 {
				return fmt.Errorf("%+v", s)
			}
		}
		return nil
	})
	time.Sleep(2 * time.Second)
	before := c.jobWrites(t)
	time.Sleep(10 * time.Second)
	report("jobset.idle_writes", c.jobWrites(t).since(before))
	report("jobset.large_rss_mb", m.RSS())
	if err := c.get(t, js); err != nil || js.Status.Restarts != 1 {
		t.Errorf("%v, status %+v", err, js.Status)
	}
}

// measureBeside runs 200 JobSets of 10 Jobs to their end while one of 1,000 restarts. They have a namespace of their own: listing ten
// Jobs beside a thousand makes the API server read them all, which takes time.
func measureBeside(t *testing.T) {
	const n, small = 1000, 200
	c := up(t, bigNodes)
	c.manager(t)
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "small"}})
	js := jobSet("default", "large", replicated("one", n-1, 1, "3600"), replicated("other", 1, 1, "3600"))
	js.Spec.FailurePolicy = &jobsetv1alpha2.FailurePolicy{MaxRestarts: 3}
	c.create(t, js)
	c.jobs(t, js, n, "exist", func(*batchv1.Job) bool { return true })
	c.fail(t, "large-other-0")
	start := time.Now()
	waited, all := make([]float64, small), make([]*jobsetv1alpha2.JobSet, small)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 10)
	for i := range small {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			all[i] = jobSet("small", fmt.Sprintf("small%03d", i), replicated("a", 10, 1, "1"))
			created := time.Now()
			c.create(t, all[i])
			c.jobs(t, all[i], 10, "exist", func(*batchv1.Job) bool { return true })
			waited[i] = time.Since(created).Seconds()
		})
	}
	wg.Wait()
	report("jobset.beside.small_created_s", time.Since(start).Seconds())
	slices.Sort(waited)
	report("jobset.beside.small_wait_p50_s", waited[small/2])
	report("jobset.beside.small_wait_p99_s", waited[small*99/100])
	c.jobs(t, js, n, "are of the second attempt", func(j *batchv1.Job) bool { return j.Labels[jobsetv1alpha2.RestartAttemptKey] == "1" })
	report("jobset.beside.large_restarted_s", time.Since(start).Seconds())
	for _, js := range all {
		wait.Until(t, js.Name+" completes", c.ends(t, js, jobsetv1alpha2.TerminalStateCompleted))
	}
	report("jobset.beside.small_completed_s", time.Since(start).Seconds())
}

// measureMemory fills the caches of the manager with 10,000 Jobs and as many pods. The JobSet is suspended and the pods are made here, as
// the Job controller would: the speed of that controller is not measured.
func measureMemory(t *testing.T) {
	const n = 10000
	c := up(t, bigNodes)
	m := c.manager(t)
	report("jobset.memory.before_rss_mb", m.RSS())
	js := jobSet("default", "large", replicated("one", n, 1, "3600"))
	js.Spec.Suspend = new(true)
	start := time.Now()
	c.create(t, js)
	wait.Until(t, "all Jobs are counted", func() error {
		if err := c.get(t, js); err != nil {
			return err
		}
		if s := js.Status.ReplicatedJobsStatus; len(s) != 1 || s[0].Suspended != n {
			return fmt.Errorf("status %+v", js.Status)
		}
		return nil
	})
	report("jobset.memory.created_s", time.Since(start).Seconds())
	var jobs batchv1.JobList
	if err := c.List(context.Background(), &jobs, client.InNamespace(js.Namespace)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	failed, slots := make([]error, len(jobs.Items)), make(chan struct{}, 20)
	for i := range jobs.Items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			failed[i] = c.Create(context.Background(), podOf(&jobs.Items[i]))
		})
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	time.Sleep(15 * time.Second)
	report("jobset.memory.rss_mb", m.RSS())
	report("jobset.memory.peak_rss_mb", m.PeakRSS())
	idle, used := 20*time.Second, m.CPU()
	time.Sleep(idle)
	report("jobset.memory.idle_cpu_percent", 100*(m.CPU()-used).Seconds()/idle.Seconds())
}

// podOf is the pod of a Job, without a node.
func podOf(j *batchv1.Job) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *j.Spec.Template.ObjectMeta.DeepCopy(), Spec: *j.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.Name, p.Spec.SchedulerName = j.Namespace, j.Name+"-0-xxxxx", "none"
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, batchv1.JobCompletionIndexAnnotation, "0")
	return p
}

// jobs waits until so many Jobs of a JobSet are as wanted.
func (c *cluster) jobs(t *testing.T, js *jobsetv1alpha2.JobSet, n int, what string, is func(*batchv1.Job) bool) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("%d Jobs of %s %s", n, js.Name, what), func() error {
		var list batchv1.JobList
		err := c.List(context.Background(), &list, client.InNamespace(js.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: js.Name})
		if err != nil {
			return err
		}
		found := 0
		for i := range list.Items {
			if is(&list.Items[i]) {
				found++
			}
		}
		if found != n {
			time.Sleep(time.Duration(n) * time.Millisecond / 4) // lists of thousands cost the API server
			return fmt.Errorf("%d are", found)
		}
		return nil
	})
}

// fail makes the pod of a Job fail, like its node would.
func (c *cluster) fail(t *testing.T, job string) {
	t.Helper()
	wait.Until(t, job+" has a pod that can fail", func() error {
		var pods corev1.PodList
		if err := c.List(context.Background(), &pods, client.InNamespace("default"), client.MatchingLabels{batchv1.JobNameLabel: job}); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		pods.Items[0].Status.Phase = corev1.PodFailed
		return c.Status().Update(context.Background(), &pods.Items[0])
	})
}

// jobWrites counts, from the API server's own metrics, the writes about JobSets that Berth makes. Their controller writes
// to the status of Jobs only. Patches of a restart are the garbage collector's, which takes finalizers off with the third
// write for each Job; they are left out when Jobs were deleted.
func (c *cluster) jobWrites(t *testing.T) writes {
	t.Helper()
	cfg := embeddedtest.ConfigOf(t, c.kubeconfig)
	body, err := kubernetes.NewForConfigOrDie(cfg).RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var counts writes
	for line := range strings.Lines(string(body)) {
		found := series.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil || strings.Contains(found[1], `code="4`) {
			continue
		}
		ours := strings.Contains(found[1], `resource="jobs"`) && strings.Contains(found[1], `subresource=""`) && !strings.Contains(found[1], `verb="PUT"`) ||
			strings.Contains(found[1], `resource="jobsets"`) && strings.Contains(found[1], `subresource="status"`)
		read := strings.Contains(found[1], `verb="GET"`) || strings.Contains(found[1], `verb="LIST"`) || strings.Contains(found[1], `verb="WATCH"`)
		if !ours || read {
			continue
		}
		n, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.Contains(found[1], `resource="jobsets"`):
			counts.statuses += n
		case strings.Contains(found[1], `verb="DELETE"`):
			counts.deletions += n
		case strings.Contains(found[1], `verb="POST"`):
			counts.creations += n
		default:
			counts.patches += n
		}
	}
	return counts
}

// writes are numbers of them, of Jobs and of statuses of JobSets.
type writes struct{ creations, patches, deletions, statuses float64 }

// since is the difference to an earlier count, without the garbage collector's writes.
func (w writes) since(before writes) float64 {
	n := w.creations - before.creations + w.deletions - before.deletions + w.statuses - before.statuses
	if w.deletions == before.deletions {
		n += w.patches - before.patches
	}
	return n
}
