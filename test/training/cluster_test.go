// Package training plays the clients of the training API against the whole manager, on a real control plane with simulated
// nodes: the Kubeflow SDK's requests, word for word as the specification has them, and TrainJobs that wait in queues, are
// preempted and run to their end.
package training

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	trainerv1alpha1 "github.com/berth-project/berth/api/trainer/v1alpha1"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
	"github.com/berth-project/berth/internal/wire"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

// cluster is a control plane with a manager, for one test.
type cluster struct {
	t      *testing.T
	ctx    context.Context
	c      client.Client
	admin  *rest.Config
	ledger ledger // of what the manager writes
}

// start runs the manager with the access rules that are installed, until the test ends. Its options may be changed.
func start(t *testing.T, change ...func(*options.Options)) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a whole control plane")
	}
	admin, err := clientcmd.BuildConfigFromFlags("", embeddedtest.Start(t, embeddedtest.Full))
	if err != nil {
		t.Fatal(err)
	}
	admin.QPS, admin.WarningHandler = -1, rest.NoWarnings{}
	k := &cluster{t: t, ctx: t.Context(), admin: admin}
	k.c, err = client.New(admin, client.Options{Scheme: install.Scheme()})
	k.must(err)
	o := options.Default()
	o.Frameworks = append(o.Frameworks, "trainer.kubeflow.org/trainjob")
	o.LeaderElection.Enabled = false
	o.Metrics.Address, o.Health.Address, o.VisibilityAddress = "0", "0", "0"
	o.Webhook.Host, o.Webhook.Port = "127.0.0.1", embeddedtest.FreePort(t)
	for _, c := range change {
		c(&o)
	}
	groups, err := install.ParseGroups("")
	k.must(err)
	url := "https://127.0.0.1:" + strconv.Itoa(o.Webhook.Port)
	k.must(install.Apply(k.ctx, admin, install.Options{WebhookURL: url, Options: o, Groups: groups}, io.Discard))
	account := rest.CopyConfig(admin)
	account.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + o.Namespace + ":kueue-controller-manager",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	account.Wrap(k.ledger.wrap)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- wire.Run(ctx, wire.Config{
			REST: account, Options: o, Groups: groups, WebhookURL: url, OnReady: func() { close(ready) }, Log: k.log(),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the manager is not ready after a minute")
	}
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

func (k *cluster) create(o client.Object) { k.t.Helper(); k.must(k.c.Create(k.ctx, o)) }

// parse reads an object from YAML.
func parse[T any](text string) *T {
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		panic(err)
	}
	return o
}

func (k *cluster) eventually(what string, check func() error) {
	k.t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	k.t.Fatalf("not within a minute: %s: %v", what, err)
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
	k.eventually(fmt.Sprintf("%d pods of %s run", n, job), func() error {
		if got := len(k.pods(job)); got != n {
			return fmt.Errorf("%d pods run; the status is %+v", got, k.trainJob(job).Status)
		}
		return nil
	})
}

func (k *cluster) completes(job string) {
	k.t.Helper()
	k.eventually(job+" completes", func() error {
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
