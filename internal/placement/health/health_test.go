package health

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	plan "github.com/berth-project/berth/internal/placement/plan/health"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/assignment"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

func TestMain(m *testing.M) {
	os.Exit(embeddedtest.Main(m))
}

var usual = plan.Gates{OnPodTermination: true, OnTaints: true, KeepPodOwned: true}

// world is a namespace with a manager of its own. Its nodes have the name of the namespace before their own.
type world struct {
	*embeddedtest.World
	gates plan.Gates
}

func newWorld(t *testing.T, managed string) *world {
	t.Helper()
	return &world{World: embeddedtest.NewWorld(t, "health-", managed, "../../../config/crd", kueue.AddToScheme), gates: usual}
}

func (w *world) start() {
	w.Helper()
	mgr := embeddedtest.Manager(w.T, w.Rest, ctrl.Options{
		Scheme: w.Client.Scheme(), Cache: embeddedtest.Only(w.Namespace),
	})
	pods, err := reconcile.NewStartedPods(w.Context(), mgr)
	if err != nil {
		w.Fatal(err)
	}
	cfg := &job.Config{ManagedNamespaces: labels.SelectorFromSet(labels.Set{"managed": "yes"})}
	err = Setup(w.Context(), mgr, Options{
		Gates: w.gates, Namespaces: lookup.NewGate(cfg, nil, mgr.GetCache(), mgr.GetAPIReader()), Machine: lifecycle.Machine{}, Pods: pods,
		Status: reconcile.NewWorkloadStatus(mgr.GetClient()), Events: reconcile.NewEvents(mgr.GetEventRecorder("test"), nil), Now: time.Now,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Stop = embeddedtest.Run(w.T, mgr)
}

func (w *world) host(name string) string { return w.Namespace + "-" + name }

// node makes a ready node. The API server taints new nodes.
func (w *world) node(name string) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.host(name), Labels: map[string]string{corev1.LabelHostname: w.host(name)}}}
	w.Create(n)
	w.ready(n, corev1.ConditionTrue, time.Now())
	embeddedtest.Edit(w.T, w.Client, n, func(n *corev1.Node) { n.Spec.Taints = nil })
	return n
}

func (w *world) ready(n *corev1.Node, status corev1.ConditionStatus, since time.Time) {
	w.Helper()
	embeddedtest.EditStatus(w.T, w.Client, n, func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(since), LastHeartbeatTime: metav1.Now(),
		}}
	})
}

// workload makes an admitted Workload with one pod on each node.
func (w *world) workload(name string, nodes ...string) *kueue.Workload {
	w.Helper()
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace}}
	wl.Spec.QueueName = "lq"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: int32(len(nodes)), Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, RestartPolicy: corev1.RestartPolicyNever},
	}}}
	w.Create(wl)
	w.assign(wl, nodes...)
	return wl
}

func (w *world) assign(wl *kueue.Workload, nodes ...string) {
	w.Helper()
	var list []assignment.Domain
	for _, name := range nodes {
		list = append(list, assignment.Domain{Values: []string{w.host(name)}, Count: 1})
	}
	embeddedtest.EditStatus(w.T, w.Client, wl, func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: &wl.Spec.PodSets[0].Count, TopologyAssignment: assignment.Encode([]string{corev1.LabelHostname}, list, true),
		}}}
		wl.Status.Conditions, wl.Status.UnhealthyNodes = nil, nil
		for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
				Type: condition, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now(),
			})
		}
	})
}

// pod makes an ungated pod that is assigned to a node; with runs it is on it.
func (w *world) pod(of *kueue.Workload, name, node string, runs bool) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: w.Namespace, Labels: map[string]string{kueue.PodSetLabel: "main"},
			Annotations: map[string]string{kueue.WorkloadAnnotation: of.Name, kueue.PodSetUnconstrainedTopologyAnnotation: "true"},
		},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: w.host(node)}, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	if runs {
		p.Spec.NodeName = w.host(node)
	}
	w.Create(p)
	if runs {
		embeddedtest.EditStatus(w.T, w.Client, p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
	}
	return p
}

func (w *world) unhealthy(wl *kueue.Workload) (out []string) {
	w.Helper()
	if err := w.Client.Get(w.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
		w.Fatal(err)
	}
	for _, n := range wl.Status.UnhealthyNodes {
		out = append(out, strings.TrimPrefix(n.Name, w.Namespace+"-"))
	}
	return out
}

func (w *world) expectUnhealthy(wl *kueue.Workload, want ...string) {
	w.Helper()
	w.Until(fmt.Sprintf("%v are recorded", want), func() error {
		if got := w.unhealthy(wl); !slices.Equal(got, want) || lifecycle.IsEvicted(wl) {
			return fmt.Errorf("%v, %v", got, wl.Status.Conditions)
		}
		return nil
	})
}

// events lists the reasons of the events about an object.
func (w *world) events(name string) (out []string) {
	w.Helper()
	var list eventsv1.EventList
	if err := w.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
		w.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.Name == name {
			out = append(out, e.Reason)
		}
	}
	return out
}

func (w *world) delete(o client.Object) {
	w.Helper()
	w.Until("it is deleted", func() error {
		return client.IgnoreNotFound(w.Client.Delete(w.Context(), o, client.GracePeriodSeconds(0)))
	})
}

// TestRecord: a deleted node is recorded, and removed again when it comes back. A second one evicts. spec: 20 §7 #34, #36.
func TestRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	n1, n2, n3 := w.node("n1"), w.node("n2"), w.node("n3")
	w.start()
	wl, other := w.workload("w", "n1", "n2"), w.workload("other", "n3")
	for i, name := range []string{"n1", "n2"} {
		w.pod(wl, fmt.Sprint("p", i), name, true)
	}
	w.delete(n1)
	w.expectUnhealthy(wl, "n1")
	w.node("n1")
	w.expectUnhealthy(wl)
	w.ready(n2, corev1.ConditionFalse, time.Now().Add(-time.Hour)) // its pod runs
	w.ready(n3, corev1.ConditionUnknown, time.Now())               // no pod is there
	w.expectUnhealthy(other, "n3")
	if got := w.unhealthy(wl); got != nil {
		t.Errorf("unhealthy: %v", got)
	}
	w.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p1", Namespace: w.Namespace}})
	w.expectUnhealthy(wl, "n2")
	w.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.host("n1")}})
	w.Until("the workload is evicted", func() error {
		w.unhealthy(wl)
		if c := lifecycle.Condition(wl, kueue.WorkloadEvicted); c == nil || c.Reason != kueue.ReasonNodeFailures || len(wl.Status.UnhealthyNodes) > 0 {
			return fmt.Errorf("%+v", wl.Status)
		}
		return nil
	})
	if !lifecycle.IsReserved(wl) || wl.Status.SchedulingStats == nil {
		t.Errorf("the quota is kept until the pods are gone, and the eviction is counted: %+v", wl.Status)
	}
	w.Until("the event is there", func() error {
		if diff := cmp.Diff([]string{"EvictedDueToNodeFailures"}, w.events("w")); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

// TestTaint: a taint counts once no pod runs there, and a cordon is one.
func TestTaint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	n1 := w.node("n1")
	w.start()
	wl := w.workload("w", "n1")
	p := w.pod(wl, "p", "n1", true)
	embeddedtest.Edit(t, w.Client, n1, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "example.com/broken", Effect: corev1.TaintEffectNoSchedule}}
	})
	wait.Stays(t, time.Second, "a node with a pod is not recorded", func() error {
		if got := w.unhealthy(wl); got != nil {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	embeddedtest.EditStatus(t, w.Client, p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	w.expectUnhealthy(wl, "n1")
	embeddedtest.Edit(t, w.Client, n1, func(n *corev1.Node) { n.Spec.Taints = nil })
	w.expectUnhealthy(wl)
}

// TestFixedTime: with the gate a node is recorded by time alone, without an event.
func TestFixedTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	w.gates.AfterFixedTime = true
	n1 := w.node("n1")
	w.start()
	wl := w.workload("w", "n1")
	w.pod(wl, "p", "n1", true)
	w.ready(n1, corev1.ConditionFalse, time.Now().Add(-27*time.Second))
	w.expectUnhealthy(wl, "n1")
}

// TestStuck: pods that wait for a node that does not take them fail: it is not ready, or their Workload has moved away. Others stay.
func TestStuck(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "yes")
	n1 := w.node("n1")
	w.node("n2")
	w.node("n3")
	w.start()
	wl := w.workload("w", "n1", "n2")
	w.pod(wl, "a", "n1", false)
	w.pod(wl, "b", "n2", false)
	w.pod(wl, "gone", "n9", false) // its node does not exist
	w.ready(n1, corev1.ConditionFalse, time.Now())
	w.expectFailed("a")
	w.expectUnhealthy(wl, "n1")
	w.assign(wl, "n3", "n1")
	w.expectFailed("a", "b")
	var a corev1.Pod
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "a"}, &a); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(a.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == "TerminatedByKueue" })
	if at < 0 || a.Status.Conditions[at].Status != corev1.ConditionTrue || a.Status.Conditions[at].Reason != "UnschedulableOnAssignedNode" {
		t.Errorf("conditions %+v", a.Status.Conditions)
	}
	w.Until("the event is there", func() error {
		if diff := cmp.Diff([]string{"PodTerminatedByKueue"}, w.events("a")); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

// failed lists the failed pods.
func (w *world) failed() (out []string) {
	w.Helper()
	var list corev1.PodList
	if err := w.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Status.Phase == corev1.PodFailed {
			out = append(out, list.Items[i].Name)
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) expectFailed(want ...string) {
	w.Helper()
	w.Until(fmt.Sprintf("%v failed", want), func() error {
		if got := w.failed(); !slices.Equal(got, want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

// TestUnmanaged: pods of a namespace that is not managed are left alone; the Workload is not.
func TestUnmanaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "no")
	n1 := w.node("n1")
	w.start()
	wl := w.workload("w", "n1")
	w.pod(wl, "a", "n1", false)
	w.ready(n1, corev1.ConditionFalse, time.Now())
	w.expectUnhealthy(wl, "n1")
	wait.Stays(t, time.Second, "the pod waits", func() error {
		if got := w.failed(); len(got) > 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

// TestKilledAtAnyWrite: a manager that dies at any write leaves the next one to complete its work.
func TestKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	embeddedtest.AtEveryWrite(t, 3, func(t *testing.T, m *embeddedtest.Mortal) {
		w := newWorld(t, "yes")
		n1, n2 := w.node("n1"), w.node("n2")
		w.node("n3")
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
		wl := w.workload("w", "n1", "n2")
		w.pod(wl, "a", "n1", false)
		w.ready(n1, corev1.ConditionFalse, time.Now())
		w.expectFailed("a")
		w.expectUnhealthy(wl, "n1")
		w.delete(n2)
		w.Until("the workload is evicted, once", func() error {
			w.unhealthy(wl)
			if s := wl.Status.SchedulingStats; !lifecycle.IsEvicted(wl) || len(s.Evictions) != 1 || s.Evictions[0].Count != 1 {
				return fmt.Errorf("%+v", wl.Status)
			}
			return nil
		})
	})
}

// TestNodes: the store of nodes follows deletions, and hostnames that are used twice.
func TestNodes(t *testing.T) {
	n := newNodes()
	n.set(plan.Node{Name: "n1", Hostname: "h1", Reported: true})
	n.set(plan.Node{Name: "n0", Hostname: "h1", Reported: true})
	n.set(plan.Node{Name: "n2", Hostname: "n2", Reported: true})
	check := func(host, want string) {
		t.Helper()
		got, found := n.byHostname(host)
		if text := fmt.Sprint(got.Name, " ", got.Reported, " ", found); text != want {
			t.Errorf("%s is %s, want %s", host, text, want)
		}
	}
	check("h1", "n0 true true")
	n.remove(plan.Node{Name: "n0", Hostname: "h1"})
	check("h1", "n1 true true")
	n.remove(plan.Node{Name: "n1", Hostname: "h1"})
	check("h1", "n1 false true") // its name is still known
	n.remove(plan.Node{Name: "n2", Hostname: "n2"})
	check("n2", " false false")
	n.set(plan.Node{Name: "n5", Hostname: "h1", Reported: true})
	check("h1", "n5 true true")
	if n.areKnown() {
		t.Error("no node was read yet")
	}
}
