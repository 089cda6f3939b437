package embeddedtest

import (
	"cmp"
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	seed = flag.Uint64("seed", 0, "what random tests and samples are drawn from, to repeat a run that logged it; 0: the usual one, or a new one with -long")
	long = flag.Bool("long", false, "run suites with all their cases instead of a sample, and random tests for longer: takes hours")
)

// usualSeed is the seed of a test that names none.
const usualSeed = 1

// Long reports whether the flag -long was given: a suite then runs all its cases, and a random test runs for as long as for a release.
func Long() bool { return *long }

// Seed returns the seed of a random test: -seed; else a new one with -long; else usual, or 1 if that is 0, so that a run without flags
// repeats the last one. The test logs it.
func Seed(t testing.TB, usual uint64) uint64 {
	t.Helper()
	drawn := cmp.Or(*seed, usual, usualSeed)
	if *seed == 0 && *long {
		drawn = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", drawn)
	return drawn
}

// Random returns a source of random numbers for a test, which depends on the seed and the name of the test.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name())) // never fails
	return rand.New(rand.NewPCG(Seed(t, 0), name.Sum64()))
}

// Sample returns the cases that a suite runs, in their order: all with -long, otherwise at most n, drawn from Random. Runs with different
// seeds draw different ones, and together meet all of them.
func Sample[T any](t testing.TB, n int, cases []T) []T {
	t.Helper()
	if *long || n >= len(cases) {
		return cases
	}
	drawn := Random(t).Perm(len(cases))[:n]
	slices.Sort(drawn)
	out := make([]T, 0, n)
	for _, at := range drawn {
		out = append(out, cases[at])
	}
	return out
}

// Source is a source of random numbers for libraries of math/rand.
type Source struct{ *rand.Rand }

// Int63 is of rand.Source.
func (s Source) Int63() int64 { return s.Int64() }

// Seed is of rand.Source, and does nothing: see Random.
func (Source) Seed(int64) {}
