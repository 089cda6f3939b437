package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/reconcile"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// clusters connects to worker clusters and reports that in the status of MultiKueueClusters (spec: 40 §4.2).
type clusters struct{ *Fleet }

// editedOrReported passes edits, and changes of the conditions that write compares with.
var editedOrReported = reconcile.EditedOr(func(cluster *kueue.MultiKueueCluster) []metav1.Condition { return cluster.Status.Conditions })

// Intervals between reads of credentials and states that no event announces.
const (
	rereadFile     = 5 * time.Second
	rereadProfile  = 10 * time.Second
	rereadAfter    = 5 * time.Second // after an error other than absence
	selfAgain      = time.Minute     // a cluster that is the manager itself
	recheckHanging = 5 * time.Second // whether an abandoned attempt has ended
	recheckNamed   = time.Minute     // whether a MultiKueueConfig names a deleted cluster
)

// Reconcile connects to one cluster, unless it is connected with its present credentials.
func (c *clusters) Reconcile(ctx context.Context, req ctrlreconcile.Request) (ctrlreconcile.Result, error) {
	r := c.get(req.Name)
	var cluster kueue.MultiKueueCluster
	err := c.cache.Get(ctx, req.NamespacedName, &cluster)
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return ctrlreconcile.Result{}, err
	}
	if gone || cluster.DeletionTimestamp != nil {
		return c.end(ctx, r, gone)
	}
	c.restoreLoss(r, &cluster)
	if c.AnyPath && isFile(&cluster) {
		c.Events.Warning(&cluster, "DeprecatedPathUsage", "The kubeconfig is read from any path: the feature gate MultiKueueKubeConfigPathValidation is off")
	}
	cfg, credentials, refused := c.load(ctx, &cluster)
	if refused != nil && refused.unread && r.uses(&cluster.Spec.ClusterSource) {
		ctrl.LoggerFrom(ctx).Info("The credentials of a worker cluster cannot be read: it stays connected", "cluster", cluster.Name, "err", refused.Error())
		return ctrlreconcile.Result{RequeueAfter: rereadAfter}, nil
	}
	if refused != nil {
		return c.refuse(ctx, r, &cluster, refused)
	}
	if !r.same(credentials) {
		if r.disconnect(c.Now()) {
			c.reportLoss(r)
		}
		r.mu.Lock()
		r.credentials, r.attempts, r.next, r.address, r.hangs, r.unproven = credentials, 0, time.Time{}, addressOf(cfg), nil, nil
		r.mu.Unlock()
	}
	return c.connectOrWait(ctx, r, &cluster, cfg)
}

// connectOrWait reports the connection of a cluster, or makes one when it is time to.
func (c *clusters) connectOrWait(ctx context.Context, r *workerCluster, cluster *kueue.MultiKueueCluster, cfg *rest.Config) (ctrlreconcile.Result, error) {
	r.mu.Lock()
	connected, hangs, unproven := r.connection, r.hangs != nil, r.unproven
	r.unproven, r.source = nil, cluster.Spec.ClusterSource
	attempts, left, failure := r.attempts, r.next.Sub(c.Now()), r.failure
	r.mu.Unlock()
	switch {
	case connected != nil:
		return c.report(ctx, cluster, connected)
	case unproven != nil:
		return c.fail(ctx, r, cluster, unproven)
	case hangs:
		return ctrlreconcile.Result{RequeueAfter: recheckHanging}, nil
	case attempts > 0 && left > 0 && !r.probe(c.Now()):
		if err := c.write(ctx, cluster, failure); err != nil { // the write after the attempt may have failed
			return reconcile.Retry(err).Result(ctx)
		}
		return ctrlreconcile.Result{RequeueAfter: min(left, probeEvery)}, nil
	}
	return c.attempt(ctx, r, cluster, cfg)
}

// end disconnects a cluster that is deleted, and forgets it once no MultiKueueConfig names it: until then Workloads and quotas need the
// time of its loss.
func (c *clusters) end(ctx context.Context, r *workerCluster, gone bool) (ctrlreconcile.Result, error) {
	r.disconnect(c.Now())
	r.mu.Lock()
	was := !r.deleted
	r.deleted, r.credentials, r.attempts = true, nil, 0
	r.mu.Unlock()
	if r.noteTried() || was {
		c.ClusterChanged(ctx, r.name, false)
	}
	if !gone {
		return ctrlreconcile.Result{}, nil
	}
	var configs kueue.MultiKueueConfigList
	if err := c.cache.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return ctrlreconcile.Result{}, fmt.Errorf("listing MultiKueueConfigs: %w", err)
	}
	for i := range configs.Items {
		if slices.Contains(configs.Items[i].Spec.Clusters, r.name) {
			return ctrlreconcile.Result{RequeueAfter: recheckNamed}, nil
		}
	}
	c.drop(r.name)
	return ctrlreconcile.Result{}, nil
}

func isFile(cluster *kueue.MultiKueueCluster) bool {
	k := cluster.Spec.ClusterSource.KubeConfig
	return k != nil && k.LocationType == kueue.LocationTypePath
}

// restoreLoss takes the time of the loss from the status: it survives restarts.
func (c *clusters) restoreLoss(r *workerCluster, cluster *kueue.MultiKueueCluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleted, r.firstLost = false, time.Time{}
	if a := apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive); a != nil && a.Status == metav1.ConditionFalse {
		r.firstLost = a.LastTransitionTime.Time
	}
}

func (c *clusters) refuse(ctx context.Context, r *workerCluster, cluster *kueue.MultiKueueCluster, why *refusal) (ctrlreconcile.Result, error) {
	was := r.disconnect(c.Now())
	r.mu.Lock()
	r.credentials, r.attempts, r.next = nil, 0, time.Time{}
	r.mu.Unlock()
	if r.noteTried() || was {
		c.ClusterChanged(ctx, cluster.Name, false)
	}
	if err := c.write(ctx, cluster, active(metav1.ConditionFalse, why.reason, why.Error())); err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	if why.missing {
		return ctrlreconcile.Result{}, nil
	}
	return ctrlreconcile.Result{RequeueAfter: rereadAfter}, nil
}

func (c *clusters) attempt(ctx context.Context, r *workerCluster, cluster *kueue.MultiKueueCluster, cfg *rest.Config) (ctrlreconcile.Result, error) {
	made, err := c.try(ctx, r, cfg)
	if err == nil && made.uid != "" && made.uid == c.Plan.ManagerUID {
		made.close()
		failure := active(metav1.ConditionFalse, reasonSelf, "The cluster is the manager itself: a manager cannot be its own worker")
		r.mu.Lock()
		r.attempts, r.next, r.failure = 1, c.Now().Add(selfAgain), failure
		r.mu.Unlock()
		c.noteFailure(ctx, r)
		err := c.write(ctx, cluster, failure)
		return ctrlreconcile.Result{RequeueAfter: selfAgain}, err
	}
	if err == nil {
		err = r.use(made, c.Now())
	}
	if err == nil {
		r.noteTried()
		c.tuneGC()
		ctrl.LoggerFrom(ctx).Info("Connected to a worker cluster", "cluster", cluster.Name)
		c.ClusterChanged(ctx, cluster.Name, true)
		made.announce()
		return c.report(ctx, cluster, made)
	}
	return c.fail(ctx, r, cluster, err)
}

// fail counts and reports a failed attempt.
func (c *clusters) fail(ctx context.Context, r *workerCluster, cluster *kueue.MultiKueueCluster, err error) (ctrlreconcile.Result, error) {
	r.mu.Lock()
	wait := probeEvery
	if r.attempts == 0 || c.Now().Sub(r.backAt) > startsFor {
		r.attempts++
		wait = pause(r.attempts)
	}
	r.next = c.Now().Add(wait)
	attempts := fmt.Sprintf("; connection attempts: %d, next connection attempt: %s", r.attempts, r.next.UTC().Format(time.RFC3339))
	failure := active(metav1.ConditionFalse, kueue.ReasonClientConnectionFailed, lifecycle.Cut(err.Error(), lifecycle.MaxMessage-len(attempts))+attempts)
	r.failure = failure
	r.mu.Unlock()
	c.noteFailure(ctx, r)
	if err := c.write(ctx, cluster, failure); err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	return ctrlreconcile.Result{RequeueAfter: min(wait, probeEvery)}, nil
}

// noteFailure reports a first attempt that has failed: until then the cluster counts as one that may answer soon.
func (c *clusters) noteFailure(ctx context.Context, r *workerCluster) {
	if r.noteTried() {
		c.ClusterChanged(ctx, r.name, false)
	}
}

type tried struct {
	made *Connection
	err  error
}

// try connects, and abandons an attempt that takes too long: a credential plugin cannot be stopped. No other attempt is made with the
// same credentials until that one has ended.
func (c *clusters) try(ctx context.Context, r *workerCluster, cfg *rest.Config) (*Connection, error) {
	r.mu.Lock()
	limit := min(c.firstWatch<<min(r.attempts, 5), lastWatch)
	r.mu.Unlock()
	wait := limit + min(limit, callTimeout) + slow
	ctx, done := context.WithTimeout(ctx, wait)
	defer done()
	ended, left := make(chan tried), make(chan struct{})
	go func() {
		made, err := c.connect(ctx, r.name, cfg, limit, c.lost)
		select {
		case ended <- tried{made, err}:
			return
		case <-left:
		}
		if err == nil {
			made.close()
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.hangs == left {
			r.hangs = nil
		}
	}()
	select {
	case result := <-ended:
		return result.made, result.err
	case <-ctx.Done():
		r.mu.Lock()
		r.hangs = left
		r.mu.Unlock()
		close(left)
		return nil, fmt.Errorf("no answer within %s of the cluster, or of the program that gets its credentials: %w", wait, ctx.Err())
	}
}

// use adopts a connection, unless it has been lost since. The attempts count on until its calls have worked for a while, or its watch ends.
func (r *workerCluster) use(made *Connection, now time.Time) error {
	r.mu.Lock()
	err := context.Cause(made.ctx)
	if err == nil {
		r.connection, r.connectedAt, r.next = made, now, time.Time{}
	}
	r.mu.Unlock()
	if err != nil {
		made.close()
	}
	return err
}

const reasonSelf = "SelfReference"

const (
	reasonNone    = "NoConflict"
	reasonForeign = "ForeignManager"
)

func (c *clusters) report(ctx context.Context, cluster *kueue.MultiKueueCluster, made *Connection) (ctrlreconcile.Result, error) {
	conditions := []metav1.Condition{active(metav1.ConditionTrue, kueue.ReasonActive, "Connected"), made.frameworks()}
	conflict := metav1.Condition{Type: kueue.MultiKueueClusterOriginConflict, Status: metav1.ConditionTrue, Reason: reasonForeign, Message: fmt.Sprintf(
		"Another manager uses this worker with the same origin %q: give each manager a multiKueue.origin of its own", c.Plan.Origin)}
	if !made.foreign.Load() {
		conflict.Status, conflict.Reason, conflict.Message = metav1.ConditionFalse, reasonNone, "No other manager uses this worker with the same origin"
	}
	if made.foreign.Load() || apimeta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterOriginConflict) != nil {
		conditions = append(conditions, conflict)
	}
	if err := c.write(ctx, cluster, conditions...); err != nil {
		return reconcile.Retry(err).Result(ctx)
	}
	switch {
	case isFile(cluster):
		return ctrlreconcile.Result{RequeueAfter: rereadFile}, nil
	case cluster.Spec.ClusterSource.ClusterProfileRef != nil:
		return ctrlreconcile.Result{RequeueAfter: rereadProfile}, nil
	}
	return ctrlreconcile.Result{}, nil
}

func active(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kueue.MultiKueueClusterActive, Status: status, Reason: reason, Message: lifecycle.Cut(message, lifecycle.MaxMessage)}
}

func (c *clusters) write(ctx context.Context, cluster *kueue.MultiKueueCluster, conditions ...metav1.Condition) error {
	next := cluster.DeepCopy()
	for _, condition := range conditions {
		old := apimeta.FindStatusCondition(next.Status.Conditions, condition.Type)
		if old != nil && old.Status == condition.Status && old.Reason == condition.Reason && old.Message == condition.Message {
			continue
		}
		condition.ObservedGeneration, condition.LastTransitionTime = cluster.Generation, metav1.NewTime(c.Now())
		apimeta.SetStatusCondition(&next.Status.Conditions, condition)
	}
	if equality.Semantic.DeepEqual(cluster.Status, next.Status) {
		return nil
	}
	if err := c.client.Status().Patch(ctx, next, client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the status of MultiKueueCluster %s: %w", cluster.Name, err)
	}
	return nil
}

func (c *clusters) ofSecret(ctx context.Context, secret client.Object) []ctrlreconcile.Request {
	return reconcile.Matching(ctx, c.cache, &kueue.MultiKueueClusterList{}, "MultiKueueClusters", func(cluster *kueue.MultiKueueCluster) bool {
		k := cluster.Spec.ClusterSource.KubeConfig
		return k != nil && k.LocationType != kueue.LocationTypePath && k.Location == secret.GetName()
	})
}
