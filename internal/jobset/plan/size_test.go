package plan

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	jobsetv1alpha2 "github.com/berth-project/berth/api/jobset/v1alpha2"
)

// huge is a JobSet that was stored before webhooks refused it, of a manager that allows any number of Jobs.
func huge(t tester, replicas int32) *world {
	w := big(t, int(replicas))
	second := w.js.Spec.ReplicatedJobs[0].DeepCopy()
	second.Name = "cox"
	w.js.Spec.ReplicatedJobs = append(w.js.Spec.ReplicatedJobs, *second)
	w.c.MaxJobs = math.MaxInt32
	return w
}

// allocated is how many bytes are taken, whether or not they are given back.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A decision takes memory by the number of Jobs that there are, and not by the number that there should be.
func TestMissingJobsTakeNoMemory(t *testing.T) {
	took := func(replicas int32) uint64 {
		w := huge(t, replicas)
		o := w.observed()
		return allocated(func() {
			p, made := w.c.Decide(o), 0
			for range p.Create {
				if made++; made == 100 {
					break
				}
			}
			if made != 100 {
				t.Errorf("%d of 100 Jobs are to be created", made)
			}
		})
	}
	if few, many := took(100), took(1_000_000_000); many > few+64<<10 {
		t.Errorf("%d bytes for 1,000,000,000 replicas, %d for 100", many, few)
	}
}

// The Jobs that a success policy asks for are counted in 64 bits: one success is not enough for four billion.
func TestSuccessOfMany(t *testing.T) {
	w := huge(t, 1)
	w.command("decide quietly")
	w.job("ring-oar-0", "succeed", nil)
	for i := range w.js.Spec.ReplicatedJobs {
		w.js.Spec.ReplicatedJobs[i].Replicas = new(int32(math.MaxInt32))
	}
	w.c.MaxJobs = math.MaxInt32
	if p := w.c.Decide(w.observed()); p.Finished == jobsetv1alpha2.TerminalStateCompleted {
		t.Error("it is complete")
	}
}

// A JobSet with more Jobs than will ever be created fails and says so; one that has them all goes on, and so does one that is larger than
// the operator allows by now, but not than anybody may expect.
func TestStoredTooLarge(t *testing.T) {
	for name, test := range map[string]struct {
		replicas, most int32
		fails          bool
	}{
		"by far":           {math.MaxInt32, 0, true},
		"by one":           {50_001, 0, true},
		"allowed":          {50_000, 0, false},
		"allowed here":     {50_001, 200_000, false},
		"not allowed here": {50_000, 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := huge(t, test.replicas)
			w.c.MaxJobs = test.most
			o := w.observed()
			var p Plan
			if took := allocated(func() { p = w.c.Decide(o) }); took > 1<<20 {
				t.Errorf("it took %d bytes", took)
			}
			if (p.Finished == jobsetv1alpha2.TerminalStateFailed) != test.fails {
				t.Fatalf("finished: %q, want a failure: %v", p.Finished, test.fails)
			}
			if c := condition(p.Status, "Failed"); test.fails && (c.Reason != jobsetv1alpha2.ReasonJobCreationFailed || !strings.Contains(c.Message, "integrations.maxChildren allows 100000")) {
				t.Errorf("%+v", c)
			}
			if (p.Create == nil) != test.fails {
				t.Error("Jobs are to be created, or are not")
			}
		})
	}
}

// A suspended JobSet has its Jobs, suspended, if they are no more than a window; otherwise none, no Service, and all once it is resumed.
func TestSuspendedLargeJobSet(t *testing.T) {
	for name, test := range map[string]struct {
		replicas, want int
	}{"a window": {Window, Window}, "one more": {Window + 1, 0}} {
		t.Run(name, func(t *testing.T) {
			w := big(t, test.replicas)
			w.js.Spec.Suspend = new(true)
			p := w.c.Decide(w.observed())
			if n := len(missing(&p)); n != test.want || (p.Service != nil) != (test.want > 0) {
				t.Errorf("suspended: %d Jobs, want %d, and Service %v", n, test.want, p.Service != nil)
			}
			w.command("decide quietly")
			w.js = w.js.DeepCopy()
			w.js.Spec.Suspend = new(false)
			w.command("decide quietly")
			if len(w.jobs) != test.replicas || w.service == nil {
				t.Errorf("resumed: %d Jobs", len(w.jobs))
			}
		})
	}
}

// TestPatternsAreSearchedOnce: the patterns of a failure policy are compiled once in a decision, and searched once for each failed Job. To do
// so for each Job, rule and restart would take minutes here.
func TestPatternsAreSearchedOnce(t *testing.T) {
	const jobs = 1000
	w := big(t, jobs)
	w.c.RestartJob = true
	w.js.Spec.FailurePolicy.MaxRestarts = jobs
	rules := []jobsetv1alpha2.FailurePolicyRule{{Name: "never", Action: jobsetv1alpha2.ActionFailJobSet}, {Name: "other", Action: jobsetv1alpha2.ActionRestartJob}}
	for i := range maxPatterns {
		rules[0].OnJobFailureMessagePatterns = append(rules[0].OnJobFailureMessagePatterns, fmt.Sprintf("(exit code|status) [0-9]{50} of %d", i))
	}
	w.js.Spec.FailurePolicy.Rules = rules
	w.command("decide quietly")
	for name := range w.jobs {
		w.job(name, "fail", []string{"PodFailurePolicy", "a pod failed"})
	}
	if p := w.c.Decide(w.observed()); p.Restarted != jobs {
		t.Errorf("%d of %d Jobs are restarted", p.Restarted, jobs)
	}
}
