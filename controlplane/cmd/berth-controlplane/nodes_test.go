package main

import (
	"context"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-project/berth/controlplane/simnode"
)

const (
	blockLabel = "cloud.provider.com/topology-block"
	rackLabel  = "cloud.provider.com/topology-rack"
)

// The life of nodes with a topology: their names and labels, the failure and recovery of one, a restart while one has failed, and a restart
// with another topology.
func TestTopology(t *testing.T) {
	dir := t.TempDir()
	s := up(t, dir, "--topology", "block=2,rack=2,host=3", "--node-capacity", "cpu=4,pods=20")
	client := s.client(t)
	names := slices.Sorted(maps.Keys(nodes(t, client)))
	if len(names) != 12 || names[0] != "b1-r1-h01" || names[11] != "b2-r2-h03" {
		t.Fatalf("nodes %v", names)
	}
	if got := nodes(t, client)["b2-r1-h03"].Labels; got[blockLabel] != "b2" || got[rackLabel] != "b2-r1" || got[corev1.LabelHostname] != "b2-r1-h03" {
		t.Errorf("b2-r1-h03 has the labels %v", got)
	}
	edit(t, client, "b1-r1-h01", `{"metadata": {"labels": {"team": "red"}}}`)
	t.Run("failure and recovery", func(t *testing.T) { testFailure(t, client) })

	edit(t, client, "b1-r1-h02", `{"metadata": {"annotations": {"berth.dev/simulated-failure": "true"}}}`)
	eventually(t, "b1-r1-h02 is NotReady", func() bool { return ready(nodes(t, client)["b1-r1-h02"]) == corev1.ConditionUnknown })
	s.end(t)
	s = up(t, dir, "--topology", "block=2,rack=2,host=3", "--node-capacity", "cpu=4,pods=20")
	client = s.client(t)
	for name, node := range nodes(t, client) {
		if got := ready(node) == corev1.ConditionTrue; got != (name != "b1-r1-h02") {
			t.Errorf("after the restart %s is ready: %v", name, got)
		}
	}
	s.end(t)

	client = up(t, dir, "--topology", "example.com/b=2,example.com/r=2,host=3", "--node-capacity", "cpu=4,pods=20").client(t)
	got := nodes(t, client)["b1-r1-h01"]
	if len(nodes(t, client)) != 12 || got.Labels["example.com/b"] != "b1" || got.Labels["example.com/r"] != "b1-r1" || got.Labels["team"] != "red" {
		t.Errorf("with another topology b1-r1-h01 has the labels %v", got.Labels)
	}
	if _, found := got.Labels[rackLabel]; found {
		t.Errorf("with another topology b1-r1-h01 still has the labels %v", got.Labels)
	}
}

// end stops a control plane.
func (s *supervisor) end(t *testing.T) {
	t.Helper()
	children := s.children(t)
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.wait(t, children); code != 0 {
		t.Fatalf("exit code %d; it said:\n%s", code, s.stderr.String())
	}
}

// testFailure: the pods of a node that fails do not change until it recovers, then they end as if nothing had happened.
func testFailure(t *testing.T, client *kubernetes.Clientset) {
	const dead, alive = "b1-r1-h01", "b1-r1-h02"
	ctx, pods := context.Background(), client.CoreV1().Pods("default")
	create := func(name, node, seconds string) {
		t.Helper()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"berth.dev/run-seconds": seconds}},
			Spec: corev1.PodSpec{
				NodeName: node, RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "none"}},
			},
		}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(name string) *corev1.Pod {
		t.Helper()
		got, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	runs := func(name string) {
		t.Helper()
		eventually(t, name+" runs", func() bool { return pod(name).Status.Phase == corev1.PodRunning })
	}
	create("ends", dead, "4")
	create("stays", dead, "3600")
	create("elsewhere", alive, "3600")
	runs("ends")
	runs("stays")
	runs("elsewhere")

	began := time.Now()
	edit(t, client, dead, `{"metadata": {"annotations": {"berth.dev/simulated-failure": "true"}}}`)
	eventually(t, "the node is NotReady", func() bool { return ready(nodes(t, client)[dead]) == corev1.ConditionUnknown })
	t.Logf("NotReady after %v", time.Since(began))
	create("late", dead, "0")
	for _, name := range []string{"stays", "elsewhere"} {
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a pod of another node is deleted", func() bool {
		_, err := pods.Get(ctx, "elsewhere", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	eventually(t, "the node has both taints", func() bool {
		effects := map[corev1.TaintEffect]bool{}
		for _, taint := range nodes(t, client)[dead].Spec.Taints {
			effects[taint.Effect] = effects[taint.Effect] || taint.Key == corev1.TaintNodeUnreachable
		}
		return effects[corev1.TaintEffectNoSchedule] && effects[corev1.TaintEffectNoExecute]
	})
	t.Logf("both taints after %v", time.Since(began))
	until, err := time.Parse(time.RFC3339Nano, runsUntil(pod("ends")))
	if err != nil {
		t.Fatal(err)
	}
	// Pods that change nevertheless would do so at their time, or at once.
	time.Sleep(max(time.Second, time.Until(until)+time.Second))
	if got := pod("ends").Status.Phase; got != corev1.PodRunning {
		t.Errorf("a pod whose time is over is %s on a failed node", got)
	}
	if got := pod("stays"); got.DeletionTimestamp == nil || got.Status.Phase != corev1.PodRunning {
		t.Errorf("a pod that is deleted is %s on a failed node, deleted at %v", got.Status.Phase, got.DeletionTimestamp)
	}
	if got := pod("late").Status.Phase; got != corev1.PodPending {
		t.Errorf("a new pod is %s on a failed node", got)
	}
	if ready(nodes(t, client)[dead]) != corev1.ConditionUnknown {
		t.Error("the node became ready again")
	}

	began = time.Now()
	edit(t, client, dead, `{"metadata": {"annotations": {"berth.dev/simulated-failure": null}}}`)
	eventually(t, "the node is Ready without taints", func() bool {
		node := nodes(t, client)[dead]
		return ready(node) == corev1.ConditionTrue && len(node.Spec.Taints) == 0
	})
	t.Logf("recovered after %v", time.Since(began))
	eventually(t, "the pods end", func() bool {
		_, err := pods.Get(ctx, "stays", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && pod("ends").Status.Phase == corev1.PodSucceeded && pod("late").Status.Phase == corev1.PodSucceeded
	})
	runJob(t, client, job("on-recovered", map[string]string{"berth.dev/run-seconds": "0"}, func(job *batchv1.Job) {
		job.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: dead}
	}), batchv1.JobComplete)
}

// runsUntil is when a running pod ends.
func runsUntil(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == "berth.dev/RunsUntil" {
			return condition.Message
		}
	}
	return ""
}

// nodes are the nodes of the control plane by name.
func nodes(t *testing.T, client *kubernetes.Clientset) map[string]*corev1.Node {
	t.Helper()
	list, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{LabelSelector: simnode.Label})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*corev1.Node{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found
}

func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

// edit patches a node.
func edit(t *testing.T, client *kubernetes.Clientset, node, patch string) {
	t.Helper()
	if _, err := client.CoreV1().Nodes().Patch(context.Background(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
