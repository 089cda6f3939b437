package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/admission"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/review/reviewtest"
	"github.com/berth-project/berth/internal/training/controller"
	"github.com/berth-project/berth/internal/training/plan"
	"github.com/berth-project/berth/internal/training/runtimes"
	"github.com/berth-project/berth/internal/training/webhook"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, jobsetv1alpha2.AddToScheme, trainerv1alpha1.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// traffic sees the requests of the manager: it records writes, except events, and can make some fail.
type traffic struct {
	mu    sync.Mutex
	lines []string
	fail  func(*http.Request) bool
	// prune removes status.runtimePatches from requests, like an API server with an older CRD.
	prune bool
}

func (w *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		w.mu.Lock()
		fails := w.fail != nil && w.fail(r)
		prune := w.prune && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status")
		w.mu.Unlock()
		if prune {
			r = withoutRecord(r)
		}
		if fails {
			body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"made to fail","reason":"InternalError","code":500}`
			return &http.Response{StatusCode: 500, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		}
		response, err := next.RoundTrip(r)
		if err == nil && r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") {
			w.mu.Lock()
			w.lines = append(w.lines, fmt.Sprintf("%s %s %d", r.Method, r.URL.Path, response.StatusCode))
			w.mu.Unlock()
		}
		return response, err
	})
}

// withoutRecord is a request without status.runtimePatches and status.runtimeSnapshot.
func withoutRecord(r *http.Request) *http.Request {
	data, err := io.ReadAll(r.Body)
	must(err)
	var body map[string]any
	must(json.Unmarshal(data, &body))
	if status, ok := body["status"].(map[string]any); ok {
		delete(status, "runtimePatches")
		delete(status, "runtimeSnapshot")
	}
	data, err = json.Marshal(body)
	must(err)
	out := r.Clone(r.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return out
}

// failing makes requests fail from now on.
func (w *traffic) failing(fail func(*http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = fail
}

// in returns the writes below a namespace, without its path.
func (w *traffic) in(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []string{}
	for _, l := range w.lines {
		if before, after, ok := strings.Cut(l, "/namespaces/"+namespace+"/"); ok {
			method, _, _ := strings.Cut(before, " ")
			out = append(out, method+" "+after)
		}
	}
	return out
}

// world is a namespace on a real API server with the training controllers and their webhooks running, which see no other namespace:
// tests run in parallel. Nothing runs JobSets: the tests write their status.
type world struct {
	t         *testing.T
	ctx       context.Context
	c         client.Client
	rest      *rest.Config
	namespace string
	traffic   *traffic
	options   controller.Options
	// queue, if not nil, has TrainJobs wait in queues: the same webhooks speak for both.
	queue *admission.Options
	stop  func()
}

var installed sync.Once

// newWorld starts the manager. change may be nil.
func newWorld(t *testing.T, change func(*controller.Options)) *world {
	t.Helper()
	return newWorldWith(t, change, nil)
}

// newWorldWith is newWorld with queues.
func newWorldWith(t *testing.T, change func(*controller.Options), queue *admission.Options) *world {
	t.Helper()
	w := newStoppedWorld(t, change)
	w.queue = queue
	w.start()
	return w
}

// newStoppedWorld is newWorld without a manager: start starts one.
func newStoppedWorld(t *testing.T, change func(*controller.Options)) *world {
	t.Helper()
	restConfig := embeddedtest.Config(t)
	restConfig.WarningHandler = rest.NoWarnings{}
	c, err := client.New(restConfig, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: t.Context(), c: c, rest: restConfig, traffic: &traffic{}}
	installed.Do(w.install)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "lab-"}}
	w.create(ns)
	w.namespace = ns.Name
	w.create(&trainerv1alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "acme-torch"}, Spec: acmeTorch()})
	w.options = controller.Options{Config: plan.DefaultConfig(), Workers: func(string) int { return 3 }, Recheck: 200 * time.Millisecond, Now: time.Now}
	if change != nil {
		change(&w.options)
	}
	return w
}

// acmeTorch is the runtime of the acceptance examples (spec: 50 §7), with a sidecar.
func acmeTorch() trainerv1alpha1.TrainingRuntimeSpec {
	var spec trainerv1alpha1.TrainingRuntimeSpec
	must(yaml.UnmarshalStrict([]byte(`
mlPolicy: {numNodes: 3, torch: {}}
template:
  metadata: {labels: {from: template}}
  spec:
    replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                tolerations: [{key: t0, operator: Exists}]
                containers:
                  - {name: node, image: "img:a", resources: {limits: {nvidia.com/gpu: 4}}}
                  - {name: proxy, image: side}
`), &spec))
	return spec
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (w *world) install() {
	w.t.Helper()
	entries, err := config.FS.ReadDir("crd")
	w.must(err)
	for _, e := range entries {
		if e.Name() == "kustomization.yaml" {
			continue
		}
		raw, err := config.FS.ReadFile("crd/" + e.Name())
		w.must(err)
		var crd apiextensionsv1.CustomResourceDefinition
		w.must(yaml.Unmarshal(raw, &crd))
		w.create(&crd)
	}
	w.create(embeddedtest.LooseCRD(plan.CoschedulingPodGroup, "podgroups"))
	wait.Until(w.t, "the CRDs are served", func() error {
		groups := &metav1.PartialObjectMetadataList{}
		groups.SetGroupVersionKind(plan.CoschedulingPodGroup)
		return errors.Join(w.c.List(w.ctx, &jobsetv1alpha2.JobSetList{}), w.c.List(w.ctx, &trainerv1alpha1.TrainJobList{}),
			w.c.List(w.ctx, &trainerv1alpha1.TrainingRuntimeList{}), w.c.List(w.ctx, &trainerv1alpha1.ClusterTrainingRuntimeList{}), w.c.List(w.ctx, groups),
			w.c.List(w.ctx, &kueue.LocalQueueList{}), w.c.List(w.ctx, &kueue.WorkloadList{}))
	})
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"trainers": {{APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"trainjobs", "trainingruntimes"}, Verbs: []string{"*"}}},
		"ml-ops":   {{APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"runtimepatchmanagers"}, Verbs: []string{"manage"}, ResourceNames: []string{"acme.io/*"}}},
	} {
		w.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
		w.create(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: name}},
		})
	}
}

// start runs a manager until stop is called or the test ends.
func (w *world) start() {
	w.t.Helper()
	cfg := rest.CopyConfig(w.rest)
	cfg.Wrap(w.traffic.wrap)
	server, url, ca := reviewtest.NewServer(w.t)
	mgr := embeddedtest.Manager(w.t, cfg, ctrl.Options{
		Scheme: newScheme(), Cache: embeddedtest.Only(w.namespace),
		WebhookServer: server,
	})
	w.options.Runtimes = runtimes.New(mgr.GetClient(), mgr.GetAPIReader())
	w.must(controller.Setup(mgr, w.options))
	w.must(admission.SetupTraining(mgr, webhook.Options{Plan: w.options.Config, Runtimes: w.options.Runtimes, Now: w.options.Now}, w.queue))
	stop := embeddedtest.Run(w.t, mgr)
	wait.Until(w.t, "the webhooks answer", func() error { return mgr.GetWebhookServer().StartedChecker()(nil) })
	forget := w.register(url, ca)
	w.stop = sync.OnceFunc(func() {
		forget()
		stop()
	})
	w.t.Cleanup(w.stop)
}

// register tells the API server to call the webhooks for this namespace, and returns how to end that.
func (w *world) register(url string, ca []byte) func() {
	w.t.Helper()
	ctx := context.WithoutCancel(w.ctx)
	mutating, validating := admission.TrainingConfigurations(admission.Target{URL: url, CABundle: ca})
	here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}}
	mutating.Name, validating.Name = "m-"+w.namespace, "v-"+w.namespace
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].NamespaceSelector = here
		mutating.Webhooks[i].ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].NamespaceSelector = here
	}
	w.create(mutating)
	w.create(validating)
	probe := w.newJob("probe", "")
	probe.Spec.RuntimeRef.Name = "gone"
	wait.Until(w.t, "the API server calls the webhooks", func() error {
		err := w.c.Create(w.ctx, probe.DeepCopy(), client.DryRunAll)
		if apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("created without them: %w", err)
	})
	return func() {
		_ = w.c.Delete(ctx, mutating)
		_ = w.c.Delete(ctx, validating)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(o client.Object) { w.t.Helper(); w.must(w.c.Create(w.ctx, o)) }

// waitQuiet waits until the manager has written nothing for a while.
func (w *world) waitQuiet() {
	w.t.Helper()
	wait.Quiet(w.t, 500*time.Millisecond, func() int { return len(w.traffic.in(w.namespace)) })
}

// newJob is a TrainJob of acme-torch. more is YAML of its spec.
func (w *world) newJob(name, more string) *trainerv1alpha1.TrainJob {
	w.t.Helper()
	job := &trainerv1alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	w.must(yaml.UnmarshalStrict([]byte(more), &job.Spec))
	if job.Spec.RuntimeRef.Name == "" {
		job.Spec.RuntimeRef = trainerv1alpha1.RuntimeRef{Name: "acme-torch", Kind: new(trainerv1alpha1.KindTrainingRuntime)}
	}
	return job
}

func (w *world) job(name string) *trainerv1alpha1.TrainJob {
	w.t.Helper()
	var job trainerv1alpha1.TrainJob
	w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &job))
	return &job
}

// findJobSet returns nil if there is none.
func (w *world) findJobSet(name string) *jobsetv1alpha2.JobSet {
	w.t.Helper()
	var jobset jobsetv1alpha2.JobSet
	err := w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &jobset)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return &jobset
}

// jobset waits for a JobSet that suits.
func (w *world) jobset(name string, suits func(*jobsetv1alpha2.JobSet) bool) *jobsetv1alpha2.JobSet {
	w.t.Helper()
	var found *jobsetv1alpha2.JobSet
	wait.Until(w.t, "JobSet "+name+" is as wanted", func() error {
		if found = w.findJobSet(name); found == nil || !suits(found) {
			return fmt.Errorf("%+v", found)
		}
		return nil
	})
	return found
}

func suspendIs(want bool) func(*jobsetv1alpha2.JobSet) bool {
	return func(j *jobsetv1alpha2.JobSet) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend == want }
}

// report writes the status of a JobSet, as its controller would.
func (w *world) report(name string, change func(*jobsetv1alpha2.JobSetStatus)) {
	w.t.Helper()
	wait.Until(w.t, "the status of JobSet "+name+" is written", func() error {
		jobset := w.findJobSet(name)
		change(&jobset.Status)
		return w.c.Status().Update(w.ctx, jobset)
	})
}

func active(n int32) func(*jobsetv1alpha2.JobSetStatus) {
	return func(s *jobsetv1alpha2.JobSetStatus) {
		s.ReplicatedJobsStatus = []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Active: n}}
	}
}

func runs(s *jobsetv1alpha2.JobSetStatus) {
	s.ReplicatedJobsStatus = []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Ready: 1, Active: 1}}
}

func ends(kind, reason string) func(*jobsetv1alpha2.JobSetStatus) {
	return func(s *jobsetv1alpha2.JobSetStatus) {
		s.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: "the JobSet's words", LastTransitionTime: metav1.Unix(1_800_000_000, 0)}}
		s.ReplicatedJobsStatus = []jobsetv1alpha2.ReplicatedJobStatus{{Name: "node", Succeeded: 1}}
	}
}

// change updates a stored TrainJob as a user.
func (w *world) change(as client.Client, name string, change func(*trainerv1alpha1.TrainJob)) error {
	w.t.Helper()
	for {
		var job trainerv1alpha1.TrainJob
		w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &job))
		change(&job)
		if err := as.Update(w.ctx, &job); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// as is a client of another user.
func (w *world) as(user string, groups ...string) client.Client {
	w.t.Helper()
	cfg := rest.CopyConfig(w.rest)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "trainers", "system:authenticated")}
	c, err := client.New(cfg, client.Options{Scheme: newScheme()})
	w.must(err)
	return c
}

// patchOf is an entry for job node, from the YAML of a pod's patch.
func patchOf(manager, pod string) trainerv1alpha1.RuntimePatch {
	p := trainerv1alpha1.RuntimePatch{Manager: manager}
	must(yaml.UnmarshalStrict([]byte(`template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: `+pod+`}}}}]}}`), &p.TrainingRuntimeSpec))
	return p
}
