package kuberay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/controller"
	"github.com/berth-project/berth/internal/job/jobtest/kuberay"
	"github.com/berth-project/berth/internal/job/kind/ray"
	"github.com/berth-project/berth/internal/job/plan/view"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	chain "github.com/berth-project/berth/internal/workload/plan/slices"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// server is a world on a real API server, with a manager that makes Berth's writes. There are no webhooks.
type server struct {
	*world
	tb   testing.TB
	rest *rest.Config
	job  *job.Descriptor // of RayJobs, beside services and clusters
	stop func()
	// again stops the manager and starts another one
	again func()
}

func newServer(t testing.TB, hold string) *server {
	t.Helper()
	s := &server{world: newWorld(t, hold), tb: t, rest: embeddedtest.Config(t), job: ray.Job(ray.Settings{})}
	s.cfg.Kinds[s.job.GVK] = true
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme} {
		must(s.world, add(scheme))
	}
	c, err := client.New(s.rest, client.Options{Scheme: scheme})
	must(s.world, err)
	s.c, s.m = c, nil
	s.cfg.ManagedNamespaces = labels.SelectorFromSet(labels.Set{"managed": "yes"})
	s.install()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ray-", Labels: map[string]string{"managed": "yes"}}}
	must(s.world, c.Create(s.ctx, ns))
	must(s.world, c.Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}})) // pods need it
	s.op.Client, s.op.Namespace = c, ns.Name
	s.start(scheme)
	t.Cleanup(func() { s.stop() })
	t.Cleanup(s.op.Begin(context.Background()))
	return s
}

func (s *server) descriptors() []*job.Descriptor {
	return []*job.Descriptor{s.service, s.cluster, s.job}
}

// install makes the CRDs and a flavor.
func (s *server) install() {
	raw, err := config.FS.ReadFile(path.Join("crd", "kueue.x-k8s.io_workloads.yaml"))
	must(s.world, err)
	var workloads apiextensionsv1.CustomResourceDefinition
	must(s.world, yaml.Unmarshal(raw, &workloads))
	crds := []*apiextensionsv1.CustomResourceDefinition{&workloads}
	for _, other := range []string{"resourceflavors", "workloadpriorityclasses", "localqueues", "clusterqueues"} {
		var crd apiextensionsv1.CustomResourceDefinition
		raw, err := config.FS.ReadFile(path.Join("crd", "kueue.x-k8s.io_"+other+".yaml"))
		must(s.world, err)
		must(s.world, yaml.Unmarshal(raw, &crd))
		crds = append(crds, &crd)
	}
	for _, d := range s.descriptors() {
		crds = append(crds, embeddedtest.LooseCRD(d.GVK, d.Resource))
	}
	for _, crd := range crds {
		must(s.world, client.IgnoreAlreadyExists(s.c.Create(s.ctx, crd)))
	}
	wait.Until(s.tb, "the kinds are served", func() error {
		for _, d := range s.descriptors() {
			if err := s.c.List(s.ctx, view.NewList(d.GVK)); err != nil {
				return err
			}
		}
		return s.c.List(s.ctx, &kueue.WorkloadList{})
	})
	wait.Until(s.tb, "there is a flavor", func() error {
		return client.IgnoreAlreadyExists(s.c.Create(s.ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}))
	})
}

// start starts a manager.
func (s *server) start(scheme *runtime.Scheme) {
	embeddedtest.Quiet()
	run := func() func() {
		mgr, err := ctrl.NewManager(s.rest, ctrl.Options{
			Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
			Cache: embeddedtest.Only(s.op.Namespace), // tests run in parallel
		})
		must(s.world, err)
		must(s.world, controller.Setup(s.ctx, mgr, controller.Options{
			Config: s.cfg, Descriptors: s.descriptors(), Workers: func(string) int { return 2 }, Now: time.Now,
		}))
		return embeddedtest.Run(s.tb, mgr)
	}
	stop := run()
	s.stop = func() { stop() }
	s.again = func() { stop(); stop = run() }
}

// create creates a service as by the webhooks.
func (s *server) create(o *unstructured.Unstructured) {
	o.SetNamespace(s.op.Namespace)
	s.service.Suspend(o)
	s.service.Default(o, true, &job.Setting{Config: s.cfg, Mode: job.Managed})
	must(s.world, s.c.Create(s.ctx, o))
}

// guard is check with concurrent writers: admissions are read before and after the pods.
func (s *server) guard() {
	before, _ := s.granted()
	runs := s.running()
	after, _ := s.granted()
	for k, n := range runs { //berth:unordered a test
		if n > max(before[k], after[k]) {
			s.fail("%d pods of %s may run, and %d and %d are admitted", n, k, before[k], after[k])
		}
	}
}

// until runs the engine, and checks that no pod runs without quota.
func (s *server) until(what string, check func() error) {
	s.tb.Helper()
	wait.Until(s.tb, what, func() error {
		s.guard()
		s.admit()
		s.succeed()
		return check()
	})
}

// TestServicesOnAServer runs a life of random events on a real API server, with a disturbed KubeRay and managers that are stopped
// at any time. -seed decides the events, but not their timing.
func TestServicesOnAServer(t *testing.T) {
	first := embeddedtest.Seed(t, 1)
	for _, seed := range []uint64{first, first + 1} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			s := newServer(t, "ChildSuspended")
			s.rng = rand.New(rand.NewPCG(seed, 7))
			own := rand.New(rand.NewPCG(seed, 8))
			chance := func(percent int) bool { return own.IntN(100) < percent } // called by the operator only
			s.op.Trouble(func() {
				s.op.Dies, s.op.Skips = func() bool { return chance(10) }, func(client.Object) bool { return chance(20) }
			})
			s.create(manifest(2, "1"))
			goal := func() string { return kuberay.HashOf(view.Map(s.get().Object, "spec", "rayClusterConfig")) }
			s.until("it serves", func() error { return s.served(goal()) })
			names := []string{
				"quota", "preempted", "deactivated", "activated", "image", "requests", "requests", "replicas", "strategy", "a cluster scales", "a pod deleted",
				"cluster opened", "hold taken away", "Berth restarts", "engine", "replaced", "engine", "a cluster deleted",
			}
			for range 40 {
				name, n := names[s.rng.IntN(len(names))], s.rng.IntN(12)
				s.logf("%s (%d)", name, n)
				if name == "Berth restarts" {
					s.again()
				} else {
					events[name](s.world, n)
				}
				for range s.rng.IntN(8) {
					s.guard()
					time.Sleep(10 * time.Millisecond)
				}
			}
			s.op.Trouble(func() { s.op.Dies, s.op.Skips = nil, nil })
			s.logf("end")
			s.quota = 1000
			s.until("the service asks for, and has, what it serves", func() error { s.activate(); return s.served(goal()) })
		})
	}
}

// BenchmarkGateOpens measures the time from the admission of an upgrade's second cluster to its release.
func BenchmarkGateOpens(b *testing.B) {
	s := newServer(b, "ChildSuspended")
	s.create(manifest(1, "1"))
	s.quota = 1000
	goal := func() string { return kuberay.HashOf(view.Map(s.get().Object, "spec", "rayClusterConfig")) }
	s.until("it serves", func() error { return s.served(goal()) })
	var waited []time.Duration
	for n := 0; b.Loop(); n++ {
		for {
			next := s.get()
			container(view.Map(next.Object, "spec"))["image"] = fmt.Sprintf("ray:new-%d", n)
			if s.c.Update(s.ctx, next) == nil {
				break
			}
		}
		wait.Until(b, "a slice waits for a cluster that is held", func() error {
			waits := slices.ContainsFunc(s.live(), func(x *kueue.Workload) bool { return chain.Replaces(x) != "" && !lifecycle.IsReserved(x) })
			if len(s.op.Objects(s.ctx, "RayCluster")) != 2 || !waits {
				return fmt.Errorf("none does")
			}
			return nil
		})
		s.admit()
		start := time.Now()
		for slices.ContainsFunc(s.op.Objects(s.ctx, "RayCluster"), func(c unstructured.Unstructured) bool { return view.Bool(c.Object, "spec", "suspend") }) {
			time.Sleep(time.Millisecond)
		}
		waited = append(waited, time.Since(start))
		s.until("it serves", func() error { return s.served(goal()) })
	}
	slices.Sort(waited)
	b.ReportMetric(float64(waited[len(waited)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(waited[len(waited)-1].Microseconds())/1000, "ms/slowest")
}
