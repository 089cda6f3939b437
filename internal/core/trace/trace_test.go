package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/resource"
)

func short(name string, reason Reason, preemptible bool) Refusal {
	return Refusal{
		PodSet: "main", Resource: "cpu", Flavor: name, Reason: reason,
		Asked: 4000, Available: 1500, Potential: 3000, Preemptible: preemptible,
	}
}

// TestSentence: one sentence that says what is short and what would help.
func TestSentence(t *testing.T) {
	victims := func(n int) (out []Victim) {
		for i := range n {
			out = append(out, Victim{Key: "team/w" + string(rune('f'-i))})
		}
		return out
	}
	wakes := []string{"spot/cpu"}
	tests := map[string]struct {
		look Look
		want string
	}{
		"admitted": {Look{Queue: "q", Verdict: Admitted}, "Quota reserved in ClusterQueue q"},
		"one victim": {
			Look{Verdict: Preempts, Reason: WaitingForPreemptedWorkloads, Victims: victims(1)},
			"Waiting for 1 preempted workload to stop: team/wf",
		},
		"many victims": {
			Look{Verdict: Preempts, Reason: WaitingForPreemptedWorkloads, Victims: victims(6)},
			"Waiting for 6 preempted workloads to stop: team/wa, team/wb, team/wc, team/wd, and 2 more",
		},
		"quota": {
			Look{Verdict: Waits, Reason: WaitingForQuota, Refusals: []Refusal{short("spot", WaitingForQuota, false)}, WakesOn: wakes},
			"pod set main: cpu in flavor spot: 2500m more needed (4 requested, 1500m available); it is looked at again as soon as quota is released",
		},
		"nobody to preempt, told once": {
			Look{Verdict: Waits, Reason: WaitingForQuota, Refusals: []Refusal{short("a", WaitingForQuota, true), short("a", WaitingForQuota, true)}, WakesOn: wakes},
			"pod set main: cpu in flavor a: 2500m more needed (4 requested, 1500m available), and no workload may be preempted for it; it is looked at again as soon as quota is released",
		},
		"too large": {
			Look{Verdict: Waits, Reason: ExceedsMaxQuota, Refusals: []Refusal{short("spot", ExceedsMaxQuota, false)}},
			"pod set main: cpu in flavor spot: 4 requested, at most 3 can ever be had here; it can start only if quota is raised or its requests are lowered",
		},
		"no flavor": {
			Look{Verdict: Waits, Reason: NoMatchingFlavor, Refusals: []Refusal{{PodSet: "main", Flavor: "spot", Reason: NoMatchingFlavor, Detail: "flavor spot does not exist"}}},
			"pod set main: flavor spot does not exist",
		},
		"a note goes first": {
			Look{Verdict: Waits, Reason: WaitingForQuota, Note: "quota was given to another workload first", Refusals: []Refusal{short("spot", WaitingForQuota, false)}},
			"quota was given to another workload first",
		},
		"nothing known": {Look{Verdict: Waits, Reason: PendingEvaluation}, "not looked at yet"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.look.Sentence()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestString(t *testing.T) {
	look := Look{
		Workload: "team/train", Queue: "q", Priority: -3, Verdict: Preempts, Reason: WaitingForPreemptedWorkloads,
		Choices: []Choice{
			{"driver", "cpu", "spot", 1000, "fit", 0},
			{"workers", "memory", "ondemand", resource.Amount(8 << 30), "reclaim", 2},
		},
		Refusals: []Refusal{short("spot", WaitingForQuota, true)},
		Victims:  []Victim{{"team/old", "u1", "other", "InCohortReclamation"}},
		WakesOn:  []string{"ondemand/memory", "spot/cpu"},
	}
	want := `team/train in q (priority -3): preempts, WaitingForPreemptedWorkloads
  driver: 1 cpu from spot (fit)
  workers: 8Gi memory from ondemand (reclaim, borrows 2 up)
  main: cpu in flavor spot: 2500m more needed (4 requested, 1500m available), and no workload may be preempted for it [WaitingForQuota]
  preempts team/old in other: InCohortReclamation
  wakes on a release of ondemand/memory, spot/cpu
`
	if diff := cmp.Diff(want, look.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	nowhere := Look{Workload: "team/train", Verdict: Waits, Reason: Misconfigured, Note: "it names no LocalQueue"}
	if diff := cmp.Diff("team/train (priority 0): waits, Misconfigured\n  it names no LocalQueue\n", nowhere.String()); diff != "" {
		t.Errorf("without a queue (-want +got):\n%s", diff)
	}
}

// TestSeverity is the order of spec 10 §4.6.7.
func TestSeverity(t *testing.T) {
	order := []Reason{PendingEvaluation, WaitingForQuota, ExceedsMaxQuota, NoMatchingFlavor}
	for i := 1; i < len(order); i++ {
		if order[i-1].Severity() >= order[i].Severity() {
			t.Errorf("%s is not less severe than %s", order[i-1], order[i])
		}
	}
}
