package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := kueue.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// clusterQueue returns a ClusterQueue with cpu of one flavor and the given status of Active.
func clusterQueue(active metav1.ConditionStatus) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq", Generation: 7}}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
		Name: "f", Resources: []kueue.ResourceQuota{{Name: "cpu"}},
	}}}}
	cq.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: active, Reason: "Any"}}
	return cq
}

// figures returns a view in which every number differs.
func figures() state.View {
	held := func(n resource.Amount) []state.Held {
		return []state.Held{{Flavor: "f", Resource: "cpu", Amount: n * 1000}}
	}
	return state.View{
		Counts:      state.Counts{Active: 1, Inadmissible: 2, Reserved: 7, Admitted: 4},
		Reservation: held(9), Usage: held(6), Borrowed: held(5), BorrowedUsage: held(8),
	}
}

func usage(list []kueue.FlavorUsage) (out []string) {
	for _, f := range list {
		for _, r := range f.Resources {
			out = append(out, string(f.Name)+" "+string(r.Name)+" "+r.Total.String()+" "+r.Borrowed.String())
		}
	}
	return out
}

// spec: 10 §2.2, §4.13.
func TestStatusOfAClusterQueue(t *testing.T) {
	cq := clusterQueue(metav1.ConditionFalse)
	fillStatus(cq, figures(), nil)
	got := cq.Status
	if got.PendingWorkloads != 3 || got.ReservingWorkloads != 7 || got.AdmittedWorkloads != 4 || got.FairSharing != nil {
		t.Errorf("status %+v", got)
	}
	if r, u := usage(got.FlavorsReservation), usage(got.FlavorsUsage); !slices.Equal(r, []string{"f cpu 9 5"}) || !slices.Equal(u, []string{"f cpu 6 8"}) {
		t.Errorf("reservation %q, usage %q", r, u)
	}
	if c := got.Conditions[0]; c.Status != metav1.ConditionTrue || c.Reason != kueue.ReasonReady || c.ObservedGeneration != 7 || c.LastTransitionTime.IsZero() {
		t.Errorf("condition %+v", c)
	}
	fillStatus(cq, figures(), []convert.Problem{{Reason: "First", Message: "one thing"}, {Reason: "Second", Message: "another"}})
	if c := cq.Status.Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != "First" || c.Message != "Can't admit new workloads: one thing; another" {
		t.Errorf("condition %+v", c)
	}
}

// spec: 10 §2.4, §4.13.
func TestStatusOfALocalQueue(t *testing.T) {
	gone := clusterQueue(metav1.ConditionTrue)
	gone.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		stop, to string
		cq       *kueue.ClusterQueue
		reason   string
	}{
		"ready":                     {"", "cq", clusterQueue(metav1.ConditionTrue), kueue.ReasonReady},
		"not stopped":               {"None", "cq", clusterQueue(metav1.ConditionTrue), kueue.ReasonReady},
		"held":                      {"Hold", "cq", clusterQueue(metav1.ConditionTrue), kueue.ReasonStopped},
		"drained, and of no queue":  {"HoldAndDrain", "cq", nil, kueue.ReasonStopped},
		"of no queue":               {"", "", nil, kueue.ReasonClusterQueueDoesNotExist},
		"of one that is gone":       {"", "cq", nil, kueue.ReasonClusterQueueDoesNotExist},
		"of one that is going":      {"", "cq", gone, kueue.ReasonClusterQueueIsInactive},
		"of one that is not active": {"", "cq", clusterQueue(metav1.ConditionFalse), kueue.ReasonClusterQueueIsInactive},
	} {
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
		lq.Spec.StopPolicy, lq.Spec.ClusterQueue = kueue.StopPolicy(tc.stop), kueue.ClusterQueueReference(tc.to)
		lq.Status.PendingWorkloads, lq.Status.ReservingWorkloads, lq.Status.AdmittedWorkloads = 10, 10, 10
		lq.Status.FlavorsUsage = []kueue.LocalQueueFlavorUsage{{Name: "old"}}
		fillLocal(lq, tc.cq, figures())
		got := lq.Status
		c := got.Conditions[0]
		if ready := c.Status == metav1.ConditionTrue; c.Reason != tc.reason || ready != (tc.reason == kueue.ReasonReady) || c.ObservedGeneration != 3 || c.Message == "" {
			t.Errorf("%s: condition %+v, want reason %s", name, c, tc.reason)
		}
		want := []int32{3, 7, 4, 1, 1} // without a ClusterQueue all counts are zero: spec 70 §7 example 67
		if tc.cq == nil {
			want = []int32{0, 0, 0, 0, 0}
		}
		have := []int32{got.PendingWorkloads, got.ReservingWorkloads, got.AdmittedWorkloads, int32(len(got.FlavorsReservation)), int32(len(got.FlavorsUsage))}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: pending, reserving, admitted, flavors reserved and used -want +got:\n%s", name, diff)
		}
	}
}

// A patch of conditions fails if the object has changed; a patch of figures does not.
func TestStatusPatch(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(clusterQueue(metav1.ConditionTrue)).WithStatusSubresource(&kueue.ClusterQueue{}).Build()
	read := func() *kueue.ClusterQueue {
		cq := &kueue.ClusterQueue{}
		if err := c.Get(t.Context(), types.NamespacedName{Name: "cq"}, cq); err != nil {
			t.Fatal(err)
		}
		return cq
	}
	old := read()
	newer := read()
	newer.Labels = map[string]string{"a": "b"}
	if err := c.Update(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	for _, figuresOnly := range []bool{true, false} {
		next := old.DeepCopy()
		next.Status.PendingWorkloads = 5
		if err := c.Status().Patch(t.Context(), next, statusPatch(old, figuresOnly)); apierrors.IsConflict(err) == figuresOnly {
			t.Errorf("figures only %v: %v", figuresOnly, err)
		}
	}
	if got := read().Status.PendingWorkloads; got != 5 {
		t.Errorf("%d are pending, want 5", got)
	}
}

// spec: 10 §4.13, §4.17.
func TestHeldWhileNamed(t *testing.T) {
	using := clusterQueue(metav1.ConditionTrue)
	mine := []string{"example.com/mine"}
	both := []string{"example.com/mine", kueue.ResourceInUseFinalizer}
	for name, tc := range map[string]struct {
		flavor   string
		deleted  bool
		had, has []string
	}{
		"a new one":                    {"f", false, nil, []string{kueue.ResourceInUseFinalizer}},
		"a new one that nobody names":  {"g", false, mine, both},
		"deleted while it is named":    {"f", true, both, both},
		"deleted when nobody names it": {"g", true, both, mine},
		"deleted before it was held":   {"f", true, mine, mine},
	} {
		t.Run(name, func(t *testing.T) {
			flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: tc.flavor, Finalizers: tc.had}}
			c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(using.DeepCopy(), flavor).Build()
			if tc.deleted {
				if err := c.Delete(t.Context(), flavor.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			r := &held[kueue.ResourceFlavor, *kueue.ResourceFlavor]{c, byClusterQueues(convert.NamesFlavor)}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: tc.flavor}}); err != nil {
				t.Fatal(err)
			}
			got := &kueue.ResourceFlavor{}
			if err := c.Get(t.Context(), types.NamespacedName{Name: tc.flavor}, got); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Finalizers, tc.has) {
				t.Errorf("finalizers %q, want %q", got.Finalizers, tc.has)
			}
		})
	}
}

// A ClusterQueue stays as long as workloads hold its quota.
func TestClusterQueueIsHeld(t *testing.T) {
	for _, idle := range []bool{false, true} {
		cq := clusterQueue(metav1.ConditionTrue)
		cq.Finalizers = []string{kueue.ResourceInUseFinalizer}
		c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(cq).Build()
		if err := c.Delete(t.Context(), cq.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		got := &kueue.ClusterQueue{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cq), got); err != nil {
			t.Fatal(err)
		}
		if err := (&clusterQueues{writer: writer{client: c}}).finalize(t.Context(), got, idle); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cq), got); apierrors.IsNotFound(err) != idle {
			t.Errorf("idle %v: %v", idle, err)
		}
	}
}

// A ClusterQueue that is deleted stays until the engine knows, which may admit a workload before.
func TestDeletionIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := manyQueues(t, 1), t.Context()
		e := engine.New(state.New(state.Options{Options: cycle.Defaults()}), time.Now)
		running, cancel := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- e.Run(running) }()
		defer func() { cancel(); <-done }()
		key := types.NamespacedName{Name: "cq-0"}
		cq := &kueue.ClusterQueue{}
		get := func() error { return c.Get(ctx, key, cq) }
		if err := get(); err != nil {
			t.Fatal(err)
		}
		cq.Finalizers = []string{kueue.ResourceInUseFinalizer}
		if err := errors.Join(c.Update(ctx, cq), c.Delete(ctx, cq)); err != nil {
			t.Fatal(err)
		}
		r := &clusterQueues{writer: writer{c, e, newPace(newTurns(), always)}}
		look := func() ctrl.Result {
			synctest.Wait()
			result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: key})
			if err != nil {
				t.Fatal(err)
			}
			return result
		}
		def := definition(t, 0)
		e.Post(state.SetFlavor{Name: "f"}, state.SetQueue(def))
		if result := look(); result.RequeueAfter != delay || get() != nil {
			t.Errorf("before the engine knows: %+v, %v", result, get())
		}
		def.Closed = "it is being deleted"
		e.Post(state.SetQueue(def))
		if look(); !apierrors.IsNotFound(get()) {
			t.Errorf("afterwards: %v", get())
		}
	})
}

// A change of an object requeues the objects whose status shows it.
func TestRequests(t *testing.T) {
	first, second := clusterQueue(metav1.ConditionTrue), clusterQueue(metav1.ConditionTrue)
	second.Name, second.Spec.CohortName, second.Spec.ResourceGroups = "in-cohort", "c", nil
	second.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "check"}}}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}, Spec: kueue.ResourceFlavorSpec{TopologyName: "racks"}}
	local := func(namespace, to string) *kueue.LocalQueue {
		return &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(to)},
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(first, second, flavor, local("a", "cq"), local("b", "in-cohort")).Build()
	object := func(name string) client.Object {
		return &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for name, tc := range map[string]struct {
		ask  func(context.Context, client.Object) []ctrl.Request
		of   client.Object
		want []string
	}{
		"of a flavor":           {usersOf(c, convert.NamesFlavor), object("f"), []string{"/cq"}},
		"of a check":            {usersOf(c, convert.NamesCheck), object("check"), []string{"/in-cohort"}},
		"of a cohort":           {inCohorts(c), object("any"), []string{"/in-cohort"}},
		"of a topology":         {placedBy(c), object("racks"), []string{"/cq"}},
		"of another topology":   {placedBy(c), object("blocks"), nil},
		"of a ClusterQueue":     {entrancesTo(c), object("cq"), []string{"a/lq"}},
		"checks of a queue":     {checksOf, second, []string{"/check"}},
		"no checks of a queue":  {checksOf, first, nil},
		"flavors of a queue":    {flavorsOf, first, []string{"/f"}},
		"no flavors of a queue": {flavorsOf, second, nil},
		"topology of a flavor":  {topologyOf, flavor, []string{"/racks"}},
		"no topology":           {topologyOf, &kueue.ResourceFlavor{}, nil},
	} {
		var got []string
		for _, r := range tc.ask(t.Context(), tc.of) {
			got = append(got, r.String())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A LocalQueue is requeued when its ClusterQueue is edited, and when it becomes active or inactive.
func TestTurned(t *testing.T) {
	on, off := clusterQueue(metav1.ConditionTrue), clusterQueue(metav1.ConditionFalse)
	edited := clusterQueue(metav1.ConditionTrue)
	edited.Generation++
	busy := clusterQueue(metav1.ConditionTrue)
	busy.Status.PendingWorkloads = 9
	for name, tc := range map[string]struct {
		next *kueue.ClusterQueue
		want bool
	}{
		"turned off": {off, true}, "edited": {edited, true}, "other figures": {busy, false},
	} {
		if got := turned.Update(event.UpdateEvent{ObjectOld: on, ObjectNew: tc.next}); got != tc.want {
			t.Errorf("%s: looked at is %v", name, got)
		}
	}
}

// A ClusterQueue is requeued when it is edited, and when its finalizer was removed. spec: 10 §3.
func TestEditedOrUnheld(t *testing.T) {
	before := clusterQueue(metav1.ConditionTrue)
	before.Finalizers = []string{kueue.ResourceInUseFinalizer}
	for name, tc := range map[string]struct {
		edit func(*kueue.ClusterQueue)
		want bool
	}{
		"another generation": {func(q *kueue.ClusterQueue) { q.Generation++ }, true},
		"other figures":      {func(q *kueue.ClusterQueue) { q.Status.PendingWorkloads = 9 }, false},
		"another label":      {func(q *kueue.ClusterQueue) { q.Labels = map[string]string{"a": "b"} }, false},
		"another finalizer":  {func(q *kueue.ClusterQueue) { q.Finalizers = append(q.Finalizers, "example.com/mine") }, false},
		"no finalizer":       {func(q *kueue.ClusterQueue) { q.Finalizers = nil }, true},
		"only a foreign one": {func(q *kueue.ClusterQueue) { q.Finalizers = []string{"example.com/mine"} }, true},
		"none while it is deleted": {func(q *kueue.ClusterQueue) {
			q.Finalizers, q.DeletionTimestamp = []string{"example.com/mine"}, &metav1.Time{}
		}, false},
	} {
		next := before.DeepCopy()
		tc.edit(next)
		if got := editedOrUnheld.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: next}); got != tc.want {
			t.Errorf("%s: requeued is %v", name, got)
		}
	}
}

// A failed read does not make a ClusterQueue inactive.
func TestProblemsThatCannotBeRead(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build() // without kinds
	if got, err := (&clusterQueues{writer: writer{client: c}}).problems(t.Context(), clusterQueue(metav1.ConditionTrue)); err == nil {
		t.Errorf("problems %v and no error", got)
	}
	c = fake.NewClientBuilder().WithScheme(scheme(t)).Build()
	got, err := (&clusterQueues{writer: writer{client: c}}).problems(t.Context(), clusterQueue(metav1.ConditionTrue))
	if err != nil || len(got) != 1 || got[0].Reason != kueue.ReasonFlavorNotFound {
		t.Errorf("problems %v, %v, want one about a flavor", got, errors.Unwrap(err))
	}
}
