// Package forecaster follows Workloads, learns their run times, and publishes when the pending ones are expected to start. It runs beside
// the engine, in a small part of one core.
package forecaster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

// A refresh makes runs until mostRuns count, or bigRuns for more than big pending Workloads, or runTime has passed, and newRuns at least if
// there is time, one in any case. Earlier runs count as well, for oldest at most. If no reader asks for the forecast, it makes newRuns. A refresh
// is followed by a gap of resting times the time that it took, so that all take at most a twentieth of a core; leastGap is the shortest one, and
// unaskedGap if no reader asks.
const (
	mostRuns = 32
	newRuns  = 4
	bigRuns  = 16
	big      = 50_000
	runTime  = 1500 * time.Millisecond
	longest  = 10 * runTime // of one run, and half of the rest of that of a part of it: a slow one leaves time for the others
	resting  = 19
	oldest   = 30 * time.Minute
	first    = 1000 // pending Workloads of each queue

	leastGap   = 10 * time.Second
	unaskedGap = time.Minute
)

// scopes are how far a forecast looks ahead, and its resolution, by the most pending Workloads.
var scopes = []struct {
	pending       int
	horizon, grid time.Duration
}{{2_000, 24 * time.Hour, time.Second}, {20_000, 8 * time.Hour, 10 * time.Second}, {0, 2 * time.Hour, time.Minute}}

// Forecaster is a runnable of every replica that has an engine.
type Forecaster struct {
	Cache ctrlcache.Cache
	// Checkpoint is that of the engine.
	Checkpoint func(context.Context) (*state.Checkpoint, error)
	// Ready fails until the engine knows everything that exists.
	Ready    func() error
	Requests convert.Requests
	Now      func() time.Time
	Log      logr.Logger

	*memory
	runs []*foresight.Run // the last ones, the newest first
}

// memory is what a Forecaster knows.
type memory struct {
	published atomic.Pointer[foresight.Forecast]
	spent     atomic.Int64
	asked     chan struct{} // full once a reader asked after the last refresh began

	mu       sync.Mutex
	learner  *foresight.Learner
	arrivals *foresight.Arrivals
	known    map[types.UID]*known // the Workloads that are not finished
	pending  int                  // of them, without a quota reservation
}

// known is a Workload that is not finished.
type known struct {
	job     foresight.Job
	pending bool // it has no quota reservation
}

// Forecast returns the last forecast, nil before the first one, and has the next one made soon.
func (f *Forecaster) Forecast() *foresight.Forecast {
	select {
	case f.asked <- struct{}{}:
	default:
	}
	return f.Last()
}

// Last is Forecast for readers that ask at all times, whether or not a person wants to know.
func (f *Forecaster) Last() *foresight.Forecast { return f.published.Load() }

// Spent returns the time that all forecasts so far took.
func (f *Forecaster) Spent() time.Duration { return time.Duration(f.spent.Load()) }

// RunTime returns what is expected of the run time of a Workload; it is unknown for a Workload that is finished or does not exist.
func (f *Forecaster) RunTime(uid string) foresight.Estimate { return f.predict(uid).Estimate }

func (f *Forecaster) predict(uid string) *foresight.Prediction {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := &foresight.Job{}
	if k := f.known[types.UID(uid)]; k != nil {
		job = &k.job
	}
	return f.learner.Predict(job)
}

// New returns a Forecaster that has learned nothing.
func New(f Forecaster) *Forecaster {
	f.memory = &memory{
		learner: foresight.NewLearner(), arrivals: foresight.NewArrivals(instant(f.Now())), known: map[types.UID]*known{}, asked: make(chan struct{}, 1),
	}
	return &f
}

// Learn tells it of all Workloads at once, instead of Start. Refresh then makes a forecast.
func (f *Forecaster) Learn(all []*kueue.Workload) {
	for _, w := range all {
		f.observe(nil, w)
	}
}

// NeedLeaderElection is false: every replica answers questions about Workloads.
func (f *Forecaster) NeedLeaderElection() bool { return false }

// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch

// Start follows Workloads and makes forecasts until ctx ends.
func (f *Forecaster) Start(ctx context.Context) error {
	informer, err := f.Cache.GetInformer(ctx, &kueue.Workload{})
	if err != nil {
		return fmt.Errorf("watching Workloads: %w", err)
	}
	followed, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f.observe(nil, o.(*kueue.Workload)) },
		UpdateFunc: func(before, o any) { f.observe(before.(*kueue.Workload), o.(*kueue.Workload)) },
		DeleteFunc: func(o any) {
			if gone, missed := o.(cache.DeletedFinalStateUnknown); missed {
				o = gone.Obj
			}
			f.forget(o.(*kueue.Workload).UID)
		},
	})
	if err != nil {
		return fmt.Errorf("watching Workloads: %w", err)
	}
	if !cache.WaitForCacheSync(ctx.Done(), followed.HasSynced) {
		return nil // ctx ended
	}
	asked := f.rest(ctx, 0, unaskedGap) // a manager that has just started has more urgent work
	for ctx.Err() == nil {
		began, idle := f.Now(), leastGap
		if f.Ready() == nil {
			idle = unaskedGap
			if err := f.refresh(ctx, asked); err != nil && ctx.Err() == nil {
				f.Log.Error(err, "The starts of pending Workloads could not be forecast")
			}
			asked = false
		}
		asked = f.rest(ctx, max(leastGap, resting*f.Now().Sub(began)), idle) || asked
	}
	return nil
}

// rest waits for the gap, and then until a reader asks, which it reports, or for idle in all.
func (f *Forecaster) rest(ctx context.Context, gap, idle time.Duration) (asked bool) {
	later := time.After(max(gap, idle))
	select {
	case <-ctx.Done():
		return false
	case <-time.After(gap):
	}
	select {
	case <-ctx.Done():
	case <-f.asked:
		return true
	case <-later:
	}
	return false
}

// Refresh publishes a new forecast. If nothing is pending it is an empty one, which costs nothing.
func (f *Forecaster) Refresh(ctx context.Context) error { return f.refresh(ctx, true) }

// refresh is Refresh; whole reports whether it makes all the runs that a reader would want.
func (f *Forecaster) refresh(ctx context.Context, whole bool) error {
	began := f.Now()
	f.mu.Lock()
	pending := f.pending
	f.mu.Unlock()
	if pending == 0 {
		f.runs = nil
		f.published.Store(foresight.Empty(instant(began)))
		return nil
	}
	at, err := f.Checkpoint(ctx)
	if err != nil {
		return err
	}
	began = f.Now() // waiting for the checkpoint costs nothing
	defer func() { f.spent.Add(int64(f.Now().Sub(began))) }()
	scope := f.scope(began, pending)
	var earlier, runs []*foresight.Run
	for _, r := range f.runs {
		if r.Now >= instant(began.Add(-oldest)) {
			earlier = append(earlier, r)
		}
	}
	keep, most := mostRuns, newRuns
	if pending > big {
		keep = bigRuns
	}
	if whole {
		most = max(newRuns, keep-len(earlier))
	}
	parts := foresight.Parts(at, nil)
	var end time.Time
	scope.Limit = func() func() bool {
		now := f.Now()
		limit := now.Add(end.Sub(now) / 2)
		return func() bool { return ctx.Err() != nil || f.Now().After(limit) }
	}
	for n := 0; n < most && (n == 0 || f.Now().Sub(began) < runTime); n++ {
		end = f.Now().Add(longest)
		run, err := foresight.Foresee(parts, scope, func(w *state.Workload) *foresight.Prediction { return f.predict(w.UID) }, uint64(n))
		if err != nil {
			return err
		}
		runs = append(runs, run)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	f.runs = append(runs, earlier[:min(len(earlier), max(0, keep-len(runs)))]...)
	f.published.Store(foresight.Summarize(f.runs))
	return nil
}

// scope returns what a forecast at a time is about.
func (f *Forecaster) scope(now time.Time, pending int) foresight.Scope {
	size := scopes[len(scopes)-1]
	for i := len(scopes) - 2; i >= 0; i-- {
		if pending <= scopes[i].pending {
			size = scopes[i]
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return foresight.Scope{
		Now: instant(now), Horizon: workload.Instant(size.horizon), Grid: workload.Instant(size.grid), Grace: workload.Instant(grace), First: first,
		Seed:   uint64(now.UnixNano()),
		Recent: f.arrivals.Recent(instant(now), f.learner.Predict),
	}
}

// grace is how long the pods of a preempted Workload are taken to end.
const grace = 30 * time.Second

func instant(t time.Time) workload.Instant { return workload.Instant(t.UnixNano()) }
