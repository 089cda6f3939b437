package multicluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	planjob "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// template is a pod template in one line, whose pods run for so many seconds on simulated nodes.
func template(seconds string) string {
	return `{metadata: {labels: {app: x}, annotations: {berth.dev/run-seconds: "` + seconds + `"}}, spec: {restartPolicy: Never, containers: [{name: node, image: any, resources: {requests: {cpu: 100m}}}]}}`
}

// remoteKind is a kind of the test: the spec of a job, and its status as the worker's operator would write it. A kind that Berth itself
// runs has none.
type remoteKind struct {
	spec                  func(template string) string
	active, stopped, done string
	endless               bool
}

func replicas(field, first, second string) func(string) string {
	return func(template string) string {
		text := "{runPolicy: {cleanPodPolicy: None}, " + field + ": {" + first + ": {replicas: 1, template: " + template + "}"
		if second != "" {
			text += ", " + second + ": {replicas: 1, template: " + template + "}"
		}
		return text + "}}"
	}
}

func rayCluster(template string) string {
	return `{rayVersion: "2.9", headGroupSpec: {rayStartParams: {}, template: ` + template + `}, workerGroupSpecs: [{groupName: small, replicas: 1, minReplicas: 1, maxReplicas: 5, template: ` + template + `}]}`
}

func ended(condition string) string {
	return "{conditions: [{type: " + condition + ", status: 'True', reason: R, message: over, lastTransitionTime: '2026-01-02T03:05:05Z'}]}"
}

func kubeflow(spec func(string) string, role string) remoteKind {
	return remoteKind{spec, "{replicaStatuses: {" + role + ": {active: 1}}}", "{replicaStatuses: {" + role + ": {active: 0}}}", ended("Succeeded"), false}
}

var remoteKinds = map[string]remoteKind{
	"jobset.x-k8s.io/jobset": {spec: func(template string) string {
		return "{replicatedJobs: [{name: w, template: {spec: {template: " + template + "}}}]}"
	}},
	"trainer.kubeflow.org/trainjob": {spec: func(string) string {
		return "{runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: plain}, trainer: {numNodes: 2}}"
	}},
	"kubeflow.org/jaxjob":     kubeflow(replicas("jaxReplicaSpecs", "Worker", ""), "Worker"),
	"kubeflow.org/mpijob":     kubeflow(replicas("mpiReplicaSpecs", "Launcher", "Worker"), "Launcher"),
	"kubeflow.org/paddlejob":  kubeflow(replicas("paddleReplicaSpecs", "Master", "Worker"), "Master"),
	"kubeflow.org/pytorchjob": kubeflow(replicas("pytorchReplicaSpecs", "Master", "Worker"), "Master"),
	"kubeflow.org/tfjob":      kubeflow(replicas("tfReplicaSpecs", "Chief", "Worker"), "Chief"),
	"kubeflow.org/xgboostjob": kubeflow(replicas("xgbReplicaSpecs", "Master", "Worker"), "Master"),
	"ray.io/raycluster":       {rayCluster, "{state: ready}", "{state: suspended}", "", true},
	"ray.io/rayjob": {
		func(template string) string {
			return "{entrypoint: x, shutdownAfterJobFinishes: true, submitterPodTemplate: " + template + ", rayClusterSpec: " + rayCluster(template) + "}"
		},
		"{jobDeploymentStatus: Running, jobStatus: RUNNING}", "{jobDeploymentStatus: Suspended, jobStatus: ''}",
		"{jobDeploymentStatus: Complete, jobStatus: SUCCEEDED}", false,
	},
	"ray.io/rayservice": {
		func(template string) string { return "{rayClusterConfig: " + rayCluster(template) + "}" },
		"{activeServiceStatus: {rayClusterName: x}, conditions: [{type: Ready, status: 'True', reason: R, message: m, lastTransitionTime: '2026-01-02T03:05:05Z'}]}",
		"{conditions: [{type: Suspended, status: 'True', reason: R, message: m, lastTransitionTime: '2026-01-02T03:05:05Z'}]}", "", true,
	},
	"workload.codeflare.dev/appwrapper": {
		func(template string) string {
			return "{components: [{template: {apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: p}, spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: " + template + "}}}}}]}"
		},
		"{phase: Running, conditions: [{type: QuotaReserved, status: 'True', reason: R, message: m, lastTransitionTime: '2026-01-02T03:05:05Z'}]}",
		"{phase: Suspended, conditions: []}", "{phase: Succeeded, conditions: []}", false,
	},
}

// plainRuntime is what the TrainJob refers to.
const plainRuntime = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: plain}
spec:
  mlPolicy: {numNodes: 1}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: %TEMPLATE%}`

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	out := &unstructured.Unstructured{}
	if err == nil {
		err = out.UnmarshalJSON(raw)
	}
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return out
}

// kindWorld is a hub with one worker, which runs only pods of kinds that Berth itself runs.
type kindWorld struct{ hub, worker *cluster }

// remoteRun is one job on the hub, and its course on the worker.
type remoteRun struct {
	kindWorld
	t    *testing.T
	d    *planjob.Descriptor
	kind remoteKind
	key  client.ObjectKey
}

func (w kindWorld) create(t *testing.T, d *planjob.Descriptor, name string) *remoteRun {
	t.Helper()
	r := &remoteRun{w, t, d, remoteKinds[d.Framework], client.ObjectKey{Namespace: "team", Name: name}}
	seconds := "4"
	if name == "gone" {
		seconds = "600" // it is deleted while it runs
	}
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {namespace: team, name: %s, labels: {kueue.x-k8s.io/queue-name: main, own: label}, annotations: {own: annotation}}\nspec: %s",
		d.GVK.GroupVersion(), d.GVK.Kind, name, r.kind.spec(template(seconds)))
	w.hub.create(parse(t, text))
	return r
}

// get reads the job from a cluster, in the form that the descriptor takes and as a tree.
func (r *remoteRun) get(c *cluster) (planjob.Object, *unstructured.Unstructured, error) {
	o := r.d.New()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.d.GVK)
	return o, u, errors.Join(c.Get(r.t.Context(), r.key, o), c.Get(r.t.Context(), r.key, u))
}

func (r *remoteRun) workload(c *cluster) (*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := c.List(r.t.Context(), &list, client.InNamespace(r.key.Namespace)); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list.Items, func(w kueue.Workload) bool {
		owner := metav1.GetControllerOf(&w)
		return owner != nil && owner.Name == r.key.Name && owner.Kind == r.d.GVK.Kind
	})
	if at < 0 {
		return nil, fmt.Errorf("no workload for %s %s", r.d.GVK.Kind, r.key)
	}
	return &list.Items[at], nil
}

// runs waits until the worker has the job, and it is started on both sides.
func (r *remoteRun) runs() {
	r.t.Helper()
	wait.Until(r.t, "it runs on the worker", func() error {
		local, _, err := r.get(r.hub)
		if err != nil {
			return err
		}
		w, err := r.workload(r.hub)
		if err != nil {
			return err
		}
		remote, _, err := r.get(r.worker)
		if err != nil {
			return fmt.Errorf("%w; checks %+v, conditions %+v", err, w.Status.AdmissionChecks, w.Status.Conditions)
		}
		if r.d.IsSuspended(local) || r.d.IsSuspended(remote) || w.Status.ClusterName != r.worker.name {
			return fmt.Errorf("suspended here %v, there %v, cluster %q", r.d.IsSuspended(local), r.d.IsSuspended(remote), w.Status.ClusterName)
		}
		return nil
	})
}

// isCopy checks the copy on the worker.
func (r *remoteRun) isCopy() {
	r.t.Helper()
	_, local, err := r.get(r.hub)
	if err != nil {
		r.t.Fatal(err)
	}
	_, remote, err := r.get(r.worker)
	if err != nil {
		r.t.Fatal(err)
	}
	w, err := r.workload(r.hub)
	if err != nil {
		r.t.Fatal(err)
	}
	if by, _, _ := unstructured.NestedString(local.Object, r.d.Remote.ManagedBy...); by != kueue.MultiKueueControllerName {
		r.t.Errorf("managedBy here is %q", by)
	}
	if by, found, _ := unstructured.NestedFieldNoCopy(remote.Object, r.d.Remote.ManagedBy...); found {
		r.t.Errorf("managedBy there is %v", by)
	}
	labels, annotations := remote.GetLabels(), remote.GetAnnotations()
	if labels[kueue.MultiKueueOriginLabel] != "multikueue" || labels["own"] != "label" || labels[kueue.QueueNameLabel] != "main" ||
		annotations["own"] != "annotation" || annotations[kueue.PrebuiltWorkloadLabel] != w.Name || len(remote.GetOwnerReferences()) > 0 {
		r.t.Errorf("labels %v, annotations %v, owners %v", labels, annotations, remote.GetOwnerReferences())
	}
	copied, err := r.workload(r.worker)
	if err != nil || copied.Name != w.Name || copied.Labels[kueue.MultiKueueOriginLabel] != "multikueue" {
		r.t.Errorf("the workload there: %v, %+v", err, copied)
	}
}

// says writes the status of the remote job as its operator would, and waits until it is mirrored. Kinds that Berth runs write it
// themselves.
func (r *remoteRun) says(status string) {
	r.t.Helper()
	if status == "" {
		return
	}
	raw, err := yaml.YAMLToJSON([]byte(status))
	if err != nil {
		r.t.Fatal(err)
	}
	_, remote, err := r.get(r.worker)
	if err == nil {
		err = r.worker.Status().Patch(r.t.Context(), remote, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":%s}`, raw)))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	want := remote.Object["status"]
	wait.Until(r.t, "the status is mirrored: "+status, func() error {
		_, local, err := r.get(r.hub)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, local.Object["status"]); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

// leaves waits until the worker has no object of the job.
func (r *remoteRun) leaves() {
	r.t.Helper()
	wait.Until(r.t, "the worker holds nothing of it", func() error {
		if _, u, err := r.get(r.worker); !apierrors.IsNotFound(err) {
			return fmt.Errorf("its job: %w, finalizers %v", err, u.GetFinalizers())
		}
		if w, err := r.workload(r.worker); err == nil {
			return fmt.Errorf("its workload %s, finalizers %v", w.Name, w.Finalizers)
		}
		return nil
	})
}

// TestRemoteKinds is the life of every kind that can be sent to a worker: created there, mirrored, taken back, run again, finished, deleted.
func TestRemoteKinds(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two control planes")
	}
	t.Parallel()
	var kinds []*planjob.Descriptor
	names := []string{}
	gated := map[string]*planjob.Descriptor{}
	for _, d := range all.Descriptors() {
		if d.Remote == nil {
			continue
		}
		names = append(names, d.Framework)
		switch {
		case d.Framework == "batch/job": // TestDispatch
		case d.Remote.Gated: // a test of its own, below
			gated[d.Framework] = d
		default:
			kinds = append(kinds, d)
		}
	}
	config := "integrations: {frameworks: [" + strings.Join(names, ", ") + "]}\n"
	clusters := startWith(t, []string{"hub", "w1"}, map[string]string{"hub": config, "w1": config}, func(c *cluster) {
		for _, d := range kinds {
			if kind, ok := remoteKinds[d.Framework]; !ok {
				t.Fatalf("the test knows no job of %s: add one", d.Framework)
			} else if kind.active != "" {
				c.create(embeddedtest.LooseCRD(d.GVK, d.Resource))
			}
		}
		lws := gated["leaderworkerset.x-k8s.io/leaderworkerset"]
		c.create(embeddedtest.LooseCRD(lws.GVK, lws.Resource))
	})
	w := kindWorld{clusters[0], clusters[1]}
	for _, c := range clusters {
		runtime := parse(t, strings.Replace(plainRuntime, "%TEMPLATE%", template("4"), 1))
		wait.Until(t, "the runtime exists", func() error { return client.IgnoreAlreadyExists(c.Create(t.Context(), runtime.DeepCopy())) })
	}
	w.hub.workers(w.worker)
	w.hub.queues("100", "workers")
	w.worker.queues("100")
	w.hub.connection("w1", metav1.ConditionTrue, kueue.ReasonActive)
	wait.Until(t, "every kind can be sent there", func() error {
		var c kueue.MultiKueueCluster
		if err := w.hub.Get(t.Context(), client.ObjectKey{Name: "w1"}, &c); err != nil {
			return err
		}
		for _, condition := range c.Status.Conditions {
			if condition.Type == kueue.MultiKueueClusterFrameworksAvailable && condition.Status == metav1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v", c.Status.Conditions)
	})
	runs, gone := map[string]*remoteRun{}, map[string]*remoteRun{}
	for _, d := range kinds { // all at once: most of the time is spent waiting
		runs[d.Framework], gone[d.Framework] = w.create(t, d, "run"), w.create(t, d, "gone")
	}
	own := map[string]func(*testing.T){
		"elastic": w.elastic(t), "upgrade": w.upgrade(t), "pod": w.singlePods(t), "pod group": w.podGroup(t), "statefulset": w.statefulSet(t),
		"leaderworkerset": w.leaderWorkerSet(t, gated["leaderworkerset.x-k8s.io/leaderworkerset"]),
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		t.Run(name, own[name])
	}
	for _, d := range kinds {
		t.Run(d.Framework, func(t *testing.T) {
			r, g := runs[d.Framework], gone[d.Framework]
			r.t, g.t = t, t
			if r.kind.active != "" {
				r.runs()
				r.isCopy()
				r.says(r.kind.active)
				r.comesBack()
				r.says(r.kind.active)
			}
			if !r.kind.endless {
				r.says(r.kind.done)
				r.finishes()
				r.leaves()
			}
			g.deleted()
		})
	}
}

// comesBack has the manager take the job back while it runs, and sends it again.
func (r *remoteRun) comesBack() {
	r.t.Helper()
	activate := func(active bool) {
		r.t.Helper()
		w, err := r.workload(r.hub)
		if err == nil {
			err = r.hub.Patch(r.t.Context(), w, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"active":%v}}`, active)))
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	activate(false)
	wait.Until(r.t, "it is stopped there", func() error {
		remote, _, err := r.get(r.worker)
		if err == nil && !r.d.IsSuspended(remote) {
			return errors.New("it runs")
		}
		return err
	})
	w, err := r.workload(r.hub)
	if err != nil || !lifecycle.IsReserved(w) {
		r.t.Errorf("the quota is not held until the job has stopped: %v", err)
	}
	r.says(r.kind.stopped)
	wait.Until(r.t, "its quota is released", func() error {
		w, err := r.workload(r.hub)
		if err == nil && lifecycle.IsReserved(w) {
			return fmt.Errorf("%+v", w.Status.Conditions)
		}
		return err
	})
	r.leaves()
	activate(true)
	r.runs()
}

// finishes waits for the end here.
func (r *remoteRun) finishes() {
	r.t.Helper()
	wait.Until(r.t, "it finishes here", func() error {
		w, err := r.workload(r.hub)
		if err != nil {
			return err
		}
		local, _, err := r.get(r.hub)
		if err != nil {
			return err
		}
		if _, success, finished := r.d.Finished(local); !success || !finished || !lifecycle.IsFinished(w) {
			return fmt.Errorf("success %v, finished %v, conditions %+v", success, finished, w.Status.Conditions)
		}
		return nil
	})
}

// deleted deletes the job while it runs.
func (r *remoteRun) deleted() {
	r.t.Helper()
	_, u, err := r.get(r.hub)
	if err == nil {
		err = r.hub.Delete(r.t.Context(), u, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.leaves()
}
