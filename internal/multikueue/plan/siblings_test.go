package plan_test

import (
	"slices"
	"testing"
	"time"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
)

// TestSiblings is spec 40 §4.9: all Workloads of a job follow the first one to its cluster.
func TestSiblings(t *testing.T) {
	siblings := func(s plan.Siblings) func(*plan.Observed) {
		return func(o *plan.Observed) { o.Job.Kind, o.Job.Gated, o.Job.Siblings = "LeaderWorkerSet", true, &s }
	}
	plain := reserved()
	three := []plan.Cluster{up("w1", nil), up("w2", nil)}
	for name, tc := range map[string]struct {
		local    *kueue.Workload
		clusters []plan.Cluster
		change   func(*plan.Observed)
		want     string
		failure  bool
	}{
		"one is missing":      {plain, three, siblings(plan.Siblings{Wanted: 3, Present: 2, First: true}), "9: after 30s", false},
		"the first goes":      {plain, three, siblings(plan.Siblings{Wanted: 3, Present: 3, First: true}), "9: status [w1 w2], create w1, create w2, after 30s", false},
		"a job that shrank":   {plain, three, siblings(plan.Siblings{Wanted: 1, Present: 3, First: true}), "9: status [w1 w2], create w1, create w2, after 30s", false},
		"others wait for it":  {plain, three, siblings(plan.Siblings{Wanted: 3, Present: 3}), "9: after 30s", false},
		"others follow":       {plain, three, siblings(plan.Siblings{Wanted: 3, Present: 3, Clusters: []string{"w2"}}), "9: status [w2], create w2, after 30s", false},
		"also when some left": {plain, three, siblings(plan.Siblings{Wanted: 3, Present: 2, Clusters: []string{"w2"}}), "9: status [w2], create w2, after 30s", false},
		"from where they were not to be": {
			reserved(nominated("w1", "w2")),
			[]plan.Cluster{up("w1", copyOf(plain)), up("w2", nil)},
			siblings(plan.Siblings{Wanted: 1, Present: 1, First: true, Clusters: []string{"w2"}}),
			"9: status [w2], remove w1, create w2, after 30s", false,
		},
		"to one that is lost":    {plain, []plan.Cluster{up("w1", nil), down("w2", 0)}, siblings(plan.Siblings{Clusters: []string{"w2"}}), "9: status [w2], after 30s", true},
		"they are on two":        {plain, three, siblings(plan.Siblings{Clusters: []string{"w1", "w2"}}), "9: after 30s", true},
		"pods of a copy are off": {reserved(localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, condition(kueue.WorkloadEvicted, 0, "Preempted"))))}, func(o *plan.Observed) { o.Job.Gated, o.Job.Active = true, true }, "4: quiet", false},
		"pods of a copy may run": {reserved(localEvicted), []plan.Cluster{withJob(up("w1", copyOf(plain, condition(kueue.WorkloadEvicted, 0, "Preempted"), condition(kueue.WorkloadQuotaReserved, 0, "R"))))}, func(o *plan.Observed) { o.Job.Gated, o.Job.Active = true, true }, "4: mirror w1", false},
		"a job that is lost":     {reserved(ready("w1")), []plan.Cluster{up("w1", copyOf(plain, condition(kueue.WorkloadFinished, 0, kueue.ReasonOwnerNotFound)))}, nil, "3: remove w1, after 1s", false},
		"a job that is lost soon": {
			reserved(nominated("w1")), []plan.Cluster{up("w1", copyOf(plain, condition(kueue.WorkloadFinished, 0, kueue.ReasonOwnerNotFound)))}, nil, "9: remove w1, create w1, after 30s", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &plan.Observed{
				Local: tc.local, Check: "mk", Clusters: tc.clusters, Now: t0,
				Job: plan.JobFacts{Kind: "Pod", Adapter: true, Managed: true},
			}
			if tc.change != nil {
				tc.change(o)
			}
			p := plan.Decide(config(), o)
			if got := text(o, p); got != tc.want || (p.Err != nil) != tc.failure {
				t.Errorf("got  %s (%v)\nwant %s", got, p.Err, tc.want)
			}
		})
	}
}

// TestGatesOfSiblings: copies of the first Workload of a job have our preemption gate; copies of the others have only the gates of their local
// Workloads (spec: 40 §4.9).
func TestGatesOfSiblings(t *testing.T) {
	cfg := config()
	cfg.Orchestrated, cfg.PreemptionTimeout = true, 5*time.Minute
	own := []kueue.PreemptionGate{{Name: "example.com/own"}}
	local := reserved(nominated("w1"), func(w *kueue.Workload) { w.Spec.PreemptionGates = own })
	decide := func(s plan.Siblings, remote *kueue.Workload) (plan.Step, string) {
		o := &plan.Observed{
			Local: local, Check: "mk", Clusters: []plan.Cluster{up("w1", remote)}, Now: t0,
			Job: plan.JobFacts{Kind: "LeaderWorkerSet", Adapter: true, Managed: true, Gated: true, Siblings: &s},
		}
		decided := plan.Decide(cfg, o)
		return append(decided.Steps, plan.Step{})[0], text(o, decided)
	}
	for name, tc := range map[string]struct {
		siblings plan.Siblings
		want     []kueue.PreemptionGate
		asks     string
	}{
		"the first": {plan.Siblings{Wanted: 2, Present: 2, First: true}, []kueue.PreemptionGate{{Name: kueue.MultiKueuePreemptionGate}}, "9: annotate, copy status w1, after 30s"},
		"a later":   {plan.Siblings{Wanted: 2, Present: 2, Clusters: []string{"w1"}}, own, "9: after 30s"},
	} {
		step, got := decide(tc.siblings, nil)
		if step.Do != plan.CreateCopy || !slices.Equal(step.Workload.Spec.PreemptionGates, tc.want) {
			t.Errorf("%s: %s, gates %v", name, got, step.Workload.Spec.PreemptionGates)
		}
		made := step.Workload.DeepCopy()
		condition(kueue.WorkloadBlockedOnPreemptionGates, -time.Minute, kueue.ReasonPreemptionGated)(made)
		if _, got := decide(tc.siblings, made); got != tc.asks {
			t.Errorf("%s, which asks\ngot  %s\nwant %s", name, got, tc.asks)
		}
	}
}
