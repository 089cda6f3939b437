package foresight

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/workload"
)

const day = 24 * 60 * minute

func someJob(queue string) *Job { return &Job{Kind: "Job", LocalQueue: queue, Shape: 7} }

// TestSources: each estimate says where it comes from.
func TestSources(t *testing.T) {
	learned := func(n int, j *Job, factor float64) *Learner {
		l := NewLearner()
		for i := range n {
			at := *j
			l.Learn(&at, workload.Instant(factor*float64(10*minute))+workload.Instant(i%3)*second, workload.Instant(i)*day)
		}
		return l
	}
	declared := &Job{Kind: "Job", LocalQueue: "a/q", Shape: 7, Expected: 10 * minute}
	for name, tc := range map[string]struct {
		l      *Learner
		job    Job
		source Source
		text   string
		p50    workload.Instant
	}{
		"nothing is known":              {NewLearner(), *someJob("a/q"), Unknown, "unknown: fewer than 3 Workloads like it have finished", 0},
		"two are too few":               {learned(2, someJob("a/q"), 1), *someJob("a/q"), Unknown, "unknown", 0},
		"same queue and pod sets":       {learned(9, someJob("a/q"), 1), *someJob("a/q"), Learned, "9 finished Workloads of LocalQueue a/q with the same pod sets, kind Job", 10 * minute},
		"same queue":                    {learned(9, &Job{Kind: "Job", LocalQueue: "a/q", Shape: 8}, 1), *someJob("a/q"), Learned, "of LocalQueue a/q, kind Job", 10 * minute},
		"same kind":                     {learned(9, someJob("a/other"), 1), *someJob("a/q"), Learned, "of all LocalQueues, kind Job", 10 * minute},
		"another kind":                  {learned(9, &Job{Kind: "RayJob", LocalQueue: "a/q", Shape: 7}, 1), *someJob("a/q"), Unknown, "unknown", 0},
		"declared":                      {NewLearner(), *declared, Declared, "; declared", 10 * minute},
		"declared, and always too long": {learned(30, declared, 0.5), *declared, Declared, "corrected by 30 finished Workloads", 5 * minute},
		"a limit alone":                 {NewLearner(), Job{Kind: "Job", Limit: 20 * minute}, Bounded, "it is stopped after 20m", 10 * minute},
		"learned, above the limit":      {learned(9, someJob("a/q"), 1), Job{Kind: "Job", LocalQueue: "a/q", Shape: 7, Limit: 2 * minute}, Learned, "", 2 * minute},
	} {
		t.Run(name, func(t *testing.T) {
			e := tc.l.Predict(&tc.job).Estimate
			if e.Source != tc.source || !strings.Contains(e.String(), tc.text) {
				t.Errorf("%s: %s", e.Source, e.String())
			}
			if off := math.Abs(float64(e.P50 - tc.p50)); off > float64(10*second) {
				t.Errorf("the median is %s, not %s", short(e.P50), short(tc.p50))
			}
			if e.P10 > e.P50 || e.P50 > e.P90 {
				t.Errorf("quantiles %d %d %d", e.P10, e.P50, e.P90)
			}
		})
	}
}

// TestLearnerBounds: whatever is learned, its memory is bounded, and the order in which a pool learns does not matter.
func TestLearnerBounds(t *testing.T) {
	l := NewLearner()
	for i := range 3 * maxPools {
		for range 2 {
			l.Learn(&Job{Kind: "Job", LocalQueue: fmt.Sprint(i), Shape: uint64(i)}, minute, workload.Instant(i))
		}
	}
	if len(l.pools) != maxPools || l.used.Len() != maxPools {
		t.Errorf("%d pools are kept, and %d in order of use", len(l.pools), l.used.Len())
	}
	type finish struct{ run, at workload.Instant }
	var all []finish
	for i := range 5 * samplesOfPool {
		all = append(all, finish{workload.Instant(1+i*7919%1000) * second, workload.Instant(i) * minute})
	}
	predict := func() Estimate {
		l := NewLearner()
		for _, f := range all {
			l.Learn(someJob("a/q"), f.run, f.at)
		}
		return l.Predict(someJob("a/q")).Estimate
	}
	inOrder := predict()
	if inOrder.Samples != samplesOfPool {
		t.Errorf("%d samples are kept", inOrder.Samples)
	}
	ordered := all
	rapid.Check(t, func(t *rapid.T) {
		all = rapid.Permutation(ordered).Draw(t, "order")
		if shuffled := predict(); shuffled != inOrder {
			t.Errorf("in another order %v, not %v", shuffled, inOrder)
		}
	})
}

// TestShareOfNamespace: a namespace with many finished Workloads does not decide what is expected of all others, nor displace what is known of them.
func TestShareOfNamespace(t *testing.T) {
	l := NewLearner()
	for i := range 20 {
		l.Learn(someJob("careful/q"), 100*minute, workload.Instant(i)*second)
	}
	for i := range 2 * maxPools {
		l.Learn(&Job{Kind: "Job", LocalQueue: "busy/q", Shape: uint64(i)}, minute, workload.Instant(100+i)*second)
	}
	own, other := l.Predict(someJob("careful/q")), l.Predict(someJob("new/q"))
	if off := math.Abs(float64(own.P50 - 100*minute)); own.Samples != 20 || off > float64(minute) {
		t.Errorf("in its namespace: %s", own.Estimate.String())
	}
	if other.Samples != samplesOfPool || other.P90 < 30*minute {
		t.Errorf("in another namespace: %s", other.Estimate.String())
	}
	for i := range maxPools {
		l.Learn(&Job{Kind: "Job", LocalQueue: fmt.Sprint("n", i, "/q"), Shape: 7}, minute, workload.Instant(i)*second)
	}
	if len(l.pools) != maxPools || l.of["busy"] > poolsOfSpace || l.many > 0 {
		t.Errorf("%d pools, of which the busy namespace has %d", len(l.pools), l.of["busy"])
	}
}

// TestRecentCountsMore: what finished long ago counts less.
func TestRecentCountsMore(t *testing.T) {
	l := NewLearner()
	for i := range 20 {
		l.Learn(someJob("a/q"), 100*minute, workload.Instant(i)*second)
		l.Learn(someJob("a/q"), 10*minute, 100*day+workload.Instant(i)*second)
	}
	if got := l.Predict(someJob("a/q")).P50; got > 12*minute {
		t.Errorf("the median is %s", short(got))
	}
}

// TestLength: a drawn run time exceeds what the workload has run, stays below its limit, and its distribution is that of the samples.
func TestLength(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLearner()
		for i := range rapid.IntRange(0, 40).Draw(t, "samples") {
			l.Learn(someJob("a/q"), workload.Instant(rapid.IntRange(1, 10_000).Draw(t, "run"))*second, workload.Instant(i)*second)
		}
		j := someJob("a/q")
		j.Expected = workload.Instant(rapid.SampledFrom([]int{0, 0, 100}).Draw(t, "expected")) * second
		j.Limit = workload.Instant(rapid.SampledFrom([]int{0, 0, 500}).Draw(t, "limit")) * second
		j.Ran = workload.Instant(rapid.SampledFrom([]int{0, 0, 50}).Draw(t, "ran before")) * second
		ran := workload.Instant(rapid.SampledFrom([]int{0, 10, 100_000}).Draw(t, "ran")) * second
		p := l.Predict(j)
		r := newDraws(rapid.Uint64().Draw(t, "seed"), 1)
		for range 10 {
			got := p.length(r, ran)
			if p.Source == Unknown {
				if got != Never {
					t.Fatalf("an unknown run time is %d", got)
				}
				continue
			}
			if got < ran || got < j.Ran {
				t.Fatalf("it runs for %d, and has run for %d", got, max(ran, j.Ran))
			}
			if j.Limit > 0 && got > max(j.Limit, ran, j.Ran) {
				t.Fatalf("it runs for %d, beyond %d", got, j.Limit)
			}
		}
	})
	l := NewLearner()
	for i := range samplesOfPool {
		z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/samplesOfPool-1)
		l.Learn(someJob("a/q"), workload.Instant(math.Exp(6+z)*1e9), workload.Instant(i)*second)
	}
	p := l.Predict(someJob("a/q"))
	for _, a := range []float64{math.Inf(-1), -3, 0, 1.9, 2, 5, 20, 1000} {
		r, sum := newDraws(1, 1), 0.0
		for range 1000 {
			x := r.normalAbove(a)
			if x < a || math.IsInf(x, 1) {
				t.Fatalf("%g is not above %g", x, a)
			}
			sum += x
		}
		want := 0.0 // the mean is the density at a over the probability above it
		if tail := math.Erfc(a/math.Sqrt2) / 2; a < 6 {
			want = math.Exp(-a*a/2) / math.Sqrt(2*math.Pi) / tail
		} else {
			want = a + 1/a
		}
		if got := sum / 1000; math.Abs(got-want) > 0.1 {
			t.Errorf("the mean above %g is %g, not %g", a, got, want)
		}
	}
	var drawn []float64
	for n := range uint64(200) {
		r := newDraws(1, n)
		for range 20 {
			drawn = append(drawn, logSeconds(p.length(r, 0)))
		}
	}
	slices.Sort(drawn)
	for q, z := range map[float64]float64{0.1: -1.2816, 0.5: 0, 0.9: 1.2816} {
		if got := drawn[int(q*float64(len(drawn)))]; math.Abs(got-(6+z)) > 0.35 {
			t.Errorf("the %g quantile of the logarithm is %.2f, not %.2f", q, got, 6+z)
		}
	}
}
