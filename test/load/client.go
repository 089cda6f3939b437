package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// attempts are how often a write is tried, with a pause before each next time.
const (
	attempts   = 6
	firstPause = 50 * time.Millisecond
)

// placeholder stands for the name in an encoded workload.
const placeholder = "NAME-OF-THE-WORKLOAD"

// owner makes the writes of a job's owner. It encodes objects once where possible, and
// does not decode answers.
type owner struct {
	shape  *shape
	rest   rest.Interface
	bodies [][2][]byte // of the workloads of a queue and class: the text before and after the name
	// machine makes conditions as jobs' own controllers do.
	machine lifecycle.Machine
}

// newScheme has the types that the generator reads and writes.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(corev1.AddToScheme(s), kueue.AddToScheme(s))
}

// newOwner connects without a limit on requests.
func newOwner(cfg *rest.Config, s *shape) (*owner, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.APIPath = &kueue.GroupVersion, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.QPS, cfg.UserAgent = -1, "berth-load"
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	o := &owner{shape: s, rest: c}
	for cohort := range s.cohorts {
		for queue := range s.queues {
			for k := range s.classes {
				body, err := json.Marshal(newWorkload(s, cohort, queue, k))
				if err != nil {
					return nil, err
				}
				before, after, ok := bytes.Cut(body, []byte(placeholder))
				if !ok {
					return nil, fmt.Errorf("no name in %s", body)
				}
				o.bodies = append(o.bodies, [2][]byte{before, after})
			}
		}
	}
	return o, nil
}

// newWorkload is a workload of a class, with the placeholder for its name.
func newWorkload(s *shape, cohort, queue, k int) *kueue.Workload {
	c := &s.classes[k]
	pods := max(1, c.pods)
	w := &kueue.Workload{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.GroupVersion.String(), Kind: "Workload"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cohortName(cohort), Name: placeholder, Labels: map[string]string{"class": c.name}},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(queueName(cohort, queue)), Priority: &c.priority,
			PodSets: []kueue.PodSet{{Name: "main", Count: pods, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{
					Name: "main", Image: "any",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(c.cpu/int64(pods), resource.DecimalSI)}},
				}},
			}}}},
		},
	}
	if s.nodes > 0 {
		w.Spec.PodSets[0].TopologyRequest = c.request()
	}
	return w
}

// create creates a workload.
func (o *owner) create(ctx context.Context, a *arrival) error {
	b := o.bodies[(a.cohort*o.shape.queues+a.queue)*len(o.shape.classes)+a.class]
	name := o.shape.workloadName(a)
	body := bytes.Join([][]byte{b[0], []byte(name), b[1]}, nil)
	return o.retry(ctx, "creating "+name, func() (bool, error) {
		err := o.rest.Post().Namespace(cohortName(a.cohort)).Resource("workloads").
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
		return apierrors.IsAlreadyExists(err), err // true if an answer was lost
	})
}

// finish marks the job of a workload as succeeded: it adds one condition, whatever else the status has.
func (o *owner) finish(ctx context.Context, a *arrival) error {
	name := o.shape.workloadName(a)
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: cohortName(a.cohort), Name: name, Generation: 1}}
	o.machine.Finish(w, kueue.ReasonSucceeded, "It ran for its time", metav1.Now())
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	body, err := json.Marshal([]operation{{"add", "/status/conditions/-", *lifecycle.Condition(w, kueue.WorkloadFinished)}})
	if err != nil {
		return err
	}
	return o.retry(ctx, "finishing "+name, func() (bool, error) {
		err := o.patchStatus(ctx, types.JSONPatchType, w, body)
		if err == nil {
			return true, nil
		}
		now, getErr := o.get(ctx, w)
		return getErr == nil && lifecycle.IsFinished(now), err
	})
}

// release releases the quota of an evicted workload, in one write that is refused if the workload has changed since; then it retries
// (spec: 10 §4.11).
func (o *owner) release(ctx context.Context, w *kueue.Workload) error {
	return o.retry(ctx, "releasing "+w.Name, func() (bool, error) {
		next := w.DeepCopy()
		if !o.machine.Release(next, false, metav1.Now()) {
			return true, nil // finished, or released by an attempt whose answer was lost
		}
		body, err := client.MergeFromWithOptions(w, client.MergeFromWithOptimisticLock{}).Data(next)
		if err != nil {
			return false, err
		}
		err = o.patchStatus(ctx, types.MergePatchType, w, body)
		if err != nil {
			if now, getErr := o.get(ctx, w); getErr == nil {
				w = now
			}
		}
		return false, err
	})
}

func (o *owner) patchStatus(ctx context.Context, kind types.PatchType, w *kueue.Workload, body []byte) error {
	return o.rest.Patch(kind).Namespace(w.Namespace).Resource("workloads").Name(w.Name).SubResource("status").Body(body).Do(ctx).Error()
}

func (o *owner) get(ctx context.Context, w *kueue.Workload) (*kueue.Workload, error) {
	out := &kueue.Workload{}
	return out, o.rest.Get().Namespace(w.Namespace).Resource("workloads").Name(w.Name).Do(ctx).Into(out)
}

// count asks how many workloads there are, without reading them all.
func (o *owner) count(ctx context.Context) (int, error) {
	var list kueue.WorkloadList
	if err := o.rest.Get().Resource("workloads").Param("limit", "1").Do(ctx).Into(&list); err != nil {
		return 0, fmt.Errorf("counting workloads: %w", err)
	}
	n := len(list.Items)
	if list.RemainingItemCount != nil {
		n += int(*list.RemainingItemCount)
	}
	return n, nil
}

// retry retries until it succeeds, the work is done anyway, or an attempt is pointless.
func (o *owner) retry(ctx context.Context, what string, try func() (done bool, err error)) error {
	pause := firstPause
	for n := 1; ; n++ {
		done, err := try()
		switch {
		case err == nil, done:
			return nil
		case n == attempts, ctx.Err() != nil:
			return fmt.Errorf("%s: %w", what, err)
		}
		if !apierrors.IsConflict(err) {
			time.Sleep(pause)
			pause *= 2
		}
	}
}
