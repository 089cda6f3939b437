package wire

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/admission/certs"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// TestRun passes through every layer: a Job is suspended by the webhook, gets a Workload, is admitted, starts, runs on a simulated node and
// finishes. The manager has only the installed access rules.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	admin := embeddedtest.ConfigOf(t, embeddedtest.Start(t, embeddedtest.Full))
	ctx, cancel := context.WithCancel(context.Background())
	o := options.Default()
	o.LeaderElection.Enabled = false
	o.Metrics.Address, o.Health.Address = "0", "0"
	o.Webhook.Host, o.Webhook.Port = "127.0.0.1", embeddedtest.FreePort(t)
	o.VisibilityAddress = "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t))
	groups, err := install.ParseGroups("")
	if err != nil {
		t.Fatal(err)
	}
	url := "https://127.0.0.1:" + strconv.Itoa(o.Webhook.Port)
	if err := install.Apply(ctx, admin, install.Options{WebhookURL: url, Options: o, Groups: groups}, io.Discard); err != nil {
		t.Fatal(err)
	}
	account := rest.CopyConfig(admin)
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + o.Namespace + ":kueue-controller-manager",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{
			REST: account, Options: o, Groups: groups, WebhookURL: url,
			OnReady: func() { close(ready) }, Log: testr.New(t),
		})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	wait.Ready(t, "the manager", ready, ended)
	c, err := client.New(admin, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first", Labels: map[string]string{kueue.QueueNameLabel: "lq"}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/run-seconds": "0.5"}},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
				Name: "main", Image: "any",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			}}},
		}},
	}
	for _, object := range []client.Object{
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"type": "kwok"}}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
				Name: "f", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("2")}},
			}}}},
		}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}},
		job,
	} {
		if err := c.Create(ctx, object); err != nil {
			t.Fatalf("creating %T: %v", object, err)
		}
	}
	if job.Spec.Suspend == nil || !*job.Spec.Suspend {
		t.Error("the webhook did not suspend the Job")
	}
	wait.Until(t, "the Job completes on the flavor's nodes", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if job.Status.Succeeded != 1 || job.Spec.Template.Spec.NodeSelector["type"] != "kwok" {
			return fmt.Errorf("selector %v, status %+v", job.Spec.Template.Spec.NodeSelector, job.Status)
		}
		return nil
	})
	runJobSet(ctx, t, c)
	runTrainJob(ctx, t, c)
	wait.Until(t, "the queue is empty again", func() error {
		var cq kueue.ClusterQueue
		if err := c.Get(ctx, client.ObjectKey{Name: "cq"}, &cq); err != nil {
			return err
		}
		if len(cq.Status.FlavorsUsage) != 1 || !cq.Status.FlavorsUsage[0].Resources[0].Total.IsZero() || cq.Status.AdmittedWorkloads != 0 {
			return fmt.Errorf("status %+v", cq.Status)
		}
		return nil
	})
	expectMetrics(t)
}

// expectMetrics checks the series after the lifecycle of one Job.
func expectMetrics(t *testing.T) {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for _, name := range []string{
		"kueue_admission_attempts_total", "kueue_quota_reserved_workloads_total", "kueue_admitted_workloads_total",
		"kueue_finished_workloads_total", "kueue_workload_creation_latency_seconds", "kueue_cluster_queue_status",
	} {
		if got[name] != 1 {
			t.Errorf("metric %s is %v, want 1", name, got[name])
		}
	}
	if got["berth_engine_turn_duration_seconds"] == 0 || got["berth_scheduler_phase_duration_seconds"] == 0 {
		t.Error("no phase of the scheduler is metered")
	}
}

// A JobSet runs to its end beside the queues, with the installed access rules and webhooks.
func runJobSet(ctx context.Context, t *testing.T, c client.Client) {
	t.Helper()
	pods := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/run-seconds": "0.5"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "any"}}},
	}
	js := &jobsetv1alpha2.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ring"},
		Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{{
			Name: "oar", Replicas: new(int32(2)), Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pods}},
		}}},
	}
	if err := c.Create(ctx, js); err != nil {
		t.Fatal(err)
	}
	if js.Spec.SuccessPolicy == nil {
		t.Error("the webhook did not default the JobSet")
	}
	wait.Until(t, "the JobSet completes", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(js), js); err != nil {
			return err
		}
		if js.Status.TerminalState != jobsetv1alpha2.TerminalStateCompleted {
			return fmt.Errorf("status %+v", js.Status)
		}
		return nil
	})
}

// A TrainJob of a runtime that comes with the manager runs to its end.
func runTrainJob(ctx context.Context, t *testing.T, c client.Client) {
	t.Helper()
	short := trainerv1alpha1.RuntimePatch{Manager: "acme.io/test", TrainingRuntimeSpec: &trainerv1alpha1.TrainingRuntimeSpecPatch{
		Template: &trainerv1alpha1.JobSetTemplatePatch{Spec: &trainerv1alpha1.JobSetSpecPatch{ReplicatedJobs: []trainerv1alpha1.ReplicatedJobPatch{{
			Name: trainerv1alpha1.JobNode, Template: &trainerv1alpha1.JobTemplatePatch{Spec: &trainerv1alpha1.JobSpecPatch{Template: &trainerv1alpha1.PodTemplatePatch{
				Metadata: &metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/run-seconds": "0.5"}},
			}}},
		}}}},
	}}
	tj := &trainerv1alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lark"},
		Spec: trainerv1alpha1.TrainJobSpec{
			RuntimeRef: trainerv1alpha1.RuntimeRef{Name: "torch-distributed"}, RuntimePatches: []trainerv1alpha1.RuntimePatch{short},
			Trainer: &trainerv1alpha1.Trainer{NumNodes: new(int32(2))},
		},
	}
	if err := c.Create(ctx, tj); err != nil {
		t.Fatal(err)
	}
	if tj.Spec.RuntimePatches[0].Time == nil {
		t.Error("the webhook did not stamp the patch of the TrainJob")
	}
	wait.Until(t, "the TrainJob completes", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(tj), tj); err != nil {
			return err
		}
		if s := &tj.Status; len(s.Conditions) != 1 || s.Conditions[0].Type != string(trainerv1alpha1.ConditionComplete) || s.JobsStatus[0].Succeeded != 1 {
			return fmt.Errorf("status %+v", tj.Status)
		}
		return nil
	})
}

// A second installation changes nothing, and webhooks are left out if they are disabled.
func TestInstall(t *testing.T) {
	cluster := embeddedtest.Config(t)
	groups, err := install.ParseGroups("-webhooks")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := install.Apply(context.Background(), cluster, install.Options{Options: options.Default(), Groups: groups, Namespace: "elsewhere"}, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := install.Manifests(install.Options{Options: options.Default(), Groups: groups, Namespace: "elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range objects {
		if u.GetNamespace() != "" && u.GetNamespace() != "elsewhere" && u.GetKind()+u.GetNamespace() != "RoleBindingkube-system" && u.GetNamespace() != "kubeflow-system" {
			t.Errorf("%s %s is in namespace %s", u.GetKind(), u.GetName(), u.GetNamespace())
		}
		if u.GetKind() == "MutatingWebhookConfiguration" {
			t.Error("there is a webhook configuration although the webhooks are off")
		}
	}
}

// Objects of an upstream controller stay untouched: none of its CRDs, runtimes and webhooks is installed or trusted.
func TestManifestsOfGroups(t *testing.T) {
	jobsets := []string{"jobsets.jobset.x-k8s.io", admission.JobSetMutatingName, admission.JobSetValidatingName}
	trains := []string{"trainjobs.trainer.kubeflow.org", "torch-distributed", "kubeflow-trainer-public", admission.TrainingMutatingName, admission.TrainingValidatingName}
	for list, left := range map[string][]string{"": nil, "-jobset": jobsets, "-training": trains} {
		groups, err := install.ParseGroups(list)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := install.Manifests(install.Options{Options: options.Default(), Groups: groups})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, u := range objects {
			names[u.GetName()] = true
		}
		trusted := certs.Targets(objects)
		calling, err := install.Callers(&install.Options{Options: options.Default(), Groups: groups})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(trusted, certs.Targets(calling)); diff != "" {
			t.Errorf("--controllers=%s: (-in the manifests +among the callers):\n%s", list, diff)
		}
		for _, name := range slices.Concat(jobsets, trains) {
			want := !slices.Contains(left, name)
			if names[name] != want {
				t.Errorf("--controllers=%s: %s is installed: %v", list, name, names[name])
			}
			if isHook := strings.HasSuffix(name, "-configuration") || strings.HasPrefix(name, "defaulter.") || strings.HasPrefix(name, "validator."); isHook && slices.ContainsFunc(trusted, func(t certs.Target) bool { return t.Name == name }) != want {
				t.Errorf("--controllers=%s: trusted are %v", list, trusted)
			}
		}
		if names["flux-distributed"] {
			t.Error("an optional runtime is installed")
		}
		if !names["workloads.kueue.x-k8s.io"] {
			t.Errorf("--controllers=%s: the CRD of Workloads is missing", list)
		}
	}
}
