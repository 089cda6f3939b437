// Package training plays the clients of the training API against the whole manager, on a real control plane with simulated
// nodes: the Kubeflow SDK's requests, word for word as the specification has them, and TrainJobs that wait in queues, are
// preempted and run to their end.
package training

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
)

func TestMain(m *testing.M) {
	code := embeddedtest.MainOfClusters(m)
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// cluster is a control plane with a manager, for one test.
type cluster struct {
	t      *testing.T
	ctx    context.Context
	c      client.Client
	admin  *rest.Config
	ledger ledger          // of what the manager writes
	made   []client.Object // what create created
}

// site is a whole control plane with everything installed. Its managers serve the webhooks on the same port, one after the other.
type site struct {
	kubeconfig string
	options    options.Options
	groups     install.Groups
	url        string
}

// shared is the site of start, nil before its first use, and its control plane.
var shared struct {
	*site
	dir   string
	plane *embedded.ControlPlane
}

// start runs a manager with the access rules that are installed, until the test ends. Tests use the control plane one after the other, and
// start deletes what a test has created.
func start(t *testing.T) *cluster {
	t.Helper()
	skip(t)
	if shared.site == nil {
		if err := startShared(); err != nil {
			t.Fatal(err)
		}
		shared.site = newSite(t, shared.plane.Kubeconfig())
	}
	k := shared.manage(t)
	t.Cleanup(k.clear) // while the manager runs, which removes finalizers
	return k
}

// startShared starts the control plane of start.
func startShared() (err error) {
	if shared.dir, err = os.MkdirTemp("", "berth-training-"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	shared.plane, err = embedded.Start(ctx, embedded.Config{Dir: shared.dir})
	return err
}

// stopShared stops the control plane of start.
func stopShared() error {
	if shared.plane == nil {
		return os.RemoveAll(shared.dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(shared.plane.Stop(ctx), os.RemoveAll(shared.dir))
}

// startAlone is start with a control plane for the test alone, whose options may be changed.
func startAlone(t *testing.T, change ...func(*options.Options)) *cluster {
	t.Helper()
	skip(t)
	return newSite(t, embeddedtest.Start(t, embeddedtest.Full), change...).manage(t)
}

func skip(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
}

// newSite installs everything.
func newSite(t *testing.T, kubeconfig string, change ...func(*options.Options)) *site {
	t.Helper()
	s := &site{kubeconfig: kubeconfig, options: options.Default()}
	o := &s.options
	o.Frameworks = append(o.Frameworks, "trainer.kubeflow.org/trainjob")
	o.LeaderElection.Enabled = false
	o.Metrics.Address, o.Health.Address, o.VisibilityAddress = "0", "0", "0"
	o.Webhook.Host, o.Webhook.Port = "127.0.0.1", embeddedtest.FreePort(t)
	o.Trainer.StatusPort = embeddedtest.FreePort(t)
	o.Trainer.StatusAddress = fmt.Sprintf("127.0.0.1:%d", o.Trainer.StatusPort)
	for _, c := range change {
		c(o)
	}
	k := s.cluster(t)
	var err error
	s.groups, err = install.ParseGroups("")
	k.must(err)
	s.url = "https://127.0.0.1:" + strconv.Itoa(o.Webhook.Port)
	k.must(install.Apply(k.ctx, k.admin, install.Options{WebhookURL: s.url, Options: s.options, Groups: s.groups}, io.Discard))
	return s
}

// cluster returns clients of the site.
func (s *site) cluster(t *testing.T) *cluster {
	t.Helper()
	admin, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	admin.QPS, admin.WarningHandler = -1, rest.NoWarnings{}
	k := &cluster{t: t, ctx: t.Context(), admin: admin}
	k.c, err = client.New(admin, client.Options{Scheme: install.Scheme()})
	k.must(err)
	return k
}

// manage runs a manager until the test ends.
func (s *site) manage(t *testing.T) *cluster {
	t.Helper()
	k := s.cluster(t)
	o := s.options
	account := rest.CopyConfig(k.admin)
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + o.Namespace + ":kueue-controller-manager",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	account.Wrap(k.ledger.wrap)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- wire.Run(ctx, wire.Config{
			REST: account, Options: o, Groups: s.groups, WebhookURL: s.url, OnReady: func() { close(ready) }, Log: k.log(),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	wait.Ready(k.t, "the manager", ready, ended)
	k.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab"}})
	return k
}

// log keeps the manager's log and prints it if the test fails.
func (k *cluster) log() logr.Logger {
	var mu sync.Mutex
	var lines []string
	k.t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if k.t.Failed() {
			k.t.Logf("the manager says:\n%s", strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	})
	return funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}, funcr.Options{})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (k *cluster) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *cluster) create(o client.Object) {
	k.t.Helper()
	k.must(k.c.Create(k.ctx, o))
	k.made = append(k.made, o)
}

// clear deletes all that create created, and waits until it is gone. The namespace lab was the first.
func (k *cluster) clear() {
	k.ctx = context.WithoutCancel(k.ctx)
	deleted := slices.DeleteFunc(k.made, func(o client.Object) bool { return o.GetNamespace() != "" })
	for _, o := range deleted {
		k.must(client.IgnoreNotFound(k.c.Delete(k.ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))))
	}
	for _, o := range deleted {
		wait.Until(k.t, fmt.Sprintf("%T %s is gone", o, o.GetName()), func() error {
			if err := k.c.Get(k.ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return errors.Join(err, errors.New("it is there"))
			}
			return nil
		})
	}
}

// parse reads an object from YAML.
func parse[T any](text string) *T {
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		panic(err)
	}
	return o
}

func (k *cluster) trainJob(name string) *trainerv1alpha1.TrainJob {
	k.t.Helper()
	var job trainerv1alpha1.TrainJob
	k.must(k.c.Get(k.ctx, client.ObjectKey{Namespace: "lab", Name: name}, &job))
	return &job
}

// pods are the unfinished pods of a TrainJob, by the label that clients use.
func (k *cluster) pods(job string) []corev1.Pod {
	k.t.Helper()
	var list corev1.PodList
	k.must(k.c.List(k.ctx, &list, client.InNamespace("lab"), client.MatchingLabels{"jobset.sigs.k8s.io/jobset-name": job}))
	var out []corev1.Pod
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

func (k *cluster) running(job string, n int) {
	k.t.Helper()
	wait.Until(k.t, fmt.Sprintf("%d pods of %s run", n, job), func() error {
		if got := len(k.pods(job)); got != n {
			return fmt.Errorf("%d pods run; the status is %+v", got, k.trainJob(job).Status)
		}
		return nil
	})
}

func (k *cluster) completes(job string) {
	k.t.Helper()
	wait.Until(k.t, job+" completes", func() error {
		for _, c := range k.trainJob(job).Status.Conditions {
			if c.Type == "Complete" && c.Status == "True" {
				return nil
			}
		}
		return fmt.Errorf("%+v", k.trainJob(job).Status)
	})
}

// seconds is a runtime patch with the run time of the simulated pods of replicated jobs.
func seconds(run map[string]string) string {
	jobs := []string{}
	for _, name := range []string{"dataset-initializer", "model-initializer", "launcher", "node"} {
		if s, ok := run[name]; ok {
			jobs = append(jobs, fmt.Sprintf(`{name: %s, template: {spec: {template: {metadata: {annotations: {berth.dev/run-seconds: "%s"}}}}}}`, name, s))
		}
	}
	return "{manager: acme.io/simulated, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [" + strings.Join(jobs, ", ") + "]}}}}"
}

// user is a client that uses HTTP and JSON without Berth's types.
type user struct {
	*cluster
	http *http.Client
}

// user binds the role for people who train, in the namespace lab.
func (k *cluster) user(name string) *user {
	k.t.Helper()
	k.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubeflow-trainer-edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	})
	k.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name + "-view"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	})
	cfg := rest.CopyConfig(k.admin)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c, err := rest.HTTPClientFor(cfg)
	k.must(err)
	return &user{k, c}
}

// object is JSON as it came.
type object = map[string]any

// at follows keys and indexes into what came; nil if there is no such thing.
func at(o any, path ...any) any {
	for _, p := range path {
		switch key := p.(type) {
		case string:
			m, _ := o.(object)
			o = m[key]
		case int:
			l, _ := o.([]any)
			if key >= len(l) {
				return nil
			}
			o = l[key]
		}
	}
	return o
}

// send makes a request and returns status and body.
func (u *user) send(method, path string, body any) (int, object) {
	u.t.Helper()
	var data io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		u.must(err)
		data = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(u.ctx, method, u.admin.Host+path, data)
	u.must(err)
	request.Header.Set("Content-Type", "application/json")
	response, err := u.http.Do(request)
	u.must(err)
	defer func() { _ = response.Body.Close() }()
	out := object{}
	u.must(json.NewDecoder(response.Body).Decode(&out))
	return response.StatusCode, out
}

// get is send of a request that must succeed.
func (u *user) get(path string) object {
	u.t.Helper()
	status, out := u.send(http.MethodGet, path, nil)
	if status != http.StatusOK {
		u.t.Fatalf("GET %s: %d %v", path, status, out["message"])
	}
	return out
}
