package controller

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// holder runs the controllers of finalizers until the test ends, or until it is stopped.
func holder(t *testing.T, scheme *runtime.Scheme) (stop func()) {
	t.Helper()
	mgr, err := ctrl.NewManager(embeddedtest.Config(t), ctrl.Options{
		Scheme: scheme, Logger: testr.New(t), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // one manager after another
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := setupHeld(mgr, 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); stopped {
			return
		}
		stopped = true
		if err := <-ended; err != nil {
			t.Errorf("the manager: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// A Topology stays while a ResourceFlavor names it, also one that is being deleted, and a manager that starts later deletes it just as well.
// spec: 20 §4.5, §7 example 31.
func TestTopologyIsHeld(t *testing.T) {
	c := embeddedtest.Client(t, "../../../config/crd", kueue.AddToScheme)
	stop := holder(t, c.Scheme())
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{
		{NodeLabel: "example.com/rack"}, {NodeLabel: "kubernetes.io/hostname"},
	}}}
	flavor := func(name string) *kueue.ResourceFlavor {
		return &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{
			NodeLabels: map[string]string{"pool": name}, TopologyName: kueue.TopologyReference(topology.Name),
		}}
	}
	queue := clusterQueue(metav1.ConditionTrue)
	queue.Name, queue.Spec.ResourceGroups[0].Flavors[0].Name = "uses-b", "b"
	a, b := flavor("a"), flavor("b")
	for _, o := range []client.Object{topology, a, b, queue} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []client.Object{topology, a, b} {
		wait.Until(t, fmt.Sprintf("%T %s is held", o, o.GetName()), func() error {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || slices.Contains(o.GetFinalizers(), kueue.ResourceInUseFinalizer) {
				return err
			}
			return fmt.Errorf("finalizers %v", o.GetFinalizers())
		})
	}
	remove := func(o client.Object) {
		t.Helper()
		if err := c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(o client.Object) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("%T %s is deleted", o, o.GetName()), func() error {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); client.IgnoreNotFound(err) != nil || err == nil {
				return fmt.Errorf("it exists, with finalizers %v: %w", o.GetFinalizers(), err)
			}
			return nil
		})
	}
	stays := func(why string) {
		t.Helper()
		wait.Stays(t, 300*time.Millisecond, "the Topology stays: "+why, func() error {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(topology), topology)
			if err == nil && topology.DeletionTimestamp == nil {
				return fmt.Errorf("it is not being deleted")
			}
			return err
		})
	}
	remove(topology)
	stays("two flavors name it")
	remove(a)
	gone(a)
	stays("one flavor names it")
	remove(b)
	stays("the flavor is held itself")
	stop()
	remove(queue)
	holder(t, c.Scheme())
	gone(b)
	gone(topology)

	again := topology.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Name: topology.Name}
	if err := c.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	remove(again) // whether it is held already or not
	gone(again)
}
