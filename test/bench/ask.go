package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/berth-project/berth/internal/core/cycle"
	"github.com/berth-project/berth/internal/core/preempt"
	"github.com/berth-project/berth/internal/core/quota"
	"github.com/berth-project/berth/internal/state"
)

// ask: the costs of readers. publish_us is the time of the engine for the read model after a turn of one event of the steady world, and
// evaluate_us its time for the explanation of one workload of 100,000 in one queue whose trace is not kept. The rest is time of readers:
// position_us the last decision about one of them, with its position, page_us the first 100 of that line, reasons_us the reasons of all of
// them, and statistics_us the statistics of a scrape of the steady world.
func (b *bench) ask() error {
	y, err := newYard(cycle.Defaults(), preempt.Policy{}, 1000, many)
	if err != nil {
		return err
	}
	y.s.Publish()
	const events = 5000
	y.prepare(events)
	if err := b.measuring(); err != nil {
		return err
	}
	var published time.Duration
	for range events {
		y.event()
		from := spent()
		y.s.Publish()
		published += spent() - from
	}
	b.figure("ask.publish_us", micros(published, events))
	began := spent()
	for range 10 {
		y.s.Publish().Statistics(state.Asked{Classes: true})
	}
	b.figure("ask.statistics_us", micros(spent()-began, 10))
	return b.askOneQueue()
}

func (b *bench) askOneQueue() error {
	s := newState(cycle.Defaults())
	addQueues(s, 1, queueSpec{nominal: gpus(8), borrow: quota.NoLimit, lend: quota.NoLimit})
	defs := arrivals(1, many)
	for i := range defs {
		s.Apply(state.SetWorkload(defs[i]))
	}
	s.Step(start+many*millis, math.MaxInt)
	model := s.Publish()
	line, _ := model.Waiting(queueName(0))
	if err := b.measuring(); err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(7, 8))
	var took, evaluated []float64
	for range 10_000 {
		def := &defs[rnd.IntN(many)]
		from := spent()
		_, place, found := model.Find(queueName(0), def.UID, def.Priority, def.Since)
		if found && place >= 0 {
			took = append(took, micros(spent()-from, 1))
		}
		from = spent()
		attempt, place := s.AttemptNow(def.UID)
		passed := spent() - from
		if attempt == nil {
			return fmt.Errorf("%s is unknown", def.UID)
		}
		if place >= 0 {
			evaluated = append(evaluated, micros(passed, 1))
		}
	}
	b.figure("ask.position_us", percentile(took, 50))
	b.figure("ask.position_p99_us", percentile(took, 99))
	b.figure("ask.evaluate_us", percentile(evaluated, 50))
	began := spent()
	reasons := 0
	for range model.Lasts() {
		reasons++
	}
	b.figure("ask.reasons_us", micros(spent()-began, 1))
	if reasons < many/2 {
		return fmt.Errorf("only %d have a reason", reasons)
	}
	began = spent()
	for range 100 {
		if page := line.Page(nil, 0, 100); len(page) != 100 {
			return fmt.Errorf("the page has %d workloads", len(page))
		}
	}
	b.figure("ask.page_us", micros(spent()-began, 100))
	return nil
}

// micros is the time of one of n, in microseconds.
func micros(all time.Duration, n int) float64 { return float64(all) / float64(n) / 1e3 }
