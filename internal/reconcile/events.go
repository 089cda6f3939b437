package reconcile

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/berth-project/berth/internal/plan/lifecycle"
)

// maxNote is how many bytes of text an Event keeps.
const maxNote = 1024

// Events records events of events.k8s.io/v1 under one reporting controller. An event tells of a transition: emit it once,
// after the write that made it. It never blocks, and is dropped when there are too many.
type Events struct {
	recorder events.EventRecorder
}

// NewEvents records through a recorder of the manager, whose name is the reporting controller.
func NewEvents(recorder events.EventRecorder) Events { return Events{recorder: recorder} }

// Normal records something expected. The object needs its kind in the scheme, name, UID and resource version: repeats at
// one resource version are counted in one Event (spec: 70 §5.2).
func (e Events) Normal(object runtime.Object, reason, note string) {
	e.emit(object, nil, corev1.EventTypeNormal, reason, note)
}

// Warning records something that somebody should look at.
func (e Events) Warning(object runtime.Object, reason, note string) {
	e.emit(object, nil, corev1.EventTypeWarning, reason, note)
}

// Related records something expected that has to do with a second object.
func (e Events) Related(object, related runtime.Object, reason, note string) {
	e.emit(object, related, corev1.EventTypeNormal, reason, note)
}

func (e Events) emit(object, related runtime.Object, eventType, reason, note string) {
	if e.recorder == nil {
		return
	}
	e.recorder.Eventf(object, related, eventType, reason, reason, "%s", lifecycle.Cut(note, maxNote))
}
