package nodequota

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/placement/capacity"
	plan "github.com/berth-project/berth/internal/placement/plan/nodequota"
	"github.com/berth-project/berth/internal/reconcile"
)

func TestMain(m *testing.M) {
	os.Exit(embeddedtest.Main(m))
}

// ahead is by how much the clock of the controllers is ahead, so that nodes seem to be that old.
const ahead = time.Hour

func now() time.Time { return time.Now().Add(ahead) }

// world is the objects and nodes with a label, and a manager that sees no others.
type world struct {
	*embeddedtest.World
	label map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: embeddedtest.NewWorld(t, "nodequota-", "yes", "../../../config/crd", kueue.AddToScheme)}
	w.label = map[string]string{"world": w.Namespace}
	w.Create(&kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: w.name("f"), Labels: w.label}, Spec: kueue.ResourceFlavorSpec{NodeLabels: w.label},
	})
	return w
}

func (w *world) name(of string) string { return w.label["world"] + "-" + of }

func (w *world) start() {
	w.Helper()
	own := cache.ByObject{Label: labels.SelectorFromSet(w.label)}
	mgr := embeddedtest.Manager(w.T, w.Rest, ctrl.Options{
		Scheme: w.Client.Scheme(),
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&kueue.ClusterQueue{}: own, &kueue.Cohort{}: own, &kueue.ResourceFlavor{}: own, &corev1.Node{}: {Label: own.Label, Transform: capacity.Trim},
		}},
	})
	w.Must(Setup(mgr, Options{Events: reconcile.NewEvents(mgr.GetEventRecorder("test"), nil), Batch: 10 * time.Millisecond, Now: now}))
	w.Stop = embeddedtest.Run(w.T, mgr)
}

func (w *world) groups() []kueue.ResourceGroup {
	return []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{"cpu"}, Flavors: []kueue.FlavorQuotas{{
		Name: kueue.ResourceFlavorReference(w.name("f")), Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: apiresource.MustParse("100")}},
	}}}}
}

func (w *world) meta(name, share string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Name: w.name(name), Labels: w.label}
	if share != "" {
		out.Annotations = map[string]string{plan.Annotation: share}
	}
	return out
}

func (w *world) queue(name, share string) *kueue.ClusterQueue {
	w.Helper()
	cq := &kueue.ClusterQueue{ObjectMeta: w.meta(name, share), Spec: kueue.ClusterQueueSpec{ResourceGroups: w.groups()}}
	w.Create(cq)
	return cq
}

// node makes a ready node with 8 CPUs.
func (w *world) node(name string) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name(name), Labels: w.label}}
	w.Create(n)
	w.ready(n, corev1.ConditionTrue, 0)
	return n
}

func (w *world) ready(n *corev1.Node, status corev1.ConditionStatus, ago time.Duration) {
	w.Helper()
	embeddedtest.EditStatus(w.T, w.Client, n, func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{"cpu": apiresource.MustParse("8")}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(now().Add(-ago))}}
	})
}

// has checks the quota of an object.
func (w *world) has(o client.Object, want string) func() error {
	return func() error {
		if err := w.Client.Get(w.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		groups := []kueue.ResourceGroup{}
		switch o := o.(type) {
		case *kueue.ClusterQueue:
			groups = o.Spec.ResourceGroups
		case *kueue.Cohort:
			groups = o.Spec.ResourceGroups
		}
		if got := groups[0].Flavors[0].Resources[0].NominalQuota; got.Cmp(apiresource.MustParse(want)) != 0 {
			return fmt.Errorf("the quota is %s, want %s", got.String(), want)
		}
		return nil
	}
}

func (w *world) says(cq *kueue.ClusterQueue, status metav1.ConditionStatus, words string) func() error {
	return func() error {
		w.Must(w.Client.Get(w.Context(), client.ObjectKeyFromObject(cq), cq))
		if c := apimeta.FindStatusCondition(cq.Status.Conditions, Condition); c == nil || c.Status != status || !strings.Contains(c.Message, words) {
			return fmt.Errorf("%+v", cq.Status.Conditions)
		}
		return nil
	}
}

// TestFollow: the quota follows nodes that come, go and flap, for ClusterQueues and Cohorts that ask for it, and across a restart.
func TestFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cq, plain := w.queue("cq", "50%"), w.queue("plain", "")
	cohort := &kueue.Cohort{ObjectMeta: w.meta("cohort", "25%"), Spec: kueue.CohortSpec{ResourceGroups: w.groups()}}
	w.Create(cohort)
	w.start()
	w.Until("there is no node", w.has(cq, "0"))
	n1 := w.node("n1")
	w.Until("a node comes", w.has(cq, "4"))
	w.Until("a node comes", w.has(cohort, "2"))
	n2 := w.node("n2")
	w.Until("another comes", w.has(cq, "8"))
	w.Until("the condition says so", w.says(cq, metav1.ConditionTrue, "50% of what the nodes"))
	generation := cq.Generation
	for range 3 {
		w.ready(n2, corev1.ConditionUnknown, 5*time.Second)
		w.ready(n2, corev1.ConditionTrue, 0)
	}
	w.ready(n2, corev1.ConditionUnknown, 5*time.Second)
	wait.Stays(t, time.Second, "the quota stays while it flaps", w.has(cq, "8"))
	if cq.Generation != generation {
		t.Errorf("the quota was written %d times", cq.Generation-generation)
	}
	w.ready(n2, corev1.ConditionTrue, 0)
	w.ready(n2, corev1.ConditionUnknown, plan.Grace-2*time.Second)
	w.Until("it is gone for longer, which no event reports", w.has(cq, "4"))
	w.ready(n2, corev1.ConditionTrue, 0)
	w.Until("it is back", w.has(cq, "8"))
	embeddedtest.Edit(t, w.Client, n2, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	w.Until("it is cordoned", w.has(cq, "4"))
	n3 := w.node("n3")
	embeddedtest.Edit(t, w.Client, n3, func(n *corev1.Node) { n.Finalizers = []string{"example.com/drain"} })
	w.Until("a third comes", w.has(cq, "8"))
	w.Must(w.Client.Delete(t.Context(), n3))
	w.Until("it is being deleted", w.has(cq, "4"))
	embeddedtest.Edit(t, w.Client, n3, func(n *corev1.Node) { n.Finalizers = nil })

	embeddedtest.Edit(t, w.Client, cq, func(cq *kueue.ClusterQueue) {
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = apiresource.MustParse("77")
	})
	w.Until("an edit is undone", w.has(cq, "4"))
	w.Stop()
	w.Must(w.Client.Delete(t.Context(), n1))
	w.start()
	w.Until("a node went while there was no manager", w.has(cq, "0"))
	w.Until("of the cohort as well", w.has(cohort, "0"))
	embeddedtest.Edit(t, w.Client, cq, func(cq *kueue.ClusterQueue) { cq.Annotations = nil })
	embeddedtest.Edit(t, w.Client, n2, func(n *corev1.Node) { n.Spec.Unschedulable = false })
	w.Until("the cohort follows on", w.has(cohort, "2"))
	w.Until("the ClusterQueue does not, and its condition is gone", func() error {
		if err := w.has(cq, "0")(); err != nil || apimeta.FindStatusCondition(cq.Status.Conditions, Condition) == nil {
			return err
		}
		return fmt.Errorf("%+v", cq.Status.Conditions)
	})
	w.Must(w.has(plain, "100")())
	if plain.Generation != 1 || len(plain.Status.Conditions) > 0 {
		t.Errorf("a ClusterQueue without the annotation was written: %+v", plain)
	}
}

// TestUnsupported: an object that was stored without the webhook keeps its quota, and its condition has the reason.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad, remote := w.queue("bad", "lots"), w.queue("remote", "50%")
	embeddedtest.EditStatus(t, w.Client, remote, func(cq *kueue.ClusterQueue) {
		apimeta.SetStatusCondition(&cq.Status.Conditions, metav1.Condition{Type: kueue.ClusterQueueQuotaAutomation, Status: metav1.ConditionTrue, Reason: "Automated"})
	})
	child := &kueue.Cohort{ObjectMeta: w.meta("child", "50%"), Spec: kueue.CohortSpec{ParentName: "p", ResourceGroups: w.groups()}}
	w.Create(child)
	w.start()
	w.Until("the value is named", w.says(bad, metav1.ConditionFalse, plan.Annotation+` is "lots"`))
	w.Until("the worker clusters are named", w.says(remote, metav1.ConditionFalse, "worker clusters"))
	w.node("n1")
	wait.Stays(t, time.Second, "quotas stay", func() error {
		return errors.Join(w.has(bad, "100")(), w.has(remote, "100")(), w.has(child, "100")())
	})
	automated := func(status metav1.ConditionStatus, reason string) {
		embeddedtest.EditStatus(t, w.Client, remote, func(cq *kueue.ClusterQueue) {
			apimeta.SetStatusCondition(&cq.Status.Conditions, metav1.Condition{Type: kueue.ClusterQueueQuotaAutomation, Status: status, Reason: reason})
		})
	}
	automated(metav1.ConditionFalse, "UnsupportedConfiguration")
	wait.Stays(t, time.Second, "it is left as it is", w.has(remote, "100"))
	automated(metav1.ConditionFalse, kueue.ReasonNotRequested)
	w.Until("it is not that of the worker clusters any more", w.has(remote, "4"))
	automated(metav1.ConditionTrue, "Automated")
	w.Until("it is again", w.says(remote, metav1.ConditionFalse, "worker clusters"))
}

// TestRefused: a quota that was forbidden is tried again.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("n1")
	cq := w.queue("cq", "50%")
	path := "/clusterqueues/" + cq.Name // the calls read it while cq is read again
	var refusing atomic.Bool
	refusing.Store(true)
	w.Rest = rest.CopyConfig(w.Rest)
	w.Rest.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
			if refusing.Load() && r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, path) {
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a policy","reason":"Forbidden","code":403}`
				return &http.Response{StatusCode: http.StatusForbidden, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
			}
			return next.RoundTrip(r)
		})
	})
	w.start()
	w.Until("the refusal is told", w.says(cq, metav1.ConditionFalse, "a policy"))
	refusing.Store(false)
	w.Until("the quota follows", w.has(cq, "4"))
}

// TestKilledAtAnyWrite: a manager that dies at any write leaves the next one to complete its work.
func TestKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	embeddedtest.AtEveryWrite(t, 2, func(t *testing.T, m *embeddedtest.Mortal) {
		w := newWorld(t)
		plain := w.Rest
		w.Rest = rest.CopyConfig(plain)
		w.Rest.Wrap(m.Wrap)
		w.node("n1")
		cq := w.queue("cq", "50%")
		w.start()
		w.Revive = func() {
			m.Revive(func() {
				w.Stop()
				w.Rest = plain
				w.start()
			})
		}
		w.Until("the quota follows", w.has(cq, "4"))
		w.Until("the condition says so", w.says(cq, metav1.ConditionTrue, "50%"))
	})
}
