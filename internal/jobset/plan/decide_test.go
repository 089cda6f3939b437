package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// 60 §4.12: a JobSet whose owner has not finished outlives its time.
func TestTimeToLive(t *testing.T) {
	w := running(t, 1)
	w.js.Spec.TTLSecondsAfterFinished = new(int32(0))
	w.js.Status.Conditions = []metav1.Condition{{Type: "Failed", Status: "True", LastTransitionTime: metav1.NewTime(w.now)}}
	o := w.observed()
	o.OwnerActive = true
	if p := w.c.Decide(o); p.DeleteJobSet || p.After != ownerPause {
		t.Errorf("with an active owner: delete %v, again in %s", p.DeleteJobSet, p.After)
	}
	o.OwnerActive = false
	if p := w.c.Decide(o); !p.DeleteJobSet || p.After != 0 {
		t.Errorf("without: delete %v, again in %s", p.DeleteJobSet, p.After)
	}
}

// 60 §5.1: only a change of status is a transition, but any change is told.
func TestConditionTimes(t *testing.T) {
	then := metav1.NewTime(time.Unix(1000, 0))
	later := metav1.NewTime(time.Unix(2000, 0))
	p := &pass{now: later}
	p.status.Conditions = []metav1.Condition{{Type: "RestartingJobSet", Status: "True", Reason: "A", Message: "m", LastTransitionTime: then}}
	for i, step := range []struct {
		status          metav1.ConditionStatus
		reason, message string
		at              metav1.Time
		events          int
	}{
		{"True", "A", "m", then, 0},
		{"True", "B", "m", then, 1},
		{"True", "B", "n", then, 2},
		{"False", "B", "n", later, 3},
	} {
		p.set(jobsetv1alpha2.ConditionRestarting, step.status, step.reason, step.message)
		if c := p.status.Conditions[0]; !c.LastTransitionTime.Equal(&step.at) || len(p.plan.Events) != step.events || c.Reason != step.reason || c.Message != step.message {
			t.Errorf("step %d: %+v, %d events", i, c, len(p.plan.Events))
		}
	}
}

// 60 §6.1: of a large JobSet, counters on their way are written now and then, steps that others wait for at once.
func TestCountersAreHeldBack(t *testing.T) {
	const n = 1000
	for name, test := range map[string]struct {
		ready int // Jobs, of which one was ready before
		since time.Duration
		want  bool // a status
		after time.Duration
	}{
		"on their way":      {500, time.Second, false, 4 * time.Second},
		"after a pause":     {500, 5 * time.Second, true, 0},
		"all":               {n, time.Second, true, 0},
		"none":              {0, time.Second, true, 0},
		"nothing to write":  {1, time.Second, false, 0},
		"with no knowledge": {500, 1000 * time.Hour, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := big(t, n)
			w.command("decide quietly")
			w.job(JobName("ring", "oar", 0), "ready", []string{"1"})
			w.command("decide quietly")
			w.job(JobName("ring", "oar", 0), "active", []string{"0"})
			for i := range test.ready {
				w.job(JobName("ring", "oar", i), "ready", []string{"1"})
			}
			o := w.observed()
			o.CountersWritten = w.now.Add(-test.since)
			if p := w.c.Decide(o); (p.Status != nil) != test.want || p.After != test.after {
				t.Errorf("status %v, again in %s", p.Status, p.After)
			}
		})
	}
}

// A Job that has the labels of one of the JobSet's but another name stands for none of them.
func TestOddName(t *testing.T) {
	w := running(t, 3)
	odd := w.jobs["ring-oar-1"]
	delete(w.jobs, odd.Name)
	odd.Name = "odd"
	w.jobs[odd.Name] = odd
	p := w.c.Decide(w.observed())
	if made := built(&p); len(made) != 1 || made[0].Name != "ring-oar-1" {
		t.Errorf("it creates %d Jobs: %+v", len(made), made)
	}
}
