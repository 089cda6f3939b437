package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/test/process"
)

// heard are the warnings that the API server sent.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, text)
}

// refused are the examples that need more than a default berth up has, by a part of the answer.
var refused = map[string]string{"in-place-restart.yaml": "InPlaceRestart"}

// ended are the conditions of a job's success, by kind.
var ended = map[string]string{"Job": "Complete", "JobSet": "Completed", "TrainJob": "Complete"}

// TestUp runs everything in docs/examples on a default `berth up`, like a new user, and then jobs of several kinds whose queue has no
// quota: every queue label counts, though no configuration lists the kinds.
func TestUp(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	berth := process.Binary(t, "berth")
	c := &cluster{dir: t.TempDir()}
	run(t, berth, "up", "--dir", c.dir, "--detach")
	t.Cleanup(func() { run(t, berth, "down", "--dir", c.dir) })
	c.kubeconfig = filepath.Join(c.dir, "kubeconfig")
	cfg := embeddedtest.ConfigOf(t, c.kubeconfig)
	warnings := &heard{}
	cfg.WarningHandler = warnings
	var err error
	if c.Client, err = client.New(cfg, client.Options{Scheme: install.Scheme()}); err != nil {
		t.Fatal(err)
	}
	t.Run("the examples", func(t *testing.T) { c.playExamples(t) })
	t.Run("a queue without quota", func(t *testing.T) { c.testEveryLabelCounts(t) })
	for _, line := range warnings.lines {
		if strings.Contains(line, kueue.QueueNameLabel) {
			t.Errorf("a queue label is ignored: %s", line)
		}
	}
}

// playExamples creates the objects of the files, in the order of the README, and waits until every job of them has ended.
func (c *cluster) playExamples(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	slices.SortFunc(files, func(a, b string) int { // queues come before jobs
		first := func(file string) bool { return filepath.Base(file) == "two-teams.yaml" }
		if first(a) != first(b) {
			return map[bool]int{true: -1, false: 1}[first(a)]
		}
		return strings.Compare(a, b)
	})
	var jobs []*unstructured.Unstructured
	for _, file := range files {
		for _, o := range manifestsIn(t, file) {
			if o.GetKind() == "Configuration" { // for --config
				if _, err := options.Load(file); err != nil {
					t.Error(err)
				}
				continue
			}
			if o.GetNamespace() == "" {
				o.SetNamespace("default")
			}
			var created error
			wait.Until(t, file+": its kind is served", func() error {
				if created = c.Create(context.Background(), o); apimeta.IsNoMatchError(created) || apierrors.IsInternalError(created) {
					return created // an internal error is a webhook's that did not answer in time
				}
				return nil
			})
			why, mayFail := refused[filepath.Base(file)]
			switch {
			case created == nil && ended[o.GetKind()] != "":
				jobs = append(jobs, o)
			case created != nil && (!mayFail || !strings.Contains(created.Error(), why)):
				t.Errorf("%s: %s %s: %v", file, o.GetKind(), o.GetName(), created)
			}
		}
	}
	if len(jobs) < 7 {
		t.Errorf("only %d jobs are played", len(jobs))
	}
	wait.Until(t, "all jobs of the examples are through", func() error {
		var left []error
		for _, o := range jobs {
			if err := c.isThrough(o); err != nil {
				left = append(left, err)
			}
		}
		return errors.Join(left...)
	})
}

func manifestsIn(t *testing.T, file string) (out []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, o)
	}
	return out
}

func (c *cluster) isThrough(o *unstructured.Unstructured) error {
	if err := c.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, raw := range conditions {
		if is, _ := raw.(map[string]any); is["type"] == ended[o.GetKind()] && is["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("%s %s has the conditions %v", o.GetKind(), o.GetName(), conditions)
}

// testEveryLabelCounts creates objects of several kinds with the label of a queue that is stopped: each has a Workload, and no pod runs.
// Their siblings without the label run, and are not touched.
func (c *cluster) testEveryLabelCounts(t *testing.T) {
	ctx := context.Background()
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "held"}},
		&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "held", Name: "stopped"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: "team-a", StopPolicy: kueue.StopPolicyHold},
		})
	c.trainJobs(t, "600")
	for _, queue := range []string{"stopped", ""} {
		name := "free"
		if queue != "" {
			name = "labelled"
		}
		meta := func(kind string) metav1.ObjectMeta {
			m := metav1.ObjectMeta{Namespace: "held", Name: name + "-" + kind}
			if queue != "" {
				m.Labels = map[string]string{kueue.QueueNameLabel: queue}
			}
			return m
		}
		app := map[string]string{"app": name}
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		js := jobSet("held", name+"-jobset", replicated("a", 1, 1, "600"))
		train := trainJob("held", name+"-trainjob", 1)
		js.Labels, train.Labels = meta("").Labels, meta("").Labels
		c.create(t, job("held", name+"-job", queue, 1, "600"), js, train,
			&corev1.Pod{ObjectMeta: meta("pod"), Spec: template.Spec},
			&appsv1.Deployment{ObjectMeta: meta("deployment"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, Template: template}},
			&appsv1.StatefulSet{ObjectMeta: meta("statefulset"), Spec: appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: app}, ServiceName: "none", Template: template,
			}},
		)
	}
	wait.Until(t, "each of the labelled objects has a Workload", func() error {
		var list kueue.WorkloadList
		if err := c.List(ctx, &list, client.InNamespace("held")); err != nil {
			return err
		}
		owners := map[string]bool{}
		for i := range list.Items {
			for _, ref := range list.Items[i].OwnerReferences {
				if !strings.HasPrefix(ref.Name, "labelled-") {
					return fmt.Errorf("%s %s has a Workload and no label", ref.Kind, ref.Name)
				}
				owners[ref.Kind] = true
			}
		}
		if len(owners) != 5 || len(list.Items) != 6 { // the pod, and that of the Deployment, are both a Pod
			return fmt.Errorf("%d Workloads of %v", len(list.Items), owners)
		}
		return nil
	})
	wait.Until(t, "the free ones run, and the labelled ones do not", func() error {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.InNamespace("held")); err != nil {
			return err
		}
		running := 0
		for i := range pods.Items {
			pod := &pods.Items[i]
			switch free := strings.HasPrefix(pod.Name, "free-"); {
			case pod.Status.Phase == corev1.PodRunning && !free:
				return fmt.Errorf("%s runs", pod.Name)
			case pod.Status.Phase == corev1.PodRunning:
				running++
			}
			if _, marked := pod.Labels[kueue.ManagedLabel]; marked && strings.HasPrefix(pod.Name, "free-") {
				return fmt.Errorf("%s is marked", pod.Name)
			}
		}
		if running != 6 {
			return fmt.Errorf("%d pods run, want one of each kind", running)
		}
		return nil
	})
}
