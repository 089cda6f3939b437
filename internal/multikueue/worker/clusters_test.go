package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	configv1beta2 "github.com/berth-project/berth/api/config/v1beta2"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/inflight"
	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// standIn is a worker cluster without Workloads that fails as a test wants.
type standIn struct {
	*httptest.Server
	lists atomic.Int32
	cut   chan struct{} // closed, it ends watches
	// before, if set, handles every request first, and returns whether it was answered.
	before func(http.ResponseWriter, *http.Request) bool
}

func newStandIn(t *testing.T, before func(http.ResponseWriter, *http.Request) bool) *standIn {
	t.Helper()
	s := &standIn{before: before, cut: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections) // before Close, which waits for them
	return s
}

func isWatch(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/workloads") && r.URL.Query().Get("watch") != ""
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case s.before != nil && s.before(w, r):
	case isWatch(r):
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-s.cut:
		}
	case strings.HasSuffix(r.URL.Path, "/workloads"):
		s.lists.Add(1)
		_, _ = w.Write([]byte(`{"kind": "WorkloadList", "apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"resourceVersion": "1"}, "items": []}`))
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`))
	}
}

// turn is one call of ClusterChanged.
type turn struct {
	cluster string
	fresh   bool
}

// hub is a manager with the cluster w1, whose kubeconfig is in a Secret. Only the test reconciles the cluster.
type hub struct {
	*clusters
	t     *testing.T
	api   client.Client
	turns chan turn
}

func newHub(t *testing.T, server string) *hub {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kueue.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "w1"}, Spec: kueue.MultiKueueClusterSpec{
		ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{LocationType: kueue.LocationTypeSecret, Location: "w1"}},
	}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w1"}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, secret).WithStatusSubresource(cluster).Build()
	h := &hub{t: t, api: api, turns: make(chan turn, 99)}
	h.clusters = &clusters{Fleet: &Fleet{
		Options: Options{
			AllowHTTP: true, // stand-ins have no certificates
			Plan:      &plan.Config{Origin: "hub", ManagerUID: "hub"}, Namespace: "ns", Limit: inflight.NewThrottle(-1, 0), Now: time.Now, ObjectChanged: func(client.Object) {},
			ClusterChanged: func(_ context.Context, name string, fresh bool) { h.turns <- turn{name, fresh} },
		},
		client: api, cache: api, live: api, scheme: scheme, firstWatch: firstWatch, touched: make(chan event.GenericEvent, 99), workers: map[string]*workerCluster{},
	}}
	h.points(server)
	t.Cleanup(func() { h.get("w1").disconnect(time.Now()) })
	return h
}

// points writes a kubeconfig of another server.
func (h *hub) points(server string) {
	h.t.Helper()
	h.edit(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w1"}}, func(o client.Object) {
		o.(*corev1.Secret).Data = map[string][]byte{kubeconfigKey: kubeconfig("server: '"+server+"'", "token: t")}
	})
}

func (h *hub) edit(o client.Object, change func(client.Object)) {
	h.t.Helper()
	if err := h.api.Get(h.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		h.t.Fatal(err)
	}
	change(o)
	if err := h.api.Update(h.t.Context(), o); err != nil {
		h.t.Fatal(err)
	}
}

// look reconciles the cluster, and returns its condition Active.
func (h *hub) look() (ctrlreconcile.Result, metav1.Condition) {
	h.t.Helper()
	result, err := h.Reconcile(h.t.Context(), ctrlreconcile.Request{NamespacedName: types.NamespacedName{Name: "w1"}})
	if err != nil {
		h.t.Fatal(err)
	}
	var cluster kueue.MultiKueueCluster
	if err := h.api.Get(h.t.Context(), client.ObjectKey{Name: "w1"}, &cluster); err != nil {
		h.t.Fatal(err)
	}
	if apimeta.FindStatusCondition(cluster.Status.Conditions, "") != nil {
		h.t.Error("a condition without a type is written")
	}
	for _, condition := range cluster.Status.Conditions {
		if condition.Type == kueue.MultiKueueClusterActive {
			return result, condition
		}
	}
	return result, metav1.Condition{}
}

// is reconciles the cluster, and wants a reason of its condition Active.
func (h *hub) is(reason string) {
	h.t.Helper()
	if _, got := h.look(); got.Reason != reason {
		h.t.Fatalf("it is %s (%s), want %s", got.Reason, got.Message, reason)
	}
}

// told returns the turns of a while.
func (h *hub) told(within time.Duration) []turn {
	var out []turn
	for after := time.After(within); ; {
		select {
		case one := <-h.turns:
			out = append(out, one)
		case <-after:
			return out
		}
	}
}

// wakes waits for the loss of a cluster to be reported.
func (h *hub) wakes() {
	h.t.Helper()
	for wait.Receive(h.t, "the loss is reported", h.turns) != (turn{"w1", false}) {
	}
}

// TestLossWakes: the loss of a cluster is reported, since no other event may come, but not if it is connected again at once.
func TestLossWakes(t *testing.T) {
	for name, cut := range map[string]func(*hub, *standIn){
		"its watch ends":               func(_ *hub, s *standIn) { s.CloseClientConnections(); s.Close() },
		"other credentials do not fit": func(h *hub, _ *standIn) { h.points("http://127.0.0.1:1"); h.is(kueue.ReasonClientConnectionFailed) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStandIn(t, nil)
			h := newHub(t, s.URL)
			h.is(kueue.ReasonActive)
			if got := h.told(slow / 2); len(got) != 1 || !got[0].fresh {
				t.Errorf("told %v of a new connection", got)
			}
			s.CloseClientConnections()
			wait.Until(h.t, "it is noticed", wait.Is(func() bool { return h.Link("w1").Connection == nil }))
			h.is(kueue.ReasonActive)
			if got := h.told(2 * slow); len(got) != 1 || !got[0].fresh {
				t.Errorf("told %v of a connection that was made again", got)
			}
			cut(h, s)
			h.wakes()
		})
	}
}

// TestDeletedClusters: a deleted cluster is forgotten once no MultiKueueConfig names it, and so is a name that never had a cluster.
func TestDeletedClusters(t *testing.T) {
	h := newHub(t, newStandIn(t, nil).URL)
	h.is(kueue.ReasonActive)
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"w1"}}}
	reconciled := func(name string) (after time.Duration, names []string) {
		t.Helper()
		result, err := h.Reconcile(t.Context(), ctrlreconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter, h.Names()
	}
	err := errors.Join(h.api.Create(t.Context(), config), h.api.Delete(t.Context(), &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}))
	if err != nil {
		t.Fatal(err)
	}
	after, names := reconciled("w1")
	lost := h.Link("w1")
	if after != recheckNamed || len(names) != 1 || lost.Connection != nil || lost.LostSince.IsZero() {
		t.Errorf("deleted, but named: again after %s, %v are known, link %+v", after, names, lost)
	}
	if got := h.told(slow / 2); len(got) != 2 || !got[0].fresh || got[1].fresh {
		t.Errorf("told %v of a connection and a deletion", got)
	}
	if again, _ := reconciled("w1"); again != recheckNamed || h.Link("w1") != lost || len(h.turns) > 0 {
		t.Errorf("at the next pass: again after %s, link %+v, told %d times", again, h.Link("w1"), len(h.turns))
	}
	if err := h.api.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if after, names := reconciled("w1"); after != 0 || len(names) > 0 {
		t.Errorf("not named any more: again after %s, %v are known", after, names)
	}
	h.Link("never") // requeues it
	select {
	case e := <-h.touched:
		if _, names := reconciled(e.Object.GetName()); len(names) > 0 {
			t.Errorf("%v are known", names)
		}
	default:
		t.Error("a name without a cluster is kept")
	}
}

// TestLostWhileConnecting: a connection whose watch ends before it is used counts as a failed attempt.
func TestLostWhileConnecting(t *testing.T) {
	var s *standIn
	s = newStandIn(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") { // read after all watches are open
			close(s.cut)
			<-r.Context().Done()
			return true
		}
		return false
	})
	h := newHub(t, s.URL)
	h.is(kueue.ReasonClientConnectionFailed)
	if h.Link("w1").Connection != nil {
		t.Error("it counts as connected")
	}
}

// provide takes the credentials from a ClusterProfile and a plugin, which answers once the returned file is removed.
func (h *hub) provide(server string) (hold string) {
	h.t.Helper()
	dir := h.t.TempDir()
	hold, program := filepath.Join(dir, "hold"), filepath.Join(dir, "plugin")
	text := "#!/bin/sh\nwhile [ -e " + hold + " ]; do sleep 0.1; done\n" +
		`echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "t"}}'` + "\n"
	if err := errors.Join(os.WriteFile(program, []byte(text), 0o700), os.WriteFile(hold, nil, 0o600)); err != nil {
		h.t.Fatal(err)
	}
	h.Profiles, h.Providers = true, []configv1beta2.ClusterProfileProvider{{Name: "p", ExecConfig: configv1beta2.ExecConfig{
		Command: program, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: configv1beta2.NeverInteractive,
	}}}
	profile := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"accessProviders": []any{
		map[string]any{"name": "p", "cluster": map[string]any{"server": server}},
	}}}}
	profile.SetGroupVersionKind(profileKind)
	profile.SetNamespace("ns")
	profile.SetName("profile")
	if err := h.api.Create(h.t.Context(), profile); err != nil {
		h.t.Fatal(err)
	}
	h.from(kueue.ClusterSource{ClusterProfileRef: &kueue.ClusterProfileReference{Name: "profile"}})
	return hold
}

// from sets the source of the credentials.
func (h *hub) from(source kueue.ClusterSource) {
	h.t.Helper()
	h.edit(&kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}, func(o client.Object) {
		o.(*kueue.MultiKueueCluster).Spec.ClusterSource = source
	})
}

// TestPluginHangs: a credential plugin that does not end fails an attempt. No other attempt is made before it ends, except with other
// credentials.
func TestPluginHangs(t *testing.T) {
	for name, other := range map[string]bool{"it ends": false, "other credentials": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStandIn(t, nil)
			h := newHub(t, s.URL)
			hold := h.provide(s.URL)
			h.firstWatch = 100 * time.Millisecond
			h.is(kueue.ReasonClientConnectionFailed) // although the plugin has not ended
			r := h.get("w1")
			r.mu.Lock()
			r.next = time.Time{}
			r.mu.Unlock()
			result, got := h.look()
			if result.RequeueAfter != recheckHanging || !strings.Contains(got.Message, "connection attempts: 1,") {
				t.Errorf("again in %s, %s", result.RequeueAfter, got.Message)
			}
			if other {
				h.from(kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{LocationType: kueue.LocationTypeSecret, Location: "w1"}})
				h.firstWatch = firstWatch
				h.is(kueue.ReasonActive)
			}
			if err := os.Remove(hold); err != nil {
				t.Fatal(err)
			}
			h.firstWatch = firstWatch
			wait.Until(h.t, "it is connected", wait.Is(func() bool {
				_, got := h.look()
				return got.Reason == kueue.ReasonActive && h.Link("w1").Connection != nil
			}))
		})
	}
}

// TestNoAnswer is spec 40 §7.9: an attempt fails in time if the worker cluster accepts connections and does not answer, neither the first
// request nor the watch.
func TestNoAnswer(t *testing.T) {
	for name, silent := range map[string]func(*http.Request) bool{
		"at all":       func(*http.Request) bool { return true },
		"to the watch": isWatch,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := make(chan struct{})
			s := newStandIn(t, func(_ http.ResponseWriter, r *http.Request) bool {
				if silent(r) {
					select {
					case <-end:
					case <-r.Context().Done():
					}
				}
				return silent(r)
			})
			t.Cleanup(func() { close(end) })
			h := newHub(t, s.URL)
			h.firstWatch = time.Second
			began := time.Now()
			_, got := h.look()
			if took := time.Since(began); took < h.firstWatch || took > wait.Patience {
				t.Errorf("the attempt took %s", took)
			}
			if got.Reason != kueue.ReasonClientConnectionFailed || !strings.Contains(got.Message, "connection attempts: 1, next connection attempt: ") {
				t.Errorf("it is %s: %s", got.Reason, got.Message)
			}
		})
	}
}

// TestSelf: a manager that is its own worker cluster is checked again after a minute, not with earlier events.
func TestSelf(t *testing.T) {
	s := newStandIn(t, func(w http.ResponseWriter, r *http.Request) bool {
		self := strings.HasSuffix(r.URL.Path, "/namespaces/kube-system")
		if self {
			_, _ = w.Write([]byte(`{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "kube-system", "uid": "hub"}}`))
		}
		return self
	})
	h := newHub(t, s.URL)
	h.is(reasonSelf)
	for range 3 {
		h.is(reasonSelf)
	}
	if asked := s.lists.Load(); asked != 1 {
		t.Errorf("it was connected to %d times", asked)
	}
	h.Now = func() time.Time { return time.Now().Add(selfAgain) }
	if h.is(reasonSelf); s.lists.Load() != 2 {
		t.Error("it was not asked again after a minute")
	}
}

// TestCopiesAnnounced: copies are reported once their cluster is connected. Earlier reports have no effect, and a cluster that is no
// longer in the configuration is only found this way.
func TestCopiesAnnounced(t *testing.T) {
	h := newHub(t, newStandIn(t, func(w http.ResponseWriter, r *http.Request) bool {
		list := strings.HasSuffix(r.URL.Path, "/workloads") && !isWatch(r)
		if list {
			_, _ = w.Write([]byte(`{"kind": "WorkloadList", "apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"resourceVersion": "1"}, "items": [
				{"metadata": {"namespace": "ns", "name": "a", "resourceVersion": "1"}}]}`))
		}
		return list
	}).URL)
	told := 0
	h.ObjectChanged = func(o client.Object) {
		if o.GetName() == "a" && h.Link("w1").Connection != nil {
			told++
		}
	}
	if h.is(kueue.ReasonActive); told != 1 {
		t.Errorf("told %d times", told)
	}
}

// TestRefused: refused credentials end the connection, which is reported once, although they are read again every few seconds.
func TestRefused(t *testing.T) {
	h := newHub(t, newStandIn(t, nil).URL)
	h.is(kueue.ReasonActive)
	h.points("https://under_score")
	h.is(kueue.ReasonInsecureKubeConfig)
	h.wakes()
	for range 3 {
		if result, _ := h.look(); result.RequeueAfter != rereadAfter {
			t.Errorf("read again after %s", result.RequeueAfter)
		}
	}
	if got := h.told(slow / 2); len(got) > 0 {
		t.Errorf("told %v although nothing changed", got)
	}
}

// TestLongMessage: long errors of a worker cluster are cut to what the API accepts, and the attempts are still counted.
func TestLongMessage(t *testing.T) {
	h := newHub(t, newStandIn(t, func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "` + strings.Repeat("x", lifecycle.MaxMessage) + `"}`))
		return true
	}).URL)
	_, got := h.look()
	if len(got.Message) != lifecycle.MaxMessage || !strings.Contains(got.Message, "; connection attempts: 1, next connection attempt: ") {
		t.Errorf("%d bytes, ending with %s", len(got.Message), got.Message[max(0, len(got.Message)-100):])
	}
	h.points("https://" + strings.Repeat("x_", lifecycle.MaxMessage))
	if _, got := h.look(); len(got.Message) != lifecycle.MaxMessage || got.Reason != kueue.ReasonInsecureKubeConfig {
		t.Errorf("%s with %d bytes", got.Reason, len(got.Message))
	}
}

// TestPauses is spec 40 §7.8: attempts keep their pauses, other events add none, and another Secret begins anew.
func TestPauses(t *testing.T) {
	var requests atomic.Int32
	s := newStandIn(t, func(w http.ResponseWriter, _ *http.Request) bool {
		requests.Add(1)
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	h := newHub(t, s.URL)
	began := time.Now()
	now := began
	h.Now = func() time.Time { return now }
	attempts := func(want int) {
		t.Helper()
		result, got := h.look()
		if n := int(requests.Load()); n != want || got.Reason != kueue.ReasonClientConnectionFailed || result.RequeueAfter <= 0 {
			t.Errorf("%s after the start: %d attempts, want %d; %s, again in %s", now.Sub(began), n, want, got.Reason, result.RequeueAfter)
		}
	}
	for n, after := range []time.Duration{0, 5, 15, 35} {
		if n > 0 {
			now = began.Add(after*time.Second - time.Millisecond)
			attempts(n)
		}
		now = began.Add(after * time.Second)
		attempts(n + 1)
		for range 10 {
			attempts(n + 1)
		}
	}
	h.edit(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w1"}}, func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) })
	attempts(4)
	h.edit(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w1"}}, func(o client.Object) {
		o.(*corev1.Secret).Data[kubeconfigKey] = kubeconfig("server: '"+s.URL+"'", "token: other")
	})
	attempts(5)
	if _, got := h.look(); !strings.Contains(got.Message, "connection attempts: 1, ") {
		t.Errorf("after another Secret: %s", got.Message)
	}
}

// TestFailingCalls: a cluster that fails calls is not listed again at once, unless they have worked for a while.
func TestFailingCalls(t *testing.T) {
	s := newStandIn(t, nil)
	h := newHub(t, s.URL)
	now := time.Now()
	h.Now = func() time.Time { return now }
	is := func(what, reason, text string, lists int32) {
		t.Helper()
		if _, got := h.look(); got.Reason != reason || !strings.Contains(got.Message, text) || s.lists.Load() != lists {
			t.Errorf("%s: it is %s (%s) after %d lists; want %s (%s) after %d", what, got.Reason, got.Message, s.lists.Load(), reason, text, lists)
		}
	}
	fails := func() {
		t.Helper()
		conn := h.Link("w1").Connection
		if conn == nil {
			t.Fatal("it is not connected")
		}
		for range maxFailures {
			_ = conn.Call(t.Context(), func(context.Context, client.Client) error { return apierrors.NewInternalError(errors.New("read only")) })
		}
	}
	is("at first", kueue.ReasonActive, "Connected", 1)
	fails()
	is("calls fail", kueue.ReasonClientConnectionFailed, "read only; connection attempts: 1, ", 1)
	var lost kueue.MultiKueueCluster
	if err := h.api.Get(t.Context(), client.ObjectKey{Name: "w1"}, &lost); err != nil {
		t.Fatal(err)
	}
	lost.Status.Conditions = []metav1.Condition{active(metav1.ConditionTrue, kueue.ReasonActive, "Connected")}
	if err := h.api.Status().Update(t.Context(), &lost); err != nil {
		t.Fatal(err)
	}
	is("its report was lost", kueue.ReasonClientConnectionFailed, "read only; connection attempts: 1, ", 1)
	now = now.Add(firstPause)
	is("after a pause", kueue.ReasonActive, "Connected", 2)
	fails()
	is("calls fail again", kueue.ReasonClientConnectionFailed, "read only; connection attempts: 2, ", 2)
	now = now.Add(firstPause)
	is("a longer pause", kueue.ReasonClientConnectionFailed, "read only; connection attempts: 2, ", 2)
	now = now.Add(firstPause)
	is("after it", kueue.ReasonActive, "Connected", 3)
	now = now.Add(provenAfter)
	fails()
	is("calls fail later", kueue.ReasonActive, "Connected", 4)
	fails()
	is("and from the start", kueue.ReasonClientConnectionFailed, "connection attempts: 1, ", 4)
}

// TestFileChanges is spec 40 §7.4: a kubeconfig file that is written again, or swapped as a kubelet does it, is used the next time that
// it is read.
func TestFileChanges(t *testing.T) {
	one, two := newStandIn(t, nil), newStandIn(t, nil)
	h := newHub(t, one.URL)
	h.AnyPath = true // the default folder is not writable
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	write := func(path string, s *standIn) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, kubeconfig("server: '"+s.URL+"'", "token: t"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	uses := func(what string, s, other *standIn) {
		t.Helper()
		before, untouched := s.lists.Load(), other.lists.Load()
		result, got := h.look()
		if got.Reason != kueue.ReasonActive || s.lists.Load() != before+1 || other.lists.Load() != untouched || h.Link("w1").Connection == nil {
			t.Errorf("%s: it is %s (%s)", what, got.Reason, got.Message)
		}
		if result.RequeueAfter != rereadFile {
			t.Errorf("%s: read again after %s", what, result.RequeueAfter)
		}
	}
	write(path, one)
	h.from(kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{LocationType: kueue.LocationTypePath, Location: path}})
	uses("a file", one, two)
	write(path, two)
	uses("written anew", two, one)

	if err := errors.Join(os.Remove(path), os.Symlink("..data/kubeconfig", path)); err != nil {
		t.Fatal(err)
	}
	for n, s := range []*standIn{one, two, one, two} {
		version := fmt.Sprint("..2026_", n)
		write(filepath.Join(dir, version, "kubeconfig"), s)
		if err := errors.Join(os.Symlink(version, filepath.Join(dir, "..data_tmp")), os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
		uses(version, s, map[*standIn]*standIn{one: two, two: one}[s])
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprint("..2026_", n-1))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if result, got := h.look(); got.Reason != kueue.ReasonBadKubeConfig || result.RequeueAfter != rereadAfter || h.Link("w1").Connection != nil {
		t.Errorf("without the file it is %s, again in %s", got.Reason, result.RequeueAfter)
	}
}

// TestProfileChanges is spec 40 §7.7: a ClusterProfile with an unknown provider, then with a known one, deleted, and created again.
func TestProfileChanges(t *testing.T) {
	s := newStandIn(t, nil)
	h := newHub(t, s.URL)
	if err := os.Remove(h.provide(s.URL)); err != nil {
		t.Fatal(err)
	}
	known := h.Providers
	says := func(reason, text string, after time.Duration) {
		t.Helper()
		result, got := h.look()
		if connected := h.Link("w1").Connection != nil; got.Reason != reason || !strings.Contains(got.Message, text) || result.RequeueAfter != after ||
			connected != (reason == kueue.ReasonActive) {
			t.Errorf("it is %s (%s), connected %v, again in %s; want %s", got.Reason, got.Message, connected, result.RequeueAfter, reason)
		}
	}
	h.Providers = []configv1beta2.ClusterProfileProvider{{Name: "other"}}
	says(kueue.ReasonBadClusterProfile, "no access provider that multiKueue.clusterProfile.accessProviders names", rereadAfter)
	h.Providers = known
	says(kueue.ReasonActive, "Connected", rereadProfile)
	profile := &unstructured.Unstructured{}
	profile.SetGroupVersionKind(profileKind)
	if err := h.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "profile"}, profile); err != nil {
		t.Fatal(err)
	}
	if err := h.api.Delete(t.Context(), profile.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	says(kueue.ReasonBadClusterProfile, "not found", rereadAfter)
	profile.SetResourceVersion("")
	if err := h.api.Create(t.Context(), profile); err != nil {
		t.Fatal(err)
	}
	says(kueue.ReasonActive, "Connected", rereadProfile)
	h.Profiles = false
	says(kueue.ReasonMultiKueueClusterProfileFeatureDisabled, "MultiKueueClusterProfile", 0)
}

// TestUnreadCredentials: while the API server of the manager cannot read the credentials, a cluster stays connected; not so if it refuses them, or
// if the cluster has another source meanwhile.
func TestUnreadCredentials(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, tc := range map[string]struct {
		err   error
		stays bool
	}{
		"an error": {apierrors.NewInternalError(errors.New("no quorum")), true},
		"too many": {apierrors.NewTooManyRequestsError("later"), true},
		"no line":  {errors.New("connection reset by peer"), true},
		"refused":  {apierrors.NewForbidden(secrets, "w1", errors.New("no")), false},
		"no kind":  {&apimeta.NoKindMatchError{GroupKind: profileKind.GroupKind()}, false},
	} {
		for of, profile := range map[string]bool{"a Secret": false, "a ClusterProfile": true} {
			t.Run(name+", "+of, func(t *testing.T) {
				s := newStandIn(t, nil)
				h := newHub(t, s.URL)
				if profile {
					if err := os.Remove(h.provide(s.URL)); err != nil {
						t.Fatal(err)
					}
				}
				h.is(kueue.ReasonActive)
				conn := h.Link("w1").Connection
				h.live = interceptor.NewClient(h.api.(client.WithWatch), interceptor.Funcs{
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
						return tc.err
					},
				})
				looks := func(what string, stays bool) {
					t.Helper()
					result, got := h.look()
					if kept := h.Link("w1").Connection == conn; kept != stays || (got.Reason == kueue.ReasonActive) != stays || result.RequeueAfter != rereadAfter {
						t.Errorf("%s: it is %s (%s), connected: %v, again in %s", what, got.Reason, got.Message, kept, result.RequeueAfter)
					}
				}
				looks("unread", tc.stays)
				h.from(kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{LocationType: kueue.LocationTypeSecret, Location: "other"}})
				looks("another source", false)
			})
		}
	}
}

// TestLossOutlivesRestarts is part of spec 40 §7.26: after a restart a cluster counts as lost since then, and the time of the first loss
// is that of its condition, which failed attempts do not change.
func TestLossOutlivesRestarts(t *testing.T) {
	h := newHub(t, "http://127.0.0.1:1")
	first := time.Now().Add(-time.Hour).Truncate(time.Second)
	cluster := &kueue.MultiKueueCluster{}
	if err := h.api.Get(t.Context(), client.ObjectKey{Name: "w1"}, cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Status.Conditions = []metav1.Condition{{
		Type: kueue.MultiKueueClusterActive, Status: metav1.ConditionFalse, Reason: kueue.ReasonBadKubeConfig, LastTransitionTime: metav1.NewTime(first),
	}}
	if err := h.api.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 3 {
		h.is(kueue.ReasonClientConnectionFailed)
		if link := h.Link("w1"); !link.FirstLost.Equal(first) || link.LostSince.Before(began) || link.LostSince.After(began.Add(time.Minute)) {
			t.Errorf("lost since %s, first %s; want %s and %s", link.LostSince, link.FirstLost, began, first)
		}
	}
	s := newStandIn(t, nil)
	h.points(s.URL)
	h.is(kueue.ReasonActive)
	h.points("http://127.0.0.1:1")
	h.is(kueue.ReasonClientConnectionFailed)
	if link := h.Link("w1"); link.FirstLost.Equal(first) {
		t.Error("it was connected, and the loss before that counts on")
	}
}

// TestStatusWithLateCache: a Secret that is deleted and created again before the cache shows the condition of its deletion is used.
func TestStatusWithLateCache(t *testing.T) {
	s := newStandIn(t, nil)
	h := newHub(t, s.URL)
	stored := func() *kueue.MultiKueueCluster {
		t.Helper()
		var now kueue.MultiKueueCluster
		if err := h.api.Get(t.Context(), client.ObjectKey{Name: "w1"}, &now); err != nil {
			t.Fatal(err)
		}
		return &now
	}
	h.is(kueue.ReasonActive)
	shown := stored()
	h.cache = one{cluster: shown}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w1"}}
	if err := h.api.Delete(t.Context(), secret.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	h.is(kueue.ReasonBadKubeConfig)
	if err := h.api.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	h.points(s.URL)
	h.look() // connects, and finds the condition as wanted
	written := stored()
	if h.cache = (one{cluster: written}); editedOrReported.Update(event.UpdateEvent{ObjectOld: shown, ObjectNew: written}) {
		h.look()
	}
	if got := stored().Status.Conditions[0]; got.Reason != kueue.ReasonActive || h.Link("w1").Connection == nil {
		t.Errorf("it stays %s (%s)", got.Reason, got.Message)
	}
	labeled := written.DeepCopy()
	labeled.Labels = map[string]string{"a": "b"}
	if editedOrReported.Update(event.UpdateEvent{ObjectOld: written, ObjectNew: labeled}) {
		t.Error("a label causes a reconcile")
	}
}
