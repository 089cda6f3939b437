package main

import (
	"math"
	"testing"
)

func TestPercentile(t *testing.T) {
	for name, tc := range map[string]struct {
		samples []float64
		p, want float64
	}{
		"median of one":        {[]float64{7}, 50, 7},
		"lower of two":         {[]float64{2, 1}, 50, 1},
		"median of three":      {[]float64{3, 1, 2}, 50, 2},
		"p99 of 100":           {upTo(100), 99, 99},
		"p99 of 200":           {upTo(200), 99, 198},
		"p99 of few":           {upTo(3), 99, 3},
		"all":                  {upTo(10), 100, 10},
		"the least":            {upTo(10), 0, 1},
		"order does not count": {[]float64{9, 1, 5, 3, 7}, 80, 7},
	} {
		t.Run(name, func(t *testing.T) {
			if got := percentile(tc.samples, tc.p); got != tc.want {
				t.Errorf("percentile(%v, %v) = %v, want %v", tc.samples, tc.p, got, tc.want)
			}
		})
	}
	if got := percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("of nothing it is %v", got)
	}
}

func upTo(n int) (all []float64) {
	for i := range n {
		all = append(all, float64(n-i))
	}
	return all
}

func TestNumber(t *testing.T) {
	for name, tc := range map[string]struct {
		value float64
		want  string
	}{
		"large":      {123456.7, "123457"},
		"two digits": {42.25, "42.2"},
		"one digit":  {1.5, "1.50"},
		"fraction":   {0.1234, "0.123"},
		"none":       {0, "0.000"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := number(tc.value); got != tc.want {
				t.Errorf("number(%v) = %q, want %q", tc.value, got, tc.want)
			}
		})
	}
}

func TestParseGroups(t *testing.T) {
	all, err := parseGroups("")
	if err != nil || len(all) != len(groups)-1 { // without million
		t.Errorf("none: %d groups, %v", len(all), err)
	}
	if long, err := parseGroups("million"); err != nil || len(long) != 1 || !long[0].long {
		t.Errorf("a long one: %v, %v", long, err)
	}
	some, err := parseGroups("memory,steady")
	if err != nil || len(some) != 2 || some[0].name != "steady" {
		t.Errorf("two: %v, %v", some, err)
	}
	if _, err := parseGroups("stedy"); err == nil {
		t.Error("a wrong name is taken")
	}
}
