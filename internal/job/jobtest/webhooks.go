package jobtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/webhook"
	"github.com/berth-project/berth/internal/review/reviewtest"
)

// RunWebhooks tests the common behaviour of the webhooks of all kinds, called by a real API server: a queued job waits from its
// creation, mistakes are refused with the paths of their fields, a running job cannot be queued, and in an unmanaged namespace no
// object is changed or refused (spec: 30 §3).
func RunWebhooks(t *testing.T, kinds []*Kind) {
	all := (&Kind{}).parallel(t)
	var descriptors []*job.Descriptor
	for _, k := range kinds {
		descriptors = append(descriptors, k.Descriptor)
		all.Objects = append(all.Objects, k.Objects...)
	}
	w := newWorld(t, all, descriptors)
	w.serveWebhooks()
	off := w.newNamespace("no")
	for _, k := range kinds {
		t.Run(k.Descriptor.Framework, func(t *testing.T) {
			at := *w
			at.t, at.kind = t, k
			if k.Descriptor.Serving {
				at.served(off)
			} else {
				at.hooked(off)
			}
		})
	}
}

// serveWebhooks runs a manager with webhooks only, and registers them.
func (w *world) serveWebhooks() {
	w.t.Helper()
	server, url, ca := reviewtest.NewServer(w.t)
	mgr, err := ctrl.NewManager(w.plain, ctrl.Options{Scheme: newScheme(), Metrics: metricsserver.Options{BindAddress: "0"}, WebhookServer: server})
	w.must(err)
	o := admission.Options{Options: webhook.Options{
		Jobs: w.cfg, Descriptors: w.kinds, Namespaces: metav1.LabelSelector{MatchLabels: map[string]string{"managed": "yes"}},
	}}
	w.must(admission.Setup(mgr, o))
	mutating, validating := admission.Configurations(admission.Target{URL: url, CABundle: ca}, o)
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.t.Cleanup(func() {
		_ = w.c.Delete(context.Background(), mutating)
		_ = w.c.Delete(context.Background(), validating)
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("manager: %v", err)
		}
	})
	w.must(w.c.Create(w.ctx, mutating))
	w.must(w.c.Create(w.ctx, validating))
}

// written is the job of the manifest as a user writes it, not suspended.
func (w *world) written(name, namespace string, labels map[string]string) *unstructured.Unstructured {
	w.t.Helper()
	u := parse(w.t, w.kind.Manifest)
	u.SetName(name)
	u.SetNamespace(namespace)
	u.SetLabels(labels)
	return u
}

// isSuspended reads the job as the descriptor takes it.
func (w *world) isSuspended(u *unstructured.Unstructured) bool {
	w.t.Helper()
	o := w.kind.Descriptor.New()
	w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(u), o))
	return w.kind.Descriptor.IsSuspended(o)
}

func (w *world) refused(err error, paths ...string) {
	w.t.Helper()
	if !apierrors.IsForbidden(err) {
		w.t.Errorf("got %v, want a refusal that names %v", err, paths)
		return
	}
	for _, p := range paths {
		if !strings.Contains(err.Error(), p) {
			w.t.Errorf("%q does not name %s", err, p)
		}
	}
}

// hooked is the part of the suite for one kind. off is an unmanaged namespace.
func (w *world) hooked(off string) {
	kind := strings.ToLower(w.kind.Descriptor.GVK.Kind)
	queue := map[string]string{kueue.QueueNameLabel: "lq"}
	bad := map[string]string{kueue.QueueNameLabel: "No_DNS", kueue.MaxExecTimeSecondsLabel: "0", berthv1alpha1.ExpectedRunSecondsKey: "soon"}
	wait.Until(w.t, "the webhook answers", func() error {
		probe := w.written(kind+"-probe", w.namespace, bad)
		if err := w.c.Create(w.ctx, probe, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w", errors.Join(err, errors.New("want a refusal")))
		}
		return nil
	})
	queued := w.written(kind+"-queued", w.namespace, queue)
	w.must(w.c.Create(w.ctx, queued))
	if !w.isSuspended(queued) {
		w.t.Error("a job with a queue does not wait")
	}
	if !job.IsSuspendedByBerth(queued) {
		w.t.Error("a job that the webhook suspended is not marked")
	}
	if d := w.kind.Descriptor; d.Once == nil && !w.kind.Ends { // a user cannot create a suspended pod
		mine := d.New()
		w.must(runtime.DefaultUnstructuredConverter.FromUnstructured(w.written(kind+"-mine", w.namespace, queue).Object, mine))
		d.Suspend(mine)
		w.must(w.c.Create(w.ctx, mine))
		if job.IsSuspendedByBerth(mine) {
			w.t.Error("a job that its user suspended is marked")
		}
	}
	w.refused(w.c.Create(w.ctx, w.written(kind+"-bad", w.namespace, bad)),
		"metadata.labels[kueue.x-k8s.io/queue-name]", "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]",
		"metadata.labels[berth.dev/expected-run-seconds]")
	orphan := w.written(kind+"-orphan", w.namespace, queue)
	orphan.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: cronJob.GroupVersion().String(), Kind: cronJob.Kind, Name: "nobody", UID: "1", Controller: new(true),
	}})
	w.refused(w.c.Create(w.ctx, orphan), "metadata.ownerReferences", "nobody")
	free := w.written(kind+"-free", w.namespace, nil)
	w.must(w.c.Create(w.ctx, free))
	if w.isSuspended(free) {
		w.t.Error("a job without a queue waits")
	}
	free.SetLabels(queue)
	w.refused(w.c.Update(w.ctx, free), "metadata.labels[kueue.x-k8s.io/queue-name]")
	bad[kueue.QueueNameLabel] = "lq"
	alone := w.written(kind+"-alone", off, bad)
	alone.SetOwnerReferences(orphan.GetOwnerReferences())
	w.must(w.c.Create(w.ctx, alone))
	if w.isSuspended(alone) {
		w.t.Error("a job in a namespace that is off limits waits")
	}
}

// served is a Deployment: its pods are marked only where it is queued in a managed namespace (spec: 30 §7 examples 3 and 8).
func (w *world) served(off string) {
	create := func(name, namespace string, labels map[string]string) map[string]any {
		u := parse(w.t, "{apiVersion: apps/v1, kind: Deployment, "+specs["Deployment"][1:])
		u.SetName(name)
		u.SetNamespace(namespace)
		u.SetLabels(labels)
		w.must(w.c.Create(w.ctx, u))
		marks, _, err := unstructured.NestedMap(u.Object, "spec", "template", "metadata", "annotations")
		w.must(err)
		return marks
	}
	queue := map[string]string{kueue.QueueNameLabel: "lq"}
	if marks := create("queued", w.namespace, queue); marks[kueue.PodSuspendingParentAnnotation] != "deployment" {
		w.t.Errorf("pods of a queued Deployment are marked %v", marks)
	}
	if marks := create("free", w.namespace, nil); len(marks) > 0 {
		w.t.Errorf("pods of a Deployment without a queue are marked %v", marks)
	}
	if marks := create("alone", off, queue); len(marks) > 0 {
		w.t.Errorf("pods in a namespace that is off limits are marked %v", marks)
	}
	for namespace, gates := range map[string]int{w.namespace: 2, off: 0} {
		pod := parse(w.t, "{apiVersion: v1, kind: Pod, "+specs["Pod"][1:])
		pod.SetName("of-a-deployment")
		pod.SetNamespace(namespace)
		w.must(w.c.Create(w.ctx, pod))
		if got, _, _ := unstructured.NestedSlice(pod.Object, "spec", "schedulingGates"); len(got) != gates {
			w.t.Errorf("a marked pod in %s has gates %v, want %d", namespace, got, gates)
		}
	}
}
