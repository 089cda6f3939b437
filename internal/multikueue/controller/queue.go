package controller

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type (
	queueType = workqueue.TypedRateLimitingInterface[ctrlreconcile.Request]
	informers = cache.Informers
)

type latch struct {
	mu    sync.Mutex
	queue queueType
}

func (l *latch) get(from <-chan queueType) queueType {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		select {
		case l.queue = <-from:
		default:
		}
	}
	return l.queue
}
