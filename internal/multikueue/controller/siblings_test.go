package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/leaderworkerset"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/multikueue/plan"
	extern "github.com/berth-project/berth/internal/multikueue/plan/external"
)

// TestSharedJob: a job of several Workloads stays on a worker cluster while one of them needs it there, and is removed from others, such
// as one that returned (spec: 40 §4.14).
func TestSharedJob(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	owner := []metav1.OwnerReference{{APIVersion: "leaderworkerset.x-k8s.io/v1", Kind: "LeaderWorkerSet", Name: "lws", UID: "lws"}}
	workload := func(name, cluster string, reserved bool) *kueue.Workload {
		w := &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), OwnerReferences: owner},
			Status:     kueue.WorkloadStatus{ClusterName: cluster},
		}
		if reserved {
			w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
		}
		return w
	}
	there := &unstructured.Unstructured{}
	there.SetAnnotations(map[string]string{kueue.MultiKueueOriginUIDAnnotation: "lws"})
	for name, tc := range map[string]struct {
		cluster  string
		reserved bool
		want     map[string]bool // whether the job is this one's alone
	}{
		"the other runs":     {"w2", true, map[string]bool{"w1": true, "w2": false}},
		"the other waits":    {"", true, map[string]bool{"w1": false, "w2": false}},
		"the other has left": {"", false, map[string]bool{"w1": true, "w2": true}},
	} {
		this, other := workload("a", "w2", true), workload("b", tc.cluster, tc.reserved)
		w := &workloads{shared: &shared{Options: Options{Plan: &plan.Config{}}, cache: fake.NewClientBuilder().WithScheme(scheme).WithObjects(this, other).
			WithIndex(&kueue.Workload{}, byOwner, ownersOf).Build()}}
		s := &observation{kind: leaderworkerset.Descriptor(), observed: plan.Observed{Local: this}}
		s.key.Namespace, s.key.Name = "ns", "a"
		if err := w.observeSiblings(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for cluster, want := range tc.want {
			if got := w.isOf(cluster, s, there); got != want {
				t.Errorf("%s: alone on %s %v", name, cluster, got)
			}
		}
	}
}

// TestJobsThatCannotBeSent: what is wrong with a job is a fact about it, and no failure to observe it. Its eviction must not wait for it.
func TestJobsThatCannotBeSent(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	external := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Run"}
	scheme.AddKnownTypeWithName(external, &unstructured.Unstructured{})
	for field, tc := range map[string]struct {
		d     *job.Descriptor
		value any
	}{
		"replicas": {leaderworkerset.Descriptor(), int64(2_000_000)},
		"managedBy": {view.Kind{
			GVK: external, Resource: "runs", ManagedBy: []string{"spec", "managedBy"},
			IsActive: func(view.Object) bool { return false }, Finished: view.FinishedBy("Succeeded", "Failed"),
		}.Descriptor(), int64(1)},
	} {
		d, o := tc.d, view.New(tc.d.GVK)
		view.Set(o.Object, tc.value, "spec", field)
		o.SetNamespace("ns")
		o.SetName("j")
		o.SetUID("u")
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "a", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(o, d.GVK),
		}}}
		w := &workloads{shared: &shared{
			Options: Options{Plan: &plan.Config{External: map[schema.GroupVersionKind]*extern.Framework{
				external: {Name: "Run.v1.example.com", ManagedBy: []string{"spec", "managedBy"}, Value: kueue.MultiKueueControllerName},
			}}},
			kinds: map[schema.GroupVersionKind]*job.Descriptor{d.GVK: d},
			cache: fake.NewClientBuilder().WithScheme(scheme).WithObjects(wl, o).WithIndex(&kueue.Workload{}, byOwner, ownersOf).Build(),
		}}
		s := &observation{key: types.NamespacedName{Namespace: "ns", Name: "a"}, observed: plan.Observed{Local: wl}}
		if err := w.observeJob(t.Context(), s); err != nil || s.observed.Job.Err == nil {
			t.Errorf("%s of %s: error %v, fact %v", field, d.GVK.Kind, err, s.observed.Job.Err)
		}
	}
}
