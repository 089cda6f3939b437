package simulation

import (
	"maps"
	"slices"

	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// points is about how many points a series has.
const points = 240

// Series is how the use of the main resource and the number of waiting jobs went on: means of intervals of equal length.
type Series struct {
	Interval float64   `json:"intervalSeconds"`
	Used     []float64 `json:"used"` // share of the quota
	Waiting  []float64 `json:"waitingShare"`
}

// usage integrates over time.
type usage struct {
	start, at workload.Instant
	quota     map[string]int64
	used      map[string]int64 // by resource
	area      map[string]float64
	until     map[string]float64 // the area up to the last submission
	load      workload.Instant   // the last submission
	main      string
	idle      float64 // free amounts of main while something waited
	repeated  float64

	width         workload.Instant // of an interval of the series
	bins, waiting []float64
}

func newUsage(start workload.Instant, quota map[string]int64, main string) *usage {
	return &usage{
		start: start, at: start, quota: quota, used: map[string]int64{}, area: map[string]float64{}, main: main, width: Second,
	}
}

// upTo notes that everything stayed as it is until a time.
func (u *usage) upTo(at workload.Instant, waits bool) {
	if at <= u.at {
		return
	}
	length := seconds(at - u.at)
	for name, n := range u.used { //berth:unordered sums by name
		u.area[name] += float64(n) * length
	}
	free := float64(max(0, u.quota[u.main]-u.used[u.main]))
	if waits {
		u.idle += free * length
	}
	u.paint(at, waits)
	u.at = at
}

// paint adds the time up to at to the intervals of the series, which become longer as the time goes on.
func (u *usage) paint(to workload.Instant, waits bool) {
	for (to-u.start)/u.width >= 2*points {
		u.width *= 2
		u.bins, u.waiting = halved(u.bins), halved(u.waiting)
	}
	share := 0.0
	if q := u.quota[u.main]; q > 0 {
		share = float64(u.used[u.main]) / float64(q)
	}
	for at := u.at; at < to; {
		bin := int((at - u.start) / u.width)
		for len(u.bins) <= bin {
			u.bins, u.waiting = append(u.bins, 0), append(u.waiting, 0)
		}
		end := min(to, u.start+workload.Instant(bin+1)*u.width)
		u.bins[bin] += share * seconds(end-at)
		if waits {
			u.waiting[bin] += seconds(end - at)
		}
		at = end
	}
}

// halved joins neighbours.
func halved(list []float64) []float64 {
	out := list[:0]
	for i := 0; i < len(list); i += 2 {
		sum := list[i]
		if i+1 < len(list) {
			sum += list[i+1]
		}
		out = append(out, sum)
	}
	return out
}

func (u *usage) change(held []state.Held, sign int64) {
	for _, h := range held {
		u.used[h.Resource] += sign * int64(h.Amount)
	}
}

// lose notes that work of a time has to be done again.
func (u *usage) lose(held []state.Held, ran workload.Instant) {
	for _, h := range held {
		if h.Resource == u.main {
			u.repeated += float64(h.Amount) * seconds(ran)
		}
	}
}

// loaded notes that the last job is submitted.
func (u *usage) loaded() { u.load, u.until = u.at, maps.Clone(u.area) }

func (u *usage) result(r *Result) {
	r.Makespan = seconds(u.at - u.start)
	for _, name := range slices.Sorted(maps.Keys(u.quota)) {
		of := Utilisation{Resource: name, Quota: u.quota[name]}
		if all := float64(of.Quota) * r.Makespan; all > 0 {
			of.Share = u.area[name] / all
		}
		if all := float64(of.Quota) * seconds(u.load-u.start); all > 0 {
			of.Loaded = u.until[name] / all
		}
		if u.area[name] > 0 || name == u.main {
			r.Utilisation = append(r.Utilisation, of)
		}
	}
	if all := float64(u.quota[u.main]) * r.Makespan; all > 0 {
		r.IdleWhileWaiting = u.idle / all
	}
	if u.area[u.main] > 0 {
		r.Repeated = u.repeated / u.area[u.main]
	}
	r.Series.Interval = seconds(u.width)
	for i := range u.bins {
		length := min(seconds(u.width), seconds(u.at-u.start)-float64(i)*seconds(u.width))
		r.Series.Used = append(r.Series.Used, u.bins[i]/length)
		r.Series.Waiting = append(r.Series.Waiting, u.waiting[i]/length)
	}
}
