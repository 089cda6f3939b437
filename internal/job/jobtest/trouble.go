package jobtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// trouble starts the manager of a world, and returns how to keep one running.
type trouble func(w *world) revival

// revival starts another manager after one died; may be nil.
type revival func()

// before is a check that needs a live manager.
func (r revival) before(check func() error) func() error {
	return func() error {
		if r != nil {
			r()
		}
		return check()
	}
}

// calm is no trouble, for a world in its first namespace.
func calm(w *world) revival {
	w.alone = true
	w.start(nil)
	return nil
}

// dying runs a test with managers that die again and again: with -long each at its first write, otherwise at one of its first three. The
// answer to that write is lost. With -long fewer than least managers fail the test.
func dying(t *testing.T, least int, live func(*testing.T, trouble)) {
	t.Run("restarted again and again", func(t *testing.T) {
		lives, random, most := 0, embeddedtest.Random(t), 3
		if embeddedtest.Long() {
			most = 1
		}
		live(t, func(w *world) revival {
			var m *embeddedtest.Mortal
			start := func() {
				w.stop()
				lives++
				m = &embeddedtest.Mortal{Dies: 1 + random.IntN(most)}
				w.start(m.Wrap)
			}
			w.alone = true
			start()
			return func() { m.Revive(start) }
		})
		if lives <= least/most {
			t.Errorf("only %d managers died: the test lost its way", lives-1)
		}
	})
}

// failing runs a test with one manager on a bad connection.
func failing(t *testing.T, least int, live func(*testing.T, trouble)) {
	t.Run("every write fails", func(t *testing.T) {
		bad := &badConnection{seen: map[[sha256.Size]byte]bool{}}
		live(t, func(w *world) revival {
			w.alone = true
			w.start(bad.wrap)
			return func() {}
		})
		bad.mu.Lock()
		defer bad.mu.Unlock()
		if bad.lost < least {
			t.Errorf("only %d answers were lost: the test lost its way", bad.lost)
		}
	})
}

// badConnection fails every write once, except events: alternately the request and the answer are lost.
type badConnection struct {
	mu   sync.Mutex
	seen map[[sha256.Size]byte]bool
	lost int
}

var errConnection = errors.New("connection reset by peer")

func (b *badConnection) wrap(next http.RoundTripper) http.RoundTripper {
	return embeddedtest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") {
			return next.RoundTrip(r)
		}
		var body []byte
		if r.Body != nil {
			var err error
			if body, err = io.ReadAll(r.Body); err != nil {
				return nil, err
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		fails, arrives := b.fate(sha256.Sum256(append([]byte(r.Method+" "+r.URL.Path+" "), body...)))
		if !arrives {
			return nil, errConnection
		}
		response, err := next.RoundTrip(r)
		if !fails || err != nil {
			return response, err
		}
		_ = response.Body.Close()
		return nil, errConnection
	})
}

// fate is the outcome of a write.
func (b *badConnection) fate(write [sha256.Size]byte) (fails, arrives bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen[write] {
		return false, true
	}
	b.seen[write] = true
	if arrives = len(b.seen)%2 == 0; arrives {
		b.lost++
	}
	return true, arrives
}

// through runs a job through an eviction to its end, and checks that the result is as without trouble.
func (w *world) through(start trouble) {
	w.t.Helper()
	revive := start(w)
	until := func(what string, check func() error) {
		w.t.Helper()
		wait.Until(w.t, what, revive.before(check))
	}
	kind := w.kind
	o := w.create("train", nil)
	before := spec(w.t, w.again(o))
	key := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.cfg.WorkloadName(kind.Descriptor.GVK, o.GetName(), o.GetUID())}}
	until("the workload exists", func() error { return w.c.Get(w.ctx, client.ObjectKeyFromObject(key), &kueue.Workload{}) })
	wl := w.get(key)
	w.admit(wl)
	until("the job runs", func() error { return w.runs(o) })
	w.status(o, Active)
	was := w.again(o).GetGeneration()
	w.evict(wl)
	isOver := func(reason string) func() error {
		return func() error {
			got := w.get(wl)
			if c := lifecycle.Condition(got, kueue.WorkloadFinished); c == nil || c.Reason != reason || len(got.Finalizers) > 0 {
				return fmt.Errorf("%v, finalizers %v", conditions(got), got.Finalizers)
			}
			return nil
		}
	}
	switch {
	case kind.Deleted:
		until("the job is gone", func() error {
			if err := w.c.Get(w.ctx, client.ObjectKeyFromObject(o), kind.Descriptor.New()); err == nil {
				return errors.New("it exists")
			}
			return nil
		})
		until("the workload is let go", isOver(kueue.ReasonOwnerNotFound))
		return
	case kind.Ends:
		until("the job is told to stop", func() error {
			if w.again(o).GetGeneration() == was {
				return errors.New("it is as it was")
			}
			return nil
		})
		w.status(o, Stopped)
		until("the workload is let go", isOver(kueue.ReasonFailed))
		return
	}
	until("the job is stopped", func() error { return w.stopped(o) })
	w.status(o, Stopped)
	until("the quota is released", func() error { return w.released(wl) })
	if diff := cmp.Diff(before, spec(w.t, w.again(o))); diff != "" {
		w.t.Errorf("not what the user wrote -want +got:\n%s", diff)
	}
	w.admit(wl)
	until("the job runs again", func() error { return w.runs(o) })
	w.started(o)
	if !kind.Endless {
		w.status(o, Succeeded)
		until("the workload is let go", isOver(kueue.ReasonSucceeded))
	}
	if got := w.workloads(); len(got) != 1 || got[0].UID != wl.UID {
		w.t.Errorf("%d workloads, want the first one", len(got))
	}
}
