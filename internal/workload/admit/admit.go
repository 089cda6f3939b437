// Package admit writes the engine's verdicts into the status of Workloads: admissions, and
// why pending Workloads wait. One write admits a workload. Its quota is given back once it is certain that the write
// did not succeed, and will not. spec: 10 §4.9.
package admit

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
	"github.com/berth-project/berth/internal/workload/plan/slices"
)

const (
	// workers is the number of concurrent writes of verdicts.
	workers = 16
	// patience is how long a workload is pending before the reason is written: the next head of a
	// busy queue is mostly admitted in less.
	patience = time.Second
	// sameReason is the age of a condition before a new message with the same reason is written:
	// the missing amounts change with every admission, and are no news.
	sameReason = 10 * time.Second
)

// Writer is an engine.Writer. Add it to the manager as a runnable as well.
type Writer struct {
	Client   client.Client
	Reader   client.Reader // reads past the cache
	Status   *reconcile.WorkloadStatus
	Events   reconcile.Events
	Engine   *engine.Engine
	Machine  lifecycle.Machine
	Requests convert.Requests
	Now      func() time.Time
	Log      logr.Logger
	// Nominated returns the worker clusters for a Workload that gets a quota reservation and needs the given checks: they are written with
	// the reservation. None: they are nominated later. Nil: no worker clusters.
	Nominated func(wl *kueue.Workload, required []kueue.AdmissionCheckReference) []string
	// Paused: the manager runs without a scheduler, so all Workloads stay pending.
	Paused bool
	// Took, unless nil, gets the duration of each write of a verdict.
	Took func(time.Duration)

	verdicts *reconcile.Latest[*order]
}

// order is a decision to write.
type order struct {
	engine.Decision
	unanswered reconcile.Unanswered
	putOff     bool // the Workload had its reason, with an earlier message
}

// stale is the error for an order that a Workload, as it is now, does not match: the order was not carried out, and will not be.
func (o *order) stale(why string) error { return o.unanswered.Settled(errStale(why)) }

// Init prepares the writer for verdicts, which may come before Start.
func (w *Writer) Init() { w.verdicts = reconcile.NewLatest(workers, w.write, w.failed) }

// Write queues a verdict, and drops an older one about the same workload that is not written yet.
func (w *Writer) Write(d engine.Decision) {
	if d.Grant != nil || d.SecondPass {
		w.verdicts.Put(types.UID(d.UID), &order{Decision: d})
	} else {
		w.verdicts.PutLater(types.UID(d.UID), &order{Decision: d}, patience)
	}
}

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/status,verbs=update;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Start writes until ctx ends.
func (w *Writer) Start(ctx context.Context) error { return w.verdicts.Start(ctx) }

// failed returns an admission to the engine after the pause. It is retried if it may have been written, or may still be: until that is
// known, the engine must not give its quota to another workload. The reason of a pending workload is retried as well: there may be
// no other attempt that reports it, for example in a stopped queue.
func (w *Writer) failed(o *order, err error, pause time.Duration) (again time.Duration) {
	gone := apierrors.IsNotFound(err)
	if outage := o.unanswered.Exists() && pause > reconcile.UnansweredPause; !gone && !outage { // a long one is logged no more
		w.Log.Info("Writing a verdict failed, it is tried again",
			"workload", o.Namespace+"/"+o.Name, "verdict", o.Attempt.Verdict, "error", err.Error())
	}
	switch {
	case !gone && o.unanswered.Exists():
		return min(pause, reconcile.UnansweredPause)
	case !gone && o.Grant == nil:
		return pause
	case o.Grant != nil:
		time.AfterFunc(pause, func() {
			w.Engine.Post(state.AdmissionFailed{UID: o.UID, Version: o.Grant.Version})
		})
	}
	return 0
}

// errStale reports that the object has changed since the verdict.
type errStale string

func (e errStale) Error() string { return string(e) }

func (w *Writer) write(ctx context.Context, o *order) error {
	if w.Took != nil {
		defer func(start time.Time) { w.Took(w.Now().Sub(start)) }(w.Now())
	}
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	return reconcile.OnNewest(ctx, o.unanswered.Newest(w.Client, w.Reader), w.Reader, key, types.UID(o.UID), func(wl *kueue.Workload) error {
		switch {
		case o.Grant != nil && reconcile.IsOlder(wl.ResourceVersion, strconv.FormatUint(o.Grant.Version, 10)):
			return apierrors.NewConflict(kueue.GroupVersion.WithResource("workloads").GroupResource(), o.Name, errStale("the decision is about a newer version"))
		case o.SecondPass:
			return w.secondPass(ctx, wl, o)
		case o.Grant != nil:
			return w.admit(ctx, wl, o)
		}
		return w.wait(ctx, wl, o)
	})
}

// admit writes the admission, if the workload still is what the engine admitted. A reservation that is there already is reported to the
// engine: it is that of a write whose answer is lost, or of another client.
func (w *Writer) admit(ctx context.Context, wl *kueue.Workload, o *order) error {
	now, reserved := metav1.NewTime(w.Now()), lifecycle.IsReserved(wl)
	switch {
	case reserved && !o.unanswered.Exists():
		w.Engine.Post(state.AdmissionWritten(convert.Workload(wl, w.Requests)))
		return nil
	case reserved:
		w.admitted(wl, o, now)
		return nil
	case !lifecycle.MayQueue(wl, w.Requests.Gated):
		return o.stale("it changed its state meanwhile")
	case wl.Generation != o.Grant.Generation:
		return o.stale("its spec changed meanwhile")
	case o.unanswered.Failed(wl):
		return o.stale("an earlier write had no answer, and did not succeed")
	}
	admission := convert.Admission(*o.Grant, w.Requests)
	required, err := w.checks(ctx, admission)
	if err != nil {
		return err
	}
	cluster, err := w.clusterOf(ctx, wl)
	if err != nil {
		return err
	}
	stored, wrote, err := w.Status.Transition(ctx, wl, func(next *kueue.Workload) bool {
		if cluster != "" {
			next.Status.ClusterName = cluster
		} else if w.Nominated != nil {
			if names := w.Nominated(wl, required); len(names) > 0 {
				next.Status.NominatedClusterNames = names
			}
		}
		changed := w.Machine.Reserve(next, admission, required, now)
		if !o.Grant.Contested {
			w.Machine.AdmitVariant(next, now)
		}
		return changed
	})
	switch {
	case err != nil:
		return o.unanswered.Note(wl, err)
	case !wrote:
		return o.stale("it has finished meanwhile")
	}
	w.admitted(stored, o, now)
	return nil
}

// admitted reports an admission as it is stored to the engine and, by events, to the user.
func (w *Writer) admitted(stored *kueue.Workload, o *order, now metav1.Time) {
	w.Engine.Post(state.AdmissionWritten(convert.Workload(stored, w.Requests)))
	w.Events.Normal(stored, kueue.ReasonQuotaReserved, reservedNote(stored, o.Decision, now))
	if lifecycle.IsAdmitted(stored) {
		w.Events.Tell(stored, lifecycle.AdmittedNow(stored, now))
	}
}

// reservedNote names the queue, the whole seconds of waiting, and the other flavors that were tried. spec: 70 §5.2.
func reservedNote(w *kueue.Workload, d engine.Decision, now metav1.Time) string {
	note := fmt.Sprintf("Quota reserved in ClusterQueue %s, wait time since queued was %.0fs", d.Queue, now.Sub(lifecycle.InLineSince(w)).Seconds())
	if d.Attempt != nil {
		if tried := considered(d.Attempt); tried != "" {
			note += "; Flavors considered: " + tried
		}
	}
	return note
}

// clusterOf returns the worker cluster of the slice that a workload replaces, which it stays on. spec: 20 §4.11.
func (w *Writer) clusterOf(ctx context.Context, wl *kueue.Workload) (string, error) {
	name := slices.Replaces(wl)
	if name == "" || !w.Requests.Slices {
		return "", nil
	}
	var old kueue.Workload
	err := w.Client.Get(ctx, types.NamespacedName{Namespace: wl.Namespace, Name: name}, &old, client.UnsafeDisableDeepCopy)
	if err != nil || !slices.SameOwner(wl, &old) {
		return "", client.IgnoreNotFound(err)
	}
	return old.Status.ClusterName, nil
}

func (w *Writer) checks(ctx context.Context, admission *kueue.Admission) ([]kueue.AdmissionCheckReference, error) {
	var cq kueue.ClusterQueue
	key := client.ObjectKey{Name: string(admission.ClusterQueue)}
	if err := w.Client.Get(ctx, key, &cq, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("reading the admission checks of ClusterQueue %s: %w", key.Name, err)
	}
	return lifecycle.RequiredChecks(&cq, admission), nil
}

// wait writes why a workload is pending. Within sameReason a new message for the same reason is put off.
func (w *Writer) wait(ctx context.Context, wl *kueue.Workload, o *order) error {
	d, now := o.Decision, metav1.NewTime(w.Now())
	reason, message := w.pending(d)
	old := lifecycle.Condition(wl, kueue.WorkloadQuotaReserved)
	news := old == nil || old.Reason != reason
	if !w.mayExplain(wl, o, news) {
		return nil
	}
	gated := d.Gated && !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadBlockedOnPreemptionGates)
	requests := convert.ResourceRequests(wl, w.Requests)
	others := !equality.Semantic.DeepEqual(requests, wl.Status.ResourceRequests) // a LimitRange changed, or pods have finished
	if !news && !gated && !others && w.putOff(o, old, message) {
		return nil
	}
	stored, wrote, err := w.Status.Transition(ctx, wl, func(next *kueue.Workload) bool {
		next.Status.ResourceRequests = requests
		blocked := d.Gated && w.Machine.BlockOnPreemptionGates(next, message, now)
		changed := w.Machine.Pending(next, reason, message, now) || blocked || others
		return w.waitForStart(next, now) || changed
	})
	if wrote && news && !d.PassedOver {
		w.Events.Warning(stored, reason, message)
	}
	return err
}

// putOff puts off an order with a new message for the reason of a young condition. It reports whether the condition is young.
func (w *Writer) putOff(o *order, old *metav1.Condition, message string) bool {
	rest := sameReason - w.Now().Sub(old.LastTransitionTime.Time)
	if rest > 0 && old.Message != message {
		w.verdicts.OfferLater(types.UID(o.UID), &order{Decision: o.Decision, putOff: true}, rest)
	}
	return rest > 0
}

// mayExplain reports whether the reason why a workload is pending is the engine's: workload/follow rejects workloads for their devices. An
// order that was put off has news only if another reason was written since.
func (w *Writer) mayExplain(wl *kueue.Workload, o *order, news bool) bool {
	return lifecycle.IsPending(wl) && w.Requests.Uncharged(wl) == nil && (!o.putOff || !news)
}

// pending returns the reason and the message of the condition of a pending workload.
func (w *Writer) pending(d engine.Decision) (reason, message string) {
	message = d.Attempt.NamingOwn().Sentence() // readers of the Workload may have no access to others
	if w.Paused && d.Attempt.Reason == trace.PendingEvaluation {
		message = "admission is paused: the manager runs without the group scheduler (--controllers)"
	}
	return w.reasonOf(d.Attempt.Reason, d.Queue != ""), message
}

// reasonOf returns the name of a reason why a workload is pending. Among the older names, a workload in line that its ClusterQueue does not take
// has another one than a workload without a queue (spec: 10 §4.10).
func (w *Writer) reasonOf(reason trace.Reason, inLine bool) string {
	if w.Machine.LegacyReasons && reason == trace.Misconfigured && inLine {
		return kueue.ReasonPending
	}
	return w.Machine.PendingReason(string(reason))
}

// waitForStart writes PodsReady of a workload while admission is paused. Otherwise the reservation writes the condition.
func (w *Writer) waitForStart(next *kueue.Workload, now metav1.Time) bool {
	return w.Paused && w.Machine.WaitForPodsReady && lifecycle.Condition(next, kueue.WorkloadPodsReady) == nil && w.Machine.PodsReady(next, false, now)
}
