package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/test/process"
)

// podsManager starts a manager that handles pods and their owners.
func (c *cluster) podsManager(t *testing.T) *process.Manager {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [batch/job, pod, deployment, statefulset]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return c.manager(t, "--config", file)
}

// gpuPod is the spec of a pod of one GPU.
func gpuPod() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "any", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
	}}}
}

// groupPod is one of a group of some pods that runs for some seconds.
func groupPod(namespace, group, name string, total int, seconds string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{kueue.QueueNameLabel: "main", kueue.PodGroupNameLabel: group},
		Annotations: map[string]string{kueue.PodGroupTotalCountAnnotation: strconv.Itoa(total), "berth.dev/run-seconds": seconds},
	}, Spec: gpuPod()}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return pod
}

// phases counts the pods of a namespace with some labels, by phase; pods that wait for a queue are Gated.
func (c *cluster) phases(t *testing.T, namespace string, match client.MatchingLabels) map[string]int {
	t.Helper()
	var pods corev1.PodList
	if err := c.List(context.Background(), &pods, client.InNamespace(namespace), match); err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for i := range pods.Items {
		phase := string(pods.Items[i].Status.Phase)
		if len(pods.Items[i].Spec.SchedulingGates) > 0 {
			phase = "Gated"
		}
		out[phase]++
	}
	return out
}

// are waits until the pods are in these phases and no others.
func (c *cluster) are(t *testing.T, what, namespace string, match client.MatchingLabels, want map[string]int) {
	t.Helper()
	wait.Until(t, what, func() error {
		if got := c.phases(t, namespace, match); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}

// workload waits until check accepts the Workload of a name.
func (c *cluster) workload(t *testing.T, what, namespace, name string, check func(*kueue.Workload) bool) *kueue.Workload {
	t.Helper()
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	wait.Until(t, what, func() error {
		if err := c.get(t, w); err != nil {
			return err
		}
		if !check(w) {
			return fmt.Errorf("spec.podSets %d, conditions %+v", len(w.Spec.PodSets), w.Status.Conditions)
		}
		return nil
	})
	return w
}

func hasCondition(kind, reason string) func(*kueue.Workload) bool {
	return func(w *kueue.Workload) bool {
		c := apimeta.FindStatusCondition(w.Status.Conditions, kind)
		return c != nil && c.Reason == reason
	}
}

// TestPods: pod groups, Deployments and StatefulSets, with Kubernetes' own controllers and scheduler.
func TestPods(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	c := up(t)
	c.podsManager(t)
	t.Run("a pod group starts together and finishes", func(t *testing.T) { podGroup(t, c) })
	t.Run("a pod group is deactivated and replaced", func(t *testing.T) { replacedGroup(t, c) })
	t.Run("a Deployment over quota", func(t *testing.T) { overQuota(t, c) })
	t.Run("a StatefulSet is put on hold and resized", func(t *testing.T) { onHold(t, c) })
	t.Run("a StatefulSet rolls out while quota is full", func(t *testing.T) { rollOut(t, c) })
	t.Run("a StatefulSet that runs rolls out", func(t *testing.T) { rollOutRunning(t, c) })
}

func podGroup(t *testing.T, c *cluster) {
	c.queues(t, "groups", map[string]string{"groups": "4"})
	in := client.MatchingLabels{kueue.PodGroupNameLabel: "g"}
	c.create(t, groupPod("groups", "g", "a", 3, "2"), groupPod("groups", "g", "b", 3, "2"))
	c.are(t, "two of three wait", "groups", in, map[string]int{"Gated": 2})
	wait.Stays(t, time.Second, "two of three wait", func() error {
		if got := c.phases(t, "groups", in); got["Gated"] != 2 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	c.create(t, groupPod("groups", "g", "c", 3, "2"))
	c.are(t, "all succeed", "groups", in, map[string]int{"Succeeded": 3})
	w := c.workload(t, "the workload is finished", "groups", "g", hasCondition(kueue.WorkloadFinished, kueue.ReasonSucceeded))
	if len(w.Spec.PodSets) != 1 || w.Spec.PodSets[0].Count != 3 || len(w.OwnerReferences) != 3 {
		t.Errorf("pod sets %v, owners %v", w.Spec.PodSets, w.OwnerReferences)
	}
	wait.Until(t, "nothing is held", func() error {
		var pods corev1.PodList
		if err := c.List(context.Background(), &pods, client.InNamespace("groups"), in); err != nil {
			return err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; len(p.Finalizers) > 0 || p.Labels[kueue.PodSetLabel] == "" {
				return fmt.Errorf("%s: finalizers %v, labels %v", p.Name, p.Finalizers, p.Labels)
			}
		}
		return nil
	})
	c.status(t, "groups", 0)
}

func replacedGroup(t *testing.T, c *cluster) {
	c.queues(t, "replaced", map[string]string{"replaced": "4"})
	in := client.MatchingLabels{kueue.PodGroupNameLabel: "g"}
	c.create(t, groupPod("replaced", "g", "a", 2, "600"), groupPod("replaced", "g", "b", 2, "600"))
	c.are(t, "both run", "replaced", in, map[string]int{"Running": 2})
	w := c.workload(t, "it is admitted", "replaced", "g", hasCondition(kueue.WorkloadAdmitted, kueue.ReasonAdmitted))
	active := func(is string) {
		t.Helper()
		if err := c.Patch(context.Background(), w, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"active":`+is+`}}`))); err != nil {
			t.Fatal(err)
		}
	}
	active("false")
	c.workload(t, "it waits for replacements", "replaced", "g", hasCondition(kueue.WorkloadWaitingForReplacementPods, kueue.ReasonDeactivated))
	c.are(t, "its pods failed", "replaced", in, map[string]int{"Failed": 2})
	c.status(t, "replaced", 0)
	c.create(t, groupPod("replaced", "g", "a2", 2, "2"), groupPod("replaced", "g", "b2", 2, "2"))
	active("true")
	c.are(t, "the replacements succeed, and the others are gone", "replaced", in, map[string]int{"Succeeded": 2})
	c.workload(t, "the workload is finished", "replaced", "g", hasCondition(kueue.WorkloadFinished, kueue.ReasonSucceeded))
	c.status(t, "replaced", 0)
}

func overQuota(t *testing.T, c *cluster) {
	c.queues(t, "deployments", map[string]string{"deployments": "4"})
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "deployments", Name: "web", Labels: map[string]string{kueue.QueueNameLabel: "main"}},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(6)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: gpuPod(),
		}},
	}
	c.create(t, d)
	c.are(t, "four run and two wait", "deployments", labels, map[string]int{"Running": 4, "Gated": 2})
	wait.Until(t, "each pod has a workload", func() error {
		var list kueue.WorkloadList
		err := c.List(context.Background(), &list, client.InNamespace("deployments"))
		if err == nil && len(list.Items) != 6 {
			err = fmt.Errorf("%d workloads", len(list.Items))
		}
		return err
	})
	if err := c.Patch(context.Background(), d, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":4}}`))); err != nil {
		t.Fatal(err)
	}
	c.are(t, "four are left", "deployments", labels, map[string]int{"Running": 4})
	if err := c.Delete(context.Background(), d, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	c.are(t, "all are gone", "deployments", labels, map[string]int{})
	c.status(t, "deployments", 0)
}

// statefulSet is one of pods of one GPU.
func statefulSet(namespace string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Labels: map[string]string{kueue.QueueNameLabel: "main"}},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: gpuPod(),
		}},
	}
}

// resize sets the replicas of a StatefulSet.
func (c *cluster) resize(t *testing.T, s *appsv1.StatefulSet, replicas int) {
	t.Helper()
	wait.Until(t, "it may be scaled", func() error {
		return c.Patch(context.Background(), s, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)))
	})
}

// only waits for the one Workload of a namespace.
func (c *cluster) only(t *testing.T, namespace string) string {
	t.Helper()
	var list kueue.WorkloadList
	wait.Until(t, "there is a workload", func() error {
		if err := c.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d workloads", len(list.Items))
		}
		return nil
	})
	return list.Items[0].Name
}

func onHold(t *testing.T, c *cluster) {
	c.queues(t, "holds", map[string]string{"holds": "4"})
	web := client.MatchingLabels{"app": "web"}
	s := statefulSet("holds", 2)
	c.create(t, s)
	c.are(t, "its pods run", "holds", web, map[string]int{"Running": 2})
	name := c.only(t, "holds")
	c.resize(t, s, 0)
	c.workload(t, "it is on hold", "holds", name, hasCondition(kueue.WorkloadQuotaReserved, kueue.ReasonOnHold))
	c.are(t, "its pods are gone", "holds", web, map[string]int{})
	c.status(t, "holds", 0)
	c.resize(t, s, 5)
	c.workload(t, "its five pods wait", "holds", name, func(w *kueue.Workload) bool {
		return w.Spec.PodSets[0].Count == 5 && hasCondition(kueue.WorkloadQuotaReserved, kueue.ReasonExceedsMaxQuota)(w)
	})
	if err := c.Patch(context.Background(), s, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":4}}`))); err == nil {
		t.Error("it was resized while it is queued")
	}
	c.resize(t, s, 0)
	c.workload(t, "it is on hold while it is queued", "holds", name, hasCondition(kueue.WorkloadQuotaReserved, kueue.ReasonOnHold))
	c.resize(t, s, 4)
	c.are(t, "four run", "holds", web, map[string]int{"Running": 4})
	if err := c.Delete(context.Background(), s, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	c.are(t, "all are gone", "holds", web, map[string]int{})
	c.noWorkloads(t, "holds")
	c.status(t, "holds", 0)
}

// noWorkloads waits until the Workloads of a namespace are deleted with their owners. Kubernetes' garbage collector learns of a new kind
// within half a minute.
func (c *cluster) noWorkloads(t *testing.T, namespace string) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		logged, err := os.ReadFile(filepath.Join(c.dir, "logs", "kube-controller-manager.log"))
		if err != nil {
			t.Log(err)
		}
		for line := range strings.Lines(string(logged)) {
			if strings.Contains(line, "garbage") || strings.Contains(line, "graph_builder") {
				t.Log(strings.TrimSpace(line))
			}
		}
	})
	wait.Until(t, "its workloads are gone", func() error {
		var list kueue.WorkloadList
		if err := c.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if n := len(list.Items); n > 0 {
			w := &list.Items[0]
			return fmt.Errorf("%d workloads; %s was deleted at %v and has finalizers %v, owners %v, conditions %v",
				n, w.Name, w.DeletionTimestamp, w.Finalizers, w.OwnerReferences, w.Status.Conditions)
		}
		return nil
	})
}

func rollOut(t *testing.T, c *cluster) {
	c.queues(t, "rollouts", map[string]string{"rollouts": "4"})
	long := job("rollouts", "long", "main", 4, "600")
	c.create(t, long)
	wait.Until(t, "the quota is full", c.runs(t, long))
	s := statefulSet("rollouts", 2)
	c.create(t, s)
	c.are(t, "its first pod waits", "rollouts", client.MatchingLabels{"app": "web"}, map[string]int{"Gated": 1})
	if err := c.Patch(context.Background(), s, client.RawPatch("application/strategic-merge-patch+json",
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"other"}]}}}}`))); err != nil {
		t.Fatal(err)
	}
	images := func(phase corev1.PodPhase) []string { return c.images(t, "rollouts", phase) }
	wait.Until(t, "the old pod runs, so that its controller goes on, and one of the new revision waits", func() error {
		if running, pending := images(corev1.PodRunning), images(corev1.PodPending); fmt.Sprint(running, pending) != "[web-0 any] [web-1 other]" {
			return fmt.Errorf("%v run, %v wait", running, pending)
		}
		return nil
	})
	if err := c.Delete(context.Background(), long, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "with quota all are rolled out", func() error {
		if running := images(corev1.PodRunning); fmt.Sprint(running) != "[web-0 other web-1 other]" {
			return fmt.Errorf("%v run", running)
		}
		return nil
	})
}

// images are the pods of a StatefulSet in a phase, with their images.
func (c *cluster) images(t *testing.T, namespace string, phase corev1.PodPhase) (out []string) {
	t.Helper()
	var pods corev1.PodList
	if err := c.List(context.Background(), &pods, client.InNamespace(namespace), client.MatchingLabels{"app": "web"}); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == phase && p.DeletionTimestamp == nil {
			out = append(out, p.Name+" "+p.Spec.Containers[0].Image)
		}
	}
	slices.Sort(out)
	return out
}

// rollOutRunning replaces pods that have their quota, one after the other.
func rollOutRunning(t *testing.T, c *cluster) {
	c.queues(t, "running", map[string]string{"running": "2"})
	s := statefulSet("running", 2)
	c.create(t, s)
	c.are(t, "its pods run", "running", client.MatchingLabels{"app": "web"}, map[string]int{"Running": 2})
	if err := c.Patch(context.Background(), s, client.RawPatch("application/strategic-merge-patch+json",
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"other"}]}}}}`))); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "both pods are replaced", func() error {
		if running := c.images(t, "running", corev1.PodRunning); fmt.Sprint(running) != "[web-0 other web-1 other]" {
			return fmt.Errorf("%v run", running)
		}
		return nil
	})
}

// TestPodGroupCrash kills the manager with SIGKILL again and again, at random moments, while pod groups wait for each other's
// quota. All finish, and at no time more pods run than the quota allows.
func TestPodGroupCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	const groups, size, quota, kills = 6, 3, 7, 8
	c := up(t)
	m := c.podsManager(t)
	c.queues(t, "crash", map[string]string{"crash": strconv.Itoa(quota)})
	random := rand.New(rand.NewPCG(embeddedtest.Seed(t, 0), 0))
	for i := range groups {
		for k := range size {
			c.create(t, groupPod("crash", fmt.Sprint("g", i), fmt.Sprintf("g%d-%d", i, k), size, "3"))
		}
	}
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	most := make(chan int, 1)
	go func() { most <- c.mostOpen(watching, "crash") }()
	for range kills {
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		m.Kill()
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		m = c.podsManager(t)
	}
	for i := range groups {
		c.workload(t, "each group finishes", "crash", fmt.Sprint("g", i), hasCondition(kueue.WorkloadFinished, kueue.ReasonSucceeded))
	}
	stop()
	if n := <-most; n > quota || n < size {
		t.Errorf("%d pods ran at once, want %d to %d", n, size, quota)
	}
	c.status(t, "crash", 0)
}

// mostOpen samples, until ctx ends, how many pods are open that have not ended.
func (c *cluster) mostOpen(ctx context.Context, namespace string) (most int) {
	for ctx.Err() == nil {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.InNamespace(namespace)); err == nil {
			n := 0
			for i := range pods.Items {
				if p := &pods.Items[i]; len(p.Spec.SchedulingGates) == 0 && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
					n++
				}
			}
			most = max(most, n)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return most
}
