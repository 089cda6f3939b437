// Package lease keeps an upstream controller of JobSets and Berth's from acting at the same time (spec: 60 §5.6).
package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-project/berth/internal/options"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;update,resourceNames=6d4f6a47.jobset.x-k8s.io,roleName=kueue-manager-jobset-role
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,roleName=kueue-manager-jobset-role

// runnable holds the Lease of the upstream controller of JobSets while Berth's runs, so that an upstream one that starts later waits
// and the two never act on one JobSet (spec: 60 §5.6, 70 §6 #21). It runs on the leader only, and all replicas hold the
// Lease under one name: a new leader continues at once. At the end the Lease is left to expire, so that an updated Berth can
// return before a waiting controller takes over.
//
// Without the namespace of the Lease no other controller can hold it; it is read again at every retry.
type runnable struct {
	options.LeaderElection
	us     holders
	cached client.Reader // of namespaces
	live   client.Reader
	writer client.Client
	now    func() time.Time
	log    logr.Logger

	once sync.Once
	// ours is closed as soon as Berth may act upon JobSets.
	ours chan struct{}
	last *coordinationv1.Lease // as we wrote it
}

// holders are the names of an installation in the Lease: the one that it writes, and the one that earlier versions wrote.
type holders [2]string

// holdersOf names an installation by its own namespace. Its replicas may differ in the namespace of their leader's Lease while a change of
// that setting is rolled out; earlier versions were named by it.
func holdersOf(o *options.Options) holders {
	return holders{"berth/" + o.Namespace, "berth/" + o.LeaderElection.Namespace}
}

// Setup keeps upstream's controller of JobSets away. api has a rate limit of its own, so that other requests cannot delay the renewal of the
// Lease. The channel is closed once Berth may act; nil is at once.
func Setup(ctx context.Context, mgr ctrl.Manager, api client.Client, o *options.Options, log logr.Logger) (<-chan struct{}, error) {
	if !o.JobSet.Lease.Enabled {
		return nil, nil
	}
	l := &runnable{
		LeaderElection: o.JobSet.Lease, us: holdersOf(o), cached: mgr.GetClient(), live: api, writer: api,
		now: time.Now, log: log, ours: make(chan struct{}),
	}
	if err := alone(ctx, l.live, l.key(), l.us, time.Now()); err != nil {
		return nil, err
	}
	return l.ours, mgr.Add(l)
}

// NeedLeaderElection is true: the replica that leads holds the Lease.
func (l *runnable) NeedLeaderElection() bool { return true }

// Start holds the Lease until ctx ends. It fails, and the manager with it, if another controller has the Lease.
func (l *runnable) Start(ctx context.Context) error {
	deadline := l.now().Add(l.RenewDeadline)
	for ctx.Err() == nil {
		began := l.now()
		limited, cancel := context.WithDeadline(ctx, deadline)
		err := l.hold(limited)
		cancel()
		switch {
		case err == nil:
			deadline = began.Add(l.RenewDeadline)
			l.once.Do(func() { close(l.ours) })
		case apierrors.IsForbidden(err):
			l.log.Info("The Lease of JobSets cannot be held, so a controller of JobSets that is started later is not kept from working: install again for the access rules", "err", err.Error())
			l.once.Do(func() { close(l.ours) })
			<-ctx.Done()
			return nil
		case errors.As(err, new(*heldElsewhere)):
			return err
		case ctx.Err() == nil && !l.now().Before(deadline):
			return fmt.Errorf("holding the Lease %s of JobSets: %w", l.key(), err)
		default:
			l.log.V(1).Info("Trying again to renew the Lease of JobSets", "err", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(l.RetryPeriod, deadline.Sub(l.now()))):
		}
	}
	return nil
}

func (l *runnable) key() types.NamespacedName {
	return types.NamespacedName{Namespace: l.Namespace, Name: l.Name}
}

// hold acquires the Lease, or renews it. Both end in a conflict if another client did so meanwhile.
func (l *runnable) hold(ctx context.Context) error {
	if l.last != nil {
		next := l.claim(l.last)
		err := l.writer.Update(ctx, next)
		if err == nil {
			l.last = next
			return nil
		}
		l.last = nil
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	lease := &coordinationv1.Lease{}
	err := l.live.Get(ctx, l.key(), lease)
	switch {
	case apierrors.IsNotFound(err):
		if err := l.cached.Get(ctx, client.ObjectKey{Name: l.Namespace}, &corev1.Namespace{}); err != nil {
			return client.IgnoreNotFound(err)
		}
		next := l.claim(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}})
		if err := l.writer.Create(ctx, next); err != nil {
			return err
		}
		l.last = next
		return nil
	case err != nil:
		return err
	}
	if err := heldByOther(lease, l.us, l.now()); err != nil {
		return err
	}
	next := l.claim(lease)
	if err := l.writer.Update(ctx, next); err != nil {
		return err
	}
	l.last = next
	return nil
}

// claim returns a Lease that this installation holds from now on.
func (l *runnable) claim(lease *coordinationv1.Lease) *coordinationv1.Lease {
	next, now := lease.DeepCopy(), metav1.NewMicroTime(l.now())
	s := &next.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity != l.us[0] {
		changes := int32(0)
		if s.LeaseTransitions != nil {
			changes = *s.LeaseTransitions + 1
		}
		s.HolderIdentity, s.AcquireTime, s.LeaseTransitions = &l.us[0], &now, &changes
	}
	s.RenewTime, s.LeaseDurationSeconds = &now, new(int32(l.LeaseDuration/time.Second))
	return next
}

// heldElsewhere is the error that another controller of JobSets holds the Lease.
type heldElsewhere struct{ holder, lease string }

func (h *heldElsewhere) Error() string {
	return fmt.Sprintf("%s runs JobSets already: it holds the Lease %s; stop it, or leave JobSets to it with --controllers=-jobset", h.holder, h.lease)
}

// heldByOther returns an error if another holder has a Lease.
func heldByOther(lease *coordinationv1.Lease, us holders, now time.Time) error {
	s := &lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || slices.Contains(us[:], *s.HolderIdentity) || s.RenewTime == nil || s.LeaseDurationSeconds == nil ||
		!now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second)) {
		return nil
	}
	return &heldElsewhere{*s.HolderIdentity, lease.Namespace + "/" + lease.Name}
}

// alone refuses to run JobSets beside an active upstream controller: the two would fight over every Job. A controller
// without leader election cannot be detected.
func alone(ctx context.Context, c client.Reader, key types.NamespacedName, us holders, now time.Time) error {
	var lease coordinationv1.Lease
	err := c.Get(ctx, key, &lease)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // forbidden: an older installation without the access rule
		return nil
	case err != nil:
		return fmt.Errorf("looking for another controller of JobSets: %w", err)
	}
	return heldByOther(&lease, us, now)
}
