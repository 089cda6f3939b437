package compat

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/embedded/embeddedtest/wait"
)

// victims waits until exactly these Workloads are evicted, and returns their reasons.
func (w *world) victims(of []*kueue.Workload, want map[string]string) {
	w.t.Helper()
	got := func() []string {
		out := []string{}
		for _, wl := range of {
			for _, c := range conditions(read(w, wl).Status.Conditions) {
				if reason, is := strings.CutPrefix(c, "Preempted=True/"); is {
					out = append(out, wl.Name+" "+reason)
				}
			}
		}
		slices.Sort(out)
		return out
	}
	expected := []string{}
	for name, reason := range want {
		expected = append(expected, name+" "+reason)
	}
	slices.Sort(expected)
	check := func() error { return equal(fmt.Sprint(got()), fmt.Sprint(expected)) }
	wait.Until(w.t, "the victims", check)
	wait.Stays(w.t, 500*time.Millisecond, "the victims", check)
}

// TestPreemption: the victims of each preemption.
func TestPreemption(t *testing.T) {
	running(t, "")
	tick := func() { t.Helper(); wait.NextSecond(t) }
	within := preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever)
	borrowWithin := func(threshold *int32) queueSetting {
		return func(q *kueue.ClusterQueue) {
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{
				WithinClusterQueue: kueue.PreemptionLowerPriority, ReclaimWithinCohort: kueue.ReclaimAny,
				BorrowWithinCohort: &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortLowerPriority, MaxPriorityThreshold: threshold},
			}
		}
	}
	// A preemptor waits for low, and a smaller workload comes to its queue, which does not take its place.
	overtaken := func(w *world, smallPriority int32) (low, high, small *kueue.Workload) {
		w.queue("q", "4", within)
		low = w.workload("low", "q", "4")
		w.admits(low)
		high = w.workload("high", "q", "4", priority(2))
		w.until(low, "Evicted=True/Preempted")
		small = w.workload("small", "q", "1", priority(smallPriority))
		wait.Stays(w.t, time.Second, "nobody takes its place", func() error { return lacks(read(w, small).Status.Conditions, "-QuotaReserved=True") })
		return low, high, small
	}
	tests := map[string]func(*world){
		"10 §7.26 filled back": func(w *world) {
			w.queue("q", "10", within)
			big := w.workload("big", "q", "7", priority(1))
			s2 := w.workload("s2", "q", "2", priority(0))
			w.admits(big, s2)
			tick()
			s1 := w.workload("s1", "q", "1", priority(0))
			w.admits(s1)
			p := w.workload("p", "q", "7", priority(20))
			w.victims([]*kueue.Workload{s1, s2, big}, map[string]string{"big": "InClusterQueue"})
			w.release(big)
			w.admits(p)
		},
		"70 §5.2 the victims of one preemption are told of in one event": func(w *world) {
			w.queue("q", "3", within)
			low := []*kueue.Workload{w.workload("v1", "q", "1", priority(1)), w.workload("v2", "q", "1", priority(1)), w.workload("v3", "q", "1", priority(1))}
			w.admits(low...)
			p := w.workload("p", "q", "3", priority(9))
			w.victims(low, map[string]string{"v1": "InClusterQueue", "v2": "InClusterQueue", "v3": "InClusterQueue"})
			one := func() error {
				got := w.eventsOf(p, "PreemptedWorkload")
				if len(got) != 1 || got[0].Series == nil {
					return fmt.Errorf("want one event with a series, got %+v", got)
				}
				for _, victim := range low {
					if !strings.Contains(got[0].Note, w.name+"/"+victim.Name) {
						return fmt.Errorf("the note %q does not name %s", got[0].Note, victim.Name)
					}
				}
				return nil
			}
			wait.Until(w.t, "one event", one)
			wait.Stays(w.t, 500*time.Millisecond, "one event", one)
		},
		"10 §7.27 equal priority": func(w *world) {
			w.queue("q", "2", within)
			a := w.workload("a", "q", "2")
			w.admits(a)
			b := w.workload("b", "q", "2")
			w.waits(waits, b)
			w.victims([]*kueue.Workload{a}, nil)
			// LowerOrNewer: the older one, which waited for another queue, preempts the newer one.
			w.queue("r", "2", preempting(kueue.PreemptionLowerOrNewerEqualPriority, kueue.ReclaimNever))
			older := w.workload("older", "later", "2")
			tick()
			newer := w.workload("newer", "r", "2")
			w.admits(newer)
			w.create(w.localQueue("later", w.own("r")))
			w.victims([]*kueue.Workload{older, newer}, map[string]string{"newer": "InClusterQueue"})
			w.release(newer)
			w.admits(older)
			w.waits(waits, newer)
		},
		"10 §7.30 never two from a queue that is back at nominal": func(w *world) {
			c := w.own("c")
			w.queue("a", "6", in(c), preempting(kueue.PreemptionNever, kueue.ReclaimAny))
			w.queue("b", "3", in(c))
			w.queue("c", "3", in(c))
			b1, b2, c1 := w.workload("b1", "b", "3"), w.workload("b2", "b", "3"), w.workload("c1", "c", "3")
			w.admits(b1, b2, c1)
			tick()
			c2 := w.workload("c2", "c", "3")
			w.admits(c2)
			w.workload("p", "a", "6")
			all := []*kueue.Workload{b1, b2, c1, c2}
			wait.Until(w.t, "one of each", func() error {
				gone := map[string]int{}
				for _, wl := range all {
					if lacks(read(w, wl).Status.Conditions, "Preempted=True/InCohortReclamation") == nil {
						gone[string(wl.Spec.QueueName)]++
					}
				}
				return equal(fmt.Sprint(gone), "map[b:1 c:1]")
			})
			w.keeps(c1, 500*time.Millisecond, "-Preempted")
		},
		"10 §7.33 a victim whose checks are pending": func(w *world) {
			c := w.check("c")
			w.queue("q", "1", within, checked(every(c)...))
			low := w.workload("low", "q", "1")
			w.until(low, reserved, "Admitted=False/UnsatisfiedAdmissionChecks")
			high := w.workload("high", "q", "1", priority(1))
			w.victims([]*kueue.Workload{low, high}, map[string]string{"low": "InClusterQueue"})
			w.release(low)
			w.until(high, reserved)
		},
		"10 §7.36 a preemptor that waits stays the head": func(w *world) {
			low, high, _ := overtaken(w, 2)
			w.release(low)
			w.until(high, admitted)
		},
		// The other one would preempt it as soon as it has started. spec: design §4.
		"a preemptor does not start in vain": func(w *world) {
			low, high, small := overtaken(w, 3)
			w.release(low)
			w.admits(small)
			wait.Stays(w.t, time.Second, "it does not start", func() error { return lacks(read(w, high).Status.Conditions, "-QuotaReserved=True") })
		},
		"10 §7.41 many alike behind each other, and a small one": func(w *world) {
			q := w.queue("q", "3")
			w.admits(w.workload("runs", "q", "2"))
			const n = 200
			for i := range n {
				w.workload(fmt.Sprintf("large-%d", i), "q", "2")
			}
			w.admits(w.workload("small", "q", "1", priority(-1)))
			wait.Until(w.t, "they are counted", func() error { return equal(read(w, q).Status.PendingWorkloads, n) })
		},
	}
	for name, tc := range map[string]struct {
		settings []queueSetting
		want     map[string]string
	}{
		"Never":                    {[]queueSetting{preempting(kueue.PreemptionLowerPriority, kueue.ReclaimAny)}, map[string]string{"a1": "InClusterQueue"}},
		"LowerPriority":            {[]queueSetting{borrowWithin(nil)}, map[string]string{"b1": "InCohortReclaimWhileBorrowing"}},
		"LowerPriority, threshold": {[]queueSetting{borrowWithin(new(int32(-1)))}, map[string]string{"a1": "InClusterQueue"}},
	} {
		tests["10 §7.29 borrowWithinCohort "+name] = func(w *world) {
			c := w.own("c")
			w.queue("a", "4", append(tc.settings, in(c))...)
			w.queue("b", "4", in(c))
			w.queue("s", "4", in(c))
			a1, b1 := w.workload("a1", "a", "4", priority(0)), w.workload("b1", "b", "8", priority(0))
			w.admits(a1, b1)
			w.workload("p", "a", "2", priority(50))
			w.victims([]*kueue.Workload{a1, b1}, tc.want)
		}
	}
	scenes(t, tests)
}

// TestPriorityClass is 10 §7.59 by way of the class.
func TestPriorityClass(t *testing.T) {
	running(t, "")
	w := newWorld(t)
	class := &kueue.WorkloadPriorityClass{Value: 10}
	class.Name = w.own("class")
	w.create(class)
	w.queue("q", "1", preempting(kueue.PreemptionLowerPriority, kueue.ReclaimNever))
	first := w.workload("first", "q", "1", priority(500))
	w.admits(first)
	middle := w.workload("middle", "q", "1", priority(50))
	mine := w.workload("mine", "q", "1", priority(10), func(wl *kueue.Workload) {
		wl.Spec.PriorityClassRef = &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass", Name: class.Name}
	})
	w.waits(waits, middle)
	edit(w, class, func(c *kueue.WorkloadPriorityClass) { c.Value = 100 })
	wait.Until(w.t, "the priority follows", func() error { return equal(*read(w, mine).Spec.Priority, 100) })
	w.finish(first)
	w.admits(mine)
	w.keeps(mine, time.Second, "-Evicted")
	edit(w, class, func(c *kueue.WorkloadPriorityClass) { c.Value = 7 })
	w.until(mine, "Evicted=True/Preempted")
	w.release(mine)
	w.admits(middle)
}
