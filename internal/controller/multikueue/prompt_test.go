package multikueue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-project/berth/internal/controller/multikueue/worker"
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

// TestPending is that a step that takes too long is left to itself, and that its Workload is looked at when it is over.
func TestPending(t *testing.T) {
	at := pendingStep{types.NamespacedName{Namespace: "ns", Name: "a"}, "w1"}
	failed := errors.New("failed")
	for name, tc := range map[string]struct {
		takes time.Duration
		left  bool
		err   error
	}{
		"soon":      {patience / 2, false, nil},
		"not soon":  {time.Minute, true, nil},
		"it fails":  {patience / 2, false, failed},
		"it is off": {time.Minute, true, failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p pending
				woken := 0
				began := time.Now()
				err := p.run(at, patience, func() error {
					time.Sleep(tc.takes)
					return tc.err
				}, func() { woken++ })
				if waited := time.Since(began); waited > patience {
					t.Errorf("it was waited for %s", waited)
				}
				if want := map[bool]error{false: tc.err}[tc.left]; !errors.Is(err, want) || p.has(at.workload, "w1") != tc.left || p.any(at.workload) != tc.left {
					t.Errorf("%v, under way %v", err, p.has(at.workload, "w1"))
				}
				if tc.left {
					if err := p.run(at, patience, func() error { panic("twice at a time") }, nil); !errors.Is(err, worker.ErrStuck) {
						t.Errorf("another one: %v", err)
					}
					if p.has(at.workload, "w2") || p.any(types.NamespacedName{Name: "b"}) {
						t.Error("others are said to be under way")
					}
				}
				time.Sleep(2 * tc.takes)
				synctest.Wait()
				if p.any(at.workload) || (woken == 1) != tc.left {
					t.Errorf("afterwards: under way %v, woken %d times", p.any(at.workload), woken)
				}
			})
		})
	}
}
