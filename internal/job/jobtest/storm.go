package jobtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
	"github.com/berth-project/berth/internal/job"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

// asserting stands in for the controllers of a chain of jobs: each job runs exactly while its owner does.
type asserting struct {
	*world
	chain   []job.Object
	resumed atomic.Int64
}

// start runs the controllers until the returned function is called.
func (c *asserting) start() (stop func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.step(ctx)
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

func (c *asserting) step(ctx context.Context) {
	for i := 1; i < len(c.chain); i++ {
		above, err := c.read(ctx, c.chain[i-1])
		if err != nil {
			return
		}
		below, err := c.read(ctx, c.chain[i])
		if err != nil {
			return
		}
		d := c.descriptorOf(below)
		wants := c.descriptorOf(above).IsSuspended(above)
		switch {
		case d.IsSuspended(below) == wants || d.IsStopping(below):
			continue
		case wants:
			d.Suspend(below)
		default:
			d.Resume(below)
		}
		if c.c.Update(ctx, below) == nil && !wants {
			c.resumed.Add(1)
		}
	}
}

// read reads an object of the chain. A missing object does not affect the others.
func (c *asserting) read(ctx context.Context, o job.Object) (job.Object, error) {
	out := c.descriptorOf(o).New()
	err := c.c.Get(ctx, client.ObjectKeyFromObject(o), out)
	return out, err
}

// all is nil once all jobs of the chain are suspended, or none is.
func (c *asserting) all(suspended bool) error {
	for _, o := range c.chain {
		got, err := c.read(c.ctx, o)
		if err != nil {
			return err
		}
		if c.descriptorOf(got).IsSuspended(got) != suspended {
			return fmt.Errorf("%s: suspended %v", got.GetName(), !suspended)
		}
	}
	return nil
}

// calmChain is a chain of jobs, each with a controller that enforces its state, in a namespace that is not managed for a while,
// also while no manager runs, and whose Workload another client finishes. No child is suspended while its parent runs for more than
// one pass.
func calmChain(w *world) {
	set := w.jobSet("set")
	aw := w.create("aw", func(o job.Object) { wrap(o, set) })
	set.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(aw, w.kind.Descriptor.GVK)})
	w.must(w.c.Create(w.ctx, set))
	child := w.ownedJob("set-a-0", set, set.GroupVersionKind(), "")
	child.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	c := &asserting{world: w, chain: []job.Object{aw, set, child}}
	aw.GetObjectKind().SetGroupVersionKind(w.kind.Descriptor.GVK)
	stop := c.start()
	defer stop()
	runs := func() *kueue.Workload {
		w.t.Helper()
		var wl *kueue.Workload
		wait.Until(w.t, "it is queued", func() error {
			all := w.workloads()
			if len(all) != 1 || lifecycle.IsFinished(&all[0]) {
				return fmt.Errorf("%d workloads", len(all))
			}
			wl = &all[0]
			return c.all(true)
		})
		w.admit(wl)
		wait.Until(w.t, "all run", func() error { return c.all(false) })
		w.waitUntilStable()
		return wl
	}
	calm := func(what string, most int64, happens func()) {
		w.t.Helper()
		before := c.resumed.Load()
		happens()
		w.waitUntilStable()
		if n := c.resumed.Load() - before; n > most {
			w.t.Errorf("%s: children were resumed %d times, want at most %d", what, n, most)
		}
	}
	wl := runs()
	for _, restart := range []bool{false, true} {
		calm("the namespace is not managed", 0, func() {
			w.relabel("no")
			wait.Until(w.t, "the workload is out of sync", func() error { return isOutOfSync(w.get(wl)) })
			w.waitUntilStable()
			w.must(c.all(false))
		})
		calm("the namespace is managed again", 2+2, func() { // one pass, and the start
			if restart {
				w.stop()
			}
			w.relabel("yes")
			if restart {
				w.start(nil)
			}
			wl = runs()
		})
	}
	calm("another client finishes the workload", 0, func() {
		w.play(wl, func(x *kueue.Workload) bool {
			return w.cfg.Lifecycle.Finish(x, kueue.ReasonSucceeded, "said another client", metav1.Now())
		})
		wait.Until(w.t, "the workload is let go", func() error {
			if got := w.get(wl); len(got.Finalizers) > 0 {
				return fmt.Errorf("finalizers %v", got.Finalizers)
			}
			return nil
		})
		w.waitUntilStable()
		w.must(c.all(false))
	})
}
