package controller_test

import (
	"crypto/sha1"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// ring is the JobSet of the acceptance examples (60 §7): coach has one pod, each of three oars two.
const ring = `
metadata: {name: ring}
spec:
  replicatedJobs:
  - {name: coach, template: {spec: {parallelism: 1, completions: 1, template: {spec: {containers: [{name: c, image: i}]}}}}}
  - {name: oar, replicas: 3, template: {spec: {parallelism: 2, completions: 2, template: {spec: {containers: [{name: c, image: i}]}}}}}
`

// with adds lines to the spec of ring.
func with(lines ...string) string {
	return ring + "  " + strings.Join(lines, "\n  ") + "\n"
}

var allOfRing = []string{"ring-coach-0", "ring-oar-0", "ring-oar-1", "ring-oar-2"}

// Acceptance 2, 3, 10, 11: children, their identity, and the Service.
func TestChildren(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(ring)
	jobs := w.haveJobs(allOfRing...)
	oar := jobs["ring-oar-2"]
	key := fmt.Sprintf("%x", sha1.Sum([]byte(w.namespace+"/ring-oar-2")))
	for label, want := range map[string]string{
		jobsetv1alpha2.JobIndexKey: "2", jobsetv1alpha2.JobGlobalIndexKey: "3", jobsetv1alpha2.GlobalReplicasKey: "4",
		jobsetv1alpha2.ReplicatedJobReplicasKey: "3", jobsetv1alpha2.JobKeyKey: key,
	} {
		for _, m := range []map[string]string{oar.Labels, oar.Annotations, oar.Spec.Template.Labels, oar.Spec.Template.Annotations} {
			if m[label] != want {
				t.Errorf("%s is %q, want %q", label, m[label], want)
			}
		}
	}
	if !slices.ContainsFunc(oar.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "jobset" && f.Operation == "Update" }) {
		t.Errorf("field managers %+v", oar.ManagedFields)
	}
	if len(oar.ManagedFields) != 1 || oar.ManagedFields[0].Manager != "jobset" || oar.ManagedFields[0].Operation != metav1.ManagedFieldsOperationUpdate {
		t.Errorf("it was written by %+v", oar.ManagedFields)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "ring", Namespace: w.namespace}}
	wait.Until(w.t, "the Service is there", func() error { return w.c.Get(w.ctx, client.ObjectKeyFromObject(service), service) })
	if service.Spec.ClusterIP != "None" || !metav1.IsControlledBy(service, w.get("ring")) {
		t.Errorf("service %+v", service)
	}
	w.must(w.c.Delete(w.ctx, service))
	wait.Until(w.t, "the Service is back", func() error {
		again := &corev1.Service{}
		err := w.c.Get(w.ctx, client.ObjectKeyFromObject(service), again)
		if err == nil && again.UID == service.UID {
			return fmt.Errorf("it is the old one")
		}
		return err
	})
	w.counters("ring", "oar", [5]int32{})
	w.quiet(500 * time.Millisecond)
	lines := w.requests.in(w.namespace)
	if len(lines) != 4+2+1 {
		t.Errorf("writes:\n%s", strings.Join(lines, "\n"))
	}
}

// Acceptance 10: a foreign Service is used as it is.
func TestForeignService(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.must(w.c.Create(w.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "ring", Namespace: w.namespace}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}))
	w.create(ring)
	w.haveJobs(allOfRing...)
	var s corev1.Service
	w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "ring"}, &s))
	if len(s.OwnerReferences) > 0 || s.Spec.ClusterIP == "None" {
		t.Errorf("service %+v", s)
	}
	w.must(w.c.Delete(w.ctx, &s))
	wait.Until(t, "the JobSet makes one of its own", func() error {
		var s corev1.Service
		if err := w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "ring"}, &s); err != nil {
			return err
		}
		if !metav1.IsControlledBy(&s, w.get("ring")) {
			return fmt.Errorf("it belongs to %+v", s.OwnerReferences)
		}
		return nil
	})
}

// A JobSet without replicated jobs has a Service like any other, and nothing else.
func TestServiceWithoutJobs(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create("{metadata: {name: empty}, spec: {replicatedJobs: [], network: {enableDNSHostnames: true, publishNotReadyAddresses: true}}}")
	wait.Until(w.t, "its Service is there", func() error {
		var s corev1.Service
		if err := w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "empty"}, &s); err != nil {
			return err
		}
		if s.Spec.ClusterIP != corev1.ClusterIPNone || s.Spec.Selector[jobsetv1alpha2.JobSetNameKey] != "empty" || !metav1.IsControlledBy(&s, w.get("empty")) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// Acceptance 13, 73: a foreign Job with the name of a child is reported in one series of events, not adopted, and does not delay
// other Jobs; after its deletion the child is created.
func TestForeignJob(t *testing.T) {
	w := newWorld(t, plan.Config{})
	js := w.jobSet(ring)
	foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "ring-oar-1", Namespace: w.namespace}, Spec: js.Spec.ReplicatedJobs[0].Template.Spec}
	w.must(w.c.Create(w.ctx, foreign))
	w.must(w.c.Create(w.ctx, js))
	w.haveJobs(allOfRing...)
	wait.Until(w.t, "the failures are one series", func() error {
		var found int
		for _, e := range w.events("ring") {
			if e.Reason == jobsetv1alpha2.EventJobCreationFailed {
				found++
				if e.Series == nil || e.Series.Count < 2 || e.Type != "Warning" || e.Action != "Reconciling" || e.ReportingController != "jobset" {
					return fmt.Errorf("%+v", e)
				}
			}
		}
		if found != 1 {
			return fmt.Errorf("%d events", found)
		}
		return nil
	})
	w.setJob("ring-oar-0", running(2))
	w.counters("ring", "oar", [5]int32{1, 0, 0, 1, 0}) // the status goes on
	if got := w.jobs()["ring-oar-1"]; got.UID != foreign.UID || len(got.OwnerReferences) > 0 {
		t.Errorf("it was adopted: %+v", got.OwnerReferences)
	}
	w.must(w.c.Delete(w.ctx, foreign, client.PropagationPolicy("Background")))
	wait.Until(w.t, "our own Job is there", func() error {
		if j := w.jobs()["ring-oar-1"]; j == nil || j.UID == foreign.UID {
			return fmt.Errorf("%v", j)
		}
		return nil
	})
}

// Acceptance 14, 73: an invalid template is reported in one repeated event. After the first refusal no other Job is tried.
func TestBrokenTemplate(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(`
metadata: {name: broken}
spec:
  replicatedJobs:
  - {name: oar, replicas: 2, template: {spec: {template: {spec: {containers: [{name: "Not A Name", image: i}]}}}}}
`)
	wait.Until(w.t, "one event of a series", func() error {
		events := w.events("broken")
		if len(events) != 1 || events[0].Series == nil || events[0].Series.Count < 2 || !strings.Contains(events[0].Note, "/broken-oar-0: ") || strings.Contains(events[0].Note, "more)") {
			return fmt.Errorf("%+v", events)
		}
		return nil
	})
}

// A JobSet that a queue started fails if its Jobs can never be created, so that its quota is released; while it is
// suspended it waits.
func TestQuotaIsReleased(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(`
metadata: {name: broken}
spec:
  suspend: true
  replicatedJobs:
  - name: fine
    template: {spec: {template: {metadata: {labels: {kueue.x-k8s.io/podset: fine}}, spec: {containers: [{name: c, image: i}]}}}}
  - name: oar
    template: {spec: {template: {metadata: {labels: {kueue.x-k8s.io/podset: oar}}, spec: {containers: [{name: "Not A Name", image: i}]}}}}
`)
	wait.Until(w.t, "the Job is refused for longer than patience lasts", func() error {
		n := 0
		for _, line := range w.requests.in(w.namespace) {
			if strings.HasPrefix(line, "POST") && strings.HasSuffix(line, "/jobs 422") {
				n++
			}
		}
		if n < 9 { // the last one comes after 5 s
			return fmt.Errorf("refused %d times", n)
		}
		return nil
	})
	if c := plan.FinishedCondition(w.get("broken")); c != nil {
		t.Errorf("it is finished while it is suspended: %+v", c)
	}
	w.update("broken", func(js *jobsetv1alpha2.JobSet) { js.Spec.Suspend = new(false) })
	js := w.is("broken", jobsetv1alpha2.ConditionFailed, metav1.ConditionTrue, jobsetv1alpha2.ReasonJobCreationFailed)
	if c := plan.FinishedCondition(js); !strings.Contains(c.Message, "broken-oar-0") || !strings.Contains(c.Message, "Not A Name") {
		t.Errorf("message %q", c.Message)
	}
	wait.Until(w.t, "what was made is deleted", func() error {
		if j := w.jobs()["broken-fine-0"]; j != nil && j.DeletionTimestamp == nil {
			return fmt.Errorf("%s is there", j.Name)
		}
		return nil
	})
}

// Acceptance 15: a JobSet with another manager is not changed, to the byte.
func TestManagedByOthers(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(with("managedBy: acme.io/x"))
	js := w.get("ring")
	js.Status.Restarts, js.Status.TerminalState = 7, "Strange"
	w.must(w.c.Status().Update(w.ctx, js))
	want := w.get("ring")
	w.create(strings.Replace(ring, "name: ring", "name: other", 1))
	w.haveJobs("other-coach-0", "other-oar-0", "other-oar-1", "other-oar-2")
	if got := w.get("ring"); got.ResourceVersion != want.ResourceVersion {
		t.Errorf("it was written: %+v", got)
	}
}

// Acceptance 17, 18, 64: success by any, what still runs is deleted, and the JobSet when its time is over.
func TestSuccessAndTimeToLive(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(with("successPolicy: {operator: Any, targetReplicatedJobs: [oar]}"))
	w.haveJobs(allOfRing...)
	w.setJob("ring-oar-1", complete(2))
	js := w.is("ring", jobsetv1alpha2.ConditionCompleted, metav1.ConditionTrue, jobsetv1alpha2.ReasonAllJobsCompleted)
	if js.Status.TerminalState != jobsetv1alpha2.TerminalStateCompleted {
		t.Errorf("terminal state %q", js.Status.TerminalState)
	}
	w.collect("ring-coach-0", "ring-oar-0", "ring-oar-2")
	w.haveJobs("ring-oar-1")
	w.quiet(300 * time.Millisecond)
	w.haveJobs("ring-oar-1")
	w.update("ring", func(js *jobsetv1alpha2.JobSet) { js.Spec.TTLSecondsAfterFinished = new(int32(1)) })
	wait.Until(w.t, "the JobSet is deleted in the foreground", func() error {
		if js := w.get("ring"); js.DeletionTimestamp == nil || js.Finalizers[0] != metav1.FinalizerDeleteDependents {
			return fmt.Errorf("%+v", js.ObjectMeta)
		}
		return nil
	})
}

// Acceptance 20 to 23, 27, 28: restarts, their limit, and the order in which Jobs come back.
func TestRestarts(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(with("failurePolicy: {maxRestarts: 1}"))
	old := w.haveJobs(allOfRing...)
	now := time.Now()
	w.setJob("ring-oar-2", failedAt("BackoffLimitExceeded", "", now.Add(-10*time.Second)))
	w.setJob("ring-oar-0", failedAt("BackoffLimitExceeded", "", now))
	js := w.is("ring", jobsetv1alpha2.ConditionRestarting, metav1.ConditionTrue, jobsetv1alpha2.ReasonDefaultFailurePolicy)
	if !strings.HasSuffix(js.Status.Conditions[0].Message, " (first failed job: ring-oar-2)") {
		t.Errorf("message %q", js.Status.Conditions[0].Message)
	}
	w.collect("ring-oar-0")
	wait.Until(w.t, "ring-oar-0 is back before ring-oar-1 is gone", func() error {
		jobs := w.jobs()
		j := jobs["ring-oar-0"]
		if j == nil || j.UID == old["ring-oar-0"].UID || j.Labels[jobsetv1alpha2.RestartAttemptKey] != "1" || jobs["ring-oar-1"].UID != old["ring-oar-1"].UID {
			return fmt.Errorf("%+v", jobs)
		}
		return nil
	})
	w.collect("ring-oar-1", "ring-oar-2", "ring-coach-0")
	wait.Until(w.t, "all are back", func() error {
		for name, j := range w.haveJobs(allOfRing...) {
			if j.UID == old[name].UID {
				return fmt.Errorf("%s is old", name)
			}
		}
		return nil
	})
	w.setJob("ring-coach-0", running(1))
	for _, oar := range allOfRing[1:] {
		w.setJob(oar, running(2))
	}
	w.is("ring", jobsetv1alpha2.ConditionRestarting, metav1.ConditionFalse, jobsetv1alpha2.ReasonJobsReady)
	w.setJob("ring-oar-1", failedAt("PodFailurePolicy", "", time.Now()))
	js = w.is("ring", jobsetv1alpha2.ConditionFailed, metav1.ConditionTrue, jobsetv1alpha2.ReasonReachedMaxRestarts)
	if js.Status.Restarts != 1 || js.Status.RestartsCountTowardsMax != 1 {
		t.Errorf("status %+v", js.Status)
	}
	deletes := 0
	for _, l := range w.requests.in(w.namespace) {
		if strings.HasPrefix(l, "DELETE") {
			deletes++
		}
	}
	if deletes > 4+3 {
		t.Errorf("%d deletions: some Jobs were deleted twice", deletes)
	}
	var reasons []string
	wait.Until(w.t, "its events", func() error {
		reasons = nil
		for _, e := range w.events("ring") {
			reasons = append(reasons, e.Reason)
		}
		slices.Sort(reasons)
		want := []string{"DefaultFailurePolicy", "JobsReady", "ReachedMaxRestarts", "RestartJobSetFailurePolicyAction"}
		if !slices.Equal(reasons, want) {
			return fmt.Errorf("%v", reasons)
		}
		return nil
	})
}

// Acceptance 29: one Job restarts alone.
func TestRestartJob(t *testing.T) {
	w := newWorld(t, plan.Config{RestartJob: true})
	w.create(with("failurePolicy: {maxRestarts: 1, rules: [{name: one, action: RestartJob}]}"))
	old := w.haveJobs(allOfRing...)
	w.setJob("ring-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.collect("ring-oar-1")
	wait.Until(w.t, "it is back", func() error {
		jobs := w.jobs()
		j := jobs["ring-oar-1"]
		if j == nil || j.UID == old["ring-oar-1"].UID {
			return fmt.Errorf("%v", j)
		}
		for name := range old {
			if name != "ring-oar-1" && jobs[name].UID != old[name].UID {
				t.Errorf("%s was restarted as well", name)
			}
		}
		if j.Labels[jobsetv1alpha2.JobRestartAttemptKey] != "1" || j.Labels[jobsetv1alpha2.RestartAttemptKey] != "0" {
			t.Errorf("labels %v", j.Labels)
		}
		return nil
	})
	if s := w.get("ring").Status.ReplicatedJobsStatus; s[0].Name != "oar" || !slices.Equal(s[0].JobRestarts, []int32{0, 1, 0}) || s[1].JobRestarts != nil {
		t.Errorf("status %+v", s)
	}
}

// Acceptance 33: a Job that only begins to fail is not restarted.
func TestFailureTarget(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(with("failurePolicy: {maxRestarts: 1}"))
	w.haveJobs(allOfRing...)
	w.setJob("ring-oar-1", func(s *batchv1.JobStatus) {
		s.StartTime = new(metav1.Now())
		s.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	})
	w.counters("ring", "oar", [5]int32{0, 0, 0, 1, 0})
	if js := w.get("ring"); js.Status.Restarts != 0 {
		t.Errorf("status %+v", js.Status)
	}
}

// Acceptance 40 to 43, 71: without any Job controller a JobSet is created suspended and resumed, and what is not needed is
// not waited for.
func TestSuspendAndResume(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(with("suspend: true", "startupPolicy: {startupPolicyOrder: InOrder}"))
	w.haveJobs(allOfRing...)
	w.is("ring", jobsetv1alpha2.ConditionSuspended, metav1.ConditionTrue, jobsetv1alpha2.ReasonSuspended)
	w.counters("ring", "oar", [5]int32{0, 0, 0, 0, 3})
	w.update("ring", func(js *jobsetv1alpha2.JobSet) {
		js.Spec.Suspend = new(false)
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector = map[string]string{"a": "1"}
	})
	w.counters("ring", "coach", [5]int32{})
	w.counters("ring", "oar", [5]int32{0, 0, 0, 0, 3})
	w.is("ring", jobsetv1alpha2.ConditionStartupPolicyInProgress, metav1.ConditionTrue, jobsetv1alpha2.ReasonInOrderInProgress)
	coach := w.jobs()["ring-coach-0"]
	if *coach.Spec.Suspend || coach.Spec.Template.Spec.NodeSelector["a"] != "1" || coach.Spec.Template.Labels[batchv1.JobNameLabel] != "ring-coach-0" {
		t.Errorf("%+v", coach.Spec)
	}
	w.setJob("ring-coach-0", running(1))
	w.counters("ring", "oar", [5]int32{})
	for _, oar := range allOfRing[1:] {
		w.setJob(oar, running(2))
	}
	w.is("ring", jobsetv1alpha2.ConditionStartupPolicyCompleted, metav1.ConditionTrue, jobsetv1alpha2.ReasonInOrderCompleted)
	w.is("ring", jobsetv1alpha2.ConditionSuspended, metav1.ConditionFalse, jobsetv1alpha2.ReasonResumed)
	w.is("ring", jobsetv1alpha2.ConditionStartupPolicyInProgress, metav1.ConditionFalse, jobsetv1alpha2.ReasonInOrderInProgress)
}
