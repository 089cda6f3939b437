package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestPending is that a step that takes too long is left to itself, and that its Workload is looked at when it is over.
func TestPending(t *testing.T) {
	at := Place{types.NamespacedName{Namespace: "ns", Name: "a"}, "w1"}
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
				var p Pending
				woken := 0
				began := time.Now()
				err := p.Run(at, patience, func() error {
					time.Sleep(tc.takes)
					return tc.err
				}, func() { woken++ })
				if waited := time.Since(began); waited > patience {
					t.Errorf("it was waited for %s", waited)
				}
				if want := map[bool]error{false: tc.err}[tc.left]; !errors.Is(err, want) || p.Has(at.Workload, "w1") != tc.left || p.Any(at.Workload) != tc.left {
					t.Errorf("%v, under way %v", err, p.Has(at.Workload, "w1"))
				}
				if tc.left {
					if err := p.Run(at, patience, func() error { panic("twice at a time") }, nil); !errors.Is(err, ErrStuck) {
						t.Errorf("another one: %v", err)
					}
					if p.Has(at.Workload, "w2") || p.Any(types.NamespacedName{Name: "b"}) {
						t.Error("others are said to be under way")
					}
				}
				time.Sleep(2 * tc.takes)
				synctest.Wait()
				if p.Any(at.Workload) || (woken == 1) != tc.left {
					t.Errorf("afterwards: under way %v, woken %d times", p.Any(at.Workload), woken)
				}
			})
		})
	}
}
