package lookup_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
)

// TestPodsOfDeletedChildren: a job has the pods of its deleted children, by the names that KubeRay makes, but no pods of a job with a longer
// name.
func TestPodsOfDeletedChildren(t *testing.T) {
	child := schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayCluster"}
	d := &job.Descriptor{ManagedChildren: &job.ManagedChildren{Child: child, PodLabel: "ray.io/cluster"}}
	var pods []client.Object
	for _, of := range []string{"a-8wf6k", "a-raycluster-tlsnr", "a-b-8wf6k", "a-b-raycluster-tlsnr", "ab-8wf6k", "a"} {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: of, Labels: map[string]string{"ray.io/cluster": of},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "ray.io/v1", Kind: "RayCluster", Name: of, UID: types.UID(of), Controller: new(true)}},
		}})
	}
	scheme := clientgoscheme.Scheme
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pods...).Build()
	for name, want := range map[string][]string{
		"a":   {"a-8wf6k", "a-raycluster-tlsnr"},
		"a-b": {"a-b-8wf6k", "a-b-raycluster-tlsnr"},
		"b":   nil,
	} {
		found, err := lookup.ReadDependents(t.Context(), api, api, d, &metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, pod := range found.Pods {
			got = append(got, pod.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the pods %v, want %v", name, got, want)
		}
	}
}
