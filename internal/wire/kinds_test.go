package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/metrics"
	"github.com/berth-project/berth/internal/options"
)

var (
	pipelineRun = schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: "PipelineRun"}
	flow        = schema.GroupVersionKind{Group: "flow.example.com", Version: "v1", Kind: "Flow"}
)

// object returns an object of the kind, in queue lq unless that is empty.
func object(t *testing.T, gvk schema.GroupVersionKind, name, queue, rest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(rest), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace("default")
	u.SetName(name)
	if queue != "" {
		u.SetLabels(map[string]string{kueue.QueueNameLabel: queue})
	}
	return u
}

// manage installs the manifests of the options, and runs a manager with only their access rules until the test ends.
func manage(t *testing.T, admin *rest.Config, o options.Options) client.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o.LeaderElection.Enabled = false
	o.Health.Address = "0"
	if !strings.HasPrefix(o.Metrics.Address, "127.0.0.1:") {
		o.Metrics.Address = "0"
	}
	o.Webhook.Host, o.Webhook.Port = "127.0.0.1", embeddedtest.FreePort(t)
	o.VisibilityAddress = "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t))
	groups, err := install.ParseGroups("-training")
	if err != nil {
		t.Fatal(err)
	}
	url := "https://127.0.0.1:" + strconv.Itoa(o.Webhook.Port)
	if err := install.Apply(ctx, admin, install.Options{WebhookURL: url, Options: o, Groups: groups}, io.Discard); err != nil {
		t.Fatal(err)
	}
	account := rest.CopyConfig(admin)
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + o.Namespace + ":kueue-controller-manager",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{REST: account, Options: o, Groups: groups, WebhookURL: url, OnReady: func() { close(ready) }, Log: testr.New(t), Build: metrics.Build{Commit: "abc"}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	wait.Ready(t, "the manager", ready, ended)
	c, err := client.New(admin, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConfiguredKinds runs the example of a declared kind, and the children of an external one, with a manager that has only the access
// rules that were installed for them. Their CRDs are created while it runs.
func TestConfiguredKinds(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	o, err := options.Load("../../docs/examples/declared-kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o.ExternalFrameworks = append(o.ExternalFrameworks, flow)
	admin := embeddedtest.ConfigOf(t, embeddedtest.Start(t))
	c := manage(t, admin, o)
	ctx := t.Context()
	create := func(objects ...client.Object) {
		t.Helper()
		for _, object := range objects {
			wait.Until(t, fmt.Sprintf("%T %s is created", object, object.GetName()), func() error {
				return client.IgnoreAlreadyExists(c.Create(ctx, object))
			})
		}
	}
	quota := func(name corev1.ResourceName, n string) kueue.ResourceQuota {
		return kueue.ResourceQuota{Name: name, NominalQuota: resource.MustParse(n)}
	}
	create(embeddedtest.LooseCRD(pipelineRun, "pipelineruns"), embeddedtest.LooseCRD(flow, "flows"),
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "ci"}}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{"tekton.dev/pipelineruns", "cpu", "memory"},
				Flavors: []kueue.FlavorQuotas{{Name: "f", Resources: []kueue.ResourceQuota{
					quota("tekton.dev/pipelineruns", "1"), quota("cpu", "8"), quota("memory", "8Gi"),
				}}},
			}},
		}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}},
	)
	t.Run("declared", func(t *testing.T) { testPipelineRuns(t, c) })
	t.Run("external", func(t *testing.T) { testChildrenOfFlows(t, c) })
}

const runText = "{metadata: {annotations: {kueue.konflux-ci.dev/requests-cpu: '2'}}, spec: {pipelineRef: {name: build}}}"

func testPipelineRuns(t *testing.T, c client.Client) {
	ctx := t.Context()
	first, second := object(t, pipelineRun, "first", "lq", runText), object(t, pipelineRun, "second", "lq", runText)
	get := func(u *unstructured.Unstructured, path ...string) any {
		t.Helper()
		if err := c.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			t.Fatal(err)
		}
		value, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
		return value
	}
	for _, u := range []*unstructured.Unstructured{first, second} {
		wait.Until(t, "the kind is served", func() error { return client.IgnoreAlreadyExists(c.Create(ctx, u)) })
		if value, _, _ := unstructured.NestedString(u.Object, "spec", "status"); value != "PipelineRunPending" {
			t.Errorf("%s is created with status %q: the webhook did not make it wait", u.GetName(), value)
		}
		if u == second {
			break
		}
		wait.Until(t, "the first one runs on the nodes of its flavor", func() error {
			if pool := get(u, "spec", "taskRunTemplate", "podTemplate", "nodeSelector", "pool"); pool != "ci" || get(u, "spec", "status") != nil {
				return fmt.Errorf("%v", u.Object["spec"])
			}
			return nil
		})
	}
	wait.Until(t, "the second one is queued", func() error {
		var list kueue.WorkloadList
		if err := c.List(ctx, &list, client.InNamespace("default")); err != nil || len(list.Items) != 2 {
			return fmt.Errorf("%d workloads, %w", len(list.Items), err)
		}
		return nil
	})
	if status := get(second, "spec", "status"); status != "PipelineRunPending" {
		t.Errorf("the second one has status %v, with quota for one", status)
	}
	bad := object(t, pipelineRun, "bad", "lq", "{metadata: {annotations: {kueue.konflux-ci.dev/requests-cpu: much}}, spec: {}}")
	if err := c.Create(ctx, bad); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec: Invalid value") || !strings.Contains(err.Error(), "podSets") {
		t.Errorf("a run with a request that is no quantity: %v", err)
	}
	embeddedtest.EditStatus(t, c, first, func(run *unstructured.Unstructured) {
		run.Object["status"] = map[string]any{"startTime": "2026-01-02T03:04:05Z", "completionTime": "2026-01-02T03:04:06Z", "conditions": []any{
			map[string]any{"type": "Succeeded", "status": "True", "message": "built"},
		}}
	})
	wait.Until(t, "the second one follows", func() error {
		if status := get(second, "spec", "status"); status != nil {
			return fmt.Errorf("its status is %v", status)
		}
		return nil
	})
}

// testChildrenOfFlows is example 60 of spec 30 §7: the controller of an external kind creates the Workload, and its child Jobs wait for it.
func testChildrenOfFlows(t *testing.T, c client.Client) {
	ctx := t.Context()
	parent := object(t, flow, "nightly", "lq", "{spec: {}}")
	wait.Until(t, "the kind is served", func() error { return client.IgnoreAlreadyExists(c.Create(ctx, parent)) })
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "c", Image: "x", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100")}},
	}}}}
	owned := metav1.ObjectMeta{
		Namespace: "default", Name: "nightly", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(parent, flow)},
	}
	wl := &kueue.Workload{ObjectMeta: owned, Spec: kueue.WorkloadSpec{
		QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: template}}, // more than there is
	}}
	child := &batchv1.Job{ObjectMeta: owned, Spec: batchv1.JobSpec{Template: template}}
	for _, o := range []client.Object{wl, child} {
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	suspended := func(want bool) func() error {
		return func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(child), child); err != nil {
				return err
			}
			if got := child.Spec.Suspend != nil && *child.Spec.Suspend; got != want {
				return fmt.Errorf("suspended: %v", got)
			}
			return nil
		}
	}
	wait.Until(t, "the child waits", suspended(true))
	embeddedtest.Edit(t, c, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}}, func(q *kueue.ClusterQueue) {
		q.Spec.ResourceGroups[0].Flavors[0].Resources[1].NominalQuota = resource.MustParse("200")
	})
	wait.Until(t, "the workload of the parent is admitted", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if wl.Status.Admission == nil {
			return errors.New("it is not")
		}
		return nil
	})
	child.Spec.Suspend = new(false) // as its own controller does
	if err := c.Update(ctx, child); err != nil {
		t.Fatal(err)
	}
	wait.Stays(t, 300*time.Millisecond, "a child of an admitted workload runs", suspended(false))
	var list kueue.WorkloadList
	if err := c.List(ctx, &list, client.InNamespace("default")); err != nil || len(list.Items) != 3 {
		t.Errorf("%d workloads, want no one of the child: %v", len(list.Items), err)
	}
}
