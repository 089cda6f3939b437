package embeddedtest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// with sets a flag for the rest of a test.
func with[T any](t *testing.T, flag *T, value T) {
	was := *flag
	*flag = value
	t.Cleanup(func() { *flag = was })
}

// TestSample: a sample has the size and the order that are asked for, a seed repeats it, all seeds together meet all cases, and with -long
// each sample is the whole.
func TestSample(t *testing.T) {
	cases := []string{"a", "b", "c", "d", "e", "f", "g"}
	met := map[string]bool{}
	for n := range uint64(40) {
		with(t, seed, n+1)
		got := Sample(t, 2, cases)
		if len(got) != 2 || !slices.IsSorted(got) || !slices.Equal(got, Sample(t, 2, cases)) {
			t.Fatalf("seed %d: %v", n+1, got)
		}
		for _, c := range got {
			met[c] = true
		}
	}
	if len(met) != len(cases) {
		t.Errorf("40 seeds met %v", met)
	}
	if got := Sample(t, 9, cases); !slices.Equal(got, cases) {
		t.Errorf("more than there are: %v", got)
	}
	with(t, long, true)
	if got := Sample(t, 2, cases); !slices.Equal(got, cases) {
		t.Errorf("with -long: %v", got)
	}
}

// TestSeed: -seed counts first, without it a run repeats the last one, and with -long each run draws another.
func TestSeed(t *testing.T) {
	with(t, seed, 0)
	if a, b := Seed(t, 0), Seed(t, 7); a != usualSeed || b != 7 {
		t.Errorf("got %d and %d, want the usual ones", a, b)
	}
	with(t, long, true)
	if a, b := Seed(t, 7), Seed(t, 7); a == b || a == 7 {
		t.Errorf("got %d and %d, want new ones", a, b)
	}
	with(t, seed, 5)
	if got := Seed(t, 7); got != 5 {
		t.Errorf("got %d, want that of -seed", got)
	}
}

// TestSampleWrites: a sample has one write of each kind, all seeds together have all, and with -long there is no sample.
func TestSampleWrites(t *testing.T) {
	var kinds []string
	for line := range strings.SplitSeq("POST /api/v1/namespaces/n/pods|PATCH /apis/g/v1/namespaces/n/jobs/a/status|PATCH /apis/g/v1/namespaces/n/jobs/b/status|"+
		"PATCH /apis/g/v1/namespaces/n/jobs/a|DELETE /api/v1/namespaces/n|PATCH /apis/g/v1/namespaces/n/jobs/a/status", "|") {
		method, path, _ := strings.Cut(line, " ")
		kinds = append(kinds, KindOfWrite(&http.Request{Method: method, URL: &url.URL{Path: path}}))
	}
	if got, want := fmt.Sprint(kinds), "[POST pods PATCH jobs/status PATCH jobs/status PATCH jobs DELETE namespaces PATCH jobs/status]"; got != want {
		t.Fatalf("kinds %s, want %s", got, want)
	}
	met := map[string]bool{}
	for n := range uint64(40) {
		with(t, seed, n+1)
		met[fmt.Sprint(SampleWrites(t, kinds))] = true
	}
	for _, want := range []string{"[1 2 4 5]", "[1 3 4 5]", "[1 4 5 6]"} {
		if !met[want] {
			t.Errorf("no seed draws %s: %v", want, met)
		}
	}
	if len(met) != 3 {
		t.Errorf("samples %v", met)
	}
	with(t, long, true)
	if got := SampleWrites(t, kinds); len(got) != len(kinds) {
		t.Errorf("with -long: %v", got)
	}
}
