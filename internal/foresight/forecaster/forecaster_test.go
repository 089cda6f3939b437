package forecaster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	berthv1alpha1 "github.com/berth-project/berth/api/berth/v1alpha1"
	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/foresight"
	"github.com/berth-project/berth/internal/state"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// workloadWith returns a Workload with conditions that became true after so many minutes. A negative number is a condition that became false then.
func workloadWith(uid string, conditions map[string]int) *kueue.Workload {
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: uid, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(start)},
		Spec: kueue.WorkloadSpec{QueueName: "q", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}},
		}}}}},
	}
	for kind, minutes := range conditions {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kueue.ReasonSucceeded}
		if minutes < 0 {
			c.Status, minutes = metav1.ConditionFalse, -minutes
		}
		c.LastTransitionTime = metav1.NewTime(start.Add(time.Duration(minutes) * time.Minute))
		w.Status.Conditions = append(w.Status.Conditions, c)
	}
	return w
}

func forecaster() *Forecaster {
	return New(Forecaster{Now: func() time.Time { return start.Add(time.Hour) }})
}

// A finished Workload is learned from once: when it finishes, or when it is seen first.
func TestLearnsOnce(t *testing.T) {
	f := forecaster()
	ran := map[string]int{kueue.WorkloadQuotaReserved: 5, kueue.WorkloadFinished: 15}
	for _, uid := range []string{"a", "b"} {
		done := workloadWith(uid, ran)
		f.observe(nil, done)
		f.observe(done, done)
	}
	if e := f.RunTime("x"); e.Source != foresight.Unknown {
		t.Fatalf("after two: %s", e.String())
	}
	running := workloadWith("c", map[string]int{kueue.WorkloadQuotaReserved: 5})
	f.observe(nil, running)
	f.observe(running, workloadWith("c", ran))
	f.observe(nil, workloadWith("never ran", map[string]int{kueue.WorkloadFinished: 15}))
	f.observe(nil, workloadWith("next", nil))
	e := f.RunTime("next")
	if e.Source != foresight.Learned || e.Samples != 3 || time.Duration(e.P50).Round(time.Second) != 10*time.Minute {
		t.Errorf("after three: %s", e.String())
	}
	f.observe(workloadWith("next", nil), workloadWith("of the same name", nil))
	if len(f.known) != 1 || f.pending != 1 {
		t.Errorf("%d are known, %d pending", len(f.known), f.pending)
	}
	f.forget("of the same name")
	if len(f.known) != 0 || f.pending != 0 {
		t.Errorf("after its deletion %d are known, %d pending", len(f.known), f.pending)
	}
}

// A Workload may declare how long it runs, and takes longer than it ran before it was evicted.
func TestJobOf(t *testing.T) {
	f := forecaster()
	w := workloadWith("w", map[string]int{kueue.WorkloadQuotaReserved: 5, kueue.WorkloadAdmitted: 6})
	w.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Controller: new(true)}}
	w.Annotations = map[string]string{berthv1alpha1.ExpectedRunSecondsKey: "120"}
	w.Spec.MaximumExecutionTimeSeconds, w.Status.AccumulatedPastExecutionTimeSeconds = new(int32(100)), new(int32(40))
	f.observe(nil, w)
	evicted := w.DeepCopy()
	evicted.Status.Conditions = workloadWith("w", map[string]int{kueue.WorkloadQuotaReserved: -16, kueue.WorkloadAdmitted: -16}).Status.Conditions
	f.observe(w, evicted)
	f.observe(evicted, evicted)
	got := f.known["w"].job
	got.Shape = 0
	minute := workload.Instant(time.Minute)
	if want := (foresight.Job{Kind: "Job", LocalQueue: "red/q", Expected: 2 * minute, Limit: minute, Ran: 10 * minute}); got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// After a restart, the time that a Workload ran before is that of its status: of several times the longest is not known, but their mean.
func TestRanBeforeRestart(t *testing.T) {
	for name, tc := range map[string]struct {
		evictions []kueue.EvictionCount
		want      time.Duration
	}{
		"evicted once":      {[]kueue.EvictionCount{{Reason: "Preempted", Count: 1}}, 10 * time.Minute},
		"evicted 4 times":   {[]kueue.EvictionCount{{Reason: "Preempted", Count: 3}, {Reason: "NodeFailures", Count: 1}}, 150 * time.Second},
		"no such figure":    {nil, 10 * time.Minute},
		"admitted and back": {[]kueue.EvictionCount{}, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			f, w := forecaster(), workloadWith("w", nil)
			w.Status.AccumulatedPastExecutionTimeSeconds = new(int32(600))
			if tc.evictions != nil {
				w.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: tc.evictions}
			}
			f.observe(nil, w)
			if got := time.Duration(f.known["w"].job.Ran); got != tc.want {
				t.Errorf("%s, not %s", got, tc.want)
			}
		})
	}
}

// Pod sets are compared by their sizes, which only another generation changes.
func TestShape(t *testing.T) {
	f := forecaster()
	w := workloadWith("w", nil)
	f.observe(nil, w)
	shape := f.known["w"].job.Shape
	f.observe(w, w.DeepCopy())
	if got := f.known["w"].job.Shape; got != shape {
		t.Errorf("%x after a change of the status, %x before", got, shape)
	}
	grown := w.DeepCopy()
	grown.Generation, grown.Spec.PodSets[0].Count = 2, 2
	f.observe(w, grown)
	if f.known["w"].job.Shape == shape {
		t.Error("it is the same with another count")
	}
}

// A refresh publishes when what waits starts; with nothing pending it asks nothing of the engine.
func TestRefresh(t *testing.T) {
	f := forecaster()
	if err := f.Refresh(t.Context()); err != nil || f.Forecast() == nil || f.Spent() != 0 {
		t.Fatalf("with nothing pending: %v", err)
	}
	f.Checkpoint = emptyCheckpoint
	f.observe(nil, workloadWith("w", nil))
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.Forecast(); got.Runs != mostRuns || got.At != instant(start.Add(time.Hour)) {
		t.Errorf("%d runs at %d", got.Runs, got.At)
	}
	if _, why, known := f.Forecast().Of("w", "cq"); known || !strings.Contains(why, "not in line") {
		t.Errorf("of a Workload that the engine does not know: %v %q", known, why)
	}
}

// TestLongRun: a run that takes very long ends, and the starts that it has seen count.
func TestLongRun(t *testing.T) {
	f := forecaster()
	now := start.Add(time.Hour)
	f.Now = func() time.Time { // a second for each step
		now = now.Add(time.Second)
		return now
	}
	s := state.New(state.Options{Options: cycle.Defaults()})
	s.Apply(state.SetNamespace{Name: "red"})
	s.Apply(state.SetFlavor(flavor.Flavor{Name: "f"}))
	s.Apply(state.SetQueue{Name: "cq", Namespaces: []workload.Term{{}}, Groups: []state.Group{{Resources: []string{"cpu"}, Flavors: []state.FlavorQuota{{
		Flavor: "f", Resources: []state.Quota{{Resource: "cpu", Nominal: 1}},
	}}}}})
	s.Apply(state.SetLocalQueue{Namespace: "red", Name: "q", Queue: "cq"})
	for i := range 100 { // one after another
		w := workloadWith(fmt.Sprintf("w%02d", i), nil)
		w.Annotations = map[string]string{berthv1alpha1.ExpectedRunSecondsKey: "60"}
		f.observe(nil, w)
		s.Apply(state.SetWorkload(state.Workload{
			UID: string(w.UID), Namespace: "red", Name: w.Name, Generation: 1, LocalQueue: "q", Queueable: true, Created: workload.Instant(i),
			Since:   workload.Instant(i),
			PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: []state.Request{{Resource: "cpu", Amount: 1}}, Constraints: &workload.Constraints{}}},
		}))
	}
	f.Checkpoint = func(context.Context) (*state.Checkpoint, error) { return s.Checkpoint(), nil }
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := f.Last().Count(); f.Last().Runs != 1 || n.Known == 0 || n.Unknown == 0 || f.Spent() > 2*longest {
		t.Errorf("%d runs in %v: %+v", f.Last().Runs, f.Spent(), n)
	}
}

func emptyCheckpoint(context.Context) (*state.Checkpoint, error) {
	return state.New(state.Options{}).Checkpoint(), nil
}

// A refresh for which no reader asked makes a few runs. One that a reader wants makes as many as are missing, and replaces a few.
func TestRuns(t *testing.T) {
	f := forecaster()
	f.Checkpoint = emptyCheckpoint
	f.observe(nil, workloadWith("w", nil))
	for i, step := range []struct {
		after        time.Duration
		whole        bool
		made, counts int
	}{
		{0, false, newRuns, newRuns},
		{time.Minute, false, newRuns, 2 * newRuns},
		{2 * time.Minute, true, mostRuns - 2*newRuns, mostRuns},
		{3 * time.Minute, true, newRuns, mostRuns},
		{time.Hour, false, newRuns, newRuns}, // all others are too old
		{2 * time.Hour, true, mostRuns, mostRuns},
	} {
		f.Now = func() time.Time { return start.Add(step.after) }
		if err := f.refresh(t.Context(), step.whole); err != nil {
			t.Fatal(err)
		}
		made := 0
		for _, r := range f.runs {
			if r.Now == instant(f.Now()) {
				made++
			}
		}
		if got := f.Last().Runs; made != step.made || got != step.counts {
			t.Errorf("refresh %d made %d runs of %d, not %d of %d", i, made, got, step.made, step.counts)
		}
	}
}

// The next forecast comes after the gap if a reader asks, now or meanwhile, and otherwise after a minute. Metrics ask for nothing.
func TestRest(t *testing.T) {
	for name, tc := range map[string]struct {
		asks      time.Duration // after the refresh; 0 is never
		gap, want time.Duration
	}{
		"asked in the gap":    {time.Second, leastGap, leastGap},
		"asked after the gap": {30 * time.Second, leastGap, 30 * time.Second},
		"too late":            {2 * unaskedGap, leastGap, unaskedGap},
		"not asked":           {0, leastGap, unaskedGap},
		"a long gap":          {0, 2 * unaskedGap, 2 * unaskedGap},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, began := forecaster(), time.Now()
				if tc.asks > 0 {
					defer time.AfterFunc(tc.asks, func() { f.Forecast() }).Stop()
				}
				f.Last()
				asked := f.rest(t.Context(), tc.gap, unaskedGap)
				if rested := time.Since(began); rested != tc.want || asked != strings.HasPrefix(name, "asked") {
					t.Errorf("after %s, asked %v", rested, asked)
				}
			})
		})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	forecaster().rest(ended, time.Hour, time.Hour)
}

// still is a cache without Workloads.
type still struct {
	ctrlcache.Cache
	ctrlcache.Informer
}

func (s still) GetInformer(context.Context, client.Object, ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	return s, nil
}

func (still) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return synced{}, nil
}

type synced struct {
	cache.ResourceEventHandlerRegistration
}

func (synced) HasSynced() bool { return true }

// TestPace follows a Forecaster: it makes none before it is asked or a minute has passed, nor while the engine does not know everything.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ready atomic.Bool
		var made []time.Duration
		began := time.Now()
		f := New(Forecaster{Cache: still{}, Now: time.Now, Log: logr.Discard()})
		f.Ready = func() error {
			if !ready.Load() {
				return errors.New("the engine does not know everything")
			}
			return nil
		}
		f.Checkpoint = func(context.Context) (*state.Checkpoint, error) {
			made = append(made, time.Since(began))
			return state.New(state.Options{}).Checkpoint(), nil
		}
		f.observe(nil, workloadWith("w", nil))
		counts := func(want int) func() {
			return func() {
				if got := f.Last().Runs; got != want {
					t.Errorf("%d runs after %s, not %d", got, time.Since(began), want)
				}
			}
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Start(ctx) }()
		for _, step := range []struct {
			after time.Duration
			do    func()
		}{
			{65 * time.Second, func() { ready.Store(true) }}, // it tried after 60 s, and does so every 10 s: at 70 s
			{71 * time.Second, counts(newRuns)},
			{100 * time.Second, func() { f.Forecast() }}, // so it makes one at once
			{101 * time.Second, counts(mostRuns)},
			{105 * time.Second, func() { f.Forecast() }}, // and this one 10 s after the last
			{200 * time.Second, func() { f.Last() }},     // after those at 170 s, and before those at 230 and 290 s
			{305 * time.Second, func() { f.Forecast() }},
			{306 * time.Second, end},
		} {
			time.Sleep(step.after - time.Since(began))
			step.do()
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		var want []time.Duration
		for _, seconds := range []time.Duration{70, 100, 110, 170, 230, 290, 305} {
			want = append(want, seconds*time.Second)
		}
		if !slices.Equal(made, want) {
			t.Errorf("made after %s, not %s", made, want)
		}
	})
}
