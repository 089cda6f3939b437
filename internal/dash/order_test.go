package dash

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// lives makes Workloads in red in every state, named against the order of states.
func (w *world) lives() {
	w.Helper()
	now := time.Now().Truncate(time.Second)
	for _, of := range []struct {
		name       string
		priority   int32
		conditions map[string]time.Duration // how long they are true
		reason     string                   // of Finished
	}{
		{"a-done", 0, map[string]time.Duration{kueue.WorkloadQuotaReserved: 3 * time.Hour, kueue.WorkloadAdmitted: 3 * time.Hour, kueue.WorkloadFinished: 2 * time.Hour}, kueue.ReasonSucceeded},
		{"b-failed", 0, map[string]time.Duration{kueue.WorkloadAdmitted: 3 * time.Hour, kueue.WorkloadFinished: time.Minute}, kueue.ReasonFailed},
		{"c-runs", 0, map[string]time.Duration{kueue.WorkloadQuotaReserved: time.Hour, kueue.WorkloadAdmitted: 50 * time.Minute}, ""},
		{"d-started", 0, map[string]time.Duration{kueue.WorkloadQuotaReserved: time.Minute, kueue.WorkloadAdmitted: time.Minute}, ""},
		{"e-checked", 0, map[string]time.Duration{kueue.WorkloadQuotaReserved: time.Minute}, ""},
		{"f-waits", 5, nil, ""},
		{"g-back", 0, map[string]time.Duration{kueue.WorkloadEvicted: time.Minute}, ""},
		{"h-urgent", 10, nil, ""},
	} {
		wl := w.workload(w.red, of.name, "")
		if of.priority != 0 {
			wl.Spec.Priority = &of.priority
			w.must(w.c.Update(w.Context(), wl))
		}
		for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadFinished, kueue.WorkloadEvicted} {
			if ago, has := of.conditions[kind]; has {
				wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
					Type: kind, Status: metav1.ConditionTrue, Reason: kind, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
				})
				if kind == kueue.WorkloadFinished {
					wl.Status.Conditions[len(wl.Status.Conditions)-1].Reason = of.reason
				}
			}
		}
		if len(of.conditions) > 0 {
			w.must(w.c.Status().Update(w.Context(), wl))
		}
	}
}

func lined(s *Server) {
	s.Position = func(w *kueue.Workload) (string, int, bool) { return "gpus", 3, w.Name == "f-waits" }
}

// TestOrder: lists of Workloads are narrowed down to a state and sorted by it, and the start page counts the states and the last hour.
func TestOrder(t *testing.T) {
	w := newWorld(t, lined)
	w.queues()
	w.lives()
	token := w.administrator()
	const all = "h-urgent f-waits g-back e-checked d-started c-runs b-failed a-done"
	for query, want := range map[string]string{
		"&order=state":                  all,
		"&order=state&limit=3&offset=2": "g-back e-checked d-started",
		"&order=state&state=pending":    "h-urgent f-waits g-back",
		"&order=state&state=finished":   "b-failed a-done",
		"&order=name&state=admitted":    "c-runs d-started",
		"&state=quotareserved":          "e-checked",
	} {
		for _, path := range []string{"/ws/workloads?namespace=" + w.red, "/ws/local-queue/" + w.red + "/main/workloads?"} {
			for _, delta := range []string{"", "&delta=true"} {
				full := path + query + delta
				wait.Until(t, full, func() error {
					if got := w.names(token, full); got != want {
						return fmt.Errorf("lists %s, want %s", got, want)
					}
					return nil
				})
			}
		}
	}
	one := w.dial(token, "/ws/workload/"+w.red+"/f-waits").document()
	if diff := gocmp.Diff(map[string]any{"clusterQueue": "gpus", "before": 3.0}, one.at("position")); diff != "" {
		t.Errorf("position (-want +got):\n%s", diff)
	}
	sum := w.dial(token, "/ws/workloads/dashboard?namespace="+w.red).document().at("summary")
	want := map[string]any{
		"pending": 3.0, "quotareserved": 1.0, "admitted": 2.0, "finished": 2.0,
		"lastHour": map[string]any{"admitted": 2.0, "finished": 0.0, "failed": 1.0, "evicted": 1.0},
	}
	if diff := gocmp.Diff(want, sum); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

// names returns the names in a list, in its order; by name if it is an object without one.
func (w *world) names(token, path string) string {
	w.Helper()
	list := w.dial(token, path).document()
	var names []string
	switch items := list.at("items").(type) {
	case []any:
		for _, item := range items {
			names = append(names, fmt.Sprint(document(item.(map[string]any)).at("metadata", "name")))
		}
	case map[string]any:
		order, _ := list.at("order").([]any)
		for _, key := range order {
			names = append(names, fmt.Sprint(document(items[key.(string)].(map[string]any)).at("metadata", "name")))
		}
		if order == nil {
			names = strings.Fields(strings.ReplaceAll(keysOf(document(items)), w.red+"/", ""))
		}
	}
	return strings.Join(names, " ")
}

// As a user: the start page has the use of all quota, the pending Workloads and the last hour, and its numbers are links to Workloads.
func TestOverviewPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *Server) {
		lined(s)
		s.options.Origins = nil
	})
	w.queues()
	w.lives()
	b := newBrowser(t)
	page := "http://" + w.url
	b.do(chromedp.Navigate(page + "/"))
	b.shows("Log in")
	b.do(chromedp.SetValue("#token", w.administrator()), chromedp.Click("form button"))
	b.shows("How full", "cpu · 0 %", "0 of 3", "In the last hour", "What starts next", "Nothing whose start is known", "behind 3 others in gpus", "no. 4 in line")
	b.picture("start")
	b.do(chromedp.Navigate(page + "/workloads?state=finished&namespace=" + w.red))
	b.shows("b-failed", "a-done", "1 to 2 of 2")
	b.do(chromedp.Navigate(page + "/workloads?namespace=" + w.red))
	b.shows("h-urgent", "1 to 8 of 8")
	b.picture("workloads")
	if got := strings.Join(find[[]string](b, `[...document.querySelectorAll("tbody tr td:first-child")].map((c) => c.innerText)`), " "); !strings.HasPrefix(got, "h-urgent f-waits g-back e-checked") {
		t.Errorf("the page lists %s", got)
	}
	b.do(chromedp.SetValue(`select[aria-label="State"]`, "admitted"))
	find[bool](b, `document.querySelector('select[aria-label="State"]').dispatchEvent(new Event("change"))`)
	wait.Until(t, "only admitted ones are listed", func() error {
		if got := find[string](b, "document.body.innerText"); !strings.Contains(got, "1 to 2 of 2") || strings.Contains(got, "h-urgent") {
			return errors.New(got)
		}
		return nil
	})
}

// TestLeading: the leading objects begin the sorted list.
func TestLeading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.IntRange(0, 50)).Draw(t, "all")
		n := rapid.IntRange(0, 20).Draw(t, "n")
		got := leading(all, n, cmp.Compare[int])
		slices.Sort(all)
		if !slices.Equal(got, all[:min(n, len(all))]) {
			t.Errorf("the first %d of %v: %v", n, all, got)
		}
	})
}
