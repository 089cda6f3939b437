package capacity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	plan "github.com/berth-project/berth/internal/placement/plan/capacity"
	"github.com/berth-project/berth/internal/reconcile"
)

func TestMain(m *testing.M) {
	os.Exit(embeddedtest.Main(m))
}

// recorder is a sink that keeps the last reports, and counts them.
type recorder struct {
	mu    sync.Mutex
	nodes map[string]plan.Node
	used  map[string]plan.Amounts
	calls int
}

func newRecorder() *recorder {
	return &recorder{nodes: map[string]plan.Node{}, used: map[string]plan.Amounts{}}
}

func (r *recorder) SetNode(n plan.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes[n.Name] = n
	r.calls++
}

func (r *recorder) RemoveNode(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, name)
	r.calls++
}

func (r *recorder) SetForeign(node string, used plan.Amounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if len(used) == 0 {
		delete(r.used, node)
		return
	}
	r.used[node] = used
}

// usage returns the cpu that pods use, in millicores, by node.
func (r *recorder) usage() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for node, used := range r.used { //berth:unordered a map again
		out[node] = int(used.Of("cpu"))
	}
	return out
}

// states returns "READY SCHEDULABLE CPU" by node.
func (r *recorder) states() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]string{}
	for name, n := range r.nodes { //berth:unordered a map again
		out[name] = fmt.Sprint(n.Ready, " ", n.Schedulable, " ", n.Allocatable.Of("cpu"))
	}
	return out
}

func (r *recorder) made() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// world is an API server of its own, since nodes have no namespace.
type world struct {
	*testing.T
	c    client.Client
	rest *rest.Config
	*recorder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cfg := embeddedtest.Exclusive(t)
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, c: c, rest: cfg, recorder: newRecorder()}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { // the next test gets the server
		if err := errors.Join(
			c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0)), c.DeleteAllOf(ctx, &corev1.Node{}),
		); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) start() {
	w.Helper()
	mgr := embeddedtest.Manager(w.T, w.rest, ctrl.Options{
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: Trim}}},
	})
	synced := make(chan struct{})
	if err := Setup(mgr, Options{Sink: w.recorder, Follow: reconcile.Follow, Synced: func() { close(synced) }}); err != nil {
		w.Fatal(err)
	}
	embeddedtest.Run(w.T, mgr)
	wait.Receive(w.T, "everything is reported", synced)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) node(name, cpu string) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.must(w.c.Create(w.Context(), n))
	embeddedtest.EditStatus(w.T, w.c, n, func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{"cpu": apiresource.MustParse(cpu)}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
	return n
}

func (w *world) pod(name, node, cpu string, annotations map[string]string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": apiresource.MustParse(cpu)}},
		}}},
	}
	w.must(w.c.Create(w.Context(), p))
	return p
}

func (w *world) phase(p *corev1.Pod, phase corev1.PodPhase) {
	w.Helper()
	embeddedtest.EditStatus(w.T, w.c, p, func(p *corev1.Pod) { p.Status.Phase = phase })
}

func (w *world) expectUsage(want map[string]int) {
	w.Helper()
	wait.Until(w.T, fmt.Sprintf("the usage is %v", want), func() error {
		if diff := cmp.Diff(want, w.usage()); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

func (w *world) expectNodes(want map[string]string) {
	w.Helper()
	wait.Until(w.T, fmt.Sprintf("the nodes are %v", want), func() error {
		if diff := cmp.Diff(want, w.states()); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

// TestWatch: what exists at the start is reported before Synced, and every later change that matters. spec: 20 §7 #28.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n1, n2 := w.node("n1", "8"), w.node("n2", "4")
	a := w.pod("a", "n1", "6", nil)
	w.pod("placed", "n1", "1", map[string]string{kueue.PodSetUnconstrainedTopologyAnnotation: "true"})
	w.pod("waiting", "", "1", nil)
	over := w.pod("over", "n2", "1", nil)
	w.phase(over, corev1.PodSucceeded)
	w.start()
	if diff := cmp.Diff(map[string]int{"n1": 6000}, w.usage()); diff != "" {
		t.Errorf("the usage at the start (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"n1": "true true 8000", "n2": "true true 4000"}, w.states()); diff != "" {
		t.Errorf("the nodes at the start (-want +got):\n%s", diff)
	}

	b := w.pod("b", "n2", "2", nil)
	w.expectUsage(map[string]int{"n1": 6000, "n2": 2000})
	w.must(w.c.Delete(t.Context(), a)) // it stays until its node has ended it
	embeddedtest.Edit(t, w.c, b, func(p *corev1.Pod) { p.Annotations = map[string]string{kueue.PodSetRequiredTopologyAnnotation: "rack"} })
	w.expectUsage(map[string]int{"n1": 6000})
	w.must(w.c.Delete(t.Context(), a, client.GracePeriodSeconds(0)))
	w.expectUsage(map[string]int{})
	c := w.pod("c", "n2", "1", nil)
	w.phase(c, corev1.PodRunning)
	w.expectUsage(map[string]int{"n2": 1000})
	w.phase(c, corev1.PodFailed)
	w.expectUsage(map[string]int{})

	embeddedtest.Edit(t, w.c, n1, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	embeddedtest.EditStatus(t, w.c, n2, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	w.expectNodes(map[string]string{"n1": "true false 8000", "n2": "false true 4000"})
	calls := w.made()
	for i := range 3 {
		embeddedtest.EditStatus(t, w.c, n2, func(n *corev1.Node) {
			n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Unix(int64(i), 0))
			n.Status.Images = []corev1.ContainerImage{{Names: []string{fmt.Sprint("i", i)}, SizeBytes: 1}}
		})
	}
	w.must(w.c.Delete(t.Context(), n1))
	w.expectNodes(map[string]string{"n2": "false true 4000"})
	if got := w.made() - calls; got != 1 {
		t.Errorf("%d reports of one change that matters", got)
	}
}

// line is a connection to the API server that can be cut.
type line struct {
	mu     sync.Mutex
	cut    bool
	bodies []io.Closer
}

func (l *line) wrap(next http.RoundTripper) http.RoundTripper {
	return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.cut {
			return nil, errors.New("the line is cut")
		}
		response, err := next.RoundTrip(r)
		if err == nil && strings.Contains(r.URL.RawQuery, "watch=") {
			l.bodies = append(l.bodies, response.Body)
		}
		return response, err
	})
}

func (l *line) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for _, body := range l.bodies {
		_ = body.Close() // its reader sees it
	}
	l.bodies = nil
}

// TestCutOff: what happens while there is no connection is reported after it.
func TestCutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var l line
	w.rest = rest.CopyConfig(w.rest)
	w.rest.Wrap(l.wrap)
	n1 := w.node("n1", "8")
	a, b := w.pod("a", "n1", "1", nil), w.pod("b", "n1", "2", nil)
	w.start()
	w.expectUsage(map[string]int{"n1": 3000})
	l.setCut(true)
	w.must(w.c.Delete(t.Context(), a, client.GracePeriodSeconds(0)))
	w.phase(b, corev1.PodSucceeded)
	w.pod("c", "n2", "4", nil)
	w.must(w.c.Delete(t.Context(), n1))
	w.node("n2", "16")
	l.setCut(false)
	w.expectUsage(map[string]int{"n2": 4000})
	w.expectNodes(map[string]string{"n2": "true true 16000"})
}

// TestOutages: pods are listed soon after an API server that failed again and again is back, so that nodes are not believed empty.
func TestOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		failures, synced := 8, false
		w := &watches{nodes: &informertest.FakeInformers{}, pods: &toolscache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if failures--; failures >= 0 {
					return nil, errors.New("it is restarted")
				}
				return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if o.SendInitialEvents != nil {
					return nil, apierrors.NewBadRequest("lists only")
				}
				return watch.NewFake(), nil
			},
		}}
		w.Sink, w.Follow, w.Synced = newRecorder(), reconcile.Follow, func() { synced = true }
		if err := w.Start(ctx); err != nil || !synced {
			t.Errorf("listed within a minute: %v, %v", synced, err)
		}
	})
}

// TestStore: the store of the reflector takes pods of a list both as they come and reduced, and refuses anything else.
func TestStore(t *testing.T) {
	r := newRecorder()
	s := &podStore{set: r.SetForeign}
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
	}
	a, b := pod("a", "n1"), pod("b", "n2")
	reduced, err := s.Transformer()(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Replace([]any{reduced, b}, "7"); err != nil || !s.isFilled() {
		t.Errorf("%v, filled %v", err, s.isFilled())
	}
	nodes := func() []string {
		var out []string
		for _, name := range []string{"n1", "n2"} {
			if r.used[name] != nil {
				out = append(out, name)
			}
		}
		return out
	}
	if diff := cmp.Diff([]string{"n1", "n2"}, nodes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := errors.Join(s.Delete(a), s.Resync()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"n2"}, nodes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, err := range map[string]error{
		"add": s.Add(&corev1.Node{}), "delete": s.Delete(&corev1.Node{}), "replace": s.Replace([]any{&corev1.Node{}}, ""),
	} {
		if err == nil {
			t.Errorf("%s of a node is no error", name)
		}
	}
}
