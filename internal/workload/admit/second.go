package admit

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// secondPassFailed is the reason of the event of a round that found no places (spec: 20 §5.2).
const secondPassFailed = "SecondPassFailed"

// secondPass writes the outcome of one round for a Workload that holds quota: its new places, an event, or an eviction. spec: 20 §4.7.4, §4.9.
func (w *Writer) secondPass(ctx context.Context, wl *kueue.Workload, o *order) error {
	d := &o.Decision
	if why := superseded(wl, d); why != "" {
		if d.Grant == nil {
			return nil
		}
		return o.stale(why)
	}
	now := metav1.NewTime(w.Now())
	if d.Grant == nil {
		return w.notPlaced(ctx, wl, d, now)
	}
	admission := convert.Admission(*d.Grant, w.Requests)
	was := lifecycle.IsAdmitted(wl)
	lost := false
	stored, wrote, err := w.Status.Transition(ctx, wl, func(next *kueue.Workload) bool {
		changed := w.Machine.Placed(next, admission, now)
		lost = changed && o.unanswered.Failed(wl)
		return changed && !lost
	})
	if lost {
		return o.stale("an earlier write had no answer, and did not succeed")
	}
	if err != nil {
		return o.unanswered.Note(wl, err)
	}
	w.Engine.Post(state.AdmissionWritten(convert.Workload(stored, w.Requests)))
	if wrote && !was && lifecycle.IsAdmitted(stored) {
		w.Events.Tell(stored, lifecycle.AdmittedNow(stored, now))
	}
	return nil
}

// superseded returns why a round is not about the Workload as it is now, "" if it is.
func superseded(wl *kueue.Workload, d *engine.Decision) string {
	switch {
	case !lifecycle.IsReserved(wl) || lifecycle.IsEvicted(wl) || lifecycle.IsFinished(wl):
		return "it does not hold its quota any more"
	case len(d.Failed) > 0 && !failed(wl, d.Failed):
		return "its failed nodes are others meanwhile"
	}
	return ""
}

// failed reports whether these nodes of a Workload have failed, and no other ones.
func failed(wl *kueue.Workload, names []string) bool {
	return slices.EqualFunc(wl.Status.UnhealthyNodes, names, func(n kueue.UnhealthyNode, name string) bool { return n.Name == name })
}

// notPlaced reports a round without places. A Workload with a failed node is evicted where that has to be fast.
func (w *Writer) notPlaced(ctx context.Context, wl *kueue.Workload, d *engine.Decision, now metav1.Time) error {
	note := d.Attempt.Sentence()
	w.Events.Warning(wl, secondPassFailed, note)
	if !d.NodesFailed {
		return nil
	}
	message := "Its failed node has no replacement: " + note
	stored, wrote, err := w.Status.Transition(ctx, wl, func(next *kueue.Workload) bool {
		return w.Machine.Evict(next, kueue.ReasonNodeFailures, "", message, now)
	})
	if err == nil && wrote {
		w.Events.Evicted(stored)
	}
	return client.IgnoreNotFound(err)
}
