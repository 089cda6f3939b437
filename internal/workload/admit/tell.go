package admit

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// Teller writes the reasons of pending Workloads that are not evaluated themselves: Workloads behind an equivalent one that failed, and
// Workloads further back in line. It compares their statuses with the engine's state. A Workload gets one write for each
// reason, once that has been true for Patience, within Budget, and none while other verdicts are due. In a burst most Workloads start before their
// turn comes, and are spared a write; `berth explain` and the dashboard read the engine's state, and have all reasons at once.
type Teller struct {
	Writer    *Writer
	Workloads *reconcile.Workloads
	// Interval is the least time between two rounds. A long round is followed by a longer pause.
	Interval time.Duration
	Patience time.Duration
	Budget   *rate.Limiter

	since map[types.UID]different

	// The memory of a round, used again: there may be 100,000 Workloads, and a round a second.
	found   map[types.UID]different
	reasons map[types.UID]trace.Reason
}

// different is a reason that the status does not show, and when it was found.
type different struct {
	wl     *kueue.Workload // in the cache
	reason trace.Reason
	at     time.Time
}

// NewTeller returns a Teller that takes at most 10 seconds, unless more than 200 Workloads get another reason at once: then it writes two a second.
func NewTeller(w *Writer, all *reconcile.Workloads) *Teller {
	return &Teller{
		Writer: w, Workloads: all, Interval: time.Second, Patience: 6 * time.Second, Budget: rate.NewLimiter(2, 200),
		since: map[types.UID]different{}, found: map[types.UID]different{}, reasons: map[types.UID]trace.Reason{},
	}
}

// Start works until ctx ends.
func (t *Teller) Start(ctx context.Context) error {
	pause := time.NewTimer(t.Interval)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		start := time.Now()
		if err := t.round(ctx); err != nil && ctx.Err() == nil {
			t.Writer.Log.Error(err, "Listing the Workloads that wait")
		}
		pause.Reset(max(t.Interval, 20*time.Since(start)))
	}
}

func (t *Teller) round(ctx context.Context) error {
	model, now := t.Writer.Engine.Model(), t.Writer.Now()
	if t.Writer.verdicts.Backlog() > 0 || !t.affords(now) {
		return nil
	}
	clear(t.reasons)
	clear(t.found)
	for last := range model.Lasts() {
		t.reasons[types.UID(last.UID())] = last.Reason()
	}
	waits := func(wl *kueue.Workload) bool {
		return lifecycle.IsPending(wl) && lifecycle.MayQueue(wl, t.Writer.Requests.Gated)
	}
	for _, wl := range t.Workloads.In("", waits) {
		reason, inLine := t.reasons[wl.UID]
		if !inLine {
			reason, _ = outOfLine(model, wl)
		}
		if !t.isNews(wl, reason, inLine) {
			continue
		}
		d := different{wl, reason, now}
		if before, known := t.since[wl.UID]; known {
			d.at = before.at
		}
		t.found[wl.UID] = d
	}
	t.since, t.found = t.found, t.since
	return t.tell(ctx, model, t.due(now))
}

// isNews reports whether a reason replaces the status's. "Not evaluated yet" replaces only reasons of queues and
// activity that no longer hold.
func (t *Teller) isNews(wl *kueue.Workload, reason trace.Reason, inLine bool) bool {
	c := lifecycle.Condition(wl, kueue.WorkloadQuotaReserved)
	switch {
	case reason == "":
		return false
	case c == nil:
		return true
	case reason == trace.PendingEvaluation:
		return passes(c)
	}
	return c.Reason != t.Writer.reasonOf(reason, inLine)
}

// passes reports whether a condition has a reason of a queue or of activity, which may no longer hold.
func passes(c *metav1.Condition) bool {
	return c != nil && (c.Reason == kueue.ReasonMisconfigured || c.Reason == kueue.ReasonSuspended || c.Reason == kueue.ReasonDeactivated ||
		c.Reason == kueue.ReasonInadmissible)
}

// batch is how much Budget has to have left before Workloads are told: five seconds' worth.
const batch = 10

// affords reports whether Budget has a batch left: a round looks at all Workloads that wait, maybe 100,000, which is too much for a few.
func (t *Teller) affords(now time.Time) bool { return t.Budget.TokensAt(now) >= batch }

// due returns the Workloads with another reason for at least Patience, as many as Budget has left: of each namespace in turn, the longest first, of
// equal ones the last created, which wait longest.
func (t *Teller) due(now time.Time) []types.UID {
	var out []types.UID
	for uid, d := range t.since {
		if now.Sub(d.at) >= t.Patience {
			out = append(out, uid)
		}
	}
	slices.SortFunc(out, func(a, b types.UID) int {
		x, y := t.since[a], t.since[b]
		return cmp.Or(x.at.Compare(y.at), y.wl.CreationTimestamp.Compare(x.wl.CreationTimestamp.Time), strings.Compare(string(a), string(b)))
	})
	turns, of := make(map[types.UID]int, len(out)), map[string]int{}
	for _, uid := range out {
		namespace := t.since[uid].wl.Namespace
		turns[uid] = of[namespace]
		of[namespace]++
	}
	slices.SortStableFunc(out, func(a, b types.UID) int { return cmp.Compare(turns[a], turns[b]) })
	out = out[:min(len(out), int(t.Budget.TokensAt(now)))]
	t.Budget.AllowN(now, len(out))
	return out
}

// tell queues the writes. None replaces another verdict that is due, and a Workload that was admitted meanwhile keeps its status.
func (t *Teller) tell(ctx context.Context, model *state.Model, due []types.UID) error {
	var evaluate []types.UID // those without a published trace
	for _, uid := range due {
		if attempt := t.published(model, t.since[uid].wl); attempt != nil {
			t.offer(attempt)
		} else {
			evaluate = append(evaluate, uid)
		}
	}
	for chunk := range slices.Chunk(evaluate, 50) {
		if err := t.Writer.Engine.Ask(ctx, func(s *state.State) {
			for _, uid := range chunk {
				if attempt, _ := s.AttemptNow(string(uid)); attempt != nil && attempt.Reason != "" {
					t.offer(attempt)
				}
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// outOfLine returns why a Workload that waits is in no line, "" if its status may stay. While it may not return to its queue, only a reason
// of the queue is replaced, once the queue admits again (spec: 10 §4.10).
func outOfLine(model *state.Model, wl *kueue.Workload) (trace.Reason, string) {
	blocked := lifecycle.IsRequeueBlocked(wl)
	if lifecycle.IsRejected(wl) || (blocked && !passes(lifecycle.Condition(wl, kueue.WorkloadQuotaReserved))) {
		return "", "" // it was rejected for its devices, whatever its queue does, or is told already
	}
	reason, note := model.Unqueued(wl.Namespace, string(wl.Spec.QueueName))
	if !blocked {
		return reason, note
	}
	queue, _ := model.PointsTo(wl.Namespace, string(wl.Spec.QueueName))
	if view, ok := model.Queue(queue); reason == "" && ok && !view.Closed {
		return trace.PendingEvaluation, "it may not return to its queue yet"
	}
	return "", ""
}

// published returns why a Workload waits as the model has it, with the trace; nil if that is not kept.
func (t *Teller) published(model *state.Model, wl *kueue.Workload) *trace.Attempt {
	if reason, note := outOfLine(model, wl); reason != "" {
		return &trace.Attempt{Workload: wl.Namespace + "/" + wl.Name, UID: string(wl.UID), Verdict: trace.Waits, Reason: reason, Note: note}
	}
	queue, _ := model.PointsTo(wl.Namespace, string(wl.Spec.QueueName))
	priority, since := t.Writer.Requests.InLine(wl)
	last, _, found := model.Find(queue, string(wl.UID), priority, since)
	if !found {
		return nil
	}
	attempt, _ := last.Attempt()
	return attempt
}

func (t *Teller) offer(attempt *trace.Attempt) {
	namespace, name, _ := strings.Cut(attempt.Workload, "/")
	t.Writer.verdicts.Offer(types.UID(attempt.UID), &order{Decision: engine.Decision{
		Workload: engine.Workload{UID: attempt.UID, Namespace: namespace, Name: name}, Queue: attempt.Queue, Attempt: attempt, PassedOver: true,
	}})
}
