package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// replicated is a replicated job whose Jobs have some pods that run for some seconds.
func replicated(name string, jobs, pods int32, seconds string, annotations ...string) jobsetv1alpha2.ReplicatedJob {
	run := map[string]string{"berth.dev/run-seconds": seconds}
	for i := 0; i < len(annotations); i += 2 {
		run[annotations[i]] = annotations[i+1]
	}
	return jobsetv1alpha2.ReplicatedJob{Name: name, Replicas: &jobs, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
		Parallelism: &pods, Completions: &pods, BackoffLimit: new(int32(0)),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: run}, Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "any"}},
		}},
	}}}
}

// jobSet makes one of replicated jobs.
func jobSet(namespace, name string, of ...jobsetv1alpha2.ReplicatedJob) *jobsetv1alpha2.JobSet {
	return &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: of}}
}

// ends is a check for eventually.
func (c *cluster) ends(t *testing.T, js *jobsetv1alpha2.JobSet, state string) func() error {
	return func() error {
		if err := c.get(t, js); err != nil {
			return err
		}
		if js.Status.TerminalState != state {
			return fmt.Errorf("status %+v", js.Status)
		}
		return nil
	}
}

// TestJobSetCrash kills the manager with SIGKILL again and again, at random moments, while JobSets run, fail and restart.
// In the end each has restarted exactly as often as its failures allow, and at no time pods of two attempts of one Job ran
// side by side.
func TestJobSetCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	const pairs, kills, maxRestarts = 6, 8, 3
	c := up(t)
	m := c.manager(t)
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab"}})
	var good, bad []*jobsetv1alpha2.JobSet
	for i := range pairs {
		good = append(good, jobSet("lab", fmt.Sprintf("good%d", i), replicated("a", 2, 2, "2"), replicated("b", 1, 1, "3")))
		bad = append(bad, jobSet("lab", fmt.Sprintf("bad%d", i),
			replicated("long", 2, 2, "600"), replicated("brief", 1, 1, "0.5", "berth.dev/exit-code", "1")))
		bad[i].Spec.FailurePolicy = &jobsetv1alpha2.FailurePolicy{MaxRestarts: maxRestarts}
		c.create(t, good[i], bad[i])
	}
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	mixed := make(chan string, 1)
	go func() { mixed <- c.twoAttempts(watching) }()
	random := rand.New(rand.NewPCG(embeddedtest.Seed(t, 0), 0))
	for range kills {
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		m.Kill()
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		m = c.manager(t)
	}
	for i := range pairs {
		wait.Until(t, good[i].Name+" completes", c.ends(t, good[i], jobsetv1alpha2.TerminalStateCompleted))
		wait.Until(t, bad[i].Name+" fails", c.ends(t, bad[i], jobsetv1alpha2.TerminalStateFailed))
		for js, restarts := range map[*jobsetv1alpha2.JobSet]int32{good[i]: 0, bad[i]: maxRestarts} {
			if s := &js.Status; s.Restarts != restarts || s.RestartsCountTowardsMax != restarts {
				t.Errorf("%s: %d restarts, %d of them count, want %d", js.Name, s.Restarts, s.RestartsCountTowardsMax, restarts)
			}
		}
	}
	stop()
	if found := <-mixed; found != "" {
		t.Error(found)
	}
}

// twoAttempts samples, until ctx ends, whether a Job has pods of two attempts that have not ended.
func (c *cluster) twoAttempts(ctx context.Context) (found string) {
	for ctx.Err() == nil {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.HasLabels{jobsetv1alpha2.JobSetNameKey}); err != nil {
			continue
		}
		attempt := map[string]string{}
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
				continue
			}
			job, now := p.Labels[batchv1.JobNameLabel], p.Labels[jobsetv1alpha2.RestartAttemptKey]
			if before, ok := attempt[job]; ok && before != now {
				found = fmt.Sprintf("Job %s has pods of the attempts %s and %s", job, before, now)
			}
			attempt[job] = now
		}
		time.Sleep(50 * time.Millisecond)
	}
	return found
}
