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
	"sigs.k8s.io/controller-runtime/pkg/event"
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

func ownedBy(uid string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{UID: types.UID(uid), Controller: new(true)}}
}

// kindsOf returns so many kinds of jobs, each with jobs that are named by their UIDs and are controlled by others.
func kindsOf(t testing.TB, n int, parents ...map[string]string) *kinds {
	t.Helper()
	all := &kinds{}
	for i := range n {
		informer := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &batchv1.Job{}, 0, toolscache.Indexers{})
		index, err := reconcile.NewIndex(t.Context(), informers{only: informer}, &batchv1.Job{}, nil, byParent, lookup.ControllerUID)
		if err != nil {
			t.Fatal(err)
		}
		all.add(&reconciler{byParent: index})
		if i >= len(parents) {
			continue
		}
		for uid, parent := range parents[i] {
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: uid, UID: types.UID(uid)}}
			j.OwnerReferences = ownedBy(parent)
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

// queue records requests.
type queue struct {
	requests
	added []ctrlreconcile.Request
}

func (q *queue) Add(r ctrlreconcile.Request) { q.added = append(q.added, r) }

// Any number of jobs may name the owner of a Workload: only changes that may affect them reconcile them.
func TestOnWorkload(t *testing.T) {
	const claims = 100
	jobs := map[string]string{}
	for i := range claims {
		jobs[fmt.Sprint("job", i)] = "owner"
	}
	all := kindsOf(t, 1, jobs)
	r := all.running[0]
	r.kinds = all
	own := func(context.Context, client.Object) []ctrlreconcile.Request {
		return []ctrlreconcile.Request{request("red", "own")}
	}
	set := func(kind string, status metav1.ConditionStatus) func(*kueue.Workload) {
		return func(w *kueue.Workload) {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kind, Status: status})
		}
	}
	for name, tc := range map[string]struct {
		before, change func(*kueue.Workload)
		want           int
	}{
		"resync":       {nil, func(*kueue.Workload) {}, 1},
		"message":      {nil, set(kueue.WorkloadQuotaReserved, metav1.ConditionFalse), 1},
		"pods ready":   {nil, set(kueue.WorkloadPodsReady, metav1.ConditionTrue), 1},
		"annotation":   {nil, func(w *kueue.Workload) { w.Annotations = map[string]string{"a": "b"} }, 1},
		"priority":     {nil, func(w *kueue.Workload) { w.Generation, w.Spec.Priority = 2, new(int32(7)) }, 1},
		"reclaimable":  {nil, func(w *kueue.Workload) { w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}} }, 1},
		"reserved":     {nil, set(kueue.WorkloadQuotaReserved, metav1.ConditionTrue), 1 + claims},
		"admitted":     {nil, set(kueue.WorkloadAdmitted, metav1.ConditionTrue), 1 + claims},
		"not admitted": {set(kueue.WorkloadAdmitted, metav1.ConditionTrue), func(w *kueue.Workload) { w.Status.Conditions = nil }, 1 + claims},
		"evicted":      {nil, set(kueue.WorkloadEvicted, metav1.ConditionTrue), 1 + claims},
		"finished":     {nil, set(kueue.WorkloadFinished, metav1.ConditionTrue), 1 + claims},
		"deactivated":  {nil, func(w *kueue.Workload) { w.Spec.Active = new(false) }, 1 + claims},
		"resized":      {nil, func(w *kueue.Workload) { w.Generation, w.Spec.PodSets = 2, []kueue.PodSet{{Name: "main", Count: 2}} }, 1 + claims},
		"leaves queue": {func(w *kueue.Workload) { w.Spec.QueueName = "lq" }, func(w *kueue.Workload) { w.Spec.QueueName = "" }, 1 + claims},
		"elastic":      {nil, func(w *kueue.Workload) { w.Annotations = map[string]string{kueue.ElasticJobAnnotation: "true"} }, 1 + claims},
		"replaces": {nil, func(w *kueue.Workload) {
			w.Annotations = map[string]string{kueue.WorkloadSliceReplacementForAnnotation: "red/v"}
		}, 1 + claims},
		"adopted":       {func(w *kueue.Workload) { w.OwnerReferences = nil }, func(w *kueue.Workload) { w.OwnerReferences = ownedBy("owner") }, 1 + claims},
		"orphaned":      {nil, func(w *kueue.Workload) { w.OwnerReferences = nil }, 1 + claims},
		"created again": {nil, func(w *kueue.Workload) { w.UID = "again" }, 1 + claims},
	} {
		t.Run(name, func(t *testing.T) {
			old := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "w", UID: "w", Generation: 1, OwnerReferences: ownedBy("owner")}}
			if tc.before != nil {
				tc.before(old)
			}
			next, q := old.DeepCopy(), &queue{}
			tc.change(next)
			r.onWorkload(own).Update(t.Context(), event.UpdateEvent{ObjectOld: old, ObjectNew: next}, q)
			if len(q.added) != tc.want {
				t.Errorf("%d requests, not %d", len(q.added), tc.want)
			}
		})
	}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "w", OwnerReferences: ownedBy("owner")}}
	made, gone := &queue{}, &queue{}
	r.onWorkload(own).Create(t.Context(), event.CreateEvent{Object: w}, made)
	r.onWorkload(own).Delete(t.Context(), event.DeleteEvent{Object: w}, gone)
	if len(made.added) != 1+claims || len(gone.added) != 1+claims {
		t.Errorf("%d requests after the creation, %d after the deletion", len(made.added), len(gone.added))
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
