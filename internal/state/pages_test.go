package state

import (
	"encoding/json"
	"maps"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// checkCheckpoint: the checkpoints of all records that the recorder keeps equal a copy made now, and earlier checkpoints do not change.
func (m *machine) checkCheckpoint(t *rapid.T) {
	kept, full := m.s.flight.shareRecords(m.s), m.s.copyRecords().table
	for number := range max(len(kept), len(full)) * pageLen {
		have, want := pageAt(kept, number), pageAt(full, number)
		if !have.same(&want) {
			t.Fatalf("record number %d: the recorder has\n%+v %+v, a copy\n%+v %+v", number, have, have.rare, want, want.rare)
		}
	}
	for i := range m.checkpoints {
		c := &m.checkpoints[i]
		if c.of.begun == c.Checkpoint {
			continue
		}
		if now := asText(t, c.Checkpoint); now != c.text {
			t.Fatalf("a checkpoint has changed since it began:\n%s", gocmp.Diff(c.text, now))
		}
	}
}

// keptCheckpoint is a checkpoint that was begun at some moment, and the snapshot of one that was completed at that moment.
type keptCheckpoint struct {
	*Checkpoint
	of   *State
	text string
}

// checkpoint begins a checkpoint and keeps it, of several the last three. Steps complete it slowly.
func (m *machine) checkpoint(t *rapid.T) {
	m.step(t)
	text := asText(t, m.s.Checkpoint())
	m.s.flight.classes = 1
	m.checkpoints = append(m.checkpoints[max(0, len(m.checkpoints)-2):], keptCheckpoint{m.s.BeginCheckpoint(), m.s, text})
}

// fork returns a copy of the state, made in one of two ways, which give the same.
func (m *machine) fork(t *rapid.T) *State {
	c := m.s.Checkpoint()
	restored := reread(t, c.Snapshot())
	fork, err := c.Fork()
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(asText(t, restored.Checkpoint()), asText(t, fork.Checkpoint())); diff != "" {
		t.Fatalf("the copies differ (-restored +fork):\n%s", diff)
	}
	if diff := gocmp.Diff(asText(t, c), asText(t, fork.Checkpoint())); diff != "" {
		t.Fatalf("the fork differs (-checkpoint +fork):\n%s", diff)
	}
	if rapid.Bool().Draw(t, "fork") {
		return fork
	}
	return restored
}

// forkBetween: a fork that is made between events decides as the state does.
func (m *machine) forkBetween(t *rapid.T) {
	fork, err := m.s.Checkpoint().Fork()
	if err != nil {
		t.Fatal(err)
	}
	fork.Step(m.tick(), 1000)
	m.now--
	m.stepAnd(t, func() {
		if diff := gocmp.Diff(withoutTried(m.s.Checkpoint()), withoutTried(fork.Checkpoint())); diff != "" {
			t.Fatalf("the fork has decided otherwise (-state +fork):\n%s", diff)
		}
	})
}

// withoutTried is a snapshot without the differences of a copy: it has chosen the wake conditions of its classes anew, and so a release may
// have filed other ones, and may be noted for a queue where no condition of the copy holds. The checks of a step of the machine explain workloads, which numbers measures that no workload waits for.
func withoutTried(c *Checkpoint) *Snapshot {
	s := c.Snapshot()
	s.Memory.Measures, s.Measured = nil, nil
	for i := range s.Memory.Queues {
		s.Memory.Queues[i].Released = nil
		for j := range s.Memory.Queues[i].Inadmissible {
			s.Memory.Queues[i].Inadmissible[j].Tried = false
		}
	}
	return s
}

func asText(t *rapid.T, c *Checkpoint) string {
	data, err := json.MarshalIndent(c.Snapshot(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func pageAt(pages []*page, number int) workloadCheckpoint {
	if number/pageLen >= len(pages) {
		return workloadCheckpoint{}
	}
	return pages[number/pageLen][number%pageLen]
}

// TestRecordPages: a copy of a table of pages never changes, and the table has the last value of each number.
func TestRecordPages(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type copied struct {
			table []*page
			want  map[int32]workloadCheckpoint
		}
		var p pages
		want, copies := map[int32]workloadCheckpoint{}, []copied{}
		for range rapid.IntRange(1, 60).Draw(rt, "changes") {
			if rapid.IntRange(0, 5).Draw(rt, "copy") == 0 {
				copies = append(copies, copied{p.share(), maps.Clone(want)})
			}
			number, w := rapid.Int32Range(0, 70*pageLen).Draw(rt, "number"), workloadCheckpoint{}
			if rapid.IntRange(0, 3).Draw(rt, "blank") > 0 {
				w.def = &definition{rare: &nothing}
			}
			p.set(number, w)
			want[number] = w
		}
		for _, c := range append(copies, copied{p.table, want}) {
			for number, w := range c.want {
				if have := pageAt(c.table, int(number)); !have.same(&w) {
					rt.Fatalf("number %d is %v, want %v", number, have, w)
				}
			}
		}
	})
}
