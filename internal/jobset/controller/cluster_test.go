package controller_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

// livePods returns the unfinished pods of the namespace.
func (w *world) livePods() []corev1.Pod {
	w.t.Helper()
	var list corev1.PodList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	var out []corev1.Pod
	for _, p := range list.Items {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			out = append(out, p)
		}
	}
	return out
}

// clusterCases run with the real Job controller, scheduler and garbage collector, on simulated nodes.
var clusterCases = map[string]func(*world){
	// A use of PyTorch's kind: workers find the first one by its host name.
	"run to the end": func(w *world) {
		w.create(`
metadata: {name: torch}
spec:
  coordinator: {replicatedJob: workers}
  ttlSecondsAfterFinished: 2
  replicatedJobs:
  - {name: workers, replicas: 2, template: {spec: {parallelism: 2, completions: 2, template: {metadata: {annotations: {berth.dev/run-seconds: "1"}}, spec: {containers: [{name: c, image: i}]}}}}}
`)
		wait.Until(w.t, "its pods are placed", func() error {
			pods := w.livePods()
			for _, p := range pods {
				if p.Labels[jobsetv1alpha2.CoordinatorKey] != "torch-workers-0-0.torch" || p.Spec.Subdomain != "torch" || p.Labels[jobsetv1alpha2.PriorityLabel] != "0" {
					w.t.Errorf("pod %+v", p.ObjectMeta)
				}
			}
			if len(pods) != 4 {
				return fmt.Errorf("%d pods", len(pods))
			}
			return nil
		})
		w.is("torch", jobsetv1alpha2.ConditionCompleted, metav1.ConditionTrue, jobsetv1alpha2.ReasonAllJobsCompleted)
		wait.Until(w.t, "it is gone, with all its children", func() error {
			var js jobsetv1alpha2.JobSet
			if err := w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "torch"}, &js); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", errors.Join(err))
			}
			if jobs := w.jobs(); len(jobs) > 0 {
				return fmt.Errorf("%d Jobs", len(jobs))
			}
			return nil
		})
	},
	// A use of MPI's kind: the launcher starts when the workers are ready, and its end is the end.
	"launcher and workers": func(w *world) {
		w.create(`
metadata: {name: mpi}
spec:
  successPolicy: {operator: All, targetReplicatedJobs: [launcher]}
  replicatedJobs:
  - {name: workers, template: {spec: {parallelism: 3, completions: 3, template: {metadata: {annotations: {berth.dev/run-seconds: "600"}}, spec: {containers: [{name: c, image: i}]}}}}}
  - {name: launcher, dependsOn: [{name: workers, status: Ready}], template: {spec: {template: {metadata: {annotations: {berth.dev/run-seconds: "1"}}, spec: {containers: [{name: c, image: i}]}}}}}
`)
		w.haveJobs("mpi-workers-0", "mpi-launcher-0")
		w.is("mpi", jobsetv1alpha2.ConditionCompleted, metav1.ConditionTrue, jobsetv1alpha2.ReasonAllJobsCompleted)
		w.haveJobs("mpi-launcher-0") // the workers are deleted
	},
	// Acceptance 21, 27: pods fail until no restart is left; of each attempt all pods are gone before the next.
	"restart until it fails": func(w *world) {
		w.create(`
metadata: {name: bad}
spec:
  failurePolicy: {maxRestarts: 2}
  replicatedJobs:
  - {name: good, replicas: 2, template: {spec: {parallelism: 2, completions: 2, template: {metadata: {annotations: {berth.dev/run-seconds: "600"}}, spec: {containers: [{name: c, image: i}]}}}}}
  - {name: bad, template: {spec: {backoffLimit: 0, template: {metadata: {annotations: {berth.dev/run-seconds: "0.5", berth.dev/exit-code: "1"}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}
`)
		js := w.is("bad", jobsetv1alpha2.ConditionFailed, metav1.ConditionTrue, jobsetv1alpha2.ReasonReachedMaxRestarts)
		if js.Status.Restarts != 2 || js.Status.TerminalState != jobsetv1alpha2.TerminalStateFailed {
			w.t.Errorf("status %+v", js.Status)
		}
		w.haveJobs("bad-bad-0")
		if got := w.jobs()["bad-bad-0"].Labels[jobsetv1alpha2.RestartAttemptKey]; got != "2" {
			w.t.Errorf("attempt %s", got)
		}
	},
	// Acceptance 42 to 44, 48: admitted to one place, evicted and admitted to another, several times and without waiting.
	"suspend and resume elsewhere": func(w *world) {
		w.create(`
metadata: {name: moving}
spec:
  suspend: true
  replicatedJobs:
  - {name: oar, replicas: 2, template: {spec: {parallelism: 2, completions: 2, template: {metadata: {annotations: {berth.dev/run-seconds: "600"}}, spec: {containers: [{name: c, image: i}]}}}}}
`)
		w.counters("moving", "oar", [5]int32{0, 0, 0, 0, 2})
		for round, key := range []string{"a", "b", "a", "c", "d"} {
			w.update("moving", func(js *jobsetv1alpha2.JobSet) {
				js.Spec.Suspend = new(false)
				pod := &js.Spec.ReplicatedJobs[0].Template.Spec.Template
				pod.Labels = map[string]string{"round-" + key: "x"}
				pod.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(5))}}
			})
			wait.Until(w.t, "all pods are of round "+key, func() error {
				pods := w.livePods()
				for _, p := range pods {
					own := 0
					for _, t := range p.Spec.Tolerations {
						if len(t.Key) == 1 {
							own++
						}
					}
					if p.Labels["round-"+key] == "" || own != 1 {
						return fmt.Errorf("pod %s of %v has the tolerations %+v", p.Name, p.Labels, p.Spec.Tolerations)
					}
				}
				if len(pods) != 4 {
					return fmt.Errorf("%d pods", len(pods))
				}
				return nil
			})
			if round == 3 {
				continue // the eviction and the next admission come as one change
			}
			w.update("moving", func(js *jobsetv1alpha2.JobSet) {
				js.Spec.Suspend = new(true)
				js.Spec.ReplicatedJobs[0].Template.Spec.Template.Labels = nil
				js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Tolerations = nil
			})
			if round%2 == 0 {
				w.is("moving", jobsetv1alpha2.ConditionSuspended, metav1.ConditionTrue, jobsetv1alpha2.ReasonSuspended)
			}
		}
		if s := w.get("moving").Status; s.Restarts != 0 {
			w.t.Errorf("status %+v", s)
		}
	},
	// Acceptance 29: one Job restarts, the pods of the others run on.
	"restart one Job": func(w *world) {
		w.create(`
metadata: {name: one}
spec:
  failurePolicy: {maxRestarts: 1, rules: [{name: one, action: RestartJob}]}
  replicatedJobs:
  - {name: good, template: {spec: {template: {metadata: {annotations: {berth.dev/run-seconds: "600"}}, spec: {containers: [{name: c, image: i}]}}}}}
  - {name: bad, template: {spec: {backoffLimit: 0, template: {metadata: {annotations: {berth.dev/run-seconds: "1", berth.dev/exit-code: "1"}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}
`)
		good := w.haveJobs("one-good-0", "one-bad-0")["one-good-0"]
		wait.Until(w.t, "it is counted", func() error {
			if now := w.jobs()["one-good-0"]; now.UID != good.UID {
				w.t.Errorf("the other Job was restarted")
			}
			for _, r := range w.get("one").Status.ReplicatedJobsStatus {
				if r.Name == "bad" && len(r.JobRestarts) == 1 && r.JobRestarts[0] == 1 {
					return nil
				}
			}
			return fmt.Errorf("%+v", w.get("one").Status)
		})
		w.is("one", jobsetv1alpha2.ConditionFailed, metav1.ConditionTrue, jobsetv1alpha2.ReasonReachedMaxRestarts)
	},
	// Acceptance 61: a running JobSet grows.
	"resize": func(w *world) {
		w.create(`
metadata: {name: elastic}
spec:
  replicatedJobs:
  - {name: oar, replicas: 2, template: {spec: {parallelism: 1, completions: 1, template: {metadata: {annotations: {berth.dev/run-seconds: "600"}}, spec: {containers: [{name: c, image: i}]}}}}}
`)
		w.counters("elastic", "oar", [5]int32{2, 0, 0, 2, 0})
		w.update("elastic", func(js *jobsetv1alpha2.JobSet) {
			js.Spec.ReplicatedJobs[0].Template.Spec.Parallelism, js.Spec.ReplicatedJobs[0].Template.Spec.Completions = new(int32(3)), new(int32(3))
		})
		wait.Until(w.t, "there are more pods", func() error {
			if n := len(w.livePods()); n != 6 {
				return fmt.Errorf("%d pods", n)
			}
			return nil
		})
	},
	// Acceptance 62: a claim goes with its JobSet or is retained, and one that was retained is used again.
	"shared volumes": func(w *world) {
		claim := `, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}], retentionPolicy: {whenDeleted: `
		submit := func() *jobsetv1alpha2.JobSet {
			return w.create(`
metadata: {name: shared}
spec:
  volumeClaimPolicies:
  - {templates: [{metadata: {name: data}` + claim + `Delete}}
  - {templates: [{metadata: {name: keep}` + claim + `Retain}}
  replicatedJobs:
  - {name: oar, template: {spec: {template: {spec: {containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /data}, {name: keep, mountPath: /keep}]}]}}}}}
`)
		}
		read := func(name string) (*corev1.PersistentVolumeClaim, error) {
			c := &corev1.PersistentVolumeClaim{}
			return c, w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, c)
		}
		js := submit()
		w.haveJobs("shared-oar-0")
		data, err := read("data-shared")
		w.must(err)
		keep, err := read("keep-shared")
		w.must(err)
		if !metav1.IsControlledBy(data, js) || len(keep.OwnerReferences) > 0 {
			w.t.Errorf("owners %v and %v", data.OwnerReferences, keep.OwnerReferences)
		}
		w.must(w.c.Delete(w.ctx, js, client.PropagationPolicy(metav1.DeletePropagationForeground)))
		wait.Until(w.t, "it is gone with its data", func() error {
			if _, err := read("data-shared"); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the claim is there: %w", errors.Join(err))
			}
			err := w.c.Get(w.ctx, client.ObjectKeyFromObject(js), &jobsetv1alpha2.JobSet{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("the JobSet is there: %w", errors.Join(err))
			}
			return nil
		})
		submit()
		w.haveJobs("shared-oar-0")
		if again, err := read("keep-shared"); err != nil || again.UID != keep.UID || again.DeletionTimestamp != nil {
			w.t.Errorf("it was not retained: %v, %+v", err, again.ObjectMeta)
		}
		if _, err := read("data-shared"); err != nil {
			w.t.Errorf("the other was not made again: %v", err)
		}
	},
	// The bounds of issue 6, on a small scale: many small JobSets run to the end while a larger one restarts.
	"many beside one": func(w *world) {
		w.create(manifest("large", 150, "failurePolicy: {maxRestarts: 1}"))
		wait.Until(w.t, "most exist", func() error {
			if n := len(w.jobs()); n < 100 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		for i := range 20 {
			w.create(fmt.Sprintf(`
metadata: {name: s%d}
spec:
  replicatedJobs:
  - {name: x, replicas: 2, template: {spec: {template: {metadata: {annotations: {berth.dev/run-seconds: "0.1"}}, spec: {containers: [{name: c, image: i}]}}}}}
`, i))
		}
		w.must(w.c.DeleteAllOf(w.ctx, &batchv1.Job{}, client.InNamespace(w.namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: "large"},
			client.PropagationPolicy("Background")))
		start := time.Now()
		for i := range 20 {
			wait.Until(w.t, "small ones end", func() error {
				if plan.FinishedCondition(w.get(fmt.Sprintf("s%d", i))) == nil {
					return fmt.Errorf("%+v", w.get(fmt.Sprintf("s%d", i)).Status)
				}
				return nil
			})
		}
		w.t.Logf("20 small JobSets ended after %.1f s", time.Since(start).Seconds())
	},
}

// TestWithTheJobController runs all of them side by side on one cluster.
func TestWithTheJobController(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a whole cluster")
	}
	w := newCluster(t, plan.Config{RestartJob: true, ElasticJobSet: true})
	t.Run("", func(t *testing.T) {
		for name, run := range clusterCases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(w.inNamespace(t))
			})
		}
	})
}
