package install

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestApplyAgain: an apply that the API server was too busy for is tried again, and one that it refused is not.
func TestApplyAgain(t *testing.T) {
	pause := tries.Duration
	tries.Duration = 0
	t.Cleanup(func() { tries.Duration = pause })
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, tc := range map[string]struct {
		err   error
		times int // that it fails
		calls int
		fails bool
	}{
		"it times out once": {apierrors.NewTimeoutError("too slow", 1), 1, 2, false},
		"it always does":    {apierrors.NewServerTimeout(resource, "patch", 1), 99, tries.Steps, true},
		"it is forbidden":   {apierrors.NewForbidden(resource, "c", nil), 1, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			c := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					if calls++; calls <= tc.times {
						return tc.err
					}
					return nil
				},
			}).Build()
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}}}
			if err := apply(t.Context(), c, u); (err != nil) != tc.fails || calls != tc.calls {
				t.Errorf("%v after %d calls, want %d", err, calls, tc.calls)
			}
		})
	}
}

// TestPutAll: objects of a kind are applied at the same time, and one that is refused is named.
func TestPutAll(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "clusterroles"}, "second", nil)
	for name, want := range map[string]error{"all": nil, "one is refused": refused} {
		t.Run(name, func(t *testing.T) {
			var objects []*unstructured.Unstructured
			for _, name := range []string{"first", "second"} {
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
				u.SetName(name)
				objects = append(objects, u)
			}
			var begun atomic.Int32
			met := make(chan struct{})
			c := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
				Apply: func(_ context.Context, _ client.WithWatch, _ runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
					if int(begun.Add(1)) == len(objects) {
						close(met)
						return want
					}
					select {
					case <-met:
						return nil
					case <-time.After(wait.Patience):
						return errors.New("the other one waits for this one")
					}
				},
			}).Build()
			if _, err := putAll(t.Context(), c, objects); !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), "applying ClusterRole ") {
				t.Errorf("error %v, want %v", err, want)
			}
		})
	}
}

// TestConfigRestarts: another configuration file makes other pods, the same file does not.
func TestConfigRestarts(t *testing.T) {
	template := func(config string) any {
		o := everything()
		o.Deploy = &Deploy{Image: "berth:v1", Config: config}
		objects, err := deployment(&o)
		if err != nil {
			t.Fatal(err)
		}
		d := objects[slices.IndexFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" })]
		out, _, _ := unstructured.NestedFieldNoCopy(d.Object, "spec", "template")
		return out
	}
	if first := template("a: 1"); !reflect.DeepEqual(first, template("a: 1")) || reflect.DeepEqual(first, template("a: 2")) {
		t.Errorf("the pods do not follow the file: %v", first)
	}
}

// TestSumsAreLast: a role that adds up others comes after all of them.
func TestSumsAreLast(t *testing.T) {
	objects, err := userRoles(&Options{Groups: Groups{JobSet: true}})
	if err != nil {
		t.Fatal(err)
	}
	sums := 0
	for _, u := range objects {
		switch {
		case u.Object["aggregationRule"] != nil:
			sums++
		case u.GetKind() == "ClusterRole" && sums > 0:
			t.Errorf("%s comes after a sum", u.GetName())
		}
	}
	if sums != 2 {
		t.Errorf("%d sums", sums)
	}
}

// TestHandOver: without a group its webhook configurations are removed if they lead to Berth, and stay if they are of another controller.
func TestHandOver(t *testing.T) {
	service := func(namespace, name, path string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace, Name: name, Path: &path}}
	}
	const runtimes = "/validate-trainer-kubeflow-org-v1alpha1-trainingruntime"
	for name, tc := range map[string]struct {
		groups string
		config string
		call   admissionv1.WebhookClientConfig
		stays  bool
	}{
		"training by the Service":   {"-training", admission.TrainingValidatingName, service("berth-system", "kueue-webhook-service", runtimes), false},
		"training by a URL":         {"-training", admission.TrainingValidatingName, admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1" + runtimes)}, false},
		"no webhooks at all":        {"-webhooks", admission.TrainingValidatingName, service("berth-system", "kueue-webhook-service", runtimes), false},
		"training of Berth":         {"", admission.TrainingValidatingName, service("berth-system", "kueue-webhook-service", runtimes), true},
		"training of another":       {"-training", admission.TrainingValidatingName, service("kubeflow-system", "kubeflow-trainer-controller-manager", runtimes), true},
		"JobSets without training":  {"-training", admission.JobSetValidatingName, service("berth-system", "kueue-webhook-service", "/jobset/validate-jobset"), true},
		"JobSets of Berth":          {"-jobset", admission.JobSetValidatingName, service("berth-system", "kueue-webhook-service", "/jobset/validate-jobset"), false},
		"JobSets of another":        {"-jobset", admission.JobSetValidatingName, service("jobset-system", "jobset-webhook-service", "/validate-jobset-x-k8s-io-v1alpha2-jobset"), true},
		"training without JobSets":  {"-jobset", admission.TrainingValidatingName, service("berth-system", "kueue-webhook-service", runtimes), true},
		"JobSets where both are on": {"", admission.JobSetValidatingName, service("berth-system", "kueue-webhook-service", "/jobset/validate-jobset"), true},
	} {
		t.Run(name, func(t *testing.T) {
			groups, err := ParseGroups(tc.groups)
			if err != nil {
				t.Fatal(err)
			}
			config := &admissionv1.ValidatingWebhookConfiguration{Webhooks: []admissionv1.ValidatingWebhook{{Name: "any.example.com", ClientConfig: tc.call}}}
			config.Name = tc.config
			c := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(config).Build()
			if err := handOver(t.Context(), c, &Options{Groups: groups, Namespace: "berth-system"}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(config), config); apierrors.IsNotFound(err) == tc.stays {
				t.Errorf("it stays: want %t, got %v", tc.stays, err)
			}
		})
	}
}
