// Package kuberay stands in for KubeRay 1.7 in tests, as far as spec 30 §4.10.1 says what that does.
package kuberay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/plan/job/podset"
	"github.com/berth-project/berth/internal/plan/job/view"
)

// Operator makes clusters for services and pods
// for clusters, stops both, and replaces a cluster by another one when what the service asks for has another hash. Of each
// service and cluster it makes one step after the other, in KubeRay's order.
type Operator struct {
	client.Client
	Namespace   string
	Incremental bool // upgrade by steps: the new cluster begins with as few workers as it may

	mu   sync.Mutex
	made int
}

// HashAnnotation has the hash of what a cluster was made for.
const HashAnnotation = "ray.io/hash-without-replicas-and-workers-to-delete"

// GVK is a kind of Ray's.
func GVK(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: kind}
}

// Begin runs the operator until the function that it returns is called.
func (k *Operator) Begin(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				k.step(ctx)
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// Objects are those of a kind.
func (k *Operator) Objects(ctx context.Context, kind string) []unstructured.Unstructured {
	list := view.NewList(GVK(kind))
	_ = k.List(ctx, list, client.InNamespace(k.Namespace))
	return list.Items
}

func (k *Operator) podsOf(ctx context.Context, uid any) []corev1.Pod {
	var list corev1.PodList
	_ = k.List(ctx, &list, client.InNamespace(k.Namespace))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		ref := metav1.GetControllerOf(&p)
		return ref == nil || fmt.Sprint(ref.UID) != fmt.Sprint(uid)
	})
}

// step looks at everything once. What fails is done in the next step.
func (k *Operator) step(ctx context.Context) {
	clusters := k.Objects(ctx, "RayCluster")
	for _, s := range k.Objects(ctx, "RayService") {
		k.service(ctx, &s, slices.DeleteFunc(slices.Clone(clusters), func(c unstructured.Unstructured) bool {
			ref := metav1.GetControllerOf(&c)
			return ref == nil || ref.UID != s.GetUID()
		}))
	}
	known := map[string]bool{}
	for _, c := range clusters {
		known[string(c.GetUID())] = true
		k.cluster(ctx, &c)
	}
	var pods corev1.PodList
	_ = k.List(ctx, &pods, client.InNamespace(k.Namespace))
	for i := range pods.Items { // the garbage collector
		if ref := metav1.GetControllerOf(&pods.Items[i]); ref != nil && ref.Kind == "RayCluster" && !known[string(ref.UID)] {
			_ = k.Delete(ctx, &pods.Items[i])
		}
	}
}

// service is one reconcile of a service.
func (k *Operator) service(ctx context.Context, s *unstructured.Unstructured, clusters []unstructured.Unstructured) {
	active := view.String(s.Object, "status", "activeServiceStatus", "rayClusterName")
	pending := view.String(s.Object, "status", "pendingServiceStatus", "rayClusterName")
	for i := range clusters { // dangling ones go
		if name := clusters[i].GetName(); name != active && name != pending {
			_ = k.Delete(ctx, &clusters[i])
		}
	}
	suspend, suspended, suspending := view.Bool(s.Object, "spec", "suspend"), view.HasCondition(s, "Suspended"), view.HasCondition(s, "Suspending")
	switch {
	case suspending:
		if len(clusters) == 0 {
			k.says(ctx, s, "", "", "Suspended")
		}
		return
	case suspend && !suspended:
		k.says(ctx, s, "", "", "Suspending")
		return
	case suspend:
		return
	case suspended:
		k.says(ctx, s, "", "", "")
		return
	}
	find := func(name string) *unstructured.Unstructured {
		at := slices.IndexFunc(clusters, func(c unstructured.Unstructured) bool { return c.GetName() == name })
		if at < 0 {
			return nil
		}
		return &clusters[at]
	}
	if pending != "" && find(pending) == nil {
		k.makeCluster(ctx, s, pending)
		return
	}
	for _, name := range []string{active, pending} {
		if c := find(name); c != nil && !slices.ContainsFunc(k.podsOf(ctx, c.GetUID()), isHead) {
			return // without a head it looks no further
		}
	}
	if c := find(pending); c != nil && view.String(c.Object, "status", "state") == "ready" {
		k.says(ctx, s, pending, "", "Ready")
		return
	}
	goal := HashOf(view.Map(s.Object, "spec", "rayClusterConfig"))
	have := ""
	for _, name := range []string{pending, active} {
		if c := find(name); c != nil && have == "" {
			have = c.GetAnnotations()[HashAnnotation]
		}
	}
	switch c := find(active); {
	case have == goal:
	case c != nil && c.GetAnnotations()[HashAnnotation] == goal: // rolled back
		k.says(ctx, s, active, "", "Ready")
	case view.String(s.Object, "spec", "upgradeStrategy", "type") == "None" && active != "":
	default:
		k.mu.Lock()
		k.made++
		name := fmt.Sprintf("%s-c%04d", s.GetName(), k.made)
		k.mu.Unlock()
		k.says(ctx, s, active, name, "")
	}
}

func isHead(p corev1.Pod) bool { return p.Labels["ray.io/node-type"] == "head" }

// says writes the status of a service.
func (k *Operator) says(ctx context.Context, s *unstructured.Unstructured, active, pending, condition string) {
	status := map[string]any{
		"activeServiceStatus": map[string]any{"rayClusterName": active}, "pendingServiceStatus": map[string]any{"rayClusterName": pending},
		"conditions": []any{map[string]any{"type": "Initializing", "status": "False"}},
	}
	if condition != "" {
		status["conditions"] = []any{map[string]any{"type": condition, "status": "True"}}
	}
	s.Object["status"] = status
	_ = k.Status().Update(ctx, s)
}

// create makes a cluster, with all labels and annotations of the service.
func (k *Operator) makeCluster(ctx context.Context, s *unstructured.Unstructured, name string) {
	c := view.New(GVK("RayCluster"))
	c.SetName(name)
	c.SetNamespace(s.GetNamespace())
	c.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(s, GVK("RayService"))})
	labels, annotations := s.GetLabels(), s.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels["ray.io/originated-from-cr-name"], labels["ray.io/originated-from-crd"] = s.GetName(), "RayService"
	annotations[HashAnnotation] = HashOf(view.Map(s.Object, "spec", "rayClusterConfig"))
	c.SetLabels(labels)
	c.SetAnnotations(annotations)
	c.Object["spec"] = typed(view.Map(s.Object, "spec", "rayClusterConfig"))
	if k.Incremental && view.String(s.Object, "status", "activeServiceStatus", "rayClusterName") != "" {
		for _, group := range view.Maps(c.Object, "spec", "workerGroupSpecs") {
			delete(group, "replicas")
		}
	}
	_ = k.Create(ctx, c)
}

// typed is a cluster's spec as KubeRay writes it: it has been through Go types.
func typed(spec map[string]any) map[string]any {
	spec = runtime.DeepCopyJSON(spec)
	for _, group := range append(view.Maps(spec, "workerGroupSpecs"), view.Map(spec, "headGroupSpec")) {
		var t corev1.PodTemplateSpec
		if runtime.DefaultUnstructuredConverter.FromUnstructured(view.Map(group, "template"), &t) == nil {
			written, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&t)
			group["template"] = written
		}
		if group["rayStartParams"] == nil {
			group["rayStartParams"] = map[string]any{}
		}
	}
	return spec
}

// HashOf is what KubeRay knows a cluster by.
func HashOf(spec map[string]any) string {
	spec = typed(spec)
	delete(spec, "suspend")
	delete(spec, "upgradeStrategy")
	templates := []map[string]any{view.Map(spec, "headGroupSpec", "template", "spec")}
	for _, group := range view.Maps(spec, "workerGroupSpecs") {
		for _, name := range []string{"replicas", "minReplicas", "maxReplicas"} {
			delete(group, name)
		}
		templates = append(templates, view.Map(group, "template", "spec"))
	}
	for _, t := range templates {
		delete(t, "tolerations")
		delete(t, "schedulingGates")
	}
	text, _ := json.Marshal(spec)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// cluster is one reconcile of a cluster: it has the pods that it wants, none while it is suspended, and is ready when all
// of them may run.
func (k *Operator) cluster(ctx context.Context, c *unstructured.Unstructured) {
	pods := k.podsOf(ctx, c.GetUID())
	if view.Bool(c.Object, "spec", "suspend") {
		for i := range pods {
			_ = k.Delete(ctx, &pods[i])
		}
		if len(pods) == 0 {
			k.state(ctx, c, "suspended")
		}
		return
	}
	ready := k.scale(ctx, c, pods, "head", "headgroup", view.Map(c.Object, "spec", "headGroupSpec", "template"), 1)
	for _, group := range view.Maps(c.Object, "spec", "workerGroupSpecs") {
		n := view.Int(group, view.Int(group, 0, "minReplicas"), "replicas")
		ready = k.scale(ctx, c, pods, "worker", view.String(group, "groupName"), view.Map(group, "template"), int(n)) && ready
	}
	if ready {
		k.state(ctx, c, "ready")
	}
}

// state writes the state of a cluster, if it is another one.
func (k *Operator) state(ctx context.Context, c *unstructured.Unstructured, state string) {
	if view.String(c.Object, "status", "state") != state {
		c.Object["status"] = map[string]any{"state": state}
		_ = k.Status().Update(ctx, c)
	}
}

// scale brings a group to its size, and says whether all its pods may run.
func (k *Operator) scale(ctx context.Context, c *unstructured.Unstructured, pods []corev1.Pod, role, group string, template map[string]any, n int) bool {
	have := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.Labels["ray.io/group"] != group })
	for i := n; i < len(have); i++ {
		_ = k.Delete(ctx, &have[i])
	}
	for i := len(have); i < n; i++ {
		var t corev1.PodTemplateSpec
		if runtime.DefaultUnstructuredConverter.FromUnstructured(template, &t) != nil {
			return false
		}
		labels := map[string]string{"ray.io/cluster": c.GetName(), "ray.io/node-type": role, "ray.io/group": group}
		maps.Copy(labels, t.Labels)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			GenerateName: c.GetName() + "-" + strings.ToLower(group) + "-", Namespace: c.GetNamespace(), Annotations: t.Annotations,
			Labels:          labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, GVK("RayCluster"))},
		}, Spec: t.Spec}
		pod.Spec.AutomountServiceAccountToken = new(false)
		_ = k.Create(ctx, pod)
	}
	return len(have) == n && !slices.ContainsFunc(have, func(p corev1.Pod) bool { return podset.HasGate(p.Spec.SchedulingGates) })
}
