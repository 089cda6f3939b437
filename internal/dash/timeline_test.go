package dash

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/state"
)

// foreseen is when the Workloads train and later start: that of others is unknown.
func foreseen(s *Server) {
	in := func(minutes int) *metav1.Time {
		return new(metav1.NewTime(time.Now().Add(time.Duration(minutes) * time.Minute).Truncate(time.Second)))
	}
	s.Starts = func(w *kueue.Workload) *berthv1alpha1.ExpectedStart {
		switch w.Name {
		case "train":
			return &berthv1alpha1.ExpectedStart{P10: in(20), P50: in(35), P90: in(80), Until: in(600)}
		case "later":
			return &berthv1alpha1.ExpectedStart{P10: in(200), Until: in(600)}
		}
		return &berthv1alpha1.ExpectedStart{Unknown: "run times are unknown"}
	}
}

// admitted gives a Workload the status of an admission to the ClusterQueue of red for some minutes.
func (l *line) admitted(w *kueue.Workload, minutes int, more ...metav1.Condition) {
	l.Helper()
	at := metav1.NewTime(time.Now().Add(-time.Duration(minutes) * time.Minute).Truncate(time.Second))
	embeddedtest.EditStatus(l.TB, l.c, w, func(w *kueue.Workload) {
		w.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(l.red), PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(1))}}}
		for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, LastTransitionTime: at})
		}
		w.Status.Conditions = append(w.Status.Conditions, more...)
	})
}

// busy is the ClusterQueue red with runs of red and of blue, and Workloads that wait.
func (l *line) busy() {
	l.Helper()
	ended := func(minutes int, reason string) metav1.Condition {
		return metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Duration(minutes) * time.Minute).Truncate(time.Second))}
	}
	l.apply(state.SetLocalQueue(state.LocalQueue{Namespace: l.blue, Name: "main", Queue: l.red}))
	l.admitted(l.holding(l.red, "own", 2), 25)
	l.admitted(l.workload(l.red, "done", ""), 50, ended(30, kueue.ReasonSucceeded))
	l.admitted(l.workload(l.red, "broken", ""), 40, ended(10, kueue.ReasonFailed))
	l.admitted(l.workload(l.blue, "secret-run", ""), 40, ended(5, kueue.ReasonSucceeded))
	l.submit(l.red, "train", 5)
	l.submit(l.red, "later", 5)
	l.submit(l.red, "vague", 5)
	l.submit(l.blue, "secret-wait", 5)
}

// mayReadQueue lets the viewer get the ClusterQueue red.
func (l *line) mayReadQueue() {
	l.Helper()
	l.create(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: l.red + "-queue"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"clusterqueues"}, Verbs: []string{"get", "list"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: l.red + "-queue"}, Subjects: []rbacv1.Subject{l.subject("viewer")},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: l.red + "-queue"},
		})
}

func namesIn(v map[string]any, key string) (names []string) {
	for _, o := range list3(v, key) {
		names = append(names, fmt.Sprint(o["name"]))
	}
	return names
}

// TestTimeline: a timeline has the runs of a ClusterQueue and the next starts, by name in the namespaces of the caller.
func TestTimeline(t *testing.T) {
	l := newLine(t, foreseen)
	l.busy()
	admin, viewer := l.administrator(), l.viewer()
	l.mayReadQueue()
	path := "/ws/cluster-queue/" + l.red + "/timeline"
	l.explained(admin, path, func(v map[string]any) error {
		if got, want := namesIn(v, "runs"), []string{"own", "secret-run", "broken", "done"}; !slices.Equal(got, want) {
			return fmt.Errorf("runs %v, not %v", got, want)
		}
		if got, want := namesIn(v, "waiting"), []string{"train", "later", "vague", "secret-wait"}; !slices.Equal(got, want) {
			return fmt.Errorf("%v wait, not %v", got, want)
		}
		runs, waits := list3(v, "runs"), list3(v, "waiting")
		if runs[0]["end"] != nil || runs[0]["expected"] == nil || runs[2]["outcome"] != "failed" || runs[3]["outcome"] != "finished" {
			return errors.New("outcomes")
		}
		if d := document(waits[0]); d.at("start", "p90") == nil || document(waits[2]).at("start", "unknown") != "run times are unknown" || waits[1]["position"] != 1.0 {
			return errors.New("starts")
		}
		return nil
	})
	text := l.explained(viewer, path, func(v map[string]any) error {
		if got, want := namesIn(v, "runs"), []string{"own", "broken", "done"}; !slices.Equal(got, want) || v["otherRuns"] != 1.0 || v["otherWaiting"] != 1.0 {
			return fmt.Errorf("runs %v, not %v", got, want)
		}
		return nil
	})
	if strings.Contains(text, "secret") || strings.Contains(text, l.blue) {
		t.Errorf("the viewer of one namespace sees what is in others: %s", text)
	}
}

// A timeline names a bounded number of Workloads, and counts the others.
func TestTimelineIsBounded(t *testing.T) {
	l := newLine(t, asIs)
	const many = scanned*shownStart + 50
	for i := range many {
		name := fmt.Sprint("w", i)
		l.s.Apply(state.SetWorkload(state.Workload{
			UID: name, Namespace: l.red, Name: name, Version: 1, LocalQueue: "main", Queueable: true, Since: workload.Instant(i + 1),
			PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: []state.Request{{Resource: "cpu", Amount: 9000}}}},
		}))
		l.server.history.observe(nil, lived(name, l.red, time.Now(), map[string]time.Duration{kueue.WorkloadAdmitted: time.Minute, kueue.WorkloadFinished: 0}, "Any"))
	}
	l.explained(l.administrator(), "/ws/cluster-queue/"+l.red+"/timeline", func(v map[string]any) error {
		runs, waits := len(list3(v, "runs")), len(list3(v, "waiting"))
		if runs != shownRuns || waits != shownStart || v["moreRuns"] != float64(many-shownRuns) || v["moreWaiting"] != float64(many-shownStart) {
			return fmt.Errorf("%d runs and %v more, %d wait and %v more", runs, v["moreRuns"], waits, v["moreWaiting"])
		}
		return nil
	})
}

// As a user: the page of a ClusterQueue has its last hour and the next starts as a picture whose bars are links for the keyboard, as a table, and
// the course of its use; it follows what happens.
func TestTimelinePage(t *testing.T) {
	t.Parallel()
	l := newLine(t, func(s *Server) {
		foreseen(s)
		s.options.Origins, s.pace.samples = nil, 200*time.Millisecond
	})
	l.busy()
	b := newBrowser(t)
	b.login(l.world, "/cluster-queue/"+l.red, l.administrator())
	b.shows("The last hour, and the next two", l.red+"/own, runs since", "until about", l.red+"/broken, failed at", l.red+"/train, starts about", "Starts that are unknown", "run times are unknown",
		"Use of its quota", "2 of 3 now")
	if got := find[string](b, `["run running", "run finished", "run failed", "window", "median"].map((c) => document.querySelectorAll('.timeline [class="' + c + '"]').length).join(" ")`); got != "1 2 1 1 1" {
		t.Errorf("drawn are %s", got)
	}
	b.picture("timeline")
	b.narrow()
	b.picture("timeline-narrow")
	b.wide()
	find[bool](b, `document.querySelector("summary").focus() ?? true`)
	b.do(chromedp.KeyEvent("\r"))
	b.shows("no. 2 in line")
	find[bool](b, `[...document.querySelectorAll(".timeline a")].find((a) => a.textContent.includes("own")).focus() ?? true`)
	l.submit(l.red, "fresh", 5)
	b.shows("no. 5 in line")
	if got := find[string](b, `document.activeElement.getAttribute("aria-label") + document.querySelector("details").open`); !strings.HasPrefix(got, l.red+"/own: runs since") || !strings.HasSuffix(got, "true") {
		t.Errorf("after an update the focus and the table are %s", got)
	}
	b.do(chromedp.KeyEvent("\r"))
	wait.Until(t, "the bar leads to its Workload", func() error {
		if got := find[string](b, "location.pathname"); got != "/workload/"+l.red+"/own" {
			return errors.New(got)
		}
		return nil
	})
	b.do(chromedp.Navigate("http://" + l.url + "/"))
	b.shows("cpu since", "2 of 6 now")
	b.picture("start-usage")
}
