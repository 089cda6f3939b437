package jobtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/berth-project/berth/internal/reconcile"
)

// newScheme returns the scheme of all worlds, which takes long to make.
var newScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

// world is a real API server, a manager with the job controllers, and a namespace.
type world struct {
	t         *testing.T
	ctx       context.Context
	kind      *Kind
	c         client.Client
	cfg       *job.Config
	kinds     []*job.Descriptor
	namespace string
	plain     *rest.Config
	traffic   *traffic
	stop      func()
	alone     bool // the manager sees the namespace of the world alone
}

// cronJob stands in for an external kind, whose jobs the API server knows.
var cronJob = batchv1.SchemeGroupVersion.WithKind("CronJob")

// newWorld installs the objects of the kind and starts a manager. wrap may change the manager's client configuration.
func newWorld(t *testing.T, kind *Kind, kinds []*job.Descriptor) *world {
	t.Helper()
	c, err := client.New(kind.rest, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: t.Context(), kind: kind, c: c, kinds: kinds, plain: kind.rest, traffic: &traffic{}, stop: func() {}}
	w.cfg = &job.Config{
		ManagedNamespaces: labels.SelectorFromSet(labels.Set{"managed": "yes"}), Kinds: job.Kinds{},
		AdmissionGatedBy: true, AssignQueueLabels: true, AnnotationIdentifiers: true, FinishOrphans: true,
		PartialAdmission: true, ReclaimablePods: true, Topology: true, TopologySliceConstraints: true, HonourUserSuspend: true, VerifyOwners: true,
	}
	for _, d := range kinds {
		w.cfg.Kinds[d.GVK] = true
	}
	w.cfg.Kinds[cronJob], w.cfg.ExternalOwns = true, map[schema.GroupVersionKind][]schema.GroupVersionKind{cronJob: nil}
	w.install()
	w.namespace = w.newNamespace("yes")
	return w
}

// installed are the objects that earlier tests have created, by API server.
var installed sync.Map

// once creates an object unless an earlier test has created it.
func (w *world) once(o client.Object) {
	w.t.Helper()
	if _, done := installed.LoadOrStore(w.plain.Host+" "+o.GetName(), true); !done {
		w.must(client.IgnoreAlreadyExists(w.c.Create(w.ctx, o)))
	}
}

func (w *world) install() {
	w.t.Helper()
	entries, err := config.FS.ReadDir("crd")
	w.must(err)
	for _, e := range entries {
		file := w.plain.Host + " " + e.Name()
		if _, done := installed.Load(file); done || !w.needs(e.Name()) { // the files are large
			continue
		}
		raw, err := config.FS.ReadFile(path.Join("crd", e.Name()))
		w.must(err)
		var crd apiextensionsv1.CustomResourceDefinition
		w.must(yaml.Unmarshal(raw, &crd))
		w.once(&crd)
		installed.Store(file, true)
	}
	for _, d := range w.kinds {
		if d.GVK.Group == "batch" || d.GVK.Group == "apps" || d.GVK.Group == "" {
			continue
		}
		w.once(embeddedtest.LooseCRD(d.GVK, d.Resource))
	}
	wait.Until(w.t, "the kinds are served", func() error {
		for _, d := range w.kinds {
			if err := w.c.List(w.ctx, d.NewList().(client.ObjectList)); err != nil {
				return err
			}
		}
		return w.c.List(w.ctx, &kueue.WorkloadList{})
	})
	w.must(client.IgnoreAlreadyExists(w.c.Create(w.ctx, &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec: kueue.ResourceFlavorSpec{
			NodeLabels:  map[string]string{"pool": "h100"},
			Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
		},
	})))
	for _, text := range w.kind.Objects {
		o := parse(w.t, text)
		wait.Until(w.t, "what the job refers to exists", func() error { return client.IgnoreAlreadyExists(w.c.Create(w.ctx, o.DeepCopy())) })
	}
}

// needs reports whether the world needs the CRDs in a file, which is named for their group.
func (w *world) needs(file string) bool {
	return strings.HasPrefix(file, kueue.GroupVersion.Group) || slices.ContainsFunc(w.kinds, func(d *job.Descriptor) bool {
		return strings.HasPrefix(file, d.GVK.Group+"_")
	})
}

// start runs a manager until stop is called or the test ends.
func (w *world) start(wrap func(http.RoundTripper) http.RoundTripper) {
	w.t.Helper()
	cfg := rest.CopyConfig(w.plain)
	cfg.Wrap(w.traffic.wrap)
	if wrap != nil {
		cfg.Wrap(wrap)
	}
	options := ctrl.Options{
		Scheme: newScheme(),
	}
	if w.alone {
		options.Cache = embeddedtest.Only(w.namespace)
	}
	mgr := embeddedtest.Manager(w.t, cfg, options)
	w.must(controller.Setup(w.ctx, mgr, controller.Options{Config: w.cfg, Descriptors: w.kinds, Workers: func(string) int { return 2 }, Now: time.Now, Patience: 300 * time.Millisecond}))
	w.stop = embeddedtest.Run(w.t, mgr)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// waitUntilStable waits until the manager has written nothing for a while.
func (w *world) waitUntilStable() {
	w.t.Helper()
	wait.Quiet(w.t, 300*time.Millisecond, w.traffic.count)
}

func (w *world) newNamespace(managed string) string {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kind-", Labels: map[string]string{"managed": managed}}}
	w.must(w.c.Create(w.ctx, ns))
	w.must(w.c.Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}})) // pods need it
	return ns.Name
}

// relabel changes whether the namespace is managed.
func (w *world) relabel(managed string) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"managed":%q}}}`, managed)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	w.must(w.c.Patch(w.ctx, ns, client.RawPatch(types.MergePatchType, patch)))
}

func parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &out.Object); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	raw, err := out.MarshalJSON() // numbers become int64, as from the API server
	if err == nil {
		err = out.UnmarshalJSON(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// create creates a job of the kind, suspended and in queue lq, with a change.
func (w *world) create(name string, change func(job.Object)) job.Object {
	w.t.Helper()
	u := parse(w.t, w.kind.Manifest)
	u.SetName(name)
	u.SetNamespace(w.namespace)
	u.SetLabels(map[string]string{kueue.QueueNameLabel: "lq"})
	o := w.kind.Descriptor.New()
	w.must(runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o))
	w.kind.Descriptor.Suspend(o)
	if w.kind.Descriptor.Once != nil {
		w.kind.Descriptor.Default(o, true, &job.Setting{Config: w.cfg})
	}
	if change != nil {
		change(o)
	}
	w.must(w.c.Create(w.ctx, o))
	return o
}

func (w *world) again(o job.Object) job.Object {
	w.t.Helper()
	out := w.kind.Descriptor.New()
	w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(o), out))
	return out
}

// status changes the status of the job as the kind's own controller would.
func (w *world) status(o job.Object, state State) {
	w.t.Helper()
	text, ok := w.kind.Status[state]
	if !ok {
		w.t.Fatalf("the kind has no status %s", state)
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	w.must(err)
	patch := fmt.Appendf(nil, `{"status":%s}`, raw)
	w.must(w.c.Status().Patch(w.ctx, w.again(o), client.RawPatch(types.MergePatchType, patch)))
}

func (w *world) workloads() []kueue.Workload {
	w.t.Helper()
	var list kueue.WorkloadList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(w.namespace)))
	return list.Items
}

// workloadOf waits for the Workload of a job.
func (w *world) workloadOf(o job.Object) *kueue.Workload {
	w.t.Helper()
	var found kueue.Workload
	d := w.descriptorOf(o)
	key := client.ObjectKey{Namespace: o.GetNamespace(), Name: w.cfg.WorkloadName(d.GVK, o.GetName(), o.GetUID())}
	wait.Until(w.t, "the job has a workload", func() error { return w.c.Get(w.ctx, key, &found) })
	return &found
}

func (w *world) descriptorOf(o job.Object) *job.Descriptor {
	gvk := o.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		gvks, _, err := newScheme().ObjectKinds(o)
		w.must(err)
		gvk = gvks[0]
	}
	at := slices.IndexFunc(w.kinds, func(d *job.Descriptor) bool { return d.GVK == gvk })
	return w.kinds[at]
}

func (w *world) get(wl *kueue.Workload) *kueue.Workload {
	w.t.Helper()
	var out kueue.Workload
	w.must(w.c.Get(w.ctx, client.ObjectKeyFromObject(wl), &out))
	return &out
}

// play writes a transition of a Workload as the engine would.
func (w *world) play(wl *kueue.Workload, change func(*kueue.Workload) bool) {
	w.t.Helper()
	status := reconcile.NewWorkloadStatus(w.c)
	wait.Until(w.t, "the status can be written", func() error {
		_, _, err := status.Transition(w.ctx, w.get(wl), change)
		return err
	})
}

func (w *world) admit(wl *kueue.Workload) {
	w.t.Helper()
	w.play(wl, w.reserve)
}

// reserve gives wl quota, in memory. It reports whether that changed it.
func (w *world) reserve(wl *kueue.Workload) bool {
	a := &kueue.Admission{ClusterQueue: "cq"}
	for _, s := range wl.Spec.PodSets {
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
			Name: s.Name, Count: new(s.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "gpu"},
			ResourceUsage: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(s.Count), resource.DecimalSI)},
		})
	}
	return w.cfg.Lifecycle.Reserve(wl, a, nil, metav1.Now())
}

func (w *world) evict(wl *kueue.Workload) {
	w.t.Helper()
	w.play(wl, func(x *kueue.Workload) bool {
		return w.cfg.Lifecycle.Preempt(x, kueue.ReasonInClusterQueue, "Preempted to make room", metav1.Now())
	})
}

// events are the reasons of the events about an object, sorted.
func (w *world) events(o job.Object) []string {
	w.t.Helper()
	var list eventsv1.EventList
	w.must(w.c.List(w.ctx, &list, client.InNamespace(o.GetNamespace())))
	var out []string
	for i := range list.Items {
		if list.Items[i].Regarding.UID == o.GetUID() {
			out = append(out, list.Items[i].Reason)
		}
	}
	slices.Sort(out)
	return out
}

// tells waits until the events about an object have exactly these reasons: events are written concurrently.
func (w *world) tells(o job.Object, want ...string) {
	w.t.Helper()
	wait.Until(w.t, "its events", func() error {
		if diff := cmp.Diff(want, w.events(o)); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

// traffic records the requests of the manager.
type traffic struct {
	mu       sync.Mutex
	lines    []string // writes except events, with their answers
	unpinned []string // patches without a resource version
	reads    []string // reads of one object
}

func (f *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			if !strings.Contains(r.URL.RawQuery, "watch=") {
				f.note(&f.reads, r.URL.Path)
			}
			return next.RoundTrip(r)
		}
		isEvent := strings.Contains(r.URL.Path, "/events")
		if r.Method == http.MethodPatch && !isEvent {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if !bytes.Contains(body, []byte(`"resourceVersion":"`)) {
				f.note(&f.unpinned, r.URL.Path+" "+string(body))
			}
		}
		response, err := next.RoundTrip(r)
		if err == nil {
			f.note(&f.lines, fmt.Sprintf("%s %s %d", r.Method, r.URL.Path, response.StatusCode))
		}
		return response, err
	})
}

func (f *traffic) note(to *[]string, line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*to = append(*to, line)
}

func (f *traffic) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lines)
}

// in returns the writes in a namespace, except events.
func (f *traffic) in(namespace string) (writes, events []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.lines {
		switch {
		case !strings.Contains(l, "/namespaces/"+namespace+"/") || (!strings.HasSuffix(l, " 200") && !strings.HasSuffix(l, " 201")):
		case strings.Contains(l, "/events"):
			events = append(events, l)
		default:
			writes = append(writes, l)
		}
	}
	return writes, events
}
