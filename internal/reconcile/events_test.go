package reconcile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Past half of the budget only important events are sent, past all of it none; dropped
// events are counted by reason.
func TestEventBudget(t *testing.T) {
	shed := map[string]int{}
	budget := NewEventBudget(func(reason string, n int) { shed[reason] += n })
	budget.limiter.SetLimit(0)
	sent := events.NewFakeRecorder(3 * eventsBurst)
	e, other := NewEvents(sent, budget), NewEvents(sent, budget)
	pod := &corev1.Pod{}
	for range eventsBurst {
		e.Normal(pod, kueue.ReasonQuotaReserved, "reserved")
	}
	if got := len(sent.Events); got < eventsBurst/2 || got > eventsBurst/2+1 {
		t.Errorf("%d of the minor events were sent, want half of the budget", got)
	}
	for range eventsBurst {
		other.Warning(pod, kueue.ReasonPreempted, "preempted")
	}
	if got := len(sent.Events); got != eventsBurst {
		t.Errorf("%d events were sent, want the budget of %d", got, eventsBurst)
	}
	if all := shed[kueue.ReasonQuotaReserved] + shed[kueue.ReasonPreempted]; all != eventsBurst {
		t.Errorf("%d events are counted as shed, want %d: %v", all, eventsBurst, shed)
	}
}
