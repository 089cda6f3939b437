// Package multicluster is a demo of one manager and two workers: it submits jobs of three kinds, kills and restarts a worker, and waits
// for all jobs.
package multicluster

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// The clusters.
const (
	Hub     = "hub"
	lostOne = "w1"
)

// Workers are the clusters that run jobs.
var Workers = []string{lostOne, "w2"}

// Configuration of all clusters: a short timeout for lost workers, so that the demo shows it expire.
const Configuration = `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob]}
multiKueue: {workerLostTimeout: 10s, gcInterval: 10s}
`

//go:embed world.yaml
var world []byte

//go:embed jobs.yaml
var jobs []byte

// limit is how long each step may take.
const limit = 3 * time.Minute

// Cluster is a running cluster.
type Cluster struct {
	Kubeconfig string
	client     client.Client
}

// Machine starts and kills clusters.
type Machine interface {
	// Start starts a cluster with its manager, on its existing data, and waits until it is ready.
	Start(ctx context.Context, name string) (kubeconfig string, err error)
	// Kill ends it as a power cut would.
	Kill(name string) error
}

// Run writes the demo's progress to out.
func Run(ctx context.Context, m Machine, out io.Writer) error {
	d := &demo{Machine: m, out: out, began: time.Now(), clusters: map[string]*Cluster{}, seen: map[string]string{}}
	for _, act := range []func(context.Context) error{d.start, d.connect, d.submit, d.lose, d.regain, d.finish} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

type demo struct {
	Machine
	out      io.Writer
	began    time.Time
	clusters map[string]*Cluster
	seen     map[string]string // the last message about an object
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "%5.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// start starts all clusters at once.
func (d *demo) start(ctx context.Context) error {
	d.say("starting three control planes: %s, which holds the queue, and the workers %s", Hub, strings.Join(Workers, " and "))
	type started struct {
		name, kubeconfig string
		err              error
	}
	results := make(chan started)
	names := append([]string{Hub}, Workers...)
	for _, name := range names {
		go func() {
			path, err := d.Start(ctx, name)
			results <- started{name, path, err}
		}()
	}
	var errs []error
	for range names {
		r := <-results
		if r.err == nil {
			r.err = d.reach(r.name, r.kubeconfig)
		}
		if r.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, r.err))
		}
	}
	return errors.Join(errs...)
}

func (d *demo) reach(name, kubeconfig string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	d.clusters[name] = &Cluster{kubeconfig, c}
	return err
}

// connect makes queues on all clusters, and registers the workers on the hub.
func (d *demo) connect(ctx context.Context) error {
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Spec: kueue.MultiKueueConfigSpec{Clusters: Workers}}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Spec: kueue.AdmissionCheckSpec{
		ControllerName: kueue.MultiKueueControllerName,
		Parameters:     &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group, Kind: "MultiKueueConfig", Name: "workers"},
	}}
	hub := []client.Object{config, check}
	for _, name := range Workers {
		if err := d.create(ctx, name, world, queue(16)...); err != nil {
			return err
		}
		text, err := inline(d.clusters[name].Kubeconfig)
		if err != nil {
			return err
		}
		hub = append(hub, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: options.DefaultNamespace, Name: name}, Data: map[string][]byte{"kubeconfig": text}},
			&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.MultiKueueClusterSpec{
				ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: name, LocationType: kueue.LocationTypeSecret}},
			}})
	}
	if err := d.create(ctx, Hub, world, append(hub, queue(32, "workers")...)...); err != nil {
		return err
	}
	return d.until(ctx, "the workers are connected", func() bool { return d.active(ctx, Workers[0]) && d.active(ctx, Workers[1]) })
}

// queue returns a ClusterQueue with that many CPUs and checks, and its LocalQueue.
func queue(cpus int64, checks ...string) []client.Object {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
			Flavors: []kueue.FlavorQuotas{{Name: "default", Resources: []kueue.ResourceQuota{
				{Name: corev1.ResourceCPU, NominalQuota: *resource.NewQuantity(cpus, resource.DecimalSI)},
			}}},
		}},
	}}
	for _, check := range checks {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(check)}}}
	}
	return []client.Object{cq, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "team"},
	}}
}

// inline returns a kubeconfig without references to files, which a manager would refuse.
func inline(path string) ([]byte, error) {
	config, err := clientcmd.LoadFromFile(path)
	if err == nil {
		err = clientcmdapi.FlattenConfig(config)
	}
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(*config)
}

// create creates the objects of a text, then others.
func (d *demo) create(ctx context.Context, name string, text []byte, more ...client.Object) error {
	var all []client.Object
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		all = append(all, o)
	}
	for _, o := range append(all, more...) {
		var err error
		if !d.wait(ctx, func() bool { // webhooks may not answer yet
			err = client.IgnoreAlreadyExists(d.clusters[name].client.Create(ctx, o))
			return err == nil
		}) {
			return fmt.Errorf("creating %T %s on %s: %w", o, o.GetName(), name, err)
		}
	}
	return nil
}

// active reports whether the hub is connected to a worker.
func (d *demo) active(ctx context.Context, name string) bool {
	var c kueue.MultiKueueCluster
	err := d.clusters[Hub].client.Get(ctx, client.ObjectKey{Name: name}, &c)
	return err == nil && apimeta.IsStatusConditionTrue(c.Status.Conditions, kueue.MultiKueueClusterActive)
}

// wait polls until the condition holds, and prints changes meanwhile. It is false after the time limit.
func (d *demo) wait(ctx context.Context, is func() bool) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline) && ctx.Err() == nil; {
		d.look(ctx)
		if is() {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
	return false
}

func (d *demo) until(ctx context.Context, what string, is func() bool) error {
	switch {
	case d.wait(ctx, is):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("after %s still not: %s", limit, what)
}

// workloads returns the hub's Workloads by the names of their jobs.
func (d *demo) workloads(ctx context.Context) map[string]*kueue.Workload {
	out := map[string]*kueue.Workload{}
	var list kueue.WorkloadList
	if d.clusters[Hub] == nil || d.clusters[Hub].client.List(ctx, &list, client.InNamespace("team")) != nil {
		return out
	}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil {
			out[owner.Kind+" "+owner.Name] = &list.Items[i]
		}
	}
	return out
}

// look prints changes of jobs and workers.
func (d *demo) look(ctx context.Context) {
	all := d.workloads(ctx)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w := all[name]
		state := "waits"
		switch {
		case lifecycle.IsFinished(w):
			state = "has finished"
		case w.Status.ClusterName != "" && lifecycle.IsAdmitted(w):
			state = "runs on " + w.Status.ClusterName
		case lifecycle.IsEvicted(w):
			state = "is taken back: " + cmp.Or(lifecycle.Condition(w, kueue.WorkloadEvicted).Message, "evicted")
		case len(w.Status.NominatedClusterNames) > 0:
			state = "is offered to " + strings.Join(w.Status.NominatedClusterNames, " and ")
		}
		d.tell(name, state)
	}
	if d.clusters[Hub] == nil {
		return
	}
	var list kueue.MultiKueueClusterList
	if d.clusters[Hub].client.List(ctx, &list) != nil {
		return
	}
	for i := range list.Items {
		if a := apimeta.FindStatusCondition(list.Items[i].Status.Conditions, kueue.MultiKueueClusterActive); a != nil {
			state := "is connected"
			if a.Status != metav1.ConditionTrue {
				state = "is not connected: " + a.Reason
			}
			d.tell("worker "+list.Items[i].Name, state)
		}
	}
}

func (d *demo) tell(name, state string) {
	if d.seen[name] != state {
		d.seen[name] = state
		d.say("%-22s %s", name, state)
	}
}

// submit creates jobs of three kinds on the hub.
func (d *demo) submit(ctx context.Context) error {
	d.say("two Jobs, a JobSet and a TrainJob are created on the %s", Hub)
	if err := d.create(ctx, Hub, jobs); err != nil {
		return err
	}
	return d.until(ctx, "every job runs somewhere, and one on "+lostOne, func() bool { return d.running(ctx, "") == 4 })
}

// running counts the jobs that run on a worker; "" is any.
func (d *demo) running(ctx context.Context, worker string) int {
	n := 0
	for _, w := range d.workloads(ctx) {
		if c := w.Status.ClusterName; c != "" && (worker == "" || c == worker) && lifecycle.IsAdmitted(w) && !lifecycle.IsFinished(w) {
			n++
		}
	}
	return n
}

// lose kills a worker with running jobs.
func (d *demo) lose(ctx context.Context) error {
	d.say("%s is killed, with %d jobs on it; after ten seconds they are sent again", lostOne, d.running(ctx, lostOne))
	if err := d.Kill(lostOne); err != nil {
		return err
	}
	return d.until(ctx, "nothing is counted on "+lostOne, func() bool { return !d.active(ctx, lostOne) && d.running(ctx, lostOne) == 0 })
}

// regain starts it again.
func (d *demo) regain(ctx context.Context) error {
	d.say("%s is started again, with all that it had", lostOne)
	kubeconfig, err := d.Start(ctx, lostOne)
	if err == nil {
		err = d.reach(lostOne, kubeconfig)
	}
	if err != nil {
		return err
	}
	return d.until(ctx, lostOne+" is connected again", func() bool { return d.active(ctx, lostOne) })
}

// finish waits for all jobs to finish, and for the workers to be empty.
func (d *demo) finish(ctx context.Context) error {
	err := d.until(ctx, "all jobs have finished", func() bool {
		all := d.workloads(ctx)
		for _, w := range all {
			if !lifecycle.IsFinished(w) {
				return false
			}
		}
		return len(all) == 4
	})
	if err != nil {
		return err
	}
	err = d.until(ctx, "the workers hold nothing", func() bool {
		for _, name := range Workers {
			var list kueue.WorkloadList
			if err := d.clusters[name].client.List(ctx, &list, client.InNamespace("team")); err != nil || len(list.Items) > 0 {
				return false
			}
		}
		return true
	})
	if err == nil {
		d.say("all jobs have finished, and nothing of them is left on the workers")
	}
	return err
}
