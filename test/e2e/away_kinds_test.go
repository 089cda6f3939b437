package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/test/process"
)

const (
	jobsetGroup  = "jobset.x-k8s.io"
	trainerGroup = "trainer.kubeflow.org"
)

// closedKinds are the kinds of jobs that only a manager can judge, and LeaderWorkerSet, which the API server does not know by itself either.
func closedKinds() (out []*plan.Descriptor) {
	for _, d := range all.Descriptors() {
		if d.Open == nil || strings.Contains(d.GVK.Group, ".") {
			out = append(out, d)
		}
	}
	return out
}

// managerOfAll starts a manager that integrates every kind.
func (c *cluster) managerOfAll(t *testing.T) *process.Manager {
	t.Helper()
	var names []string
	for _, d := range all.Descriptors() {
		names = append(names, d.Framework)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfeatureGates: {SparkApplicationIntegration: true}\nintegrations: {frameworks: [" + strings.Join(names, ", ") + "]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return c.manager(t, "--config", file)
}

// awayScene holds the objects that exist when the manager stops.
type awayScene struct {
	*cluster
	finished, marked *corev1.Pod
}

// specsOfKinds are specs that the webhooks accept, where an empty one is not.
var specsOfKinds = map[string]map[string]any{
	"TrainJob":        {"suspend": true, "runtimeRef": map[string]any{"kind": "TrainingRuntime", "name": "any"}},
	"LeaderWorkerSet": {"leaderWorkerTemplate": map[string]any{"workerTemplate": map[string]any{"spec": map[string]any{}}}},
}

func ofKind(d *plan.Descriptor, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	if spec := specsOfKinds[d.GVK.Kind]; spec != nil {
		u.Object["spec"] = spec
	}
	u.SetGroupVersionKind(d.GVK)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func newAway(t *testing.T, c *cluster) *awayScene {
	t.Helper()
	template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}, "spec": map[string]any{
		"template": map[string]any{"spec": map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{"name": "node", "image": "x"}}}},
	}}
	runtime := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "spec": map[string]any{
		"template": map[string]any{"spec": map[string]any{"replicatedJobs": []any{map[string]any{"name": "node", "template": template}}}},
	}}}
	runtime.SetNamespace("team")
	runtime.SetName("any")
	create := func(o client.Object) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("%T %s is stored", o, o.GetName()), func() error { // once the webhooks know the kind
			return client.IgnoreAlreadyExists(c.Create(t.Context(), o.DeepCopyObject().(client.Object)))
		})
	}
	create(runtime)
	for _, d := range closedKinds() {
		for _, name := range []string{"stays", "goes"} {
			create(ofKind(d, "team", name))
		}
	}
	for _, name := range []string{"f-stays", "f-goes"} {
		create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, pods := range [][]*corev1.Pod{rayPods(), exclusivePods()} {
		create(pods[1])
		create(pods[2])
	}
	w := &awayScene{cluster: c}
	w.finished = w.ended(t, "finished", "")
	w.marked = w.ended(t, "finished-main", "main")
	runs := job("runs", "runs", "main", 1, "3600")
	c.create(t, runs)
	wait.Until(t, "a Job is admitted, and has its pod", func() error {
		if err := c.get(t, runs); err != nil {
			return err
		}
		if runs.Status.Active != 1 {
			return errors.New("it has no pod")
		}
		return nil
	})
	return w
}

// rayPods and exclusivePods are three pods each, which are created, changed and deleted. Webhooks of RayServices and JobSets are called for them,
// although they have no mark.
func rayPods() []*corev1.Pod {
	return threePods("ray", map[string]string{"ray.io/cluster": "any"}, nil)
}

func exclusivePods() []*corev1.Pod {
	return threePods("exclusive", map[string]string{jobsetv1alpha2.JobSetNameKey: "any"}, map[string]string{
		jobsetv1alpha2.JobSetNameKey: "any", jobsetv1alpha2.ExclusiveTopologyAnnotation: "rack", batchv1.JobCompletionIndexAnnotation: "0",
	})
}

func threePods(name string, labels, annotations map[string]string) (out []*corev1.Pod) {
	for _, suffix := range []string{"-new", "-stays", "-goes"} {
		out = append(out, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name + suffix, Labels: labels, Annotations: annotations}, Spec: gpuPod()})
	}
	return out
}

// ended is a pod that has finished and has a finalizer of another controller.
func (w *awayScene) ended(t *testing.T, name, queue string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Finalizers: []string{"example.com/mine"}}, Spec: gpuPod()}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	if queue != "" {
		pod.Labels = map[string]string{kueue.QueueNameLabel: queue}
	}
	w.create(t, pod)
	embeddedtest.EditStatus(t, w.Client, pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	return pod
}

// rows reads the tables of docs/operate.md about a manager that is away: the first cell of each row, to the others.
func rows(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "While no manager answers")
	section, _, _ = strings.Cut(section, "\n## ")
	out := map[string][]string{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"); strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|--") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			out[cells[0]] = cells[1:]
		}
	}
	return out
}

// kinds tests the rows about kinds that only a manager can judge.
func (w *awayScene) kinds(ctx context.Context, t *testing.T) {
	table := rows(t)
	play := func(t *testing.T, row string, made, changed, gone client.Object) {
		t.Helper()
		cells := table[row]
		if len(cells) != 3 {
			t.Fatalf("docs/operate.md has no row %q", row)
		}
		touch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"example.com/touched":"yes"}}}`))
		for i, err := range []error{w.Create(ctx, made), w.Patch(ctx, changed, touch), w.Delete(ctx, gone)} {
			if refused, want := apierrors.IsInternalError(err), strings.HasPrefix(cells[i], "refused"); refused != want || (err != nil && !refused) {
				t.Errorf("%s, %d of create, change and delete: refused is %v, and docs/operate.md says %q: %v", row, i, refused, cells[i], err)
			}
		}
	}
	for _, d := range closedKinds() {
		t.Run(d.GVK.Kind, func(t *testing.T) {
			row := "jobs of other kinds whose integration is enabled"
			if d.Open != nil {
				row = "Any other Pod, and a Job, Deployment, StatefulSet or LeaderWorkerSet, without a label or annotation of `kueue.x-k8s.io/`, on itself and on its pod template"
			}
			play(t, row, ofKind(d, "team", "new"), ofKind(d, "team", "stays"), ofKind(d, "team", "goes"))
			if d.GVK.Group == jobsetGroup || d.GVK.Group == trainerGroup {
				return // of an API of Berth's own, whose rules hold everywhere
			}
			if err := w.Create(ctx, ofKind(d, "kube-system", "new")); err != nil {
				t.Errorf("in a namespace that is not managed: %v", err)
			}
		})
	}
	for row, pods := range map[string][]*corev1.Pod{
		"Pods with the label `ray.io/cluster`, where `ray.io/rayservice` is enabled":           rayPods(),
		"Pods of JobSets that are placed exclusively (`exclusive-topology`), in any namespace": exclusivePods(),
	} {
		t.Run(pods[0].Name, func(t *testing.T) { play(t, row, pods[0], pods[1], pods[2]) })
	}
	unchecked := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "spec": map[string]any{}}}
	unchecked.SetNamespace("team")
	unchecked.SetName("unchecked")
	unchecked.SetLabels(map[string]string{"trainer.kubeflow.org/webhook-validation": "disabled"})
	if err := w.Create(ctx, unchecked); err != nil && !apierrors.IsInvalid(err) { // of its schema
		t.Errorf("a runtime that is not to be validated: %v", err)
	}
	flavor := func(name string) *kueue.ResourceFlavor {
		return &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	t.Run("ResourceFlavor", func(t *testing.T) {
		play(t, "ClusterQueues, Cohorts and ResourceFlavors", flavor("f-new"), flavor("f-stays"), flavor("f-goes"))
	})
}

// meanwhile tests the rows about controllers.
func (w *awayScene) meanwhile(ctx context.Context, t *testing.T) {
	two := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2,"template":{"metadata":{"annotations":{"example.com/rolled":"yes"}}}}}`))
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "deployment-stays"}}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "set-stays"}}
	for _, o := range []client.Object{deployment, set} {
		if err := w.Patch(ctx, o, two); err != nil {
			t.Errorf("%T is scaled and rolled out: %v", o, err)
		}
	}
	wait.Until(t, "what has no mark is scaled up and rolled out", func() error {
		if err := errors.Join(w.get(t, deployment), w.get(t, set)); err != nil {
			return err
		}
		if d, s := deployment.Status.UpdatedReplicas, set.Status.UpdatedReplicas; d != 2 || s != 2 {
			return fmt.Errorf("%d and %d pods are new", d, s)
		}
		return nil
	})
	free := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := w.Patch(ctx, w.finished, free); err != nil {
		t.Errorf("the finalizer of a finished pod: %v", err)
	}
	if err := w.Patch(ctx, w.marked, free); !apierrors.IsInternalError(err) {
		t.Errorf("the finalizer of a finished pod with a mark: %v", err)
	}
	if err := w.Delete(ctx, w.marked); err != nil {
		t.Errorf("a finished pod with a mark is deleted: %v", err)
	}
	ends := job("team", "ends", "", 1, "1")
	if err := w.Create(ctx, ends); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "a Job without a mark ends", func() error {
		if err := w.get(t, ends); err != nil {
			return err
		}
		if ends.Status.CompletionTime == nil {
			return fmt.Errorf("%+v", ends.Status)
		}
		return nil
	})
	if err := w.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("runs")); err != nil {
		t.Error(err)
	}
	waits := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "set-staysmain"}}
	scale := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))
	if err := w.SubResource("scale").Patch(ctx, waits, scale); err != nil {
		t.Errorf("a StatefulSet with a mark is scaled by its subresource: %v", err)
	}
	for namespace, name := range map[string]string{"team": "set-staysmain", "runs": "runs"} {
		wait.Until(t, "new pods of "+name+" are refused", func() error {
			var events corev1.EventList
			if err := w.List(ctx, &events, client.InNamespace(namespace)); err != nil {
				return err
			}
			for _, e := range events.Items {
				if e.InvolvedObject.Name == name && strings.Contains(e.Message, "failed calling webhook") {
					return nil
				}
			}
			return errors.New("no event says so")
		})
	}
}
