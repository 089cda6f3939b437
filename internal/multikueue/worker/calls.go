package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errCallsFail ends a connection whose calls fail.
var errCallsFail = errors.New("its calls fail")

// errHangs ends a connection whose calls cannot be ended because a credential plugin runs.
var errHangs = errors.New("a call does not end")

// Call makes one call within the limits. It returns ErrStuck if there is no answer soon; do then continues and its result is lost, so it
// must not touch anything that is used after an error. Repeated failures end the connection, and so do refused credentials.
func (c *Connection) Call(ctx context.Context, do func(context.Context, client.Client) error) error {
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return ErrStuck
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(slow):
		return ErrStuck
	}
	if !c.stuckSince().IsZero() {
		<-c.slots
		return ErrStuck
	}
	id := c.begin()
	result := make(chan error, 1)
	go func() {
		calling, done := context.WithTimeout(c.ctx, callTimeout)
		hangs := time.AfterFunc(callTimeout+slow, func() { c.lost(c, errHangs) })
		err := do(calling, c.client)
		hangs.Stop()
		done()
		c.end(id, err)
		<-c.slots
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(slow):
		return ErrStuck
	}
}

func (c *Connection) begin() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	c.calls[c.next] = time.Now()
	return c.next
}

// end notes the end of a call. After a late one the cluster counts as connected again, whatever the result, and Workloads that found it
// unreachable wait for that.
func (c *Connection) end(id int64, err error) {
	c.mu.Lock()
	late := time.Since(c.calls[id]) > slow
	delete(c.calls, id)
	c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		return
	case err == nil, rejected(err):
		c.failed.Store(0)
	case apierrors.IsUnauthorized(err), c.failed.Add(1) >= maxFailures:
		c.lost(c, fmt.Errorf("%w: %w", errCallsFail, err))
		return
	}
	if late && c.stuckSince().IsZero() {
		c.reportConnected(err == nil || answered(err))
	}
}

// failedPause is the least time between reports after calls that failed late: a Workload may repeat such a call at once, and all are requeued.
const failedPause = time.Minute

// reportConnected reports that the cluster counts as connected again: now, or failedPause after the last time.
func (c *Connection) reportConnected(now bool) {
	c.mu.Lock()
	rest := failedPause - time.Since(c.reported)
	if !now && rest > 0 {
		if !c.reporting {
			c.reporting = true
			time.AfterFunc(rest, func() { c.reportConnected(true) })
		}
		c.mu.Unlock()
		return
	}
	c.reported, c.reporting = time.Now(), false
	c.mu.Unlock()
	if c.ctx.Err() == nil {
		c.fleet.ClusterChanged(c.ctx, c.name, false)
		c.announce()
	}
}

func answered(err error) bool {
	if apierrors.IsUnauthorized(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) {
		return false
	}
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// webhookFailed is part of the API server's internal error about a webhook that it could not call: the object was not stored.
const webhookFailed = "failed calling webhook"

// rejected reports whether a call that failed changed nothing: the cluster answered, if only that it could not call a webhook.
func rejected(err error) bool {
	return answered(err) || strings.Contains(err.Error(), webhookFailed)
}
