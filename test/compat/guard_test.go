package compat

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
)

// ledger follows the Workloads of a world as the API server has them, in the order of their changes, and checks the invariants after each
// change.
type ledger struct {
	w *world

	mu       sync.Mutex
	now      map[types.UID]*kueue.Workload
	broken   []string
	reserved int                                           // reservations seen
	fits     func(usage map[string]int64, in string) error // may somebody reserve in a queue so that this is the usage?
	// places, unless nil, returns what is wrong about the places after a change. before is nil for a new Workload.
	places func(before, wl *kueue.Workload, all map[types.UID]*kueue.Workload) []string
}

// follow keeps a ledger until the world ends.
func (w *world) follow(fits func(usage map[string]int64, in string) error) *ledger {
	return w.followPlaces(fits, nil)
}

// followPlaces also checks places.
func (w *world) followPlaces(
	fits func(usage map[string]int64, in string) error, places func(before, wl *kueue.Workload, all map[types.UID]*kueue.Workload) []string,
) *ledger {
	l := &ledger{w: w, now: map[types.UID]*kueue.Workload{}, fits: fits, places: places}
	ctx, cancel := context.WithCancel(w.ctx())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			l.listen(ctx)
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
	return l
}

// listen lists and watches until the watch ends, as it does when the API server restarts.
func (l *ledger) listen(ctx context.Context) {
	var list kueue.WorkloadList
	if err := l.w.c.List(ctx, &list, client.InNamespace(l.w.name)); err != nil {
		time.Sleep(100 * time.Millisecond)
		return
	}
	l.mu.Lock()
	l.now = map[types.UID]*kueue.Workload{}
	for i := range list.Items {
		l.now[list.Items[i].UID] = &list.Items[i]
	}
	l.mu.Unlock()
	events, err := l.w.c.Watch(ctx, &kueue.WorkloadList{}, client.InNamespace(l.w.name), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion},
	})
	if err != nil {
		return
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		if wl, ok := e.Object.(*kueue.Workload); ok {
			l.change(wl, e.Type == watch.Deleted)
		}
	}
}

// change records a change and checks it.
func (l *ledger) change(wl *kueue.Workload, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.now[wl.UID]
	if l.now[wl.UID] = wl; gone {
		delete(l.now, wl.UID)
		return
	}
	if l.places != nil {
		l.broken = append(l.broken, l.places(before, wl, l.now)...)
	}
	if !holds(wl) {
		return
	}
	was := before != nil && holds(before)
	if was && trueSince(before, kueue.WorkloadQuotaReserved).Equal(trueSince(wl, kueue.WorkloadQuotaReserved)) && before.Status.Admission.ClusterQueue == wl.Status.Admission.ClusterQueue {
		return
	}
	l.reserved++
	if was {
		l.broken = append(l.broken, fmt.Sprintf("%s reserved twice without a release: %v, then %v",
			wl.Name, conditions(before.Status.Conditions), conditions(wl.Status.Conditions)))
	}
	if before != nil && trueSince(before, kueue.WorkloadQuotaReserved).Equal(trueSince(wl, kueue.WorkloadQuotaReserved)) {
		return // active again: its reservation is a fact
	}
	if err := l.fits(l.usage(), string(wl.Status.Admission.ClusterQueue)); err != nil {
		l.broken = append(l.broken, fmt.Sprintf("%s reserved at %s: %v", wl.Name, wl.ResourceVersion, err))
	}
}

// holds reports whether a Workload counts: deactivated and finished ones do not (10 §4.11).
func holds(wl *kueue.Workload) bool {
	is := func(c string) bool { return apimeta.IsStatusConditionTrue(wl.Status.Conditions, c) }
	return is(kueue.WorkloadQuotaReserved) && !is(kueue.WorkloadFinished) && wl.Status.Admission != nil &&
		(wl.Spec.Active == nil || *wl.Spec.Active)
}

// trueSince is when a condition became true, the zero time if it is not.
func trueSince(wl *kueue.Workload, condition string) time.Time {
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, condition); c != nil && c.Status == "True" {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// usage is the quota of the Workloads, in thousandths of a cpu, by ClusterQueue.
func (l *ledger) usage() map[string]int64 {
	usage := map[string]int64{}
	for _, wl := range l.now {
		if holds(wl) {
			usage[string(wl.Status.Admission.ClusterQueue)] += held(wl)
		}
	}
	return usage
}

// held is the cpu of a reservation without the pods that will not run again.
func held(wl *kueue.Workload) (milli int64) {
	for _, a := range wl.Status.Admission.PodSetAssignments {
		amount, n := a.ResourceUsage["cpu"], int64(1)
		if a.Count != nil {
			n = max(int64(*a.Count), 1)
		}
		rest := n
		for _, r := range wl.Status.ReclaimablePods {
			if r.Name == a.Name {
				rest = min(n, n-int64(r.Count))
			}
		}
		milli += amount.MilliValue() / n * rest
	}
	return milli
}

// verdict fails the test for violated invariants.
func (l *ledger) verdict() {
	l.w.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.broken {
		l.w.t.Error(b)
	}
	if l.reserved == 0 {
		l.w.t.Error("nobody ever reserved quota: the ledger saw nothing")
	}
}

// soFar ends the test at once if an invariant is violated, so that a long test that is interrupted has reported it.
func (l *ledger) soFar() {
	l.w.t.Helper()
	l.mu.Lock()
	broken := len(l.broken) > 0
	l.mu.Unlock()
	if broken {
		l.verdict()
		l.w.t.FailNow()
	}
}

// workloads are the existing Workloads, by name.
func (l *ledger) workloads() []*kueue.Workload {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Collect(maps.Values(l.now))
	slices.SortFunc(out, func(a, b *kueue.Workload) int { return compareText(a.Name, b.Name) })
	return out
}

// guard checks queues without a cohort, with so many cpus each, until the verdict.
func (w *world) guard(limits map[string]int64) (verdict func()) {
	return w.follow(func(usage map[string]int64, in string) error {
		if usage[in] > limits[in]*1000 {
			return fmt.Errorf("%s has %d of %d", in, usage[in], limits[in]*1000)
		}
		return nil
	}).verdict
}
