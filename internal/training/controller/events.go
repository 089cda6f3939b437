package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// reporter and action are the component and the action of events about TrainJobs. Clients select events by both.
	reporter = "trainer-trainjob-controller"
	action   = "Reconciling"
)

// newRecorder returns a recorder of core/v1 events, which stops with the manager: clients read firstTimestamp, which events of
// events.k8s.io do not have (spec: 50 §4.12).
func newRecorder(mgr ctrl.Manager) (record.EventRecorder, error) {
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(sink{&corev1client.EventSinkImpl{Interface: core.Events("")}})
	return broadcaster.NewRecorder(mgr.GetScheme(), corev1.EventSource{Component: reporter}), mgr.Add(recording{broadcaster})
}

// recording stops the recorder with the manager.
type recording struct{ record.EventBroadcaster }

func (r recording) Start(ctx context.Context) error {
	<-ctx.Done()
	r.Shutdown()
	return nil
}

// NeedLeaderElection returns false: every replica records events.
func (recording) NeedLeaderElection() bool { return false }

// sink sets the action of new events, for which the recorder of core/v1 events has no argument.
type sink struct{ record.EventSink }

func (s sink) Create(event *corev1.Event) (*corev1.Event, error) {
	event.Action = action
	return s.EventSink.Create(event)
}
