package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "github.com/berth-project/berth/api/kueue/v1beta2"
	"github.com/berth-project/berth/internal/multikueue/plan"
)

var u, v = workloadOf("u", "u"), workloadOf("v", "v")

func workloadOf(name string, uid types.UID) *kueue.Workload {
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid}}
}

// TestRecordEnds: facts end with their UID, when the Workload is finished or cleaned up, and when they expire; faults of a cluster also
// end with a new connection. Running steps, and a deleted Workload that is not cleaned up, remain.
func TestRecordEnds(t *testing.T) {
	const kept, faultless, dropped = "kept", "without faults", "dropped"
	for name, tc := range map[string]struct {
		end  func(*records, *time.Time)
		want string
	}{
		"nothing":                   {func(*records, *time.Time) {}, kept},
		"another Workload":          {func(r *records, _ *time.Time) { r.finished(v) }, kept},
		"it is finished":            {func(r *records, _ *time.Time) { r.finished(u) }, dropped},
		"another UID of the name":   {func(r *records, _ *time.Time) { r.reported(workloadOf("u", "w")) }, dropped},
		"its cluster is back":       {func(r *records, _ *time.Time) { r.reconnected("w1") }, faultless},
		"another cluster is back":   {func(r *records, _ *time.Time) { r.reconnected("w2") }, kept},
		"it is cleaned up":          {func(r *records, _ *time.Time) { r.forget(u) }, dropped},
		"another one is cleaned up": {func(r *records, _ *time.Time) { r.forget(u.DeepCopy()) }, kept},
		"long ago": {func(r *records, now *time.Time) {
			r.all[client.ObjectKeyFromObject(u)].deleted = nil
			*now = now.Add(expiry + time.Second)
			r.reported(v)
		}, dropped},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			r := newRecords(func() time.Time { return now })
			r.noteFault(u, "w1", "", plan.Fault{Code: plan.NameConflict, Text: "taken"})
			r.recreated(u, "w1", "a")
			r.finalSyncFailed(u)
			r.deleted(u)
			tc.end(r, &now)
			got := map[[3]bool]string{{true, true, true}: kept, {false, true, true}: faultless, {}: dropped}[[3]bool{
				r.fault(u, "w1", same) != nil, r.recreateAfter(u, "w1", "a") > 0, r.about(u).syncFailures > 0,
			}]
			if got != tc.want {
				t.Errorf("it is %q, want %s", got, tc.want)
			}
		})
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := newRecords(func() time.Time { return now })
	key := client.ObjectKeyFromObject(u)
	r.deleted(u)
	release := make(chan struct{})
	over := make(chan struct{})
	if err := r.runStep(key, "w1", 0, func() error { <-release; return nil }, func() { close(over) }); err != nil {
		t.Fatal(err)
	}
	r.finished(u)
	r.reconnected("w1")
	r.reported(workloadOf("u", "w"))
	r.forget(u)
	now = now.Add(2 * expiry)
	r.reported(v)
	if !r.stepRuns(key, "w1") || r.lastSeen(key) != u {
		t.Error("forgotten while a step runs")
	}
	close(release)
	<-over
	r.forget(u)
	if r.lastSeen(key) != nil || r.stepRuns(key, "w1") || len(r.all) != 1 {
		t.Errorf("it is not forgotten: %v", r.all)
	}
}

// same are unchanged inputs.
func same() string { return "" }

// TestCreationsThatFail: a cluster is skipped after three failures that are some time apart, and is tried again with a new connection.
func TestCreationsThatFail(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newRecords(func() time.Time { return now })
	skipped := func() bool {
		fault := f.fault(u, "w1", same)
		return fault != nil && fault.Skip
	}
	for range 50 { // half a second
		f.noteFault(u, "w1", "", plan.Fault{Code: plan.CreateFailed, Text: "webhook is down"})
		now = now.Add(10 * time.Millisecond)
	}
	if skipped() {
		t.Error("left out after half a second")
	}
	for range 2 {
		now = now.Add(tryEvery)
		f.noteFault(u, "w1", "", plan.Fault{Code: plan.CreateFailed, Text: "webhook is down"})
	}
	if !skipped() {
		t.Error("not left out after three tries")
	}
	f.noteFault(u, "w2", "", plan.Fault{Code: plan.NameConflict, Text: "taken"})
	f.reconnected("w1")
	if skipped() {
		t.Error("left out although it was connected anew")
	}
	if fault := f.fault(u, "w2", same); fault == nil || !fault.Skip {
		t.Error("another cluster was forgotten as well")
	}
	f.noteFault(u, "w2", "", plan.Fault{Code: plan.NameConflict, Text: "taken"})
	now = now.Add(skipFor + time.Second)
	if f.fault(u, "w2", same) != nil {
		t.Error("left out for ever")
	}
}

// TestWritesThatFail: a refused removal is no reason to skip a cluster, and does not hide why one is skipped.
func TestWritesThatFail(t *testing.T) {
	f := newRecords(time.Now)
	refused := plan.Fault{Code: plan.WriteFailed, Text: "forbidden"}
	f.noteFault(u, "w1", "", refused)
	if fault := f.fault(u, "w1", same); fault == nil || *fault != refused {
		t.Errorf("it is %+v", fault)
	}
	f.clearWriteFault(u, "w1")
	if fault := f.fault(u, "w1", same); fault != nil {
		t.Errorf("after a success it is %+v", fault)
	}
	f.noteFault(u, "w1", "", plan.Fault{Code: plan.Deactivated, Text: "no"})
	f.noteFault(u, "w1", "", refused)
	f.clearWriteFault(u, "w1")
	if fault := f.fault(u, "w1", same); fault == nil || fault.Code != plan.Deactivated || !fault.Skip {
		t.Errorf("it replaced another: %+v", fault)
	}
}

// TestCopiesThatAreDeactivated: a cluster that deactivates copies is skipped for 10 s, then for twice as long each time, although copies
// can be created.
func TestCopiesThatAreDeactivated(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newRecords(func() time.Time { return now })
	for n, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, skipFor, skipFor} {
		f.noteFault(u, "w1", "", plan.Fault{Code: plan.Deactivated, Text: "a check rejected it"})
		fault := f.fault(u, "w1", same)
		if fault == nil || !fault.Skip || fault.Until.Sub(now) != want {
			t.Fatalf("time %d: %+v, want left out for %s", n+1, fault, want)
		}
		now = now.Add(want)
		if f.fault(u, "w1", same) != nil {
			t.Fatalf("time %d: left out after %s", n+1, want)
		}
		f.clearFault(u, "w1", plan.Deactivated)
	}
	now = now.Add(2*skipFor + time.Second)
	if f.fault(u, "w1", same) != nil {
		t.Error("left out for ever")
	}
	f.noteFault(u, "w1", "", plan.Fault{Code: plan.Deactivated, Text: "a check rejected it"})
	if fault := f.fault(u, "w1", same); fault.Until.Sub(now) != 10*time.Second {
		t.Errorf("long after that: %+v", fault)
	}
}

// TestNamesThatAreTaken: a cluster where a name is taken is skipped for 15 s, then for twice as long each time, although a copy can be
// created each time before its job cannot.
func TestNamesThatAreTaken(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newRecords(func() time.Time { return now })
	for n, want := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, skipFor, skipFor} {
		for range 3 { // one attempt may be noted several times
			f.noteFault(u, "w1", "", plan.Fault{Code: plan.NameConflict, Text: "a job of this name is there"})
		}
		fault := f.fault(u, "w1", same)
		if fault == nil || !fault.Skip || fault.Until.Sub(now) != want {
			t.Fatalf("time %d: %+v, want left out for %s", n+1, fault, want)
		}
		now = now.Add(want + time.Second)
		if f.fault(u, "w1", same) != nil {
			t.Fatalf("time %d: left out after %s", n+1, want)
		}
		f.clearFault(u, "w1", plan.Deactivated, plan.NameConflict)
	}
	f.clearFault(u, "w1", plan.Deactivated) // its job was created
	f.noteFault(u, "w1", "", plan.Fault{Code: plan.NameConflict, Text: "a job of this name is there"})
	if fault := f.fault(u, "w1", same); fault.Until.Sub(now) != 15*time.Second {
		t.Errorf("after a success: %+v", fault)
	}
	f.clearFault(u, "w2", plan.Deactivated, plan.NameConflict)
	f.noteFault(u, "w2", "", plan.Fault{Code: plan.CreateRejected, Text: "no"})
	f.clearFault(u, "w2", plan.Deactivated, plan.NameConflict)
	if fault := f.fault(u, "w2", same); fault != nil {
		t.Errorf("another fault outlasts a copy: %+v", fault)
	}
}

// TestJobsThatAreDeleted: a job that others delete on its cluster is created again at once, then after 10 s, then after twice as long
// each time. Other jobs of the Workload do not wait.
func TestJobsThatAreDeleted(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newRecords(func() time.Time { return now })
	for n, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, skipFor, skipFor} {
		if got := f.recreateAfter(u, "w1", "a"); got != want {
			t.Fatalf("time %d: waits %s, want %s", n+1, got, want)
		}
		if f.recreateAfter(u, "w1", "b") != 0 || f.recreateAfter(u, "w2", "a") != 0 || f.recreateAfter(v, "w1", "a") != 0 {
			t.Fatalf("time %d: others wait as well", n+1)
		}
		now = now.Add(want)
		f.recreated(u, "w1", "a")
	}
	now = now.Add(2*skipFor + time.Second)
	if got := f.recreateAfter(u, "w1", "a"); got != 0 {
		t.Errorf("long after that it waits %s", got)
	}
	f.recreated(u, "w1", "a")
	if got := f.recreateAfter(u, "w1", "a"); got != 10*time.Second {
		t.Errorf("the row goes on: %s", got)
	}
}

// TestLastLooks: failures to copy the final status count if they are some time apart, and begin anew after a success.
func TestLastLooks(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newRecords(func() time.Time { return now })
	for range 100 {
		f.noteFault(u, "w1", "", plan.Fault{Code: plan.StatusSync, Text: "while it ran"})
	}
	for want := 1; want <= 6; want++ {
		for range 50 {
			f.finalSyncFailed(u)
			now = now.Add(tryEvery / 50)
		}
		if got := f.about(u).syncFailures; got != want {
			t.Fatalf("%d count, want %d", got, want)
		}
	}
	f.clearFault(u, "w1", plan.Deactivated)
	if got := f.about(u).syncFailures; got != 0 {
		t.Errorf("%d count after one that succeeded", got)
	}
}

// TestWarnings: each warning is emitted once a minute.
func TestWarnings(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newRecords(func() time.Time { return now })
	a, b := plan.Warning{Code: "A", Text: "[A] no"}, plan.Warning{Code: "B", Text: "[B] no"}
	told := func(want int, all ...plan.Warning) {
		t.Helper()
		got := f.warnings(u, all)
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

// TestSpecWrites: writes of a copy count in a row for one state of its job.
func TestSpecWrites(t *testing.T) {
	f := newRecords(time.Now)
	at := specInput{"copy", 3}
	if f.specsWritten(u, "w1", at) != 0 {
		t.Error("one that was never written")
	}
	for want := 1; want <= 3; want++ {
		if f.wroteSpec(u, "w1", at); f.specsWritten(u, "w1", at) != want {
			t.Errorf("%d of %d", f.specsWritten(u, "w1", at), want)
		}
	}
	for _, other := range []specInput{{"copy", 4}, {"another", 3}} {
		if f.specsWritten(u, "w1", other) != 0 {
			t.Errorf("%+v counts as well", other)
		}
	}
	if f.specsWritten(u, "w2", at) != 0 {
		t.Error("writes on another cluster count as well")
	}
	f.reconnected("w2")
	if f.specsWritten(u, "w1", at) != 3 {
		t.Error("another worker came back")
	}
	if f.reconnected("w1"); f.specsWritten(u, "w1", at) != 0 {
		t.Error("its worker came back")
	}
	f.wroteSpec(u, "w1", at)
	if f.specInSync(u, "w1"); f.specsWritten(u, "w1", at) != 0 {
		t.Error("it came to an end")
	}
}

// TestAskedAgain: a cluster that refused is tried again after a retry, or a change of the Workload, its configuration or the cluster. One
// that deactivates copies is not.
func TestAskedAgain(t *testing.T) {
	f := newRecords(time.Now)
	f.noteFault(u, "w1", "1", plan.Fault{Code: plan.CreateRejected, Text: "no"})
	f.noteFault(u, "w2", "1", plan.Fault{Code: plan.Deactivated, Text: "no"})
	if f.fault(u, "w1", func() string { return "1" }) == nil {
		t.Error("forgotten although nothing changed")
	}
	if f.fault(u, "w1", func() string { return "2" }) != nil || f.fault(u, "w1", func() string { return "1" }) != nil {
		t.Error("not forgotten by a change")
	}
	f.noteFault(u, "w1", "1", plan.Fault{Code: plan.CreateRejected, Text: "no"})
	f.retried(u, false)
	if f.fault(u, "w1", func() string { return "1" }) != nil {
		t.Error("not forgotten by another try")
	}
	if f.fault(u, "w2", func() string { return "2" }) == nil {
		t.Error("it was forgotten that copies are deactivated")
	}
	for i, outOfSync := range []bool{true, true, false, true} {
		f.retried(u, outOfSync)
		if got := f.about(u).mismatches; got != []int{1, 2, 0, 1}[i] {
			t.Errorf("%d mismatches in a row after %d", got, i+1)
		}
	}
}
