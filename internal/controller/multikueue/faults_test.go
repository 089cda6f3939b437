package multikueue

import (
	"testing"
	"time"

	"github.com/berth-project/berth/internal/plan/dispatch"
)

// TestCreationsThatFail: a cluster is left out after three tries, which are some time apart, and is tried again once it is connected anew.
func TestCreationsThatFail(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newFaults(func() time.Time { return now })
	skipped := func() bool {
		fault := f.of("u", "w1")
		return fault != nil && fault.Skip
	}
	for range 50 { // retries of half a second
		f.note("u", "w1", dispatch.CreateFailed, "webhook is down")
		now = now.Add(10 * time.Millisecond)
	}
	if skipped() {
		t.Error("left out after half a second")
	}
	for range 2 {
		now = now.Add(tryEvery)
		f.note("u", "w1", dispatch.CreateFailed, "webhook is down")
	}
	if !skipped() {
		t.Error("not left out after three tries")
	}
	f.note("u", "w2", dispatch.NameConflict, "taken")
	f.back("w1")
	if skipped() {
		t.Error("left out although it was connected anew")
	}
	if fault := f.of("u", "w2"); fault == nil || !fault.Skip {
		t.Error("another cluster was forgotten as well")
	}
	f.note("u", "w2", dispatch.NameConflict, "taken")
	now = now.Add(skipFor + time.Second)
	if f.of("u", "w2") != nil {
		t.Error("left out for ever")
	}
}

// TestCopiesThatAreDeactivated: a cluster that deactivates copies is left out for 10 s, then for twice as long each time, though copies can be made.
func TestCopiesThatAreDeactivated(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newFaults(func() time.Time { return now })
	for n, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, skipFor, skipFor} {
		f.note("u", "w1", dispatch.Deactivated, "a check rejected it")
		fault := f.of("u", "w1")
		if fault == nil || !fault.Skip || fault.Until.Sub(now) != want {
			t.Fatalf("time %d: %+v, want left out for %s", n+1, fault, want)
		}
		now = now.Add(want)
		if f.of("u", "w1") != nil {
			t.Fatalf("time %d: left out after %s", n+1, want)
		}
		f.clear("u", "w1")
	}
	now = now.Add(2*skipFor + time.Second)
	if f.of("u", "w1") != nil {
		t.Error("left out for ever")
	}
	f.note("u", "w1", dispatch.Deactivated, "a check rejected it")
	if fault := f.of("u", "w1"); fault.Until.Sub(now) != 10*time.Second {
		t.Errorf("long after that: %+v", fault)
	}
}
