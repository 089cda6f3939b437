package reconcile

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Bounds of the delay between failing reconciles of one object. The cause of a refused write, a policy or a quota, is often removed by hand:
// controller-runtime's own limit is 1000 s.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// ControllerOptions returns the options of a controller with a number of concurrent reconciles.
func ControllerOptions(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrlreconcile.Request](firstRetry, lastRetry),
	}
}
