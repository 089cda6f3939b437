package takeover

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/admission/conversion"
	"github.com/berth-project/berth/internal/crd"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
)

// Field managers of the other system. A create or an update without a name has the first part of the user agent, which is `kueue`.
// spec: 10 §4.9, 30 §5.3, 70 §4.1.
const (
	byUser       = "kubectl-create"
	byKueue      = "kueue"
	byAdmission  = "kueue-admission"
	byKubernetes = "kube-controller-manager"
)

const team = "team"

// world is a cluster as the other system has left it.
type world struct {
	*testing.T
	client.Client
	admin *rest.Config
	// kubeconfig is the path of a file with the same rights.
	kubeconfig string
	// stored is the version of the queueing API in which its objects are stored, and written.
	stored schema.GroupVersion
	began  metav1.Time
}

// newWorld starts an API server with the CRDs of the other system, in a release that stores its objects in the given version.
func newWorld(t *testing.T, version string) *world {
	t.Helper()
	embeddedtest.Quiet()
	kubeconfig := embeddedtest.Start(t)
	w := &world{T: t, admin: embeddedtest.ConfigOf(t, kubeconfig), kubeconfig: kubeconfig, stored: schema.GroupVersion{Group: kueue.GroupVersion.Group, Version: version}}
	w.began = metav1.NewTime(time.Now().Add(-10 * time.Minute).Truncate(time.Second))
	w.connect()
	for name, of := range crd.Definitions() {
		theirs := of.DeepCopy()
		theirs.Spec.Conversion = nil
		if theirs.Spec.Group == kueue.GroupVersion.Group {
			theirs.Spec.Versions = versionsBefore(theirs.Spec.Versions, version)
		}
		if err := w.Create(w.Context(), theirs, client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, name+" is served", func() error {
			if err := w.Get(w.Context(), client.ObjectKey{Name: name}, theirs); err != nil {
				return err
			}
			for _, c := range theirs.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", theirs.Status.Conditions)
		})
	}
	for plural, gvk := range map[string]schema.GroupVersionKind{"rayclusters": rayCluster, "rayjobs": rayJob, "leaderworkersets": lws} {
		w.try(w.Create(w.Context(), embeddedtest.LooseCRD(gvk, plural)))
	}
	for i := range kubeflow {
		gvk := kubeflow[i].gvk()
		w.try(w.Create(w.Context(), embeddedtest.LooseCRD(gvk, strings.ToLower(gvk.Kind)+"s")))
	}
	w.connect() // its mapper knows the CRDs
	w.write(byUser, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}})
	return w
}

func (w *world) connect() {
	w.Helper()
	var err error
	if w.Client, err = client.New(w.admin, client.Options{Scheme: install.Scheme()}); err != nil {
		w.Fatal(err)
	}
}

// versionsBefore leaves only the version that an older release stores.
func versionsBefore(all []apiextensionsv1.CustomResourceDefinitionVersion, stored string) (out []apiextensionsv1.CustomResourceDefinitionVersion) {
	for _, v := range all {
		if v.Name == stored || len(all) == 1 {
			v.Served, v.Storage = true, true
			out = append(out, v)
		}
	}
	return out
}

// wire returns the object as a client of the other system sends it: queueing objects in the version of its release.
func (w *world) wire(o client.Object) *unstructured.Unstructured {
	w.Helper()
	gvk, err := apiutil.GVKForObject(o, w.Scheme())
	if err != nil {
		w.Fatal(err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		w.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	u.SetManagedFields(nil)
	if gvk.GroupVersion() == kueue.GroupVersion && w.stored == kueuev1beta1.GroupVersion {
		if err := conversion.Convert(u.Object, w.stored); err != nil {
			w.Fatal(err)
		}
	}
	return u
}

// unwire sets the object to the API server's answer.
func (w *world) unwire(u *unstructured.Unstructured, o client.Object) {
	w.Helper()
	if u.GroupVersionKind().GroupVersion() == kueuev1beta1.GroupVersion {
		if err := conversion.Convert(u.Object, kueue.GroupVersion); err != nil {
			w.Fatal(err)
		}
	}
	if to, ok := o.(*unstructured.Unstructured); ok {
		to.Object = u.Object
		return
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		w.Fatal(err)
	}
}

// write creates an object, or updates one that exists, as a field manager.
func (w *world) write(manager string, o client.Object) {
	w.Helper()
	u, err := w.wire(o), error(nil)
	if u.GetUID() == "" {
		err = w.Create(w.Context(), u, client.FieldOwner(manager))
	} else {
		err = w.Update(w.Context(), u, client.FieldOwner(manager))
	}
	if err != nil {
		w.Fatalf("%s writes %s %s: %v", manager, u.GetKind(), u.GetName(), err)
	}
	w.unwire(u, o)
}

// writeStatus updates the status as a field manager.
func (w *world) writeStatus(manager string, o client.Object) {
	w.Helper()
	u := w.wire(o)
	if err := w.Status().Update(w.Context(), u, client.FieldOwner(manager)); err != nil {
		w.Fatalf("%s writes the status of %s %s: %v", manager, u.GetKind(), u.GetName(), err)
	}
	w.unwire(u, o)
}

// applyStatus applies a status, of which the object has nothing else than the fields of the manager, by server-side apply.
func (w *world) applyStatus(manager string, o client.Object) {
	w.Helper()
	u := w.wire(o)
	status := u.Object["status"]
	u.Object = map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "status": status,
		"metadata": map[string]any{"namespace": u.GetNamespace(), "name": u.GetName(), "uid": string(u.GetUID())},
	}
	err := w.Status().Apply(w.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager), client.ForceOwnership)
	if err != nil {
		w.Fatalf("%s applies the status of %s %s: %v", manager, u.GetKind(), u.GetName(), err)
	}
	w.unwire(u, o)
}

// nameOf is the name of the Workload of a job. spec: 30 §4.4.5.
func nameOf(gvk schema.GroupVersionKind, o metav1.Object, extra ...string) string {
	prefix := strings.ToLower(gvk.Kind) + "-" + o.GetName()
	sum := sha1.Sum([]byte(strings.Join(append([]string{gvk.Kind, gvk.Group, o.GetName(), string(o.GetUID())}, extra...), "\n")))
	return prefix[:min(len(prefix), 253-6)] + "-" + hex.EncodeToString(sum[:])[:5]
}

// workloadOf is a Workload as the other system creates it for a job. spec: 30 §4.4.6.
func (w *world) workloadOf(o client.Object, queue string, sets []kueue.PodSet, extra ...string) *kueue.Workload {
	w.Helper()
	gvk, err := apiutil.GVKForObject(o, w.Scheme())
	if err != nil {
		w.Fatal(err)
	}
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: nameOf(gvk, o, extra...), Finalizers: []string{kueue.ResourceInUseFinalizer},
			Labels:          map[string]string{kueue.JobUIDLabel: string(o.GetUID())},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o, gvk)},
		},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue), PodSets: sets, Priority: new(int32(0)), Active: new(true)},
	}
	return wl
}

// podsFor is a pod template with one container that requests some cpu.
func podsFor(cpu string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "main", Image: "registry.example.com/train:v1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}},
	}}}}
}

// job creates a Job of some pods of one cpu, as the API server has it after the other system's webhook: suspended.
func (w *world) job(name, queue string, pods int32) *batchv1.Job {
	w.Helper()
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, Labels: map[string]string{kueue.QueueNameLabel: queue}},
		Spec:       batchv1.JobSpec{Parallelism: &pods, Completions: &pods, Suspend: new(true), Template: podsFor("1")},
	}
	w.write(byUser, j)
	return j
}

// podSet is the pod set of a Job that is not started. spec: 30 §4.9.
func podSet(j *batchv1.Job) kueue.PodSet {
	template := *j.Spec.Template.DeepCopy()
	for _, label := range []string{"job-name", "controller-uid", "batch.kubernetes.io/controller-uid"} {
		delete(template.Labels, label)
	}
	return kueue.PodSet{
		Name: "main", Count: *j.Spec.Parallelism, Template: template,
		TopologyRequest: &kueue.PodSetTopologyRequest{PodIndexLabel: new("batch.kubernetes.io/job-completion-index")},
	}
}

// queued creates the Workload of a Job.
func (w *world) queued(j *batchv1.Job) *kueue.Workload {
	w.Helper()
	wl := w.workloadOf(j, j.Labels[kueue.QueueNameLabel], []kueue.PodSet{podSet(j)})
	w.write(byKueue, wl)
	w.ready(wl, metav1.ConditionFalse, "WaitForStart")
	return wl
}

// isOld reports whether the release is one whose waitForPodsReady is off unless it is configured, and which has fewer reasons of conditions.
func (w *world) isOld() bool { return w.stored.Version == "v1beta1" }

// ready writes the condition PodsReady of a Workload, which older releases do not have.
func (w *world) ready(wl *kueue.Workload, status metav1.ConditionStatus, reason string) {
	w.Helper()
	if w.isOld() {
		return
	}
	was := wl.Status
	wl.Status = kueue.WorkloadStatus{Conditions: []metav1.Condition{w.condition(wl, kueue.WorkloadPodsReady, status, reason, "of the pods")}}
	w.applyStatus("kueue-job-controller-PodsReady", wl)
	was.Conditions = slices.DeleteFunc(was.Conditions, func(c metav1.Condition) bool { return c.Type == kueue.WorkloadPodsReady })
	was.Conditions = append(was.Conditions, wl.Status.Conditions[slices.IndexFunc(wl.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == kueue.WorkloadPodsReady
	})])
	wl.Status = was
}

// start writes a Job as the other system starts it. spec: 30 §4.7.
func (w *world) start(j *batchv1.Job, wl *kueue.Workload) {
	w.Helper()
	j.Spec.Suspend = new(false)
	inject(&j.Spec.Template, "main", wl)
	w.write(byKueue, j)
}

// inject merges into a pod template what the flavor and the admission of its pod set add.
func inject(t *corev1.PodTemplateSpec, set string, wl *kueue.Workload) {
	add := func(to *map[string]string, more map[string]string) {
		if *to == nil {
			*to = map[string]string{}
		}
		maps.Copy(*to, more)
	}
	add(&t.Labels, map[string]string{
		kueue.PodSetLabel: set, kueue.LocalQueueLabel: string(wl.Spec.QueueName), kueue.ClusterQueueLabel: string(wl.Status.Admission.ClusterQueue),
	})
	if wl.Labels[kueue.MultiKueueOriginLabel] != "" {
		t.Labels[kueue.MultiKueueWorkerWorkloadPodLabel] = "true"
	}
	add(&t.Annotations, map[string]string{kueue.WorkloadAnnotation: wl.Name})
	if name := wl.Annotations[kueue.WorkloadSliceNameAnnotation]; name != "" {
		add(&t.Annotations, map[string]string{kueue.WorkloadSliceNameAnnotation: name})
	}
	add(&t.Spec.NodeSelector, map[string]string{"pool": "a"})
}

// runs writes the status of a Job with so many pods, of which some are ready.
func (w *world) runs(j *batchv1.Job, active, ready int32) {
	w.Helper()
	j.Status.StartTime, j.Status.Active, j.Status.Ready = &w.began, active, &ready
	w.writeStatus(byKubernetes, j)
}

// condition is one of the other system's, of the generation of a Workload.
func (w *world) condition(wl *kueue.Workload, kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: w.began, ObservedGeneration: wl.Generation}
}

// admission charges all pods of a Workload to the flavor f of a ClusterQueue.
func admission(wl *kueue.Workload, clusterQueue string) *kueue.Admission {
	a := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		var milli int64
		for _, c := range set.Template.Spec.Containers {
			milli += c.Resources.Requests.Cpu().MilliValue()
		}
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
			Name: set.Name, Count: &set.Count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f"},
			ResourceUsage: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(milli*int64(set.Count), resource.DecimalSI)},
		})
	}
	return a
}

// setReserved sets the fields of a Workload that holds quota.
func (w *world) setReserved(wl *kueue.Workload, clusterQueue string) {
	wl.Status.Admission = admission(wl, clusterQueue)
	wl.Status.Conditions = append(wl.Status.Conditions,
		w.condition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", "Quota reserved in ClusterQueue "+clusterQueue))
}

// setAdmitted sets the fields of an admitted Workload.
func (w *world) setAdmitted(wl *kueue.Workload, clusterQueue string) {
	w.setReserved(wl, clusterQueue)
	wl.Status.Conditions = append(wl.Status.Conditions,
		w.condition(wl, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "The workload is admitted"))
}

// get reads an object in the version of the world.
func (w *world) get(o client.Object) {
	w.Helper()
	u := w.wire(o)
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(o), u); err != nil {
		w.Fatal(err)
	}
	w.unwire(u, o)
}
