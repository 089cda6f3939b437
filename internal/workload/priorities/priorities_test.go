package priorities

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// TestSecondPass: each value of a class is written twice, for Workloads that were being created with the one before (spec: 10 §4.13).
func TestSecondPass(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var broken error
	api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return errors.Join(broken, c.Patch(ctx, o, patch, opts...))
		},
	})
	k := &Keeper{Client: api}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(name string) {
		t.Helper()
		must(api.Create(t.Context(), &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: kueue.WorkloadSpec{
			Priority: new(int32(1)), PriorityClassRef: &kueue.PriorityClassRef{Group: kueue.WorkloadPriorityClassGroup, Kind: kueue.WorkloadPriorityClassKind, Name: "gold"},
		}}))
	}
	class := func(uid types.UID, value int32) *kueue.WorkloadPriorityClass {
		return &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "gold", UID: uid}, Value: value}
	}
	pass := func(what string, after time.Duration, want int32, names ...string) {
		t.Helper()
		result, err := k.Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: types.NamespacedName{Name: "gold"}})
		if !errors.Is(err, broken) || result.RequeueAfter != after {
			t.Errorf("%s: again after %s, %v; want %s", what, result.RequeueAfter, err, after)
		}
		for _, name := range names {
			var w kueue.Workload
			must(api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &w))
			if *w.Spec.Priority != want {
				t.Errorf("%s: %s has priority %d, want %d", what, name, *w.Spec.Priority, want)
			}
		}
	}
	old := class("a", 60)
	must(api.Create(t.Context(), old))
	create("early")
	broken = errors.New("no answer")
	pass("a write fails", 0, 60)
	broken = nil
	pass("a new class", again, 60, "early")
	create("late")
	pass("its second pass", 0, 60, "early", "late")
	old.Value = 100
	must(api.Update(t.Context(), old))
	pass("another value", again, 100, "early", "late")
	pass("its second pass", 0, 100, "early", "late")
	must(api.Delete(t.Context(), old))
	pass("without the class", 0, 100, "early")
	must(api.Create(t.Context(), class("b", 100)))
	create("later")
	pass("created again", again, 100, "later")
	pass("its second pass", 0, 100, "later")
}
