package controller_test

import (
	"fmt"
	"maps"
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

// takeover is a namespace as an upstream controller left it, and its state after the takeover. The objects are as 60 §4.2, §5.1 and §5.6 describe them;
// the messages of conditions differ from ours.
type takeover struct {
	leave func(*world)
	// check examines the objects after the last write. writes is the number of writes.
	check func(w *world, before map[string]*batchv1.Job, writes int)
}

var takeovers = map[string]takeover{
	// Half of them are of an older release, without the keys of groups and of the global replicas.
	"50 that run": {
		func(w *world) {
			for i := range 50 {
				js := w.left(fmt.Sprintf("ring%d", i), leftStatus(2, [5]int32{3, 0, 0, 3, 0}, [5]int32{1, 0, 0, 1, 0},
					jobsetv1alpha2.ConditionRestarting, metav1.ConditionFalse, jobsetv1alpha2.ReasonJobsReady), "failurePolicy: {maxRestarts: 3}")
				w.leftJobs(js, 2, i%2 == 0, func(j *batchv1.Job) { w.setJob(j.Name, running(*j.Spec.Parallelism)) })
			}
		},
		func(w *world, before map[string]*batchv1.Job, writes int) {
			w.untouched(before, writes)
			w.setJob("ring7-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
			w.status("ring7", "the restarts go on from where they were", func(s *jobsetv1alpha2.JobSetStatus) bool {
				return s.Restarts == 3 && s.RestartsCountTowardsMax == 3
			})
		},
	},
	// It waits with the node selector of an earlier admission in its Jobs; the next one is the only one that they get.
	"suspended": {
		func(w *world) {
			js := w.left("ring", leftStatus(0, [5]int32{0, 0, 0, 0, 3}, [5]int32{0, 0, 0, 0, 1},
				jobsetv1alpha2.ConditionSuspended, metav1.ConditionTrue, jobsetv1alpha2.ReasonSuspended), "suspend: true")
			w.leftJobs(js, 0, false, nil)
		},
		func(w *world, before map[string]*batchv1.Job, writes int) {
			w.untouched(before, writes)
			w.update("ring", func(js *jobsetv1alpha2.JobSet) {
				js.Spec.Suspend = new(false)
				for i := range js.Spec.ReplicatedJobs {
					js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.NodeSelector = map[string]string{"b": "2"}
				}
			})
			w.all(4, "are resumed elsewhere", func(j *batchv1.Job) bool {
				return !*j.Spec.Suspend && maps.Equal(j.Spec.Template.Spec.NodeSelector, map[string]string{"b": "2"})
			})
			for name, j := range w.jobs() {
				if j.UID != before[name].UID {
					w.t.Errorf("%s was made again", name)
				}
			}
		},
	},
	// The third restart is counted. The coach is back, of the oars one is going, one is still to be deleted, and one is gone.
	"restarting": {
		func(w *world) {
			js := w.left("ring", leftStatus(3, [5]int32{}, [5]int32{1, 0, 0, 1, 0},
				jobsetv1alpha2.ConditionRestarting, metav1.ConditionTrue, jobsetv1alpha2.ReasonDefaultFailurePolicy), "failurePolicy: {maxRestarts: 5}")
			w.leftJob(js, 0, 0, 3, false)
			w.setJob("ring-coach-0", running(1))
			for oar := range 2 {
				w.leftJob(js, 1, oar, 2, false)
			}
			w.must(w.c.Delete(w.ctx, w.jobs()["ring-oar-0"], client.PropagationPolicy(metav1.DeletePropagationForeground)))
			w.setJob("ring-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
		},
		func(w *world, before map[string]*batchv1.Job, _ int) {
			w.haveJobs(allOfRing...)
			w.collect("ring-oar-0", "ring-oar-1")
			w.all(4, "are of attempt 3", func(j *batchv1.Job) bool { return j.Labels[jobsetv1alpha2.RestartAttemptKey] == "3" })
			if now := w.jobs()["ring-coach-0"]; now.UID != before["ring-coach-0"].UID {
				w.t.Error("the coach was made again")
			}
			for _, oar := range allOfRing[1:] {
				w.setJob(oar, running(2))
			}
			w.is("ring", jobsetv1alpha2.ConditionRestarting, metav1.ConditionFalse, jobsetv1alpha2.ReasonJobsReady)
			if s := w.get("ring").Status; s.Restarts != 3 || s.RestartsCountTowardsMax != 3 {
				w.t.Errorf("status %+v", s)
			}
		},
	},
	// One has an hour to live, another had, and of a third the Jobs that ran at its end were not deleted yet.
	"finished": {
		func(w *world) {
			done := func(name string, ago time.Duration) *jobsetv1alpha2.JobSet {
				status := leftStatus(0, [5]int32{}, [5]int32{0, 1, 0, 0, 0}, jobsetv1alpha2.ConditionCompleted, metav1.ConditionTrue, jobsetv1alpha2.ReasonAllJobsCompleted)
				status.TerminalState = jobsetv1alpha2.TerminalStateCompleted
				status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-ago))
				js := w.left(name, status, "ttlSecondsAfterFinished: 3600", "successPolicy: {operator: All, targetReplicatedJobs: [coach]}")
				w.leftJob(js, 0, 0, 0, false)
				w.setJob(name+"-coach-0", complete(1))
				return js
			}
			done("young", time.Minute)
			done("old", 2*time.Hour)
			w.leftJob(done("cut", time.Second), 1, 2, 0, false)
		},
		func(w *world, before map[string]*batchv1.Job, _ int) {
			wait.Until(w.t, "the old one is deleted in the foreground, and so is what still ran", func() error {
				js := w.get("old")
				if js.DeletionTimestamp == nil || js.Finalizers[0] != metav1.FinalizerDeleteDependents || w.jobs()["cut-oar-2"].DeletionTimestamp == nil {
					return fmt.Errorf("%+v", js.ObjectMeta)
				}
				return nil
			})
			for name, j := range w.jobs() {
				if strings.HasSuffix(name, "coach-0") && j.ResourceVersion != before[name].ResourceVersion {
					w.t.Errorf("%s was changed", name)
				}
			}
			for _, name := range []string{"young", "cut"} {
				if js := w.get(name); js.DeletionTimestamp != nil || js.Status.TerminalState != jobsetv1alpha2.TerminalStateCompleted {
					w.t.Errorf("%s: %+v, %+v", name, js.ObjectMeta, js.Status)
				}
			}
			for _, line := range w.requests.in(w.namespace) {
				if strings.Contains(line, "young") {
					w.t.Errorf("written: %s", line)
				}
			}
		},
	},
}

// Acceptance 67: the objects of an upstream controller are taken over in every state. No running or succeeded Job is changed, statuses continue,
// and a complete state causes no write.
func TestTakeover(t *testing.T) {
	all := newWorld(t, plan.Config{})
	all.stop()
	worlds, before := map[string]*world{}, map[string]map[string]*batchv1.Job{}
	for name, taken := range takeovers {
		worlds[name] = all.inNamespace(t)
		taken.leave(worlds[name])
		before[name] = worlds[name].jobs()
	}
	all.start()
	for name, taken := range takeovers {
		t.Run(name, func(t *testing.T) {
			w := worlds[name]
			w.t, w.ctx = t, t.Context()
			taken.check(w, before[name], w.quiet(time.Second))
		})
	}
}

// untouched checks that there were no writes.
func (w *world) untouched(before map[string]*batchv1.Job, writes int) {
	w.t.Helper()
	if writes != 0 {
		w.t.Errorf("%d writes: %v", writes, w.requests.in(w.namespace))
	}
	now := w.jobs()
	for name, j := range before {
		if now[name] == nil || now[name].ResourceVersion != j.ResourceVersion {
			w.t.Errorf("%s was changed", name)
		}
	}
}

// leftStatus returns a status with the counters of the oars and of the coach (ready, succeeded, failed, active, suspended) and a condition.
func leftStatus(restarts int32, oar, coach [5]int32, t jobsetv1alpha2.ConditionType, is metav1.ConditionStatus, reason string) jobsetv1alpha2.JobSetStatus {
	counters := func(name string, n [5]int32) jobsetv1alpha2.ReplicatedJobStatus {
		return jobsetv1alpha2.ReplicatedJobStatus{Name: name, Ready: n[0], Succeeded: n[1], Failed: n[2], Active: n[3], Suspended: n[4]}
	}
	return jobsetv1alpha2.JobSetStatus{
		Restarts: restarts, RestartsCountTowardsMax: restarts,
		ReplicatedJobsStatus: []jobsetv1alpha2.ReplicatedJobStatus{counters("oar", oar), counters("coach", coach)},
		Conditions:           []metav1.Condition{{Type: string(t), Status: is, Reason: reason, Message: "as upstream words it", LastTransitionTime: metav1.Now()}},
	}
}

// left creates a ring under a name with its Service and a status.
func (w *world) left(name string, status jobsetv1alpha2.JobSetStatus, lines ...string) *jobsetv1alpha2.JobSet {
	w.t.Helper()
	js := w.create(strings.Replace(with(lines...), "name: ring", "name: "+name, 1))
	w.must(w.c.Create(w.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, OwnerReferences: ownedBy(js)},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{jobsetv1alpha2.JobSetNameKey: name}},
	}))
	js.Status = status
	w.must(w.c.Status().Update(w.ctx, js))
	return js
}

func ownedBy(js *jobsetv1alpha2.JobSet) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet))}
}

// leftJobs makes all Jobs of a JobSet, of one attempt, and does something with each.
func (w *world) leftJobs(js *jobsetv1alpha2.JobSet, attempt int, elder bool, each func(*batchv1.Job)) {
	w.t.Helper()
	for i := range js.Spec.ReplicatedJobs {
		for index := range int(*js.Spec.ReplicatedJobs[i].Replicas) {
			j := w.leftJob(js, i, index, attempt, elder)
			if each != nil {
				each(j)
			}
		}
	}
}

// leftJob makes one Job in the way of an upstream controller of now or of some years ago. Suspended, it has the node selector of an
// earlier admission.
func (w *world) leftJob(js *jobsetv1alpha2.JobSet, of, index, attempt int, elder bool) *batchv1.Job {
	w.t.Helper()
	rj := &js.Spec.ReplicatedJobs[of]
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: plan.JobName(js.Name, rj.Name, index), Namespace: js.Namespace, OwnerReferences: ownedBy(js)},
		Spec:       *rj.Template.Spec.DeepCopy(),
	}
	keys := map[string]string{
		"jobset.sigs.k8s.io/jobset-name": js.Name, "jobset.sigs.k8s.io/replicatedjob-name": rj.Name,
		"jobset.sigs.k8s.io/replicatedjob-replicas": fmt.Sprint(*rj.Replicas), "jobset.sigs.k8s.io/job-index": fmt.Sprint(index),
		"jobset.sigs.k8s.io/job-key": plan.JobKey(js.Namespace, j.Name), "jobset.sigs.k8s.io/restart-attempt": fmt.Sprint(attempt),
	}
	if !elder {
		keys["jobset.sigs.k8s.io/jobset-uid"] = string(js.UID)
		keys["jobset.sigs.k8s.io/global-replicas"] = "4"
		keys["jobset.sigs.k8s.io/group-name"] = "default"
	}
	for _, m := range []*map[string]string{&j.Labels, &j.Annotations, &j.Spec.Template.Labels, &j.Spec.Template.Annotations} {
		*m = maps.Clone(keys)
	}
	suspended := js.Spec.Suspend != nil && *js.Spec.Suspend
	j.Spec.Suspend, j.Spec.Template.Spec.Subdomain = &suspended, js.Name
	if suspended {
		j.Spec.Template.Spec.NodeSelector = map[string]string{"a": "1"}
	}
	w.must(w.c.Create(w.ctx, j))
	return j
}
