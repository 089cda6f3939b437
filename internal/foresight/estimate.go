package foresight

import (
	"cmp"
	"container/list"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/berth-project/berth/internal/core/workload"
)

// Job is what is known of the run time of a Workload before it ends.
type Job struct {
	Kind       string // of its owner
	LocalQueue string // namespace/name
	Shape      uint64 // equal for equal pod sets
	// Expected is the run time that the user declares, and Limit the run time after which it is stopped; 0 for none.
	Expected, Limit workload.Instant
	// Ran is how long it ran before it was evicted, 0 if it was not: it begins anew, and takes longer than that.
	Ran workload.Instant
}

// Source is where an estimate comes from.
type Source string

// The sources of estimates.
const (
	Unknown  Source = "unknown"
	Declared Source = "declared" // by the user
	Learned  Source = "learned"  // from finished Workloads
	Bounded  Source = "bounded"  // by the limit of the run time alone
)

// Estimate is what is expected of the run time of a Workload.
type Estimate struct {
	Source        Source
	P10, P50, P90 workload.Instant // 0 if Unknown
	// Samples is the number of finished Workloads that it is learned from, or that the accuracy of a declared run time is learned from.
	Samples int
	// Like describes the finished Workloads, "" for none.
	Like  string
	Limit workload.Instant // 0 for none
}

// String describes how long a Workload runs, and the source of the estimate.
func (e *Estimate) String() string {
	window := ""
	if e.Source != Unknown {
		window = fmt.Sprintf("runs about %s, between %s and %s; ", short(e.P50), short(e.P10), short(e.P90))
	}
	switch e.Source {
	case Declared:
		if e.Samples > 0 {
			return window + fmt.Sprintf("declared, and corrected by %d finished Workloads %s", e.Samples, e.Like)
		}
		return window + "declared"
	case Learned:
		return window + fmt.Sprintf("learned from %d finished Workloads %s", e.Samples, e.Like)
	case Bounded:
		return window + "known is only that it is stopped after " + short(e.Limit)
	case Unknown:
	}
	return fmt.Sprintf("its run time is unknown: fewer than %d Workloads like it have finished, and it declares neither berth.dev/expected-run-seconds nor maximumExecutionTimeSeconds", leastSamples)
}

func short(d workload.Instant) string {
	t := time.Duration(d)
	switch {
	case t < 10*time.Minute:
		return t.Round(time.Second).String()
	case t < 24*time.Hour:
		t = t.Round(time.Minute)
		if t < time.Hour {
			return fmt.Sprintf("%dm", int(t.Minutes()))
		}
		return fmt.Sprintf("%dh%02dm", int(t.Hours()), int(t.Minutes())%60)
	}
	return fmt.Sprintf("%.1fd", t.Hours()/24)
}

const (
	// maxPools and samplesOfPool bound the memory of a Learner, 4 MB. The pool that learned least recently is dropped first, of the namespaces
	// with more than poolsOfSpace if there are any; and the oldest sample, of the namespace with most of them.
	maxPools      = 4096
	poolsOfSpace  = maxPools / 8
	samplesOfPool = 64
	// leastSamples is how many finished Workloads an estimate takes, and enoughSamples how many make a narrow pool preferable to a broad one.
	leastSamples  = 3
	enoughSamples = 8
	// smoothed is the number of samples from which their distribution is used as it is. It is taken for log-normal with fewer.
	smoothed = 16
	// halfLife is the age at which a sample counts half, relative to the newest.
	halfLife = 14 * 24 * float64(time.Hour)
	// priorSpread is the spread of the logarithm of run times that is assumed without samples, and declaredSpread that of their ratio
	// to declared ones. A prior counts as one sample.
	priorSpread    = 1.0
	declaredSpread = 0.5
)

// poolKey is a group of finished Workloads that are taken to be alike. A field that is zero does not count.
type poolKey struct {
	kind, queue string
	shape       uint64
	declared    bool // it has the ratios of run times to declared ones
}

func (k *poolKey) String() string {
	of := "of all LocalQueues"
	if k.queue != "" {
		of = "of LocalQueue " + k.queue
	}
	if k.shape != 0 {
		of += " with the same pod sets"
	}
	if k.kind != "" {
		of += ", kind " + k.kind
	}
	return of
}

// keysOf returns the pools of a job, the narrowest first.
func keysOf(j *Job) []poolKey {
	return []poolKey{{kind: j.Kind, queue: j.LocalQueue, shape: j.Shape}, {kind: j.Kind, queue: j.LocalQueue}, {kind: j.Kind}}
}

func ratiosOf(j *Job) []poolKey {
	return []poolKey{{queue: j.LocalQueue, declared: true}, {declared: true}}
}

// space returns the namespace of the LocalQueue, "" for a pool of all.
func (k *poolKey) space() string { return spaceOf(k.queue) }

func spaceOf(localQueue string) string {
	space, _, _ := strings.Cut(localQueue, "/")
	return space
}

// pool is the last samples of a group.
type pool struct {
	key     poolKey
	samples []sample
	spaces  []string      // the namespaces of the samples, in a pool of all LocalQueues
	fitted  *distribution // nil if samples were added since
}

// sample is the logarithm of a run time in seconds, or of its ratio to the declared one, and when it ended.
type sample struct {
	at  workload.Instant
	log float64
}

// Learner learns run times from finished Workloads. It is not safe for concurrent use.
type Learner struct {
	pools map[poolKey]*list.Element // of *pool
	used  *list.List                // the pool that learned last is the first
	of    map[string]int            // how many pools a namespace has
	many  int                       // how many namespaces have more than poolsOfSpace
}

// NewLearner returns a Learner that has learned nothing.
func NewLearner() *Learner {
	return &Learner{pools: map[poolKey]*list.Element{}, used: list.New(), of: map[string]int{}}
}

// Learn adds a job that finished at a time, after it had run for so long.
func (l *Learner) Learn(j *Job, run, at workload.Instant) {
	log, space := logSeconds(run), spaceOf(j.LocalQueue)
	for _, k := range keysOf(j) {
		l.add(k, sample{at, log}, space)
	}
	if j.Expected > 0 {
		for _, k := range ratiosOf(j) {
			l.add(k, sample{at, log - logSeconds(j.Expected)}, space)
		}
	}
}

// logSeconds is the logarithm of a time in seconds, of at least a second.
func logSeconds(d workload.Instant) float64 { return math.Log(max(1, float64(d)/1e9)) }

func (l *Learner) add(k poolKey, s sample, space string) {
	e := l.pools[k]
	if e == nil {
		if l.used.Len() == maxPools {
			l.dropPool()
		}
		e = l.used.PushFront(&pool{key: k})
		l.pools[k] = e
		l.countPool(&k, 1)
	}
	l.used.MoveToFront(e)
	p := e.Value.(*pool)
	p.fitted = nil
	at, _ := slices.BinarySearchFunc(p.samples, s, func(a, b sample) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.log, b.log)) })
	p.samples = slices.Insert(p.samples, at, s)
	if k.queue == "" {
		p.spaces = slices.Insert(p.spaces, at, space)
	}
	if len(p.samples) > samplesOfPool { // workloads may be learned in any order after a restart
		p.dropSample()
	}
}

func (l *Learner) dropPool() {
	drop := l.used.Back()
	for e := drop; e != nil && l.many > 0; e = e.Prev() {
		if l.of[e.Value.(*pool).key.space()] > poolsOfSpace {
			drop = e
			break
		}
	}
	key := l.used.Remove(drop).(*pool).key
	delete(l.pools, key)
	l.countPool(&key, -1)
}

func (l *Learner) countPool(k *poolKey, by int) {
	space := k.space()
	was := l.of[space]
	if l.of[space] = was + by; was+by == 0 {
		delete(l.of, space)
	}
	if max(was, was+by) == poolsOfSpace+1 {
		l.many += by
	}
}

func (p *pool) dropSample() {
	if p.spaces == nil {
		p.samples = slices.Delete(p.samples, 0, 1)
		return
	}
	of, most, first := map[string]int{}, 0, 0
	for _, space := range p.spaces {
		of[space]++
		most = max(most, of[space])
	}
	for of[p.spaces[first]] < most {
		first++
	}
	p.samples, p.spaces = slices.Delete(p.samples, first, first+1), slices.Delete(p.spaces, first, first+1)
}

// find returns the distribution of the narrowest pool that has enough samples, else of the narrowest that has the least number of them,
// else nil.
func (l *Learner) find(keys []poolKey) *distribution {
	var few *pool
	for _, k := range keys {
		e := l.pools[k]
		if e == nil {
			continue
		}
		p := e.Value.(*pool)
		if len(p.samples) >= enoughSamples {
			few = p
			break
		}
		if few == nil && len(p.samples) >= leastSamples {
			few = p
		}
	}
	if few == nil {
		return nil
	}
	if few.fitted == nil {
		few.fitted = fit(few)
	}
	return few.fitted
}

// distribution is samples of logarithms, immutable.
type distribution struct {
	logs, weights []float64
	mean, spread  float64
	size          float64 // the effective number of samples
	known         bool    // mean is known, and not estimated
	like          string
}

// unlearned is the distribution of the ratio of run times to declared ones without samples.
var unlearned = &distribution{spread: declaredSpread, known: true}

func fit(p *pool) *distribution {
	d := &distribution{logs: make([]float64, len(p.samples)), weights: make([]float64, len(p.samples)), like: p.key.String()}
	newest := p.samples[len(p.samples)-1].at
	var sum, squares float64
	for i, s := range p.samples {
		w := math.Exp2(-float64(newest-s.at) / halfLife)
		d.logs[i], d.weights[i] = s.log, w
		sum, squares = sum+w, squares+w*w
		d.mean += w * s.log
	}
	d.mean /= sum
	d.size = sum * sum / squares
	variance := 0.0
	for i, x := range d.logs {
		variance += d.weights[i] * (x - d.mean) * (x - d.mean)
	}
	variance /= sum // of the samples; times size it is their sum of squares
	prior := priorSpread
	if p.key.declared {
		prior = declaredSpread
	}
	d.spread = math.Sqrt((variance*d.size + prior*prior) / d.size) // the prior counts as one sample, and the mean takes one
	return d
}

// Prediction is the run time of a job as a distribution.
type Prediction struct {
	Estimate
	ran   workload.Instant // it takes longer than that
	of    *distribution    // nil if it is bounded alone or unknown
	shift float64          // is added to the logarithms
}

// Predict returns what the run time of a job will be.
func (l *Learner) Predict(j *Job) *Prediction {
	p := &Prediction{Estimate: Estimate{Source: Unknown, Limit: j.Limit}, ran: j.Ran}
	switch {
	case j.Expected > 0:
		p.Source, p.shift = Declared, logSeconds(j.Expected)
		if p.of = l.find(ratiosOf(j)); p.of == nil {
			p.of = unlearned
		}
	default:
		if p.of = l.find(keysOf(j)); p.of != nil {
			p.Source = Learned
		} else if j.Limit > 0 {
			p.Source = Bounded
		}
	}
	if p.of != nil {
		p.Samples, p.Like = len(p.of.logs), p.of.like
	}
	p.P10, p.P50, p.P90 = p.quantile(0.1), p.quantile(0.5), p.quantile(0.9)
	return p
}

// quantile returns a quantile of the log-normal fit.
func (p *Prediction) quantile(q float64) workload.Instant {
	switch {
	case p.Source == Unknown:
		return 0
	case p.of == nil:
		return workload.Instant(q * float64(p.Limit))
	}
	return p.limited(p.of.mean + p.shift + p.of.spread*math.Sqrt2*math.Erfinv(2*q-1))
}

// limited returns the run time of a logarithm, at most the limit.
func (p *Prediction) limited(log float64) workload.Instant {
	t := Never - 1
	if log < 20 { // 15 years
		t = workload.Instant(math.Exp(log) * 1e9)
	}
	if p.Limit > 0 {
		t = min(t, p.Limit)
	}
	return t
}

// draws is one draw of what is not known: distributions that samples agree with, and random numbers.
type draws struct {
	*rand.Rand
	drawn map[*distribution]*drawn
}

// drawn is a distribution that the samples of another one agree with.
type drawn struct {
	mean, spread float64
	sums         []float64 // of the weights of the samples, nil for a normal distribution
	width        float64   // of the kernel around each sample
	keep         float64   // by which the kernel's additional spread is reduced
	of           *distribution
}

func newDraws(seed, number uint64) *draws {
	return &draws{rand.New(rand.NewPCG(seed, number)), map[*distribution]*drawn{}} //nolint:gosec // the same seed has to foresee the same
}

// distribution draws a distribution, once: by a Bayesian bootstrap of many samples, else the parameters of a log-normal one.
func (r *draws) distribution(of *distribution) *drawn {
	d := r.drawn[of]
	if d != nil {
		return d
	}
	d = &drawn{of: of, mean: of.mean, spread: of.spread}
	r.drawn[of] = d
	switch {
	case of.known:
	case of.size < smoothed:
		d.spread *= math.Sqrt(of.size / r.chiSquare(of.size))
		d.mean += d.spread / math.Sqrt(of.size) * r.NormFloat64()
	default:
		d.sums = make([]float64, len(of.logs))
		sum, mean, squares := 0.0, 0.0, 0.0
		for i, x := range of.logs {
			w := of.weights[i] * r.ExpFloat64()
			sum += w
			d.sums[i] = sum
			mean, squares = mean+w*x, squares+w*x*x
		}
		d.mean = mean / sum
		d.spread = math.Sqrt(max(0, squares/sum-d.mean*d.mean)) * math.Sqrt((of.size+1)/of.size)
		d.width = 0.9 * d.spread * math.Pow(of.size, -0.2)
		d.keep = d.spread / math.Hypot(d.spread, d.width)
	}
	return d
}

// chiSquare draws from the distribution of a number of degrees of freedom, by the approximation of Wilson and Hilferty.
func (r *draws) chiSquare(freedom float64) float64 {
	c := 2 / (9 * freedom)
	return freedom * math.Pow(max(0.05, 1-c+math.Sqrt(c)*r.NormFloat64()), 3)
}

// attempts is how many draws are made for one that exceeds the time that a workload has run already.
const attempts = 16

// after draws a logarithm above least.
func (d *drawn) after(r *draws, least float64) float64 {
	if d.sums != nil {
		for range attempts {
			i, _ := slices.BinarySearch(d.sums, r.Float64()*d.sums[len(d.sums)-1])
			x := d.mean + (d.of.logs[i]-d.mean+d.width*r.NormFloat64())*d.keep
			if x > least {
				return x
			}
		}
	}
	spread := max(d.spread, 0.01)
	return d.mean + spread*r.normalAbove((least-d.mean)/spread)
}

// normalAbove draws from the part of a normal distribution above a value.
func (r *draws) normalAbove(a float64) float64 {
	if a < 2 {
		tail := math.Erfc(a/math.Sqrt2) / 2
		return math.Sqrt2 * math.Erfcinv(2*tail*(1-r.Float64()))
	}
	for { // of Marsaglia; few draws are rejected
		x := math.Sqrt(a*a + 2*r.ExpFloat64())
		if r.Float64()*x <= a {
			return x
		}
	}
}

// length draws the run time of a workload that has run for some time already; Never if it is unknown.
func (p *Prediction) length(r *draws, ran workload.Instant) workload.Instant {
	ran = max(ran, p.ran)
	switch {
	case p.Source == Unknown:
		return Never
	case p.of == nil:
		return max(ran, ran+workload.Instant(r.Float64()*float64(p.Limit-ran)))
	}
	least := math.Inf(-1)
	if ran > 0 {
		least = math.Log(float64(ran)/1e9) - p.shift
	}
	return max(ran, p.limited(r.distribution(p.of).after(r, least)+p.shift))
}
