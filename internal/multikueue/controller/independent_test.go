package controller

import (
	"testing"

	"github.com/berth-project/berth/internal/multikueue/plan"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// TestIndependentSteps: creations and removals of copies on different clusters run at once.
func TestIndependentSteps(t *testing.T) {
	step := func(do plan.Verb, cluster string) plan.Step { return plan.Step{Do: do, Cluster: cluster} }
	blocking := step(plan.RemoveCopy, "w1")
	blocking.Blocks = true
	telling := step(plan.CreateCopy, "w1")
	telling.Events = []lifecycle.Event{{}}
	create, remove := plan.CreateCopy, plan.RemoveCopy
	for name, tc := range map[string]struct {
		steps []plan.Step
		want  int
	}{
		"none":                    {nil, 0},
		"copies on all":           {[]plan.Step{step(create, "w1"), step(create, "w2"), step(create, "w3"), {Do: plan.WriteStatus}}, 3},
		"those that lost":         {[]plan.Step{step(remove, "w1"), step(remove, "w2"), step(plan.SyncJob, "w3")}, 2},
		"a copy that is replaced": {[]plan.Step{step(remove, "w1"), step(create, "w1")}, 1},
		"a job is removed":        {[]plan.Step{blocking, step(remove, "w2")}, 0},
		"something is told":       {[]plan.Step{telling}, 0},
		"a status comes first":    {[]plan.Step{{Do: plan.WriteStatus, Blocks: true}, step(create, "w1")}, 0},
	} {
		if got := independentSteps(tc.steps); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}
