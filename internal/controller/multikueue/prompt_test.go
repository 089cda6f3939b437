package multikueue

import (
	"testing"

	"github.com/berth-project/berth/internal/plan/dispatch"
	"github.com/berth-project/berth/internal/plan/lifecycle"
)

// TestPromptOnes is which steps are made at a time: copies that come and go on different workers.
func TestPromptOnes(t *testing.T) {
	step := func(do dispatch.Verb, cluster string) dispatch.Step { return dispatch.Step{Do: do, Cluster: cluster} }
	blocking := step(dispatch.RemoveCopy, "w1")
	blocking.Blocks = true
	telling := step(dispatch.CreateCopy, "w1")
	telling.Events = []lifecycle.Event{{}}
	create, remove := dispatch.CreateCopy, dispatch.RemoveCopy
	for name, tc := range map[string]struct {
		steps []dispatch.Step
		want  int
	}{
		"none":                    {nil, 0},
		"copies on all":           {[]dispatch.Step{step(create, "w1"), step(create, "w2"), step(create, "w3"), {Do: dispatch.WriteStatus}}, 3},
		"those that lost":         {[]dispatch.Step{step(remove, "w1"), step(remove, "w2"), step(dispatch.SyncJob, "w3")}, 2},
		"a copy that is replaced": {[]dispatch.Step{step(remove, "w1"), step(create, "w1")}, 1},
		"a job is removed":        {[]dispatch.Step{blocking, step(remove, "w2")}, 0},
		"something is told":       {[]dispatch.Step{telling}, 0},
		"a status comes first":    {[]dispatch.Step{{Do: dispatch.WriteStatus, Blocks: true}, step(create, "w1")}, 0},
	} {
		if got := promptOnes(tc.steps); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}
