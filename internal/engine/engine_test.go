package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/berth-project/berth/internal/core/flavor"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/core/trace"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// recorder is a Writer that keeps its decisions.
type recorder struct {
	mu  sync.Mutex
	got []Decision
}

func (r *recorder) Write(d Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, d)
}

func (r *recorder) of(uid string) []Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Decision
	for _, d := range r.got {
		if d.UID == uid {
			out = append(out, d)
		}
	}
	return out
}

func setup() []state.Event {
	return []state.Event{
		state.SetFlavor(flavor.Flavor{Name: "f"}),
		state.SetNamespace{Name: "ns", Labels: nil},
		state.SetQueue(state.Queue{Name: "cq", Namespaces: []workload.Term{{}}, Groups: []state.Group{{
			Resources: []string{"cpu"},
			Flavors: []state.FlavorQuota{{Flavor: "f", Resources: []state.Quota{
				{Resource: "cpu", Nominal: 4, Borrow: quota.NoLimit, Lend: quota.NoLimit},
			}}},
		}}}),
		state.SetLocalQueue(state.LocalQueue{Namespace: "ns", Name: "lq", Queue: "cq"}),
	}
}

func pending(uid string) state.Workload {
	return state.Workload{
		UID: uid, Namespace: "ns", Name: uid, Version: 1, Generation: 3, LocalQueue: "lq", Queueable: true,
		PodSets: []state.PodSet{{Name: "main", Count: 1, Requests: []state.Request{{Resource: "cpu", Amount: 1}}}},
	}
}

func start(t *testing.T) (*Engine, *recorder) {
	t.Helper()
	e, r := New(state.New(state.Options{}), time.Now), &recorder{}
	e.AddWriter(r)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return e, r
}

func waitForTurns(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.Ask(context.Background(), func(*state.State) {}); err != nil { // it is answered after the turn with the events
		t.Fatal(err)
	}
}

func TestNothingIsDecidedBeforeOpen(t *testing.T) {
	e, r := start(t)
	e.Post(setup()...)
	e.Post(state.SetWorkload(pending("a")))
	waitForTurns(t, e)
	if got := r.of("a"); len(got) != 0 {
		t.Fatalf("decided %+v while closed", got)
	}
	e.Open()
	waitForTurns(t, e)
	got := r.of("a")
	if len(got) != 1 || got[0].Attempt.Verdict != trace.Admitted || got[0].Grant == nil || got[0].Grant.Queue != "cq" {
		t.Fatalf("after Open: %+v", got)
	}
	if got[0].Grant.Generation != 3 || got[0].Namespace != "ns" || got[0].Name != "a" {
		t.Errorf("the decision does not name its workload: %+v", got[0])
	}
}

func TestFailedAdmissionIsDecidedAgain(t *testing.T) {
	e, r := start(t)
	e.Post(setup()...)
	e.Open()
	e.Post(state.SetWorkload(pending("a")))
	waitForTurns(t, e)
	e.Post(state.AdmissionFailed{UID: "a", Version: r.of("a")[0].Grant.Version})
	waitForTurns(t, e)
	if got := r.of("a"); len(got) != 2 || got[1].Grant == nil {
		t.Fatalf("decisions %+v, want two admissions", got)
	}
}

func TestAskEndsWithItsContext(t *testing.T) {
	e := New(state.New(state.Options{}), time.Now) // it does not run
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Ask(ctx, func(*state.State) {}); err == nil {
		t.Error("Ask returned without an answer and without an error")
	}
}

func TestTouchedQueuesAreTold(t *testing.T) {
	e := New(state.New(state.Options{}), time.Now)
	var mu sync.Mutex
	told := map[state.Name]bool{}
	e.OnTouched(func(names []state.Name, _ []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range names {
			told[n] = true
		}
	})
	go func() { _ = e.Run(t.Context()) }() // it ends with the test, without an error
	e.Post(setup()...)
	e.Post(state.SetWorkload(pending("a")))
	waitForTurns(t, e)
	mu.Lock()
	defer mu.Unlock()
	if !told[state.Name{Name: "cq"}] || !told[state.Name{Namespace: "ns", Name: "lq"}] {
		t.Errorf("told of %v", told)
	}
}

func TestTurnsAreTold(t *testing.T) {
	e := New(state.New(state.Options{}), time.Now)
	var mu sync.Mutex
	var events, cycles, admitting, decisions int
	e.OnTurn(func(turn *Turn) {
		mu.Lock()
		defer mu.Unlock()
		events += turn.Events
		cycles += turn.Result.Cycles
		admitting += turn.Result.Admitting
		decisions += len(turn.Result.Decisions)
		if turn.Events == 0 && turn.Result.Cycles == 0 {
			t.Error("told of a turn that did nothing")
		}
	})
	go func() { _ = e.Run(t.Context()) }() // it ends with the test, without an error
	e.Open()
	e.Post(setup()...)
	e.Post(state.SetWorkload(pending("a")))
	waitForTurns(t, e)
	waitForTurns(t, e)
	mu.Lock()
	defer mu.Unlock()
	if events != len(setup())+1 || cycles == 0 || admitting != 1 || decisions != 1 {
		t.Errorf("told of %d events, %d cycles, %d that admitted, %d decisions", events, cycles, admitting, decisions)
	}
}
