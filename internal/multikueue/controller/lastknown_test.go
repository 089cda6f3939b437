package controller

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
)

// TestLastKnownIsForgotten: quotas keep nothing of deleted ClusterQueues, nor of worker clusters that the configuration names no more.
func TestLastKnownIsForgotten(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).Build()
	q := &quotas{shared: &shared{client: api, cache: api}, lastKnown: map[types.NamespacedName]plan.Contribution{}}
	for _, key := range []types.NamespacedName{{Namespace: "w1", Name: "deleted"}, {Namespace: "w1", Name: "team"}, {Namespace: "w2", Name: "other"}} {
		q.lastKnown[key] = plan.Contribution{}
	}
	if _, err := q.Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: types.NamespacedName{Name: "deleted"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.contributions(t.Context(), &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, &kueue.MultiKueueConfig{}); err != nil {
		t.Fatal(err)
	}
	if left, want := slices.Collect(maps.Keys(q.lastKnown)), []types.NamespacedName{{Namespace: "w2", Name: "other"}}; !slices.Equal(left, want) {
		t.Errorf("%v is kept, want %v", left, want)
	}
}
