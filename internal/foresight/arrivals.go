package foresight

import (
	"fmt"
	"slices"

	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// Arrivals are the last workloads that were submitted. A forecast takes it that more like them come. It is not safe for concurrent use.
type Arrivals struct {
	told  workload.Instant // from when on it was told of them
	since workload.Instant // from when on all are still there
	all   []arrival        // in the order of their times
}

type arrival struct {
	at  workload.Instant
	def *state.Workload
	job Job
	of  *Prediction
}

const (
	// maxArrivals and rememberedFor bound what Arrivals keep.
	maxArrivals   = 2048
	rememberedFor = workload.Instant(4 * 3600 * 1e9)
	// maxShape bounds the constraints of a kept arrival, in bytes.
	maxShape = 16 << 10
	// block is the time of which arrivals are repeated together: what comes in bursts is foreseen in bursts.
	block       = workload.Instant(15 * 60 * 1e9)
	leastBlocks = 4
	// maxDrawn bounds the arrivals of one forecast.
	maxDrawn = 1 << 16
)

// NewArrivals returns an empty memory of arrivals that is told of all of them from a time on.
func NewArrivals(since workload.Instant) *Arrivals { return &Arrivals{told: since, since: since} }

// Keeps reports whether an arrival of a time is kept once it is added. If not it is forgotten, as one that a later one displaces, and need not
// be added: a manager that starts may have many more pending Workloads than are kept.
func (a *Arrivals) Keeps(at workload.Instant) bool {
	if len(a.all) < maxArrivals || at > a.all[0].at {
		return true
	}
	a.since = max(a.since, at+1)
	return false
}

// Add adds the arrival of a pending workload at the time of its creation, and what is known of its run time. Neither may be modified.
func (a *Arrivals) Add(def *state.Workload, job *Job) {
	if isLarge(def) {
		return
	}
	at, _ := slices.BinarySearchFunc(a.all, def.Created, func(x arrival, at workload.Instant) int {
		if x.at <= at {
			return -1
		}
		return 1
	})
	a.all = slices.Insert(a.all, at, arrival{at: def.Created, def: def, job: *job})
	drop := max(0, len(a.all)-maxArrivals)
	if drop > 0 {
		a.since = max(a.since, a.all[drop-1].at+1)
	}
	a.all = slices.Delete(a.all, 0, drop)
}

// isLarge reports whether a workload has more constraints than are kept after its deletion.
func isLarge(def *state.Workload) bool {
	bytes := 0
	for i := range def.PodSets {
		bytes += len(def.PodSets[i].Shape)
	}
	return bytes > maxShape
}

// Recent returns the arrivals of the time before now, with the predictions of their run times; nil if all arrivals are known for too short a
// time, as after a burst that displaced earlier ones, to tell how many more are to come. It may be read in any goroutine.
func (a *Arrivals) Recent(now workload.Instant, predict func(*Job) *Prediction) *Recent {
	if now-max(a.told, a.since) < leastBlocks*block {
		return nil
	}
	r := &Recent{from: max(a.since, now-rememberedFor), to: now}
	for _, x := range a.all {
		if x.at >= r.from && x.at < now {
			x.of = predict(&x.job)
			r.all = append(r.all, x)
		}
	}
	return r
}

// Recent is the arrivals of some time, immutable.
type Recent struct {
	from, to workload.Instant
	all      []arrival
}

// arriving is a workload to come, and the prediction of its run time.
type arriving struct {
	at  workload.Instant
	def state.Workload
	of  *Prediction
}

// draw draws the arrivals until a time: for one block after another the arrivals of a random time of the same length. Their UIDs are new.
func (r *Recent) draw(random *draws, now, end workload.Instant) (coming []arriving) {
	length := min(block, r.to-r.from)
	if length <= 0 || len(r.all) == 0 {
		return nil
	}
	n := 0
	for begin := now; begin < end && len(coming) < maxDrawn; begin += length {
		from := r.from + workload.Instant(random.Float64()*float64(r.to-r.from-length))
		first, _ := slices.BinarySearchFunc(r.all, from, func(x arrival, at workload.Instant) int {
			if x.at < at {
				return -1
			}
			return 1
		})
		for _, x := range r.all[first:] {
			at := begin + x.at - from
			if x.at >= from+length || at >= end || len(coming) == maxDrawn {
				break
			}
			n++
			def := *x.def
			def.UID = fmt.Sprintf("%s~%d", def.UID, n)
			def.Name, def.Created, def.Since = def.UID, at, at
			coming = append(coming, arriving{at, def, x.of})
		}
	}
	return coming
}
