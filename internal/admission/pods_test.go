package admission_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/leaderworkerset"
	"github.com/berth-project/berth/internal/job/kind/statefulset"
)

// podWorld is an API server with the webhooks of pods and of what makes them.
type podWorld struct {
	client.Client
	t         *testing.T
	ctx       context.Context
	namespace string
}

func newPodWorld(t *testing.T) *podWorld {
	t.Helper()
	o := testOptions()
	for _, d := range o.Descriptors {
		switch d.GVK.Kind {
		case "Pod", "Deployment", "StatefulSet", "LeaderWorkerSet":
			o.Jobs.Kinds[d.GVK] = true
		}
	}
	o.Jobs.Kinds[appsv1.SchemeGroupVersion.WithKind("ReplicaSet")] = false
	c, namespace := serveWith(t, o)
	w := &podWorld{c, t, t.Context(), namespace}
	w.must(c.Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}))
	return w
}

func (w *podWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// update changes an object as it is stored now.
func (w *podWorld) update(o client.Object, change func()) error {
	w.t.Helper()
	w.must(w.Get(w.ctx, client.ObjectKeyFromObject(o), o))
	change()
	return w.Update(w.ctx, o)
}

// template is of one container, as in the worked example of the roles.
func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			"cpu": resource.MustParse("250m"), "memory": resource.MustParse("64Mi"),
		}}}}},
	}
}

func (w *podWorld) pod(name string, labels, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: labels, Annotations: annotations}, Spec: template().Spec}
}

func gates(p *corev1.Pod) (out []string) {
	for _, g := range p.Spec.SchedulingGates {
		out = append(out, g.Name)
	}
	return out
}

func TestPodsOnAnAPIServer(t *testing.T) {
	w := newPodWorld(t)
	const totalPath = "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]"
	queue := func(more ...string) map[string]string {
		out := map[string]string{kueue.QueueNameLabel: "lq"}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	size := func(n string) map[string]string { return map[string]string{kueue.PodGroupTotalCountAnnotation: n} }
	both := []string{"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"}

	single := w.pod("single", queue(), nil)
	w.must(w.Create(w.ctx, single))
	if diff := cmp.Diff(both, gates(single)); diff != "" || single.Labels["kueue.x-k8s.io/managed"] != "true" ||
		!slices.Contains(single.Finalizers, "kueue.x-k8s.io/managed") || single.Annotations["kueue.x-k8s.io/role-hash"] != "b642cab1" {
		t.Errorf("labels %v, annotations %v, finalizers %v, gates -want +got:\n%s", single.Labels, single.Annotations, single.Finalizers, diff)
	}
	free := w.pod("free", nil, nil)
	w.must(w.Create(w.ctx, free))
	if len(gates(free)) > 0 || len(free.Finalizers) > 0 {
		t.Errorf("a pod without a queue has gates %v, finalizers %v", gates(free), free.Finalizers)
	}

	member := w.pod("member", queue(kueue.PodGroupNameLabel, "g"), size("2"))
	member.Annotations[kueue.RetriableInGroupAnnotation] = "false"
	w.must(w.Create(w.ctx, member))
	forbidden(t, w.Create(w.ctx, w.pod("nosize", queue(kueue.PodGroupNameLabel, "g"), nil)), totalPath)
	forbidden(t, w.Create(w.ctx, w.pod("nogroup", queue(), size("2"))), "metadata.labels[kueue.x-k8s.io/pod-group-name]")
	forbidden(t, w.Create(w.ctx, w.pod("none", queue(kueue.PodGroupNameLabel, "g"), size("0"))), totalPath)
	forbidden(t, w.Create(w.ctx, w.pod("no", map[string]string{kueue.ManagedLabel: "no"}, nil)), "metadata.labels[kueue.x-k8s.io/managed]")
	forbidden(t, w.update(member, func() { member.Labels[kueue.PodGroupNameLabel] = "h" }), "metadata.labels[kueue.x-k8s.io/pod-group-name]")
	forbidden(t, w.update(member, func() { delete(member.Annotations, kueue.RetriableInGroupAnnotation) }), "metadata.annotations[kueue.x-k8s.io/retriable-in-group]")
	forbidden(t, w.update(single, func() {
		delete(single.Labels, kueue.ManagedLabel)
		single.Spec.SchedulingGates = nil
	}), "metadata.labels[kueue.x-k8s.io/managed]")
	forbidden(t, w.update(single, func() { single.Spec.SchedulingGates = nil }), "spec.schedulingGates")
	w.must(w.update(single, func() { // joining later is fine
		single.Labels[kueue.PodGroupNameLabel], single.Annotations[kueue.PodGroupTotalCountAnnotation] = "g", "2"
	}))

	// A parent that is not ours: its pods wait, and it says later how.
	parent := w.pod("parent", nil, map[string]string{kueue.PodSuspendingParentAnnotation: "acme"})
	w.must(w.Create(w.ctx, parent))
	if diff := cmp.Diff(both, gates(parent)); diff != "" || parent.Labels[kueue.ManagedLabel] != "" || len(parent.Finalizers) > 0 || parent.Annotations[kueue.RoleHashAnnotation] == "" {
		t.Errorf("labels %v, annotations %v, finalizers %v, gates -want +got:\n%s", parent.Labels, parent.Annotations, parent.Finalizers, diff)
	}
	w.must(w.update(parent, func() {
		parent.Labels = queue(kueue.ManagedLabel, "true", kueue.PodGroupNameLabel, "acme-1")
		parent.Annotations[kueue.PodGroupTotalCountAnnotation] = "1"
	}))
}

func TestServingKindsOnAnAPIServer(t *testing.T) {
	w := newPodWorld(t)
	t.Run("Deployment", w.deployment)
	t.Run("StatefulSet", w.statefulSet)
	t.Run("LeaderWorkerSet", w.leaderWorkerSet)
}

func (w *podWorld) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{kueue.QueueNameLabel: "lq"}}
}

func (w *podWorld) deployment(t *testing.T) {
	newDeployment := func(namespace, name string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: w.meta(name), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, Template: template(),
		}}
		d.Namespace = namespace
		return d
	}
	d := newDeployment(w.namespace, "web")
	w.must(w.Create(w.ctx, d))
	if d.Spec.Template.Annotations[kueue.PodSuspendingParentAnnotation] != "deployment" || d.Spec.Template.Labels[kueue.QueueNameLabel] != "lq" {
		t.Errorf("template %+v", d.Spec.Template.ObjectMeta)
	}
	forbidden(t, w.update(d, func() { delete(d.Labels, kueue.QueueNameLabel) }), "metadata.labels[kueue.x-k8s.io/queue-name]")
	w.must(w.update(d, func() { d.Labels[kueue.QueueNameLabel] = "other" }))
	if d.Spec.Template.Labels[kueue.QueueNameLabel] != "other" {
		t.Errorf("template %+v", d.Spec.Template.ObjectMeta)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "off-"}}
	w.must(w.Create(w.ctx, ns))
	off := newDeployment(ns.Name, "web")
	w.must(w.Create(w.ctx, off))
	if len(off.Spec.Template.Annotations) > 0 {
		t.Errorf("the template was changed in an unmanaged namespace: %v", off.Spec.Template.Annotations)
	}
}

func (w *podWorld) statefulSet(t *testing.T) {
	const path = "spec.replicas"
	s := &appsv1.StatefulSet{ObjectMeta: w.meta("web"), Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, Template: template(),
	}}
	w.must(w.Create(w.ctx, s))
	want := metav1.ObjectMeta{Labels: map[string]string{"app": "x"}, Annotations: map[string]string{kueue.PodSuspendingParentAnnotation: "statefulset"}}
	if diff := cmp.Diff(want, s.Spec.Template.ObjectMeta); diff != "" {
		t.Errorf("template -want +got:\n%s", diff)
	}
	resize := func(n int32) error { return w.update(s, func() { s.Spec.Replicas = &n }) }
	forbidden(t, resize(5), path)
	forbidden(t, resize(2), path)
	forbidden(t, w.update(s, func() { s.Spec.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1") }), "spec.template.spec")
	w.must(w.update(s, func() { s.Spec.Template.Spec.Containers[0].Image = "y" }))
	w.must(resize(0))
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: (&job.Config{}).WorkloadName(statefulset.Descriptor().GVK, "web", s.UID)},
		Spec:       kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 3, Template: newJob("", "").Spec.Template}}},
	}
	w.must(w.Create(w.ctx, wl))
	forbidden(t, resize(5), path, wl.Name)
	wl.Status.Conditions = []metav1.Condition{{
		Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: kueue.ReasonOnHold, Message: "m", LastTransitionTime: metav1.Now(),
	}}
	w.must(w.Status().Update(w.ctx, wl))
	w.must(w.Get(w.ctx, client.ObjectKeyFromObject(s), s))
	s.Status.Replicas = 1
	w.must(w.Status().Update(w.ctx, s))
	forbidden(t, resize(5), path)
	w.must(w.Get(w.ctx, client.ObjectKeyFromObject(s), s))
	s.Status.Replicas = 0
	w.must(w.Status().Update(w.ctx, s))
	w.must(resize(5))

	claimed := s.DeepCopy()
	claimed.ObjectMeta = w.meta("claimed")
	claimed.Spec.Template.Annotations = map[string]string{kueue.PodSuspendingParentAnnotation: "leaderworkerset.x-k8s.io/leaderworkerset"}
	w.must(w.Create(w.ctx, claimed))
	if got := claimed.Spec.Template.Annotations[kueue.PodSuspendingParentAnnotation]; got == "statefulset" {
		t.Error("the pods of a LeaderWorkerSet were taken from it")
	}
	w.must(w.update(claimed, func() { claimed.Spec.Replicas = new(int32(7)) }))
}

func (w *podWorld) leaderWorkerSet(t *testing.T) {
	d := leaderworkerset.Descriptor()
	w.must(client.IgnoreAlreadyExists(w.Create(w.ctx, embeddedtest.LooseCRD(d.GVK, d.Resource))))
	set := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte(`
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 4
    leaderTemplate: {spec: {containers: [{name: c, image: x}]}}
    workerTemplate: {metadata: {labels: {kueue.x-k8s.io/queue-name: theirs}}, spec: {containers: [{name: c, image: x}]}}
`), &set.Object))
	set.SetNamespace(w.namespace)
	set.SetName("llm")
	set.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
	wait.Until(t, "the kind is served", func() error { return w.Create(w.ctx, set) })
	meta := func(name string) (labels, annotations map[string]string) {
		labels, _, _ = unstructured.NestedStringMap(set.Object, "spec", "leaderWorkerTemplate", name, "metadata", "labels")
		annotations, _, _ = unstructured.NestedStringMap(set.Object, "spec", "leaderWorkerTemplate", name, "metadata", "annotations")
		return labels, annotations
	}
	for name, offset := range map[string]string{"leaderTemplate": "", "workerTemplate": "1"} {
		labels, annotations := meta(name)
		want := map[string]string{kueue.PodSuspendingParentAnnotation: d.Framework, kueue.PodGroupServingAnnotation: "true"}
		if offset != "" {
			want["kueue.x-k8s.io/pod-index-offset"] = offset
		}
		if diff := cmp.Diff(want, annotations); diff != "" || labels[kueue.QueueNameLabel] != "lq" {
			t.Errorf("%s: labels %v, annotations -want +got:\n%s", name, labels, diff)
		}
	}
	put := func(value any, path ...string) error {
		return w.update(set, func() { w.must(unstructured.SetNestedField(set.Object, value, append([]string{"spec"}, path...)...)) })
	}
	w.must(put(int64(5), "replicas"))
	forbidden(t, put(int64(-1), "replicas"), "spec.replicas")
	forbidden(t, put(int64(5), "leaderWorkerTemplate", "size"), "spec.leaderWorkerTemplate.size")
	forbidden(t, w.update(set, func() { unstructured.RemoveNestedField(set.Object, "spec", "leaderWorkerTemplate", "leaderTemplate") }),
		"spec.leaderWorkerTemplate.leaderTemplate")
	forbidden(t, put(map[string]any{"disk": "fast"}, "leaderWorkerTemplate", "workerTemplate", "spec", "nodeSelector"), "spec.leaderWorkerTemplate.workerTemplate.spec")
	forbidden(t, put(map[string]any{
		"kueue.x-k8s.io/podset-group-name": "together", "kueue.x-k8s.io/podset-required-topology": "rack",
	}, "leaderWorkerTemplate", "workerTemplate", "metadata", "annotations"), "must be the same on both templates")
	w.must(put([]any{map[string]any{"name": "c", "image": "y"}}, "leaderWorkerTemplate", "workerTemplate", "spec", "containers"))
}
