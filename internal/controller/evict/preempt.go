// Package evict ends reservations: of the victims that the engine names, of
// workloads that are deactivated, and of those whose queue is stopped. It only asks;
// the quota is free once the owner of the pods says that they are gone.
// spec: 10 §4.11, §4.12.
package evict

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/convert"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/engine"
	"github.com/berth-project/berth/internal/plan/lifecycle"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/state"
)

const (
	// workers are how many victims are told at once. spec: 10 §4.7.6.
	workers = 8
	// attempts are how often a victim is told when its object turns out newer.
	attempts = 4
)

// Preemptor is an engine.Writer that tells victims to go. Add it to the manager as a
// runnable as well.
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

	mu     sync.Mutex
	orders map[types.UID]order
	queue  workqueue.TypedInterface[types.UID]
	pauses workqueue.TypedRateLimiter[types.UID]
}

// order is a victim and for whom it has to go.
type order struct {
	victim engine.Victim
	by     engine.Decision
}

// Init makes the preemptor ready to take orders, which may come before Start.
func (p *Preemptor) Init() {
	p.orders = map[types.UID]order{}
	p.queue = workqueue.NewTyped[types.UID]()
	p.pauses = workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](20*time.Millisecond, 30*time.Second)
}

// Write takes the victims of a decision.
func (p *Preemptor) Write(d engine.Decision) {
	for _, v := range d.Evict {
		uid := types.UID(v.UID)
		p.mu.Lock()
		p.orders[uid] = order{v, d}
		p.mu.Unlock()
		p.queue.Add(uid)
	}
}

// Start tells victims until ctx ends.
func (p *Preemptor) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for p.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	p.queue.ShutDown()
	wg.Wait()
	return nil
}

func (p *Preemptor) next(ctx context.Context) bool {
	uid, down := p.queue.Get()
	if down {
		return false
	}
	defer p.queue.Done(uid)
	p.mu.Lock()
	o, ok := p.orders[uid]
	delete(p.orders, uid)
	p.mu.Unlock()
	if !ok {
		return true
	}
	err := p.preempt(ctx, o)
	if err == nil {
		p.pauses.Forget(uid)
		return true
	}
	if ctx.Err() == nil && !apierrors.IsNotFound(err) {
		p.Log.Info("Preempting failed, the preemptor is looked at again",
			"victim", o.victim.Namespace+"/"+o.victim.Name, "error", err.Error())
		time.AfterFunc(p.pauses.When(uid), func() {
			p.Engine.Post(func(s *state.State) { s.EvictionFailed(o.victim.UID) })
		})
	}
	return true
}

func (p *Preemptor) preempt(ctx context.Context, o order) error {
	key := types.NamespacedName{Namespace: o.victim.Namespace, Name: o.victim.Name}
	var wl kueue.Workload
	err := p.Client.Get(ctx, key, &wl)
	for range attempts {
		if err != nil {
			return err
		}
		if string(wl.UID) != o.victim.UID || !lifecycle.IsReserved(&wl) || lifecycle.IsEvicted(&wl) {
			p.post(&wl) // gone, or on its way out already
			return nil
		}
		now := metav1.NewTime(p.Now())
		var stored *kueue.Workload
		stored, _, err = p.Status.Transition(ctx, &wl, func(next *kueue.Workload) bool {
			return p.Machine.Preempt(next, o.victim.Reason, p.message(ctx, o), now)
		})
		if err == nil {
			p.post(stored)
			p.Events.Normal(stored, kueue.ReasonPreempted, p.message(ctx, o))
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		err = p.Reader.Get(ctx, key, &wl)
	}
	return err
}

func (p *Preemptor) post(wl *kueue.Workload) {
	def := convert.Workload(wl, p.Requests)
	p.Engine.Post(func(s *state.State) { s.Written(def) })
}

// message begins as tools match it. spec: 10 §4.7.6.
func (p *Preemptor) message(ctx context.Context, o order) string {
	job := "UNKNOWN"
	var by kueue.Workload
	if err := p.Client.Get(ctx, types.NamespacedName{Namespace: o.by.Namespace, Name: o.by.Name}, &by); err == nil {
		if uid := by.Labels[kueue.JobUIDLabel]; uid != "" {
			job = uid
		}
	}
	return fmt.Sprintf("Preempted to accommodate a workload (UID: %s, JobUID: %s) due to %s; preemptor path: %s; preemptee path: %s",
		o.by.UID, job, preempt.Words(o.victim.Reason), o.by.Path, o.victim.Path)
}
