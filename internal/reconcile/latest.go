package reconcile

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Latest has orders about objects carried out by a few workers: one at a time for each object, and of several orders only
// the newest. It is a runnable of a manager; orders may come before it starts.
type Latest[T any] struct {
	workers int
	do      func(context.Context, T) error
	failed  func(order T, err error, pause time.Duration) (again bool)

	mu     sync.Mutex
	orders map[types.UID]T
	queue  workqueue.TypedDelayingInterface[types.UID]
	pauses workqueue.TypedRateLimiter[types.UID]
}

// NewLatest carries orders out with do. Of one that fails failed is told, with a pause that grows from one failure of the
// same object to the next. If that says so the order is carried out again after the pause, unless a newer one came.
func NewLatest[T any](workers int, do func(context.Context, T) error, failed func(order T, err error, pause time.Duration) (again bool)) *Latest[T] {
	return &Latest[T]{
		workers: workers, do: do, failed: failed, orders: map[types.UID]T{}, queue: workqueue.NewTypedDelayingQueue[types.UID](),
		pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](conflictDelay, 30*time.Second),
	}
}

// Put gives an order about an object. It returns at once.
func (l *Latest[T]) Put(uid types.UID, order T) {
	l.mu.Lock()
	l.orders[uid] = order
	l.mu.Unlock()
	l.queue.Add(uid)
}

// Offer gives an order unless there is one about the same object. It returns at once.
func (l *Latest[T]) Offer(uid types.UID, order T) {
	l.mu.Lock()
	_, has := l.orders[uid]
	if !has {
		l.orders[uid] = order
	}
	l.mu.Unlock()
	if !has {
		l.queue.Add(uid)
	}
}

// Backlog is how many orders are due and not begun.
func (l *Latest[T]) Backlog() int { return l.queue.Len() }

// PutLater gives an order that is carried out after a while, unless another one about the same object comes before. It
// returns at once. Orders that keep coming do not put off the moment at which the newest of them is carried out.
func (l *Latest[T]) PutLater(uid types.UID, order T, after time.Duration) {
	l.mu.Lock()
	l.orders[uid] = order
	l.mu.Unlock()
	l.queue.AddAfter(uid, after)
}

// again has an order that failed carried out once more, unless a newer one came meanwhile, or comes before.
func (l *Latest[T]) again(uid types.UID, order T, pause time.Duration) {
	l.mu.Lock()
	_, newer := l.orders[uid]
	if !newer {
		l.orders[uid] = order
	}
	l.mu.Unlock()
	if !newer {
		l.queue.AddAfter(uid, pause)
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
	l.mu.Unlock()
	if !ok {
		return true
	}
	switch err := l.do(ctx, order); {
	case err == nil:
		l.pauses.Forget(uid)
	case ctx.Err() == nil:
		if pause := l.pauses.When(uid); l.failed(order, err, pause) {
			l.again(uid, order, pause)
		}
	}
	return true
}
