package follow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	plan "github.com/berth-project/berth/internal/workload/plan/variants"
)

// family is a parent with its variants, of which a manager runs that dies at one of its writes. The test is the engine and the job.
type family struct {
	*world
	m      *embeddedtest.Mortal
	plain  *rest.Config
	stop   func()
	parent *kueue.Workload
}

func newFamily(t *testing.T, m *embeddedtest.Mortal) *family {
	t.Helper()
	f := &family{world: newWorld(t), m: m, plain: embeddedtest.Config(t)}
	f.queue("variants", func(q *kueue.ClusterQueue) {
		q.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{Migration: kueue.ConcurrentAdmissionMigration{Mode: kueue.TryPreferredFlavors}}
		group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{"cpu"}}
		for _, name := range []kueue.ResourceFlavorReference{"a", "b"} {
			group.Flavors = append(group.Flavors, kueue.FlavorQuotas{
				Name: name, Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("1")}},
			})
		}
		q.Spec.ResourceGroups = []kueue.ResourceGroup{group}
	})
	f.must(f.c.Create(t.Context(), f.localQueue("divided", "variants")))
	mortal := rest.CopyConfig(f.plain)
	mortal.Wrap(m.Wrap)
	f.start(mortal)
	f.parent = f.create("p", func(wl *kueue.Workload) { wl.Spec.QueueName = "divided" })
	return f
}

func (f *family) start(cfg *rest.Config) {
	f.t.Helper()
	mgr := embeddedtest.Manager(f.t, cfg, ctrl.Options{Scheme: f.c.Scheme(), Cache: embeddedtest.Only(f.namespace)})
	d := &Divider{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Status: reconcile.NewWorkloadStatus(mgr.GetClient()),
		Events: reconcile.NewEvents(mgr.GetEventRecorder("test"), nil), Plan: plan.Config{On: true}, Now: time.Now,
	}
	f.must(d.Setup(f.t.Context(), mgr, 2))
	f.stop = embeddedtest.Run(f.t, mgr)
}

// until waits, with another manager once the first one is dead. Meanwhile at most one variant is admitted.
func (f *family) until(what string, check func() error) {
	f.t.Helper()
	wait.Until(f.t, what, func() error {
		f.m.Revive(func() {
			f.stop()
			f.start(f.plain)
		})
		admitted := 0
		for _, v := range f.variants() {
			if lifecycle.IsAdmitted(v) && !lifecycle.IsFinished(v) {
				admitted++
			}
		}
		if admitted > 1 {
			f.t.Fatalf("%s: %d variants are admitted", what, admitted)
		}
		return check()
	})
}

func (f *family) variants() (out []*kueue.Workload) {
	f.t.Helper()
	var list kueue.WorkloadList
	f.must(f.c.List(f.t.Context(), &list, client.InNamespace(f.namespace)))
	for i := range list.Items {
		if lifecycle.VariantOf(&list.Items[i]) == string(f.parent.UID) {
			out = append(out, &list.Items[i])
		}
	}
	return out
}

// variant returns the variant of a flavor, nil for none.
func (f *family) variant(flavor kueue.ResourceFlavorReference) *kueue.Workload {
	f.t.Helper()
	for _, v := range f.variants() {
		if plan.FlavorOf(v) == flavor {
			return v
		}
	}
	return nil
}

// write makes a transition, again and again until no other write is in its way.
func (f *family) write(what string, of func() *kueue.Workload, change func(*kueue.Workload) bool) {
	f.t.Helper()
	f.until(what, func() error {
		wl := of()
		if wl == nil {
			return errors.New("there is no such Workload")
		}
		_, _, err := reconcile.NewWorkloadStatus(f.c).Transition(f.t.Context(), wl, change)
		return err
	})
}

// reserve gives the variant of a flavor quota; alone says that no other one has any, so that it is admitted.
func (f *family) reserve(flavor kueue.ResourceFlavorReference, alone bool) {
	f.t.Helper()
	f.write(string(flavor)+" gets quota", func() *kueue.Workload { return f.variant(flavor) }, func(v *kueue.Workload) bool {
		changed := (lifecycle.Machine{}).Reserve(v, &kueue.Admission{
			ClusterQueue: kueue.ClusterQueueReference(f.own("variants")), PodSetAssignments: []kueue.PodSetAssignment{{
				Name: "main", Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": flavor},
			}},
		}, nil, metav1.NewTime(f.now))
		return (alone && (lifecycle.Machine{}).AdmitVariant(v, metav1.NewTime(f.now))) || changed
	})
}

func (f *family) readParent() *kueue.Workload { return f.live(f.parent) }

// runsOn waits until the parent is admitted with a flavor.
func (f *family) runsOn(flavor kueue.ResourceFlavorReference) {
	f.t.Helper()
	f.until("it runs on "+string(flavor), func() error {
		p := f.readParent()
		if v := plan.RunsOn(p, f.variants()); !lifecycle.IsAdmitted(p) || lifecycle.IsEvicted(p) || v == nil || plan.FlavorOf(v) != flavor {
			return fmt.Errorf("its conditions are %v", p.Status.Conditions)
		}
		return nil
	})
}

// TestDividerKilledAtAnyWrite: a job starts on the worse flavor, moves to the better one, and ends, whenever the manager dies.
func TestDividerKilledAtAnyWrite(t *testing.T) {
	embeddedtest.AtEveryWrite(t, 12, func(t *testing.T, m *embeddedtest.Mortal) {
		f := newFamily(t, m)
		f.reserve("b", true)
		f.runsOn("b")
		f.write("its pods are ready, and a node failed", f.readParent, func(p *kueue.Workload) bool {
			p.Status.UnhealthyNodes = []kueue.UnhealthyNode{{Name: "n"}}
			return (lifecycle.Machine{}).PodsReady(p, true, metav1.NewTime(f.now))
		})
		f.until("the variant follows", func() error {
			v := f.variant("b")
			c := lifecycle.Condition(v, kueue.WorkloadPodsReady)
			if c == nil || c.Status != metav1.ConditionTrue || !slices.Equal(v.Status.UnhealthyNodes, f.readParent().Status.UnhealthyNodes) {
				return fmt.Errorf("ready %v, failed nodes %v", c, v.Status.UnhealthyNodes)
			}
			return nil
		})
		f.reserve("a", false)
		f.until("both are evicted", func() error {
			if b := f.variant("b"); !lifecycle.IsEvicted(b) || !lifecycle.IsEvicted(f.readParent()) || lifecycle.IsAdmitted(f.variant("a")) {
				return fmt.Errorf("b has conditions %v", b.Status.Conditions)
			}
			return nil
		})
		f.write("the job has stopped", f.readParent, func(p *kueue.Workload) bool {
			return (lifecycle.Machine{}).Release(p, false, metav1.NewTime(f.now))
		})
		f.runsOn("a")
		f.until("b has no quota", func() error {
			if b := f.variant("b"); lifecycle.IsReserved(b) || lifecycle.IsActive(b) {
				return fmt.Errorf("active %v, conditions %v", lifecycle.IsActive(b), b.Status.Conditions)
			}
			return nil
		})
		f.write("the job has ended", f.readParent, func(p *kueue.Workload) bool {
			return (lifecycle.Machine{}).Finish(p, kueue.ReasonSucceeded, "done", metav1.NewTime(f.now))
		})
		f.until("the variants are finished", func() error {
			for _, v := range f.variants() {
				if !lifecycle.IsFinished(v) {
					return fmt.Errorf("%s is not", v.Name)
				}
			}
			return nil
		})
	})
}

// TestVariantThatCannotBeCreated: the other variants are created all the same, the parent has a warning event, and the creation is retried with
// growing pauses.
func TestVariantThatCannotBeCreated(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	flavor := func(name kueue.ResourceFlavorReference) kueue.ResourceGroup {
		return kueue.ResourceGroup{Flavors: []kueue.FlavorQuotas{{Name: name}}}
	}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "divided"}, Spec: kueue.ClusterQueueSpec{
		ConcurrentAdmissionPolicy: &kueue.ConcurrentAdmissionPolicy{}, ResourceGroups: []kueue.ResourceGroup{flavor("a"), flavor("b")},
	}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "divided"}}
	parent := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}, Spec: kueue.WorkloadSpec{QueueName: "lq"}}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cq, lq, parent).
		WithIndex(&kueue.Workload{}, byParent, func(o client.Object) []string {
			if owner := parentOf(o); owner != nil {
				return []string{string(owner.UID)}
			}
			return nil
		}).Build()
	no := apierrors.NewForbidden(kueue.Resource("workloads"), "a", errors.New("the test says no"))
	refused := plan.Name(parent, "a")
	api := interceptor.NewClient(stored, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if o.GetName() == refused {
				return no
			}
			return c.Create(ctx, o, options...)
		},
	})
	emitted := events.NewFakeRecorder(10)
	d := &Divider{Client: api, Reader: api, Events: reconcile.NewEvents(emitted, nil), Plan: plan.Config{On: true}, Now: time.Now}
	if _, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(parent)}); !errors.Is(err, no) {
		t.Errorf("error %v", err)
	}
	if err := stored.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: plan.Name(parent, "b")}, &kueue.Workload{}); err != nil {
		t.Errorf("the other variant: %v", err)
	}
	emitted.Eventf(parent, nil, "Normal", "End", "", "")
	if first := <-emitted.Events; !strings.HasPrefix(first, "Warning FailedCreateVariant") {
		t.Errorf("the first event is %s", first)
	}
}
