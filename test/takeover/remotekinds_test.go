package takeover

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
)

var rayJob = schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayJob"}

// elsewhere is a job that a hub sends to a worker cluster, as one of the two clusters has it.
type elsewhere struct {
	object client.Object
	// workload makes the Workload of the created job.
	workload func() *kueue.Workload
	// waits writes the objects that exist before the job starts on the worker cluster; nil for none.
	waits func()
	// start changes the job as its start does.
	start func(*kueue.Workload)
	// runs writes the children and the status of the started job on the worker cluster.
	runs func(*kueue.Workload)
}

// kindsElsewhere are the jobs of other kinds that run on the worker cluster. Together they hold 8 cpus of the queue "sent".
var kindsElsewhere = []func(w *world, manager *string) *elsewhere{
	ringElsewhere, rayElsewhere, elasticElsewhere, trainingElsewhere("training"), trainingElsewhere("bare"),
}

func ringElsewhere(w *world, manager *string) *elsewhere {
	js := ring("sent")
	js.Spec.ManagedBy = manager
	return &elsewhere{
		object:   js,
		workload: func() *kueue.Workload { return w.workloadOf(js, "sent", setsOfRing(js)) },
		start:    func(wl *kueue.Workload) { startRing(js, wl) },
		runs:     func(*kueue.Workload) { w.runRing(js) },
	}
}

// rayElsewhere is a RayJob without a submitter pod, which has a RayCluster where it runs.
func rayElsewhere(w *world, manager *string) *elsewhere {
	spec := map[string]any{
		"entrypoint": "python train.py", "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true, "suspend": true, "rayClusterSpec": w.raySpec(),
	}
	if manager != nil {
		spec["managedBy"] = *manager
	}
	rj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	rj.SetGroupVersionKind(rayJob)
	rj.SetNamespace(team)
	rj.SetName("rays")
	rj.SetLabels(map[string]string{kueue.QueueNameLabel: "sent"})
	return &elsewhere{
		object:   rj,
		workload: func() *kueue.Workload { return w.workloadOf(rj, "sent", raySets()) },
		start: func(wl *kueue.Workload) {
			spec := rj.Object["spec"].(map[string]any)
			spec["suspend"] = false
			w.startRay(spec["rayClusterSpec"].(map[string]any), wl)
		},
		runs: func(*kueue.Workload) {
			rc := &unstructured.Unstructured{Object: map[string]any{"spec": rj.Object["spec"].(map[string]any)["rayClusterSpec"]}}
			rc.SetGroupVersionKind(rayCluster)
			rc.SetNamespace(team)
			rc.SetName("rays-x1")
			rc.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(rj, rayJob)})
			w.write("kuberay-operator", rc)
			rj.Object["status"] = map[string]any{
				"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterName": rc.GetName(), "rayClusterStatus": map[string]any{"state": "ready"},
			}
			w.writeStatus("kuberay-operator", rj)
		},
	}
}

func elasticElsewhere(w *world, manager *string) *elsewhere {
	j := elasticJob("sent")
	j.Spec.ManagedBy = manager
	return &elsewhere{
		object:   j,
		workload: func() *kueue.Workload { return w.sliceOf(j) },
		start: func(wl *kueue.Workload) {
			j.Spec.Suspend = new(false)
			inject(&j.Spec.Template, "main", wl)
		},
		runs: func(*kueue.Workload) { w.runs(j, 1, 1) },
	}
}

// trainingElsewhere is a TrainJob. The controller on the hub ignores it: it has neither a snapshot nor a JobSet there.
func trainingElsewhere(name string) func(*world, *string) *elsewhere {
	return func(w *world, manager *string) *elsewhere {
		t := trainables()[name]
		tj := t.object("sent")
		tj.Spec.ManagedBy = manager
		return &elsewhere{
			object:   tj,
			workload: func() *kueue.Workload { return w.workloadOf(tj, "sent", t.sets()) },
			waits:    func() { w.plans(t, tj) },
			start: func(wl *kueue.Workload) {
				tj.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{t.admission(wl)}
				tj.Spec.Suspend = new(false)
			},
			runs: func(wl *kueue.Workload) { w.reports(tj, w.resumes(t, tj, wl)) },
		}
	}
}

// kindsSent writes jobs of other kinds that run on the worker cluster.
func (w *world) kindsSent(worker *world) {
	w.Helper()
	w.runtimes()
	worker.runtimes()
	for _, build := range kindsElsewhere {
		w.sentKind(worker, build(w, new(kueue.MultiKueueControllerName)), build(worker, nil))
	}
	w.groupSent(worker)
	for i := range servers {
		w.serverSent(worker, &servers[i])
	}
}

// sentKind writes a job of the hub that runs on the worker cluster.
func (w *world) sentKind(worker *world, here, there *elsewhere) {
	w.Helper()
	w.write(byUser, here.object)
	wl := here.workload()
	w.dispatched(wl)
	copied := worker.copyOf(wl)
	worker.setAdmitted(copied, "sent")
	worker.applyStatus(byAdmission, copied)
	mark(there.object, copied)
	worker.write(byKueue, there.object)
	worker.adopts(copied, there.object)
	if there.waits != nil {
		there.waits()
	}
	there.start(copied)
	worker.write(byKueue, there.object)
	there.runs(copied)
	worker.ready(copied, metav1.ConditionTrue, "Started")

	w.ran(wl)
	here.start(wl)
	w.write(byKueue, here.object)
	w.mirrors(there.object, here.object)
	w.ready(wl, metav1.ConditionTrue, "Started")
}

// dispatched creates the Workload of a job that another cluster is to run.
func (w *world) dispatched(wl *kueue.Workload) {
	w.Helper()
	w.write(byKueue, wl)
	w.ready(wl, metav1.ConditionFalse, "WaitForStart")
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: dispatch, State: kueue.CheckStatePending, LastTransitionTime: w.began}}
	w.writeStatus(byKueue, wl)
}

// ran writes the status of a Workload that the worker cluster runs.
func (w *world) ran(wl *kueue.Workload) {
	w.Helper()
	w.setAdmitted(wl, string(wl.Spec.QueueName))
	w.admittedThere(wl)
}

// mark makes an object the copy of a hub's, which runs for a copied Workload.
func mark(o client.Object, copied *kueue.Workload) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[kueue.MultiKueueOriginLabel], annotations[kueue.PrebuiltWorkloadLabel] = "multikueue", copied.Name
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}

// adopts makes the copy of a job the owner of its copied Workload.
func (w *world) adopts(wl *kueue.Workload, o client.Object) {
	w.Helper()
	gvk, err := apiutil.GVKForObject(o, w.Scheme())
	w.try(err)
	wl.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, gvk)}
	wl.Labels[kueue.JobUIDLabel], wl.Finalizers = string(o.GetUID()), []string{kueue.ResourceInUseFinalizer}
	was := wl.Status
	w.write(byKueue, wl)
	wl.Status = was
}

// mirrors writes the status of a remote object to the local one.
func (w *world) mirrors(remote, local client.Object) {
	w.Helper()
	from, to := w.wire(remote), w.wire(local)
	to.Object["status"] = from.Object["status"]
	w.try(w.Status().Update(w.Context(), to, client.FieldOwner(byKueue)))
	w.unwire(to, local)
}

// gated holds a pod back as the webhook does.
func gated(p *corev1.Pod) *corev1.Pod {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.AdmissionSchedulingGate}}
	return p
}

// groupSent writes two pods of a group, which stay gated on the hub and run on the worker cluster. spec: 40 §4.6.
func (w *world) groupSent(worker *world) {
	w.Helper()
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: team, Name: "group", Finalizers: []string{kueue.ResourceInUseFinalizer}, Labels: map[string]string{},
			Annotations: map[string]string{kueue.IsGroupWorkloadAnnotation: "true"},
		},
		Spec: kueue.WorkloadSpec{QueueName: "sent", Priority: new(int32(0)), Active: new(true)},
	}
	local := []*corev1.Pod{gated(member(0, "sent")), gated(member(1, "sent"))}
	for _, p := range local {
		w.write(byUser, p)
		ownedByPod(wl, p)
	}
	wl.Spec.PodSets = []kueue.PodSet{{
		Name: role, Count: 2, Template: corev1.PodTemplateSpec{Spec: *local[0].Spec.DeepCopy()},
		TopologyRequest: &kueue.PodSetTopologyRequest{PodIndexLabel: new(kueue.PodGroupPodIndexLabel)},
	}}
	w.dispatched(wl)
	copied := worker.copyOf(wl)
	worker.setAdmitted(copied, "sent")
	worker.applyStatus(byAdmission, copied)
	w.ran(wl)
	for i, p := range local {
		remote := member(i, "sent")
		mark(remote, copied)
		startCopiedPod(remote, copied)
		worker.write(byKueue, remote)
		worker.runsPod(remote)
		ownedByPod(copied, remote)
		w.mirrors(remote, p)
	}
	worker.adoptsInGroups(copied)
	w.ready(wl, metav1.ConditionTrue, "Started")
}

func ownedByPod(wl *kueue.Workload, p *corev1.Pod) {
	wl.OwnerReferences = append(wl.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID})
}

// startCopiedPod adds to the copy of a pod what the admission of its Workload does.
func startCopiedPod(p *corev1.Pod, copied *kueue.Workload) {
	startMember(p, copied.Name, "sent")
	p.Labels[kueue.MultiKueueWorkerWorkloadPodLabel] = "true"
}

// adoptsInGroups writes the owners of a copied Workload without a controller.
func (w *world) adoptsInGroups(copied *kueue.Workload) {
	w.Helper()
	copied.Finalizers = []string{kueue.ResourceInUseFinalizer}
	was := copied.Status
	w.write(byKueue, copied)
	copied.Status = was
	w.ready(copied, metav1.ConditionTrue, "Started")
}
