package plan

import (
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// crash carries only a part of a plan out, as a manager does that is killed in between: the status comes first, then some
// of what follows.
func (w *world) crash(p *Plan, parts int) {
	cut := Plan{}
	if parts > 0 {
		cut.Status = p.Status
	}
	take := func(n int) int {
		left := min(max(parts-1, 0), n)
		parts -= left
		return left
	}
	cut.Delete = p.Delete[:take(len(p.Delete))]
	cut.Patches = p.Patches[:take(len(p.Patches))]
	if take(1) == 1 && p.Service != nil {
		cut.Service = p.Service
	}
	missing := missing(p)
	cut.Create = slices.Values(missing[:take(len(missing))])
	w.carryOut(&cut)
}

// settleWorld plays the Job controller and the garbage collector until no step is left.
func (w *world) settleWorld(t *rapid.T, crash func() int) {
	for range 1000 {
		p := w.c.Decide(w.observed())
		same := w.c.Decide(w.observed())
		if a, b := render(&p, w.js), render(&same, w.js); a != b {
			t.Fatalf("two plans for one world:\n%s\n%s", a, b)
		}
		idle := p.Status == nil && len(p.Delete)+len(p.Patches)+len(missing(&p)) == 0 && p.Service == nil
		w.crash(&p, crash())
		moved := false
		for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
			j := w.jobs[name]
			switch {
			case j.DeletionTimestamp != nil:
				delete(w.jobs, name)
				moved = true
			case outcome(j) == active && isSuspended(j) && j.Status.Active > 0:
				j.Status.Active, j.Status.Ready = 0, nil
				moved = true
			case outcome(j) == active && !isSuspended(j) && j.Status.Ready == nil:
				j.Status.Active, j.Status.Ready = 1, new(int32(1))
				moved = true
			}
		}
		if idle && !moved {
			return
		}
	}
	t.Fatal("it never settles")
}

// Whatever happens and wherever the manager is killed: every failure of a current Job costs one restart, however many
// fail together; a settled world has exactly the Jobs of the spec, all of the current attempt and suspended as the JobSet is.
func TestRestartsAreCountedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := big(t, rapid.IntRange(1, 5).Draw(t, "jobs"))
		w.js.Spec.FailurePolicy.MaxRestarts = 100
		crash := func() int { return rapid.IntRange(0, 12).Draw(t, "parts of the plan that are done") }
		wanted := int32(0)
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			w.settleWorld(t, crash)
			if len(w.jobs) != int(*w.js.Spec.ReplicatedJobs[0].Replicas) || w.js.Status.Restarts != wanted || w.js.Status.RestartsCountTowardsMax != wanted {
				t.Fatalf("%d Jobs, %d restarts, want %d", len(w.jobs), w.js.Status.Restarts, wanted)
			}
			for name, j := range w.jobs {
				if number(j.Labels["jobset.sigs.k8s.io/restart-attempt"]) != wanted || isSuspended(j) != (w.js.Spec.Suspend != nil && *w.js.Spec.Suspend) {
					t.Fatalf("%s: labels %v, suspend %v", name, j.Labels, *j.Spec.Suspend)
				}
			}
			switch rapid.IntRange(0, 2).Draw(t, "event") {
			case 0:
				failed := rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(w.jobs))), 1, -1, rapid.ID[string]).Draw(t, "failed")
				for _, name := range failed {
					w.job(name, "fail", []string{"BackoffLimitExceeded"})
				}
				wanted++
			case 1:
				w.js = w.js.DeepCopy()
				w.js.Spec.Suspend = new(rapid.Bool().Draw(t, "suspend"))
			case 2: // by hand, which counts nothing
				name := rapid.SampledFrom(slices.Sorted(maps.Keys(w.jobs))).Draw(t, "deleted")
				w.jobs[name].DeletionTimestamp = new(metav1.NewTime(w.now))
			}
			w.now = w.now.Add(time.Second)
		}
	})
}
