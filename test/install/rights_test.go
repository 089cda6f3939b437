package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
)

// refusals records the requests that the API server forbids the manager, such as "PATCH jobs/status".
type refusals struct {
	mu   sync.Mutex
	seen map[string]string // the API server's message
}

func (f *refusals) wrap(next http.RoundTripper) http.RoundTripper {
	return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || response.StatusCode != http.StatusForbidden {
			return response, err
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		response.Body = io.NopCloser(strings.NewReader(string(body)))
		f.mu.Lock()
		defer f.mu.Unlock()
		f.seen[requested(r)] = string(body)
		return response, nil
	})
}

// requested is the verb and the resource of a request.
func requested(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	parts = parts[min(map[bool]int{true: 2, false: 3}[parts[0] == "api"], len(parts)):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	what := strings.Join(slices.Concat(parts[:min(1, len(parts))], parts[min(2, len(parts)):]), "/")
	if r.URL.Query().Get("watch") != "" {
		return "WATCH " + what
	}
	return r.Method + " " + what
}

func (f *refusals) all() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.seen)
}

// rights is a cluster in which a manager runs with the rights of its account.
type rights struct {
	t          *testing.T
	admin      *rest.Config
	kubeconfig string
	c          client.Client
	port       int // of the webhooks of all managers, so that a further install changes little
}

func newRights(t *testing.T) *rights {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	r := &rights{t: t, kubeconfig: embeddedtest.Start(t, embeddedtest.Full), port: embeddedtest.FreePort(t)}
	r.admin = embeddedtest.ConfigOf(t, r.kubeconfig)
	r.admin.WarningHandler = rest.NoWarnings{}
	var err error
	if r.c, err = client.New(r.admin, client.Options{Scheme: install.Scheme()}); err != nil {
		t.Fatal(err)
	}
	return r
}

// install installs the objects of the packages, for some groups of controllers, and returns how to run the manager.
func (r *rights) install(t *testing.T, list string) wire.Config {
	t.Helper()
	o, err := options.Parse("shipped", []byte(install.ShippedConfig()), "")
	if err != nil {
		t.Fatal(err)
	}
	o.Metrics.Address, o.Health.Address = "0", "0"
	o.CacheSyncTimeout = 20 * time.Second
	o.LeaderElection.LeaseDuration, o.LeaderElection.RenewDeadline, o.LeaderElection.RetryPeriod = 6*time.Second, 4*time.Second, 500*time.Millisecond
	o.Webhook.Host, o.Webhook.Port = "127.0.0.1", r.port
	o.VisibilityAddress = "127.0.0.1:" + strconv.Itoa(embeddedtest.FreePort(t))
	o.LeaderElection.Namespace = o.Namespace
	groups, err := install.ParseGroups(list)
	if err != nil {
		t.Fatal(err)
	}
	url := "https://127.0.0.1:" + strconv.Itoa(o.Webhook.Port)
	if err := install.Apply(t.Context(), r.admin, install.Options{WebhookURL: url, Options: o, Groups: groups}, io.Discard); err != nil {
		t.Fatal(err)
	}
	return wire.Config{Options: o, Groups: groups, WebhookURL: url, Log: logr.Discard()}
}

// run runs the manager until stop is called; ready is closed once it is, and ended has its error.
func (r *rights) run(cfg wire.Config) (forbidden *refusals, ready chan struct{}, stop func() error) {
	forbidden, ready = &refusals{seen: map[string]string{}}, make(chan struct{})
	cfg.REST = rest.CopyConfig(r.admin)
	cfg.REST.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + cfg.Options.Namespace + ":kueue-controller-manager",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	cfg.REST.Wrap(forbidden.wrap)
	cfg.OnReady = func() { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- wire.Run(ctx, cfg) }()
	return forbidden, ready, func() error {
		cancel()
		return <-ended
	}
}

// pods is a template of pods that run for a moment.
func pods() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/run-seconds": "0.5"}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "main", Image: "any", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		}}},
	}
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{kueue.QueueNameLabel: "lq"}}
}

func aJob(name string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: named(name), Spec: batchv1.JobSpec{Template: pods()}}
}

func aJobSet(name string) *jobsetv1alpha2.JobSet {
	return &jobsetv1alpha2.JobSet{ObjectMeta: named(name), Spec: jobsetv1alpha2.JobSetSpec{ReplicatedJobs: []jobsetv1alpha2.ReplicatedJob{{
		Name: "workers", Replicas: new(int32(2)), Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pods()}},
	}}}}
}

// aTrainJob needs ConfigMaps and a Secret with keys.
func aTrainJob(name string) *trainerv1alpha1.TrainJob {
	j := &trainerv1alpha1.TrainJob{ObjectMeta: named(name)}
	j.Spec.RuntimeRef = trainerv1alpha1.RuntimeRef{Name: "deepspeed-distributed"}
	j.Spec.Trainer = &trainerv1alpha1.Trainer{NumNodes: new(int32(2)), Command: []string{"mpirun", "./go"}}
	return j
}

func aPod(name string) *corev1.Pod {
	p := pods()
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{kueue.QueueNameLabel: "lq"}, Annotations: p.Annotations,
	}, Spec: p.Spec}
}

func aClusterQueue(name string) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
			Name: "f", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("50")}},
		}}}},
	}}
}

// queues are one queue, and a worker cluster, which is this one.
func (r *rights) queues(t *testing.T) []client.Object {
	t.Helper()
	file, err := clientcmd.LoadFromFile(r.kubeconfig)
	if err == nil {
		err = clientcmdapi.FlattenConfig(file)
	}
	text, werr := clientcmd.Write(*file)
	if err = errors.Join(err, werr); err != nil {
		t.Fatal(err)
	}
	return []client.Object{
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}, aClusterQueue("cq"),
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker"}, Data: map[string][]byte{"kubeconfig": text}},
		&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: kueue.MultiKueueClusterSpec{
			ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{Location: "worker", LocationType: kueue.LocationTypeSecret}},
		}},
	}
}

// A day's work with the installed rights: the API server forbids the manager no request.
func TestRightsSuffice(t *testing.T) {
	t.Parallel()
	r := newRights(t)
	t.Run("every group", func(t *testing.T) {
		r.suffice(t, "", r.day)
	})
	t.Run("without JobSets, TrainJobs and worker clusters", func(t *testing.T) {
		r.suffice(t, "-jobset,-training,-multikueue", func(t *testing.T, refused *refusals) {
			job := aJob("small")
			wait.Until(t, "a Job can be made", func() error { return r.c.Create(t.Context(), job) })
			wait.Until(t, "the Job is done", func() error {
				if err := r.c.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil || job.Status.Succeeded != 1 {
					return fmt.Errorf("status %+v, forbidden is %v (%w)", job.Status, refused.all(), err)
				}
				return nil
			})
		})
	})
	t.Run("JobSets and TrainJobs alone", func(t *testing.T) {
		r.suffice(t, "webhooks,jobset,training", func(t *testing.T, refused *refusals) {
			train := aTrainJob("alone")
			train.Labels = nil
			wait.Until(t, "a TrainJob can be made", func() error { return r.c.Create(t.Context(), train) })
			wait.Until(t, "the TrainJob runs", func() error {
				if err := r.c.Get(t.Context(), client.ObjectKeyFromObject(train), train); err != nil || len(train.Status.JobsStatus) == 0 {
					return fmt.Errorf("status %+v, forbidden is %v (%w)", train.Status, refused.all(), err)
				}
				return nil
			})
		})
	})
	t.Run("queues alone", func(t *testing.T) {
		r.suffice(t, "webhooks,queues,scheduler", func(t *testing.T, _ *refusals) {
			queue := aClusterQueue("alone")
			wait.Until(t, "a ClusterQueue can be made", func() error { return r.c.Create(t.Context(), queue) })
			wait.Until(t, "the ClusterQueue has a status", func() error {
				if err := r.c.Get(t.Context(), client.ObjectKeyFromObject(queue), queue); err != nil || len(queue.Status.Conditions) == 0 {
					return fmt.Errorf("status %+v (%w)", queue.Status, err)
				}
				return nil
			})
		})
	})
}

// suffice runs a scenario with a manager, and reports the requests that were forbidden.
func (r *rights) suffice(t *testing.T, groups string, play func(*testing.T, *refusals)) {
	t.Helper()
	forbidden, ready, stop := r.run(r.install(t, groups))
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		for what, why := range forbidden.all() {
			t.Errorf("the manager may not %s: %s", what, why)
		}
	}()
	select {
	case <-ready:
	case <-time.After(wait.Patience):
		t.Fatalf("not ready; forbidden is %v", forbidden.all())
	}
	play(t, forbidden)
}

// day uses every kind that the cluster has.
func (r *rights) day(t *testing.T, forbidden *refusals) {
	t.Helper()
	ctx := t.Context()
	for _, o := range r.queues(t) {
		if err := r.c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	serving := &appsv1.Deployment{ObjectMeta: named("serving"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "serving"}}, Template: pods(),
	}}
	serving.Spec.Template.Labels = map[string]string{"app": "serving"}
	serving.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	delete(serving.Spec.Template.Annotations, "berth.dev/run-seconds")
	job, set, train, pod := aJob("job"), aJobSet("set"), aTrainJob("wave"), aPod("pod")
	for _, o := range []client.Object{job, set, train, pod, serving} {
		wait.Until(t, fmt.Sprintf("%T can be made", o), func() error { return r.c.Create(ctx, o) })
	}
	get := func(o client.Object) error { return r.c.Get(ctx, client.ObjectKeyFromObject(o), o) }
	for what, done := range map[string]func() bool{
		"the Job": func() bool { return job.Status.Succeeded == 1 },
		"the JobSet": func() bool {
			return apimeta.IsStatusConditionTrue(set.Status.Conditions, string(jobsetv1alpha2.ConditionCompleted))
		},
		"the Pod":           func() bool { return pod.Status.Phase == corev1.PodSucceeded },
		"the Deployment":    func() bool { return serving.Status.ReadyReplicas == 1 },
		"the TrainJob runs": func() bool { return len(train.Status.JobsStatus) > 0 },
	} {
		wait.Until(t, what+" is done", func() error {
			if err := errors.Join(get(job), get(set), get(train), get(pod), get(serving)); err != nil {
				return err
			}
			if !done() {
				return fmt.Errorf("forbidden is %v", forbidden.all())
			}
			return nil
		})
	}
	r.fenced(t)
	wait.Until(t, "the credentials of the worker are used", func() error {
		cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		if err := get(cluster); err != nil {
			return err
		}
		// The kubeconfig was read, and leads back here.
		if c := apimeta.FindStatusCondition(cluster.Status.Conditions, "Active"); c == nil || c.Reason != "SelfReference" {
			return fmt.Errorf("status %+v", cluster.Status)
		}
		return nil
	})
	for _, o := range []client.Object{train, set, job, pod, serving} {
		if err := r.c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "everything is gone", func() error {
		var left kueue.WorkloadList
		if err := r.c.List(ctx, &left); err != nil || len(left.Items) > 0 {
			return fmt.Errorf("%d Workloads are left (%w)", len(left.Items), err)
		}
		return nil
	})
}

// fenced: the policy binds the account beyond its access rules: it writes ConfigMaps and Secrets of TrainJobs only, and makes no Secret
// that Kubernetes fills with the token of another account.
func (r *rights) fenced(t *testing.T) {
	t.Helper()
	cfg := rest.CopyConfig(r.admin)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":kueue-controller-manager"}
	thief, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}}
	if err := r.c.Create(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	owner := []metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "wave", UID: "1", Controller: new(true)}}
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "token", OwnerReferences: owner, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	for what, try := range map[string]func() error{
		"makes a Secret that gets a token": func() error { return thief.Create(t.Context(), token.DeepCopy()) },
		"makes a Secret of no TrainJob": func() error {
			return thief.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "any"}})
		},
		"takes over a ConfigMap": func() error {
			taken := settings.DeepCopy()
			taken.OwnerReferences = owner
			return thief.Patch(t.Context(), taken, client.MergeFrom(settings))
		},
		"deletes a ConfigMap": func() error { return thief.Delete(t.Context(), settings.DeepCopy()) },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), "The manager of Berth may") {
			t.Errorf("whoever has the manager's token %s: %v", what, err)
		}
	}
}

// unplayed are the roles that TestRightsAreNeeded cannot test, and why.
var unplayed = map[string]string{
	"kueue-manager-framework-":  "the cluster has not the CRD, or the rule is part of the role of a whole controller",
	"kueue-manager-elastic":     "pods of elastic Jobs: internal/job/jobtest",
	"kueue-manager-topology":    "pods of placed jobs, and their nodes: internal/placement",
	"kueue-manager-storage":     "objects in older versions: TestInstallOverAnother",
	"kueue-manager-crds":        "objects in older versions: TestInstallOverAnother",
	"kueue-manager-jobset-crds": "objects in older versions, of which there are none yet", "kueue-manager-training-crds": "objects in older versions, of which there are none yet",
}

// Each role is needed: without it, the API server forbids the requests in docs/rights.md.
func TestRightsAreNeeded(t *testing.T) {
	t.Parallel()
	r := newRights(t)
	const without = "-jobset,-training"
	cases := map[string]struct {
		groups string // that run; where two roles give the same, only one of them is installed
		plays  client.Object
		want   string
	}{
		"kueue-manager-rolebinding":                       {"", nil, "GET customresourcedefinitions"},
		"kueue-manager-queues-rolebinding":                {"-multikueue", aClusterQueue("needed"), "PATCH clusterqueues/status"},
		"kueue-manager-integrations-rolebinding":          {without, nil, "GET jobs"},
		"kueue-manager-framework-job-rolebinding":         {without, aJob("needed"), "PATCH jobs"},
		"kueue-manager-framework-jobset-rolebinding":      {without, aJobSet("needed"), "PATCH jobsets"},
		"kueue-manager-jobset-rolebinding":                {"", nil, "GET services"},
		"kueue-manager-training-rolebinding":              {"", aTrainJob("needed"), "PATCH configmaps"},
		"kueue-manager-training-secrets-rolebinding":      {"", aTrainJob("needed"), "GET secrets"},
		"kueue-manager-multikueue-rolebinding":            {"", nil, "WATCH multikueueclusters"},
		"kueue-manager-provisioning-rolebinding":          {"", nil, "WATCH provisioningrequestconfigs"},
		"kueue-manager-certificates-rolebinding":          {"", nil, "GET apiservices"},
		"kueue-manager-jobset-certificates-rolebinding":   {"", nil, "GET mutatingwebhookconfigurations"},
		"kueue-manager-training-certificates-rolebinding": {"", nil, "GET mutatingwebhookconfigurations"},
		"kueue-leader-election-rolebinding":               {"", nil, "GET leases"},
		"kueue-manager-secrets-rolebinding":               {without + ",-multikueue", nil, "GET secrets"},
		"kueue-manager-certificates-secret-rolebinding":   {"-multikueue", nil, "WATCH secrets"},
		"kueue-manager-multikueue-secrets-rolebinding":    {"", nil, "GET secrets"},
	}
	r.install(t, "")
	made := false
	all := r.bindings(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		binding := all[name]
		tc, ok := cases[name]
		if !ok {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(unplayed)), func(p string) bool { return strings.HasPrefix(name, p) }) {
				t.Errorf("%s: nothing says what fails without it", name)
			}
			continue
		}
		t.Run(name, func(t *testing.T) {
			cfg := r.install(t, tc.groups)
			if !made {
				made = true
				r.prepareQueues(t, cfg)
			}
			fresh := binding.DeepCopyObject().(client.Object)
			if err := r.c.Delete(t.Context(), fresh); err != nil {
				t.Fatal(err)
			}
			forbidden, _, stop := r.run(cfg)
			var ended error
			defer func() {
				// A manager whose caches are never filled does not end: it gets its rights back first.
				restored := binding.DeepCopyObject().(client.Object)
				restored.SetResourceVersion("")
				restored.SetUID("")
				if err := r.c.Create(context.WithoutCancel(t.Context()), restored); err != nil {
					t.Error(err)
				}
				ended = stop()
				t.Logf("without it: %v; the manager ended with %v", slices.Sorted(maps.Keys(forbidden.all())), ended)
				if tc.plays != nil {
					_ = r.c.Delete(context.WithoutCancel(t.Context()), tc.plays, client.PropagationPolicy(metav1.DeletePropagationBackground))
				}
			}()
			wait.Until(t, "it is forbidden to "+tc.want, func() error {
				if tc.plays != nil && tc.plays.GetUID() == "" {
					if err := r.c.Create(t.Context(), tc.plays); err != nil {
						return err
					}
				}
				if _, ok := forbidden.all()[tc.want]; !ok {
					return fmt.Errorf("forbidden is %v", slices.Sorted(maps.Keys(forbidden.all())))
				}
				return nil
			})
		})
	}
}

// prepareQueues makes a queue, which needs a manager that answers.
func (r *rights) prepareQueues(t *testing.T, cfg wire.Config) {
	t.Helper()
	_, ready, stop := r.run(cfg)
	defer func() { _ = stop() }()
	<-ready
	for _, o := range r.queues(t) {
		wait.Until(t, "queues can be made", func() error { return r.c.Create(t.Context(), o) })
	}
}

// bindings are the bindings of the manager's account, by name.
func (r *rights) bindings(t *testing.T) map[string]client.Object {
	t.Helper()
	out := map[string]client.Object{}
	mine := func(subjects []rbacv1.Subject) bool {
		return len(subjects) == 1 && subjects[0].Name == "kueue-controller-manager" && subjects[0].Namespace == namespace
	}
	var wide rbacv1.ClusterRoleBindingList
	var narrow rbacv1.RoleBindingList
	if err := errors.Join(r.c.List(t.Context(), &wide), r.c.List(t.Context(), &narrow, client.InNamespace(namespace))); err != nil {
		t.Fatal(err)
	}
	for i := range wide.Items {
		if mine(wide.Items[i].Subjects) {
			out[wide.Items[i].Name] = &wide.Items[i]
		}
	}
	for i := range narrow.Items {
		if mine(narrow.Items[i].Subjects) {
			out[narrow.Items[i].Name] = &narrow.Items[i]
		}
	}
	return out
}
