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

// class is one sort of workload: pods that ask for cpu and nothing else.
type class struct {
	name     string
	count    int   // in each queue
	cpu      int64 // cores of all its pods
	runs     time.Duration
	every    time.Duration // between two creations in one queue; the first comes at once
	priority int32
	pods     int32  // of equal size; 0 is one
	places   places // in shapes with nodes
}

// places is the request of a class for a topology.
type places int

const (
	required  places = iota // all pods in one rack
	preferred               // in one rack if there is one
	balanced                // pairs of pods on one node each, spread evenly over the nodes of a rack if there is one
)

// shape is a world and what comes into it.
type shape struct {
	name           string
	cohorts        int
	queues         int   // of each cohort
	nominal        int64 // cores of each queue
	borrowingLimit int64 // cores of each queue
	classes        []class
	racks, nodes   int // nodes in each rack, of nodeCPU cores; 0 for a world without nodes
	// finishes ends the load: all workloads are there before the manager, and it is measured from when the quota is in use until so many have
	// finished since. 0 is all of them, from the first creation.
	finishes int
}

// nodeCPU are the cores of a node.
const nodeCPU = 4

// shapes are all there are, in the order of the help.
var shapes = []shape{
	{name: "one-cohort", cohorts: 1, queues: 6, nominal: 20, borrowingLimit: 100, classes: usual},
	{name: "five-cohorts", cohorts: 5, queues: 6, nominal: 20, borrowingLimit: 100, classes: usual},
	{name: "thousand-queues", cohorts: 10, queues: 100, nominal: 20, borrowingLimit: 100, classes: []class{
		{name: "small", count: 35, cpu: 1, runs: 150 * time.Millisecond, every: 60 * time.Millisecond, priority: 50},
		{name: "medium", count: 11, cpu: 5, runs: 350 * time.Millisecond, every: 300 * time.Millisecond, priority: 100},
		{name: "large", count: 4, cpu: 20, runs: 700 * time.Millisecond, every: 700 * time.Millisecond, priority: 200},
	}},
	{name: "deep", cohorts: 10, queues: 10, nominal: 1, finishes: 1000, classes: []class{
		{name: "small", count: 1000, cpu: 1, runs: 10 * time.Second, priority: 50},
	}},
	{name: "topology", cohorts: 5, queues: 6, nominal: 20, borrowingLimit: 100, classes: gangs(), racks: 10, nodes: 64},
	{name: "gangs", cohorts: 5, queues: 6, nominal: 20, borrowingLimit: 100, classes: gangs()}, // to compare topology with
}

// gangs are classes of 2, 4 and 8 pods of one core, a third of each for every request for places.
func gangs() []class {
	var out []class
	for _, size := range []class{
		{name: "small", count: 117, cpu: 2, runs: 200 * time.Millisecond, every: 300 * time.Millisecond, priority: 50},
		{name: "medium", count: 33, cpu: 4, runs: 500 * time.Millisecond, every: 1500 * time.Millisecond, priority: 100},
		{name: "large", count: 17, cpu: 8, runs: time.Second, every: 3600 * time.Millisecond, priority: 200},
	} {
		for i, name := range []string{"required", "preferred", "balanced"} {
			c := size
			c.name, c.pods, c.places = size.name+"-"+name, int32(size.cpu), places(i)
			out = append(out, c)
		}
	}
	return out
}

// usual are the classes of the field's usual baseline.
var usual = []class{
	{name: "small", count: 350, cpu: 1, runs: 200 * time.Millisecond, every: 100 * time.Millisecond, priority: 50},
	{name: "medium", count: 100, cpu: 5, runs: 500 * time.Millisecond, every: 500 * time.Millisecond, priority: 100},
	{name: "large", count: 50, cpu: 20, runs: time.Second, every: 1200 * time.Millisecond, priority: 200},
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

// limit is how long the measured work takes if the quota is in use all the time and nothing is
// done twice. No system can be faster.
func (s *shape) limit() time.Duration {
	var work float64 // core seconds of one queue
	for _, c := range s.classes {
		work += float64(c.count) * float64(c.cpu) * c.runs.Seconds()
	}
	if s.finishes > 0 {
		work *= float64(s.finishes) / float64(s.workloads())
	}
	return time.Duration(work * float64(s.queues) / float64(s.quota()) * float64(time.Second))
}

// workloads is the number of all workloads.
func (s *shape) workloads() (n int) {
	for _, c := range s.classes {
		n += c.count
	}
	return n * s.queues * s.cohorts
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
