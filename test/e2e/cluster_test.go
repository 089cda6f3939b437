// Package e2e runs the programs as a user would: a whole control plane, the manager as
// a process of its own that can be killed, and Jobs that really run on simulated nodes.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/test/process"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.MainOfClusters(m)) }

// cluster is a control plane.
type cluster struct {
	client.Client
	dir        string
	kubeconfig string
	webhooks   string // the port of the manager's webhooks, once it is installed
}

// up returns a cluster with two nodes in which Berth may have been installed before, with options one of the test's own.
func up(t *testing.T, options ...embeddedtest.Option) *cluster {
	t.Helper()
	c := &cluster{}
	if len(options) > 0 {
		two := func(cfg *embedded.Config) { cfg.Nodes = 2 }
		c.kubeconfig = embeddedtest.Start(t, append([]embeddedtest.Option{embeddedtest.Full, two}, options...)...)
	} else {
		c.dir, c.kubeconfig = embeddedtest.Lease(t, isInstalled)
	}
	var err error
	if c.Client, err = client.New(embeddedtest.ConfigOf(t, c.kubeconfig), client.Options{Scheme: install.Scheme()}); err != nil {
		t.Fatal(err)
	}
	return c
}

// isInstalled reports whether Berth installs a CRD or a ClusterRole: the API server takes seconds to store all of them anew.
func isInstalled(kind schema.GroupResource, name string) bool {
	switch kind.Resource {
	case "customresourcedefinitions":
		plural, group, _ := strings.Cut(name, ".")
		_, err := os.Stat(filepath.Join("../../config/crd", group+"_"+plural+".yaml"))
		return err == nil
	case "clusterroles":
		return strings.HasPrefix(name, "kueue-") || strings.HasPrefix(name, "jobset-")
	}
	return false
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(name), args, err, out)
	}
	return string(out)
}

// manager starts the only manager of the cluster, with arguments, and waits until it is ready. The first one installs; the next ones
// serve their webhooks at the same port.
func (c *cluster) manager(t *testing.T, args ...string) *process.Manager {
	t.Helper()
	if c.webhooks == "" {
		c.webhooks = strconv.Itoa(embeddedtest.FreePort(t))
		args = append(args, "--install")
	}
	return c.start(t, append(args, "--webhook-port", c.webhooks, "--leader-elect=false")...)
}

// start starts a manager with arguments and waits until it is ready.
func (c *cluster) start(t *testing.T, args ...string) *process.Manager {
	t.Helper()
	return process.Start(t, c.kubeconfig, args...)
}

func (c *cluster) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(context.Background(), o); err != nil {
			t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

func (c *cluster) get(t *testing.T, o client.Object) error {
	t.Helper()
	return c.Get(context.Background(), client.ObjectKeyFromObject(o), o)
}

// queues makes a flavor, a namespace a team, and for each a ClusterQueue with so many
// GPUs in one cohort and a LocalQueue named main.
func (c *cluster) queues(t *testing.T, cohort string, gpus map[string]string) {
	t.Helper()
	c.create(t, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: cohort}})
	for team, n := range gpus {
		cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: team}, Spec: kueue.ClusterQueueSpec{
			CohortName: kueue.CohortReference(cohort), NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{"nvidia.com/gpu"},
				Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(cohort), Resources: []kueue.ResourceQuota{
					{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse(n)},
				}}},
			}},
			Preemption: &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: kueue.ReclaimAny, WithinClusterQueue: kueue.PreemptionLowerPriority,
			},
		}}
		c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}, cq,
			&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(team)}})
	}
}

// job is a Job of one pod a GPU that runs for some seconds; queue "" names none.
func job(namespace, name, queue string, gpus int32, seconds string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: batchv1.JobSpec{
		Parallelism: &gpus, Completions: &gpus,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/run-seconds": seconds}},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
				Name: "main", Image: "any",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
			}}},
		},
	}}
	if queue != "" {
		j.Labels = map[string]string{kueue.QueueNameLabel: queue}
	}
	return j
}

// workloadOf finds the Workload of a job.
func (c *cluster) workloadOf(t *testing.T, j client.Object) (*kueue.Workload, error) {
	t.Helper()
	var list kueue.WorkloadList
	if err := c.List(context.Background(), &list, client.InNamespace(j.GetNamespace())); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.UID == j.GetUID() {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("job %s has no workload", j.GetName())
}

// runs, completed and waits are checks for eventually.
func (c *cluster) runs(t *testing.T, j *batchv1.Job) func() error {
	return func() error {
		if err := c.get(t, j); err != nil {
			return err
		}
		if *j.Spec.Suspend || j.Status.Active == 0 {
			return fmt.Errorf("suspended %v, %d pods active", *j.Spec.Suspend, j.Status.Active)
		}
		return nil
	}
}

func (c *cluster) completed(t *testing.T, j *batchv1.Job) func() error {
	return func() error {
		if err := c.get(t, j); err != nil {
			return err
		}
		for _, cond := range j.Status.Conditions {
			if cond.Type == batchv1.JobComplete && cond.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("status %+v", j.Status)
	}
}

func (c *cluster) waits(t *testing.T, j *batchv1.Job, reason string) func() error {
	return func() error {
		w, err := c.workloadOf(t, j)
		if err != nil {
			return err
		}
		cond := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		if cond == nil || cond.Status != metav1.ConditionFalse || cond.Reason != reason {
			return fmt.Errorf("QuotaReserved is %+v, want False/%s", cond, reason)
		}
		return nil
	}
}
