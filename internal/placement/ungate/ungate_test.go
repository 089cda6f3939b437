package ungate

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

func TestMain(m *testing.M) {
	os.Exit(embeddedtest.Main(m))
}

// world is a namespace with a manager of its own.
type world struct {
	*embeddedtest.World
	ungated chan string
	events  *events.FakeRecorder
}

func newWorld(t *testing.T, managed string) *world {
	t.Helper()
	return &world{World: embeddedtest.NewWorld(t, "ungate-", managed, "../../../config/crd", kueue.AddToScheme), ungated: make(chan string, 100), events: events.NewFakeRecorder(100)}
}

func (w *world) start() {
	w.Helper()
	w.startWith(&job.Config{Topology: true, ElasticJobs: true})
}

func (w *world) startWith(cfg *job.Config) {
	w.Helper()
	mgr := embeddedtest.Manager(w.T, w.Rest, ctrl.Options{
		Scheme: w.Client.Scheme(), Cache: embeddedtest.Only(w.Namespace),
	})
	cfg.ManagedNamespaces = labels.SelectorFromSet(labels.Set{"managed": "yes"})
	err := Setup(w.Context(), mgr, Options{Config: cfg, Now: time.Now, Events: reconcile.NewEvents(w.events, nil), Ungated: func(wl *kueue.Workload, gates []string, group bool, _ time.Time) {
		w.ungated <- fmt.Sprint(wl.Name, gates, group)
	}})
	if err != nil {
		w.Fatal(err)
	}
	w.Stop = embeddedtest.Run(w.T, mgr)
}

// workload makes an admitted Workload with one pod set, whose domains read "n1:2 n2:4".
func (w *world) workload(name string, count int32, request *kueue.PodSetTopologyRequest, domains string, admitted bool) *kueue.Workload {
	w.Helper()
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace}}
	wl.Spec.QueueName = "lq"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: count, TopologyRequest: request, Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, RestartPolicy: corev1.RestartPolicyNever},
	}}}
	w.Create(wl)
	w.assign(wl, domains, admitted)
	return wl
}

func (w *world) assign(wl *kueue.Workload, domains string, admitted bool, unhealthy ...string) {
	w.Helper()
	var list []assignment.Domain
	for part := range strings.FieldsSeq(domains) {
		var d assignment.Domain
		host, count, _ := strings.Cut(part, ":")
		if _, err := fmt.Sscan(count, &d.Count); err != nil {
			w.Fatal(err)
		}
		d.Values = []string{host}
		list = append(list, d)
	}
	embeddedtest.EditStatus(w.T, w.Client, wl, func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: &wl.Spec.PodSets[0].Count, TopologyAssignment: assignment.Encode([]string{corev1.LabelHostname}, list, true),
		}}}
		wl.Status.Conditions = nil
		for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			if condition == kueue.WorkloadQuotaReserved || admitted {
				wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
					Type: condition, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now(),
				})
			}
		}
		wl.Status.UnhealthyNodes = nil
		for _, name := range unhealthy {
			wl.Status.UnhealthyNodes = append(wl.Status.UnhealthyNodes, kueue.UnhealthyNode{Name: name})
		}
	})
}

// pod makes a pod of a Workload, as its job's controller does from the template of a started job.
func (w *world) pod(of *kueue.Workload, name, index string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: w.Namespace, Labels: map[string]string{kueue.PodSetLabel: "main", "example.com/index": index},
			Annotations: map[string]string{kueue.WorkloadAnnotation: of.Name, kueue.PodSetUnconstrainedTopologyAnnotation: "true"},
		},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}, {Name: "example.com/other"}},
			Containers:      []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	for _, edit := range change {
		edit(p)
	}
	w.Create(p)
	return p
}

// places lists "POD>HOST" of the pods without a gate of ours.
func (w *world) places() []string {
	w.Helper()
	var list corev1.PodList
	if err := w.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
		w.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		if p := &list.Items[i]; !job.PodHasGate(p, kueue.TopologySchedulingGate) && !job.PodHasGate(p, kueue.ElasticJobSchedulingGate) {
			out = append(out, p.Name+">"+p.Spec.NodeSelector[corev1.LabelHostname])
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) expect(want ...string) {
	w.Helper()
	w.Until(fmt.Sprintf("the pods are placed as %v", want), func() error {
		if diff := cmp.Diff(want, w.places()); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

func byIndex() *kueue.PodSetTopologyRequest {
	return &kueue.PodSetTopologyRequest{Required: new("rack"), PodIndexLabel: new("example.com/index")}
}

// TestPlace: pods stay gated while their Workload is only reserved; then each gets the node of its rank, and keeps its other gates. A
// failed pod leaves its slot to its replacement, but not on an unhealthy node.
func TestPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	w.start()
	wl := w.workload("w", 3, byIndex(), "n1:1 n2:2", false)
	other := w.workload("other", 1, nil, "n7:1", true)
	for i, name := range []string{"a", "b", "c"} {
		w.pod(wl, name, fmt.Sprint(i))
	}
	w.pod(other, "o", "0")
	w.expect("o>n7")
	w.assign(wl, "n1:1 n2:2", true)
	w.expect("a>n1", "b>n2", "c>n2", "o>n7")
	for range 4 {
		if got := wait.Receive(t, "an ungated pod is reported", w.ungated); got != "w[kueue.x-k8s.io/topology] false" && got != "other[kueue.x-k8s.io/topology] false" {
			t.Errorf("reported %s", got)
		}
	}
	var a corev1.Pod
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "a"}, &a); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]corev1.PodSchedulingGate{{Name: "example.com/other"}}, a.Spec.SchedulingGates); diff != "" {
		t.Errorf("gates (-want +got):\n%s", diff)
	}

	w.assign(wl, "n1:1 n2:2", true, "n1")
	embeddedtest.EditStatus(t, w.Client, &a, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	w.pod(wl, "d", "0")
	w.pod(other, "p", "0") // no slot is left for it
	wait.Stays(t, time.Second, "no pod gets an unhealthy node, or a slot that is taken", func() error {
		if got := w.places(); len(got) != 4 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	w.assign(wl, "n2:2 n9:1", true) // n2 has the first ranks now, and b and c keep their node
	w.expect("a>n1", "b>n2", "c>n2", "d>n9", "o>n7")
}

// TestPlaceKilledAtAnyWrite: whenever the manager dies, the next one completes its work, and no domain gets a pod too many.
func TestPlaceKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	embeddedtest.AtEveryWrite(t, 4, func(t *testing.T, m *embeddedtest.Mortal) {
		w := newWorld(t, "yes")
		plain := w.Rest
		w.Rest = rest.CopyConfig(plain)
		w.Rest.Wrap(m.Wrap)
		w.start()
		w.Revive = func() {
			m.Revive(func() {
				w.Stop()
				w.Rest = plain
				w.start()
			})
		}
		wl := w.workload("w", 5, nil, "n1:2 n2:2", true)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			w.pod(wl, name, "")
		}
		w.Until("four of five pods are placed", func() error {
			perHost := map[string]int{}
			for _, place := range w.places() {
				perHost[place[strings.Index(place, ">")+1:]]++
			}
			if diff := cmp.Diff(map[string]int{"n1": 2, "n2": 2}, perHost); diff != "" {
				if perHost["n1"] > 2 || perHost["n2"] > 2 {
					t.Errorf("too many pods: %v", w.places())
				}
				return fmt.Errorf("-want +got:\n%s", diff)
			}
			return nil
		})
	})
}

// TestPlaceAmongWriters: another controller writes to the same pods all the time, and loses nothing.
func TestPlaceAmongWriters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	w.start()
	wl := w.workload("w", 6, byIndex(), "n1:3 n2:3", true)
	var pods []*corev1.Pod
	for i := range 6 {
		pods = append(pods, w.pod(wl, fmt.Sprintf("p%d", i), fmt.Sprint(i)))
	}
	for round := range 5 {
		for _, p := range pods {
			embeddedtest.Edit(t, w.Client, p, func(p *corev1.Pod) { p.Labels["example.com/round"] = fmt.Sprintf("r%d", round) })
		}
	}
	w.expect("p0>n1", "p1>n1", "p2>n1", "p3>n2", "p4>n2", "p5>n2")
	for _, p := range pods {
		if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.Labels["example.com/round"] != "r4" {
			t.Errorf("%s: %v, labels %v", p.Name, err, p.Labels)
		}
	}
}

// TestElasticPlaces: a pod of an elastic job needs room in its slice and a domain. The gates are removed in one write, and a pod without
// room takes no domain.
func TestElasticPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	w.start()
	elastic := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Name: "s1", Namespace: w.Namespace,
		Annotations: map[string]string{kueue.ElasticJobAnnotation: "true", kueue.WorkloadSliceNameAnnotation: "s1"},
	}}
	elastic.Spec.QueueName = "lq"
	elastic.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, RestartPolicy: corev1.RestartPolicyNever},
	}}}
	w.Create(elastic)
	w.assign(elastic, "n1:1 n2:1", true)
	both := func(p *corev1.Pod) {
		p.Annotations[kueue.WorkloadSliceNameAnnotation] = "s1"
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate})
	}
	for _, name := range []string{"c", "b", "a"} { // whichever are seen first
		w.pod(elastic, name, "", both)
	}
	w.Until("two pods have neither gate", func() error {
		var list corev1.PodList
		if err := w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
			return err
		}
		hosts := map[string]bool{}
		for i := range list.Items {
			p := &list.Items[i]
			if unplaced, held := job.PodHasGate(p, kueue.TopologySchedulingGate), job.PodHasGate(p, kueue.ElasticJobSchedulingGate); unplaced != held {
				t.Errorf("%s has one gate of two: %v", p.Name, p.Spec.SchedulingGates)
			} else if !held {
				hosts[p.Spec.NodeSelector[corev1.LabelHostname]] = true
			}
		}
		if !maps.Equal(hosts, map[string]bool{"n1": true, "n2": true}) {
			return fmt.Errorf("%v", hosts)
		}
		return nil
	})
}

// TestUnmanaged: pods of a namespace that is not managed any more get neither gates nor domains.
func TestUnmanaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "no")
	w.start()
	wl := w.workload("w", 1, nil, "n1:1", true)
	w.pod(wl, "a", "")
	w.expect("a>")
}

// refusal denies changes of pod a until it is lifted.
type refusal struct {
	next    http.RoundTripper
	denied  atomic.Int32
	allowed atomic.Bool
}

func (r *refusal) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method != http.MethodPatch || !strings.HasSuffix(q.URL.Path, "/pods/a") || r.allowed.Load() {
		return r.next.RoundTrip(q)
	}
	r.denied.Add(1)
	const answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"admission webhook \"lock\" denied the request"}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answer)), Request: q,
	}, nil
}

// TestRefused: a refused pod does not keep the others from being ungated, is retried, and is reported once.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	deny := &refusal{}
	w.Rest = rest.CopyConfig(w.Rest)
	w.Rest.Wrap(func(next http.RoundTripper) http.RoundTripper {
		deny.next = next
		return deny
	})
	wl := w.workload("w", 3, nil, "n1:3", true)
	for _, name := range []string{"a", "b", "c"} {
		w.pod(wl, name, "")
	}
	w.start()
	w.expect("b>n1", "c>n1")
	w.Until("it is tried again", func() error {
		if n := deny.denied.Load(); n < 4 {
			return fmt.Errorf("denied %d times", n)
		}
		return nil
	})
	deny.allowed.Store(true)
	w.expect("a>n1", "b>n1", "c>n1")
	e := wait.Receive(t, "the refusal is reported", w.events.Events)
	if !strings.HasPrefix(e, "Warning FailedToUngate taking the gate off pod "+w.Namespace+`/a: admission webhook "lock" denied the request`) || len(w.events.Events) > 0 {
		t.Errorf("event %q, and %d more", e, len(w.events.Events))
	}
}

// TestRefusedUnmanaged: nor does it keep the other pods of a namespace that is not managed any more.
func TestRefusedUnmanaged(t *testing.T) {
	gated := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec:       corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}},
		}
	}
	var tried []string
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			tried = append(tried, o.GetName())
			if o.GetName() == "b" {
				return nil
			}
			return apierrors.NewForbidden(corev1.Resource("pods"), o.GetName(), nil)
		},
	}).Build()
	r := &reconciler{client: api}
	err := r.ungateAll(t.Context(), []*corev1.Pod{gated("a"), gated("b"), gated("c")})
	if !apierrors.IsForbidden(err) || len(tried) != 3 {
		t.Errorf("tried %v, error %v", tried, err)
	}
}

// TestUnmanagedBefore: the namespace left management before this manager started, and the job makes another pod.
func TestUnmanagedBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "no")
	wl := w.workload("w", 1, nil, "n1:1", true)
	embeddedtest.EditStatus(t, w.Client, wl, func(wl *kueue.Workload) {
		lifecycle.Machine{}.Finish(wl, kueue.ReasonOutOfSync, "the namespace is not managed any more", metav1.Now())
	})
	w.start()
	w.pod(wl, "a", "")
	w.expect("a>")
}

// TestElasticWithoutTopologyGate: pods whose template got no topology gate get their domain in the write that removes the gate of elastic
// jobs, and stay gated without a free place.
func TestElasticWithoutTopologyGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: w.Namespace, Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"}}}
	wl.Spec.QueueName = "lq"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 4, Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, RestartPolicy: corev1.RestartPolicyNever},
	}}}
	w.Create(wl)
	w.assign(wl, "n1:1 n2:2", true) // one slice is incomplete
	for _, name := range []string{"a", "b", "c", "d"} {
		w.pod(wl, name, "", func(p *corev1.Pod) {
			p.Annotations = map[string]string{kueue.WorkloadSliceNameAnnotation: wl.Name}
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}, {Name: "example.com/other"}}
		})
	}
	w.start()
	placed := func() (out []string) {
		var list corev1.PodList
		if err := w.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
			w.Fatal(err)
		}
		for i := range list.Items {
			if p := &list.Items[i]; !job.PodHasGate(p, kueue.ElasticJobSchedulingGate) {
				out = append(out, p.Name+">"+p.Spec.NodeSelector[corev1.LabelHostname]+" "+p.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation])
			}
		}
		slices.Sort(out)
		return out
	}
	w.Until("three pods have places", func() error {
		if diff := cmp.Diff([]string{"a>n1 true", "b>n2 true", "c>n2 true"}, placed()); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

// TestSwitchedOff: pods that a running job makes after its feature gate was switched off run as well: placed ones anywhere, and elastic ones up
// to their granted count.
func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	gates := []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}, {Name: kueue.TopologySchedulingGate}}
	for name, tc := range map[string]struct {
		topology, elastic bool
		isElastic         bool
		gates             []corev1.PodSchedulingGate
		want              []string
	}{
		"placed, no topologies":           {false, true, false, gates[1:], []string{"a>", "b>", "c>"}},
		"elastic, no resizes":             {true, false, true, gates[:1], []string{"a>n1", "b>n1"}},
		"elastic, neither":                {false, false, true, gates[:1], []string{"a>", "b>"}},
		"elastic and placed, neither":     {false, false, true, gates, []string{"a>", "b>"}},
		"elastic and placed, no resizes":  {true, false, true, gates, []string{"a>n1", "b>n1"}},
		"elastic and placed, no topology": {false, true, true, gates, []string{"a>", "b>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "yes")
			wl := w.elastic(2, w.Namespace)
			w.Create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}})
			if !tc.isElastic {
				wl = w.workload("w", 2, nil, "n1:2", true)
			} else {
				w.assign(wl, "n1:2", true)
			}
			for _, name := range []string{"a", "b", "c"} {
				w.pod(wl, name, "", func(p *corev1.Pod) {
					p.Annotations[kueue.WorkloadSliceNameAnnotation] = wl.Name
					p.Spec.SchedulingGates = tc.gates
				})
			}
			w.startWith(&job.Config{Topology: tc.topology, ElasticJobs: tc.elastic})
			w.expect(tc.want...)
		})
	}
}

// TestDisabledKind: the kind of a placed job that runs was removed from the configuration, which ended its Workload.
func TestDisabledKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	off, on := schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "On"}
	for _, gvk := range []schema.GroupVersionKind{off, on} {
		wl := w.workload(strings.ToLower(gvk.Kind), 1, nil, "n1:1", true)
		embeddedtest.Edit(t, w.Client, wl, func(wl *kueue.Workload) {
			wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: "x", UID: "x"}}
		})
		embeddedtest.EditStatus(t, w.Client, wl, func(wl *kueue.Workload) {
			lifecycle.Machine{}.Finish(wl, kueue.ReasonOutOfSync, "", metav1.Now())
		})
		w.pod(wl, "of-"+wl.Name, "")
	}
	w.startWith(&job.Config{Topology: true, Kinds: job.Kinds{off: false, on: true}})
	w.expect("of-job>")
}

// elastic makes the admitted Workload e of an elastic job, with one pod set of a flavor.
func (w *world) elastic(count int32, flavor string) *kueue.Workload {
	w.Helper()
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: w.Namespace, Annotations: map[string]string{kueue.ElasticJobAnnotation: "true"}}}
	wl.Spec.QueueName = "lq"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: count, Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, RestartPolicy: corev1.RestartPolicyNever},
	}}}
	w.Create(wl)
	embeddedtest.EditStatus(w.T, w.Client, wl, func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: &count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: kueue.ResourceFlavorReference(flavor)},
		}}}
		for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
				Type: condition, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now(),
			})
		}
	})
	return wl
}

// TestElasticFlavorMissing: without a ResourceFlavor of the admission pods stay gated, which is reported once, and retried with backoff. A job
// without gated pods does not need it.
func TestElasticFlavorMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	wl := w.elastic(1, flavor.Name)
	pod := w.pod(wl, "a", "", func(p *corev1.Pod) {
		p.Annotations = map[string]string{kueue.WorkloadSliceNameAnnotation: wl.Name}
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}, {Name: "example.com/other"}}
	})
	r := &reconciler{Options: Options{Config: &job.Config{ElasticJobs: true}}, client: w.Client}
	if _, _, err := r.decide(t.Context(), wl, []*corev1.Pod{pod}); !reconcile.IsFailure(err) {
		t.Errorf("error %v is not reported, or retried without backoff", err)
	}
	started := pod.DeepCopy()
	started.Spec.SchedulingGates = nil
	if _, _, err := r.decide(t.Context(), wl, []*corev1.Pod{started}); err != nil {
		t.Errorf("without gated pods: %v", err)
	}
	w.start()
	want := "Warning FailedToUngate flavor " + flavor.Name + " of the admission does not exist: create it, or evict the workload"
	if got := wait.Receive(t, "it is reported", w.events.Events); got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	w.Create(flavor)
	w.Until("the pod is ungated", func() error {
		if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if job.PodHasGate(pod, kueue.ElasticJobSchedulingGate) {
			return fmt.Errorf("gates %v", pod.Spec.SchedulingGates)
		}
		return nil
	})
	if n := len(w.events.Events); n > 0 {
		t.Errorf("%d more events", n)
	}
}

// TestContradicted: a pod whose node selector contradicts the admission stays gated, which is reported once, and not again when other pods change.
func TestContradicted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	w.Create(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "h100"}}})
	wl := w.elastic(9, w.Namespace)
	w.start()
	pod := func(name, pool string) *corev1.Pod {
		return w.pod(wl, name, "", func(p *corev1.Pod) {
			p.Annotations = map[string]string{kueue.WorkloadSliceNameAnnotation: wl.Name}
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}, {Name: "example.com/other"}}
			p.Spec.NodeSelector = map[string]string{"pool": pool}
		})
	}
	pod("a", "a100")
	want := "Warning FailedToUngate Pod a stays gated: its node selector pool is \"a100\" and would have to be \"h100\". Delete it, and remove the selector from the template of its job"
	if got := wait.Receive(t, "it is reported", w.events.Events); got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	for _, name := range []string{"b", "c"} {
		p := pod(name, "h100")
		w.Until("a pod is ungated beside it", func() error {
			if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || job.PodHasGate(p, kueue.ElasticJobSchedulingGate) {
				return fmt.Errorf("gates %v: %w", p.Spec.SchedulingGates, err)
			}
			return nil
		})
	}
	if n := len(w.events.Events); n > 0 {
		t.Errorf("%d more events", n)
	}
}
