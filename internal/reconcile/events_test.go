package reconcile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// Past half of the echoes' budget no minor event is sent, past all of it no echo, past the whole budget none. Dropped events are counted by
// reason.
func TestEventBudget(t *testing.T) {
	shed := map[string]int{}
	budget := NewEventBudget(func(reason string, n int) { shed[reason] += n })
	budget.all.SetLimit(0)
	budget.echoes.SetLimit(0)
	sent := events.NewFakeRecorder(3 * eventsBurst)
	e, other := NewEvents(sent, budget), NewEvents(sent, budget)
	for _, step := range []struct {
		events        Events
		reason        string
		atLeast, most int // events that were sent until then
	}{
		{e, kueue.ReasonQuotaReserved, echoesBurst / 2, echoesBurst/2 + 1},
		{other, kueue.ReasonAdmitted, echoesBurst, echoesBurst},
		{e, kueue.ReasonPreempted, eventsBurst, eventsBurst},
	} {
		for range eventsBurst {
			step.events.Normal(&corev1.Pod{}, step.reason, "why")
		}
		if got := len(sent.Events); got < step.atLeast || got > step.most {
			t.Errorf("%d events were sent up to %s, want %d to %d", got, step.reason, step.atLeast, step.most)
		}
	}
	if all := shed[kueue.ReasonQuotaReserved] + shed[kueue.ReasonAdmitted] + shed[kueue.ReasonPreempted]; all != 2*eventsBurst {
		t.Errorf("%d events are counted as shed, want %d: %v", all, 2*eventsBurst, shed)
	}
}
