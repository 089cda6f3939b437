package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/test/process"
)

// configured starts a manager with a configuration, given without its head.
func (c *cluster) configured(t *testing.T, body string) *process.Manager {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n" + body
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return c.manager(t, "--config", file)
}

func (c *cluster) patch(t *testing.T, o client.Object, body string) {
	t.Helper()
	if err := c.Patch(context.Background(), o, client.RawPatch("application/merge-patch+json", []byte(body))); err != nil {
		t.Fatal(err)
	}
}

// runtimeText is a runtime of pods that ask for a GPU each and run for some seconds.
const runtimeText = `
metadata: {name: gpus}
spec:
  mlPolicy: {numNodes: 1}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              metadata: {annotations: {berth.dev/run-seconds: "SECONDS"}}
              spec: {containers: [{name: node, image: any, resources: {limits: {nvidia.com/gpu: 1}}}]}
`

// trainJobs makes the runtime of trainJob.
func (c *cluster) trainJobs(t *testing.T, seconds string) {
	t.Helper()
	r := &trainerv1alpha1.ClusterTrainingRuntime{}
	if err := yaml.UnmarshalStrict([]byte(strings.Replace(runtimeText, "SECONDS", seconds, 1)), r); err != nil {
		t.Fatal(err)
	}
	c.create(t, r)
}

// trainJob is one of some nodes.
func trainJob(namespace, name string, nodes int32) *trainerv1alpha1.TrainJob {
	return &trainerv1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: trainerv1alpha1.TrainJobSpec{
		RuntimeRef: trainerv1alpha1.RuntimeRef{Name: "gpus"}, Trainer: &trainerv1alpha1.Trainer{NumNodes: &nodes},
	}}
}

// TestHardGate is the failure that must not happen: every job is to be managed, the namespace off is excluded, and a JobSet in it runs to
// completion untouched; with it a TrainJob, a Deployment and a Job from before the manager, under Berth's and Kubernetes' own controllers
// (spec: 30 §4.2.4, §7 examples 1 to 5).
func TestHardGate(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	c := up(t)
	off := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "off", Labels: map[string]string{"queueing": "off"}}}
	c.create(t, off, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "on"}})
	queued := map[string]string{kueue.QueueNameLabel: "lq"}
	web := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "off", Name: "web", Labels: queued},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: gpuPod()},
		},
	}
	early := job("off", "early", "lq", 2, "2")
	c.create(t, web, early)
	c.configured(t, `manageJobsWithoutQueueName: true
managedJobsNamespaceSelector:
  matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, berth-system]}
  - {key: queueing, operator: NotIn, values: ["off"]}
integrations: {frameworks: [batch/job, pod, deployment, statefulset, jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob]}
`)
	c.trainJobs(t, "2")
	etl := jobSet("off", "etl", replicated("a", 1, 2, "2"), replicated("b", 2, 1, "2"))
	labelled := jobSet("off", "labelled", replicated("a", 1, 2, "2"), replicated("b", 2, 1, "2"))
	labelled.Labels = queued
	for i := range labelled.Spec.ReplicatedJobs {
		labelled.Spec.ReplicatedJobs[i].Template.Spec.Template.Labels = queued
	}
	lark := trainJob("off", "lark", 2)
	c.create(t, etl, labelled, lark)
	wait.Until(t, "the JobSet completes", c.ends(t, etl, jobsetv1alpha2.TerminalStateCompleted))
	wait.Until(t, "the JobSet with a queue completes", c.ends(t, labelled, jobsetv1alpha2.TerminalStateCompleted))
	wait.Until(t, "the Job completes", c.completed(t, early))
	wait.Until(t, "the TrainJob completes", func() error {
		if err := c.get(t, lark); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(lark.Status.Conditions, "Complete") {
			return fmt.Errorf("%+v", lark.Status)
		}
		return nil
	})
	c.are(t, "the pods of the Deployment run", "off", client.MatchingLabels{"app": "web"}, map[string]int{"Running": 2})
	if len(lark.Spec.RuntimePatches) > 0 || len(web.Spec.Template.Annotations) > 0 {
		t.Errorf("the TrainJob has the patches %v, the template the annotations %v", lark.Spec.RuntimePatches, web.Spec.Template.Annotations)
	}
	c.untouched(t, "off")

	t.Run("a Job in a managed namespace", func(t *testing.T) {
		plain := job("on", "plain", "", 1, "600")
		c.create(t, plain)
		wait.Until(t, "it waits, and that is told", func() error {
			if _, err := c.workloadOf(t, plain); err != nil || !isSuspended(plain) {
				return errors.Join(err, fmt.Errorf("suspended %v", isSuspended(plain)))
			}
			return c.tells(t, plain, "CreatedWorkload")
		})
	})
	t.Run("the labels change", func(t *testing.T) { c.testRelabelled(t, off) })
}

// testRelabelled labels the namespace as managed and unlabels it again, while a JobSet runs.
func (c *cluster) testRelabelled(t *testing.T, off *corev1.Namespace) {
	long := jobSet("off", "long", replicated("a", 2, 1, "600"))
	c.create(t, long)
	in := client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: "long"}
	c.are(t, "it runs", "off", in, map[string]int{"Running": 2})
	c.patch(t, off, `{"metadata":{"labels":{"queueing":"on"}}}`)
	wait.Until(t, "it is stopped and queued", func() error {
		if _, err := c.workloadOf(t, long); err != nil {
			return err
		}
		if err := c.get(t, long); err != nil || long.Spec.Suspend == nil || !*long.Spec.Suspend {
			return errors.Join(err, errors.New("not suspended"))
		}
		return nil
	})
	c.patch(t, off, `{"metadata":{"labels":{"queueing":"off"}}}`)
	wait.Until(t, "its workload ends", func() error {
		w, err := c.workloadOf(t, long)
		if err == nil && (!hasCondition(kueue.WorkloadFinished, kueue.ReasonOutOfSync)(w) || len(w.Finalizers) > 0) {
			err = fmt.Errorf("%+v, finalizers %v", w.Status.Conditions, w.Finalizers)
		}
		return err
	})
	resumed := func() error {
		if err := c.get(t, long); err != nil || *long.Spec.Suspend {
			return errors.Join(err, fmt.Errorf("suspend %t", *long.Spec.Suspend))
		}
		return nil
	}
	wait.Until(t, "it is given back", resumed) // its first pods may still run
	c.are(t, "it runs again", "off", in, map[string]int{"Running": 2})
	wait.Stays(t, time.Second, "it is not stopped", resumed)
}

// tells is nil once exactly these events of the queueing side exist about an object.
func (c *cluster) tells(t *testing.T, o client.Object, want ...string) error {
	t.Helper()
	var list eventsv1.EventList
	if err := c.List(context.Background(), &list, client.InNamespace(o.GetNamespace())); err != nil {
		return err
	}
	var got []string
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.UID == o.GetUID() && strings.HasSuffix(e.ReportingController, "-kueue-controller") {
			got = append(got, e.Reason)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("events %v, want %v", got, want)
	}
	return nil
}

// untouched looks for traces of the queueing side in a namespace: Workloads, events, and on any job or pod its field managers, its labels
// and annotations, and unexpected changes.
func (c *cluster) untouched(t *testing.T, namespace string) {
	t.Helper()
	for _, list := range []client.ObjectList{
		&kueue.WorkloadList{}, &eventsv1.EventList{}, &batchv1.JobList{}, &corev1.PodList{}, &jobsetv1alpha2.JobSetList{},
		&trainerv1alpha1.TrainJobList{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSetList{},
	} {
		if err := c.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		objects, err := apimeta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range objects {
			o := raw.(client.Object)
			what := fmt.Sprintf("%T %s", o, o.GetName())
			switch e := o.(type) {
			case *kueue.Workload:
				t.Error(what)
			case *eventsv1.Event:
				if strings.HasSuffix(e.ReportingController, "-kueue-controller") {
					t.Errorf("event %s on %s", e.Reason, e.Regarding.Name)
				}
			case *batchv1.Job:
				if e.Generation != 1 {
					t.Errorf("%s was changed %d times", what, e.Generation-1)
				}
			}
			for _, m := range o.GetManagedFields() {
				if strings.HasPrefix(m.Manager, "kueue") {
					t.Errorf("%s was written by %s", what, m.Manager)
				}
			}
			labels := o.GetLabels()
			delete(labels, kueue.QueueNameLabel)
			for _, text := range []any{labels, o.GetAnnotations(), o.GetFinalizers()} {
				if data, err := json.Marshal(text); err != nil || strings.Contains(string(data), "kueue.x-k8s.io") {
					t.Errorf("%s carries %s (%v)", what, data, err)
				}
			}
			if pod, ok := o.(*corev1.Pod); ok && len(pod.Spec.SchedulingGates) > 0 {
				t.Errorf("%s waits: %v", what, pod.Spec.SchedulingGates)
			}
		}
	}
}
