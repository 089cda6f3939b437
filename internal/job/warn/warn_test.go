package warn

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	kindjob "github.com/berth-project/berth/internal/job/kind/job"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// TestNamespaceIsLate: the cache of namespaces has a namespace only after the object in it was looked at. The object gets its event.
func TestNamespaceIsLate(t *testing.T) {
	ctx := t.Context()
	arrives := make(chan struct{})
	mgr, err := ctrl.NewManager(embeddedtest.Config(t), ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Namespace{}: {Transform: func(o any) (any, error) {
			if ns, ok := o.(*corev1.Namespace); ok && ns.Name == "late" {
				<-arrives
			}
			return o, nil
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	none, err := labels.Parse("managed")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Config: &job.Config{ManagedNamespaces: none}, Descriptors: []*job.Descriptor{kindjob.Descriptor()}, Now: time.Now}
	if err := Setup(ctx, mgr, o); err != nil {
		t.Fatal(err)
	}
	embeddedtest.Run(t, mgr)
	arrive := sync.OnceFunc(func() { close(arrives) })
	t.Cleanup(arrive) // before the manager is stopped, which waits for its caches
	c, err := client.New(mgr.GetConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &corev1.Namespace{}); err != nil { // it is filled: a cache that begins with the namespace keeps the controller from its start
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "late"}},
		&batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "late", Name: "j", Labels: map[string]string{kueue.QueueNameLabel: "lq"}},
			Spec: batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			}}},
		},
	} {
		if err := c.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "the Job was looked at", func() error {
		if n, err := reconciles(); err != nil || n == 0 {
			return errors.Join(err, errors.New("no reconcile yet"))
		}
		return nil
	})
	arrive()
	wait.Until(t, "the Job has its event", func() error {
		var events eventsv1.EventList
		if err := c.List(ctx, &events, client.InNamespace("late")); err != nil {
			return err
		}
		if len(events.Items) != 1 || events.Items[0].Note != job.UnmanagedNote("late") {
			return fmt.Errorf("events: %v", events.Items)
		}
		return nil
	})
}

// reconciles returns how many objects the controller has looked at.
func reconciles() (n float64, err error) {
	families, err := metrics.Registry.Gather()
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "controller" && l.GetValue() == reporter {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n, err
}
