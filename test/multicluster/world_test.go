// Package multicluster runs one manager and its workers as a user would: three whole control planes, a manager process in each, and
// jobs that run on the simulated nodes of the workers.
package multicluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/test/process"
)

// system is the namespace of the managers.
const system = options.DefaultNamespace

// cluster is a control plane with a manager.
type cluster struct {
	client.Client
	t               *testing.T
	name, dir, port string
	proxy           *proxy // between a hub and the cluster
	config          string
	plane           *embedded.ControlPlane
	manager         *process.Manager
	webhooks        string // the port of the manager's webhooks, once it is installed
}

// start starts control planes that end with the test, and in each a manager with the given configuration.
func start(t *testing.T, names []string, configs map[string]string) []*cluster {
	t.Helper()
	return startWith(t, names, configs, func(*cluster) {})
}

// startWith does so, and prepares each control plane before its manager starts.
func startWith(t *testing.T, names []string, configs map[string]string, prepare func(*cluster)) []*cluster {
	t.Helper()
	embeddedtest.Quiet()
	var out []*cluster
	var wg sync.WaitGroup
	errs := make([]error, len(names))
	for i, name := range names {
		c := &cluster{t: t, name: name, dir: t.TempDir(), port: strconv.Itoa(embeddedtest.FreePort(t))}
		c.proxy = newProxy(t, "127.0.0.1:"+c.port)
		c.config = filepath.Join(c.dir, "config.yaml")
		c.configure(configs[name])
		out = append(out, c)
		t.Cleanup(func() {
			c.stopManager()
			_ = c.down()
		})
		wg.Go(func() { errs[i] = c.up() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, c := range out {
		var err error
		if c.Client, err = client.New(embeddedtest.ConfigOf(t, c.kubeconfig()), client.Options{Scheme: install.Scheme()}); err != nil {
			t.Fatal(err)
		}
		prepare(c)
		c.startManager()
	}
	return out
}

// configure writes the configuration with which the manager starts.
func (c *cluster) configure(config string) {
	c.t.Helper()
	if err := os.WriteFile(c.config, []byte("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"+config), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// up starts the control plane, with the data that is there.
func (c *cluster) up() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	port, _ := strconv.Atoi(c.port)
	c.plane, err = embedded.Start(ctx, embedded.Config{
		Dir: c.dir, Port: port, Nodes: 1, NodeCapacity: "cpu=32,memory=128Gi,nvidia.com/gpu=8,pods=10k",
	})
	return err
}

func (c *cluster) down() error {
	if c.plane == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return c.plane.Stop(ctx)
}

// startManager starts the manager and waits until it is ready. The first one installs; the next ones serve their webhooks at the same
// port.
func (c *cluster) startManager() {
	c.t.Helper()
	args := []string{"--config", c.config, "--leader-elect=false"}
	if c.webhooks == "" {
		c.webhooks = strconv.Itoa(embeddedtest.FreePort(c.t))
		args = append(args, "--install")
	}
	c.manager = process.Start(c.t, c.kubeconfig(), append(args, "--webhook-port", c.webhooks)...)
}

// stopManager ends the manager as a crash would.
func (c *cluster) stopManager() {
	if c.manager != nil {
		c.manager.Kill()
		c.manager = nil
	}
}

// inline is the kubeconfig of a cluster without references to files, which a manager would refuse.
func (c *cluster) inline() []byte {
	c.t.Helper()
	config, err := clientcmd.LoadFromFile(c.kubeconfig())
	if err == nil {
		err = clientcmdapi.FlattenConfig(config)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		c.t.Fatal(err)
	}
	return []byte(strings.Replace(string(text), ":"+c.port, ":"+c.proxy.port, 1))
}

func (c *cluster) create(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		if err := c.Create(context.Background(), o); err != nil {
			c.t.Fatalf("creating %T %s on %s: %v", o, o.GetName(), c.name, err)
		}
	}
}

// queues makes a team with so many CPUs, whose ClusterQueue has the given checks.
func (c *cluster) queues(cpus string, checks ...string) {
	c.t.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
			Flavors:          []kueue.FlavorQuotas{{Name: "default", Resources: []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse(cpus)}}}},
		}},
	}}
	for _, check := range checks {
		if cq.Spec.AdmissionChecksStrategy == nil {
			cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
		}
		cq.Spec.AdmissionChecksStrategy.AdmissionChecks = append(cq.Spec.AdmissionChecksStrategy.AdmissionChecks,
			kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(check)})
	}
	c.create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, cq,
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "team"}})
}

// workers makes the clusters known to the hub, and a check that sends jobs there.
func (c *cluster) workers(workers ...*cluster) {
	c.t.Helper()
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}
	for _, w := range workers {
		config.Spec.Clusters = append(config.Spec.Clusters, w.name)
		c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: w.name}, Data: map[string][]byte{"kubeconfig": w.inline()}},
			&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: kueue.MultiKueueClusterSpec{
				ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: w.name, LocationType: kueue.LocationTypeSecret}},
			}})
	}
	c.create(config, &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.MultiKueueControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "MultiKueueConfig", Name: "workers"},
	}})
}

// connection waits until the hub says so of a worker.
func (c *cluster) connection(name string, status metav1.ConditionStatus, reason string) {
	c.t.Helper()
	wait.Until(c.t, fmt.Sprintf("%s is %s/%s", name, status, reason), func() error {
		var cluster kueue.MultiKueueCluster
		if err := c.Get(context.Background(), client.ObjectKey{Name: name}, &cluster); err != nil {
			return err
		}
		a := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive)
		if a == nil || a.Status != status || a.Reason != reason {
			return fmt.Errorf("conditions %+v", cluster.Status.Conditions)
		}
		return nil
	})
}

// connectedSince returns when the connection of a worker last came or went.
func (c *cluster) connectedSince(name string) time.Time {
	c.t.Helper()
	var cluster kueue.MultiKueueCluster
	if err := c.Get(context.Background(), client.ObjectKey{Name: name}, &cluster); err != nil {
		c.t.Fatal(err)
	}
	if a := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive); a != nil {
		return a.LastTransitionTime.Time
	}
	return time.Time{}
}
