package controller

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/statefulset"
	"github.com/berth-project/berth/internal/job/lookup"
	"github.com/berth-project/berth/internal/reconcile"
)

// informers is a cache with one informer, which does not run.
type informers struct {
	cache.Cache
	only cache.Informer
}

func (c informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.only, nil
}

// kindsOf returns so many kinds of jobs, each with jobs that are named by their UIDs and are controlled by others.
func kindsOf(t testing.TB, n int, parents ...map[string]string) *kinds {
	t.Helper()
	all := &kinds{}
	for i := range n {
		informer := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &batchv1.Job{}, 0, toolscache.Indexers{})
		index, err := reconcile.NewIndex(t.Context(), informers{only: informer}, &batchv1.Job{}, nil, byParent, controllerUID)
		if err != nil {
			t.Fatal(err)
		}
		all.add(&reconciler{byParent: index})
		if i >= len(parents) {
			continue
		}
		for uid, parent := range parents[i] {
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: uid, UID: types.UID(uid)}}
			j.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(parent), Controller: new(true)}}
			if err := informer.GetIndexer().Add(j); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// Descendants are found through jobs of other kinds, in their namespace, and a loop ends.
func TestBelow(t *testing.T) {
	all := kindsOf(t, 2,
		map[string]string{"child": "top", "grandchild": "between", "other": "another", "loop": "loop"},
		map[string]string{"between": "top", "leaf": "grandchild"},
	)
	for name, tc := range map[string]struct {
		kind            int
		namespace, from string
		want            []string
	}{
		"of the first kind":    {0, "red", "top", []string{"child", "grandchild"}},
		"of the second kind":   {1, "red", "top", []string{"between", "leaf"}},
		"from the middle":      {1, "red", "grandchild", []string{"leaf"}},
		"of none":              {0, "red", "leaf", nil},
		"of another namespace": {0, "blue", "top", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range all.below(t.Context(), all.running[tc.kind], tc.namespace, types.UID(tc.from)) {
				if got = append(got, r.Name); r.Namespace != "red" {
					t.Errorf("%s is in namespace %s", r.Name, r.Namespace)
				}
			}
			if slices.Sort(got); !slices.Equal(got, tc.want) {
				t.Errorf("%v, not %v", got, tc.want)
			}
		})
	}
	if n := len(all.below(t.Context(), all.running[0], "red", "loop")); n != generations {
		t.Errorf("a job that controls itself is found %d times", n)
	}
}

// TestServerOfDeletedNamespace: the last events of an object with groups may come after its namespace is gone. They end, and are not retried.
func TestServerOfDeletedNamespace(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	key := types.NamespacedName{Namespace: "red", Name: "web"}
	old := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "w", Annotations: map[string]string{
		kueue.JobOwnerGVKAnnotation: appsv1.SchemeGroupVersion.WithKind("StatefulSet").String(), kueue.JobOwnerNameAnnotation: key.Name,
	}}}
	for name, cached := range map[string][]client.Object{"nothing is cached": nil, "the cache has a Workload": {old}} {
		t.Run(name, func(t *testing.T) {
			r := &sets{&reconciler{d: statefulset.Descriptor(), cfg: &atomic.Pointer[job.Config]{}}}
			index := func(client.Object) []string { return []string{key.Name} }
			cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cached...).
				WithIndex(&corev1.Pod{}, r.byServer(), index).WithIndex(&kueue.Workload{}, byOwner(r.d.GVK), index).Build()
			cfg := &job.Config{ManagedNamespaces: labels.Everything()}
			r.cfg.Store(cfg)
			r.cache, r.live, r.now = cache, fake.NewClientBuilder().WithScheme(scheme).Build(), time.Now
			r.client, r.gate = r.live.(client.Client), lookup.NewGate(cfg, nil, r.cache, r.live)
			result, err := r.Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: key})
			if err != nil || result != (ctrlreconcile.Result{}) {
				t.Errorf("result %+v, error %v", result, err)
			}
		})
	}
}

// BenchmarkBelow is the search for the descendants of a job that has none, once for each of twelve kinds: what every event of its Workload costs.
func BenchmarkBelow(b *testing.B) {
	jobs := map[string]string{}
	for i := range 1000 {
		jobs[fmt.Sprint("job", i)] = fmt.Sprint("set", i)
	}
	all := kindsOf(b, 12, jobs)
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range all.running {
			all.below(b.Context(), r, "red", "job7")
		}
	}
}
