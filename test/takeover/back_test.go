package takeover

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueuev1beta1 "github.com/berth-project/berth/api/kueue/v1beta1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// knownConditions are the conditions of Workloads in the API. spec: 10 §5.1.
var knownConditions = []string{
	"QuotaReserved", "Admitted", "Evicted", "Preempted", "Requeued", "Finished", "PodsReady", "DeactivationTarget", "WaitingForReplacementPods",
	"BlockedOnPreemptionGates",
}

// ofCopies begins the annotations that Berth's copies on worker clusters keep. They mean nothing to the other system.
const ofCopies = "multikueue.berth.dev/"

// runsRemotely is a condition of Berth's on the Workloads of pods that are queued in groups and run on a worker cluster: the status of their
// objects does not show it. The next status of the other system removes it.
const runsRemotely = "multikueue.berth.dev/RunsRemotely"

// giveBack stops Berth, and lets the other system write the objects as it does: it finds nothing that it does not know, and its writes have
// the effects that they have on objects of its own.
func (b *berth) giveBack(m *manager) {
	b.Helper()
	old := &unstructured.UnstructuredList{}
	old.SetGroupVersionKind(kueuev1beta1.GroupVersion.WithKind("WorkloadList"))
	b.try(b.List(b.Context(), old))
	if len(old.Items) != len(b.workloads()) {
		b.Errorf("%d Workloads are served as v1beta1, want %d", len(old.Items), len(b.workloads()))
	}
	wait.Until(b.T, "all Workloads are stored in one version", func() error {
		var of apiextensionsv1.CustomResourceDefinition
		b.try(b.Get(b.Context(), client.ObjectKey{Name: "workloads.kueue.x-k8s.io"}, &of))
		if len(of.Status.StoredVersions) != 1 {
			return fmt.Errorf("%v", of.Status.StoredVersions)
		}
		return nil
	})
	m.stop()
	b.isLeft()

	// It evicts a Job that Berth admitted, and releases its quota: it applies a status without the fields.
	for _, name := range []string{"urgent", "checked"} {
		j, wl := b.read(name)
		wl.Status = kueue.WorkloadStatus{AdmissionChecks: wl.Status.AdmissionChecks}
		b.released(wl, "Preempted")
		want := conditions(wl)
		b.applyStatus(byAdmission, wl)
		got := conditions(wl)
		delete(got, kueue.WorkloadPodsReady) // of another field manager
		if wl.Status.Admission != nil || !maps.Equal(got, want) {
			b.Errorf("%s: admission %+v, conditions %v, after the release of its quota", name, wl.Status.Admission, got)
		}
		j.Spec.Suspend = new(true)
		b.write(byKueue, j)
	}
	b.giveTrainingBack()
	// It finishes another one, and takes its finalizer off.
	_, wl := b.read("deactivated")
	wl.Status.Conditions = append(wl.Status.Conditions, b.condition(wl, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "done"))
	b.applyStatus(byAdmission, wl)
	wl.Finalizers = nil
	b.write(byKueue, wl)
	b.try(b.Delete(b.Context(), wl))
	if err := b.Get(b.Context(), client.ObjectKeyFromObject(wl), wl); client.IgnoreNotFound(err) != nil || err == nil {
		b.Errorf("a finished Workload cannot be deleted: %v", err)
	}
}

// isLeft installs the other system again after Berth was stopped, and demands that all objects have only what that system knows.
func (b *berth) isLeft() {
	b.Helper()
	b.reinstall()
	for _, wl := range b.workloads() {
		b.isKnown(&wl)
	}
	b.hasKnownFinalizers()
}

// reinstall does what applying the other system's manifests and deleting Berth's policies does to webhooks and conversions. Its servers are
// not there: it has no webhooks, and the conversion of the API server.
func (b *berth) reinstall() {
	b.Helper()
	for _, o := range []client.Object{
		&admissionv1.MutatingWebhookConfiguration{}, &admissionv1.ValidatingWebhookConfiguration{},
		&admissionv1.ValidatingAdmissionPolicyBinding{}, &admissionv1.ValidatingAdmissionPolicy{},
	} {
		b.try(b.DeleteAllOf(b.Context(), o))
	}
	var crds apiextensionsv1.CustomResourceDefinitionList
	b.try(b.List(b.Context(), &crds))
	for i := range crds.Items {
		of := &crds.Items[i]
		of.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		b.try(b.Update(b.Context(), of, client.FieldOwner("kubectl")))
	}
}

// isKnown demands that a Workload has only labels, annotations, finalizers, conditions and field managers of the other system.
func (b *berth) isKnown(wl *kueue.Workload) {
	b.Helper()
	for key := range wl.Labels {
		if !strings.HasPrefix(key, "kueue.x-k8s.io/") {
			b.Errorf("%s has the label %s", wl.Name, key)
		}
	}
	isCopy := wl.Labels[kueue.MultiKueueOriginLabel] != ""
	for key := range wl.Annotations {
		if !strings.HasPrefix(key, "kueue.x-k8s.io/") && !(isCopy && strings.HasPrefix(key, ofCopies)) {
			b.Errorf("%s has the annotation %s", wl.Name, key)
		}
	}
	for _, c := range wl.Status.Conditions {
		if !slices.Contains(knownConditions, c.Type) && c.Type != runsRemotely {
			b.Errorf("%s has the condition %s", wl.Name, c.Type)
		}
	}
	for _, m := range wl.ManagedFields {
		if m.Subresource == "status" && !strings.HasPrefix(m.Manager, "kueue") && m.Manager != "budget" {
			b.Errorf("%s: its status has fields of %s", wl.Name, m.Manager)
		}
	}
	if owner := metav1.GetControllerOf(wl); owner != nil && owner.Kind == "Job" && wl.Annotations[kueue.ElasticJobAnnotation] == "" && !isCopy {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: owner.Name, UID: owner.UID}}
		if want := nameOf(batchv1.SchemeGroupVersion.WithKind("Job"), j); wl.Name != want {
			b.Errorf("the Workload of %s is called %s, want %s", owner.Name, wl.Name, want)
		}
	}
}

// hasKnownFinalizers demands that no object has a finalizer that only Berth removes.
func (b *berth) hasKnownFinalizers() {
	b.Helper()
	for _, gvk := range []schema.GroupVersionKind{
		batchv1.SchemeGroupVersion.WithKind("Job"), corev1.SchemeGroupVersion.WithKind("Pod"), jobsetv1alpha2.GroupVersion.WithKind("JobSet"),
		trainerv1alpha1.GroupVersion.WithKind("TrainJob"), trainerv1alpha1.GroupVersion.WithKind("ClusterTrainingRuntime"),
		kueue.GroupVersion.WithKind("Workload"), kueue.GroupVersion.WithKind("ClusterQueue"), kueue.GroupVersion.WithKind("LocalQueue"),
		kueue.GroupVersion.WithKind("ResourceFlavor"), kueue.GroupVersion.WithKind("AdmissionCheck"),
		kueue.GroupVersion.WithKind("MultiKueueCluster"), kueue.GroupVersion.WithKind("MultiKueueConfig"),
	} {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		b.try(b.List(b.Context(), &list))
		for i := range list.Items {
			for _, finalizer := range list.Items[i].Finalizers {
				if finalizer != kueue.ResourceInUseFinalizer && finalizer != kueue.ManagedFinalizer {
					b.Errorf("%s %s has the finalizer %s", gvk.Kind, list.Items[i].Name, finalizer)
				}
			}
		}
	}
}
