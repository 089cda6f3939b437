package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/config"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/controller"
	"github.com/berth-project/berth/internal/job/kind/all"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
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

// writes counts the requests of the manager that change something, but for events.
type writes struct {
	mu       sync.Mutex
	lines    []string
	unpinned []string // patches that would overwrite what the manager has not seen
}

func (w *writes) wrap(next http.RoundTripper) http.RoundTripper {
	return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPatch && !strings.Contains(r.URL.Path, "/events") {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if !bytes.Contains(body, []byte(`"resourceVersion":"`)) {
				w.mu.Lock()
				w.unpinned = append(w.unpinned, r.URL.Path+" "+string(body))
				w.mu.Unlock()
			}
		}
		response, err := next.RoundTrip(r)
		if err == nil && r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lines = append(w.lines, fmt.Sprintf("%s %s %d", r.Method, r.URL.Path, response.StatusCode))
		}
		return response, err
	})
}

// in returns the successful writes below a namespace.
func (w *writes) in(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, l := range w.lines {
		if strings.Contains(l, "/namespaces/"+namespace+"/") && (strings.HasSuffix(l, " 200") || strings.HasSuffix(l, " 201")) {
			out = append(out, l)
		}
	}
	return out
}

// world is a namespace on a real API server with the job controllers running.
type world struct {
	t         *testing.T
	ctx       context.Context
	c         client.Client
	cfg       *job.Config
	namespace string
	writes    *writes
	stop      func()
	rest      *rest.Config
	setup     func(ctrl.Manager) error // adds more to a manager; may be nil
	kept      chan *time.Duration      // brings another retention; may be nil
	revive    func()                   // starts the manager again if it was killed; may be nil
	all       bool                     // the manager takes care of every namespace
	kinds     []*job.Descriptor        // nil: all
}

func defaultConfig() *job.Config {
	return &job.Config{
		ManagedNamespaces: labels.SelectorFromSet(labels.Set{"managed": "yes"}),
		Kinds:             job.Kinds{batchv1.SchemeGroupVersion.WithKind("Job"): true},
		AdmissionGatedBy:  true, AssignQueueLabels: true, AnnotationIdentifiers: true, FinishOrphans: true,
		PartialAdmission: true, ReclaimablePods: true,
	}
}

var installed sync.Once

// newWorld starts a manager with the given configuration and makes a managed namespace. The manager sees no other one: tests run in parallel.
func newWorld(t *testing.T, cfg *job.Config) *world {
	t.Helper()
	w := newStoppedWorld(t, cfg)
	w.start()
	return w
}

// newStoppedWorld is newWorld without a manager: start starts one.
func newStoppedWorld(t *testing.T, cfg *job.Config) *world {
	t.Helper()
	restConfig := embeddedtest.Config(t)
	c, err := client.New(restConfig, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: t.Context(), c: c, cfg: cfg, rest: restConfig, writes: &writes{}}
	installed.Do(func() { w.install() })
	w.namespace = w.newNamespace("yes")
	w.stop = func() {}
	t.Cleanup(func() {
		w.stop()
		for _, line := range w.writes.unpinned {
			t.Errorf("a patch without a resource version: %s", line)
		}
	})
	return w
}

func (w *world) install() {
	w.t.Helper()
	entries, err := config.FS.ReadDir("crd")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "kueue.") {
			continue
		}
		raw, err := config.FS.ReadFile(path.Join("crd", e.Name()))
		if err != nil {
			w.t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			w.t.Fatal(err)
		}
		w.must(w.c.Create(w.ctx, &crd))
	}
	w.until("the CRDs are served", func() error { return w.c.List(w.ctx, &kueue.WorkloadList{}) })
	w.must(client.IgnoreAlreadyExists(w.c.Create(w.ctx, &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec: kueue.ResourceFlavorSpec{
			NodeLabels:  map[string]string{"pool": "h100"},
			Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
		},
	})))
}

// start runs a manager until stop is called or the test ends.
func (w *world) start() {
	w.t.Helper()
	cfg := rest.CopyConfig(w.rest)
	cfg.Wrap(w.writes.wrap)
	options := ctrl.Options{
		Scheme: newScheme(),
	}
	if !w.all {
		options.Cache = embeddedtest.Only(w.namespace)
	}
	mgr := embeddedtest.Manager(w.t, cfg, options)
	kinds := w.kinds
	if kinds == nil {
		kinds = all.Descriptors()
	}
	err := controller.Setup(w.ctx, mgr, controller.Options{Config: w.cfg, Descriptors: kinds, Workers: func(string) int { return 2 }, Now: time.Now, Kept: w.kept})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.setup != nil {
		w.must(w.setup(mgr))
	}
	w.stop = embeddedtest.Run(w.t, mgr)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// until is wait.Until, and starts the manager again if it was killed.
func (w *world) until(what string, check func() error) {
	w.t.Helper()
	wait.Until(w.t, what, func() error {
		if w.revive != nil {
			w.revive()
		}
		return check()
	})
}

// waitUntilStable waits until the manager has written nothing for a while.
func (w *world) waitUntilStable() {
	w.t.Helper()
	wait.Quiet(w.t, 400*time.Millisecond, func() int { w.writes.mu.Lock(); defer w.writes.mu.Unlock(); return len(w.writes.lines) })
}

func (w *world) newNamespace(managed string) string {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "jobs-", Labels: map[string]string{"managed": managed}}}
	w.must(w.c.Create(w.ctx, ns))
	return ns.Name
}

// newJob is a Job that waits in queue lq.
func (w *world) newJob(name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace, Labels: map[string]string{kueue.QueueNameLabel: "lq"}},
		Spec: batchv1.JobSpec{
			Suspend: new(true), Parallelism: new(int32(2)), Completions: new(int32(2)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, NodeSelector: map[string]string{"zone": "a"},
					Containers: []corev1.Container{{
						Name: "c", Image: "busybox",
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
					}},
				},
			},
		},
	}
}

func (w *world) create(o client.Object) { w.t.Helper(); w.must(w.c.Create(w.ctx, o)) }

func (w *world) job(name string) *batchv1.Job {
	w.t.Helper()
	var j batchv1.Job
	w.must(w.c.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &j))
	return &j
}

// workloadOf waits for the one live Workload of a job.
func (w *world) workloadOf(j *batchv1.Job) *kueue.Workload {
	w.t.Helper()
	var found kueue.Workload
	w.until("job "+j.Name+" has a workload", func() error {
		key := client.ObjectKey{Namespace: j.Namespace, Name: w.cfg.WorkloadName(batchv1.SchemeGroupVersion.WithKind("Job"), j.Name, j.UID)}
		return w.c.Get(w.ctx, key, &found)
	})
	return &found
}

func (w *world) get(wl *kueue.Workload) *kueue.Workload {
	w.t.Helper()
	var out kueue.Workload
	w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(wl), &out))
	return &out
}

// play writes a transition of a Workload as the engine would.
func (w *world) play(wl *kueue.Workload, change func(*kueue.Workload) bool) *kueue.Workload {
	w.t.Helper()
	status := reconcile.NewWorkloadStatus(w.c)
	var stored *kueue.Workload
	w.until("the status can be written", func() error {
		var err error
		stored, _, err = status.Transition(w.ctx, w.get(wl), change)
		return err
	})
	return stored
}

func (w *world) admit(wl *kueue.Workload) *kueue.Workload {
	w.t.Helper()
	return w.play(wl, func(x *kueue.Workload) bool {
		a := &kueue.Admission{ClusterQueue: "cq"}
		for _, s := range x.Spec.PodSets {
			a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
				Name: s.Name, Count: new(s.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "gpu"},
				ResourceUsage: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(s.Count), resource.DecimalSI)},
			})
		}
		return w.cfg.Lifecycle.Reserve(x, a, nil, metav1.Now())
	})
}

func (w *world) evict(wl *kueue.Workload) *kueue.Workload {
	w.t.Helper()
	return w.play(wl, func(x *kueue.Workload) bool {
		return w.cfg.Lifecycle.Preempt(x, kueue.ReasonInClusterQueue, "Preempted to make room", metav1.Now())
	})
}

func suspended(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

func (w *world) running(name string) *batchv1.Job {
	w.t.Helper()
	w.until("job "+name+" runs", func() error {
		if suspended(w.job(name)) {
			return fmt.Errorf("it is suspended")
		}
		return nil
	})
	return w.job(name)
}

// queued is a new Job and its Workload, which waits.
func (w *world) queued(name string) (*batchv1.Job, *kueue.Workload) {
	w.t.Helper()
	j := w.newJob(name)
	w.create(j)
	return j, w.workloadOf(j)
}

// started is a new Job that runs, as it was created, and its Workload as it was before it was admitted.
func (w *world) started(name string) (*batchv1.Job, *kueue.Workload) {
	w.t.Helper()
	j, wl := w.queued(name)
	w.admit(wl)
	w.running(name)
	return j, wl
}

// setStatus plays the Job controller.
func (w *world) setStatus(name string, change func(*batchv1.JobStatus)) {
	w.t.Helper()
	w.until("the job status can be written", func() error {
		j := w.job(name)
		change(&j.Status)
		return w.c.Status().Update(w.ctx, j)
	})
}

func (w *world) complete(name string) {
	w.t.Helper()
	now := metav1.Now()
	w.setStatus(name, func(s *batchv1.JobStatus) {
		if s.StartTime == nil {
			s.StartTime = &now
		}
		s.CompletionTime, s.Succeeded, s.Active = &now, 2, 0
		s.Conditions = append(s.Conditions,
			batchv1.JobCondition{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
			batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now, Message: "All done"})
	})
}

// events lists the reasons of events on an object, sorted, once each.
func (w *world) events(name string) []string {
	w.t.Helper()
	var list eventsv1.EventList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	var out []string
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			out = append(out, e.Reason)
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) expectEvents(name string, want ...string) {
	w.t.Helper()
	w.until("events of "+name, func() error {
		if diff := cmp.Diff(want, w.events(name)); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

func conditionTypes(wl *kueue.Workload) []string {
	var out []string
	for _, c := range wl.Status.Conditions {
		out = append(out, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	slices.Sort(out)
	return out
}

func TestLifeOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	_, wl := w.queued("train")
	if got, want := wl.Spec.QueueName, kueue.LocalQueueName("lq"); got != want {
		t.Errorf("queue: got %q, want %q", got, want)
	}
	w.admit(wl)
	started := w.running("train")
	if diff := cmp.Diff(map[string]string{"zone": "a", "pool": "h100"}, started.Spec.Template.Spec.NodeSelector); diff != "" {
		t.Errorf("node selector -want +got:\n%s", diff)
	}
	if got := started.Spec.Template.Labels[kueue.ClusterQueueLabel]; got != "cq" {
		t.Errorf("label of the cluster queue: %q", got)
	}
	w.waitUntilStable()
	w.complete("train")
	w.until("the workload is finished and let go", func() error {
		got := w.get(wl)
		if !lifecycle.IsFinished(got) || len(got.Finalizers) > 0 {
			return fmt.Errorf("conditions %v, finalizers %v", conditionTypes(got), got.Finalizers)
		}
		return nil
	})
	if diff := cmp.Diff([]string{"Admitted=True/Admitted", "Finished=True/Succeeded", "QuotaReserved=True/QuotaReserved"}, conditionTypes(w.get(wl))); diff != "" {
		t.Errorf("conditions -want +got:\n%s", diff)
	}
	w.expectEvents("train", "CreatedWorkload", "FinishedWorkload", "Started")
	w.waitUntilStable()
	// Create, start, finish, and the finalizer that the finish makes superfluous.
	workloads, jobsPath := "/apis/kueue.x-k8s.io/v1beta2/namespaces/"+w.namespace+"/workloads", "/apis/batch/v1/namespaces/"+w.namespace+"/jobs"
	want := []string{
		"POST " + workloads + " 201", "PATCH " + jobsPath + "/train 200",
		"PATCH " + workloads + "/" + wl.Name + "/status 200", "PATCH " + workloads + "/" + wl.Name + " 200",
	}
	if diff := cmp.Diff(want, w.writes.in(w.namespace)); diff != "" {
		t.Errorf("writes -want +got:\n%s", diff)
	}
}

func TestEvictionRestoresWhatTheUserWrote(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	j, wl := w.started("train")
	w.setStatus("train", func(s *batchv1.JobStatus) { s.StartTime, s.Active = new(metav1.Now()), 2 })
	w.evict(wl)
	w.until("the job is suspended", func() error {
		if !suspended(w.job("train")) {
			return fmt.Errorf("it runs")
		}
		return nil
	})
	w.waitUntilStable()
	if got := w.get(wl); !lifecycle.IsReserved(got) {
		t.Errorf("quota was released while pods run: %v", conditionTypes(got))
	}
	w.setStatus("train", func(s *batchv1.JobStatus) { s.Active = 0 })
	w.until("the quota is released", func() error {
		if got := w.get(wl); lifecycle.IsReserved(got) || got.Status.Admission != nil {
			return fmt.Errorf("conditions %v, admission %v", conditionTypes(got), got.Status.Admission)
		}
		return nil
	})
	stopped := w.job("train")
	for _, template := range []*corev1.PodTemplateSpec{&j.Spec.Template, &stopped.Spec.Template} {
		for _, key := range []string{"controller-uid", "job-name", batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
			delete(template.Labels, key)
		}
	}
	if diff := cmp.Diff(j.Spec.Template, stopped.Spec.Template); diff != "" {
		t.Errorf("template -as created +restored:\n%s", diff)
	}
	if !onlyMarked(stopped.Annotations) || stopped.Status.StartTime != nil {
		t.Errorf("left over: annotations %v, start time %v", stopped.Annotations, stopped.Status.StartTime)
	}
	want := []string{
		"Admitted=False/NoReservation", "Evicted=True/Preempted", "Preempted=True/InClusterQueue",
		"QuotaReserved=False/PendingEvaluation", "Requeued=True/Preempted",
	}
	if diff := cmp.Diff(want, conditionTypes(w.get(wl))); diff != "" {
		t.Errorf("conditions -want +got:\n%s", diff)
	}
	w.expectEvents("train", "CreatedWorkload", "Started", "Stopped")

	again := w.admit(wl)
	if again.UID != wl.UID {
		t.Errorf("another workload: %s, was %s", again.UID, wl.UID)
	}
	w.running("train")
	w.waitUntilStable()
	w.expectEvents("train", "CreatedWorkload", "Started", "Started", "Stopped")
}

func TestStatusOfOthersIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	j := w.newJob("scripted")
	w.create(j)
	wl := w.get(w.workloadOf(j))
	// A script writes the reservation by Update, for a queue that does not exist and a pod set of another name.
	embeddedtest.EditStatus(t, w.c, wl, func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "nowhere", PodSetAssignments: []kueue.PodSetAssignment{{Name: "x", Count: new(int32(2))}}}
		for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
				Type: condition, Status: metav1.ConditionTrue, Reason: condition, LastTransitionTime: metav1.Now(),
			})
		}
	})
	if got := w.running("scripted").Spec.Template.Labels[kueue.PodSetLabel]; got != "x" {
		t.Errorf("label of the pod set: got %q, want x", got)
	}
	w.evict(wl)
	w.until("the admission is gone", func() error {
		if got := w.get(wl); got.Status.Admission != nil || lifecycle.IsAdmitted(got) {
			return fmt.Errorf("admission %v, conditions %v", got.Status.Admission, conditionTypes(got))
		}
		return nil
	})
}

func TestUnmanagedNamespace(t *testing.T) {
	w := newStoppedWorld(t, defaultConfig())
	w.all = true
	w.start()
	off := w.newNamespace("no")
	running, waiting := w.newJob("running"), w.newJob("waiting")
	running.Namespace, waiting.Namespace = off, off
	running.Spec.Suspend = new(false)
	w.create(running)
	w.create(waiting)
	w.create(w.newJob("fence")) // comes after them in the queue
	w.workloadOf(w.job("fence"))
	w.waitUntilStable()
	if got := w.writes.in(off); len(got) > 0 {
		t.Errorf("writes in an unmanaged namespace: %v", got)
	}

	// The namespace becomes managed: a running job is stopped and both are queued.
	var ns corev1.Namespace
	w.must(w.c.Get(w.ctx, client.ObjectKey{Name: off}, &ns))
	ns.Labels["managed"] = "yes"
	w.must(w.c.Update(w.ctx, &ns))
	w.namespace = off
	first, second := w.workloadOf(running), w.workloadOf(waiting)
	if !suspended(w.job("running")) {
		t.Error("the running job was not stopped")
	}
	w.admit(first)
	w.running("running")

	// It becomes unmanaged again: the workloads end, the jobs stay as they are.
	ns.Labels["managed"] = "no"
	w.must(w.c.Update(w.ctx, &ns))
	for _, wl := range []*kueue.Workload{first, second} {
		w.until("workload "+wl.Name+" ends", func() error {
			got := w.get(wl)
			if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonOutOfSync || len(got.Finalizers) > 0 {
				return fmt.Errorf("conditions %v, finalizers %v", conditionTypes(got), got.Finalizers)
			}
			return nil
		})
	}
	if suspended(w.job("running")) || !suspended(w.job("waiting")) {
		t.Error("a job was started or stopped in an unmanaged namespace")
	}
	w.expectEvents("waiting", "CreatedWorkload", "NamespaceUnmanaged")
}

func TestWithoutWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	j := w.newJob("running")
	j.Spec.Suspend = new(false)
	w.create(j)
	w.workloadOf(j)
	if !suspended(w.job("running")) {
		t.Error("a job without admission runs")
	}
	w.expectEvents("running", "CreatedWorkload", "Stopped")

	free := w.newJob("free")
	free.Labels, free.Spec.Suspend = nil, new(false)
	w.create(free)
	w.waitUntilStable()
	if suspended(w.job("free")) {
		t.Error("a job without a queue was stopped")
	}
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before func(w *world, wl *kueue.Workload)
	}{
		"while it waits": {func(*world, *kueue.Workload) {}},
		"while it runs":  {func(w *world, wl *kueue.Workload) { w.admit(wl); w.running("doomed") }},
		"after an eviction": {func(w *world, wl *kueue.Workload) {
			w.admit(wl)
			w.running("doomed")
			w.evict(wl)
			w.until("released", func() error {
				if lifecycle.IsReserved(w.get(wl)) {
					return fmt.Errorf("still reserved")
				}
				return nil
			})
		}},
	}
	w := newWorld(t, defaultConfig())
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w.t = t
			j, wl := w.queued("doomed")
			tc.before(w, wl)
			w.must(w.c.Delete(w.ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground)))
			w.until("its workload ends", func() error {
				got := w.get(wl) // nothing collects garbage here, so it stays
				if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonOwnerNotFound || len(got.Finalizers) > 0 {
					return fmt.Errorf("conditions %v, finalizers %v", conditionTypes(got), got.Finalizers)
				}
				return nil
			})
		})
	}
}

func TestDeletedWorkload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	j, wl := w.started("train")
	w.must(w.c.Delete(w.ctx, wl))
	w.until("there is a new workload", func() error {
		if got := w.workloadOf(j); got.UID == wl.UID {
			return fmt.Errorf("the old one is still there")
		}
		return nil
	})
	stopped := w.job("train")
	if diff := cmp.Diff(map[string]string{"zone": "a"}, stopped.Spec.Template.Spec.NodeSelector); !suspended(stopped) || diff != "" {
		t.Errorf("suspended %v, node selector -want +got:\n%s", suspended(stopped), diff)
	}
	w.expectEvents("train", "CreatedWorkload", "CreatedWorkload", "Started", "Stopped")
}

// TestEditsOfAWaitingJob is a user who edits a Job at every step (spec: 30 §7 examples 15, 16 and 17).
func TestEditsOfAWaitingJob(t *testing.T) {
	t.Parallel()
	cfg := defaultConfig()
	w := newWorld(t, cfg)
	_, wl := w.queued("train")
	edit := func(change func(*batchv1.Job)) {
		t.Helper()
		w.until("the job can be edited", func() error {
			current := w.job("train")
			change(current)
			return w.c.Update(w.ctx, current)
		})
	}
	edit(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(1)) })
	w.until("the workload counts one pod", func() error {
		if got := w.get(wl).Spec.PodSets[0].Count; got != 1 {
			return fmt.Errorf("it counts %d", got)
		}
		return nil
	})
	edit(func(j *batchv1.Job) { j.Spec.Template.Spec.NodeSelector["zone"] = "b" })
	w.until("the workload has the new selector", func() error {
		if got := w.get(wl).Spec.PodSets[0].Template.Spec.NodeSelector["zone"]; got != "b" {
			return fmt.Errorf("it has %s", got)
		}
		return nil
	})
	w.until("it is told", func() error {
		if got := w.events("train"); !slices.Contains(got, "UpdatedWorkload") {
			return fmt.Errorf("events %v", got)
		}
		return nil
	})
	edit(func(j *batchv1.Job) { j.Labels[kueue.QueueNameLabel] = "other" })
	w.until("the workload moved", func() error {
		if got := w.get(wl).Spec.QueueName; got != "other" {
			return fmt.Errorf("it is in %s", got)
		}
		return nil
	})
	edit(func(j *batchv1.Job) { j.Spec.Suspend = new(false) })
	w.until("the job is stopped again", func() error {
		if !suspended(w.job("train")) {
			return fmt.Errorf("it runs")
		}
		return nil
	})
	if got := w.get(wl); got.UID != wl.UID {
		t.Error("the workload was replaced")
	}
}

func TestFailedToStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	j := w.newJob("picky")
	j.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "a100"}
	w.create(j)
	wl := w.workloadOf(j)
	w.admit(wl)
	w.until("the workload is finished", func() error {
		if c := lifecycle.Condition(w.get(wl), kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonFailedToStart {
			return fmt.Errorf("conditions %v", conditionTypes(w.get(wl)))
		}
		return nil
	})
	if !suspended(w.job("picky")) {
		t.Error("the job runs")
	}
}

func TestPriorityClasses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	j := w.newJob("train")
	gold, silver := w.namespace+"-gold", w.namespace+"-silver"
	j.Labels[kueue.PriorityClassLabel] = gold
	w.create(j)
	w.expectEvents("train", "WorkloadPriorityClassNotFound")
	w.create(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: gold}, Value: 100})
	wl := w.workloadOf(j)
	if wl.Spec.Priority == nil || *wl.Spec.Priority != 100 {
		t.Errorf("priority %v, want 100", wl.Spec.Priority)
	}
	w.admit(wl)
	w.running("train")
	w.create(&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: silver}, Value: 50})
	w.until("the label can be changed", func() error {
		current := w.job("train")
		current.Labels[kueue.PriorityClassLabel] = silver
		return w.c.Update(w.ctx, current)
	})
	w.until("the workload has the new class", func() error {
		if got := w.get(wl).Spec; got.PriorityClassRef.Name != silver || *got.Priority != 50 {
			return fmt.Errorf("it has %s, %d", got.PriorityClassRef.Name, *got.Priority)
		}
		return nil
	})
	if suspended(w.job("train")) {
		t.Error("the job was stopped")
	}
}

func TestPrebuiltWorkload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	j := w.newJob("train")
	j.Labels[kueue.PrebuiltWorkloadLabel] = "mine"
	w.create(j)
	w.waitUntilStable()
	template := w.newJob("template").Spec.Template
	w.create(&kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: w.namespace},
		Spec:       kueue.WorkloadSpec{QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 2, Template: w.defaulted(template)}}},
	})
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: w.namespace}}
	w.until("it is adopted", func() error {
		if owner := metav1.GetControllerOf(w.get(wl)); owner == nil || owner.UID != j.UID {
			return fmt.Errorf("owner %v", owner)
		}
		return nil
	})
	w.admit(wl)
	w.running("train")

	other := w.newJob("other")
	other.Labels[kueue.PrebuiltWorkloadLabel] = "wrong"
	template.Spec.Containers[0].Image = "another"
	w.create(&kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: "wrong", Namespace: w.namespace},
		Spec:       kueue.WorkloadSpec{QueueName: "lq", PodSets: []kueue.PodSet{{Name: "main", Count: 2, Template: w.defaulted(template)}}},
	})
	w.create(other)
	w.until("the wrong one is out of sync", func() error {
		got := w.get(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "wrong", Namespace: w.namespace}})
		if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != kueue.ReasonOutOfSync {
			return fmt.Errorf("conditions %v", conditionTypes(got))
		}
		return nil
	})
}

// defaulted fills in what the API server does in the template of a Job.
func (w *world) defaulted(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	w.t.Helper()
	probe := w.newJob("probe")
	probe.Spec.Template = *template.DeepCopy()
	w.must(w.c.Create(w.ctx, probe, client.DryRunAll))
	out := probe.Spec.Template
	out.Labels = map[string]string{"app": "x"}
	return out
}

// TestRestart kills the manager at every stage, with a decision possibly half carried out, and starts another one.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	restart := func() { w.stop(); w.start() }
	const n = 6
	for i := range n {
		w.create(w.newJob(fmt.Sprintf("job-%d", i)))
	}
	restart()
	var workloads []*kueue.Workload
	for i := range n {
		workloads = append(workloads, w.workloadOf(w.job(fmt.Sprintf("job-%d", i))))
	}
	for _, wl := range workloads {
		w.admit(wl)
	}
	restart()
	for i := range n {
		w.running(fmt.Sprintf("job-%d", i))
	}
	for _, wl := range workloads[:n/2] {
		w.evict(wl)
	}
	restart()
	for i, wl := range workloads[:n/2] {
		w.until("released", func() error {
			if lifecycle.IsReserved(w.get(wl)) {
				return fmt.Errorf("workload %d is still reserved", i)
			}
			return nil
		})
	}
	for i := n / 2; i < n; i++ {
		w.complete(fmt.Sprintf("job-%d", i))
	}
	restart()
	for i, wl := range workloads[n/2:] {
		w.until("finished", func() error {
			if got := w.get(wl); !lifecycle.IsFinished(got) || len(got.Finalizers) > 0 {
				return fmt.Errorf("workload %d: %v", i, conditionTypes(got))
			}
			return nil
		})
	}
	var list kueue.WorkloadList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	if len(list.Items) != n {
		t.Errorf("%d workloads for %d jobs", len(list.Items), n)
	}
	for i := range n {
		var starts, finishes int
		for _, reason := range w.events(fmt.Sprintf("job-%d", i)) {
			switch reason {
			case "Started":
				starts++
			case "FinishedWorkload":
				finishes++
			}
		}
		if starts > 1 || finishes > 1 {
			t.Errorf("job-%d: %d starts, %d ends", i, starts, finishes)
		}
	}
}

// TestInterruptedStop finds a job that a crash left between the writes of a stop.
func TestInterruptedStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, defaultConfig())
	w.started("train")
	w.stop()
	w.until("the first write of a stop", func() error {
		current := w.job("train")
		current.Spec.Suspend = new(true)
		current.Annotations = map[string]string{kueue.JobStoppingAnnotation: "true"}
		return w.c.Update(w.ctx, current)
	})
	w.setStatus("train", func(s *batchv1.JobStatus) { s.StartTime = new(metav1.Now()) })
	w.start()
	// It is admitted, so the stop ends and the job starts again, with the selectors once.
	started := w.running("train")
	if started.Annotations[kueue.JobStoppingAnnotation] != "" || started.Spec.Template.Spec.NodeSelector["pool"] != "h100" {
		t.Errorf("annotations %v, node selector %v", started.Annotations, started.Spec.Template.Spec.NodeSelector)
	}
}

// onlyMarked reports whether the only annotation says that Berth suspended the job.
func onlyMarked(annotations map[string]string) bool {
	return len(annotations) == 1 && annotations[job.SuspendedAnnotation] == "true"
}
