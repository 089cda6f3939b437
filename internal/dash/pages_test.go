package dash

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// hostile is a text that runs a script where it becomes part of a page.
const hostile = `</pre><img src=x onerror="window.hacked=1"><script>window.hacked=2</script>`

// nameless are the controls of a page of which a screen reader could only tell the kind.
const nameless = `[...document.querySelectorAll("a, button, input, select, textarea, summary")]
	.filter((e) => e.offsetParent && !(e.textContent.trim() || e.ariaLabel || e.title || e.labels?.length))
	.map((e) => e.outerHTML.slice(0, 100)).join("\n")`

// As a user: on every page texts of other users run no script, all controls have names, the keyboard reaches them, and a phone is wide enough. Who may see
// one namespace sees nothing of another one.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	l := newLine(t, func(s *Server) {
		foreseen(s)
		s.options.Origins = nil
	})
	l.full()
	evil := l.workload(l.red, "evil", "")
	l.create(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: l.red, Name: "evil"},
		InvolvedObject: corev1.ObjectReference{APIVersion: kueue.GroupVersion.String(), Kind: "Workload", Namespace: l.red, Name: evil.Name, UID: evil.UID},
		Reason:         "Pending", Message: hostile, Type: corev1.EventTypeNormal,
	})
	says := func(kind string) []metav1.Condition {
		return []metav1.Condition{{Type: kind, Status: metav1.ConditionFalse, Reason: "Pending", LastTransitionTime: metav1.Now(), Message: hostile}}
	}
	embeddedtest.EditStatus(t, l.c, evil, func(w *kueue.Workload) { w.Status.Conditions = says(kueue.WorkloadQuotaReserved) })
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: l.red}}
	embeddedtest.EditStatus(t, l.c, cq, func(q *kueue.ClusterQueue) { q.Status.Conditions = says(kueue.ClusterQueueActive) })
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: l.red, Name: "main"}}
	embeddedtest.EditStatus(t, l.c, lq, func(q *kueue.LocalQueue) { q.Status.Conditions = says(kueue.LocalQueueActive) })
	l.create(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: l.red}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}}}})
	l.settled(l.red, l.blue)
	pages := []struct{ path, shows, toViewer string }{
		{"/", "How full", "In the last hour"},
		{"/workloads?namespace=" + l.red, "evil", "evil"},
		{"/workload/" + l.red + "/evil", "<img src=x onerror=", "<img src=x onerror="},
		{"/workload/" + l.red + "/evil/explanation", "<img src=x onerror=", "may not get"},
		{"/local-queues?namespace=" + l.red, "main", "main"},
		{"/local-queue/" + l.red + "/main", "<img src=x onerror=", "<img src=x onerror="},
		{"/cluster-queues", l.red, "Cluster queues"},
		{"/cluster-queue/" + l.red, "<img src=x onerror=", "may not get"},
		{"/cohorts", l.red, "Cohorts"},
		{"/cohort/" + l.red, l.red, "may not get"},
		{"/resource-flavors", l.red, "Resource flavors"},
		{"/resource-flavor/" + l.red, l.red, "may not get"},
		{"/topologies", l.red, "Topologies"},
		{"/what-if", "no engine", "may not list"},
	}
	admin, viewer := newBrowser(t), newBrowser(t)
	admin.login(l.world, "/", l.administrator())
	viewer.login(l.world, "/", l.viewer())
	for _, page := range pages {
		for b, text := range map[*browser]string{admin: page.shows, viewer: page.toViewer} {
			b.do(chromedp.Navigate("http://" + l.url + page.path))
			b.shows(text)
			b.harmless()
			if got := find[string](b, nameless); got != "" {
				t.Errorf("%s has controls without names:\n%s", page.path, got)
			}
			b.narrow()
			b.wide()
			b.do(chromedp.KeyEvent("\t"))
			if got := find[string](b, "document.activeElement.tagName"); got == "BODY" {
				t.Errorf("%s: the keyboard reaches no control", page.path)
			}
		}
		if got := find[bool](viewer, `document.body.innerText.includes("`+l.blue+`")`); got {
			t.Errorf("%s shows a user of one namespace the name of another one", page.path)
		}
	}
}

// As a user: the lists of all Workloads and of the Workloads of a queue have pages, and the address of a page leads there again.
func TestWorkloadsByPage(t *testing.T) {
	t.Parallel()
	l := newLine(t, func(s *Server) { s.options.Origins = nil })
	for i := range 103 {
		l.workload(l.red, fmt.Sprintf("w-%03d", i), "")
	}
	b := newBrowser(t)
	b.login(l.world, "/", l.viewer())
	listed := func() []string {
		return strings.Fields(find[string](b, `[...document.querySelectorAll('main td a[href^="/workload/"]')].map((e) => e.textContent).filter((e) => e.startsWith("w-")).join(" ")`))
	}
	turn := func(to string) {
		find[bool](b, `[...document.querySelectorAll("main button")].find((e) => e.textContent === "`+to+`").click() ?? true`)
	}
	for _, path := range []string{"/workloads?namespace=" + l.red, "/local-queue/" + l.red + "/main"} {
		b.do(chromedp.Navigate("http://" + l.url + path))
		b.shows("1 to 100 of 103")
		first := listed()
		turn("Next")
		b.shows("101 to 103 of 103")
		last := listed()
		if all := slices.Compact(slices.Sorted(slices.Values(append(first, last...)))); len(first) != 100 || len(all) != 103 {
			t.Errorf("%s lists %v and %v", path, first, last)
		}
		turn("Next") // there is none
		b.do(chromedp.Click("input[type=search]"), chromedp.KeyEvent(last[0]))
		wait.Until(t, "only what was typed is shown", func() error {
			if got := listed(); !slices.Equal(got, last[:1]) {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
		b.do(chromedp.Navigate(find[string](b, "location.href")))
		b.shows("101 to 103 of 103")
		turn("Previous")
		b.shows("1 to 100 of 103")
	}
}
