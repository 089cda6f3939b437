package sim

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	preempts = regexp.MustCompile(`preempts default/(\S+) in (\S+):`)
	admits   = regexp.MustCompile(`default/\S+ in (\S+) \(priority \S+\): admitted`)
)

// TestSharesChooseVictims: a1 has everything that four queues of equal weight under two cohorts share, and then the heads of
// several of them arrive at once. In whatever order the victims stop, their number is the difference of a1's share, and all are of a1: no
// workload is started for one queue and preempted for another. spec: 20 §4.3.
func TestSharesChooseVictims(t *testing.T) {
	victims := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		size := 1 + r.IntN(4)
		script, pods := fourQueues(r, size)
		waiting := [][]string{{"a1", "a2", "b1", "b2"}, {"a2", "b1", "b2"}, {"b1", "b2"}, {"a2", "b2"}}[r.IntN(4)]
		each := []int{1, 2, 3, 4, 8, 20}[r.IntN(6)]
		script += fmt.Sprintf("submit run x%d queue=a1 cpu=%d\nstep quiet\n", pods, size)
		for _, q := range waiting {
			script += fmt.Sprintf("+ submit %s x%d queue=%s cpu=%d\n", q, each, q, size)
		}
		got, left := playOut(t, r, script, pods)
		if want := pods - left; len(got) != want {
			t.Errorf("seed %d: %d victims for %d: %v\n%s", seed, len(got), want, got, script)
		}
		for _, v := range got {
			if !strings.HasPrefix(v, "run-") {
				t.Errorf("seed %d: %s was started and preempted\n%s", seed, v, script)
			}
		}
		victims += len(got)
	}
	if victims < 1000 {
		t.Errorf("%d victims: the worlds are not what they should be", victims)
	}
}

// fourQueues is a world, and how many workloads of a size fit into it.
func fourQueues(r *rand.Rand, size int) (script string, pods int) {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	root, cohort, own := 0, 0, 0
	switch r.IntN(3) {
	case 0:
		root = 4 + r.IntN(12)
	case 1:
		cohort = 2 + r.IntN(6)
	default:
		own = 1 + r.IntN(4)
	}
	script = "options fair" + one("", "=LessThanOrEqualToFinalShare", "=LessThanInitialShare") + one("", "", " no-within-nominal") +
		one("", "", " no-non-borrowing-first") + one("", "", " preemptor-first") + "\n" +
		fmt.Sprintf("cohort root f/cpu=%d\n", root*size+r.IntN(size))
	within := one("never", "lower", "lower-or-newer")
	for _, c := range []string{"left", "right"} {
		script += fmt.Sprintf("cohort %s parent=root f/cpu=%d\n", c, cohort*size)
	}
	for i, q := range []string{"a1", "a2", "b1", "b2"} {
		script += fmt.Sprintf("queue %s cohort=%s reclaim=any within=%s f/cpu=%d\n", q, []string{"left", "right"}[i/2], within, own*size)
	}
	return script, root + 2*cohort + 4*own
}

// evictAll stops victims in any order, some at once, until no more are chosen. It returns them, and the number of a1's workloads that are
// left.
func playOut(t *testing.T, r *rand.Rand, script string, had int) (victims []string, left int) {
	t.Helper()
	var leaving []string
	for left = had; ; {
		out, err := Run(script + "step\n")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		script += "step quiet\n"
		said := out[strings.LastIndex(out, "\nstep\n"):]
		for _, m := range admits.FindAllStringSubmatch(said, -1) {
			if m[1] == "a1" {
				left++
			}
		}
		for _, m := range preempts.FindAllStringSubmatch(said, -1) {
			if slices.Contains(leaving, m[1]) {
				continue // it was told before
			}
			victims, leaving = append(victims, m[1]), append(leaving, m[1])
			if m[2] == "a1" {
				left--
			}
		}
		if len(leaving) == 0 || len(victims) > 10*had {
			return victims, left
		}
		r.Shuffle(len(leaving), func(i, j int) { leaving[i], leaving[j] = leaving[j], leaving[i] })
		n := 1 + r.IntN(len(leaving))
		for _, v := range leaving[:n] {
			script += "+ evicted " + v + "\n"
		}
		leaving = leaving[n:]
	}
}
