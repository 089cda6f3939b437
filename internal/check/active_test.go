package check

import (
	"context"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
)

// lagging reads from a cache that shows one check, and writes to the API server.
type lagging struct {
	client.Client
	shown *kueue.AdmissionCheck
}

func (l *lagging) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	l.shown.DeepCopyInto(into.(*kueue.AdmissionCheck))
	return nil
}

// TestActivityWithLateCache: a check that becomes usable again before the cache shows that it was not is reconciled once more.
func TestActivityWithLateCache(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "x"}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(check).WithStatusSubresource(check).Build()
	stored := func() *kueue.AdmissionCheck {
		t.Helper()
		var now kueue.AdmissionCheck
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(check), &now); err != nil {
			t.Fatal(err)
		}
		return &now
	}
	cache, usable := &lagging{Client: api, shown: stored()}, metav1.ConditionTrue
	a := &Activity{Controller: "x", client: cache, written: reconcile.NewOverlay[*kueue.AdmissionCheck](time.Now), Active: func(context.Context, *kueue.AdmissionCheck) (metav1.Condition, time.Duration, error) {
		return metav1.Condition{Status: usable, Reason: string(usable)}, 0, nil
	}}
	decide := func(becomes metav1.ConditionStatus) (again bool) {
		t.Helper()
		usable = becomes
		result, err := a.Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: client.ObjectKeyFromObject(check)})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter > 0
	}
	decide(metav1.ConditionTrue)
	cache.shown = stored()
	decide(metav1.ConditionFalse)
	if !decide(metav1.ConditionTrue) { // the cache shows that it is
		t.Error("it is not decided again")
	}
	cache.shown = stored()
	if decide(metav1.ConditionTrue) || !apimeta.IsStatusConditionTrue(stored().Status.Conditions, kueue.AdmissionCheckActive) {
		t.Error("the check stays inactive")
	}
}
