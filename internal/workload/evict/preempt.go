// Package evict evicts the victims that the engine names. It only asks; the quota is
// free once the owner of the pods reports that they are gone. spec: 10 §4.7.6.
package evict

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// workers is the number of concurrent evictions. spec: 10 §4.7.6.
const workers = 8

// Preemptor is an engine.Writer that evicts victims. Add it to the manager as a runnable as well.
type Preemptor struct {
	Client   client.Client
	Reader   client.Reader // reads past the cache
	Status   *reconcile.WorkloadStatus
	Events   reconcile.Events
	Engine   *engine.Engine
	Machine  lifecycle.Machine
	Requests convert.Requests
	Now      func() time.Time
	Log      logr.Logger
	// Preempted, unless nil, is called for every victim after the write: the ClusterQueue of the
	// preemptor, the ClusterQueue of the victim and the reason.
	Preempted func(by, of, reason string)

	orders *reconcile.Latest[*order]
}

type order struct {
	victim     engine.Victim
	by         *preemption
	unanswered reconcile.Unanswered
}

// preemption is a decision with victims, and its preemptor as of the eviction of the first one: events
// about the preemptor fold into one only if they name the same version of it.
type preemption struct {
	engine.Decision
	once      sync.Once
	preemptor *kueue.Workload // nil if it was deleted
}

// Init prepares the preemptor for orders, which may come before Start.
func (p *Preemptor) Init() { p.orders = reconcile.NewLatest(workers, p.preempt, p.failed) }

// Write queues the victims of a decision.
func (p *Preemptor) Write(d engine.Decision) {
	by := &preemption{Decision: d}
	for _, v := range d.Evict {
		p.orders.Put(types.UID(v.UID), &order{victim: v, by: by})
	}
}

// Start evicts victims until ctx ends.
func (p *Preemptor) Start(ctx context.Context) error { return p.orders.Start(ctx) }

// errNotWritten reports a victim whose own admission is not written yet, and errLost one that was not evicted by a write without an answer.
var (
	errNotWritten = errors.New("its admission is still being written")
	errLost       = errors.New("an earlier write had no answer, and did not succeed")
)

// failed returns the victim to the engine, which decides anew. The write is retried while it may have succeeded, or may still: else the engine would
// choose another victim as well.
func (p *Preemptor) failed(o *order, err error, pause time.Duration) (again time.Duration) {
	switch {
	case apierrors.IsNotFound(err):
		return 0 // gone, and its quota with it
	case o.unanswered.Exists():
		if pause <= reconcile.UnansweredPause { // a long outage is logged no more
			p.Log.Info("Preempting had no answer, it is tried again", "victim", o.victim.Namespace+"/"+o.victim.Name, "error", err.Error())
		}
		return min(pause, reconcile.UnansweredPause)
	}
	p.Log.Info("Preempting failed, the preemptor is requeued",
		"victim", o.victim.Namespace+"/"+o.victim.Name, "error", err.Error())
	time.AfterFunc(pause, func() {
		p.Engine.Post(state.EvictionFailed(o.victim.UID))
	})
	return 0
}

func (p *Preemptor) preempt(ctx context.Context, o *order) error {
	key := types.NamespacedName{Namespace: o.victim.Namespace, Name: o.victim.Name}
	return reconcile.OnNewest(ctx, o.unanswered.Newest(p.Client, p.Reader), p.Reader, key, types.UID(o.victim.UID), func(wl *kueue.Workload) error {
		switch {
		case lifecycle.IsEvicted(wl) && o.unanswered.Exists():
			p.evicted(ctx, o, wl)
			return nil
		case lifecycle.IsLeaving(wl) || lifecycle.IsFinished(wl):
			p.post(wl)
			return nil
		case o.unanswered.Failed(wl):
			return o.unanswered.Settled(errLost)
		case !lifecycle.IsReserved(wl):
			return errNotWritten // the engine names the victim again if it still has to be evicted
		}
		now := metav1.NewTime(p.Now())
		stored, _, err := p.Status.Transition(ctx, wl, func(next *kueue.Workload) bool {
			if o.victim.Reason == preempt.Migration {
				return p.Machine.Evict(next, kueue.ReasonFlavorMigration, "", migrationNote(o), now)
			}
			return p.Machine.Preempt(next, o.victim.Reason, message(o, p.preemptor(ctx, o)), now)
		})
		if err != nil {
			return o.unanswered.Note(wl, err)
		}
		p.evicted(ctx, o, stored)
		return nil
	})
}

// evicted reports an eviction as it is stored to the engine and, by events and metrics, to the users.
func (p *Preemptor) evicted(ctx context.Context, o *order, stored *kueue.Workload) {
	p.post(stored)
	if o.victim.Reason == preempt.Migration {
		p.Events.Evicted(stored)
		return
	}
	if a := stored.Status.Admission; a != nil && p.Preempted != nil {
		p.Preempted(o.by.Queue, string(a.ClusterQueue), o.victim.Reason)
	}
	by := p.preemptor(ctx, o)
	note := message(o, by)
	p.Events.Normal(stored, kueue.ReasonPreempted, note+p.ranks(by, stored))
	p.Events.Evicted(stored)
	if by != nil {
		p.Events.Normal(by, "PreemptedWorkload", preemptedNote(o))
	}
}

// migrationNote is the message about a variant that is evicted for a preferred one that fits. spec: 20 §4.13.
func migrationNote(o *order) string {
	return "Variant " + o.by.Name + " fits, with a flavor that is preferred to that of this one"
}

// ranks returns the effective priorities of both, with base and boost; "" without a preemptor. spec: 10 §5.2.
func (p *Preemptor) ranks(by, victim *kueue.Workload) string {
	if by == nil {
		return ""
	}
	rank := func(w *kueue.Workload) string {
		base, boost := p.Requests.Priority(w)
		return fmt.Sprintf("%d (base: %d, boost: %d)", base+boost, base, boost)
	}
	return "; preemptor effective priority: " + rank(by) + "; preemptee effective priority: " + rank(victim)
}

func (p *Preemptor) post(wl *kueue.Workload) {
	def := convert.Workload(wl, p.Requests)
	p.Engine.Post(state.Written(def))
}

func (p *Preemptor) preemptor(ctx context.Context, o *order) *kueue.Workload {
	o.by.once.Do(func() {
		by := &kueue.Workload{}
		err := p.Client.Get(ctx, types.NamespacedName{Namespace: o.by.Namespace, Name: o.by.Name}, by)
		if err == nil && string(by.UID) == o.by.UID {
			o.by.preemptor = by
		}
	})
	return o.by.preemptor
}

// preemptedNote names one victim and the others of the preemption: the events about them fold into one, of which
// clients see the first note. Victims of other namespaces are counted, and a single one is named by its UID:
// readers of the preemptor's events may have no access there.
func preemptedNote(o *order) string {
	victim := fmt.Sprintf("%s/%s (UID: %s)", o.victim.Namespace, o.victim.Name, o.victim.UID)
	if o.victim.Namespace != o.by.Namespace {
		victim = fmt.Sprintf("of another namespace (UID: %s)", o.victim.UID)
	}
	note := fmt.Sprintf("Preempted workload %s due to %s; preemptor path: %s; preemptee path: %s",
		victim, preempt.Words(o.victim.Reason), o.by.Path, o.victim.Path)
	var others []string
	unnamed := 0
	for _, v := range o.by.Evict {
		switch {
		case v.UID == o.victim.UID:
		case v.Namespace == o.by.Namespace:
			others = append(others, v.Namespace+"/"+v.Name)
		default:
			unnamed++
		}
	}
	if unnamed > 0 {
		others = append(others, fmt.Sprintf("%d of other namespaces", unnamed))
	}
	if len(others) > 0 {
		note += "; other victims of this preemption: " + strings.Join(others, ", ")
	}
	return note
}

// message returns the text whose beginning tools match. spec: 10 §4.7.6.
func message(o *order, by *kueue.Workload) string {
	job := "UNKNOWN"
	if by != nil && by.Labels[kueue.JobUIDLabel] != "" {
		job = by.Labels[kueue.JobUIDLabel]
	}
	return fmt.Sprintf("Preempted to accommodate a workload (UID: %s, JobUID: %s) due to %s; preemptor path: %s; preemptee path: %s",
		o.by.UID, job, preempt.Words(o.victim.Reason), o.by.Path, o.victim.Path)
}
