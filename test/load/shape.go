package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// class is one sort of workload: a single pod that asks for cpu and nothing else.
type class struct {
	name     string
	count    int   // in each queue
	cpu      int64 // cores
	runs     time.Duration
	every    time.Duration // between two creations in one queue; the first comes at once
	priority int32
}

// shape is a world and what comes into it.
type shape struct {
	name           string
	cohorts        int
	queues         int   // of each cohort
	nominal        int64 // cores of each queue
	borrowingLimit int64 // cores of each queue
	classes        []class
}

// shapes are all there are, in the order of the help.
var shapes = []shape{
	{name: "one-cohort", cohorts: 1, queues: 6, nominal: 20, borrowingLimit: 100, classes: usual},
	{name: "five-cohorts", cohorts: 5, queues: 6, nominal: 20, borrowingLimit: 100, classes: usual},
	{name: "thousand-queues", cohorts: 10, queues: 100, nominal: 20, borrowingLimit: 100, classes: []class{
		{"small", 35, 1, 150 * time.Millisecond, 60 * time.Millisecond, 50},
		{"medium", 11, 5, 350 * time.Millisecond, 300 * time.Millisecond, 100},
		{"large", 4, 20, 700 * time.Millisecond, 700 * time.Millisecond, 200},
	}},
}

// usual are the classes of the field's usual baseline.
var usual = []class{
	{"small", 350, 1, 200 * time.Millisecond, 100 * time.Millisecond, 50},
	{"medium", 100, 5, 500 * time.Millisecond, 500 * time.Millisecond, 100},
	{"large", 50, 20, time.Second, 1200 * time.Millisecond, 200},
}

// parseShape finds a shape and shortens it: each queue gets scale times as many
// workloads, at least one of each class.
func parseShape(name string, scale float64) (shape, error) {
	if scale <= 0 || scale > 1 {
		return shape{}, fmt.Errorf("-scale %v: must be above 0 and at most 1", scale)
	}
	var names []string
	for _, s := range shapes {
		names = append(names, s.name)
		if s.name != name {
			continue
		}
		s.classes = slices.Clone(s.classes)
		for i := range s.classes {
			c := &s.classes[i]
			c.count = max(1, int(math.Round(scale*float64(c.count))))
		}
		return s, nil
	}
	return shape{}, fmt.Errorf("-shape %q: there are %s", name, strings.Join(names, ", "))
}

// quota is the quota of one cohort, in cores.
func (s *shape) quota() int64 { return int64(s.queues) * s.nominal }

// ceiling is the maximum usage of one queue, in cores.
func (s *shape) ceiling() int64 { return min(s.nominal+s.borrowingLimit, s.quota()) }

// limit is how long the work takes if the quota is in use all the time and nothing is
// done twice. No system can be faster.
func (s *shape) limit() time.Duration {
	var work float64 // core seconds of one queue
	for _, c := range s.classes {
		work += float64(c.count) * float64(c.cpu) * c.runs.Seconds()
	}
	return time.Duration(work * float64(s.queues) / float64(s.quota()) * float64(time.Second))
}

// arrival is a workload that will be created.
type arrival struct {
	due                  time.Duration // after the start
	cohort, queue, class int
	number               int // within its queue and class
}

// arrivals are all workloads of the shape in the order of their creation. What is due at
// one time is shuffled, the same way for the same seed.
func (s *shape) arrivals(seed uint64) []arrival {
	var all []arrival
	for cohort := range s.cohorts {
		for queue := range s.queues {
			for k, c := range s.classes {
				for n := range c.count {
					all = append(all, arrival{time.Duration(n) * c.every, cohort, queue, k, n})
				}
			}
		}
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.due, b.due) })
	return all
}

// cohortName is also the namespace of the cohort's workloads.
func cohortName(cohort int) string { return fmt.Sprintf("load-%d", cohort) }

// queueName names a ClusterQueue, and the LocalQueue that leads to it.
func queueName(cohort, queue int) string { return fmt.Sprintf("load-%d-%d", cohort, queue) }

func (s *shape) workloadName(a *arrival) string {
	return fmt.Sprintf("%s-%s-%d", queueName(a.cohort, a.queue), s.classes[a.class].name, a.number)
}
