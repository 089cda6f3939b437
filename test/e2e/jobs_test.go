package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestJobs: batch Jobs, on one control plane with one manager.
func TestJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	c := up(t)
	c.manager(t)
	t.Run("the writes of a Job", func(t *testing.T) { c.testWrites(t) })
	t.Run("a Job without a queue is left alone", func(t *testing.T) {
		c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "free"}})
		j := job("free", "plain", "", 2, "0.5")
		c.create(t, j)
		wait.Until(t, "it completes", c.completed(t, j))
		if _, err := c.workloadOf(t, j); err == nil {
			t.Error("it got a Workload")
		}
		if j.Spec.Suspend != nil && *j.Spec.Suspend {
			t.Error("it was suspended")
		}
	})
	t.Run("a Job with an unknown queue waits and says why", func(t *testing.T) {
		j := job("free", "lost", "nowhere", 1, "0.5")
		c.create(t, j)
		wait.Until(t, "it says so", c.waits(t, j, kueue.ReasonMisconfigured))
		w, err := c.workloadOf(t, j)
		if err != nil {
			t.Fatal(err)
		}
		message := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved).Message
		if !strings.Contains(message, "nowhere") || !strings.Contains(message, "free") {
			t.Errorf("the message names neither queue nor namespace: %s", message)
		}
		c.create(t, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "late"}})
		c.queues(t, "latecomers", map[string]string{"late": "4"})
		c.create(t, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "free", Name: "nowhere"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "late"}})
		wait.Until(t, "it completes once the queue exists", c.completed(t, j))
	})
	t.Run("two Jobs over quota run one after the other", func(t *testing.T) {
		c.queues(t, "turns", map[string]string{"turns": "4"})
		first, second := job("turns", "first", "main", 3, "2"), job("turns", "second", "main", 3, "0.5")
		c.create(t, first)
		wait.Until(t, "the first runs", c.runs(t, first))
		c.create(t, second)
		wait.Until(t, "the second waits", c.waits(t, second, kueue.ReasonWaitingForQuota))
		wait.Until(t, "the first completes", c.completed(t, first))
		wait.Until(t, "the second completes", c.completed(t, second))
		if second.Status.StartTime.Before(first.Status.CompletionTime) {
			t.Errorf("the second started at %s, before the first completed at %s", second.Status.StartTime, first.Status.CompletionTime)
		}
		c.status(t, "turns", 0)
	})
	t.Run("deleting a running Job frees its quota at once", func(t *testing.T) {
		c.queues(t, "deletion", map[string]string{"deletion": "4"})
		long, next := job("deletion", "long", "main", 4, "600"), job("deletion", "next", "main", 4, "0.5")
		c.create(t, long)
		wait.Until(t, "the long one runs", c.runs(t, long))
		c.create(t, next)
		wait.Until(t, "the next one waits", c.waits(t, next, kueue.ReasonWaitingForQuota))
		if err := c.Delete(context.Background(), long, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the next one runs", c.runs(t, next))
	})
	t.Run("a Job whose pods fail finishes as failed and frees its quota", func(t *testing.T) {
		c.queues(t, "failure", map[string]string{"failure": "1"})
		j := job("failure", "fails", "main", 1, "0.2")
		j.Spec.Template.Annotations["berth.dev/exit-code"] = "3"
		j.Spec.BackoffLimit = new(int32(0))
		c.create(t, j)
		wait.Until(t, "its Workload is finished as failed", func() error {
			return c.finished(t, j, kueue.ReasonFailed)
		})
		c.status(t, "failure", 0)
	})
	t.Run("the owner of the quota gets it back", func(t *testing.T) { c.testReclaim(t) })
	t.Run("preempted in the moment of its admission", func(t *testing.T) { c.testPreemptionRace(t) })
	t.Run("a Job behind a gate of its own", func(t *testing.T) { c.testGated(t) })
	t.Run("a Job that makes do with less", func(t *testing.T) { c.testPartialAdmission(t) })
	t.Run("deactivated and activated again", func(t *testing.T) { c.testDeactivation(t) })
	t.Run("a ClusterQueue goes when its last workload is gone", func(t *testing.T) { c.testQueueDeletion(t) })
}

// testWrites counts the manager's writes of Workloads and Jobs for a Job of one pod: four writes until its Workload is finished, and one
// more that removes the Workload's finalizer. A status and a finalizer cannot be written together, and a Workload has the finalizer until
// it is finished (spec: 30 §4.3 step 7, §4.4.6). Each of the three events on the Job is one of spec 30 §5.2. With more pods, each time
// that some have succeeded costs a write that releases their quota (step 12).
func (c *cluster) testWrites(t *testing.T) {
	c.queues(t, "counted", map[string]string{"counted": "2"})
	const status = "workloads/status APPLY"
	want := map[string]float64{
		"workloads POST":  1, // create
		status:            2, // admit, finish
		"jobs PATCH":      1, // start
		"workloads PATCH": 1, // remove the finalizer
	}
	var diff string
	for i := range 3 { // on a slow machine it may wait for more than a second, which is an event
		before := c.quiet(t)
		j := job("counted", fmt.Sprint("short", i), "main", 1, "0.5")
		c.create(t, j)
		wait.Until(t, "its Workload is finished", func() error { return c.finished(t, j, kueue.ReasonSucceeded) })
		after, got := c.quiet(t), map[string]float64{}
		for kind, n := range after {
			if n -= before[kind]; n > 0 && (strings.HasPrefix(kind, "workloads") || strings.HasPrefix(kind, "jobs")) {
				got[kind] = n
			}
		}
		if got[status] == 3 {
			got[status] = 2 // its pod was observed as succeeded before the Job was complete: that releases quota
		}
		wait.Until(t, "its events are those of its transitions", func() error {
			return c.tells(t, j, "CreatedWorkload", "Started", "FinishedWorkload")
		})
		if diff = cmp.Diff(want, got); diff == "" {
			return
		}
	}
	t.Errorf("-want +got:\n%s", diff)
}

// testGated is a Job with an admission gate until it is removed (spec: 30 §7 example 28).
func (c *cluster) testGated(t *testing.T) {
	c.queues(t, "approved", map[string]string{"approved": "1"})
	j := job("approved", "gated", "main", 1, "0.5")
	j.Annotations = map[string]string{kueue.AdmissionGatedByAnnotation: "acme.io/budget"}
	c.create(t, j)
	wait.Until(t, "it waits for approval", c.waits(t, j, kueue.ReasonAdmissionGated))
	more := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"kueue.x-k8s.io/admission-gated-by":"acme.io/budget,acme.io/more"}}}`))
	if err := c.Patch(context.Background(), j.DeepCopy(), more); !apierrors.IsForbidden(err) {
		t.Errorf("a gate is added: %v", err)
	}
	c.patch(t, j, `{"metadata":{"annotations":{"kueue.x-k8s.io/admission-gated-by":null}}}`)
	wait.Until(t, "it completes", c.completed(t, j))
}

// testPartialAdmission is a Job of up to eight pods that starts with five, and has all eight when it starts again
// (spec: 30 §7 examples 29 and 72).
func (c *cluster) testPartialAdmission(t *testing.T) {
	c.queues(t, "part", map[string]string{"part": "5"})
	j := job("part", "some", "main", 8, "600")
	j.Annotations = map[string]string{kueue.JobMinParallelismAnnotation: "3"}
	c.create(t, j)
	active := func(n int32) func() error {
		return func() error {
			if err := c.get(t, j); err != nil {
				return err
			}
			if j.Status.Active != n || *j.Spec.Parallelism != n {
				return fmt.Errorf("parallelism %d, %d active", *j.Spec.Parallelism, j.Status.Active)
			}
			return nil
		}
	}
	wait.Until(t, "it runs with five", active(5))
	resize := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"parallelism":4}}`))
	if err := c.Patch(context.Background(), j.DeepCopy(), resize); !apierrors.IsForbidden(err) {
		t.Errorf("it is resized while it runs: %v", err)
	}
	toggle := func(active bool) {
		w, err := c.workloadOf(t, j)
		if err != nil {
			t.Fatal(err)
		}
		c.patch(t, w, fmt.Sprintf(`{"spec":{"active":%v}}`, active))
	}
	toggle(false)
	wait.Until(t, "it is stopped, and wants eight again", func() error {
		if err := c.get(t, j); err != nil {
			return err
		}
		if !isSuspended(j) || *j.Spec.Parallelism != 8 {
			return fmt.Errorf("suspended %v, parallelism %d", isSuspended(j), *j.Spec.Parallelism)
		}
		return nil
	})
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "part"}}
	embeddedtest.Edit(t, c, cq, func(cq *kueue.ClusterQueue) {
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("8")
	})
	toggle(true)
	wait.Until(t, "it runs with eight", active(8))
	if err := c.Delete(context.Background(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil { // others need the nodes
		t.Fatal(err)
	}
}

func (c *cluster) testReclaim(t *testing.T) {
	c.queues(t, "shared", map[string]string{"owner": "4", "guest": "4"})
	borrower := job("guest", "borrower", "main", 8, "600")
	owner := job("owner", "returns", "main", 4, "0.5")
	c.create(t, borrower)
	wait.Until(t, "the guest borrows", c.runs(t, borrower))
	c.create(t, owner)
	wait.Until(t, "the owner's job completes", c.completed(t, owner))
	w, err := c.workloadOf(t, borrower)
	if err != nil {
		t.Fatal(err)
	}
	if n := evictions(w); n != 1 {
		t.Errorf("the guest was evicted %d times", n)
	}
	wait.Until(t, "the guest runs again", c.runs(t, borrower))
	if err := c.get(t, borrower); err != nil {
		t.Fatal(err)
	}
	want := job("guest", "borrower", "main", 8, "600").Spec.Template.Spec
	got := borrower.Spec.Template.Spec
	if len(got.NodeSelector) != len(want.NodeSelector) || len(got.Tolerations) != len(want.Tolerations) {
		t.Errorf("after stop and start the template has selectors %v and tolerations %v", got.NodeSelector, got.Tolerations)
	}
}

// testPreemptionRace submits a job of high priority while the admission of a low one is being written: the low one is evicted all the
// same.
func (c *cluster) testPreemptionRace(t *testing.T) {
	c.queues(t, "race", map[string]string{"race": "1"})
	c.create(t, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000})
	for i := range 12 {
		low := job("race", fmt.Sprintf("low%d", i), "main", 1, "600")
		high := job("race", fmt.Sprintf("high%d", i), "main", 1, "0.1")
		high.Labels[kueue.PriorityClassLabel] = "high"
		c.create(t, low)
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		c.create(t, high)
		wait.Until(t, high.Name+" completes", c.completed(t, high))
		if err := c.Delete(context.Background(), low, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
}

func evictions(w *kueue.Workload) (n int32) {
	if w.Status.SchedulingStats == nil {
		return 0
	}
	for _, e := range w.Status.SchedulingStats.Evictions {
		n += e.Count
	}
	return n
}

func (c *cluster) testDeactivation(t *testing.T) {
	c.queues(t, "switch", map[string]string{"switch": "2"})
	j := job("switch", "toggled", "main", 2, "600")
	c.create(t, j)
	wait.Until(t, "it runs", c.runs(t, j))
	toggle := func(active bool) {
		w, err := c.workloadOf(t, j)
		if err != nil {
			t.Fatal(err)
		}
		before := w.DeepCopy()
		w.Spec.Active = &active
		if err := c.Patch(context.Background(), w, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	toggle(false)
	wait.Until(t, "it stops", func() error {
		if err := c.get(t, j); err != nil {
			return err
		}
		if !*j.Spec.Suspend {
			return errors.New("not suspended")
		}
		return nil
	})
	wait.Until(t, "it is released", func() error {
		w, err := c.workloadOf(t, j)
		if err != nil {
			return err
		}
		requeued := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadRequeued)
		if w.Status.Admission != nil || requeued == nil || requeued.Reason != kueue.ReasonDeactivated {
			return fmt.Errorf("admission %v, Requeued %+v", w.Status.Admission, requeued)
		}
		return nil
	})
	toggle(true)
	wait.Until(t, "it runs again", c.runs(t, j))
}

func (c *cluster) testQueueDeletion(t *testing.T) {
	c.queues(t, "goes", map[string]string{"goes": "2"})
	j := job("goes", "last", "main", 2, "3")
	c.create(t, j)
	wait.Until(t, "it runs", c.runs(t, j))
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "goes"}}
	if err := c.Delete(context.Background(), cq); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the queue terminates", func() error {
		if err := c.get(t, cq); err != nil {
			return err
		}
		active := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive)
		if active == nil || active.Reason != kueue.ReasonTerminating {
			return fmt.Errorf("Active is %+v", active)
		}
		return nil
	})
	wait.Until(t, "the job completes", c.completed(t, j))
	gone := func(o client.Object) func() error {
		return func() error {
			switch err := c.get(t, o); {
			case err == nil:
				return errors.New("still there")
			case apierrors.IsNotFound(err):
				return nil
			default:
				return err
			}
		}
	}
	wait.Until(t, "the queue is gone", gone(cq))
	rf := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "goes"}}
	if err := c.Delete(context.Background(), rf); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the flavor is gone", gone(rf))
}

// finished reports whether the Workload of a Job is finished for a reason.
func (c *cluster) finished(t *testing.T, j *batchv1.Job, reason string) error {
	t.Helper()
	w, err := c.workloadOf(t, j)
	if err != nil {
		return err
	}
	cond := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
	if cond == nil || cond.Reason != reason {
		return fmt.Errorf("Finished is %+v", cond)
	}
	return nil
}

// status waits until a queue shows that so many workloads hold quota and none waits.
func (c *cluster) status(t *testing.T, queue string, reserving int32) {
	t.Helper()
	c.holds(t, queue, reserving, 0)
}

// holds is status with some that wait.
func (c *cluster) holds(t *testing.T, queue string, reserving, pending int32) {
	t.Helper()
	wait.Until(t, "the status of the queue is up to date", func() error {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queue}}
		if err := c.get(t, cq); err != nil {
			return err
		}
		s := cq.Status
		if s.ReservingWorkloads != reserving || s.PendingWorkloads != pending {
			return fmt.Errorf("%d reserving, %d pending", s.ReservingWorkloads, s.PendingWorkloads)
		}
		if len(s.FlavorsReservation) == 0 {
			return errors.New("no figures yet")
		}
		used := s.FlavorsReservation[0].Resources[0].Total
		if reserving == 0 && !used.IsZero() {
			return fmt.Errorf("%s still reserved", used.String())
		}
		return nil
	})
}
