package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	testwait "github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// Of the orders that come during the execution of another only the newest is kept, and two
// orders about the same object never run at once.
func TestLatestOrderWins(t *testing.T) {
	const objects, orders = 5, 200
	var mu sync.Mutex
	busy, last := map[types.UID]bool{}, map[types.UID]int{}
	done := make(chan types.UID, objects)
	type order struct {
		uid types.UID
		n   int
	}
	l := NewLatest(8, func(_ context.Context, o order) error {
		mu.Lock()
		if busy[o.uid] {
			t.Errorf("two orders about %s at once", o.uid)
		}
		if o.n < last[o.uid] {
			t.Errorf("order %d about %s after %d", o.n, o.uid, last[o.uid])
		}
		busy[o.uid], last[o.uid] = true, o.n
		mu.Unlock()
		time.Sleep(100 * time.Microsecond)
		mu.Lock()
		busy[o.uid] = false
		mu.Unlock()
		if o.n == orders {
			done <- o.uid
		}
		return nil
	}, func(order, error, time.Duration) time.Duration {
		t.Error("nothing failed")
		return 0
	})
	l.Put("o0", order{"o0", 1}) // before it starts
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- l.Start(ctx) }()
	for n := 1; n <= orders; n++ {
		for i := range objects {
			uid := types.UID(fmt.Sprintf("o%d", i))
			l.Put(uid, order{uid, n})
		}
	}
	for range objects {
		<-done
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestLatestPausesGrow(t *testing.T) {
	pauses := make(chan time.Duration, 1)
	l := NewLatest(1, func(context.Context, int) error { return errors.New("no") }, func(_ int, _ error, pause time.Duration) time.Duration {
		pauses <- pause
		return 0
	})
	go func() { _ = l.Start(t.Context()) }() // it ends with the test
	last := time.Duration(0)
	for i := range 5 {
		l.Put("u", i)
		pause := <-pauses
		if pause <= last {
			t.Errorf("pause %s after %s", pause, last)
		}
		last = pause
	}
	l.Put("other", 0)
	if pause := <-pauses; pause >= last {
		t.Errorf("another object pauses for %s", pause)
	}
}

// Of several later orders only the newest is carried out, once; an immediate order
// replaces it.
func TestLaterOrders(t *testing.T) {
	got := make(chan string, 10)
	l := NewLatest(1, func(_ context.Context, order string) error {
		got <- order
		return nil
	}, func(string, error, time.Duration) time.Duration {
		t.Error("nothing failed")
		return 0
	})
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- l.Start(ctx) }()
	const while = 50 * time.Millisecond
	start := time.Now()
	for _, order := range []string{"waits", "still waits", "waits for more"} {
		l.PutLater("a", order, while)
	}
	if order := <-got; order != "waits for more" || time.Since(start) < while {
		t.Errorf("%q was carried out after %s", order, time.Since(start))
	}
	l.PutLater("a", "waits", while)
	l.Put("a", "admitted")
	if order := <-got; order != "admitted" {
		t.Errorf("%q was carried out", order)
	}
	testwait.Stays(t, 2*while, "the delayed order is dropped", func() error {
		if len(got) > 0 {
			return fmt.Errorf("%q was carried out after the admission", <-got)
		}
		return nil
	})
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A failed order is retried, unless a newer one came meanwhile.
func TestLatestAgain(t *testing.T) {
	tries, newer := make(chan int, 10), make(chan struct{})
	l := NewLatest(1, func(_ context.Context, n int) error {
		tries <- n
		if n < 2 {
			return errors.New("no")
		}
		return nil
	}, func(n int, _ error, pause time.Duration) time.Duration {
		if n == 1 {
			<-newer
		}
		return pause
	})
	go func() { _ = l.Start(t.Context()) }() // it ends with the test
	l.Put("u", 0)
	for range 3 {
		if n := <-tries; n != 0 {
			t.Fatalf("order %d", n)
		}
	}
	l.Put("u", 1)
	for n := 0; n != 1; n = <-tries {
	}
	l.Put("u", 2)
	close(newer)
	if n := <-tries; n != 2 {
		t.Errorf("order %d after a newer one", n)
	}
	select {
	case n := <-tries:
		t.Errorf("order %d after the newest one was carried out", n)
	case <-time.After(500 * time.Millisecond):
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.orders) > 0 {
		t.Errorf("left behind: %v", l.orders)
	}
}

// TestOfferDuringAnOrder: an offer does not take the place of an order that is being carried out, and then retried.
func TestOfferDuringAnOrder(t *testing.T) {
	var l *Latest[string]
	var did []string
	l = NewLatest(1, func(_ context.Context, order string) error {
		did = append(did, order)
		l.Offer("u", "offered")
		if len(did) < 2 {
			return errors.New("no")
		}
		return nil
	}, func(_ string, _ error, pause time.Duration) time.Duration { return pause })
	l.Put("u", "put")
	for range 2 {
		l.next(t.Context())
	}
	l.Offer("u", "offered later")
	l.next(t.Context())
	if want := []string{"put", "put", "offered later"}; !slices.Equal(did, want) {
		t.Errorf("carried out: %q, want %q", did, want)
	}
}

// TestOfferLater: a later offer counts unless there is an order, also one that waits, or a newer one comes.
func TestOfferLater(t *testing.T) {
	var did []string
	l := NewLatest(1, func(_ context.Context, order string) error {
		did = append(did, order)
		return nil
	}, func(string, error, time.Duration) time.Duration { return 0 })
	l.OfferLater("u", "first", time.Millisecond)
	l.OfferLater("u", "second", time.Millisecond)
	l.next(t.Context())
	l.OfferLater("u", "third", time.Hour)
	l.Put("u", "newer")
	l.next(t.Context())
	if want := []string{"first", "newer"}; !slices.Equal(did, want) {
		t.Errorf("carried out: %q, want %q", did, want)
	}
}

// TestLatestForgets: the pauses of deleted objects are dropped, and no others.
func TestLatestForgets(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "workloads"}, "w")
	l := NewLatest(1, func(_ context.Context, err error) error { return fmt.Errorf("writing: %w", err) }, func(error, error, time.Duration) time.Duration { return 0 })
	l.Put("gone", gone)
	l.Put("failing", errors.New("no"))
	for range 2 {
		l.next(t.Context())
	}
	if g, f := l.pauses.NumRequeues("gone"), l.pauses.NumRequeues("failing"); g != 0 || f != 1 {
		t.Errorf("%d failures of a deleted object are kept, %d of another, want 0 and 1", g, f)
	}
}
