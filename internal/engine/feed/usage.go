package feed

import (
	"context"
	"time"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
	"github.com/berth-project/berth/internal/workload/plan/convert"
)

const (
	// samplesPerEvent bounds the samples of one event: they take less than a millisecond.
	samplesPerEvent = 1024
	// eventsPerInterval is how often in an interval the LocalQueues that are due are sampled, each of them once.
	eventsPerInterval = 16
	// The time between two such events.
	leastTick, mostTick = 20 * time.Millisecond, time.Second
)

// localQueue converts a LocalQueue, with the past usage in its status: that counts until this replica leads.
func (f *Feed) localQueue(o *kueue.LocalQueue) []state.Event {
	events := []state.Event{state.SetLocalQueue(convert.LocalQueue(o))}
	if usage, has := convert.PastUsage(o); has && f.Sampling > 0 {
		events = append(events, usage)
	}
	return events
}

// sample makes the engine sample the LocalQueues that are due.
func (f *Feed) sample() {
	if f.Sampling > 0 {
		f.Engine.Post(state.SampleUsage{Now: workload.Instant(time.Now().UnixNano()), Max: samplesPerEvent})
	}
}

// sampleUsage samples until ctx ends. spec: 20 §4.4.
func (f *Feed) sampleUsage(ctx context.Context) {
	if f.Sampling <= 0 {
		return
	}
	tick := time.NewTicker(min(max(f.Sampling/eventsPerInterval, leastTick), mostTick))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.sample()
		}
	}
}
