package importer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/cli/ctl/cluster"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/goldentest"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// server is an API server with running pods, and no manager.
type server struct {
	*testing.T
	cfg *rest.Config
	c   client.Client
}

// TestImport is the import on a real API server: spec 70 §7 examples 58, 59, 68 and 69, and failures on the way.
func TestImport(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an API server")
	}
	cfg := embeddedtest.ConfigOf(t, embeddedtest.Start(t))
	c, err := client.New(cfg, client.Options{Scheme: cluster.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	i := &Import{Client: c, Namespaces: []string{"default"}, Rules: byLabel(t), Workers: 1, Out: io.Discard, Errs: io.Discard}
	if err := i.Run(t.Context()); err == nil || err.Error() != "the API server does not serve kueue.x-k8s.io/v1beta2: run berth install first" {
		t.Errorf("without the API: %v", err)
	}
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{MaxTime: wait.Patience, Paths: []string{"../../../config/crd"}}); err != nil {
		t.Fatal(err)
	}
	s := &server{t, cfg, c}
	s.create(&kueue.ResourceFlavor{ObjectMeta: meta("", "f1")}, &kueue.ResourceFlavor{ObjectMeta: meta("", "f2")},
		clusterQueue("main", group([]string{"f1", "f2"}, "cpu", "memory")), clusterQueue("pods", group([]string{"f1"}, "cpu")))
	for _, part := range []struct {
		name string
		test func(*server)
	}{
		{"dry run", (*server).dryRun},
		{"coverage", (*server).coverage},
		{"others write", (*server).othersWrite},
		{"foreign Workloads", (*server).foreign},
		{"names", (*server).names},
		{"twice, then the manager", (*server).twiceThenManager}, // the last one: the manager stays
	} {
		t.Run(part.name, func(t *testing.T) { part.test(&server{t, cfg, c}) })
	}
}

func (s *server) create(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		if err := s.c.Create(s.Context(), o); err != nil {
			s.Fatalf("creating %T %s: %v", o, o.GetName(), err)
		}
	}
}

// space makes a namespace with a LocalQueue for each ClusterQueue, of its name.
func (s *server) space(name string) {
	s.Helper()
	s.create(&corev1.Namespace{ObjectMeta: meta("", name)}, localQueue(name, "main", "main"), localQueue(name, "pods", "pods"))
}

// runPods makes running pods.
func (s *server) runPods(pods ...*corev1.Pod) {
	s.Helper()
	for _, p := range pods {
		p.UID = ""
		s.create(p)
		s.phase(p, corev1.PodRunning)
	}
}

func (s *server) phase(p *corev1.Pod, phase corev1.PodPhase) {
	s.Helper()
	p.Status.Phase = phase
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := s.c.Status().Update(s.Context(), p); err != nil {
		s.Fatal(err)
	}
}

// run imports, and returns the report and the error in one text.
func (s *server) run(edit func(*Import)) (string, error) {
	s.Helper()
	var out bytes.Buffer
	i := &Import{
		Client: s.c, Rules: byLabel(s.T), Workers: 8, Out: &out, Errs: &out,
		Now: func() metav1.Time { return metav1.Now() },
	}
	edit(i)
	err := i.Run(s.Context())
	text := out.String()
	if err != nil {
		text += "error: " + err.Error() + "\n"
	}
	return text, err
}

func (s *server) golden(name string, parts ...string) {
	s.Helper()
	goldentest.Check(s.T, "testdata/"+name+".txt", strings.Join(parts, "\n----\n"))
}

// versions are the resourceVersions of all pods and Workloads of a namespace.
func (s *server) versions(namespace string) map[string]string {
	s.Helper()
	var pods corev1.PodList
	if err := s.c.List(s.Context(), &pods, client.InNamespace(namespace)); err != nil {
		s.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range pods.Items {
		out["pod "+p.Name] = p.ResourceVersion
	}
	for _, w := range s.workloads(namespace) {
		out["workload "+w.Name] = w.ResourceVersion
	}
	return out
}

func (s *server) workloads(namespace string) []kueue.Workload {
	s.Helper()
	var list kueue.WorkloadList
	if err := s.c.List(s.Context(), &list, client.InNamespace(namespace)); err != nil {
		s.Fatal(err)
	}
	return list.Items
}

// dryRun is example 58: a dry run over 200 pods, 3 of them without mapping.
func (s *server) dryRun() {
	s.space("dry")
	for n := range 200 {
		labels := map[string]string{"to": "main"}
		switch n {
		case 7, 150:
			labels = map[string]string{"app": "monitor"}
		case 199:
			labels = map[string]string{"app": "monitor", "to": "nowhere"}
		}
		s.create(running("dry", fmt.Sprintf("p-%03d", n), labels, "cpu", "1"))
	}
	ended := running("dry", "ended", nil)
	s.create(ended)
	s.phase(ended, corev1.PodSucceeded)
	before := s.versions("dry")
	failing, err := s.run(func(i *Import) { i.Namespaces, i.DryRun = []string{"dry"}, true })
	if err == nil {
		s.Error("three pods have no mapping, and no error")
	}
	refused, err := s.run(func(i *Import) { i.Namespaces = []string{"dry"} })
	if err == nil || !strings.Contains(refused, "so nothing was changed") {
		s.Errorf("imported in spite of failures: %v %s", err, refused)
	}
	const rules = "- match: {labels: {app: monitor}}\n  skip: true\n- match: {labels: {to: main}}\n  toLocalQueue: main\n"
	skipping, err := s.run(func(i *Import) { i.Namespaces, i.DryRun, i.Rules = []string{"dry"}, true, rulesOf(s.T, rules) })
	if err != nil {
		s.Error(err)
	}
	if diff := cmp.Diff(before, s.versions("dry")); diff != "" {
		s.Errorf("something was written:\n%s", diff)
	}
	_, err = s.run(func(i *Import) { i.Namespaces = []string{"dry", "drop"} })
	s.golden("dryrun", failing, skipping, fmt.Sprint(err))
}

// coverage is example 69: a resource that no group covers, unless it is excluded or zero.
func (s *server) coverage() {
	s.space("covered")
	s.runPods(running("covered", "fits", map[string]string{"to": "main"}, "cpu", "1"), running("covered", "gpus", map[string]string{"to": "main"}, "cpu", "1", "example.com/gpu", "1"),
		running("covered", "zero", map[string]string{"to": "main"}, "cpu", "1", "example.com/gpu", "0"), running("covered", "memory", map[string]string{"to": "pods"}, "cpu", "1", "memory", "1Mi"))
	failing, err := s.run(func(i *Import) { i.Namespaces, i.DryRun = []string{"covered"}, true })
	if err == nil {
		s.Error("no error")
	}
	done, err := s.run(func(i *Import) {
		i.Namespaces, i.ExcludePrefixes, i.Verbosity, i.AddLabels = []string{"covered"}, []string{"example.com/", "mem"}, 2, map[string]string{"from": "before"}
	})
	if err != nil {
		s.Error(err)
	}
	s.golden("uncovered", failing, s.named("covered", done))
	for _, w := range s.workloads("covered") {
		a := w.Status.Admission.PodSetAssignments[0]
		if len(a.ResourceUsage) != 1 || len(a.Flavors) != 1 || a.Flavors["cpu"] != "f1" || w.Labels["from"] != "before" {
			s.Errorf("%s: labels %v, %+v", w.Name, w.Labels, a)
		}
		for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			if c := lifecycle.Condition(&w, kind); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "Imported" {
				s.Errorf("%s: %s %+v", w.Name, kind, c)
			}
		}
	}
}

// named replaces the names of Workloads, which depend on UIDs, by the names of their pods.
func (s *server) named(namespace, text string) string {
	for _, w := range s.workloads(namespace) {
		text = strings.ReplaceAll(text, w.Name, "WORKLOAD-OF-"+w.OwnerReferences[0].Name)
	}
	return text
}

// through gives an import a connection of its own, on which refuse may answer instead of the API server.
func (s *server) through(refuse func(*http.Request) (answer string, code int)) client.Client {
	s.Helper()
	cfg := rest.CopyConfig(s.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
			if text, code := refuse(r); code != 0 {
				return &http.Response{StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
			}
			return next.RoundTrip(r)
		})
	})
	c, err := client.New(cfg, client.Options{Scheme: cluster.Scheme})
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// refusal is a refusal of the API server.
func refusal(reason metav1.StatusReason, code, seconds int) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"refused in a test","details":{"retryAfterSeconds":%d}}`, reason, code, seconds)
}

// othersWrite: conflicts are retried a few times, delays that the API server asks for are respected, and a run that is interrupted
// between any two writes is repeated.
func (s *server) othersWrite() {
	s.space("others")
	s.runPods(running("others", "p", map[string]string{"to": "main"}, "cpu", "1"))
	of := func(r *http.Request, method, what string) bool {
		return r.Method == method && strings.Contains(r.URL.Path, what)
	}
	var applied atomic.Int32
	attempt := func(refuse func(*http.Request) (string, int)) (string, error) {
		applied.Store(0)
		return s.run(func(i *Import) { i.Namespaces, i.Client = []string{"others"}, s.through(refuse) })
	}
	for _, step := range []struct{ method, what string }{{"POST", "/workloads"}, {"PATCH", "/status"}} {
		text, err := attempt(func(r *http.Request) (string, int) {
			if of(r, step.method, step.what) {
				return refusal(metav1.StatusReasonInternalError, 500, 0), 500
			}
			return "", 0
		})
		if err == nil || !strings.Contains(text, "refused in a test") || !strings.Contains(text, "1 pod of 1 could not be imported") {
			s.Errorf("%s: %s", step.what, text)
		}
	}
	conflicts := func(most int32) (string, error) {
		return attempt(func(r *http.Request) (string, int) {
			switch {
			case of(r, "PATCH", "/status") && applied.Add(1) <= most:
				return refusal(metav1.StatusReasonConflict, 409, 0), 409
			case of(r, "PATCH", "/pods/p"):
				return refusal(metav1.StatusReasonInternalError, 500, 0), 500
			}
			return "", 0
		})
	}
	if text, err := conflicts(5); err == nil || applied.Load() != 5 || !strings.Contains(text, "writing the status of workload") {
		s.Errorf("after five conflicts, %d tries: %s", applied.Load(), text)
	}
	if text, err := conflicts(4); err == nil || applied.Load() != 5 || !strings.Contains(text, "labeling the pod") {
		s.Errorf("after four conflicts, %d tries: %s", applied.Load(), text)
	}
	var late atomic.Int32
	began := time.Now()
	text, err := attempt(func(r *http.Request) (string, int) {
		if of(r, "GET", "/pods") && late.Add(1) == 1 {
			return refusal(metav1.StatusReasonServerTimeout, 500, 1), 500
		}
		return "", 0
	})
	if took := time.Since(began); err != nil || took < time.Second || !strings.Contains(text, "Imported 1 pod: 1 now, 0 before.") {
		s.Errorf("later, after %v: %s", took, text)
	}
	s.runPods(running("others", "q", map[string]string{"to": "main"}, "cpu", "1"))
	if text, err = attempt(func(r *http.Request) (string, int) {
		if of(r, "PATCH", "/pods/q") {
			q := &corev1.Pod{ObjectMeta: meta("others", "q")}
			if err := s.c.Delete(context.WithoutCancel(r.Context()), q, client.GracePeriodSeconds(0)); err != nil {
				s.Error(err)
			}
		}
		return "", 0
	}); err != nil || !strings.Contains(text, "Imported 1 pod: 0 now, 1 before. 1 pod ended meanwhile.") || len(s.workloads("others")) != 1 {
		s.Errorf("a pod that is gone: %s%d Workloads", text, len(s.workloads("others")))
	}
}

// foreign: a Workload of another object, or one that does not describe the pod, is never admitted for it.
func (s *server) foreign() {
	s.space("foreign")
	s.runPods(running("foreign", "p", map[string]string{"to": "main"}, "cpu", "1"))
	importing := func(add map[string]string) (string, error) {
		return s.run(func(i *Import) { i.Namespaces, i.AddLabels = []string{"foreign"}, add })
	}
	taken := &kueue.Workload{ObjectMeta: meta("foreign", "taken"), Spec: kueue.WorkloadSpec{QueueName: "main", PodSets: []kueue.PodSet{{
		Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "any"}}}},
	}}}}
	taken.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "q", UID: "q", Controller: new(true)}}
	free := taken.DeepCopy()
	free.Name, free.OwnerReferences = "free", nil
	s.create(taken, free)
	for name, want := range map[string]string{
		"taken": "workload taken is there already and belongs to another object: delete it",
		"free":  "workload free, which the pod names, does not describe it",
	} {
		if text, err := importing(map[string]string{kueue.PrebuiltWorkloadLabel: name}); err == nil || !strings.Contains(text, want) {
			s.Errorf("%s: %s", name, text)
		}
	}
	s.golden("foreign", func() string {
		text, _ := importing(map[string]string{kueue.PrebuiltWorkloadLabel: "taken"})
		return text
	}())
}

// names: a Workload that the pod names is created, or adopted if it exists without an owner.
func (s *server) names() {
	s.space("names")
	s.runPods(running("names", "made", map[string]string{"to": "main", kueue.PrebuiltWorkloadLabel: "mine"}, "cpu", "1"),
		running("names", "adopts", map[string]string{"to": "main", kueue.PrebuiltWorkloadLabel: "theirs"}, "cpu", "1"))
	var adopts corev1.Pod
	if err := s.c.Get(s.Context(), client.ObjectKey{Namespace: "names", Name: "adopts"}, &adopts); err != nil {
		s.Fatal(err)
	}
	s.create(&kueue.Workload{ObjectMeta: meta("names", "theirs"), Spec: kueue.WorkloadSpec{QueueName: "main", PodSets: []kueue.PodSet{{
		Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: adopts.Spec},
	}}}})
	for range 2 {
		if text, err := s.run(func(i *Import) { i.Namespaces = []string{"names"} }); err != nil {
			s.Error(text)
		}
	}
	owners := map[string]string{}
	for _, w := range s.workloads("names") {
		if owner := metav1.GetControllerOf(&w); owner != nil && lifecycle.IsAdmitted(&w) && w.Labels[kueue.JobUIDLabel] == string(owner.UID) {
			owners[w.Name] = owner.Name
		}
	}
	if diff := cmp.Diff(map[string]string{"mine": "made", "theirs": "adopts"}, owners); diff != "" {
		s.Error(diff)
	}
}

// twiceThenManager is examples 68 and 59: repeated imports make one Workload, the manager keeps it, above the quota, and new Workloads
// wait until there is room.
func (s *server) twiceThenManager() {
	s.space("twice")
	var pods []*corev1.Pod
	for n := range 50 { // and there is quota for ten
		pods = append(pods, running("twice", fmt.Sprintf("p-%02d", n), map[string]string{"to": "pods"}, "cpu", "1"))
	}
	s.runPods(pods...)
	importing := func(i *Import) { i.Namespaces = []string{"twice"} }
	first, err := s.run(importing)
	if err != nil {
		s.Fatal(first)
	}
	before := s.versions("twice")
	second, err := s.run(importing)
	if err != nil {
		s.Fatal(second)
	}
	if diff := cmp.Diff(before, s.versions("twice")); diff != "" || len(before) != 100 {
		s.Errorf("the second run wrote, or there are not 50 of each but %d:\n%s", len(before), diff)
	}
	s.golden("twice", first, second)
	uids := s.uids()
	s.manage()
	wait.Until(s.T, "usage above the quota", func() error {
		var cq kueue.ClusterQueue
		if err := s.c.Get(s.Context(), client.ObjectKey{Name: "pods"}, &cq); err != nil {
			return err
		}
		for _, f := range cq.Status.FlavorsUsage {
			for _, r := range f.Resources {
				// The one of another namespace was imported before.
				if f.Name == "f1" && r.Name == "cpu" && r.Total.Cmp(resource.MustParse("51")) == 0 && cq.Status.AdmittedWorkloads == 51 {
					return nil
				}
			}
		}
		return fmt.Errorf("%d admitted, usage %+v", cq.Status.AdmittedWorkloads, cq.Status.FlavorsUsage)
	})
	late := running("twice", "late", map[string]string{kueue.QueueNameLabel: "pods"}, "cpu", "1")
	late.Spec.NodeName, late.UID = "", ""
	s.create(late)
	wait.Until(s.T, "the new one is told that it waits", func() error {
		w := s.workloadOf("twice", "late")
		if w == nil {
			return errors.New("no Workload")
		}
		if c := lifecycle.Condition(w, kueue.WorkloadQuotaReserved); c == nil || c.Status != metav1.ConditionFalse {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	wait.Stays(s.T, 2*time.Second, "the manager does not change the Workloads of pods that run", func() error {
		if diff := cmp.Diff(uids, s.uids()); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	for _, p := range pods {
		if err := s.c.Get(s.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.DeletionTimestamp != nil {
			s.Fatalf("pod %s: %v, deleted %v", p.Name, err, p.DeletionTimestamp)
		}
	}
	s.finishAll(pods)
	wait.Until(s.T, "the new one runs once there is room", func() error {
		if w := s.workloadOf("twice", "late"); !lifecycle.IsAdmitted(w) {
			return fmt.Errorf("%+v", w.Status.Conditions)
		}
		return nil
	})
}

// finishAll makes pods succeed.
func (s *server) finishAll(pods []*corev1.Pod) {
	var runs sync.WaitGroup
	for _, p := range pods {
		runs.Go(func() {
			p.Status.Phase = corev1.PodSucceeded
			if err := s.c.Status().Update(s.Context(), p); err != nil {
				s.Error(err)
			}
		})
	}
	runs.Wait()
}

// uids returns the UIDs of the imported pods' Workloads and whether they are admitted, by pod name.
func (s *server) uids() map[string]string {
	out := map[string]string{}
	for _, w := range s.workloads("twice") {
		if owner := metav1.GetControllerOf(&w); owner != nil && owner.Name != "late" {
			out[w.Name] = fmt.Sprint(w.UID, " ", owner.Name, " ", lifecycle.IsAdmitted(&w), lifecycle.IsEvicted(&w), lifecycle.IsFinished(&w))
		}
	}
	return out
}

func (s *server) workloadOf(namespace, pod string) *kueue.Workload {
	for _, w := range s.workloads(namespace) {
		if owner := metav1.GetControllerOf(&w); owner != nil && owner.Name == pod {
			return &w
		}
	}
	return nil
}

// manage runs a manager that queues pods until the test ends.
func (s *server) manage() {
	path := filepath.Join(s.TempDir(), "config.yaml")
	text := "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [pod]}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	o, err := options.Load(path)
	if err != nil {
		s.Fatal(err)
	}
	o.LeaderElection.Enabled, o.Metrics.Address, o.Health.Address = false, "0", "0"
	o.Webhook.Host, o.Webhook.Port = "127.0.0.1", embeddedtest.FreePort(s.T)
	o.VisibilityAddress = fmt.Sprint("127.0.0.1:", embeddedtest.FreePort(s.T))
	groups, err := install.ParseGroups("-training")
	if err != nil {
		s.Fatal(err)
	}
	url := fmt.Sprint("https://127.0.0.1:", o.Webhook.Port)
	ctx, cancel := context.WithCancel(context.Background())
	if err := install.Apply(ctx, s.cfg, install.Options{WebhookURL: url, Options: o, Groups: groups}, io.Discard); err != nil {
		s.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- wire.Run(ctx, wire.Config{REST: s.cfg, Options: o, Groups: groups, WebhookURL: url, OnReady: func() { close(ready) }, Log: testr.New(s.T)})
	}()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
	wait.Ready(s.T, "the manager", ready, ended)
}
