package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/job"
)

// TestUserStop: a user suspends an admitted job, with integrations.honourUserSuspend: its quota is used by the next one, and after the
// user resumes it, it waits until that has ended (spec: 30 §6, u1).
func TestUserStop(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	t.Parallel()
	c := up(t)
	c.configured(t, `integrations:
  honourUserSuspend: true
  frameworks: [batch/job, jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob]
`)
	c.trainJobs(t, "600")
	set := jobSet("", "stopped", replicated("a", 2, 1, "600"))
	set.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
	}
	for kind, o := range map[string]client.Object{"jobs": job("", "stopped", "main", 2, "600"), "jobsets": set, "trainjobs": trainJob("", "stopped", 2)} {
		t.Run(kind, func(t *testing.T) { c.testUserStop(t, kind, o) })
	}
}

// testUserStop stops and resumes a job of two GPUs that never ends by itself, where there are two.
func (c *cluster) testUserStop(t *testing.T, namespace string, o client.Object) {
	c.queues(t, namespace, map[string]string{namespace: "2"})
	o.SetNamespace(namespace)
	o.SetLabels(map[string]string{kueue.QueueNameLabel: "main"})
	c.create(t, o)
	running := func(n int) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("%d pods run", n), func() error {
			if got := c.phases(t, namespace, client.MatchingLabels{})["Running"]; got != n {
				return fmt.Errorf("%d do", got)
			}
			return nil
		})
	}
	running(2)
	isSuspended := func() bool {
		t.Helper()
		if err := c.get(t, o); err != nil {
			t.Fatal(err)
		}
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		suspended, _, _ := unstructured.NestedBool(tree, "spec", "suspend")
		return suspended
	}
	reason := func(want string) func() error {
		return func() error {
			var list kueue.WorkloadList
			if err := c.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
				return err
			}
			for i := range list.Items {
				w := &list.Items[i]
				if owner := metav1.GetControllerOf(w); owner == nil || owner.UID != o.GetUID() {
					continue
				}
				if !hasCondition(kueue.WorkloadQuotaReserved, want)(w) {
					return fmt.Errorf("%+v", w.Status.Conditions)
				}
				return nil
			}
			return errors.New("it has no workload")
		}
	}
	c.patch(t, o, `{"spec":{"suspend":true}}`)
	wait.Until(t, "it is on hold", reason(kueue.ReasonOnHold))
	if !isSuspended() || o.GetAnnotations()[plan.UserStopAnnotation] != "true" {
		t.Errorf("suspended %v, annotations %v", isSuspended(), o.GetAnnotations())
	}
	running(0)
	next := job(namespace, "next", "main", 2, "600")
	c.create(t, next)
	wait.Until(t, "the next one runs", c.runs(t, next))

	c.patch(t, o, `{"spec":{"suspend":false}}`)
	wait.Until(t, "it is queued again", reason(kueue.ReasonWaitingForQuota))
	if !isSuspended() || o.GetAnnotations()[plan.UserStopAnnotation] != "" {
		t.Errorf("suspended %v while it waits, annotations %v", isSuspended(), o.GetAnnotations())
	}
	if err := c.Delete(context.Background(), next, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "it runs again", func() error {
		if isSuspended() {
			return errors.New("it is suspended")
		}
		return nil
	})
	running(2)
	if err := reason(kueue.ReasonQuotaReserved)(); err != nil {
		t.Error(err)
	}
}
