package reconcile

import (
	"slices"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// maxNote is how many bytes of text an Event keeps.
const maxNote = 1024

// Events are sent at most at this rate, all controllers together: as many jobs as come and go in a second must not make
// the API server busy with telling about them.
const (
	eventsPerSecond = 50
	eventsBurst     = 1000
)

// Events records events of events.k8s.io/v1 under one reporting controller. An event tells of a transition: emit it once,
// after the write that made it. It never blocks, and is dropped when there are too many.
type Events struct {
	recorder events.EventRecorder
	budget   *EventBudget
}

// NewEvents records through a recorder of the manager, whose name is the reporting controller, within a budget that it
// shares with others; nil is no limit.
func NewEvents(recorder events.EventRecorder, budget *EventBudget) Events {
	return Events{recorder: recorder, budget: budget}
}

// EventBudget is how many events may be sent. What is left of it when few are is for the important ones: those that only
// say what a condition says as well, or what the next event implies, are shed while less than half is left.
type EventBudget struct {
	limiter *rate.Limiter
	shed    func(reason string, n int)
}

// NewEventBudget tells shed of every event that is not sent; nil: nobody is told.
func NewEventBudget(shed func(reason string, n int)) *EventBudget {
	if shed == nil {
		shed = func(string, int) {}
	}
	return &EventBudget{limiter: rate.NewLimiter(eventsPerSecond, eventsBurst), shed: shed}
}

// minor are the reasons of events that are shed first.
var minor = []string{
	kueue.ReasonQuotaReserved, kueue.ReasonWaitingForQuota, kueue.ReasonWaitingForPreemptedWorkloads,
	kueue.ReasonWaitingForPodsReady, kueue.ReasonPendingEvaluation, kueue.ReasonPending, kueue.ReasonWaiting,
}

func (b *EventBudget) allows(reason string) bool {
	if b == nil {
		return true
	}
	if slices.Contains(minor, reason) && b.limiter.Tokens() < eventsBurst/2 || !b.limiter.Allow() {
		b.shed(reason, 1)
		return false
	}
	return true
}

// Normal records something expected. The object needs its kind in the scheme, name, UID and resource version: repeats at
// one resource version are counted in one Event (spec: 70 §5.2).
func (e Events) Normal(object runtime.Object, reason, note string) {
	e.emit(object, corev1.EventTypeNormal, reason, note)
}

// Warning records something that somebody should look at.
func (e Events) Warning(object runtime.Object, reason, note string) {
	e.emit(object, corev1.EventTypeWarning, reason, note)
}

func (e Events) emit(object runtime.Object, eventType, reason, note string) {
	if e.recorder == nil || !e.budget.allows(reason) {
		return
	}
	e.recorder.Eventf(object, nil, eventType, reason, reason, "%s", lifecycle.Cut(note, maxNote))
}
