package takeover

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

const (
	byJobSets = "jobset"
	byKubelet = "kubelet"
	// role is the role hash of the pods of a group, and the name of their pod set.
	role       = "b642cab1"
	indexLabel = "batch.kubernetes.io/job-completion-index"
)

var rayCluster = schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayCluster"}

// kinds writes an admitted object of other kinds each. In the queue "kinds" they hold 6 cpus, in "elastic" 1, and in
// "kubeflow" 12.
func (w *world) kinds() {
	w.Helper()
	w.jobSet()
	w.podGroup()
	w.ray()
	w.elastic()
	for i := range kubeflow {
		w.kubeflow(&kubeflow[i])
	}
}

// older is a kind of the training operator or the MPI operator: the field of its replicas and the roles in it. spec: 30 §4.9.
type older struct {
	kind, version, replicas string
	roles                   []string
}

var kubeflow = []older{
	{"PyTorchJob", "v1", "pytorchReplicaSpecs", []string{"Master", "Worker"}},
	{"TFJob", "v1", "tfReplicaSpecs", []string{"Chief", "PS", "Worker"}},
	{"XGBoostJob", "v1", "xgbReplicaSpecs", []string{"Master", "Worker"}},
	{"PaddleJob", "v1", "paddleReplicaSpecs", []string{"Master", "Worker"}},
	{"JAXJob", "v1", "jaxReplicaSpecs", []string{"Worker"}},
	{"MPIJob", "v2beta1", "mpiReplicaSpecs", []string{"Launcher", "Worker"}},
}

func (k *older) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "kubeflow.org", Version: k.version, Kind: k.kind}
}

// object is the job of the kind in the world, without fields.
func (k *older) object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.gvk())
	u.SetNamespace(team)
	u.SetName("of-" + strings.ToLower(k.kind))
	return u
}

// kubeflow writes a running job with a pod in each role. Together they hold 12 cpus of the queue "kubeflow".
func (w *world) kubeflow(k *older) {
	w.Helper()
	j := k.object()
	j.SetLabels(map[string]string{kueue.QueueNameLabel: "kubeflow"})
	replicas, statuses := map[string]any{}, map[string]any{}
	var sets []kueue.PodSet
	for _, role := range k.roles {
		template := podsFor("1")
		replicas[role] = map[string]any{"replicas": int64(1), "template": w.tree(&template)}
		statuses[role] = map[string]any{"active": int64(1)}
		sets = append(sets, kueue.PodSet{Name: kueue.PodSetReference(strings.ToLower(role)), Count: 1, Template: template, TopologyRequest: &kueue.PodSetTopologyRequest{
			PodIndexLabel: new("training.kubeflow.org/replica-index"),
		}})
	}
	policy := map[string]any{"suspend": true}
	j.Object["spec"] = map[string]any{"runPolicy": policy, k.replicas: replicas}
	w.try(w.Create(w.Context(), j, client.FieldOwner(byUser)))
	wl := w.workloadOf(j, "kubeflow", sets)
	w.admit(wl, "kubeflow")
	for _, role := range k.roles {
		template := podsFor("1")
		inject(&template, strings.ToLower(role), wl)
		replicas[role] = map[string]any{"replicas": int64(1), "template": w.tree(&template)}
	}
	policy["suspend"] = false
	j.Object["spec"] = map[string]any{"runPolicy": policy, k.replicas: replicas}
	w.try(w.Update(w.Context(), j, client.FieldOwner(byKueue)))
	j.Object["status"] = map[string]any{"replicaStatuses": statuses, "conditions": []any{olderCondition("Running", "True")}}
	w.try(w.Status().Update(w.Context(), j, client.FieldOwner("training-operator")))
	w.ready(wl, metav1.ConditionTrue, "Started")
}

func olderCondition(kind, status string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": kind, "message": "of the job"}
}

// tree is a pod template as an unstructured job has it.
func (w *world) tree(template *corev1.PodTemplateSpec) map[string]any {
	w.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
	w.try(err)
	if meta, ok := content["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	return content
}

// admit writes the Workload of a job that is admitted to a queue.
func (w *world) admit(wl *kueue.Workload, queue string) {
	w.Helper()
	w.write(byKueue, wl)
	w.ready(wl, metav1.ConditionFalse, "WaitForStart")
	w.setAdmitted(wl, queue)
	w.applyStatus(byAdmission, wl)
}

// jobSet writes a running JobSet of two Jobs.
func (w *world) jobSet() {
	w.Helper()
	js := ring("kinds")
	w.write(byUser, js)
	wl := w.workloadOf(js, "kinds", setsOfRing(js))
	w.admit(wl, "kinds")
	startRing(js, wl)
	w.write(byKueue, js)
	w.runRing(js)
	w.ready(wl, metav1.ConditionTrue, "Started")
}

// ring is a JobSet of two Jobs, as its user creates it. spec: 60 §4.2.
func ring(queue string) *jobsetv1alpha2.JobSet {
	return &jobsetv1alpha2.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "ring", Labels: map[string]string{kueue.QueueNameLabel: queue}},
		Spec: jobsetv1alpha2.JobSetSpec{
			Suspend: new(true),
			ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{{
				Name: "worker", GroupName: "default", Replicas: new(int32(2)),
				Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
					Parallelism: new(int32(1)), Completions: new(int32(1)), CompletionMode: new(batchv1.IndexedCompletion), Template: podsFor("1"),
				}},
			}},
			Network:       &jobsetv1alpha2.Network{EnableDNSHostnames: new(true), PublishNotReadyAddresses: new(true)},
			SuccessPolicy: &jobsetv1alpha2.SuccessPolicy{Operator: jobsetv1alpha2.OperatorAll},
			StartupPolicy: &jobsetv1alpha2.StartupPolicy{StartupPolicyOrder: jobsetv1alpha2.StartupAnyOrder},
		},
	}
}

// setsOfRing are the pod sets of a stored JobSet that is not started.
func setsOfRing(js *jobsetv1alpha2.JobSet) []kueue.PodSet {
	return []kueue.PodSet{{
		Name: "worker", Count: 2, Template: *js.Spec.ReplicatedJobs[0].Template.Spec.Template.DeepCopy(), TopologyRequest: &kueue.PodSetTopologyRequest{
			PodIndexLabel: new(indexLabel), SubGroupIndexLabel: new("jobset.sigs.k8s.io/job-index"), SubGroupCount: new(int32(2)),
		},
	}}
}

func startRing(js *jobsetv1alpha2.JobSet, wl *kueue.Workload) {
	js.Spec.Suspend = new(false)
	inject(&js.Spec.ReplicatedJobs[0].Template.Spec.Template, "worker", wl)
}

// runRing writes the Jobs of a started JobSet, and its status.
func (w *world) runRing(js *jobsetv1alpha2.JobSet) {
	w.Helper()
	for _, j := range w.children(js) {
		w.runs(j, 1, 1)
	}
	js.Status.ReplicatedJobsStatus = []jobsetv1alpha2.ReplicatedJobStatus{{Name: "worker", Ready: 2, Active: 2}}
	w.writeStatus(byJobSets, js)
}

// children writes the Jobs of a JobSet and its Service, as the controller of JobSets creates them.
func (w *world) children(js *jobsetv1alpha2.JobSet) (out []*batchv1.Job) {
	w.Helper()
	for i := range js.Spec.ReplicatedJobs {
		for n := range int(*js.Spec.ReplicatedJobs[i].Replicas) {
			out = append(out, childOf(js, &js.Spec.ReplicatedJobs[i], len(out), n))
			w.write(byJobSets, out[len(out)-1])
		}
	}
	w.write(byJobSets, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: js.Name, OwnerReferences: []metav1.OwnerReference{*ownedBy(js)}},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true, Selector: map[string]string{jobsetv1alpha2.JobSetNameKey: js.Name},
		},
	})
	return out
}

func ownedBy(js *jobsetv1alpha2.JobSet) *metav1.OwnerReference {
	return metav1.NewControllerRef(js, jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet))
}

// childOf is a Job of a replicated job, and the given one of all, as the controller of JobSets creates it.
func childOf(js *jobsetv1alpha2.JobSet, rj *jobsetv1alpha2.ReplicatedJob, global, i int) *batchv1.Job {
	name := fmt.Sprintf("%s-%s-%d", js.Name, rj.Name, i)
	key := sha1.Sum([]byte(js.Namespace + "/" + name))
	all := 0
	for i := range js.Spec.ReplicatedJobs {
		all += int(*js.Spec.ReplicatedJobs[i].Replicas)
	}
	keys := map[string]string{
		"jobset.sigs.k8s.io/jobset-name": js.Name, "jobset.sigs.k8s.io/jobset-uid": string(js.UID),
		"jobset.sigs.k8s.io/replicatedjob-name": rj.Name, "jobset.sigs.k8s.io/replicatedjob-replicas": fmt.Sprint(*rj.Replicas), "jobset.sigs.k8s.io/global-replicas": strconv.Itoa(all),
		"jobset.sigs.k8s.io/job-index": strconv.Itoa(i), "jobset.sigs.k8s.io/job-global-index": strconv.Itoa(global),
		"jobset.sigs.k8s.io/job-key": hex.EncodeToString(key[:]), "jobset.sigs.k8s.io/restart-attempt": "0",
		"jobset.sigs.k8s.io/group-name": "default", "jobset.sigs.k8s.io/group-replicas": strconv.Itoa(all), "jobset.sigs.k8s.io/job-group-index": strconv.Itoa(global),
	}
	spec := *rj.Template.Spec.DeepCopy()
	spec.Suspend = js.Spec.Suspend
	spec.Template.Spec.Subdomain = js.Name
	for k, v := range keys {
		metav1.SetMetaDataLabel(&spec.Template.ObjectMeta, k, v)
		metav1.SetMetaDataAnnotation(&spec.Template.ObjectMeta, k, v)
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: js.Namespace, Name: name, Labels: keys, Annotations: keys, OwnerReferences: []metav1.OwnerReference{*ownedBy(js)},
		},
		Spec: spec,
	}
}

// podGroup writes two running pods of a group. spec: 30 §4.9.
func (w *world) podGroup() {
	w.Helper()
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: team, Name: "group", Finalizers: []string{kueue.ResourceInUseFinalizer},
			Annotations: map[string]string{kueue.IsGroupWorkloadAnnotation: "true"},
		},
		Spec: kueue.WorkloadSpec{QueueName: "kinds", Priority: new(int32(0)), Active: new(true)},
	}
	pods := make([]*corev1.Pod, 2)
	for i := range pods {
		p := member(i, "kinds")
		startMember(p, wl.Name, "kinds")
		w.write(byUser, p)
		w.runsPod(p)
		pods[i] = p
		wl.OwnerReferences = append(wl.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID})
	}
	template := corev1.PodTemplateSpec{Spec: *pods[0].Spec.DeepCopy()}
	template.Spec.NodeSelector = nil
	wl.Spec.PodSets = []kueue.PodSet{{
		Name: role, Count: 2, Template: template, TopologyRequest: &kueue.PodSetTopologyRequest{PodIndexLabel: new(kueue.PodGroupPodIndexLabel)},
	}}
	w.admit(wl, "kinds")
	w.ready(wl, metav1.ConditionTrue, "Started")
}

// member is a pod of the group as its user creates it, after the webhook, without the gate.
func member(i int, queue string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: team, Name: fmt.Sprintf("member-%d", i), Finalizers: []string{kueue.ManagedFinalizer},
		Labels:      map[string]string{kueue.ManagedLabel: "true", kueue.QueueNameLabel: queue, kueue.PodGroupNameLabel: "group"},
		Annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: "2", kueue.RoleHashAnnotation: role},
	}}
	p.Spec = podsFor("1").Spec
	return p
}

// startMember adds to a pod what its Workload's admission does.
func startMember(p *corev1.Pod, workload, queue string) {
	maps.Copy(p.Labels, map[string]string{kueue.PodSetLabel: p.Annotations[kueue.RoleHashAnnotation], kueue.LocalQueueLabel: queue, kueue.ClusterQueueLabel: queue})
	p.Annotations[kueue.WorkloadAnnotation] = workload
	p.Spec.NodeSelector = map[string]string{"pool": "a"}
}

// runsPod writes the status of a running pod.
func (w *world) runsPod(p *corev1.Pod) {
	w.Helper()
	p.Status.Phase, p.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.writeStatus(byKubelet, p)
}

// ray writes a running RayCluster of a head and a worker.
func (w *world) ray() {
	w.Helper()
	rc := &unstructured.Unstructured{Object: map[string]any{"spec": w.raySpec()}}
	rc.SetGroupVersionKind(rayCluster)
	rc.SetNamespace(team)
	rc.SetName("rays")
	rc.SetLabels(map[string]string{kueue.QueueNameLabel: "kinds"})
	w.try(unstructured.SetNestedField(rc.Object, true, "spec", "suspend"), w.Create(w.Context(), rc, client.FieldOwner(byUser)))
	wl := w.workloadOf(rc, "kinds", raySets())
	w.admit(wl, "kinds")
	w.startRay(rc.Object["spec"].(map[string]any), wl)
	w.try(unstructured.SetNestedField(rc.Object, false, "spec", "suspend"), w.Update(w.Context(), rc, client.FieldOwner(byKueue)))
	rc.Object["status"] = map[string]any{"state": "ready"}
	w.try(w.Status().Update(w.Context(), rc, client.FieldOwner("kuberay-operator")))
	w.ready(wl, metav1.ConditionTrue, "Started")
}

// raySpec is the spec of a RayCluster of a head and a worker.
func (w *world) raySpec() map[string]any {
	w.Helper()
	group := func() map[string]any {
		template := podsFor("1")
		return map[string]any{"rayStartParams": map[string]any{}, "template": w.tree(&template)}
	}
	workers := group()
	workers["groupName"], workers["replicas"] = "workers", int64(1)
	return map[string]any{"headGroupSpec": group(), "workerGroupSpecs": []any{workers}}
}

func raySets() []kueue.PodSet {
	return []kueue.PodSet{{Name: "head", Count: 1, Template: podsFor("1")}, {Name: "workers", Count: 1, Template: podsFor("1")}}
}

// startRay adds to the templates of a RayCluster what its admission does.
func (w *world) startRay(spec map[string]any, wl *kueue.Workload) {
	w.Helper()
	for _, set := range []string{"head", "workers"} {
		template := podsFor("1")
		inject(&template, set, wl)
		group := spec["headGroupSpec"]
		if set == "workers" {
			group = spec["workerGroupSpecs"].([]any)[0]
		}
		group.(map[string]any)["template"] = w.tree(&template)
	}
}

func (w *world) try(errs ...error) {
	w.Helper()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

// elastic writes a Job that runs with one pod, and whose second slice, with two, waits. spec: 30 §4.11.
func (w *world) elastic() {
	w.Helper()
	j := elasticJob("elastic")
	w.write(byUser, j)
	first := w.sliceOf(j)
	w.admit(first, "elastic")
	w.start(j, first)
	w.runs(j, 1, 1)
	w.ready(first, metav1.ConditionTrue, "Started")
	j.Spec.Parallelism = new(int32(2))
	w.write(byUser, j)
	w.runs(j, 2, 1)
	second := w.sliceOf(j)
	second.Annotations[kueue.WorkloadSliceNameAnnotation] = first.Name
	second.Annotations[kueue.WorkloadSliceReplacementForAnnotation] = team + "/" + first.Name
	w.write(byKueue, second)
	w.ready(second, metav1.ConditionFalse, "WaitForStart")
	w.refused(second, "ExceedsMaxQuota", "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor f, 2 requested, 1 is the most")
}

// elasticJob is a Job of one pod as its user creates it, after the webhook.
func elasticJob(queue string) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: team, Name: "elastic", Labels: map[string]string{kueue.QueueNameLabel: queue},
			Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"},
		},
		Spec: batchv1.JobSpec{Parallelism: new(int32(1)), Completions: new(int32(4)), Suspend: new(true), Template: podsFor("1")},
	}
	j.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}}
	return j
}

// sliceOf is the Workload of an elastic Job in its present size, the first of its slices.
func (w *world) sliceOf(j *batchv1.Job) *kueue.Workload {
	w.Helper()
	wl := w.workloadOf(j, j.Labels[kueue.QueueNameLabel], []kueue.PodSet{podSet(j)}, strconv.FormatInt(j.Generation, 10))
	wl.Annotations = map[string]string{kueue.ElasticJobAnnotation: "true", kueue.WorkloadSliceNameAnnotation: wl.Name}
	return wl
}

// kindsLiveOn takes the objects of other kinds further through their lives.
func (b *berth) kindsLiveOn() {
	b.Helper()
	for i := range 2 {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: fmt.Sprintf("ring-worker-%d", i)}}
		b.get(j)
		b.complete(j)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: fmt.Sprintf("member-%d", i)}}
		b.get(p)
		p.Status.Phase = corev1.PodSucceeded
		b.writeStatus(byKubelet, p)
	}
	b.uses("kinds", "2", "2")
	wait.Until(b.T, "the pods have no finalizers", func() error {
		var pods corev1.PodList
		if err := b.List(b.Context(), &pods, client.InNamespace(team)); err != nil {
			return err
		}
		for i := range pods.Items {
			if len(pods.Items[i].Finalizers) > 0 {
				return fmt.Errorf("%s has %v", pods.Items[i].Name, pods.Items[i].Finalizers)
			}
		}
		return nil
	})
	rc := &unstructured.Unstructured{}
	rc.SetGroupVersionKind(rayCluster)
	rc.SetNamespace(team)
	rc.SetName("rays")
	b.try(b.Delete(b.Context(), rc, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	b.uses("kinds", "0", "0")

	for i := range kubeflow {
		j := kubeflow[i].object()
		b.try(b.Get(b.Context(), client.ObjectKeyFromObject(j), j))
		j.Object["status"] = map[string]any{"conditions": []any{olderCondition("Running", "False"), olderCondition("Succeeded", "True")}}
		b.try(b.Status().Update(b.Context(), j, client.FieldOwner("training-operator")))
	}
	b.uses("kubeflow", "0", "0")

	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "elastic"}}
	b.get(cq)
	cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("2")
	b.write(byUser, cq)
	wait.Until(b.T, "the second slice takes the place of the first", func() error {
		var admitted, replaced int
		for _, wl := range b.workloads() {
			of := conditions(&wl)
			switch {
			case wl.Spec.QueueName != "elastic":
			case of["Finished"] == "True/WorkloadSliceReplaced":
				replaced++
			case of["Admitted"] == "True/Admitted" && *wl.Status.Admission.PodSetAssignments[0].Count == 2:
				admitted++
			}
		}
		if admitted != 1 || replaced != 1 {
			return fmt.Errorf("%d slices of two pods are admitted, %d replaced", admitted, replaced)
		}
		return nil
	})
	b.uses("elastic", "2", "2")
}
