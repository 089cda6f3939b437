package controller

import (
	"testing"
	"time"

	"github.com/berth-project/berth/internal/multikueue/plan"
)

// same is that nothing has changed.
func same() string { return "" }

// TestCreationsThatFail: a cluster is left out after three tries, which are some time apart, and is tried again once it is connected anew.
func TestCreationsThatFail(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newFaults(func() time.Time { return now })
	skipped := func() bool {
		fault := f.of("u", "w1", same)
		return fault != nil && fault.Skip
	}
	for range 50 { // retries of half a second
		f.note(place{"u", "w1", ""}, plan.CreateFailed, "webhook is down")
		now = now.Add(10 * time.Millisecond)
	}
	if skipped() {
		t.Error("left out after half a second")
	}
	for range 2 {
		now = now.Add(tryEvery)
		f.note(place{"u", "w1", ""}, plan.CreateFailed, "webhook is down")
	}
	if !skipped() {
		t.Error("not left out after three tries")
	}
	f.note(place{"u", "w2", ""}, plan.NameConflict, "taken")
	f.back("w1")
	if skipped() {
		t.Error("left out although it was connected anew")
	}
	if fault := f.of("u", "w2", same); fault == nil || !fault.Skip {
		t.Error("another cluster was forgotten as well")
	}
	f.note(place{"u", "w2", ""}, plan.NameConflict, "taken")
	now = now.Add(skipFor + time.Second)
	if f.of("u", "w2", same) != nil {
		t.Error("left out for ever")
	}
}

// TestCopiesThatAreDeactivated: a cluster that deactivates copies is left out for 10 s, then for twice as long each time, though copies can be made.
func TestCopiesThatAreDeactivated(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newFaults(func() time.Time { return now })
	for n, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, skipFor, skipFor} {
		f.note(place{"u", "w1", ""}, plan.Deactivated, "a check rejected it")
		fault := f.of("u", "w1", same)
		if fault == nil || !fault.Skip || fault.Until.Sub(now) != want {
			t.Fatalf("time %d: %+v, want left out for %s", n+1, fault, want)
		}
		now = now.Add(want)
		if f.of("u", "w1", same) != nil {
			t.Fatalf("time %d: left out after %s", n+1, want)
		}
		f.clear("u", "w1")
	}
	now = now.Add(2*skipFor + time.Second)
	if f.of("u", "w1", same) != nil {
		t.Error("left out for ever")
	}
	f.note(place{"u", "w1", ""}, plan.Deactivated, "a check rejected it")
	if fault := f.of("u", "w1", same); fault.Until.Sub(now) != 10*time.Second {
		t.Errorf("long after that: %+v", fault)
	}
}

// TestNamesThatAreTaken: a cluster where a name is taken is left out for 15 s, then for twice as long each time, though each time a copy can be
// made there before the job cannot.
func TestNamesThatAreTaken(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newFaults(func() time.Time { return now })
	for n, want := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, skipFor, skipFor} {
		for range 3 { // one attempt may be noted more than once
			f.note(place{"u", "w1", ""}, plan.NameConflict, "a job of this name is there")
		}
		fault := f.of("u", "w1", same)
		if fault == nil || !fault.Skip || fault.Until.Sub(now) != want {
			t.Fatalf("time %d: %+v, want left out for %s", n+1, fault, want)
		}
		now = now.Add(want + time.Second)
		if f.of("u", "w1", same) != nil {
			t.Fatalf("time %d: left out after %s", n+1, want)
		}
		f.copied("u", "w1")
	}
	f.clear("u", "w1") // its job was created
	f.note(place{"u", "w1", ""}, plan.NameConflict, "a job of this name is there")
	if fault := f.of("u", "w1", same); fault.Until.Sub(now) != 15*time.Second {
		t.Errorf("after a success: %+v", fault)
	}
	f.copied("u", "w2")
	f.note(place{"u", "w2", ""}, plan.CreateRejected, "no")
	f.copied("u", "w2")
	if fault := f.of("u", "w2", same); fault != nil {
		t.Errorf("another fault outlasts a copy: %+v", fault)
	}
}

// TestJobsThatAreDeleted: a job that is deleted on its cluster is created there again at once, then after 10 s, then after twice as long each time;
// others of the Workload do not wait for it.
func TestJobsThatAreDeleted(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newFaults(func() time.Time { return now })
	for n, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, skipFor, skipFor} {
		if got := f.remakeAfter("u", "w1", "a"); got != want {
			t.Fatalf("time %d: waits %s, want %s", n+1, got, want)
		}
		if f.remakeAfter("u", "w1", "b") != 0 || f.remakeAfter("u", "w2", "a") != 0 || f.remakeAfter("v", "w1", "a") != 0 {
			t.Fatalf("time %d: others wait as well", n+1)
		}
		now = now.Add(want)
		f.remake("u", "w1", "a")
	}
	now = now.Add(2*skipFor + time.Second)
	if got := f.remakeAfter("u", "w1", "a"); got != 0 {
		t.Errorf("long after that it waits %s", got)
	}
	f.remake("u", "w1", "a")
	if got := f.remakeAfter("u", "w1", "a"); got != 10*time.Second {
		t.Errorf("the row goes on: %s", got)
	}
}

// TestLastLooks: looks at a job that has finished count that are some time apart, however many there are, and none before one that succeeds.
func TestLastLooks(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newFaults(func() time.Time { return now })
	for range 100 {
		f.note(place{"u", "w1", ""}, plan.StatusSync, "while it ran")
	}
	for want := 1; want <= 6; want++ {
		for range 50 {
			f.failedAtEnd("u")
			now = now.Add(tryEvery / 50)
		}
		if got, _, _ := f.about("u"); got != want {
			t.Fatalf("%d count, want %d", got, want)
		}
	}
	f.clear("u", "w1")
	if got, _, _ := f.about("u"); got != 0 {
		t.Errorf("%d count after one that succeeded", got)
	}
}

// TestWarnings: a warning is told once a minute, and others with it.
func TestWarnings(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newFaults(func() time.Time { return now })
	a, b := plan.Warning{Code: "A", Text: "[A] no"}, plan.Warning{Code: "B", Text: "[B] no"}
	told := func(want int, all ...plan.Warning) {
		t.Helper()
		got := f.warnings("u", all)
		if len(got) != want {
			t.Errorf("%v of %v", got, all)
		}
		for _, e := range got {
			if !e.Warning || e.Reason != "MultiKueue" || e.Note == "" {
				t.Errorf("%+v", e)
			}
		}
	}
	told(1, a)
	now = now.Add(59 * time.Second)
	told(1, a, b)
	now = now.Add(time.Second)
	told(1, a, b)
}

// TestSpecWrites: writes of a copy count in a row, for one state of its job, and no other copy's do.
func TestSpecWrites(t *testing.T) {
	f := newFaults(time.Now)
	at := specInput{"w1", "copy", 3}
	if f.specsWritten("u", at) != 0 {
		t.Error("one that was never written")
	}
	for want := 1; want <= 3; want++ {
		if f.wroteSpec("u", at); f.specsWritten("u", at) != want {
			t.Errorf("%d of %d", f.specsWritten("u", at), want)
		}
	}
	for _, other := range []specInput{{"w1", "copy", 4}, {"w1", "another", 3}, {"w2", "copy", 3}} {
		if f.specsWritten("u", other) != 0 {
			t.Errorf("%+v counts as well", other)
		}
	}
	f.back("w2")
	if f.specsWritten("u", at) != 3 {
		t.Error("another worker came back")
	}
	if f.back("w1"); f.specsWritten("u", at) != 0 {
		t.Error("its worker came back")
	}
	f.wroteSpec("u", at)
	if f.specSettled("u"); f.specsWritten("u", at) != 0 {
		t.Error("it came to an end")
	}
}

// TestAskedAgain: a cluster that refused is asked again when the Workload is sent again, or when it, its configuration or the cluster changes. One
// that deactivates copies is not.
func TestAskedAgain(t *testing.T) {
	f := newFaults(time.Now)
	f.note(place{"u", "w1", "1"}, plan.CreateRejected, "no")
	f.note(place{"u", "w2", "1"}, plan.Deactivated, "no")
	if f.of("u", "w1", func() string { return "1" }) == nil {
		t.Error("forgotten although nothing changed")
	}
	if f.of("u", "w1", func() string { return "2" }) != nil || f.of("u", "w1", func() string { return "1" }) != nil {
		t.Error("not forgotten by a change")
	}
	f.note(place{"u", "w1", "1"}, plan.CreateRejected, "no")
	f.retried("u", false)
	if f.of("u", "w1", func() string { return "1" }) != nil {
		t.Error("not forgotten by another try")
	}
	if f.of("u", "w2", func() string { return "2" }) == nil {
		t.Error("it was forgotten that copies are deactivated")
	}
	for i, outOfSync := range []bool{true, true, false, true} {
		f.retried("u", outOfSync)
		if _, _, got := f.about("u"); got != []int{1, 2, 0, 1}[i] {
			t.Errorf("%d mismatches in a row after %d", got, i+1)
		}
	}
}
