package toppage

import (
	"math"
	"time"
)

// maxSamples bounds a history: when it is full, two samples become one.
const maxSamples = 1024

// sample is the mean of some values that follow each other.
type sample struct {
	at, until time.Time // until is where the next one begins; at, if that is not known
	sum       float64
	count     int
}

func (s *sample) mean() float64 { return s.sum / float64(s.count) }

// history is the course of one value since the page was opened.
type history struct {
	samples []sample
	each    int // values of one sample
	most    float64
}

// add adds a value. joined reports that the one before it was valid until now.
func (h *history) add(at time.Time, value float64, joined bool) {
	h.most = max(h.most, value)
	if n := len(h.samples); n > 0 && joined {
		last := &h.samples[n-1]
		last.until = at
		if last.count < h.each {
			last.sum, last.count = last.sum+value, last.count+1
			return
		}
	}
	if len(h.samples) == maxSamples {
		for i := range maxSamples / 2 {
			a, b := h.samples[2*i], h.samples[2*i+1]
			h.samples[i] = sample{a.at, b.until, a.sum + b.sum, a.count + b.count}
		}
		h.samples, h.each = h.samples[:maxSamples/2], 2*max(h.each, 1)
	}
	h.samples = append(h.samples, sample{at, at, value, 1})
}

// sparks are the heights of a cell of a sparkline.
var sparks = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the values from the first sample to now in so many cells at most, the highest cell for the value most. A cell is at least
// as long as the interval; without a sample in its time it is empty.
func (h *history) sparkline(now time.Time, interval time.Duration, cells int, most float64) string {
	if len(h.samples) == 0 || cells <= 0 {
		return ""
	}
	first := h.samples[0].at
	span := max(now.Sub(first), 0) + 1
	each := max(interval, (span+time.Duration(cells)-1)/time.Duration(cells), 1)
	cell := func(after time.Duration) int { return min(int(max(after, 0)/each), cells-1) }
	sums, counts := make([]float64, cells), make([]int, cells)
	for _, s := range h.samples {
		from, to := cell(s.at.Sub(first)), cell(s.until.Sub(first)-1)
		for i := from; i <= max(from, to); i++ {
			sums[i] += s.mean()
			counts[i]++
		}
	}
	out := make([]rune, min(int((span-1)/each)+1, cells))
	last := -1
	for i := range out {
		out[i] = ' '
		if counts[i] == 0 {
			continue
		}
		last = i
		level := 0
		if most > 0 {
			level = int(math.Ceil(sums[i]/float64(counts[i])/most*float64(len(sparks)))) - 1
		}
		out[i] = sparks[min(max(level, 0), len(sparks)-1)]
	}
	return string(out[:last+1])
}
