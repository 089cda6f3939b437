package controller

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-project/berth/internal/multikueue/worker"
)

// TestRunStep: a step that takes too long is abandoned, and its Workload is requeued when it ends.
func TestRunStep(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "a"}
	const patience = 200 * time.Millisecond
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
				r := newRecords(time.Now)
				woken := 0
				began := time.Now()
				err := r.runStep(key, "w1", patience, func() error {
					time.Sleep(tc.takes)
					return tc.err
				}, func() { woken++ })
				if waited := time.Since(began); waited > patience {
					t.Errorf("it was waited for %s", waited)
				}
				if want := map[bool]error{false: tc.err}[tc.left]; !errors.Is(err, want) || r.stepRuns(key, "w1") != tc.left {
					t.Errorf("%v, under way %v", err, r.stepRuns(key, "w1"))
				}
				if tc.left {
					if err := r.runStep(key, "w1", patience, func() error { panic("twice at a time") }, nil); !errors.Is(err, worker.ErrStuck) {
						t.Errorf("another one: %v", err)
					}
					if r.stepRuns(key, "w2") || r.stepRuns(types.NamespacedName{Name: "b"}, "w1") {
						t.Error("others are said to be under way")
					}
				}
				time.Sleep(2 * tc.takes)
				synctest.Wait()
				if r.stepRuns(key, "w1") || (woken == 1) != tc.left {
					t.Errorf("afterwards: under way %v, woken %d times", r.stepRuns(key, "w1"), woken)
				}
			})
		})
	}
}
