package admission_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/job/webhook"
	"github.com/berth-project/berth/internal/review/reviewtest"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	workloadwebhook "github.com/berth-project/berth/internal/workload/webhook"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

var cronJob = batchv1.SchemeGroupVersion.WithKind("CronJob")

func testOptions() admission.Options {
	managed := metav1.LabelSelector{MatchLabels: map[string]string{"managed": "yes"}}
	return admission.Options{Options: webhook.Options{
		Jobs: &job.Config{
			ManagedNamespaces: labels.SelectorFromSet(managed.MatchLabels),
			Kinds:             job.Kinds{batchv1.SchemeGroupVersion.WithKind("Job"): true, cronJob: true},
			ExternalOwns:      map[schema.GroupVersionKind][]schema.GroupVersionKind{cronJob: nil}, // as an external kind that the API server knows
			AdmissionGatedBy:  true, AnnotationIdentifiers: true, DefaultPriorityClass: true, MultiKueue: true, PartialAdmission: true, Topology: true, HonourUserSuspend: true, VerifyOwners: true,
		},
		Descriptors: all.Descriptors(), Namespaces: managed, Self: "berth",
	}, Workloads: workloadwebhook.Options{NonNegative: true, PodSetMetadata: true, PriorityBoost: true}}
}

// serve starts the webhooks and registers them with the API server. It returns a client and a managed namespace.
func serve(t testing.TB) (client.Client, string) {
	t.Helper()
	return serveWith(t, testOptions())
}

// serveWith is serve with options.
func serveWith(t testing.TB, o admission.Options) (client.Client, string) {
	t.Helper()
	return serveUnder(t, o, o)
}

// serveUnder is serveWith in a cluster whose webhook configurations are made from other options.
func serveUnder(t testing.TB, o, configured admission.Options) (client.Client, string) {
	t.Helper()
	embeddedtest.Quiet()
	ctx := t.Context()
	restConfig := embeddedtest.Config(t)
	c, err := client.New(restConfig, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	install(t, c)
	server, url, ca := reviewtest.NewServer(t)
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{Scheme: newScheme(), Metrics: metricsserver.Options{BindAddress: "0"}, WebhookServer: server})
	must(err)
	must(admission.Setup(mgr, o))
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(running) }()
	mutating, validating := admission.Configurations(admission.Target{URL: url, CABundle: ca}, configured)
	t.Cleanup(func() {
		_ = c.Delete(context.WithoutCancel(ctx), mutating)
		_ = c.Delete(context.WithoutCancel(ctx), validating)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	must(c.Create(ctx, mutating))
	must(c.Create(ctx, validating))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hooks-", Labels: map[string]string{"managed": "yes"}}}
	must(c.Create(ctx, ns))
	wait.Until(t, "the webhooks answer", func() error {
		probe := newJob(ns.Name, "probe")
		err := c.Create(ctx, probe, client.DryRunAll)
		if err == nil && (probe.Spec.Suspend == nil || !*probe.Spec.Suspend) {
			err = errors.New("the job is not suspended")
		}
		return err
	})
	return c, ns.Name
}

func install(t testing.TB, c client.Client) {
	t.Helper()
	entries, err := config.FS.ReadDir("crd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "kueue.") {
			continue
		}
		raw, err := config.FS.ReadFile(path.Join("crd", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), &crd); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "the CRDs are served", func() error {
		return errors.Join(c.List(t.Context(), &kueue.WorkloadList{}), c.List(t.Context(), &kueue.ClusterQueueList{}))
	})
}

func newJob(namespace, name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{kueue.QueueNameLabel: "lq"}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "busybox"}},
		}}},
	}
}

// forbidden checks that the error is a 403 whose text has every given piece.
func forbidden(t *testing.T, err error, pieces ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Fatalf("got %v, want a refusal", err)
	}
	for _, p := range pieces {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not name %q", err, p)
		}
	}
}

// What is configured and not served allows everything: a kind that is off, one that the manager does not know, and the pods of gated children.
func TestConfiguredAlone(t *testing.T) {
	configured := testOptions()
	jobs := *configured.Jobs
	jobs.Kinds, jobs.ElasticJobs = maps.Clone(jobs.Kinds), true
	configured.Jobs = &jobs
	for _, d := range configured.Descriptors {
		if d.GVK.Kind == "StatefulSet" || d.GVK.Kind == "RayService" {
			jobs.Kinds[d.GVK] = true
		}
	}
	declared := *configured.Descriptors[slices.IndexFunc(configured.Descriptors, func(d *job.Descriptor) bool { return d.GVK.Kind == "Job" })]
	declared.GVK, declared.Resource, declared.Open = corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", nil
	jobs.Kinds[declared.GVK] = true
	configured.Descriptors = append(configured.Descriptors, &declared)
	c, namespace := serveUnder(t, testOptions(), configured)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{kueue.QueueNameLabel: "lq"}}
	}
	if err := c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta("default")}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: meta("ray"), Spec: template().Spec}
	pod.Labels["ray.io/cluster"] = "c"
	set := &appsv1.StatefulSet{ObjectMeta: meta("set"), Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: template().Labels}, Template: template(),
	}}
	for name, o := range map[string]client.Object{
		"pods of Ray": pod, "a kind that is off": set, "an unknown kind": &corev1.ConfigMap{ObjectMeta: meta("declared")},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.Create(t.Context(), o); err != nil {
				t.Errorf("created: %v", err)
			}
			o.SetAnnotations(map[string]string{"a": "b"})
			if err := c.Update(t.Context(), o); err != nil {
				t.Errorf("updated: %v", err)
			}
		})
	}
}

func TestWebhooksOnAnAPIServer(t *testing.T) {
	c, namespace := serve(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	t.Run("jobs", func(t *testing.T) {
		queued := newJob(namespace, "queued")
		must(c.Create(ctx, queued))
		if queued.Spec.Suspend == nil || !*queued.Spec.Suspend {
			t.Error("a job with a queue is not suspended")
		}
		free := newJob(namespace, "free")
		free.Labels = nil
		must(c.Create(ctx, free))
		if free.Spec.Suspend != nil && *free.Spec.Suspend {
			t.Error("a job without a queue is suspended")
		}
		bad := newJob(namespace, "bad")
		bad.Labels[kueue.QueueNameLabel] = "No_DNS"
		bad.Labels[kueue.MaxExecTimeSecondsLabel] = "0"
		bad.Annotations = map[string]string{kueue.JobMinParallelismAnnotation: "many"}
		forbidden(t, c.Create(ctx, bad), "metadata.labels[kueue.x-k8s.io/queue-name]", "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]",
			"metadata.annotations[kueue.x-k8s.io/job-min-parallelism]")
		queued.Spec.Suspend = new(false)
		queued.Labels[kueue.QueueNameLabel] = "other"
		forbidden(t, c.Update(ctx, queued), "metadata.labels[kueue.x-k8s.io/queue-name]", "other")
	})

	t.Run("an unmanaged namespace is not called for", func(t *testing.T) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "off-"}}
		must(c.Create(ctx, ns))
		j := newJob(ns.Name, "free")
		j.Labels[kueue.MaxExecTimeSecondsLabel] = "0"
		j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "nobody", UID: "1", Controller: new(true)}}
		must(c.Create(ctx, j))
		if j.Spec.Suspend != nil && *j.Spec.Suspend {
			t.Error("it is suspended")
		}
	})

	t.Run("a missing owner refuses a job", func(t *testing.T) {
		j := newJob(namespace, "orphan")
		j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "nobody", UID: "1", Controller: new(true)}}
		forbidden(t, c.Create(ctx, j), "metadata.ownerReferences", "nobody")
	})

	t.Run("default queue and class", func(t *testing.T) {
		must(c.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"},
		}))
		must(c.Create(ctx, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Value: 1}))
		var j *batchv1.Job
		wait.Until(t, "the webhook knows both", func() error {
			j = newJob(namespace, "plain")
			j.Labels = nil
			must(c.Create(ctx, j, client.DryRunAll))
			if len(j.Labels) != 2 {
				return fmt.Errorf("labels %v", j.Labels)
			}
			return nil
		})
		if j.Labels[kueue.QueueNameLabel] != "default" || j.Labels[kueue.PriorityClassLabel] != "default" || !*j.Spec.Suspend {
			t.Errorf("labels %v, suspend %v", j.Labels, *j.Spec.Suspend)
		}
		j = newJob(namespace, "plain")
		j.Labels = nil
		must(c.Create(ctx, j)) // it was a dry run before
		parent := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "parent", Namespace: namespace}, Spec: batchv1.CronJobSpec{
			Schedule: "@yearly", JobTemplate: batchv1.JobTemplateSpec{Spec: newJob("", "").Spec},
		}}
		must(c.Create(ctx, parent))
		child := newJob(namespace, "child")
		child.Labels, child.OwnerReferences = nil, []metav1.OwnerReference{*metav1.NewControllerRef(parent, cronJob)}
		must(c.Create(ctx, child))
		if child.Labels[kueue.QueueNameLabel] != "" || child.Labels[kueue.PriorityClassLabel] != "" || *child.Spec.Suspend {
			t.Errorf("a child has labels %v, suspend %v", child.Labels, *child.Spec.Suspend)
		}
		stale := metav1.NewControllerRef(parent, cronJob)
		stale.UID = "another"
		for name, ref := range map[string]*metav1.OwnerReference{
			"of-a-job": metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job")), "of-another": stale,
		} {
			forged := newJob(namespace, name)
			forged.Labels, forged.OwnerReferences = nil, []metav1.OwnerReference{*ref}
			must(c.Create(ctx, forged))
			if forged.Labels[kueue.QueueNameLabel] != "default" || !*forged.Spec.Suspend {
				t.Errorf("%s has labels %v, suspend %v: an owner that did not make it keeps it out of the default queue", name, forged.Labels, *forged.Spec.Suspend)
			}
		}
		delete(j.Labels, kueue.QueueNameLabel)
		forbidden(t, c.Update(ctx, j), "metadata.labels[kueue.x-k8s.io/queue-name]")
	})

	t.Run("a user stops an admitted job", func(t *testing.T) { testUserStop(t, c, namespace) })

	t.Run("queues and flavors", func(t *testing.T) {
		cq := &kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: "cq"},
			Spec: kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{"cpu"},
				Flavors: []kueue.FlavorQuotas{{Name: "a", Resources: []kueue.ResourceQuota{{
					Name: "cpu", NominalQuota: resource.MustParse("-1"), LendingLimit: new(resource.MustParse("2")),
				}}}},
			}}},
		}
		forbidden(t, c.Create(ctx, cq), "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", "lendingLimit", "cohortName")
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0] = kueue.ResourceQuota{Name: "cpu", NominalQuota: resource.MustParse("1")}
		must(c.Create(ctx, cq))
		if len(cq.Finalizers) != 1 {
			t.Errorf("finalizers %v", cq.Finalizers)
		}
		forbidden(t, c.Create(ctx, &kueue.ResourceFlavor{
			ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"a b": "c"}},
		}), "spec.nodeLabels")
		forbidden(t, c.Create(ctx, &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: kueue.CohortSpec{ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{"cpu"},
			Flavors: []kueue.FlavorQuotas{{Name: "a", Resources: []kueue.ResourceQuota{{
				Name: "cpu", NominalQuota: resource.MustParse("1"), BorrowingLimit: new(resource.MustParse("2")),
			}}}},
		}}}}), "borrowingLimit", "parentName")
	})

	t.Run("a bare queue reads back with every default", func(t *testing.T) {
		bare := &unstructured.Unstructured{}
		bare.SetGroupVersionKind(kueue.GroupVersion.WithKind("ClusterQueue"))
		bare.SetName("bare") // and no spec at all
		must(c.Create(ctx, bare))
		want := map[string]any{
			"queueingStrategy": "BestEffortFIFO", "stopPolicy": "None",
			"flavorFungibility": map[string]any{"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
			"preemption": map[string]any{
				"reclaimWithinCohort": "Never", "withinClusterQueue": "Never", "borrowWithinCohort": map[string]any{"policy": "Never"},
			},
		}
		if diff := cmp.Diff(want, bare.Object["spec"]); diff != "" {
			t.Errorf("spec (-want +got):\n%s", diff)
		}
	})

	t.Run("workloads and their status", func(t *testing.T) {
		wl := &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: namespace},
			Spec:       kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 2, Template: newJob("", "").Spec.Template}}},
		}
		must(c.Create(ctx, wl))
		wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "nobody", Count: 1}, {Name: "main", Count: 3}}
		forbidden(t, c.Status().Update(ctx, wl), "status.reclaimablePods[0].name", "status.reclaimablePods[main].count")
	})
}

// testUserStop suspends and resumes a job that is admitted, as a user and as the manager.
func testUserStop(t *testing.T, c client.Client, namespace string) {
	ctx := t.Context()
	j := newJob(namespace, "stopped")
	if err := c.Create(ctx, j); err != nil {
		t.Fatal(err)
	}
	suspend := func(by client.Client, suspended bool) string {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"suspend":%v}}`, suspended)
		if err := by.Patch(ctx, j, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
		return j.Annotations[job.UserStopAnnotation]
	}
	if suspend(c, false); suspend(c, true) != "" {
		t.Error("a job that is not admitted is marked")
	}
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Name: "stopped", Namespace: namespace, Labels: map[string]string{kueue.JobUIDLabel: string(j.UID)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: newJob("", "").Spec.Template}}},
	}
	if err := c.Create(ctx, wl); err != nil {
		t.Fatal(err)
	}
	lifecycle.Machine{}.Reserve(wl, &kueue.Admission{
		ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}},
	}, nil, metav1.Now())
	if err := c.Status().Update(ctx, wl); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "a job that a user suspended is marked", wait.Is(func() bool { // the webhook reads a cache
		suspend(c, false)
		return suspend(c, true) == "true"
	}))
	if mark := suspend(c, false); mark != "" || !*j.Spec.Suspend {
		t.Errorf("a job that a user resumed: mark %q, suspended %v; want it to wait for its admission", mark, *j.Spec.Suspend)
	}
	restConfig := rest.CopyConfig(embeddedtest.Config(t))
	restConfig.Impersonate = rest.ImpersonationConfig{UserName: "berth", Groups: []string{"system:masters"}}
	berth, err := client.New(restConfig, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	controller := client.WithFieldOwner(berth, "kueue-job-controller")
	if suspend(controller, false); *j.Spec.Suspend {
		t.Error("the manager cannot start a job")
	}
	if suspend(controller, true) != "" {
		t.Error("a job that the manager stopped is marked")
	}
	suspend(controller, false)
	if suspend(berth, true) != "true" {
		t.Error("a person with the account of the manager is not taken for a user")
	}
}
