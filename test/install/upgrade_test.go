package install

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/testr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
)

// keepsRuntime: a shipped training runtime that its users changed stays as they left it, and comes back once they delete it.
func keepsRuntime(t *testing.T, c client.Client, apply func() string) {
	t.Helper()
	ctx, key := t.Context(), client.ObjectKey{Name: "torch-distributed"}
	nodes := func() int32 {
		t.Helper()
		var r trainerv1alpha1.ClusterTrainingRuntime
		if err := c.Get(ctx, key, &r); err != nil {
			t.Fatal(err)
		}
		return *r.Spec.MLPolicy.NumNodes
	}
	shipped := nodes()
	var r trainerv1alpha1.ClusterTrainingRuntime
	if err := c.Get(ctx, key, &r); err != nil {
		t.Fatal(err)
	}
	r.Spec.MLPolicy.NumNodes = new(shipped + 6)
	if err := c.Update(ctx, &r); err != nil {
		t.Fatal(err)
	}
	if told := apply(); nodes() != shipped+6 || !strings.Contains(told, "kept training runtimes that were changed: torch-distributed; ") {
		t.Errorf("a changed runtime has %d nodes, was given %d:\n%s", nodes(), shipped+6, told)
	}
	if err := c.Delete(ctx, &r); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the runtime is gone", func() error {
		if err := c.Get(ctx, key, &r); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is read with: %w", err)
		}
		return nil
	})
	if told := apply(); nodes() != shipped || strings.Contains(told, "kept") {
		t.Errorf("a deleted runtime comes back with %d nodes, want %d:\n%s", nodes(), shipped, told)
	}
}

// Another installation exists, with objects stored as v1beta1, its own Service behind the webhooks and one webhook that Berth does not
// have. Installing over it, twice, loses no object, and the manager reads the stored objects.
func TestInstallOverAnother(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	kubeconfig := embeddedtest.Start(t)
	cfg := embeddedtest.ConfigOf(t, kubeconfig)
	c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	old := another(ctx, t, c)
	o := options.Default()
	o.LeaderElection.Enabled = false
	o.Metrics.Address, o.Health.Address = "0", "0"
	o.Webhook.Host, o.Webhook.Port = "127.0.0.1", embeddedtest.FreePort(t)
	o.VisibilityAddress = "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t))
	groups, err := install.ParseGroups("")
	if err != nil {
		t.Fatal(err)
	}
	asked := install.Options{WebhookURL: "https://127.0.0.1:" + strconv.Itoa(o.Webhook.Port), Options: o, Groups: groups}
	var crds atomic.Int64
	counted := rest.CopyConfig(cfg)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/customresourcedefinitions/") {
				crds.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	for _, again := range []bool{false, true} {
		before := crds.Load()
		if err := install.Apply(ctx, counted, asked, io.Discard); err != nil {
			t.Fatal(err)
		}
		if written := crds.Load() > before; written == again {
			t.Errorf("installed again: %v; CRDs are written: %v", again, written)
		}
	}
	account := rest.CopyConfig(cfg) // the manager has only the installed rights
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + o.Namespace + ":kueue-controller-manager",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() {
		ended <- wire.Run(running, wire.Config{
			REST: account, Options: o, Groups: groups, WebhookURL: asked.WebhookURL, OnReady: func() { close(ready) }, Log: testr.New(t),
		})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	wait.Ready(t, "the manager", ready, ended)
	var crd apiextensionsv1.CustomResourceDefinition
	if err := c.Get(ctx, client.ObjectKey{Name: "clusterqueues.kueue.x-k8s.io"}, &crd); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(crd.Status.StoredVersions); got != "[v1beta1 v1beta2]" {
		t.Errorf("stored versions are %s", got)
	}
	for version, path := range map[string][]string{"v1beta1": {"spec", "cohort"}, "v1beta2": {"spec", "cohortName"}} {
		wait.Until(t, "the stored object is read as "+version, func() error {
			read := old.DeepCopy()
			read.SetAPIVersion("kueue.x-k8s.io/" + version)
			if err := c.Get(ctx, client.ObjectKeyFromObject(old), read); err != nil {
				return err
			}
			if cohort, _, _ := unstructured.NestedString(read.Object, path...); cohort != "all" {
				return fmt.Errorf("%v is %q", path, cohort)
			}
			return nil
		})
	}
	wait.Until(t, "the object is stored as v1beta2", func() error {
		if err := c.Get(ctx, client.ObjectKey{Name: "clusterqueues.kueue.x-k8s.io"}, &crd); err != nil {
			return err
		}
		if got := fmt.Sprint(crd.Status.StoredVersions); got != "[v1beta2]" {
			return fmt.Errorf("stored versions are %s", got)
		}
		return nil
	})
	asked.OnlyV1beta2 = true
	keepsRuntime(t, c, func() string {
		var told strings.Builder
		if err := install.Apply(ctx, cfg, asked, &told); err != nil {
			t.Fatal(err)
		}
		return told.String()
	})
	for version, served := range map[string]bool{"v1beta1": false, "v1beta2": true} {
		wait.Until(t, fmt.Sprintf("%s is served: %v", version, served), func() error {
			read := old.DeepCopy()
			read.SetAPIVersion("kueue.x-k8s.io/" + version)
			if err := c.Get(ctx, client.ObjectKeyFromObject(old), read); (err == nil) != served || served != !apierrors.IsNotFound(err) {
				return fmt.Errorf("the answer is %w", err)
			}
			return nil
		})
	}
	var hooks admissionregistrationv1.ValidatingWebhookConfiguration
	if err := c.Get(ctx, client.ObjectKey{Name: "kueue-validating-webhook-configuration"}, &hooks); err != nil {
		t.Fatal(err)
	}
	for _, h := range hooks.Webhooks {
		if h.ClientConfig.Service != nil || h.ClientConfig.URL == nil || h.Name == "vsomething.kb.io" {
			t.Errorf("webhook %s of the other installation is left: %+v", h.Name, h.ClientConfig)
		}
	}
}

// another installs a CRD and a webhook like an older release of another system, and makes an object.
func another(ctx context.Context, t *testing.T, c client.Client) *unstructured.Unstructured {
	t.Helper()
	crd := installed(t)["CustomResourceDefinition /clusterqueues.kueue.x-k8s.io"]
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version := v.(map[string]any)
		version["storage"] = version["name"] == "v1beta1"
	}
	_ = unstructured.SetNestedSlice(crd.Object, versions[:0:0], "spec", "versions")
	for _, v := range versions {
		if v.(map[string]any)["name"] == "v1beta1" {
			_ = unstructured.SetNestedSlice(crd.Object, []any{v}, "spec", "versions")
		}
	}
	_ = unstructured.SetNestedField(crd.Object, "kueue-system", "spec", "conversion", "webhook", "clientConfig", "service", "namespace")
	service := admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "kueue-system", Name: "kueue-webhook-service"}, CABundle: nil,
	}
	webhook := func(name, resource string) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: service, SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}},
		}
	}
	hooks := &admissionregistrationv1.ValidatingWebhookConfiguration{
		Webhooks: []admissionregistrationv1.ValidatingWebhook{webhook("vjob.kb.io", "jobs"), webhook("vsomething.kb.io", "somethings")},
	}
	hooks.Name = "kueue-validating-webhook-configuration"
	queue := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"cohort": "all", "namespaceSelector": map[string]any{}}}}
	queue.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta1", Kind: "ClusterQueue"})
	queue.SetName("old")
	for _, object := range []client.Object{crd, hooks} {
		if err := c.Create(ctx, object, client.FieldOwner("something-else")); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "the older CRD is served", func() error { return c.Create(ctx, queue.DeepCopy()) })
	return queue
}

// The output of berth install can be applied by other tools, repeatedly, and berth install continues from there.
func TestPrintedIsApplied(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	kubeconfig := embeddedtest.Start(t)
	cfg := embeddedtest.ConfigOf(t, kubeconfig)
	c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	berth := program(t, "berth", "berth")
	printed, err := exec.Command(berth, "install", "--image", image, "--print").Output()
	if err != nil {
		t.Fatal(err)
	}
	apply := func() {
		t.Helper()
		docs := bytes.Split(printed, []byte("---\n"))
		for _, doc := range docs[1:] {
			for _, u := range objects(t, string(doc)) {
				if u.GetKind() == "ClusterTrainingRuntime" {
					wait.Until(t, "runtimes can be made", func() error {
						_, err := c.RESTMapper().RESTMapping(u.GroupVersionKind().GroupKind())
						return err
					})
				}
				if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl")); err != nil {
					t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
				}
			}
		}
	}
	apply()
	generation := func() int64 {
		u := installed(t)[deployment]
		if err := c.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			t.Fatal(err)
		}
		return u.GetGeneration()
	}
	first := generation()
	apply()
	for range 2 {
		if out, err := exec.Command(berth, "install", "--kubeconfig", kubeconfig, "--image", image).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	apply()
	if last := generation(); last != first {
		t.Errorf("the Deployment was changed by applying the same again: generation %d, then %d", first, last)
	}
}

// The arguments of the Deployment are valid for its program.
func TestDeploymentStarts(t *testing.T) {
	var args []string
	containers, _, _ := unstructured.NestedSlice(installed(t)[deployment].Object, "spec", "template", "spec", "containers")
	list, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	for _, a := range list {
		if a == "--config=/etc/berth/"+configKey {
			a = "--config=../../config/manager/" + configKey
		}
		args = append(args, a)
	}
	out, err := exec.Command(program(t, "berth", "berth"), append(args, "--kubeconfig=/nowhere")...).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("--kubeconfig: stat /nowhere")) {
		t.Errorf("want it to stop for want of an API server, got %v: %s", err, out)
	}
}
