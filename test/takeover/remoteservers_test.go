package takeover

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

var lws = schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}

// server is a kind whose pods are queued in groups, with one pod.
type server struct {
	name      string
	gvk       schema.GroupVersionKind
	framework string
	// of is the input of the name of its Workload.
	of string
	// index is the label with the index of a pod, and labels are others of its pods.
	index  string
	labels map[string]string
	// numbered is true if its Workloads have numbers.
	numbered bool
	spec     func(template map[string]any) map[string]any
}

var servers = []server{
	{
		name: "store", gvk: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), framework: "statefulset", of: "store", index: appsv1.PodIndexLabel,
		spec: func(template map[string]any) map[string]any { return setSpec("store", template) },
	},
	{
		name: "leaders", gvk: lws, framework: "leaderworkerset.x-k8s.io/leaderworkerset", of: "leaders-0", index: "leaderworkerset.sigs.k8s.io/worker-index", numbered: true,
		labels: map[string]string{"leaderworkerset.sigs.k8s.io/name": "leaders", "leaderworkerset.sigs.k8s.io/group-index": "0"},
		spec: func(template map[string]any) map[string]any {
			return map[string]any{"replicas": int64(1), "leaderWorkerTemplate": map[string]any{"size": int64(1), "workerTemplate": template}}
		},
	},
}

func setSpec(name string, template map[string]any) map[string]any {
	return map[string]any{
		"replicas": int64(1), "serviceName": name, "template": template, "selector": map[string]any{"matchLabels": map[string]any{"app": name}},
	}
}

// template is the pod template after the webhook.
func (s *server) template() corev1.PodTemplateSpec {
	t := podsFor("1")
	t.Spec.RestartPolicy = corev1.RestartPolicyAlways
	t.Labels = map[string]string{"app": s.name}
	t.Annotations = map[string]string{kueue.PodSuspendingParentAnnotation: s.framework}
	if s.numbered {
		t.Labels[kueue.QueueNameLabel] = "sent"
		t.Annotations[kueue.PodGroupServingAnnotation] = "true"
	}
	return t
}

// object is the object of the kind, as its user creates it, after the webhook.
func (s *server) object(w *world) *unstructured.Unstructured {
	w.Helper()
	template := s.template()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": s.spec(w.tree(&template))}}
	u.SetGroupVersionKind(s.gvk)
	u.SetNamespace(team)
	u.SetName(s.name)
	u.SetLabels(map[string]string{kueue.QueueNameLabel: "sent"})
	return u
}

// pod writes the pod of an object, stamped with its Workload: with its StatefulSet, if the object is none.
func (s *server) pod(w *world, of *unstructured.Unstructured, workload string, change func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	set := of
	if s.numbered {
		template := s.template()
		maps.Copy(template.Labels, s.labels)
		set = &unstructured.Unstructured{Object: map[string]any{"spec": setSpec(s.name, w.tree(&template))}}
		set.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
		set.SetNamespace(team)
		set.SetName(s.name)
		set.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(of, s.gvk)})
		w.write("lws", set)
	}
	t := s.template()
	p := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	p.Namespace, p.Name = team, s.name+"-0"
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, set.GroupVersionKind())}
	maps.Copy(p.Labels, s.labels)
	maps.Copy(p.Labels, map[string]string{s.index: "0", kueue.ManagedLabel: "true", kueue.QueueNameLabel: "sent"})
	maps.Copy(p.Annotations, map[string]string{
		kueue.PrebuiltWorkloadLabel: workload, kueue.PodGroupNameLabel: workload, kueue.PodGroupTotalCountAnnotation: "1",
		kueue.PodGroupServingAnnotation: "true", kueue.RoleHashAnnotation: "main",
	})
	if !s.numbered {
		p.Annotations[kueue.PodGroupFastAdmissionAnnotation], p.Annotations[kueue.PodGroupPodIndexLabelAnnotation] = "true", s.index
	}
	change(p)
	w.write(byKubernetes, p)
	return p
}

// workloadOf is the Workload of an object, which is not its controller. spec: 30 §4.9.
func (s *server) workloadOf(w *world, o *unstructured.Unstructured) *kueue.Workload {
	w.Helper()
	template := s.template()
	if !s.numbered {
		template.ObjectMeta = metav1.ObjectMeta{}
	}
	wl := w.workloadOf(o, "sent", []kueue.PodSet{{
		Name: "main", Count: 1, Template: template, TopologyRequest: &kueue.PodSetTopologyRequest{PodIndexLabel: &s.index},
	}})
	wl.Name = nameOf(s.gvk, &metav1.ObjectMeta{Name: s.of, UID: o.GetUID()})
	wl.OwnerReferences = []metav1.OwnerReference{s.ownerRef(o)}
	wl.Annotations = map[string]string{
		kueue.IsGroupWorkloadAnnotation: "true", kueue.JobOwnerGVKAnnotation: s.gvk.String(), kueue.JobOwnerNameAnnotation: s.name,
	}
	if s.numbered {
		wl.Annotations[kueue.ComponentWorkloadIndexAnnotation] = "0"
	}
	return wl
}

func (s *server) ownerRef(o *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: s.gvk.GroupVersion().String(), Kind: s.gvk.Kind, Name: s.name, UID: o.GetUID()}
}

// serverSent writes an object whose pod stays gated on the hub, and runs on the worker cluster. Its status is not mirrored. spec: 40 §4.6.
func (w *world) serverSent(worker *world, s *server) {
	w.Helper()
	local := s.object(w)
	w.write(byUser, local)
	wl := s.workloadOf(w, local)
	ownedByPod(wl, s.pod(w, local, wl.Name, func(p *corev1.Pod) { gated(p) }))
	w.dispatched(wl)
	copied := worker.copyOf(wl)
	worker.setAdmitted(copied, "sent")
	worker.applyStatus(byAdmission, copied)
	w.ran(wl)

	remote := s.object(worker)
	mark(remote, copied)
	annotations := remote.GetAnnotations()
	annotations[kueue.MultiKueueOriginUIDAnnotation] = string(local.GetUID())
	if s.numbered {
		delete(annotations, kueue.PrebuiltWorkloadLabel)
	}
	remote.SetAnnotations(annotations)
	worker.write(byKueue, remote)
	pod := s.pod(worker, remote, copied.Name, func(p *corev1.Pod) { startCopiedPod(p, copied) })
	worker.runsPod(pod)
	remote.Object["status"] = map[string]any{"replicas": int64(1), "readyReplicas": int64(1)}
	worker.writeStatus(byKubernetes, remote)
	copied.OwnerReferences, copied.Labels[kueue.JobUIDLabel] = []metav1.OwnerReference{s.ownerRef(remote)}, string(remote.GetUID())
	ownedByPod(copied, pod)
	worker.adoptsInGroups(copied)
}
