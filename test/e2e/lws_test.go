package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

const lwsDomain = "leaderworkerset.sigs.k8s.io/"

// lwsOperator behaves like the documented controller of LeaderWorkerSet: a StatefulSet of leaders, and for each leader pod one of its
// workers, which is deleted with it. It labels the pods with the number of their group.
type lwsOperator struct {
	*cluster
	namespace, name string
}

// run creates missing objects until the test ends. Failures are retried the next time.
func (op *lwsOperator) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			op.step(ctx)
			time.Sleep(100 * time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

func (op *lwsOperator) step(ctx context.Context) {
	set := op.object()
	if op.Get(ctx, client.ObjectKeyFromObject(set), set) != nil || set.GetDeletionTimestamp() != nil {
		return
	}
	replicas, _, _ := unstructured.NestedInt64(set.Object, "spec", "replicas")
	size, _, _ := unstructured.NestedInt64(set.Object, "spec", "leaderWorkerTemplate", "size")
	leaders := op.statefulSet(set, "leaderTemplate", op.name, int32(replicas), *metav1.NewControllerRef(set, set.GroupVersionKind()))
	leaders.Spec.Template.Labels[lwsDomain+"worker-index"] = "0"
	leaders.Spec.Selector.MatchLabels = map[string]string{lwsDomain + "name": op.name, lwsDomain + "worker-index": "0"}
	op.apply(ctx, leaders)
	var pods corev1.PodList
	if op.List(ctx, &pods, client.InNamespace(op.namespace), client.MatchingLabels{lwsDomain + "name": op.name, lwsDomain + "worker-index": "0"}) != nil {
		return
	}
	ready := int64(0)
	for i := range pods.Items {
		leader := &pods.Items[i]
		if leader.DeletionTimestamp != nil {
			continue
		}
		if leader.Status.Phase == corev1.PodRunning {
			ready++
		}
		group := strings.TrimPrefix(leader.Name, op.name+"-")
		if leader.Labels[lwsDomain+"group-index"] == "" {
			body := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, lwsDomain+"group-index", group)
			_ = op.Patch(ctx, leader, client.RawPatch("application/merge-patch+json", []byte(body)))
		}
		workers := op.statefulSet(set, "workerTemplate", leader.Name, int32(size-1), *metav1.NewControllerRef(leader, corev1.SchemeGroupVersion.WithKind("Pod")))
		workers.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
		workers.Spec.Template.Labels[lwsDomain+"group-index"] = group
		workers.Spec.Template.Annotations[lwsDomain+"leader-name"] = leader.Name
		workers.Spec.Selector.MatchLabels = map[string]string{lwsDomain + "name": op.name, lwsDomain + "group-index": group}
		op.apply(ctx, workers)
	}
	set.Object["status"] = map[string]any{"replicas": replicas, "readyReplicas": ready}
	_ = op.Status().Update(ctx, set)
}

// statefulSet is one of pods of a template.
func (op *lwsOperator) statefulSet(set *unstructured.Unstructured, template, name string, replicas int32, owner metav1.OwnerReference) *appsv1.StatefulSet {
	out := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: op.namespace, Name: name, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       appsv1.StatefulSetSpec{Replicas: &replicas, PodManagementPolicy: appsv1.ParallelPodManagement, Selector: &metav1.LabelSelector{}},
	}
	tree, _, _ := unstructured.NestedMap(set.Object, "spec", "leaderWorkerTemplate", template)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, &out.Spec.Template); err != nil {
		panic(err) // it is the test's own
	}
	if out.Spec.Template.Labels == nil {
		out.Spec.Template.Labels = map[string]string{}
	}
	if out.Spec.Template.Annotations == nil {
		out.Spec.Template.Annotations = map[string]string{}
	}
	out.Spec.Template.Labels[lwsDomain+"name"] = op.name
	return out
}

// apply makes a StatefulSet, or sets its size. One of an earlier owner is deleted first.
func (op *lwsOperator) apply(ctx context.Context, want *appsv1.StatefulSet) {
	var is appsv1.StatefulSet
	switch err := op.Get(ctx, client.ObjectKeyFromObject(want), &is); {
	case apierrors.IsNotFound(err):
		_ = op.Create(ctx, want)
	case err != nil:
	case metav1.GetControllerOf(&is).UID != metav1.GetControllerOf(want).UID:
		_ = op.Delete(ctx, &is, client.Preconditions{UID: &is.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	case *is.Spec.Replicas != *want.Spec.Replicas:
		body := `{"spec":{"replicas":` + strconv.Itoa(int(*want.Spec.Replicas)) + `}}`
		_ = op.Patch(ctx, &is, client.RawPatch("application/merge-patch+json", []byte(body)))
	}
}

func (op *lwsOperator) object() *unstructured.Unstructured {
	set := &unstructured.Unstructured{}
	set.SetAPIVersion("leaderworkerset.x-k8s.io/v1")
	set.SetKind("LeaderWorkerSet")
	set.SetNamespace(op.namespace)
	set.SetName(op.name)
	return set
}

// TestLeaderWorkerSet is a LeaderWorkerSet in a queue: its groups start as far as there is quota, each as a whole, make room, and
// come and go with its size.
func TestLeaderWorkerSet(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	c := up(t)
	c.create(t, embeddedtest.LooseCRD(schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}, "leaderworkersets"))
	c.configured(t, "integrations: {frameworks: [batch/job, pod, statefulset, leaderworkerset.x-k8s.io/leaderworkerset]}\n")
	c.queues(t, "serving", map[string]string{"serving": "5"})
	op := &lwsOperator{c, "serving", "llm"}
	set := op.object()
	gpu := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": "main", "image": "any", "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": "1"}},
	}}}}
	set.Object["spec"] = map[string]any{"replicas": int64(2), "leaderWorkerTemplate": map[string]any{
		"size": int64(2), "leaderTemplate": gpu, "workerTemplate": runtime.DeepCopyJSON(gpu),
	}}
	set.SetLabels(map[string]string{kueue.QueueNameLabel: "main"})
	wait.Until(t, "the kind is served", func() error { return c.Create(context.Background(), set) })
	op.run(t)

	all := client.MatchingLabels{lwsDomain + "name": "llm"}
	of := func(group int) client.MatchingLabels {
		return client.MatchingLabels{lwsDomain + "name": "llm", lwsDomain + "group-index": strconv.Itoa(group)}
	}
	workload := func(group int) *kueue.Workload {
		t.Helper()
		var list kueue.WorkloadList
		if err := c.List(context.Background(), &list, client.InNamespace("serving")); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].Annotations[kueue.ComponentWorkloadIndexAnnotation] == strconv.Itoa(group) {
				return &list.Items[i]
			}
		}
		t.Fatalf("group %d has no workload among %d", group, len(list.Items))
		return nil
	}
	c.are(t, "two groups run", "serving", all, map[string]int{"Running": 4})
	c.patch(t, set, `{"spec":{"replicas":3}}`)
	c.are(t, "the third waits as a whole, though there is room for one pod", "serving", of(2), map[string]int{"Gated": 2})
	c.holds(t, "serving", 2, 1)

	first := workload(0)
	c.patch(t, first, `{"spec":{"active":false}}`)
	c.are(t, "the third has the place of the first", "serving", of(2), map[string]int{"Running": 2})
	c.are(t, "the first is made again, and waits", "serving", of(0), map[string]int{"Gated": 2})
	c.are(t, "the second never noticed", "serving", of(1), map[string]int{"Running": 2})
	c.patch(t, first, `{"spec":{"active":true}}`)
	c.workload(t, "the first is queued again", "serving", first.Name, hasCondition(kueue.WorkloadQuotaReserved, kueue.ReasonWaitingForQuota))
	c.patch(t, set, `{"spec":{"replicas":2}}`)
	c.are(t, "with the third gone the first runs", "serving", of(0), map[string]int{"Running": 2})
	c.are(t, "four pods are left", "serving", all, map[string]int{"Running": 4})
	c.holds(t, "serving", 2, 0)

	if err := c.Delete(context.Background(), set, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	c.are(t, "all are gone", "serving", all, map[string]int{})
	c.noWorkloads(t, "serving")
	c.status(t, "serving", 0)
}
