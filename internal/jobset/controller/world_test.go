package controller_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/jobset/controller"
	plan "github.com/berth-project/berth/internal/jobset/plan"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, jobsetv1alpha2.AddToScheme, trainerv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// requests records the requests of the manager, except events.
type requests struct {
	mu    sync.Mutex
	lines []string
}

func (w *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") {
			return next.RoundTrip(r)
		}
		response, err := next.RoundTrip(r)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lines = append(w.lines, fmt.Sprintf("%s %s %d", r.Method, r.URL.Path, response.StatusCode))
		}
		return response, err
	})
}

// in returns the writes below a namespace, refused ones included.
func (w *requests) in(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, l := range w.lines {
		if strings.Contains(l, "/namespaces/"+namespace+"/") {
			out = append(out, strings.Replace(l, "/namespaces/"+namespace, "", 1))
		}
	}
	return out
}

// world is a namespace on a real API server with the JobSet controllers running.
type world struct {
	t         testing.TB
	ctx       context.Context
	c         client.Client
	rest      *rest.Config
	plan      plan.Config
	namespace string
	requests  *requests
	only      bool // the manager sees no other namespace
	stop      func()
	pods      cache.Cache
	cached    client.Client
	cache     cache.Cache
}

var installed sync.Once

// newWorld starts a manager on the API server that the tests of this package share. Nothing runs there but it.
func newWorld(t testing.TB, gates plan.Config) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), rest: embeddedtest.Config(t), plan: gates, requests: &requests{}}
	w.connect()
	installed.Do(w.install)
	w.start()
	return w.inNamespace(t)
}

// newStoppedWorld returns a separate namespace on that API server. start starts a manager for this namespace alone: such tests run in parallel.
func newStoppedWorld(t testing.TB, gates plan.Config) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), rest: embeddedtest.Config(t), plan: gates, requests: &requests{}, only: true}
	w.connect()
	installed.Do(w.install)
	return w.inNamespace(t)
}

// newCluster starts a whole cluster and a manager on it.
func newCluster(t testing.TB, gates plan.Config) *world {
	t.Helper()
	cfg := embeddedtest.ConfigOf(t, embeddedtest.Start(t, embeddedtest.Full))
	w := &world{t: t, ctx: t.Context(), rest: cfg, plan: gates, requests: &requests{}}
	w.connect()
	w.install()
	w.start()
	return w
}

func (w *world) connect() {
	c, err := client.New(w.rest, client.Options{Scheme: newScheme()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.c = c
}

// inNamespace returns the same world for another test.
func (w *world) inNamespace(t testing.TB) *world {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "js-"}}
	if err := w.c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	other := *w
	other.t, other.ctx, other.namespace = t, t.Context(), ns.Name
	return &other
}

func (w *world) install() {
	w.t.Helper()
	for _, name := range []string{"jobset.x-k8s.io_jobsets.yaml", "trainer.kubeflow.org_trainjobs.yaml"} {
		raw, err := config.FS.ReadFile(path.Join("crd", name))
		if err != nil {
			w.t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			w.t.Fatal(err)
		}
		w.must(w.c.Create(w.ctx, &crd))
	}
	wait.Until(w.t, "the CRDs are served", func() error {
		if err := w.c.List(w.ctx, &trainerv1alpha1.TrainJobList{}); err != nil {
			return err
		}
		return w.c.List(w.ctx, &jobsetv1alpha2.JobSetList{})
	})
}

// start runs a manager until stop is called or the test ends.
func (w *world) start() {
	w.t.Helper()
	cfg := rest.CopyConfig(w.rest)
	cfg.Wrap(w.requests.wrap)
	caches := cache.Options{}
	if w.only {
		caches = embeddedtest.Only(w.namespace)
	}
	caches.DefaultTransform = cache.TransformStripManagedFields()
	caches.ByObject = map[client.Object]cache.ByObject{&batchv1.Job{}: {Transform: controller.Compact}}
	mgr := embeddedtest.Manager(w.t, cfg, ctrl.Options{Scheme: newScheme(), Cache: caches})
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if w.pods, err = controller.NewPods(ctx, mgr); err != nil {
		w.t.Fatal(err)
	}
	if err := controller.Setup(mgr, controller.Options{Plan: w.plan, Workers: 8, QPS: 500, Burst: 500, Pods: w.pods, Now: time.Now, Patience: time.Second}); err != nil {
		w.t.Fatal(err)
	}
	w.cached, w.cache = mgr.GetClient(), mgr.GetCache()
	stop := embeddedtest.Run(w.t, mgr)
	w.stop = func() {
		cancel()
		stop()
	}
	w.t.Cleanup(w.stop)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// quiet waits until the manager has written nothing for a while, and returns how much it wrote before.
func (w *world) quiet(pause time.Duration) int {
	w.t.Helper()
	return wait.Quiet(w.t, pause, func() int { return len(w.requests.in(w.namespace)) })
}

// staysQuiet fails the test if the controller writes for a while, after the given number of writes.
func (w *world) staysQuiet(during time.Duration, after int) {
	w.t.Helper()
	wait.Stays(w.t, during, "the controller writes nothing", func() error {
		if lines := w.requests.in(w.namespace); len(lines) != after {
			return fmt.Errorf("%v", lines[after:])
		}
		return nil
	})
}

// jobSet reads a manifest, defaulted as the webhook does.
func (w *world) jobSet(manifest string) *jobsetv1alpha2.JobSet {
	w.t.Helper()
	js := &jobsetv1alpha2.JobSet{}
	w.must(yaml.UnmarshalStrict([]byte(manifest), js))
	js.Namespace = w.namespace
	plan.Default(js)
	if errs := w.plan.Validate(js, nil); len(errs) > 0 {
		w.t.Fatal(errs.ToAggregate())
	}
	return js
}

func (w *world) create(manifest string) *jobsetv1alpha2.JobSet {
	w.t.Helper()
	js := w.jobSet(manifest)
	w.must(w.c.Create(w.ctx, js))
	return js
}

func (w *world) get(name string) *jobsetv1alpha2.JobSet {
	w.t.Helper()
	js := &jobsetv1alpha2.JobSet{}
	w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, js))
	return js
}

// update changes a JobSet.
func (w *world) update(name string, change func(*jobsetv1alpha2.JobSet)) {
	w.t.Helper()
	wait.Until(w.t, "updating "+name, func() error {
		js := w.get(name)
		change(js)
		return w.c.Update(w.ctx, js)
	})
}

// jobs are the Jobs of the namespace by name.
func (w *world) jobs() map[string]*batchv1.Job {
	w.t.Helper()
	var list batchv1.JobList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	out := map[string]*batchv1.Job{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

// haveJobs waits for exactly these Jobs.
func (w *world) haveJobs(names ...string) map[string]*batchv1.Job {
	w.t.Helper()
	var have map[string]*batchv1.Job
	wait.Until(w.t, fmt.Sprintf("there are the Jobs %v", names), func() error {
		have = w.jobs()
		for _, n := range names {
			if have[n] == nil {
				return fmt.Errorf("%s is missing", n)
			}
		}
		if len(have) != len(names) {
			return fmt.Errorf("%d Jobs", len(have))
		}
		return nil
	})
	return have
}

// setJob writes the status of a Job like the Job controller.
func (w *world) setJob(name string, change func(*batchv1.JobStatus)) {
	w.t.Helper()
	wait.Until(w.t, "setting the status of "+name, func() error {
		var j batchv1.Job
		if err := w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &j); err != nil {
			return err
		}
		change(&j.Status)
		return w.c.Status().Update(w.ctx, &j)
	})
}

func running(pods int32) func(*batchv1.JobStatus) {
	return func(s *batchv1.JobStatus) {
		s.StartTime, s.Active, s.Ready = new(metav1.Now()), pods, &pods
	}
}

func failedAt(reason, message string, at time.Time) func(*batchv1.JobStatus) {
	return func(s *batchv1.JobStatus) {
		s.Active, s.Ready = 0, new(int32(0))
		if s.StartTime == nil {
			s.StartTime = new(metav1.NewTime(at.Add(-time.Minute)))
		}
		for _, t := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
			s.Conditions = append(s.Conditions, batchv1.JobCondition{
				Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at),
			})
		}
	}
}

func complete(completions int32) func(*batchv1.JobStatus) {
	return func(s *batchv1.JobStatus) {
		s.Active, s.Ready, s.Succeeded = 0, new(int32(0)), completions
		if s.StartTime == nil {
			s.StartTime = new(metav1.Now())
		}
		s.CompletionTime, s.CompletedIndexes = new(metav1.Now()), "0"
		if completions > 1 {
			s.CompletedIndexes = fmt.Sprintf("0-%d", completions-1)
		}
		for _, t := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
			s.Conditions = append(s.Conditions, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
		}
	}
}

// collect finishes the deletion of Jobs like the garbage collector.
func (w *world) collect(names ...string) {
	w.t.Helper()
	for _, name := range names {
		wait.Until(w.t, name+" is deleted in the foreground", func() error {
			var j batchv1.Job
			if err := w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &j); err != nil {
				return client.IgnoreNotFound(err)
			}
			if j.DeletionTimestamp == nil || len(j.Finalizers) != 1 || j.Finalizers[0] != metav1.FinalizerDeleteDependents {
				return fmt.Errorf("finalizers %v, deleted %v", j.Finalizers, j.DeletionTimestamp)
			}
			j.Finalizers = nil
			return w.c.Update(w.ctx, &j)
		})
	}
}

// is waits for a condition.
func (w *world) is(name string, t jobsetv1alpha2.ConditionType, status metav1.ConditionStatus, reason string) *jobsetv1alpha2.JobSet {
	w.t.Helper()
	var js *jobsetv1alpha2.JobSet
	wait.Until(w.t, fmt.Sprintf("%s is %s=%s/%s", name, t, status, reason), func() error {
		js = w.get(name)
		c := apimeta.FindStatusCondition(js.Status.Conditions, string(t))
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("status %+v", js.Status)
		}
		return nil
	})
	return js
}

// status waits for a status.
func (w *world) status(name, what string, check func(*jobsetv1alpha2.JobSetStatus) bool) {
	w.t.Helper()
	wait.Until(w.t, what, func() error {
		if js := w.get(name); !check(&js.Status) {
			return fmt.Errorf("status %+v", js.Status)
		}
		return nil
	})
}

// counters waits for the counters of a replicated job: ready, succeeded, failed, active, suspended.
func (w *world) counters(name, replicatedJob string, want [5]int32) {
	w.t.Helper()
	w.status(name, fmt.Sprintf("%s has the counters %v", replicatedJob, want), func(s *jobsetv1alpha2.JobSetStatus) bool {
		for _, r := range s.ReplicatedJobsStatus {
			if r.Name == replicatedJob {
				return [5]int32{r.Ready, r.Succeeded, r.Failed, r.Active, r.Suspended} == want
			}
		}
		return false
	})
}

// events are those about a JobSet.
func (w *world) events(name string) []eventsv1.Event {
	w.t.Helper()
	var list eventsv1.EventList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	var out []eventsv1.Event
	for _, e := range list.Items {
		if e.Regarding.Kind == jobsetv1alpha2.KindJobSet && e.Regarding.Name == name {
			out = append(out, e)
		}
	}
	return out
}

// metric reads the API server's own count of successful writes of a resource.
func (w *world) metric(verb, resource string) int {
	w.t.Helper()
	httpClient, err := rest.HTTPClientFor(w.rest)
	w.must(err)
	response, err := httpClient.Get(w.rest.Host + "/metrics")
	w.must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	w.must(err)
	total := 0
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="`+resource+`"`) ||
			!strings.Contains(line, `verb="`+verb+`"`) || strings.Contains(line, `code="4`) {
			continue
		}
		var n float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, '}')+1:], &n); err == nil {
			total += int(n)
		}
	}
	return total
}
