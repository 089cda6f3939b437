package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// elastic is a Job of one pod a GPU that may be resized while it runs, and never ends.
func elastic(namespace, name string, gpus int32) *batchv1.Job {
	j := job(namespace, name, "main", gpus, "600")
	j.Annotations = map[string]string{kueue.ElasticJobAnnotation: "true"}
	j.Spec.Completions = nil
	return j
}

// scale resizes a Job, also while the webhook is away.
func (c *cluster) scale(t *testing.T, j *batchv1.Job, n int32) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("%s is scaled to %d", j.Name, n), func() error {
		if err := c.get(t, j); err != nil {
			return err
		}
		j.Spec.Parallelism = &n
		return c.Update(context.Background(), j)
	})
}

// pruned waits until the Job controller has deleted the pods that a Job does not want any more. One that is enlarged before keeps them, and
// they run above its quota until the larger slice is admitted.
func (c *cluster) pruned(t *testing.T, j *batchv1.Job) {
	t.Helper()
	wait.Until(t, "surplus pods of "+j.Name+" are gone", func() error {
		if err := c.get(t, j); err != nil {
			return err
		}
		running, gated, err := c.running(t.Context(), j)
		if err == nil && running+gated > *j.Spec.Parallelism {
			err = fmt.Errorf("%d run and %d are gated of %d", running, gated, *j.Spec.Parallelism)
		}
		return err
	})
}

// slices returns the live Workloads of a Job, and the reasons why the others ended.
func (c *cluster) slices(j *batchv1.Job) (live []*kueue.Workload, ended []string, err error) {
	var list kueue.WorkloadList
	if err := c.List(context.Background(), &list, client.InNamespace(j.Namespace)); err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		w := &list.Items[i]
		if owner := metav1.GetControllerOf(w); owner == nil || owner.UID != j.UID {
			continue
		}
		if f := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished); f != nil {
			ended = append(ended, f.Reason)
		} else {
			live = append(live, w)
		}
	}
	return live, ended, nil
}

// running counts the pods of a Job that are on nodes, and the gated ones. Terminating pods are neither.
func (c *cluster) running(ctx context.Context, j *batchv1.Job) (running, gated int32, err error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(j.Namespace), client.MatchingLabels{batchv1.JobNameLabel: j.Name}); err != nil {
		return 0, 0, err
	}
	for i := range list.Items {
		p := &list.Items[i]
		switch {
		case p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case len(p.Spec.SchedulingGates) > 0:
			gated++
		default:
			running++
		}
	}
	return running, gated, nil
}

// has waits until so many pods of a Job run, so many are gated, and one slice is left, or two while one waits.
func (c *cluster) has(t *testing.T, j *batchv1.Job, running, gated int32) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("%d pods of %s run and %d are gated", running, j.Name, gated), func() error {
		r, g, err := c.running(t.Context(), j)
		if err != nil {
			return err
		}
		live, ended, err := c.slices(j)
		slices := 1
		if gated > 0 {
			slices = 2
		}
		if r != running || g != gated || len(live) != slices {
			return fmt.Errorf("%d run, %d are gated, %d live slices, ended %v", r, g, len(live), ended)
		}
		return err
	})
}

// TestElasticJobs resizes Jobs while they run.
func TestElasticJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	c := up(t)
	m := c.manager(t)
	c.queues(t, "elastic", map[string]string{"red": "5"})
	j := elastic("red", "grows", 4)
	c.create(t, j)
	c.has(t, j, 4, 0)

	t.Run("grows as far as there is quota", func(t *testing.T) {
		c.scale(t, j, 6)
		c.has(t, j, 4, 2)
		c.quota(t, "red", "6")
		c.has(t, j, 6, 0)
		if _, ended, err := c.slices(j); err != nil || len(ended) != 1 || ended[0] != kueue.ReasonWorkloadSliceReplaced {
			t.Errorf("ended %v, %v", ended, err)
		}
	})
	t.Run("shrinks in place, and another takes the room", func(t *testing.T) {
		before, _, _ := c.slices(j)
		c.scale(t, j, 3)
		c.has(t, j, 3, 0)
		wait.Until(t, "it is the same slice, of 3 pods", func() error {
			after, _, err := c.slices(j)
			if err == nil && (len(after) != 1 || after[0].UID != before[0].UID || after[0].Spec.PodSets[0].Count != 3) {
				err = fmt.Errorf("%d slices", len(after))
			}
			return err
		})
		other := job("red", "other", "main", 3, "0.5")
		c.create(t, other)
		wait.Until(t, "the other completes", c.completed(t, other))
	})
	t.Run("a slice cannot grow in place", func(t *testing.T) {
		wait.Until(t, "it is forbidden", func() error { // a status that changes just now is a conflict
			live, _, err := c.slices(j)
			if err != nil || len(live) != 1 {
				return errors.Join(err, fmt.Errorf("%d live slices", len(live)))
			}
			live[0].Spec.PodSets[0].Count = 5
			if err := c.Update(t.Context(), live[0]); !apierrors.IsForbidden(err) {
				return errors.Join(err, errors.New("want it forbidden"))
			}
			return nil
		})
	})
	t.Run("the opt-in cannot be taken back", func(t *testing.T) {
		body := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"kueue.x-k8s.io/elastic-job":null}}}`))
		if err := c.Patch(t.Context(), j.DeepCopy(), body); !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want it forbidden", err)
		}
	})
	t.Run("is preempted while it waits to grow", func(t *testing.T) {
		c.scale(t, j, 8)
		c.has(t, j, 3, 5)
		c.create(t, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100})
		first := job("red", "first", "main", 5, "2")
		first.Labels[kueue.PriorityClassLabel] = "high"
		c.create(t, first)
		wait.Until(t, "the important one completes", c.completed(t, first))
		c.scale(t, j, 6)
		c.has(t, j, 6, 0)
	})
	t.Run("goes on after a crash", func(t *testing.T) {
		c.scale(t, j, 4)
		c.has(t, j, 4, 0)
		m.Kill()
		m = c.manager(t)
		c.scale(t, j, 5)
		c.has(t, j, 5, 0)
	})
}

// quota sets the quota of a ClusterQueue.
func (c *cluster) quota(t *testing.T, queue, gpus string) {
	t.Helper()
	wait.Until(t, "the quota is set", func() error {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queue}}
		if err := c.get(t, cq); err != nil {
			return err
		}
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.SetMilli(0)
		if err := cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.UnmarshalJSON([]byte(`"` + gpus + `"`)); err != nil {
			return err
		}
		return c.Update(context.Background(), cq)
	})
}

// TestElasticCrash resizes Jobs at random while important ones come and go and the manager is killed, and counts pods all the time: never
// do more run for longer than a moment than are admitted, or than there is quota for. At the end every Job has one slice and runs at its
// size.
func TestElasticCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	const quota, rounds = 8, 30
	c := up(t)
	m := c.manager(t)
	c.queues(t, "elastic", map[string]string{"red": "4", "blue": "4"})
	c.create(t, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100})
	jobs := []*batchv1.Job{elastic("red", "a", 2), elastic("red", "b", 1), elastic("blue", "c", 3)}
	for _, j := range jobs {
		c.create(t, j)
	}
	random := rand.New(rand.NewPCG(embeddedtest.Seed(t, 0), 0))
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	wrong := make(chan string, 1)
	go func() { wrong <- c.audit(watching, jobs, quota) }()

	for round := range rounds {
		j := jobs[random.IntN(len(jobs))]
		c.pruned(t, j)
		c.scale(t, j, int32(1+random.IntN(4)))
		if random.IntN(6) == 0 {
			first := job("red", fmt.Sprintf("first%d", round), "main", int32(1+random.IntN(4)), "0.3")
			first.Labels[kueue.PriorityClassLabel] = "high"
			c.create(t, first)
		}
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		if round%5 == 4 {
			m.Kill()
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
			m = c.manager(t)
		}
	}
	for _, j := range jobs {
		c.scale(t, j, 2)
	}
	for _, j := range jobs {
		c.has(t, j, 2, 0)
	}
	stop()
	if what := <-wrong; what != "" {
		t.Error(what)
	}
}

// trueOf returns the conditions that are true.
func trueOf(w *kueue.Workload) (types []string) {
	for _, c := range w.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			types = append(types, c.Type)
		}
	}
	return types
}

// audit counts until ctx ends, and returns violations that lasted for more than a moment, and many looks: a slow machine may be late between
// two of them. Pods that the Job controller has yet to delete do not count, however long it takes.
func (c *cluster) audit(ctx context.Context, jobs []*batchv1.Job, quota int32) string {
	const moment, looks = 2 * time.Second, 20
	type violation struct {
		since time.Time
		seen  int
	}
	found := map[string]violation{}
	for ctx.Err() == nil {
		total := int32(0)
		bad, seen := map[string]bool{}, map[string]string{}
		for _, j := range jobs {
			running, _, err := c.running(ctx, j)
			live, _, err2 := c.slices(j)
			var now batchv1.Job
			if errors.Join(err, err2, c.Get(ctx, client.ObjectKeyFromObject(j), &now)) != nil {
				continue
			}
			running = min(running, *now.Spec.Parallelism)
			total += running
			granted := int32(0)
			for _, w := range live {
				if w.Status.Admission != nil && apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) {
					granted = max(granted, w.Spec.PodSets[0].Count)
				}
			}
			what := fmt.Sprintf("more pods of %s run than are admitted", j.Name)
			bad[what] = running > granted
			seen[what] = fmt.Sprintf("%d run, of %d, suspended %v, status %+v:", running, *now.Spec.Parallelism, *now.Spec.Suspend, now.Status)
			for _, w := range live {
				seen[what] += fmt.Sprintf(" %s of %d pods %v", w.Name, w.Spec.PodSets[0].Count, trueOf(w))
			}
		}
		bad["more pods run than there is quota for"] = total > quota
		for what, is := range bad {
			if !is {
				delete(found, what)
				continue
			}
			v := found[what]
			if v.seen++; v.seen == 1 {
				v.since = time.Now()
			}
			if found[what] = v; v.seen > looks && time.Since(v.since) > moment {
				return what + ": " + seen[what]
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ""
}
