package embeddedtest_test

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// TestLease: the next test gets the same cluster without what the last one left, whatever that was: objects with finalizers of controllers that
// have ended, webhooks that do not answer, namespaces, and CRDs that are not to be kept.
func TestLease(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	keep := func(kind schema.GroupResource, name string) bool {
		return kind.Resource == "customresourcedefinitions" && name == "others.example.com" || kind.Resource == "clusterroles" && name == "kept"
	}
	var first string
	t.Run("leaves objects", func(t *testing.T) {
		var c client.Client
		first, c = leased(t, keep)
		held := metav1.ObjectMeta{Name: "left", Namespace: "default", Finalizers: []string{"example.com/held"}}
		thing := &unstructured.Unstructured{}
		thing.SetGroupVersionKind(gvk)
		thing.SetNamespace("made")
		thing.SetName("left")
		thing.SetFinalizers(held.Finalizers)
		other := gvk
		other.Kind = "Other"
		create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, embeddedtest.LooseCRD(gvk, "things"), embeddedtest.LooseCRD(other, "others"),
			thing, &corev1.ConfigMap{ObjectMeta: held}, &batchv1.Job{ObjectMeta: held, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "none"}},
			}}}})
		create(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "left"}})
		create(t, c, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "dead"}, Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "dead.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionv1.SideEffectClassNone),
			ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.OperationAll}, Rule: admissionv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
			}}},
		}}})
	})
	t.Run("finds none", func(t *testing.T) {
		second, c := leased(t, keep)
		if second != first {
			t.Fatalf("it is another cluster: %s", second)
		}
		for _, o := range []client.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "left"}},
			&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "left"}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "made"}},
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "left"}},
			&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"}},
		} {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				t.Errorf("%T %s: %v", o, o.GetName(), err)
			}
		}
		for name, o := range map[string]client.Object{"others.example.com": &apiextensionsv1.CustomResourceDefinition{}, "kept": &rbacv1.ClusterRole{}} {
			if err := c.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
				t.Error(err)
			}
		}
		create(t, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "left", Namespace: "default"}})
		var node corev1.NodeList
		if err := c.List(t.Context(), &node); err != nil {
			t.Fatal(err)
		}
		node.Items[0].Spec.Unschedulable = true
		if err := c.Update(t.Context(), &node.Items[0]); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("gets another one", func(t *testing.T) {
		if third, _ := leased(t, keep); third == first {
			t.Error("a node of it is cordoned")
		}
	})
}

func leased(t *testing.T, keep embeddedtest.Keep) (dir string, c client.Client) {
	t.Helper()
	dir, kubeconfig := embeddedtest.Lease(t, keep)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(embeddedtest.ConfigOf(t, kubeconfig), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return dir, c
}

// create makes objects, once their kinds are served.
func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		wait.Until(t, o.GetName()+" is created", func() error { return client.IgnoreAlreadyExists(c.Create(t.Context(), o)) })
	}
}
