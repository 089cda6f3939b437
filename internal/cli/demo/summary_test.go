package demo

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/berth-project/berth/internal/goldentest"
)

func TestSummary(t *testing.T) {
	s := told(t)
	finish(s)
	lines := summary(s)
	goldentest.Check(t, "testdata/summary.txt", strings.Join(lines, "\n")+"\n")
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 120 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

func TestScale(t *testing.T) {
	for name, tc := range map[string]struct {
		end  time.Duration
		step time.Duration
		n    int
	}{
		"nothing":     {0, 250 * time.Millisecond, 1},
		"short":       {5 * time.Second, 250 * time.Millisecond, 20},
		"the demo":    {30 * time.Second, 500 * time.Millisecond, 60},
		"slow":        {90 * time.Second, 2 * time.Second, 45},
		"for ever":    {3 * time.Hour, time.Minute, 180},
		"no remnants": {15501 * time.Millisecond, 500 * time.Millisecond, 32},
	} {
		t.Run(name, func(t *testing.T) {
			if step, n := scale(tc.end); step != tc.step || n != tc.n {
				t.Errorf("%s × %d, want %s × %d", step, n, tc.step, tc.n)
			}
		})
	}
}

// A preemption is shown however short it is, and however coarse the columns are.
func TestGanttKeepsPreemptions(t *testing.T) {
	l := &life{spans: []span{{submitted, 0}, {running, at(1)}, {stopping, at(5.1)}, {waiting, at(5.11)}, {running, at(5.2)}, {finished, at(9)}}}
	if got, want := gantt(l, time.Second, 10), "·████x███"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestResourceOf(t *testing.T) {
	for path, want := range map[string]target{
		"/api/v1/namespaces":                                           "namespaces",
		"/api/v1/namespaces/x":                                         "namespaces",
		"/api/v1/namespaces/x/status":                                  "namespaces/status",
		"/api/v1/namespaces/x/pods":                                    "pods",
		"/api/v1/namespaces/x/pods/p":                                  "pods",
		"/api/v1/namespaces/x/pods/p/status":                           "pods/status",
		"/apis/kueue.x-k8s.io/v1beta2/namespaces/x/workloads/w/status": "workloads/status",
		"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q/status":          "clusterqueues/status",
		"/apis/batch/v1/namespaces/x/jobs/j":                           "jobs",
		"/version":                                                     "/version",
	} {
		if got := resourceOf(path); got != want {
			t.Errorf("resourceOf(%s) = %s, want %s", path, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	s := told(t)
	manager := counts{"workloads": 2, "workloads/status": 5, "jobs": 3, "events": 4, "clusterqueues/status": 6, "leases": 0}.since(counts{"events": 1})
	for name, tc := range map[string]struct {
		server counts
		want   string
	}{
		"the same":  {counts{"workloads": 3, "workloads/status": 4, "pods": 100}, "says of workloads: 7, the same."},
		"different": {counts{"workloads": 3, "workloads/status": 5}, "says of workloads: 8, while the manager sent 7."},
	} {
		t.Run(name, func(t *testing.T) {
			got := report(manager, tc.server, s)
			if len(got) != 3 || got[0] != "API writes by Berth: 10 for 2 jobs with 2 admissions and 1 preemptions, 5.0 a job: workloads 2, workloads/status 5, jobs 3." ||
				got[1] != "  Besides, with budgets of their own: clusterqueues/status 6, events 3." || !strings.HasSuffix(got[2], tc.want) {
				t.Errorf("%s", strings.Join(got, "\n"))
			}
		})
	}
}
