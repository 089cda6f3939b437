package reconcile

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Latest carries out orders about objects with a few workers: one at a time for each object, and only the newest of several orders about it.
// It is a runnable of a manager; orders may come before it starts.
type Latest[T any] struct {
	workers int
	do      func(context.Context, T) error
	failed  func(order T, err error, pause time.Duration) (again time.Duration)

	mu     sync.Mutex
	orders map[types.UID]T
	busy   map[types.UID]bool // an order about it is being carried out
	queue  workqueue.TypedDelayingInterface[types.UID]
	pauses workqueue.TypedRateLimiter[types.UID]
}

// NewLatest carries orders out with do. failed is called for each order that fails, with a pause that grows with every failure of the
// same object. It returns after how long the order is retried, unless a newer one comes; 0 is never.
func NewLatest[T any](workers int, do func(context.Context, T) error, failed func(order T, err error, pause time.Duration) (again time.Duration)) *Latest[T] {
	return &Latest[T]{
		workers: workers, do: do, failed: failed, orders: map[types.UID]T{}, busy: map[types.UID]bool{}, queue: workqueue.NewTypedDelayingQueue[types.UID](),
		pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](conflictDelay, 30*time.Second),
	}
}

// Put gives an order about an object. It returns at once.
func (l *Latest[T]) Put(uid types.UID, order T) { l.PutLater(uid, order, 0) }

// Offer gives an order unless there is one about the same object, or one is being carried out, which may have to be retried. It returns at
// once.
func (l *Latest[T]) Offer(uid types.UID, order T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, has := l.orders[uid]; !has && !l.busy[uid] {
		l.orders[uid] = order
		l.queue.Add(uid)
	}
}

// Backlog returns how many orders are due and not begun.
func (l *Latest[T]) Backlog() int { return l.queue.Len() }

// PutLater gives an order that is carried out after a while, unless another one about the same object comes before. It
// returns at once. A newer order does not extend the wait.
func (l *Latest[T]) PutLater(uid types.UID, order T, after time.Duration) {
	l.mu.Lock()
	l.orders[uid] = order
	l.mu.Unlock()
	l.queue.AddAfter(uid, after)
}

// OfferLater gives an order that is carried out after a while, unless there is one about the same object, or a newer one comes before.
// It returns at once.
func (l *Latest[T]) OfferLater(uid types.UID, order T, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.offerLater(uid, order, after)
}

// offerLater is OfferLater under the lock.
func (l *Latest[T]) offerLater(uid types.UID, order T, after time.Duration) {
	if _, has := l.orders[uid]; !has {
		l.orders[uid] = order
		l.queue.AddAfter(uid, after)
	}
}

// done notes that an order is not being carried out any more. It is retried after a while, unless that is 0 or a newer one came.
func (l *Latest[T]) done(uid types.UID, order T, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, uid)
	if again > 0 {
		l.offerLater(uid, order, again)
	}
}

// Start carries orders out until ctx ends.
func (l *Latest[T]) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	for range l.workers {
		wg.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	l.queue.ShutDown()
	wg.Wait()
	return nil
}

// next carries one order out, and reports whether there can be more.
func (l *Latest[T]) next(ctx context.Context) bool {
	uid, down := l.queue.Get()
	if down {
		return false
	}
	defer l.queue.Done(uid)
	l.mu.Lock()
	order, ok := l.orders[uid]
	delete(l.orders, uid)
	if ok {
		l.busy[uid] = true
	}
	l.mu.Unlock()
	if !ok {
		return true
	}
	again := time.Duration(0)
	switch err := l.do(ctx, order); {
	case err == nil:
		l.pauses.Forget(uid)
	case ctx.Err() == nil:
		if again = l.failed(order, err, l.pauses.When(uid)); again == 0 && apierrors.IsNotFound(err) {
			l.pauses.Forget(uid) // a deleted object has no later failure
		}
	}
	l.done(uid, order, again)
	return true
}
