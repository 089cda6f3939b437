package sim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// parse gives a test the words after a command.
func parse(line string) *args { return &args{command: "test", words: strings.Fields(line)} }

// TestSettings: every word of options switches one thing.
func TestSettings(t *testing.T) {
	tests := map[string]func(*state.Options){
		"":                       func(*state.Options) {},
		"ignore-undeclared":      func(o *state.Options) { o.IgnoreUndeclared = true },
		"no-non-borrowing-first": func(o *state.Options) { o.NonBorrowingFirst = false },
		"no-priority-in-cohort":  func(o *state.Options) { o.PriorityInCohort = false },
		"block-admission":        func(o *state.Options) { o.BlockAdmission = true },
		"preemptor-first":        func(o *state.Options) { o.PreemptorFirst = true },
		"no-recompute-overlap":   func(o *state.Options) { o.RecomputeOverlap = false },
		"no-fail-fast":           func(o *state.Options) { o.FailFast = false },
		"no-keep-scan":           func(o *state.Options) { o.KeepScan = false },
		"no-fungibility":         func(o *state.Options) { o.FungibilityOff = true },
		"no-partial":             func(o *state.Options) { o.PartialAdmission = false },
		"no-classes":             func(o *state.Options) { o.NoClasses = true },
		"claim-timeout=0":        func(o *state.Options) { o.ClaimTimeout = 0 },
		"claim-timeout=90":       func(o *state.Options) { o.ClaimTimeout = 90e9 },
		"edit-window=3":          func(o *state.Options) { o.EditWindow = 3e9 },
		"fair": func(o *state.Options) {
			o.Fair = &preempt.Fair{Strategies: []preempt.Strategy{preempt.LessThanOrEqualToFinalShare, preempt.LessThanInitialShare}, WithinNominal: true}
		},
		"fair no-within-nominal": func(o *state.Options) {
			o.Fair = &preempt.Fair{Strategies: []preempt.Strategy{preempt.LessThanOrEqualToFinalShare, preempt.LessThanInitialShare}}
		},
		"fair=LessThanInitialShare": func(o *state.Options) {
			o.Fair = &preempt.Fair{Strategies: []preempt.Strategy{preempt.LessThanInitialShare}, WithinNominal: true}
		},
		"fair=LessThanInitialShare,LessThanOrEqualToFinalShare": func(o *state.Options) {
			o.Fair = &preempt.Fair{Strategies: []preempt.Strategy{preempt.LessThanInitialShare, preempt.LessThanOrEqualToFinalShare}, WithinNominal: true}
		},
	}
	for line, change := range tests {
		t.Run(line, func(t *testing.T) {
			want := state.Options{Options: cycle.Defaults(), Topology: new(topology.DefaultGates()), FailFast: true}
			change(&want)
			a := parse(line)
			got := a.settings()
			if !a.done() {
				t.Fatal(a.err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

// TestQueue: the meaning of the words of a queue.
func TestQueue(t *testing.T) {
	open := []workload.Term{{}}
	one := func(n, borrow, lend resource.Amount) []state.Quota {
		return []state.Quota{{Resource: "gpu", Nominal: n, Borrow: borrow, Lend: lend}}
	}
	tests := map[string]state.Queue{
		"A":                             {Namespaces: open},
		"A cohort=c strict closed=WHY":  {Namespaces: open, Cohort: "c", Strict: true, Closed: "WHY"},
		"A weight=0":                    {Namespaces: open, Weight: new(quota.Weight(0))},
		"A weight=1.5":                  {Namespaces: open, Weight: new(quota.Weight(1.5e9))},
		"A weight=2.001":                {Namespaces: open, Weight: new(quota.Weight(2.001e9))},
		"A weight=0.0001":               {Namespaces: open, Weight: new(quota.Weight(100_000))},
		"A namespaces=x.io/a:b":         {Namespaces: []workload.Term{{{Key: "x.io/a", Op: workload.In, Values: []string{"b"}}}}},
		"A within=lower reclaim=any":    {Namespaces: open, Preemption: preempt.Policy{Within: preempt.LowerPriority, Reclaim: preempt.Any}},
		"A within=lower-or-newer":       {Namespaces: open, Preemption: preempt.Policy{Within: preempt.LowerOrNewerEqualPriority}},
		"A within=never reclaim=lower":  {Namespaces: open, Preemption: preempt.Policy{Reclaim: preempt.LowerPriority}},
		"A borrow-within=lower":         {Namespaces: open, Preemption: preempt.Policy{BorrowWithin: true}},
		"A borrow-within=lower:-7":      {Namespaces: open, Preemption: preempt.Policy{BorrowWithin: true, Threshold: new(int64(-7))}},
		"A try-when-borrowing":          {Namespaces: open, Fungibility: flavor.Fungibility{TryNextWhenBorrowing: true}},
		"A stop-when-preempting":        {Namespaces: open, Fungibility: flavor.Fungibility{StopWhenPreempting: true}},
		"A preemption-over-borrowing":   {Namespaces: open, Fungibility: flavor.Fungibility{PreemptionOverBorrowing: true}},
		"A f/gpu=1,borrow=2,lend=0":     {Namespaces: open, Groups: []state.Group{{Resources: []string{"gpu"}, Flavors: []state.FlavorQuota{{Flavor: "f", Resources: one(1, 2, 0)}}}}},
		"A f/gpu=1,lend=unlimited":      {Namespaces: open, Groups: []state.Group{{Resources: []string{"gpu"}, Flavors: []state.FlavorQuota{{Flavor: "f", Resources: one(1, quota.NoLimit, resource.Unlimited)}}}}},
		"A f/x.io/gpu=1 strict g/cpu=2": {Namespaces: open, Strict: true, Groups: []state.Group{{Resources: []string{"x.io/gpu"}, Flavors: []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{{Resource: "x.io/gpu", Nominal: 1, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}}}, {Resources: []string{"cpu"}, Flavors: []state.FlavorQuota{{Flavor: "g", Resources: []state.Quota{{Resource: "cpu", Nominal: 2000, Borrow: quota.NoLimit, Lend: quota.NoLimit}}}}}}},
	}
	for line, want := range tests {
		t.Run(line, func(t *testing.T) {
			want.Name = "A"
			a := parse(line)
			got := a.queue()
			if !a.done() {
				t.Fatal(a.err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("queue (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWorkload: a workload in the API server after some commands.
func TestWorkload(t *testing.T) {
	pods := func(name string, count int32, requests ...state.Request) state.PodSet {
		return state.PodSet{Name: name, Count: count, Requests: requests, Constraints: &workload.Constraints{}}
	}
	cpu := func(n resource.Amount) state.Request { return state.Request{Resource: "cpu", Amount: n} }
	base := state.Workload{UID: "w", Namespace: "default", Name: "w", Version: 1, Generation: 1, Created: 1e9, Since: 1e9, Queueable: true}
	with := func(change func(*state.Workload)) state.Workload {
		w := base
		w.PodSets = []state.PodSet{pods("main", 1, cpu(1000))}
		change(&w)
		return w
	}
	held := []state.Held{{PodSet: "main", Flavor: "f", Resource: "cpu", Amount: 1000}}
	plain := []state.PodSet{{Name: "main", Count: 1, Requests: []state.Request{cpu(1000)}}}
	tests := map[string]struct {
		src  string
		want state.Workload
	}{
		"plain": {"submit w cpu=1", with(func(*state.Workload) {})},
		"said": {"submit w queue=A namespace=n prio=-3 at=0 owner=o replaces=v min-run=3 gated cpu=1", with(func(w *state.Workload) {
			w.LocalQueue, w.Namespace, w.Priority, w.Created, w.Since, w.Owner, w.Replaces, w.MinRun, w.Gated = "A", "n", -3, 0, 0, "o", "v", 3e9, true
		})},
		"no pods": {"submit w / main", with(func(w *state.Workload) { w.PodSets = []state.PodSet{pods("main", 1)} })},
		"pod sets": {"submit w gpu=1 / a x3 min=2 group=g cpu=3 / b x1 memory=1Ki", with(func(w *state.Workload) {
			a := pods("a", 3, cpu(3000))
			a.MinCount, a.Group = 2, "g"
			w.PodSets = []state.PodSet{pods("main", 1, state.Request{Resource: "gpu", Amount: 1}), a, pods("b", 1, state.Request{Resource: "memory", Amount: 1024})}
		})},
		"constraints": {"submit w affinity=a:b tolerate=t selector.x=y cpu=1 affinity=c:d selector.z=z", with(func(w *state.Workload) {
			w.PodSets[0].Shape = "affinity=a:b affinity=c:d selector.x=y selector.z=z tolerate=t"
			w.PodSets[0].Constraints = &workload.Constraints{
				Selector:    map[string]string{"x": "y", "z": "z"},
				Affinity:    []workload.Term{{{Key: "a", Op: workload.In, Values: []string{"b"}}}, {{Key: "c", Op: workload.In, Values: []string{"d"}}}},
				Tolerations: []workload.Toleration{{Key: "t", Operator: "Equal"}},
			}
		})},
		"edited":     {"submit w prio=2 cpu=2\nedit w queue=B cpu=1", with(func(w *state.Workload) { w.Version, w.Generation, w.Priority, w.LocalQueue = 2, 2, 2, "B" })},
		"not edited": {"submit w cpu=1\nedit w", with(func(w *state.Workload) { w.Version = 2 })},
		"stale":      {"submit w cpu=1\nedit w stale", with(func(*state.Workload) {})},
		"gate open":  {"submit w gated cpu=1\nedit w gate=open", with(func(w *state.Workload) { w.Version, w.Generation = 2, 2 })},
		"gate shut":  {"submit w cpu=1\nedit w gate=closed", with(func(w *state.Workload) { w.Version, w.Generation, w.Gated = 2, 2, true })},
		"still shut": {"submit w gated cpu=1\nedit w prio=1", with(func(w *state.Workload) { w.Version, w.Generation, w.Gated, w.Priority = 2, 2, true, 1 })},
		"no minimum": {"submit w min-run=3 cpu=1\nedit w min-run=0", with(func(w *state.Workload) { w.Version, w.Generation = 2, 2 })},
		"minimum":    {"submit w min-run=3 cpu=1\nedit w", with(func(w *state.Workload) { w.Version, w.MinRun = 2, 3e9 })},
		"finished":   {"submit w cpu=1\nfinish w", with(func(w *state.Workload) { w.Version, w.Queueable = 2, false })},
		"reserved": {"reserve w queue=A f/cpu=1 prio=4 at=7 since=9 owner=o min-run=5", with(func(w *state.Workload) {
			w.LocalQueue, w.Queue, w.Priority, w.Created, w.Since, w.ReservedAt, w.Owner, w.MinRun = "A", "A", 4, 7e9, 7e9, 9e9, "o", 5e9
			w.Reserved, w.Admitted, w.Held, w.PodSets = true, true, held, plain
		})},
		"pending": {"reserve w queue=A f/cpu=1 pending", with(func(w *state.Workload) {
			w.LocalQueue, w.Queue, w.ReservedAt, w.Reserved, w.Held, w.PodSets = "A", "A", 1e9, true, held, plain
		})},
		"admitted": {"submit w queue=A cpu=1\nqueue A f/cpu=1\nwait 5\nstep", with(func(w *state.Workload) {
			w.LocalQueue, w.Queue, w.Version, w.ReservedAt, w.Reserved, w.Admitted, w.Held = "A", "A", 2, 8e9, true, true, held
		})},
		"admitted with fewer pods": {"submit w queue=A / a x4 min=2 cpu=4\nqueue A f/cpu=3\nstep", with(func(w *state.Workload) {
			w.LocalQueue, w.Queue, w.Version, w.ReservedAt, w.Reserved, w.Admitted = "A", "A", 2, 3e9, true, true
			w.PodSets = []state.PodSet{pods("a", 4, cpu(4000))}
			w.PodSets[0].MinCount = 2
			w.Held = []state.Held{{PodSet: "a", Flavor: "f", Resource: "cpu", Amount: 3000}}
			w.Granted = map[string]int32{"a": 3}
		})},
		"told to go": {"reserve w queue=A f/cpu=1 pending\nevict w", with(func(w *state.Workload) {
			w.LocalQueue, w.Queue, w.Version, w.ReservedAt, w.Reserved, w.Evicting, w.Held, w.PodSets = "A", "A", 2, 1e9, true, true, held, plain
		})},
		"replaced": {"submit w queue=A cpu=1\nqueue A f/cpu=2\nstep\nsubmit v queue=A replaces=w cpu=2\nstep", with(func(w *state.Workload) {
			w.LocalQueue, w.Queue, w.Version, w.ReservedAt, w.Queueable = "A", "A", 3, 3e9, false
		})},
		"evicted before it was written what replaces it": {"submit w queue=A prio=50 cpu=1\nqueue A f/cpu=3\n+ step\nsubmit x queue=A replaces=w cpu=1\n" +
			"submit y queue=A prio=1 cpu=2\nstep unwritten\nwritten y\nevict y\nevicted y\nevict w\nevicted w\nstep", with(func(w *state.Workload) {
			w.LocalQueue, w.Queue, w.Priority, w.Version, w.ReservedAt = "A", "A", 50, 4, 2e9 // in no line now
		})},
		"replaced before it was written": {"submit w queue=A prio=60 cpu=1\nqueue A within=lower f/cpu=1\n+ submit x queue=A replaces=w cpu=1\nstep unwritten\nwrite-fails w\n" +
			"queue A within=lower f/cpu=2\nreserve y queue=A f/cpu=1\nsubmit z queue=A prio=1 cpu=1\nstep", with(func(w *state.Workload) {
			w.LocalQueue, w.Priority, w.Version = "A", 60, 1 // it has nothing that could be taken
		})},
		"gone": {"reserve w queue=A f/cpu=1\nevict w\nevicted w", with(func(w *state.Workload) {
			w.LocalQueue, w.Queue, w.Version, w.ReservedAt, w.PodSets = "A", "A", 3, 1e9, plain
		})},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(usual)
			for line := range strings.Lines(tc.src) {
				if _, err := p.line(line); err != nil {
					t.Fatal(err)
				}
			}
			for i := range tc.want.PodSets {
				tc.want.PodSets[i].PerPod = perPod(&tc.want.PodSets[i])
			}
			if diff := cmp.Diff(&tc.want, p.workloads["w"], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("workload (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnwritten: the state between a decision and its write.
func TestUnwritten(t *testing.T) {
	const full = "queue A within=lower f/cpu=1\nreserve r queue=A f/cpu=1\nsubmit w queue=A prio=1 cpu=1\nstep unwritten\n"
	const free = "queue A f/cpu=1\nsubmit w queue=A cpu=1\nstep unwritten\n"
	tests := map[string]struct {
		src                        string
		reserved, evicting, queued bool // w has a reservation, r is evicted, w is in line
	}{
		"not told":                  {full, false, false, true},
		"told":                      {full + "written r", false, true, true},
		"told after the next step":  {full + "step", false, true, true},
		"telling failed":            {full + "evict-fails r", false, false, true},
		"told again":                {full + "evict-fails r\nstep", false, true, true},
		"not written":               {free, false, false, false},
		"written":                   {free + "written w", true, false, false},
		"written after a next step": {free + "step", true, false, false},
		"failed":                    {free + "write-fails w", false, false, true},
		"tried again":               {free + "write-fails w\nstep", true, false, false},
		"edited meanwhile":          {free + "edit w owner=o\nstep", false, false, true},
		"edited, then tried again":  {free + "edit w owner=o\nstep\nstep", true, false, false},
		"touched meanwhile":         {free + "edit w\nstep", true, false, false},
		"finished before told":      {full + "finish r\nstep", true, false, false},
		"finished meanwhile":        {free + "finish w\nstep", false, false, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlayer(usual)
			for line := range strings.Lines(tc.src) {
				if _, err := p.line(line); err != nil {
					t.Fatal(err)
				}
			}
			r := p.workloads["r"]
			reserved, evicting, queued := p.workloads["w"].Reserved, r != nil && r.Evicting, len(p.s.Line("A")) > 0
			if reserved != tc.reserved || evicting != tc.evicting || queued != tc.queued {
				t.Errorf("w reserved: %v, r told to go: %v, w in line: %v; want %v, %v, %v", reserved, evicting, queued, tc.reserved, tc.evicting, tc.queued)
			}
		})
	}
}
