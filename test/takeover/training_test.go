package takeover

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// Field managers of the controller of TrainJobs: the one with which it applies objects (spec: 50 §4.2), and that of statuses, for which it
// gives no name.
const (
	byTrainer      = "trainer"
	byTrainerAlone = "trainer-controller-manager"
)

// trainable is one TrainJob as the other system runs it: its plan of the JobSet is part of the world, because it is not always Berth's.
type trainable struct {
	name, runtime string
	trainer       *trainerv1alpha1.Trainer
	// jobs are the replicated jobs of the JobSet before the admission.
	jobs []jobsetv1alpha2.ReplicatedJob
	// isOlder is true of a TrainJob of a release that made no snapshots of runtimes.
	isOlder bool
}

// replicated is a replicated job of n pods of one cpu in the container node.
func replicated(name, ancestor string, n int32, change func(*corev1.Container)) jobsetv1alpha2.ReplicatedJob {
	template := podsFor("1")
	template.Spec.Containers[0].Name = trainerv1alpha1.ContainerNode
	if change != nil {
		change(&template.Spec.Containers[0])
	}
	rj := jobsetv1alpha2.ReplicatedJob{
		Name: name, GroupName: "default", Replicas: new(int32(1)),
		Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Parallelism: &n, Completions: &n, Template: template}},
	}
	if ancestor != "" {
		rj.Template.Labels = map[string]string{trainerv1alpha1.AncestorStepLabel: ancestor}
	}
	return rj
}

// torch adds what Torch gives to the pods of a TrainJob that says something about its trainer: of one that does not, it adds nothing.
// spec: 50 §4.5.
func torch(job string, nodes int32) func(*corev1.Container) {
	return func(c *corev1.Container) {
		c.Ports = []corev1.ContainerPort{{ContainerPort: 29500}}
		c.Env = []corev1.EnvVar{
			{Name: "A", Value: "1"},
			{Name: "PET_NNODES", Value: fmt.Sprint(nodes)},
			{Name: "PET_NPROC_PER_NODE", Value: "1"},
			{Name: "PET_NODE_RANK", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
				FieldPath: "metadata.annotations['" + indexLabel + "']",
			}}},
			{Name: "PET_MASTER_ADDR", Value: job + "-node-0-0." + job},
			{Name: "PET_MASTER_PORT", Value: "29500"},
		}
	}
}

// trainables are the TrainJobs of the world. Berth would plan two of them in another way (spec: 50 §4.5, §4.6.3): "bare", of which it would
// make distributed training, and "mpi", whose launcher is its only node.
func trainables() map[string]*trainable {
	out := map[string]*trainable{}
	for _, name := range []string{"training", "later", "trained", "untrained", "halting", "halted"} {
		nodes := int32(1)
		if name == "training" || name == "later" {
			nodes = 2
		}
		out[name] = &trainable{
			name: name, runtime: "torch", trainer: &trainerv1alpha1.Trainer{NumNodes: &nodes, Env: []corev1.EnvVar{{Name: "A", Value: "1"}}},
			jobs: []jobsetv1alpha2.ReplicatedJob{replicated("node", "trainer", nodes, torch(name, nodes))},
		}
	}
	out["bare"] = &trainable{name: "bare", runtime: "torch", isOlder: true, jobs: []jobsetv1alpha2.ReplicatedJob{replicated("node", "trainer", 1, nil)}}
	out["mpi"] = mpi()
	return out
}

// mpi is a TrainJob of one node with a launcher that is a node, too: upstream gives it a worker, and Berth does not.
func mpi() *trainable {
	t := &trainable{name: "mpi", runtime: "mpi", trainer: &trainerv1alpha1.Trainer{NumNodes: new(int32(1)), Command: []string{"mpirun", "go"}}}
	t.jobs = []jobsetv1alpha2.ReplicatedJob{
		replicated("node", "", 1, nil),
		replicated("launcher", "trainer", 1, func(c *corev1.Container) {
			c.Command = []string{"mpirun", "go"}
			c.Env = []corev1.EnvVar{
				{Name: "OMPI_MCA_orte_default_hostfile", Value: "/etc/mpi/hostfile"},
				{Name: "OMPI_MCA_orte_keep_fqdn_hostnames", Value: "true"},
				{Name: "OMPI_MCA_orte_set_default_slots", Value: "1"},
				{Name: "OMPI_MCA_plm_rsh_args", Value: "-o ConnectionAttempts=10"},
			}
		}),
	}
	ssh := corev1.Volume{Name: "mpi-ssh-auth", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: "mpi-mpi-ssh-auth", DefaultMode: new(int32(0o400)), Items: []corev1.KeyToPath{
			{Key: "ssh-privatekey", Path: "id_rsa", Mode: new(int32(0o640))},
			{Key: "ssh-publickey", Path: "id_rsa.pub", Mode: new(int32(0o644))},
			{Key: "ssh-publickey", Path: "authorized_keys", Mode: new(int32(0o644))},
		},
	}}}
	for i := range t.jobs {
		spec := &t.jobs[i].Template.Spec.Template.Spec
		spec.Volumes = []corev1.Volume{ssh}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "mpi-ssh-auth", MountPath: "/root/.ssh"}}
	}
	launcher := &t.jobs[1].Template.Spec.Template.Spec
	launcher.Volumes = append(launcher.Volumes, corev1.Volume{Name: "mpi-hostfile", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "mpi-mpi-hostfile"}, Items: []corev1.KeyToPath{{Key: "hostfile", Path: "hostfile", Mode: new(int32(0o444))}},
	}}})
	launcher.Containers[0].VolumeMounts = append(launcher.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "mpi-hostfile", MountPath: "/etc/mpi"})
	return t
}

// runtimes writes the runtimes of the TrainJobs, with the finalizer of older releases.
func (w *world) runtimes() {
	w.Helper()
	runtimeOf := func(name string, policy trainerv1alpha1.MLPolicySource, jobs ...jobsetv1alpha2.ReplicatedJob) {
		r := &trainerv1alpha1.ClusterTrainingRuntime{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Finalizers: []string{trainerv1alpha1.ResourceInUseFinalizer}, Labels: map[string]string{"trainer.kubeflow.org/framework": name},
			},
			Spec: trainerv1alpha1.TrainingRuntimeSpec{MLPolicy: &trainerv1alpha1.MLPolicy{NumNodes: new(int32(1)), MLPolicySource: policy}},
		}
		for i := range jobs {
			jobs[i].Template.Spec.Parallelism, jobs[i].Template.Spec.Completions = nil, nil
		}
		r.Spec.Template.Spec.ReplicatedJobs = jobs
		w.write(byUser, r)
	}
	runtimeOf("torch", trainerv1alpha1.MLPolicySource{Torch: &trainerv1alpha1.TorchPolicy{}}, replicated("node", "trainer", 1, nil))
	runtimeOf("mpi", trainerv1alpha1.MLPolicySource{MPI: &trainerv1alpha1.MPIPolicy{RunLauncherAsNode: new(true)}},
		replicated("node", "", 1, nil), replicated("launcher", "trainer", 1, nil))
}

// trainJobs writes a TrainJob in every state of its life. In the queue "training", of 6 cpus, training, bare, mpi and halting hold 6.
func (w *world) trainJobs() {
	w.Helper()
	w.runtimes()
	all := trainables()
	for _, name := range []string{"training", "bare", "mpi"} {
		t := all[name]
		tj, wl := w.trainJob(t)
		w.admit(wl, "training")
		js := w.train(t, tj, wl)
		w.ready(wl, metav1.ConditionTrue, "Started")
		w.reports(tj, js)
	}
	w.laterTrainJob(all["later"])
	w.endedTrainJob(all["trained"], jobsetv1alpha2.ConditionCompleted, trainerv1alpha1.ConditionComplete, "AllJobsCompleted")
	w.endedTrainJob(all["untrained"], jobsetv1alpha2.ConditionFailed, trainerv1alpha1.ConditionFailed, "FailedJobs")
	w.haltedTrainJobs(all["halting"], all["halted"])
}

// trainJob creates a TrainJob that waits, with its snapshot and its companions, its suspended JobSet and Jobs, and returns the Workload,
// which is not written yet.
func (w *world) trainJob(t *trainable) (*trainerv1alpha1.TrainJob, *kueue.Workload) {
	w.Helper()
	tj := t.object("training")
	w.write(byUser, tj)
	w.plans(t, tj)
	return tj, w.workloadOf(tj, "training", t.sets())
}

// object is the TrainJob as its user creates it, after the webhook.
func (t *trainable) object(queue string) *trainerv1alpha1.TrainJob {
	return &trainerv1alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: t.name, Labels: map[string]string{kueue.QueueNameLabel: queue}},
		Spec: trainerv1alpha1.TrainJobSpec{
			RuntimeRef: trainerv1alpha1.RuntimeRef{Name: t.runtime}, Trainer: t.trainer, Suspend: new(true), RuntimePatches: []trainerv1alpha1.RuntimePatch{entry()},
		},
	}
}

// plans writes the objects of a TrainJob that waits: its snapshot, companions, suspended JobSet and Jobs, and its status.
func (w *world) plans(t *trainable, tj *trainerv1alpha1.TrainJob) {
	w.Helper()
	if !t.isOlder {
		w.snapshot(tj)
	}
	if t.runtime == "mpi" {
		hosts := "mpi-node-0-0.mpi slots=1\nmpi-launcher-0-0.mpi slots=1\n"
		w.applyOwned(tj, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mpi-mpi-hostfile"}, Data: map[string]string{"hostfile": hosts}})
		w.applyOwned(tj, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "mpi-mpi-ssh-auth"}, Type: corev1.SecretTypeSSHAuth, Immutable: new(true),
			Data: map[string][]byte{"ssh-privatekey": []byte("private"), "ssh-publickey": []byte("public")},
		})
	}
	js := w.applyJobSet(t, tj, nil)
	w.defaulted(js)
	w.children(js)
	js.Status.Conditions = []metav1.Condition{{
		Type: string(jobsetv1alpha2.ConditionSuspended), Status: metav1.ConditionTrue, Reason: "SuspendedJobs", Message: "jobset is suspended", LastTransitionTime: w.began,
	}}
	for i := range t.jobs {
		js.Status.ReplicatedJobsStatus = append(js.Status.ReplicatedJobsStatus, jobsetv1alpha2.ReplicatedJobStatus{Name: t.jobs[i].Name, Suspended: 1})
	}
	w.writeStatus(byJobSets, js)
	w.suspendedTrainJob(tj, js)
}

// sets are the pod sets of the TrainJob, as the other system plans them.
func (t *trainable) sets() []kueue.PodSet {
	sets := make([]kueue.PodSet, 0, len(t.jobs))
	for i := range t.jobs {
		sets = append(sets, kueue.PodSet{
			Name: kueue.PodSetReference(t.jobs[i].Name), Count: *t.jobs[i].Template.Spec.Parallelism, Template: *t.jobs[i].Template.Spec.Template.DeepCopy(),
			TopologyRequest: &kueue.PodSetTopologyRequest{
				PodIndexLabel: new(indexLabel), SubGroupIndexLabel: new("jobset.sigs.k8s.io/job-index"), SubGroupCount: new(int32(1)),
			},
		})
	}
	return sets
}

// entry is the patch of the queueing system in a TrainJob that is not started. The other webhook has stamped its time.
func entry() trainerv1alpha1.RuntimePatch {
	return trainerv1alpha1.RuntimePatch{
		Manager: trainerv1alpha1.QueuePatchManager, Time: new(metav1.Now().Rfc3339Copy()),
		TrainingRuntimeSpec: &trainerv1alpha1.TrainingRuntimeSpecPatch{Template: &trainerv1alpha1.JobSetTemplatePatch{Spec: &trainerv1alpha1.JobSetSpecPatch{}}},
	}
}

// snapshot writes the runtime for the life of the TrainJob. spec: 50 §4.3.
func (w *world) snapshot(tj *trainerv1alpha1.TrainJob) {
	w.Helper()
	r := &trainerv1alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: tj.Spec.RuntimeRef.Name}}
	w.get(r)
	r.APIVersion, r.Kind = trainerv1alpha1.GroupVersion.String(), trainerv1alpha1.KindClusterTrainingRuntime
	text, err := yaml.Marshal(r)
	w.try(err)
	w.applyOwned(tj, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: tj.Name + trainerv1alpha1.SuffixRuntimeSnapshot}, Data: map[string]string{"runtime": string(text)},
	})
}

// applyOwned applies an object that a TrainJob controls.
func (w *world) applyOwned(tj *trainerv1alpha1.TrainJob, o client.Object) {
	w.Helper()
	o.SetNamespace(tj.Namespace)
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(tj, trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob))})
	u := w.wire(o)
	unstructured.RemoveNestedField(u.Object, "status")
	jobs, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "replicatedJobs")
	if jobs, ok := jobs.([]any); ok { // of a JobSet: it does not apply empty fields
		for i := range jobs {
			if meta, ok, _ := unstructured.NestedMap(jobs[i].(map[string]any), "template", "spec", "template", "metadata"); ok && len(meta) == 0 {
				unstructured.RemoveNestedField(jobs[i].(map[string]any), "template", "spec", "template", "metadata")
			}
		}
	}
	w.try(w.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(byTrainer), client.ForceOwnership))
	w.unwire(u, o)
}

// applyJobSet applies the JobSet of a TrainJob, with the values of the admission if there is one.
func (w *world) applyJobSet(t *trainable, tj *trainerv1alpha1.TrainJob, wl *kueue.Workload) *jobsetv1alpha2.JobSet {
	w.Helper()
	js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Name: t.name}, Spec: jobsetv1alpha2.JobSetSpec{Suspend: tj.Spec.Suspend}}
	for i := range t.jobs {
		rj := t.jobs[i].DeepCopy()
		if wl != nil {
			inject(&rj.Template.Spec.Template, rj.Name, wl)
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, *rj)
	}
	w.applyOwned(tj, js)
	return js
}

// defaulted sets the defaults of the webhook of JobSets.
func (w *world) defaulted(js *jobsetv1alpha2.JobSet) {
	w.Helper()
	ops := []string{
		`{"op": "add", "path": "/spec/network", "value": {"enableDNSHostnames": true, "publishNotReadyAddresses": true}}`,
		`{"op": "add", "path": "/spec/successPolicy", "value": {"operator": "All"}}`,
		`{"op": "add", "path": "/spec/startupPolicy", "value": {"startupPolicyOrder": "AnyOrder"}}`,
	}
	for i := range js.Spec.ReplicatedJobs {
		ops = append(ops, fmt.Sprintf(`{"op": "add", "path": "/spec/replicatedJobs/%d/template/spec/completionMode", "value": "Indexed"}`, i))
	}
	patch := client.RawPatch(types.JSONPatchType, []byte("["+strings.Join(ops, ",")+"]"))
	w.try(w.Patch(w.Context(), js, patch, client.FieldOwner(byTrainer)))
}

// admission is the patch of the queueing system in an admitted TrainJob.
func (t *trainable) admission(wl *kueue.Workload) trainerv1alpha1.RuntimePatch {
	patch := entry()
	for i := range t.jobs {
		var template corev1.PodTemplateSpec
		inject(&template, t.jobs[i].Name, wl)
		patch.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs = append(patch.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs, trainerv1alpha1.ReplicatedJobPatch{
			Name: t.jobs[i].Name, Template: &trainerv1alpha1.JobTemplatePatch{Spec: &trainerv1alpha1.JobSpecPatch{Template: &trainerv1alpha1.PodTemplatePatch{
				Metadata: &metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations},
				Spec:     &trainerv1alpha1.PodSpecPatch{NodeSelector: template.Spec.NodeSelector},
			}}},
		})
	}
	return patch
}

// train starts an admitted TrainJob, whose pods then run. The patch is written before the suspension ends (spec: 50 §4.10).
func (w *world) train(t *trainable, tj *trainerv1alpha1.TrainJob, wl *kueue.Workload) *jobsetv1alpha2.JobSet {
	w.Helper()
	tj.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{t.admission(wl)}
	w.write(byKueue, tj)
	tj.Spec.Suspend = new(false)
	w.write(byKueue, tj)
	return w.resumes(t, tj, wl)
}

// resumes writes the JobSet and the Jobs of a started TrainJob.
func (w *world) resumes(t *trainable, tj *trainerv1alpha1.TrainJob, wl *kueue.Workload) *jobsetv1alpha2.JobSet {
	w.Helper()
	js := w.applyJobSet(t, tj, wl)
	js.Status.Conditions[0].Status, js.Status.Conditions[0].Reason = metav1.ConditionFalse, "ResumeJobs"
	js.Status.Conditions[0].Message = "jobset is resumed"
	js.Status.ReplicatedJobsStatus = nil
	for i := range t.jobs {
		rj := &js.Spec.ReplicatedJobs[i]
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: fmt.Sprintf("%s-%s-0", js.Name, rj.Name)}}
		w.get(j)
		j.Spec.Suspend = new(false)
		inject(&j.Spec.Template, rj.Name, wl)
		w.write(byJobSets, j)
		j.Status.Conditions = nil
		w.runs(j, *j.Spec.Parallelism, *j.Spec.Parallelism)
		js.Status.ReplicatedJobsStatus = append(js.Status.ReplicatedJobsStatus, jobsetv1alpha2.ReplicatedJobStatus{Name: rj.Name, Ready: 1, Active: 1})
	}
	w.writeStatus(byJobSets, js)
	return js
}

// reports writes the status of a TrainJob that was resumed, from its JobSet.
func (w *world) reports(tj *trainerv1alpha1.TrainJob, js *jobsetv1alpha2.JobSet, more ...metav1.Condition) {
	w.Helper()
	tj.Status.Conditions = append([]metav1.Condition{{
		Type: "Suspended", Status: metav1.ConditionFalse, Reason: "Resumed", Message: "TrainJob is resumed", LastTransitionTime: w.began,
	}}, more...)
	tj.Status.JobsStatus = counted(js)
	w.writeStatus(byTrainerAlone, tj)
}

// suspendedTrainJob writes the status of a suspended TrainJob, from its JobSet.
func (w *world) suspendedTrainJob(tj *trainerv1alpha1.TrainJob, js *jobsetv1alpha2.JobSet) {
	w.Helper()
	tj.Status.Conditions = []metav1.Condition{{
		Type: "Suspended", Status: metav1.ConditionTrue, Reason: "Suspended", Message: "TrainJob is suspended", LastTransitionTime: w.began,
	}}
	tj.Status.JobsStatus = counted(js)
	w.writeStatus(byTrainerAlone, tj)
}

func counted(js *jobsetv1alpha2.JobSet) (out []trainerv1alpha1.JobStatus) {
	for _, s := range js.Status.ReplicatedJobsStatus {
		out = append(out, trainerv1alpha1.JobStatus{Name: s.Name, Ready: s.Ready, Succeeded: s.Succeeded, Failed: s.Failed, Active: s.Active, Suspended: s.Suspended})
	}
	return out
}

// laterTrainJob writes a TrainJob that does not fit.
func (w *world) laterTrainJob(t *trainable) {
	w.Helper()
	_, wl := w.trainJob(t)
	w.write(byKueue, wl)
	w.ready(wl, metav1.ConditionFalse, "WaitForStart")
	w.refused(wl, "WaitingForQuota", "couldn't assign flavors to pod set node: insufficient unused quota for cpu in flavor f, 2 more needed")
}

// endedTrainJob writes a TrainJob that has ended, and its finished Workload.
func (w *world) endedTrainJob(t *trainable, of jobsetv1alpha2.ConditionType, as trainerv1alpha1.ConditionType, reason string) {
	w.Helper()
	tj, wl := w.trainJob(t)
	w.admit(wl, "training")
	js := w.train(t, tj, wl)
	w.ready(wl, metav1.ConditionTrue, "Started")
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: t.name + "-node-0"}}
	w.get(j)
	counts := &js.Status.ReplicatedJobsStatus[0]
	counts.Ready, counts.Active = 0, 0
	if of == jobsetv1alpha2.ConditionCompleted {
		w.complete(j)
		counts.Succeeded, js.Status.TerminalState = 1, jobsetv1alpha2.TerminalStateCompleted
	} else {
		w.fail(j)
		counts.Failed, js.Status.TerminalState = 1, jobsetv1alpha2.TerminalStateFailed
	}
	end := metav1.Condition{Type: string(of), Status: metav1.ConditionTrue, Reason: reason, Message: "of the jobs", LastTransitionTime: w.began}
	js.Status.Conditions = append(js.Status.Conditions, end)
	w.writeStatus(byJobSets, js)
	end.Type = string(as)
	w.reports(tj, js, end)
	result := "Succeeded"
	if as == trainerv1alpha1.ConditionFailed {
		result = "Failed"
	}
	wl.Status.Conditions = append(wl.Status.Conditions, w.condition(wl, kueue.WorkloadFinished, metav1.ConditionTrue, result, "of the jobs"))
	w.applyStatus(byAdmission, wl)
	wl.Finalizers = nil
	w.write(byKueue, wl)
}

// fail writes the status of a Job whose pods have failed.
func (w *world) fail(j *batchv1.Job) {
	w.Helper()
	j.Status.Active, j.Status.Ready, j.Status.Failed = 0, new(int32(0)), 1
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", LastTransitionTime: w.began, LastProbeTime: w.began,
		})
	}
	w.writeStatus(byKubernetes, j)
}

// haltedTrainJobs writes two evicted TrainJobs. Of the first one only the suspension was written: its JobSet runs, and its quota is charged.
// The second one is stopped, and its Workload, whose pods were not ready in time, waits for the end of a backoff.
func (w *world) haltedTrainJobs(halting, halted *trainable) {
	w.Helper()
	tj, wl := w.trainJob(halting)
	w.admit(wl, "training")
	js := w.train(halting, tj, wl)
	w.ready(wl, metav1.ConditionTrue, "Started")
	w.reports(tj, js)
	preempted := w.condition(wl, kueue.WorkloadPreempted, metav1.ConditionTrue, "InClusterQueue", "preempted")
	preempted.ObservedGeneration = 0
	wl.Status.Conditions = append(wl.Status.Conditions, w.condition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue, "Preempted", "preempted"), preempted)
	wl.Status.SchedulingStats = evicted("Preempted", "")
	w.applyStatus(byAdmission, wl)
	tj.Spec.Suspend = new(true)
	w.write(byKueue, tj)

	_, wl = w.trainJob(halted)
	w.write(byKueue, wl)
	w.ready(wl, metav1.ConditionFalse, "WaitForStart")
	w.backsOff(wl)
}

// readTrainJob returns a TrainJob, its JobSet and its Workload.
func (w *world) readTrainJob(name string) (*trainerv1alpha1.TrainJob, *jobsetv1alpha2.JobSet, *kueue.Workload) {
	w.Helper()
	tj := &trainerv1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
	w.get(tj)
	js := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
	w.get(js)
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: nameOf(trainerv1alpha1.GroupVersion.WithKind(trainerv1alpha1.KindTrainJob), tj)}}
	w.get(wl)
	return tj, js, wl
}

// trainingLivesOn takes the TrainJobs further through their lives.
func (b *berth) trainingLivesOn() {
	b.Helper()
	// The stop that the other system began is completed, and the quota charged again: it was free.
	wait.Until(b.T, "the Jobs of halting are suspended", func() error {
		if j := b.nodeOf("halting"); !*j.Spec.Suspend {
			return errors.New("they run")
		}
		return nil
	})
	b.endTrainingPods("halting")
	b.trainJobUntil("halting", map[string]string{"QuotaReserved": "True/QuotaReserved", "Evicted": "False/QuotaReserved"})
	b.trains("halting", 1)

	for _, name := range []string{"training", "bare"} {
		b.complete(b.nodeOf(name))
		b.trainJobUntil(name, map[string]string{"Finished": "True/Succeeded"})
	}
	b.trainJobUntil("later", admitted)
	b.trains("later", 2)
	b.uses("training", "5", "5")
	tj, _, _ := b.readTrainJob("training")
	if !slices.ContainsFunc(tj.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Complete" && c.Status == metav1.ConditionTrue }) {
		b.Errorf("training: conditions %+v", tj.Status.Conditions)
	}
	for _, job := range []string{"mpi-node-0", "mpi-launcher-0"} {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: job}}
		b.get(j)
		b.complete(j)
	}
	b.trainJobUntil("mpi", map[string]string{"Finished": "True/Succeeded"})
	b.uses("training", "3", "3")
}

// nodeOf is the Job node of a TrainJob.
func (w *world) nodeOf(name string) *batchv1.Job {
	w.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name + "-node-0"}}
	w.get(j)
	return j
}

// endTrainingPods ends the pods of a suspended TrainJob.
func (b *berth) endTrainingPods(name string) {
	b.Helper()
	wait.Until(b.T, "the pods of "+name+" end", func() error {
		j := b.nodeOf(name)
		j.Status.Active, j.Status.Ready, j.Status.StartTime = 0, new(int32(0)), nil
		j.Status.Conditions = []batchv1.JobCondition{{
			Type: batchv1.JobSuspended, Status: corev1.ConditionTrue, Reason: "JobSuspended", LastTransitionTime: b.began, LastProbeTime: b.began,
		}}
		return b.Status().Update(b.Context(), j, client.FieldOwner(byKubernetes))
	})
}

// trains waits until the Job of a TrainJob is started on the nodes of its flavor, and runs its pods.
func (b *berth) trains(name string, pods int32) {
	b.Helper()
	wait.Until(b.T, name+" starts", func() error {
		if j := b.nodeOf(name); *j.Spec.Suspend || j.Spec.Template.Spec.NodeSelector["pool"] != "a" {
			return fmt.Errorf("suspended %t, node selector %v", *j.Spec.Suspend, j.Spec.Template.Spec.NodeSelector)
		}
		return nil
	})
	j := b.nodeOf(name)
	j.Status.Conditions = nil
	b.runs(j, pods, pods)
}

// trainJobUntil waits until the Workload of a TrainJob has conditions.
func (b *berth) trainJobUntil(name string, want map[string]string) {
	b.Helper()
	wait.Until(b.T, fmt.Sprintf("%s has %v", name, want), func() error {
		_, _, wl := b.readTrainJob(name)
		have := conditions(wl)
		for kind, of := range want {
			if have[kind] != of {
				return fmt.Errorf("conditions %v", have)
			}
		}
		return nil
	})
}

// giveTrainingBack lets the other system write TrainJobs: it finds the entry that it looks for, applies the JobSet as it is, and stops a
// TrainJob that Berth started.
func (b *berth) giveTrainingBack() {
	b.Helper()
	tj, js, wl := b.readTrainJob("later")
	for i := range tj.ManagedFields {
		if m := &tj.ManagedFields[i]; m.Subresource == "status" && !strings.HasPrefix(m.Manager, "trainer") {
			b.Errorf("the status of later has fields of %s", m.Manager)
		}
	}
	entries := tj.Spec.RuntimePatches
	if len(entries) != 1 || entries[0].Manager != trainerv1alpha1.QueuePatchManager || len(entries[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs) != 1 {
		b.Fatalf("later: runtimePatches %+v", entries)
	}
	t := trainables()["later"]
	before := js.Spec.DeepCopy()
	js = b.applyJobSet(t, tj, wl)
	if !equality.Semantic.DeepEqual(before, &js.Spec) {
		b.Errorf("applying the JobSet of later changes it from %+v to %+v", before, js.Spec)
	}
	tj.Spec.Suspend = new(true)
	b.write(byKueue, tj)
	b.applyJobSet(t, tj, wl)
	tj.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs = nil
	b.write(byKueue, tj)
	js = b.applyJobSet(t, tj, nil)
	if selector := js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector; !*js.Spec.Suspend || len(selector) > 0 {
		b.Errorf("later: the stopped JobSet has the node selector %v, suspend is %t", selector, *js.Spec.Suspend)
	}
}
