package training

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// newJob is a TrainJob from the YAML of its spec.
func newJob(name, queue, spec string) *trainerv1alpha1.TrainJob {
	job := parse[trainerv1alpha1.TrainJob](fmt.Sprintf("{metadata: {namespace: lab, name: %s}, spec: %s}", name, spec))
	if queue != "" {
		job.Labels = map[string]string{kueue.QueueNameLabel: queue}
	}
	return job
}

// suspend sets spec.suspend, on what is stored.
func (k *cluster) suspend(name string, suspend bool) {
	k.t.Helper()
	wait.Until(k.t, "spec.suspend is written", func() error {
		job := k.trainJob(name)
		job.Spec.Suspend = &suspend
		return k.c.Update(k.ctx, job)
	})
}

// TestRuntimes runs TrainJobs of the runtimes that come with Berth to their end, each suspended and resumed midway: torch on
// four nodes; MPI; and one that fetches a data set and a model first.
func TestRuntimes(t *testing.T) {
	k := start(t)
	k.create(parse[corev1.PersistentVolume](`
metadata: {name: disk}
spec: {capacity: {storage: 30Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /none}}
`))
	k.create(newJob("lark", "", "{runtimeRef: {name: torch-distributed}, trainer: {numNodes: 4}, runtimePatches: ["+seconds(map[string]string{"node": "4"})+"]}"))
	k.create(newJob("wave", "", "{runtimeRef: {name: deepspeed-distributed}, trainer: {numNodes: 3, command: [mpirun, ./go]}, runtimePatches: ["+
		seconds(map[string]string{"launcher": "6", "node": "600"})+"]}"))
	k.create(newJob("tune", "", "{runtimeRef: {name: torchtune-llama3.2-1b}, initializer: {dataset: {storageUri: hf://a/b}}, trainer: {command: [tune, run]}, runtimePatches: ["+
		seconds(map[string]string{"dataset-initializer": "1", "model-initializer": "1", "node": "8"})+"]}"))
	k.create(newJob("swift", "", "{runtimeRef: {name: jax-distributed}, trainer: {numNodes: 2}, runtimePatches: ["+seconds(map[string]string{"node": "2"})+"]}"))

	k.running("lark", 4)
	k.pauses("lark")
	k.running("wave", 3)
	keys := k.secret("wave-mpi-ssh-auth").ResourceVersion
	k.pauses("wave")
	wait.Until(k.t, "the initializers end and the trainer runs", func() error {
		pods := k.pods("tune")
		if len(pods) != 1 || pods[0].Labels["jobset.sigs.k8s.io/replicatedjob-name"] != "node" {
			return fmt.Errorf("%d pods run; the status is %+v", len(pods), k.trainJob("tune").Status)
		}
		return nil
	})
	k.pauses("tune")
	for _, name := range []string{"lark", "wave", "tune"} {
		k.completes(name)
		if c := k.trainJob(name).Status.Conditions; len(c) != 2 || c[0].Reason != "Resumed" {
			t.Errorf("conditions of %s: %+v", name, c)
		}
	}
	k.completes("swift")
	if c := k.trainJob("swift").Status.Conditions; len(c) != 1 {
		t.Errorf("conditions of a TrainJob that was never suspended: %+v", c)
	}
	if k.secret("wave-mpi-ssh-auth").ResourceVersion != keys {
		t.Error("the keys of a TrainJob that was resumed are others")
	}
	for _, s := range k.trainJob("tune").Status.JobsStatus {
		if s.Succeeded != 1 {
			t.Errorf("%+v", s)
		}
	}
	for _, step := range []string{"dataset-initializer", "model-initializer"} { // and not again after it was resumed
		var list corev1.PodList
		k.must(k.c.List(k.ctx, &list, client.InNamespace("lab"), client.MatchingLabels{"jobset.sigs.k8s.io/jobset-name": "tune", "jobset.sigs.k8s.io/replicatedjob-name": step}))
		if len(list.Items) != 1 {
			t.Errorf("%d pods of %s", len(list.Items), step)
		}
	}
}

// pauses suspends a TrainJob that runs, waits until no pod of it does, and resumes it.
func (k *cluster) pauses(name string) {
	k.t.Helper()
	k.suspend(name, true)
	k.running(name, 0)
	wait.Until(k.t, name+" says that it is suspended", func() error {
		if c := k.trainJob(name).Status.Conditions; len(c) != 1 || c[0].Type != "Suspended" || c[0].Status != "True" {
			return fmt.Errorf("conditions %+v", c)
		}
		return nil
	})
	var set jobsetv1alpha2.JobSet
	k.must(k.c.Get(k.ctx, client.ObjectKey{Namespace: "lab", Name: name}, &set))
	if set.Spec.Suspend == nil || !*set.Spec.Suspend {
		k.t.Errorf("%s is suspended, and its JobSet is not", name)
	}
	k.suspend(name, false)
}

func (k *cluster) secret(name string) *corev1.Secret {
	k.t.Helper()
	var secret corev1.Secret
	k.must(k.c.Get(k.ctx, client.ObjectKey{Namespace: "lab", Name: name}, &secret))
	return &secret
}

// queues are two zones of nodes, each with a label of its own, with two cpus for each, and a queue named train.
func (k *cluster) queues() {
	k.t.Helper()
	var nodes corev1.NodeList
	k.must(k.c.List(k.ctx, &nodes))
	for i := range nodes.Items {
		n := &nodes.Items[i]
		before := n.DeepCopy()
		n.Labels["zone"] = []string{"a", "b"}[i%2]
		n.Labels["only-"+n.Labels["zone"]] = "yes"
		k.must(k.c.Patch(k.ctx, n, client.MergeFrom(before)))
	}
	for _, zone := range []string{"a", "b"} {
		k.create(parse[kueue.ResourceFlavor]("{metadata: {name: " + zone + "}, spec: {nodeLabels: {zone: " + zone + ", only-" + zone + ": 'yes'}}}"))
	}
	k.create(parse[kueue.ClusterQueue](`
metadata: {name: train}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: a, resources: [{name: cpu, nominalQuota: 2}]}
    - {name: b, resources: [{name: cpu, nominalQuota: 2}]}
`))
	k.create(parse[kueue.LocalQueue]("{metadata: {namespace: lab, name: train}, spec: {clusterQueue: train}}"))
	for name, value := range map[string]string{"low": "1", "high": "100"} {
		k.create(parse[kueue.WorkloadPriorityClass]("{metadata: {name: " + name + "}, value: " + value + "}"))
	}
}

// zones are the zones that the running pods of a TrainJob were sent to.
func (k *cluster) zones(job string) map[string]int {
	out := map[string]int{}
	for _, p := range k.pods(job) {
		out[p.Spec.NodeSelector["zone"]]++
	}
	return out
}

// TestPreempted: a TrainJob is preempted by one of higher priority that fits only there. It comes back elsewhere, with the other flavor's
// node selector and without the first one's.
func TestPreempted(t *testing.T) {
	k := start(t)
	k.queues()
	of := func(name, class, patches string) *trainerv1alpha1.TrainJob {
		job := newJob(name, "train", "{runtimeRef: {name: torch-distributed}, trainer: {numNodes: 2, resourcesPerNode: {requests: {cpu: 1}}}, runtimePatches: ["+
			seconds(map[string]string{"node": "6"})+patches+"]}")
		job.Labels[kueue.PriorityClassLabel] = class
		return job
	}
	k.create(of("low", "low", ""))
	k.running("low", 2)
	if diff := cmp.Diff(map[string]int{"a": 2}, k.zones("low")); diff != "" {
		t.Errorf("at first it runs in (-want +got):\n%s", diff)
	}
	k.create(of("high", "high", ", {manager: acme.io/zone, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {nodeSelector: {zone: a}}}}}}]}}}}"))
	wait.Until(k.t, "the first one is moved", func() error {
		if z := k.zones("low"); !cmp.Equal(z, map[string]int{"b": 2}) {
			return fmt.Errorf("it runs in %v: %+v", z, k.trainJob("low").Status)
		}
		return nil
	})
	job := k.trainJob("low")
	for _, p := range job.Spec.RuntimePatches {
		if p.Manager != trainerv1alpha1.QueuePatchManager {
			continue
		}
		pod := p.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
		if diff := cmp.Diff(map[string]string{"zone": "b", "only-b": "yes"}, pod.Spec.NodeSelector); diff != "" {
			t.Errorf("the queue's patch (-want +got):\n%s", diff)
		}
	}
	for _, p := range k.pods("low") {
		if diff := cmp.Diff(map[string]string{"zone": "b", "only-b": "yes"}, p.Spec.NodeSelector); diff != "" {
			t.Errorf("pod %s (-want +got):\n%s", p.Name, diff)
		}
	}
	k.completes("high")
	k.completes("low")
}

// TestStartRace: the queue starts TrainJobs while users patch them. No pod ever starts without the flavor's node selector, and every
// acknowledged patch is in effect.
func TestStartRace(t *testing.T) {
	k := start(t)
	k.queues()
	const jobs = 8
	done := make(chan error, jobs)
	var stored, refused atomic.Int64
	for i := range jobs {
		name := fmt.Sprintf("race-%d", i)
		k.create(newJob(name, "train", "{runtimeRef: {name: torch-distributed}, trainer: {numNodes: 1, resourcesPerNode: {requests: {cpu: 1}}}, runtimePatches: ["+
			seconds(map[string]string{"node": "1"})+"]}"))
		go func() { done <- k.patchUntilItRuns(name, &stored, &refused) }()
	}
	for range jobs {
		k.must(<-done)
	}
	for i := range jobs {
		k.completes(fmt.Sprintf("race-%d", i))
	}
	var list corev1.PodList
	k.must(k.c.List(k.ctx, &list, client.InNamespace("lab")))
	for _, p := range list.Items {
		if zone := p.Spec.NodeSelector["zone"]; zone != "a" && zone != "b" {
			t.Errorf("pod %s was made with node selector %v", p.Name, p.Spec.NodeSelector)
		}
		job := k.trainJob(p.Labels["jobset.sigs.k8s.io/jobset-name"])
		want := ""
		for _, entry := range job.Spec.RuntimePatches {
			if entry.Manager == "ann.io/x" {
				want = entry.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Metadata.Labels["round"]
			}
		}
		if got := p.Labels["round"]; got != want {
			t.Errorf("pod %s runs with round %q, the TrainJob says %q", p.Name, got, want)
		}
	}
	t.Logf("%d patches were stored, %d refused", stored.Load(), refused.Load())
	if stored.Load() < jobs || refused.Load() == 0 {
		t.Error("there was no race")
	}
}

// patchUntilItRuns writes an entry of its own again and again, until that is refused because the TrainJob runs.
func (k *cluster) patchUntilItRuns(name string, stored, refused *atomic.Int64) error {
	for round := 0; ; round++ {
		var job trainerv1alpha1.TrainJob
		if err := k.c.Get(k.ctx, client.ObjectKey{Namespace: "lab", Name: name}, &job); err != nil {
			return err
		}
		entry := *parse[trainerv1alpha1.RuntimePatch](fmt.Sprintf(
			`{manager: ann.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {metadata: {labels: {round: "%d"}}}}}}]}}}}`, round))
		set := false
		for i := range job.Spec.RuntimePatches {
			if job.Spec.RuntimePatches[i].Manager == entry.Manager {
				job.Spec.RuntimePatches[i], set = entry, true
			}
		}
		if !set {
			job.Spec.RuntimePatches = append(job.Spec.RuntimePatches, entry)
		}
		err := k.c.Update(k.ctx, &job)
		switch {
		case err == nil:
			stored.Add(1)
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "RuntimePatches can only be modified"):
			refused.Add(1)
			return nil
		case len(job.Status.Conditions) > 0 && job.Status.Conditions[len(job.Status.Conditions)-1].Type == "Complete":
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsForbidden(err):
			return err
		}
	}
}
