package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestCrash kills the manager again and again, at random moments, while Jobs of two
// teams come and go over quota. In the end each has run exactly once to completion
// but for preemptions that are on record, and at no time more GPUs were in use than
// there are.
func TestCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	const quota, jobs, kills = 8, 24, 8
	c := up(t)
	m := c.manager(t)
	c.queues(t, "crash", map[string]string{"red": "4", "blue": "4"})
	all := make([]*batchv1.Job, 0, jobs)
	for i := range jobs {
		team := []string{"red", "blue"}[i%2]
		all = append(all, job(team, fmt.Sprintf("j%d", i), "main", int32(1+i%5), "1"))
	}
	random := rand.New(rand.NewPCG(embeddedtest.Seed(t, 0), 0))
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	peak := make(chan usage, 1)
	go func() { peak <- c.peakUse(watching) }()

	submit := all
	for range kills {
		// The webhook is down with its manager, so Jobs come only while it is up.
		for range jobs / kills {
			c.create(t, submit[0])
			submit = submit[1:]
		}
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		m.Kill()
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		m = c.manager(t)
	}
	for _, j := range all {
		wait.Until(t, j.Name+" completes", c.completed(t, j))
	}
	stop()
	if most := <-peak; most.gpus > quota {
		t.Errorf("%d GPUs were in use at once, the quota is %d: %v", most.gpus, quota, most.by)
	}
	for _, j := range all {
		wait.Until(t, "the Workload of "+j.Name+" is finished", func() error {
			return c.finished(t, j, kueue.ReasonSucceeded)
		})
		if j.Status.Succeeded != *j.Spec.Completions {
			t.Errorf("%s: %d of %d pods succeeded", j.Name, j.Status.Succeeded, *j.Spec.Completions)
		}
		var list kueue.WorkloadList
		if err := c.List(context.Background(), &list, client.InNamespace(j.Namespace)); err != nil {
			t.Fatal(err)
		}
		n := 0
		for i := range list.Items {
			if len(list.Items[i].OwnerReferences) > 0 && list.Items[i].OwnerReferences[0].UID == j.UID {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s has %d Workloads", j.Name, n)
		}
	}
	c.status(t, "red", 0)
	c.status(t, "blue", 0)
}

// usage is how many GPUs reservations hold, in all and by Workload.
type usage struct {
	gpus int64
	by   map[string]int64
}

// peakUse samples, until ctx ends, the usage of all reservations, and returns the highest. One list is one moment: several would
// count twice what moved between them.
func (c *cluster) peakUse(ctx context.Context) (most usage) {
	for ctx.Err() == nil {
		var list kueue.WorkloadList
		if err := c.List(ctx, &list); err != nil {
			continue
		}
		now := usage{by: map[string]int64{}}
		for i := range list.Items {
			if n := held(&list.Items[i]); n > 0 {
				now.gpus += n
				now.by[list.Items[i].Name] = n
			}
		}
		if now.gpus > most.gpus {
			most = now
		}
		time.Sleep(20 * time.Millisecond)
	}
	return most
}

// held is how many GPUs a Workload holds. Pods that have succeeded hold none, also before the Workload finishes.
func held(w *kueue.Workload) (gpus int64) {
	reserved := apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if !reserved || w.Status.Admission == nil || apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
		return 0
	}
	over := map[kueue.PodSetReference]int32{}
	for _, r := range w.Status.ReclaimablePods {
		over[r.Name] = r.Count
	}
	for _, a := range w.Status.Admission.PodSetAssignments {
		q, pods := a.ResourceUsage["nvidia.com/gpu"], *a.Count
		gpus += q.Value() * int64(pods-over[a.Name]) / int64(pods)
	}
	return gpus
}
