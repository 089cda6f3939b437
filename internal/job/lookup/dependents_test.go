package lookup_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
)

// indexer takes note of an index.
type indexer struct {
	name string
	keys client.IndexerFunc
}

func (i *indexer) IndexField(_ context.Context, _ client.Object, name string, keys client.IndexerFunc) error {
	i.name, i.keys = name, keys
	return nil
}

// TestPodsOfChildren: a job has the pods of its children, whatever their names are, of its deleted children, by the names that KubeRay makes, and of
// its chain of slices, but no pods of a job with a longer name. The API server and a cache with an index agree.
func TestPodsOfChildren(t *testing.T) {
	child := schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayCluster"}
	d := &job.Descriptor{ManagedChildren: &job.ManagedChildren{Child: child, PodLabel: "ray.io/cluster"}}
	controlled := func(o client.Object, kind, name string) client.Object {
		o.SetNamespace("ns")
		o.SetUID(types.UID(o.GetName()))
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "ray.io/v1", Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}})
		return o
	}
	var objects []client.Object
	for _, of := range []string{"a-8wf6k", "a-raycluster-tlsnr", "a-b-8wf6k", "a-b-raycluster-tlsnr", "ab-8wf6k", "a", "named-otherwise", "of-c-long-8wf6k"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-of-" + of, Labels: map[string]string{"ray.io/cluster": of}}}
		if of == "of-c-long-8wf6k" {
			pod.Labels[kueue.PodSetLabel], pod.Annotations = "head", map[string]string{kueue.WorkloadSliceNameAnnotation: "slice"}
		}
		objects = append(objects, controlled(pod, "RayCluster", of))
	}
	objects = append(objects, controlled(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "slice", Labels: map[string]string{kueue.JobUIDLabel: "c"}}}, "RayJob", "c"))
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(child)
	cluster.SetName("named-otherwise")
	objects = append(objects, controlled(cluster, "RayJob", "d"))
	scheme := clientgoscheme.Scheme
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	index := &indexer{}
	if err := lookup.IndexPods(t.Context(), index); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithIndex(&corev1.Pod{}, index.name, index.keys).Build()
	cached := lookup.Live(api)
	cached.Pods = lookup.CachedPods(api)
	for name, want := range map[string][]string{
		"a":   {"pod-of-a-8wf6k", "pod-of-a-raycluster-tlsnr"},
		"a-b": {"pod-of-a-b-8wf6k", "pod-of-a-b-raycluster-tlsnr"},
		"b":   nil,
		"c":   {"pod-of-of-c-long-8wf6k"},
		"d":   {"pod-of-named-otherwise"},
	} {
		for source, from := range map[string]lookup.Source{"the API server": lookup.Live(api), "a cache": cached} {
			found, err := lookup.ReadDependents(t.Context(), from, d, &metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, pod := range found.Pods {
				got = append(got, pod.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s has the pods %v by %s, want %v", name, got, source, want)
			}
		}
	}
}

// paging answers lists in pages, as an API server does, and notes how many objects it gave at once.
type paging struct {
	client.Reader
	most int
}

func (p *paging) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	limit, from := o.Limit, 0
	if o.Continue != "" {
		from, _ = strconv.Atoi(o.Continue)
	}
	o.Limit, o.Continue = 0, ""
	if err := p.Reader.List(ctx, list, &o); err != nil {
		return err
	}
	items, err := apimeta.ExtractList(list)
	if err != nil {
		return err
	}
	end := len(items)
	if limit > 0 && from+int(limit) < end {
		end = from + int(limit)
		list.SetContinue(strconv.Itoa(end))
	}
	p.most = max(p.most, end-from)
	return apimeta.SetList(list, items[from:end])
}

// TestLivePages: a namespace full of others is read page by page, and its Workloads by the job, so that a review holds few objects at once. What is
// on later pages is found.
func TestLivePages(t *testing.T) {
	child := schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayCluster"}
	d := &job.Descriptor{ManagedChildren: &job.ManagedChildren{Child: child, PodLabel: "ray.io/cluster"}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var objects []client.Object
	add := func(name, owner string) {
		for _, o := range []client.Object{
			&unstructured.Unstructured{}, &corev1.Pod{}, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kueue.JobUIDLabel: owner}}},
		} {
			kind, by := "RayService", owner
			switch o := o.(type) {
			case *unstructured.Unstructured:
				o.SetGroupVersionKind(child)
			case *corev1.Pod:
				o.Labels, kind, by = map[string]string{"ray.io/cluster": name}, "RayCluster", name
			}
			o.SetNamespace("ns")
			o.SetName(name)
			o.SetUID(types.UID(name))
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "ray.io/v1", Kind: kind, Name: by, UID: types.UID(by), Controller: new(true)}})
			objects = append(objects, o)
		}
	}
	for i := range 600 {
		add(fmt.Sprint("other-", i), "another")
	}
	add("z-last", "mine")
	api := &paging{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
	found, err := lookup.ReadDependents(t.Context(), lookup.Live(api), d, &metav1.ObjectMeta{Namespace: "ns", Name: "mine", UID: "mine"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Children) != 1 || len(found.Pods) != 1 || len(found.Workloads) != 1 || api.most > 250 {
		t.Errorf("%d children, %d pods, %d Workloads, %d objects at once", len(found.Children), len(found.Pods), len(found.Workloads), api.most)
	}
}

// TestVariantWithoutFlavor: the pods of a parent may request nothing, so that no flavor says which variant it runs on. The variants have its
// labels.
func TestVariantWithoutFlavor(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	is := func(kind string) metav1.Condition { return metav1.Condition{Type: kind, Status: metav1.ConditionTrue} }
	for name, labels := range map[string]map[string]string{"of a job": {kueue.JobUIDLabel: "job"}, "of no job": {}} {
		parent := &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "w", Labels: map[string]string{kueue.ConcurrentAdmissionParentLabel: "true"}},
			Status: kueue.WorkloadStatus{
				Admission: &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main"}}}, Conditions: []metav1.Condition{is(kueue.WorkloadQuotaReserved)},
			},
		}
		maps.Copy(parent.Labels, labels)
		variant := &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "v", UID: "v", Labels: labels, Annotations: map[string]string{kueue.AllowedResourceFlavorsAnnotation: "spot"},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(parent, kueue.GroupVersion.WithKind("Workload"))},
			},
			Status: kueue.WorkloadStatus{
				AdmissionChecks: []kueue.AdmissionCheckState{{Name: "of-the-variant"}},
				Conditions:      []metav1.Condition{is(kueue.WorkloadQuotaReserved), is(kueue.WorkloadAdmitted)},
			},
		}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(variant).Build()
		got, err := lookup.AsStarted(t.Context(), c, parent)
		if err != nil || got == nil || len(got.Status.AdmissionChecks) != 1 {
			t.Errorf("%s: starts as %v (%v)", name, got, err)
		}
	}
}

// TestChildrenInCache: a cache of controller-runtime names a next page after each list, and has none.
func TestChildrenInCache(t *testing.T) {
	d := &job.Descriptor{ManagedChildren: &job.ManagedChildren{Child: schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayCluster"}}}
	cache := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, of ...client.ListOption) error {
			var options client.ListOptions
			if options.ApplyOptions(of); options.Continue != "" {
				return errors.New("continue list option is not supported by the cache")
			}
			list.SetContinue("continue-not-supported")
			return nil
		},
	})
	owner := &metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "a"}
	if _, err := lookup.ReadDependents(t.Context(), lookup.Source{Children: cache}, d, owner, []*kueue.Workload{}); err != nil {
		t.Error(err)
	}
}
