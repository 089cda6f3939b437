package simulation

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// world is a queue with 4 GPUs in which higher priorities preempt lower ones.
var world = []state.Event{
	state.SetNamespace{Name: "n"},
	state.SetFlavor(flavor.Flavor{Name: "f"}),
	state.SetQueue{
		Name: "q", Namespaces: []workload.Term{{}}, Preemption: preempt.Policy{Within: preempt.LowerPriority},
		Groups: []state.Group{{Resources: []string{"gpu"}, Flavors: []state.FlavorQuota{{
			Flavor: "f", Resources: []state.Quota{{Resource: "gpu", Nominal: 4}},
		}}}},
	},
	state.SetLocalQueue{Namespace: "n", Name: "q", Queue: "q"},
}

func run(t *testing.T, trace string, until workload.Instant) *Result {
	t.Helper()
	jobs, err := ReadCSV("t", strings.NewReader(trace))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), state.New(state.Options{Options: cycle.Defaults()}), world, jobs, Options{Start: 1000 * Second, Grace: 10 * Second, Until: until})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRun: figures that can be computed by hand.
func TestRun(t *testing.T) {
	r := run(t, `submit,run,queue,pods,gpu,priority,class
0,100,n/q,1,2,0,low
20,100,n/q,2,2,9,high
0,100,n/q,1,2,0,low
400,100,n/q,1,5,0,too big
`, 0)
	// From 0 to 20 s two low ones run; these stop until 30, high runs from 30 to 130, and then the low ones from 130 to 230.
	want := &Result{
		Jobs: 4, Finished: 3, Refused: 1, Makespan: 400, Main: "gpu", Preemptions: 2, Repeated: float64(2*2*20) / (4 * (20 + 100 + 100)),
		Utilisation:      []Utilisation{{Resource: "gpu", Quota: 4, Share: 220.0 / 400, Loaded: 220.0 / 400}},
		IdleWhileWaiting: 10.0 / 400, // while pods end
		Classes: []Class{
			{Name: "low", Jobs: 2, Started: 2, Preemptions: 2, Slowdown: 1},
			{Name: "too big", Jobs: 1},
			{Name: "high", Jobs: 1, Started: 1, P50: 10, P90: 10, P99: 10, Slowdown: 1.1},
		},
		Queues: []Class{{Name: "n/q", Jobs: 4, Started: 3, Preemptions: 2, P50: 0, P90: 10, P99: 10, Slowdown: (1.1 + 1 + 1) / 3}},
	}
	want.Fairness, want.Series = 1, r.Series
	about := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	if diff := cmp.Diff(want, r, about); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(r.Series.Used) != 400 || r.Series.Used[10] != 1 || r.Series.Used[300] != 0 {
		t.Errorf("the series has %d points, %v at 10 s and %v at 300 s", len(r.Series.Used), r.Series.Used[10], r.Series.Used[300])
	}
}

// TestUntil: what is not over then has not finished.
func TestUntil(t *testing.T) {
	r := run(t, "submit,run,queue,gpu\n0,100,n/q,4\n10,100,n/q,4\n500,1,n/q,1\n", 150*Second)
	if r.Finished != 1 || r.Refused != 1 || r.Jobs != 3 {
		t.Errorf("%d of %d finished, %d never started", r.Finished, r.Jobs, r.Refused)
	}
}

// TestSame: the same seed makes the same jobs, and these come to the same.
func TestSame(t *testing.T) {
	made := func(seed uint64) []Job {
		return (&Generator{
			Jobs: 500, Over: 48 * 3600 * Second, Load: 1, Quota: 4096, Resource: "gpu", Unit: 1, Seed: seed, Queues: []Share{{"n", "q", 1}},
		}).Make()
	}
	a, b := made(1), made(1)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(a, made(2)) {
		t.Error("another seed makes the same jobs")
	}
	var work float64
	for _, j := range a {
		work += seconds(j.Run) * float64(j.PerPod[0].Amount.Mul(int64(j.Pods)))
	}
	if load := work / (4096 * 48 * 3600); load < 0.98 || load > 1.02 {
		t.Errorf("the load is %.3f, want 1", load)
	}
	for _, quota := range []int64{1, 12, 100} {
		for _, j := range (&Generator{Jobs: 300, Over: Second, Load: 1, Quota: quota, Resource: "gpu", Unit: 1, Queues: []Share{{"n", "q", 1}}}).Make() {
			if n := int64(j.PerPod[0].Amount.Mul(int64(j.Pods))); n < 1 || n > quota {
				t.Errorf("a job of %d with a quota of %d", n, quota)
			}
		}
	}
	of := func() *Result {
		r, err := Run(t.Context(), state.New(state.Options{Options: cycle.Defaults()}), world, made(1), Options{Start: Second, Grace: Second})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if diff := cmp.Diff(of(), of()); diff != "" {
		t.Error(diff)
	}
}

func TestReadCSVRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "t: it is empty",
		"submit,cpu\n":                   "t:1: there is no column run",
		"submit,run,run\n":               "t:1: column run is there twice",
		"submit,run,prioriti,cpu\n":      "t:1: column prioriti: did you mean priority?",
		"submit,run,cpu\n1,2\n":          "t:2: wrong number of fields",
		"submit,run,cpu\n1,2,1\n1,,1\n":  `t:3: run: "" is no number of seconds`,
		"submit,run,cpu\n1,NaN,1\n":      `t:2: run: "NaN" is no number of seconds`,
		"submit,run,cpu\n-1,2,1\n":       `t:2: submit: "-1" is no number of seconds`,
		"submit,run,cpu\n1,2,x\n":        `t:2: cpu: "x" is no amount`,
		"submit,run,cpu\n1,2,0\n":        "t:2: the job requests nothing",
		"submit,run,pods,cpu\n1,2,0,1\n": `t:2: pods: "0" is no whole number from 1`,
		"submit,run,cpu\n\"1,2,0\n":      "t:2: ",
		"submit,run,cpu\n2026-01-01T00:00:00Z,2,1\n5,2,1\n": `t:3: submit: "5" is no date`,
	} {
		if _, err := ReadCSV("t", strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestReadSWF(t *testing.T) {
	jobs, left, err := ReadSWF("t", strings.NewReader("; comment\n\n7 30 5 100 2 -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 -1\n8 10 5 50 2 -1 -1 -1 200 -1 1 -1 1 -1 6 -1 -1 -1\n9 10 5 -1 2 -1 -1 -1 200 -1 0 3 1 -1 1 -1 -1 -1\n"), Processor{"gpu", 2})
	if err != nil || left != 1 {
		t.Fatalf("%d left out, %v", left, err)
	}
	want := []Job{
		{Name: "8", Namespace: "default", Owner: 6, Pods: 2, Submit: 10 * Second, Run: 50 * Second, Limit: 200 * Second, PerPod: []state.Request{{Resource: "gpu", Amount: 2}}, Line: 4},
		{Name: "7", Namespace: "default", Owner: 3, Pods: 4, Submit: 30 * Second, Run: 100 * Second, Limit: 200 * Second, PerPod: []state.Request{{Resource: "gpu", Amount: 2}}, Line: 3},
	}
	if diff := cmp.Diff(want, jobs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		"1 2 3\n": "t:1: 3 fields; a line of the Standard Workload Format has 18",
		"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 x\n":    `t:1: field 18: "x" is no number`,
		"1 2 3 4e9 5 6 7 8 9 10 11 12 13 14 15 16 17 18\n": "t:1: more than a million processors, or a time of more than a century",
	} {
		if _, _, err := ReadSWF("t", strings.NewReader(text), Processor{"cpu", 1000}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzReadCSV(f *testing.F) {
	f.Add("submit,run,cpu\n1,2,1\n")
	f.Add("submit,run,queue,pods,nvidia.com/gpu\n2026-01-01T00:00:00Z,3600,a/b,4,8\n")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := ReadCSV("t", strings.NewReader(text))
		if err == nil && len(jobs) > 0 && (jobs[0].Submit < 0 || jobs[0].Run < 0 || jobs[0].Pods < 1) {
			t.Errorf("%+v", jobs[0])
		}
	})
}

// BenchmarkRun runs 20,000 jobs of two days.
func BenchmarkRun(b *testing.B) {
	jobs := (&Generator{
		Jobs: 20_000, Over: 48 * 3600 * Second, Load: 0.9, Quota: 10_000, Resource: "gpu", Unit: 1, Seed: 1, Queues: []Share{{"n", "q", 1}},
	}).Make()
	big := []state.Event{world[0], world[1], state.SetQueue{
		Name: "q", Namespaces: []workload.Term{{}},
		Groups: []state.Group{{Resources: []string{"gpu"}, Flavors: []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{{Resource: "gpu", Nominal: 10_000}}}}}},
	}, world[3]}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(b.Context(), state.New(state.Options{Options: cycle.Defaults()}), big, jobs, Options{Start: Second, Grace: 30 * Second}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(jobs)), "ns/job")
}

// TestFragmentation: two racks of two hosts with 2 GPUs each. Both jobs of the first line go into one rack each; the one that needs a whole
// rack waits until one is free again, though 4 GPUs are free.
func TestFragmentation(t *testing.T) {
	gates := topology.DefaultGates()
	racks := slices.Clone(world)
	racks[1] = state.SetFlavor(flavor.Flavor{Name: "f", Topology: "t", Levels: []string{"rack", topology.Hostname}})
	for _, host := range []string{"a1", "a2", "b1", "b2"} {
		racks = append(racks, state.SetNode{
			Name: host, Labels: map[string]string{"rack": host[:1], topology.Hostname: host}, Ready: true, Schedulable: true,
			Allocatable: []state.Request{{Resource: "gpu", Amount: 2}, {Resource: "pods", Amount: 10}},
		})
	}
	queue := racks[2].(state.SetQueue)
	queue.Groups = []state.Group{{Resources: []string{"gpu"}, Flavors: []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{{Resource: "gpu", Nominal: 8}}}}}}
	racks[2] = queue
	jobs, err := ReadCSV("t", strings.NewReader(`submit,run,queue,pods,gpu,required,preferred,class
0,100,n/q,3,1,rack,,in one rack
0,100,n/q,3,1,,rack,preferably in one rack
10,50,n/q,2,2,rack,,whole rack
`))
	if err != nil {
		t.Fatal(err)
	}
	options := state.Options{Options: cycle.Defaults(), Topology: &gates}
	r, err := Run(t.Context(), state.New(options), racks, jobs, Options{Start: 1000 * Second, Grace: Second})
	if err != nil {
		t.Fatal(err)
	}
	waits := map[string]float64{}
	for _, c := range r.Classes {
		waits[c.Name] = c.P50
	}
	if want := map[string]float64{"in one rack": 0, "preferably in one rack": 0, "whole rack": 90}; !maps.Equal(waits, want) {
		t.Errorf("jobs wait for %v, want %v", waits, want)
	}
	// Up to 100 s each rack has one free GPU, of two that one could have; then a rack is free, and until 150 s the other one is in use.
	want := []Fragmentation{{"f", "rack", 0.5 * 100 / 150}, {"f", topology.Hostname, 0.5 * 100 / 150}}
	if diff := cmp.Diff(want, r.Fragmentation, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 0.01 })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
