// Package kuberay runs Berth beside the real operator of KubeRay, on a whole control plane with simulated nodes: `make test-kuberay`
// builds the operator and says where it is. That KubeRay is 1.6, which stops a RayService as a whole only by its clusters; beside
// 1.7 stands the stand-in of internal/job/jobtest/kuberay. Upgrades are played on both, by the same scenes, so that
// the stand-in does what the operator does (upgrade_test.go).
package kuberay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/test/process"
)

// world is a control plane with KubeRay and Berth, and a queue of three processors.
type world struct {
	client.Client
	t        *testing.T
	ctx      context.Context
	rest     *rest.Config
	config   string // the kubeconfig
	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeader keeps what the API server warns of.
func (w *world) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, text)
}

const configuration = `
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, ray.io/raycluster, ray.io/rayjob, ray.io/rayservice]
`

// built is where the operator of KubeRay is, and its CRDs.
func built(t *testing.T) (operator, crds string) {
	t.Helper()
	operator, crds = os.Getenv("KUBERAY"), os.Getenv("KUBERAY_CRDS")
	if operator == "" || crds == "" {
		t.Skip("the operator of KubeRay is not built: make test-kuberay does that")
	}
	return operator, crds
}

func newWorld(t *testing.T) *world {
	t.Helper()
	operator, crds := built(t)
	w := newCluster(t)
	w.define(crds, nil)
	w.kubeRay(operator, w.config)
	w.berth(configuration)
	w.queue("3")
	return w
}

// newCluster is a control plane alone.
func newCluster(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), config: embeddedtest.Start(t, embeddedtest.Full)}
	var err error
	w.rest, err = clientcmd.BuildConfigFromFlags("", w.config)
	w.must(err)
	w.rest.QPS, w.rest.WarningHandler = -1, w
	scheme := install.Scheme()
	w.must(apiextensionsv1.AddToScheme(scheme))
	w.Client, err = client.New(w.rest, client.Options{Scheme: scheme})
	w.must(err)
	return w
}

// define makes the CRDs of KubeRay, changed.
func (w *world) define(crds string, change func(*apiextensionsv1.CustomResourceDefinition)) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) == 0 {
		w.t.Fatalf("no CRDs in %s (error %v)", crds, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		w.must(err)
		var crd apiextensionsv1.CustomResourceDefinition
		w.must(yaml.Unmarshal(raw, &crd))
		if change != nil {
			change(&crd)
		}
		w.must(w.Create(w.ctx, &crd))
	}
}

// berth runs a manager until the test ends, or until it is killed.
func (w *world) berth(configuration string) *process.Manager {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "config.yaml")
	w.must(os.WriteFile(file, []byte(configuration), 0o600))
	return process.Start(w.t, w.config, "--install", "--config", file, "--webhook-port", strconv.Itoa(embeddedtest.FreePort(w.t)), "--leader-elect=false")
}

// kubeRay runs the operator until the test ends.
func (w *world) kubeRay(operator, kubeconfig string, flags ...string) {
	w.t.Helper()
	address := func() string { return "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(w.t)) }
	log, err := os.Create(filepath.Join(w.t.TempDir(), "kuberay.log"))
	w.must(err)
	cmd := exec.Command(operator, append([]string{
		"-metrics-addr", address(), "-health-probe-bind-address", address(), "-enable-leader-election=false",
		"-feature-gates", "RayServiceIncrementalUpgrade=false",
	}, flags...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.must(cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if raw, err := os.ReadFile(log.Name()); err == nil && w.t.Failed() {
			w.t.Logf("log of KubeRay:\n%s", raw[max(0, len(raw)-6000):])
		}
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) until(what string, check func() error) {
	w.t.Helper()
	wait.Until(w.t, what, check)
}

// queue makes queue main of namespace team, of so many processors.
func (w *world) queue(cpus string) {
	w.t.Helper()
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "any"}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu", "memory"}, Flavors: []kueue.FlavorQuotas{{
				Name: "any", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse(cpus)}, {Name: "memory", NominalQuota: resource.MustParse("100Gi")}},
			}}}},
		}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "team"}},
	} {
		w.must(w.Create(w.ctx, o))
	}
}

const cluster = `
    rayVersion: "2.46.0"
    headGroupSpec:
      rayStartParams: {}
      template: {spec: {containers: [{name: ray-head, image: "rayproject/ray:2.46.0", resources: {requests: {cpu: "1", memory: 1Gi}}}]}}
    workerGroupSpecs:
    - groupName: small
      replicas: 1
      minReplicas: 0
      maxReplicas: 5
      rayStartParams: {}
      template: {spec: {containers: [{name: ray-worker, image: "rayproject/ray:2.46.0", resources: {requests: {cpu: "1", memory: 1Gi}}}]}}
`

// parse reads an object of Ray's, whose spec is in YAML.
func (w *world) parse(kind, name, spec string) *unstructured.Unstructured {
	w.t.Helper()
	o := &unstructured.Unstructured{}
	w.must(yaml.Unmarshal([]byte("spec:\n"+strings.ReplaceAll(spec, "CLUSTER", cluster)), &o.Object))
	o.SetAPIVersion("ray.io/v1")
	o.SetKind(kind)
	o.SetNamespace("team")
	o.SetName(name)
	return o
}

// make creates an object of Ray's in the queue. The spec is in YAML, with CLUSTER for that of a cluster.
func (w *world) make(kind, name, spec string, annotations map[string]string) *unstructured.Unstructured {
	w.t.Helper()
	o := w.parse(kind, name, spec)
	o.SetLabels(map[string]string{kueue.QueueNameLabel: "main"})
	o.SetAnnotations(annotations)
	w.until(kind+" "+name+" can be made", func() error { return w.Create(w.ctx, o.DeepCopy()) })
	return o
}

// workload is that of an object, not finished.
func (w *world) workload(o client.Object) (*kueue.Workload, error) {
	var list kueue.WorkloadList
	w.must(w.List(w.ctx, &list, client.InNamespace("team")))
	for i := range list.Items {
		x := &list.Items[i]
		if ref := metav1.GetControllerOf(x); ref != nil && ref.Name == o.GetName() && ref.Kind == o.GetObjectKind().GroupVersionKind().Kind && !is(x, kueue.WorkloadFinished) {
			return x, nil
		}
	}
	return nil, errors.New("it has no workload")
}

func is(x *kueue.Workload, condition string) bool {
	for _, c := range x.Status.Conditions {
		if c.Type == condition {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// pods counts the pods of clusters whose names have this prefix, all of them, and the running ones.
func (w *world) pods(cluster string) (all, running int) {
	w.t.Helper()
	var list corev1.PodList
	w.must(w.List(w.ctx, &list, client.InNamespace("team"), client.HasLabels{"ray.io/cluster"}))
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Labels["ray.io/cluster"], cluster) {
			all++
			if list.Items[i].Status.Phase == corev1.PodRunning {
				running++
			}
		}
	}
	return all, running
}

// using counts the unfinished pods of clusters whose names have this prefix: a failed one uses nothing, though it may still exist.
func (w *world) using(cluster string) (n int) {
	w.t.Helper()
	var list corev1.PodList
	w.must(w.List(w.ctx, &list, client.InNamespace("team"), client.HasLabels{"ray.io/cluster"}))
	for i := range list.Items {
		phase := list.Items[i].Status.Phase
		if strings.HasPrefix(list.Items[i].Labels["ray.io/cluster"], cluster) && phase != corev1.PodFailed && phase != corev1.PodSucceeded {
			n++
		}
	}
	return n
}

// runs waits until an object is admitted, and so many pods of its cluster run.
func (w *world) runs(o client.Object, n int) {
	w.t.Helper()
	w.until(o.GetName()+" runs", func() error {
		x, err := w.workload(o)
		if err != nil {
			return err
		}
		if all, running := w.pods(o.GetName()); !is(x, kueue.WorkloadAdmitted) || running != n || all != n {
			return fmt.Errorf("%d pods, %d run, conditions %v", all, running, x.Status.Conditions)
		}
		return nil
	})
}

// waits waits until an object is queued, has no quota reservation and has no pods.
func (w *world) waits(o client.Object) {
	w.t.Helper()
	w.until(o.GetName()+" waits", func() error {
		x, err := w.workload(o)
		if err != nil {
			return err
		}
		if all, _ := w.pods(o.GetName()); is(x, kueue.WorkloadQuotaReserved) || all > 0 {
			return fmt.Errorf("%d pods, conditions %v", all, x.Status.Conditions)
		}
		return nil
	})
}

// activate allows or forbids the Workload of an object to hold quota. Quota is released when no pod is left; but KubeRay calls a RayJob
// suspended when its cluster is deleted, and the pods end later.
func (w *world) activate(o client.Object, active bool) {
	w.t.Helper()
	x, err := w.workload(o)
	w.must(err)
	w.must(w.Patch(w.ctx, x, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"active":%v}}`, active))))
	if active {
		return
	}
	w.until(o.GetName()+" is stopped", func() error {
		x, err := w.workload(o)
		if err != nil || is(x, kueue.WorkloadQuotaReserved) {
			return fmt.Errorf("it has quota: %w", err)
		}
		if n := w.using(o.GetName()); n > 0 && o.GetObjectKind().GroupVersionKind().Kind != "RayJob" {
			w.t.Fatalf("%d pods of %s may run, and its quota is given back", n, o.GetName())
		}
		return nil
	})
}

func (w *world) remove(o client.Object) {
	w.t.Helper()
	w.must(w.Delete(w.ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	w.until(o.GetName()+" is gone", func() error {
		if all, _ := w.pods(o.GetName()); all > 0 {
			return fmt.Errorf("%d pods are left", all)
		}
		if _, err := w.workload(o); err == nil {
			return errors.New("its workload is not finished")
		}
		return nil
	})
}

// TestRealOperator takes RayClusters, a RayJob and a RayService through their lives beside the real KubeRay.
func TestRealOperator(t *testing.T) {
	w := newWorld(t)
	a := w.make("RayCluster", "a", cluster, nil)
	w.runs(a, 2)
	b := w.make("RayCluster", "b", cluster, nil)
	w.waits(b)
	w.activate(a, false) // an eviction
	w.runs(b, 2)
	w.waits(a)
	w.remove(b)
	w.activate(a, true)
	w.runs(a, 2)
	w.remove(a)

	elastic := map[string]string{kueue.ElasticJobAnnotation: "true"}
	e := w.make("RayCluster", "e", cluster, elastic)
	w.runs(e, 2)
	w.scale(e, 4)
	w.until("of the workers that have no quota the pods are there, and wait", func() error {
		if all, running := w.pods("e"); all != 5 || running != 2 {
			return fmt.Errorf("%d pods, %d run", all, running)
		}
		return nil
	})
	w.scale(e, 2)
	w.until("two workers have quota", func() error {
		if all, running := w.pods("e"); all != 3 || running != 3 {
			return fmt.Errorf("%d pods, %d run", all, running)
		}
		return nil
	})
	w.remove(e)

	j := w.make("RayJob", "j", "  entrypoint: python -c 'pass'\n  shutdownAfterJobFinishes: true\n  rayClusterSpec:CLUSTER", nil)
	w.until("the job has its cluster", func() error {
		x, err := w.workload(j)
		if _, running := w.pods("j"); err == nil && (running != 2 || !is(x, kueue.WorkloadAdmitted)) {
			return fmt.Errorf("%d pods run", running)
		}
		return err
	})
	w.activate(j, false)
	w.waits(j)
	w.remove(j)
	w.interactive()
	w.olderService(elastic)
}

// interactive is a RayJob that waits for a user's submission. KubeRay ignores spec.suspend then.
func (w *world) interactive() {
	i := w.make("RayJob", "i", "  submissionMode: InteractiveMode\n  shutdownAfterJobFinishes: true\n  rayClusterSpec:CLUSTER", nil)
	state := func(want string) func() error {
		return func() error {
			w.must(w.Get(w.ctx, client.ObjectKeyFromObject(i), i))
			if got, _, _ := unstructured.NestedString(i.Object, "status", "jobDeploymentStatus"); got != want {
				return fmt.Errorf("it is %q", got)
			}
			return nil
		}
	}
	w.runs(i, 2)
	w.until("it waits for its user", state("Waiting"))
	w.activate(i, false)
	w.until("it is suspended", state("Suspended"))
	w.waits(i)
	w.activate(i, true)
	w.runs(i, 2)
	w.until("it waits for its user again", state("Waiting"))
	w.remove(i)
}

func (w *world) scale(o *unstructured.Unstructured, n int64) {
	w.t.Helper()
	w.until("it can be scaled", func() error {
		if err := w.Get(w.ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		groups, _, _ := unstructured.NestedSlice(o.Object, "spec", "workerGroupSpecs")
		groups[0].(map[string]any)["replicas"] = n
		w.must(unstructured.SetNestedSlice(o.Object, groups, "spec", "workerGroupSpecs"))
		return w.Update(w.ctx, o)
	})
}

// olderService is a RayService of a KubeRay without spec.suspend: it is queued and stopped by its clusters, and the remaining gaps are
// reported.
func (w *world) olderService(elastic map[string]string) {
	s := w.make("RayService", "s", "  serveConfigV2: \"\"\n  rayClusterConfig:CLUSTER", elastic)
	w.mu.Lock()
	if !strings.Contains(strings.Join(w.warnings, "\n"), "KubeRay 1.7") {
		w.t.Errorf("nobody warns that upgrades do not wait for quota: %q", w.warnings)
	}
	w.mu.Unlock()
	w.runs(s, 2)
	w.activate(s, false)
	w.waits(s)
	w.activate(s, true)
	w.runs(s, 2)
	w.remove(s)
}
