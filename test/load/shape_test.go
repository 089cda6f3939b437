package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestShapes(t *testing.T) {
	for name, tc := range map[string]struct {
		scale     float64
		workloads int
		limit     time.Duration
		last      time.Duration // creation
	}{
		"one-cohort":           {1, 3000, 66 * time.Second, 49 * 1200 * time.Millisecond},
		"five-cohorts":         {1, 15000, 66 * time.Second, 49 * 1200 * time.Millisecond},
		"thousand-queues":      {1, 50000, 4025 * time.Millisecond, 300 * 10 * time.Millisecond},
		"topology":             {1, 15030, 37320 * time.Millisecond, 16 * 3600 * time.Millisecond},
		"one-cohort, a tenth":  {0.1, 300, 6600 * time.Millisecond, 4800 * time.Millisecond},
		"one-cohort, a little": {0.001, 18, 1135 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			shapeName, _, _ := strings.Cut(name, ",")
			s, err := parseShape(shapeName, tc.scale)
			if err != nil {
				t.Fatal(err)
			}
			all := s.arrivals(1)
			if len(all) != tc.workloads {
				t.Errorf("%d workloads, want %d", len(all), tc.workloads)
			}
			if got := s.limit(); got != tc.limit {
				t.Errorf("the limit is %v, want %v", got, tc.limit)
			}
			if got := all[len(all)-1].due; got != tc.last {
				t.Errorf("the last is created at %v, want %v", got, tc.last)
			}
			names := map[string]bool{}
			for i := range all {
				names[s.workloadName(&all[i])] = true
			}
			if len(names) != len(all) {
				t.Errorf("%d names for %d workloads", len(names), len(all))
			}
		})
	}
	if usual[0].count != 350 {
		t.Error("scaling changed the shape itself")
	}
}

func TestParseShapeRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		shape string
		scale float64
		want  string
	}{
		"unknown":    {"two-cohorts", 1, `-shape "two-cohorts": there are one-cohort, five-cohorts, thousand-queues, deep, topology, gangs`},
		"zero":       {"one-cohort", 0, "-scale 0: must be above 0 and at most 1"},
		"more":       {"one-cohort", 2, "-scale 2: must be above 0 and at most 1"},
		"not enough": {"one-cohort", -1, "-scale -1: must be above 0 and at most 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseShape(tc.shape, tc.scale); err == nil || err.Error() != tc.want {
				t.Errorf("the error is %v, want %s", err, tc.want)
			}
		})
	}
}

func TestArrivalsRepeat(t *testing.T) {
	s := shapes[0]
	one, again, other := s.arrivals(1), s.arrivals(1), s.arrivals(2)
	if !slices.Equal(one, again) {
		t.Error("the same seed gives another order")
	}
	if slices.Equal(one, other) {
		t.Error("another seed gives the same order")
	}
	if !slices.IsSortedFunc(other, func(a, b arrival) int { return int(a.due - b.due) }) {
		t.Error("not in the order of their creation")
	}
}
