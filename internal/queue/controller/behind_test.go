package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// A status is neither accepted nor changed while the cache lags behind the last write: no event would requeue the object.
func TestBehind(t *testing.T) {
	now := time.Unix(1000, 0)
	for what, of := range map[string]struct {
		object client.Object
		with   func(client.Client, *pace) reconcile.Reconciler
	}{
		"a LocalQueue": {&kueue.LocalQueue{}, func(c client.Client, p *pace) reconcile.Reconciler { return &localQueues{writer{client: c, pace: p}} }},
		"a ClusterQueue": {clusterQueue(metav1.ConditionTrue), func(c client.Client, p *pace) reconcile.Reconciler {
			return &clusterQueues{writer: writer{client: c, pace: p}}
		}},
		"a Cohort": {&kueue.Cohort{}, func(c client.Client, p *pace) reconcile.Reconciler { return &cohorts{writer{client: c, pace: p}} }},
	} {
		of.object.SetName("q")
		of.object.SetResourceVersion("9")
		c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(of.object).Build()
		p := newPace(newTurns(), always)
		p.now = func() time.Time { return now }
		name := types.NamespacedName{Name: "q"}
		p.writes(name)
		at := func(version string) client.Object {
			o := of.object.DeepCopyObject().(client.Object)
			o.SetResourceVersion(version)
			return o
		}
		if p.isBehind(at("9")) {
			t.Fatalf("%s cannot be written", what)
		}
		p.written.Updated(at("10"))
		got, err := of.with(c, p).Reconcile(t.Context(), ctrl.Request{NamespacedName: name}) // it has no engine
		if err != nil || got.RequeueAfter != catchUp {
			t.Errorf("%s is looked at after %s, %v", what, got.RequeueAfter, err)
		}
		for version, want := range map[string]bool{"9": true, "10": false, "11": false} {
			p.written.Updated(at("10"))
			if p.isBehind(at(version)) != want {
				t.Errorf("%s at %s is behind: %v", what, version, !want)
			}
		}
		p.written.Updated(at("10"))
		p.now = func() time.Time { return now.Add(time.Minute) }
		if p.isBehind(at("9")) {
			t.Errorf("%s is waited for without end", what)
		}
		p.known = func() bool { return false }
		if got, err = of.with(c, p).Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil || got.RequeueAfter != catchUp {
			t.Errorf("%s is written after %s, %v, although the engine does not know all", what, got.RequeueAfter, err)
		}
	}
}
