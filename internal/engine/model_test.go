package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-project/berth/internal/state"
)

// Any number of readers read models while the engine turns, also models of earlier turns, and each model is of one moment. The race
// detector checks the rest.
func TestModelIsReadWhileTheEngineTurns(t *testing.T) {
	e, _ := start(t)
	e.Post(setup()...)
	e.Open()
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			kept := e.Model()
			for n := 0; !stop.Load(); n++ {
				for _, m := range []*state.Model{e.Model(), kept} {
					checkMoment(t, m)
				}
				if n%10 == 0 {
					kept = e.Model()
				}
			}
		})
	}
	for i := range 200 {
		w := pending(fmt.Sprint(i % 9))
		w.Version, w.Priority = uint64(i+2), int64(i%3)
		e.Post(state.SetWorkload(w))
		if i%4 == 3 {
			e.Post(state.DeleteWorkload(fmt.Sprint((i - 2) % 9)))
		}
		if i%16 == 15 {
			e.Post(state.AdmissionFailed{UID: w.UID, Version: w.Version})
		}
		if i%10 == 0 {
			waitForTurns(t, e)
		}
	}
	stop.Store(true)
	readers.Wait()
}

// checkMoment checks that the parts of a model agree.
func checkMoment(t *testing.T, m *state.Model) {
	view, known := m.Queue("cq")
	if !known {
		return
	}
	statistics := m.Statistics(state.Asked{Classes: true, Keys: true})
	q, l, own := statistics.Queues[0], statistics.LocalQueues[0], m.LocalQueue("ns", "lq")
	line, _ := m.Waiting("cq")
	page := line.Page(nil, 0, 1000)
	for _, p := range page {
		p.UID()
		p.Name()
	}
	if n := q.Active.Workloads + q.Inadmissible.Workloads; n != view.Active+view.Inadmissible || n != len(q.Active.Keys)+len(q.Inadmissible.Keys) ||
		n != l.Active+l.Inadmissible || n != own.Active+own.Inadmissible || len(page) != line.Len() || len(page) < n {
		t.Errorf("%+v, %+v and %+v disagree, or with a line of %d", q, l, own, len(page))
	}
	if view.Reserved != own.Reserved || view.Reserved > 4 || q.Cells[0].Reserved != l.Cells[0].Reserved {
		t.Errorf("%+v and %+v have other reservations", view, own)
	}
}

// A turn is in the model when its events are answered for, and before its queues are touched.
func TestModelIsPublishedBeforeTouched(t *testing.T) {
	e := slowEngine(0) // a turn that takes no time applies all events
	before, touched := e.Model(), false
	e.OnTouched(func(queues []state.Name, _ []string) {
		touched = true
		if _, known := e.Model().Queue("cq"); !known {
			t.Errorf("%v are touched, and the model does not show it", queues)
		}
	})
	e.Post(setup()...)
	e.runTurn()
	if _, known := before.Queue("cq"); known || !touched {
		t.Errorf("touched %v; an earlier model has changed: %v", touched, known)
	}
	now := e.Model()
	e.Post(state.DeleteWorkload("none"))
	if e.runTurn(); e.Model() != now {
		t.Error("a turn without a change has published another model")
	}
}
