package reconcile

import (
	"testing"
	"time"

	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The pauses between failing reconciles grow to 30 s, which docs/kinds.md promises.
func TestRetryPauses(t *testing.T) {
	limit := ControllerOptions(1).RateLimiter
	if first := limit.When(ctrlreconcile.Request{}); first != 20*time.Millisecond {
		t.Errorf("the first pause is %s", first)
	}
	var last time.Duration
	for range 100 {
		last = limit.When(ctrlreconcile.Request{})
	}
	if last != 30*time.Second {
		t.Errorf("the last pause is %s", last)
	}
}
