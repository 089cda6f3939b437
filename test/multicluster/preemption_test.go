package multicluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// gateTime is how long one worker at a time may preempt in TestOrchestratedPreemption: longer than a slow machine takes to do so.
const gateTime = 40 * time.Second

// TestOrchestratedPreemption sends urgent jobs to workers that are full of others: one worker at a time makes room (spec: 40 §4.10).
func TestOrchestratedPreemption(t *testing.T) {
	if testing.Short() {
		t.Skip("runs three control planes")
	}
	t.Parallel()
	all := start(t, []string{"hub", "w1", "w2"}, map[string]string{
		"hub": frameworks + "featureGates: {MultiKueueOrchestratedPreemption: true}\nmultiKueue: {singleClusterPreemptionTimeout: " + gateTime.String() + "}\n",
		"w1":  frameworks, "w2": frameworks + "featureGates: {ConcurrentAdmission: true}\n",
	})
	hub, w1, w2 := all[0], all[1], all[2]
	workers := map[string]*cluster{"w1": w1, "w2": w2}
	hub.workers(w1, w2)
	hub.queues("100", "workers")
	for _, c := range all {
		c.create(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000})
	}
	low := map[string]*batchv1.Job{}
	for _, w := range []*cluster{w1, w2} {
		w.queues("4")
		w.change(func(cq *kueue.ClusterQueue) {
			cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionLowerPriority}
		})
		hub.connection(w.name, metav1.ConditionTrue, kueue.ReasonActive)
		low[w.name] = job("low", "3", "3600")
		w.create(low[w.name])
		w.runs(low[w.name])
	}
	urgent := func(name string) *batchv1.Job {
		j := job(name, "4", endless)
		j.Labels[kueue.PriorityClassLabel] = "urgent"
		hub.create(j)
		return j
	}

	t.Run("one worker makes room, and the other is left in peace", func(t *testing.T) {
		j := urgent("first")
		at := hub.on(j)
		other := map[string]string{"w1": "w2", "w2": "w1"}[at]
		hub.finish(j, w1, w2)
		if n := workers[at].evictions(low[at]); n != 1 {
			t.Errorf("%s, which makes room, evicted %d times", at, n)
		}
		if n := workers[other].evictions(low[other]); n != 0 {
			t.Errorf("%s evicted %d times as well", other, n)
		}
		w1.empty()
		w2.empty()
		workers[at].runs(low[at]) // there is room again
	})
	t.Run("the next one makes room when the first could not in time", func(t *testing.T) {
		// What holds the quota of w1 does not give it back, and w2 asks later.
		if err := w1.Delete(t.Context(), low["w1"], client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		stuck := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "stuck"}, Spec: kueue.WorkloadSpec{
			QueueName: "main", Priority: new(int32(0)), PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: low["w1"].Spec.Template}},
		}}
		w1.create(stuck)
		wait.Until(t, "w1 is full", func() error {
			if err := w1.Get(t.Context(), client.ObjectKeyFromObject(stuck), stuck); err != nil || !lifecycle.IsAdmitted(stuck) {
				return fmt.Errorf("%+v: %w", stuck.Status, errors.Join(err, errors.New("not admitted")))
			}
			return nil
		})
		before := w2.evictions(low["w2"])
		w2.change(func(cq *kueue.ClusterQueue) { cq.Spec.StopPolicy = kueue.StopPolicyHold })
		j := urgent("second")
		first := hub.opened(w1, j)
		w2.change(func(cq *kueue.ClusterQueue) { cq.Spec.StopPolicy = kueue.StopPolicyNone })
		var second time.Time
		wait.Until(t, "w2 is asked in its turn", func() (err error) {
			stopped := w2.running(low["w2"]) // looked at first: as long as the gate is closed later, it was closed then
			if w2.asks(j, hub) == nil && stopped != nil {
				t.Fatalf("w2 preempts although its gate is closed: %v", stopped)
			}
			second, err = hub.openedAt(w2, j)
			return err
		})
		if gap := second.Sub(first); gap < gateTime-time.Second { // the times are in whole seconds
			t.Errorf("w2 was let preempt %s after w1", gap)
		}
		if at := hub.on(j); at != "w2" {
			t.Errorf("it runs on %s", at)
		}
		hub.finish(j, w1, w2)
		if n := w2.evictions(low["w2"]) - before; n != 1 {
			t.Errorf("w2 evicted %d times", n)
		}
		w1.empty()
		w2.empty()
	})
	t.Run("the gate of a job that a worker tries on several flavors", func(t *testing.T) { // spec: 20 §4.13
		const queue = "tried" // w1 does not have it
		flavors := []kueue.FlavorQuotas{
			{Name: "default", Resources: []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("4")}}},
			{Name: "small", Resources: []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("1")}}},
		}
		w2.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "small"}}, &kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: queue}, Spec: kueue.ClusterQueueSpec{
				NamespaceSelector: &metav1.LabelSelector{}, Preemption: &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionLowerPriority},
				ResourceGroups:            []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{corev1.ResourceCPU}, Flavors: flavors}},
				ConcurrentAdmissionPolicy: &kueue.ConcurrentAdmissionPolicy{Migration: kueue.ConcurrentAdmissionMigration{Mode: kueue.RetainFirstAdmission}},
			},
		})
		for c, name := range map[*cluster]kueue.ClusterQueueReference{hub: "team", w2: queue} {
			c.create(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: queue}, Spec: kueue.LocalQueueSpec{ClusterQueue: name}})
		}
		here, there := job("here", "3", "3600"), job("third", "4", endless)
		here.Labels[kueue.QueueNameLabel], there.Labels[kueue.QueueNameLabel], there.Labels[kueue.PriorityClassLabel] = queue, queue, "urgent"
		w2.create(here)
		w2.runs(here)
		hub.create(there)
		hub.opened(w2, there)
		if at := hub.on(there); at != "w2" {
			t.Errorf("it runs on %s", at)
		}
		w, err := hub.workload(there)
		if err != nil {
			t.Fatal(err)
		}
		if err := w2.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil || !lifecycle.IsParent(w) {
			t.Errorf("its copy has the labels %v: %v", w.Labels, err)
		}
		hub.finish(there, w1, w2)
		if n := w2.evictions(here); n != 1 {
			t.Errorf("w2 evicted %d times", n)
		}
		w1.empty()
		w2.empty()
		w2.runs(here)
	})
}

// change changes the team's ClusterQueue.
func (c *cluster) change(change func(*kueue.ClusterQueue)) {
	c.t.Helper()
	wait.Until(c.t, "the queue of "+c.name+" is changed", func() error {
		var cq kueue.ClusterQueue
		if err := c.Get(c.t.Context(), client.ObjectKey{Name: "team"}, &cq); err != nil {
			return err
		}
		change(&cq)
		return c.Update(c.t.Context(), &cq)
	})
}

// runs waits until a Job of the cluster's own runs.
func (c *cluster) runs(j *batchv1.Job) {
	c.t.Helper()
	wait.Until(c.t, j.Name+" runs on "+c.name, func() error { return c.running(j) })
}

func (c *cluster) running(j *batchv1.Job) error {
	if err := c.Get(c.t.Context(), client.ObjectKeyFromObject(j), j); err != nil {
		return err
	}
	if j.Status.Active != 1 {
		return fmt.Errorf("%+v", j.Status)
	}
	return nil
}

// evictions is how often a Job of the cluster's own was evicted.
func (c *cluster) evictions(j *batchv1.Job) int {
	c.t.Helper()
	w, err := c.workload(j)
	if err != nil {
		c.t.Fatal(err)
	}
	n := 0
	if w.Status.SchedulingStats != nil {
		for _, e := range w.Status.SchedulingStats.Evictions {
			n += int(e.Count)
		}
	}
	return n
}

// opened waits until a worker is the last one that was let preempt for a Job of the hub, and returns when that was. A worker itself shows
// it no longer once it has made room.
func (c *cluster) opened(worker *cluster, j *batchv1.Job) (at time.Time) {
	c.t.Helper()
	wait.Until(c.t, fmt.Sprintf("%s may preempt for %s", worker.name, j.Name), func() (err error) {
		at, err = c.openedAt(worker, j)
		return err
	})
	return at
}

func (c *cluster) openedAt(worker *cluster, j *batchv1.Job) (time.Time, error) {
	w, err := c.workload(j)
	if err != nil {
		return time.Time{}, err
	}
	noted := w.Annotations[plan.GateOpenedAnnotation]
	name, at, _ := strings.Cut(noted, " ")
	if name != worker.name {
		return time.Time{}, fmt.Errorf("the last gate that was opened: %q, status %+v", noted, w.Status)
	}
	return time.Parse(time.RFC3339, at)
}

// asks returns an error unless the copy of a Job of the hub waits for its gate.
func (c *cluster) asks(j *batchv1.Job, hub *cluster) error {
	w, err := hub.workload(j)
	if err != nil {
		return err
	}
	if err := c.Get(c.t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
		return err
	}
	if len(w.Spec.PreemptionGates) != 1 || w.Spec.PreemptionGates[0].Name != kueue.MultiKueuePreemptionGate {
		return fmt.Errorf("its gates are %v", w.Spec.PreemptionGates)
	}
	closed := func(g kueue.PreemptionGateState) bool { return g.Position == kueue.PreemptionGateClosed }
	blocked := lifecycle.Condition(w, kueue.WorkloadBlockedOnPreemptionGates)
	if !slices.ContainsFunc(w.Status.PreemptionGates, closed) || blocked == nil || blocked.Status != metav1.ConditionTrue {
		return fmt.Errorf("%+v", w.Status)
	}
	return nil
}
