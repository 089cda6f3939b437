package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/reconcile/overlaytest"
)

func TestOverlay(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "o"}}
	overlaytest.Run(t, overlaytest.User[client.Object]{Object: pod, New: func(now func() time.Time, api *overlaytest.API) overlaytest.Functions[client.Object] {
		r := &reconciler{client: api, live: api, written: reconcile.NewOverlay[client.Object](now), now: now}
		return overlaytest.Functions[client.Object]{
			Write: func(shown client.Object) error {
				next := shown.DeepCopyObject().(client.Object)
				o := &job.Observed{Job: pod, Pods: []*corev1.Pod{shown.(*corev1.Pod)}}
				return r.writeChildren(t.Context(), o, job.Action{Verb: job.PatchChildren, Children: []job.Object{next}}, "manager")
			},
			ActsOn: func(shown client.Object) (client.Object, bool) {
				pods := []*corev1.Pod{shown.(*corev1.Pod)}
				if err := newest(t.Context(), r, pods); err != nil {
					t.Fatal(err)
				}
				return pods[0], true
			},
			Len: r.written.Len,
		}
	}})
}

// TestBehindItsSlices has a cache that shows a created slice late or never.
func TestBehindItsSlices(t *testing.T) {
	owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job"}}
	slice := func(name string, of types.UID) *kueue.Workload {
		return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name + "-uid"), ResourceVersion: "7", Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "job", UID: of, Controller: new(true)}},
		}}
	}
	a, b := slice("a", "job"), slice("b", "job")
	other := slice("b", "job")
	other.UID = "another"
	failure := errors.New("no answer")
	for name, test := range map[string]struct {
		created *kueue.Workload
		shown   []*kueue.Workload
		stored  client.Object
		fails   error
		want    time.Duration // may have no event
	}{
		"nothing was created":        {shown: []*kueue.Workload{a}},
		"the cache shows it":         {created: b, shown: []*kueue.Workload{a, b}, stored: b},
		"the cache does not show it": {created: b, shown: []*kueue.Workload{a}, stored: b, want: reconcile.Believed},
		"it was deleted":             {created: b, shown: []*kueue.Workload{a}},
		"another has its name":       {created: b, shown: []*kueue.Workload{a}, stored: other},
		"it is of another job":       {created: slice("b", "other"), shown: []*kueue.Workload{a}, stored: b},
		"the API server is away":     {created: b, shown: []*kueue.Workload{a}, fails: failure},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := kueue.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return nil },
				Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
					if test.fails != nil {
						return test.fails
					}
					if test.stored == nil {
						return apierrors.NewNotFound(schema.GroupResource{Resource: "workloads"}, key.Name)
					}
					into.SetUID(test.stored.GetUID())
					return nil
				},
			})
			r := &reconciler{d: &job.Descriptor{Elastic: &job.Elastic{}}, client: api, live: api, written: reconcile.NewOverlay[client.Object](time.Now)}
			if test.created != nil {
				if err := r.write(t.Context(), &job.Observed{Job: owner}, job.Action{Verb: job.CreateWorkload, Workload: test.created}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				got, err := r.lag(t.Context(), &job.Observed{Job: owner, Workloads: test.shown})
				if got != test.want || !errors.Is(err, test.fails) {
					t.Errorf("it waits for %s, %v; want %s, %v", got, err, test.want, test.fails)
				}
			}
		})
	}
}

// TestNameInUse: a Workload of the job that the cache does not show is retried soon; another one of that name is reported once, and retried with
// growing pauses.
func TestNameInUse(t *testing.T) {
	owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job"}}
	workload := func(of types.UID) *kueue.Workload {
		return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "pod-job", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "job", UID: of, Controller: new(true)}},
		}}
	}
	for name, test := range map[string]struct {
		stored *kueue.Workload
		taken  bool
	}{
		"the cache is late": {stored: workload("job")},
		"of another job":    {stored: workload("other"), taken: true},
		"of a user":         {stored: &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-job"}}, taken: true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := kueue.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.stored).Build()
			emitted := events.NewFakeRecorder(10)
			r := &reconciler{d: &job.Descriptor{}, client: api, live: api, events: reconcile.NewEvents(emitted, nil)}
			for range 2 {
				a := job.Action{Verb: job.CreateWorkload, Workload: workload("job")}
				result, err := r.do(t.Context(), client.ObjectKeyFromObject(owner), &job.Observed{Job: owner}, a).Result(t.Context())
				if (err != nil) != test.taken || (result.RequeueAfter > 0) == test.taken {
					t.Errorf("retried after %s, error %v", result.RequeueAfter, err)
				}
			}
			if got := len(emitted.Events) == 1; got != test.taken {
				t.Errorf("%d events", len(emitted.Events))
			}
		})
	}
}
