// Package reconcile is shared by all controllers around their decisions: observe
// the world, decide in a pure function, execute one write, and report the outcome.
//
//	observe ──► decide (a plan) ──► write ──► Outcome ──► requeue or not
//	   ▲                                   │
//	   └────────── conflict ◄──────────────┘
//
// A write that finds a newer object never overwrites it: the object is read and
// decided upon again. The status of a Workload has many writers upstream and in
// tools built for it, so all of Berth writes it through [WorkloadStatus], by
// server-side apply with the complete set of fields that its field manager owns.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Delays before an object is requeued.
const (
	// conflictDelay lets the cache catch up with the object that was newer.
	conflictDelay = 20 * time.Millisecond
	// lagDelay is for objects that exist already although the cache does not know them.
	lagDelay = 200 * time.Millisecond
)

type kind int

const (
	done kind = iota
	wait
	stalled
	retry
)

// Outcome is the result of a reconcile, and when to requeue. The zero value is Done.
type Outcome struct {
	kind  kind
	after time.Duration
	err   error
}

// Done means that the world is as wanted, or that a write was made whose event requeues the object.
func Done() Outcome { return Outcome{} }

// Wait means that nothing is to be done until an event or until the given time has passed. Zero or less means at once,
// which still goes through the queue.
func Wait(after time.Duration) Outcome {
	return Outcome{kind: wait, after: max(after, time.Nanosecond)}
}

// Earliest returns the earlier of two delays; 0 is never.
func Earliest(a, b time.Duration) time.Duration {
	if a > 0 && b > 0 {
		return min(a, b)
	}
	return max(a, b)
}

// Stalled means that only a change of the objects can help; err names it. It is logged and counted, and not retried.
func Stalled(err error) Outcome { return Outcome{kind: stalled, err: err} }

// Retry means that the reconcile failed and is repeated: soon and silently if the cache lags behind, with backoff otherwise. A nil error is
// Done.
func Retry(err error) Outcome {
	if err == nil {
		return Done()
	}
	return Outcome{kind: retry, err: err}
}

// Err returns the error of Stalled and Retry.
func (o Outcome) Err() error { return o.err }

// IsStale reports whether an error only shows that the cache lags behind: a conflict, an object that exists already, or a deleted one.
func IsStale(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// IsFailure reports whether an error of a write is one that users should know of. A canceled write shows that the process ends.
func IsFailure(err error) bool {
	return err != nil && !IsStale(err) && !errors.Is(err, context.Canceled)
}

// Summarize returns the first of several errors with the number of the others, which can be thousands. Failures go first: after a conflict alone
// there is no backoff. Nil errors do not count.
func Summarize(errs []error) error {
	var failures, others []error
	for _, err := range errs {
		switch {
		case err == nil:
		case IsFailure(err):
			failures = append(failures, err)
		default:
			others = append(others, err)
		}
	}
	all := append(failures, others...)
	if len(all) > 1 {
		return fmt.Errorf("%w (and %d more)", all[0], len(all)-1)
	}
	return errors.Join(all...)
}

// Result translates the outcome for controller-runtime. Errors that only show that the cache lags behind are not logged as errors:
// conflicts, objects that exist already, deleted objects.
func (o Outcome) Result(ctx context.Context) (ctrlreconcile.Result, error) {
	switch {
	case o.kind == wait:
		return ctrlreconcile.Result{RequeueAfter: o.after}, nil
	case o.kind == stalled:
		return ctrlreconcile.Result{}, ctrlreconcile.TerminalError(o.err)
	case o.kind == done || errors.Is(o.err, context.Canceled):
		return ctrlreconcile.Result{}, nil
	case apierrors.IsConflict(o.err):
		log.FromContext(ctx).V(2).Info("The object is newer than the cache, looking again", "err", o.err.Error())
		return ctrlreconcile.Result{RequeueAfter: conflictDelay}, nil
	case apierrors.IsAlreadyExists(o.err), apierrors.IsNotFound(o.err):
		log.FromContext(ctx).V(2).Info("The cache lags behind, looking again", "err", o.err.Error())
		return ctrlreconcile.Result{RequeueAfter: lagDelay}, nil
	default:
		return ctrlreconcile.Result{}, o.err
	}
}
