package compat

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestInterruptedAtAnyWrite takes Workloads and a Job through their whole life, in many worlds at once, with another write interrupted in
// each: one write of each kind by one fault, and with -long every write by every fault. All of them end the same, and in none more quota
// was in use than there is.
func TestInterruptedAtAnyWrite(t *testing.T) { interruptAtAnyWrite(t, "", 25, live) }

// interruptAtAnyWrite takes worlds through a life of at least so many writes, with another write interrupted in each.
func interruptAtAnyWrite(t *testing.T, config string, least int, live func(*world)) {
	t.Helper()
	s := newSaboteur()
	running(t, config, through(s.wrap))
	plain := newWorld(t)
	s.plan(plain.name, planned{})
	live(plain)
	writes, _ := s.result(plain.name)
	if len(writes) < least {
		t.Fatalf("only %d writes in a whole life: the test lost its way", len(writes))
	}
	t.Logf("%d writes in a whole life", len(writes))
	faults, first := []fault{conflict, serverError, lost}, embeddedtest.Random(t).IntN(3)
	t.Run("worlds", func(t *testing.T) {
		for i, at := range embeddedtest.SampleWrites(t, writes) {
			for n := range pick(1, len(faults)) {
				f := faults[(first+i+n)%len(faults)]
				t.Run(fmt.Sprintf("%s at write %d, %s", f, at, writes[at-1]), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t)
					s.plan(w.name, planned{at, f})
					live(w)
					if _, interrupted := s.result(w.name); interrupted == "" {
						t.Logf("it needed fewer writes than %d", at)
					}
				})
			}
		}
	})
}

// TestKilled does the same, and kills the manager again and again at whatever write it is making.
func TestKilled(t *testing.T) { killAgainAndAgain(t, "", live) }

// killAgainAndAgain takes worlds through a life while the manager is killed at one write after another.
func killAgainAndAgain(t *testing.T, config string, live func(*world)) {
	t.Helper()
	at := cluster(t)
	webhooks := launch(t, at, configured(t, config), only(t, "webhooks"))
	webhooks.ready()
	random := rand.New(rand.NewPCG(embeddedtest.Seed(t, 0), 1))
	over, died := make(chan struct{}), make(chan struct{})
	kills := 0
	go func() {
		defer close(died)
		for {
			s := newSaboteur()
			s.plan("*", planned{1 + random.IntN(40), killed})
			m := launch(t, at, configured(t, config), only(t, "-webhooks"), through(s.wrap))
			for !s.isDead() {
				select {
				case <-over:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
			kills++
			_ = m.end() // its remaining requests reach no server
		}
	}()
	for group := range pick(1, 10) { // many worlds at once would be slow: each start of a manager writes to all of them
		t.Run(fmt.Sprintf("group %d", group), func(t *testing.T) {
			for i := range pick(3, 6) {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					live(newWorld(t))
				})
			}
		})
	}
	close(over)
	<-died
	t.Logf("%d kills", kills)
	if kills < 3 {
		t.Errorf("only %d kills", kills)
	}
}

// live is a whole life of a world.
func live(w *world) {
	w.t.Helper()
	c := w.check("c")
	q := w.queue("q", "4", checked(every(c)...), preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
	jobs := w.queue("jobs", "2")
	guard := w.guard(map[string]int64{q.Name: 4, jobs.Name: 2})
	job := w.startJob()

	victim := w.workload("victim", "q", "4")
	w.until(victim, reserved)
	w.answer(victim, c, kueue.CheckStateRetry)
	w.until(victim, "Evicted=True/AdmissionCheck")
	w.release(victim)
	w.until(victim, reserved, "Requeued=True/BackoffFinished")
	w.answer(victim, c, kueue.CheckStateReady)
	w.admits(victim)
	p := w.workload("p", "q", "3", priority(9))
	w.until(victim, "Evicted=True/Preempted", "Preempted=True/InClusterQueue")
	w.release(victim)
	w.until(p, reserved)
	w.answer(p, c, kueue.CheckStateReady)
	w.admits(p)
	w.answer(p, c, kueue.CheckStateRejected)
	w.until(p, "Evicted=True/DeactivatedDueToAdmissionCheck")
	w.release(p)
	w.until(p, "Requeued=False/DeactivatedDueToAdmissionCheck", "QuotaReserved=False/Deactivated", "-DeactivationTarget")
	w.until(victim, reserved)
	w.answer(victim, c, kueue.CheckStateReady)
	w.admits(victim)
	edit(w, q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyHoldAndDrain })
	w.until(victim, "Evicted=True/ClusterQueueStopped")
	w.release(victim)
	w.waits(kueue.ReasonSuspended, victim)
	edit(w, q, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = kueue.StopPolicyNone })
	w.until(victim, reserved, "Requeued=True/ClusterQueueRestarted")
	w.answer(victim, c, kueue.CheckStateReady)
	w.admits(victim)
	w.usage(q, "4", "4")
	w.finish(victim)

	w.endJob(job)
	for _, wl := range []*kueue.Workload{victim, p} {
		want := map[string][]string{
			"victim": {"AdmissionCheck/ 1", "ClusterQueueStopped/ 1", "Preempted/ 1"},
			"p":      {"Deactivated/AdmissionCheck 1"},
		}[wl.Name]
		if got := evictions(read(w, wl)); !slices.Equal(got, want) {
			w.t.Errorf("%s: evictions %v, want %v", wl.Name, got, want)
		}
	}
	w.usage(q, "0", "0")
	w.usage(jobs, "0", "0")
	guard()
	w.must(w.c.Delete(w.ctx(), q))
	w.must(w.c.Delete(w.ctx(), jobs))
	f := &kueue.ResourceFlavor{ObjectMeta: w.meta("f")}
	w.must(w.c.Delete(w.ctx(), f))
	for _, o := range []client.Object{q, jobs, f} {
		wait.Until(w.t, o.GetName()+" is gone", func() error { return errStill(w.c.Get(w.ctx(), client.ObjectKeyFromObject(o), o)) })
	}
}

// startJob makes a Job that comes to run.
func (w *world) startJob() *batchv1.Job {
	w.t.Helper()
	job := w.submit("jobs")
	wait.Until(w.t, "the job starts", func() error { return equal(*read(w, job).Spec.Suspend, false) })
	return job
}

func (w *world) submit(queue string) *batchv1.Job {
	w.t.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: "job", Labels: map[string]string{kueue.QueueNameLabel: queue}},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: podSpec("cpu", "2")}},
	}
	w.create(job)
	return job
}

// workloadOf waits for the one Workload of a Job.
func (w *world) workloadOf(job *batchv1.Job) *kueue.Workload {
	w.t.Helper()
	wl := &kueue.Workload{}
	wait.Until(w.t, "it has one workload", func() error {
		var list kueue.WorkloadList
		w.must(w.c.List(w.ctx(), &list, client.InNamespace(w.name)))
		n := 0
		for i := range list.Items {
			if o := metav1.GetControllerOf(&list.Items[i]); o != nil && o.UID == job.UID {
				*wl, n = list.Items[i], n+1
			}
		}
		return equal(n, 1)
	})
	return wl
}

// endJob does what the Job controller does, and waits for what follows.
func (w *world) endJob(job *batchv1.Job) {
	w.t.Helper()
	wl := w.workloadOf(job)
	for {
		now := read(w, job)
		at := metav1.Now()
		now.Status = batchv1.JobStatus{StartTime: &at, CompletionTime: &at, Succeeded: 1, Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: at},
			{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: at},
		}}
		if err := w.c.Status().Update(w.ctx(), now); !apierrors.IsConflict(err) {
			w.must(err)
			break
		}
	}
	w.until(wl, "Finished=True/Succeeded")
	wait.Until(w.t, "it is let go", func() error { return equal(len(read(w, wl).Finalizers), 0) })
	if g := read(w, job).Generation; g != 2 {
		w.t.Errorf("the spec of the job was changed %d times, want once: it was started", g-1)
	}
}
