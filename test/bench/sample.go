package main

import (
	"math"
	"slices"
	"strconv"
)

// percentile returns the smallest of the samples that at least p percent of them do not
// exceed, and NaN for no samples.
func percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[max(0, at)]
}

// median returns the middle one, the lower of two.
func median(samples []float64) float64 { return percentile(samples, 50) }

// number writes a figure with three digits at least, and without an exponent.
func number(v float64) string {
	digits := 0
	for x := math.Abs(v); x < 100 && digits < 3; x *= 10 {
		digits++
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
