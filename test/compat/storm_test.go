package compat

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-project/berth/internal/embedded"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// quick is a configuration whose times are short enough for schedules.
const quick = `
waitForPodsReady:
  timeout: 60s
  requeuingStrategy: {backoffBaseSeconds: 1, backoffMaxSeconds: 1}
`

// TestSchedules runs random sequences of actions of users and administrators, many at the same time.
func TestSchedules(t *testing.T) {
	running(t, quick)
	first := embeddedtest.Seed(t, 0)
	const together = 20 // more only take turns
	for done, all := 0, pick(4, 200); done < all; done += together {
		t.Run(fmt.Sprintf("from %d", done), func(t *testing.T) {
			for i := done; i < min(done+together, all); i++ {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					newSchedule(newWorld(t), first+uint64(i)).run(pick(30, 60), 100*time.Millisecond)
				})
			}
		})
	}
}

// TestFailover alternates between two managers while schedules run: the leader is killed or stopped, and the other one takes over.
func TestFailover(t *testing.T) {
	at := cluster(t)
	webhooks := launch(t, at, configured(t, quick), only(t, "webhooks"))
	webhooks.ready()
	o := configured(t, quick)
	l := &o.LeaderElection
	l.Enabled, l.LeaseDuration, l.RenewDeadline, l.RetryPeriod = true, 3*time.Second, 2*time.Second, 500*time.Millisecond
	over, left := make(chan struct{}), sync.WaitGroup{}
	kills := 0
	left.Go(func() {
		var pair [2]struct {
			*manager
			*saboteur
		}
		begin := func(i int) {
			s := newSaboteur()
			pair[i].saboteur, pair[i].manager = s, launch(t, at, o, only(t, "-webhooks"), through(s.wrap))
		}
		begin(0)
		begin(1)
		for ; ; kills++ {
			select {
			case <-over:
				return
			case <-time.After(4 * time.Second):
			}
			i := kills % 2
			if kills%4 < 2 {
				pair[i].kill() // it keeps its lease: the other one has to wait for its end
			}
			_ = pair[i].end() // the error is a lost lease
			begin(i)
		}
	})
	schedules(t, at, pick(2, 20))
	close(over)
	left.Wait()
	t.Logf("%d managers ended", kills)
	if kills < 2 {
		t.Errorf("only %d managers ended", kills)
	}
}

// schedules runs some at the same time.
func schedules(t *testing.T, at *site, n int) {
	t.Helper()
	first := embeddedtest.Seed(t, 0)
	t.Run("schedules", func(t *testing.T) {
		for i := range n {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				newSchedule(at.world(t), first+uint64(i)).run(pick(40, 60), 150*time.Millisecond)
			})
		}
	})
}

// TestAPIServerRestarts stops and restarts the API server while schedules run.
func TestAPIServerRestarts(t *testing.T) {
	cfg := embedded.Config{Dir: t.TempDir(), Port: embeddedtest.FreePort(t), Bare: true}
	start := func() *embedded.ControlPlane {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
		defer cancel()
		plane, err := embedded.Start(ctx, cfg)
		if err != nil {
			t.Errorf("starting the control plane: %v", err)
		}
		return plane
	}
	stop := func(plane *embedded.ControlPlane) {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
		defer cancel()
		if err := plane.Stop(ctx); err != nil {
			t.Errorf("stopping the control plane: %v", err)
		}
	}
	plane := start()
	if plane == nil {
		return
	}
	admin := administrator(t, plane)
	over, left := make(chan struct{}), sync.WaitGroup{}
	t.Cleanup(func() { stop(plane) }) // after the manager, which cleans up before
	at := setUp(t, admin)
	m := launch(t, at, configured(t, quick))
	m.ready()
	restarts := 0
	left.Go(func() {
		for restarts < pick(1, 6) {
			select {
			case <-over:
				return
			case <-time.After(4 * time.Second):
			}
			stop(plane)
			time.Sleep(time.Second)
			next := start()
			if next == nil {
				return
			}
			plane = next
			restarts++
		}
	})
	schedules(t, at, pick(1, 20))
	close(over)
	left.Wait()
	t.Logf("%d restarts", restarts)
	if restarts == 0 {
		t.Error("the API server was not restarted")
	}
}

func administrator(t *testing.T, plane *embedded.ControlPlane) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}
