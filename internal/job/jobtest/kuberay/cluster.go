package kuberay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-project/berth/internal/job/plan/view"
)

// typed is a cluster's spec as KubeRay writes it, converted through Go types.
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

// HashOf is the hash by which KubeRay compares clusters.
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

// Conditions of a cluster. The second one means that no pod is left.
const (
	clusterSuspending = "RayClusterSuspending"
	clusterSuspended  = "RayClusterSuspended"
)

// cluster is one reconcile of a cluster: it creates the wanted pods, none while it is suspended, and is ready when all of them may
// run. A cluster that is resumed keeps the state of a suspended one until then.
func (k *Operator) cluster(ctx context.Context, c *unstructured.Unstructured) {
	pods, suspend := k.podsOf(ctx, c.GetUID()), view.Bool(c.Object, "spec", "suspend")
	state := view.String(c.Object, "status", "state")
	was := ""
	for _, kind := range []string{clusterSuspending, clusterSuspended} {
		if view.HasCondition(c, kind) {
			was = kind
		}
	}
	now := was
	switch {
	case was == clusterSuspending: // to its end, whatever the spec asks for meanwhile
		for i := range pods {
			k.write(func() error { return k.Delete(ctx, &pods[i]) })
		}
		if len(pods) == 0 {
			now = clusterSuspended
		}
	case was == clusterSuspended && !suspend:
		now = ""
	case was == "" && suspend:
		now = clusterSuspending
	case was == "" && k.complete(ctx, c, pods):
		state = "ready"
	}
	if suspend && len(pods) == 0 {
		state = "suspended"
	}
	k.report(ctx, c, state, now)
}

// complete makes the pods of a cluster, and reports whether all may run.
func (k *Operator) complete(ctx context.Context, c *unstructured.Unstructured, pods []corev1.Pod) bool {
	ready := k.scale(ctx, c, pods, "head", "headgroup", view.Map(c.Object, "spec", "headGroupSpec", "template"), 1)
	for _, group := range inOrder(k, view.Maps(c.Object, "spec", "workerGroupSpecs")) {
		n := view.Int(group, view.Int(group, 0, "minReplicas"), "replicas")
		ready = k.scale(ctx, c, pods, "worker", view.String(group, "groupName"), view.Map(group, "template"), int(n)) && ready
	}
	return ready
}

// report writes the state of a cluster and which of its conditions is true, if they have changed.
func (k *Operator) report(ctx context.Context, c *unstructured.Unstructured, state, is string) {
	var conditions []any
	for _, kind := range []string{clusterSuspending, clusterSuspended} {
		value := metav1.ConditionFalse
		if kind == is {
			value = metav1.ConditionTrue
		}
		conditions = append(conditions, map[string]any{"type": kind, "status": string(value)})
	}
	status := map[string]any{"state": state, "conditions": conditions}
	if reflect.DeepEqual(c.Object["status"], status) {
		return
	}
	c.Object["status"] = status
	k.write(func() error { return k.Status().Update(ctx, c) })
}

// scale resizes a group, and reports whether all its pods may run.
func (k *Operator) scale(ctx context.Context, c *unstructured.Unstructured, pods []corev1.Pod, role, group string, template map[string]any, n int) bool {
	have := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.Labels["ray.io/group"] != group || p.DeletionTimestamp != nil })
	if k.Order != nil {
		have = inOrder(k, have) // the deleted ones are arbitrary
	}
	for i := n; i < len(have); i++ {
		k.write(func() error { return k.Delete(ctx, &have[i]) })
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
		k.write(func() error { return k.Create(ctx, pod) })
	}
	return len(have) == n && !slices.ContainsFunc(have, func(p corev1.Pod) bool { return len(p.Spec.SchedulingGates) > 0 })
}
