package training

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// apply creates what a file has.
func (k *cluster) apply(path string) {
	k.t.Helper()
	data, err := os.ReadFile(path)
	k.must(err)
	for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		u := &unstructured.Unstructured{}
		err := docs.Decode(u)
		if errors.Is(err, io.EOF) {
			return
		}
		k.must(err)
		k.create(u)
	}
}

// TestStartRefused: the optional policy refuses the queue's write that starts a TrainJob, since the manager is not configured as an
// owner. That is final: the Workload fails, with the reason (spec: 50 §4.10).
func TestStartRefused(t *testing.T) {
	k := start(t)
	k.queues()
	k.create(newJob("probe", "", "{suspend: true, runtimeRef: {name: torch-distributed}}"))
	manager := rest.CopyConfig(k.admin)
	manager.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + options.Default().Namespace + ":kueue-controller-manager", Groups: []string{"system:authenticated"},
	}
	c, err := client.New(manager, client.Options{Scheme: install.Scheme()})
	k.must(err)
	probe := func() error {
		job := k.trainJob("probe")
		before := job.DeepCopy()
		job.Spec.RuntimePatches = append(job.Spec.RuntimePatches, *parse[trainerv1alpha1.RuntimePatch](
			"{manager: kueue.x-k8s.io/manager, trainingRuntimeSpec: {template: {metadata: {labels: {a: b}}}}}"))
		return c.Patch(k.ctx, job, client.MergeFrom(before), client.DryRunAll)
	}
	made := len(k.made)
	k.apply("../../config/training/optional/runtime-patch-owners.yaml")
	policy := slices.Clone(k.made[made:])
	t.Cleanup(func() {
		k.ctx = context.WithoutCancel(k.ctx)
		for _, o := range policy {
			k.must(k.c.Delete(k.ctx, o))
		}
		wait.Until(k.t, "the policy is in force no more", probe)
	})
	wait.Until(k.t, "the policy is in force", func() error {
		if err := probe(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "another actor owns the entries") {
			return fmt.Errorf("it is not: %w", err)
		}
		return nil
	})
	k.create(newJob("lark", "train", "{runtimeRef: {name: torch-distributed}, trainer: {resourcesPerNode: {requests: {cpu: 1}}}}"))
	wait.Until(k.t, "its Workload fails", func() error {
		var list kueue.WorkloadList
		k.must(k.c.List(k.ctx, &list, client.InNamespace("lab")))
		for i := range list.Items {
			c := apimeta.FindStatusCondition(list.Items[i].Status.Conditions, kueue.WorkloadFinished)
			if c != nil && c.Reason == kueue.ReasonFailedToStart && strings.Contains(c.Message, "another actor owns the entries of kueue.x-k8s.io/manager") {
				return nil
			}
		}
		return fmt.Errorf("%+v", list.Items)
	})
	if job := k.trainJob("lark"); job.Spec.Suspend == nil || !*job.Spec.Suspend || len(k.pods("lark")) > 0 {
		t.Errorf("it is not suspended: %+v", job.Spec)
	}
}

// TestOwnersWithoutWebhook holds the optional policy about the owners of runtime patches against an API server that calls no
// webhook (spec: 50 §4.13.2).
func TestOwnersWithoutWebhook(t *testing.T) {
	admin, err := clientcmd.BuildConfigFromFlags("", embeddedtest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	admin.QPS, admin.WarningHandler = -1, rest.NoWarnings{}
	k := &cluster{t: t, ctx: t.Context(), admin: admin}
	k.c, err = client.New(admin, client.Options{Scheme: install.Scheme()})
	k.must(err)
	for _, name := range []string{"kubeflow-system", "lab"} {
		k.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	k.apply("../../config/crd/trainer.kubeflow.org_trainjobs.yaml")
	wait.Until(k.t, "TrainJobs are served", func() error { return k.c.List(k.ctx, &trainerv1alpha1.TrainJobList{}) })
	k.apply("../../config/training/access.yaml")
	k.apply("../../config/training/optional/runtime-patch-owners.yaml")
	as := func(name, role string) client.Client {
		k.create(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		})
		cfg := rest.CopyConfig(admin)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
		c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
		k.must(err)
		return c
	}
	ann, queue := as("ann", "kubeflow-trainer-edit"), as("queue", "kubeflow-trainer-edit")
	as("queue", "kubeflow-trainer-queue-patches")

	const skeleton = "{manager: kueue.x-k8s.io/manager, trainingRuntimeSpec: {template: {spec: {}}}}"
	entry := func(manager, zone string) trainerv1alpha1.RuntimePatch {
		return *parse[trainerv1alpha1.RuntimePatch]("{manager: " + manager + ", trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {nodeSelector: {zone: " + zone + "}}}}}}]}}}}")
	}
	filled := func(name string) *trainerv1alpha1.TrainJob {
		job := newJob(name, "", "{suspend: true, runtimeRef: {name: any}}")
		job.Spec.RuntimePatches = []trainerv1alpha1.RuntimePatch{entry("kueue.x-k8s.io/manager", "a")}
		return job
	}
	wait.Until(k.t, "the policy is in force", func() error {
		err := ann.Create(k.ctx, filled("probe"))
		switch {
		case apierrors.IsForbidden(err):
			return nil
		case err == nil:
			k.must(k.c.Delete(k.ctx, filled("probe")))
		}
		return fmt.Errorf("it is not: %w", err)
	})
	// change writes the first entries of a TrainJob that is stored.
	change := func(c client.Client, f func(*trainerv1alpha1.TrainJob)) error {
		for {
			job := k.trainJob("lark")
			f(job)
			if err := c.Update(k.ctx, job); !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	denied := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "another actor owns the entries of kueue.x-k8s.io/manager") {
			t.Errorf("%s: %v", what, err)
		}
	}
	denied("a filled entry of the queue in a new TrainJob", ann.Create(k.ctx, filled("copy")))
	k.must(ann.Create(k.ctx, newJob("lark", "", "{suspend: true, runtimeRef: {name: any}, runtimePatches: ["+skeleton+"]}")))
	fill := func(zone string) func(*trainerv1alpha1.TrainJob) {
		return func(j *trainerv1alpha1.TrainJob) { j.Spec.RuntimePatches[0] = entry("kueue.x-k8s.io/manager", zone) }
	}
	denied("filling it", change(ann, fill("a")))
	k.must(change(queue, fill("a")))
	denied("changing it", change(ann, fill("b")))
	denied("removing it", change(ann, func(j *trainerv1alpha1.TrainJob) { j.Spec.RuntimePatches = nil }))
	k.must(change(ann, func(j *trainerv1alpha1.TrainJob) { // her own entry, with the time of the other one
		j.Spec.RuntimePatches[0].Time = &metav1.Time{Time: time.Now().Truncate(time.Second)}
		j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, entry("ann.io/x", "c"))
	}))
	k.must(change(k.c, fill("d"))) // an administrator of the cluster
}
