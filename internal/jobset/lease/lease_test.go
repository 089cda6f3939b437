package lease

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

func TestMain(m *testing.M) { os.Exit(embeddedtest.Main(m)) }

const us = "berth/berth-system"

// both are our names, of which earlier versions wrote the second.
var both = holders{us, "berth/leases"}

var upstreamLease = types.NamespacedName{Namespace: "jobset-system", Name: "6d4f6a47.jobset.x-k8s.io"}

// leaseOf returns upstream's Lease with a holder, renewed some time ago.
func leaseOf(holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: upstreamLease.Namespace, Name: upstreamLease.Name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(renewed)), LeaseTransitions: new(int32(3)),
		},
	}
}

func TestAlone(t *testing.T) {
	now := time.Now()
	held := func(holder string, ago time.Duration) *coordinationv1.Lease { return leaseOf(holder, now.Add(-ago)) }
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		runs  bool
	}{
		"nobody":             {nil, false},
		"it runs":            {held("jobset-0", 5*time.Second), true},
		"it ran":             {held("jobset-0", 20*time.Second), false},
		"it gave it up":      {held("", time.Second), false},
		"an empty lease":     {&coordinationv1.Lease{ObjectMeta: held("", 0).ObjectMeta}, false},
		"renewed right now":  {held("jobset-0", -time.Second), true}, // clocks differ
		"we run":             {held(us, time.Second), false},
		"we run, elsewhere":  {held("berth/other", time.Second), true},
		"we ran, long since": {held(us, time.Hour), false},
		"we run, as before":  {held("berth/leases", time.Second), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(install.Scheme())
			if tc.lease != nil {
				c.WithObjects(tc.lease)
			}
			err := alone(t.Context(), c.Build(), upstreamLease, both, now)
			if runs := err != nil; runs != tc.runs || runs && !strings.Contains(err.Error(), " runs JobSets already: it holds the Lease jobset-system/6d4f6a47.jobset.x-k8s.io; stop it") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// heldWith returns our Lease on some API server, with a stopped clock.
func heldWith(t *testing.T, c client.Client, now time.Time) *runnable {
	l := &runnable{
		LeaderElection: options.Default().JobSet.Lease, us: both, cached: c, live: c, writer: c,
		now: func() time.Time { return now }, log: testr.New(t), ours: make(chan struct{}),
	}
	l.RetryPeriod = 10 * time.Millisecond
	return l
}

// The Lease after an attempt to hold it, for all previous holders.
func TestHoldJobSets(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: upstreamLease.Namespace}}
	for name, tc := range map[string]struct {
		objects []client.Object
		holder  string // "" is no Lease
		changes int32
		refused bool
	}{
		"no namespace":             {nil, "", 0, false},
		"nobody yet":               {[]client.Object{namespace}, us, 0, false},
		"upstream ran":             {[]client.Object{namespace, leaseOf("jobset-0", now.Add(-time.Minute))}, us, 4, false},
		"upstream gave it up":      {[]client.Object{namespace, leaseOf("", now)}, us, 4, false},
		"upstream runs":            {[]client.Object{namespace, leaseOf("jobset-0", now.Add(-time.Second))}, "jobset-0", 3, true},
		"another replica of ours":  {[]client.Object{namespace, leaseOf(us, now.Add(-time.Second))}, us, 3, false},
		"an earlier version of us": {[]client.Object{namespace, leaseOf("berth/leases", now.Add(-time.Second))}, us, 4, false},
		"we were killed, are back": {[]client.Object{namespace, leaseOf(us, now.Add(-time.Hour))}, us, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(install.Scheme()).WithObjects(tc.objects...).Build()
			l := heldWith(t, c, now)
			for range 2 { // the second time on what the first wrote
				if err := l.hold(t.Context()); errors.As(err, new(*heldElsewhere)) != tc.refused || err != nil && !tc.refused {
					t.Fatalf("error %v", err)
				}
			}
			var lease coordinationv1.Lease
			err := c.Get(t.Context(), upstreamLease, &lease)
			if tc.holder == "" {
				if !apierrors.IsNotFound(err) {
					t.Errorf("%v, %+v", err, lease.Spec)
				}
				return
			}
			s := &lease.Spec
			if err != nil || *s.HolderIdentity != tc.holder || *s.LeaseTransitions != tc.changes {
				t.Fatalf("%v, %+v", err, s)
			}
			if ours := tc.holder == us; ours != s.RenewTime.Time.Equal(now) || *s.LeaseDurationSeconds != 15 {
				t.Errorf("renewed at %v, for %d s", s.RenewTime, *s.LeaseDurationSeconds)
			}
		})
	}
}

// All replicas of an installation hold the Lease under one name, wherever their leader's Lease is, and another installation under another
// (spec: 60 §5.6).
func TestLeaseHolder(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace, leader string
		want              holders
	}{
		"as shipped":               {"berth-system", "berth-system", holders{us, us}},
		"the leader's Lease moves": {"berth-system", "leases", both},
		"another installation":     {"other", "other", holders{"berth/other", "berth/other"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options.Default()
			o.Namespace, o.LeaderElection.Namespace = tc.namespace, tc.leader
			if got := holdersOf(&o); got != tc.want {
				t.Errorf("%v", got)
			}
		})
	}
}

// Without the rights JobSets are acted upon all the same; while the API server does not answer they are not, and in the end
// the manager gives up.
func TestLeaseTrouble(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, tc := range map[string]struct {
		err  error
		acts bool
	}{
		"no rights": {apierrors.NewForbidden(leases, upstreamLease.Name, errors.New("no")), true},
		"no answer": {errors.New("connection refused"), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(install.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return tc.err
				},
			}).Build()
			l := heldWith(t, c, time.Time{})
			l.now, l.RenewDeadline = time.Now, 50*time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- l.Start(ctx) }()
			select {
			case <-l.ours:
				cancel()
				if err := <-ended; !tc.acts || err != nil {
					t.Errorf("it acts; error %v", err)
				}
			case err := <-ended:
				if tc.acts || err == nil || !strings.Contains(err.Error(), "connection refused") {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

// Without an answer the manager gives up RenewDeadline after the last renewal was asked for, before another controller may take over.
func TestLeaseDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = time.Second // of each renewal
		var asked time.Time
		renewals := 0
		c := fake.NewClientBuilder().WithScheme(install.Scheme()).
			WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: upstreamLease.Namespace}}).
			WithInterceptorFuncs(interceptor.Funcs{
				Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
					if renewals++; renewals > 3 {
						<-ctx.Done()
						return ctx.Err()
					}
					asked = time.Now()
					time.Sleep(takes)
					return c.Update(ctx, o, opts...)
				},
			}).Build()
		l := heldWith(t, c, time.Time{})
		l.now, l.RetryPeriod = time.Now, 4*time.Second
		err := l.Start(t.Context())
		if after := time.Since(asked); !errors.Is(err, context.DeadlineExceeded) || renewals <= 3 || after != l.RenewDeadline {
			t.Errorf("it gave up after %s and %d renewals: %v", after, renewals, err)
		}
	})
}

// An upstream controller that is started while ours works waits, takes over when ours has ended, and then keeps ours away:
// with the election that it runs itself, on a real API server.
func TestUpstreamWaits(t *testing.T) {
	cfg := embeddedtest.Config(t)
	c, err := client.New(cfg, client.Options{Scheme: install.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	start := func() (l *runnable, ended chan error, stop context.CancelFunc) {
		l = heldWith(t, c, time.Time{})
		l.now, l.LeaseDuration, l.RenewDeadline, l.RetryPeriod = time.Now, 3*time.Second, 2*time.Second, 100*time.Millisecond
		ctx, stop := context.WithCancel(t.Context())
		ended = make(chan error, 1)
		go func() { ended <- l.Start(ctx) }()
		return l, ended, stop
	}
	ours, ended, stop := start()
	<-ours.ours                                                                        // without the namespace no other controller can hold the Lease
	t.Cleanup(func() { _ = c.Delete(context.Background(), leaseOf("", time.Time{})) }) // others start managers on this server
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: upstreamLease.Namespace}}); err != nil {
		t.Fatal(err)
	}
	holder := func() string {
		var lease coordinationv1.Lease
		if err := c.Get(t.Context(), upstreamLease, &lease); err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	wait.Until(t, "we hold the Lease in the new namespace", func() error {
		if h := holder(); h != us {
			return errors.New("held by " + h)
		}
		return nil
	})
	works := make(chan struct{})
	upstream, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: upstreamLease.Namespace, Name: upstreamLease.Name},
			Client:    kubernetes.NewForConfigOrDie(cfg).CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "jobset-0"},
		},
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(works) }, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	go upstream.Run(t.Context())
	select {
	case <-works:
		t.Fatal("upstream works beside us")
	case err := <-ended:
		t.Fatalf("we gave up: %v", err)
	case <-time.After(5 * time.Second):
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wait.Receive(t, "upstream takes over", works)
	again, ended, stop := start()
	defer stop()
	if err := <-ended; err == nil || !strings.HasPrefix(err.Error(), "jobset-0 runs JobSets already") {
		t.Errorf("error %v", err)
	}
	select {
	case <-again.ours:
		t.Error("we act beside upstream")
	default:
	}
}
