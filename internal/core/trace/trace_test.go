package trace

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/resource"
)

func short(name string, potential resource.Amount, reach *Reach) Refusal {
	return Refusal{
		PodSet: "main", Pair: &resource.Pair{Flavor: name, Resource: "cpu"},
		Asked: 4000, Available: 1500, Potential: potential, Reach: reach,
	}
}

// TestSentence: one sentence with the shortage and the remedy.
func TestSentence(t *testing.T) {
	victims := func(n int) (out []Victim) {
		for i := range n {
			out = append(out, Victim{Key: "team/w" + string(rune('f'-i))})
		}
		return out
	}
	table := resource.NewTable()
	wakes := []resource.FR{table.FR("spot", "cpu")}
	tests := map[string]struct {
		attempt Attempt
		want    string
	}{
		"admitted": {Attempt{Queue: "q", Verdict: Admitted}, "Quota reserved in ClusterQueue q"},
		"one victim": {
			Attempt{Verdict: Preempts, Reason: WaitingForPreemptedWorkloads, Victims: victims(1)},
			"Waiting for 1 preempted workload to stop: team/wf",
		},
		"many victims": {
			Attempt{Verdict: Preempts, Reason: WaitingForPreemptedWorkloads, Victims: victims(6)},
			"Waiting for 6 preempted workloads to stop: team/wa, team/wb, team/wc, team/wd, and 2 more",
		},
		"victims elsewhere": {
			*(&Attempt{Workload: "team/w", Verdict: Preempts, Victims: append(victims(1), Victim{Key: "other/a"}, Victim{Key: "third/a"})}).NamingOwn(),
			"Waiting for 3 preempted workloads to stop: team/wf, and 2 of other namespaces",
		},
		"only victims elsewhere": {
			*(&Attempt{Workload: "team/w", Verdict: Preempts, Victims: []Victim{{Key: "other/a"}}}).NamingOwn(),
			"Waiting for 1 preempted workload of other namespaces to stop",
		},
		"quota": {
			Attempt{Verdict: Waits, Reason: WaitingForQuota, Refusals: []Refusal{short("spot", 4000, nil)}, WakesOn: wakes, Table: table.Frozen()},
			"pod set main: cpu in flavor spot: 2500m more needed (4 requested, 1500m available); it is looked at again as soon as quota is released",
		},
		"nobody to preempt, told once": {
			Attempt{Verdict: Waits, Reason: WaitingForQuota, Refusals: []Refusal{short("a", 4000, &Reach{}), short("a", 4000, &Reach{})}, WakesOn: wakes, Table: table.Frozen()},
			"pod set main: cpu in flavor a: 2500m more needed (4 requested, 1500m available), and no workload may be preempted for it; it is looked at again as soon as quota is released",
		},
		"too large": {
			Attempt{Verdict: Waits, Reason: ExceedsMaxQuota, Refusals: []Refusal{short("spot", 3000, nil)}},
			"pod set main: cpu in flavor spot: 4 requested, at most 3 can ever be had here; it can start only if quota is raised or its requests are lowered",
		},
		"no flavor": {
			Attempt{Verdict: Waits, Reason: NoMatchingFlavor, Refusals: []Refusal{{PodSet: "main", Pair: &resource.Pair{Flavor: "spot"}, Detail: "flavor spot does not exist"}}},
			"pod set main: flavor spot does not exist",
		},
		"a note goes first": {
			Attempt{Verdict: Waits, Reason: WaitingForQuota, Note: "quota was given to another workload first", Refusals: []Refusal{short("spot", 4000, nil)}},
			"quota was given to another workload first",
		},
		"nothing known": {Attempt{Verdict: Waits, Reason: PendingEvaluation}, "not looked at yet"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.attempt.Sentence()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestString(t *testing.T) {
	table := resource.NewTable()
	refusal := short("spot", 4000, &Reach{Within: "LowerPriority", Reclaim: "Any", Own: 3, OwnAllowed: 1, Queues: 2, Others: 7, OthersAllowed: 4})
	refusal.Node, refusal.Limited = "cohort c", true
	attempt := Attempt{
		Workload: "team/train", Queue: "q", Priority: -3, Verdict: Preempts, Reason: WaitingForPreemptedWorkloads,
		PodSets: []PodSet{
			{"driver", 1, []Choice{{Amount: 1000, FR: table.FR("spot", "cpu"), Mode: Fit}}, nil, false},
			{"workers", 2, []Choice{{Amount: 8 << 30, FR: table.FR("ondemand", "memory"), Mode: Reclaim, Level: 2}}, nil, false},
		},
		Refusals: []Refusal{refusal},
		Victims: []Victim{
			{Key: "team/old", UID: "u1", Queue: "other", Reason: "InCohortReclamation"},
			{Key: "team/new", UID: "u2", Queue: "q", Reason: "InClusterQueue", Ran: 40 * time.Second, MinRun: 10 * time.Minute},
		},
		WakesOn: []resource.FR{table.FR("spot", "cpu"), table.FR("ondemand", "memory")}, Table: table.Frozen(),
	}
	want := `team/train in q (priority -3): preempts, WaitingForPreemptedWorkloads
  driver: 1 cpu from spot (fit)
  workers: 8Gi memory from ondemand (reclaim, borrows 2 up)
  main: cpu in flavor spot: 2500m more needed (4 requested, 1500m available), and no workload may be preempted for it [WaitingForQuota]
    the borrowing limit of cohort c is reached
    in its own queue 1 of 3 workloads may be asked to go (withinClusterQueue is LowerPriority); in 2 queues that use more than their own, 4 of 7 workloads (reclaimWithinCohort is Any); what they hold is not enough
  preempts team/old in other: InCohortReclamation
  preempts team/new in q: InClusterQueue, although it started 40s ago of the 10m that it asks for
  wakes on a release of ondemand/memory, spot/cpu
`
	if diff := cmp.Diff(want, attempt.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	nowhere := Attempt{Workload: "team/train", Verdict: Waits, Reason: Misconfigured, Note: "it names no LocalQueue"}
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

// TestReach is who could be asked to go, in words.
func TestReach(t *testing.T) {
	tests := map[string]struct {
		reach *Reach
		want  string
	}{
		"no policy": {
			&Reach{Within: "Never", Reclaim: "Never"},
			"in its own queue nobody may be asked to go (withinClusterQueue is Never); elsewhere nobody (reclaimWithinCohort is Never)",
		},
		"nobody borrows": {
			&Reach{Within: "LowerPriority", Reclaim: "Any", Own: 1},
			"in its own queue 0 of 1 workload may be asked to go (withinClusterQueue is LowerPriority); no other queue uses more than its own",
		},
		"not enough": {
			&Reach{Within: "Never", Reclaim: "LowerPriority", Queues: 1, Others: 9, OthersAllowed: 2},
			"in its own queue nobody may be asked to go (withinClusterQueue is Never); in 1 queue that use more than their own, " +
				"2 of 9 workloads (reclaimWithinCohort is LowerPriority); what they hold is not enough",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.reach.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHash: records that say something else have another hash, and so have records in
// another order.
func TestHash(t *testing.T) {
	of := func(looks ...*Attempt) uint64 {
		var h Hash
		for _, l := range looks {
			l.Hash(&h)
		}
		return h.Sum()
	}
	full := func() *Attempt {
		return &Attempt{
			Workload: "w", UID: "u", Queue: "q", Priority: 1, Verdict: Waits, Reason: WaitingForQuota, Note: "n",
			PodSets:  []PodSet{{"p", 1, []Choice{{Amount: 1, FR: 1, Mode: Fit, Level: 1}}, &Placement{"f", []string{"l"}, []Domain{{[]string{"v"}, 1}}}, false}},
			Refusals: []Refusal{{PodSet: "p", Pair: &resource.Pair{Flavor: "f", Resource: "cpu"}, Asked: 2, Available: 1, Node: "cohort c", Reach: &Reach{}}},
			Victims:  []Victim{{"k", "v", "q", "r", 1, 2}}, WakesOn: []resource.FR{1},
		}
	}
	other := &Attempt{Workload: "other"}
	seen := map[uint64]string{of(full()): "the same", of(full(), other): "two", of(other, full()): "two, the other way"}
	if len(seen) != 3 {
		t.Fatal("the order does not count")
	}
	if _, ok := seen[of(full())]; !ok {
		t.Fatal("the same record hashes otherwise")
	}
	for name, change := range map[string]func(*Attempt){
		"workload": func(l *Attempt) { l.Workload = "x" }, "uid": func(l *Attempt) { l.UID = "x" }, "queue": func(l *Attempt) { l.Queue = "x" },
		"priority": func(l *Attempt) { l.Priority++ }, "verdict": func(l *Attempt) { l.Verdict = Preempts }, "reason": func(l *Attempt) { l.Reason = "x" },
		"note": func(l *Attempt) { l.Note = "" }, "amount": func(l *Attempt) { l.PodSets[0].Resources[0].Amount++ }, "level": func(l *Attempt) { l.PodSets[0].Resources[0].Level++ },
		"mode": func(l *Attempt) { l.PodSets[0].Resources[0].Mode = Reclaim }, "flavor": func(l *Attempt) { l.PodSets[0].Resources[0].FR++ },
		"pod set": func(l *Attempt) { l.PodSets[0].Name = "x" }, "count": func(l *Attempt) { l.PodSets[0].Count++ }, "no choice": func(l *Attempt) { l.PodSets = nil }, "asked": func(l *Attempt) { l.Refusals[0].Asked++ },
		"available": func(l *Attempt) { l.Refusals[0].Available++ }, "potential": func(l *Attempt) { l.Refusals[0].Potential++ },
		"node": func(l *Attempt) { l.Refusals[0].Node = "" }, "limited": func(l *Attempt) { l.Refusals[0].Limited = true },
		"no reach": func(l *Attempt) { l.Refusals[0].Reach = nil }, "reach": func(l *Attempt) { l.Refusals[0].Reach.Others++ },
		"detail": func(l *Attempt) { l.Refusals[0].Detail = "x" }, "victim": func(l *Attempt) { l.Victims[0].UID = "x" },
		"its run time": func(l *Attempt) { l.Victims[0].Ran = 0 }, "its minimum": func(l *Attempt) { l.Victims[0].MinRun++ },
		"no minimum": func(l *Attempt) { l.Victims[0].MinRun = 0 }, "its reason": func(l *Attempt) { l.Victims[0].Reason = "x" }, "wakes": func(l *Attempt) { l.WakesOn[0] = 2 }, "no placement": func(l *Attempt) { l.PodSets[0].Placement = nil },
		"its flavor": func(l *Attempt) { l.PodSets[0].Placement.Flavor = "x" }, "domain": func(l *Attempt) { l.PodSets[0].Placement.Domains[0].Values[0] = "x" },
		"its pods": func(l *Attempt) { l.PodSets[0].Placement.Domains[0].Count++ }, "placement": func(l *Attempt) { l.Refusals[0].Placement = true },
	} {
		l := full()
		change(l)
		if was, ok := seen[of(l)]; ok {
			t.Errorf("another %s hashes like %s", name, was)
		}
	}
}
