package recovery

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/job/lookup"
	plan "github.com/berth-project/berth/internal/placement/plan/recovery"
	"github.com/berth-project/berth/internal/reconcile"
)

func TestMain(m *testing.M) {
	os.Exit(embeddedtest.Main(m))
}

// keep is a finalizer that keeps a pod to be examined after its deletion.
const keep = "berth.dev/test"

// world is a namespace that a manager of its own manages, and no other.
type world struct {
	*embeddedtest.World
	managed labels.Set
	delay   time.Duration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: embeddedtest.NewWorld(t, "recovery-", "yes", "")}
	w.managed = labels.Set{corev1.LabelMetadataName: w.Namespace}
	return w
}

func (w *world) start() {
	w.Helper()
	mgr := embeddedtest.Manager(w.T, w.Rest, ctrl.Options{})
	cfg := &job.Config{ManagedNamespaces: labels.SelectorFromSet(w.managed)}
	w.Must(Setup(mgr, Options{
		Delay: w.delay, Namespaces: lookup.NewGate(cfg, nil, mgr.GetCache(), mgr.GetAPIReader()),
		Events: reconcile.NewEvents(mgr.GetEventRecorder("test"), nil), Now: time.Now,
	}))
	w.Stop = embeddedtest.Run(w.T, mgr)
}

// node makes a node. It is unreachable if effects are given.
func (w *world) node(name string, effects ...corev1.TaintEffect) {
	w.Helper()
	w.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-" + name}})
	w.taint(name, effects...)
}

// taint replaces all taints of a node.
func (w *world) taint(name string, effects ...corev1.TaintEffect) {
	w.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-" + name}}
	embeddedtest.Edit(w.T, w.Client, node, func(n *corev1.Node) {
		n.Spec.Taints = nil
		for _, effect := range effects {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: effect})
		}
	})
}

// pod makes a pod on a node, with a value of the annotation unless it is empty.
func (w *world) pod(name, node, annotation string, finalizers ...string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace, Finalizers: finalizers},
		Spec: corev1.PodSpec{
			NodeName: w.Namespace + "-" + node, TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	if annotation != "" {
		p.Annotations = map[string]string{kueue.SafeToForcefullyDeleteAnnotation: annotation}
	}
	w.Create(p)
	return p
}

func (w *world) phase(p *corev1.Pod, phase corev1.PodPhase) {
	w.Helper()
	embeddedtest.EditStatus(w.T, w.Client, p, func(p *corev1.Pod) { p.Status.Phase = phase })
}

func (w *world) delete(pods ...*corev1.Pod) {
	w.Helper()
	for _, p := range pods {
		w.Must(w.Client.Delete(w.Context(), p))
	}
}

// there lists the pods as NAME PHASE.
func (w *world) there() (out []string) {
	w.Helper()
	var list corev1.PodList
	w.Must(w.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)))
	for i := range list.Items {
		out = append(out, list.Items[i].Name+" "+string(list.Items[i].Status.Phase))
	}
	slices.Sort(out)
	return out
}

func (w *world) are(want ...string) func() error {
	return func() error {
		if got := w.there(); !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	}
}

// events counts the events about a pod.
func (w *world) events(name string) (out []string) {
	w.Helper()
	var list eventsv1.EventList
	w.Must(w.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)))
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			out = append(out, e.Type+" "+e.Reason)
		}
	}
	return out
}

func (w *world) expectEvent(name string) {
	w.Helper()
	w.Until("the event is there", func() error {
		if got := w.events(name); !slices.Contains(got, "Warning KueueForcefullyDeleted") {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

// TestRecovery: a pod that is deleted, on an unreachable node, is failed and deleted by force if it allows that. spec: 20 §7 #64.
func TestRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("dead", corev1.TaintEffectNoExecute)
	w.node("dying", corev1.TaintEffectPreferNoSchedule)
	w.node("healthy")
	w.start()
	over := w.pod("over", "dead", "true", keep)
	w.phase(over, corev1.PodSucceeded)
	kept := w.pod("kept", "dead", "true", keep)
	w.phase(kept, corev1.PodRunning)
	w.pod("not-deleted", "dead", "true")
	w.delete(
		over, kept, w.pod("hangs", "dead", "true"), w.pod("any-effect", "dying", "true"),
		w.pod("not-allowed", "dead", ""), w.pod("other-value", "dead", "True"), w.pod("on-healthy", "healthy", "true"), w.pod("node-gone", "gone", "true"),
	)
	rest := []string{
		"kept Failed", "node-gone Pending", "not-allowed Pending", "not-deleted Pending", "on-healthy Pending", "other-value Pending", "over Succeeded",
	}
	w.Until("those that hang are gone", w.are(rest...))
	for _, p := range []*corev1.Pod{kept, over} {
		w.Until("only the finalizer keeps it", func() error {
			w.Must(w.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p))
			at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == "KueueFailureRecovery" })
			if at < 0 || p.Status.Conditions[at].Reason != "KueueForcefullyDeleted" || *p.DeletionGracePeriodSeconds != 0 {
				return fmt.Errorf("grace %d, %+v", *p.DeletionGracePeriodSeconds, p.Status.Conditions)
			}
			return nil
		})
	}
	w.expectEvent("hangs")
	wait.Stays(t, time.Second, "the others stay", w.are(rest...))
	if got := w.events("kept"); len(got) != 1 {
		t.Errorf("a pod that a finalizer keeps has the events %v", got)
	}
	w.taint("healthy", corev1.TaintEffectNoSchedule) // while its pod is being deleted
	rest = slices.DeleteFunc(rest, func(s string) bool { return s == "on-healthy Pending" })
	w.Until("the pod of a node that becomes unreachable is gone", w.are(rest...))
}

// TestDelay: the delay counts from the end of the grace period, also across a restart, and a node that answers again ends it.
func TestDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("dead", corev1.TaintEffectNoExecute)
	w.node("back", corev1.TaintEffectNoExecute)
	w.delay = time.Hour
	w.start()
	w.delete(w.pod("a", "dead", "true"), w.pod("b", "back", "true"))
	wait.Stays(t, 2*time.Second, "the pods have time", w.are("a Pending", "b Pending"))
	w.taint("back")
	w.Stop()
	w.delay = 0
	w.start()
	w.Until("the pod of the dead node is gone", w.are("b Pending"))
	wait.Stays(t, time.Second, "that of the other stays", w.are("b Pending"))
}

// TestUnmanaged: pods of a namespace that is not managed are left alone.
func TestUnmanaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.managed = labels.Set{"managed": "elsewhere"}
	w.node("dead", corev1.TaintEffectNoExecute)
	w.start()
	w.delete(w.pod("a", "dead", "true"))
	wait.Stays(t, 3*time.Second, "the pod stays as it is", w.are("a Pending"))
}

// TestKilledAtAnyWrite: a manager that dies at any write leaves the next one to complete its work, and the event is not lost.
func TestKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	embeddedtest.AtEveryWrite(t, 2, func(t *testing.T, m *embeddedtest.Mortal) {
		w := newWorld(t)
		w.node("dead", corev1.TaintEffectNoExecute)
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
		w.delete(w.pod("a", "dead", "true"))
		w.Until("the pod is gone", w.are())
		if m.Dies == 0 {
			w.expectEvent("a")
		}
	})
}

// TestStore: the store keeps pods that may hang only, and refuses anything else.
func TestStore(t *testing.T) {
	s := newPodStore()
	var found []string
	s.found = func(key client.ObjectKey) { found = append(found, key.Name) }
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, DeletionTimestamp: new(metav1.Now()), Annotations: map[string]string{kueue.SafeToForcefullyDeleteAnnotation: "true"},
			},
			Spec: corev1.PodSpec{NodeName: "n1"},
		}
	}
	a, b, c := pod("a"), pod("b"), pod("c")
	c.DeletionTimestamp = nil
	reduced, err := s.Transformer()(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Replace([]any{reduced, a, c}, "7"); err != nil {
		t.Fatal(err)
	}
	if got := s.onNode("n1"); len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" || !slices.Equal(found, []string{"b", "a"}) {
		t.Errorf("%v, found %v", got, found)
	}
	plan.Fail(a, "m", time.Now())
	a.DeletionGracePeriodSeconds = new(int64(0))
	if err := errors.Join(s.Update(a), s.Delete(b), s.Resync()); err != nil || len(s.onNode("n1")) != 1 {
		t.Errorf("a pod whose deletion was cut off is to be deleted: %v, %v", err, s.onNode("n1"))
	}
	a.Finalizers = []string{keep}
	if err := s.Update(a); err != nil || len(s.onNode("n1")) != 0 {
		t.Errorf("only a finalizer keeps the pod: %v, %v", err, s.onNode("n1"))
	}
	for name, err := range map[string]error{
		"add": s.Add(&corev1.Node{}), "delete": s.Delete(&corev1.Node{}), "replace": s.Replace([]any{&corev1.Node{}}, ""),
	} {
		if err == nil {
			t.Errorf("%s of a node is no error", name)
		}
	}
}
