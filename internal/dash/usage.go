package dash

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	amounts "github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/state"
)

// The use of quotas is sampled every minute for an hour, for keptSeries flavors and resources of ClusterQueues at most: 5 MB.
const (
	sampleEvery = time.Minute
	keptSamples = 61
	keptSeries  = 10_000
)

// seriesKey is a flavor and resource of a ClusterQueue.
type seriesKey struct{ queue, flavor, resource string }

func compareSeries(a, b seriesKey) int {
	return cmp.Or(strings.Compare(a.queue, b.queue), strings.Compare(a.flavor, b.flavor), strings.Compare(a.resource, b.resource))
}

// sample is a use, in CPUs, bytes, or whole units of other resources. A use below 0 is unknown.
type sample struct{ used, quota float32 }

// series is the last samples of a key, in the places of usage.at.
type series [keptSamples]sample

var unknown = sample{used: -1}

// usage is the use of quotas over time. It costs a pass over the queues of the read model every minute.
type usage struct {
	mu     sync.Mutex
	at     [keptSamples]time.Time
	next   int // the place of the next sample
	series map[seriesKey]*series
	left   int // out at the last sample, as there were keptSeries
}

func newUsage() *usage { return &usage{series: map[seriesKey]*series{}} }

// addSample adds a sample.
func (u *usage) addSample(now time.Time, m *state.Model) {
	queues := m.Statistics(state.Asked{}).Queues
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, of := range u.series { //berth:unordered each by itself
		of[u.next] = unknown
	}
	u.left = 0
	for i := range queues {
		for k := range queues[i].Cells {
			c := &queues[i].Cells[k]
			key := seriesKey{queues[i].Name, c.Flavor, c.Resource}
			of := u.series[key]
			if of == nil {
				if len(u.series) == keptSeries {
					u.left++
					continue
				}
				of = new(series)
				for n := range of {
					of[n] = unknown
				}
				u.series[key] = of
			}
			of[u.next] = sample{inUnits(c.Resource, c.Reserved), inUnits(c.Resource, c.Nominal)}
		}
	}
	u.at[u.next] = now
	u.next = (u.next + 1) % keptSamples
	maps.DeleteFunc(u.series, func(_ seriesKey, of *series) bool {
		return !slices.ContainsFunc(of[:], func(s sample) bool { return s.used >= 0 })
	})
}

func inUnits(name string, a amounts.Amount) float32 {
	if name == "cpu" {
		return float32(a) / 1000
	}
	return float32(a)
}

// usageView is the use of quotas over time.
type usageView struct {
	At []metav1.Time `json:"at"`
	// Left is how many flavors and resources of ClusterQueues are not sampled, as there are more than keptSeries.
	Left   int          `json:"left,omitempty"`
	Series []seriesView `json:"series"`
}

// seriesView has a use and a quota for each time of a view; a use of -1 is unknown. Flavor is "" for all flavors together.
type seriesView struct {
	Flavor   string    `json:"flavor,omitempty"`
	Resource string    `json:"resource"`
	Used     []float32 `json:"used"`
	Quota    []float32 `json:"quota"`
}

// view returns the series for which name returns a flavor and resource; all of the same are summed.
func (u *usage) view(name func(seriesKey) (flavor, resource string, shown bool)) usageView {
	u.mu.Lock()
	defer u.mu.Unlock()
	v := usageView{At: []metav1.Time{}, Left: u.left, Series: []seriesView{}}
	var places []int
	for i := range keptSamples {
		if place := (u.next + i) % keptSamples; !u.at[place].IsZero() {
			places, v.At = append(places, place), append(v.At, *timeOf(u.at[place]))
		}
	}
	type pair struct{ flavor, resource string }
	sums := map[pair]*seriesView{}
	for _, key := range slices.SortedFunc(maps.Keys(u.series), compareSeries) { // sums of fractions depend on their order
		of := u.series[key]
		flavor, resource, shown := name(key)
		if !shown {
			continue
		}
		sum := sums[pair{flavor, resource}]
		if sum == nil {
			sum = &seriesView{Flavor: flavor, Resource: resource, Used: make([]float32, len(places)), Quota: make([]float32, len(places))}
			for i := range sum.Used {
				sum.Used[i] = unknown.used
			}
			sums[pair{flavor, resource}] = sum
		}
		for i, place := range places {
			if s := of[place]; s.used >= 0 {
				sum.Used[i], sum.Quota[i] = max(0, sum.Used[i])+s.used, sum.Quota[i]+s.quota
			}
		}
	}
	for _, sum := range sums { //berth:unordered sorted below
		v.Series = append(v.Series, *sum)
	}
	slices.SortFunc(v.Series, func(a, b seriesView) int {
		return cmp.Or(cmp.Compare(a.Flavor, b.Flavor), cmp.Compare(a.Resource, b.Resource))
	})
	return v
}

// sampleUsage takes samples until ctx ends.
func (s *Server) sampleUsage(ctx context.Context) {
	tick := time.NewTicker(s.pace.samples)
	defer tick.Stop()
	for {
		s.usage.addSample(time.Now(), s.Model())
		s.hub.changed(samples, "")
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// usageOfAll is the view of the use of all quotas, by resource.
func (s *Server) usageOfAll(ctx context.Context, a *ask) (any, error) {
	if err := s.access.must(ctx, a.who, clusterQueuesResource, "", ""); err != nil {
		return nil, err
	}
	return s.usage.view(func(key seriesKey) (flavor, resource string, shown bool) { return "", key.resource, true }), nil
}

// usageOfQueue is the view of the use of the quotas of a ClusterQueue.
func (s *Server) usageOfQueue(ctx context.Context, a *ask) (any, error) {
	q, err := one[kueue.ClusterQueue](ctx, s, a, clusterQueuesResource)
	if err != nil || q == nil {
		return none(clusterQueuesResource, a), err
	}
	return s.usage.view(func(key seriesKey) (flavor, resource string, shown bool) {
		return key.flavor, key.resource, key.queue == a.name
	}), nil
}
