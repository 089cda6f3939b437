package sharing

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-project/berth/internal/core/resource"
	"github.com/berth-project/berth/internal/core/workload"
)

const minute = workload.Instant(time.Minute)

// TestAlpha: spec 20 §4.4.
func TestAlpha(t *testing.T) {
	rates := &Rates{HalfLife: 10 * minute}
	for name, tc := range map[string]struct {
		rates *Rates
		t     workload.Instant
		want  float64
	}{
		"a half-life":       {rates, 10 * minute, 0.5},
		"two":               {rates, 20 * minute, 0.75},
		"no time":           {rates, 0, 0},
		"a clock goes back": {rates, -minute, 0},
		"no half-life":      {&Rates{}, minute, 0},
		"no rates":          {nil, minute, 0},
	} {
		if got := tc.rates.Alpha(tc.t); math.Abs(got-tc.want) > 1e-15 {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestExamples: spec 20 §7 examples 13 and 15, and the state machine of penalties.
func TestExamples(t *testing.T) {
	rates := &Rates{HalfLife: 10 * minute, Interval: 10 * minute, Weights: map[string]float64{"gpu": 3}}
	a := Account{At: minute, Consumed: []Used{{"cpu", 8}}}
	a.Sample(rates, 11*minute, nil)
	expect := func(when string, weight, want float64) {
		t.Helper()
		if got := a.Value(rates, weight); math.Abs(got-want) > 1e-12 && got != want {
			t.Errorf("%s: the value is %v, want %v", when, got, want)
		}
	}
	expect("after one half-life", 1, 4)
	expect("with weight 2", 2, 2)
	expect("with weight 0", 0, math.Inf(1))
	a.PushPenalty(rates, "w", []Request{{"cpu", 2000}, {"gpu", 4}})
	expect("with a penalty", 1, 4+1+3*2)
	a.PushPenalty(rates, "w", []Request{{"cpu", 4000}})
	expect("pushed again", 1, 4+2)
	if !a.DropPenalty("w") || a.DropPenalty("w") {
		t.Error("a penalty is dropped once")
	}
	expect("dropped", 1, 4)
	a.PushPenalty(rates, "w", []Request{{"cpu", 4000}})
	if !a.SettlePenalty(rates, 21*minute, nil, "w") || a.SettlePenalty(rates, 21*minute, nil, "w") {
		t.Error("a penalty is settled once")
	}
	expect("settled", 1, 2+2)
	if a.At != 21*minute {
		t.Errorf("it counts up to %v", a.At)
	}
	(&a).Sample(&Rates{}, 22*minute, []Used{{"cpu", 1}})
	expect("without a half-life", 1, 0)
	if a.PushPenalty(&Rates{}, "w", []Request{{"cpu", 1}}); a.Penalties() != 0 {
		t.Error("without a half-life there are no penalties")
	}
}

// twin is an account as the specification writes it down, with exact decay: half-lives are whole, and amounts are rational numbers.
type twin struct {
	at        int64 // half-lives
	consumed  map[string]*big.Rat
	penalties map[string]map[string]*big.Rat
}

func (tw *twin) sample(now int64, usage map[string]int64) {
	keep := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), uint(max(0, now-tw.at))))
	lost := new(big.Rat).Sub(big.NewRat(1, 1), keep)
	for _, name := range []string{"cpu", "gpu", "memory"} {
		was := tw.consumed[name]
		if was == nil {
			was = new(big.Rat)
		}
		is := big.NewRat(usage[name], 1)
		if name == "cpu" {
			is = big.NewRat(usage[name], 1000)
		}
		tw.consumed[name] = new(big.Rat).Add(new(big.Rat).Mul(keep, was), new(big.Rat).Mul(lost, is))
	}
	tw.at = max(tw.at, now)
}

// drawAmounts returns amounts as the twin has them, as usage and as requests.
func drawAmounts(t *rapid.T) (amounts map[string]int64, usage []Used, requests []Request) {
	amounts = map[string]int64{}
	for _, name := range []string{"cpu", "gpu", "memory"} {
		n := rapid.SampledFrom([]int64{0, 0, 1, 7, 1500, 1 << 36}).Draw(t, name)
		if n == 0 {
			continue
		}
		amounts[name] = n
		requests = append(requests, Request{name, resource.Amount(n)})
		usage = append(usage, Used{name, In(name, resource.Amount(n))})
	}
	return amounts, usage, requests
}

// TestTwin: the ledger is that of exact arithmetic, whatever happens in whatever order.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := &Rates{HalfLife: minute, Interval: minute}
		tw := &twin{at: 1, consumed: map[string]*big.Rat{}, penalties: map[string]map[string]*big.Rat{}}
		a, now := &Account{At: minute}, int64(1)
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			uid := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "uid")
			amounts, usage, requests := drawAmounts(t)
			switch now += rapid.Int64Range(-1, 3).Draw(t, "half-lives"); rapid.SampledFrom([]string{"sample", "push", "drop", "settle"}).Draw(t, "event") {
			case "sample":
				a.Sample(rates, workload.Instant(now)*minute, usage)
				tw.sample(now, amounts)
			case "push":
				a.PushPenalty(rates, uid, requests)
				tw.push(uid, amounts)
			case "drop":
				a.DropPenalty(uid)
				delete(tw.penalties, uid)
			case "settle":
				a.SettlePenalty(rates, workload.Instant(now)*minute, usage, uid)
				tw.settlePenalty(now, amounts, uid)
			}
			tw.compare(t, rates, a)
		}
	})
}

func (tw *twin) push(uid string, amounts map[string]int64) {
	delete(tw.penalties, uid)
	if len(amounts) > 0 {
		tw.penalties[uid] = map[string]*big.Rat{}
	}
	for name, n := range amounts {
		tw.penalties[uid][name] = big.NewRat(n, 2) // of one interval, which is a half-life
		if name == "cpu" {
			tw.penalties[uid][name] = big.NewRat(n, 2000)
		}
	}
}

func (tw *twin) settlePenalty(now int64, amounts map[string]int64, uid string) {
	if tw.penalties[uid] == nil {
		return
	}
	tw.sample(now, amounts)
	for name, n := range tw.penalties[uid] {
		tw.consumed[name].Add(tw.consumed[name], n)
	}
	delete(tw.penalties, uid)
}

func (tw *twin) compare(t *rapid.T, rates *Rates, a *Account) {
	sum := new(big.Rat)
	for name, n := range tw.consumed {
		sum.Add(sum, n)
		i := slices.IndexFunc(a.Consumed, func(u Used) bool { return u.Resource == name })
		want, _ := n.Float64()
		if got := slices.Concat(a.Consumed, []Used{{}})[cmp.Or(i+1, len(a.Consumed)+1)-1].Amount; math.Abs(got-want) > 1e-9+want*1e-12 {
			t.Fatalf("%v of %s is consumed, want %v", got, name, want)
		}
	}
	for _, each := range tw.penalties {
		for _, n := range each {
			sum.Add(sum, n)
		}
	}
	if want, _ := sum.Float64(); math.Abs(a.Value(rates, 1)-want) > 3e-9+want*1e-12 || a.Penalties() != len(tw.penalties) {
		t.Fatalf("the value is %v with %d penalties, want %v with %d", a.Value(rates, 1), a.Penalties(), want, len(tw.penalties))
	}
}
