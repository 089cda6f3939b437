package simulation

import (
	"slices"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/topology"
	"github.com/berth-project/berth/internal/core/workload"
	"github.com/berth-project/berth/internal/state"
)

// Fragmentation is how spread what is free of the main resource was over the domains of a level, on average: the share by which the
// largest free amount of one domain falls short of all that is free, or of a whole domain if more is free. It is 0 while one domain is free,
// or has all that is free, and near 1 while every domain has a little.
type Fragmentation struct {
	Flavor string  `json:"flavor"`
	Level  string  `json:"level"`
	Share  float64 `json:"share"`
}

// spots looks at what is free in the domains of topologies, once an interval of the series.
type spots struct {
	s     *state.State
	of    string           // the resource
	at    workload.Instant // of the last look
	next  workload.Instant // of the next one, at the earliest
	trees []*spotted
}

// spotted is the fragmentation of a flavor's domains.
type spotted struct {
	flavor string
	levels []string
	now    []float64 // fragmentation, by level
	area   []float64 // by level, times seconds
	length float64   // seconds
}

func newSpots(s *state.State, of string, start workload.Instant) *spots {
	out := &spots{s: s, of: of, at: start, next: start}
	for flavor, levels := range s.Topologies() {
		n := len(levels)
		out.trees = append(out.trees, &spotted{flavor: flavor, levels: levels, now: make([]float64, n), area: make([]float64, n)})
	}
	return out
}

// isDue reports whether it is time to look again.
func (o *spots) isDue(at workload.Instant) bool { return len(o.trees) > 0 && at >= o.next }

// lookAt notes that it stayed as it was seen last until a time, and looks again. The next look is an interval later.
func (o *spots) lookAt(at, interval workload.Instant) {
	length := seconds(at - o.at)
	for _, t := range o.trees {
		t.length += length
		for l := range t.area {
			t.area[l] += t.now[l] * length
		}
	}
	o.at, o.next = at, at+interval
	for _, t := range o.trees {
		levels := make([]largest, len(t.levels))
		o.s.Leaves(t.flavor, o.of, func(l *topology.Leaf) {
			for i := range levels {
				levels[i].add(l.Path[:i+1], l.Capacity[0], l.Capacity[0].Sub(l.Used[0]))
			}
		})
		for i := range levels {
			t.now[i] = levels[i].fragmentation()
		}
	}
}

func (o *spots) means() (out []Fragmentation) {
	for _, t := range o.trees {
		for l, level := range t.levels {
			if t.length > 0 {
				out = append(out, Fragmentation{t.flavor, level, t.area[l] / t.length})
			}
		}
	}
	return out
}

// largest sums the leaves of the domains of a level, which come one domain after another.
type largest struct {
	path             []string
	capacity, free   resource.Amount // of the current domain
	whole, most, all resource.Amount // the largest domain, the most that is free in one, and in all
}

func (d *largest) add(path []string, capacity, free resource.Amount) {
	if !slices.Equal(d.path, path) {
		d.end()
		d.path = append(d.path[:0], path...)
	}
	free = max(0, free)
	d.capacity, d.free, d.all = d.capacity.Add(capacity), d.free.Add(free), d.all.Add(free)
}

func (d *largest) end() {
	d.whole, d.most = max(d.whole, d.capacity), max(d.most, d.free)
	d.capacity, d.free = 0, 0
}

func (d *largest) fragmentation() float64 {
	d.end()
	could := min(d.all, d.whole)
	if could <= 0 {
		return 0
	}
	return 1 - float64(d.most)/float64(could)
}
