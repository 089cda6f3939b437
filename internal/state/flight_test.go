package state

import (
	"fmt"
	"testing"
)

// TestRecordDecided: a State that makes no steps, as on a standby, keeps neither events nor the notices of each event. After the first step
// that leaves nothing to do everything is recorded, and replays.
func TestRecordDecided(t *testing.T) {
	s := statisticsWorld(2, 20)
	s.RecordDecided(10)
	def := Workload{UID: "w", Namespace: "ns", Name: "w", LocalQueue: "nowhere", Queueable: true, PodSets: []PodSet{{Name: "main", Count: 1}}}
	set := func() {
		def.Version++
		def.Priority = int64(def.Version % 7)
		s.Apply(SetWorkload(def))
	}
	for i := range 20_000 {
		set()
		if s.Publish(); i%1000 == 0 && s.Publish().Record() != nil {
			t.Fatal("something is recorded before a step")
		}
	}
	if n := len(s.notices); n > manyNotices {
		t.Errorf("%d notices about one workload", n)
	}
	if n := s.flight.last.number + s.flight.older.number; n > 0 {
		t.Errorf("%d events are kept", n)
	}
	told := 0
	for _, d := range s.Step(2, 1000).Decisions {
		if d.Workload.UID == "w" {
			told++
		}
	}
	if told == 0 {
		t.Error("the last notice is lost")
	}
	set()
	s.Step(3, 1000)
	from, events := s.Publish().Record().Contents()
	if len(events) != 2 {
		t.Fatalf("%d events: %v", len(events), events)
	}
	again, err := Restore(from)
	if err != nil {
		t.Fatal(err)
	}
	again.Apply(events[0])
	step := events[1].(Step)
	if r := again.Step(step.Now, step.Budget); Hash(r.Decisions) != step.Hash {
		t.Errorf("it replays to %s", fmt.Sprint(r.Decisions))
	}
}
