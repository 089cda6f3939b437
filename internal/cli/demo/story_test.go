package demo

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/goldentest"
)

// workload is a Workload with conditions such as "QuotaReserved=False: the message".
func workload(team string, conditions ...string) *kueue.Workload {
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: team}}
	for _, text := range conditions {
		head, message, _ := strings.Cut(text, ": ")
		kind, status, _ := strings.Cut(head, "=")
		status, reason, _ := strings.Cut(status, "/")
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message})
	}
	return w
}

func ready(team, name string, pods int32) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name}, Status: batchv1.JobStatus{Ready: &pods}}
}

const (
	short    = "QuotaReserved=False: pod set main: nvidia.com/gpu in flavor gpus: 8 more needed (8 requested, 0 available); it is looked at again as soon as quota is released"
	reserved = "QuotaReserved=True"
	evicted  = "Evicted=True: Preempted to accommodate a workload (UID: 1, JobUID: 2) due to reclamation within the cohort"
)

func at(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// told is a story with two jobs: one borrows and is preempted, the other reclaims its quota.
func told(t *testing.T) *story {
	t.Helper()
	s := &story{total: 2}
	saw := func(team, job string, when float64, conditions ...string) {
		s.sawWorkload(workload(team, conditions...), job, at(when))
	}
	s.submit(order{"team-a", "sweep", "low", 24, 9 * time.Second}, 0)
	saw("team-a", "sweep", 0.1)
	saw("team-a", "sweep", 0.2, reserved)
	s.sawJob(ready("team-a", "sweep", 6), at(1))
	s.submit(order{"team-b", "train", "high", 16, 4 * time.Second}, at(4))
	saw("team-b", "train", 4.1, "QuotaReserved=False: Waiting for 1 preempted workload to stop: team-a/sweep")
	saw("team-a", "sweep", 4.2, reserved, evicted)
	s.sawJob(ready("team-a", "sweep", 0), at(4.5))
	saw("team-a", "sweep", 4.6, short, evicted)
	saw("team-b", "train", 4.7, reserved)
	s.sawJob(ready("team-b", "train", 4), at(5))
	return s
}

func finish(s *story) {
	s.sawWorkload(workload("team-b", reserved, "Finished=True/Succeeded"), "train", at(10))
	s.sawWorkload(workload("team-a", reserved), "sweep", at(10.1))
	s.sawJob(ready("team-a", "sweep", 6), at(11))
	s.sawWorkload(workload("team-a", reserved, "Finished=True/Succeeded"), "sweep", at(20))
}

func TestStory(t *testing.T) {
	s := told(t)
	if s.done() || s.ahead() {
		t.Error("done, or ahead, in the middle")
	}
	s.submit(order{team: "team-a", name: "other"}, at(6))
	if !s.ahead() {
		t.Error("not ahead with a job that nobody has seen")
	}
	s.jobs = s.jobs[:2]
	finish(s)
	if !s.done() {
		t.Error("not done at the end")
	}
	phases := func(l *life) string {
		var out []string
		for _, span := range l.spans {
			out = append(out, span.phase.String())
		}
		return strings.Join(out, " ")
	}
	for name, want := range map[string]string{
		"team-a/sweep": "submitted waiting starting running stopping waiting starting running finished",
		"team-b/train": "submitted waiting starting running finished",
	} {
		team, job, _ := strings.Cut(name, "/")
		if got := phases(s.find(team, job)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := s.find("team-a", "sweep").preemptions; got != 1 {
		t.Errorf("%d preemptions", got)
	}
	for _, tc := range []struct {
		when float64
		team string
		want int32
	}{{0.1, "team-a", 0}, {0.2, "team-a", 24}, {4.5, "team-a", 24}, {4.65, "team-a", 0}, {4.65, "team-b", 0}, {4.7, "team-b", 16}, {10, "team-b", 0}, {30, "team-a", 0}} {
		if got := s.inUse(tc.team, at(tc.when)); got != tc.want {
			t.Errorf("%s uses %d at %v s, want %d", tc.team, got, tc.when, tc.want)
		}
	}
	if a, b, both := s.peak("team-a"), s.peak("team-b"), s.peak(teams...); a != 24 || b != 16 || both != 24 {
		t.Errorf("peaks %d, %d, together %d", a, b, both)
	}
}

func TestReason(t *testing.T) {
	s := told(t)
	l := s.find("team-a", "sweep")
	if !strings.HasPrefix(l.why, "pod set main: nvidia.com/gpu in flavor gpus: 8 more needed") {
		t.Errorf("why is %q", l.why)
	}
	s.sawWorkload(workload("team-a", reserved, evicted), "sweep", at(5))
	if want := "Preempted to accommodate a workload due to reclamation within the cohort"; l.why != want {
		t.Errorf("why is %q, want %q", l.why, want)
	}
	s.sawWorkload(workload("team-a", reserved), "sweep", at(6))
	if l.why != "" {
		t.Errorf("why is %q while it has quota", l.why)
	}
}

// Ended pods do not make a job start again before Berth has observed that it finished.
func TestNoWayBackFromRunning(t *testing.T) {
	s := told(t)
	if _, changed := s.sawJob(ready("team-b", "train", 0), at(9)); changed {
		t.Error("the end of the pods is news")
	}
	if got := s.find("team-b", "train").now().phase; got != running {
		t.Errorf("it is %s", got)
	}
}

func TestFailedJob(t *testing.T) {
	s := told(t)
	n, changed := s.sawWorkload(workload("team-b", reserved, "Finished=True/Failed: the backoff limit is reached"), "train", at(8))
	if !changed || n.job.now().phase != failed || n.job.why != "the backoff limit is reached" || n.from != running {
		t.Errorf("%+v", n)
	}
	if err := (&play{story: s}).verdict(); err == nil || !strings.Contains(err.Error(), "team-b/train failed: the backoff limit is reached") {
		t.Errorf("verdict: %v", err)
	}
	if got := (&play{story: s}).unfinished(); got != "team-a/sweep (waiting)" {
		t.Errorf("unfinished: %s", got)
	}
}

// Objects of other jobs are ignored.
func TestStrangers(t *testing.T) {
	s := told(t)
	if _, changed := s.sawJob(ready("team-a", "other", 1), 0); changed {
		t.Error("a job that nobody submitted is news")
	}
	if _, changed := s.sawWorkload(workload("team-a"), "other", 0); changed {
		t.Error("a workload that nobody submitted is news")
	}
}

// TestScenario: the orders are sound, and the engine's script of the scenario has all of them.
func TestScenario(t *testing.T) {
	script, err := os.ReadFile("../../sim/testdata/start-demo.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range scenario {
		if s.says == "" || len(s.orders) == 0 {
			t.Errorf("step %+v is empty", s)
		}
		for _, o := range s.orders {
			if !slices.Contains(teams, o.team) || priorities[o.priority] == 0 || o.gpus%podGPUs != 0 || names[o.team+o.name] {
				t.Errorf("order %+v", o)
			}
			names[o.team+o.name] = true
			j := o.job()
			if got := int64(*j.Spec.Parallelism) * j.Spec.Template.Spec.Containers[0].Resources.Limits.Name(gpu, "").Value(); got != int64(o.gpus) {
				t.Errorf("job %s takes %d GPUs, want %d", o.name, got, o.gpus)
			}
			submit := fmt.Sprintf("submit %s queue=%s prio=%d gpu=%d\n", o.name, o.team, priorities[o.priority], o.gpus)
			if !strings.Contains(string(script), submit) {
				t.Errorf("the script does not have %q", submit)
			}
		}
	}
}

func TestSample(t *testing.T) {
	data, err := Sample()
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Check(t, "testdata/sample.txt", string(data))
}
