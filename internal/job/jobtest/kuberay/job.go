package kuberay

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/job/plan/view"
)

// job is one reconcile of a RayJob, which has a cluster and, once that is ready, a Job whose pod submits it. Both are deleted when
// the job is suspended, and its status is Suspended as soon as they are deleted; their pods may still end then (spec: 30 §4.10.1).
func (k *Operator) job(ctx context.Context, j *unstructured.Unstructured, clusters []unstructured.Unstructured) {
	suspend := view.Bool(j.Object, "spec", "suspend")
	says := func(state, cluster string) {
		j.Object["status"] = map[string]any{"jobDeploymentStatus": state, "rayClusterName": cluster}
		k.write(func() error { return k.Status().Update(ctx, j) })
	}
	name := view.String(j.Object, "status", "rayClusterName")
	at := slices.IndexFunc(clusters, func(c unstructured.Unstructured) bool { return c.GetName() == name })
	submitter := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: j.GetName(), Namespace: j.GetNamespace()}}
	submits := k.Get(ctx, client.ObjectKeyFromObject(submitter), submitter) == nil
	switch state := view.String(j.Object, "status", "jobDeploymentStatus"); {
	case state == "":
		says("Initializing", k.name(j))
	case state == "Suspended" && !suspend:
		says("", "")
	case state == "Suspended":
	case state == "Suspending" && at < 0 && !submits:
		says("Suspended", "")
	case state == "Suspending":
		if at >= 0 {
			k.write(func() error { return k.Delete(ctx, &clusters[at]) })
		}
		if submits {
			k.write(func() error {
				return k.Delete(ctx, submitter, client.PropagationPolicy(metav1.DeletePropagationBackground))
			})
		}
	case state == "Waiting": // for a user's submission; suspend is ignored
	case suspend:
		says("Suspending", name)
	case at < 0:
		k.clusterOf(ctx, j, name)
	case state == "Initializing" && submits:
		says("Running", name)
	case state == "Initializing" && view.String(clusters[at].Object, "status", "state") != "ready":
	case state == "Initializing" && view.String(j.Object, "spec", "submissionMode") == "InteractiveMode":
		says("Waiting", name)
	case state == "Initializing":
		k.submit(ctx, j, submitter)
	}
}

func (k *Operator) clusterOf(ctx context.Context, j *unstructured.Unstructured, name string) {
	c := view.New(GVK("RayCluster"))
	c.SetName(name)
	c.SetNamespace(j.GetNamespace())
	c.SetLabels(j.GetLabels())
	c.SetAnnotations(j.GetAnnotations())
	c.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(j, GVK("RayJob"))})
	c.Object["spec"] = typed(view.Map(j.Object, "spec", "rayClusterSpec"))
	k.write(func() error { return k.Create(ctx, c) })
}

// submit makes the Job that submits a RayJob, and its pod, as the controller of Jobs does.
func (k *Operator) submit(ctx context.Context, j *unstructured.Unstructured, submitter *batchv1.Job) {
	if runtime.DefaultUnstructuredConverter.FromUnstructured(view.Map(j.Object, "spec", "submitterPodTemplate"), &submitter.Spec.Template) != nil {
		return
	}
	submitter.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, GVK("RayJob"))}
	k.write(func() error { return k.Create(ctx, submitter) })
	pod := &corev1.Pod{ObjectMeta: *submitter.Spec.Template.ObjectMeta.DeepCopy(), Spec: submitter.Spec.Template.Spec}
	pod.Name, pod.Namespace = fmt.Sprintf("%s-%s", j.GetName(), submitter.UID), j.GetNamespace()
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(submitter, batchv1.SchemeGroupVersion.WithKind("Job"))}
	pod.Spec.AutomountServiceAccountToken = new(false)
	k.write(func() error { return k.Create(ctx, pod) })
}
