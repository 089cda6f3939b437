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
