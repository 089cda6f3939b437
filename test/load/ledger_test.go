package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// tiny has two queues of 4 cores, one of which may borrow 2.
var tiny = shape{name: "tiny", cohorts: 1, queues: 2, nominal: 4, borrowingLimit: 2, classes: []class{
	{name: "half", count: 3, cpu: 2, runs: time.Second, every: time.Second, priority: 1},
	{name: "all", count: 1, cpu: 4, runs: 2 * time.Second, every: time.Second, priority: 2},
}}

// scene is a ledger and the workloads it is shown.
type scene struct {
	*testing.T
	l   *ledger
	all map[string]*kueue.Workload
}

func newScene(t *testing.T) *scene {
	s := &scene{t, newLedger(&tiny, tiny.arrivals(1)), map[string]*kueue.Workload{}}
	for i := range s.l.entries {
		a := &s.l.entries[i].arrival
		w := newWorkload(&tiny, a.cohort, a.queue, a.class)
		w.Name = tiny.workloadName(a)
		s.all[w.Name] = w
	}
	return s
}

// see shows a workload after a change of its status.
func (s *scene) see(name string, at int, change func(lifecycle.Machine, *kueue.Workload)) order {
	s.Helper()
	w := s.all[name]
	change(lifecycle.Machine{}, w)
	i, ok := s.l.find(w)
	if !ok {
		s.Fatalf("%s is not found", name)
	}
	return s.l.see(i, w.DeepCopy(), 0, time.Duration(at)*time.Second)
}

func created(lifecycle.Machine, *kueue.Workload) {}

func admission(queue, cores string) func(lifecycle.Machine, *kueue.Workload) {
	return func(m lifecycle.Machine, w *kueue.Workload) {
		m.Reserve(w, &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", ResourceUsage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cores)},
		}}}, nil, metav1.Now())
	}
}

func evicted(m lifecycle.Machine, w *kueue.Workload) {
	m.Preempt(w, kueue.ReasonInClusterQueue, "", metav1.Now())
}
func released(m lifecycle.Machine, w *kueue.Workload) { m.Release(w, false, metav1.Now()) }
func finished(m lifecycle.Machine, w *kueue.Workload) {
	m.Finish(w, kueue.ReasonSucceeded, "", metav1.Now())
}

func TestLedgerFollowsOneWorkload(t *testing.T) {
	const name = "load-0-0-half-0"
	s := newScene(t)
	steps := []struct {
		what   string
		at     int
		change func(lifecycle.Machine, *kueue.Workload)
		want   order
		used   int64
	}{
		{"created", 0, created, nothing, 0},
		{"waits", 1, func(m lifecycle.Machine, w *kueue.Workload) {
			m.Pending(w, kueue.ReasonWaitingForQuota, "", metav1.Now())
		}, nothing, 0},
		{"admitted", 2, admission("load-0-0", "2"), start, 2},
		{"seen again", 3, created, nothing, 2},
		{"evicted", 4, evicted, release, 2},
		{"evicted, seen again", 5, created, nothing, 2},
		{"released", 6, released, nothing, 0},
		{"admitted again", 8, admission("load-0-0", "2"), start, 2},
		{"finished", 9, finished, nothing, 0},
	}
	for _, step := range steps {
		if got := s.see(name, step.at, step.change); got != step.want {
			t.Errorf("%s: the order is %d, want %d", step.what, got, step.want)
		}
		if s.l.used[0] != step.used {
			t.Errorf("%s: %d cores in use, want %d", step.what, s.l.used[0], step.used)
		}
	}
	i := s.l.byName[name]
	e := s.l.entries[i]
	if e.phase != done || e.evicted != 1 || e.wait != 2*time.Second || s.l.created != 1 || s.l.done != 1 || s.l.running != 0 {
		t.Errorf("in the end: %+v, %d created, %d done, %d running", e, s.l.created, s.l.done, s.l.running)
	}
	if s.l.lost != 4 {
		t.Errorf("%v core seconds are lost, want 2 cores for 2 s", s.l.lost)
	}
	if s.l.broken != 0 {
		t.Errorf("complains: %q", s.l.problems)
	}
	if got := s.l.waits(-1); !slices.Equal(got, []float64{2000}) {
		t.Errorf("waits are %v", got)
	}
	// 2 of 8 cores from 2 s to 6 s and from 8 s to 9 s
	want := []float64{1. / 12, 0.25, 1. / 12}
	for k, got := range s.l.utilisation(9*time.Second, 3) {
		if math.Abs(got-want[k]) > 1e-9 {
			t.Errorf("utilisation of part %d is %v, want %v", k, got, want[k])
		}
	}
}

func TestTimerOfAnEarlierRun(t *testing.T) {
	const name = "load-0-0-half-0"
	s := newScene(t)
	i := s.l.byName[name]
	s.see(name, 0, admission("load-0-0", "2"))
	first := s.l.entries[i].run
	if !s.l.due(i, first) {
		t.Error("the first run is not due")
	}
	s.see(name, 1, evicted)
	if s.l.due(i, first) {
		t.Error("the first run is due after its eviction")
	}
	s.see(name, 2, released)
	s.see(name, 3, admission("load-0-0", "2"))
	if s.l.due(i, first) || !s.l.due(i, s.l.entries[i].run) {
		t.Error("not the second run is due, but the first")
	}
}

func TestBrokenPromises(t *testing.T) {
	reserve := func(s *scene, names ...string) {
		for _, name := range names {
			s.see(name, 0, admission(name[:len("load-0-0")], map[bool]string{true: "4", false: "2"}[strings.Contains(name, "all")]))
		}
	}
	for name, tc := range map[string]struct {
		do   func(*scene)
		want string // "" for nothing
	}{
		"a full cohort is fine": {func(s *scene) {
			reserve(s, "load-0-0-all-0", "load-0-1-all-0")
		}, ""},
		"borrowing is fine": {func(s *scene) {
			reserve(s, "load-0-0-all-0", "load-0-0-half-0", "load-0-1-half-0")
		}, ""},
		"too much in the cohort": {func(s *scene) {
			reserve(s, "load-0-0-all-0", "load-0-1-all-0", "load-0-1-half-0")
		}, "load-0-1-half-0: cohort load-0 uses 10 of 8 cores"},
		"too much in a queue": {func(s *scene) {
			reserve(s, "load-0-0-all-0", "load-0-0-half-0", "load-0-0-half-1")
		}, "load-0-0-half-1: queue load-0-0 uses 8 of at most 6 cores"},
		"quota of an evicted one given away": {func(s *scene) {
			reserve(s, "load-0-0-all-0", "load-0-1-all-0")
			s.see("load-0-0-all-0", 1, evicted)
			reserve(s, "load-0-0-half-0")
		}, "load-0-0-half-0: cohort load-0 uses 10 of 8 cores"},
		"quota of a finished one is free": {func(s *scene) {
			reserve(s, "load-0-0-all-0", "load-0-1-all-0")
			s.see("load-0-0-all-0", 1, finished)
			reserve(s, "load-0-0-half-0")
		}, ""},
		"admitted with less": {func(s *scene) {
			s.see("load-0-0-all-0", 0, admission("load-0-0", "2"))
		}, "load-0-0-all-0 is admitted to load-0-0 with 2 cores, but it asks load-0-0 for 4"},
		"admitted elsewhere": {func(s *scene) {
			s.see("load-0-0-all-0", 0, admission("load-0-1", "4"))
		}, "load-0-0-all-0 is admitted to load-0-1 with 4 cores, but it asks load-0-0 for 4"},
		"quota taken without an eviction": {func(s *scene) {
			reserve(s, "load-0-0-all-0")
			s.see("load-0-0-all-0", 1, func(m lifecycle.Machine, w *kueue.Workload) {
				m.Pending(w, kueue.ReasonWaitingForQuota, "", metav1.Now())
			})
		}, "load-0-0-all-0 lost its quota without an eviction"},
		"admitted before the release": {func(s *scene) {
			reserve(s, "load-0-0-all-0")
			s.see("load-0-0-all-0", 1, evicted)
			reserve(s, "load-0-0-all-0")
		}, "load-0-0-all-0 was admitted again before it gave its quota back"},
		"deleted": {func(s *scene) {
			s.l.gone(s.l.byName["load-0-1-half-2"])
		}, "load-0-1-half-2 was deleted"},
		"a stranger": {func(s *scene) {
			s.l.find(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "load-0", Name: "who"}})
		}, "workload load-0/who is none of ours"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			tc.do(s)
			if got := strings.Join(s.l.problems, "\n"); got != tc.want || (s.l.broken > 0) != (tc.want != "") {
				t.Errorf("complains %q, want %q", got, tc.want)
			}
		})
	}
}

func TestProblemsAreBounded(t *testing.T) {
	l := newLedger(&tiny, nil)
	for range maxProblems + 7 {
		l.problem("again")
	}
	if len(l.problems) != maxProblems || l.broken != maxProblems+7 {
		t.Errorf("%d in words, %d in all", len(l.problems), l.broken)
	}
}

func TestUtilisationOfNothing(t *testing.T) {
	l := newLedger(&tiny, nil)
	if got := l.utilisation(0, 2); !slices.Equal(got, []float64{0, 0}) {
		t.Errorf("%v", got)
	}
	if got := l.utilisation(time.Second, 2); !slices.Equal(got, []float64{0, 0}) {
		t.Errorf("%v", got)
	}
}

// Freed cores count as idle until they are taken again, the longest free first, and no longer than the workload that takes them waits.
func TestTakeAgain(t *testing.T) {
	l := newLedger(&tiny, tiny.arrivals(1))
	l.free[0] = []freed{{1 * time.Second, 2}, {4 * time.Second, 3}}
	l.takeAgain(0, 3, 0, 5*time.Second)
	l.takeAgain(0, 1, 6*time.Second, 7*time.Second)
	l.takeAgain(0, 4, 0, 9*time.Second) // of which three were never in use
	if want := []float64{4000, 4000, 1000, 1000, 5000}; !slices.Equal(l.idle, want) {
		t.Errorf("idle for %v ms, want %v", l.idle, want)
	}
	if len(l.free[0]) > 0 {
		t.Errorf("free cores are left: %v", l.free[0])
	}
}
