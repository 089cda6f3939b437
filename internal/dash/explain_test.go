package dash

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	amounts "github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/visibility"
)

// line is the world of an engine beside a dashboard: the ClusterQueue red with 3 CPUs and the ClusterQueue blue with 3 in the cohort red below
// the cohort top, and their LocalQueues main in the namespaces of these names.
type line struct {
	*world
	mu  sync.Mutex
	s   *state.State
	now int64

	priority int64 // of the Workloads that join
}

func newLine(t *testing.T, change func(*Server)) *line {
	t.Helper()
	l := &line{s: state.New(state.Options{Options: cycle.Defaults()})}
	l.world = newWorld(t, func(s *Server) {
		s.Model = l.publish
		explains := visibility.Server{Model: l.publish}
		s.Explain = explains.Explain
		s.End = func(w *kueue.Workload) time.Time {
			return map[string]time.Time{"own": time.Now().Add(time.Hour), "secret": time.Now().Add(30 * time.Minute)}[w.Name]
		}
		change(s)
	})
	l.queues()
	l.create(&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: l.red + "-top"}},
		&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: l.red}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(l.red + "-top")}})
	l.apply(state.SetFlavor(flavor.Flavor{Name: l.red}), state.SetCohort(state.Cohort{Name: l.red, Parent: l.red + "-top"}))
	for _, name := range []string{l.red, l.blue} {
		l.apply(state.SetNamespace{Name: name}, state.SetQueue(state.Queue{Name: name, Cohort: l.red, Namespaces: []workload.Term{{}}, Groups: []state.Group{{
			Resources: []string{"cpu"},
			Flavors:   []state.FlavorQuota{{Flavor: l.red, Resources: []state.Quota{{Resource: "cpu", Nominal: 3000, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}},
		}}}), state.SetLocalQueue(state.LocalQueue{Namespace: name, Name: "main", Queue: name}))
	}
	return l
}

func (l *line) apply(events ...state.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.s.Apply(e)
	}
	l.now += 1e9
	l.s.Step(workload.Instant(l.now), 1000)
}

func (l *line) publish() *state.Model {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.Publish()
}

// submit makes a Workload of some CPUs, and evaluates it.
func (l *line) submit(namespace, name string, cpus int64) *kueue.Workload {
	l.Helper()
	w := l.workload(namespace, name, "")
	l.join(w, cpus)
	return w
}

// join evaluates a Workload that exists.
func (l *line) join(w *kueue.Workload, cpus int64) {
	l.publish() // from now on traces are kept
	l.apply(state.SetWorkload(state.Workload{
		UID: string(w.UID), Namespace: w.Namespace, Name: w.Name, Version: 1, LocalQueue: "main", Queueable: true, Priority: l.priority,
		Created: workload.Instant(w.CreationTimestamp.UnixNano()), Since: workload.Instant(l.now),
		PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: []state.Request{{Resource: "cpu", Amount: amounts.Amount(1000 * cpus)}}}},
	}))
}

// holding makes a Workload that holds some CPUs.
func (l *line) holding(namespace, name string, cpus int64) *kueue.Workload {
	l.Helper()
	w := l.workload(namespace, name, "")
	l.publish()
	l.apply(state.SetWorkload(state.Workload{
		UID: string(w.UID), Namespace: namespace, Name: name, Version: 1, LocalQueue: "main", Reserved: true, Admitted: true, Queue: namespace,
		Held: []state.Held{{PodSet: "main", Flavor: l.red, Resource: "cpu", Amount: amounts.Amount(1000 * cpus)}},
	}))
	return w
}

// full is the line with red/train, which needs 4 CPUs while red/own and blue/secret hold 2 each.
func (l *line) full() {
	l.Helper()
	l.holding(l.red, "own", 2)
	l.holding(l.blue, "secret", 2)
	l.submit(l.red, "train", 4)
}

// mayAsk lets the viewer ask why the Workloads of red wait.
func (l *line) mayAsk() {
	l.Helper()
	l.create(
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: l.red, Name: "ask"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{berthv1alpha1.GroupVersion.Group}, Resources: []string{"workloads/explanation"}, Verbs: []string{"get"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: l.red, Name: "ask"}, Subjects: []rbacv1.Subject{l.subject("viewer")},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "ask"},
		})
}

// explained opens the view until it satisfies check.
func (l *line) explained(token, path string, check func(v map[string]any) error) (text string) {
	l.Helper()
	wait.Until(l.TB, path, func() error {
		conn, _, err := l.try(token, path, nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, data, err := conn.ReadMessage()
		if text = string(data); err != nil {
			return err
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return err
		}
		if err := check(v); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	return text
}

// TestExplanation: an explanation has the levels of the cohort tree, what is missing at the one that is short, and the Workloads that have to
// end. Who may see one namespace gets no names of others, and no quotas.
func TestExplanation(t *testing.T) {
	l := newLine(t, asIs)
	l.full()
	admin, viewer := l.administrator(), l.viewer()
	l.settled(l.red, l.blue)
	path := "/ws/workload/" + l.red + "/train/explanation"
	if code, why := l.dial(viewer, path).closed(); code != websocket.ClosePolicyViolation || !strings.Contains(why, "may not get workloads/explanation") {
		t.Errorf("without the right: closed with %d %q", code, why)
	}
	l.explained(admin, path, func(v map[string]any) error {
		d := document(v)
		if got := fmt.Sprint(d.at("verdict"), " ", d.at("traced"), " ", d.at("positionInClusterQueue"), " ", d.at("clusterQueue")); got != "waits true 0 "+l.red {
			return errors.New(got)
		}
		var levels, missing []string
		for _, level := range list3(v, "levels") {
			levels = append(levels, fmt.Sprint(level["kind"], " ", level["name"]))
			for _, q := range list3(level, "quotas") {
				missing = append(missing, fmt.Sprint(q["nominal"], " ", q["quota"], " ", q["used"], " ", q["borrowable"], " ", q["missing"]))
			}
		}
		if want := []string{"ClusterQueue " + l.red, "Cohort " + l.red, "Cohort " + l.red + "-top"}; !slices.Equal(levels, want) {
			return fmt.Errorf("levels %v, not %v", levels, want)
		}
		if want := []string{"3 3 2 1 <nil>", "0 6 4 0 <nil>", "0 6 4 0 2"}; !slices.Equal(missing, want) {
			return fmt.Errorf("quotas %q, not %q", missing, want)
		}
		if got := ended(v); got != "1 0 "+l.blue+"/secret" {
			return fmt.Errorf("what has to end is %s", got)
		}
		return nil
	})
	l.mayAsk()
	var v map[string]any
	text := l.explained(viewer, path, func(is map[string]any) error {
		v = is
		return nil
	})
	if strings.Contains(text, "secret") || strings.Contains(text, l.blue) {
		t.Errorf("the viewer of one namespace sees what is in others: %s", text)
	}
	if got := ended(v); got != "1 1 " {
		t.Errorf("of what has to end the viewer sees %s", got)
	}
	for _, level := range list3(v, "levels") {
		if level["hidden"] != true || level["name"] != nil || level["quotas"] != nil {
			t.Errorf("the viewer sees %v", level)
		}
	}
	for _, of := range []string{l.blue + "/secret", l.blue + "/none"} {
		if code, why := l.dial(viewer, "/ws/workload/"+of+"/explanation").closed(); code != websocket.ClosePolicyViolation {
			t.Errorf("%s: closed with %d %q", of, code, why)
		}
	}
	if got := l.dial(admin, "/ws/workload/"+l.red+"/none/explanation").document(); got["error"] == nil {
		t.Errorf("a Workload that does not exist: %v", got)
	}
}

// list3 is a list of objects in an object.
func list3(in map[string]any, key string) (out []map[string]any) {
	all, _ := in[key].([]any)
	for _, o := range all {
		out = append(out, o.(map[string]any))
	}
	return out
}

// ended is what has to end: how many, how many of these are not named, and the others.
func ended(v map[string]any) string {
	out := ""
	for _, e := range list3(v, "ends") {
		others, _ := e["others"].(float64)
		out = fmt.Sprint(e["count"], " ", others, " ")
		for _, w := range list3(e, "workloads") {
			out += fmt.Sprint(w["namespace"], "/", w["name"])
		}
	}
	return out
}

// A Workload that cannot run whatever ends is short at its ClusterQueue, and one that is in no queue says why.
func TestExplanationOfTheRest(t *testing.T) {
	l := newLine(t, asIs)
	l.submit(l.red, "huge", 9)
	lost := l.workload(l.red, "lost", "")
	token := l.administrator()
	l.explained(token, "/ws/workload/"+l.red+"/huge/explanation", func(v map[string]any) error {
		for i, level := range list3(v, "levels") {
			for _, q := range list3(level, "quotas") {
				if (q["never"] == true) != (i == 0) || i == 0 && q["missing"] != "3" {
					return fmt.Errorf("level %d", i)
				}
			}
		}
		if len(list3(v, "levels")) != 3 || len(list3(v, "ends")) != 0 {
			return errors.New("levels or ends")
		}
		return nil
	})
	embeddedtest.EditStatus(t, l.c, lost, func(w *kueue.Workload) {
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Inadmissible", Message: "no such queue", LastTransitionTime: metav1.Now()}}
	})
	l.explained(token, "/ws/workload/"+l.red+"/lost/explanation", func(v map[string]any) error {
		if v["message"] != "no such queue" || len(list3(v, "levels")) != 0 {
			return errors.New("not that")
		}
		return nil
	})
}

// As a user: the row of a pending workload leads to its explanation by the keyboard, which follows the queue and keeps the focus. Texts of
// others are texts, and a viewer of one namespace sees no names of others.
func TestExplanationPage(t *testing.T) {
	t.Parallel()
	l := newLine(t, func(s *Server) { s.options.Origins = nil })
	l.full()
	evil := l.workload(l.red, "evil", "")
	embeddedtest.EditStatus(t, l.c, evil, func(w *kueue.Workload) {
		w.Status.Conditions = []metav1.Condition{{
			Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", LastTransitionTime: metav1.Now(),
			Message: `</pre><img src=x onerror="window.hacked=1"><script>window.hacked=2</script>`,
		}}
	})
	b := newBrowser(t)
	b.login(l.world, "/workloads?namespace="+l.red, l.administrator())
	b.shows("train", "explain")
	find[bool](b, `document.querySelector('a[aria-label="explain why train waits"]').focus() ?? true`)
	b.do(chromedp.KeyEvent("\r"))
	b.shows("Why "+l.red+"/train waits", "2 cpu missing", "short here", "the next one", l.red+"-top", l.blue+"/secret", "1 workload has to end", "Flavors that were tried")
	if got := find[string](b, "location.pathname"); got != "/workload/"+l.red+"/train/explanation" {
		t.Errorf("the page is %s", got)
	}
	if got := find[string](b, `document.querySelector(".level.short").getAttribute("aria-label")`); got != "Cohort "+l.red+"-top" {
		t.Errorf("the level that is short is %s", got)
	}
	b.picture("explanation")
	b.narrow()
	b.picture("explanation-narrow")
	b.wide()
	find[bool](b, `document.querySelector('.level a').focus() ?? true`)
	l.priority = 5
	l.submit(l.red, "urgent", 4)
	b.shows("behind 1 other")
	if got := find[string](b, "document.activeElement.tagName + document.activeElement.closest('.level')?.ariaLabel"); !strings.HasPrefix(got, "ACohort") {
		t.Errorf("the focus is on %s after an update", got)
	}
	b.do(chromedp.Navigate("http://" + l.url + "/workload/" + l.red + "/evil/explanation"))
	b.shows(`<img src=x onerror=`)
	b.harmless()
	viewer := l.viewer()
	l.mayAsk()
	b.do(chromedp.Click("#leave"))
	b.login(l.world, "/workload/"+l.red+"/train/explanation", viewer)
	b.shows("that you may not see", "1 of them is in namespaces that you may not see")
	if text := find[string](b, "document.documentElement.outerHTML"); strings.Contains(text, "secret") || strings.Contains(text, l.blue) {
		t.Error("the viewer of one namespace sees what is in others")
	}
	b.picture("explanation-viewer")
}

// As a user: when a token is no longer good, a page that is open leads to the login, and from there back.
func TestTokenEndsPage(t *testing.T) {
	t.Parallel()
	l := newLine(t, func(s *Server) { s.options.Origins, s.pace.recheck = nil, 200*time.Millisecond })
	l.full()
	b := newBrowser(t)
	path := "/workload/" + l.red + "/train/explanation"
	b.login(l.world, path, l.administrator())
	b.shows("short here")
	l.must(l.c.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.red, Name: "admin"}}))
	b.shows("Log in")
	if got := find[string](b, "location.pathname + decodeURIComponent(location.search)"); got != "/login?to="+path {
		t.Errorf("the page is %s", got)
	}
	viewer := l.viewer()
	l.mayAsk()
	b.do(chromedp.SetValue("#token", viewer), chromedp.Click("form button"))
	b.shows("that you may not see")
}
