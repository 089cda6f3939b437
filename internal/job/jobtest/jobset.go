package jobtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// jobSetController stands in for the JobSet controller: it creates the child Jobs, and resumes suspended ones.
type jobSetController struct {
	*world
	name    string
	resumed atomic.Int64
}

// start runs the controller until the returned function is called.
func (c *jobSetController) start() (stop func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				c.step(ctx)
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// step creates missing children and resumes suspended ones. The next step retries failed writes.
func (c *jobSetController) step(ctx context.Context) {
	set := c.jobSet(c.name)
	if c.c.Get(ctx, client.ObjectKeyFromObject(set), set) != nil {
		return
	}
	for _, name := range []string{"a", "b"} {
		j := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Name: c.name + "-" + name + "-0", Namespace: c.namespace,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, set.GroupVersionKind())},
			},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x"}},
			}}},
		}
		if c.c.Create(ctx, j) == nil || c.c.Get(ctx, client.ObjectKeyFromObject(j), j) != nil || j.Spec.Suspend == nil || !*j.Spec.Suspend {
			continue
		}
		j.Spec.Suspend = new(false)
		if c.c.Update(ctx, j) == nil {
			c.resumed.Add(1)
		}
	}
}

func (c *jobSetController) children() ([]batchv1.Job, error) {
	var list batchv1.JobList
	err := c.c.List(c.ctx, &list, client.InNamespace(c.namespace))
	var out []batchv1.Job
	for _, j := range list.Items {
		if o := metav1.GetControllerOf(&j); o != nil && o.Kind == "JobSet" && o.Name == c.name {
			out = append(out, j)
		}
	}
	return out, err
}

// err is nil once there are n children.
func (c *jobSetController) err(n int) error {
	got, err := c.children()
	if err == nil && len(got) != n {
		err = fmt.Errorf("%d child Jobs", len(got))
	}
	return err
}

// finish ends the children and the JobSet.
func (c *jobSetController) finish() error {
	list, err := c.children()
	if err != nil {
		return err
	}
	now := metav1.Now()
	for i := range list {
		j := &list[i]
		j.Status.StartTime, j.Status.CompletionTime, j.Status.Succeeded = &now, &now, 1
		j.Status.Conditions = []batchv1.JobCondition{
			{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now},
		}
		if err := c.c.Status().Update(c.ctx, j); err != nil {
			return err
		}
	}
	set := c.jobSet(c.name)
	patch := `{"status":{"conditions":[{"type":"Completed","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-02T03:05:05Z"}]}}`
	return c.c.Status().Patch(c.ctx, set, client.RawPatch("application/merge-patch+json", []byte(patch)))
}
