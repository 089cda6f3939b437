package takeover

import (
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// kindsEndThere ends the jobs of other kinds on the worker cluster, one of them after it has grown, and waits for their ends on the hub. The
// StatefulSet runs on.
func (h *hubAndWorker) kindsEndThere() {
	h.hub.Helper()
	h.growsThere()
	for _, name := range []string{"ring-worker-0", "ring-worker-1", "training-node-0", "bare-node-0", "elastic"} {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}}
		h.worker.get(j)
		h.worker.complete(j)
	}
	rj := &unstructured.Unstructured{}
	rj.SetGroupVersionKind(rayJob)
	h.worker.try(h.worker.Get(h.worker.Context(), client.ObjectKey{Namespace: team, Name: "rays"}, rj))
	rj.Object["status"] = map[string]any{"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"}
	h.worker.writeStatus("kuberay-operator", rj)
	for i := range 2 {
		p := member(i, "sent")
		h.worker.get(p)
		p.Status.Phase = corev1.PodSucceeded
		h.worker.writeStatus(byKubelet, p)
	}
	// The garbage collection does not run.
	leaders := servers[1].object(h.hub.world)
	of := metav1.ObjectMeta{Namespace: team, Name: "leaders"}
	h.hub.try(h.hub.Delete(h.hub.Context(), leaders), h.hub.Delete(h.hub.Context(), &appsv1.StatefulSet{ObjectMeta: of}))
	of.Name = "leaders-0"
	h.hub.try(h.hub.Delete(h.hub.Context(), &corev1.Pod{ObjectMeta: of}))

	h.hub.uses("sent", "1", "1")
	h.worker.uses("sent", "1", "1")
	h.endsArrived()
}

// growsThere gives the elastic Job a second pod on the hub: the copy that runs on the worker cluster grows.
func (h *hubAndWorker) growsThere() {
	h.hub.Helper()
	// The quota of the hub and of the worker cluster was used up.
	for _, b := range []*berth{h.hub, h.worker} {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "sent"}}
		b.get(cq)
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("13")
		b.write(byUser, cq)
	}
	before := elasticJob("sent")
	h.worker.get(before)
	j := elasticJob("sent")
	h.hub.get(j)
	j.Spec.Parallelism = new(int32(2))
	h.hub.write(byUser, j)
	wait.Until(h.hub.T, "the copy of the elastic Job grows", func() error {
		now := elasticJob("sent")
		h.worker.get(now)
		if now.UID != before.UID || *now.Spec.Suspend {
			return fmt.Errorf("its UID is %s, and was %s; suspend is %t", now.UID, before.UID, *now.Spec.Suspend)
		}
		if n := *now.Spec.Parallelism; n != 2 {
			return fmt.Errorf("parallelism is %d", n)
		}
		return nil
	})
	h.hub.uses("sent", "13", "13")
}

// endsArrived waits until the hub has the statuses of the ended jobs, and the worker cluster nothing of them.
func (h *hubAndWorker) endsArrived() {
	h.hub.Helper()
	wait.Until(h.hub.T, "the jobs have ended on the hub", func() error {
		for _, wl := range h.hub.workloads() {
			if wl.Spec.QueueName == "sent" && !strings.HasPrefix(wl.Name, "statefulset-") && !strings.HasPrefix(wl.Name, "leaderworkerset-") {
				if end := conditions(&wl)["Finished"]; end != "True/Succeeded" && end != "True/WorkloadSliceReplaced" {
					return fmt.Errorf("%s: Finished is %q", wl.Name, end)
				}
			}
		}
		for i := range 2 {
			p := member(i, "sent")
			h.hub.get(p)
			if p.Status.Phase != corev1.PodSucceeded || len(p.Finalizers) > 0 {
				return fmt.Errorf("%s: phase %s, finalizers %v", p.Name, p.Status.Phase, p.Finalizers)
			}
		}
		return nil
	})
	for _, at := range []struct {
		gvk                schema.GroupVersionKind
		name, field, wants string
	}{
		{jobsetv1alpha2.GroupVersion.WithKind(jobsetv1alpha2.KindJobSet), "ring", "terminalState", "Completed"},
		{rayJob, "rays", "jobStatus", "SUCCEEDED"},
		{batchv1.SchemeGroupVersion.WithKind("Job"), "elastic", "succeeded", "4"},
	} {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(at.gvk)
		h.hub.try(h.hub.Get(h.hub.Context(), client.ObjectKey{Namespace: team, Name: at.name}, o))
		if got, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", at.field); fmt.Sprint(got) != at.wants {
			h.hub.Errorf("%s %s: status %v", at.gvk.Kind, at.name, o.Object["status"])
		}
	}
	wait.Until(h.hub.T, "the copies of ended jobs are removed", func() error {
		for _, wl := range h.worker.workloads() {
			if wl.Spec.QueueName == "sent" && !strings.HasPrefix(wl.Name, "statefulset-") {
				return errors.New(wl.Name + " is there")
			}
		}
		return nil
	})
}
