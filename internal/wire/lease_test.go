package wire

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/install"
	"github.com/berth-project/berth/internal/options"
)

// TestLease: a manager that finds its lease with another holder, such as upstream's manager, writes nothing until it is free, and one that loses
// the API server ends. spec: 70 §7 examples 26 and 54.
func TestLease(t *testing.T) {
	admin, c := ownServer(t)
	o := options.Default()
	o.Metrics.Address, o.Health.Address = "0", "0"
	o.LeaderElection.RenewDeadline, o.LeaderElection.RetryPeriod = 2*time.Second, 200*time.Millisecond
	groups, err := install.ParseGroups("queues")
	if err != nil {
		t.Fatal(err)
	}
	if err := install.Apply(t.Context(), admin, install.Options{Options: o, Groups: groups}, io.Discard); err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.LeaderElection.Namespace, Name: "c1f6bfd2.kueue.x-k8s.io"}}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = new("kueue-controller-manager-0"), new(metav1.NowMicro())
	lease.Spec.LeaseDurationSeconds, lease.Spec.AcquireTime = new(int32(3600)), lease.Spec.RenewTime
	cq := clusterQueue("q", "4")
	for _, object := range []client.Object{&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}, cq, lease} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	var cut atomic.Bool
	own := rest.CopyConfig(admin)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
			if cut.Load() {
				return nil, errors.New("the line is cut")
			}
			return next.RoundTrip(r)
		})
	})
	ended := make(chan error, 1)
	go func() { ended <- Run(t.Context(), Config{REST: own, Options: o, Groups: groups, Log: testr.New(t)}) }()
	conditions := func() int {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cq), cq); err != nil {
			t.Fatal(err)
		}
		return len(cq.Status.Conditions)
	}
	wait.Stays(t, 3*time.Second, "the holder of the lease leads", func() error {
		if conditions() > 0 || len(cq.Finalizers) > 0 {
			return errors.New("the queue was written")
		}
		return nil
	})
	embeddedtest.Edit(t, c, lease, func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = new(""), new(int32(1))
	})
	wait.Until(t, "the lease is free", wait.Is(func() bool { return conditions() > 0 }))
	cut.Store(true)
	if err := wait.Receive(t, "the manager ends", ended); err == nil {
		t.Error("it ends without an error")
	}
}
