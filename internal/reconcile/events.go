package reconcile

import (
	"slices"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// maxNote is how many bytes of text an Event keeps.
const maxNote = 1024

// Rates of events of all controllers together, so that events do not take the API server's time from admissions: of all, and of echoes,
// which repeat a condition.
const (
	eventsPerSecond = 50
	eventsBurst     = 1000
	echoesPerSecond = 20
	echoesBurst     = 500
)

// Events records events of events.k8s.io/v1 under one reporting controller. Emit an event once for each transition, after its write. Emitting
// never blocks; events beyond the budget are dropped.
type Events struct {
	recorder events.EventRecorder
	budget   *EventBudget
}

// NewEvents records through a recorder of the manager, whose name is the reporting controller. The budget is shared; nil is no limit.
func NewEvents(recorder events.EventRecorder, budget *EventBudget) Events {
	return Events{recorder: recorder, budget: budget}
}

// EventBudget bounds how many events are sent. Echoes have a smaller budget of their own; minor ones, which the next event implies, are
// shed while less than half of it is left.
type EventBudget struct {
	all, echoes *rate.Limiter
	shed        func(reason string, n int)
}

// NewEventBudget calls shed for every event that is not sent; nil is no call.
func NewEventBudget(shed func(reason string, n int)) *EventBudget {
	if shed == nil {
		shed = func(string, int) {}
	}
	return &EventBudget{
		all: rate.NewLimiter(eventsPerSecond, eventsBurst), echoes: rate.NewLimiter(echoesPerSecond, echoesBurst), shed: shed,
	}
}

// minor are the reasons of echoes that are shed first.
var minor = []string{
	kueue.ReasonQuotaReserved, kueue.ReasonWaitingForQuota, kueue.ReasonWaitingForPreemptedWorkloads,
	kueue.ReasonWaitingForPodsReady, kueue.ReasonPendingEvaluation, kueue.ReasonPending, kueue.ReasonWaiting,
	"EvictedDueTo" + kueue.ReasonPreempted, // the event Preempted names the preemptor
}

func (b *EventBudget) allows(reason string) bool {
	if b == nil {
		return true
	}
	lesser := slices.Contains(minor, reason)
	echo := lesser || reason == kueue.ReasonAdmitted
	if lesser && b.echoes.Tokens() < echoesBurst/2 || echo && !b.echoes.Allow() || !b.all.Allow() {
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

// Warning records something that a person should examine.
func (e Events) Warning(object runtime.Object, reason, note string) {
	e.emit(object, corev1.EventTypeWarning, reason, note)
}

// Tell records events as they are described.
func (e Events) Tell(object runtime.Object, events ...lifecycle.Event) {
	for _, d := range events {
		if d.Warning {
			e.Warning(object, d.Reason, d.Note)
		} else {
			e.Normal(object, d.Reason, d.Note)
		}
	}
}

// Evicted records the eviction of a Workload, as its condition says.
func (e Events) Evicted(w *kueue.Workload) {
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted); c != nil {
		e.Normal(w, "EvictedDueTo"+c.Reason, c.Message)
	}
}

func (e Events) emit(object runtime.Object, eventType, reason, note string) {
	if e.recorder == nil || !e.budget.allows(reason) {
		return
	}
	e.recorder.Eventf(object, nil, eventType, reason, reason, "%s", lifecycle.Cut(note, maxNote))
}
