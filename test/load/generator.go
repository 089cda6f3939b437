package main

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/workload/plan/lifecycle"
)

const (
	creators = 16 // requests that create, at once
	enders   = 16 // requests that finish or release, at once
	// progressEvery is how often progress is said.
	progressEvery = 5 * time.Second
)

// generator creates the workloads of a shape, runs the admitted ones for their time, finishes them and releases the quota of evicted
// ones. One goroutine owns the ledger; others only send requests and receive watch events.
type generator struct {
	owner    *owner
	arrivals []arrival
	ledger   *ledger
	stall    time.Duration // without any progress it gives up
	say      func(format string, args ...any)

	start        time.Time
	created      []atomic.Int64 // when the creation was sent, in ns after the start
	next         atomic.Int64   // arrival to be created
	timers       timers
	ends         []chan ending // a workload always has the same ender, so its writes keep their order
	observations chan observation
	failed       chan error
	latest       *kueue.Workload // that waits and was seen last, to say why if nothing moves

	measured func() error // is called once, when the measurement begins
	last     int          // finished workloads at the end of the load, 0 before the measurement
}

// observation is the state of a workload, or its deletion.
type observation struct {
	w    *kueue.Workload
	gone bool
	at   time.Duration
}

// ending is a write at the end of a run: the release of an evicted workload if one is given, otherwise its finish.
type ending struct {
	i       int
	evicted *kueue.Workload
}

func newGenerator(o *owner, arrivals []arrival, stall time.Duration, say func(string, ...any)) *generator {
	g := &generator{
		owner: o, arrivals: arrivals, ledger: newLedger(o.shape, arrivals), stall: stall, say: say,
		created: make([]atomic.Int64, len(arrivals)), observations: make(chan observation, 1024), failed: make(chan error, 1),
	}
	for range enders {
		// Capacity for all writes of one ender, unless workloads are evicted often: the owner of the ledger should not wait.
		g.ends = append(g.ends, make(chan ending, len(arrivals)/enders+1024))
	}
	return g
}

// watch follows the workloads until ctx ends, and returns once it has begun. It is the
// lower half of an informer. The upper half gathers the changes of one object, and so
// would show an admission before the finish of another workload that made it possible.
func (g *generator) watch(ctx context.Context, begun chan<- struct{}) {
	source := cache.NewListWatchFromClient(g.owner.rest, "workloads", metav1.NamespaceAll, fields.Everything())
	to := &tap{ctx: ctx, g: g, begun: begun}
	cache.NewReflectorWithOptions(source, &kueue.Workload{}, to, cache.ReflectorOptions{}).RunWithContext(ctx)
}

// run executes the load. It returns when the last workload is finished; the error is the reason why that will not happen.
func (g *generator) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg, writers sync.WaitGroup
	defer wg.Wait()
	defer writers.Wait()
	defer cancel()
	begun := make(chan struct{})
	g.start = time.Now()
	wg.Go(func() { g.watch(ctx, begun) })
	select {
	case <-begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if g.owner.shape.finishes > 0 {
		g.next.Store(int64(len(g.arrivals))) // they are there
	} else if err := g.begin(0); err != nil { // before the first one is created
		return err
	}
	g.start = time.Now()
	for range creators {
		wg.Go(func() { g.create(ctx) })
	}
	for _, work := range g.ends {
		writers.Go(func() { g.end(ctx, work) })
	}
	if err := g.loop(ctx); err != nil {
		return err
	}
	for _, work := range g.ends {
		close(work)
	}
	writers.Wait() // the last answers arrive after the watch events
	return nil
}

// create creates workloads when they are due, until there are no more.
func (g *generator) create(ctx context.Context) {
	for {
		i := int(g.next.Add(1)) - 1
		if i >= len(g.arrivals) {
			return
		}
		a := &g.arrivals[i]
		if !sleep(ctx, a.due-time.Since(g.start)) {
			return
		}
		g.created[i].Store(int64(time.Since(g.start)))
		if err := g.owner.create(ctx, a); err != nil {
			g.fail(err)
			return
		}
	}
}

// end makes the writes at the end of runs, until there are no more.
func (g *generator) end(ctx context.Context, work <-chan ending) {
	for {
		select {
		case <-ctx.Done():
			return
		case e, more := <-work:
			if !more {
				return
			}
			if err := g.write(ctx, e); err != nil {
				g.fail(err)
				return
			}
		}
	}
}

func (g *generator) write(ctx context.Context, e ending) error {
	if e.evicted != nil {
		return g.owner.release(ctx, e.evicted)
	}
	return g.owner.finish(ctx, &g.arrivals[e.i])
}

func (g *generator) fail(err error) {
	select {
	case g.failed <- err:
	default:
	}
}

// loop owns the ledger and the timers.
func (g *generator) loop(ctx context.Context) error {
	alarm, progress := time.NewTimer(0), time.NewTicker(progressEvery)
	defer alarm.Stop()
	defer progress.Stop()
	var before [3]int // created, evictions, done
	moved := time.Now()
	for {
		if over, err := g.over(); over || err != nil {
			g.report()
			return err
		}
		select {
		case s := <-g.observations:
			g.see(s)
		case <-alarm.C:
		case err := <-g.failed:
			return err
		case <-progress.C:
			l := g.ledger
			if now := [3]int{l.created, l.evictions, l.done}; now != before {
				before, moved = now, time.Now()
			}
			g.report()
			if time.Since(moved) > g.stall {
				return g.stuck()
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if wait, more := g.fire(time.Since(g.start)); more {
			alarm.Reset(wait)
		}
	}
}

// over begins the measurement when it is time, and reports whether the load ends.
func (g *generator) over() (bool, error) {
	if g.last == 0 && g.ledger.full() {
		if err := g.begin(time.Since(g.start)); err != nil {
			return false, err
		}
	}
	return g.last > 0 && g.ledger.done >= g.last, nil
}

// begin begins the measurement, some time after the start.
func (g *generator) begin(at time.Duration) error {
	g.last = len(g.arrivals)
	if finishes := g.owner.shape.finishes; finishes > 0 {
		g.last = min(g.last, g.ledger.done+finishes)
	}
	g.ledger.begin(at)
	return g.measured()
}

func (g *generator) see(s observation) {
	i, ok := g.ledger.find(s.w)
	if !ok {
		return
	}
	if s.gone {
		g.ledger.gone(i)
		return
	}
	e := &g.ledger.entries[i]
	switch g.ledger.see(i, s.w, time.Duration(g.created[i].Load()), s.at) {
	case start:
		heap.Push(&g.timers, timer{s.at + g.ledger.shape.classes[e.class].runs, i, e.run})
	case release:
		g.ends[i%enders] <- ending{i, s.w}
	case nothing:
		if e.phase == waiting {
			g.latest = s.w
		}
	}
}

// fire finishes the workloads whose time is over, and returns the time until the next one.
func (g *generator) fire(now time.Duration) (wait time.Duration, more bool) {
	for len(g.timers) > 0 {
		t := g.timers[0]
		if t.at > now {
			return t.at - now, true
		}
		heap.Pop(&g.timers)
		if g.ledger.due(t.i, t.run) {
			g.ends[t.i%enders] <- ending{i: t.i}
		}
	}
	return 0, false
}

func (g *generator) report() {
	l := g.ledger
	g.say("%d of %d created, %d running, %d finished, %d evictions; %d of %d cores in use", l.created, len(g.arrivals),
		l.running, l.done, l.evictions, l.inUse(), l.shape.quota()*int64(l.shape.cohorts))
}

// stuck returns an error with the missing transitions.
func (g *generator) stuck() error {
	l := g.ledger
	why := ""
	if g.latest != nil {
		if c := lifecycle.Condition(g.latest, kueue.WorkloadQuotaReserved); c != nil {
			why = fmt.Sprintf("; %s waits with %s: %s", g.latest.Name, c.Reason, c.Message)
		}
	}
	var some []string
	for i := range l.entries {
		if e := &l.entries[i]; e.seen && e.phase != done && len(some) < 5 {
			some = append(some, l.shape.workloadName(&e.arrival))
		}
	}
	return fmt.Errorf("nothing moved for %s: %d of %d workloads are not finished, such as %s%s", g.stall, len(l.entries)-l.done, len(l.entries),
		strings.Join(some, ", "), why)
}

// tap passes on a reflector's events, in their order.
type tap struct {
	ctx   context.Context
	g     *generator
	begun chan<- struct{}
	once  sync.Once
}

func (t *tap) send(object any, gone bool) error {
	w, ok := object.(*kueue.Workload)
	if !ok {
		return errors.New("not a workload")
	}
	select {
	case t.g.observations <- observation{w, gone, time.Since(t.g.start)}:
	case <-t.ctx.Done():
	}
	return nil
}

// Add, Update, Delete, Replace and Resync make it a store for a reflector.
func (t *tap) Add(object any) error { return t.send(object, false) }

// Update is a change.
func (t *tap) Update(object any) error { return t.send(object, false) }

// Delete is a deletion.
func (t *tap) Delete(object any) error { return t.send(object, true) }

// Replace is a list: at the beginning, or after the watch broke. Workloads that were deleted in between are missing at the end.
func (t *tap) Replace(objects []any, _ string) error {
	t.once.Do(func() { close(t.begun) })
	for _, o := range objects {
		if err := t.send(o, false); err != nil {
			return err
		}
	}
	return nil
}

// Resync has nothing to do.
func (t *tap) Resync() error { return nil }

// timer is the end of a run.
type timer struct {
	at     time.Duration
	i, run int
}

// timers is a heap, the next one first.
type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }

// Push is for package heap.
func (t *timers) Push(x any) { *t = append(*t, x.(timer)) }

// Pop is for package heap.
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// sleep waits, and reports whether ctx still runs.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
