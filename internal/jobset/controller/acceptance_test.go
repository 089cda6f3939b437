package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// The examples of 60 §7 are in three places: what is refused, defaulted and stored (1, 4 to 8, 12, 16, 26, 31, 35, 37, 38, 41, 47, 60, 61, 63,
// 68, 70) in the tests of the webhooks, of the schema (api/jobset) and in jobset/plan's TestValidateNew and TestValidateChange; what is
// decided (2, 3, 7, 8, 12, 17, 18, 20 to 27, 30, 32, 34, 36, 37, 39, 40, 42 to 46, 56 to 59, 61, 62, 64, 67 to 69, 71, 72, 74) in the scripts below
// jobset/plan/testdata; placement (49 to 55) in jobset/plan's placement_test.go and the webhooks. What needs an API server or a whole
// cluster is here, by number: 65 is BenchmarkIdleReconcile, TestFigures and `make measure-jobsets`.

// Acceptance 9, 69: without host names there is no Service, and the subdomain of the pods is the user's.
func TestNoHostNames(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(`
metadata: {name: ring}
spec:
  network: {enableDNSHostnames: false}
  replicatedJobs:
  - {name: oar, template: {spec: {template: {spec: {subdomain: mine, containers: [{name: c, image: i}]}}}}}
`)
	jobs := w.haveJobs("ring-oar-0")
	w.quiet(300 * time.Millisecond)
	if got := jobs["ring-oar-0"].Spec.Template.Spec.Subdomain; got != "mine" {
		t.Errorf("subdomain %q", got)
	}
	var services corev1.ServiceList
	w.must(w.c.List(w.ctx, &services, client.InNamespace(w.namespace)))
	if len(services.Items) > 0 {
		t.Errorf("services %v", services.Items)
	}
}

// Acceptance 19: the first observation decides. Oars that fail before the success of the coach is observed are a failure; after it
// they change nothing.
func TestFirstSeenDecides(t *testing.T) {
	for name, seen := range map[string]bool{"failure seen with the success": false, "failure after the success": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, plan.Config{})
			w.create(with("successPolicy: {operator: All, targetReplicatedJobs: [coach]}"))
			w.haveJobs(allOfRing...)
			w.quiet(300 * time.Millisecond)
			if !seen {
				w.stop()
			}
			w.setJob("ring-coach-0", complete(1))
			if seen {
				w.is("ring", jobsetv1alpha2.ConditionCompleted, metav1.ConditionTrue, jobsetv1alpha2.ReasonAllJobsCompleted)
			}
			w.setJob("ring-oar-0", failedAt("BackoffLimitExceeded", "", time.Now()))
			if !seen {
				w.start()
				w.is("ring", jobsetv1alpha2.ConditionFailed, metav1.ConditionTrue, jobsetv1alpha2.ReasonFailedJobs)
			}
			w.quiet(300 * time.Millisecond)
			want := map[bool]string{true: jobsetv1alpha2.TerminalStateCompleted, false: jobsetv1alpha2.TerminalStateFailed}[seen]
			if s := w.get("ring").Status; s.TerminalState != want {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// Acceptance 36, 39: oars that depend on the end of the coach wait for it, also when it fails and is made again, and after a restart
// of all the sequence begins anew.
func TestSequenceStartsAgain(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(`
metadata: {name: ring}
spec:
  failurePolicy: {maxRestarts: 2}
  replicatedJobs:
  - {name: coach, template: {spec: {parallelism: 1, completions: 1, template: {spec: {containers: [{name: c, image: i}]}}}}}
  - {name: oar, replicas: 2, dependsOn: [{name: coach, status: Complete}], template: {spec: {parallelism: 1, completions: 1, template: {spec: {containers: [{name: c, image: i}]}}}}}
`)
	only := func(attempt string, names ...string) {
		t.Helper()
		wait.Until(w.t, "the Jobs are of attempt "+attempt, func() error {
			for name, j := range w.haveJobs(names...) {
				if j.Labels[jobsetv1alpha2.RestartAttemptKey] != attempt {
					return fmt.Errorf("%s is of %s", name, j.Labels[jobsetv1alpha2.RestartAttemptKey])
				}
			}
			return nil
		})
	}
	only("0", "ring-coach-0")
	w.setJob("ring-coach-0", running(1))
	w.counters("ring", "coach", [5]int32{1, 0, 0, 1, 0})
	w.quiet(300 * time.Millisecond)
	only("0", "ring-coach-0")
	w.setJob("ring-coach-0", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.collect("ring-coach-0")
	only("1", "ring-coach-0")
	w.setJob("ring-coach-0", complete(1))
	only("1", "ring-coach-0", "ring-oar-0", "ring-oar-1")
	w.setJob("ring-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
	w.collect("ring-oar-0", "ring-oar-1", "ring-coach-0")
	only("2", "ring-coach-0")
	w.quiet(300 * time.Millisecond)
	only("2", "ring-coach-0")
	w.setJob("ring-coach-0", complete(1))
	only("2", "ring-coach-0", "ring-oar-0", "ring-oar-1")
}

// Acceptance 55: the topology of a replicated job wins over that of the JobSet, on the Job and on its pods.
func TestTopologyOfAReplicatedJob(t *testing.T) {
	w := newWorld(t, plan.Config{})
	w.create(`
metadata: {name: ring, annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: zone}}
spec:
  replicatedJobs:
  - {name: coach, template: {spec: {template: {spec: {containers: [{name: c, image: i}]}}}}}
  - {name: oar, template: {metadata: {annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}, spec: {template: {spec: {containers: [{name: c, image: i}]}}}}}
`)
	jobs := w.haveJobs("ring-coach-0", "ring-oar-0")
	for name, want := range map[string]string{"ring-coach-0": "zone", "ring-oar-0": "rack"} {
		for _, m := range []map[string]string{jobs[name].Annotations, jobs[name].Spec.Template.Annotations} {
			if got := m[jobsetv1alpha2.ExclusiveTopologyAnnotation]; got != want {
				t.Errorf("%s: topology %q, want %q", name, got, want)
			}
		}
	}
}

// 60 §4.9, §4.11, §5.2: a Service or a claim that cannot be made is told of in one series, and no Job is made without it. Of claims, the first
// failure of a policy ends that policy and no other.
func TestBelongingsThatCannotBeMade(t *testing.T) {
	for name, test := range map[string]struct {
		spec, reason string
		claims       []string
	}{
		"the Service": {"network: {enableDNSHostnames: true, subdomain: Row_1}", jobsetv1alpha2.EventHeadlessServiceCreationFailed, nil},
		"a claim": {
			`volumeClaimPolicies:
  - templates: [{metadata: {name: bad}}, {metadata: {name: next}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}]
  - templates: [{metadata: {name: other}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}]`,
			jobsetv1alpha2.EventPVCCreationFailed,
			[]string{"other-ring"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, plan.Config{})
			js := &jobsetv1alpha2.JobSet{} // the webhook would refuse it
			w.must(yaml.UnmarshalStrict([]byte(with(test.spec)), js))
			js.Namespace = w.namespace
			w.must(w.c.Create(w.ctx, js))
			wait.Until(w.t, "one series of events", func() error {
				events := w.events("ring")
				if len(events) != 1 || events[0].Reason != test.reason || events[0].Type != "Warning" || events[0].Series == nil || events[0].Series.Count < 2 {
					return fmt.Errorf("%+v", events)
				}
				return nil
			})
			w.counters("ring", "oar", [5]int32{}) // there is a status all the same
			if jobs := w.jobs(); len(jobs) > 0 {
				t.Errorf("%d Jobs", len(jobs))
			}
			var list corev1.PersistentVolumeClaimList
			w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
			var claims []string
			for i := range list.Items {
				claims = append(claims, list.Items[i].Name)
			}
			if !slices.Equal(claims, test.claims) {
				t.Errorf("claims %v, want %v", claims, test.claims)
			}
		})
	}
}

// A claim that is being deleted when the JobSet is made, as after an earlier one of its name, is made again once it is gone.
func TestClaimThatLeaves(t *testing.T) {
	w := newWorld(t, plan.Config{})
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "data-ring", Finalizers: []string{"example.com/in-use"}}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.must(w.c.Create(w.ctx, claim))
	w.must(w.c.Delete(w.ctx, claim))
	w.create(strings.ReplaceAll(with("volumeClaimPolicies: [{templates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}]}]"),
		"image: i", "image: i, volumeMounts: [{name: data, mountPath: /data}]"))
	w.haveJobs(allOfRing...)
	w.counters("ring", "oar", [5]int32{})
	embeddedtest.Edit(t, w.c, claim, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil })
	wait.Until(t, "the claim is made again", func() error {
		var again corev1.PersistentVolumeClaim
		if err := w.c.Get(w.ctx, client.ObjectKeyFromObject(claim), &again); err != nil {
			return err
		}
		if again.UID == claim.UID {
			return errors.New("it is the same one")
		}
		return nil
	})
}

// states are ways to bring a JobSet named ring somewhere in its life.
var states = map[string]func(*world){
	"running": func(w *world) {
		w.create(ring)
		for name := range w.haveJobs(allOfRing...) {
			w.setJob(name, running(2))
		}
	},
	"suspended": func(w *world) {
		w.create(with("suspend: true"))
		w.haveJobs(allOfRing...)
	},
	"starting in order": func(w *world) {
		w.create(with("startupPolicy: {startupPolicyOrder: InOrder}"))
		w.haveJobs("ring-coach-0")
		w.is("ring", jobsetv1alpha2.ConditionStartupPolicyInProgress, metav1.ConditionTrue, jobsetv1alpha2.ReasonInOrderInProgress)
	},
	"restarting": func(w *world) {
		w.create(with("failurePolicy: {maxRestarts: 3}"))
		w.haveJobs(allOfRing...)
		w.setJob("ring-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
		wait.Until(w.t, "its Jobs are deleted", func() error {
			for _, j := range w.jobs() {
				if j.DeletionTimestamp == nil {
					return fmt.Errorf("%s is not", j.Name)
				}
			}
			return nil
		})
	},
	"failed": func(w *world) {
		w.create(ring)
		w.haveJobs(allOfRing...)
		w.setJob("ring-oar-1", failedAt("BackoffLimitExceeded", "", time.Now()))
		w.is("ring", jobsetv1alpha2.ConditionFailed, metav1.ConditionTrue, jobsetv1alpha2.ReasonFailedJobs)
	},
	"completed, with a time to live": func(w *world) {
		w.create(with("ttlSecondsAfterFinished: 3600"))
		for name := range w.haveJobs(allOfRing...) {
			w.setJob(name, complete(map[bool]int32{true: 1, false: 2}[name == "ring-coach-0"]))
		}
		w.is("ring", jobsetv1alpha2.ConditionCompleted, metav1.ConditionTrue, jobsetv1alpha2.ReasonAllJobsCompleted)
	},
	"waiting for a foreign Job to go": func(w *world) {
		foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "ring-oar-1"}, Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: "Never", Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}}
		w.must(w.c.Create(w.ctx, foreign))
		w.create(ring)
		w.haveJobs(allOfRing...)
	},
}

// A JobSet can be deleted in every state: it is not changed from then on, and its name is free again after the deletion.
func TestDeletedInEveryState(t *testing.T) {
	world := newWorld(t, plan.Config{})
	for name, reach := range states {
		t.Run(name, func(t *testing.T) {
			w := world.inNamespace(t)
			reach(w)
			w.must(w.c.Delete(w.ctx, w.get("ring"), client.PropagationPolicy(metav1.DeletePropagationForeground)))
			w.quiet(300 * time.Millisecond)
			before := len(w.requests.in(w.namespace))
			for _, j := range w.jobs() { // the garbage collector removes one after the other
				w.must(client.IgnoreNotFound(w.c.Delete(w.ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground))))
				if left := w.jobs()[j.Name]; left != nil {
					left.Finalizers = nil
					w.must(w.c.Update(w.ctx, left))
				}
			}
			w.staysQuiet(400*time.Millisecond, before)
			if jobs := w.jobs(); len(jobs) > 0 {
				t.Errorf("there are %d Jobs again", len(jobs))
			}
			js := w.get("ring")
			if !slices.Equal(js.Finalizers, []string{metav1.FinalizerDeleteDependents}) {
				t.Errorf("finalizers %v", js.Finalizers)
			}
			js.Finalizers = nil
			w.must(w.c.Update(w.ctx, js))
			wait.Until(w.t, "it is gone", func() error {
				err := w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "ring"}, &jobsetv1alpha2.JobSet{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return errors.Join(err, errors.New("it is there"))
			})
			w.create(ring)
			w.haveJobs(allOfRing...)
		})
	}
}
